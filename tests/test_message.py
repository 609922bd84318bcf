"""Words for a verdict: what fits where, and that nothing of a user's object reaches a terminal as a command."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from webhook.message import BUDGET, FACT, LINE, denial_text, place, warning_line, warning_lines
from webhook.model.finding import Judged, Origin, Severity
from webhook.model.printable import printable
from webhook.model.verdict import Decision


def finding(
    severity: Severity = Severity.DENY,
    rule: str = "ephemeral-checkpoint",
    problem: str = 'volume "ckpt" is an emptyDir',
    short: str = "runtimePatches[example.com/me] job node volume ckpt",
    field: str = "spec.trainer.env[0]",
    owner: str = "TrainJob/a",
    fix: str = "claimName: train-ckpt",
) -> Judged:
    return Judged(rule, severity, Origin(owner, field, short), problem, "the directory is gone with the pod", fix)


def test_warning_is_fact_id_and_short_place() -> None:
    assert warning_line(finding()) == (
        'volume "ckpt" is an emptyDir [ephemeral-checkpoint] (runtimePatches[example.com/me] job node volume ckpt)'
    )


def test_long_warning_keeps_its_id_and_both_beginnings() -> None:
    line = warning_line(finding(problem="p" * 200, short="s" * 300))
    assert len(line) == LINE
    assert line.index("… [ephemeral-checkpoint] (") == FACT - len(" [ephemeral-checkpoint]") - 1
    assert line.startswith("p" * 90)
    assert line.endswith("s…)")


def test_long_values_are_shortened_before_the_words_are_cut() -> None:
    directory = "/mnt/ckpt/" + "long/" * 30 + "run"
    line = warning_line(finding(problem=f'emptyDir volume "ckpt" under "{directory}" is gone with the pod'))
    assert line.startswith('emptyDir volume "ckpt" under "/mnt/ckpt/l')
    assert 'run" is gone with the pod [ephemeral-checkpoint] (' in line[: FACT + 2]
    assert "…" in line


def test_reason_after_the_colon_is_cut_before_the_values_are_unreadable() -> None:
    problem = 'claim "ckpt" under "/mnt/ckpt/llm" stays on one node: class "local" (provisioner rancher.io/local-path)'
    assert warning_line(finding(rule="node-local-checkpoint", problem=problem)).startswith(problem[:90])


@given(st.text(), st.text(), st.sampled_from(["short-grace", "unknown-override-target"]))
def test_warning_always_fits_and_never_holds_a_control_character(problem: str, short: str, rule: str) -> None:
    line = warning_line(finding(problem=problem, short=short, rule=rule))
    assert len(line) <= LINE
    assert f" [{rule}]" in line[:FACT]
    assert line.isprintable() or "\u00a0" in line
    assert line.encode()


def test_warnings_leave_out_what_is_audited_and_say_nothing_twice() -> None:
    lines = warning_lines([finding(Severity.WARN), finding(Severity.WARN), finding(Severity.AUDIT, rule="other")])
    assert lines == (warning_line(finding()),)


@given(st.integers(0, 80))
def test_warnings_stay_within_the_budget(number: int) -> None:
    findings = [finding(Severity.WARN, problem=f"{index} " + "x" * 200) for index in range(number)]
    lines = warning_lines(findings)
    assert sum(map(len, lines)) <= BUDGET
    assert all(len(line) <= LINE for line in lines)
    if len(lines) < number:
        assert lines[-1] == (
            f"and {number - len(lines) + 1} more findings: ckptguard review FILE --live shows all, with their fixes"
        )


def test_place_is_bare_in_the_own_object_and_names_any_other() -> None:
    assert place(finding(), "TrainJob/a") == "spec.trainer.env[0]"
    assert place(finding(owner="TrainingRuntime/r"), "TrainJob/a") == "TrainingRuntime/r spec.trainer.env[0]"
    assert place(finding(field=""), "TrainJob/a") == "TrainJob/a"
    assert place(finding(owner="JobSet", field=""), "TrainJob/a") == "JobSet"


def test_denial_reads_as_it_stands_behind_kubectls_prefix() -> None:
    decision = Decision(
        "deny",
        (
            finding(fix="- name: ckpt\n  persistentVolumeClaim:\n    claimName: train-ckpt\n"),
            finding(Severity.WARN, "short-grace", "it is 30 s", owner="TrainingRuntime/r", field="spec.x", fix="x: 60"),
            finding(Severity.AUDIT, "undeclared-checkpoint"),
        ),
    )
    assert denial_text(decision, "TrainJob/a") == "\n".join(
        [
            "TrainJob/a would not resume from where it stopped: 1 reason, 1 warning",
            'spec.trainer.env[0]: volume "ckpt" is an emptyDir [ephemeral-checkpoint]',
            "  why: the directory is gone with the pod",
            "  fix:",
            "    - name: ckpt",
            "      persistentVolumeClaim:",
            "        claimName: train-ckpt",
            "TrainingRuntime/r spec.x: it is 30 s [short-grace] (warning)",
            "  why: the directory is gone with the pod",
            "  fix: x: 60",
        ]
    )


def test_private_part_of_a_finding_is_never_said() -> None:
    secret = Judged(
        "node-local-checkpoint",
        Severity.DENY,
        Origin("TrainJob/a", "x", "x"),
        "p",
        "w",
        "f",
        private="/srv/disk on n7",
    )
    said = denial_text(Decision("deny", (secret,)), "TrainJob/a") + warning_line(secret)
    assert "/srv/disk" not in said
    assert "n7" not in said


def test_escapes_are_written_not_sent() -> None:
    assert printable("a\x1b[31m\n\t\u202e\ud800é") == "a\\x1b[31m\\n\\t\\u202e\\ud800é"


@given(st.text())
def test_printable_is_stable(text: str) -> None:
    assert printable(printable(text)) == printable(text)
