"""What the benchmark measures on is what an API server sends: its parts are as large as real ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.objects import managed_fields, review, trainjob
from tests.golden import captures


def _captured() -> list[Any]:
    found = []
    for capture in captures():
        if "-CREATE" not in capture.name:
            continue
        obj = capture.review["request"]["object"]
        (entry,) = obj["metadata"]["managedFields"]
        if obj["kind"] == "TrainJob" and entry["operation"] == "Update":
            found.append(pytest.param(obj, entry["fieldsV1"], id=str(capture)))
    return found


@pytest.mark.parametrize(("obj", "fields"), _captured())
def test_managed_fields_are_those_of_the_api_server(obj: dict[str, Any], fields: dict[str, Any]) -> None:
    own = {key: obj["metadata"][key] for key in ("annotations", "generateName") if key in obj["metadata"]}
    assert managed_fields(own, obj["spec"]) == fields


def test_the_review_is_whole() -> None:
    metadata = json.loads(review(trainjob()))["request"]["object"]["metadata"]
    (entry,) = metadata["managedFields"]
    assert set(entry["fieldsV1"]) == {"f:metadata", "f:spec"}
    assert metadata["annotations"]
