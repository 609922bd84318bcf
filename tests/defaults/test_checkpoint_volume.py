"""The claim that a TrainJob gets under its checkpoint directory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.defaults.world import (
    NAMESPACE,
    SHAPE_RELEASES,
    TRAINJOB_NAME,
    claim,
    cluster,
    container,
    env,
    fill,
    injected,
    job,
    mounting,
    mpi_runtime,
    pods,
    request,
    runtime,
    trainjob,
    volume,
)
from webhook.decision import review_object
from webhook.model.finding import Severity
from webhook.model.policy import Defaults, Policy
from webhook.model.release import Release

ASKED = {"checkpoint-guard.io/claim": "mine"}
STATE = (claim("mine"), volume())
VOLUME = {"name": "checkpoint-guard", "persistentVolumeClaim": {"claimName": "mine"}}
DECLARED = {"env": [{"name": "CKPT_DIR", "value": "/mnt/ckpt/sft"}]}


@pytest.mark.parametrize("release", list(Release))
def test_at_the_declared_directory(release: Release) -> None:
    done = fill(trainjob(annotations=ASKED, trainer=DECLARED), runtime(), *STATE, release=release)

    mount = {"name": "checkpoint-guard", "mountPath": "/mnt/ckpt/sft", "subPath": "mnt/ckpt/sft"}
    pod = pods(done.object, release)["node"]
    assert pod["volumes"] == [VOLUME]
    assert pod["containers"] == [{"name": "node", "volumeMounts": [mount]}]
    assert env(done.object) == DECLARED["env"]
    assert injected(done.object) == {
        "volumes": [VOLUME],
        "mounts": [mount],
        "targets": {"node": {"containers": ["node"]}},
    }
    assert done.applied == ("checkpoint_volume",)


@pytest.mark.parametrize("release", list(Release))
def test_without_a_directory(release: Release) -> None:
    done = fill(trainjob(annotations=ASKED), runtime(), *STATE, release=release)

    mount = {"name": "checkpoint-guard", "mountPath": "/mnt/ckpt"}
    assert pods(done.object, release)["node"]["containers"] == [{"name": "node", "volumeMounts": [mount]}]
    assert env(done.object) == [TRAINJOB_NAME, {"name": "CKPT_DIR", "value": "/mnt/ckpt/$(TRAINJOB_NAME)"}]
    assert injected(done.object)["env"] == env(done.object)
    assert done.applied == ("checkpoint_volume", "checkpoint_variables")


@pytest.mark.parametrize("path", ["/ckpts", "/ckpts/"])
def test_at_the_annotated_path(path: str) -> None:
    done = fill(trainjob(annotations={**ASKED, "checkpoint-guard.io/path": path}), runtime(), *STATE)
    assert pods(done.object)["node"]["containers"][0]["volumeMounts"][0]["mountPath"] == "/ckpts"
    assert env(done.object)[-1] == {"name": "CKPT_DIR", "value": "/ckpts/$(TRAINJOB_NAME)"}


def test_the_namespace_and_then_the_policy_name_the_claim() -> None:
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "annotations": {"checkpoint-guard.io/default-claim": "ours"}},
    }
    state = (runtime(), claim("ours"), claim("mine"), claim("train-ckpt"), volume())

    def taken(annotations: Any, *more: Any, policy: Policy | None = None) -> str:
        done = fill(trainjob(annotations=annotations), *state, *more, policy=policy)
        return str(pods(done.object)["node"]["volumes"][0]["persistentVolumeClaim"]["claimName"])

    assert taken(ASKED, namespace) == "mine"
    assert taken(None, namespace) == "ours"
    assert taken(None) == "train-ckpt"
    assert taken(None, policy=Policy(defaults=Defaults(claim_name="ours"))) == "ours"


def test_the_policys_claim_only_where_it_is_there() -> None:
    assert fill(trainjob(), runtime(), claim("another"), volume()).patch == ()
    assert fill(trainjob(), runtime()).patch == (), "unknown is not there"


def test_an_annotated_claim_that_cannot_be_looked_up_is_taken() -> None:
    assert pods(fill(trainjob(annotations=ASKED), runtime()).object)["node"]["volumes"] == [VOLUME]


def test_a_job_on_another_cluster_has_its_claims_there() -> None:
    run = trainjob(annotations=ASKED, managedBy="kueue.x-k8s.io/multikueue")
    assert pods(fill(run, runtime(), claim("other"), volume()).object)["node"]["volumes"] == [VOLUME]
    run = trainjob(managedBy="kueue.x-k8s.io/multikueue")
    assert fill(run, runtime(), claim("train-ckpt"), volume()).patch == ()


PENDING = {"spec": {"volumeName": ""}, "phase": "Pending"}
EBS = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "e"}}


@pytest.mark.parametrize(
    ("state", "rule"),
    [
        ((claim("other"), volume()), "missing-claim"),
        ((claim("mine"), volume("hostPath")), None),
        ((claim("mine", "ReadWriteOnce"), volume("hostPath")), "node-local-checkpoint"),
        ((claim("mine", "ReadOnlyMany"), volume()), "read-only-checkpoint"),
        ((claim("mine", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), volume()), "unusable-claim"),
        ((claim("mine", phase="Lost"), volume()), "unusable-claim"),
        ((claim("mine", spec={"volumeMode": "Block"}), volume()), "unusable-claim"),
        ((claim("mine", "ReadWriteOnce"), volume("rbd", "ReadWriteOnce")), "claim-not-shared"),
        ((claim("mine", "ReadWriteOncePod"), volume("nfs")), "claim-not-shared"),
        ((claim("mine", spec={"volumeName": "", "storageClassName": "no"}), EBS | {"provisioner": "x"}, volume()),
         "unbindable-claim"),
        ((claim("mine", spec={"volumeName": "", "storageClassName": "e"}), EBS | {"provisioner": "ebs.csi.aws.com"}),
         "unbindable-claim"),
    ],
)  # fmt: skip
def test_what_would_be_denied_is_left_out_and_said(state: tuple[Any, ...], rule: str | None) -> None:
    run = trainjob(annotations=ASKED, trainer={"numNodes": 2 if rule == "claim-not-shared" else 1})
    done = fill(run, runtime(policy={}), *state)
    if rule is None:
        assert done.patch
        return
    assert done.patch == ()
    assert [(found.rule, found.severity) for found in done.findings] == [(rule, Severity.WARN)]
    allowed = fill(run, runtime(policy={}), *state, policy=Policy(rules={rule: "warn"}))
    assert allowed.patch
    assert allowed.findings == ()


def test_a_policys_claim_that_would_be_denied_is_left_out_in_silence() -> None:
    state = (runtime(policy={}), claim("train-ckpt", "ReadWriteOnce"))
    done = fill(trainjob(trainer={"numNodes": 2}), *state, volume("rbd", "ReadWriteOnce"))
    assert (done.patch, done.findings) == ((), ())
    assert fill(trainjob(trainer={"numNodes": 2}), *state, volume()).patch, "a volume that offers more may do"


PINNED = {"containers": [container()], "nodeSelector": {"kubernetes.io/hostname": "n1"}}


@pytest.mark.parametrize(
    ("pod", "source", "verdict"),
    [(None, "rbd", "deny"), (PINNED, "rbd", "warn"), (None, "nfs", "warn"), (None, "hostPath", "deny")],
)
def test_by_annotation_or_mounted_by_hand_a_claim_is_judged_alike(pod: Any, source: str, verdict: str) -> None:
    state = (claim("mine", "ReadWriteOnce"), volume(source, "ReadWriteOnce"))
    asked = trainjob(annotations=ASKED, trainer={"numNodes": 2})
    by_hand = trainjob(trainer={"numNodes": 2})

    own = {**(pod or {"containers": [container()]}), "volumes": [VOLUME]}
    own["containers"] = [
        container(env=[{"name": "CKPT_DIR", "value": "/c"}], volumeMounts=[{"name": VOLUME["name"], "mountPath": "/c"}])
    ]
    mounted = runtime(job(pod=own, backoffLimit=0), policy={}, failurePolicy={"maxRestarts": 3})
    decision = review_object(request(by_hand), cluster(mounted, *state), Policy(rules={"short-grace": "off"}))
    assert decision.verdict == verdict

    done = fill(asked, runtime(job(pod=pod), policy={}), *state)
    assert bool(done.patch) == (verdict != "deny")
    assert bool(done.findings) == (verdict == "deny")


def test_one_pod_may_have_a_claim_for_one_node() -> None:
    assert fill(trainjob(annotations=ASKED), runtime(), claim("mine", "ReadWriteOnce"), volume()).patch


@pytest.mark.parametrize(
    "fields",
    [
        {"env": [{"name": "CKPT_DIR", "value": "/mnt/ckpt/$(TRAINJOB_NAME)"}]},
        {"env": [{"name": "BASE", "value": "/b"}, {"name": "CKPT_DIR", "value": "$(BASE)/ckpt"}]},
        {"env": [{"name": "CKPT_DIR", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]},
        {"env": [TRAINJOB_NAME, {"name": "CKPT_DIR", "value": "/mnt/ckpt/$(TRAINJOB_NAME)"}]},
        {"env": [{"name": "CKPT_DIR", "value": "s3://bucket/run"}]},
        {"env": [{"name": "CKPT_DIR", "value": "ckpt"}]},
        {"envFrom": [{"configMapRef": {"name": "c"}}]},
        {"args": ["--output_dir", "out"]},
    ],
    ids=["missing variable", "variable", "config map", "run name", "address", "relative", "envFrom", "relative flag"],
)
def test_a_directory_that_is_not_known_in_full(fields: Any) -> None:
    rt = runtime(job(pod={"containers": [container(**fields)]}))
    assert fill(trainjob(annotations=ASKED), rt, *STATE).patch == ()


def test_a_directory_named_by_a_flag_is_where_the_program_writes() -> None:
    rt = runtime(job(pod={"containers": [container(args=["--output_dir", "/out/sft"])]}))
    done = fill(trainjob(annotations=ASKED), rt, *STATE)
    mount = {"name": "checkpoint-guard", "mountPath": "/out/sft", "subPath": "out/sft"}
    assert pods(done.object)["node"]["containers"][0]["volumeMounts"] == [mount]
    assert env(done.object) == []


def test_what_is_right_already() -> None:
    declared = {"env": [{"name": "CKPT_DIR", "value": "/data/run"}]}
    assert fill(trainjob(annotations=ASKED, trainer=declared), runtime(job(pod=mounting())), *STATE).patch == ()


def test_what_is_wrong_already_is_left_to_the_rules() -> None:
    pod = {
        "containers": [container(volumeMounts=[{"name": "v", "mountPath": "/mnt/ckpt"}])],
        "volumes": [{"name": "v", "emptyDir": {}}],
    }
    assert fill(trainjob(annotations=ASKED, trainer=DECLARED), runtime(job(pod=pod)), *STATE).patch == ()


@pytest.mark.parametrize(
    "mounts",
    [
        [{"name": "v", "mountPath": "/mnt/ckpt"}],
        [{"name": "v", "mountPath": "/mnt/ckpt/"}],
        [{"name": "v", "mountPath": "/mnt/ckpt/cache"}],
        [{"name": "ro", "mountPath": "/mnt"}],
    ],
)
def test_a_path_that_is_taken(mounts: Any) -> None:
    pod = {
        "containers": [container(volumeMounts=mounts)],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "ro", "configMap": {"name": "c"}}],
    }
    done = fill(trainjob(annotations=ASKED), runtime(job(pod=pod)), *STATE)
    assert done.patch == ()
    (found,) = done.findings
    assert found.problem.startswith('claim "mine" was not mounted at "/mnt/ckpt"')
    assert (found.at.field, found.severity) == ('metadata.annotations["checkpoint-guard.io/claim"]', Severity.WARN)
    assert fill(trainjob(), runtime(job(pod=pod)), *STATE).findings == ()


@pytest.mark.parametrize("more", [{}, {"checkpoint-guard.io/path": "/ckpts/"}])
@pytest.mark.parametrize("release", SHAPE_RELEASES)
def test_what_was_mounted_the_first_time_is_not_missed_the_second(release: Release, more: Any) -> None:
    """No variables go with the mount here, so nothing but the mount itself tells that the claim is there."""
    state = (runtime(policy={"torch": {}}), *STATE)
    once = fill(trainjob(annotations={**ASKED, **more}, trainer=None), *state, release=release)
    assert once.patch
    again = fill(dict(once.object), *state, release=release)
    assert (again.patch, again.findings) == ((), ())


@pytest.mark.parametrize("asked", [ASKED, {**ASKED, "checkpoint-guard.io/layout": "tiered"}])
def test_a_path_that_a_native_sidecar_has_for_something_else(asked: Any) -> None:
    """It would count as training once the directory lies there, and its emptyDir would be denied."""
    path = "/mnt/ckpt/durable" if len(asked) > 1 else "/mnt/ckpt"

    def rt(name: str, **source: Any) -> Any:
        sidecar = container("sync", restartPolicy="Always", volumeMounts=[{"name": "v", "mountPath": path + "/"}])
        volumes = [{"name": name, **source}]
        return runtime(job(pod={"containers": [container()], "initContainers": [sidecar], "volumes": volumes}))

    done = fill(trainjob(annotations=asked), rt("v", emptyDir={}), *STATE)
    assert done.patch == ()
    assert len(done.findings) == 1
    # A sidecar that has the claim itself there, say to copy it elsewhere, is what the mount is for.
    assert fill(trainjob(annotations=asked), rt("v", persistentVolumeClaim={"claimName": "mine"}), *STATE).patch


def test_beneath_a_mount_that_can_hold_it() -> None:
    pod = {
        "containers": [container(volumeMounts=[{"name": "v", "mountPath": "/mnt"}])],
        "volumes": [{"name": "v", "emptyDir": {}}],
    }
    assert fill(trainjob(annotations=ASKED), runtime(job(pod=pod)), *STATE).patch


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/", {}),
        ("/usr", {}),
        ("/dev/shm/ckpt", {}),
        ("/app", {"workingDir": "/app"}),
        ("/app", {"workingDir": "/app/src"}),
        ("/app", {"command": ["/app/train"]}),
        ("/app", {"command": ["python", "/app/train.py"]}),
        ("/a:b", {}),
    ],
)
def test_a_directory_that_a_volume_would_empty(path: str, fields: Any) -> None:
    rt = runtime(job(pod={"containers": [container(env=[{"name": "CKPT_DIR", "value": path}], **fields)]}))
    assert fill(trainjob(annotations=ASKED), rt, *STATE).patch == ()


@pytest.mark.parametrize("path", ["ckpt", "/a/../b", "/a//b", "/ckpt/$(RUN)"])
def test_an_annotated_path_that_is_none(path: str) -> None:
    run = trainjob(annotations={**ASKED, "checkpoint-guard.io/path": path})
    assert fill(run, runtime(), *STATE).patch == ()


def test_the_volumes_name_is_free() -> None:
    pod = {"containers": [container()], "volumes": [{"name": "checkpoint-guard", "emptyDir": {}}]}
    done = fill(trainjob(annotations=ASKED), runtime(job(pod=pod)), *STATE)
    assert pods(done.object)["node"]["volumes"][0]["name"] == "checkpoint-guard-2"


@pytest.mark.parametrize("release", list(Release))
def test_both_jobs_of_mpi(release: Release) -> None:
    done = fill(trainjob(annotations=ASKED, trainer=DECLARED), mpi_runtime(), *STATE, release=release)
    mount = {"name": "checkpoint-guard", "mountPath": "/mnt/ckpt/sft", "subPath": "mnt/ckpt/sft"}
    assert set(pods(done.object, release)) == {"launcher", "node"}
    for pod in pods(done.object, release).values():
        assert pod["volumes"] == [VOLUME]
        assert pod["containers"] == [{"name": "node", "volumeMounts": [mount]}]


@pytest.mark.parametrize("release", SHAPE_RELEASES)
def test_mpi_jobs_whose_containers_have_different_names(release: Release) -> None:
    rt = mpi_runtime(node={"containers": [container("worker")]})
    done = fill(trainjob(annotations=ASKED, trainer=DECLARED), rt, *STATE, release=release)
    assert pods(done.object, release)["launcher"]["containers"][0]["name"] == "node"
    assert pods(done.object, release)["node"]["containers"][0]["name"] == "worker"


def test_a_worker_that_has_something_else_at_the_directory() -> None:
    rt = mpi_runtime(node=mounting("mine", "/mnt/ckpt"))
    assert fill(trainjob(annotations=ASKED, trainer=DECLARED), rt, *STATE).patch == ()


def test_no_container_that_surely_trains() -> None:
    rt = runtime(job(label=True, pod={"containers": [container("a"), container("b")]}))
    assert fill(trainjob(annotations=ASKED), rt, *STATE).patch == ()


def test_no_runtime() -> None:
    assert fill(trainjob(annotations=ASKED), *STATE).patch == ()


ENTRY = {"containers": [{"name": "node", "volumeMounts": []}], "nodeSelector": {"a": "b"}}
OVERRIDES_2_1 = {"targetJobs": [{"name": "node"}], "spec": ENTRY}


class TestTrainer20:
    """One entry for each job."""

    def fill(self, rt: Any, *entries: Any) -> Any:
        run = trainjob(annotations=ASKED, trainer=DECLARED, podSpecOverrides=list(entries))
        return fill(run, rt, *STATE, release=Release.V2_0)

    def test_merged_into_the_entry_of_the_job(self) -> None:
        done = self.fill(runtime(), {"targetJobs": [{"name": "node"}], **ENTRY, "volumes": [{"name": "x"}]})
        (entry,) = done.object["spec"]["podSpecOverrides"]
        assert entry["volumes"] == [{"name": "x"}, VOLUME]
        assert entry["containers"][0]["volumeMounts"][0]["mountPath"] == "/mnt/ckpt/sft"
        assert entry["nodeSelector"] == {"a": "b"}

    def test_beside_an_entry_for_another_job(self) -> None:
        rt = runtime(job("dataset-initializer", label=False), job())
        done = self.fill(rt, {"targetJobs": [{"name": "dataset-initializer"}]})
        assert len(done.object["spec"]["podSpecOverrides"]) == 2

    def test_nothing_where_the_entry_reaches_other_jobs(self) -> None:
        rt = runtime(job("dataset-initializer", label=False), job())
        assert self.fill(rt, {"targetJobs": [{"name": "node"}, {"name": "dataset-initializer"}]}).patch == ()

    def test_an_entry_for_one_of_the_mpi_jobs(self) -> None:
        done = self.fill(mpi_runtime(), {"targetJobs": [{"name": "launcher"}]})
        first, second = done.object["spec"]["podSpecOverrides"]
        assert first["volumes"] == second["volumes"] == [VOLUME]
        assert second["targetJobs"] == [{"name": "node"}]

    def test_nothing_where_one_entry_serves_containers_of_different_names(self) -> None:
        rt = mpi_runtime(node={"containers": [container("worker")]})
        assert self.fill(rt, {"targetJobs": [{"name": "launcher"}, {"name": "node"}]}).patch == ()


class TestTrainer21:
    """Several entries may name one job."""

    def fill(self, rt: Any, *entries: Any) -> Any:
        run = trainjob(annotations=ASKED, trainer=DECLARED, podTemplateOverrides=list(entries))
        return fill(run, rt, *STATE, release=Release.V2_1)

    def test_merged_where_one_names_exactly_these_jobs(self) -> None:
        done = self.fill(runtime(), OVERRIDES_2_1)
        (entry,) = done.object["spec"]["podTemplateOverrides"]
        assert entry["spec"]["volumes"] == [VOLUME]
        assert entry["spec"]["nodeSelector"] == {"a": "b"}

    def test_an_entry_of_our_own_at_the_end(self) -> None:
        wider = {"targetJobs": [{"name": "node"}, {"name": "dataset-initializer"}]}
        done = self.fill(runtime(job("dataset-initializer", label=False), job()), wider)
        first, second = done.object["spec"]["podTemplateOverrides"]
        assert first == wider
        assert second["targetJobs"] == [{"name": "node"}]

    @pytest.mark.parametrize("spec", [{}, {"spec": None}])
    def test_an_entry_without_a_spec(self, spec: Any) -> None:
        done = self.fill(runtime(), {"targetJobs": [{"name": "node"}], **spec})
        assert done.object["spec"]["podTemplateOverrides"][0]["spec"]["volumes"] == [VOLUME]


class TestTrainer23:
    """An entry of our own manager."""

    def fill(self, *entries: Any) -> Any:
        run = trainjob(annotations=ASKED, trainer=DECLARED, runtimePatches=list(entries))
        return fill(run, runtime(), *STATE)

    def test_at_the_end_of_the_others(self) -> None:
        done = self.fill({"manager": "example.com/a"})
        assert [entry["manager"] for entry in done.object["spec"]["runtimePatches"]] == [
            "example.com/a",
            "checkpoint-guard.io/webhook",
        ]
        assert set(done.object["spec"]["runtimePatches"][1]) == {"manager", "trainingRuntimeSpec"}

    def test_into_an_entry_that_somebody_copied(self) -> None:
        done = self.fill({"manager": "checkpoint-guard.io/webhook"})
        (entry,) = done.object["spec"]["runtimePatches"]
        assert pods(done.object)["node"]["volumes"] == [VOLUME]
        assert entry["manager"] == "checkpoint-guard.io/webhook"

    def test_no_room(self) -> None:
        assert self.fill(*({"manager": f"example.com/{number}"} for number in range(16))).patch == ()


def test_a_field_of_another_release_is_no_room() -> None:
    """What is not served is pruned later, so the shape comes from the release."""
    run = trainjob(annotations=ASKED, trainer=DECLARED, podTemplateOverrides=[OVERRIDES_2_1])
    done = fill(run, runtime(), *STATE, release=Release.V2_3)
    assert done.object["spec"]["podTemplateOverrides"] == [OVERRIDES_2_1]
    assert pods(done.object)["node"]["volumes"] == [VOLUME]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("ckpt", "it is not absolute"),
        ("/ckpt/$(RUN)", "a mount path is not expanded"),
        ("/", "something of the pods lies there already"),
    ],
)
def test_a_path_of_ones_own_that_cannot_be_mounted_is_told(path: str, why: str) -> None:
    asked = {**ASKED, "checkpoint-guard.io/path": path}
    done = fill(trainjob(annotations=asked), runtime(), *STATE)

    assert done.patch == ()
    (found,) = done.findings
    assert (found.rule, found.severity) == ("undeclared-checkpoint", Severity.WARN)
    assert found.problem == f'no claim was mounted at "{path}": {why}'
    assert found.at.field == 'metadata.annotations["checkpoint-guard.io/path"]'
