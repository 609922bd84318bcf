"""``ckptguard review`` as programs and people rely on it: namespaces, judged or not, the guard, folders, outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli.files import BAD, CLAIM, GOOD, JOB, RUNTIME, write
from tests.cli.test_review import Run, document, rules, run, verdicts

__all__ = ["run"]

TORCH = JOB.replace("    kind: TrainingRuntime\n    name: plain\n", "    name: torch-distributed\n")
EXEMPT = "apiVersion: checkpoint-guard.io/v1\nkind: Policy\nexempt: {namespaces: [default]}\n"


def job(answer: dict[str, Any], name: str = "digits") -> dict[str, Any]:
    return next(one for one in answer["results"] if (one["kind"], one["name"]) == ("TrainJob", name))


# --- the namespace of what names none


def test_what_names_no_namespace_is_in_the_only_one_that_occurs(run: Run, tmp_path: Path) -> None:
    state = write(tmp_path, "state.yaml", CLAIM.replace("name: train-ckpt", "name: train-ckpt\n  namespace: team"))
    code, answer = document(run, write(tmp_path, "job.yaml", f"{RUNTIME}---\n{JOB}"), "--state", state)
    assert (code, job(answer)["namespace"], job(answer)["verdict"]) == (0, "team", "allow")


def test_with_several_it_is_in_default_and_what_was_not_looked_for_is_unknown(run: Run, tmp_path: Path) -> None:
    claims = [CLAIM.replace("name: train-ckpt", f"name: train-ckpt\n  namespace: {name}") for name in ("a", "b")]
    state = write(tmp_path, "state.yaml", claims[0] + "---\n" + claims[1].partition("---")[0])
    code, answer = document(run, write(tmp_path, "job.yaml", f"{RUNTIME}---\n{JOB}"), "--state", state)
    assert (code, job(answer)["namespace"]) == (0, "default")
    assert [one["severity"] for one in job(answer)["findings"] if one["rule"] == "missing-claim"] == ["audit"]
    code, answer = document(run, str(tmp_path / "job.yaml"), "--state", state, "-n", "b")
    assert (code, job(answer)["namespace"], rules(answer)) == (0, "b", set())


def test_the_flag_does_not_move_what_names_its_namespace(run: Run, tmp_path: Path) -> None:
    text = GOOD.replace("kind: TrainJob\nmetadata:\n", "kind: TrainJob\nmetadata:\n  namespace: own\n")
    code, answer = document(run, write(tmp_path, "a.yaml", text), "--namespace", "team")
    assert (code, job(answer)["namespace"]) == (0, "own")


def test_pods_takes_the_namespace_too(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("pods", "-f", write(tmp_path, "a.yaml", GOOD), "-n", "team", "-o", "json")
    assert (code, {one["namespace"] for one in json.loads(out)["results"]}) == (0, {"team"})


@pytest.mark.parametrize("name", ["Team", "a b", "../x", ""])
def test_a_namespace_that_is_none_is_refused(run: Run, tmp_path: Path, name: str) -> None:
    code, _, err = run("review", write(tmp_path, "a.yaml", GOOD), "-n", name)
    assert code == 2
    assert "is no namespace" in err


# --- judged or not


def test_what_has_no_runtime_is_allowed_and_not_judged(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "job.yaml", JOB)
    code, answer = document(run, file)
    assert (code, job(answer)["verdict"], job(answer)["judged"]) == (0, "allow", False)
    assert run("review", file, "--fail-on", "warn")[0] == 0
    assert run("review", file, "--fail-on", "not-judged")[0] == 1
    suite = ElementTree.fromstring(run("review", file, "-o", "junit")[1].encode())
    (skipped,) = suite.iter("skipped")
    assert skipped.get("message", "").startswith('not judged: TrainingRuntime "plain"')
    assert suite.get("skipped") == "1"
    (note,) = json.loads(run("review", file, "-o", "sarif")[1])["runs"][0]["invocations"][0][
        "toolExecutionNotifications"
    ]
    assert "not judged" in note["message"]["text"]
    _, out, _ = run("review", file)
    assert "allowed, not judged" in out


def test_a_rule_that_is_off_does_not_make_it_judged(run: Run, tmp_path: Path) -> None:
    policy = "apiVersion: checkpoint-guard.io/v1\nkind: Policy\nrules: {unknown-runtime: 'off'}\n"
    _, answer = document(run, write(tmp_path, "job.yaml", JOB), "--policy", write(tmp_path, "p.yaml", policy))
    assert (job(answer)["findings"], job(answer)["judged"]) == ([], False)


@pytest.mark.parametrize(("fail_on", "code"), [("deny", 0), ("warn", 1), ("not-judged", 1)])
def test_fail_on(run: Run, tmp_path: Path, fail_on: str, code: int) -> None:
    warned = GOOD.replace("maxRestarts: 3", "maxRestarts: 99")
    assert run("review", write(tmp_path, "a.yaml", warned), "--fail-on", fail_on)[0] == code
    assert run("review", write(tmp_path, "b.yaml", GOOD), "--fail-on", fail_on)[0] == 0
    assert run("review", write(tmp_path, "c.yaml", BAD), "--fail-on", fail_on)[0] == 1


def test_what_is_exempt_is_called_so(run: Run, tmp_path: Path) -> None:
    bad, policy = write(tmp_path, "bad.yaml", BAD), write(tmp_path, "policy.yaml", EXEMPT)
    code, answer = document(run, bad, "--policy", policy)
    assert (code, job(answer)["verdict"], job(answer)["judged"]) == (0, "exempt", False)
    _, out, _ = run("review", bad, "--policy", policy)
    assert "TrainJob/digits in default" in out
    assert ": exempt (the policy exempts it)" in out
    assert "2 reviewed: 2 exempt" in out
    _, out, _ = run("review", write(tmp_path, "torch.yaml", TORCH), "--policy", policy)
    assert "assumed" not in out
    _, out, _ = run("review", bad, "--policy", policy, "-o", "junit")
    assert out.count('<skipped message="exempt: the policy exempts it"/>') == 2


# --- the runtimes that Trainer ships


@pytest.mark.parametrize("release", ["2.0", "2.1", "2.2", "2.3"])
def test_a_shipped_runtime_is_assumed_and_said(run: Run, tmp_path: Path, release: str) -> None:
    file = write(tmp_path, "job.yaml", TORCH)
    code, out, _ = run("review", file, "--trainer", release)
    assert code == 0
    assert f"  assumed: torch-distributed as shipped with {release}\n" in out
    (about,) = [line for line in out.splitlines() if "whoever administers" in line]
    assert "no-restart-budget" in about
    assert "[no-restart-budget]" not in out
    _, answer = document(run, file, "--trainer", release)
    assert (job(answer)["judged"], job(answer)["facts"]["nodes"]) == (True, 1)
    assert "no-restart-budget" in rules(answer)


def test_what_is_given_wins_over_what_is_shipped(run: Run, tmp_path: Path) -> None:
    own = RUNTIME.replace("TrainingRuntime", "ClusterTrainingRuntime").replace("name: plain", "name: torch-distributed")
    _, out, _ = run("review", write(tmp_path, "job.yaml", f"{CLAIM}---\n{own}---\n{TORCH}"))
    assert "assumed" not in out


@pytest.mark.parametrize("name", ["../2.3/torch-distributed", "torch_distributed", "mpi-distributed"])
def test_no_other_name_is_assumed(run: Run, tmp_path: Path, name: str) -> None:
    _, answer = document(run, write(tmp_path, "job.yaml", TORCH.replace("torch-distributed", name)))
    assert job(answer)["judged"] is False


def test_pods_of_a_shipped_runtime(run: Run, tmp_path: Path) -> None:
    code, out, err = run("pods", write(tmp_path, "job.yaml", TORCH))
    assert (code, err) == (0, "note: TrainJob/digits: assumed: torch-distributed as shipped with 2.3, taken for 2.4\n")
    assert "pytorch/pytorch" in out


# --- with or without the guard


def test_without_the_guard_nothing_is_filled_in(run: Run, tmp_path: Path) -> None:
    text = GOOD.replace("      failurePolicy:\n        maxRestarts: 3\n", "")
    file = write(tmp_path, "a.yaml", text)
    _, out, _ = run("review", file)
    assert "judged as with the guard installed, which fills in the object above; without it: --without-guard\n" in out
    _, answer = document(run, file)
    assert verdicts(answer) == {"TrainingRuntime/plain": "allow", "TrainJob/digits": "allow"}
    _, out, _ = run("review", file, "--without-guard")
    assert "judged without the guard: the objects as they are (--without-guard)\n" in out
    _, answer = document(run, file, "--without-guard")
    assert verdicts(answer) == {"TrainingRuntime/plain": "warn", "TrainJob/digits": "warn"}
    assert all(result["patch"] == [] for result in answer["results"])


# --- outputs


def test_outputs_go_to_files_beside_what_is_printed(run: Run, tmp_path: Path) -> None:
    bad = write(tmp_path, "bad.yaml", BAD)
    files = {name: tmp_path / f"out.{name}" for name in ("json", "junit", "sarif", "line")}
    flags = [part for name, file in files.items() for part in ("-o", f"{name}={file}")]
    code, out, _ = run("review", bad, *flags)
    assert code == 1
    assert out == run("review", bad)[1]
    for name, file in files.items():
        assert file.read_text() == run("review", bad, "-o", name)[1]
    code, out, _ = run("review", bad, *flags, "-o", "json")
    assert out == files["json"].read_text()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("-o", "json", "-o", "text"), "two formats for standard output"),
        (("-o", "xml"), '"xml" is no format: text, json, junit, sarif, line'),
        (("-o", "json="), "names no file"),
        (("-o", "json=/nowhere/at/all"), "cannot be written"),
        (("-o", "json=a", "-o", "text=a"), "two formats go into one file"),
    ],
)
def test_outputs_that_cannot_be(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run("review", write(tmp_path, "bad.yaml", BAD), *flags)
    assert code == 2
    assert words in err


def test_line_output_is_read_by_editors(run: Run, tmp_path: Path) -> None:
    bad = write(tmp_path, "bad.yaml", BAD)
    _, out, _ = run("review", bad, "-o", "line")
    (line,) = [one for one in out.splitlines() if "[ephemeral-checkpoint]" in one]
    number = 1 + BAD.splitlines().index("                - name: ckpt")
    assert line.startswith(f"{bad}:{number}: error: TrainingRuntime/plain in default: spec.template.spec.replicated")
    assert line.endswith("[ephemeral-checkpoint] (and of TrainJob/digits in default)")
    _, out, _ = run("review", write(tmp_path, "broken.yaml", "a: b: c\n"), "-o", "line")
    assert out.startswith(f"{tmp_path / 'broken.yaml'}:1: error: not YAML")


def test_a_line_weighs_what_the_heaviest_object_makes_of_it(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "all.yaml", f"{RUNTIME}---\n{JOB}---\n{CLAIM.replace('train-ckpt', 'another')}")
    assert rules(document(run, file)[1]) == {"missing-claim"}
    _, out, _ = run("review", file, "-o", "line")
    (line,) = [one for one in out.splitlines() if "[missing-claim]" in one]
    # A runtime's own claim only warns; the TrainJob is denied for it.
    assert ": error: TrainingRuntime/plain in default: " in line
    assert line.endswith("[missing-claim] (and of TrainJob/digits in default)")


def test_files_on_both_sides_of_a_flag_and_behind_f(run: Run, tmp_path: Path) -> None:
    claim, runtime, file = (
        write(tmp_path, f"{name}.yaml", text) for name, text in (("c", CLAIM), ("r", RUNTIME), ("j", JOB))
    )
    code, answer = document(run, runtime, "--trainer", "2.3", file, "-f", claim)
    assert (code, len(answer["results"]), rules(answer)) == (0, 2, set())
    code, _, err = run("review", "--state", claim)
    assert (code, err) == (2, "error: FILE is missing: name a file, a folder, or - for standard input; see --help\n")


# --- folders


def folder(tmp_path: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return str(tmp_path)


PARTIAL = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: digits}\nspec: {suspend: true}\n"


@pytest.mark.parametrize(
    ("files", "skipped"),
    [
        pytest.param({"overlay/patch.yaml": PARTIAL}, 1, id="part of an object"),
        pytest.param({"patch.yaml": PARTIAL.replace("name: digits", "labels: {a: b}")}, 1, id="no name"),
        pytest.param(
            {
                "over/kustomization.yaml": "patches: [{path: p.yaml}]\n",
                "over/p.yaml": JOB.replace("Nodes: 1", "Nodes: 2"),
            },
            1,
            id="named by a kustomization",
        ),
        pytest.param(
            {"o/kustomization.yml": "patchesStrategicMerge: [p.yaml]\n", "o/p.yaml": CLAIM.replace("Many", "Once")},
            1,
            id="a claim, by the older field",
        ),
        pytest.param({"p.yaml": "- {op: add, path: /spec/kind, value: TrainJob}\n"}, 1, id="RFC 6902"),
        pytest.param({"gone.yaml": JOB + "$patch: delete\n"}, 1, id="directive"),
        pytest.param(
            {"chart/Chart.yaml": "name: c\n", "chart/templates/job.yaml": JOB.replace("digits", '"{{ .Values.n }}"')},
            1,
            id="Helm template that is YAML",
        ),
        pytest.param({"t/job.yaml": JOB.replace("digits", "{{ .Values.name }}")}, 1, id="Helm template that is none"),
        pytest.param({"copy.yaml": JOB}, 0, id="one object in two files"),
    ],
)
def test_what_a_folder_holds_beside_objects_is_passed_over_and_counted(
    run: Run, tmp_path: Path, files: dict[str, str], skipped: int
) -> None:
    path = folder(tmp_path, {"base/all.yaml": GOOD, **files})
    code, out, err = run("review", path)
    assert code == 0, err
    assert "error" not in err
    assert err.startswith("note: ")
    assert "nothing is read here" not in err
    assert out.splitlines()[-1] == "2 reviewed: 2 allowed" + (f", {skipped} skipped" if skipped else "")


def test_two_jobs_of_one_name_in_two_files_are_both_reviewed(run: Run, tmp_path: Path) -> None:
    path = folder(tmp_path, {"all.yaml": GOOD, "b.yaml": JOB.replace("numNodes: 1", "numNodes: 2")})
    code, answer = document(run, path)
    assert (code, [one["facts"]["nodes"] for one in answer["results"]]) == (0, [1, 1, 2])
    code, _, err = run("review", write(tmp_path, "all.yaml", f"{GOOD}---\n{JOB.replace('Nodes: 1', 'Nodes: 2')}"))
    assert "stands twice" in err


def test_each_folder_has_its_own_objects(run: Run, tmp_path: Path) -> None:
    """dev and prod hold the same names; each run is judged by its neighbours."""
    dev, prod = BAD, GOOD.replace("maxRestarts: 3", "maxRestarts: 99")
    rest = prod.rpartition("---\n")[0]
    path = folder(
        tmp_path, {"dev/all.yaml": dev, "prod/a.yaml": rest, "prod/j.yaml": JOB.replace("Nodes: 1", "Nodes: 2")}
    )
    code, answer = document(run, path)
    assert answer["errors"] == []
    found = {
        (Path(one["file"]).parent.name, one["kind"]): (one["verdict"], sorted(f["rule"] for f in one["findings"]))
        for one in answer["results"]
    }
    assert code == 1
    assert found["dev", "TrainingRuntime"] == ("deny", ["ephemeral-checkpoint"])
    assert found["prod", "TrainingRuntime"] == ("warn", ["unbounded-restarts"])
    assert found["dev", "TrainJob"] == ("deny", ["ephemeral-checkpoint"])
    assert found["prod", "TrainJob"] == ("warn", ["unbounded-restarts"])
    _, out, err = run("review", path, "-o", "line")
    assert f"note: {path}/prod/a.yaml: TrainingRuntime" in err
    assert "each counts in its own folder" in err
    assert f"{path}/prod/a.yaml:" in out
    assert f"{path}/dev/all.yaml:" in out


def test_what_differs_within_a_folder_is_an_error(run: Run, tmp_path: Path) -> None:
    path = folder(tmp_path, {"a.yaml": GOOD, "b.yaml": RUNTIME.replace("maxRestarts: 3", "maxRestarts: 99")})
    code, _, err = run("review", path)
    assert code == 2
    assert 'TrainingRuntime "plain" in namespace "default" stands twice' in err


def test_a_patch_that_is_named_says_what_it_is(run: Run, tmp_path: Path) -> None:
    code, answer = document(run, write(tmp_path, "p.yaml", PARTIAL.replace("name: digits", "labels: {a: b}")))
    assert code == 2
    assert answer["results"] == []
    assert [(one["field"], one["line"]) for one in answer["errors"]] == [("metadata.name", 3)]
    assert "kubectl kustomize" in answer["errors"][0]["message"]


@pytest.mark.parametrize("glob", ["over", "over/", "over/*", "*/p.yaml", "p.yaml", "**/p.yaml", "*.bad/../p*", "p*"])
def test_exclude(run: Run, tmp_path: Path, glob: str) -> None:
    path = folder(tmp_path, {"all.yaml": GOOD, "over/p.yaml": "kind: [TrainJob"})
    assert run("review", path)[0] == 2
    code, out, err = run("review", path, "--exclude", glob)
    if ".." in glob:
        assert code == 2
        assert f'note: --exclude: "{glob}" leaves nothing out\n' in err
        return
    assert (code, err) == (0, "note: --exclude: 1 file left out\n")
    assert out.endswith("2 reviewed: 2 allowed, 1 skipped\n")


# --- told once


def test_a_runtimes_fault_is_told_at_the_runtime_with_the_jobs_that_show_it(run: Run, tmp_path: Path) -> None:
    jobs = [BAD] + [JOB.replace("digits", name) for name in ("a", "b", "c", "d")]
    file = write(tmp_path, "all.yaml", "---\n".join(jobs))
    code, out, _ = run("review", file)
    assert code == 1
    assert out.count("[ephemeral-checkpoint]") == 1
    assert "    of TrainJob/digits in default, TrainJob/a in default, TrainJob/b in default and 2 more too\n" in out
    assert out.count("  as told at TrainingRuntime/plain in default: ephemeral-checkpoint (denied)\n") == 5
    _, answer = document(run, file)
    assert set(verdicts(answer).values()) == {"deny"}
    assert all(result["findings"] for result in answer["results"]), "a program sees which objects are affected"
    results = json.loads(run("review", file, "-o", "sarif")[1])["runs"][0]["results"]
    assert [one["ruleId"] for one in results].count("ephemeral-checkpoint") == 1
    suite = ElementTree.fromstring(run("review", file, "-o", "junit")[1].encode())
    assert (suite.get("failures"), len(list(suite.iter("failure")))) == ("6", 6)


def test_a_stored_runtimes_fault_is_told_at_the_first_job(run: Run, tmp_path: Path) -> None:
    state = write(tmp_path, "state.yaml", CLAIM + "---\n" + RUNTIME.replace("maxRestarts: 3", "maxRestarts: 99"))
    file = write(tmp_path, "jobs.yaml", "---\n".join(JOB.replace("digits", name) for name in "abc"))
    _, out, _ = run("review", file, "--state", state)
    assert out.count("[unbounded-restarts]") == 1
    assert "    of TrainJob/b in default, TrainJob/c in default too\n" in out
    assert (
        out.count("  as told at TrainJob/a in default: shared-directory (warning), unbounded-restarts (warning)\n") == 2
    )
    assert out.endswith("3 reviewed: 3 allowed (2 warnings)\n")


# --- nothing of an object, a file name or a cluster reaches a reader as anything but text

EVIL = "x\u202e\x9b\x7f\x1b[31m"


def test_no_report_holds_what_a_terminal_or_a_log_obeys(run: Run, tmp_path: Path) -> None:
    text = json.loads(json.dumps(BAD))
    quoted = json.dumps(f"ckpt{EVIL}\n::set-output name=a::b\n##[group]z")
    text = text.replace("- name: ckpt\n", f"- name: {quoted}\n").replace("/mnt/ckpt/run", "/mnt/ckpt/\\u202erun")
    text = text.replace("value: /mnt/ckpt/\\u202erun", 'value: "/mnt/ckpt/\\u202erun"')
    program = (
        "    command: [bash, -c]\n    args:\n    - |\n      set -e\n      ::set-output name=a::b\n      python t.py\n"
    )
    file = write(tmp_path, f"a{EVIL}.yaml", text + program)
    assert run("review", file)[0] == 1
    for output in ("text", "json", "junit", "sarif", "line"):
        _, out, err = run("review", file, "-o", output)
        for shown in (out, err):
            assert all(letter.isprintable() or letter == "\n" for letter in shown), output
            assert "##[" not in shown, output
            assert not [line for line in shown.splitlines() if line.lstrip().startswith("::")], output
        if output in ("text", "junit"):
            assert "\\u202e" in out
    _, out, err = run("pods", file)
    assert all(letter.isprintable() or letter == "\n" for letter in out + err)


def test_a_name_with_a_line_break_makes_no_line_of_a_fix(run: Run, tmp_path: Path) -> None:
    text = GOOD.replace("claimName: train-ckpt", 'claimName: "train\\nrm -rf /"')
    code, answer = document(run, write(tmp_path, "a.yaml", text))
    (found,) = [one for one in job(answer)["findings"] if one["rule"] == "missing-claim"]
    assert code == 1
    assert not [line for line in found["fix"].splitlines() if line.startswith("rm ")]


@pytest.mark.parametrize("field", ["name", "namespace"])
def test_a_name_that_no_object_may_have_is_an_error(run: Run, tmp_path: Path, field: str) -> None:
    text = GOOD.replace(
        "kind: TrainJob\nmetadata:\n  name: digits", f'kind: TrainJob\nmetadata:\n  name: d\n  {field}: "a\\u202e"'
    )
    if field == "name":
        text = text.replace("  name: d\n", "")
    code, answer = document(run, write(tmp_path, "a.yaml", text))
    assert code == 2
    assert [one["field"] for one in answer["errors"]] == [f"metadata.{field}"]
    assert "\\u202e" in answer["errors"][0]["message"]
