"""Exceptions that are objects of the namespace: weighed, told and ended as those of the policy are."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tests.test_decision import BAD, namespace, view
from tests.test_exceptions import NOW, found, job, policy, request
from webhook.audit import decision_record
from webhook.cluster.file_view import FileView
from webhook.cluster.files import load_text
from webhook.decision import review_object
from webhook.decision.excuses import SOON
from webhook.model.cluster import Gap
from webhook.model.exceptions import Exceptions
from webhook.model.moment import DAY, parse_moment
from webhook.model.policy import Policy
from webhook.model.request import Request
from webhook.model.verdict import Decision

RULE = "ephemeral-checkpoint"


def exception(
    name: str = "bench",
    match: str = "{}",
    until: str = "2027-03-01",
    rule: str = RULE,
    where: str = "team-a",
) -> str:
    return (
        "apiVersion: exceptions.checkpoint-guard.io/v1alpha1\nkind: CheckpointException\n"
        f"metadata: {{name: {name}, namespace: {where}}}\n"
        f"spec: {{rules: [{rule}], match: {match}, reason: scratch, owner: anna, until: {until}}}\n"
    )


def review(one: Request | None = None, *state: str, rules: Policy | None = None) -> Decision:
    return review_object(one or request(), view(BAD, *state), rules or Policy())


def test_what_one_excuses_is_noted_with_its_name() -> None:
    decision = review(None, exception())
    assert (decision.verdict, decision.would_be) == ("allow", "allow")
    told = decision_record(request(), decision, False, 0.0, "")["findings"][0]["exception"]
    assert told == {
        "reason": "scratch",
        "owner": "anna",
        "until": "2027-03-01",
        "from": "CheckpointException/bench",
    }


@pytest.mark.parametrize(
    ("state", "excuses"),
    [
        (exception(where="team-b"), False),
        (exception(rule="short-grace"), False),
        (exception(match="{names: ['r*']}"), True),
        (exception(match="{names: [other]}"), False),
        (exception(match="{users: [anna]}"), True),
        (exception(match="{users: [otto]}"), False),
        (exception(match="{groups: [dev]}"), True),
        (exception(match="{labels: {tier: scratch}}"), True),
        (exception(match="{labels: {tier: prod}}"), False),
    ],
)
def test_it_is_for_its_namespace_and_all_that_it_writes_has_to_fit(state: str, excuses: bool) -> None:
    one = request(job(labels={"tier": "scratch"}), user="anna", groups=("all", "dev"))
    assert (review(one, state).verdict == "allow") is excuses


def test_a_fingerprint_is_one_fault() -> None:
    from webhook.model.excuse import fingerprint

    fault = found(review())
    mark = fingerprint(RULE, "TrainJob", "team-a", "run", str(fault.at) if "/" in str(fault.at) else fault.at.field)
    assert review(None, exception(match=f"{{fingerprints: ['{mark}']}}")).verdict == "allow"
    assert review(None, exception(match="{fingerprints: ['0123456789ab']}")).verdict == "deny"


def test_it_ends_on_create_and_never_blocks_a_resume() -> None:
    state = exception(until="2026-12-20")
    end = parse_moment("2026-12-20") or 0.0
    soon = review(request(at=end - SOON + DAY), state)
    assert soon.verdict == "warn"
    assert 'ends on 2026-12-20: "scratch", by "anna"' in found(soon, "expired-exception").problem
    after = review(request(at=end), state)
    assert after.verdict == "deny"
    assert "has ended" in found(after, "expired-exception").problem
    shifted = job()
    shifted["spec"]["labels"] = {"a": "b"}
    assert review(request(shifted, job(), at=end), state).verdict != "deny"


def test_one_that_ends_too_far_ahead_excuses_nothing_and_says_so() -> None:
    decision = review(None, exception(until="2027-12-01"))
    assert decision.verdict == "deny"
    said = found(decision, "void-exception")
    assert "CheckpointException/bench excuses nothing" in said.problem
    assert "more than 180 days ahead" in said.problem
    assert "until: 2027-05-30" in said.fix
    longer = policy("limits: {exceptionDays: 400}\n")
    assert review(None, exception(until="2027-12-01"), rules=longer).verdict == "allow"
    # The policy's limit may have been lowered since: what exists goes on.
    assert review(request(job(), job(name="run", labels={"a": "b"})), exception(until="2027-12-01")).verdict != "deny"


def test_the_policys_come_first_and_one_that_has_ended_hides_no_other() -> None:
    text = "exceptions:\n" + "- {rules: [ephemeral-checkpoint], reason: p, owner: o, until: 2026-11-01}\n"
    assert review(None, exception(), rules=policy(text)).verdict == "allow"
    both = review(None, exception("old", until="2026-11-01"), exception("new"))
    weight = found(both).weight
    assert both.verdict == "allow"
    assert weight is not None
    assert weight.excuse is not None
    assert weight.excuse.source == "CheckpointException/new"


class Unread:
    """A cluster whose exceptions cannot be read."""

    def __init__(self) -> None:
        self._view = view(BAD)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def exceptions(self, namespace: str) -> Exceptions | Gap:
        return Gap.UNKNOWN

    def why_unknown(self, kind: str) -> str:
        return f"the guard may not list {kind}"


def test_exceptions_that_cannot_be_read_deny_nothing_and_it_is_said() -> None:
    decision = review_object(request(), Unread(), Policy())
    assert decision.verdict == "warn"
    said = found(decision, "void-exception")
    assert "the guard may not list CheckpointException" in said.problem
    assert RULE in said.problem
    excused = policy("exceptions:\n- {rules: [ephemeral-checkpoint], reason: p, owner: o, until: 2027-01-01}\n")
    assert review_object(request(), Unread(), excused).verdict == "allow"


def test_nothing_is_looked_up_where_nothing_counts() -> None:
    class Told(Unread):
        def exceptions(self, namespace: str) -> Exceptions | Gap:
            raise AssertionError("asked")

    off = policy('rules: {ephemeral-checkpoint: "off"}\n')
    assert review_object(request(), Told(), off).verdict == "allow"


def test_a_mode_is_weighed_after_it() -> None:
    warned = review(None, exception(), namespace(mode="warn"))
    assert (warned.verdict, warned.would_be) == ("allow", "allow")


def test_they_go_to_the_worker() -> None:
    made = view(exception()).exceptions("team-a")
    assert isinstance(made, Exceptions)
    again: Exceptions = pickle.loads(pickle.dumps(made, pickle.HIGHEST_PROTOCOL))
    assert [one.excuse.source for one in again.may_fit(RULE, request())] == ["CheckpointException/bench"]


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        ("{rules: [ephemeral], reason: r, owner: o, until: 2027-01-01}", "spec.rules[0]", "there is no rule"),
        ("{rules: [], reason: r, owner: o, until: 2027-01-01}", "spec.rules", "names no rule"),
        ("{rules: [broken-rule], reason: r, owner: o, until: 2027-01-01}", "spec.rules[0]", "no exception reaches"),
        ("{rules: [short-grace], reason: r, owner: o}", "spec.until", "an exception ends"),
        ("{rules: [short-grace], reason: r, owner: o, until: 2027-02-31}", "spec.until", "is no day"),
        ("{rules: [short-grace], reason: '', owner: o, until: 2027-01-01}", "spec.reason", "empty"),
        (
            "{rules: [short-grace], reason: r, owner: o, until: 2027-01-01, match: {namespaces: [a]}}",
            "spec.match.namespaces",
            "its own namespace alone",
        ),
        (
            "{rules: [short-grace], reason: r, owner: o, until: 2027-01-01, matches: {}}",
            "spec.matches",
            'the nearest is "match"',
        ),
        ("[]", "spec", "no mapping"),
    ],
)
def test_a_file_that_excuses_nothing_is_refused_with_the_field(spec: str, field: str, said: str) -> None:
    text = exception().partition("spec:")[0] + f"spec: {spec}\n"
    loaded = load_text(text.encode(), "e.yaml")
    (error,) = loaded.errors
    assert (error.field, error.line) == (field, 4)
    assert said in error.message
    assert isinstance(FileView(loaded.documents).exceptions("team-a"), Gap)


def test_now_is_before_the_ends_of_these_tests() -> None:
    assert (parse_moment("2026-12-20") or 0.0) > NOW
