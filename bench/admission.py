"""What a user waits longer for: the time that a webhook adds to a create, on a real API server.

One control plane (etcd, API server, Trainer's CRDs, no other webhook) from the cache of the end-to-end tests, which is
filled where it is empty. Namespaces: nobody is called for the first, the floor for the second, the guard for the third.
Creates go to them by turns, as dry-runs, on one connection. Where the guard answers a patch, the floor answers that
patch too (in a fourth namespace), since to apply it is the API server's work.
"""

from __future__ import annotations

import http.client
import json
import ssl
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import yaml

from bench.measure import Row, compare, milliseconds
from bench.objects import RUNTIME, trainjob
from bench.serving import HERE, go_environment
from tests.e2e.bare import BareControlPlane, OwnGuard, claim, namespace, shared_class
from tests.e2e.controlplane import build
from tests.e2e.controlplane.certificates import Authority
from tests.e2e.controlplane.processes import Process, free_ports
from tests.e2e.controlplane.registration import build_configurations
from tests.e2e.controlplane.releases import RELEASES

ALONE, FLOOR, FILLED, GUARDED = "alone", "floor", "filled", "guarded"
PATHS = {FLOOR: {"/validate": "/allow"}, FILLED: {"/validate": "/allow", "/mutate": "/fill"}, GUARDED: {}}
"""An API server takes no patch from a validating webhook."""
CREATES = 150
"""In each namespace, each round."""


def measure_admission(rounds: int, requests: int) -> list[Row]:
    """Added latency of a dry-run create: one that is right as it is, and one that gets a patch."""
    try:
        for component in (build.kubernetes(), build.etcd(), build.trainer(RELEASES["2.3.0"])):
            build.ensure(component)
    except build.GoMissingError as missing:
        return [Row(f"admission: {missing}", "", "", None, "")]
    with ExitStack() as stack:
        plane = BareControlPlane(RELEASES["2.3.0"])
        stack.callback(plane.stop)
        plane.start()
        for name in (ALONE, *PATHS):
            team = namespace(name)
            team["metadata"]["labels"] = {"bench.example.com/webhook": name}
            spec = RUNTIME["spec"] | {"mlPolicy": {"numNodes": 2, "torch": {}}}  # as Trainer 2.3 has it
            mine = RUNTIME | {"metadata": {"name": "resumable", "namespace": name}, "spec": spec}
            plane.apply(team, shared_class(), claim("images", name), claim("run-state", name), mine, _plain(name))
        guard = OwnGuard(plane)
        guard.grant()
        guard.start()
        stack.callback(guard.stop)
        floor = stack.enter_context(_floor(plane.scratch, _patch_of(guard)))
        for name, (its_url, its_ca) in {FLOOR: floor, FILLED: floor, GUARDED: (guard.url, guard.ca_pem)}.items():
            plane.apply(*_for_namespace(name, build_configurations(its_url, its_ca)), server_side=True)
        client = stack.enter_context(_client(plane))
        _until_called(client, guard)
        rows = []
        for what, job, floor_of in (
            ("a create", trainjob(), FLOOR),
            ("a create that gets a patch", _to_patch(), FILLED),
        ):
            times = [_round(client, job, (ALONE, floor_of, GUARDED)) for _ in range(max(rounds, 5) + 1)][1:]
            ours, its = ([one[name] - one[ALONE] for one in times] for name in (GUARDED, floor_of))
            plain = milliseconds(statistics.median(one[ALONE] for one in times))
            rows.append(compare(f"added to {what} ({plain})", ours, its, "<= 1.3", milliseconds, "Go floor"))
        return rows


