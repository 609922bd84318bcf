"""A program that writes beside the declared directory: variables set before it, flags, relative paths, two tiers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.files import write
from tests.cli.mounted import job
from tests.cli.test_review import Run, document, rules, run

__all__ = ["run"]

PROGRAM = """\
import glob
import os

import torch

net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
folder = os.environ["CKPT_DIR"]
found = sorted(glob.glob(folder + "/*.pt"), key=os.path.getmtime)
if found:
    state = torch.load(found[-1])
    net.load_state_dict(state["model"])
    opt.load_state_dict(state["optimizer"])
for step in range(100000):
    net(torch.ones(4)).sum().backward()
    opt.step()
    if step % 500 == 0:
        state = {"model": net.state_dict(), "optimizer": opt.state_dict()}
        torch.save(state, os.path.join(folder, f"step_{step}.pt"))
"""
TIERS = """\
import glob
import os

import torch

net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
start = 0
kept = sorted(glob.glob({durable} + "/step_*.pt"), key=os.path.getmtime)
newest = {fast} + "/latest.pt" if os.path.exists({fast} + "/latest.pt") else kept[-1] if kept else None
if newest:
    state = torch.load(newest)
    net.load_state_dict(state["model"])
    opt.load_state_dict(state["optimizer"])
    start = state["step"] + 1
for step in range(start, 100000):
    net(torch.ones(4)).sum().backward()
    opt.step()
    state = {{"step": step, "model": net.state_dict(), "optimizer": opt.state_dict()}}
    if step % 100 == 0:
        torch.save(state, {fast} + "/latest.pt")
    if step % 1000 == 0:
        torch.save(state, f"{{{durable}}}/step_{{step}}.pt"){more}
