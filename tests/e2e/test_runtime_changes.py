"""Runtimes that are edited or deleted under their runs, with the real controllers: what ``preflight`` said is so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Clusters
from tests.e2e.controlplane.cluster import Cluster, Object
from tests.e2e.controlplane.releases import RELEASES
from tests.e2e.runtime_edits import EDITS, edited
from tests.e2e.unfinished import (
    RUNNING,
    STATES,
    Kubelet,
    Pair,
    check_rescued,
    everything,
    fill,
    is_held,
    preflight,
    rescue_all,
    runtimes_of,
    settle,
    suspend,
    wait_state,
    wedged,
)

FEW = tuple(Pair("own-plain", "a", state) for state in STATES)


def _all() -> Iterator[object]:
    """Release, pairs, and with which edit to begin."""
    for release in ("2.3.0", "2.2.1"):
        yield pytest.param(release, FEW, 0, id=f"{release}-few")
    yield pytest.param("2.1.0", FEW, 0, id="2.1.0-few", marks=pytest.mark.full)
    for release in ("2.3.0", "2.2.1"):
        one_each = tuple(pair for pair in everything(RELEASES[release]) if pair.variant == "b")
        yield pytest.param(release, one_each, 3, id=f"{release}-each", marks=pytest.mark.full)
    for release in RELEASES:
        yield pytest.param(release, everything(RELEASES[release]), 0, id=f"{release}-all", marks=pytest.mark.full)
    yield pytest.param("2.2.1", everything(RELEASES["2.2.1"]), 5, id="2.2.1-others", marks=pytest.mark.full)


@pytest.mark.parametrize(("release", "pairs", "start"), list(_all()))
def test_what_preflight_says_of_edits_and_deletions_is_so(
    release: str, pairs: Sequence[Pair], start: int, clusters: Clusters, tmp_path: Path
) -> None:
    plane = clusters.get(release)
    namespace = plane.new_namespace(prefix="rt")
    with Kubelet(plane, namespace):
        fill(plane, pairs, namespace)
        kept = plane.wait_for("persistentvolumeclaims", "kept", namespace)["metadata"]
        _edit(plane, namespace, pairs, start, tmp_path)
        _delete(plane, namespace, pairs)
        now = plane.wait_for("persistentvolumeclaims", "kept", namespace)["metadata"]
        assert (now["uid"], now.get("deletionTimestamp")) == (kept["uid"], None)
    plane.delete_namespace(namespace)


def _edit(plane: Cluster, namespace: str, pairs: Sequence[Pair], start: int, folder: Path) -> None:
    """Edits every runtime; afterwards all runs that can, run."""
    names = {pair.name for pair in pairs}
    changes = [edited(runtime, start + at) for at, runtime in enumerate(runtimes_of(plane, namespace, pairs))]
    what = {runtime["metadata"]["name"]: name for name, runtime in changes}
    file = folder / "runtimes.yaml"
    file.write_text(yaml.safe_dump_all([runtime for _, runtime in changes]))

    code, said = preflight(plane, namespace, "--runtime", str(file))
    lost = {name for name, item in said.items() if item["verdict"] == "lost"}
    assert said.keys() == names
    assert code == bool(lost)
    assert {item["verdict"] for item in said.values()} <= {"lost", "safe"}

    plane.apply(*(runtime for _, runtime in changes), server_side=True)
    held_anyway = {pair.name for pair in pairs if is_held(plane.release, pair)}
    held = settle(plane, namespace, pairs)
    early = wedged(plane, namespace, names)
    by_edit = {
        edit: sorted(name.name for name in pairs if what[name.runtime] == edit and name.name in held) for edit in EDITS
    }
    print(f"{plane.release.trainer}, edits of {len(changes)} runtimes: {len(pairs)} runs of", end=" ")
    print(
        f"{len({(pair.runtime, pair.variant) for pair in pairs})} pairs; lost {len(lost)}, held {len(held)}: {by_edit}"
    )
    assert lost - held == set(), "named, and not held"
    assert held - lost == set(), "held, and not named"
    assert {*early} == held, "rescue tells the same"
    if plane.release.minor >= "2.3":
        assert held == held_anyway, "an edit does not reach them"
    freed = [pair for pair in pairs if pair.name in held - held_anyway]
    codes = rescue_all(plane, namespace, [pair.name for pair in freed])
    assert {name: code for name, code in codes.items() if code} == {}
    check_rescued(plane, namespace, freed)
    print(f"freed {len(freed)}")
    ran = {pair.name: False for pair in pairs if pair.state == RUNNING and pair.name not in held}
    suspend(plane, namespace, ran)
    wait_state(plane, namespace, ran)


def _delete(plane: Cluster, namespace: str, pairs: Sequence[Pair]) -> None:
    """Deletes every runtime: before 2.3 it stays until its runs are over, from then on they cannot be changed."""
    pairs = [pair for pair in pairs if not is_held(plane.release, pair)]
    names = {pair.name for pair in pairs}
    runtimes = runtimes_of(plane, namespace, pairs)
    told: dict[str, Object] = {}
    for runtime in runtimes:
        kind, name = runtime["kind"], runtime["metadata"]["name"]
        told |= preflight(plane, namespace, "--delete-runtime", f"{kind}/{name}")[1]
    assert told.keys() == names
    goes = plane.release.minor >= "2.3"
    assert {item["verdict"] for item in told.values()} == {"lost" if goes else "safe"}

    for runtime in runtimes:
        kind, name = runtime["kind"], runtime["metadata"]["name"]
        plane.kubectl("delete", f"{kind}.trainer.kubeflow.org", name, "-n", namespace, "--wait=false")
    down = {pair.name: True for pair in pairs}
    refused = suspend(plane, namespace, down)
    if goes:
        assert refused.keys() == names
        assert all("must be created before the TrainJob" in answer.message for answer in refused.values())
        plane.apply(*runtimes, server_side=True)
        refused = suspend(plane, namespace, down)
    assert not refused, {name: answer.message for name, answer in refused.items()}
    wait_state(plane, namespace, down)
    assert not suspend(plane, namespace, dict.fromkeys(down, False))
    wait_state(plane, namespace, dict.fromkeys(down, False))
    print(f"{plane.release.trainer}, deletion of {len(runtimes)} runtimes: {len(pairs)} runs, lost {len(names) * goes}")
