"""A real control plane without containers: etcd, API server, controllers, JobSet and Trainer of one release.

Everything listens on 127.0.0.1 and keeps its files in one directory, so several releases run side by side.
"""

import base64
import contextlib
import copy
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from . import build
from .certificates import Authority, new_key_pair
from .cluster import Cluster, Object, as_list
from .processes import Process, free_ports, wait_until
from .releases import Release

TRAINER = "system:serviceaccount:kubeflow-system:kubeflow-trainer-controller-manager"
JOBSET = "system:serviceaccount:jobset-system:jobset-controller-manager"
KUEUE = "system:serviceaccount:kueue-system:kueue-controller-manager"
GUARD = "system:serviceaccount:checkpoint-guard:checkpoint-guard"
CONTROLLER_MANAGER = "system:kube-controller-manager"
ADMINISTRATOR = "admin"

# Without nodes the rest has nothing to do. Those for service accounts and namespaces let tests make namespaces.
CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "ttl-after-finished-controller",
    "validatingadmissionpolicy-status-controller",
)

# Writes to Trainer's objects with their bodies: there one reads which webhook changed what and which annotations it
# left. Everything else would only make the log long.
AUDIT_POLICY: Object = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch", "delete"],
            "resources": [{"group": "trainer.kubeflow.org"}],
        },
        {"level": "None"},
    ],
}

# The integrations that Kueue runs here. It has no handlers for the others, so their webhooks would refuse everything.
KUEUE_WEBHOOKS = ("job", "jobset", "trainjob", "clusterqueue", "resourceflavor", "workload", "cohort")
KUEUE_FRAMEWORKS = ("batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob")


