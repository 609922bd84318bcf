"""Exceptions and the entries of namespaces: what they change of a verdict, when they end, and what they cost."""

from __future__ import annotations

import copy
import pickle
from time import perf_counter, process_time
from typing import Any

import pytest

from tests.test_decision import BAD, CLAIM, GOOD, JOB, namespace, view
from webhook.cluster.policy_file import parse_policy
from webhook.decision import default_object, review_object
from webhook.model.excuse import fingerprint
from webhook.model.finding import Judged
from webhook.model.moment import DAY, parse_moment
from webhook.model.names import ALLOW
from webhook.model.policy import Policy
from webhook.model.request import Request
from webhook.model.verdict import Decision

HEAD = "apiVersion: checkpoint-guard.io/v1\nkind: Policy\n"
NOW = parse_moment("2026-12-01") or 0.0
RULE = "ephemeral-checkpoint"
LOCAL = view(BAD)


def policy(text: str) -> Policy:
    return parse_policy((HEAD + text).encode(), "p.yaml", now=NOW)


def excepted(match: str = "{}", until: str = "2027-03-01", rule: str = RULE) -> str:
    return f"- {{rules: [{rule}], match: {match}, reason: a test, owner: team-a, until: {until}}}\n"


def job(annotation: str | None = None, **more: Any) -> dict[str, Any]:
    made = copy.deepcopy(JOB)
    made["metadata"].update(more)
    if annotation is not None:
        made["metadata"]["annotations"] = {ALLOW: annotation}
    return made


def request(
    obj: dict[str, Any] | None = None, old: dict[str, Any] | None = None, at: float = NOW, **more: Any
) -> Request:
    obj = obj or job()
    name = obj["metadata"].get("name") or obj["metadata"].get("generateName")
    return Request("UPDATE" if old else "CREATE", "TrainJob", "team-a", name, obj, old, at=at, **more)


def found(decision: Decision, rule: str = RULE) -> Judged:
    (one,) = [finding for finding in decision.findings if finding.rule == rule]
    return one


def review(text: str, one: Request | None = None, *state: str) -> Decision:
    return review_object(one or request(), view(BAD, *state), policy(text))


def test_what_is_excused_is_noted_with_reason_and_owner() -> None:
    assert review("").verdict == "deny"
    decision = review("exceptions:\n" + excepted())
    assert (decision.verdict, decision.would_be) == ("allow", "allow")
    excused = found(decision)
    assert excused.severity.value == "audit"
    assert excused.weight is not None
    assert excused.weight.excuse is not None
    assert (excused.weight.excuse.reason, excused.weight.excuse.owner, excused.weight.excuse.source) == (
        "a test",
        "team-a",
        "exceptions[0]",
    )


@pytest.mark.parametrize(
    ("match", "excuses"),
    [
        ("{namespaces: [team-a]}", True),
        ("{namespaces: ['team-*']}", True),
        ("{namespaces: ['*-a']}", True),
        ("{namespaces: [team-b, 'x*']}", False),
        ("{names: [run]}", True),
        ("{names: ['r?n']}", True),
        ("{names: ['r?']}", False),
        ("{users: [anna]}", True),
        ("{users: [otto]}", False),
        ("{groups: [dev]}", True),
        ("{groups: [ops]}", False),
        ("{labels: {tier: scratch}}", True),
        ("{labels: {tier: scratch, more: x}}", False),
        ("{labels: {tier: prod}}", False),
        ("{namespaces: [team-a], names: [other]}", False),
        ("{namespaces: [team-a], users: [anna], labels: {tier: scratch}}", True),
    ],
)
def test_all_that_is_written_has_to_fit(match: str, excuses: bool) -> None:
    one = request(job(labels={"tier": "scratch"}), user="anna", groups=("all", "dev"))
    assert (review("exceptions:\n" + excepted(match), one).verdict == "allow") is excuses
    other = review("exceptions:\n" + excepted(match, rule="short-grace"), one)
    assert other.verdict == "deny"


