"""``ckptguard review`` as its users call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.cli.files import BAD, CLAIM, GOOD, JOB, RUNTIME, write
from webhook.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command; gives exit code, standard output and standard error, none of which may hold a traceback."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as left:
            code = int(left.code or 0)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        assert "a fault of ckptguard itself" not in err
        return code, out, err

    return call


def spawn(*arguments: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "webhook", *arguments],
        input=stdin,
        capture_output=True,
        env={**os.environ, **environment},
        timeout=60,
    )


def document(run: Run, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = run("review", *arguments, "--output", "json")
    return code, json.loads(out)


def verdicts(answer: dict[str, Any]) -> dict[str, str]:
    return {f"{result['kind']}/{result['name']}": result["verdict"] for result in answer["results"]}


def rules(answer: dict[str, Any], kind: str = "TrainJob") -> set[str]:
    return {finding["rule"] for result in answer["results"] if result["kind"] == kind for finding in result["findings"]}


# --- verdicts and exit codes


def test_good_job_is_allowed(run: Run, tmp_path: Path) -> None:
    code, answer = document(run, write(tmp_path, "good.yaml", GOOD))
    assert code == 0
    assert verdicts(answer)["TrainJob/digits"] == "allow"
    assert answer["errors"] == []


def test_bad_job_is_denied_with_its_reason(run: Run, tmp_path: Path) -> None:
    code, answer = document(run, write(tmp_path, "bad.yaml", BAD))
    assert code == 1
    assert verdicts(answer)["TrainJob/digits"] == "deny"
    assert "ephemeral-checkpoint" in rules(answer)


def test_text_says_where_why_and_fix(run: Run, tmp_path: Path) -> None:
    code, out, err = run("review", write(tmp_path, "bad.yaml", BAD))
    assert code == 1
    assert err == ""
    assert "[ephemeral-checkpoint]" in out
    assert "    why: " in out
    assert "    fix:" in out
    assert "2 reviewed: " in out.splitlines()[-1]
    assert "\x1b" not in out


def test_two_wins_over_one_and_the_other_files_are_reviewed(run: Run, tmp_path: Path) -> None:
    bad, broken = write(tmp_path, "bad.yaml", BAD), write(tmp_path, "broken.yaml", "kind: [TrainJob")
    code, answer = document(run, broken, bad)
    assert code == 2
    assert verdicts(answer)["TrainJob/digits"] == "deny"
    (error,) = answer["errors"]
    assert error["file"] == broken
    assert isinstance(error["line"], int)


def test_state_is_looked_up_and_not_reviewed(run: Run, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    write(state, "claim.yaml", CLAIM)
    write(state, "runtime.yaml", RUNTIME)
    job = write(tmp_path, "job.yaml", JOB)
    code, answer = document(run, job, "--state", str(state))
    assert (code, verdicts(answer)) == (0, {"TrainJob/digits": "allow"})
    code, answer = document(run, job, "--state", str(state / "claim.yaml"), "--state", str(state / "runtime.yaml"))
    assert (code, verdicts(answer)) == (0, {"TrainJob/digits": "allow"})


def test_runtime_in_file_counts_as_defaulted_and_in_state_as_stored(run: Run, tmp_path: Path) -> None:
    runtime = RUNTIME.replace("      failurePolicy:\n        maxRestarts: 3\n", "")
    claim, job = write(tmp_path, "claim.yaml", CLAIM), write(tmp_path, "job.yaml", JOB)
    runtime_file = write(tmp_path, "runtime.yaml", runtime)
    _, answer = document(run, runtime_file, job, "--state", claim)
    assert "no-restart-budget" not in rules(answer)
    assert any(edit["path"].endswith("failurePolicy") for result in answer["results"] for edit in result["patch"])
    _, answer = document(run, job, "--state", claim, "--state", runtime_file)
    assert "no-restart-budget" in rules(answer)


def test_order_of_documents_does_not_matter(run: Run, tmp_path: Path) -> None:
    forward = document(run, write(tmp_path, "a.yaml", "---\n".join((CLAIM, RUNTIME, JOB))))
    backward = document(run, write(tmp_path, "b.yaml", "---\n".join((JOB, RUNTIME, CLAIM))))
    assert verdicts(forward[1]) == verdicts(backward[1])
    assert rules(forward[1]) == rules(backward[1])


def test_old_makes_an_update_and_what_was_wrong_before_no_denial(run: Run, tmp_path: Path) -> None:
    bad = write(tmp_path, "bad.yaml", BAD)
    code, answer = document(run, bad, "--old", write(tmp_path, "old.yaml", BAD))
    assert code == 0
    assert {result["operation"] for result in answer["results"]} == {"UPDATE"}
    assert verdicts(answer)["TrainJob/digits"] == "warn"
    _, answer = document(run, bad, "--old", write(tmp_path, "other.yaml", BAD.replace("name: digits", "name: other")))
    operations = {result["kind"]: result["operation"] for result in answer["results"]}
    assert operations == {"TrainingRuntime": "UPDATE", "TrainJob": "CREATE"}


def test_old_that_fits_nothing_is_said(run: Run, tmp_path: Path) -> None:
    old = write(tmp_path, "old.yaml", CLAIM)
    _, _, err = run("review", write(tmp_path, "bad.yaml", BAD), "--old", old)
    assert f"note: {old}: none of the objects in FILE stands there, so all are reviewed as new" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("output", ["text", "json"])
def test_a_full_disk_is_no_fault_of_ours(tmp_path: Path, output: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "webhook", "review", write(tmp_path, "good.yaml", GOOD), "--output", output],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    assert done.returncode == 2
    assert done.stderr == b"error: standard output cannot be written: No space left on device\n"


def test_files_win_over_the_state_of_the_cluster(run: Run, tmp_path: Path) -> None:
    """A dump of the cluster holds the objects as they were before this change."""
    state = write(tmp_path, "state.yaml", GOOD.replace("ReadWriteMany", "ReadOnlyMany"))
    good = write(tmp_path, "good.yaml", GOOD)
    assert document(run, good, "--state", state)[1]["errors"] == []
    assert document(run, good, "--state", state) == document(run, good)


def test_files_that_are_complete_in_themselves_may_share_objects(run: Run, tmp_path: Path) -> None:
    """Each brings the same claim and runtime."""
    first, second = write(tmp_path, "a.yaml", GOOD), write(tmp_path, "b.yaml", GOOD.replace("name: digits", "name: b"))
    code, answer = document(run, first, second)
    assert (code, answer["errors"]) == (0, [])
    assert list(verdicts(answer)).count("TrainJob/b") == 1


def test_policy_changes_the_severity(run: Run, tmp_path: Path) -> None:
    policy = "apiVersion: checkpoint-guard.io/v1\nkind: Policy\nrules:\n  ephemeral-checkpoint: warn\n"
    code, answer = document(run, write(tmp_path, "bad.yaml", BAD), "--policy", write(tmp_path, "policy.yaml", policy))
    assert code == 0
    assert verdicts(answer)["TrainJob/digits"] == "warn"


def test_wrong_policy_is_an_error_with_line_and_field(run: Run, tmp_path: Path) -> None:
    policy = write(
        tmp_path, "policy.yaml", "apiVersion: checkpoint-guard.io/v1\nkind: Policy\nlimits:\n  maxRestarts: x\n"
    )
    code, answer = document(run, write(tmp_path, "bad.yaml", BAD), "--policy", policy)
    assert code == 2
    (error,) = answer["errors"]
    assert (error["file"], error["line"], error["field"]) == (policy, 4, "limits.maxRestarts")


@pytest.mark.parametrize("release", ["2.3", "2.3.0", "v2.3.0", "2.0", "v2.1", "2.2.1"])
def test_known_releases(run: Run, tmp_path: Path, release: str) -> None:
    code, _ = document(run, write(tmp_path, "good.yaml", GOOD), "--trainer", release)
    assert code == 0


@pytest.mark.parametrize("release", ["1.9", "2", "latest", "", "2.3.x"])
def test_other_releases_are_refused(run: Run, tmp_path: Path, release: str) -> None:
    code, _, err = run("review", write(tmp_path, "good.yaml", GOOD), "--trainer", release)
    assert code == 2
    assert "known are 2.0, 2.1, 2.2, 2.3" in err


def test_live_needs_a_cluster(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    code, out, err = run("review", write(tmp_path, "good.yaml", GOOD), "--live")
    assert (code, out) == (2, "")
    assert f"--live: there is no kubeconfig at {tmp_path / 'none'}" in err


# --- output


def test_json_has_the_fields_of_the_contract_and_no_other(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, "bad.yaml", BAD)
    _, answer = document(run, path)
    assert list(answer) == ["schema", "results", "errors"]
    for result in answer["results"]:
        assert list(result) == [
            "kind",
            "namespace",
            "name",
            "operation",
            "file",
            "line",
            "verdict",
            "judged",
            "findings",
            "patch",
            "facts",
        ]
        assert list(result["facts"]) == ["nodes", "directory", "volume", "claim", "storage", "program"]
        assert result["operation"] in ("CREATE", "UPDATE")
        assert result["verdict"] in ("allow", "warn", "deny")
        assert result["file"] == path
        for finding in result["findings"]:
            assert list(finding) == ["rule", "severity", "at", "problem", "why", "fix", "fingerprint"]
            assert finding["severity"] in ("deny", "warn", "audit")
            assert all(isinstance(value, str) and value for value in finding.values())
    job = answer["results"][-1]
    assert (job["namespace"], job["name"], job["line"]) == (
        "default",
        "digits",
        BAD[: BAD.rindex("apiVersion")].count("\n") + 1,
    )
    assert job["facts"]["nodes"] == 1
    assert job["facts"]["directory"] == "/mnt/ckpt/run"
    assert job["facts"]["storage"] == "ephemeral"


def test_at_is_bare_in_the_own_object_and_names_any_other(run: Run, tmp_path: Path) -> None:
    _, answer = document(run, write(tmp_path, "bad.yaml", BAD))
    found = {
        result["kind"]: finding["at"]
        for result in answer["results"]
        for finding in result["findings"]
        if finding["rule"] == "ephemeral-checkpoint"
    }
    path = "spec.template.spec.replicatedJobs[0].template.spec.template.spec.volumes[0]"
    assert found == {"TrainingRuntime": path, "TrainJob": f"TrainingRuntime/plain {path}"}


def test_generate_name_is_the_name(run: Run, tmp_path: Path) -> None:
    _, answer = document(run, write(tmp_path, "a.yaml", GOOD.replace("name: digits", "generateName: digits-")))
    assert "TrainJob/digits-" in verdicts(answer)


def test_junit_and_sarif(run: Run, tmp_path: Path) -> None:
    bad = write(tmp_path, "bad.yaml", BAD)
    code, out, _ = run("review", bad, "--output", "junit")
    assert code == 1
    assert len(ElementTree.fromstring(out.encode()).findall(".//testcase")) == 2
    code, out, _ = run("review", bad, "--output", "sarif")
    assert code == 1
    results = json.loads(out)["runs"][0]["results"]
    lines = {
        result["locations"][0]["physicalLocation"]["region"]["startLine"]
        for result in results
        if result["ruleId"] == "ephemeral-checkpoint"
    }
    text = BAD.splitlines()
    assert {text[line - 1].strip() for line in lines} == {"- name: ckpt"}


def test_standard_input_folder_and_list(run: Run, tmp_path: Path) -> None:
    done = spawn("review", "-", "--output", "json", stdin=BAD.encode())
    assert done.returncode == 1
    assert {result["file"] for result in json.loads(done.stdout)["results"]} == {"-"}
    folder = tmp_path / "folder" / "below"
    folder.mkdir(parents=True)
    write(folder, "a.yaml", GOOD)
    code, answer = document(run, str(tmp_path / "folder"))
    assert (code, len(answer["results"])) == (0, 2)


# --- bad input


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("a: b: c\n", 1, id="not YAML"),
        pytest.param(JOB + "spec: {}\n", 11, id="duplicate key"),
        pytest.param(JOB.replace("name: digits", "name: {{ .Values.name }}"), 4, id="Helm template"),
        pytest.param(b"\x7fELF\0\0\0", 1, id="binary"),
        pytest.param(JOB.replace("numNodes: 1", 'numNodes: "one"'), 10, id="string for a number"),
        pytest.param(
            JOB.replace("  trainer:\n    numNodes: 1\n", "  runtimePatches: no-list\n"), 9, id="string for a list"
        ),
        pytest.param(JOB.replace("numNodes: 1", "env: [name]"), 10, id="string for a map in a list"),
        pytest.param(JOB.replace("digits", "d" * 300), 4, id="name over its limit"),
    ],
)
def test_bad_file_is_named_with_its_line(run: Run, tmp_path: Path, text: str | bytes, line: int) -> None:
    bad, good = write(tmp_path, "bad.yaml", text), write(tmp_path, "good.yaml", GOOD.replace("digits", "other"))
    code, answer = document(run, bad, good)
    assert code == 2
    assert [(error["file"], error["line"]) for error in answer["errors"]] == [(bad, line)]
    assert list(answer["errors"][0]) == ["file", "line", "field", "message"]
    assert verdicts(answer)["TrainJob/other"] == "allow"
    code, _, err = run("review", bad)
    assert code == 2
    assert err.startswith(f"error: {bad}:{line}: ")


def test_exploding_aliases(run: Run, tmp_path: Path) -> None:
    layers = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    layers += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    code, answer = document(run, write(tmp_path, "bomb.yaml", JOB + "\n".join(layers) + "\n"))
    assert code == 2
    assert "aliases" in answer["errors"][0]["message"]


def test_file_of_50_mib(run: Run, tmp_path: Path) -> None:
    code, answer = document(run, write(tmp_path, "huge.yaml", b"# " + b"x" * (50 << 20)))
    assert code == 2
    assert "larger than" in answer["errors"][0]["message"]


def test_wrong_type_names_the_field(run: Run, tmp_path: Path) -> None:
    text = RUNTIME.replace(
        "volumeMounts:\n                  - name: ckpt\n                    mountPath: /mnt/ckpt", "volumeMounts: x"
    )
    code, answer = document(run, write(tmp_path, "a.yaml", text))
    assert code == 2
    (error,) = answer["errors"]
    assert error["field"].endswith("containers[0].volumeMounts")
    assert text.splitlines()[error["line"] - 1].strip() == "volumeMounts: x"


@pytest.mark.parametrize("number", ["-1", "0", "99999999999999999999", "2147483647"])
def test_any_number_of_nodes(run: Run, tmp_path: Path, number: str) -> None:
    code, _ = document(run, write(tmp_path, "a.yaml", GOOD.replace("numNodes: 1\n", f"numNodes: {number}\n")))
    assert code in (0, 1, 2)


@pytest.mark.parametrize("text", ["", "---\n", "# nothing\n", "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n"])
def test_nothing_to_review(run: Run, tmp_path: Path, text: str) -> None:
    path = write(tmp_path, "a.yaml", text)
    code, answer = document(run, path)
    assert code == 2
    assert answer["results"] == []
    assert answer["errors"][0]["file"] == path
    assert answer["errors"][0]["message"].startswith("nothing to review")


def test_missing_and_unreadable_files(run: Run, tmp_path: Path) -> None:
    code, answer = document(run, str(tmp_path / "absent.yaml"), write(tmp_path, "good.yaml", GOOD))
    assert code == 2
    assert answer["errors"][0]["message"] == "no such file or folder"
    assert len(answer["results"]) == 2


def test_cluster_dump_with_status_crlf_and_strangers(run: Run, tmp_path: Path) -> None:
    dump = GOOD.replace("  name: digits\n", "  name: digits\n  uid: 1-2\n  resourceVersion: '7'\n  generation: 1\n")
    dump += (
        "status:\n  conditions:\n  - type: Suspended\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n"
    )
    code, answer = document(run, write(tmp_path, "dump.yaml", dump.replace("\n", "\r\n")))
    assert code == 0
    assert verdicts(answer)["TrainJob/digits"] == "allow"
    assert answer["errors"] == []


# --- the terminal


def test_no_traceback_where_the_reader_leaves_early(tmp_path: Path) -> None:
    path = write(tmp_path, "bad.yaml", BAD)
    process = subprocess.Popen(
        [sys.executable, "-m", "webhook", "review", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 1
    assert err == b""


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_only_on_a_terminal(tmp_path: Path, environment: dict[str, str], coloured: bool) -> None:
    pty = pytest.importorskip("pty", reason="no pseudo-terminals here")
    ours, theirs = pty.openpty()
    base = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")}
    with subprocess.Popen(
        [sys.executable, "-m", "webhook", "review", write(tmp_path, "bad.yaml", BAD)],
        stdout=theirs,
        env={**base, "TERM": "xterm", **environment},
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            shown += part
        os.close(ours)
        assert process.wait() == 1
    assert (b"\x1b[" in shown) is coloured


def test_output_survives_a_terminal_without_unicode(tmp_path: Path) -> None:
    path = write(tmp_path, "bad.yaml", BAD.replace("/mnt/ckpt/run", "/mnt/ckpt/läufe-\U0001f600"))
    done = spawn("review", path, PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


def test_what_filling_in_says_stands_among_the_rules_in_their_order(run: Run, tmp_path: Path) -> None:
    """Of a claim asked for by annotation only the filling in knows, of restarts only the judging."""
    bare = RUNTIME.replace("      failurePolicy:\n        maxRestarts: 3\n", "")
    bare = bare.replace(bare[bare.index("                  env:") :], "")
    state = write(tmp_path, "state.yaml", CLAIM + "---\n" + bare)
    asked = JOB.replace("  name: digits\n", "  name: digits\n  annotations: {checkpoint-guard.io/claim: none}\n")
    code, out, _ = run("review", write(tmp_path, "job.yaml", asked), "--state", state, "--output", "json")
    (result,) = json.loads(out)["results"]
    assert code == 0
    assert [finding["rule"] for finding in result["findings"]] == [
        "missing-claim",
        "no-restart-budget",
        "undeclared-checkpoint",
    ]


@pytest.mark.parametrize("output", ["text", "json", "junit", "sarif"])
def test_what_is_passed_over_is_said_beside_every_format(run: Run, tmp_path: Path, output: str) -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: x}\n"
    file = write(tmp_path, "job.yaml", f"{GOOD}---\n{service}")
    code, out, err = run("review", file, "--output", output)
    assert (code, err) == (0, f"note: {file}: not read here: Service\n")
    assert "not read here" not in out


@pytest.mark.parametrize("release", ["2.0", "2.1", "2.3"])
def test_without_the_guard_no_fix_hangs_on_admission(run: Run, tmp_path: Path, release: str) -> None:
    """What is pasted mounts a claim by itself; with the guard its annotation is enough."""
    bare = RUNTIME.replace(RUNTIME[RUNTIME.index("                  env:") :], "")
    files = [write(tmp_path, "runtime.yaml", bare)]
    job = write(tmp_path, "job.yaml", JOB)

    def asked(*more: str) -> tuple[dict[str, str], list[Any]]:
        states = [word for file in files for word in ("--state", file)]
        _, answer = document(run, job, *states, "--trainer", release, *more)
        (result,) = answer["results"]
        return {one["rule"]: one["fix"] for one in result["findings"]}, result["facts"]

    fixes, _ = asked()
    assert "checkpoint-guard.io/claim" in fixes["undeclared-checkpoint"]
    fixes, _ = asked("--without-guard")
    fix = fixes["undeclared-checkpoint"]
    assert "checkpoint-guard.io" not in fix
    claim, pasted = yaml.safe_load_all(fix)
    files.append(
        write(tmp_path, "claim.yaml", yaml.safe_dump({**claim, "metadata": {"name": claim["metadata"]["name"]}}))
    )
    whole = yaml.safe_load(JOB)
    trainer = {**(whole["spec"].get("trainer") or {}), **pasted["spec"]["trainer"]}
    whole["spec"] = {**whole["spec"], **pasted["spec"], "trainer": trainer}
    job = write(tmp_path, "job.yaml", yaml.safe_dump(whole))
    fixes, facts = asked("--without-guard")
    assert "undeclared-checkpoint" not in fixes
    assert "missing-claim" not in fixes
    assert "claim" in facts
