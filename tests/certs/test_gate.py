"""The entry of the registration that is turned: to Fail when a pod can answer, back only where somebody says so."""

from __future__ import annotations

from typing import Any

import pytest

from certs.actions import ignore_after
from certs.cluster import MUTATING, VALIDATING, Conflict, Refused
from certs.gate import Gate, any_ready
from certs.health import metrics_text
from certs.loop import Keeper, Leadership, Status, run
from certs.rotation import Rotation
from tests.certs.cluster import NOW, SETTINGS, FakeCluster, Raw
from tests.certs.test_rotation import Time

READY = {"ready": True, "serving": True, "terminating": False}
NAME = "checkpoint-guard"


def installed(bundle: str = "eA==") -> tuple[FakeCluster, Gate]:
    """As the manifests are applied, and a bundle."""
    cluster = FakeCluster()
    for (kind, _), found in list(cluster.objects.items()):
        for hook in found["webhooks"]:
            hook["failurePolicy"] = "Ignore"
            if bundle:
                hook["clientConfig"]["caBundle"] = bundle
        cluster.put(kind, found)
    return cluster, Gate(cluster, NAME, (NAME,))


def policies(cluster: FakeCluster) -> dict[str, str]:
    found = [hook for kind in (MUTATING, VALIDATING) for hook in cluster.objects[kind, NAME]["webhooks"]]
    return {hook["name"].partition(".")[0]: hook["failurePolicy"] for hook in found}


def test_nothing_is_turned_before_a_pod_is_ready() -> None:
    cluster, gate = installed()
    tried: list[list[dict[str, Any]]] = [[], [{"ready": False}], [{}], [{**READY, "terminating": True}]]
    for cluster.endpoints in tried:
        assert gate.step(0.0) == ()
    assert cluster.writes == []
    assert gate.open is True


def test_one_entry_is_turned_when_a_pod_is_ready_and_it_alone() -> None:
    cluster, gate = installed()
    cluster.endpoints = [{"ready": False}, READY]
    (done,) = gate.step(0.0)
    assert done.what == "policy"
    assert done.words == "turned validate.checkpoint-guard.io to Fail: a pod is ready and trusted"
    assert policies(cluster) == {"mutate": "Ignore", "put-back": "Ignore", "validate": "Fail"}
    assert cluster.writes == [(VALIDATING, NAME)]
    assert gate.open is False
    assert gate.step(5.0) == ()


def test_without_a_bundle_a_pod_is_not_trusted() -> None:
    cluster, gate = installed(bundle="")
    cluster.endpoints = [READY]
    assert gate.step(0.0) == ()


def test_an_apply_that_wrote_it_back_is_mended_each_time() -> None:
    cluster, gate = installed()
    cluster.endpoints = [READY]
    for turn in range(5):
        assert len(gate.step(turn * 60.0)) == 1
        found = cluster.objects[VALIDATING, NAME]
        found["webhooks"][0]["failurePolicy"] = "Ignore"
        cluster.put(VALIDATING, found)


def test_a_crash_does_not_open_the_gate() -> None:
    cluster, gate = installed()
    cluster.endpoints = [READY]
    gate.step(0.0)
    cluster.endpoints = []
    assert gate.step(1e6) == ()
    assert policies(cluster)["validate"] == "Fail"


def test_it_opens_after_the_time_that_was_set_and_closes_again() -> None:
    cluster, _ = installed()
    gate = Gate(cluster, NAME, (NAME,), ignore_after=600)
    cluster.endpoints = [READY]
    gate.step(0.0)
    gate.step(500.0)
    cluster.endpoints = []
    assert gate.step(1099.0) == ()
    (done,) = gate.step(1100.0)
    assert done.words == (
        "turned validate.checkpoint-guard.io to Ignore: no pod was ready for 600 s (CKPTGUARD_IGNORE_AFTER)"
    )
    assert (policies(cluster)["validate"], gate.open) == ("Ignore", True)
    cluster.endpoints = [READY]
    assert len(gate.step(1200.0)) == 1
    assert policies(cluster)["validate"] == "Fail"


def test_a_keeper_that_has_just_begun_waits_the_whole_time() -> None:
    cluster, gate = installed()
    cluster.endpoints = [READY]
    gate.step(0.0)
    cluster.endpoints = []
    fresh = Gate(cluster, NAME, (NAME,), ignore_after=60)
    assert fresh.step(5000.0) == ()
    assert fresh.step(5059.0) == ()
    assert len(fresh.step(5060.0)) == 1


