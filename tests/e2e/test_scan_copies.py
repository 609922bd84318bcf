"""Trainer 2.3 builds a run from its own copy of the runtime, and `ckptguard scan` judges it by that."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys

import pytest

from tests.e2e.controlplane.cluster import Cluster
from tests.e2e.controlplane.guard import CLONE
from tests.e2e.controlplane.releases import RELEASES
from tests.e2e.objects import changed, claim, mounting_runtime, storage_class, trainjob
from webhook.model.names import MODE


@pytest.fixture(scope="session", params=[next(iter(RELEASES))])
def release(request: pytest.FixtureRequest) -> str:
    """The newest Trainer, which keeps copies."""
    return str(request.param)


def verdicts(cluster: Cluster, namespace: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "webhook", "scan", "-n", namespace, "-o", "json", "--kubeconfig", cluster.kubeconfig],
        env=os.environ | {"PYTHONPATH": str(CLONE)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return {f"{one['kind']}/{one['name']}": one["verdict"] for one in json.loads(done.stdout)["results"]}


def test_a_run_is_judged_by_the_copy_that_it_is_built_from(cluster: Cluster, namespace: str) -> None:
    # Should a guard be registered here: it lets the edit below pass.
    cluster.kubectl("label", "namespace", namespace, f"{MODE}=warn")
    good = mounting_runtime(namespace)
    cluster.apply(storage_class(), claim(namespace), good)

    def submit(name: str) -> None:
        job = trainjob(namespace, name, runtime_name="mounting", CKPT_DIR=f"/data/{name}")
        cluster.apply(changed(job, suspend=True))
        cluster.wait_for("configmaps", f"{name}-runtime-snapshot", namespace)

    submit("before")
    bad = copy.deepcopy(good)
    pod = bad["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "data", "emptyDir": {}}]
    cluster.kubectl("replace", "-f", "-", input=json.dumps(bad))
    submit("after")
    found = verdicts(cluster, namespace)
    assert found["TrainingRuntime/mounting"] != "allow"
    assert found["TrainJob/before"] != "deny"
    assert found["TrainJob/after"] == "deny"
