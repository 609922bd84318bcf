"""The same life with Helm: install with its check, upgrade into another mode, and an uninstall that leaves nothing."""

import json
import time
from collections.abc import Iterator

import pytest
import yaml

from tests.deploy.rendered import DEPLOY
from tests.deploy.rendered import helm as rendered_chart
from tests.e2e_nodes import guard
from tests.e2e_nodes.guard import NAMESPACE, ckptguard, helm, helm_values
from tests.e2e_nodes.load import Load
from tests.e2e_nodes.machine import Nodes, log

CHART = str(DEPLOY / "chart")


@pytest.fixture(scope="module", autouse=True)
def clean(nodes: Nodes) -> Iterator[None]:
    """Nothing of the guard before, and nothing after, whatever happens."""
    guard.uninstall(nodes)
    yield
    helm(nodes, "uninstall", "guard", "-n", NAMESPACE, "--no-hooks", check=False)
    guard.uninstall(nodes)


def test_the_api_server_takes_the_chart_without_a_warning(nodes: Nodes) -> None:
    restricted = {f"pod-security.kubernetes.io/{how}": "restricted" for how in ("enforce", "warn")}
    nodes.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": restricted}}])
    text = yaml.safe_dump_all(rendered_chart("policies.plainStorage=true"))
    done = nodes.run("apply", "--dry-run=server", "--validate=strict", "-f", "-", text=text)
    assert done.stderr == ""


def test_install_checks_itself(nodes: Nodes) -> None:
    began = time.monotonic()
    image = nodes.previous or nodes.image
    done = helm(nodes, "install", "guard", CHART, "-n", NAMESPACE, "--create-namespace", "--wait", *helm_values(image))
    log(f"helm install --wait with its check: {time.monotonic() - began:.0f} s")
    assert "STATUS: deployed" in done.stdout
    assert "Warning" not in done.stderr
    assert nodes.get("job", "checkpoint-guard-install-check", NAMESPACE) is None


def test_upgrade_keeps_the_bundle_and_loses_nothing(nodes: Nodes) -> None:
    nodes.run("create", "namespace", "team-helm", check=False)
    before = _bundles(nodes)
    with Load(nodes.kubeconfig, "team-helm") as load:
        helm(nodes, "upgrade", "guard", CHART, "-n", NAMESPACE, "--wait", *helm_values(nodes.image))
        time.sleep(5)
    nodes.run("delete", "namespace", "team-helm", "--wait=false")
    log(f"helm upgrade: {load.tally.answered} requests, {len(load.tally.failed)} failed")
    assert load.tally.failed == [], load.tally.failed[:5]
    assert _bundles(nodes) == before


def test_one_value_starts_in_warn(nodes: Nodes) -> None:
    helm(nodes, "upgrade", "guard", CHART, "-n", NAMESPACE, "--wait", "--set", "mode=warn", *helm_values(nodes.image))
    nodes.rolled_out()
    done = ckptguard(nodes, "install-check", "--timeout", "40", "--output", "json")
    assert done.returncode == 0, done.stdout
    said = {probe["what"]: probe["said"] for probe in json.loads(done.stdout)["probes"]}
    assert said["bad runtime"] == "admitted with a warning [ephemeral-checkpoint], since the mode is warn"


def test_uninstall_leaves_nothing(nodes: Nodes) -> None:
    # Nobody answers any more, and nobody needs to.
    nodes.run("scale", "deployment/checkpoint-guard", "-n", NAMESPACE, "--replicas=0")
    helm(nodes, "uninstall", "guard", "-n", NAMESPACE, "--wait")
    guard.wait_for_nothing(nodes)
    nodes.run("delete", "namespace", NAMESPACE)


def _bundles(nodes: Nodes) -> list[str]:
    found = []
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        configuration = nodes.get(kind, "checkpoint-guard")
        assert configuration is not None
        found += [hook["clientConfig"]["caBundle"] for hook in configuration["webhooks"]]
    assert len(set(found)) == 1
    return found
