"""A decision from the log, weighed by another policy, is the decision that this policy makes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.rules.cases import case_files
from webhook.audit import decision_record
from webhook.cluster.file_view import FileView
from webhook.cluster.files import load_files
from webhook.cluster.policy_file import parse_policy
from webhook.decision import review_object
from webhook.model.finding import Severity
from webhook.model.names import KINDS
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.preview.lines import Verdicts
from webhook.preview.replay import Replay
from webhook.rules import RULES

HEAD = "apiVersion: checkpoint-guard.io/v1\nkind: Policy\n"
AT = 1_796_000_000.0
TIME = "2026-11-29T18:13:20Z"
_NOT_ASKED = ("unknown-runtime", "not-rehearsed")
"""What may not deny, and what is not asked where the policy of then does not name it."""


@dataclass
class Named:
    """One of the policies that a log is weighed by."""

    name: str
    policy: Policy


def _policy(text: str) -> Policy:
    return parse_policy((HEAD + text).encode(), "p.yaml", now=AT)


def _rules(setting: str) -> str:
    return "rules: {" + ", ".join(f"{rule.id}: '{setting}'" for rule in RULES if rule.id not in _NOT_ASKED) + "}\n"


POLICIES = [
    Named("built-in", Policy()),
    Named("all deny", _policy(_rules("deny"))),
    Named("all warn", _policy(_rules("warn"))),
    Named("all off", _policy(_rules("off"))),
    Named("wide", _policy("limits: {maxRestarts: 100000, terminationGracePeriodSeconds: 1, lostWork: 365d}\n")),
    Named(
        "wide and deny",
        _policy("limits: {maxRestarts: 100000, terminationGracePeriodSeconds: 1}\n" + _rules("deny")),
    ),
    Named(
        "excused",
        _policy(
            _rules("deny")
            + "exceptions:\n- {rules: [ephemeral-checkpoint, missing-claim, short-grace], match: {names: ['*']}, "
            "reason: r, owner: o, until: 2027-02-01}\n"
            "- {rules: [undeclared-checkpoint], match: {users: [ann]}, reason: r, owner: o, until: 2020-01-01}\n"
        ),
    ),
]


@pytest.mark.parametrize("path", case_files(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_each_case_of_each_rule(path: Path) -> None:
    documents = load_files([str(path)]).documents
    replays = [Replay(one.policy) for one in POLICIES]
    for document in documents:
        if document.kind not in KINDS:
            continue
        release = Release.V2_3 if "runtimePatches" in (document.object.get("spec") or {}) else Release.V2_1
        view = FileView(documents, release)
        request = _request(document.object, document.kind)
        record = decision_record(request, review_object(request, view, Policy(), release), False, 0.0, "")
        line = Verdicts()(orjson.dumps({**orjson.loads(orjson.dumps(record)), "time": TIME}))
        for named, replay in zip(POLICIES, replays, strict=True):
            decision = review_object(request, view, named.policy, release)
            denying = [one.rule for one in decision.findings if one.severity is Severity.DENY]
            assert sorted(replay.denying(line)) == sorted(denying), named.name


def _request(obj: dict[str, Any], kind: str) -> Request:
    metadata = obj.get("metadata") or {}
    space = str(metadata.get("namespace") or ("" if kind == "ClusterTrainingRuntime" else "default"))
    return Request("CREATE", kind, space, str(metadata.get("name") or ""), obj, user="ann", at=AT)
