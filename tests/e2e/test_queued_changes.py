"""Runs with a Kueue queue while Trainer or their runtimes change, with the real controllers: ``preflight`` said so.

There is one queue for each state, and what suspends and resumes a run is its queue. ``E2E_KUEUE`` says which Kueue.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Clusters
from tests.e2e.controlplane import build
from tests.e2e.controlplane.cluster import Cluster, Object
from tests.e2e.controlplane.controlplane import ControlPlane, needed_components
from tests.e2e.controlplane.processes import wait_until
from tests.e2e.controlplane.releases import KUEUE, RELEASES
from tests.e2e.objects import QUEUE_LABEL
from tests.e2e.runtime_edits import edited
from tests.e2e.test_kueue import KUEUE as KUEUE_API
from tests.e2e.unfinished import (
    AFTER,
    BEFORE,
    LATE,
    RUNNING,
    STATES,
    Kubelet,
    Pair,
    create,
    is_suspended,
    jobsets,
    preflight,
    refused_by_jobset,
    rescue_all,
    runtimes_of,
    trainjob,
    wait_state,
    with_pods,
)

pytestmark = pytest.mark.full
CHOSEN = (
    ("deepspeed-distributed", "a"),
    ("mlx-distributed", "o"),
    ("torch-distributed", "a"),
    ("torch-distributed", "b"),
    ("jax-distributed", "a"),
    ("own-mpi", "b"),
    ("own-plain", "a"),
    ("own-torch", "g"),
    ("own-many", "o"),
    ("own-labels", "b"),
    ("own-edited", "a"),
    ("own-steps", "a"),
)
PAIRS = tuple(Pair(runtime, variant, state) for runtime, variant in CHOSEN for state in STATES)
_HOLD, _RUN = "HoldAndDrain", "None"
_STAYS = 15
"""Seconds in which Kueue stops what it stops."""


def _queues(namespace: str) -> list[Object]:
    resources = ["cpu", "memory", "nvidia.com/gpu"]
    quota = [{"name": name, "nominalQuota": "10000"} for name in resources]
    group = {"coveredResources": resources, "flavors": [{"name": namespace, "resources": quota}]}
    return [
        {"apiVersion": KUEUE_API, "kind": "ResourceFlavor", "metadata": {"name": namespace}},
        {
            "apiVersion": KUEUE_API,
            "kind": "ClusterQueue",
            "metadata": {"name": namespace},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        *(
            {
                "apiVersion": KUEUE_API,
                "kind": "LocalQueue",
                "metadata": {"name": state, "namespace": namespace},
                "spec": {"clusterQueue": namespace, "stopPolicy": "Hold" if state == BEFORE else _RUN},
            }
            for state in STATES
        ),
    ]


def _stop_policy(plane: Cluster, namespace: str, policies: Mapping[str, str]) -> None:
    for queue, policy in policies.items():
        patch = json.dumps({"spec": {"stopPolicy": policy}})
        plane.kubectl("patch", "localqueue", queue, "-n", namespace, "--type=merge", "-p", patch)


def _fill(plane: Cluster, namespace: str) -> None:
    plane.apply(*_queues(namespace))
    jobs = []
    for pair in PAIRS:
        job = trainjob(pair, namespace, plane.release.minor)
        job["metadata"]["labels"] = {QUEUE_LABEL: pair.state}
        job["spec"].pop("suspend")
        jobs.append(job)
    create(plane, PAIRS, namespace, jobs)
    wait_state(plane, namespace, {pair.name: pair.state == BEFORE for pair in PAIRS})
    running = {pair.name for pair in PAIRS if pair.state != BEFORE}
    wait_until("a pod of each that runs", lambda: running <= with_pods(plane, namespace), LATE, every=1)
    _stop_policy(plane, namespace, {AFTER: _HOLD})
    wait_state(plane, namespace, {pair.name: True for pair in PAIRS if pair.state == AFTER})


def _settle(plane: Cluster, namespace: str) -> set[str]:
    """Lets the queues of what is suspended go, and holds the other; the runs that JobSet does not let follow."""
    _stop_policy(plane, namespace, {BEFORE: _RUN, AFTER: _RUN, RUNNING: _HOLD})

    def probe() -> set[str] | None:
        refused, found = refused_by_jobset(plane, namespace), jobsets(plane, namespace)
        left = {pair.name for pair in PAIRS if is_suspended(found[pair.name]) is not (pair.state == RUNNING)}
        return {"", *left} if left <= refused.keys() else None

    return wait_until("what becomes of the runs", probe, LATE, every=2) - {""}


def test_an_upgrade_under_queued_runs() -> None:
    before, after = RELEASES["2.2.1"], RELEASES["2.3.0"]
    try:
        for component in (*needed_components(before, kueue=True), *needed_components(after)):
            build.ensure(component)
    except build.GoMissingError as missing:
        pytest.skip(str(missing))
    with ControlPlane(before, kueue=True) as plane:
        namespace = plane.new_namespace(prefix="up")
        with Kubelet(plane, namespace):
            _fill(plane, namespace)
            _, said = preflight(plane, namespace, "--trainer", after.minor)
            lost = {name for name, item in said.items() if item["verdict"] == "lost"}
            assert said.keys() == {pair.name for pair in PAIRS}
            plane.upgrade(after)
            held = _settle(plane, namespace)
            print(
                f"Kueue {KUEUE}, {before.trainer} -> {after.trainer}: {len(PAIRS)} runs, lost {len(lost)}, held {held}"
            )
            assert lost == held
            codes = rescue_all(plane, namespace, sorted(held))
            assert {name: code for name, code in codes.items() if code} == {}
            wait_state(plane, namespace, {pair.name: pair.state == RUNNING for pair in PAIRS})
            _stop_policy(plane, namespace, {RUNNING: _RUN})
            wait_until("a pod of each", lambda: held <= with_pods(plane, namespace), LATE, every=1)


def _pods(plane: Cluster, namespace: str, names: Sequence[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {name: set() for name in names}
    for pod in plane.all_of("pods", namespace):
        run = pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"]
        if run in found:
            found[run].add(pod["metadata"]["uid"])
    return found


def test_edits_and_deletions_under_queued_runs(clusters: Clusters, tmp_path: Path) -> None:
    plane = clusters.get("2.3.0", kueue=True)
    namespace = plane.new_namespace(prefix="rt")
    with Kubelet(plane, namespace):
        _fill(plane, namespace)
        _edit(plane, namespace, tmp_path / "runtimes.yaml")
        _delete(plane, namespace)
    plane.delete_namespace(namespace)


def _edit(plane: Cluster, namespace: str, file: Path) -> None:
    """Edits every runtime: Kueue stops what runs where containers changed, and JobSet lets all of them follow."""
    changes = [edited(runtime, at)[1] for at, runtime in enumerate(runtimes_of(plane, namespace, PAIRS))]
    file.write_text(yaml.safe_dump_all(changes))
    _, said = preflight(plane, namespace, "--runtime", str(file))
    assert {item["verdict"] for item in said.values()} == {"safe", "stops"}
    stops = {name for name, item in said.items() if item["verdict"] == "stops"}
    running = [pair.name for pair in PAIRS if pair.state == RUNNING]
    pods = _pods(plane, namespace, running)

    plane.apply(*changes, server_side=True)
    plane.kubectl("label", "trainjob", *running, "-n", namespace, "seen=yes")  # an event of each is enough
    wait_until(
        "what Kueue stops",
        lambda: all(not pods[name] & now for name, now in _pods(plane, namespace, running).items() if name in stops),
        LATE,
        every=1,
    )
    wait_until("a pod of each", lambda: {*running} <= with_pods(plane, namespace), LATE, every=1)
    stopped = {name for name, now in _pods(plane, namespace, running).items() if not pods[name] & now}
    print(
        f"Kueue {KUEUE}, 2.3.0, edits of {len(changes)} runtimes: {len(PAIRS)} runs, stops {len(stops)}:",
        sorted(stopped),
    )
    assert stopped == stops
    assert _settle(plane, namespace) == set()


def _delete(plane: Cluster, namespace: str) -> None:
    """Deletes every runtime: no queue can stop or start a run any more, until the runtimes are there again."""
    runtimes = runtimes_of(plane, namespace, PAIRS)
    told: dict[str, Object] = {}
    for runtime in runtimes:
        told |= preflight(plane, namespace, "--delete-runtime", f"{runtime['kind']}/{runtime['metadata']['name']}")[1]
    assert {item["verdict"] for item in told.values()} == {"lost"}
    for runtime in runtimes:
        name = runtime["metadata"]["name"]
        plane.kubectl("delete", f"{runtime['kind']}.trainer.kubeflow.org", name, "-n", namespace, "--wait=false")
    _stop_policy(plane, namespace, {BEFORE: _HOLD, AFTER: _HOLD, RUNNING: _RUN})
    with pytest.raises(AssertionError, match="JobSets"):
        wait_state(plane, namespace, {pair.name: pair.state != RUNNING for pair in PAIRS}, _STAYS)
    moved = [
        pair.name for pair in PAIRS if is_suspended(jobsets(plane, namespace)[pair.name]) is (pair.state != RUNNING)
    ]
    print(f"Kueue {KUEUE}, 2.3.0, deletion of {len(runtimes)} runtimes: {len(PAIRS)} runs, moved all the same: {moved}")
    assert moved == []
    plane.apply(*runtimes, server_side=True)
    wait_state(plane, namespace, {pair.name: pair.state != RUNNING for pair in PAIRS})
