"""Certificates on a real API server: made, published, rotated under load, and mended whatever is done to them.

The rotation runs with the rights of deploy/overlays/self-signed alone. A thread plays the kubelet, which brings the
Secret to the server as a directory that is swapped.
"""

from __future__ import annotations

import base64
import http.client
import json
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.certs.cluster import authority
from tests.e2e.controlplane.cluster import Object, as_list
from tests.e2e.controlplane.controlplane import GUARD, ControlPlane
from tests.e2e.controlplane.guard import CLONE, _permissions, unregister_webhook
from tests.e2e.controlplane.processes import Process, free_ports, wait_until
from tests.e2e.controlplane.registration import NAME, build_configurations
from tests.e2e.controlplane.releases import NEWEST
from tests.e2e.objects import runtime

NAMESPACE = "checkpoint-guard"
RIGHTS = CLONE / "deploy" / "overlays" / "self-signed" / "certs-rbac.yaml"
KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
SETTLE = "2s"


@pytest.fixture(scope="session", params=[NEWEST])
def release(request: pytest.FixtureRequest) -> str:
    """Certificates do not depend on the Trainer release."""
    return str(request.param)


class Site:
    """An installation: registration without a bundle, a server whose pair comes from the Secret, the rotation."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self.plane = plane
        self.directory = directory
        port = free_ports(1)[0]
        self.url = f"https://127.0.0.1:{port}"
        self.mounted = directory / "tls"
        self.mounted.mkdir()
        self.kubeconfig = directory / "kubeconfig-certs"
        self.server = Process(
            "checkpoint-guard",
            [sys.executable, "-m", "webhook", "serve", "--listen", f"127.0.0.1:{port}",
             "--tls-cert", str(self.mounted / "tls.crt"), "--tls-key", str(self.mounted / "tls.key")],
            directory / "guard.log",
            {"KUBECONFIG": str(plane.kubeconfig_of(GUARD)), "PYTHONPATH": str(CLONE), "CKPTGUARD_PRE_STOP_DELAY": "0"},
        )  # fmt: skip
        self._ended = threading.Event()
        self._kubelet = threading.Thread(target=self._bring, daemon=True)
        self._token = ""

    def install(self) -> None:
        """What the manifests hold: namespace, account, rights, registration."""
        plane = self.plane
        unregister_webhook(plane)
        for found in ("secret/checkpoint-guard-tls", "secret/checkpoint-guard-ca", "lease/checkpoint-guard-certs"):
            plane.kubectl("delete", found, "-n", NAMESPACE, "--ignore-not-found")
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        plane.apply(*yaml.safe_load_all(RIGHTS.read_text()), *reading_rights())
        plane.wait_for("serviceaccounts", "checkpoint-guard-certs", NAMESPACE)
        token = plane.kubectl("create", "token", "checkpoint-guard-certs", "-n", NAMESPACE).stdout.strip()
        config = yaml.safe_load(plane.kubeconfig.read_text())
        self._token = config["users"][0]["user"]["token"]
        config["users"][0]["user"]["token"] = token
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(yaml.safe_dump(config))
        # Before the registration: nobody could be asked about it.
        plane.apply(runtime("default"))
        plane.apply(*self._configurations())
        self._kubelet.start()

    def _configurations(self) -> list[Object]:
        made = build_configurations(self.url, "")
        for configuration in made:
            for hook in configuration["webhooks"]:
                del hook["clientConfig"]["caBundle"]  # not the template's
        return made

    def command(self, action: str, *flags: str, administrator: bool = False) -> list[str]:
        config = self.plane.kubeconfig if administrator else self.kubeconfig
        command = [sys.executable, "-m", "webhook", "certs", action, "--kubeconfig", str(config)]
        return [*command, "--namespace", NAMESPACE, "--name", "127.0.0.1", *flags]

    def certs(self, action: str, *flags: str) -> subprocess.CompletedProcess[str]:
        """``ckptguard certs ...`` to its end."""
        return subprocess.run(
            self.command(action, *flags), capture_output=True, text=True, check=False, timeout=120, cwd=CLONE
        )

    @contextmanager
    def running(self, *flags: str, name: str = "certs", administrator: bool = False) -> Iterator[Process]:
        """``ckptguard certs run`` in the background; it has to end well."""
        command = self.command("run", "--interval=1s", f"--settle={SETTLE}", *flags, administrator=administrator)
        process = Process(name, command, self.directory / f"{name}.log", {"PYTHONPATH": str(CLONE)})
        process.start()
        try:
            yield process
        finally:
            code = process.stop(signal.SIGTERM)
        assert code == 0, process.log_tail()

    def bundle(self, kind: str = KINDS[1]) -> bytes:
        found = self.plane.get(kind, NAME)
        assert found is not None
        return base64.b64decode(found["webhooks"][0]["clientConfig"].get("caBundle", ""))

    def overwrite(self, text: bytes, kind: str = KINDS[1]) -> None:
        """Write another bundle, as a careless apply does."""
        encoded = base64.b64encode(text).decode()
        found = self.plane.get(kind, NAME)
        assert found is not None
        names = [hook["name"] for hook in found["webhooks"]]
        patch = {"webhooks": [{"name": one, "clientConfig": {"caBundle": encoded}} for one in names]}
        self.plane.kubectl("patch", kind, NAME, "--type=strategic", "-p", json.dumps(patch))

    def secret(self, name: str = "checkpoint-guard-tls") -> dict[str, bytes]:
        found = self.plane.get("secrets", name, NAMESPACE)
        return {key: base64.b64decode(value) for key, value in found["data"].items()} if found else {}

    def ready(self) -> tuple[int, str]:
        """The server's /readyz."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(urlsplit(self.url).netloc, context=context, timeout=5)
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError as error:
            return 0, str(error)
        finally:
            connection.close()

    def served(self) -> bytes:
        """The certificate that a new connection gets, PEM."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return ssl.get_server_certificate((parts.hostname, parts.port)).encode()

    def submit(self, connection: http.client.HTTPSConnection, namespace: str) -> str:
        """A dry-run create through the API server of what everybody allows; empty, or what came instead."""
        obj = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"generateName": "load-"},
            "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "plain"}},
        }
        path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs?dryRun=All"
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(obj), headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        return "" if answer.status == 201 else text

    def connection(self) -> http.client.HTTPSConnection:
        """To the API server."""
        context = ssl.create_default_context(cadata=self.plane.authority.ca_pem)
        return http.client.HTTPSConnection(urlsplit(self.plane.server).netloc, context=context, timeout=30)

    def asked(self, namespace: str = "default") -> str:
        connection = self.connection()
        try:
            return self.submit(connection, namespace)
        finally:
            connection.close()

    @contextmanager
    def load(self, clients: int = 4) -> Iterator[Counter[str]]:
        """Clients that submit without a pause; counts answers, and failures by their text."""
        counted: Counter[str] = Counter()
        ended = threading.Event()

        def submit() -> None:
            connection = self.connection()
            while not ended.is_set():
                counted[self.submit(connection, "default") or "answered"] += 1
            connection.close()

        threads = [threading.Thread(target=submit) for _ in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield counted
        finally:
            ended.set()
            for thread in threads:
                thread.join()

    def stop(self) -> None:
        self._ended.set()
        if self._kubelet.is_alive():
            self._kubelet.join()
        self.server.stop()
        unregister_webhook(self.plane)

    def _bring(self) -> None:
        """What a kubelet does with a Secret volume: a new directory, then a link moved onto the old one."""
        before: dict[str, bytes] = {}
        number = 0
        while not self._ended.wait(1):
            try:
                data = self.secret()
            except AssertionError:  # the API server is away
                continue
            if not data or data == before:
                continue
            number += 1
            version = self.mounted / f"..{number}"
            version.mkdir()
            for key, value in data.items():
                (version / key).write_bytes(value)
                link = self.mounted / key
                if not link.is_symlink():
                    link.symlink_to(f"..data/{key}")
            swap = self.mounted / "..new"
            swap.symlink_to(version.name)
            swap.rename(self.mounted / "..data")
            before = data


def reading_rights() -> list[Object]:
    """The server's right to see whom callers trust."""
    api = "rbac.authorization.k8s.io"
    rule = {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": list(KINDS),
        "resourceNames": [NAME],
        "verbs": ["get"],
    }
    subject = {"kind": "ServiceAccount", "namespace": GUARD.split(":")[2], "name": GUARD.split(":")[3]}
    return [
        {"apiVersion": f"{api}/v1", "kind": "ClusterRole", "metadata": {"name": "e2e-callers"}, "rules": [rule]},
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "e2e-callers"},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "e2e-callers"},
            "subjects": [subject],
        },
    ]