class ControlPlane(Cluster):
    """A control plane of its own with the Trainer of one release, and Kueue where asked for.

    Use as a context manager, or call `start` and `stop`. Needs the programs of `needed_components` built.
    """

    def __init__(self, release: Release, *, kueue: bool = False, api_flags: tuple[str, ...] = ()) -> None:
        if kueue and not release.runs_with_kueue:
            raise ValueError(f"Kueue does not run with Trainer {release.trainer}")
        self._release = release
        self._with_kueue = kueue
        self._api_flags = api_flags
        self.directory = Path(tempfile.mkdtemp(prefix=f"checkpoint-guard-{release.trainer}-"))
        """Logs, certificates and data of this control plane; deleted by `stop`."""
        super().__init__(self.directory / "kubeconfig", _kubectl(), self.directory)
        self.audit_log = self.directory / "audit.jsonl"
        """The API server's audit log: writes to Trainer's objects, with their bodies and annotations."""
        self.authority = Authority()
        """Signs every serving certificate here; webhooks of tests may use it too."""
        self._audited: list[tuple[dict[str, str | None], bytes]] = []
        """The lines of the audit log that were read, with what they are about."""
        self._audit_read = 0
        (self._etcd_port, self._etcd_peer_port, self._api_port, self._manager_port, self._trainer_port,
         self._trainer_health, self._jobset_port, self._jobset_health, self._kueue_port, self._kueue_health,
         ) = free_ports(10)  # fmt: skip
        self._processes: dict[str, Process] = {}

    @property
    def release(self) -> Release:
        """The Trainer release on it."""
        return self._release

    @property
    def webhook_host(self) -> str:
        """Loopback: the API server runs on this machine."""
        return "127.0.0.1"

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://127.0.0.1:{self._api_port}"

    def __enter__(self) -> "ControlPlane":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts everything and returns when all webhooks answer. Where that fails, nothing is left running."""
        try:
            self._write_credentials()
            self._start_api()
            self._start_controllers()
            if self._with_kueue:
                self._start_kueue()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kills everything and deletes the directory (kept where `E2E_KEEP` is set)."""
        # Nothing is flushed: all of it is thrown away. Reversed, so that nobody is left without what it talks to.
        super().stop()
        for process in reversed(self._processes.values()):
            process.stop(signal.SIGKILL)
        if not os.environ.get("E2E_KEEP"):
            shutil.rmtree(self.directory, ignore_errors=True)

    def stop_process(self, name: str) -> None:
        """Kills one program: `etcd`, `kube-apiserver`, `kube-controller-manager`, `jobset`, `trainer`, `kueue`."""
        self._processes[name].stop(signal.SIGKILL)

    def restart_apiserver(self) -> None:
        """Kills the API server and starts it again on the same data and port."""
        self.stop_process("kube-apiserver")
        self._processes["kube-apiserver"].start()
        self._wait_api()

    def upgrade(self, release: Release) -> None:
        """Another Trainer, and its JobSet, on the same data, as an administrator installs them: CRDs, webhooks,
        controllers. The runtimes stay as they are."""
        for name in ("trainer", "jobset"):
            self.stop_process(name)
        self._release = release
        self._install_trainer()

    def log(self, name: str) -> Path:
        """The log of one program."""
        return self._processes[name].log

    def audit_events(self, **wanted: str) -> list[Object]:
        """The API server's audit events so far, oldest first.

        `wanted` may name `verb`, `resource`, `namespace`, `name`, `user`.
        """
        self._read_audit_log()
        return [json.loads(line) for about, line in self._audited if wanted.items() <= about.items()]

    def _read_audit_log(self) -> None:
        """What is new in it. With the bodies in it, it has many megabytes after a hundred tests."""
        if not self.audit_log.exists():
            return
        if self.audit_log.stat().st_size < self._audit_read:  # it was turned into an older one
            self._audit_read = 0
        with self.audit_log.open("rb") as log:
            log.seek(self._audit_read)
            for line in log:
                if not line.endswith(b"\n"):  # still being written
                    break
                self._audit_read += len(line)
                event: Object = json.loads(line)
                about = {key: event.get("objectRef", {}).get(key) for key in ("resource", "namespace", "name")}
                seen = about | {"verb": event["verb"], "user": event["user"].get("username")}
                self._audited.append((seen, line))

    def wait_for_audit_event(
        self, until: Callable[[Object], object] = lambda event: True, timeout: float = 10, **wanted: str
    ) -> Object:
        """The newest audit event that fits (see `audit_events`); the log trails the answer by some milliseconds."""

        def probe() -> Object | None:
            return next((event for event in reversed(self.audit_events(**wanted)) if until(event)), None)

        return wait_until(f"audit event {wanted}", probe, timeout)

    def kubeconfig_of(self, user: str) -> Path:
        """A kubeconfig for one of the service accounts that this module names."""
        return self.directory / f"kubeconfig-{user.rpartition(':')[2]}"

    def install_shipped_runtimes(self) -> None:
        """Installs the ClusterTrainingRuntimes that this Trainer release ships."""
        self.kubectl("apply", "--server-side", "-k", str(build.trainer(self._release).manifest("runtimes")))

    # ---- what is written before anything starts ----

    def _write_credentials(self) -> None:
        self._write("ca.crt", self.authority.ca_pem)
        self._write("ca.key", self.authority.key_pem)
        signing, checking = new_key_pair()
        self._write("sa.key", signing)
        self._write("sa.pub", checking)
        certificate, key = self.authority.issue(
            "localhost",
            "127.0.0.1",
            "kubernetes.default.svc",
            # Trainer 2.0 checks that its certificate is for its Service.
            "kubeflow-trainer-controller-manager.kubeflow-system.svc",
        )
        serving = self.directory / "k8s-webhook-server" / "serving-certs"
        serving.mkdir(parents=True)
        for name, text in (("tls.crt", certificate), ("tls.key", key), ("ca.crt", self.authority.ca_pem)):
            self._write(str(serving / name), text)
        self._serving = serving
        self._write("audit-policy.json", json.dumps(AUDIT_POLICY))
        tokens = []
        for user in (ADMINISTRATOR, CONTROLLER_MANAGER, TRAINER, JOBSET, KUEUE, GUARD):
            token = os.urandom(16).hex()
            tokens.append(f'{token},"{user}",{user.rpartition(":")[2]},"{",".join(_groups(user))}"')
            path = self.kubeconfig if user == ADMINISTRATOR else self.kubeconfig_of(user)
            self._write(str(path), self._kubeconfig_text(token))
        self._write("tokens.csv", "\n".join(tokens) + "\n")

    def _kubeconfig_text(self, token: str) -> str:
        server = {"server": self.server, "certificate-authority": str(self.directory / "ca.crt")}
        context = {"cluster": "e2e", "user": "e2e"}
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "e2e", "cluster": server}],
                "users": [{"name": "e2e", "user": {"token": token}}],
                "contexts": [{"name": "e2e", "context": context}],
                "current-context": "e2e",
            }
        )

    def _write(self, name: str, text: str) -> None:
        path = self.directory / name
        path.touch(mode=0o600)
        path.write_text(text)

    # ---- the programs ----

    def _run(
        self, name: str, program: Path, *arguments: str, user: str = ADMINISTRATOR, prefix: Sequence[str] = ()
    ) -> Process:
        environment = {
            # Where a program takes a fixed name below the temporary directory, that is this control plane's own.
            "TMPDIR": str(self.directory),
            "KUBECONFIG": str(self.kubeconfig if user == ADMINISTRATOR else self.kubeconfig_of(user)),
        }
        process = Process(name, [*prefix, str(program), *arguments], self.directory / f"{name}.log", environment)
        self._processes[name] = process
        process.start()
        return process

    def _start_api(self) -> None:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._etcd_peer_port}"
        self._run(
            "etcd",
            _api_program("etcd"),
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # the data outlives a killed program, and need not outlive the machine
        )
        self._run(
            "kube-apiserver",
            _api_program("kube-apiserver"),
            f"--etcd-servers={client}",
            f"--secure-port={self._api_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",  # a loopback address cannot be an endpoint
            f"--tls-cert-file={self._serving / 'tls.crt'}",
            f"--tls-private-key-file={self._serving / 'tls.key'}",
            f"--cert-dir={self.directory / 'apiserver'}",
            f"--service-account-key-file={self.directory / 'sa.pub'}",
            f"--service-account-signing-key-file={self.directory / 'sa.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged=true",
            f"--audit-policy-file={self.directory / 'audit-policy.json'}",
            f"--audit-log-path={self.audit_log}",
            *self._api_flags,
        )
        self._wait_api()

    def _wait_api(self) -> None:
        context = ssl.create_default_context(cadata=self.authority.ca_pem)
        self._processes["kube-apiserver"].wait_ready(f"{self.server}/readyz", context)

    def _start_controllers(self) -> None:
        kubernetes = build.kubernetes()
        manager = str(self.kubeconfig_of(CONTROLLER_MANAGER))
        self._run(
            "kube-controller-manager",
            kubernetes.program("kube-controller-manager"),
            f"--kubeconfig={manager}",
            f"--authentication-kubeconfig={manager}",
            f"--authorization-kubeconfig={manager}",
            f"--controllers={','.join(CONTROLLERS)}",
            "--use-service-account-credentials",
            f"--root-ca-file={self.directory / 'ca.crt'}",
            f"--service-account-private-key-file={self.directory / 'sa.key'}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._manager_port}",
            f"--cert-dir={self.directory / 'controller-manager'}",
        )
        secret: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "kubeflow-trainer-webhook-cert", "namespace": "kubeflow-system"},
            "stringData": {
                "ca.crt": self.authority.ca_pem,
                "ca.key": self.authority.key_pem,
                "tls.crt": (self._serving / "tls.crt").read_text(),
                "tls.key": (self._serving / "tls.key").read_text(),
            },
        }
        self._apply(
            *(_namespace(user.split(":")[2]) for user in (TRAINER, JOBSET)),
            *(_cluster_admin(user) for user in (TRAINER, JOBSET)),
            secret,
        )
        self._install_trainer()

    def _install_trainer(self) -> None:
        """CRDs, webhooks and controllers of the release and its JobSet."""
        jobset, trainer = build.jobset(self._release), build.trainer(self._release)
        self._apply(
            *self._rendered(jobset.manifest("crds") / "bases"),
            *self._rendered(trainer.manifest("crds")),
            # Before Trainer: that of 2.0 does not start until it finds its own.
            *self._webhooks(jobset.manifest("webhook"), self._jobset_port),
            *self._webhooks(trainer.manifest("webhook"), self._trainer_port),
        )
        self.wait_established()
        self._start_jobset(jobset.program("jobset"))
        self._start_trainer(trainer.program("trainer-controller-manager"))
        self._processes["jobset"].wait_ready(f"http://127.0.0.1:{self._jobset_health}/readyz")
        self._processes["trainer"].wait_ready(f"http://127.0.0.1:{self._trainer_health}/readyz")

    def _start_jobset(self, program: Path) -> None:
        config = self._config(
            "jobset.yaml",
            {
                "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
                "kind": "Configuration",
                "leaderElection": {"leaderElect": False},
                "internalCertManagement": {"enable": False},
                "webhook": {"port": self._jobset_port, "host": "127.0.0.1", "certDir": str(self._serving)},
                "metrics": {"bindAddress": "0"},
                "health": {"healthProbeBindAddress": f"127.0.0.1:{self._jobset_health}"},
                "clientConnection": {"qps": 200, "burst": 400},
            },
        )
        self._run(
            "jobset",
            program,
            f"--config={config}",
            "--metrics-bind-address=0",
            f"--health-probe-bind-address=127.0.0.1:{self._jobset_health}",
            "--leader-elect=false",
            user=JOBSET,
        )

    def _start_trainer(self, program: Path) -> None:
        if self._release.minor == "2.0":
            # It has no configuration file, and its certificate rotation cannot be switched off: that waits until a file
            # of this fixed name exists, and looks no further into it. The webhooks serve what is below TMPDIR.
            fixed = Path("/tmp/k8s-webhook-server/serving-certs/tls.crt")
            if not fixed.exists():
                fixed.parent.mkdir(parents=True, exist_ok=True)
                fixed.touch()
            self._run(
                "trainer",
                program,
                f"--webhook-server-port={self._trainer_port}",
                f"--health-probe-bind-address=127.0.0.1:{self._trainer_health}",
                "--metrics-bind-address=0",
                user=TRAINER,
            )
            return
        config = self._config(
            "trainer.yaml",
            {
                "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
                "kind": "Configuration",
                "health": {
                    "healthProbeBindAddress": f"127.0.0.1:{self._trainer_health}",
                    "readinessEndpointName": "readyz",
                    "livenessEndpointName": "healthz",
                },
                "metrics": {"bindAddress": "0", "secureServing": False},
                "webhook": {"port": self._trainer_port, "host": "127.0.0.1"},
                "leaderElection": {"leaderElect": False},
                "certManagement": {"enable": False},
                "clientConnection": {"qps": 200, "burst": 400},
            },
        )
        self._run("trainer", program, f"--config={config}", user=TRAINER)

    def _start_kueue(self) -> None:
        kueue = build.kueue()
        config = self._config(
            "kueue.yaml",
            {
                "apiVersion": "config.kueue.x-k8s.io/v1beta2",
                "kind": "Configuration",
                "namespace": "kueue-system",
                "health": {"healthProbeBindAddress": f"127.0.0.1:{self._kueue_health}"},
                "metrics": {"bindAddress": "0"},
                "webhook": {"port": self._kueue_port, "host": "127.0.0.1", "certDir": str(self._serving)},
                "leaderElection": {"leaderElect": False},
                "internalCertManagement": {"enable": False},
                "clientConnection": {"qps": 200, "burst": 400},
                "integrations": {"frameworks": list(KUEUE_FRAMEWORKS)},
            },
        )
        self._apply(
            _namespace("kueue-system"),
            _cluster_admin(KUEUE),
            *self._with_url(self._rendered(kueue.manifest("crds")), self._kueue_port),
        )
        self.wait_established()
        self._run(
            "kueue",
            kueue.program("kueue"),
            f"--config={config}",
            "--feature-gates=VisibilityOnDemand=false",
            user=KUEUE,
            prefix=_with_kueue_certificates(self._serving),
        )
        self._processes["kueue"].wait_ready(f"http://127.0.0.1:{self._kueue_health}/readyz")
        configurations = self._webhooks(kueue.manifest("webhook"), self._kueue_port)
        for configuration in configurations:
            # As Kueue's own installation names it: mutators run in the order of these names.
            configuration["metadata"]["name"] = f"kueue-{configuration['metadata']['name']}"
            configuration["webhooks"] = [
                hook for hook in configuration["webhooks"] if hook["name"][1:].split(".")[0] in KUEUE_WEBHOOKS
            ]
        self._apply(*configurations)

    def _config(self, name: str, content: Object) -> Path:
        self._write(name, yaml.safe_dump(content))
        return self.directory / name

    # ---- the modules' own manifests ----

    def _apply(self, *objects: Object) -> None:
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=as_list(objects))

    def _rendered(self, folder: Path) -> list[Object]:
        """The objects of a folder, through its kustomization where it has one."""
        if (folder / "kustomization.yaml").exists():
            texts = [self.kubectl("kustomize", str(folder)).stdout]
        else:
            texts = [path.read_text() for path in sorted(folder.glob("*.yaml"))]
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return [found for text in texts for found in yaml.load_all(text, loader) if found]

    def _webhooks(self, folder: Path, port: int) -> list[Object]:
        kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        return self._with_url([found for found in self._rendered(folder) if found["kind"] in kinds], port)

    def _with_url(self, objects: list[Object], port: int) -> list[Object]:
        """The objects with every reference to a webhook's Service replaced by an address here."""
        changed = copy.deepcopy(objects)
        for client in _client_configs(changed):
            path = client.pop("service")["path"]
            client["url"] = f"https://127.0.0.1:{port}{path}"
            client["caBundle"] = base64_text(self.authority.ca_pem)
        return changed


