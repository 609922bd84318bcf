"""Objects with parts missing or null, as YAML and lenient clients send them: nothing raises, patches stay exact."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.defaults.world import (
    NAMESPACE,
    applied,
    claim,
    cluster,
    container,
    default,
    fill,
    job,
    mounting,
    mpi_runtime,
    request,
    runtime,
    trainjob,
    volume,
)
from tests.together import together
from webhook.model.policy import Policy
from webhook.model.release import Release

ASKED = {"checkpoint-guard.io/claim": "mine"}
POD = {"volumes": [{"name": "x", "emptyDir": {}}], "containers": [{"name": "node", "volumeMounts": []}]}
RUN = trainjob(
    annotations=ASKED,
    trainer={"env": [{"name": "A", "value": "b"}, {"name": "CKPT_DIR", "value": "/mnt/ckpt/run"}], "command": ["x"]},
    podSpecOverrides=[{"targetJobs": [{"name": "node"}], **POD}],
    podTemplateOverrides=[{"targetJobs": [{"name": "node"}], "spec": POD}],
    runtimePatches=[
        {
            "manager": "checkpoint-guard.io/webhook",
            "trainingRuntimeSpec": {
                "template": {
                    "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": POD}}}}]}
                }
            },
        },
        {"manager": "kueue.x-k8s.io/manager"},
    ],
    suspend=True,
)
KEYS = ("name", "mountPath", "manager", "targetJobs", "fieldPath")
RUNTIMES = [
    runtime(job(pod=mounting("mine")), job("side", label=False), failurePolicy={"rules": []}, policy={"torch": {}}),
    runtime(job(label=False, pod={"containers": [container(args=["--output_dir", "/o"]), container("two")]})),
    mpi_runtime(mounting("mine"), mounting("mine")),
]


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from paths(item, (*path, key))


def damaged(obj: Any, chance: random.Random) -> Any:
    """The object with a few members taken away or made null; never its names, which the API server demands."""
    obj = copy.deepcopy(obj)
    for _ in range(chance.randint(0, 3)):
        places = [path for path in paths(obj) if path[0] in ("spec", "metadata") and path[-1] not in KEYS]
        if not places:
            break
        path = chance.choice(places)
        parent = obj
        for part in path[:-1]:
            parent = parent[part]
        if chance.random() < 0.5 and isinstance(path[-1], str) and path[-1] != "claimName":  # that one may not be null
            parent[path[-1]] = None
        else:
            del parent[path[-1]]
    obj["metadata"] = {"name": "run", "namespace": NAMESPACE, **(obj.get("metadata") or {})}
    return obj


def check_parts_missing_or_null(seed: int) -> None:
    chance = random.Random(seed)
    for release in Release:
        rt = damaged(chance.choice(RUNTIMES), chance)
        rt["metadata"]["name"] = "rt"
        old = damaged(rt, chance)
        fill(rt, release=release)
        fill(rt, old=old, release=release)
        run = damaged(RUN, chance)
        state = (claim("mine"), volume())
        stored = copy.deepcopy(dict(fill(run, rt, *state, release=release).object))
        fill(run, old=stored, release=release)
        fill(damaged(run, chance), old=damaged(stored, chance), release=release)


test_parts_missing_or_null = together(range(25), lambda seed: str(seed % 5))(check_parts_missing_or_null)
test_more_of_them = pytest.mark.full(together(range(25, 200), lambda seed: str(seed % 5))(check_parts_missing_or_null))


@pytest.mark.parametrize("value", [3, "x", [], [3], {"a": 3}, True])
def test_wrong_types_are_undone(value: Any) -> None:
    """The shape check keeps them out; what gets past it never leaves half an edit."""
    chance = random.Random(7)
    for base in (RUN, *RUNTIMES):
        for path in paths(base):
            if chance.random() < 0.5 or path[0] != "spec":
                continue
            obj = copy.deepcopy(base)
            parent = obj
            for part in path[:-1]:
                parent = parent[part]
            parent[path[-1]] = value
            view = cluster(RUNTIMES[0], claim("mine"), volume())
            for old in (None, base):
                done = default(request(obj, old), view, Policy(), Release.V2_1)
                assert applied(obj, done.patch) == done.object
