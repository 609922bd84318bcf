from __future__ import annotations

from typing import Any

import pytest

from tests.effective.objects import find_checkpoints, job, override, pods, runtime, trainjob
from webhook.model.pod import Storage, StorageKind
from webhook.model.release import Release
from webhook.reports.pods import canonical_quantity, pods_result, render_pods, stored_failure_policy, stored_volume

POD: Any = {
    "volumes": [{"name": "ckpt", "persistentVolumeClaim": {"claimName": "a", "readOnly": False}}],
    "containers": [
        {
            "name": "node",
            "image": "i:1",
            "args": [],
            "env": [{"name": "CKPT_DIR", "value": "/ckpt/x"}, {"name": "EMPTY", "value": ""}],
            "volumeMounts": [{"name": "ckpt", "mountPath": "/ckpt", "readOnly": False, "subPath": ""}],
        }
    ],
}


def test_the_json_has_the_pod_as_stored_and_an_origin_for_each_part() -> None:
    rt = runtime(job(pod=POD), failurePolicy={"maxRestarts": 0}, policy={"torch": {}})
    result = pods_result("TrainJob", "team", "run", pods(rt, trainjob({"env": [{"name": "B", "value": "1"}]})))
    assert (result["kind"], result["namespace"], result["name"], result["trainer"]) == (
        "TrainJob",
        "team",
        "run",
        "2.3",
    )
    assert result["failurePolicy"] == {"restartStrategy": "Recreate"}
    (found,) = result["jobs"]
    assert set(found) == {"name", "pods", "trains", "backoffLimit", "pod", "origins"}
    pod = found["pod"]
    assert pod["volumes"] == [{"name": "ckpt", "persistentVolumeClaim": {"claimName": "a"}}]
    assert pod["initContainers"] == []
    assert pod["containers"][0]["volumeMounts"] == [{"name": "ckpt", "mountPath": "/ckpt"}]
    assert pod["containers"][0]["env"][:3] == [
        {"name": "CKPT_DIR", "value": "/ckpt/x"},
        {"name": "EMPTY"},
        {"name": "B", "value": "1"},
    ]
    assert "args" not in pod["containers"][0]
    base = "TrainingRuntime/rt spec.template.spec.replicatedJobs[0].template.spec.template.spec"
    origins = found["origins"]
    assert origins["/volumes/0"] == f"{base}.volumes[0]"
    assert origins["/containers/0"] == f"{base}.containers[0]"
    assert origins["/containers/0/image"] == f"{base}.containers[0].image"
    assert origins["/containers/0/env/1"] == f"{base}.containers[0].env[1]"
    assert origins["/containers/0/env/2"] == "TrainJob/run spec.trainer.env[0]"
    assert origins["/containers/0/env/3"] == "Trainer"
    assert origins["/containers/0/volumeMounts/0"] == f"{base}.containers[0].volumeMounts[0]"
    assert origins["/restartPolicy"] == "JobSet"
    assert origins["/terminationGracePeriodSeconds"] == "Job"


def test_a_pair_that_makes_no_jobset_has_no_jobs() -> None:
    assert pods_result("TrainJob", "team", "run", None)["jobs"] == []
    run = trainjob(managedBy="kueue.x-k8s.io/multikueue")
    effective = pods(runtime(job()), run)
    assert pods_result("TrainJob", "team", "run", effective)["jobs"] == []
    assert "managedBy" in "\n".join(render_pods("TrainJob run", effective))


def test_where_trainer_stops_the_tree_says_why() -> None:
    lines = list(render_pods("TrainJob team/run", pods(runtime(job(), policy={"flux": {}}), trainjob())))
    assert len(lines) == 2
    assert lines[1].startswith("  no JobSet is made of it: spec.trainer.numNodes is absent")


def test_volumes_of_claim_templates_stand_last() -> None:
    pod = {"containers": [{"name": "node", "volumeMounts": [{"name": "t", "mountPath": "/ckpt"}]}]}
    rt = runtime(job(pod=pod), volumeClaimPolicies=[{"templates": [{"metadata": {"name": "t"}}]}])
    (found,) = pods_result("TrainJob", "team", "run", pods(rt, trainjob()))["jobs"]
    assert found["pod"]["volumes"] == [{"name": "t", "persistentVolumeClaim": {"claimName": "t-run"}}]
    assert found["origins"]["/volumes/0"] == "TrainingRuntime/rt spec.template.spec.volumeClaimPolicies[0].templates[0]"


