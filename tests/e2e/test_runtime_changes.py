"""A runtime that is edited or deleted under its runs, with the real controllers: what ``preflight`` said is so."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import Clusters
from tests.e2e.controlplane.cluster import JOBSETS, TRAINJOBS, Cluster, KubectlError, Object
from tests.e2e.test_upgrade import (
    AFTER,
    BEFORE,
    RUNNING,
    Pair,
    _agrees,
    _ckptguard,
    _follows,
    _suspend,
    _suspended,
    own_runtime,
    rescue,
    trainjob,
)

_STAYS = 20
"""Seconds after which a JobSet that has not followed its TrainJob does not: it follows within two."""
PAIRS = tuple(Pair("own-plain", "a", state) for state in (BEFORE, AFTER, RUNNING))


def _filled(plane: Cluster) -> str:
    """Three runs of one runtime, one in each state."""
    namespace = plane.new_namespace(prefix="rt")
    plane.apply(own_runtime("own-plain", namespace))
    for pair in PAIRS:
        plane.apply(trainjob(pair, namespace))
    for pair in PAIRS:
        wanted = pair.state == BEFORE
        plane.wait_for(JOBSETS, pair.name, namespace, lambda found, wanted=wanted: _suspended(found) is wanted)
    _suspend(plane, namespace, PAIRS[1].name, True)
    plane.wait_for(JOBSETS, PAIRS[1].name, namespace, _suspended)
    return namespace


def _said(plane: Cluster, namespace: str, *flags: str) -> tuple[int, dict[str, str]]:
    done = _ckptguard(plane, "preflight", *flags, "-n", namespace, "-o", "json")
    assert done.returncode in (0, 1), done.stderr
    print(_ckptguard(plane, "preflight", *flags, "-n", namespace).stdout)
    results: list[Object] = json.loads(done.stdout)["results"]
    return done.returncode, {str(item["name"]): str(item["verdict"]) for item in results}


def _edited(namespace: str) -> Object:
    edited = own_runtime("own-plain", namespace)
    pod = edited["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["image"] = "registry.example/train:2"
    return edited


@pytest.mark.parametrize("release", ["2.2.1", pytest.param("2.1.0", marks=pytest.mark.full)])
def test_an_edit_up_to_2_2(release: str, clusters: Clusters, tmp_path: Path) -> None:
    plane = clusters.get(release)
    namespace = _filled(plane)
    file = tmp_path / "runtime.json"
    file.write_text(json.dumps(_edited(namespace)))

    code, said = _said(plane, namespace, "--runtime", str(file))
    assert (code, set(said.values()), len(said)) == (1, {"lost"}, len(PAIRS))

    plane.apply(_edited(namespace))
    for pair in PAIRS:
        _suspend(plane, namespace, pair.name, pair.state == RUNNING)
    time.sleep(_STAYS)
    for pair in PAIRS:
        jobset = plane.wait_for(JOBSETS, pair.name, namespace)
        assert _suspended(jobset) is not (pair.state == RUNNING), pair
        assert rescue(plane, namespace, pair.name) == 0, pair
        assert _agrees(plane, namespace, pair.name), pair


def test_an_edit_on_2_3_does_not_reach_the_runs(clusters: Clusters, tmp_path: Path) -> None:
    plane = clusters.get("2.3.0")
    namespace = _filled(plane)
    file = tmp_path / "runtime.json"
    file.write_text(json.dumps(_edited(namespace)))

    code, said = _said(plane, namespace, "--runtime", str(file))
    assert (code, set(said.values()), len(said)) == (0, {"safe"}, len(PAIRS))

    plane.apply(_edited(namespace))
    for pair in PAIRS:
        assert _follows(plane, namespace, pair), pair
        done = _ckptguard(plane, "rescue", pair.name, "-n", namespace, "--dry-run")
        assert (done.returncode, "is not wedged" in done.stdout) == (0, True), done.stdout + done.stderr


def test_a_deletion_on_2_3(clusters: Clusters) -> None:
    plane = clusters.get("2.3.0")
    namespace = _filled(plane)

    code, said = _said(plane, namespace, "--delete-runtime", "own-plain")
    assert (code, set(said.values()), len(said)) == (1, {"lost"}, len(PAIRS))

    plane.kubectl("delete", "trainingruntimes.trainer.kubeflow.org", "own-plain", "-n", namespace)
    for pair in PAIRS:
        with pytest.raises(KubectlError, match="must be created before the TrainJob"):
            _suspend(plane, namespace, pair.name, pair.state == RUNNING)
    plane.apply(own_runtime("own-plain", namespace))
    for pair in PAIRS:
        assert _follows(plane, namespace, pair), pair
    assert plane.get(TRAINJOBS, PAIRS[0].name, namespace) is not None
