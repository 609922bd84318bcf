"""What a CRD takes, our schema takes: a stricter type would let an object through unjudged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from msgspec import inspect

from tests import fast_yaml
from tests.golden import crds
from webhook.model.request import MalformedObject
from webhook.model.shape import check_shape
from webhook.model.shape_schema import KINDS

OURS = ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime")
BOUNDS = {"int32": (-(2**31), 2**31 - 1), None: (-(2**63), 2**63 - 1), "int64": (-(2**63), 2**63 - 1)}


def schemas() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Kind, release's text number, and schema of every version of each CRD."""
    for number, text in enumerate(crds()):
        for crd in fast_yaml.safe_load_all(text.decode()):
            kind = (crd or {}).get("spec", {}).get("names", {}).get("kind")
            if kind in OURS:
                for version in crd["spec"]["versions"]:
                    yield kind, str(number), version["schema"]["openAPIV3Schema"]


def narrower(ours: inspect.Type, theirs: Mapping[str, Any], path: str) -> Iterator[str]:
    """The fields at which our type refuses what theirs takes."""
    kinds = [*ours.types] if isinstance(ours, inspect.UnionType) else [ours]
    if any(isinstance(one, inspect.AnyType | inspect.RawType) for one in kinds):
        return
    if theirs.get("x-kubernetes-int-or-string"):
        for wanted in (inspect.StrType, inspect.IntType):
            if not any(isinstance(one, wanted) for one in kinds):
                yield f"{path}: int-or-string"
        return
    match theirs.get("type"):
        case "integer":
            (low, high) = BOUNDS[theirs.get("format")]
            integer = next((one for one in kinds if isinstance(one, inspect.IntType)), None)
            if integer is None:
                yield f"{path}: integer"
            elif (integer.ge is not None and integer.ge > max(low, theirs.get("minimum", low))) or (
                integer.le is not None and integer.le < min(high, theirs.get("maximum", high))
            ):
                yield f"{path}: integer of format {theirs.get('format')}"
        case "number":
            if not any(isinstance(one, inspect.FloatType) for one in kinds):
                yield f"{path}: number"
        case "boolean":
            if not any(isinstance(one, inspect.BoolType) for one in kinds):
                yield f"{path}: boolean"
        case "string":
            if not any(isinstance(one, inspect.StrType | inspect.DateTimeType) for one in kinds):
                yield f"{path}: string"
        case "array":
            listed = next((one for one in kinds if isinstance(one, inspect.ListType)), None)
            if listed is None:
                yield f"{path}: array"
            else:
                yield from narrower(listed.item_type, theirs["items"], f"{path}[]")
        case "object":
            yield from narrower_map(kinds, theirs, path)


def narrower_map(kinds: list[inspect.Type], theirs: Mapping[str, Any], path: str) -> Iterator[str]:
    struct = next((one for one in kinds if isinstance(one, inspect.StructType)), None)
    mapping = next((one for one in kinds if isinstance(one, inspect.DictType)), None)
    if struct is not None:
        for field in struct.fields:
            if (known := (theirs.get("properties") or {}).get(field.encode_name)) is not None:
                yield from narrower(field.type, known, f"{path}.{field.encode_name}")
            if field.required and theirs.get("properties") and field.encode_name not in theirs.get("required", ()):
                yield f"{path}.{field.encode_name}: required"
    elif mapping is None:
        yield f"{path}: object"
    else:
        values = [theirs["additionalProperties"]] if isinstance(theirs.get("additionalProperties"), Mapping) else []
        for known in (*values, *(theirs.get("properties") or {}).values()):
            yield from narrower(mapping.value_type, known, f"{path}.*")


def test_no_field_is_narrower_than_in_a_crd() -> None:
    found = {
        place
        for kind, _, schema in schemas()
        for part in ("spec", "status")
        if part in schema["properties"]
        for place in narrower(_part(kind, part), schema["properties"][part], f"{kind}.{part}")
    }
    assert found == set()


def _part(kind: str, part: str) -> inspect.Type:
    info = inspect.type_info(KINDS[kind])
    assert isinstance(info, inspect.StructType)
    return next((field.type for field in info.fields if field.encode_name == part), inspect.AnyType())


@pytest.mark.parametrize("number", [2**31, 2**63 - 1, -(2**63)])
def test_an_integer_without_a_format_is_any_that_the_api_server_keeps(number: int) -> None:
    jobset = {"coordinator": {"jobIndex": number, "podIndex": number, "replicatedJob": "node"}}
    check_shape("TrainingRuntime", {"metadata": {"name": "r"}, "spec": {"template": {"spec": jobset}}})


def test_what_is_no_number_is_malformed_all_the_same() -> None:
    with pytest.raises(MalformedObject):
        check_shape("TrainingRuntime", {"spec": {"template": {"spec": {"coordinator": {"jobIndex": "1"}}}}})
