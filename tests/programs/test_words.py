"""Words in names prove nothing, and a status or a signal counts only where it is passed on."""

from __future__ import annotations

import pytest

from tests.programs.reading import LAUNCH, remarks, shell
from webhook.programs.program import Script
from webhook.programs.reading import read_script

ENV = {"CKPT_DIR": "/mnt/ckpt/run"}
LOOP = """
import os, torch
{head}
net = torch.nn.Linear(2, 1)
opt = torch.optim.Adam(net.parameters())
for step, batch in enumerate({data}):
    loss = net(batch).mean()
    loss.backward()
    opt.step()
    if step % 100 == 0:
        torch.save({{"net": net.state_dict(), "opt": opt.state_dict()}}, f"{{os.environ['CKPT_DIR']}}/{{step:08d}}.pt")
"""


def heredoc(text: str, words: str = "") -> Script:
    return read_script(["bash", "-c"], [f"exec python - {words} <<'PY'\n{text}\nPY\n"], ENV, LAUNCH)


@pytest.mark.parametrize(
    ("head", "data"),
    [
        ("def prepare_dataloader(n):\n    return range(n)", "prepare_dataloader(9)"),
        ("from rows import TrainDataset", "TrainDataset(9)"),
        ("from rows import load_images", "load_images(9)"),
        ("def load_data(n):\n    return range(n)", "load_data(9)"),
    ],
)
def test_what_is_named_for_data_loads_no_checkpoint(head: str, data: str) -> None:
    assert "never-resumed" in remarks(heredoc(LOOP.format(head=head, data=data)))


@pytest.mark.parametrize(
    ("head", "data"),
    [
        ("from keep import load_model", "load_model(net)"),
        ("from keep import restore_data_and_state", "restore_data_and_state(net)"),
        ("from keep import CheckpointLoader", "CheckpointLoader(net)"),
        ("def resume_loader(n):\n    import keep\n    return keep.get(n)", "resume_loader(9)"),
    ],
)
def test_what_may_load_a_checkpoint_is_believed(head: str, data: str) -> None:
    assert "never-resumed" not in remarks(heredoc(LOOP.format(head=head, data=data)))


TRAINER = """
import os
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint
D = os.environ["CKPT_DIR"]
{extra}
args = TrainingArguments(output_dir=D, save_steps=500{more})
Trainer(model=net, args=args, train_dataset=rows).train(resume_from_checkpoint=get_last_checkpoint(D))
"""


@pytest.mark.parametrize("extra", ["rows = rows.remove_columns(cols)", "logger.remove()", "names.remove('a')"])
def test_what_removes_no_files_is_no_clean_up(extra: str) -> None:
    assert "unlimited-checkpoints" in remarks(heredoc(TRAINER.format(extra=extra, more="")))


@pytest.mark.parametrize(
    "extra",
    ["from keep import prune_checkpoints\nprune_checkpoints(D, 3)", "shutil.rmtree(D + '/old')", "fs.remove(D)"],
)
def test_what_removes_files_is(extra: str) -> None:
    assert "unlimited-checkpoints" not in remarks(heredoc(TRAINER.format(extra=extra, more="")))


@pytest.mark.parametrize("more", [", max_steps=20", ", save_strategy='epoch', num_train_epochs=2", ", max_steps=1500"])
def test_a_few_saves_fill_nothing_up(more: str) -> None:
    assert "unlimited-checkpoints" not in remarks(heredoc(TRAINER.format(extra="", more=more)))


def test_many_saves_do() -> None:
    assert "unlimited-checkpoints" in remarks(heredoc(TRAINER.format(extra="", more=", max_steps=9000")))


@pytest.mark.parametrize(
    ("command", "fires"),
    [
        ("deepspeed train.py --version v1", True),
        ("torchrun train.py --version", False),
        ("python prep/ultrainteract.py --push", False),
        ("python prep/nectar.py", False),
        ("python pretrain_gpt.py", True),
        ("python constrain.py", True),
    ],
)
def test_which_programs_train(command: str, fires: bool) -> None:
    found = remarks(shell(f"set +x\n{command}\necho done\n"))
    assert ("sigterm-not-forwarded" in found) is fires


