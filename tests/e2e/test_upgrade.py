"""An upgrade of Trainer under unfinished runs, with the real controllers on one store: what ``preflight`` said is so.

Each run is suspended before its first start, suspended after it, or running. Trainer, JobSet, CRDs and webhooks are
swapped; then each is resumed (or suspended, where it runs), and JobSet follows it or not. ``rescue`` frees each that is
held, and no claim is touched. A slice runs with each change; all runtimes, and the older hops, are full.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.controlplane import build
from tests.e2e.controlplane.cluster import JOBSETS, TRAINJOBS, Cluster, Object
from tests.e2e.controlplane.controlplane import ControlPlane, needed_components
from tests.e2e.controlplane.processes import wait_until
from tests.e2e.controlplane.releases import RELEASES, Release
from webhook.runs.api import KubernetesApi
from webhook.runs.rescue import difference
from webhook.runs.run import find_run

BEFORE, AFTER, RUNNING = "before", "after", "running"
"""Suspended before its first start, suspended after it, running."""
STATES = (BEFORE, AFTER, RUNNING)
HELD = "0.12.0"
"""The JobSet that stays, where it is held."""
_LATE = 240
"""Seconds that the controllers may take for the last of many runs, on a machine that is busy."""
REFUSED = "TrainJobResourcesCreationFailed"
LABELS = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
RUNTIMES = Path(__file__).parents[2] / "webhook/cluster/shipped_runtimes"
"""As each release ships them."""
_NEW_IN_2_2 = ("jax-distributed", "xgboost-distributed")
SHIPPED = (
    "deepspeed-distributed",
    "mlx-distributed",
    "torch-distributed",
    "torch-distributed-with-cache",
    "torchtune-llama3.2-1b",
    *_NEW_IN_2_2,
)


@dataclass(frozen=True)
class Pair:
    """A runtime and what a TrainJob says beside it, in one state."""

    runtime: str
    variant: str
    state: str

    @property
    def name(self) -> str:
        """Of the TrainJob; short, since Jobs and pods are named after it."""
        short = self.runtime.replace("-distributed", "").replace(".", "-")[:16]
        return f"{short}-{self.variant}-{self.state}"


SLICE = (
    Pair("deepspeed-distributed", "a", BEFORE),
    Pair("deepspeed-distributed", "a", AFTER),
    Pair("deepspeed-distributed", "b", RUNNING),
    Pair("mlx-distributed", "a", BEFORE),
    Pair("torch-distributed", "a", BEFORE),
    Pair("torch-distributed", "b", RUNNING),
    Pair("own-plain", "a", AFTER),
    Pair("own-mpi", "b", BEFORE),
    Pair("jax-distributed", "a", BEFORE),
    Pair("own-torch", "b", RUNNING),
)


def _is_held(release: Release, pair: Pair) -> bool:
    """JobSet never lets it be suspended or resumed: volumeClaimPolicies without retentionPolicy, as it is shipped."""
    return release.minor >= "2.2" and pair.runtime.startswith("torchtune")


def everything(release: Release) -> tuple[Pair, ...]:
    """All runtimes that the release ships, and our own, in both variants and all states."""
    shipped = [name for name in SHIPPED if release.minor >= "2.2" or name not in _NEW_IN_2_2]
    if release.minor == "2.0":
        shipped.remove("torch-distributed-with-cache")
    own = ("own-plain", "own-torch", "own-mpi", "own-mpi-as-node")
    pairs = (Pair(name, variant, state) for name in (*shipped, *own) for variant in "ab" for state in STATES)
    # What never follows cannot be suspended after its start either.
    return tuple(pair for pair in pairs if pair.state != AFTER or not _is_held(release, pair))


def own_runtime(name: str, namespace: str) -> Object:
    """A runtime of a project: `own-torch` mounts a claim, `own-mpi` starts from a launcher."""
    policy: dict[str, Any] = {"numNodes": 1}
    node: Object = {"name": "node", "image": "registry.example/train:1", "command": ["train"]}
    pod: Object = {"containers": [node]}
    jobs = [_job("node", pod, labelled=True)]
    if name == "own-torch":
        policy["torch"] = {}
        node["volumeMounts"] = [{"name": "ckpt", "mountPath": "/ckpt"}]
        pod["volumes"] = [{"name": "ckpt", "persistentVolumeClaim": {"claimName": "kept"}}]
    elif name.startswith("own-mpi"):
        mpi = {"mpiImplementation": "OpenMPI", "numProcPerNode": 1, "sshAuthMountPath": "/home/mpi/.ssh"}
        policy["mpi"] = {**mpi, "runLauncherAsNode": name == "own-mpi-as-node"}
        jobs = [_job("launcher", pod, labelled=True), _job("node", pod, labelled=False)]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "namespace": namespace, "labels": {"trainer.kubeflow.org/framework": "own"}},
        "spec": {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": jobs}}},
    }


def _job(name: str, pod: Object, *, labelled: bool) -> Object:
    return {
        "name": name,
        "template": {"metadata": {"labels": LABELS} if labelled else {}, "spec": {"template": {"spec": pod}}},
    }


def trainjob(pair: Pair, namespace: str) -> Object:
    """Variant `a` gives nodes and a variable, `b` an image, a command and resources."""
    trainer: Object = {"numNodes": 2, "env": [{"name": "EPOCHS", "value": "3"}]}
    if pair.variant == "b":
        resources = {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}}
        trainer = {"image": "registry.example/mine:2", "command": ["mine"], "resourcesPerNode": resources}
    own = pair.runtime.startswith("own-")
    reference = {"kind": "TrainingRuntime" if own else "ClusterTrainingRuntime", "name": pair.runtime}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": pair.name, "namespace": namespace},
        "spec": {"runtimeRef": reference, "trainer": trainer, "suspend": pair.state == BEFORE},
    }


def claim(namespace: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "kept", "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }


def _hops() -> Iterator[Any]:
    """From, to, the JobSet that both have (none: each the one that it pins), and the pairs."""
    yield pytest.param("2.2.1", "2.3.0", HELD, SLICE, id="2.2.1-2.3.0-slice")
    for old, new in (("2.0.1", "2.1.0"), ("2.1.0", "2.2.1"), ("2.2.1", "2.3.0")):
        for held in (HELD, ""):
            name = f"{old}-{new}-{'held' if held else 'pinned'}"
            yield pytest.param(old, new, held, everything(RELEASES[old]), id=name, marks=pytest.mark.full)


def _release(name: str, held: str) -> Release:
    return replace(RELEASES[name], jobset=held) if held else RELEASES[name]


@pytest.mark.parametrize(("old", "new", "held", "pairs"), list(_hops()))
def test_what_preflight_says_of_an_upgrade_is_so(old: str, new: str, held: str, pairs: Sequence[Pair]) -> None:
    if os.environ.get("E2E_KUBECONFIG"):
        pytest.skip("controllers are swapped: that takes a control plane of its own")
    before, after = _release(old, held), _release(new, held)
    try:
        for component in (*needed_components(before), *needed_components(after)):
            build.ensure(component)
    except build.GoMissingError as missing:
        pytest.skip(str(missing))
    with ControlPlane(before) as plane:
        namespace = _fill(plane, pairs)
        kept = plane.wait_for("persistentvolumeclaims", "kept", namespace)["metadata"]
        code, said = preflight(plane, namespace, after.minor)
        lost = {item["name"] for item in said if item["verdict"] == "lost"}
        assert {item["name"] for item in said} == {pair.name for pair in pairs}
        assert {item["verdict"] for item in said} <= {"lost", "safe", "unknown"}
        # A start of the controller decides about these, and nobody can tell before.
        chance = {item["name"] for item in said if item["verdict"] == "unknown"}
        assert chance == {pair.name for pair in pairs if pair.runtime.startswith("xgboost") and pair.variant == "a"}
        assert code == bool(lost)
        held_before = {pair.name for pair in pairs if _is_held(before, pair)}
        assert set(wedged(plane, namespace, pairs)) == held_before, "no other is wedged before the upgrade"

        plane.upgrade(after)
        early = wedged(plane, namespace, pairs)
        held_up = {pair.name for pair in pairs if not _follows(plane, namespace, pair)}

        print(f"{old} -> {new}, JobSet {after.jobset}: {len(pairs)} runs, held: {sorted(held_up)}")
        assert lost == held_up - chance
        assert set(early) == held_up - chance, "rescue knows it before anybody has tried to resume them"
        for name in sorted(held_up):
            if name in held_before:  # its claim would go with its JobSet
                assert rescue(plane, namespace, name) == 2, name
                continue
            assert rescue(plane, namespace, name) == 0, name
            assert _agrees(plane, namespace, name), name
        now = plane.wait_for("persistentvolumeclaims", "kept", namespace)["metadata"]
        assert (now["uid"], now.get("deletionTimestamp")) == (kept["uid"], None)


def _fill(plane: ControlPlane, pairs: Sequence[Pair]) -> str:
    """The runs, each in its state, in a namespace of their own."""
    namespace = plane.new_namespace(prefix="up")
    for name in sorted({pair.runtime for pair in pairs if not pair.runtime.startswith("own-")}):
        plane.kubectl("apply", "--server-side", "-f", str(RUNTIMES / plane.release.minor / f"{name}.yaml"))
    own = sorted({pair.runtime for pair in pairs if pair.runtime.startswith("own-")})
    plane.apply(claim(namespace), *(own_runtime(name, namespace) for name in own))
    plane.apply(*(trainjob(pair, namespace) for pair in pairs))
    for pair in pairs:
        suspended = pair.state == BEFORE
        plane.wait_for(
            JOBSETS, pair.name, namespace, lambda found, wanted=suspended: _suspended(found) is wanted, _LATE
        )
    for pair in pairs:
        if pair.state == AFTER:
            _suspend(plane, namespace, pair.name, True)
    for pair in pairs:
        if pair.state == AFTER:
            plane.wait_for(JOBSETS, pair.name, namespace, _suspended, _LATE)
    return namespace


def _suspend(plane: Cluster, namespace: str, name: str, value: bool) -> None:
    patch = json.dumps({"spec": {"suspend": value}})
    plane.kubectl("patch", TRAINJOBS, name, "-n", namespace, "--type=merge", "-p", patch)


def _suspended(found: Object) -> bool:
    return bool(found["spec"].get("suspend"))


def _follows(plane: Cluster, namespace: str, pair: Pair) -> bool:
    """Whether JobSet follows a change of `suspend` after the upgrade; it is refused where it does not."""
    wanted = pair.state == RUNNING
    _suspend(plane, namespace, pair.name, wanted)

    def settled() -> str | None:
        jobset = plane.get(JOBSETS, pair.name, namespace)
        if jobset is not None and _suspended(jobset) is wanted:
            return "follows"
        refused = [
            event
            for event in plane.all_of("events", namespace)
            if event.get("reason") == REFUSED and event["involvedObject"]["name"] == pair.name
        ]
        said = ("denied the request", "Invalid value", "rejected our request")
        return "refused" if any(word in event["message"] for event in refused for word in said) else None

    return wait_until(f"what becomes of {pair.name}", settled, _LATE) == "follows"


def _agrees(plane: Cluster, namespace: str, name: str) -> bool:
    wanted = _suspended(plane.wait_for(TRAINJOBS, name, namespace))
    return bool(plane.wait_for(JOBSETS, name, namespace, lambda found: _suspended(found) is wanted))


def _ckptguard(plane: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "webhook", *words, "--kubeconfig", str(plane.kubeconfig)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def preflight(plane: Cluster, namespace: str, release: str) -> tuple[int, list[Object]]:
    """Exit code and results."""
    done = _ckptguard(plane, "preflight", "--trainer", release, "-n", namespace, "-o", "json")
    assert done.returncode in (0, 1), done.stderr
    print(_ckptguard(plane, "preflight", "--trainer", release, "-n", namespace).stdout)
    return done.returncode, json.loads(done.stdout)["results"]


def wedged(plane: Cluster, namespace: str, pairs: Sequence[Pair]) -> dict[str, tuple[str, ...] | str]:
    """The runs of which the JobSet differs from what Trainer builds now, as `rescue` works it out without an event."""
    api = KubernetesApi(plane.kubeconfig)
    found = {pair.name: difference(api, find_run(api, namespace, pair.name)) for pair in pairs}
    return {name: changed for name, changed in found.items() if changed}


def rescue(plane: Cluster, namespace: str, name: str) -> int:
    """Exit code. There are no nodes, so no pod ever runs, and it waits no longer than its time-out for one."""
    done = _ckptguard(plane, "rescue", name, "-n", namespace, "--yes", "--timeout", "10s")
    print(done.stdout, done.stderr)
    return done.returncode