def test_a_fingerprint_is_one_fault_of_one_object() -> None:
    fault = found(review(""))
    at = str(fault.at) if fault.at.object != "TrainJob/run" else fault.at.field
    mark = fingerprint(RULE, "TrainJob", "team-a", "run", at)
    text = "exceptions:\n" + excepted(f"{{fingerprints: ['{mark}']}}")
    assert review(text).verdict == "allow"
    assert review(text, request(job(name="other"))).verdict == "deny"
    assert (
        review("exceptions:\n" + excepted(f"{{names: [run], fingerprints: ['{mark}', '0123456789ab']}}")).verdict
        == "allow"
    )
    assert review("exceptions:\n" + excepted("{fingerprints: ['0123456789ab']}")).verdict == "deny"


def test_it_ends_on_create_and_never_blocks_a_resume() -> None:
    text = "exceptions:\n" + excepted(until="2026-12-20")
    before = request(at=NOW)
    assert review(text, before).verdict == "allow"
    soon = review(text, request(at=NOW + 7 * DAY))
    assert (soon.verdict, found(soon, "expired-exception").severity.value) == ("warn", "warn")
    assert "ends on 2026-12-20" in found(soon, "expired-exception").problem
    late = NOW + 20 * DAY
    after = review(text, request(at=late))
    assert after.verdict == "deny"
    assert "has ended on 2026-12-20" in found(after, "expired-exception").problem
    resumed = job()
    resumed["spec"]["suspend"] = True
    assert review(text, request(job(), resumed, at=late)).verdict == "warn"
    fresh = view(BAD, CLAIM)
    good_before = copy.deepcopy(JOB)
    good_before["spec"]["runtimeRef"] = {"kind": "TrainingRuntime", "name": "gone"}
    update = review_object(request(job(), good_before, at=late), fresh, policy(text))
    assert update.verdict == "warn"


def test_without_a_clock_nothing_has_ended() -> None:
    assert review("exceptions:\n" + excepted(until="2020-01-01"), request(at=0.0)).verdict == "allow"


def test_of_two_the_one_in_force_counts() -> None:
    text = "exceptions:\n" + excepted(until="2020-01-01") + excepted("{names: [run]}")
    decision = review(text)
    assert decision.verdict == "allow"
    assert not [one for one in decision.findings if one.rule == "expired-exception"]


@pytest.mark.parametrize("late", [0, 1, 2, 3])
def test_whatever_they_are_found_by_the_one_that_ends_last_counts(late: int) -> None:
    """Under their name, under the beginning of a glob, under their user, and for everybody."""
    matches = ["{names: [run]}", "{names: ['r*']}", "{users: [ann]}", "{}", "{names: ['ru*', 'run', '*']}"]
    ends = ["2027-03-02" if number == late else "2027-03-01" for number in range(4)]
    text = "exceptions:\n" + "".join(
        excepted(match, end) for match, end in zip(matches, [*ends, ends[-1]], strict=True)
    )
    one = found(review(text, request(user="ann")))
    assert one.weight is not None
    assert one.weight.excuse is not None
    assert one.weight.excuse.until == "2027-03-02"


def test_another_rule_has_its_own() -> None:
    """One entry for two rules excuses both; one for another rule excuses nothing here."""
    assert review("exceptions:\n" + excepted(rule="missing-claim, ephemeral-checkpoint")).verdict == "allow"
    assert review("exceptions:\n" + excepted(rule="missing-claim")).verdict == "deny"


def test_in_audit_mode_an_ended_one_is_only_noted() -> None:
    decision = review("modes: {default: audit}\nexceptions:\n" + excepted(until="2020-01-01"))
    assert (decision.verdict, decision.would_be) == ("allow", "deny")
    assert {one.severity.value for one in decision.findings} == {"audit"}