@pytest.mark.parametrize(
    "after",
    [
        "if [[ $? -eq 124 ]]; then\n  touch again\nfi",
        "echo $?",
        'rc=$?\necho "ended with $rc"',
        "if [ $? -eq 0 ]; then\n  echo good\nelse\n  echo bad\nfi",
    ],
)
def test_a_status_that_is_asked_and_dropped_is_lost(after: str) -> None:
    script = read_script(["bash", "-c"], [f"python train.py\n{after}\n"], {}, LAUNCH)
    assert "exit-status-lost" in remarks(script)


@pytest.mark.parametrize(
    "after",
    [
        "exit $?",
        "rc=$?\necho $rc\nexit $rc",
        "if [ $? -ne 0 ]; then\n  exit 1\nfi",
        "status=$?\nif [ $status -ne 0 ]; then\n  exit $status\nfi",
        "set -e\necho done",
    ],
)
def test_a_status_that_decides_is_kept(after: str) -> None:
    script = read_script(["bash", "-c"], [f"python train.py\n{after}\n"], {}, LAUNCH)
    assert "exit-status-lost" not in remarks(script)


@pytest.mark.parametrize(
    ("trap", "fires"),
    [
        ("trap 'wait' TERM", True),
        ("stop() {\n  echo stopping\n  wait\n}\ntrap stop TERM", True),
        ("stop() {\n  kill -TERM $pid\n  wait $pid\n}\ntrap stop TERM", False),
        ("trap 'kill $pid' TERM", False),
    ],
)
def test_a_trap_that_only_waits_hands_nothing_on(trap: str, fires: bool) -> None:
    found = remarks(shell(f"{trap}\npython train.py &\npid=$!\nwait $pid\n"))
    assert ("sigterm-not-forwarded" in found) is fires


@pytest.mark.parametrize(
    ("text", "words", "fires"),
    [
        ('torchrun pretrain_gpt.py --save-interval 9 --save "$1" --train-iters 99', ("x", "/mnt/ckpt/run"), True),
        (
            'torchrun pretrain_gpt.py --save-interval 9 --save "$1" "$@"',
            ("x", "/mnt/ckpt/run", "--load", "/mnt/ckpt/run"),
            False,
        ),
        (
            'shift\ntorchrun pretrain_gpt.py --save-interval 9 --save "$1" --train-iters 99',
            ("x", "y", "/mnt/ckpt"),
            True,
        ),
        (
            "run() {\n  torchrun pretrain_gpt.py --save-interval 9 --save /mnt/ckpt $@\n}\nrun --load /mnt/ckpt",
            ("x",),
            False,
        ),
        ("D=${1:-/mnt/ckpt/run}\ntorchrun pretrain_gpt.py --save-interval 9 --save $D --train-iters 9", (), True),
    ],
)
def test_positional_arguments_of_the_shell(text: str, words: tuple[str, ...], fires: bool) -> None:
    found = remarks(read_script(["bash", "-c"], [text, *words], {}, LAUNCH))
    assert bool({"never-resumed", "resume-not-asked-for"} & set(found)) is fires


def test_exec_in_a_pipeline_does_not_take_the_shells_place() -> None:
    script = read_script(["bash", "-c"], ['exec "$@" | tee log', "x", "python", "train.py"], {}, LAUNCH)
    assert "sigterm-not-forwarded" in remarks(script)


FLAGS = "--output_dir /mnt/ckpt/run --save_strategy steps --save_steps 9 --per_device_train_batch_size 1 --bf16 True"


