"""Denials and warnings as the user of kubectl reads them, and that they wedge nothing that already runs."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.controlplane.cluster import TRAINJOBS, Cluster, Object
from tests.e2e.controlplane.guard import Guard, unregister_webhook
from tests.e2e.objects import (
    RUNTIMES,
    Project,
    changed,
    claim,
    mounting_runtime,
    override,
    runtime,
    storage_class,
    trainjob,
)
from webhook.model.names import CLAIM as CLAIM_ANNOTATION
from webhook.model.names import MODE, REQUIRE

pytestmark = pytest.mark.ends

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def project(guard: Guard, namespace: str) -> Project:
    """A namespace with the runtimes, and without a claim that could be filled in."""
    project = Project(guard.cluster, namespace)
    guard.cluster.apply(
        storage_class(), storage_class("e2e-second"), runtime(namespace), runtime(namespace, "single", nodes=1)
    )
    return project


def lost(project: Project, name: str = "run") -> Object:
    """A TrainJob that writes its checkpoints into the container's own filesystem."""
    return trainjob(project.namespace, name, CKPT_DIR="/tmp/checkpoints")


@contextmanager
def unregistered(guard: Guard) -> Iterator[None]:
    """In this block nobody judges."""
    unregister_webhook(guard.cluster)
    try:
        yield
    finally:
        guard.register()


def refused(project: Project, *command: str, objects: list[Object]) -> str:
    """What kubectl says to a user whose objects are refused."""
    run = project.send(*command, objects=objects, check=False)
    assert run.returncode != 0, run.stdout
    return run.stderr


def warnings(stderr: str) -> list[str]:
    """The lines that kubectl prints as warnings, without the word before them."""
    found = [line.removeprefix("Warning: ") for line in stderr.splitlines() if line.startswith("Warning: ")]
    assert all(len(line) <= 256 for line in found)
    return found


def check_golden(name: str, text: str, namespace: str) -> None:
    """The whole text is that of ``golden/<name>.txt``; with UPDATE_GOLDEN it becomes that."""
    path = GOLDEN / f"{name}.txt"
    text = text.replace(namespace, "NAMESPACE")
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_whole_text_of_a_denial(project: Project) -> None:
    text = refused(project, "create", objects=[lost(project)])

    check_golden(f"denied-trainjob-{project.minor}", text, project.namespace)


def test_whole_text_of_a_denied_runtime(project: Project) -> None:
    bad = runtime(
        project.namespace,
        "bad",
        volumes=[{"name": "ckpt", "emptyDir": {}}],
        container={
            "env": [{"name": "CKPT_DIR", "value": "/ckpt"}],
            "volumeMounts": [{"name": "ckpt", "mountPath": "/ckpt"}],
        },
    )

    check_golden("denied-runtime", refused(project, "create", objects=[bad]), project.namespace)
    assert project.cluster.get(RUNTIMES, "bad", project.namespace) is None


def test_whole_text_of_a_denial_with_several_findings(project: Project) -> None:
    pod = {
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "containers": [{"name": "nod", "volumeMounts": [{"name": "scratch", "mountPath": "/tmp/checkpoints"}]}],
    }
    job = changed(lost(project), **override(project.minor, pod))

    check_golden(f"denied-several-{project.minor}", refused(project, "create", objects=[job]), project.namespace)


@pytest.mark.parametrize(
    "command", [("create",), ("apply",), ("apply", "--server-side"), ("create", "--dry-run=server")]
)
def test_every_command_is_told_the_same(project: Project, command: tuple[str, ...]) -> None:
    text = refused(project, *command, objects=[lost(project)])

    assert "TrainJob/run would not resume from where it stopped" in text
    assert "[ephemeral-checkpoint]" in text
    assert project.cluster.get(TRAINJOBS, "run", project.namespace) is None


def test_every_shape_of_override_is_judged(project: Project) -> None:
    pod = {
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "containers": [{"name": "node", "volumeMounts": [{"name": "scratch", "mountPath": "/tmp/checkpoints"}]}],
    }
    job = changed(lost(project), **override(project.minor, pod))

    text = refused(project, "create", objects=[job])

    assert "[ephemeral-checkpoint]" in text
    assert next(iter(override(project.minor, pod))) in text


def test_file_with_good_and_bad_jobs(project: Project) -> None:
    project.cluster.apply(claim(project.namespace))
    good = trainjob(project.namespace, "good")
    bad = changed(
        lost(project, "bad"),
        **override(
            project.minor,
            {
                "volumes": [{"name": "scratch", "emptyDir": {}}],
                "containers": [
                    {"name": "node", "volumeMounts": [{"name": "scratch", "mountPath": "/tmp/checkpoints"}]}
                ],
            },
        ),
    )

    text = refused(project, "apply", objects=[bad, good])

    assert "TrainJob/bad" in text
    assert "TrainJob/good" not in text
    assert project.cluster.get(TRAINJOBS, "good", project.namespace) is not None


