"""A first install that refuses nobody by accident, and what all replicas gone mean: the tests build on each other."""

import json
import subprocess
import time
from collections.abc import Iterator

import pytest
import yaml

from tests.e2e_nodes import guard
from tests.e2e_nodes.guard import NAMESPACE, ckptguard, rendered
from tests.e2e_nodes.machine import Nodes, Object, log, wait_until

TEAM = "first"
VALIDATE = "validate.checkpoint-guard.io"
SECONDS = 10.0
"""From a pod that is ready to `Fail`, as docs/operations.md promises."""
IGNORE_AFTER = 15
UNPULLABLE = "registry.invalid/checkpoint-guard:none"


@pytest.fixture(scope="module", autouse=True)
def in_order(nodes: Nodes, trainer: str) -> Iterator[None]:
    """A clean start, and a clean end whatever happens."""
    guard.uninstall(nodes)
    wait_until(lambda: nodes.get("namespace", NAMESPACE) is None, 90, "the namespace of the guard is gone")
    nodes.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}])
    yield
    guard.uninstall(nodes)
    nodes.run("delete", "trainjobs", "--all", "-n", TEAM)
    nodes.run("delete", "namespace", TEAM, "--wait=false")


def test_an_image_that_cannot_be_pulled_stops_nobody(nodes: Nodes) -> None:
    nodes.apply(rendered(UNPULLABLE))
    waits = {"ErrImagePull", "ImagePullBackOff"}
    # Pods of the webhook wait for the keeper's Secret, so it is the keeper's that say it.
    wait_until(lambda: bool(_reasons(nodes) & waits), 120, "an image that is not there is told of", 1)
    assert _policies(nodes)[VALIDATE] == "Ignore"
    # For good: a runtime and a run that would lose everything.
    assert _create(nodes, guard.lost_runtime(TEAM)).returncode == 0
    assert _create(nodes, guard.suspended_run(TEAM, "lost")).returncode == 0
    done = ckptguard(nodes, "install-check", "--timeout", "0")
    assert done.returncode == 1
    assert "Ignore: TrainJobs pass unjudged while no pod answers" in done.stdout, done.stdout
    assert any(f"waits: {reason}" in done.stdout for reason in waits), done.stdout
    log(next(line for line in done.stdout.splitlines() if "waits: " in line))


def test_with_a_good_image_it_fails_closed_by_itself(nodes: Nodes) -> None:
    nodes.apply(rendered(nodes.image))
    nodes.rolled_out("checkpoint-guard-certs")
    wait_until(lambda: _ready_pods(nodes) > 0, 120, "a pod is ready", 0.2)
    took = wait_until(lambda: _policies(nodes)[VALIDATE] == "Fail", 60, "the keeper turns it to Fail", 0.2)
    log(f"turned to Fail {took:.1f} s after a pod was ready")
    assert took < SECONDS
    others = {name: policy for name, policy in _policies(nodes).items() if name != VALIDATE}
    assert set(others.values()) == {"Ignore"}
    nodes.rolled_out()
    wait_until(lambda: _refused_by_the_guard(nodes), 60, "a bad run is refused", 1)
    done = ckptguard(nodes, "install-check", "--timeout", "60")
    assert done.returncode == 0, done.stdout
    # What came in before goes on: it can be resumed and edited.
    assert _resume(nodes, "lost", False).returncode == 0
    assert _resume(nodes, "lost", True).returncode == 0


def test_an_apply_that_writes_it_back_is_mended(nodes: Nodes) -> None:
    hooks = [one for one in rendered(nodes.image) if one["kind"].endswith("WebhookConfiguration")]
    slowest = 0.0
    for _ in range(3):  # as GitOps does, again and again
        nodes.run("apply", "--server-side", "--force-conflicts", "-f", "-", text=yaml.safe_dump_all(hooks))
        assert _policies(nodes)[VALIDATE] == "Ignore"
        assert _refused_by_the_guard(nodes)  # while somebody answers, Ignore lets nothing through
        took = wait_until(lambda: _policies(nodes)[VALIDATE] == "Fail", 60, "it is Fail again", 0.2)
        slowest = max(slowest, took)
    log(f"an apply that wrote Ignore back was mended within {slowest:.1f} s")
    assert slowest < SECONDS


def test_with_all_replicas_killed_a_create_is_refused(nodes: Nodes) -> None:
    _kill(nodes)
    try:
        time.sleep(SECONDS)
        refused = _create(nodes, guard.suspended_run(TEAM, "late"), "--dry-run=server")
        assert refused.returncode != 0
        assert f'failed calling webhook "{VALIDATE}"' in refused.stderr
        assert _resume(nodes, "lost", True).returncode == 0  # an UPDATE passes
        assert nodes.run("delete", "trainjob", "none", "-n", TEAM, "--ignore-not-found").returncode == 0
        assert _policies(nodes)[VALIDATE] == "Fail"
    finally:
        _revive(nodes)
    assert _refused_by_the_guard(nodes)