@pytest.mark.parametrize("how", ["another leads", "the Lease is forbidden", "the API server is away"])
def test_time_in_which_nobody_looked_does_not_count(how: str) -> None:
    """A replica that gets its Lease back amid a roll-out must not count the hour before, in which pods were ready."""
    cluster, time, told = installed()[0], Time(turns=900), list[str]()
    cluster.endpoints = [READY]
    held = cluster.lease

    def forbidden(name: str) -> Raw | None:
        raise Refused("403: leases is forbidden")

    def other(name: str) -> Raw | None:
        spec = {"holderIdentity": "other", "leaseDurationSeconds": 30}
        return {"metadata": {"name": name, "resourceVersion": str(time.turns)}, "spec": spec}

    def before(turn: int) -> None:
        out = 400 < turn < 800  # it counts down
        cluster.away = out and how == "the API server is away"
        if how != "the API server is away":
            cluster.lease = held if not out else other if how == "another leads" else forbidden  # type: ignore[method-assign]
        if turn == 400:
            cluster.endpoints = []  # the old pod has just gone, the new one is not ready yet
        if turn == 395:
            opened.append(policies(cluster)["validate"])

    opened: list[str] = []
    time.before_turn = before
    gate = Gate(cluster, NAME, (NAME,), ignore_after=600)
    leadership = Leadership(cluster, SETTINGS, "me", time.clock)
    run(Keeper(None, gate), leadership, Status(), time.clock, told.append, 10)
    assert opened == ["Fail"]
    assert policies(cluster)["validate"] == "Ignore"  # after its time, which it saw pass
    assert next(line for line in told if "to Ignore" in line).endswith("(CKPTGUARD_IGNORE_AFTER)")


def test_what_was_deleted_is_not_made_again() -> None:
    cluster, gate = installed()
    cluster.endpoints = [READY]
    del cluster.objects[VALIDATING, NAME]
    assert gate.step(0.0) == ()
    assert gate.missing == ('ValidatingWebhookConfiguration "checkpoint-guard" does not exist',)
    assert (cluster.writes, gate.open) == ([], None)


def test_a_configuration_without_the_entry_is_told() -> None:
    cluster, gate = installed()
    cluster.objects[VALIDATING, NAME]["webhooks"] = []
    assert gate.step(0.0) == ()
    assert "lacks validate.checkpoint-guard.io" in gate.missing[0]


def test_a_change_meanwhile_is_a_conflict() -> None:
    cluster, gate = installed()
    cluster.endpoints = [READY]

    def meanwhile(kind: str, name: str) -> None:
        cluster.before_write = lambda kind, name: None
        cluster.put(kind, cluster.objects[kind, name])

    cluster.before_write = meanwhile
    with pytest.raises(Conflict):
        gate.step(0.0)
    assert len(gate.step(1.0)) == 1


def test_certificates_come_first_and_a_missing_right_does_not_stop_them() -> None:
    class NoSlices(FakeCluster):
        def endpoint_slices(self, service: str) -> list[Raw]:
            raise Refused("403: endpointslices is forbidden")

    cluster = NoSlices()
    keeper = Keeper(Rotation(cluster, SETTINGS), Gate(cluster, NAME, (NAME,)))
    first = keeper.step(NOW, 0.0)
    assert [done.what for done in first.done] == ["ca", "bundle", "bundle", "leaf"]
    with pytest.raises(Refused):
        keeper.step(NOW, 1.0)


def test_both_in_one_step() -> None:
    cluster = FakeCluster()
    cluster.endpoints = [READY]
    for found in cluster.objects[VALIDATING, NAME]["webhooks"]:
        found["failurePolicy"] = "Ignore"
    keeper = Keeper(Rotation(cluster, SETTINGS), Gate(cluster, NAME, (NAME,)))
    assert [done.what for done in keeper.step(NOW, 0.0).done] == ["ca", "bundle", "bundle", "leaf", "policy"]
    assert keeper.missing == ()
    assert "ckptguard_certs_open 0" in metrics_text(Status(), keeper)


def test_without_certificates_nothing_of_them_is_read() -> None:
    cluster, gate = installed()
    cluster.endpoints = [READY]
    keeper = Keeper(None, gate)
    assert [done.what for done in keeper.step(NOW, 0.0).done] == ["policy"]
    assert "expires" not in metrics_text(Status(), keeper)
    assert [kind for kind, _ in cluster.objects] == [MUTATING, VALIDATING]


@pytest.mark.parametrize(("text", "seconds"), [("", None), ("10m", 600.0), ("10s", 10.0)])
def test_the_setting(monkeypatch: pytest.MonkeyPatch, text: str, seconds: float | None) -> None:
    monkeypatch.setenv("CKPTGUARD_IGNORE_AFTER", text)
    assert ignore_after() == seconds


@pytest.mark.parametrize("text", ["soon", "5s", "0m", "-1m", "10"])
def test_a_setting_that_cannot_be_meant(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("CKPTGUARD_IGNORE_AFTER", text)
    with pytest.raises(ValueError, match="CKPTGUARD_IGNORE_AFTER"):
        ignore_after()


def test_no_slice_no_pod() -> None:
    assert not any_ready([])
    assert not any_ready([{}, {"endpoints": None}])
