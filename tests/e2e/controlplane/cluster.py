"""A cluster as a test sees it: kubectl, a few reads and writes, and waiting. Which cluster it is does not matter."""

import http.client
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from .processes import Process, free_ports, wait_until
from .releases import RELEASES, Release

Object = dict[str, Any]
T = TypeVar("T")

TRAINJOBS = "trainjobs.trainer.kubeflow.org"
JOBSETS = "jobsets.jobset.x-k8s.io"

_TRAINER_IS_LATE_FOR = 20.0
"""Seconds in which a cache of Trainer's has whatever was made before, on a machine that is busy with other tests."""

# Where the kinds are that tests read often. A kubectl for each read would take most of a test's time.
_PATHS = {
    "events": "api/v1",
    "namespaces": "api/v1",
    "persistentvolumeclaims": "api/v1",
    "pods": "api/v1",
    "serviceaccounts": "api/v1",
    "jobs": "apis/batch/v1",
    "mutatingwebhookconfigurations": "apis/admissionregistration.k8s.io/v1",
    "customresourcedefinitions": "apis/apiextensions.k8s.io/v1",
    TRAINJOBS: "apis/trainer.kubeflow.org/v1alpha1",
    "trainingruntimes.trainer.kubeflow.org": "apis/trainer.kubeflow.org/v1alpha1",
    "clustertrainingruntimes.trainer.kubeflow.org": "apis/trainer.kubeflow.org/v1alpha1",
    JOBSETS: "apis/jobset.x-k8s.io/v1alpha2",
}


class Cluster:
    """A running cluster with Trainer on it."""

    def __init__(self, kubeconfig: Path, kubectl: Path, scratch: Path) -> None:
        self.kubeconfig = kubeconfig
        """Of an administrator."""
        self.scratch = scratch
        """A directory for whatever a test run leaves about this cluster."""
        self._kubectl = kubectl
        self._proxy: Process | None = None
        self._proxy_port = 0

    @property
    def release(self) -> Release:
        """The Trainer release on it."""
        raise NotImplementedError

    @property
    def webhook_host(self) -> str:
        """The host under which the API server reaches a server on this machine."""
        return os.environ.get("E2E_WEBHOOK_HOST", "127.0.0.1")

    def kubeconfig_of(self, user: str) -> Path:
        """A kubeconfig for a service account user; the administrator's where the cluster has none for it."""
        return self.kubeconfig

    def stop(self) -> None:
        """Ends what was started for it."""
        if self._proxy is not None:
            self._proxy.stop()

    def kubectl(
        self,
        *arguments: str,
        input: str | None = None,  # noqa: A002 - the name that subprocess.run has for it
        check: bool = True,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Runs kubectl as the administrator. With `check`, a failure raises KubectlError with what it printed."""
        run = subprocess.run(
            [str(self._kubectl), *arguments],
            input=input,
            env=os.environ | self._environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        if check and run.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {run.stderr.strip() or run.stdout.strip()}")
        return run

    def wait_established(self, *crds: str) -> None:
        """Wait until these CRDs are served, or all. kubectl fails at once on one that has no conditions yet."""
        wanted = [f"crd/{name}" for name in crds] or ["crd", "--all"]
        for last in (False, False, False, True):
            wait = ["wait", "--for=condition=Established", *wanted, "--timeout=60s"]
            if self.kubectl(*wait, timeout=90, check=last).returncode == 0:
                return
            time.sleep(1)

    def _environment(self) -> dict[str, str]:
        """Kubectl's caches and preferences are those of this cluster, never the user's."""
        return {"KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(self.scratch / "kubectl"), "KUBERC": "off"}

    def _ask(self, method: str, path: str, body: Object | None = None, form: str = "json") -> Object | None:
        """What the API server answers to the administrator; None for 404. One `kubectl proxy` serves them all.

        What prepares a test and clears up behind it goes this way: a kubectl takes a hundred times as long.
        """
        if self._proxy is None or not self._proxy.running:
            self._proxy_port = free_ports(1)[0]
            command = [str(self._kubectl), "proxy", f"--port={self._proxy_port}"]
            self._proxy = Process("kubectl proxy", command, self.scratch / "proxy.log", self._environment())
            self._proxy.start()
            self._proxy.wait_ready(f"http://127.0.0.1:{self._proxy_port}/version")
        connection = http.client.HTTPConnection("127.0.0.1", self._proxy_port, timeout=60)
        try:
            headers = {"Content-Type": f"application/{form}"} if body is not None else {}
            connection.request(method, f"/{path}", json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status == 404:
            return None
        if not 200 <= answer.status < 300:
            raise KubectlError(f"{method} {path}: {answer.status} {text.decode(errors='replace').strip()}")
        found: Object = json.loads(text)
        return found

    def send(self, *command: str, objects: Iterable[Object], check: bool = True) -> subprocess.CompletedProcess[str]:
        """`kubectl <command> -f -` with the objects, again for as long as a cache of Trainer's lags behind them."""
        sent = list(objects)
        text = json.dumps(sent[0]) if len(sent) == 1 else as_list(sent)
        run = when_trainer_knows(lambda: self.kubectl(*command, "-f", "-", input=text, check=False))
        if check and run.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(command)}: {run.stderr.strip() or run.stdout.strip()}")
        return run

    def apply(self, *objects: Object, server_side: bool = False) -> None:
        """Applies objects, in this order."""
        flags = ("--server-side", "--force-conflicts") if server_side else ()
        self.send("apply", *flags, objects=objects)

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """An object, None where there is none of that name."""
        if kind in _PATHS:
            return self._ask("GET", f"{_folder(kind, namespace)}/{name}")
        text = self.kubectl("get", kind, name, *_in(namespace), "--ignore-not-found", "-o", "json").stdout
        return json.loads(text) if text.strip() else None

    def all_of(self, kind: str, namespace: str | None = None, selector: str | None = None) -> list[Object]:
        """The objects of a kind, in a namespace where one is given, with the labels of `selector`."""
        if kind in _PATHS:
            query = f"?{urllib.parse.urlencode({'labelSelector': selector})}" if selector else ""
            listed = self._ask("GET", _folder(kind, namespace) + query)
            items: list[Object] = listed["items"] if listed is not None else []
            return items
        chosen = ("-l", selector) if selector else ()
        found: dict[str, list[Object]] = json.loads(
            self.kubectl("get", kind, *_in(namespace), *chosen, "-o", "json").stdout
        )
        return found["items"]

    def wait_for(
        self,
        kind: str,
        name: str,
        namespace: str | None = None,
        until: Callable[..., object] = lambda found: True,
        timeout: float = 30,
    ) -> Object:
        """The object, as soon as it exists and `until` is true of it."""

        def probe() -> Object | None:
            found = self.get(kind, name, namespace)
            return found if found is not None and until(found) else None

        return wait_until(f"{kind} {name}", probe, timeout)

    def wait_for_pods(self, trainjob: str, namespace: str, count: int, timeout: float = 30) -> list[Object]:
        """The pods of a TrainJob's JobSet, as soon as there are `count` of them."""

        def probe() -> list[Object] | None:
            pods = self.all_of("pods", namespace, f"jobset.sigs.k8s.io/jobset-name={trainjob}")
            return pods if len(pods) == count else None

        return wait_until(f"{count} pods of TrainJob {trainjob}", probe, timeout)

    def set_pod_phase(self, name: str, namespace: str, phase: str) -> None:
        """Says about a pod what a kubelet would: `Running` (and Ready), `Succeeded` or `Failed`."""
        ready = "True" if phase == "Running" else "False"
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
        path = f"{_folder('pods', namespace)}/{name}/status"
        if self._ask("PATCH", path, {"status": status}, "merge-patch+json") is None:
            raise KubectlError(f"there is no pod {namespace}/{name}")

    def new_namespace(self, labels: Mapping[str, str] | None = None, prefix: str = "e2e") -> str:
        """Creates a namespace in which pods can be made; its name."""
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        metadata = {"name": name, "labels": dict(labels or {})}
        namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self._ask("POST", _folder("namespaces", None), namespace)
        # Until its service account exists, pods are refused, and the Job controller tries again only after seconds.
        self.wait_for("serviceaccounts", "default", name)
        return name

    def delete_namespace(self, name: str) -> None:
        """Asks for a namespace to be deleted, without waiting."""
        self._ask("DELETE", f"{_folder('namespaces', None)}/{name}")


