"""A default that is there for a rule's sake leaves that rule with nothing to say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.defaults.world import (
    claim,
    cluster,
    container,
    fill,
    job,
    mounting,
    mpi_runtime,
    request,
    runtime,
    trainjob,
    volume,
)
from webhook.decision import review_object
from webhook.model.policy import Policy
from webhook.model.release import Release

ASKED = {"checkpoint-guard.io/claim": "mine"}
STATE = (claim("mine"), volume())
DECLARED = {"env": [{"name": "CKPT_DIR", "value": "/mnt/ckpt/run"}], "numNodes": 2}
RIGHT = runtime(
    job(pod={"containers": [container()], "terminationGracePeriodSeconds": 60}, backoffLimit=0),
    policy={},
    failurePolicy={"maxRestarts": 3},
)


def rules(obj: Any, *state: Any, release: Release) -> set[str]:
    """The ids that the review of the object finds, audit ones included."""
    done = review_object(request(dict(obj)), cluster(*state), Policy(), release)
    assert done.broken == ()
    return {found.rule for found in done.findings}


@pytest.mark.parametrize("release", list(Release))
@pytest.mark.parametrize(
    ("obj", "state", "settled"),
    [
        (trainjob(annotations=ASKED, trainer=DECLARED), (RIGHT, *STATE), {"ephemeral-checkpoint"}),
        (trainjob(annotations=ASKED), (RIGHT, *STATE), {"undeclared-checkpoint"}),
        (trainjob(), (runtime(job(pod=mounting())), *STATE), {"undeclared-checkpoint"}),
    ],
    ids=["directory", "no directory", "claim mounted"],
)
def test_trainjob(release: Release, obj: Any, state: Any, settled: set[str]) -> None:
    assert settled <= rules(obj, *state, release=release)
    done = fill(obj, *state, release=release)
    assert not settled & rules(done.object, *state, release=release)


@pytest.mark.parametrize("release", list(Release))
def test_an_allowed_trainjob_is_not_denied_for_what_was_added(release: Release) -> None:
    once = claim("mine", "ReadWriteOnce")
    for state in (STATE, (once, volume()), (once, volume("nfs", "ReadWriteOnce")), (claim("mine"), volume("hostPath"))):
        for nodes in (1, 4):
            for rt in (RIGHT, mpi_runtime()):
                run = trainjob(annotations=ASKED, trainer={"numNodes": nodes})
                view = cluster(rt, *state)
                if review_object(request(run), view, Policy(), release).verdict == "deny":
                    continue
                done = fill(run, rt, *state, release=release)
                after = review_object(request(dict(done.object)), view, Policy(), release)
                assert after.verdict != "deny", after.findings


@pytest.mark.parametrize("release", list(Release))
def test_runtime(release: Release) -> None:
    declared = {"containers": [container(env=[{"name": "CKPT_DIR", "value": "/ckpt/run"}])]}
    bare = runtime(job(label=False, pod=declared), policy={"numNodes": 2})
    settled = {"no-restart-budget", "short-grace", "missing-trainer-label"}
    assert settled <= rules(bare, release=release)
    assert not (settled | {"pods-retry-alone"}) & rules(fill(bare, release=release).object, release=release)
    labelled = runtime(policy={"numNodes": 2})
    assert "pods-retry-alone" in rules(labelled, release=release)
    assert "pods-retry-alone" not in rules(fill(labelled, release=release).object, release=release)
