"""Whether the fields that we read have the types that they must have, so that nothing behind it has to ask again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from webhook.model.request import MalformedObject

_schemas: dict[str, Any] = {}


def check_shape(kind: str, obj: Mapping[str, Any]) -> None:
    """Raises MalformedObject, which names the first field of a wrong type; nothing for a kind that has no schema.

    It refuses only what the API server refuses as well (a stricter check would let an object through unjudged), apart
    from a negative ``numNodes``, which makes no pods.
    """
    if not _schemas:
        # Some eighty classes: only those pay for them who have an object to check.
        from webhook.model.shape_schema import KINDS

        _schemas.update(KINDS)
    schema = _schemas.get(kind)
    if schema is None:
        return
    try:
        msgspec.convert(obj, schema)
    except msgspec.ValidationError as error:
        fault = str(error)
    else:
        return
    raise _translate(fault, obj)


_NAME_LIMITS: Final = {"TrainJob": 63, "Namespace": 63}
_NAME_LIMIT: Final = 253
_ALLOWED: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def check_limits(kind: str, obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Field and problem of every name that the API server will not take. For objects of the right shape, from files.

    Source: the CRDs (a TrainJob's name from 2.1 on is a DNS label of 63, as its pods' host names are in 2.0 too) and
    Kubernetes' rules for object names.
    """
    metadata = obj.get("metadata") or {}
    name = metadata.get("name") or ""
    if not name:
        if not metadata.get("generateName"):
            yield "metadata.name", "absent: an object needs a name"
        elif "{{" in metadata["generateName"]:
            yield "metadata.generateName", _template(metadata["generateName"])
    else:
        yield from _check_name(kind, name)
    namespace = metadata.get("namespace") or ""
    if "{{" in namespace:
        yield "metadata.namespace", _template(namespace)
    elif len(namespace) > 63 or not _ALLOWED.issuperset(namespace):
        yield "metadata.namespace", f"{_shown(namespace)} is no namespace name: a-z, 0-9 and - within 63 characters"
    if kind == "TrainJob":
        spec = obj.get("spec") or {}
        reference = (spec.get("runtimeRef") or {}).get("name") or ""
        if len(reference) > _NAME_LIMIT:
            yield "spec.runtimeRef.name", f"{len(reference)} characters, at most {_NAME_LIMIT} may be"
        for index, patch in enumerate(spec.get("runtimePatches") or ()):
            if len(patch["manager"]) > _NAME_LIMIT:
                found = len(patch["manager"])
                yield f"spec.runtimePatches[{index}].manager", f"{found} characters, at most {_NAME_LIMIT} may be"


def _check_name(kind: str, name: str) -> Iterator[tuple[str, str]]:
    limit = _NAME_LIMITS.get(kind, _NAME_LIMIT)
    if "{{" in name:
        yield "metadata.name", _template(name)
    elif len(name) > limit:
        yield "metadata.name", f"{len(name)} characters, at most {limit} may be"
    else:
        labels = [name] if limit == 63 else name.split(".")
        good = all(label and label[0] != "-" != label[-1] and _ALLOWED.issuperset(label) for label in labels)
        if kind == "TrainJob":
            good = good and not name[0].isdigit()
        if not good:
            first = "a-z" if kind == "TrainJob" else "a-z or 0-9"
            more = "a-z, 0-9 and -" if limit == 63 else "a-z, 0-9, - and ."
            yield "metadata.name", f"{_shown(name)} is no name: {more}, beginning with {first}, ending with a-z or 0-9"


def _template(text: str) -> str:
    return f"{_shown(text)} is text of a template: render it first, e.g. helm template CHART | ckptguard review -"


# --- msgspec's words -> ours

_NOUNS: Final = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def _translate(fault: str, obj: Mapping[str, Any]) -> MalformedObject:
    """``Expected `str | null`, got `int` - at `$.a[0].b``` -> a field path, and what stands there instead of what."""
    words, mark, place = fault.rpartition(" - at `")
    if not mark:
        words, place = fault, "$`"
    field, value = _locate(place.removesuffix("`"), obj)
    if words.startswith("Object missing required field `"):
        name = words.split("`")[1]
        return MalformedObject(f"{field}.{name}" if field else name, "absent, and an item of this list needs it")
    shown = _describe(value)
    if words.startswith("Expected `int") and isinstance(value, int | float) and not isinstance(value, bool):
        if value < 0:
            return MalformedObject(field, f"{value} is less than may stand here")
        return MalformedObject(
            field, f"{value} is {'more' if value >= 2**31 else 'no whole number, nothing else'} than may stand here"
        )
    wanted = words.split("`")[1].split(" | ") if "`" in words else []
    nouns = [_NOUNS[name] for name in wanted if name in _NOUNS]
    if not nouns:
        return MalformedObject(field, shown)
    problem = f"{shown} stands where {' or '.join(nouns)} belongs"
    if wanted[0] == "str" and isinstance(value, int | float):
        problem += f": quote it, {_quoted(value)}"
    return MalformedObject(field, problem)


def _locate(place: str, obj: Mapping[str, Any]) -> tuple[str, Any]:
    """The field path and the value at msgspec's path, which writes ``[...]`` for some key of a map."""
    value: Any = obj
    field = ""
    rest = place.removeprefix("$")
    while rest:
        if rest.startswith("[...]"):
            rest = rest[5:]
            key = next((key for key, item in value.items() if not _fits(item, field)), "")
            field += f"[{key}]"
            value = value.get(key)
        elif rest.startswith("["):
            index, _, rest = rest[1:].partition("]")
            field += f"[{index}]"
            value = value[int(index)]
        else:
            end = min((at for at in (rest.find(".", 1), rest.find("[")) if at > 0), default=len(rest))
            key = rest[1:end]
            rest = rest[end:]
            field = f"{field}.{key}" if field else key
            value = value.get(key)
    return field, value


def _fits(item: Any, field: str) -> bool:
    """Whether a value may stand in a map: of quantities, or of strings."""
    if item is None or isinstance(item, str):
        return True
    quantities = field.endswith((".limits", ".requests", ".capacity"))
    return quantities and isinstance(item, int | float) and not isinstance(item, bool)


def _describe(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the string {_shown(value)}"
    if isinstance(value, int | float):
        return f"the number {value}"
    return "a list" if isinstance(value, list) else "a mapping"


def _quoted(value: Any) -> str:
    return f'"{_describe(value) if isinstance(value, bool) else value}"'


def _shown(text: str) -> str:
    return f'"{text}"' if len(text) <= 60 else f'"{text[:57]}..."'
