"""Objects that no API server would store: whatever is odd of them counts as not written, and nothing raises."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from tests.server import fuzz
from webhook.cluster.kinds import CLAIM, CLASS, CLUSTER_RUNTIME, CRD, NAMESPACE, TRAINJOB, TRAINJOB_CRD, VOLUME
from webhook.cluster.live import directories_by
from webhook.cluster.tables import Tables
from webhook.model.policy import Policy

JOB: dict[str, Any] = {
    "metadata": {"name": "run", "namespace": "team", "generation": 1},
    "spec": {
        "runtimeRef": {"kind": "ClusterTrainingRuntime", "name": "torch"},
        "suspend": True,
        "trainer": {"env": [{"name": "CKPT_DIR", "value": "/state/run"}]},
    },
    "status": {"conditions": [{"type": "Complete", "status": "False"}]},
}
SCHEMA: dict[str, Any] = {"openAPIV3Schema": {"properties": {"spec": {"properties": {"runtimePatches": {}}}}}}
DEFINITION: dict[str, Any] = {
    "metadata": {"name": TRAINJOB_CRD},
    "spec": {"versions": [{"name": "v1alpha1", "served": True, "schema": SCHEMA}]},
}
GOOD: dict[str, dict[str, Any]] = {
    CLAIM: fuzz.CLAIM,
    VOLUME: fuzz.VOLUME,
    CLASS: fuzz.CLASS,
    NAMESPACE: fuzz.NAMESPACE,
    CLUSTER_RUNTIME: fuzz.RUNTIME,
    TRAINJOB: JOB,
    CRD: DEFINITION,
}


@pytest.mark.parametrize("kind", GOOD)
def test_nothing_raises(kind: str) -> None:
    tables = Tables()
    tables.runs.work_out_by(directories_by(tables, Policy()))
    tables.cluster_runtimes.put(json.dumps(fuzz.RUNTIME).encode())
    table = tables.by_kind[kind]
    for seed in range(1000):
        dice = random.Random(seed)
        obj = copy.deepcopy(GOOD[kind])
        fuzz.garble_value(obj, dice, dice.choice((1, 1, 2, 4)))
        body = json.dumps(obj).encode()
        if dice.random() < 0.2:
            body = fuzz.garble_bytes(body, dice)
        key = table.put(body)
        assert len(list(table.all_keys())) == len(table), seed
        for volume in tables.volumes.available("shared"):
            assert tables.volumes.get(volume.name) == volume, seed
        tables.classes.default()
        if key is not None and dice.random() < 0.5:
            table.remove(key)


def test_an_odd_part_of_an_affinity_never_narrows_it() -> None:
    """Terms are alternatives: one that cannot be read may be any node, so the others pin nothing."""
    tables = Tables()
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}
    odd: list[Any] = [{"key": []}, {"key": {}, "operator": "In", "values": ["x"]}, "x", {"key": "a", "operator": "In",
                      "values": [1]}]  # fmt: skip
    terms = [here, {"matchExpressions": odd}, "every node"]
    volume = copy.deepcopy(fuzz.VOLUME)
    volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] = terms  # type: ignore[index]
    tables.volumes.put(json.dumps(volume).encode())
    found = tables.volumes.get("pv")
    assert found is not None
    assert found.node_affinity == (here, {"matchExpressions": []}, {})
    assert found.zones == frozenset()
