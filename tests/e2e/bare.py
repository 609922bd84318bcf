"""An API server with CRDs and nothing else, ours to kill, and our server beside it with the rights of deploy/."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import yaml

from tests.e2e.controlplane import build
from tests.e2e.controlplane.cluster import Cluster, Object
from tests.e2e.controlplane.controlplane import AUDIT_POLICY, GUARD, ControlPlane
from tests.e2e.controlplane.guard import CLONE, Guard
from tests.e2e.controlplane.processes import wait_until
from tests.e2e.controlplane.releases import RELEASES

RBAC = CLONE / "deploy" / "base" / "rbac.yaml"
TRAINER_CRDS = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")


class BareControlPlane(ControlPlane):
    """etcd and the API server. What is created stays as it is created: no controller, no webhook.

    The audit log has what our server asks for, too.
    """

    def start(self, release: str | None = "2.3.0") -> None:
        """Starts it, with Trainer's CRDs of a release where one is given."""
        try:
            self._write_credentials()
            ours: Object = {"level": "Metadata", "users": [GUARD]}
            policy = AUDIT_POLICY | {"rules": [ours, *AUDIT_POLICY["rules"]]}
            self._write("audit-policy.json", json.dumps(policy))
            self._start_api()
            if release is not None:
                self.install_crds(release)
        except BaseException:
            self.stop()
            raise

    def install_crds(self, release: str) -> None:
        """Installs Trainer's CRDs of a release, or changes those that are there into these."""
        self._apply(*self._rendered(build.trainer(RELEASES[release]).manifest("crds")))
        self.wait_established()

    def remove_crds(self) -> None:
        """Deletes Trainer's CRDs."""
        self.kubectl("delete", "crd", *(f"{name}.trainer.kubeflow.org" for name in TRAINER_CRDS), "--wait=false")

    def start_process(self, name: str) -> None:
        """Starts a program that was stopped."""
        self._processes[name].start()

    def wait_api(self) -> None:
        """Returns when the API server answers."""
        self._wait_api()

    def compact_etcd(self) -> None:
        """Has etcd forget every version but the last."""
        base = f"http://127.0.0.1:{self._etcd_port}/v3/kv"
        key = base64.b64encode(b"/registry").decode()
        revision = _post(f"{base}/range", {"key": key})["header"]["revision"]
        _post(f"{base}/compaction", {"revision": revision, "physical": True})

    def signal_apiserver(self, number: int) -> None:
        """Sends the API server a signal, such as SIGSTOP."""
        child = self._processes["kube-apiserver"]._child
        assert child is not None
        child.send_signal(number)


def bare_plane() -> BareControlPlane:
    """A plane that is not started yet. Skips the test where it cannot be built."""
    try:
        build.ensure(build.kubernetes())
        for release in RELEASES.values():
            build.ensure(build.trainer(release))
        if not os.environ.get("KUBEBUILDER_ASSETS"):
            build.ensure(build.etcd())
    except build.GoMissingError as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    return BareControlPlane(RELEASES["2.3.0"])


@contextmanager
def team_plane(*more: Object) -> Iterator[BareControlPlane]:
    """A running one with the CRDs of Trainer 2.3 and a namespace ``team``: a runtime on a claim that every node reaches
    (``good``), one on an emptyDir (``bad``), one on a claim that is not there (``lost``), and whatever ``more``."""
    plane = bare_plane()
    plane.start()
    plane.apply(
        namespace("team"),
        shared_class(),
        claim("ckpt", "team"),
        runtime("good", "team", on_claim("ckpt")),
        runtime("bad", "team", {"emptyDir": {}}),
        runtime("lost", "team", on_claim("lost")),
        *more,
    )
    yield plane
    plane.stop()


def _post(url: str, value: Object) -> Object:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, json.dumps(value).encode()), timeout=30) as answer:
        found: Object = json.load(answer)
    return found


class Answer:
    """What our server said to a review."""

    def __init__(self, response: Object, seconds: float) -> None:
        self.allowed: bool = response["allowed"]
        self.warnings: list[str] = response.get("warnings") or []
        self.text: str = (response.get("status") or {}).get("message", "")
        self.annotations: dict[str, str] = response.get("auditAnnotations") or {}
        self.seconds = seconds
        self.uid: str = response["uid"]

    def __repr__(self) -> str:
        return f"Answer(allowed={self.allowed}, {self.warnings}, {self.text!r}, {self.seconds:.3f} s)"


