"""``ckptguard review train.py``: programs from files, without a cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.files import BAD, write
from tests.cli.test_review import Run, document, run

__all__ = ["run"]

LOOP = """\
import argparse
import os

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="out")
parser.add_argument("--resume")
args = parser.parse_args()
net = torch.nn.Linear(2, 2)
adam = torch.optim.AdamW(net.parameters())
if args.resume:
    net.load_state_dict(torch.load(args.resume))
for step in range(1000):
    net(torch.randn(2, 2)).sum().backward()
    adam.step()
    if step % 50 == 0:
        torch.save(
            net.state_dict(),
            os.path.join(args.out, f"step_{step:08d}.pt"),
        )
"""
CLEAN = """\
import os

import torch

out = "runs"
net = torch.nn.Linear(2, 2)
adam = torch.optim.AdamW(net.parameters())
names = sorted(name for name in os.listdir(out) if name.startswith("step_"))
if names:
    state = torch.load(os.path.join(out, names[-1]))
    net.load_state_dict(state["net"])
    adam.load_state_dict(state["adam"])
    for name in names[:-3]:
        os.remove(os.path.join(out, name))
start = state["step"] + 1 if names else 0
for step in range(start, 1000):
    net(torch.randn(2, 2)).sum().backward()
    adam.step()
    if step % 50 == 0:
        state = {"net": net.state_dict(), "adam": adam.state_dict(), "step": step}
        torch.save(state, os.path.join(out, "next.tmp"))
        os.replace(os.path.join(out, "next.tmp"), os.path.join(out, f"step_{step:08d}.pt"))