def test_with_ignore_after_it_passes_then_and_fails_closed_again(nodes: Nodes) -> None:
    _set_ignore_after(nodes, f"{IGNORE_AFTER}s")
    _kill(nodes)
    try:
        gone = time.monotonic()

        def unanswered() -> bool:  # a container that was killed by force answers for a moment longer
            refused = _create(nodes, guard.suspended_run(TEAM, "late"), "--dry-run=server")
            return f'failed calling webhook "{VALIDATE}"' in refused.stderr

        wait_until(unanswered, IGNORE_AFTER, "nobody answers", 0.5)
        wait_until(
            lambda: _create(nodes, guard.suspended_run(TEAM, "late"), "--dry-run=server").returncode == 0,
            90,
            "it passes",
            1,
        )
        took = time.monotonic() - gone
        log(f"no pod: refused at first, passes after {took:.0f} s with CKPTGUARD_IGNORE_AFTER={IGNORE_AFTER}s")
        assert took > IGNORE_AFTER - 5
        assert took < IGNORE_AFTER + 2 * SECONDS
    finally:
        _revive(nodes)
    wait_until(lambda: _policies(nodes)[VALIDATE] == "Fail", SECONDS, "it is Fail again", 0.2)
    assert _refused_by_the_guard(nodes)
    _set_ignore_after(nodes, "")


def test_the_emergency_switch_is_two_lines_and_stays(nodes: Nodes) -> None:
    _kill(nodes)
    guard.switch_off(nodes)  # the two lines
    assert _create(nodes, guard.suspended_run(TEAM, "free")).returncode == 0
    _revive(nodes)
    time.sleep(2 * SECONDS)  # the keeper has had its turn more than once
    for kind in ("validatingwebhookconfiguration", "mutatingwebhookconfiguration"):
        assert nodes.get(kind, "checkpoint-guard") is None
    assert _create(nodes, guard.suspended_run(TEAM, "free-too")).returncode == 0


def _create(nodes: Nodes, obj: Object, *flags: str) -> subprocess.CompletedProcess[str]:
    return nodes.run("create", "-f", "-", *flags, text=json.dumps(obj), check=False)


def _resume(nodes: Nodes, name: str, suspend: bool) -> subprocess.CompletedProcess[str]:
    patch = json.dumps({"spec": {"suspend": suspend}})
    return nodes.run("patch", "trainjob", name, "-n", TEAM, "--type=merge", "-p", patch, check=False)


def _refused_by_the_guard(nodes: Nodes) -> bool:
    done = _create(nodes, guard.suspended_run(TEAM, "bad"), "--dry-run=server")
    return done.returncode != 0 and "[ephemeral-checkpoint]" in done.stderr


def _policies(nodes: Nodes) -> dict[str, str]:
    """Webhook of the validating configuration -> failurePolicy."""
    found = nodes.get("validatingwebhookconfiguration", "checkpoint-guard")
    return {hook["name"]: hook["failurePolicy"] for hook in found["webhooks"]} if found else {}


def _ready_pods(nodes: Nodes) -> int:
    return sum(
        one["type"] == "Ready" and one["status"] == "True"
        for pod in nodes.pods("webhook")
        for one in pod["status"].get("conditions") or ()
    )


def _reasons(nodes: Nodes) -> set[str]:
    """Why containers of ours wait."""
    return {
        str(((status.get("state") or {}).get("waiting") or {}).get("reason"))
        for component in ("webhook", "certs")
        for pod in nodes.pods(component)
        for status in pod["status"].get("containerStatuses") or ()
    }


def _kill(nodes: Nodes) -> None:
    """Every replica, and no new one."""
    nodes.run("scale", "deployment/checkpoint-guard", "-n", NAMESPACE, "--replicas=0")
    labels = "app.kubernetes.io/name=checkpoint-guard,app.kubernetes.io/component=webhook"
    nodes.run("delete", "pods", "-n", NAMESPACE, "-l", labels, "--grace-period=0", "--force")
    wait_until(lambda: not nodes.objects("pods", NAMESPACE, labels), 60, "no pod is left")


def _revive(nodes: Nodes) -> None:
    nodes.run("scale", "deployment/checkpoint-guard", "-n", NAMESPACE, "--replicas=2")
    nodes.rolled_out()


def _set_ignore_after(nodes: Nodes, value: str) -> None:
    word = f"CKPTGUARD_IGNORE_AFTER={value}" if value else "CKPTGUARD_IGNORE_AFTER-"
    nodes.run("set", "env", "deployment/checkpoint-guard-certs", "-n", NAMESPACE, word)
    nodes.rolled_out("checkpoint-guard-certs")
