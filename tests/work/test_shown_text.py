"""Text to paste is made for the findings that an answer shows, and a text tells of a bounded number of jobs."""

from __future__ import annotations

import pytest

from tests.work.shapes import CLAIM, Object, ask, job, runtime, trainjob
from webhook.model.finding import Made
from webhook.server.envelope import MESSAGE_LIMIT, judged


def without_mount(jobs: int) -> list[Object]:
    """Labelled jobs whose directory lies on no volume."""
    bare = {"name": "node", "image": "r/t:1"}
    return [runtime([job(f"n{index}", [dict(bare)]) for index in range(jobs)]), CLAIM, trainjob()]


def absent_claims(claims: int) -> list[Object]:
    volumes = [{"name": f"v{index}", "persistentVolumeClaim": {"claimName": f"c{index}"}} for index in range(claims)]
    return [runtime([job(volumes=volumes)]), CLAIM, trainjob(env=[{"name": "A", "value": "1"}])]


@pytest.mark.parametrize("objects", [without_mount(120), absent_claims(600)], ids=["jobs", "claims"])
def test_only_what_is_shown_has_its_text_made(objects: list[Object]) -> None:
    decision = ask(objects)[1]
    assert len(decision.findings) >= 120
    answer = judged("u", decision, "TrainJob/run")
    later = [finding.text for finding in decision.findings if isinstance(finding.text, Made)]
    assert len(later) >= 120
    assert sum(text._text is not None for text in later) < len(later)
    assert len(answer) < 2 * MESSAGE_LIMIT


def test_all_texts_together_grow_with_the_jobs() -> None:
    few, many = (sum(len(found.fix) for found in ask(without_mount(jobs))[1].findings) for jobs in (64, 256))
    assert many < 5 * few


def test_each_text_has_its_own_job() -> None:
    for finding in ask(without_mount(40))[1].findings:
        if finding.rule == "ephemeral-checkpoint":
            assert f"name: {finding.job}\n" in finding.fix
            assert "the same for the others of 40 jobs" in finding.fix


def test_a_text_that_fails_does_not_undo_the_verdict() -> None:
    def fail() -> str:
        raise ValueError("of ours")

    assert "whoever runs checkpoint-guard" in str(Made(fail))
