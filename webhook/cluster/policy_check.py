"""Every fault of a policy file at once: types at any depth, unknown keys, and what has the right type and says nothing.

``check`` walks the file beside the model's own types (``webhook.model.policy``), so a field that the model has is read
and one that it lacks is a fault. What a type cannot say stands in ``_FIELDS`` (one field of one struct) and ``_WHOLE``
(the fields of one struct together).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct, inspect

from webhook.cluster.places import Step
from webhook.effective.buildable.syntax import is_dns_label, is_dns_subdomain
from webhook.model.glob import is_glob
from webhook.model.labels import contradiction, is_label_key, is_label_value
from webhook.model.moment import DAY, day_of, parse_duration, parse_moment
from webhook.model.names import RUNTIME_KINDS, TIER
from webhook.model.nearest import near
from webhook.model.policy import NEVER_DENIES, NO_EXCEPTION, Exemption, Policy, Selector
from webhook.model.size import parse_bytes, parse_count

Steps = tuple[Step, ...]
Fault = tuple[Steps, str]
"""Where in the file, and what is wrong, with what to write."""

INTERNAL: Final = frozenset(("hash", "derived"))
"""Fields of ``Policy`` that no file writes."""
_FINGERPRINT_DIGITS: Final = 12
_REGEX: Final = ("^", "$", "\\", "(", ")", "|", "+", "{", ".*", "[", "]")
_ORDER: Final = (
    *("checkpoint-guard.io/v1", "Policy", "enforce", "deny", "read", "warn", "audit", "off"),
    *("node-local", "one-node", "many-nodes", "TrainingRuntime", "ClusterTrainingRuntime", "multi-node", "keep"),
    *("In", "NotIn", "Exists", "DoesNotExist"),
)
"""Words in the order that they are named in: msgspec forgets it."""
_CHOICES: Final = {"backoffLimit": ("0", "multi-node", "keep")}
"""What is named where the types alone would say less."""


class Context(Struct, frozen=True):
    """What a file is checked against: the ids of rules, the time (None: no date is too far), how far one may end."""

    rule_ids: Collection[str]
    now: float | None = None
    days: int = 180


def check(raw: Mapping[str, Any], context: Context) -> list[Fault]:
    """All faults of a policy, in the order of the file."""
    faults: list[Fault] = []
    for key, wanted in (("apiVersion", "checkpoint-guard.io/v1"), ("kind", "Policy")):
        if key not in raw:
            faults.append(((key,), f"absent: write {key}: {wanted}"))
        elif raw[key] != wanted:
            faults.append(((key,), f"{_value(raw[key])} is not read here: write {key}: {wanted}"))
    limits = raw.get("limits")
    days = limits.get("exceptionDays") if isinstance(limits, dict) else None
    if type(days) is int and days > 0:
        context = msgspec.structs.replace(context, days=days)
    rest = {key: value for key, value in raw.items() if key not in ("apiVersion", "kind")}
    faults.extend(_struct(Policy, rest, (), context))
    order = {key: place for place, key in enumerate(raw)}
    return sorted(faults, key=lambda fault: order.get(str(fault[0][0]) if fault[0] else "", -1))


def check_exception(spec: object, context: Context) -> list[Fault]:
    """All faults of the ``spec`` of a CheckpointException: it is an exception of the policy for one namespace."""
    if not isinstance(spec, dict):
        return [(("spec",), "absent: write rules, match, reason, owner and until" if spec is None else "no mapping")]
    faults = list(_struct(Exemption, spec, ("spec",), context))
    match = spec.get("match")
    if isinstance(match, dict) and "namespaces" in match:
        words = "a CheckpointException is for its own namespace alone: take this out"
        faults.append((("spec", "match", "namespaces"), words))
    return faults


def warnings(policy: Policy, now: float) -> Iterator[Fault]:
    """What is no fault and still will not do what somebody may expect of it."""
    for index, one in enumerate(policy.exceptions):
        end = parse_moment(one.until)
        if end is not None and end <= now:
            yield (
                ("exceptions", index, "until"),
                f"{one.until} has passed: what it excused is refused again on CREATE; take it out, or set a new day",
            )
    for index, entry in enumerate(policy.namespaces):
        if isinstance(entry.selector, Selector):
            keys = {*entry.selector.match_labels, *(each.key for each in entry.selector.match_expressions)}
            for key in sorted(keys - GUARDED):
                yield (
                    ("namespaces", index, "selector"),
                    f'"{key}" is a label that whoever may edit the namespace can set: '
                    f"select by names, or by {' or '.join(sorted(GUARDED))}",
                )


GUARDED: Final = frozenset((TIER, "kubernetes.io/metadata.name"))
"""Labels of a namespace that its users cannot set: the API server's own, and what ``deploy/policies`` guards."""


