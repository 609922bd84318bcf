"""The reload of the policy: atomic, the last good one kept, and nobody kept waiting."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from time import thread_time
from typing import Any

import pytest

from webhook.metrics import Metrics
from webhook.model.policy import Policy
from webhook.server.policy import PolicyInForce, PolicyTable, Text, kind_of

HEAD = "apiVersion: checkpoint-guard.io/v1\nkind: Policy\n"
PLACE = "guard/policy"


def configmap(text: str | None, version: str = "1", name: str = "policy") -> bytes:
    data = {"data": {"policy.yaml": text}} if text is not None else {}
    return json.dumps({"metadata": {"namespace": "guard", "name": name, "resourceVersion": version}, **data}).encode()


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


async def settled(table: PolicyTable, *versions: bytes) -> None:
    follower = asyncio.ensure_future(table.follow())
    try:
        for one in versions:
            table.put(one)
        for _ in range(400):
            await asyncio.sleep(0.01)
            if table._next is None and not table._came.is_set():
                break
        await asyncio.sleep(0.2)
    finally:
        follower.cancel()


def made() -> tuple[Metrics, PolicyInForce, PolicyTable]:
    metrics = Metrics(process=False)
    in_force = PolicyInForce(Policy(), metrics)
    return metrics, in_force, PolicyTable(in_force, PLACE)


def test_a_version_that_can_be_used_is_in_force() -> None:
    metrics, in_force, table = made()
    before = in_force()
    asyncio.run(settled(table, configmap(HEAD + "rules: {short-grace: warn}\n")))
    assert in_force().rules == {"short-grace": "warn"}
    assert before.rules == {}
    assert sample(metrics, "ckptguard_policy_info", hash=in_force().hash) == 1
    assert sample(metrics, "ckptguard_policy_info", hash="built-in") is None
    assert sample(metrics, "ckptguard_policy_reloads_total", result="loaded") == 1
    assert sample(metrics, "ckptguard_policy_stale") == 0


@pytest.mark.parametrize(
    "broken",
    [HEAD + "rules: {short-grce: warn}\n", HEAD + "rules: {", None, "", HEAD + "rules: {unknown-runtime: deny}\n"],
)
def test_a_broken_one_is_left_out(broken: str | None, caplog: pytest.LogCaptureFixture) -> None:
    metrics, in_force, table = made()
    asyncio.run(settled(table, configmap(HEAD + "rules: {short-grace: warn}\n")))
    good = in_force()
    if broken == "":  # an empty file is the built-in policy, and no fault
        asyncio.run(settled(table, configmap(broken, "2")))
        assert in_force().rules == {}
        return
    with caplog.at_level(logging.INFO):
        asyncio.run(settled(table, configmap(broken, "2")))
    assert in_force() is good
    assert f"policy {good.hash} stays in force" in caplog.text
    assert sample(metrics, "ckptguard_policy_stale") == 1
    assert sample(metrics, "ckptguard_policy_reloads_total", result="refused") == 1
    asyncio.run(settled(table, configmap(HEAD + "rules: {short-grace: audit}\n", "3")))
    assert in_force().rules == {"short-grace": "audit"}
    assert sample(metrics, "ckptguard_policy_stale") == 0


def test_deleted_it_stays_in_force() -> None:
    metrics, in_force, table = made()
    asyncio.run(settled(table, configmap(HEAD + "rules: {short-grace: warn}\n")))
    assert list(table.all_keys()) == [("guard", "policy")]
    table.remove(("guard", "policy"))
    assert in_force().rules == {"short-grace": "warn"}
    assert sample(metrics, "ckptguard_policy_stale") == 1
    assert len(table) == 0
    asyncio.run(settled(table, configmap(HEAD + "rules: {short-grace: warn}\n")))
    assert sample(metrics, "ckptguard_policy_stale") == 0


def test_of_several_versions_the_newest_counts_and_the_same_text_changes_nothing() -> None:
    metrics, in_force, table = made()
    first, second = HEAD + "rules: {short-grace: warn}\n", HEAD + "rules: {short-grace: audit}\n"
    asyncio.run(settled(table, configmap(first, "1"), configmap(second, "2")))
    assert in_force().rules == {"short-grace": "audit"}
    assert sample(metrics, "ckptguard_policy_reloads_total", result="loaded") == 1
    asyncio.run(settled(table, configmap("# a remark\n" + second, "3")))
    assert sample(metrics, "ckptguard_policy_reloads_total", result="loaded") == 1


def test_whoever_has_to_know_is_told() -> None:
    _, in_force, table = made()
    told: list[tuple[Any, Any]] = []

    async def changed(before: Policy, after: Policy) -> None:
        told.append((before.directory.variables, after.directory.variables))

    in_force.changed = changed
    asyncio.run(settled(table, configmap(HEAD + "directory: {variables: [OUT]}\n")))
    assert told == [(("CKPT_DIR", "CHECKPOINT_DIR"), ("OUT",))]


def test_the_one_configmap_is_asked_for() -> None:
    kind = kind_of("checkpoint-guard/checkpoint-guard-policy")
    assert kind.collection == "/api/v1/namespaces/checkpoint-guard/configmaps"
    assert kind.only == "checkpoint-guard-policy"
    assert not kind.needed


def test_a_large_policy_holds_nobody_up() -> None:
    """Ten thousand exceptions, read, put in force and freed again: no step of the event loop works for 20 ms.

    Counted is what the loop's own thread works: how long a busy machine lets it wait says nothing of the guard.
    """
    entry = "- {rules: [short-grace], match: {names: ['run-%d-*']}, reason: r, owner: o, until: 2020-01-01}\n"
    text = HEAD + "exceptions:\n" + "".join(entry % number for number in range(10_000))
    _, in_force, _ = made()

    async def longest_step(until: asyncio.Future[None]) -> float:
        worst = 0.0
        while not until.done():
            began = thread_time()
            await asyncio.sleep(0.001)
            worst = max(worst, thread_time() - began)
        return worst

    async def run() -> list[float]:
        steps = []
        for version in (text, text.replace("reason: r", "reason: s"), HEAD):
            steps.append(await longest_step(asyncio.ensure_future(in_force.take(Text("1", version.encode()), PLACE))))
            assert len(in_force().exceptions) == (0 if version is HEAD else 10_000)
            steps.append(await longest_step(asyncio.ensure_future(asyncio.sleep(2.0))))  # the one before is freed
        return steps

    gc.collect()
    gc.freeze()  # as the server does
    try:
        steps = asyncio.run(run())
    finally:
        gc.unfreeze()
    print(f"\nlongest work at a time while 10,000 exceptions come and go: {max(steps) * 1000:.1f} ms")
    assert max(steps) < 0.02