"""
MODULE = "import torch\n\n\ndef keep(net, path):\n    torch.save(net.state_dict(), path)\n"


HEAD = "apiVersion: checkpoint-guard.io/v1\nkind: Policy\n"


def found(run: Run, *arguments: str) -> dict[str, list[str]]:
    """Rule -> its places."""
    _, answer = document(run, *arguments)
    out: dict[str, list[str]] = {}
    for result in answer["results"]:
        for finding in result["findings"]:
            if finding["severity"] != "audit":
                out.setdefault(finding["rule"], []).append(finding["at"])
    return out


def test_a_file_is_a_program(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "train.py", LOOP)
    code, answer = document(run, file)
    assert code == 0
    (result,) = answer["results"]
    assert (result["kind"], result["name"], result["verdict"]) == ("Program", file, "warn")
    assert found(run, file)["weights-only-checkpoint"] == ["line 18"]
    assert run("review", file, "--fail-on", "warn")[0] == 1
    # Whether it is asked to resume depends on arguments that nobody has named.
    assert "resume-not-asked-for" not in found(run, file)
    assert "name them with --command" in run("review", file)[2]


def test_a_program_that_comes_back_is_clean(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "train.py", CLEAN)
    assert found(run, file) == {}
    _, out, err = run("review", file, "--fail-on", "warn")
    assert "1 reviewed: 1 allowed" in out
    assert "guard installed" not in out
    assert "--command" not in err


def test_the_exact_line_in_every_format(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "train.py", LOOP)
    lines = run("review", file, "-o", "line")[1].splitlines()
    assert any(line.startswith(f"{file}:18: warning: ") and "[weights-only-checkpoint]" in line for line in lines)
    sarif = json.loads(run("review", file, "-o", "sarif")[1])["runs"][0]["results"]
    (one,) = [result for result in sarif if result["ruleId"] == "weights-only-checkpoint"]
    place = one["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": 18}
    assert place["artifactLocation"]["uri"].endswith("train.py")
    assert "suppressions" not in one
    suite = ElementTree.fromstring(run("review", file, "-o", "junit")[1].encode())
    assert "weights-only-checkpoint" in (suite.findtext(".//system-out") or "")
    assert "train.py:18)" in run("review", file)[1]


def test_a_command_says_how_it_is_started(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, "train.py", LOOP)
    assert found(run, file, "--command", "python train.py --out /ckpt")["resume-not-asked-for"] == ["--command"]
    assert "resume-not-asked-for" not in found(run, file, "--command", "python train.py --resume /ckpt/a.pt")
    assert "unguarded-rank-write" not in found(run, file)
    assert "unguarded-rank-write" in found(run, file, "--command", "torchrun --nproc-per-node 4 train.py")
    assert "unguarded-rank-write" in found(run, file, "--nodes", "2")
    # Without FILE the command names it.
    monkeypatch.chdir(tmp_path)
    _, answer = document(run, "--command", "python train.py")
    assert [result["name"] for result in answer["results"]] == ["train.py"]


def test_a_command_that_starts_none_of_the_files(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "train.py", CLEAN)
    code, _, err = run("review", file, "--command", "python other.py")
    assert code == 2
    assert "--command: it starts no program of FILE: python other.py" in err


def test_the_directory_that_checkpoints_have_to_go_to(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "train.py", LOOP)
    command = ("--command", "python train.py --out /scratch/x")
    assert "directory-not-used" in found(run, file, *command, "--directory", "/ckpt")
    assert "directory-not-used" not in found(run, file, *command, "--directory", "/scratch")
    assert "directory-not-used" not in found(run, file, *command)
    _, answer = document(run, file, *command, "--directory", "/ckpt", "--nodes", "2")
    assert answer["results"][0]["facts"]["nodes"] == 2


def test_a_launch_script_and_what_it_starts(run: Run, tmp_path: Path) -> None:
    write(tmp_path, "train.py", LOOP)
    file = write(tmp_path, "run.sh", "#!/bin/bash\npython train.py --out /data/runs\necho done\n")
    seen = found(run, file)
    assert seen["exit-status-lost"] == ["line 2"]
    assert seen["weights-only-checkpoint"] == [f"Program/{tmp_path / 'train.py'} line 18"]
    lines = run("review", file, "-o", "line")[1]
    assert f"{tmp_path / 'train.py'}:18: warning" in lines
    quiet = write(tmp_path, "quiet.sh", "set -e\nexec python train.py --resume last.pt\n")
    assert not {"exit-status-lost", "sigterm-not-forwarded", "resume-not-asked-for"} & found(run, quiet).keys()


@pytest.mark.parametrize("where", ["../train.py", "{}/train.py", "train.txt"])
def test_only_below_its_own_folder_is_read(run: Run, tmp_path: Path, where: str) -> None:
    write(tmp_path, "train.py", LOOP)
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", "train.txt", LOOP)
    file = write(tmp_path / "in", "run.sh", f"exec python {where.format(tmp_path)}\n")
    assert "weights-only-checkpoint" not in found(run, file)


def test_a_folder_only_with_programs(run: Run, tmp_path: Path) -> None:
    write(tmp_path, "train.py", f"from keeping import keep\n{LOOP}")
    write(tmp_path, "keeping.py", MODULE)
    write(tmp_path, "rows.py", "print('rows')\n")
    write(tmp_path, "job.yaml", BAD)
    _, answer = document(run, str(tmp_path))
    assert "Program" not in {result["kind"] for result in answer["results"]}
    _, answer = document(run, str(tmp_path), "--programs")
    assert "TrainJob" in {result["kind"] for result in answer["results"]}
    named = [result["name"] for result in answer["results"] if result["kind"] == "Program"]
    assert named == [str(tmp_path / "train.py")]
    _, out, _ = run("review", str(tmp_path), "--programs", "--exclude", "train.py")
    assert "Program/" not in out


def test_a_folder_of_programs_alone(run: Run, tmp_path: Path) -> None:
    write(tmp_path, "train.py", LOOP)
    code, out, err = run("review", str(tmp_path), "--programs")
    assert code == 0
    assert "Program/" in out
    assert "nothing to review" not in err
    assert "no object" not in err
    (tmp_path / "train.py").write_text("print('rows')\n")
    code, _, err = run("review", str(tmp_path), "--programs")
    assert code == 2
    assert "no program here trains" in err


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "        torch.save(\n",
            "        torch.save(  # ckptguard: ignore[weights-only-checkpoint] fine-tuned in one go\n",
        ),
        (
            '{step:08d}.pt"),\n        )',
            '{step:08d}.pt"),\n        )  # ckptguard: ignore[weights-only-checkpoint] so wanted',
        ),
        (
            "        torch.save(\n",
            "        # ckptguard: ignore[weights-only-checkpoint, unlimited-checkpoints]: so wanted\n"
            "        torch.save(\n",
        ),
    ],
)
def test_a_finding_that_a_comment_ignores(run: Run, tmp_path: Path, before: str, after: str) -> None:
    text = LOOP.replace(before, after)
    assert text != LOOP
    file = write(tmp_path, "train.py", text)
    seen = found(run, file)
    assert "weights-only-checkpoint" not in seen
    assert ("unlimited-checkpoints" in seen) is ("unlimited" not in after)
    _, answer = document(run, file)
    told = answer["results"][0]["ignored"]
    assert told[0]["rule"] == "weights-only-checkpoint"
    assert told[0]["reason"] in ("fine-tuned in one go", "so wanted")
    assert "ignored: line " in run("review", file)[1]
    sarif = json.loads(run("review", file, "-o", "sarif")[1])["runs"][0]["results"]
    (one,) = [result for result in sarif if result["ruleId"] == "weights-only-checkpoint"]
    assert one["suppressions"] == [{"kind": "inSource", "justification": told[0]["reason"]}]


def test_a_comment_elsewhere_ignores_nothing(run: Run, tmp_path: Path) -> None:
    for text in (
        f"# ckptguard: ignore[weights-only-checkpoint] at the top\n{LOOP}",
        LOOP.replace("import torch\n", 'import torch\n\nhelp = "# ckptguard: ignore[weights-only-checkpoint]"\n'),
        LOOP.replace("torch.save(\n", "torch.save(  # ckptguard: ignore[never-saved] no\n"),
    ):
        assert "weights-only-checkpoint" in found(run, write(tmp_path, "train.py", text))


def test_a_finding_about_the_whole_command_is_ignored_at_the_top(run: Run, tmp_path: Path) -> None:
    text = f"#!/usr/bin/env python\n# ckptguard: ignore[resume-not-asked-for] the operator gives it\n{LOOP}"
    file = write(tmp_path, "train.py", text)
    assert "resume-not-asked-for" not in found(run, file, "--command", "python train.py")


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("ignore[weights-only-checkpoint]", "gives no reason"),
        ("ignore[weights-only-chekpoint] why", "no rule about programs; nearest: weights-only-checkpoint"),
        ("ignore[missing-claim] why", "no rule about programs"),
        ("ignore why", "names no rule"),
        ("ignore[] why", "names no rule"),
    ],
)
def test_a_comment_that_is_refused(run: Run, tmp_path: Path, comment: str, message: str) -> None:
    file = write(tmp_path, "train.py", LOOP.replace("torch.save(\n", f"torch.save(  # ckptguard: {comment}\n"))
    code, _, err = run("review", file)
    assert code == 2
    assert f"{file}:18: " in err
    assert message in err


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"a\0b", "binary"), (b"x = '\xff\xfe'", "not UTF-8"), (b"#" * (1024 * 1024 + 1), "longer than 1024 KiB")],
)
def test_a_file_that_cannot_be_read(run: Run, tmp_path: Path, data: bytes, message: str) -> None:
    file = tmp_path / "train.py"
    file.write_bytes(data)
    code, _, err = run("review", str(file))
    assert code == 2
    assert message in err


def test_a_file_that_is_not_there(run: Run, tmp_path: Path) -> None:
    code, _, err = run("review", str(tmp_path / "train.py"))
    assert code == 2
    assert "no such file" in err


def test_what_cannot_be_parsed_is_not_judged(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "train.py", "def f(:\n")
    code, answer = document(run, file)
    assert code == 0
    assert answer["results"][0]["judged"] is False
    assert run("review", file, "--fail-on", "not-judged")[0] == 1


def test_flags_about_programs_without_one(run: Run, tmp_path: Path) -> None:
    code, _, err = run("review", write(tmp_path, "job.yaml", BAD), "--nodes", "2")
    assert code == 2
    assert "--nodes is about program files" in err
    for wrong in ("0", "-1", "two", "1" * 9):
        assert run("review", "train.py", "--nodes", wrong)[0] == 2


def test_programs_and_objects_in_one_call(run: Run, tmp_path: Path) -> None:
    _, answer = document(run, write(tmp_path, "train.py", LOOP), write(tmp_path, "job.yaml", BAD))
    assert [result["kind"] for result in answer["results"]][-2:] == ["TrainJob", "Program"]


def test_severities_of_the_policy(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "train.py", LOOP)
    policy = write(
        tmp_path, "policy.yaml", f"{HEAD}rules: {{weights-only-checkpoint: deny, unlimited-checkpoints: 'off'}}\n"
    )
    code, answer = document(run, file, "--policy", policy)
    assert code == 1
    severities = {finding["rule"]: finding["severity"] for finding in answer["results"][0]["findings"]}
    assert severities["weights-only-checkpoint"] == "deny"
    assert "unlimited-checkpoints" not in severities


def test_nothing_of_a_text_acts_on_a_terminal(run: Run, tmp_path: Path) -> None:
    text = LOOP.replace('f"step_{step:08d}.pt"', 'f"a\x1b[2Jb_{step}.pt"')
    for output in ("text", "line", "json", "sarif", "junit"):
        _, out, err = run("review", write(tmp_path, "train.py", text), "-o", output)
        assert not re.search("\x1b", out + err)


@pytest.mark.parametrize("number", ["{step:08d}", "{step}"])
def test_the_name_that_counts_is_the_one_it_is_renamed_to(run: Run, tmp_path: Path, number: str) -> None:
    file = write(tmp_path, "train.py", CLEAN.replace("{step:08d}", number))
    assert ("text-order-resume" in found(run, file)) is (number == "{step}")
    folded = CLEAN.replace('os.path.join(out, "next.tmp")', "tmp").replace(
        "        torch.save(", '        tmp = "t"\n        torch.save('
    )
    file = write(tmp_path, "train.py", folded.replace("{step:08d}", number))
    assert ("text-order-resume" in found(run, file)) is (number == "{step}")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ('f"s3://runs/step_{step:08d}.pt"', True),
        ('f"hdfs://runs/step_{step:08d}.pt"', True),
        ('fsspec.open(f"s3://runs/step_{step:08d}.pt", "wb").open()', False),
        ('f"runs/step_{step:08d}.pt"', False),
    ],
)
def test_an_address_that_is_taken_for_a_path(run: Run, tmp_path: Path, path: str, told: bool) -> None:
    text = f"""\
