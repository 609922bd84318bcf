"""Whether the fields that we read have the types that they must have, so that nothing behind it has to ask again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from webhook.model.names import KINDS
from webhook.model.request import MalformedObject

_schemas: dict[str, Any] = {}


def check_shape(kind: str, obj: Mapping[str, Any]) -> None:
    """Raises MalformedObject, which names the first field of a wrong type; nothing for a kind that has no schema.

    It refuses only what the API server refuses as well: a stricter check would let an object through unjudged.
    """
    if not _schemas:
        # Some eighty classes: only those pay for them who have an object to check.
        from webhook.model.shape_schema import KINDS as SCHEMAS

        _schemas.update(SCHEMAS)
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


def check_limits(kind: str, obj: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Field and problem of every name that is absent, too long, or the text of a template, and of negative numbers of
    nodes.

    For objects of the right shape that come from files; in a cluster the API server has refused such names. Source: the
    CRDs (from 2.1 on a TrainJob's name has at most 63 characters) and Kubernetes' rules for object names.
    """
    metadata = obj.get("metadata") or {}
    name, base = metadata.get("name") or "", metadata.get("generateName") or ""
    if not name and not base:
        yield "metadata.name", "absent: an object needs a name"
    yield from _check_name("metadata.name", name, _NAME_LIMITS.get(kind, _NAME_LIMIT))
    # The API server cuts a generateName that is too long.
    yield from _check_name("metadata.generateName", base, None)
    yield from _check_name("metadata.namespace", metadata.get("namespace") or "", 63)
    spec = obj.get("spec") or {}
    if kind in KINDS:
        part = "trainer" if kind == "TrainJob" else "mlPolicy"  # the other one is no field of the kind
        nodes = (spec.get(part) or {}).get("numNodes")
        if nodes is not None and nodes < 0:
            yield f"spec.{part}.numNodes", f"{nodes} is less than 0, which is no number of pods"
    if kind == "TrainJob":
        reference = (spec.get("runtimeRef") or {}).get("name") or ""
        yield from _check_name("spec.runtimeRef.name", reference, _NAME_LIMIT)
        for index, patch in enumerate(spec.get("runtimePatches") or ()):
            yield from _check_name(f"spec.runtimePatches[{index}].manager", patch["manager"], _NAME_LIMIT)


def _check_name(field: str, name: str, limit: int | None) -> Iterator[tuple[str, str]]:
    if "{{" in name:
        yield (
            field,
            f"{_shown(name)} is text of a template: render it first, e.g. helm template CHART | ckptguard review -",
        )
    elif limit is not None and len(name) > limit:
        yield field, f"{_shown(name)} has {len(name)} characters, at most {limit} may be"


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
            return MalformedObject(field, f"{value} is less than this field can hold")
        if value >= 2**31:
            return MalformedObject(field, f"{value} is more than this field can hold")
        return MalformedObject(field, f"{value} is no whole number, and this field holds nothing else")
    wanted = words.split("`")[1].split(" | ") if "`" in words else []
    nouns = [_NOUNS[name] for name in wanted if name in _NOUNS]
    if not nouns:
        return MalformedObject(field, shown)
    problem = f"{shown} stands where {' or '.join(nouns) if len(nouns) < 4 else 'a single value'} belongs"
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