class _Client:
    """One connection to the API server."""

    def __init__(self, plane: BareControlPlane) -> None:
        config = yaml.safe_load(plane.kubeconfig.read_text())
        context = ssl.create_default_context(cadata=plane.authority.ca_pem)
        host = plane.server.removeprefix("https://")
        self._connection = http.client.HTTPSConnection(host, context=context, timeout=30)
        self._headers = {
            "Authorization": f"Bearer {config['users'][0]['user']['token']}",
            "Content-Type": "application/json",
        }

    def create(self, where: str, job: dict[str, Any]) -> float:
        """Seconds of a dry-run create. Raises RuntimeError where it is refused."""
        body = json.dumps(job | {"metadata": job["metadata"] | {"namespace": where}})
        path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{where}/trainjobs?dryRun=All"
        started = perf_counter()
        self._connection.request("POST", path, body, self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        spent = perf_counter() - started
        if answer.status != 201:
            raise RuntimeError(f"HTTP {answer.status} in {where}: {text.decode()[:2000]}")
        return spent

    def close(self) -> None:
        self._connection.close()


@contextmanager
def _client(plane: BareControlPlane) -> Iterator[_Client]:
    client = _Client(plane)
    try:
        yield client
    finally:
        client.close()


def _round(client: _Client, job: dict[str, Any], namespaces: tuple[str, ...]) -> dict[str, float]:
    """The lower quartile of each namespace: what disturbs only adds. One create here, one there, so that it disturbs
    all alike."""
    times: dict[str, list[float]] = {name: [] for name in namespaces}
    for _ in range(CREATES):
        for name, spent in times.items():
            spent.append(client.create(name, job))
    return {name: statistics.quantiles(spent, n=4)[0] for name, spent in times.items()}


def _plain(where: str) -> dict[str, Any]:
    """A runtime that restarts well and has no place for checkpoints."""
    pod = {
        "terminationGracePeriodSeconds": 90,
        "containers": [{"name": "node", "image": "registry.example.com/torch:2.9"}],
    }
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}},
        },
    }
    template = {"spec": {"failurePolicy": {"maxRestarts": 3}, "replicatedJobs": [job]}}
    return {
        "apiVersion": RUNTIME["apiVersion"],
        "kind": RUNTIME["kind"],
        "metadata": {"name": "plain", "namespace": where},
        "spec": {"mlPolicy": {"numNodes": 2, "torch": {}}, "template": template},
    }


def _to_patch() -> dict[str, Any]:
    """A job that asks for a volume, a mount and a directory."""
    job = trainjob()
    metadata = {"name": "resnet", "annotations": {"checkpoint-guard.io/claim": "run-state"}}
    return job | {"metadata": metadata, "spec": {"runtimeRef": job["spec"]["runtimeRef"] | {"name": "plain"}}}


def _patch_of(guard: OwnGuard) -> list[dict[str, Any]]:
    """What the guard answers to that job."""
    patch = guard.patch(_to_patch() | {"metadata": _to_patch()["metadata"] | {"namespace": GUARDED}})
    if not patch:
        raise RuntimeError("the guard fills in nothing")
    return patch


def _for_namespace(name: str, configurations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for configuration in configurations:
        configuration["metadata"]["name"] = f"bench-{name}"
        for hook in configuration["webhooks"]:
            url, slash, path = hook["clientConfig"]["url"].rpartition("/")
            hook["clientConfig"]["url"] = url + PATHS[name].get(slash + path, slash + path)
            hook["namespaceSelector"] = {"matchLabels": {"bench.example.com/webhook": name}}
    return configurations


def _until_called(client: _Client, guard: OwnGuard) -> None:
    """Until the API server has heard of the registrations."""
    until = monotonic() + 30
    while guard.metric("ckptguard_webhook_requests_total", webhook="/validate", code="200") == 0:
        if monotonic() > until:
            raise RuntimeError("the API server does not call the guard")
        client.create(GUARDED, trainjob())
        sleep(0.2)
    sleep(1)


@contextmanager
def _floor(folder: Path, patch: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """The floor, serving: its address and the certificate to trust."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        program = Path(name) / "floor"
        command = ["go", "build", "-o", str(program), "."]
        subprocess.run(command, cwd=HERE / "floor", check=True, env=go_environment())  # noqa: S603 - fixed words
        authority = Authority()
        (port,) = free_ports(1)
        for file, text in zip(("tls.crt", "tls.key"), authority.issue("127.0.0.1", "localhost"), strict=True):
            (Path(name) / file).write_text(text)
        (Path(name) / "patch.json").write_text(json.dumps(patch))
        arguments = ["-tls-cert", f"{name}/tls.crt", "-tls-key", f"{name}/tls.key", "-fill", f"{name}/patch.json"]
        process = Process("floor", [str(program), "-listen", f"127.0.0.1:{port}", *arguments], Path(name) / "log")
        process.start()
        try:
            context = ssl.create_default_context(cadata=authority.ca_pem)
            process.wait_ready(f"https://127.0.0.1:{port}/readyz", context)
            yield f"https://127.0.0.1:{port}", authority.ca_pem
        finally:
            process.stop()
