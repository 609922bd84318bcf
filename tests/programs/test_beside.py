"""Where a directory is declared, what is saved beside it is judged as well; a first start is not refused."""

from __future__ import annotations

import pytest

from tests.programs.reading import LAUNCH, python, remarks, shell
from webhook.model.script import Launch

ENV = {"CKPT_DIR": "/mnt/ckpt/run"}
TRAINER = """
from transformers import Trainer, TrainingArguments
args = TrainingArguments(output_dir="{out}", save_steps=500)
Trainer(model=net, args=args, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("out", "launch", "fires"),
    [
        ("./results", LAUNCH, True),
        ("/data/results", LAUNCH, False),
        ("/tmp/results", LAUNCH, False),
        ("s3://bucket/results", LAUNCH, False),
        ("./results", Launch(), False),
    ],
)
def test_what_is_saved_beside_the_declared_directory(out: str, launch: Launch, fires: bool) -> None:
    assert ("never-resumed" in remarks(python(TRAINER.format(out=out), ENV, launch))) is fires


FIT = """
import os
import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
from task import Net, data
out = os.environ["CKPT_DIR"]
trainer = L.Trainer(max_steps=9000, callbacks=[ModelCheckpoint(dirpath=out, save_last=True, save_top_k=2)])
last = os.path.join(out, "last.ckpt")
trainer.fit(Net(), data, ckpt_path={path})
"""


@pytest.mark.parametrize(
    ("path", "fires"),
    [
        ("last", True),
        ("last if os.path.exists(last) else None", False),
        ('"last"', False),
        ('"/pretrained/base.ckpt"', False),
    ],
)
def test_a_file_of_its_own_is_not_there_at_the_first_start(path: str, fires: bool) -> None:
    assert ("resume-without-checkpoint" in remarks(python(FIT.format(path=path), ENV))) is fires


def test_a_version_is_another_at_every_start() -> None:
    text = "from lightning.pytorch.cli import LightningCLI\nfrom task import Net\ncli = LightningCLI(Net, run=False)\n"
    fit = 'cli.trainer.fit(model=cli.model, ckpt_path="/mnt/ckpt/run/version_{}/last.ckpt")\n'
    assert "fixed-resume-path" in remarks(python(text + fit.format(26)))
    assert "fixed-resume-path" not in remarks(python(text + fit.format("x")))


NEWEST = 'last=$(ls -td "$CKPT_DIR"/checkpoint-* 2>/dev/null | head -1)\n'


@pytest.mark.parametrize(
    ("text", "fires"),
    [
        (NEWEST + 'if [ -z "$last" ]; then\n  echo none\n  exit 1\nfi\nexec python train.py --resume "$last"', True),
        (NEWEST + 'if [ -z "$last" ]; then\n  echo none\n  exit 0\nfi\nexec python train.py --resume "$last"', False),
        (NEWEST + 'if [ -z "$last" ]; then\n  echo none\nfi\nexec python train.py', False),
        ('rows=$(ls /data)\nif [ -z "$rows" ]; then\n  exit 1\nfi\nexec python train.py', False),
        (NEWEST + 'if [ -z "$OTHER" ]; then\n  exit 1\nfi\nexec python train.py', False),
    ],
)
def test_a_shell_that_ends_the_first_start(text: str, fires: bool) -> None:
    assert ("resume-without-checkpoint" in remarks(shell(text, ENV))) is fires


NOTHING = """
import torch
from torch.utils.data import DataLoader
net = torch.nn.Linear(2, 1)
opt = torch.optim.Adam(net.parameters())
{extra}
for epoch in range(9):
    for batch in DataLoader(range(9)):
        net(batch).mean().backward()
        opt.step()
    {inside}
"""


@pytest.mark.parametrize(
    ("extra", "inside", "fires"),
    [
        ("", "print(epoch)", True),
        ("", "plt.savefig('a.png')", True),
        ("", "keep.checkpoint(net)", False),
        ("from engine import Trainer", "Trainer(net).write(epoch)", False),
        ("", "torch.save(net.state_dict(), '/mnt/ckpt/run/a.pt')", False),
    ],
)
def test_a_program_that_trains_and_saves_nothing(extra: str, inside: str, fires: bool) -> None:
    assert ("never-saved" in remarks(python(NOTHING.format(extra=extra, inside=inside), ENV))) is fires


FITTED = "import joblib\nfrom {top} import Model\nmodel = Model()\nmodel.{fit}\n{save}\n"


@pytest.mark.parametrize(
    ("top", "fit", "save", "fires"),
    [
        ("sklearn.svm", "fit(x, y)", "joblib.dump(model, '/mnt/ckpt/run/m')", True),
        ("stable_baselines3", "learn(9)", "model.save('m')", True),
        ("stable_baselines3", "learn(9, callback=keep)", "model.save('m')", False),
        ("elsewhere", "fit(x, y)", "joblib.dump(model, '/mnt/ckpt/run/m')", False),
        ("sklearn.svm", "fit(x, y)", "print(model)", False),
    ],
)
def test_an_estimator_that_is_saved_when_it_is_done(top: str, fit: str, save: str, fires: bool) -> None:
    found = remarks(python(FITTED.format(top=top, fit=fit, save=save), ENV))
    assert ("never-saved" in found) is fires


ORBAX = """
import orbax.checkpoint as ocp
options = ocp.CheckpointManagerOptions(preservation_policy=ocp.checkpoint_managers.{policy})
with ocp.CheckpointManager("/mnt/ckpt/run", options=options) as keeper:
    state = keeper.restore(keeper.latest_step())
    for n in range(9):
        keeper.save(n, args=ocp.args.StandardSave(state))
"""


@pytest.mark.parametrize(
    ("policy", "fires"),
    [("LatestN(1)", True), ("LatestN(n=1)", True), ("LatestN(3)", False), ("EveryNSteps(1)", False)],
)
def test_a_policy_that_keeps_one(policy: str, fires: bool) -> None:
    assert ("single-checkpoint-kept" in remarks(python(ORBAX.format(policy=policy), ENV))) is fires


PLAYED = """
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CheckpointCallback
model = PPO.load({path}, env=env)
model.learn(9, callback=CheckpointCallback(save_freq=9, save_path="/mnt/ckpt/run"))
"""


@pytest.mark.parametrize(
    ("path", "fires"),
    [('"/mnt/ckpt/run/rl_model_4000_steps"', True), ("newest()", False), ('"/mnt/ckpt/run/best_model"', False)],
)
def test_a_player_that_begins_at_one_checkpoint(path: str, fires: bool) -> None:
    assert ("fixed-resume-path" in remarks(python(PLAYED.format(path=path), ENV))) is fires
