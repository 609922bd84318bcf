"""What our own defaults bring back is no change of the pods; everything else that comes with it is."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.defaults.world import claim, cluster, fill, request, runtime, trainjob, volume
from webhook.decision import review_object
from webhook.model.names import INJECTED
from webhook.model.policy import Policy
from webhook.model.release import Release

Object = dict[str, Any]
WORLD = (runtime(), claim("mine"), volume())


def lost(release: Release, *, with_variables: bool = False) -> Object:
    """A suspended TrainJob without what was added to it and recorded; the variables are immutable from 2.2."""
    job = trainjob(annotations={"checkpoint-guard.io/claim": "mine"}, suspend=True)
    done: Object = copy.deepcopy(dict(fill(job, *WORLD, release=release).object))
    assert INJECTED in done["metadata"]["annotations"]
    del done["spec"][release.override_field]
    if not with_variables and not release.at_least(Release.V2_2):
        done["spec"]["trainer"].pop("env")
    return done


def wedges(new: Object, old: Object, release: Release) -> bool:
    """Whether the UPDATE, after our defaults, is refused for what it does to the pods."""
    filled = dict(fill(new, *WORLD, old=old, release=release).object)
    decision = review_object(request(filled, old), cluster(*WORLD), Policy(), release)
    return any(finding.rule == "wedging-update" for finding in decision.findings)


@pytest.mark.parametrize("release", Release)
@pytest.mark.parametrize("with_variables", [False, True])
def test_what_was_lost_comes_back(release: Release, with_variables: bool) -> None:
    old = lost(release, with_variables=with_variables)
    new = copy.deepcopy(old)
    new["metadata"]["annotations"]["example.com/note"] = "seen"

    assert fill(new, *WORLD, old=old, release=release).patch
    assert not wedges(new, old, release)


@pytest.mark.parametrize("release", Release)
def test_a_change_beside_it_is_a_change(release: Release) -> None:
    old = lost(release)
    new = copy.deepcopy(old)
    new["spec"]["trainer"]["image"] = "train:2"

    assert wedges(new, old, release)


@pytest.mark.parametrize("release", Release)
def test_only_the_old_objects_record_counts(release: Release) -> None:
    filled = dict(fill(lost(release), *WORLD, old=lost(release), release=release).object)
    bare = lost(release)
    del bare["metadata"]["annotations"][INJECTED]

    decision = review_object(request(filled, bare), cluster(*WORLD), Policy(), release)

    assert any(finding.rule == "wedging-update" for finding in decision.findings)


@pytest.mark.parametrize("release", Release)
def test_losing_it_is_a_change(release: Release) -> None:
    old = dict(fill(lost(release), *WORLD, old=lost(release), release=release).object)

    decision = review_object(request(lost(release), old), cluster(*WORLD), Policy(), release)

    assert any(finding.rule == "wedging-update" for finding in decision.findings)