# --- types


@lru_cache(maxsize=64)
def _fields(kind: type) -> dict[str, tuple[inspect.Type, bool]]:
    """The struct's fields by their name in the file: type, and whether it has to be there."""
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)  # noqa: S101 - our own types
    return {field.encode_name: (field.type, field.required) for field in described.fields if field.name not in INTERNAL}


def _struct(kind: type, raw: Mapping[str, Any], at: Steps, context: Context) -> Iterator[Fault]:
    known = _fields(kind)
    right = True
    for key, value in raw.items():
        if key not in known:
            right = False
            yield (*at, key), f"unknown field{_meant(key, known)}"
            continue
        faults = list(_typed(known[key][0], value, (*at, key), context))
        if faults:
            right = False
            yield from faults
        elif (more := _FIELDS.get((kind.__name__, key))) is not None:
            for steps, message in more(value, context):
                right = False
                yield (*at, key, *steps), message
    for key, (_, required) in known.items():
        if required and key not in raw:
            right = False
            yield (*at, key), f"absent: {_REQUIRED.get(key, 'an item of this list needs it')}"
    if right and (whole := _WHOLE.get(kind.__name__)) is not None:
        for steps, message in whole(raw, context):
            yield (*at, *steps), message


def _typed(kind: inspect.Type, value: Any, at: Steps, context: Context) -> Iterator[Fault]:
    """The faults of one value; what of a union it may be is told by what it is."""
    if isinstance(kind, inspect.UnionType):
        wanted = list(kind.types)
        kind = next((one for one in wanted if _is(one, value)), wanted[0])
        if not _is(kind, value) and len(wanted) > 1:
            yield at, _wrong(wanted, value, at)
            return
    if not _is(kind, value):
        yield at, _wrong([kind], value, at)
    elif isinstance(kind, inspect.StructType):
        yield from _struct(kind.cls, value, at, context)
    elif isinstance(kind, inspect.DictType):
        for key, item in value.items():
            yield from _typed(kind.value_type, item, (*at, key), context)
    elif isinstance(kind, inspect.VarTupleType):
        for index, item in enumerate(value):
            yield from _typed(kind.item_type, item, (*at, index), context)
    elif isinstance(kind, inspect.LiteralType):
        if value not in kind.values:
            yield at, _wrong([kind], value, at)
    elif isinstance(kind, inspect.IntType) and not (kind.ge or 0) <= value <= (kind.le or 0):
        yield at, f"{value} is not within {kind.ge} and {kind.le}"


def _is(kind: inspect.Type, value: Any) -> bool:
    """Whether a value is of a kind, but for what is in it."""
    match kind:
        case inspect.StructType() | inspect.DictType():
            return isinstance(value, dict)
        case inspect.VarTupleType():
            return isinstance(value, list)
        case inspect.StrType():
            return isinstance(value, str)
        case inspect.LiteralType():
            return isinstance(value, str) and (value in kind.values or not isinstance(kind.values[0], int))
        case inspect.IntType():
            return type(value) is int
        case _:
            return value is None


