"""`ckptguard runtimes --heal` with real controllers: what it adds does not keep a run from resuming, in any release."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.e2e.controlplane.cluster import JOBSETS, Cluster
from tests.e2e.controlplane.processes import wait_until
from tests.e2e.objects import RUNTIMES, Project, changed, runtime, trainjob


def heal(cluster: Cluster, namespace: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the result for the only runtime that lacked something."""
    run = subprocess.run(
        [sys.executable, "-m", "webhook", "runtimes", "--heal", "--namespace", namespace, "--output", "json"],
        env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    results = json.loads(run.stdout)["results"]
    return run.returncode, results[0] if results else {}


def test_a_suspended_run_still_resumes(unguarded: Cluster, namespace: str) -> None:
    project = Project(unguarded, namespace)
    unguarded.apply(runtime(namespace))
    project.send("create", objects=[changed(trainjob(namespace), suspend=True)])
    unguarded.wait_for(JOBSETS, "run", namespace, lambda jobset: jobset["spec"].get("suspend") is True)

    code, result = heal(unguarded, namespace)

    stored = unguarded.get(RUNTIMES, "plain", namespace)
    assert stored is not None
    assert stored["spec"]["template"]["spec"]["failurePolicy"]["maxRestarts"] == 3
    if unguarded.release.minor == "2.3":
        assert (code, result["outcome"]) == (0, "added")
    else:
        assert (code, result["outcome"]) == (1, "added in part")
        assert result["heldBy"] == [f"{namespace}/run"]
    assert len(project.resumes("run")) == 2
    project.patch("run", spec={"suspend": True})
    project.wait_suspended("run")
    assert len(project.resumes("run")) == 2


def test_a_runtime_without_runs_gets_everything(unguarded: Cluster, namespace: str) -> None:
    project = Project(unguarded, namespace)
    unguarded.apply(runtime(namespace))

    assert heal(unguarded, namespace)[1]["outcome"] == "added"
    assert heal(unguarded, namespace) == (0, {})

    project.send("create", objects=[trainjob(namespace)])
    pods = project.pods("run")
    assert {pod["spec"]["terminationGracePeriodSeconds"] for pod in pods} == {60}

    def budget() -> bool:
        jobset = unguarded.get(JOBSETS, "run", namespace)
        return jobset is not None and jobset["spec"]["failurePolicy"]["maxRestarts"] == 3

    wait_until("the JobSet has the budget", budget)