def needed_components(release: Release, *, kueue: bool = False) -> list[build.Component]:
    """What has to be built for a control plane of this release."""
    needed = [build.kubernetes(), build.jobset(release), build.trainer(release)]
    if not os.environ.get("KUBEBUILDER_ASSETS"):
        needed.append(build.etcd())
    if kueue:
        needed.append(build.kueue())
    return needed


def base64_text(text: str) -> str:
    """Text in base64, as Kubernetes writes bytes."""
    return base64.b64encode(text.encode()).decode()


def _client_configs(node: Any) -> Iterator[Object]:
    if isinstance(node, list):
        for item in node:
            yield from _client_configs(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == "clientConfig" and "service" in value:
                yield value
            else:
                yield from _client_configs(value)


def _api_program(name: str) -> Path:
    """etcd or kube-apiserver: that of `KUBEBUILDER_ASSETS` where it is set, else the built one."""
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        return Path(assets) / name
    return (build.etcd() if name == "etcd" else build.kubernetes()).program(name)


def _kubectl() -> Path:
    return build.kubernetes().program("kubectl")


def _groups(user: str) -> list[str]:
    if user == ADMINISTRATOR:
        return ["system:masters"]
    if user.startswith("system:serviceaccount:"):
        return ["system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}"]
    return []


def _namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _cluster_admin(user: str) -> Object:
    """Lets a controller do everything: its own roles are its project's concern, its name in requests is ours."""
    _, _, namespace, name = user.split(":")
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"e2e-{name}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
    }


def _with_kueue_certificates(serving: Path) -> list[str]:
    """What to put before Kueue's command: with its own certificate management off, it insists on files below /etc."""
    copies = f"mkdir -p /etc/kueue/metrics/certs && cp {serving}/* /etc/kueue/metrics/certs/"
    script = ["sh", "-c", f'{copies} && exec "$@"', "kueue"]
    # An empty /etc of its own, in a mount namespace of its own: it needs nothing else from there.
    for private in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        with contextlib.suppress(OSError):
            mount = [*private, "sh", "-c", "mount -t tmpfs tmpfs /etc"]
            if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
                return [*private, "sh", "-c", 'mount -t tmpfs tmpfs /etc && exec "$@"', "sh", *script]
    return script  # in a container that may not mount, /etc is the container's own