"""
FILE = f"cat > train.py <<'PY'\n{PROGRAM}PY\n"
OTHER = {"directory-not-used", "ephemeral-checkpoint"}
FAST: dict[str, Any] = {
    "volumes": [{"name": "fast", "emptyDir": {}}],
    "mounts": [{"name": "fast", "mountPath": "/fast"}],
}


def found(run: Run, folder: Path, text: str, *flags: str) -> set[str]:
    _, answer = document(run, write(folder, "job.yaml", text), *flags)
    assert answer["errors"] == []
    return rules(answer)


@pytest.mark.parametrize(
    "start",
    [
        "export CKPT_DIR=/tmp/run\nexec python train.py\n",
        "export CKPT_DIR\nCKPT_DIR=/tmp/run\nexec python train.py\n",
        "CKPT_DIR=/tmp/run exec python train.py\n",
        "exec env CKPT_DIR=/tmp/run python train.py\n",
        "exec env -u HOME CKPT_DIR=/tmp/run nice python train.py\n",
        # What only looks at the declared directory, or makes it, uses it for nothing.
        'mkdir -p "$CKPT_DIR"\necho "to $CKPT_DIR"\nls /mnt/ckpt/run\nexec env CKPT_DIR=/tmp/run python train.py\n',
    ],
)
def test_a_variable_that_is_set_before_the_program_counts(run: Run, tmp_path: Path, start: str) -> None:
    assert found(run, tmp_path, job(["bash", "-c", FILE + start])) >= OTHER


@pytest.mark.parametrize(
    "start",
    [
        "exec python train.py\n",
        'export CKPT_DIR="$CKPT_DIR/more"\nexec python train.py\n',
        "(export CKPT_DIR=/mnt/ckpt/run)\nexec python train.py\n",
        "exec env OTHER=/tmp/run python train.py\n",
        "env CKPT_DIR=/tmp/run python train.py\ncp -r /tmp/run/. $CKPT_DIR/\n",
    ],
)
def test_and_what_leads_to_the_declared_directory_draws_nothing(run: Run, tmp_path: Path, start: str) -> None:
    assert not found(run, tmp_path, job(["bash", "-c", FILE + start])) & OTHER


@pytest.mark.parametrize(
    "command",
    [
        ["torchrun", "train.py", "--output_dir", "/fast/run"],
        ["torchrun", "train.py", "--output_dir=/fast"],
        ["bash", "-c", 'echo "$CKPT_DIR"\nexec torchrun train.py --output-dir /fast/run'],
        ["bash", "-c", "mkdir -p /mnt/ckpt/run\nexec python train.py --save_dir /fast/run"],
    ],
)
def test_a_flag_beside_a_variable_that_nobody_reads(run: Run, tmp_path: Path, command: list[str]) -> None:
    assert found(run, tmp_path, job(command, **FAST)) >= OTHER
    both = {"CKPT_DIR": "/mnt/ckpt/run", "CKPT_FAST_DIR": "/fast"}
    assert found(run, tmp_path, job(command, variables=both, **FAST)) >= OTHER


@pytest.mark.parametrize(
    "command",
    [
        ["torchrun", "train.py", "--output_dir", "$(CKPT_DIR)"],
        ["torchrun", "train.py", "--output_dir", "/mnt/ckpt/other"],
        ["bash", "-c", "exec torchrun train.py --output_dir $CKPT_DIR/a"],
        ["bash", "-c", "exec torchrun train.py --output_dir $OUT"],
        ["bash", "-c", "torchrun train.py --output_dir /fast/run\nrsync -a /fast/run/ $CKPT_DIR/"],
        ["torchrun", "train.py", "--logging_dir", "/fast/run"],
    ],
)
def test_and_a_flag_that_leads_there_or_may(run: Run, tmp_path: Path, command: list[str]) -> None:
    assert not found(run, tmp_path, job(command, **FAST)) & OTHER


@pytest.mark.parametrize(
    ("fast", "durable", "variables"),
    [
        ('"/ckpts/fast"', '"/ckpts/durable"', {"CKPT_DIR": "/ckpts/durable", "CKPT_FAST_DIR": "/ckpts/fast"}),
        (
            'os.environ["CKPT_FAST_DIR"]',
            'os.environ["CKPT_DIR"]',
            {"CKPT_DIR": "/ckpts/durable", "CKPT_FAST_DIR": "/ckpts/fast"},
        ),
        ('"/ckpts/fast"', '"/ckpts/durable"', {}),
    ],
)
def test_a_durable_tier_that_nothing_limits(
    run: Run, tmp_path: Path, fast: str, durable: str, variables: dict[str, str]
) -> None:
    where: dict[str, Any] = {
        "volumes": FAST["volumes"],
        "mounts": [{"name": "fast", "mountPath": "/ckpts/fast"}, {"name": "ckpt", "mountPath": "/ckpts/durable"}],
        "variables": variables,
    }

    def with_tail(more: str) -> set[str]:
        text = TIERS.format(fast=fast, durable=durable, more=more).replace("{'", "{'").replace('{"/', "{'/")
        text = text.replace('durable"}', "durable'}").replace('["CKPT_DIR"]}', "['CKPT_DIR']}")
        compile(text, "train.py", "exec")
        return found(run, tmp_path, job(["bash", "-c", f"exec python - <<'PY'\n{text}PY"], **where))

    assert "unlimited-checkpoints" in with_tail("")
    limited = f"\n        for old in sorted(glob.glob({durable} + '/*'))[:-3]:\n            os.remove(old)"
    assert "unlimited-checkpoints" not in with_tail(limited)


HF = """\
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint
from task import data, net
args = TrainingArguments(output_dir="./results", save_steps=500, save_total_limit=2)
Trainer(model=net, args=args, train_dataset=data).train(resume_from_checkpoint=get_last_checkpoint("./results"))
"""


def heredoc(text: str, before: str = "") -> list[str]:
    return ["bash", "-c", f"{before}exec python - <<'PY'\n{text}PY"]


def test_a_relative_directory_is_judged_by_the_storage_rules(run: Run, tmp_path: Path) -> None:
    none: dict[str, Any] = {"variables": {}}
    # Under workingDir, after cd, after os.chdir: the container's own file system, or an emptyDir.
    for text in (
        job(heredoc(HF), working_dir="/workspace", **none),
        job(heredoc(HF, "cd /workspace\n"), **none),
        job(heredoc(HF, "cd /fast\n"), **none, **FAST),
        job(heredoc(f"import os\nos.chdir('/fast')\n{HF}"), **none, **FAST),
        job(["torchrun", "train.py", "--output_dir", "out"], working_dir="/fast", **none, **FAST),
        job(["bash", "-c", "cd /fast/a && torchrun train.py --output_dir ../out"], **none, **FAST),
    ):
        assert "ephemeral-checkpoint" in found(run, tmp_path, text, "--without-guard"), text
    for text in (
        job(heredoc(HF), working_dir="/mnt/ckpt", **none),
        job(heredoc(HF, "cd /mnt/ckpt/run\n"), **none),
        job(heredoc(f"import os\nos.chdir('/mnt/ckpt')\n{HF}"), **none),
        # Where the image starts its programs nobody knows here: it may be on the claim.
        job(heredoc(HF), **none),
        job(heredoc(HF, "cd $SOMEWHERE\n"), **none),
    ):
        assert "ephemeral-checkpoint" not in found(run, tmp_path, text, "--without-guard"), text


def test_a_relative_directory_beside_the_declared_one(run: Run, tmp_path: Path) -> None:
    assert found(run, tmp_path, job(heredoc(HF), working_dir="/workspace")) >= OTHER
    assert found(run, tmp_path, job(heredoc(HF, "cd /fast\n"), **FAST)) >= OTHER
    assert not found(run, tmp_path, job(heredoc(HF, "cd $CKPT_DIR\n"))) & OTHER
    assert not found(run, tmp_path, job(heredoc(HF))) & OTHER


def test_without_any_volume_it_is_in_the_container_wherever_it_begins(run: Run, tmp_path: Path) -> None:
    text = job(heredoc(HF), variables={})
    bare = text.replace('"volumeMounts": [{"name": "ckpt", "mountPath": "/mnt/ckpt"}]', '"volumeMounts": []')
    assert bare != text
    _, answer = document(run, write(tmp_path, "job.yaml", bare), "--without-guard")
    result = next(one for one in answer["results"] if one["kind"] == "TrainJob")
    assert "ephemeral-checkpoint" in rules(answer)
    assert result["facts"]["directory"] == "<workingDir of the image>/results"
    fix = next(one["fix"] for one in result["findings"] if one["rule"] == "ephemeral-checkpoint")
    assert "mountPath: /mnt/ckpt" in fix
