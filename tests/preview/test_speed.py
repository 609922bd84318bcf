"""How fast a preview reads what the guard writes, beside `orjson.loads` over the same lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import orjson
import pytest

from tests.preview.test_replay import HEAD, TIME, _request
from tests.rules.cases import case_files
from webhook.audit import decision_record
from webhook.cluster.file_view import FileView
from webhook.cluster.files import load_files
from webhook.cluster.policy_file import parse_policy
from webhook.decision import review_object
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.preview.count import Denying, Preview, as_logged
from webhook.preview.lines import Tally, verdicts
from webhook.preview.replay import Replay

pytestmark = pytest.mark.full  # figures: they are measured, and no change is refused for them
LINES = 20_000
ENTRIES = 2_000
RULES = "[ephemeral-checkpoint, missing-claim, unbuildable-pod, claim-not-shared, undeclared-checkpoint]"
MATCHES = {
    "names that differ": "names: ['job-%d-*']",
    "names that fit": "names: ['run-%d*']",
    "namespaces": "namespaces: [team-%d]",
    "users": "users: [user-%d]",
    "fingerprints": "fingerprints: ['%012x']",
}
"""What two thousand exceptions ask for."""


def _records() -> list[dict[str, Any]]:
    """A line for each case of a rule that enforce refuses."""
    found = []
    for path in case_files():
        documents = load_files([str(path)]).documents
        for document in documents:
            if document.kind != "TrainJob":
                continue
            release = Release.V2_3 if "runtimePatches" in (document.object.get("spec") or {}) else Release.V2_1
            request = _request(document.object, document.kind)
            decision = review_object(request, FileView(documents, release), Policy(), release)
            record = decision_record(request, decision, False, 0.4, "0123456789ab")
            line = orjson.loads(orjson.dumps(record)) | {"time": TIME, "uid": "0f9f3f1e-1111-2222-3333-444455556666"}
            if any(one.get("enforced", one["severity"]) == "deny" for one in line["findings"]):
                found.append(line)
    return found


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = _records()
    assert len(records) > 100
    path = tmp_path_factory.mktemp("log") / "audit.log"
    with path.open("wb") as stream:
        for number in range(LINES):
            who = {"name": f"run-{number % 5000}", "namespace": f"team-{number % 40}", "user": f"user-{number % 120}"}
            stream.write(orjson.dumps(records[number * 7 % len(records)] | who) + b"\n")
    return path


def _ratio(log: Path, denying: Callable[[], Denying]) -> float:
    """The speed of a preview in that of ``orjson.loads``: the median of some rounds."""
    lines = log.read_bytes().splitlines()
    ratios = []
    for _ in range(5):
        began = process_time()
        for text in lines:
            orjson.loads(text)
        plain = process_time() - began
        began = process_time()
        counted, weigh = Preview(("namespace", "rule", "user")), denying()
        for line in verdicts([str(log)], Tally()):
            counted.add(line, weigh)
        ratios.append(plain / (process_time() - began))
        assert counted.requests == LINES
    return median(ratios)


def test_by_the_log_alone_and_by_a_policy(log: Path) -> None:
    plain = _ratio(log, lambda: as_logged)
    policy = _ratio(log, lambda: Replay(Policy()).denying)
    print(f"\npreview has {plain:.2f} of the speed of orjson.loads, with --policy {policy:.2f}")
    assert min(plain, policy) > 0.2  # the goal is a third


@pytest.mark.parametrize("match", MATCHES)
def test_with_two_thousand_exceptions(log: Path, match: str) -> None:
    entry = f"- {{rules: {RULES}, match: {{{MATCHES[match]}}}, reason: r, owner: o, until: 2027-02-01}}\n"
    text = f"{HEAD}exceptions:\n" + "".join(entry % number for number in range(ENTRIES))
    policy = parse_policy(text.encode(), "p.yaml")
    ratio = _ratio(log, lambda: Replay(policy).denying)
    print(f"\n{ENTRIES:,} exceptions by {match}: preview has {ratio:.2f} of the speed of orjson.loads")
    assert ratio > 0.2  # the goal is a third
