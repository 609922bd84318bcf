"""The fail-closed registration speaks of the record as it is really written."""

from __future__ import annotations

import re

from tests.defaults.world import claim, fill, job, runtime, trainjob, volume
from webhook.defaults.registration import PUT_BACK
from webhook.model.names import INJECTED, KINDS, MANAGER

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def text(*expressions: str) -> str:
    return " ".join(expressions)


def test_names_and_resources_are_what_a_configuration_takes() -> None:
    assert len({one.name for one in PUT_BACK}) == len(PUT_BACK) == 3
    for one in PUT_BACK:
        assert NAME.fullmatch(one.name)
        assert set(one.resources) <= {kind.lower() + "s" for kind in KINDS}
        names = [condition["name"] for condition in one.conditions]
        assert len(set(names)) == len(names)
        assert all(NAME.fullmatch(name) for name in names)
        assert all(set(condition) == {"name", "expression"} for condition in one.conditions)
        assert all("{{" not in condition["expression"] for condition in one.conditions)


def test_brackets_close() -> None:
    for one in PUT_BACK:
        for condition in one.conditions:
            bare = re.sub(r"'[^']*'", "", condition["expression"])
            for left, right in ("()", "[]", "{}"):
                assert bare.count(left) == bare.count(right)


def test_the_record_holds_the_texts_that_are_looked_for() -> None:
    """A variable or volume by ``"name":"x"``, what a runtime got by ``"maxRestarts":``, a job by ``"node":{``."""
    run = fill(trainjob(annotations={"checkpoint-guard.io/claim": "mine"}), runtime(), claim("mine"), volume())
    record = run.object["metadata"]["annotations"][INJECTED]
    for name in ("TRAINJOB_NAME", "CKPT_DIR", "checkpoint-guard"):
        assert f'"name":"{name}"' in record
    assert run.object["spec"]["runtimePatches"][0]["manager"] == MANAGER
    rt = fill(runtime(job(label=False)))
    record = rt.object["metadata"]["annotations"][INJECTED]
    for part in ('"maxRestarts":', '"node":{', '"backoffLimit":', '"terminationGracePeriodSeconds":', '"label":'):
        assert part in record
        assert part.strip("{") in PUT_BACK[2].conditions[2]["expression"] or part == '"node":{'