class OwnGuard(Guard):
    """Our server with the rights of ``deploy/base/rbac.yaml`` and no others, asked without an API server between."""

    def __init__(self, cluster: Cluster, *, kubeconfig: Path | None = None, **environment: str) -> None:
        variables: Mapping[str, str] = {} if kubeconfig is None else {"KUBECONFIG": str(kubeconfig)}
        super().__init__(cluster, environment={**variables, **environment})
        self._context = ssl.create_default_context(cadata=self.ca_pem)

    def grant(self) -> None:
        """Gives its service account what deploy/ gives it."""
        rights = [found for found in yaml.safe_load_all(RBAC.read_text()) if found]
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "checkpoint-guard"}}
        self.cluster.apply(namespace, *rights)

    def start(self, ready: bool = True) -> None:
        self.launch()
        if ready:
            self._process.wait_ready(self._ready, self._context, timeout=30)

    def launch(self) -> None:
        """Starts the server and waits for nothing."""
        self._process.start()

    def signal(self, number: int) -> None:
        """Sends it a signal, such as SIGSTOP."""
        self._child.send_signal(number)

    def resident_kilobytes(self) -> int:
        """Its resident memory."""
        text = Path(f"/proc/{self._child.pid}/status").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS:"))

    @property
    def _child(self) -> subprocess.Popen[bytes]:
        child = self._process._child
        assert child is not None
        return child

    def get(self, path: str) -> tuple[int, str]:
        """Code and text of a GET; code 0 where nobody listens."""
        try:
            with self._opener().open(f"{self.url}{path}", timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str, **labels: str) -> float:
        """A sample of /metrics; 0 where there is none."""
        _, text = self.get("/metrics")
        wanted = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        head = f"{name}{{{wanted}}} " if labels else f"{name} "
        return next((float(line[len(head) :]) for line in text.splitlines() if line.startswith(head)), 0.0)

    def objects(self, kind: str) -> int:
        """How many objects of a kind it knows."""
        return round(self.metric("ckptguard_cache_objects", kind=kind))

    def wait_for_objects(self, kind: str, count: int, seconds: float = 15) -> None:
        """Returns when it knows so many."""
        wait_until(f"{count} objects of kind {kind}", lambda: self.objects(kind) == count, seconds, 0.05)

    def validate(self, obj: Object, old: Object | None = None) -> Answer:
        """Asks about an object as the API server would."""
        started = monotonic()
        response = self._ask("/validate", obj, old)
        return Answer(response, monotonic() - started)

    def delete(self, obj: Object) -> Answer:
        """Asks whether an object may be deleted, as the API server would."""
        started = monotonic()
        return Answer(self._ask("/validate", obj, None, "DELETE"), monotonic() - started)

    def patch(self, obj: Object) -> list[Object]:
        """What it would fill into an object that is created."""
        patch = self._ask("/mutate", obj, None).get("patch")
        return json.loads(base64.b64decode(patch)) if patch else []

    def _ask(self, path: str, obj: Object, old: Object | None, operation: str = "") -> Object:
        group, _, version = obj["apiVersion"].rpartition("/")
        review: dict[str, Any] = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": f"e2e-{monotonic()}",
                "kind": {"group": group, "version": version, "kind": obj["kind"]},
                "resource": {"group": "trainer.kubeflow.org", "version": "v1alpha1", "resource": "trainjobs"},
                "namespace": obj["metadata"].get("namespace", ""),
                "name": obj["metadata"]["name"],
                "operation": operation or ("CREATE" if old is None else "UPDATE"),
                "userInfo": {"username": "ada"},
                "object": None if operation == "DELETE" else obj,
                "oldObject": obj if operation == "DELETE" else old,
                "dryRun": False,
            },
        }
        request = urllib.request.Request(
            f"{self.url}{path}", json.dumps(review).encode(), {"Content-Type": "application/json"}
        )
        with self._opener().open(request, timeout=15) as answer:
            response: Object = json.load(answer)["response"]
        return response

    def audited(self, answer: Answer) -> Object:
        """The audit line of an answer; it trails the answer a little."""

        def probe() -> Object | None:
            # The last line may still be on its way.
            lines = self.log.read_text().splitlines(keepends=True)
            ours = (line for line in lines if f'"uid":"{answer.uid}"' in line and line.endswith("\n"))
            return next((json.loads(line) for line in ours), None)

        return wait_until("the audit line", probe, 10, 0.02)

    def _opener(self) -> urllib.request.OpenerDirector:
        handler = urllib.request.HTTPSHandler(context=self._context)
        return urllib.request.build_opener(urllib.request.ProxyHandler({}), handler)


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def claim(name: str, where: str, *modes: str, volume: str = "") -> Object:
    """A claim of class ``shared``, ReadWriteMany unless other modes are given."""
    spec: Object = {
        "accessModes": list(modes) or ["ReadWriteMany"],
        "storageClassName": "shared",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    if volume:
        spec["volumeName"] = volume
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": where},
        "spec": spec,
    }


def shared_class() -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "shared"},
        "provisioner": "nfs.csi.k8s.io",
    }


def runtime(name: str, where: str, volume: Object, directory: str = "/ckpt/$(RUN)") -> Object:
    """A runtime whose pods write to a volume, and which lacks nothing else."""
    run_name = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}}
    container = {
        "name": "node",
        "image": "python:3.12-slim",
        "env": [{"name": "RUN", "valueFrom": run_name}, {"name": "CKPT_DIR", "value": directory}],
        "volumeMounts": [{"name": "ckpt", "mountPath": "/ckpt"}],
    }
    pod = {
        "terminationGracePeriodSeconds": 90,
        "containers": [container],
        "volumes": [{"name": "ckpt", **volume}],
    }
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}},
        },
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "namespace": where, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {
            "mlPolicy": {"numNodes": 2},
            "template": {"spec": {"failurePolicy": {"maxRestarts": 3}, "replicatedJobs": [job]}},
        },
    }


def on_claim(name: str) -> Object:
    return {"persistentVolumeClaim": {"claimName": name}}


def trainjob(name: str, where: str, runtime_name: str) -> Object:
    """A suspended TrainJob of a runtime."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": where},
        "spec": {"suspend": True, "runtimeRef": {"kind": "TrainingRuntime", "name": runtime_name}},
    }