def test_the_trainers_flags_in_front_of_a_script_that_is_not_seen() -> None:
    assert "single-checkpoint-kept" in remarks(shell(f"exec deepspeed train_mem.py {FLAGS} --save_total_limit 1"))
    assert "single-checkpoint-kept" not in remarks(shell("exec deepspeed train_mem.py --save_total_limit 1"))
    assert "unlimited-checkpoints" not in remarks(shell(f"exec deepspeed train_mem.py {FLAGS}"))


OWN = """
import os
from dataclasses import dataclass, field
from transformers import HfArgumentParser, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint
@dataclass
class Own{base}:
    output_dir: str = field(default="out")
own = HfArgumentParser(Own).parse_args_into_dataclasses()[0]
args = TrainingArguments(output_dir=own.output_dir, save_steps=50)
Trainer(model=net, args=args).train(resume_from_checkpoint=get_last_checkpoint(own.output_dir))
"""


def test_a_fault_is_told_once_and_not_of_flags_that_the_parser_does_not_know() -> None:
    (remark,) = remarks(heredoc(OWN.format(base=""), "--output_dir /mnt/ckpt/run"))["unlimited-checkpoints"]
    assert "--" not in remark.fix


RESUME = """
import argparse, torch
p = argparse.ArgumentParser()
p.add_argument("--cache", action="store_true")
p.add_argument("{flag}", default="")
a = p.parse_args()
rows = torch.load("rows_cache.pt") if a.cache else make()
found = a.{name} != ""
if found:
    state = torch.load(a.{name})
    net.load_state_dict(state["net"])
    opt.load_state_dict(state["opt"])
for epoch in range(9):
    fit(net, opt, rows)
    torch.save({{"net": net.state_dict(), "opt": opt.state_dict()}}, f"/mnt/ckpt/run/{{epoch:03d}}.pt")
"""


@pytest.mark.parametrize("flag", ["--resume", "--from-checkpoint"])
def test_the_flag_that_resumes_the_run_is_named(flag: str) -> None:
    script = heredoc(RESUME.format(flag=flag, name=flag.strip("-").replace("-", "_")))
    (remark,) = remarks(script)["resume-not-asked-for"]
    assert f'"{flag}"' in remark.problem


def test_weights_and_numbers_under_any_keys_hold_no_optimizer() -> None:
    save = 'torch.save({{"NET": net.state_dict(), "DONE": {value}}}, f"/mnt/ckpt/run/{{step:08d}}.pt")'
    text = LOOP.format(head="", data="range(9)").rpartition("        torch.save")[0]
    assert "weights-only-checkpoint" in remarks(heredoc(f"{text}        {save.format(value='step + 1')}"))
    assert "weights-only-checkpoint" not in remarks(heredoc(f"{text}        {save.format(value='everything')}"))


def test_a_helper_of_elsewhere_that_is_given_the_optimizer_may_save_it() -> None:
    text = LOOP.format(head="from keeping import save", data="range(9)").rpartition("        torch.save")[0]
    best = f"{text}        torch.save(net.state_dict(), f'/mnt/ckpt/run/{{step:08d}}.pt')\n"
    assert "weights-only-checkpoint" in remarks(heredoc(best))
    assert "weights-only-checkpoint" not in remarks(heredoc(f"{best}        save(net=net, optim=opt)\n"))


COUNTED = """
import glob, torch
names = sorted(glob.glob("/mnt/ckpt/run/iter-*.pt"))
n = 0
if names:
    state = torch.load(names[-1])
while n < {last}:
    loss.backward()
    opt.step()
    n += 1
    if n % 5000 == 0:
        torch.save({{"net": net.state_dict(), "opt": opt.state_dict()}}, f"/mnt/ckpt/run/iter-{{n:06d}}.pt")
"""


@pytest.mark.parametrize(("last", "fires"), [("11_000_000", True), ("900_000", False)])
def test_padding_that_a_loop_outgrows(last: str, fires: bool) -> None:
    assert ("text-order-resume" in remarks(heredoc(COUNTED.format(last=last)))) is fires
