"""`ckptguard scan` on a real API server: what review says of a dump, with the component's own rights; reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.bare import BareControlPlane, on_claim, runtime, team_plane, trainjob
from tests.e2e.controlplane.cluster import Object
from tests.e2e.controlplane.guard import CLONE
from tests.e2e.controlplane.processes import wait_until
from webhook.scan.reports import APIS, Served

OPEN, OLD = APIS
RIGHTS = CLONE / "deploy" / "components" / "reports" / "rbac.yaml"
ACCOUNT = "checkpoint-guard-reports"


@pytest.fixture(scope="module")
def plane() -> Iterator[BareControlPlane]:
    with team_plane() as plane:
        yield plane


@pytest.fixture(autouse=True)
def runs(plane: BareControlPlane) -> None:
    """Three runs, whatever a test before deleted."""
    volumes = {"good": on_claim("ckpt"), "bad": {"emptyDir": {}}, "lost": on_claim("lost")}
    for name, volume in volumes.items():
        plane.apply(runtime(name, "team", volume), trainjob(name, "team", name))


@pytest.fixture(scope="module")
def kubeconfig(plane: BareControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the account that the component runs with."""
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "checkpoint-guard"}})
    plane.apply(*yaml.safe_load_all(RIGHTS.read_text()))
    token = plane.kubectl("create", "token", ACCOUNT, "-n", "checkpoint-guard").stdout.strip()
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = tmp_path_factory.mktemp("reports") / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path


def scan(kubeconfig: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "webhook", "scan", *flags],
        env=os.environ | {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(CLONE)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def crd(served: Served) -> Object:
    """As much of a report's CRD as its fields need."""
    text, number = {"type": "string"}, {"type": "integer"}
    reference = {"type": "object", "properties": dict.fromkeys(("apiVersion", "kind", "namespace", "name"), text)}
    result = {
        "type": "object",
        "required": ["policy"],
        "properties": {
            **dict.fromkeys(("source", "policy", "rule", "category", "message"), text),
            "result": {"type": "string", "enum": ["pass", "fail", "warn", "error", "skip"]},
            "severity": {"type": "string", "enum": ["critical", "high", "low", "medium", "info"]},
            "scored": {"type": "boolean"},
            "resources": {"type": "array", "items": reference},
            "properties": {"type": "object", "additionalProperties": text},
        },
    }
    summary = {"type": "object", "properties": dict.fromkeys(("pass", "fail", "warn", "error", "skip"), number)}
    schema = {
        "type": "object",
        "properties": {"scope": reference, "summary": summary, "results": {"type": "array", "items": result}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{served.resource}.{served.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": served.group,
            "scope": "Namespaced",
            "names": {"plural": served.resource, "singular": served.kind.lower(), "kind": served.kind},
            "versions": [
                {"name": served.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }


def install(plane: BareControlPlane, served: Served) -> None:
    plane.apply(crd(served))
    plane.wait_established(f"{served.resource}.{served.group}")
    wait_until(
        f"{served.group} to be served",
        lambda: plane.kubectl("get", f"{served.resource}.{served.group}", "-A", check=False).returncode == 0,
    )


def report(plane: BareControlPlane, served: Served) -> Object | None:
    return plane.get(f"{served.resource}.{served.group}", "checkpoint-guard", "team")


def test_it_says_what_review_says_of_a_dump(plane: BareControlPlane, kubeconfig: Path, tmp_path: Path) -> None:
    done = scan(kubeconfig, "-A", "-o", "json")
    assert (done.returncode, done.stderr) == (1, "")
    found = {(one["kind"], one["name"]): one for one in json.loads(done.stdout)["results"]}
    verdicts = {name: one["verdict"] for (kind, name), one in found.items() if kind == "TrainJob"}
    assert verdicts == {"good": "allow", "bad": "deny", "lost": "deny"}
    kinds = "trainjobs,trainingruntimes,clustertrainingruntimes,pvc,pv,storageclass,namespace"
    dump = tmp_path / "dump.yaml"
    dump.write_text(plane.kubectl("get", kinds, "-A", "-o", "yaml").stdout)
    dumped = scan(kubeconfig, "--state", str(dump), "-o", "json", "--trainer", "2.3")
    for one in json.loads(dumped.stdout)["results"]:
        live = found[one["kind"], one["name"]]
        assert [(f["rule"], f["severity"]) for f in one["findings"]] == [
            (f["rule"], f["severity"]) for f in live["findings"]
        ]


def test_reports_are_written_kept_shrunk_and_removed(plane: BareControlPlane, kubeconfig: Path) -> None:
    none = scan(kubeconfig, "-A", "--report")
    assert none.returncode == 2
    assert "openreports.io/v1alpha1 is not served, nor wgpolicyk8s.io/v1alpha2" in none.stderr

    install(plane, OLD)
    first = scan(kubeconfig, "-A", "--report")
    assert (first.returncode, first.stdout) == (0, ""), first.stderr
    assert "1 created, 0 replaced, 0 removed, 0 unchanged" in first.stderr
    stored = report(plane, OLD)
    assert stored is not None
    names = {(one["resources"][0]["name"], one["rule"]) for one in stored["results"]}
    assert {("bad", "ephemeral-checkpoint"), ("lost", "missing-claim")} <= names
    assert "good" not in {name for name, _ in names}

    install(plane, OPEN)
    assert "1 created, 0 replaced, 1 removed" in scan(kubeconfig, "-A", "--report").stderr
    assert report(plane, OLD) is None
    stored = report(plane, OPEN)
    assert stored is not None
    assert "0 created, 0 replaced, 0 removed, 1 unchanged" in scan(kubeconfig, "-A", "--report").stderr
    again = report(plane, OPEN)
    assert again is not None
    assert again["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]

    plane.kubectl("delete", "trainjobs", "lost", "-n", "team")
    assert "1 replaced" in scan(kubeconfig, "-A", "--report").stderr
    shrunk = report(plane, OPEN)
    assert shrunk is not None
    assert len(shrunk["results"]) < len(stored["results"])

    plane.kubectl("delete", "trainjobs,trainingruntimes", "--all", "-n", "team")
    assert "1 removed" in scan(kubeconfig, "-A", "--report").stderr
    assert report(plane, OPEN) is None


def test_a_right_that_is_missing_is_said(plane: BareControlPlane, kubeconfig: Path) -> None:
    rights = list(yaml.safe_load_all(RIGHTS.read_text()))
    role = json.loads(json.dumps(next(one for one in rights if one["kind"] == "ClusterRole")))
    role["rules"][0]["resources"].remove("persistentvolumeclaims")
    plane.apply(role)
    try:
        said = "you may not list persistentvolumeclaims: what depends on them is unknown"
        wait_until("the right to be gone", lambda: said in scan(kubeconfig, "-A").stderr, 30)
        done = scan(kubeconfig, "-A", "-o", "json")
        assert done.returncode != 2  # the rest goes on
        findings = [found for one in json.loads(done.stdout)["results"] for found in one["findings"]]
        assert ("missing-claim", "deny") not in {(found["rule"], found["severity"]) for found in findings}
    finally:
        plane.apply(*rights)
