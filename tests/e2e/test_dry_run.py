"""A dry-run says what the real request will do: the same verdict, the same words, the same object."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.e2e.controlplane.cluster import TRAINJOBS, Object
from tests.e2e.controlplane.guard import Guard
from tests.e2e.objects import RUNTIMES, Project, changed, override, runtime, trainjob

pytestmark = pytest.mark.ends

COMMANDS = [("create",), ("apply",), ("apply", "--server-side")]


@pytest.fixture
def project(guard: Guard, namespace: str) -> Project:
    return Project(guard.cluster, namespace).set_up()


def made(obj: Object) -> Any:
    """What admission made of an object, without what the API server and Trainer set anew at each request."""
    obj = copy.deepcopy(obj)
    for patch in obj["spec"].get("runtimePatches", []):
        patch.pop("time", None)
    return obj["spec"], obj["metadata"].get("annotations"), obj["metadata"].get("labels")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("kind", ["trainjob", "overridden", "runtime"])
def test_accepted_object_is_the_same(project: Project, command: tuple[str, ...], kind: str) -> None:
    if kind == "runtime":
        obj, resource = runtime(project.namespace, "run"), RUNTIMES
    else:
        obj, resource = trainjob(project.namespace), TRAINJOBS
        if kind == "overridden":
            obj = changed(obj, **override(project.minor, {"nodeSelector": {"pool": "a100"}}))

    dry = [project.send(*command, "--dry-run=server", "-o", "json", objects=[obj]) for _ in range(2)]
    assert project.cluster.get(resource, "run", project.namespace) is None
    real = project.send(*command, "-o", "json", objects=[obj])

    assert [made(json.loads(run.stdout)) for run in dry] == [made(json.loads(real.stdout))] * 2
    assert [run.stderr for run in dry] == [real.stderr] * 2


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_denied_object_is_denied_in_the_same_words(project: Project, command: tuple[str, ...]) -> None:
    pod = {
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "containers": [{"name": "node", "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}],
    }
    job = changed(trainjob(project.namespace, CKPT_DIR="/scratch"), **override(project.minor, pod))

    dry = project.send(*command, "--dry-run=server", objects=[job], check=False)
    real = project.send(*command, objects=[job], check=False)

    assert "[ephemeral-checkpoint]" in real.stderr
    assert dry.stderr == real.stderr
    assert dry.returncode == real.returncode != 0


@pytest.mark.parametrize("command", [("apply",), ("replace",), ("apply", "--server-side")], ids=" ".join)
def test_update_is_the_same_and_has_no_effect(project: Project, command: tuple[str, ...]) -> None:
    job = trainjob(project.namespace)
    server_side = command[1:]
    project.send(command[0] if server_side else "apply", *server_side, objects=[job])
    before = project.stored("run")
    suspended = changed(job, suspend=True)

    dry = project.send(*command, "--dry-run=server", "-o", "json", objects=[suspended])
    assert made(project.stored("run")) == made(before)
    real = project.send(*command, "-o", "json", objects=[suspended])

    assert made(json.loads(dry.stdout)) == made(json.loads(real.stdout))
    assert dry.stderr == real.stderr


def test_diff_of_what_is_there_is_empty(project: Project) -> None:
    job = trainjob(project.namespace)
    project.send("apply", objects=[job])

    assert project.send("diff", objects=[job]).stdout == ""
    diff = project.send("diff", objects=[changed(job, suspend=True)], check=False)
    assert [line for line in diff.stdout.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")] == [
        "-  generation: 1",
        "+  generation: 2",
        "-  suspend: false",
        "+  suspend: true",
    ]
