"""The Kubeflow SDK submits a training function: what was left out is filled in, and a denial reaches the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.controlplane.guard import Guard
from tests.e2e.objects import Project, check_restarts, check_variables, check_volume, runtime
from tests.e2e.sdk import environment

SUBMIT = Path(environment.__file__).with_name("submit.py")


@pytest.fixture
def project(guard: Guard, namespace: str) -> Project:
    return Project(guard.cluster, namespace)


def test_submitted_function_gets_a_claim_and_a_directory(project: Project) -> None:
    project.set_up()

    run = environment.run(SUBMIT, "plain", project.namespace, kubeconfig=project.cluster.kubeconfig)

    assert run.returncode == 0, run.stderr
    name = run.stdout.strip()
    for pod in project.pods(name):
        check_volume(pod)
        check_variables(pod)
        assert "writing to" in str(pod["spec"]["containers"][0]["command"])
    check_restarts(project, name)


def test_declared_directory_gets_the_claim(project: Project) -> None:
    project.set_up()

    run = environment.run(
        SUBMIT, "plain", project.namespace, "CKPT_DIR=/results", kubeconfig=project.cluster.kubeconfig
    )

    assert run.returncode == 0, run.stderr
    for pod in project.pods(run.stdout.strip()):
        check_volume(pod, "/results", "results")


def test_denial_reaches_the_user(project: Project) -> None:
    project.cluster.apply(runtime(project.namespace))

    run = environment.run(
        SUBMIT, "plain", project.namespace, "CKPT_DIR=/results", kubeconfig=project.cluster.kubeconfig
    )

    assert run.returncode != 0
    assert "would not resume from where it stopped: 1 reason" in run.stderr
    assert "[ephemeral-checkpoint]" in run.stderr
    assert "fix:" in run.stderr
