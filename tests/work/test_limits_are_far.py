"""No recorded pair, no example and none of our own cases comes near a tenth of a limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests import fast_yaml
from tests.golden import RELEASES, pairs
from webhook.effective.limits import entries_of
from webhook.model import budget

HOUSE = Path(__file__).parents[2]


def documents() -> Iterator[tuple[str, str]]:
    """The recorded inputs of every release, each text once, and the manifests of this repository."""
    known: set[bytes] = set()
    for release in RELEASES:
        recorded = pairs(release)
        assert len(recorded) > 100, release
        for pair in recorded:
            if pair.input not in known:
                known.add(pair.input)
                yield str(pair), pair.input.decode()
    for path in (*(HOUSE / "examples").rglob("*.yaml"), *(HOUSE / "docs").rglob("*.yaml")):
        yield str(path), path.read_text()


def pods(value: Any) -> Iterator[Mapping[str, Any]]:
    """Everything that looks like a PodSpec, wherever it stands."""
    pending = [value]
    while pending:
        here = pending.pop()
        if isinstance(here, dict):
            if isinstance(here.get("containers"), list) or isinstance(here.get("volumes"), list):
                yield here
            pending.extend(here.values())
        elif isinstance(here, list):
            pending.extend(here)


def test_what_is_known_is_far_from_every_limit() -> None:
    seen = 0
    for path, text in documents():
        seen += 1
        entries = claims = letters = marks = 0
        for document in fast_yaml.safe_load_all(text):
            for pod in pods(document):
                containers = [one for one in pod.get("containers") or () if isinstance(one, dict)]
                entries += entries_of({**pod, "containers": containers})
                claims += sum("persistentVolumeClaim" in one for one in pod.get("volumes") or ())
        letters = len(text)
        marks = budget.marks_in(text)
        assert entries * 10 < budget.NODES, path
        assert claims * 10 < budget.LOOKUPS, path
        assert letters * 10 < budget.PROGRAM_BYTES, path
        assert marks * 10 < budget.TREE_NODES, path
    assert seen > 100