def _wrong(kinds: list[inspect.Type], value: Any, at: Steps) -> str:
    choices: list[str] = []
    for kind in kinds:
        if isinstance(kind, inspect.LiteralType):
            choices.extend(sorted(map(str, kind.values), key=_ORDER.index))
    if isinstance(value, bool):
        said = "true" if value else "false"
        if not choices:
            return f'{said} stands where {_words(kinds)} belongs: a text takes quotes, "{said}"'
        word = "on" if value else "off"
        return f'{said} stands here, which is what YAML reads {word} as: write "{word}"'
    if choices:
        told = _CHOICES.get(str(at[-1]), tuple(choices))
        return f"{_value(value)} is none of {', '.join(told)}{_meant(str(value), told)}"
    return f"{_value(value)} stands where {_words(kinds)} belongs"


def _words(kinds: list[inspect.Type]) -> str:
    shown = {
        "StrType": "a string",
        "IntType": "an integer",
        "VarTupleType": "a list",
        "StructType": "a mapping",
        "DictType": "a mapping",
        "NoneType": "null",
    }
    return " or ".join(shown[type(kind).__name__] for kind in kinds)


def _meant(word: str, known: Collection[str]) -> str:
    close = near(word, known)
    return f', the nearest is "{close}"' if close else ""


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "a mapping"
    return "null" if value is None else f'"{value}"' if isinstance(value, str) else f"the number {value}"


# --- one field


Check = Callable[[Any, Context], Iterator[Fault]]
_REQUIRED: Final = {
    "until": "an exception ends, write until: 2027-03-31",
    "owner": "write whom to ask, owner: team-a@example.com",
    "reason": "write why, it is told at every use",
    "rules": "write the ids that it excuses, rules: [short-grace]",
}


def _id(rule: str, context: Context) -> str | None:
    if rule in context.rule_ids:
        return None
    return f'there is no rule "{rule}"{_meant(rule, context.rule_ids)}: see ckptguard rules'


def _settings(rules: Mapping[str, str], context: Context) -> Iterator[Fault]:
    for rule, setting in rules.items():
        if (fault := _id(rule, context)) is not None:
            yield (rule,), fault
        elif setting == "deny" and rule in NEVER_DENIES:
            yield (rule,), f'"{rule}" never denies: {NEVER_DENIES[rule]}. Write warn, audit or "off"'


def _excused(rules: list[str], context: Context) -> Iterator[Fault]:
    if not rules:
        yield (), "this list names no rule, so it excuses nothing"
    for index, rule in enumerate(rules):
        if (fault := _id(rule, context)) is not None:
            yield (index,), f"{fault}{' (every rule has to be named)' if is_glob(rule) else ''}"
        elif rule in NO_EXCEPTION:
            yield (index,), f'no exception reaches "{rule}": set it in rules'


def _self_service(rules: list[str], context: Context) -> Iterator[Fault]:
    return _excused(rules, context) if rules else iter(())


def _variables(names: list[str], context: Context) -> Iterator[Fault]:
    for index, name in enumerate(names):
        if not name or "=" in name or name[0].isdigit() or not all(c.isalnum() or c in "_-." for c in name):
            yield (index,), f'"{name}" is no name of a variable'


def _duration(text: str, context: Context) -> Iterator[Fault]:
    if parse_duration(text) is None:
        yield (), f'"{text}" is no duration: write 90s, 30m or 2h'


def _path(path: str, context: Context) -> Iterator[Fault]:
    if not path.startswith("/"):
        yield (), f'"{path}" does not begin with /'
    elif not _is_mount_path(path):
        yield (), f'"{path}" is no place for a volume: write a path such as /mnt/ckpt'


def _is_mount_path(path: str) -> bool:
    """Whether the API server and the kubelet take it, and it is written in one way only."""
    parts = path.strip("/").split("/")
    whole = all(part not in ("", ".", "..") and part.isprintable() for part in parts)
    return whole and len(path) <= 1024 and set(":<$").isdisjoint(path)


def _claim(name: str, context: Context) -> Iterator[Fault]:
    if name and not is_dns_subdomain(name):
        yield (), f'"{name}" is no name of a claim: lower case, digits, - and .'


def _size(text: str, context: Context) -> Iterator[Fault]:
    size = parse_bytes(text)
    if size is None or size <= 0:
        yield (), f'"{text}" is no size: write 80Gi'


