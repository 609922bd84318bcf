"""The JSON of a review, to the letter: programs read it."""

from __future__ import annotations

import json

from tests.reports.reviews import NASTY, REVIEW
from webhook.model.excuse import fingerprint
from webhook.reports.json import encode, render
from webhook.reports.review import Review


def test_every_field_of_the_contract_and_no_other() -> None:
    document = json.loads(render(REVIEW))
    assert document == {
        "schema": 1,
        "results": [
            {
                "kind": "TrainJob",
                "namespace": "team",
                "name": "bad",
                "operation": "CREATE",
                "file": "jobs/a b.yaml",
                "line": 3,
                "verdict": "deny",
                "judged": True,
                "findings": [
                    {
                        "rule": "ephemeral-checkpoint",
                        "severity": "deny",
                        "at": "spec.trainer.env[0]",
                        "problem": NASTY,
                        "why": "the run starts again at step 0",
                        "fix": "- name: ckpt\n  persistentVolumeClaim:\n    claimName: train-ckpt\n",
                        "fingerprint": fingerprint(
                            "ephemeral-checkpoint", "TrainJob", "team", "bad", "spec.trainer.env[0]"
                        ),
                    },
                    {
                        "rule": "short-grace",
                        "severity": "warn",
                        "at": "TrainingRuntime/r spec.template",
                        "problem": "terminationGracePeriodSeconds is 30",
                        "why": "no time to flush",
                        "fix": "terminationGracePeriodSeconds: 60",
                        "fingerprint": fingerprint(
                            "short-grace", "TrainJob", "team", "bad", "TrainingRuntime/r spec.template"
                        ),
                    },
                    {
                        "rule": "unresolved-directory",
                        "severity": "audit",
                        "at": "spec.x",
                        "problem": "from a Secret",
                        "why": "unknown",
                        "fix": "none",
                        "fingerprint": fingerprint("unresolved-directory", "TrainJob", "team", "bad", "spec.x"),
                    },
                ],
                "patch": [{"op": "add", "path": "/spec/x", "value": {"z": 1}}],
                "facts": {
                    "nodes": 2,
                    "directory": "/ckpt/run",
                    "volume": "ckpt",
                    "claim": None,
                    "storage": "ephemeral",
                    "program": {"state": "not-found", "path": "/code/a.py", "line": None, "reason": "why"},
                },
            },
            {
                "kind": "ClusterTrainingRuntime",
                "namespace": "",
                "name": "torch",
                "operation": "UPDATE",
                "file": "-",
                "line": 1,
                "verdict": "allow",
                "judged": True,
                "findings": [],
                "patch": [],
                "facts": {
                    "nodes": None,
                    "directory": None,
                    "volume": None,
                    "claim": None,
                    "storage": None,
                    "program": None,
                },
            },
        ],
        "errors": [
            {"file": "/abs/broken.yaml", "line": 7, "field": "spec.a", "message": 'key "a" stands twice'},
            {"file": None, "line": None, "field": None, "message": "nothing to review"},
        ],
    }


def test_nothing_reviewed_is_still_a_document() -> None:
    assert json.loads(render(Review())) == {"schema": 1, "results": [], "errors": []}


def test_what_json_can_hardly_say() -> None:
    assert json.loads(encode({"a": 2**80, "b": "\ud800"})) == {"a": 2**80, "b": "\ud800"}


def test_no_character_that_a_terminal_obeys_stands_in_the_text() -> None:
    text = encode({"a": "\x7f\x9b\u202e\u2066\U000e0001 größe", "b": "##[group]"})
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert "größe" in text
    assert "##[" not in text
    assert json.loads(text) == {"a": "\x7f\x9b\u202e\u2066\U000e0001 größe", "b": "##[group]"}
