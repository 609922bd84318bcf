"""What a cluster serves: a CRD of a newer Trainer is told by fields that none of ours has, Kueue by its API."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest

from tests import fast_yaml, golden
from webhook.bootstrap import _Served
from webhook.cluster.access import Refused, Unreachable
from webhook.cluster.live_files import _crd_of
from webhook.cluster.run_table import RunTable
from webhook.cluster.served import follow_kueue, serves_kueue, told, unknown_parts
from webhook.cluster.tables import ServedTable, Tables
from webhook.metrics import Metrics
from webhook.model.release import NEWEST, Release

ELASTIC = {"type": "object", "properties": {"minNodes": {"type": "integer"}}}


def crd(release: Release, **fields: Any) -> dict[str, Any]:
    """The CRD of TrainJobs with more fields in `spec.trainer`."""
    found: dict[str, Any] = fast_yaml.safe_load(golden.crd(golden.TRAINERS[release.value], "trainjobs"))
    schema(found)["spec"]["properties"]["trainer"]["properties"].update(fields)
    return found


def schema(found: dict[str, Any]) -> Any:
    return found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]


@pytest.mark.parametrize("release", list(Release))
def test_the_known_ones_have_none(release: Release) -> None:
    assert unknown_parts(crd(release)) == ()
    assert unknown_parts(crd(release, elastic=ELASTIC)) == ("spec.trainer.elastic",)


def test_a_field_in_a_list_of_containers_is_seen() -> None:
    found = crd(NEWEST)
    patch = schema(found)["spec"]["properties"]["runtimePatches"]["items"]["properties"]
    patch["trainingRuntimeSpec"]["properties"]["later"] = {"type": "string"}
    assert unknown_parts(found) == ("spec.runtimePatches[].trainingRuntimeSpec.later",)


def test_at_most_three_are_named() -> None:
    assert len(unknown_parts(crd(NEWEST, **{f"field{number}": {"type": "string"} for number in range(9)}))) == 3


def test_a_version_that_is_not_known() -> None:
    assert unknown_parts({"spec": {"versions": [{"name": "v1", "served": True}]}}) == ("versions.v1",)
    both = [{"name": "v1", "served": True}, {"name": "v1alpha1", "served": True}]
    assert unknown_parts({"spec": {"versions": both}}) == ()


@pytest.mark.parametrize("odd", [{}, {"spec": None}, {"spec": {"versions": [{"name": "v1", "served": False}]}}])
def test_what_tells_nothing_is_not_unknown(odd: dict[str, Any]) -> None:
    assert unknown_parts(odd) == ()


def test_the_published_schema_tells_it_too() -> None:
    whole = crd(NEWEST, elastic=ELASTIC)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    published = {"components": {"schemas": {"io.kubeflow.trainer.v1alpha1.TrainJob": whole}}}
    assert unknown_parts(_crd_of(published)) == ("spec.trainer.elastic",)
    assert _crd_of({}) == {}


def test_it_is_warned_of_once_and_measured(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics(process=False)
    asked = SimpleNamespace(count=0)

    def again() -> None:
        asked.count += 1

    table = ServedTable()
    table._changed = _Served(table, None, metrics, again)
    with caplog.at_level(logging.WARNING, "ckptguard"):
        table.put(msgspec.json.encode(crd(Release.V2_2)))
        assert caplog.messages == []
        assert 'ckptguard_trainer_release{known="true",release="2.2"} 1.0' in generate_latest(metrics.registry).decode()
        for _ in range(2):
            table.put(msgspec.json.encode(crd(NEWEST, elastic=ELASTIC)))
    assert table.release is NEWEST
    assert caplog.messages == [told(("spec.trainer.elastic",))]
    text = generate_latest(metrics.registry).decode()
    assert f'ckptguard_trainer_release{{known="false",release="{NEWEST.value}"}} 1.0' in text
    assert 'known="true"' not in text
    assert asked.count == 3


def test_a_release_that_is_set_counts() -> None:
    metrics = Metrics(process=False)
    table = ServedTable()
    table._changed = _Served(table, Release.V2_1, metrics, lambda: None)
    table.put(msgspec.json.encode(crd(Release.V2_3)))
    assert 'ckptguard_trainer_release{known="true",release="2.1"} 1.0' in generate_latest(metrics.registry).decode()


@pytest.mark.parametrize(
    ("answer", "known"),
    [(b"{}", True), (Refused(404, ""), False), (Refused(403, ""), None), (Unreachable("away"), None)],
)
def test_whether_kueue_is_served(answer: bytes | Exception, known: bool | None) -> None:
    async def get(path: str) -> bytes:
        assert path == "/apis/kueue.x-k8s.io"
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert asyncio.run(serves_kueue(get)) is known


def test_what_was_known_of_kueue_stands_while_nobody_answers() -> None:
    tables = Tables()
    tables.kueue = True

    async def away(path: str) -> bytes:
        raise Unreachable("away")

    async def look() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(follow_kueue(away, tables), 0.05)

    asyncio.run(look())
    assert tables.kueue is True


def test_a_queue_that_is_named_later_is_noticed() -> None:
    table = RunTable()
    run: dict[str, Any] = {
        "metadata": {"name": "one", "namespace": "team", "uid": "u", "generation": 1},
        "spec": {"runtimeRef": {"name": "rt"}},
    }
    table.put(msgspec.json.encode(run))
    assert [one.queued for one in table.of_runtime("ClusterTrainingRuntime", "", "rt")] == [False]
    run["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpu"}
    table.put(msgspec.json.encode(run))
    assert [one.queued for one in table.of_runtime("ClusterTrainingRuntime", "", "rt")] == [True]