class TestStorage:
    """What is known of the cluster decides."""

    def _mounting(self, project: Project, name: str) -> Object:
        return mounting_runtime(project.namespace, "mounting", name)

    def test_claim_that_is_not_there(self, project: Project) -> None:
        project.cluster.apply(self._mounting(project, "absent"))
        job = trainjob(project.namespace, runtime_name="mounting", CKPT_DIR="/data/run")

        assert "[missing-claim]" in refused(project, "create", objects=[job])
        # In a dry-run it may stand beside the TrainJob, and will be there by then.
        dry = project.send("create", "--dry-run=server", objects=[job])
        assert any("[missing-claim]" in line for line in warnings(dry.stderr))
        # And it is looked up again once it is there.
        project.cluster.apply(claim(project.namespace, "absent"))
        project.send("create", objects=[job])

    def test_claim_for_one_node(self, project: Project) -> None:
        # Of a class whose volumes are attached: a file server mounts on many nodes whatever the mode, and is warned of.
        project.cluster.apply(
            storage_class("e2e-block", "ebs.csi.aws.com"),
            claim(project.namespace, "single", mode="ReadWriteOnce", class_name="e2e-block"),
            self._mounting(project, "single"),
        )
        job = trainjob(project.namespace, runtime_name="mounting", CKPT_DIR="/data/run")

        assert "[claim-not-shared]" in refused(project, "create", objects=[job])
        job["spec"]["trainer"]["numNodes"] = 1
        project.send("create", objects=[job])

    def test_class_of_one_node(self, project: Project) -> None:
        project.cluster.apply(
            storage_class("e2e-local", "rancher.io/local-path"),
            claim(project.namespace, "local", class_name="e2e-local"),
            self._mounting(project, "local"),
        )
        job = trainjob(project.namespace, runtime_name="mounting", CKPT_DIR="/data/run")

        assert "[node-local-checkpoint]" in refused(project, "create", objects=[job])

    def test_class_that_is_not_there(self, project: Project) -> None:
        project.cluster.apply(
            claim(project.namespace, "classless", class_name="e2e-absent"), self._mounting(project, "classless")
        )
        job = trainjob(project.namespace, runtime_name="mounting", CKPT_DIR="/data/run")

        assert "[unbindable-claim]" in refused(project, "create", objects=[job])

    def test_bound_volume_of_one_node(self, project: Project) -> None:
        name = f"{project.namespace}-local"
        hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-17"]}
        volume: Object = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "100Gi"},
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "e2e-static",
                "claimRef": {"namespace": project.namespace, "name": "bound"},
                "local": {"path": "/mnt/disks/secret-path"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}},
            },
        }
        project.cluster.apply(
            volume, claim(project.namespace, "bound", class_name="e2e-static"), self._mounting(project, "bound")
        )
        project.cluster.wait_for(
            "persistentvolumeclaims",
            "bound",
            project.namespace,
            until=lambda found: found["status"].get("phase") == "Bound",
        )
        try:
            text = refused(
                project,
                "create",
                objects=[trainjob(project.namespace, runtime_name="mounting", CKPT_DIR="/data/run")],
            )
        finally:
            project.cluster.kubectl("delete", "pv", name, "--wait=false")

        assert "[node-local-checkpoint]" in text
        # A tenant may not read these of the volume.
        assert "secret-path" not in text
        assert "node-17" not in text

    def test_claim_that_the_user_names(self, project: Project) -> None:
        project.cluster.apply(claim(project.namespace, "mine", mode="ReadWriteOnce"))
        job = trainjob(project.namespace)
        job["metadata"]["annotations"] = {CLAIM_ANNOTATION: "mine"}

        run = project.send("create", objects=[job])

        # It was asked for, so it is not left out in silence.
        assert any("[claim-not-shared]" in line for line in warnings(run.stderr))


