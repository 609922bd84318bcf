"""The overlay `cert-manager`, with the test in its place: the layout of its Secret, and what its injector writes."""

import base64
import datetime
import json
from collections.abc import Iterator

import pytest

from certs.issue import Pair, issue_authority, issue_leaf, new_key, service_names
from tests.e2e_nodes import guard
from tests.e2e_nodes.guard import NAMESPACE, ckptguard, rendered
from tests.e2e_nodes.load import Load
from tests.e2e_nodes.machine import Nodes, log, wait_until


@pytest.fixture(scope="module", autouse=True)
def clean(nodes: Nodes) -> Iterator[None]:
    """Nothing of the guard before, and nothing after."""
    guard.uninstall(nodes)
    yield
    guard.uninstall(nodes)


def test_secrets_of_cert_manager_serve_and_are_renewed(nodes: Nodes) -> None:
    documents = [
        one
        for one in rendered(nodes.image, "overlays/cert-manager")
        if not one["apiVersion"].startswith("cert-manager.io/")
    ]
    hooks = [one for one in documents if one["kind"].endswith("WebhookConfiguration")]
    for one in hooks:
        assert one["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == f"{NAMESPACE}/checkpoint-guard"
    nodes.apply(documents)
    authority = issue_authority(new_key(), _now())
    _write(nodes, authority)
    _inject(nodes, authority)
    nodes.rolled_out()
    assert nodes.get("deployment", "checkpoint-guard-certs", NAMESPACE) is None
    done = ckptguard(nodes, "install-check", "--timeout", "60")
    assert done.returncode == 0, done.stdout

    served = _served(nodes)
    with Load(nodes.kubeconfig, "default") as load:
        _write(nodes, authority)
        took = wait_until(lambda: _served(nodes).isdisjoint(served), 150, "both pods serve the new pair", 3)
    log(f"a Secret renewed as cert-manager does it: served by both pods after {took:.0f} s")
    assert load.tally.failed == [], load.tally.failed[:5]


def _write(nodes: Nodes, authority: Pair) -> None:
    leaf = issue_leaf(
        service_names("checkpoint-guard", NAMESPACE), new_key(), authority, _now(), datetime.timedelta(days=90)
    )
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {
            "name": "checkpoint-guard-tls",
            "namespace": NAMESPACE,
            "annotations": {"cert-manager.io/certificate-name": "checkpoint-guard"},
        },
        "data": {
            "tls.crt": base64.b64encode(leaf.cert).decode(),
            "tls.key": base64.b64encode(leaf.key).decode(),
            "ca.crt": base64.b64encode(authority.cert).decode(),
        },
    }
    nodes.apply([secret])


def _inject(nodes: Nodes, authority: Pair) -> None:
    bundle = base64.b64encode(authority.cert).decode()
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        found = nodes.get(kind, "checkpoint-guard")
        assert found is not None
        patch = [
            {"op": "add", "path": f"/webhooks/{at}/clientConfig/caBundle", "value": bundle}
            for at in range(len(found["webhooks"]))
        ]
        nodes.run("patch", kind, "checkpoint-guard", "--type=json", "-p", json.dumps(patch))


def _served(nodes: Nodes) -> set[str]:
    """The certificates that the pods serve."""
    code = "import ssl; print(ssl.get_server_certificate(('127.0.0.1', 8443)))"
    return {nodes.python(pod["metadata"]["name"], code) for pod in nodes.pods("webhook")}


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
