"""From nothing to a guarded cluster and back, with `kubectl apply -k`, in the order of a life: the tests build on each
other, and one that fails ends the file."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest
import yaml

from tests.e2e_nodes import guard
from tests.e2e_nodes.guard import MINUTES, NAMESPACE, certs, ckptguard, rendered
from tests.e2e_nodes.load import Load, Tally
from tests.e2e_nodes.machine import Lab, Nodes, Object, log, wait_until

ROTATION = 30.0
"""Seconds between two rotations under load."""


@pytest.fixture(scope="module", autouse=True)
def in_order(request: pytest.FixtureRequest, nodes: Nodes) -> Iterator[None]:
    """A clean start, and a clean end whatever happens."""
    guard.uninstall(nodes)
    yield
    guard.uninstall(nodes)


@pytest.fixture(scope="module")
def team(nodes: Nodes) -> Iterator[str]:
    """A namespace of users."""
    nodes.run("create", "namespace", "team", check=False)
    yield "team"
    nodes.run("delete", "namespace", "team", "--wait=false")


@pytest.mark.each_change
def test_the_api_server_takes_the_manifests_without_a_warning(nodes: Nodes) -> None:
    documents = rendered(nodes.image)
    first = [one for one in documents if one["kind"] == "Namespace"]
    nodes.apply(first)
    for folder in ("overlays/self-signed", "install-check", "policies"):
        text = yaml.safe_dump_all(rendered(nodes.image, folder))
        done = nodes.run("apply", "--dry-run=server", "--validate=strict", "-f", "-", text=text)
        said = [line for line in done.stderr.splitlines() if "last-applied-configuration" not in line]
        assert said == []


@pytest.mark.each_change
def test_a_broken_installation_says_what_is_wrong(nodes: Nodes) -> None:
    nothing = ckptguard(nodes, "install-check", "--timeout", "0")
    assert nothing.returncode == 1
    assert 'registration: ValidatingWebhookConfiguration "checkpoint-guard" does not exist' in nothing.stdout

    hooks = [one for one in rendered(nodes.image) if one["kind"].endswith("WebhookConfiguration")]
    nodes.apply(hooks)
    without = ckptguard(nodes, "install-check", "--timeout", "0")
    assert without.returncode == 1
    assert 'there is no Service "checkpoint-guard"' in without.stdout
    assert "caBundle: 7 of 7 webhooks have none" in without.stdout


@pytest.mark.each_change
def test_version_before_is_installed(nodes: Nodes, team: str) -> None:
    began = time.monotonic()
    guard.install(nodes, nodes.previous or nodes.image)
    done = ckptguard(nodes, "install-check", "--timeout", "60")
    assert done.returncode == 0, done.stdout
    log(f"installed and checked in {time.monotonic() - began:.0f} s")


def test_upgrade_under_load_loses_nothing(nodes: Nodes, team: str) -> None:
    if nodes.previous is None:
        pytest.skip("there is no image of a version before: E2E_IMAGE_PREVIOUS")
    with Load(nodes.kubeconfig, team) as load:
        time.sleep(5)
        guard.install(nodes, nodes.image)
        time.sleep(10)
    _lost_nothing("upgrade", load.tally)
    image = nodes.pods("webhook")[0]["spec"]["containers"][0]["image"]
    assert image == nodes.image


@pytest.mark.each_change
def test_install_check_as_a_job(nodes: Nodes) -> None:
    documents = rendered(nodes.image, "install-check")
    nodes.apply(documents)
    job = "job/checkpoint-guard-install-check"
    done = nodes.run("wait", "-n", NAMESPACE, "--for=condition=complete", job, "--timeout=120s", check=False)
    said = nodes.run("logs", "-n", NAMESPACE, job, check=False).stdout
    nodes.run("delete", "-f", "-", text=yaml.safe_dump_all(documents))
    assert done.returncode == 0, said
    assert "bad runtime: as expected, refused [ephemeral-checkpoint]" in said


@pytest.mark.each_change
def test_trainjobs_are_asked_about_where_there_is_a_runtime(nodes: Nodes) -> None:
    nodes.apply([_runtime("e2e-plain")])
    done = ckptguard(nodes, "install-check", "--timeout", "20")
    nodes.run("delete", "clustertrainingruntime", "e2e-plain")
    assert done.returncode == 0, done.stdout
    assert "good TrainJob: as expected" in done.stdout
    assert "bad TrainJob: as expected, refused [ephemeral-checkpoint]" in done.stdout


@pytest.mark.each_change
@pytest.mark.parametrize("component", ["webhook", "certs"])
def test_pods_are_what_the_manifests_claim(nodes: Nodes, component: str) -> None:
    pods = nodes.pods(component)
    assert len(pods) == 2
    if len(nodes.objects("nodes")) > 1:
        assert len({pod["spec"]["nodeName"] for pod in pods}) == 2, "both on one node"
    for pod in pods:
        seen = json.loads(nodes.python(pod["metadata"]["name"], _LOOK_AROUND))
        assert seen["uid"] == 65532
        assert seen["gid"] == 65532
        assert seen["NoNewPrivs"] == "1"
        assert int(seen["CapEff"], 16) == 0
        assert seen["Seccomp"] == "2"
        assert "Read-only file system" in seen["write"]
        assert seen["shell environment"] == []
        assert pod["spec"]["priority"] == 1_000_000
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        assert set(limits) == {"memory"}


@pytest.mark.each_change
def test_tokens_open_no_more_than_needed(nodes: Nodes) -> None:
    def may(account: str, verb: str, what: str, namespace: str = NAMESPACE) -> bool:
        user = f"--as=system:serviceaccount:{NAMESPACE}:{account}"
        return nodes.run("auth", "can-i", verb, what, user, "-n", namespace, check=False).stdout.strip() == "yes"

    assert may("checkpoint-guard", "list", "persistentvolumeclaims", "default")
    for verb, what in (("get", "secrets"), ("create", "pods"), ("patch", "trainjobs"), ("create", "trainjobs")):
        assert not may("checkpoint-guard", verb, what), what
    assert may("checkpoint-guard-certs", "update", "secrets/checkpoint-guard-tls")
    for verb, what in (("get", "secrets/other"), ("list", "secrets"), ("delete", "secrets/checkpoint-guard-tls")):
        assert not may("checkpoint-guard-certs", verb, what), what
    assert not may("checkpoint-guard-certs", "create", "secrets", "default")
    # An account that no manifest gives a pod has no right at all.
    assert not may("default", "get", "configmaps")


def test_a_drain_takes_one_at_a_time(nodes: Nodes) -> None:
    first, second = (pod["metadata"]["name"] for pod in nodes.pods("webhook"))

    def evict(name: str) -> subprocess.CompletedProcess[str]:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
        return nodes.run("create", "--raw", path, "-f", "-", text=json.dumps(body), check=False)

    assert evict(first).returncode == 0
    refused = evict(second)
    assert refused.returncode != 0
    assert "disruption budget" in refused.stderr
    nodes.rolled_out()


@pytest.mark.each_change
def test_network_policies_choose_our_pods(nodes: Nodes) -> None:
    policies = nodes.objects("networkpolicies", NAMESPACE)
    for component in ("webhook", "certs"):
        for pod in nodes.pods(component):
            labels = pod["metadata"]["labels"]
            chosen = [
                policy["metadata"]["name"]
                for policy in policies
                if policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
            ]
            assert sorted(chosen) == sorted(["checkpoint-guard", f"checkpoint-guard-{component}"])


def test_network_policy_is_enforced(nodes: Nodes) -> None:
    """A pod of ours opens a connection that its policy does not allow: to the keeper's port of another pod."""
    target = nodes.pods("certs")[0]["status"]["podIP"]
    code = f"import socket; socket.create_connection(({target!r}, 8080), 3); print('open')"
    pod = nodes.pods("webhook")[0]["metadata"]["name"]
    done = nodes.run("exec", "-n", NAMESPACE, pod, "--", "python", "-c", code, check=False)
    if "open" in done.stdout:
        pytest.skip("the network plugin of this cluster does not enforce NetworkPolicy")
    assert "timed out" in done.stderr.lower() or "refused" in done.stderr.lower()