class TestModes:
    """The namespace's label says what a denial is worth."""

    def _project(self, guard: Guard, **labels: str) -> Project:
        namespace = guard.cluster.new_namespace(labels)
        guard.cluster.apply(runtime(namespace))
        return Project(guard.cluster, namespace)

    @pytest.mark.parametrize("mode", ["warn", "audit", "off"])
    def test_nothing_is_refused(self, guard: Guard, mode: str) -> None:
        project = self._project(guard, **{MODE: mode})

        told = warnings(project.send("create", objects=[lost(project)]).stderr)

        assert any("[ephemeral-checkpoint]" in line for line in told) == (mode == "warn")
        project.cluster.delete_namespace(project.namespace)

    def test_label_that_changes(self, guard: Guard) -> None:
        project = self._project(guard, **{MODE: "warn"})
        project.send("create", objects=[lost(project, "before")])

        project.cluster.kubectl("label", "namespace", project.namespace, f"{MODE}=enforce", "--overwrite")

        # The label reaches the guard by its watch.
        for attempt in range(50):
            run = project.send("create", objects=[lost(project, f"after-{attempt}")], check=False)
            if run.returncode:
                break
        assert "[ephemeral-checkpoint]" in run.stderr
        project.cluster.delete_namespace(project.namespace)

    def test_namespace_that_requires_a_directory(self, guard: Guard) -> None:
        project = self._project(guard, **{REQUIRE: "true"})

        assert "[undeclared-checkpoint]" in refused(project, "create", objects=[trainjob(project.namespace)])
        project.cluster.delete_namespace(project.namespace)


class TestUpdates:
    """What was let in once is not held up by what it was let in with."""

    @pytest.fixture
    def old(self, guard: Guard, project: Project) -> Object:
        """A run that would be refused today, made while nobody judged."""
        job = lost(project)
        job["metadata"]["finalizers"] = ["example.com/held"]
        with unregistered(guard):
            project.send("apply", objects=[job])
        project.pods("run")
        return job

    def test_suspend_resume_annotate_delete_pass(self, project: Project, old: Object) -> None:
        project.send("apply", objects=[old])
        project.patch("run", spec={"suspend": True})
        project.wait_suspended("run")
        project.resumes("run")
        project.send("replace", objects=[old])
        project.patch("run", metadata={"annotations": {"example.com/note": "seen"}})
        project.cluster.kubectl("delete", TRAINJOBS, "run", "-n", project.namespace, "--wait=false")
        project.patch("run", metadata={"finalizers": None})
        assert project.cluster.get(TRAINJOBS, "run", project.namespace) is None

    def test_an_old_fault_is_a_warning(self, project: Project, old: Object) -> None:
        run = project.patch("run", spec={"suspend": True})

        assert any("[ephemeral-checkpoint]" in line for line in warnings(run.stderr))

    def test_change_that_would_wedge_a_suspended_run(self, project: Project) -> None:
        job = changed(trainjob(project.namespace), suspend=True)
        project.send("apply", objects=[job])
        project.wait_suspended("run")
        pod = {"volumes": [{"name": "extra", "emptyDir": {}}]}

        text = refused(project, "apply", objects=[changed(job, **override(project.minor, pod))])

        assert "[wedging-update]" in text
        # What JobSet lets through of a suspended run passes here, too.
        project.send("apply", objects=[changed(job, **override(project.minor, {"nodeSelector": {"pool": "a100"}}))])
        for resumed in project.resumes("run"):
            assert resumed["spec"]["nodeSelector"] == {"pool": "a100"}


class TestWarnings:
    """Warnings stand before kubectl's own line and hold nobody up."""

    def test_lines(self, project: Project) -> None:
        chatty = runtime(project.namespace, "chatty")
        job = chatty["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
        job["backoffLimit"] = 6
        job["template"]["spec"]["terminationGracePeriodSeconds"] = 5
        chatty["spec"]["template"]["spec"]["failurePolicy"] = {"maxRestarts": 100}

        told = warnings(project.send("create", objects=[chatty]).stderr)

        assert sorted(line.partition("[")[2].partition("]")[0] for line in told) == [
            "pods-retry-alone",
            "short-grace",
            "unbounded-restarts",
        ]

    def test_none_for_what_is_right(self, project: Project) -> None:
        project.cluster.apply(claim(project.namespace))

        for obj in (runtime(project.namespace, "right"), trainjob(project.namespace, runtime_name="right")):
            assert project.send("create", objects=[obj]).stderr == ""

    def test_field_that_this_release_does_not_serve(self, project: Project, cluster: Cluster) -> None:
        other = "2.3" if project.minor in ("2.0", "2.1") else "2.1"
        project.cluster.apply(claim(project.namespace))
        job = changed(trainjob(project.namespace), **override(other, {"nodeSelector": {"pool": "a100"}}))

        run = project.send("apply", "--validate=false", objects=[job])

        assert any("[unserved-override]" in line for line in warnings(run.stderr))

    def test_immutable_policy_of_a_runtime(self, project: Project) -> None:
        stricter = copy.deepcopy(runtime(project.namespace))
        stricter["spec"]["template"]["spec"]["failurePolicy"] = {"maxRestarts": 5}

        run = project.send("apply", objects=[stricter], check=False)

        # The CRD refuses it before anybody else is asked, so the way out comes as a warning.
        assert run.returncode != 0
        assert any("[immutable-default]" in line for line in warnings(run.stderr))
