"""What JobSet and the Job controller do when a job that trains fails: which rule answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from webhook.model.pod import EMPTY, EffectiveJob, Raw

ORDINARY: Final = "BackoffLimitExceeded"
"""The reason of a Job whose pods failed more often than ``backoffLimit``."""
UNBOUNDED: Final = ("RestartJobSetAndIgnoreMaxRestarts", "RestartJobAndIgnoreMaxRestarts")
_ORDINARY_CODES: Final = frozenset((1, 137, 143))
"""A Python exception, SIGKILL (memory, eviction), SIGTERM (drain, preemption)."""


def first_rule(policy: Raw | None, job: str, reason: str) -> tuple[int, Raw] | None:
    """The first ``failurePolicy`` rule, with its index, that answers whenever ``job`` fails for ``reason``.

    A rule with message patterns answers at times only, so it is passed over.
    """
    for index, rule in enumerate((policy or EMPTY).get("rules") or ()):
        reasons: Sequence[str] = rule.get("onJobFailureReasons") or ()
        targets: Sequence[str] = rule.get("targetReplicatedJobs") or ()
        matches = (not reasons or reason in reasons) and (not targets or job in targets)
        if matches and not rule.get("onJobFailureMessagePatterns"):
            return index, rule
    return None


def restarts_left(policy: Raw | None, job: str, reason: str = ORDINARY) -> float:
    """How often the JobSet starts again after ``job`` failed for ``reason``; infinite where nothing counts it."""
    if policy is None:
        return 0
    found = first_rule(policy, job, reason)
    if found is not None:
        action = found[1].get("action")
        if action == "FailJobSet":
            return 0
        if action in UNBOUNDED:
            return float("inf")
    return policy.get("maxRestarts") or 0


def pod_rules(job: EffectiveJob, *actions: str) -> list[tuple[int, Raw, str]]:
    """``podFailurePolicy`` rules with one of the actions that match an ordinary failure or a disruption.

    Index, rule, and the failure in words. The first rule that matches a failure answers, so later ones do not count.
    """
    found: list[tuple[int, Raw, str]] = []
    answered: set[object] = set()
    for index, rule in enumerate((job.spec.get("podFailurePolicy") or EMPTY).get("rules") or ()):
        causes: dict[object, str] = {}
        for condition in rule.get("onPodConditions") or ():
            if condition.get("type") == "DisruptionTarget" and (condition.get("status") or "True") == "True":
                causes["disruption"] = "a disruption (drain, preemption, eviction)"
        codes = rule.get("onExitCodes")
        if codes is not None:
            values = set(codes.get("values") or ())
            hit = _ORDINARY_CODES & values if codes.get("operator") == "In" else _ORDINARY_CODES - values
            for code in sorted(hit):
                causes[code] = f"exit code {code}"
        new = [text for cause, text in causes.items() if cause not in answered]
        answered.update(causes)
        if new and rule.get("action") in actions:
            found.append((index, rule, " and ".join(new[:2])))
    return found
