"""The policy file (YAML) -> the model's Policy, with its hash; every fault with its line, field and fix."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from webhook.cluster.files import FileError
from webhook.cluster.yaml_text import Piece, TextError, decode, parse, places, split, steps_of
from webhook.effective.buildable.syntax import is_dns_subdomain
from webhook.model.names import SYSTEM_NAMESPACE, WITHOUT_A_RULE
from webhook.model.nearest import near
from webhook.model.policy import Policy
from webhook.model.size import parse_bytes, parse_count

_SHOWN: Final = {
    "str": "a string",
    "int": "an integer",
    "array": "a list",
    "object": "a mapping",
    "bool": "true or false",
}
_HASH_DIGITS: Final = 12


class PolicyError(Exception):
    """A policy that cannot be used. ``errors`` are all its faults, at least one."""

    def __init__(self, errors: list[FileError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = errors


def load_policy(path: str, rule_ids: Collection[str] | None = None, default_mode: str | None = None) -> Policy:
    """Reads and parses a policy file; see ``parse_policy``. Raises PolicyError also where it cannot be read."""
    from pathlib import Path

    try:
        data = Path(path).read_bytes()
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error.strerror)
        raise PolicyError([FileError(path, None, None, reason)]) from None
    return parse_policy(data, path, rule_ids, default_mode)


def parse_policy(
    data: bytes, file: str, rule_ids: Collection[str] | None = None, default_mode: str | None = None
) -> Policy:
    """One YAML document -> Policy. An empty file is the built-in policy. Raises PolicyError.

    ``rule_ids`` are the ids that ``rules`` may name; None means those of this release. ``default_mode`` is
    ``modes.default`` where the file does not write one. ``Policy.hash`` depends on what the policy says, not on how it
    is written.
    """
    try:
        pieces = [(piece, value) for piece in split(decode(data)) for _, value in parse(piece) if value is not None]
    except TextError as error:
        raise PolicyError([FileError(file, error.line, error.field, error.message)]) from None
    if not pieces:
        return _hashed(with_default_mode(Policy(), default_mode))
    piece, raw = pieces[0]
    if len(pieces) > 1:
        raise PolicyError([FileError(file, pieces[1][0].line, None, "more than one document: a policy is one")])
    if not isinstance(raw, dict):
        raise PolicyError([FileError(file, piece.line, None, "this is no mapping: a policy begins with apiVersion")])
    faults = list(_unread(raw))
    policy: Policy | None = None
    if not faults:
        try:
            policy = msgspec.convert(raw, Policy)
        except msgspec.ValidationError as error:
            faults.append(_translate(str(error), raw))
    if policy is not None:
        faults = list(_values(policy, _rule_ids() if rule_ids is None else rule_ids))
    if policy is None or faults:
        raise PolicyError([_located(file, piece, field, message) for field, message in faults])
    modes = raw.get("modes")
    if not (isinstance(modes, dict) and "default" in modes):
        policy = with_default_mode(policy, default_mode)
    return _hashed(_with_system(policy))


def with_default_mode(policy: Policy, mode: str | None) -> Policy:
    """The policy with this ``modes.default``; as it is where None."""
    if mode is None:
        return policy
    return msgspec.structs.replace(policy, modes=msgspec.structs.replace(policy.modes, default=mode))


def _with_system(policy: Policy) -> Policy:
    exempt = policy.exempt
    if SYSTEM_NAMESPACE in exempt.namespaces:
        return policy
    exempt = msgspec.structs.replace(exempt, namespaces=(*exempt.namespaces, SYSTEM_NAMESPACE))
    return msgspec.structs.replace(policy, exempt=exempt)


def _rule_ids() -> list[str]:
    from webhook.rules import RULES

    return [*(rule.id for rule in RULES), *WITHOUT_A_RULE]


def _hashed(policy: Policy) -> Policy:
    import hashlib

    text = msgspec.json.encode(msgspec.structs.replace(policy, hash=""), order="sorted")
    return msgspec.structs.replace(policy, hash=hashlib.sha256(text).hexdigest()[:_HASH_DIGITS])


def _located(file: str, piece: Piece, field: str, message: str) -> FileError:
    found = places(piece)
    return FileError(file, found[0].find(steps_of(field)) if found else piece.line, field or None, message)


def _unread(raw: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Keys at the top that are not read, and what would be read as another word than was meant."""
    for key in ("apiVersion", "kind"):
        wanted = {"apiVersion": "checkpoint-guard.io/v1", "kind": "Policy"}[key]
        if raw.get(key) != wanted:
            yield (
                key,
                f"{_value(raw[key])} is not read here: write {key}: {wanted}"
                if key in raw
                else (f"absent: write {key}: {wanted}"),
            )
    known = [field.encode_name for field in msgspec.structs.fields(Policy) if field.name != "hash"]
    for key in raw:
        if key not in known:
            yield key, f"unknown field{_meant(key, known)}"
    yield from _booleans("", raw)