@pytest.mark.parametrize(
    ("volume", "stored"),
    [
        ({"name": "a"}, {"name": "a", "emptyDir": {}}),
        ({"name": "a", "hostPath": {"path": "/d"}}, {"name": "a", "hostPath": {"path": "/d", "type": ""}}),
        (
            {"name": "a", "emptyDir": {"medium": "", "sizeLimit": "1024Mi"}},
            {"name": "a", "emptyDir": {"sizeLimit": "1Gi"}},
        ),
        (
            {"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
            {
                "name": "a",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "metadata": {},
                        "spec": {"resources": {}, "volumeMode": "Filesystem", "accessModes": ["ReadWriteOnce"]},
                    }
                },
            },
        ),
        (
            {"name": "a", "image": {"reference": "r/i:latest"}},
            {"name": "a", "image": {"reference": "r/i:latest", "pullPolicy": "Always"}},
        ),
        (
            {"name": "a", "csi": {"driver": "d", "readOnly": False}},
            {"name": "a", "csi": {"driver": "d", "readOnly": False}},
        ),
        (
            {"name": "a", "csi": {"driver": "d", "fsType": ""}},
            {"name": "a", "csi": {"driver": "d", "fsType": ""}},
        ),
        (
            {"name": "a", "rbd": {"monitors": ["m"], "image": "i", "fsType": "", "pool": "p", "user": "u"}},
            {
                "name": "a",
                "rbd": {"monitors": ["m"], "image": "i", "pool": "p", "user": "u", "keyring": "/etc/ceph/keyring"},
            },
        ),
    ],
)
def test_volumes_have_the_apis_defaults(volume: Any, stored: Any) -> None:
    assert stored_volume(volume) == stored


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("0.5", "500m"),
        (2, "2"),
        ("2000m", "2"),
        ("1000", "1k"),
        ("1e3", "1e3"),
        ("1E4", "10e3"),
        ("1.5e3", "1500"),
        ("1000e3", "1e6"),
        ("-12e-4", "-1200e-6"),
        ("0e3", "0"),
        (0, "0"),
        ("nonsense", "nonsense"),
    ],
)
def test_quantities_are_written_as_the_api_server_does(written: Any, stored: str) -> None:
    assert canonical_quantity(written) == stored


def test_a_failure_policy_is_told_with_its_strategy() -> None:
    assert stored_failure_policy(None) is None
    assert stored_failure_policy({"maxRestarts": 3, "rules": None}) == {"maxRestarts": 3, "restartStrategy": "Recreate"}


def test_the_tree_names_directory_volume_claim_and_where_each_comes_from() -> None:
    patch = {
        "volumes": [{"name": "new", "persistentVolumeClaim": {"claimName": "b"}}],
        "containers": [{"name": "node", "volumeMounts": [{"name": "new", "mountPath": "/ckpt/x"}]}],
    }
    run = trainjob({"env": [{"name": "CKPT_DIR", "value": "/ckpt/x/y"}]}, **override(Release.V2_3, patch))
    effective = pods(runtime(job(pod=POD, backoffLimit=0), failurePolicy={"maxRestarts": 3}), run)
    storage = Storage(StorageKind.MANY_NODES, "", claim_name="b")
    checkpoints = find_checkpoints(effective, ("CKPT_DIR",), lambda *_: storage)
    lines = [" ".join(line.split()) for line in render_pods("TrainJob team/run", effective, checkpoints)]
    assert lines[:4] == [
        "TrainJob team/run (Trainer 2.3, runtime TrainingRuntime/rt)",
        "maxRestarts 3 <- TrainingRuntime/rt failurePolicy",
        "job node: 1 pod that trains",
        "backoffLimit 0 <- TrainingRuntime/rt job node backoffLimit",
    ]
    assert "directory /ckpt/x/y (CKPT_DIR) <- spec.trainer env CKPT_DIR" in lines
    assert 'on volume new, claim "b": many-nodes <- runtimePatches[example.com/me] job node volume new' in lines
    assert 'volume ckpt: claim "a" <- TrainingRuntime/rt job node volume ckpt' in lines
    assert "\x1b[" in "".join(render_pods("TrainJob team/run", effective, checkpoints, colour=True))


def test_control_characters_of_the_user_never_reach_the_terminal() -> None:
    pod = {"containers": [{"name": "node", "image": "i\x1b[31m", "command": ["a\x07"]}]}
    assert "\x1b" not in "".join(render_pods("x", pods(runtime(job(pod=pod)), trainjob())))