@pytest.fixture
def site(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    """Everything installed, nothing running."""
    site = Site(control_plane, tmp_path)
    try:
        site.install()
        yield site
    finally:
        site.stop()


@pytest.fixture
def guarded(site: Site) -> Site:
    """With certificates, and the server ready."""
    site.plane.apply(*_permissions())
    ended = site.certs("once", f"--settle={SETTLE}")
    assert ended.returncode == 0, ended.stderr
    wait_until("the pair in the pod", lambda: (site.mounted / "tls.crt").exists())
    site.server.start()
    wait_until("a ready server", lambda: site.ready()[0] == 200, timeout=60)
    wait_until("an API server that asks it", lambda: site.asked() == "", timeout=15)
    return site


def soon(what: str, probe: Callable[[], object], timeout: float = 30) -> None:
    wait_until(what, probe, timeout, every=0.5)


def test_installed_by_one_command_with_few_rights(site: Site) -> None:
    before = site.certs("check")
    assert before.returncode == 1
    assert 'Secret "checkpoint-guard-ca": there is none yet' in before.stdout
    assert 'Secret "checkpoint-guard-tls": there is none yet' in before.stdout
    assert "failed calling webhook" in site.asked()
    ended = site.certs("once")
    assert ended.returncode == 0, ended.stderr
    found = site.plane.get("secrets", "checkpoint-guard-tls", NAMESPACE)
    assert found is not None
    assert (found["type"], sorted(found["data"])) == ("kubernetes.io/tls", ["ca.crt", "tls.crt", "tls.key"])
    assert site.bundle(KINDS[0]) == site.bundle(KINDS[1]) == site.secret()["ca.crt"]
    after = site.certs("check")
    assert (after.returncode, after.stdout.startswith("in order: pair until ")) == (0, True), after.stdout
    again = site.certs("once")
    assert len(again.stderr.splitlines()) == 1
    # Fields of others stay theirs.
    managers = {
        entry["manager"]
        for kind in KINDS
        for entry in json.loads(site.plane.kubectl("get", kind, NAME, "-o", "json", "--show-managed-fields").stdout)[
            "metadata"
        ]["managedFields"]
        if "f:rules" in json.dumps(entry["fieldsV1"])
    }
    assert managers == {"kubectl-client-side-apply"}


def test_a_missing_right_is_named(site: Site) -> None:
    site.plane.kubectl("delete", "clusterrolebinding", "checkpoint-guard-certs")
    ended = site.certs("once")
    assert ended.returncode == 2
    assert 'cannot get resource "mutatingwebhookconfigurations"' in ended.stderr
    assert site.secret() == {}


def test_rotation_under_load_with_two_rotators(guarded: Site) -> None:
    """Leaf and authority in turn, by a process and by hand at once, while four clients submit: none fails."""
    seen = [guarded.served()]
    with guarded.running(), guarded.load() as counted:
        for what in ("leaf", "ca", "leaf", "ca"):
            ended = guarded.certs("once", "--renew", what, f"--settle={SETTLE}")
            assert ended.returncode == 0, ended.stderr
            soon("the new pair", lambda: guarded.served() == guarded.secret()["tls.crt"])
            seen.append(guarded.served())
            assert guarded.ready()[0] == 200
    assert set(counted) == {"answered"}, counted
    assert counted["answered"] > 100
    assert len(set(seen)) == 5
    # The first authority and the two that followed: one that was asked for is made once, whoever is faster.
    assert guarded.bundle().count(b"BEGIN") == 3
    assert guarded.certs("check").returncode == 0


def test_lives_of_seconds(guarded: Site) -> None:
    """Everything falls due by itself, authorities expire and leave the bundle, and no client notices."""
    flags = ("--life=45s", "--ca-life=60s")
    with guarded.load(2) as counted, guarded.running(*flags) as certs:
        assert guarded.certs("once", "--renew=ca", f"--settle={SETTLE}", *flags).returncode == 0
        soon("the third authority", lambda: certs.log.read_text().count("made a new authority") >= 2, 150)
        soon("the pair of it", lambda: guarded.served() == guarded.secret()["tls.crt"])
    assert set(counted) == {"answered"}, counted
    assert "two thirds of its life" in certs.log.read_text()


@pytest.mark.parametrize("text", [b"", b"nonsense", authority().cert], ids=["empty", "nonsense", "foreign"])
def test_an_overwritten_bundle_is_mended(guarded: Site, text: bytes) -> None:
    right = guarded.bundle()
    guarded.overwrite(text)
    soon("an unready server", lambda: guarded.ready()[0] == 503)
    code, words = guarded.ready()
    assert (code, "does not trust what is served" in words) == (503, True)
    assert "failed calling webhook" in guarded.asked()
    with guarded.running() as certs:
        soon("the right bundle", lambda: guarded.bundle() == right, 10)
        soon("an API server that asks", lambda: guarded.asked() == "", 10)
        guarded.overwrite(text, KINDS[0])
        soon("the right bundle again", lambda: guarded.bundle(KINDS[0]) == right, 5)
    soon("a ready server", lambda: guarded.ready()[0] == 200)
    assert "wrote caBundle of ValidatingWebhookConfiguration" in certs.log.read_text()


@pytest.mark.parametrize(
    "lost", [("checkpoint-guard-tls",), ("checkpoint-guard-ca",), ("checkpoint-guard-tls", "checkpoint-guard-ca")],
    ids=["pair", "authority", "both"],
)  # fmt: skip
def test_deleted_secrets_come_back_and_nobody_notices(guarded: Site, lost: tuple[str, ...]) -> None:
    with guarded.running(), guarded.load(2) as counted:
        old = guarded.served()
        guarded.plane.kubectl("delete", "secret", *lost, "-n", NAMESPACE)
        soon("another pair", lambda: guarded.secret().get("tls.crt") not in (None, old))
        soon("it served", lambda: guarded.served() == guarded.secret()["tls.crt"])
        assert guarded.ready()[0] == 200
    assert set(counted) == {"answered"}, counted
    assert guarded.certs("check").returncode == 0


def test_a_broken_secret_is_replaced_and_never_served(guarded: Site) -> None:
    good = guarded.served()
    patch = {"data": {"tls.key": base64.b64encode(b"nonsense").decode()}}
    guarded.plane.kubectl(
        "patch", "secret", "checkpoint-guard-tls", "-n", NAMESPACE, "--type=merge", "-p", json.dumps(patch)
    )
    soon("its refusal", lambda: "is refused, the one in use stays" in guarded.server.log.read_text())
    assert guarded.served() == good
    assert guarded.asked() == ""
    assert guarded.ready()[0] == 200
    assert "the key cannot be read" in guarded.certs("check").stdout
    with guarded.running():
        soon("another pair served", lambda: guarded.served() == guarded.secret()["tls.crt"] != good)
    assert guarded.asked() == ""


def test_an_api_server_that_is_away(guarded: Site) -> None:
    plane = guarded.plane
    with guarded.running() as certs:
        soon("a first turn", lambda: plane.get("leases", "checkpoint-guard-certs", NAMESPACE))
        plane.stop_process("kube-apiserver")
        soon("its being told", lambda: "cannot go on, what stands stays in use" in certs.log.read_text())
        time.sleep(11)  # the server has looked too
        assert guarded.ready()[0] == 200
        plane.restart_apiserver()
        soon("healing", lambda: "in order again" in certs.log.read_text())
        soon("an API server that asks", lambda: guarded.asked() == "")
    assert guarded.certs("check").returncode == 0


def test_several_replicas_share_the_lease(guarded: Site) -> None:
    plane = guarded.plane
    with guarded.running(name="one") as one:
        soon("the Lease", lambda: plane.get("leases", "checkpoint-guard-certs", NAMESPACE))
        with guarded.running(name="two") as two:
            guarded.overwrite(b"")
            soon("a mended bundle", lambda: guarded.bundle() != b"")
            assert "wrote" not in two.log.read_text()
            one.stop()  # killed: its Lease has to run out
            guarded.overwrite(b"")
            soon("the other's turn", lambda: guarded.bundle() != b"", 60)
            # It is told once the whole step is done.
            soon("its word", lambda: "wrote caBundle" in two.log.read_text())
        one.start()
        soon("a Lease that was let go", lambda: holder(plane).rpartition("_")[2] != "")


@pytest.mark.full  # the loop itself is tried with a clock of its own (`tests/certs`)
def test_a_bundle_is_mended_within_ten_seconds_of_the_holders_death(guarded: Site) -> None:
    """As a node that loses its power: the Lease was renewed a moment ago, and nobody lets it go."""
    plane, took = guarded.plane, []
    for _ in range(3):
        with guarded.running("--interval=5s", name="one") as one:
            soon("a Lease of the first", lambda: holder(plane) != "")
            with guarded.running("--interval=5s", name="two"):
                time.sleep(6)  # so that the second has seen the Lease change
                one.stop()
                guarded.overwrite(b"")
                began = time.monotonic()
                wait_until("a mended bundle", lambda: guarded.bundle() != b"", 60, every=0.1)
                took.append(time.monotonic() - began)
            one.start()
            soon("a Lease of the first again", lambda: holder(plane) != "")
    print(f"mended after {', '.join(f'{one:.1f}' for one in took)} s")
    assert max(took) <= 10, took


def holder(plane: ControlPlane) -> str:
    found = plane.get("leases", "checkpoint-guard-certs", NAMESPACE)
    return str((found or {}).get("spec", {}).get("holderIdentity", ""))


def test_two_that_both_lead_do_no_harm(guarded: Site) -> None:
    """With a Lease each, and both told to renew over and over."""
    with (
        guarded.running("--lease=a", name="a", administrator=True),
        guarded.running("--lease=b", name="b", administrator=True),
        guarded.load(2) as counted,
    ):
        for _ in range(2):
            both = [
                subprocess.Popen(
                    guarded.command("once", "--renew=ca", f"--settle={SETTLE}", administrator=True),
                    stderr=subprocess.PIPE, cwd=CLONE,
                )
                for _ in range(2)
            ]  # fmt: skip
            for one in both:
                _, said = one.communicate(timeout=90)
                assert one.returncode == 0, said
    assert set(counted) == {"answered"}, counted
    assert guarded.certs("check").returncode == 0


def test_the_configurations_pass_without_a_bundle(site: Site) -> None:
    """The template does not own caBundle: applying it again leaves the one that stands."""
    assert site.certs("once").returncode == 0
    right = site.bundle()
    site.plane.kubectl("apply", "-f", "-", input=as_list(site._configurations()))
    assert site.bundle() == right


# --- the registration: Ignore until a pod can answer


def endpoint(ready: bool) -> Object:
    """What the API server would hold of the webhook's pods: nobody makes any here."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "checkpoint-guard-e2e",
            "namespace": NAMESPACE,
            "labels": {
                "kubernetes.io/service-name": "checkpoint-guard",
                "endpointslice.kubernetes.io/managed-by": "e2e",
            },
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.9"], "conditions": {"ready": ready}}],
        "ports": [{"name": "https", "port": 8443, "protocol": "TCP"}],
    }


def policies(site: Site) -> dict[str, str]:
    found = [site.plane.get(kind, NAME) for kind in KINDS]
    hooks = [hook for one in found if one is not None for hook in one["webhooks"]]
    return {hook["name"].partition(".")[0]: hook["failurePolicy"] for hook in hooks}


def as_installed(site: Site) -> dict[str, str]:
    """The registration as the manifests have it."""
    configurations = site._configurations()
    configurations[1]["webhooks"][0]["failurePolicy"] = "Ignore"
    site.plane.apply(*configurations)
    return policies(site)


def test_nothing_is_refused_before_a_pod_can_answer(site: Site) -> None:
    before = as_installed(site)
    site.plane.apply(endpoint(ready=False))
    assert before["validate"] == "Ignore"
    try:
        with site.running():
            wait_until("a bundle", site.bundle)
            time.sleep(3)
            assert policies(site) == before
            assert site.asked() == ""  # nobody answers, and nobody is stopped

            site.plane.apply(endpoint(ready=True))
            began = time.monotonic()
            wait_until("Fail", lambda: policies(site)["validate"] == "Fail", 10, 0.2)
            print(f"turned to Fail {time.monotonic() - began:.1f} s after a pod was ready")
            assert policies(site) == {**before, "validate": "Fail"}
            wait_until("a refusal", lambda: "failed calling webhook" in site.asked(), 10)

            for _ in range(3):  # an apply that writes it back, again and again
                assert as_installed(site)["validate"] in ("Ignore", "Fail")
                began = time.monotonic()
                wait_until("Fail", lambda: policies(site)["validate"] == "Fail", 10, 0.2)
                print(f"turned to Fail {time.monotonic() - began:.1f} s after an apply")

            site.plane.apply(endpoint(ready=False))
            time.sleep(5)
            assert policies(site)["validate"] == "Fail"  # a crash does not open the gate

            kinds = ",".join(KINDS)
            site.plane.kubectl("delete", kinds, NAME)
            site.plane.apply(endpoint(ready=True))
            time.sleep(4)
            assert policies(site) == {}  # the emergency switch holds
    finally:
        site.plane.kubectl("delete", "endpointslice", "checkpoint-guard-e2e", "-n", NAMESPACE, "--ignore-not-found")


def test_the_gate_opens_after_the_time_that_was_set(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKPTGUARD_IGNORE_AFTER", "10s")
    as_installed(site)
    site.plane.apply(endpoint(ready=True))
    try:
        with site.running():
            wait_until("Fail", lambda: policies(site)["validate"] == "Fail", 20, 0.2)
            site.plane.apply(endpoint(ready=False))
            began = time.monotonic()
            wait_until("Ignore", lambda: policies(site)["validate"] == "Ignore", 30, 0.2)
            assert time.monotonic() - began > 8
            wait_until("submits to pass", lambda: site.asked() == "", 10)
            site.plane.apply(endpoint(ready=True))
            wait_until("Fail again", lambda: policies(site)["validate"] == "Fail", 10, 0.2)
    finally:
        site.plane.kubectl("delete", "endpointslice", "checkpoint-guard-e2e", "-n", NAMESPACE, "--ignore-not-found")


def test_a_keeper_whose_lease_is_deleted_goes_on(site: Site) -> None:
    as_installed(site)
    site.plane.apply(endpoint(ready=True))
    try:
        with site.running():
            wait_until("Fail", lambda: policies(site)["validate"] == "Fail", 20, 0.2)
            for _ in range(3):
                site.plane.kubectl("delete", "lease", "checkpoint-guard-certs", "-n", NAMESPACE, "--ignore-not-found")
                as_installed(site)
                wait_until("Fail again", lambda: policies(site)["validate"] == "Fail", 10, 0.2)
    finally:
        site.plane.kubectl("delete", "endpointslice", "checkpoint-guard-e2e", "-n", NAMESPACE, "--ignore-not-found")


@pytest.mark.full  # the thing itself is a unit test; this is the API server's own Forbidden, and takes most of a minute
def test_a_keeper_that_may_not_have_its_lease_opens_and_shuts_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right to the Lease is taken away while it works, and given back: it says so, waits, and goes on."""
    monkeypatch.setenv("CKPTGUARD_IGNORE_AFTER", "10s")
    rights = [one for one in yaml.safe_load_all(RIGHTS.read_text()) if one["kind"] == "Role"]
    fewer = json.loads(json.dumps(rights))
    for one in fewer:
        one["rules"] = [rule for rule in one["rules"] if "coordination.k8s.io" not in rule["apiGroups"]]
    as_installed(site)
    site.plane.apply(endpoint(ready=True))
    try:
        with site.running() as keeper:
            wait_until("Fail", lambda: policies(site)["validate"] == "Fail", 20, 0.2)
            site.plane.apply(*fewer)
            soon("it says why", lambda: "403: leases.coordination.k8s.io" in keeper.log_tail(), 20)
            site.plane.apply(endpoint(ready=False))
            time.sleep(16)
            assert policies(site)["validate"] == "Fail"  # it does not open the gate for a time in which it did not look
            as_installed(site)
            time.sleep(4)
            assert policies(site)["validate"] == "Ignore"  # nor shut it
            assert keeper.running

            site.plane.apply(*rights)
            time.sleep(4)
            assert policies(site)["validate"] == "Ignore"  # nobody is ready
            site.plane.apply(endpoint(ready=True))
            wait_until("Fail again", lambda: policies(site)["validate"] == "Fail", 15, 0.2)
    finally:
        site.plane.apply(*rights)
        site.plane.kubectl("delete", "endpointslice", "checkpoint-guard-e2e", "-n", NAMESPACE, "--ignore-not-found")


def test_beside_cert_manager_a_keeper_with_fewer_rights_does_it(site: Site, tmp_path: Path) -> None:
    rights = CLONE / "deploy" / "overlays" / "cert-manager" / "keeper-rbac.yaml"
    site.plane.apply(*yaml.safe_load_all(rights.read_text()))
    token = site.plane.kubectl("create", "token", "checkpoint-guard-keeper", "-n", NAMESPACE).stdout.strip()
    config = yaml.safe_load(site.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = token
    kubeconfig = tmp_path / "kubeconfig-keeper"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(yaml.safe_dump(config))
    as_installed(site)
    site.plane.apply(endpoint(ready=True))
    command = [sys.executable, "-m", "webhook", "certs", "run", "--kubeconfig", str(kubeconfig), "--interval=1s"]
    command += ["--namespace", NAMESPACE, "--without-certificates", "--lease=checkpoint-guard-keeper"]
    keeper = Process("keeper", command, tmp_path / "keeper.log", {"PYTHONPATH": str(CLONE)})
    keeper.start()
    try:
        time.sleep(4)
        assert policies(site)["validate"] == "Ignore"  # the injector has not been there: nobody is trusted yet
        site.overwrite(authority().cert)
        wait_until("Fail", lambda: policies(site)["validate"] == "Fail", 10, 0.2)
        assert site.secret() == {}
    finally:
        code = keeper.stop(signal.SIGTERM)
        site.plane.kubectl("delete", "endpointslice", "checkpoint-guard-e2e", "-n", NAMESPACE, "--ignore-not-found")
    assert code == 0, keeper.log_tail()
