"""Every line of a policy means something or is refused: all faults at once, each with its line and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from webhook.cluster import policy_schema
from webhook.cluster.policy_file import Checked, check_policy
from webhook.cluster.yaml_text import Piece, parse
from webhook.model.moment import parse_moment
from webhook.model.names import WITHOUT_A_RULE
from webhook.model.policy import NEVER_DENIES, SelfService

HEAD = "apiVersion: checkpoint-guard.io/v1\nkind: Policy\n"
NOW = parse_moment("2026-12-01") or 0.0
EXCEPTION = "{rules: [short-grace], reason: scratch, owner: a@example.com, until: 2027-01-01%s}"


def check(text: str) -> Checked:
    return check_policy((HEAD + text).encode(), "p.yaml", now=NOW)


def one(text: str) -> tuple[int | None, str | None, str]:
    (fault,) = check(text).faults
    return fault.line, fault.field, fault.message


def test_all_faults_at_once() -> None:
    text = """rules:
  short-grce: warn
  unknown-runtime: deny
limits: {maxRestart: 3, lostWork: soon}
namespaces:
- names: [team-a]
  rule: {short-grace: warn}
- mode: denied
exceptions:
- {rules: [short-grace], reason: "", until: 2026-1-1}
nonsense: true
"""
    found = [(fault.line, fault.field) for fault in check(text).faults]
    assert found == [
        (4, "rules.short-grce"),
        (5, "rules.unknown-runtime"),
        (6, "limits.maxRestart"),
        (6, "limits.lostWork"),
        (9, "namespaces[0].rule"),
        (10, "namespaces[1].mode"),
        (12, "exceptions[0].reason"),
        (12, "exceptions[0].until"),
        (12, "exceptions[0].owner"),
        (13, "nonsense"),
    ]


@pytest.mark.parametrize("rule", sorted(NEVER_DENIES))
def test_what_cannot_deny_is_refused_with_the_reason(rule: str) -> None:
    assert (
        one(f"rules: {{{rule}: deny}}\n")[2]
        == f'"{rule}" never denies: {NEVER_DENIES[rule]}. Write warn, audit or "off"'
    )
    assert not check(f"rules: {{{rule}: warn}}\n").faults
    inside = one(f"namespaces:\n- names: [a]\n  rules: {{{rule}: deny}}\n")
    assert inside[:2] == (5, f"namespaces[0].rules.{rule}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("exempt: {namespaces: ['team-*']}", "is a glob, and here a namespace stands by its whole name"),
        ("exempt: {users: ['system:serviceaccount:*']}", "would match nobody"),
        ("exempt: {groups: ['']}", "matches nobody"),
        ("exempt: {runtimes: [torch]}", "write ClusterTrainingRuntime/torch or TrainingRuntime/torch"),
        ("exempt: {runtimes: ['ClusterTrainingRuntime/torch-*']}", "would match no runtime"),
        ("exempt: {runtimes: ['TrainingRuntime/A_B']}", "no name of a runtime"),
        ("namespaces: [{names: ['^team-.*$'], mode: warn}]", "looks like a regular expression"),
        ("namespaces: [{names: ['team-(a|b)'], mode: warn}]", "looks like a regular expression"),
        ("namespaces: [{names: [Team-A], mode: warn}]", "matches nothing"),
        ("namespaces: [{mode: warn}]", "is for no namespace"),
        ("namespaces: [{names: [a]}]", "says nothing of its namespaces"),
        ("namespaces: [team-a]", "a mapping belongs"),
        ("namespaces: [{names: [a], limits: {exceptionDays: 3}}]", "unknown field"),
        ("namespaces: [{selector: {matchLabel: {a: b}}, mode: warn}]", 'the nearest is "matchLabels"'),
        ("namespaces: [{selector: {matchLabels: {a b: c}}, mode: warn}]", "no key of a label"),
        ("namespaces: [{selector: {matchLabels: {a: 'b*'}}, mode: warn}]", "would match nothing"),
        ("namespaces: [{selector: {matchLabels: {a: true}}, mode: warn}]", 'a text takes quotes, "true"'),
        ("namespaces: [{selector: {matchExpressions: [{key: a, operator: In}]}, mode: warn}]", "selects nothing"),
        ("namespaces: [{selector: {matchExpressions: [{key: a, operator: Is}]}, mode: warn}]", "none of In, NotIn"),
        (
            "namespaces: [{selector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: DoesNotExist}]},"
            " mode: warn}]",
            "selects no namespace",
        ),
        (
            "namespaces: [{selector: {matchExpressions: [{key: a, operator: In, values: [b]},"
            " {key: a, operator: NotIn, values: [b]}]}, mode: warn}]",
            "selects no namespace",
        ),
        ("exceptions: [{reason: r, owner: o, until: 2027-01-01}]", "write the ids that it excuses"),
        ("exceptions: [" + EXCEPTION.replace("[short-grace]", "[]") % "" + "]", "names no rule"),
        ("exceptions: [" + EXCEPTION.replace("[short-grace]", "['*']") % "" + "]", "every rule has to be named"),
        ("exceptions: [" + EXCEPTION.replace("[short-grace]", "[broken-rule]") % "" + "]", "no exception reaches"),
        ("exceptions: [" + EXCEPTION % ", match: {users: ['a*']}" + "]", "would match nobody"),
        ("exceptions: [" + EXCEPTION % ", match: {names: ['bench-.*']}" + "]", "regular expression"),
        ("exceptions: [" + EXCEPTION % ", match: {namespace: [a]}" + "]", 'the nearest is "namespaces"'),
        ("exceptions: [" + EXCEPTION % ", match: {fingerprints: [xyz]}" + "]", "no fingerprint"),
        ("exceptions: [" + EXCEPTION.replace("2027-01-01", "2027-06-01") % "" + "]", "exceptionDays (180) ahead"),
        ("exceptions: [" + EXCEPTION.replace("2027-01-01", "2027-02-30") % "" + "]", "is no day"),
        ("selfService: {rules: [short-grce]}", 'the nearest is "short-grace"'),
        ("selfService: [short-grce]", 'the nearest is "short-grace"'),
        ("selfService: {rules: [], maxDays: 0}", "not within 1"),
        ("tiers: {fast: {storageClassName: A_B}}", "no name of a StorageClass"),
        ("restoreManagers: ['']", "matches nothing"),
    ],
)
def test_what_would_match_nothing_is_refused(text: str, words: str) -> None:
    assert words in one(text + "\n")[2]


def test_the_whole_format_is_taken() -> None:
    found = check(
        """
