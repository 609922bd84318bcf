"""The guard is down: nobody new comes in, nobody loses what was added, and everybody else goes on.

And once it is back, what was lost while it was not even registered comes back with the next UPDATE that may bring it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.controlplane.cluster import JOBSETS, TRAINJOBS, Object
from tests.e2e.controlplane.guard import Guard, unregister_webhook
from tests.e2e.controlplane.processes import wait_until
from tests.e2e.objects import (
    RUNTIMES,
    Project,
    changed,
    check_restarts,
    check_variables,
    check_volume,
    override,
    own_entry,
    runtime,
    settled,
    trainjob,
    without_suspend,
)
from webhook.model.names import INJECTED


@pytest.fixture
def project(guard: Guard, namespace: str) -> Project:
    return Project(guard.cluster, namespace).set_up()


@contextmanager
def uninstalled(guard: Guard) -> Iterator[None]:
    """In this block there is no registration of ours, so that nothing is refused for want of an answer."""
    unregister_webhook(guard.cluster)
    try:
        yield
    finally:
        guard.register()


def check_pods(project: Project, pods: list[Object]) -> None:
    for pod in pods:
        check_volume(pod)
        check_variables(pod)
    check_restarts(project, "run")


def failed_call(project: Project, *command: str, objects: list[Object]) -> str:
    """The name of the webhook for want of which a command is refused; empty where it is not refused."""
    run = project.send(*command, objects=objects, check=False)
    if run.returncode == 0:
        return ""
    _, marker, rest = run.stderr.partition('failed calling webhook "')
    assert marker, run.stderr
    return rest.partition('.checkpoint-guard.io"')[0]


def test_create_is_refused(guard: Guard, project: Project) -> None:
    with guard.down():
        for obj in (trainjob(project.namespace), runtime(project.namespace, "new")):
            for command in (("create",), ("apply",), ("create", "--dry-run=server")):
                assert failed_call(project, *command, objects=[obj]) == "validate"


@pytest.mark.parametrize("suspended", [False, True], ids=["running", "suspended"])
@pytest.mark.parametrize("command", ["apply", "replace"])
def test_update_that_would_strip_a_run_is_refused(
    guard: Guard, project: Project, command: str, suspended: bool
) -> None:
    job = changed(trainjob(project.namespace), suspend=suspended)
    project.send("apply", objects=[job])
    before = settled(project.stored("run"))
    with guard.down():
        assert failed_call(project, command, objects=[job]).startswith("put-back")
        assert settled(project.stored("run")) == before

    project.send(command, objects=[job])
    assert settled(project.stored("run")) == before


def test_server_side_apply_strips_nothing(guard: Guard, project: Project) -> None:
    job = trainjob(project.namespace)
    project.send("apply", "--server-side", objects=[job])
    before = settled(project.stored("run"))
    with guard.down():
        # It takes away only what the same user wrote before. In 2.0 to 2.3 ``env`` is one of its lists that go whole.
        project.send("apply", "--server-side", objects=[job], check=False)

    assert settled(project.stored("run")) == before


def test_run_goes_on(guard: Guard, project: Project) -> None:
    job = trainjob(project.namespace)
    job["metadata"]["finalizers"] = ["example.com/held"]
    project.send("apply", objects=[job])
    before = without_suspend(project.stored("run"))
    project.pods("run")
    with guard.down():
        project.patch("run", spec={"suspend": True})
        project.wait_suspended("run")
        project.cluster.kubectl("annotate", TRAINJOBS, "run", "-n", project.namespace, "example.com/note=seen")
        check_pods(project, project.resumes("run"))
        assert without_suspend(project.stored("run")) == before
        project.cluster.kubectl("delete", TRAINJOBS, "run", "-n", project.namespace, "--wait=false")
        project.patch("run", metadata={"finalizers": None})
        wait_until("no TrainJob run", lambda: project.cluster.get(TRAINJOBS, "run", project.namespace) is None)


def test_runtime_goes_on(guard: Guard, project: Project) -> None:
    before = project.cluster.get(RUNTIMES, "plain", project.namespace)
    assert before is not None
    with guard.down():
        project.cluster.kubectl("label", RUNTIMES, "plain", "-n", project.namespace, "team=vision")
        # Applied again it would lose what was added, and no suspended run of it would resume (Trainer 2.0 to 2.2).
        assert failed_call(project, "apply", objects=[runtime(project.namespace)]) == "put-back-runtimes"
        after = project.cluster.get(RUNTIMES, "plain", project.namespace)
        assert after is not None
        assert settled(after) == settled(before)
        project.cluster.kubectl("delete", RUNTIMES, "plain", "-n", project.namespace, "--timeout=20s")


class TestRecovery:
    """The guard was gone, an apply went through, the guard is back."""

    def test_suspended_run(self, guard: Guard, project: Project) -> None:
        job = changed(trainjob(project.namespace), suspend=True)
        project.send("apply", objects=[job])
        before = project.stored("run")
        project.wait_suspended("run")
        with uninstalled(guard):
            # From 2.2 the variables are immutable, so the file has them by then; the volume can be taken away.
            stripped = job if project.minor in ("2.0", "2.1") else changed(job, trainer=before["spec"]["trainer"])
            project.send("replace", objects=[with_record(stripped, before)])
        assert not has_volume(project.stored("run"))

        project.patch("run", metadata={"annotations": {"example.com/note": "seen"}})

        assert comparable(project.stored("run")) == comparable(before)
        check_pods(project, project.resumes("run"))

    def test_run_that_is_resumed_at_once(self, guard: Guard, project: Project) -> None:
        job = changed(trainjob(project.namespace), suspend=True)
        project.send("apply", objects=[job])
        before = project.stored("run")
        project.wait_suspended("run")
        with uninstalled(guard):
            stripped = job if project.minor in ("2.0", "2.1") else changed(job, trainer=before["spec"]["trainer"])
            project.send("replace", objects=[with_record(stripped, before)])

        if project.minor in ("2.0", "2.1"):
            # There the overrides may not change in the UPDATE that resumes, so that says what to do.
            told = project.patch("run", spec={"suspend": False}).stderr
            assert "[wedging-update]" in told
            assert told.count("Warning: ") == 1
            project.patch("run", spec={"suspend": True})
        check_pods(project, project.resumes("run"))

    def test_running_run(self, guard: Guard, project: Project) -> None:
        if project.minor not in ("2.0", "2.1"):
            pytest.skip("from Trainer 2.2 nothing can be taken from a running run")
        job = trainjob(project.namespace, runtime_name="mounting")
        project.send("apply", objects=[job])
        before = project.stored("run")
        project.pods("run")
        with uninstalled(guard):
            project.send("apply", objects=[job])
            assert "CKPT_DIR" not in str(project.stored("run")["spec"]["trainer"]["env"])

        # Stripped, it could not be suspended: JobSet refuses to change the pods that Trainer now wants.
        project.patch("run", spec={"suspend": True})
        project.wait_suspended("run")
        assert without_suspend(project.stored("run")) == without_suspend(before)
        for pod in project.resumes("run"):
            check_variables(pod, "/data")

    def test_what_the_user_takes_away_stays_away(self, guard: Guard, project: Project) -> None:
        job = changed(
            trainjob(project.namespace), suspend=True, **override(project.minor, {"nodeSelector": {"pool": "a100"}})
        )
        project.send("apply", objects=[job])
        project.wait_suspended("run")

        project.send("apply", objects=[changed(trainjob(project.namespace), suspend=True)])

        assert "a100" not in str(project.stored("run")["spec"])
        for pod in project.resumes("run"):
            check_volume(pod)

    def test_runtime(self, guard: Guard, project: Project) -> None:
        with uninstalled(guard):
            stripped = runtime(project.namespace)
            project.send("replace", objects=[stripped])
        # Runs may have been built from it by now, so the pods are left as they are; a restart budget harms none.
        stripped["spec"]["mlPolicy"]["numNodes"] = 1
        project.send("apply", objects=[stripped])

        after = project.cluster.get(RUNTIMES, "plain", project.namespace)
        assert after is not None
        assert after["spec"]["template"]["spec"]["failurePolicy"]["maxRestarts"] == 3


def with_record(job: Object, before: Object) -> Object:
    """The TrainJob as a file, with the annotation that says what was added: a three-way merge leaves it alone."""
    job = changed(job)
    job["metadata"]["annotations"] = {INJECTED: before["metadata"]["annotations"][INJECTED]}
    return job


def has_volume(job: Object) -> bool:
    return "checkpoint-guard" in str(
        [job["spec"].get(field) for field in ("podSpecOverrides", "podTemplateOverrides")] + [own_entry(job)]
    )


def comparable(job: Object) -> Object:
    """The spec without the time at which Trainer saw a patch."""
    job = changed(job)
    for patch in job["spec"].get("runtimePatches", []):
        patch.pop("time", None)
    return dict(job["spec"])


def test_jobset_follows_after_recovery(guard: Guard, project: Project) -> None:
    """JobSet's own view: the guard's absence has not changed the pods that it makes."""
    project.send("apply", objects=[trainjob(project.namespace)])
    project.pods("run")
    before = project.cluster.wait_for(JOBSETS, "run", project.namespace)["spec"]["replicatedJobs"]
    with guard.down():
        project.send("apply", objects=[trainjob(project.namespace)], check=False)
    project.send("apply", objects=[changed(trainjob(project.namespace), suspend=True)])
    project.wait_suspended("run")

    assert project.cluster.wait_for(JOBSETS, "run", project.namespace)["spec"]["replicatedJobs"] == before