import fsspec
import torch

net = torch.nn.Linear(2, 2)
adam = torch.optim.AdamW(net.parameters())
for step in range(1000):
    net(torch.randn(2, 2)).sum().backward()
    adam.step()
    if step % 50 == 0:
        torch.save({{"net": net.state_dict(), "adam": adam.state_dict()}}, {path})
"""
    assert ("ephemeral-checkpoint" in found(run, write(tmp_path, "train.py", text))) is told


def test_a_long_program_is_read(run: Run, tmp_path: Path) -> None:
    """In admission 32 KiB of a text are read; on one's own machine more."""
    long = LOOP + "".join(f"# {number:060d}\n" for number in range(1500))
    assert "weights-only-checkpoint" in found(run, write(tmp_path, "train.py", long))
    file = write(tmp_path, "train.py", LOOP + "# x\n" * 100_000)
    _, answer = document(run, file)
    assert answer["results"][0]["judged"] is False


def test_what_cannot_be_read_in_a_folder_is_passed_over_unless_it_trains(run: Run, tmp_path: Path) -> None:
    write(tmp_path, "train.py", CLEAN)
    write(tmp_path, "table.py", "def f(:\n")
    write(tmp_path, "other.py", "def f(:\n    loss.backward()\n")
    write(tmp_path, "train_test.py", LOOP)
    _, answer = document(run, str(tmp_path), "--programs")
    assert sorted(result["name"].rpartition("/")[2] for result in answer["results"]) == ["other.py", "train.py"]