def _booleans(field: str, value: Any) -> Iterator[tuple[str, str]]:
    """Unquoted ``off`` and ``on`` are false and true in YAML; no field of a policy is a boolean."""
    if isinstance(value, bool):
        word = "on" if value else "off"
        yield field, f'{"true" if value else "false"} stands here, which is what YAML reads {word} as: write "{word}"'
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _booleans(f"{field}[{key}]" if "." in key or "/" in key else f"{field}.{key}".lstrip("."), item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _booleans(f"{field}[{index}]", item)


def _translate(fault: str, raw: Mapping[str, Any]) -> tuple[str, str]:
    """msgspec's message -> field and message."""
    words, mark, place = fault.rpartition(" - at `")
    if not mark:
        words, place = fault, "$`"
    path = place.removesuffix("`").removeprefix("$").removeprefix(".")
    value: Any = raw
    field = ""
    for step in steps_of(path):
        if step == "...":
            step = next((key for key, item in value.items() if not _known_word(item, field)), "")
        value = value[int(step)] if isinstance(value, list) else value.get(step)
        field += f"[{step}]" if isinstance(step, int) or "." in step or "/" in step else f".{step}" if field else step
    quoted = words.split("`")[1] if "`" in words else ""
    if words.startswith("Object contains unknown field"):
        return f"{field}.{quoted}".lstrip("."), f"unknown field{_meant(quoted, _fields_at(field))}"
    if words.startswith("Object missing required field"):
        return f"{field}.{quoted}".lstrip("."), "absent, and an item of this list needs it"
    if words.startswith("Invalid enum value"):
        choices = _choices(field)
        said = f"{_value(value)} is none of {', '.join(choices)}{_meant(str(value), choices)}"
        return field, said
    if field == "defaults.backoffLimit":
        return field, f"{_value(value)} is none of {', '.join(_choices(field))}"
    wanted = " or ".join(_SHOWN.get(word, word) for word in quoted.split(" | "))
    return field, f"{_value(value)} stands where {wanted} belongs"


_CHOICES: Final = {
    "rules": ("deny", "warn", "audit", "off"),
    "modes": ("enforce", "warn", "audit", "off"),
    "storage": ("node-local", "one-node", "many-nodes"),
    "defaults": ("TrainingRuntime", "ClusterTrainingRuntime"),
    "programs": ("read", "off"),
}


def _choices(field: str) -> tuple[str, ...]:
    if field == "defaults.backoffLimit":
        return "0", "multi-node", "keep"
    return _CHOICES.get(str((steps_of(field) or [""])[0]), ())


def _known_word(value: Any, field: str) -> bool:
    return isinstance(value, str) and value in _choices(field)


def _fields_at(field: str) -> list[str]:
    """Names of the fields of the struct at a path of the policy."""
    here: Any = Policy()
    for step in steps_of(field):
        if isinstance(step, int):
            here = here[0]
            continue
        name = next((known.name for known in msgspec.structs.fields(here) if known.encode_name == step), "")
        here = getattr(here, name)
    return [known.encode_name for known in msgspec.structs.fields(here)]


def _meant(word: str, known: Collection[str]) -> str:
    close = near(word, known)
    return f', the nearest is "{close}"' if close else ""


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "a mapping"
    return "null" if value is None else f'"{value}"' if isinstance(value, str) else f"the number {value}"


def _values(policy: Policy, rule_ids: Collection[str]) -> Iterator[tuple[str, str]]:
    """What has the right type and still cannot be used."""
    for rule in policy.rules:
        if rule not in rule_ids:
            yield f"rules.{rule}", f'there is no rule "{rule}"{_meant(rule, rule_ids)}: see ckptguard rules'
    for index, name in enumerate(policy.directory.variables):
        if not name or "=" in name or name[0].isdigit() or not all(c.isalnum() or c in "_-." for c in name):
            yield f"directory.variables[{index}]", f'"{name}" is no name of a variable'
    limits, defaults = policy.limits, policy.defaults
    for field, number in (
        ("limits.maxRestarts", limits.max_restarts),
        ("limits.terminationGracePeriodSeconds", limits.termination_grace_period_seconds),
        ("defaults.maxRestarts", defaults.max_restarts),
        ("defaults.backoffLimit", defaults.backoff_limit),
        ("defaults.terminationGracePeriodSeconds", defaults.termination_grace_period_seconds),
    ):
        if isinstance(number, int) and not 0 <= number < 2**31:
            yield field, f"{number} is not within 0 and {2**31 - 1}"
    if not _is_duration(limits.lost_work):
        yield "limits.lostWork", f'"{limits.lost_work}" is no duration: write 90s, 30m or 2h'
    if not defaults.path.startswith("/"):
        yield "defaults.path", f'"{defaults.path}" does not begin with /'
    elif not _is_mount_path(defaults.path):
        yield "defaults.path", f'"{defaults.path}" is no place for a volume: write a path such as /mnt/ckpt'
    if defaults.claim_name and not is_dns_subdomain(defaults.claim_name):
        yield "defaults.claimName", f'"{defaults.claim_name}" is no name of a claim: lower case, digits, - and .'
    for index, row in enumerate(policy.checkpoint_sizes):
        if _bytes(row.size) is None:
            yield f"checkpointSizes[{index}].size", f'"{row.size}" is no size: write 80Gi'
        if not parse_count(row.up_to_params):
            yield f"checkpointSizes[{index}].upToParams", f'"{row.up_to_params}" is no number of parameters: write 7B'
    if _bytes(policy.tiers.fast.size_limit) is None:
        yield "tiers.fast.sizeLimit", f'"{policy.tiers.fast.size_limit}" is no size: write 100Gi'
    for table, names in (
        ("provisioners", policy.storage.provisioners),
        ("inlineDrivers", policy.storage.inline_drivers),
    ):
        for name in names:
            if "*" in name.removeprefix("*.") or not name.removeprefix("*."):
                yield f"storage.{table}[{name}]", f'"{name}" matches nothing: a name stands whole or as *.suffix'


def _is_mount_path(path: str) -> bool:
    """Whether the API server and the kubelet take it, and it is written in one way only."""
    parts = path.strip("/").split("/")
    whole = all(part not in ("", ".", "..") and part.isprintable() for part in parts)
    return whole and len(path) <= 1024 and set(":<$").isdisjoint(path)


def _bytes(text: str) -> int | None:
    size = parse_bytes(text)
    return size if size is not None and size > 0 else None


def _is_duration(text: str) -> bool:
    number, unit = text[:-1], text[-1:]
    return number.isascii() and number.isdigit() and unit in ("s", "m", "h", "d")