def when_trainer_knows(
    attempt: Callable[[], subprocess.CompletedProcess[str]],
) -> subprocess.CompletedProcess[str]:
    """What a kubectl command came to, again while Trainer's webhook refuses a TrainJob for want of its runtime.

    It looks in a cache that may not have a runtime of a moment ago, so a user who applies both has to apply again.
    """
    deadline = time.monotonic() + _TRAINER_IS_LATE_FOR
    while True:
        run = attempt()
        if "must be created before the TrainJob is created" not in run.stderr or time.monotonic() > deadline:
            return run
        time.sleep(0.2)


class KubectlError(AssertionError):
    """kubectl ended with an error; the text is what it printed."""


class GivenCluster(Cluster):
    """The cluster of `E2E_KUBECONFIG`: any with Trainer on it, such as a kind cluster."""

    def __init__(self, kubeconfig: Path, kubectl: Path) -> None:
        super().__init__(kubeconfig, kubectl, Path(tempfile.mkdtemp(prefix="checkpoint-guard-e2e-")))

    def stop(self) -> None:
        """Deletes what this test run left on this machine; the cluster stays as it is."""
        super().stop()
        shutil.rmtree(self.scratch, ignore_errors=True)

    @cached_property
    def release(self) -> Release:
        """Read from the CRD: what it serves differs from release to release."""
        crd = self.get("customresourcedefinitions", TRAINJOBS)
        if crd is None:
            raise RuntimeError("the cluster of E2E_KUBECONFIG does not have Trainer")
        spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        if "podSpecOverrides" in spec:
            minor = "2.0"
        elif "podTemplateOverrides" in spec:
            minor = "2.1"
        else:
            # What 2.3 added to the patches and 2.2 does not have.
            minor = "2.3" if "terminationGracePeriodSeconds" in json.dumps(spec["runtimePatches"]) else "2.2"
        return next(release for release in RELEASES.values() if release.minor == minor)


def as_list(objects: Iterable[Object]) -> str:
    """Objects as one JSON document for `kubectl -f -`."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def _folder(kind: str, namespace: str | None) -> str:
    scope = f"namespaces/{namespace}/" if namespace else ""
    return f"{_PATHS[kind]}/{scope}{kind.partition('.')[0]}"


def _in(namespace: str | None) -> tuple[str, ...]:
    return ("-n", namespace) if namespace else ()
