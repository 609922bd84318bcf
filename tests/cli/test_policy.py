"""``ckptguard policy check | explain | diff | test``: what they say, in JSON too, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.test_decision import BAD, CLAIM, GOOD, JOB
from webhook.cli import main

HEAD = "apiVersion: checkpoint-guard.io/v1\nkind: Policy\n"


def write(path: Path, text: str) -> str:
    path.write_text(HEAD + text)
    return str(path)


def asked(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> dict[str, Any]:
    assert main(["policy", *words, "-o", "json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["schema"] == 1
    return found


def test_check_tells_every_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = write(tmp_path / "bad.yaml", "rules: {short-grce: warn}\nlimits: {lostWork: soon}\n")
    good = write(tmp_path / "good.yaml", "namespaces:\n- {selector: {matchLabels: {team: a}}, mode: warn}\n")
    found = asked(capsys, 1, "check", bad, good)
    assert [(fault["line"], fault["field"]) for fault in found["results"][0]["faults"]] == [
        (3, "rules.short-grce"),
        (4, "limits.lostWork"),
    ]
    assert found["results"][0]["hash"] is None
    assert found["results"][1]["faults"] == []
    assert found["results"][1]["warnings"][0]["field"] == "namespaces[0].selector"
    assert asked(capsys, 0, "check", good)["results"][0]["hash"]
    assert main(["policy", "check", bad]) == 1
    assert 'bad.yaml:3: rules.short-grce: there is no rule "short-grce"' in capsys.readouterr().out
    assert main(["policy", "check", str(tmp_path / "none.yaml"), bad]) == 2
    assert "none.yaml: no such file" in capsys.readouterr().err
    (tmp_path / "half.yaml").write_text(HEAD + "rules: {")
    assert main(["policy", "check", str(tmp_path / "half.yaml")]) == 1


def test_check_tells_what_another_object_has_to_say_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    narrow = write(tmp_path / "narrow.yaml", "modes: {default: warn, selfService: [warn]}\n")
    usual = write(tmp_path / "usual.yaml", "modes: {selfService: [warn, enforce]}\n")
    found = asked(capsys, 0, "check", narrow, usual)
    (warning,) = found["results"][0]["warnings"]
    assert (warning["line"], warning["field"]) == (3, "modes.selfService")
    assert "variable selfService: ['warn']" in warning["message"]
    assert found["results"][1]["warnings"] == []


def test_check_tells_what_is_for_no_namespace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(
        tmp_path / "p.yaml",
        """namespaces:
- {names: [team-a], mode: warn}
- {names: ["gone-*"], mode: warn}
- {selector: {matchLabels: {checkpoint-guard.io/tier: prod}}, mode: enforce}
exceptions:
- {rules: [short-grace], match: {namespaces: [team-x]}, reason: r, owner: o, until: 2020-01-01}
""",
    )
    state = tmp_path / "ns.yaml"
    state.write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}\n")
    (result,) = asked(capsys, 0, "check", file, "--state", str(state))["results"]
    idle = [(one["line"], one["field"]) for one in result["warnings"] if "no namespace that there is" in one["message"]]
    assert idle == [(5, "namespaces[1]"), (6, "namespaces[2]"), (8, "exceptions[0].match.namespaces")]
    state.write_text(
        state.read_text().replace("{name: team-a}", "{name: team-a, labels: {checkpoint-guard.io/tier: prod}}")
    )
    (result,) = asked(capsys, 0, "check", file, "--state", str(state))["results"]
    assert sum("no namespace that there is" in one["message"] for one in result["warnings"]) == 2
    assert main(["policy", "check", file, "--state", str(tmp_path / "none")]) == 2


def test_explain_names_the_line_of_each_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(
        tmp_path / "p.yaml",
        """rules: {short-grace: warn}
limits: {maxRestarts: 5}
namespaces:
- names: ["team-*"]
  mode: warn
  limits:
    lostWork: 15m
- selector: {matchLabels: {kubernetes.io/metadata.name: team-a}}
  rules: {short-grace: deny}
- selector: {matchLabels: {tier: prod}}
  mode: audit