def _params(text: str, context: Context) -> Iterator[Fault]:
    if not parse_count(text):
        yield (), f'"{text}" is no number of parameters: write 7B'


def _class(name: str | None, context: Context) -> Iterator[Fault]:
    if name is not None and not is_dns_subdomain(name):
        yield (), f'"{name}" is no name of a StorageClass: write one, or null for an emptyDir'


def _drivers(table: Mapping[str, str], context: Context) -> Iterator[Fault]:
    for name in table:
        rest = name.removeprefix("*.")
        if "*" in rest or not rest:
            yield (name,), f'"{name}" matches nothing: a name stands whole or as *.suffix'


def _host_paths(patterns: list[str], context: Context) -> Iterator[Fault]:
    for index, pattern in enumerate(patterns):
        plain = pattern.replace("*", "").replace("?", "")
        if any(mark in pattern for mark in _REGEX):
            yield (index,), f'"{pattern}" looks like a regular expression, which is not read: write a glob, /fsx/*'
        elif not pattern.startswith("/") or ".." in pattern.split("/"):
            yield (index,), f'"{pattern}" is no directory of a node: write /fsx/*'
        elif not plain.strip("/"):
            yield (index,), f'"{pattern}" is every directory of a node: name the one that all nodes mount, /fsx/*'


def _not_empty(items: list[str], context: Context) -> Iterator[Fault]:
    for index, item in enumerate(items):
        if not item.strip():
            yield (index,), "an empty name matches nothing"


def _namespace_names(names: list[str], context: Context) -> Iterator[Fault]:
    for index, name in enumerate(names):
        if is_glob(name):
            yield (index,), f'"{name}" is a glob, and here a namespace stands by its whole name: write each one'
        elif not is_dns_label(name):
            yield (index,), f'"{name}" is no name of a namespace'


def _people(names: list[str], context: Context) -> Iterator[Fault]:
    for index, name in enumerate(names):
        if not name.strip():
            yield (index,), "an empty name matches nobody"
        elif "*" in name:
            yield (index,), f'"{name}" is a glob, and here a name stands whole: it would match nobody'


def _runtimes(names: list[str], context: Context) -> Iterator[Fault]:
    for index, text in enumerate(names):
        kind, slash, name = text.partition("/")
        if not slash or kind not in RUNTIME_KINDS:
            whole = name or text
            yield (
                (index,),
                f'"{text}" does not say which kind: write ClusterTrainingRuntime/{whole} or TrainingRuntime/{whole}',
            )
        elif is_glob(name):
            yield (index,), f'"{text}" is a glob, and here a name stands whole: it would match no runtime'
        elif not is_dns_subdomain(name):
            yield (index,), f'"{name}" is no name of a runtime'


def _globs(patterns: list[str], context: Context) -> Iterator[Fault]:
    for index, pattern in enumerate(patterns):
        plain = pattern.replace("*", "").replace("?", "")
        if any(mark in pattern for mark in _REGEX):
            yield (index,), f'"{pattern}" looks like a regular expression, which is not read: write a glob, team-*'
        elif not plain and "*" not in pattern and "?" not in pattern:
            yield (index,), "an empty name matches nothing"
        elif plain and not all(c.isascii() and (c.islower() or c.isdigit() or c in "-.") for c in plain):
            yield (index,), f'"{pattern}" matches nothing: names have lower case, digits, - and .'
        elif len(plain) > 253:
            yield (index,), "no name is so long"


def _labels(labels: Mapping[str, str], context: Context) -> Iterator[Fault]:
    for key, value in labels.items():
        if not is_label_key(key):
            yield (key,), f'"{key}" is no key of a label'
        elif is_glob(value):
            yield (key,), f'"{value}" is a glob, and here a value stands whole: it would match nothing'
        elif not is_label_value(value):
            yield (key,), f'"{value}" is no value of a label'


def _fingerprints(texts: list[str], context: Context) -> Iterator[Fault]:
    for index, text in enumerate(texts):
        if len(text) != _FINGERPRINT_DIGITS or not set(text) <= set("0123456789abcdef"):
            yield (index,), f'"{text}" is no fingerprint: 12 digits of 0-9 and a-f, from ckptguard review -o json'