@pytest.mark.parametrize(("mode", "verdict"), [("enforce", "deny"), ("warn", "warn"), ("audit", "allow")])
def test_what_enforce_would_say_is_known_in_every_mode(mode: str, verdict: str) -> None:
    decision = review(f"modes: {{default: {mode}}}\n")
    assert (decision.verdict, decision.would_be) == (verdict, "deny")
    assert review_object(request(), view(GOOD, CLAIM), policy("")).would_be == "allow"


# --- the annotation

SERVICE = "selfService: {rules: [ephemeral-checkpoint], maxDays: 30, maxPerNamespace: 2}\n"
LINE = "ephemeral-checkpoint: benchmarks; nothing is kept; until 2026-12-20"


def test_an_annotation_excuses_what_policy_offers() -> None:
    decision = review(SERVICE, request(job(LINE)))
    assert decision.verdict == "allow"
    weight = found(decision).weight
    assert weight is not None
    assert weight.excuse is not None
    assert weight.excuse.reason == "benchmarks; nothing is kept"
    assert review("", request(job(LINE))).verdict == "deny"
    assert review(SERVICE, request(job(LINE), at=NOW + 25 * DAY)).verdict == "deny"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ephemeral-checkpoint", "not of the form"),
        ("ephemeral-checkpoint: until 2026-12-20", "not of the form"),
        ("ephemeral-checkpoint: x; till 2026-12-20", "not of the form"),
        ("ephemeral-checkpoint: x; until soon", '"soon" is no day'),
        ("ephemeral-checkpoint: ; until 2026-12-20", "no reason"),
        ("ephemeral-checkpoint: x; until 2027-03-01", "more than 30 days ahead"),
        ("short-grace: x; until 2026-12-20", "no rule that an annotation may excuse"),
        ("ephemeral-chckpoint: x; until 2026-12-20", "no rule that an annotation may excuse"),
    ],
)
def test_a_line_that_excuses_nothing_is_told(line: str, words: str) -> None:
    decision = review(SERVICE, request(job(line)))
    assert decision.verdict == "deny"
    assert words in found(decision, "void-exception").problem
    both = review(SERVICE, request(job(f"{line}\n\n{LINE}")))
    assert both.verdict == "warn"
    unchanged = review(SERVICE, request(job(line), job(line)))
    assert not [one for one in unchanged.findings if one.rule == "void-exception"]


def test_no_more_objects_of_a_namespace_than_policy_allows() -> None:
    class Full:
        def __init__(self, others: int) -> None:
            self.others = others
            self.view = view(BAD)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.view, name)

        def excused_runs(self, namespace: str, besides: str) -> int:
            assert (namespace, besides) == ("team-a", "run")
            return self.others

    assert review_object(request(job(LINE)), Full(1), policy(SERVICE)).verdict == "allow"
    full = review_object(request(job(LINE)), Full(2), policy(SERVICE))
    assert full.verdict == "deny"
    assert "2 TrainJobs" in found(full, "void-exception").problem
    assert review_object(request(job(LINE), job(LINE)), Full(2), policy(SERVICE)).verdict != "deny"


def test_an_annotation_without_end_costs_little() -> None:
    text = "\n".join([LINE] * 10_000)
    began = perf_counter()
    decision = review(SERVICE, request(job(text)))
    assert perf_counter() - began < 1
    assert "only 64 lines" in found(decision, "void-exception").problem


# --- namespaces


def test_later_entries_win_and_the_label_wins_over_all() -> None:
    text = """
rules: {ephemeral-checkpoint: warn}
namespaces:
- names: ["team-*"]
  rules: {ephemeral-checkpoint: deny}
  mode: warn
- selector: {matchLabels: {checkpoint-guard.io/tier: prod}}
  mode: enforce
"""
    assert review(text).mode == "warn"
    assert review(text).would_be == "deny"
    prod = review(text, None, namespace(tier="prod"))
    assert (prod.mode, prod.verdict) == ("enforce", "deny")
    labelled = review(text, None, namespace(tier="prod", mode="audit"))
    assert (labelled.mode, labelled.would_be) == ("audit", "deny")
    elsewhere = Request("CREATE", "TrainJob", "other", "run", JOB, at=NOW)
    assert review_object(elsewhere, view(BAD), policy(text)).mode == "enforce"