def test_rotation_under_load_loses_nothing(nodes: Nodes, team: str) -> None:
    with Load(nodes.kubeconfig, team) as load:
        rotations = _rotate(nodes, load, MINUTES * 60)
    _lost_nothing(f"{rotations} rotations", load.tally)
    assert certs(nodes, "check").returncode == 0


def test_rotation_while_replicas_go_loses_nothing(nodes: Nodes, team: str) -> None:
    gone = []

    def kill() -> None:
        name = nodes.pods("webhook")[0]["metadata"]["name"]
        nodes.run("delete", "pod", name, "-n", NAMESPACE, "--wait=false")
        gone.append(name)

    with Load(nodes.kubeconfig, team) as load:
        rotations = _rotate(nodes, load, MINUTES * 60, kill)
    _lost_nothing(f"{rotations} rotations and {len(gone)} replicas stopped", load.tally)
    assert gone
    nodes.rolled_out()


def test_what_somebody_breaks_is_mended(nodes: Nodes, team: str) -> None:
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        patch = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": _foreign_bundle(nodes)}]
        nodes.run("patch", kind, "checkpoint-guard", "--type=json", "-p", json.dumps(patch))
    took = wait_until(lambda: certs(nodes, "check").returncode == 0, 60, "caBundle is mended")
    log(f"a caBundle that somebody overwrote was mended after {took:.0f} s")

    nodes.run("delete", "secret", "checkpoint-guard-tls", "-n", NAMESPACE)
    took = wait_until(
        lambda: nodes.get("secret", "checkpoint-guard-tls", NAMESPACE) is not None, 60, "the Secret is made anew"
    )
    log(f"a deleted Secret was made anew after {took:.0f} s")
    with Load(nodes.kubeconfig, team) as load:
        time.sleep(10)
    _lost_nothing("a new Secret", load.tally)