def _until(text: str, context: Context) -> Iterator[Fault]:
    end = parse_moment(text)
    if end is None:
        yield (), f'"{text}" is no day: write 2027-03-31, or a time as 2027-03-31T18:00:00Z'
    elif context.now is not None and end > context.now + context.days * DAY:
        last = day_of((context.now + context.days * DAY) // DAY * DAY)
        yield (), f"{text} is more than limits.exceptionDays ({context.days}) ahead: {last} at most"


def _said(text: str, context: Context) -> Iterator[Fault]:
    if not text.strip():
        yield (), "empty: whoever reads a decision later is told this"
    elif len(text) > 1024:
        yield (), "more than 1,024 characters"


_FIELDS: Final[dict[tuple[str, str], Check]] = {
    ("Policy", "rules"): _settings,
    ("Policy", "restoreManagers"): _not_empty,
    ("DirectoryPolicy", "variables"): _variables,
    ("Limits", "lostWork"): _duration,
    ("EntryLimits", "lostWork"): _duration,
    ("Defaults", "path"): _path,
    ("EntryDefaults", "path"): _path,
    ("Defaults", "claimName"): _claim,
    ("EntryDefaults", "claimName"): _claim,
    ("CheckpointSize", "size"): _size,
    ("CheckpointSize", "upToParams"): _params,
    ("FastTier", "sizeLimit"): _size,
    ("FastTier", "storageClassName"): _class,
    ("StoragePolicy", "provisioners"): _drivers,
    ("StoragePolicy", "inlineDrivers"): _drivers,
    ("StoragePolicy", "hostPaths"): _host_paths,
    ("Exempt", "namespaces"): _namespace_names,
    ("Exempt", "users"): _people,
    ("Exempt", "groups"): _people,
    ("Exempt", "runtimes"): _runtimes,
    ("NamespaceEntry", "names"): _globs,
    ("NamespaceEntry", "rules"): _settings,
    ("Selector", "matchLabels"): _labels,
    ("Match", "namespaces"): _globs,
    ("Match", "names"): _globs,
    ("Match", "users"): _people,
    ("Match", "groups"): _people,
    ("Match", "labels"): _labels,
    ("Match", "fingerprints"): _fingerprints,
    ("Exemption", "rules"): _excused,
    ("Exemption", "until"): _until,
    ("Exemption", "reason"): _said,
    ("Exemption", "owner"): _said,
    ("SelfService", "rules"): _self_service,
}


# --- the fields of one struct together


def _requirement(raw: Mapping[str, Any], context: Context) -> Iterator[Fault]:
    if not is_label_key(raw["key"]):
        yield ("key",), f'"{raw["key"]}" is no key of a label'
    values = raw.get("values", ())
    if raw["operator"] in ("In", "NotIn"):
        if not values:
            yield ("values",), f"operator {raw['operator']} takes values, and without one selects nothing"
    elif values:
        yield ("values",), f"operator {raw['operator']} takes no values"
    for index, value in enumerate(values):
        if not is_label_value(value):
            yield ("values", index), f'"{value}" is no value of a label'


def _selector(raw: Mapping[str, Any], context: Context) -> Iterator[Fault]:
    key = contradiction(msgspec.convert(raw, Selector))
    if key is not None:
        yield (), f'this selects no namespace: no value of "{key}" meets all that is asked of it'


def _entry(raw: Mapping[str, Any], context: Context) -> Iterator[Fault]:
    if not raw.get("names") and "selector" not in raw:
        yield (), "this is for no namespace: write names: [team-a] or selector: {matchLabels: {...}}"
    if not any(raw.get(key) for key in ("mode", "rules", "limits", "defaults")):
        yield (), "this says nothing of its namespaces: write mode, rules, limits or defaults"


_WHOLE: Final[dict[str, Check]] = {"Requirement": _requirement, "Selector": _selector, "NamespaceEntry": _entry}
__all__ = ["GUARDED", "Context", "Fault", "check", "check_exception", "warnings"]
