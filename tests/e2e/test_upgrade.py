"""An upgrade of Trainer under unfinished runs, with the real controllers on one store: what ``preflight`` said is so.

Each run is suspended before its first start, suspended after it, or running. Trainer, JobSet, CRDs and webhooks are
swapped; then each is resumed (or suspended, where it runs), and JobSet follows it or not. ``rescue`` frees each that is
held, and no claim is touched. A slice runs with each change; all runtimes, and the older hops, are full.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.e2e.controlplane import build
from tests.e2e.controlplane.cluster import Object
from tests.e2e.controlplane.controlplane import ControlPlane, needed_components
from tests.e2e.controlplane.processes import wait_until
from tests.e2e.controlplane.releases import RELEASES, Release
from tests.e2e.unfinished import (
    AFTER,
    BEFORE,
    LATE,
    RUNNING,
    Kubelet,
    Pair,
    check_rescued,
    everything,
    fill,
    is_held,
    mounts_own_volume,
    own_volume,
    patch,
    preflight,
    rescue_all,
    settle,
    suspend,
    wait_state,
    wedged,
    with_pods,
)

HELD = "0.12.0"
"""The JobSet that stays, where it is held."""
SLICE = (
    Pair("deepspeed-distributed", "a", BEFORE),
    Pair("deepspeed-distributed", "a", AFTER),
    Pair("deepspeed-distributed", "b", RUNNING),
    Pair("mlx-distributed", "a", BEFORE),
    Pair("torch-distributed", "a", BEFORE),
    Pair("torch-distributed", "b", RUNNING),
    Pair("own-plain", "a", AFTER),
    Pair("own-mpi", "b", BEFORE),
    Pair("jax-distributed", "a", BEFORE),
    Pair("own-torch", "b", RUNNING),
)


def _hops() -> Iterator[Any]:
    """From, to, the JobSet that both have (none: each the one that it pins), and the pairs."""
    yield pytest.param("2.2.1", "2.3.0", HELD, SLICE, id="2.2.1-2.3.0-slice")
    wedged_again = ("deepspeed-distributed", "mlx-distributed", "xgboost-distributed")
    few = tuple(pair for pair in everything(RELEASES["2.2.1"]) if pair.runtime in wedged_again and pair.variant in "ao")
    yield pytest.param("2.2.1", "2.3.0", HELD, few, id="2.2.1-2.3.0-rescued", marks=pytest.mark.full)
    for old, new in (("2.0.1", "2.1.0"), ("2.1.0", "2.2.1"), ("2.2.1", "2.3.0")):
        for held in (HELD, ""):
            name = f"{old}-{new}-{'held' if held else 'pinned'}"
            yield pytest.param(old, new, held, everything(RELEASES[old]), id=name, marks=pytest.mark.full)


def _release(name: str, held: str) -> Release:
    return replace(RELEASES[name], jobset=held) if held else RELEASES[name]


@pytest.mark.parametrize(("old", "new", "held", "pairs"), list(_hops()))
def test_what_preflight_says_of_an_upgrade_is_so(old: str, new: str, held: str, pairs: Sequence[Pair]) -> None:
    if os.environ.get("E2E_KUBECONFIG"):
        pytest.skip("controllers are swapped: that takes a control plane of its own")
    before, after = _release(old, held), _release(new, held)
    try:
        for component in (*needed_components(before), *needed_components(after)):
            build.ensure(component)
    except build.GoMissingError as missing:
        pytest.skip(str(missing))
    with ControlPlane(before) as plane:
        namespace = plane.new_namespace(prefix="up")
        with Kubelet(plane, namespace):
            fill(plane, pairs, namespace)
            _swap(plane, namespace, pairs, before, after)


def _swap(plane: ControlPlane, namespace: str, pairs: Sequence[Pair], before: Release, after: Release) -> None:
    names = {pair.name for pair in pairs}
    kept = plane.wait_for("persistentvolumeclaims", "kept", namespace)["metadata"]
    code, said = preflight(plane, namespace, "--trainer", after.minor)
    lost = {name for name, item in said.items() if item["verdict"] == "lost"}
    assert said.keys() == names
    assert {item["verdict"] for item in said.values()} <= {"lost", "safe", "unknown"}
    # A start of the controller decides about these, and nobody can tell before.
    chance = {name for name, item in said.items() if item["verdict"] == "unknown"}
    assert chance == {pair.name for pair in pairs if pair.runtime.startswith("xgboost") and pair.variant in "ag"}
    assert code == bool(lost)
    held_before = {pair.name for pair in pairs if is_held(before, pair)}
    assert wedged(plane, namespace, names).keys() == held_before, "no other is wedged before the upgrade"

    plane.upgrade(after)
    early = wedged(plane, namespace, names)
    held = settle(plane, namespace, pairs)

    print(f"{before.trainer} -> {after.trainer}, JobSet {before.jobset}, {after.jobset}: {len(pairs)} runs of", end=" ")
    print(f"{len({(pair.runtime, pair.variant) for pair in pairs})} pairs; lost {len(lost)}, held {len(held)}", end=" ")
    print(f"of them left to chance {len(held & chance)}: {sorted(held)}")
    assert lost - held == set(), "named, and not held"
    assert held - chance - lost == set(), "held, and not named"
    assert {*early} - held == set(), "rescue takes for wedged what is not"
    assert held - chance - {*early} == set(), "rescue knows it before anybody has tried to resume them"
    # The claims of these would go with their JobSet.
    assert set(rescue_all(plane, namespace, sorted(held & held_before)).values()) <= {2}
    dropped = {name for name in held if any("is dropped" in one for one in said[name]["difference"])}
    freed = [pair for pair in pairs if pair.name in held - held_before - dropped]
    codes = rescue_all(plane, namespace, [pair.name for pair in freed])
    assert {name: code for name, code in codes.items() if code} == {}
    check_rescued(plane, namespace, freed)
    _write_anew(plane, namespace, [pair for pair in pairs if pair.name in dropped], said)
    print(f"freed {len(freed)}; overrides of {len(dropped)} written anew")
    now = plane.wait_for("persistentvolumeclaims", "kept", namespace)["metadata"]
    assert (now["uid"], now.get("deletionTimestamp")) == (kept["uid"], None)


def _write_anew(plane: ControlPlane, namespace: str, pairs: Sequence[Pair], said: Mapping[str, Object]) -> None:
    """Writes the overrides that the API server dropped in the field of the release; a rescue alone would lose them."""
    if not pairs:
        return
    names = [pair.name for pair in pairs]
    resumed = [pair.name for pair in pairs if pair.state != RUNNING]
    assert set(rescue_all(plane, namespace, resumed).values()) == {2}, "it would start from nothing"
    assert not suspend(plane, namespace, dict.fromkeys(names, True))
    written = own_volume(plane.release.minor)
    refused = patch(plane, namespace, dict.fromkeys(names, written))
    # Trainer 2.1 lets overrides change only while no pod runs, and JobSet does not let the pods end.
    assert refused.keys() <= {pair.name for pair in pairs if pair.state == RUNNING and plane.release.minor == "2.1"}
    assert {*rescue_all(plane, namespace, [*refused]).values()} <= {0}
    wait_until("no pod of these", lambda: not refused.keys() & with_pods(plane, namespace), LATE, every=1)
    assert not patch(plane, namespace, dict.fromkeys(refused, written))
    again = [name for name in names if said[name]["rescue"] or name in refused]
    assert {*rescue_all(plane, namespace, again).values()} <= {0}
    assert not suspend(plane, namespace, dict.fromkeys(names, False))
    wait_state(plane, namespace, dict.fromkeys(names, False))
    wait_until("the claim in each", lambda: {*names} <= mounts_own_volume(plane, namespace), LATE, every=1)