def test_an_untrusted_certificate_is_named(nodes: Nodes) -> None:
    nodes.run("scale", "deployment/checkpoint-guard-certs", "-n", NAMESPACE, "--replicas=0")
    wait_until(lambda: not nodes.pods("certs"), 60, "the keeper is gone")
    patches = {
        "mutatingwebhookconfiguration": range(4),
        "validatingwebhookconfiguration": range(2),
    }
    foreign = _foreign_bundle(nodes)
    for kind, hooks in patches.items():
        patch = [{"op": "replace", "path": f"/webhooks/{at}/clientConfig/caBundle", "value": foreign} for at in hooks]
        nodes.run("patch", kind, "checkpoint-guard", "--type=json", "-p", json.dumps(patch))
    said: list[str] = []

    def noticed() -> bool:
        said[:] = [ckptguard(nodes, "install-check", "--timeout", "0").stdout]
        return "certificate: the API server does not trust what the guard serves" in said[0]

    try:
        wait_until(noticed, 60, f"install-check names the certificate: {said}", 2)
    finally:
        nodes.run("scale", "deployment/checkpoint-guard-certs", "-n", NAMESPACE, "--replicas=2")
    wait_until(lambda: ckptguard(nodes, "install-check", "--timeout", "0").returncode == 0, 90, "it is mended", 2)


def test_runtimes_from_before_the_guard_are_healed(nodes: Nodes) -> None:
    guard.switch_off(nodes)
    nodes.apply([_runtime("e2e-old")])
    nodes.apply([one for one in rendered(nodes.image) if one["kind"].endswith("WebhookConfiguration")])
    wait_until(lambda: ckptguard(nodes, "install-check", "--timeout", "0").returncode == 0, 90, "it guards again", 2)
    try:
        listed = ckptguard(nodes, "runtimes")
        assert listed.returncode == 1
        assert "ClusterTrainingRuntime/e2e-old: lacks" in listed.stdout
        healed = ckptguard(nodes, "runtimes", "--heal")
        assert healed.returncode == 0, healed.stdout
        assert "ClusterTrainingRuntime/e2e-old: added" in healed.stdout
        assert ckptguard(nodes, "runtimes").returncode == 0
        stored = nodes.get("clustertrainingruntime", "e2e-old")
        assert stored is not None
        assert stored["spec"]["template"]["spec"]["failurePolicy"]["maxRestarts"] == 3
    finally:
        nodes.run("delete", "clustertrainingruntime", "e2e-old")