def test_names_and_selector_have_to_fit_both() -> None:
    text = "namespaces:\n- {names: [team-a], selector: {matchLabels: {checkpoint-guard.io/tier: prod}}, mode: audit}\n"
    assert review(text).mode == "enforce"
    assert review(text, None, namespace(tier="prod")).mode == "audit"
    own = "namespaces:\n- {selector: {matchLabels: {kubernetes.io/metadata.name: team-a}}, mode: audit}\n"
    assert review(own).mode == "audit"


def test_limits_and_defaults_of_a_namespace() -> None:
    base = "limits: {terminationGracePeriodSeconds: 30}\n"
    entry = "namespaces:\n- names: [team-a]\n  limits: {terminationGracePeriodSeconds: 90}\n"
    assert not [one for one in review(base).findings if one.rule == "short-grace"]
    assert found(review(base + entry), "short-grace")
    bare = JOB
    runtime = GOOD.replace("volumeMounts: [{name: ckpt, mountPath: /ckpt}]", "").split("                volumes:")[0]
    other = CLAIM.replace("name: ckpt,", "name: prod-ckpt,")
    given = policy("namespaces:\n- {names: [team-a], defaults: {claimName: prod-ckpt}}\n")
    one = Request("CREATE", "TrainJob", "team-a", "run", bare, at=NOW)
    assert "prod-ckpt" in str(default_object(one, view(runtime, other), given).patch)
    assert not default_object(one, view(runtime, other), policy("")).patch


def test_what_is_worked_out_of_a_policy_stays_in_its_process() -> None:
    one = policy("namespaces:\n- {names: [team-a], mode: warn}\nexceptions:\n" + excepted())
    assert review_object(request(), LOCAL, one).verdict == "allow"
    assert one.derived
    other = pickle.loads(pickle.dumps(one))
    assert other == one
    assert not other.derived
    assert review_object(request(), LOCAL, other).verdict == "allow"


def _ten_thousand() -> tuple[Policy, Policy]:
    """A policy with ten thousand exceptions, of which ten can match, and one without any."""
    lines = [excepted(f"{{namespaces: [team-{number}], names: ['bench-{number}-*']}}") for number in range(5000)]
    lines += [excepted(f"{{namespaces: [team-a], names: ['bench-{number}-*']}}") for number in range(4990)]
    lines += [excepted(f"{{namespaces: [team-a], names: [run], users: [u{number}]}}") for number in range(10)]
    return policy("exceptions:\n" + "".join(lines)), policy("")


def test_the_right_one_of_ten_thousand_is_found() -> None:
    many, _ = _ten_thousand()
    assert review_object(request(user="u9"), view(BAD), many).verdict == "allow"
    assert review_object(request(user="u10"), view(BAD), many).verdict == "deny"


@pytest.mark.full  # a figure: it is measured, and no change is refused for it
def test_ten_thousand_exceptions_cost_little() -> None:
    """Of which ten can match: in one run, beside the same decision without any."""
    many, none = _ten_thousand()
    state, one = view(BAD), request(user="u9")
    best = {id(none): 1.0, id(many): 1.0}
    for _ in range(60):  # by turns, so that whatever else the machine does meets both
        for given in (none, many):
            began = process_time()
            for _ in range(20):
                review_object(one, state, given)
            best[id(given)] = min(best[id(given)], process_time() - began)
    plain, with_many = best[id(none)], best[id(many)]
    print(f"\n10,000 exceptions, of which 10 can match: {with_many / plain - 1:+.1%} of a denied decision")
    assert with_many < plain * 1.2  # the goal is a tenth; a busy machine is no reason to fail
