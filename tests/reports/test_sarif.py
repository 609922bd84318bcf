"""SARIF 2.1.0: what the schema demands and code scanning reads."""

from __future__ import annotations

import json
from typing import Any

from tests.reports.reviews import REVIEW
from webhook.reports.catalogue import entries
from webhook.reports.review import Review
from webhook.reports.sarif import render


def run_of(review: Review) -> dict[str, Any]:
    log = json.loads(render(review))
    assert set(log) == {"$schema", "version", "runs"}
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    return dict(run)


def test_rules_are_described_and_referred_to_by_index() -> None:
    run = run_of(REVIEW)
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [entry.id for entry in entries()]
    for rule in rules:
        assert rule["shortDescription"]["text"]
        assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note")
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]


def test_result_has_level_message_and_the_line_of_its_field() -> None:
    first, second, third = run_of(REVIEW)["results"]
    assert [result["level"] for result in (first, second, third)] == ["error", "warning", "note"]
    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "jobs/a%20b.yaml"},
        "region": {"startLine": 12},
    }
    assert first["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "TrainJob/bad spec.trainer.env[0]"
    assert "fix: - name: ckpt" in first["message"]["text"]
    # the runtime stands in no file: the object that was reviewed does
    assert second["locations"][0]["physicalLocation"]["region"] == {"startLine": 3}
    assert "/srv/secret" not in render(REVIEW)


def test_errors_are_notifications_of_an_unsuccessful_run() -> None:
    (invocation,) = run_of(REVIEW)["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][0]["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "file:///abs/broken.yaml"},
        "region": {"startLine": 7},
    }
    assert run_of(Review())["invocations"][0]["executionSuccessful"] is True


def test_fingerprint_does_not_move_with_the_line() -> None:
    first = run_of(REVIEW)["results"][0]
    assert first["partialFingerprints"] == {
        "finding/v1": "team/TrainJob/bad/ephemeral-checkpoint/spec.trainer.env[0]/ckpt"
    }