def test_a_node_without_power(nodes: Nodes, team: str) -> None:
    if not isinstance(nodes, Lab):
        pytest.skip("only the nodes of this machine can be switched off")
    pods = {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in nodes.pods("webhook")}
    node = sorted(pods)[-1]
    with Load(nodes.kubeconfig, team) as load:
        time.sleep(10)
        cut = load.seconds
        nodes.power_cut(node)
        wait_until(lambda: not _ready(nodes, node), 90, "the node is not ready")
        noticed = load.seconds
        wait_until(lambda: len(_ready_elsewhere(nodes, node)) >= 2, 180, "a replacement is ready on the other node")
        replaced = load.seconds
        settled = replaced + 5
        time.sleep(20)
        nodes.power_on(node)
        wait_until(lambda: _ready(nodes, node), 120, "the node is back")
        back = load.seconds
        time.sleep(10)
    tally = load.tally
    log(
        f"power cut: noticed after {noticed - cut:.0f} s, replaced after {replaced - cut:.0f} s, on again "
        f"{back - cut:.0f} s; {len(tally.failed)} of {tally.answered} requests failed, the last "
        f"{(tally.failed[-1][0] if tally.failed else cut) - cut:.0f} s after the cut"
    )
    # One that was on its way takes as long as the API server waits.
    assert tally.between(0, cut - 6) == []
    assert tally.between(settled, 1e9) == []
    nodes.rolled_out()


@pytest.mark.each_change
def test_it_goes_without_a_trace_and_without_a_guard(nodes: Nodes) -> None:
    # The hardest case: nobody answers, and everything still goes.
    for name in ("checkpoint-guard", "checkpoint-guard-certs"):
        nodes.run("scale", f"deployment/{name}", "-n", NAMESPACE, "--replicas=0")
    guard.switch_off(nodes)
    nodes.apply([_runtime("e2e-free")])
    nodes.run("delete", "clustertrainingruntime", "e2e-free")
    nodes.run("delete", "-f", "-", "--ignore-not-found", text=yaml.safe_dump_all(rendered(nodes.image)))
    wait_until(lambda: nodes.get("namespace", NAMESPACE) is None, 90, "the namespace is gone")
    assert guard.left_over(nodes) == []


_LOOK_AROUND = """
import json, os
seen = {"uid": os.getuid(), "gid": os.getgid()}
for line in open("/proc/1/status"):
    name, _, value = line.partition(":")
    if name in ("CapEff", "NoNewPrivs", "Seccomp"):
        seen[name] = value.strip()
try:
    open("/written", "w")
    seen["write"] = "done"
except OSError as error:
    seen["write"] = str(error)
seen["shell environment"] = [name for name in os.environ if name.endswith("_SERVICE_HOST") and "KUBERNETES" not in name]
print(json.dumps(seen))
"""


def _lost_nothing(what: str, tally: Tally) -> None:
    log(f"{what}: {tally.answered} requests, {len(tally.failed)} failed, the slowest {tally.slowest:.2f} s")
    assert tally.answered > 100
    assert tally.failed == [], tally.failed[:5]


def _rotate(nodes: Nodes, load: Load, seconds: float, kill: object = None) -> int:
    """Leaf and CA in turn, every half minute; `kill` is called once a minute. How many rotations there were."""
    done = 0
    running: list[threading.Thread] = []
    faults: list[str] = []

    def renew(what: str) -> None:
        run = certs(nodes, "once", "--renew", what, "--settle", "10s")
        if run.returncode != 0:
            faults.append(run.stderr)

    while load.seconds < seconds:
        thread = threading.Thread(target=renew, args=(("leaf", "ca")[done % 2],))
        thread.start()
        running.append(thread)
        if callable(kill) and done % 2 == 0:
            kill()
        done += 1
        time.sleep(max(0.0, min(done * ROTATION, seconds) - load.seconds))
    for thread in running:
        thread.join(120)
    assert faults == []
    return done


def _runtime(name: str) -> Object:
    container = {"name": "node", "image": "python:3.12-slim", "command": ["python", "-c", "pass"]}
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [container]}}},
        },
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "plain"}},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


def _foreign_bundle(nodes: Nodes) -> str:
    """An authority that is not ours, in base64: the one of the cluster's own API server."""
    import base64

    text = nodes.run("get", "configmap", "kube-root-ca.crt", "-n", "default", "-o", "jsonpath={.data.ca\\.crt}").stdout
    return base64.b64encode(text.encode()).decode()


def _ready(nodes: Nodes, node: str) -> bool:
    found = nodes.get("node", node) or {"status": {}}
    conditions = found["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _ready_elsewhere(nodes: Nodes, node: str) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in nodes.pods("webhook")
        if pod["spec"].get("nodeName") not in (node, None)
        and any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or ())
    ]
