"""Reports of `ckptguard scan` on a real API server, where something goes wrong in the middle of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.e2e.bare import BareControlPlane, namespace, runtime, team_plane, trainjob
from tests.e2e.controlplane.guard import CLONE
from tests.e2e.controlplane.processes import wait_until
from tests.e2e.test_scan import OLD, OPEN, crd, install
from webhook.model.policy import Policy
from webhook.runs.api import Answer, KubernetesApi
from webhook.scan.cluster import ClusterScan
from webhook.scan.reports import NoReports, Reports, Written, served_api, write


@pytest.fixture(scope="module")
def plane() -> Iterator[BareControlPlane]:
    with team_plane(trainjob("bad", "team", "bad")) as plane:
        lost_in(plane, "next")
        yield plane


def lost_in(plane: BareControlPlane, name: str) -> None:
    """A namespace, and in it a run that would be reported."""
    plane.apply(namespace(name), runtime("bad", name, {"emptyDir": {}}), trainjob("bad", name, "bad"))


class Meddled(KubernetesApi):
    """A connection beside which something happens before the first write for a namespace."""

    def __init__(self, plane: BareControlPlane, where: str, happens: Callable[[], object]) -> None:
        super().__init__(plane.kubeconfig)
        self._where = f"/namespaces/{where}/"
        self._happens: Callable[[], object] | None = happens

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        if method in ("POST", "PUT") and self._where in path and self._happens is not None:
            happens, self._happens = self._happens, None
            happens()
        return super().request(method, path, params, body, content_type)


def bring(api: KubernetesApi) -> Written:
    scan, reports = ClusterScan(api, Policy()), Reports()
    for result in scan.results():
        reports.take(result)
    assert scan.faults == []
    return write(api, served_api(api), reports)


def forget(plane: BareControlPlane) -> None:
    """No report is left, nor any CRD of them."""
    for served in (OPEN, OLD):
        plane.kubectl("delete", "crd", f"{served.resource}.{served.group}", "--ignore-not-found", "--wait=false")
        wait_until(
            f"{served.group} to be gone",
            lambda served=served: plane.kubectl("get", "--raw", served.base, check=False).returncode != 0,
            120,
        )


def reported(plane: BareControlPlane) -> set[str]:
    found = plane.kubectl("get", f"{OPEN.resource}.{OPEN.group}", "-A", "-o", "name", check=False)
    spaces = plane.kubectl(
        "get", f"{OPEN.resource}.{OPEN.group}", "-A", "-o", "jsonpath={.items[*].metadata.namespace}", check=False
    )
    assert len(found.stdout.split()) == len(spaces.stdout.split())
    return set(spaces.stdout.split())


def test_another_version_is_named(plane: BareControlPlane) -> None:
    forget(plane)
    other = crd(OPEN)
    other["spec"]["versions"][0]["name"] = "v1beta9"
    plane.apply(other)

    def said() -> bool:
        with pytest.raises(NoReports) as refused:
            served_api(KubernetesApi(plane.kubeconfig))
        return "openreports.io/v1alpha1 is not served (v1beta9 is)" in str(refused.value)

    wait_until("the version to be served", said)
    forget(plane)


def test_crds_that_go_in_the_middle(plane: BareControlPlane) -> None:
    install(plane, OPEN)
    done = bring(Meddled(plane, "team", lambda: forget(plane)))
    assert done.created >= 1
    assert any("its report cannot be written" in notice for notice in done.notices), done.notices
    # The next one finds none, and says so; nothing is stuck.
    with pytest.raises(NoReports):
        served_api(KubernetesApi(plane.kubeconfig))


def test_a_namespace_that_goes_while_its_report_is_written(plane: BareControlPlane) -> None:
    install(plane, OPEN)
    lost_in(plane, "going")
    delete = ("delete", "namespace", "going", "--wait=false")  # nobody finishes it here: it stays Terminating
    done = bring(Meddled(plane, "going", lambda: plane.kubectl(*delete)))
    assert done.notices == []
    assert "going" not in reported(plane)
    assert reported(plane) == {"team", "next"}


def test_two_scans_at_once_write_each_report_once(plane: BareControlPlane) -> None:
    forget(plane)
    install(plane, OPEN)
    command = [sys.executable, "-m", "webhook", "scan", "-A", "--report", "--kubeconfig", str(plane.kubeconfig)]
    environment = os.environ | {"PYTHONPATH": str(CLONE)}
    for _ in range(2):
        scans = [
            subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(3)
        ]
        said = [one.communicate(timeout=120)[1] for one in scans]
        assert [one.returncode for one in scans] == [0, 0, 0], said
        assert reported(plane) == {"team", "next"}
    assert all("0 created, 0 replaced, 0 removed, 2 unchanged" in one for one in said), said
    # While one writes, another has written the same.
    kind = f"{OPEN.resource}.{OPEN.group}"
    plane.kubectl("annotate", kind, "checkpoint-guard", "-n", "team", "checkpoint-guard.io/report-hash-")
    done = bring(Meddled(plane, "team", lambda: bring(KubernetesApi(plane.kubeconfig))))
    assert (done.created, done.replaced, done.removed, done.notices) == (0, 0, 0, [])