limits: {exceptionDays: 400}
namespaces:
- selector: {matchLabels: {tier: prod}, matchExpressions: [{key: a, operator: Exists}]}
  names: ["team-*", "?"]
  mode: enforce
  rules: {short-grace: deny}
  limits: {lostWork: 15m}
  defaults: {claimName: prod-ckpt, backoffLimit: keep}
exceptions:
- {rules: [short-grace], match: {names: ["bench-*"]}, reason: scratch, owner: a@example.com, until: 2027-12-31}
- {rules: [short-grace], reason: until noon, owner: a@example.com, until: "2026-12-01T12:00:00+01:00"}
selfService: {rules: [short-grace], maxDays: 7, maxPerNamespace: 2}
"""
    )
    assert not found.faults
    policy = found.used()
    assert policy.exceptions[0].match.names == ("bench-*",)
    assert policy.self_service == SelfService(("short-grace",), 7, 2)


def test_the_list_form_of_self_service_still_loads() -> None:
    assert check("selfService: [short-grace]\n").used().self_service == SelfService(("short-grace",))


def test_a_day_that_has_passed_is_told_and_never_a_fault() -> None:
    found = check("exceptions:\n- " + EXCEPTION.replace("2027-01-01", "2020-01-01") % "" + "\n")
    assert found.policy is not None
    (warning,) = found.warnings
    assert (warning.line, warning.field) == (4, "exceptions[0].until")
    assert "has passed" in warning.message


def test_a_selector_that_a_tenant_can_set_is_told() -> None:
    found = check("namespaces:\n- {selector: {matchLabels: {team: a}}, mode: warn}\n")
    assert ["is a label that whoever may edit the namespace can set" in one.message for one in found.warnings] == [True]
    named = check("namespaces:\n- {selector: {matchLabels: {kubernetes.io/metadata.name: a}}, mode: warn}\n")
    assert not named.warnings


def test_an_exception_too_many_for_a_screen_is_counted() -> None:
    text = "exceptions:\n" + f"- {EXCEPTION.replace('short-grace', 'nope') % ''}\n" * 150
    found = check(text).faults
    assert len(found) == 101
    assert found[-1].message == "and 50 more faults"


# --- the schema


def test_the_schema_is_current() -> None:
    assert (Path(__file__).parents[2] / "deploy" / "policy.schema.json").read_text() == policy_schema.text()


AGREED = [
    "",
    "rules: {short-grace: warn}",
    "rules: {short-grace: denied}",
    "rules: {unknown-runtime: deny}",
    "rules: {nope: warn}",
    "limits: {maxRestarts: -1}",
    "limits: {lostWork: soon}",
    "limits: {lostWork: 1d}",
    "limits: {lostWorks: 1d}",
    "defaults: {backoffLimit: keep}",
    "defaults: {backoffLimit: multi}",
    "defaults: {path: ckpt}",
    "programs: {configMaps: never}",
    "exempt: {runtimes: [torch]}",
    "exempt: {runtimes: [TrainingRuntime/torch]}",
    "exempt: {namespaces: ['a*']}",
    "namespaces: [{names: [a], mode: warn}]",
    "namespaces: [{names: [a], mode: never}]",
    "namespaces: [{names: a, mode: warn}]",
    "namespaces: [{selector: {matchExpressions: [{key: a, operator: Is}]}, mode: warn}]",
    "exceptions: [" + EXCEPTION % "" + "]",
    "exceptions: [{rules: [short-grace], reason: r, until: 2027-01-01}]",
    "exceptions: [" + EXCEPTION % ", match: {fingerprints: [abc]}" + "]",
    "exceptions: [" + EXCEPTION.replace("[short-grace]", "[nope]") % "" + "]",
    "selfService: [short-grace]",
    "selfService: {rules: [short-grace], maxDays: 3}",
    "selfService: {maxDays: many}",
    "tiers: {fast: {storageClassName: null}}",
    "hash: abc",
    "derived: {}",
]


@pytest.mark.parametrize("text", AGREED)
def test_the_schema_agrees_with_the_parser(text: str) -> None:
    ((_, raw),) = parse(Piece((HEAD + text).encode()))
    schema = policy_schema.schema()
    assert _valid(raw, schema, schema) == (not check(text + "\n").faults)


def test_the_schema_takes_the_built_in_policy_and_knows_every_id() -> None:
    page = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()
    ((_, raw),) = parse(Piece(page.split("```yaml\n")[1].split("```")[0].encode()))
    schema = policy_schema.schema()
    assert _valid(raw, schema, schema)
    assert set(WITHOUT_A_RULE) <= set(schema["$defs"]["Policy"]["properties"]["rules"]["properties"])
    assert not _valid({}, schema, schema)
    assert json.loads(policy_schema.text())["$id"].endswith("/deploy/policy.schema.json")


def _valid(value: Any, part: dict[str, Any], whole: dict[str, Any]) -> bool:
    """As much of JSON Schema as the schema uses."""
    import re

    if "$ref" in part:
        return _valid(value, whole["$defs"][part["$ref"].rpartition("/")[2]], whole)
    if "anyOf" in part:
        return any(_valid(value, one, whole) for one in part["anyOf"])
    if "enum" in part:
        return value in part["enum"]
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "null": type(None)}
    if not isinstance(value, kinds[part["type"]]) or isinstance(value, bool):
        return False
    if isinstance(value, dict):
        known = part.get("properties", {})
        other = part.get("additionalProperties", True)
        return all(key in value for key in part.get("required", ())) and all(
            _valid(item, known[key], whole)
            if key in known
            else _valid(item, other, whole)
            if isinstance(other, dict)
            else other
            for key, item in value.items()
        )
    if isinstance(value, list):
        return len(value) >= part.get("minItems", 0) and all(_valid(item, part["items"], whole) for item in value)
    if isinstance(value, str):
        return len(value) >= part.get("minLength", 0) and re.search(part.get("pattern", ""), value) is not None
    return value is None or part.get("minimum", value) <= value <= part.get("maximum", value)
