"""Checkpoint Guard itself beside a cluster: a server process, and its registration by URL."""

import json
import os
import signal
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .certificates import Authority
from .cluster import Cluster, Object
from .controlplane import GUARD, ControlPlane
from .processes import Process, WaitTimeoutError, free_ports, wait_until
from .registration import NAME, build_configurations

CLONE = Path(__file__).parents[3]

# What it reads to judge an object; it writes nothing.
_READS = {
    "": ["namespaces", "persistentvolumeclaims", "persistentvolumes", "nodes", "configmaps", "pods"],
    "storage.k8s.io": ["csidrivers", "storageclasses"],
    "apiextensions.k8s.io": ["customresourcedefinitions"],
    "trainer.kubeflow.org": ["*"],
    "jobset.x-k8s.io": ["jobsets"],
    "kueue.x-k8s.io": ["*"],
}


class Guard:
    """A server of ours for one cluster. `register` and `unregister` say whether the API server calls it."""

    def __init__(
        self, cluster: Cluster, *, arguments: tuple[str, ...] = (), environment: Mapping[str, str] | None = None
    ):
        self.cluster = cluster
        self._authority = Authority()
        self.ca_pem = self._authority.ca_pem
        """Signs the server's certificate."""
        port = free_ports(1)[0]
        self.url = f"https://{cluster.webhook_host}:{port}"
        """Where the API server finds it."""
        self._directory = cluster.scratch / f"guard-{port}"
        self._directory.mkdir(parents=True)
        certificate, key = self._authority.issue("127.0.0.1", "localhost", cluster.webhook_host)
        for name, text in (("tls.crt", certificate), ("tls.key", key)):
            (self._directory / name).write_text(text)
        loopback = cluster.webhook_host == "127.0.0.1"
        self._process = Process(
            "checkpoint-guard",
            [
                *(sys.executable, "-m", "webhook", "serve"),
                *("--listen", f"{'127.0.0.1' if loopback else '0.0.0.0'}:{port}"),
                *("--tls-cert", str(self._directory / "tls.crt"), "--tls-key", str(self._directory / "tls.key")),
                *arguments,
            ],
            self._directory / "guard.log",
            {
                "KUBECONFIG": str(cluster.kubeconfig_of(GUARD)),
                "PYTHONPATH": os.pathsep.join([str(CLONE), *filter(None, [os.environ.get("PYTHONPATH")])]),
                "CKPTGUARD_PRE_STOP_DELAY": "0",  # there are no endpoints here that would have to be updated first
                **(environment or {}),
            },
        )
        self._ready = f"https://127.0.0.1:{port}/readyz"

    @property
    def log(self) -> Path:
        """Its output: the audit log's lines among the rest."""
        return self._process.log

    def audit_lines(self, fits: Callable[[Object], bool], count: int = 1) -> list[Object]:
        """The audit lines that fit, once there are `count`: they trail the answers a little."""

        def probe() -> list[Object]:
            whole = [line for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]
            read = [json.loads(line) for line in whole if line.startswith("{")]
            found = [line for line in read if "webhook" in line and fits(line)]
            return found if len(found) >= count else []

        return wait_until(f"{count} audit lines", probe, 10, 0.05)

    @property
    def running(self) -> bool:
        """Whether the server process is there."""
        return self._process.running

    def start(self) -> None:
        """Starts the server and waits for /readyz."""
        self.cluster.apply(*_permissions())
        self._process.start()
        self._process.wait_ready(self._ready, ssl.create_default_context(cadata=self.ca_pem), timeout=30)

    def stop(self) -> int | None:
        """Ends the server as a kubelet would; its exit code."""
        return self._process.stop(signal.SIGTERM)

    def register(self) -> None:
        """Tells the API server to call it, and waits until it does."""
        register_webhook(self.cluster, self.url, self.ca_pem)

    def unregister(self) -> None:
        """Tells the API server not to call it any more."""
        unregister_webhook(self.cluster)

    @contextmanager
    def down(self) -> Iterator[None]:
        """In this block the server is stopped and still registered."""
        self.stop()
        try:
            yield
        finally:
            self.start()


def register_webhook(cluster: Cluster, url: str, ca_pem: str) -> None:
    """Registers a server at `url` under our name, and waits until the API server knows."""
    cluster.apply(*build_configurations(url, ca_pem), server_side=True)
    _wait_until_called(cluster, called=True)


def unregister_webhook(cluster: Cluster) -> None:
    """Removes our registration, and waits until the API server knows."""
    kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    cluster.kubectl("delete", kinds, NAME, "--ignore-not-found")
    _wait_until_called(cluster, called=False)


def is_registered(cluster: Cluster) -> bool:
    """Whether there is a registration under our name."""
    return cluster.get("mutatingwebhookconfigurations", NAME) is not None


def registrations(cluster: Cluster) -> list[Object]:
    """What is registered under our name, fit to be applied again."""
    found = []
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        if (one := cluster.get(kind, NAME)) is not None:
            kept = {key: value for key, value in one["metadata"].items() if key in ("name", "labels", "annotations")}
            found.append({key: one[key] for key in ("apiVersion", "kind", "webhooks")} | {"metadata": kept})
    return found


def _wait_until_called(cluster: Cluster, *, called: bool) -> None:
    # The API server reads its registrations from a cache that trails. Its audit log says whom it asked.
    if not isinstance(cluster, ControlPlane):
        time.sleep(3)
        return
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        probe = f"registration-probe-{time.monotonic_ns()}"
        trainjob: Object = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": probe, "namespace": "default"},
            "spec": {"runtimeRef": {"name": probe}},
        }
        cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(trainjob), check=False)
        event = cluster.wait_for_audit_event(verb="create", resource="trainjobs", name=probe)
        # A call that was answered is noted as a mutation, one that failed and was ignored as failed open.
        asked = any(
            ("mutation.webhook.admission.k8s.io/" in key and f'"configuration":"{NAME}"' in value)
            or ("failed-open.mutating.webhook.admission.k8s.io/" in key and value.endswith(f".{NAME}.io"))
            for key, value in event.get("annotations", {}).items()
        )
        if asked == called:
            time.sleep(0.2)  # the validating registration came by another way
            return
        time.sleep(0.2)
    raise WaitTimeoutError(f"the API server does not {'' if called else 'stop to '}call {NAME}")


def _permissions() -> list[Object]:
    _, _, namespace, name = GUARD.split(":")
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "checkpoint-guard-e2e"},
            "rules": [
                {"apiGroups": [group], "resources": resources, "verbs": ["get", "list", "watch"]}
                for group, resources in _READS.items()
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "checkpoint-guard-e2e"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "checkpoint-guard-e2e",
            },
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
        },
    ]