exceptions:
- {rules: [short-grace], match: {namespaces: [team-a]}, reason: r, owner: o, until: 2020-01-01}
- {rules: [short-grace], match: {namespaces: [team-b]}, reason: r, owner: o, until: 2020-01-01}
""",
    )
    rows = {row["setting"]: row for row in asked(capsys, 0, "explain", file, "-n", "team-a")["results"]}
    assert rows["mode"] == {"setting": "mode", "value": "warn", "from": f"{file}:7"}
    assert rows["rules.short-grace"] == {"setting": "rules.short-grace", "value": "deny", "from": f"{file}:11"}
    assert rows["limits.lostWork"] == {"setting": "limits.lostWork", "value": "15m", "from": f"{file}:9"}
    assert rows["limits.maxRestarts"] == {"setting": "limits.maxRestarts", "value": 5, "from": f"{file}:4"}
    assert rows["defaults.claimName"] == {"setting": "defaults.claimName", "value": "train-ckpt", "from": "built-in"}
    assert "exceptions[0]" in rows
    assert "exceptions[1]" not in rows
    state = tmp_path / "ns.yaml"
    state.write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a, labels: {tier: prod}}\n")
    rows = {
        row["setting"]: row
        for row in asked(capsys, 0, "explain", file, "-n", "team-a", "--state", str(state))["results"]
    }
    assert rows["mode"]["value"] == "audit"
    state.write_text(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a, labels: {checkpoint-guard.io/mode: enforce}}\n"
    )
    rows = {
        row["setting"]: row
        for row in asked(capsys, 0, "explain", file, "-n", "team-a", "--state", str(state))["results"]
    }
    assert rows["mode"]["from"] == "label checkpoint-guard.io/mode of the namespace"
    assert main(["policy", "explain", file, "-n", "team-b", "--state", str(state)]) == 2
    assert main(["policy", "explain"]) == 0
    text = capsys.readouterr().out
    assert "modes.default" in text
    assert "built-in" in text
    assert main(["policy", "explain", write(tmp_path / "bad.yaml", "a: b\n")]) == 2


def test_diff_names_settings_and_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write(tmp_path / "old.yaml", "limits: {maxRestarts: 5}\n")
    new = write(tmp_path / "new.yaml", "# a remark\nlimits: {maxRestarts: 6}\nrules: {short-grace: deny}\n")
    found = asked(capsys, 1, "diff", old, new)
    assert found["results"] == [
        {"setting": "limits.maxRestarts", "old": 5, "new": 6},
        {"setting": "rules.short-grace", "old": None, "new": "deny"},
    ]
    assert asked(capsys, 0, "diff", old, old)["results"] == []
    line = {
        "time": "2026-12-01T08:00:00Z",
        "webhook": "validate",
        "operation": "CREATE",
        "kind": "TrainJob",
        "namespace": "a",
        "name": "run",
        "verdict": "warn",
        "wouldBe": "warn",
        "mode": "enforce",
        "findings": [{"rule": "short-grace", "severity": "warn", "at": "x"}],
    }
    log = tmp_path / "audit.log"
    log.write_bytes(orjson.dumps(line) + b"\n" + orjson.dumps(line | {"findings": []}) + b"\n")
    requests = asked(capsys, 1, "diff", old, new, "--audit-log", str(log))["requests"]
    assert (requests["all"], requests["old"], requests["new"], requests["refusedByNewAlone"]) == (2, 0, 1, 1)
    assert requests["examplesNew"] == ["a/TrainJob/run"]
    assert main(["policy", "diff", old, new, "--audit-log", str(log)]) == 1
    assert "by the new one alone: 1, such as a/TrainJob/run" in capsys.readouterr().out
    assert main(["policy", "diff", old, str(tmp_path / "none.yaml")]) == 2


def folder(path: Path, expected: str) -> str:
    path.mkdir(exist_ok=True)
    (path / "state").mkdir(exist_ok=True)
    (path / "expected.yaml").write_text(expected)
    job = json.dumps(JOB)
    (path / "bad.yaml").write_text(f"{BAD}\n---\n{job}\n")
    (path / "good.yaml").write_text(f"{GOOD}\n---\n{job}\n")
    (path / "state" / "claim.yaml").write_text(CLAIM)
    return str(path)


def test_test_compares_with_what_is_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = """
- {file: bad.yaml, kind: TrainJob, verdict: deny, rules: [ephemeral-checkpoint, "!missing-claim"]}
- {file: good.yaml, name: run, verdict: allow}
"""
    path = folder(tmp_path / "cases", right)
    assert [one["ok"] for one in asked(capsys, 0, "test", path)["results"]] == [True, True]
    write(tmp_path / "cases" / "policy.yaml", "rules: {ephemeral-checkpoint: warn}\n")
    found = asked(capsys, 1, "test", path)["results"]
    assert found[0]["failed"] == ["verdict warn, expected deny"]
    assert main(["policy", "test", path]) == 1
    assert "FAIL bad.yaml run: verdict warn, expected deny" in capsys.readouterr().out
    folder(tmp_path / "cases", "- {file: bad.yaml, name: run, rules: [missing-claim, '!ephemeral-checkpoint']}\n")
    assert asked(capsys, 1, "test", path)["results"][0]["failed"] == [
        "missing-claim was not found",
        "ephemeral-checkpoint was found",
    ]
    folder(tmp_path / "cases", "- {file: bad.yaml, name: nobody, verdict: deny}\n")
    assert asked(capsys, 1, "test", path)["results"][0]["failed"] == ["there is no such object"]


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ("- {file: bad.yaml, verdict: denied}", "none of allow, warn, deny"),
        ("- {file: bad.yaml, rules: [nope]}", 'no rule "nope"'),
        ("- {file: bad.yaml}", "expects nothing"),
        ("[]", "expects nothing"),
        ("- {files: bad.yaml}", "an entry is"),
        ("- {file: none.yaml, verdict: deny}", "none.yaml"),
        ("a: [", "expected.yaml:1"),
    ],
)
def test_a_list_that_cannot_be_used(
    expected: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "test", folder(tmp_path / "cases", expected)]) == 2
    assert words in capsys.readouterr().err