def test_a_part_of_a_package_is_no_program(run: Run, tmp_path: Path) -> None:
    (tmp_path / "src" / "pack" / "inner").mkdir(parents=True)
    write(tmp_path / "src" / "pack" / "inner", "loop.py", LOOP)
    write(tmp_path, "train.py", f"from pack.inner.loop import step\n{LOOP}")
    _, answer = document(run, str(tmp_path), "--programs")
    assert [result["name"].rpartition("/")[2] for result in answer["results"]] == ["train.py"]


def test_a_folder_without_programs_still_has_its_objects(run: Run, tmp_path: Path) -> None:
    write(tmp_path, "rows.py", "print('rows')\n")
    code, _, err = run("review", str(tmp_path), "--programs")
    assert (code, err.count("nothing to review")) == (2, 1)
    write(tmp_path, "job.yaml", BAD)
    code, _, err = run("review", str(tmp_path), "--programs")
    assert code == 1
    assert "nothing to review" not in err


def test_what_a_program_imports_from_beside_it(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "keeping.py", MODULE)
    calls = LOOP.replace("import torch\n", "import torch\nfrom keeping import keep\n").replace("torch.save(", "keep(")
    calls = calls.replace("net.state_dict(),", "net,")
    file = write(tmp_path, "train.py", calls)
    assert found(run, file)["weights-only-checkpoint"] == [f"Program/{tmp_path / 'keeping.py'} line 5"]
    monkeypatch.chdir(tmp_path)
    assert found(run, "train.py")["weights-only-checkpoint"] == ["Program/keeping.py line 5"]
    assert "keeping.py:5: warning: " in run("review", "train.py", "-o", "line")[1]
    _, answer = document(run, "train.py")
    assert answer["results"][0]["facts"]["program"]["state"] == "read"
    (tmp_path / "keeping.py").write_text("def keep(net, path):\n    pass\n")
    assert "weights-only-checkpoint" not in found(run, "train.py")
