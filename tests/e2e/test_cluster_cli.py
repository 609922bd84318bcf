"""``review --live`` and ``pods --live`` on a real API server: what is needed is read, with the user's own rights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.bare import (
    BareControlPlane,
    OwnGuard,
    claim,
    on_claim,
    runtime,
    team_plane,
    trainjob,
)
from tests.e2e.controlplane.cluster import Object
from tests.e2e.controlplane.controlplane import GUARD
from tests.e2e.controlplane.processes import wait_until

ADA = "ada"


@pytest.fixture(scope="module")
def plane() -> Iterator[BareControlPlane]:
    with team_plane(
        runtime("one-place", "team", on_claim("ckpt"), "/ckpt/here"), trainjob("first", "team", "one-place")
    ) as plane:
        yield plane


class Shell:
    """A user's command line with a kubeconfig."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.kubeconfig = kubeconfig
        self.folder = folder

    def run(self, command: str, *objects: Object) -> tuple[int, Object, str]:
        """``ckptguard <command> --live`` on the objects: exit code, JSON document, and what a person reads."""
        code, out, _ = self._run(command, "json", objects)
        same, text, err = self._run(command, "text", objects)
        assert same == code
        return code, json.loads(out), text + err

    def _run(self, command: str, output: str, objects: tuple[Object, ...]) -> tuple[int, str, str]:
        path = self.folder / "job.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        done = subprocess.run(
            [sys.executable, "-m", "webhook", command, str(path), "--live", "--output", output],
            env=os.environ | {"KUBECONFIG": str(self.kubeconfig), "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def admin(plane: BareControlPlane, tmp_path: Path) -> Shell:
    return Shell(plane.kubeconfig, tmp_path)


@pytest.fixture
def limited(plane: BareControlPlane, tmp_path: Path) -> Shell:
    """A user who may look at claims of her namespace and at nothing else."""
    rules = [{"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get"]}]
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": ADA, "namespace": "team"}, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": ADA, "namespace": "team"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": ADA},
        "subjects": [{"kind": "ServiceAccount", "name": ADA, "namespace": "team"}],
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ADA, "namespace": "team"}}
    plane.apply(account, role, binding)
    token = plane.kubectl("create", "token", ADA, "-n", "team").stdout.strip()
    config = yaml.safe_load(plane.kubeconfig_of(GUARD).read_text())
    config["users"][0]["user"] = {"token": token}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return Shell(path, tmp_path)


def verdict(document: Object) -> str:
    return str(document["results"][0]["verdict"])


def rules(document: Object) -> set[tuple[str, str]]:
    return {(found["rule"], found["severity"]) for found in document["results"][0]["findings"]}


def test_everything_comes_from_the_cluster(admin: Shell) -> None:
    code, found, text = admin.run("review", trainjob("good", "team", "good"))
    assert (code, verdict(found), rules(found)) == (0, "allow", set())
    assert "--live" not in text
    code, found, _ = admin.run("review", trainjob("bad", "team", "bad"))
    assert (code, rules(found)) == (1, {("ephemeral-checkpoint", "deny")})
    code, found, _ = admin.run("review", trainjob("lost", "team", "lost"))
    assert (code, rules(found)) == (1, {("missing-claim", "deny")})
    code, found, _ = admin.run("review", trainjob("second", "team", "one-place"))
    assert (code, rules(found)) == (0, {("shared-directory", "warn")})


def test_what_stands_in_the_file_comes_first(admin: Shell) -> None:
    mended = runtime("bad", "team", on_claim("new"))
    code, found, _ = admin.run("review", trainjob("a", "team", "bad"), mended, claim("new", "team"))
    assert (code, verdict(found)) == (0, "allow")


def test_the_release_is_that_of_the_cluster(plane: BareControlPlane, admin: Shell) -> None:
    job = trainjob("good", "team", "good")
    job["spec"]["podSpecOverrides"] = [{"targetJobs": [{"name": "node"}], "volumes": []}]
    _, found, _ = admin.run("review", job)
    assert "unserved-override" in {rule for rule, _ in rules(found)}


def test_a_user_with_few_rights_learns_what_is_unknown(limited: Shell) -> None:
    mine = runtime("good", "team", on_claim("ckpt"))
    code, found, err = limited.run("review", trainjob("good", "team", "good"), mine)
    assert (code, verdict(found)) == (0, "allow")
    assert "the user of your kubeconfig may not get storageclasses" in err
    assert "the user of your kubeconfig may not list trainjobs in namespace team" in err
    assert "persistentvolumeclaims" not in err
    code, found, _ = limited.run("review", trainjob("lost", "team", "lost"), runtime("lost", "team", on_claim("lost")))
    assert (code, verdict(found)) == (1, "deny")
    code, found, err = limited.run("review", trainjob("good", "team", "good"))
    assert (code, rules(found)) == (0, {("unknown-runtime", "audit")})
    assert "may not get trainingruntimes in namespace team" in err


def test_only_what_is_needed_is_asked_for(plane: BareControlPlane, admin: Shell) -> None:
    """By the API server's log: single objects, and the TrainJobs of the one namespace."""
    text = plane.kubeconfig_of(GUARD)
    OwnGuard(plane).grant()
    before = len(plane.audit_events(user=GUARD))
    Shell(text, admin.folder).run("review", trainjob("good", "team", "good"))

    def asked() -> set[tuple[str, str, str | None]]:
        events = plane.audit_events(user=GUARD)[before:]
        about = [(event["verb"], event.get("objectRef")) for event in events]
        return {(verb, ref["resource"], ref.get("name")) for verb, ref in about if ref is not None}

    expected = {
        ("get", "namespaces", "team"),
        ("get", "trainingruntimes", "good"),
        ("get", "persistentvolumeclaims", "ckpt"),
        ("get", "storageclasses", "shared"),
        ("list", "trainjobs", None),
        # That run is another one's, and where it writes has to be known.
        ("get", "trainingruntimes", "one-place"),
    }
    wait_until("the log", lambda: expected <= asked(), 10)
    assert asked() == expected


def test_pods_without_the_right_to_the_runtime(limited: Shell) -> None:
    code, _, text = limited.run("pods", trainjob("good", "team", "good"))
    assert code == 2
    assert "may not get trainingruntimes in namespace team" in text


def test_pods_of_a_runtime_in_the_cluster(admin: Shell) -> None:
    code, found, _ = admin.run("pods", trainjob("good", "team", "good"))
    assert code == 0
    (job,) = found["results"][0]["jobs"]
    assert job["pod"]["volumes"] == [{"name": "ckpt", "persistentVolumeClaim": {"claimName": "ckpt"}}]
    code, _, err = admin.run("pods", trainjob("good", "team", "none"))
    assert code == 2
    assert 'there is no TrainingRuntime "none" in namespace team, neither among the files nor in the cluster' in err


def test_no_cluster_answers(plane: BareControlPlane, tmp_path: Path) -> None:
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    code, found, err = Shell(tmp_path / "kubeconfig", tmp_path).run("review", trainjob("good", "team", "good"))
    assert (code, found["results"]) == (2, [])
    assert "the cluster of your kubeconfig does not answer" in err
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "wrong"}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    code, _, err = Shell(tmp_path / "kubeconfig", tmp_path).run("review", trainjob("good", "team", "good"))
    assert code == 2
    assert "does not accept the credentials" in err
