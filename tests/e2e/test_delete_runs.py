"""`ckptguard delete` with the real Trainer and JobSet: nothing of a run is left, in whatever state it was.

Here nobody plays the kubelet's part in ending a pod: a pod that no node has is gone as soon as it is deleted, so what
is measured is what the controllers take. On nodes: `tests/e2e_nodes/test_runs_delete.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.e2e.controlplane.cluster import JOBSETS, TRAINJOBS, Cluster
from tests.e2e.controlplane.processes import wait_until
from tests.e2e.objects import QUEUE_LABEL, Project, changed, runtime, trainjob

WITHIN = 15.0
"""Seconds from the end of the pods until nothing is left."""


def delete(cluster: Cluster, namespace: str, name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "webhook", "delete", name, "-n", namespace),
            *("--output", "json", "--timeout", "60s"),
        ],
        env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def left(cluster: Cluster, namespace: str, name: str) -> list[str]:
    found = [kind for kind in (TRAINJOBS, JOBSETS) if cluster.get(kind, name, namespace) is not None]
    pods = cluster.all_of("pods", namespace, f"jobset.sigs.k8s.io/jobset-name={name}")
    return [*found, *(pod["metadata"]["name"] for pod in pods)]


def bring(cluster: Cluster, namespace: str, name: str, state: str) -> None:
    """A run in that state."""
    project = Project(cluster, namespace)
    job = trainjob(namespace, name)
    if state == "queued":
        job["metadata"]["labels"] = {QUEUE_LABEL: "nobody"}
    project.send("create", objects=[changed(job, suspend=state in ("stopped", "queued"))])
    if state in ("stopped", "queued"):
        cluster.wait_for(JOBSETS, name, namespace, lambda jobset: jobset["spec"].get("suspend") is True)
        return
    for pod in cluster.wait_for_pods(name, namespace, 1):
        cluster.set_pod_phase(pod["metadata"]["name"], namespace, "Failed" if state == "failed" else "Running")
    if state == "failed":
        cluster.wait_for(TRAINJOBS, name, namespace, has_failed)


def has_failed(found: dict[str, Any]) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Failed" and one["status"] == "True" for one in conditions)


@pytest.mark.ends
@pytest.mark.parametrize("state", ["running", "stopped", "failed", "queued"])
def test_nothing_is_left(unguarded: Cluster, namespace: str, state: str) -> None:
    one = runtime(namespace, nodes=1)
    one["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 0
    unguarded.apply(one)
    names = [f"{state}-{number}" for number in range(2)]
    for name in names:
        bring(unguarded, namespace, name, state)
    for name in names:
        told = delete(unguarded, namespace, name)
        assert told.returncode == 0, told.stderr
        assert json.loads(told.stdout)["seconds"] <= WITHIN
        assert left(unguarded, namespace, name) == []
    time.sleep(2)  # Trainer made a new JobSet each second
    assert [left(unguarded, namespace, name) for name in names] == [[], []]


@pytest.mark.ends
def test_a_deletion_in_the_foreground_is_ended(unguarded: Cluster, namespace: str) -> None:
    """The API server takes the finalizer off when the same object is deleted in the background."""
    unguarded.apply(runtime(namespace, nodes=1))
    bring(unguarded, namespace, "front", "running")
    unguarded.kubectl("delete", "trainjob", "front", "-n", namespace, "--cascade=foreground", "--wait=false")
    told = delete(unguarded, namespace, "front")
    # Now and then the last JobSet goes before Trainer has made the next, and with it the TrainJob, by itself.
    assert told.returncode == 0 or "there is no TrainJob" in told.stderr
    wait_until("nothing of it is left", lambda: not left(unguarded, namespace, "front"), WITHIN)
