"""What a resume needs, in the frameworks' own calls: each fault fires, and the same program with the part is silent.

The texts stand for kinds; ``PIECE`` lines are taken out or put in, so that one difference decides.
"""

from __future__ import annotations

import pytest

from tests.programs.reading import python, remarks

STEP, RNG, SCHEDULE = "step-not-restored", "rng-not-restored", "scheduler-not-restored"
DATA, OPTIMIZER, WEIGHTS = "data-repeated", "optimizer-not-restored", "weights-only-checkpoint"

ACCELERATE = """\
import glob
import os
import torch
from accelerate import Accelerator
from task import data, net

out = os.environ["CKPT_DIR"]
accelerator = Accelerator()
adam = torch.optim.AdamW(net.parameters())
warm = torch.optim.lr_scheduler.LinearLR(adam)
loader = torch.utils.data.DataLoader(data)
net, adam, loader{prepared} = accelerator.prepare(net, adam, loader{prepared})
saved = sorted(glob.glob(os.path.join(out, "at_*")), key=lambda p: int(p.rsplit("_", 1)[1]))
first = 0
if saved:
    accelerator.load_state(saved[-1])
    {first}
for n in range({begin}, 9000):
    for batch in {batches}:
        accelerator.backward(net(batch).mean())
        adam.step()
        warm.step()
        {inner}
    {outer}
"""
SAVE = 'accelerator.save_state(os.path.join(out, f"at_{n}"))'
GOOD = {
    "prepared": ", warm",
    "first": 'first = int(saved[-1].rsplit("_", 1)[1]) + 1',
    "begin": "first",
    "batches": "loader",
    "inner": "pass",
    "outer": SAVE,
}


@pytest.mark.parametrize(
    ("rule", "change", "fires"),
    [
        (STEP, {}, False),
        (STEP, {"begin": "0", "first": "pass"}, True),
        # What it registered is its own counter.
        (
            STEP,
            {"begin": "0", "first": "pass", "outer": f"accelerator.register_for_checkpointing(count); {SAVE}"},
            False,
        ),
        (SCHEDULE, {}, False),
        (SCHEDULE, {"prepared": ""}, True),
        (SCHEDULE, {"prepared": "", "outer": f"accelerator.register_for_checkpointing(warm); {SAVE}"}, False),
        (DATA, {}, False),
        (DATA, {"inner": SAVE, "outer": "pass"}, True),
        (DATA, {"inner": SAVE, "outer": "pass", "batches": "accelerator.skip_first_batches(loader, 3)"}, False),
        # Accelerate sets the generators back by itself.
        (RNG, {"first": "torch.manual_seed(1)"}, False),
    ],
)
def test_accelerate(rule: str, change: dict[str, str], fires: bool) -> None:
    assert (rule in remarks(python(ACCELERATE.format(**{**GOOD, **change})))) is fires


DEEPSPEED = """\
import os
import deepspeed
import torch
from task import batches, config, net

out = os.environ["CKPT_DIR"]
{seed}
adam = torch.optim.AdamW(net.parameters())
warm = torch.optim.lr_scheduler.LinearLR(adam)
engine, adam, _, _ = deepspeed.initialize(model=net, optimizer=adam, config=config{given})
{load}
for n in range({begin}, 9000):
    engine.backward(engine(next(batches)))
    engine.step()
    warm.step()
    if n % 100 == 0:
        engine.save_checkpoint(out, tag=f"at_{{n}}"{state})
"""


@pytest.mark.parametrize(
    ("rule", "change", "fires"),
    [
        (STEP, {"load": "engine.load_checkpoint(out)", "begin": "0"}, True),
        (STEP, {"load": "path, _ = engine.load_checkpoint(out)", "begin": "0"}, True),
        (STEP, {"load": "_, kept = engine.load_checkpoint(out)", "begin": "0"}, False),
        (STEP, {"load": "engine.load_checkpoint(out)", "begin": "engine.global_steps"}, False),
        (STEP, {"load": 'engine.load_checkpoint("/models/pretrained")', "begin": "0"}, False),
        (SCHEDULE, {"load": "engine.load_checkpoint(out)"}, True),
        (SCHEDULE, {"load": "engine.load_checkpoint(out)", "given": ", lr_scheduler=warm"}, False),
        (RNG, {"load": "engine.load_checkpoint(out)", "seed": "torch.manual_seed(1)"}, True),
        (RNG, {"load": "engine.load_checkpoint(out)"}, False),
        (
            RNG,
            {
                "load": "engine.load_checkpoint(out)",
                "seed": "torch.manual_seed(1)",
                "state": ', client_state={"rng": torch.get_rng_state()}',
            },
            False,
        ),
    ],
)
def test_deepspeed(rule: str, change: dict[str, str], fires: bool) -> None:
    given = {"seed": "", "given": "", "begin": "0", "state": "", **change}
    assert (rule in remarks(python(DEEPSPEED.format(**given)))) is fires


FABRIC = """\
import os
import torch
from lightning.fabric import Fabric
from task import batches, net

path = os.path.join(os.environ["CKPT_DIR"], "last.ckpt")
{seed}
fabric = Fabric()
adam = torch.optim.AdamW(net.parameters())
warm = torch.optim.lr_scheduler.LinearLR(adam)
net, adam = fabric.setup(net, adam)
state = {{"net": net, "adam": adam{more}}}
first = 0
if os.path.exists(path):
    fabric.load(path, state)
    {first}
for n in range({begin}, 9000):
    fabric.backward(net(next(batches)).mean())
    adam.step()
    warm.step()
    if n % 100 == 0:
        fabric.save(path, state)
"""


@pytest.mark.parametrize(
    ("rule", "change", "fires"),
    [
        (STEP, {"begin": "0"}, True),
        (STEP, {"begin": "first", "first": 'first = state["n"] + 1', "more": ', "n": 0'}, False),
        (STEP, {"begin": "0", "first": 'print(state["step"])'}, False),
        (SCHEDULE, {}, True),
        (SCHEDULE, {"more": ', "warm": warm'}, False),
        (RNG, {"seed": "torch.manual_seed(1)"}, True),
        (RNG, {"seed": "torch.manual_seed(1)", "more": ', "rng": torch.get_rng_state()'}, False),
    ],
)
def test_fabric(rule: str, change: dict[str, str], fires: bool) -> None:
    given = {"seed": "", "more": "", "first": "pass", "begin": "first", **change}
    assert (rule in remarks(python(FABRIC.format(**given)))) is fires


DCP = """\
import os
import torch
import torch.distributed.checkpoint as dcp
from task import batches, net

last = os.path.join(os.environ["CKPT_DIR"], "last")
adam = torch.optim.AdamW(net.parameters())
first = 0
if os.path.exists(last):
    state = {{"net": net.state_dict(), "adam": adam.state_dict(), "n": 0}}
    dcp.load(state, checkpoint_id=last)
    net.load_state_dict(state["net"])
    adam.load_state_dict(state["adam"])
    {first}
for n in range({begin}, 9000):
    net(next(batches)).mean().backward()
    adam.step()
    if n % 100 == 0:
        dcp.save({{"net": net.state_dict(), "adam": adam.state_dict(), "n": n}}, checkpoint_id=last)
"""


@pytest.mark.parametrize(("first", "begin", "fires"), [("pass", "0", True), ('first = state["n"] + 1', "first", False)])
def test_dcp(first: str, begin: str, fires: bool) -> None:
    assert (STEP in remarks(python(DCP.format(first=first, begin=begin)))) is fires


ORBAX = """\
import os
import jax
import optax
import orbax.checkpoint as ocp
from task import net_of, train_step

key = jax.random.PRNGKey({seed})
params = net_of(key)
adam = optax.adam(1e-3)
opt_state = adam.init(params)
keeper = ocp.CheckpointManager(os.environ["CKPT_DIR"], options=ocp.CheckpointManagerOptions(max_to_keep=3))
first = 0
if keeper.latest_step() is not None:
    {load}
    {first}
for n in range({begin}, 9000):
    {draw}
    params, opt_state = train_step(params, opt_state, sub)
    keeper.save(n, args=ocp.args.StandardSave({saved}))
"""
WHOLE = '{"params": params, "opt_state": opt_state}'
BACK = 'back = keeper.restore(keeper.latest_step())\n    params = back["params"]'
BOTH = BACK + '\n    opt_state = back["opt_state"]'


@pytest.mark.parametrize(
    ("rule", "change", "fires"),
    [
        (STEP, {"first": "pass", "begin": "0"}, True),
        (STEP, {}, False),
        (RNG, {}, True),
        (RNG, {"draw": "sub = jax.random.fold_in(key, n)"}, False),
        (RNG, {"saved": '{"params": params, "opt_state": opt_state, "key": key}'}, False),
        # The key draws the weights, and nothing behind that.
        (RNG, {"draw": "sub = n"}, False),
        (OPTIMIZER, {}, False),
        (OPTIMIZER, {"load": BACK}, True),
        # What is restored is used whole as well.
        (OPTIMIZER, {"load": BACK + "\n    use(back)"}, False),
        (WEIGHTS, {}, False),
        (WEIGHTS, {"saved": "params"}, True),
        (WEIGHTS, {"saved": '{"params": params}'}, True),
        (WEIGHTS, {"saved": "state"}, False),
    ],
)
def test_orbax(rule: str, change: dict[str, str], fires: bool) -> None:
    given = {
        "seed": "0",
        "load": BOTH,
        "first": "first = keeper.latest_step() + 1",
        "begin": "first",
        "draw": "key, sub = jax.random.split(key)",
        "saved": WHOLE,
        **change,
    }
    assert (rule in remarks(python(ORBAX.format(**given)))) is fires


FLAX = """\
import os
import optax
from flax.training import checkpoints, train_state
from task import apply, batches, params, train_step

out = os.environ["CKPT_DIR"]
state = train_state.TrainState.create(apply_fn=apply, params=params, tx=optax.adam(1e-3))
state = checkpoints.restore_checkpoint(out, target=state)
for n in range({begin}):
    for batch in batches:
        state = train_step(state, batch)
        {inner}
    checkpoints.save_checkpoint(out, {saved}, n, keep=3)
"""


@pytest.mark.parametrize(
    ("rule", "change", "fires"),
    [
        (STEP, {}, True),
        (STEP, {"begin": "int(state.step), 90"}, False),
        # The loop asks the state how far it is.
        (STEP, {"inner": "if state.step > 1000: raise SystemExit"}, False),
        (WEIGHTS, {}, False),
        (WEIGHTS, {"saved": "state.params"}, True),
    ],
)
def test_flax(rule: str, change: dict[str, str], fires: bool) -> None:
    given = {"begin": "90", "inner": "pass", "saved": "state", **change}
    assert (rule in remarks(python(FLAX.format(**given)))) is fires


TENSORFLOW = """\
import os
import tensorflow as tf
from task import data, net, train_step

adam = tf.keras.optimizers.Adam()
kept = tf.train.Checkpoint(net=net, adam=adam{more})
keeper = tf.train.CheckpointManager(kept, os.environ["CKPT_DIR"], max_to_keep=3)
kept.restore(keeper.latest_checkpoint)
for n in range({begin}, 90):
    for batch in data:
        train_step(net, adam, batch)
    keeper.save()
"""


@pytest.mark.parametrize(
    ("more", "begin", "fires"),
    [("", "0", True), (", epoch=tf.Variable(0)", "0", False), ("", "int(kept.save_counter)", False)],
)
def test_tensorflow(more: str, begin: str, fires: bool) -> None:
    assert (STEP in remarks(python(TENSORFLOW.format(more=more, begin=begin)))) is fires


KERAS = """\
import glob
import os
import keras
from task import data, net

out = os.environ["CKPT_DIR"]
net.compile("adam", "mse")
files = sorted(glob.glob(os.path.join({folder}, "*")))
newest = files[-1] if files else None
if newest:
    {load}
keep = [keras.callbacks.ModelCheckpoint(os.path.join(out, "at_{{epoch:03d}}{suffix}")){more}]
net.fit(data, epochs=90, callbacks=keep{begin})
"""
LOAD = "net = keras.models.load_model(newest)"


@pytest.mark.parametrize(
    ("rule", "change", "fires"),
    [
        (STEP, {}, True),
        (STEP, {"begin": ", initial_epoch=done(newest)"}, False),
        (STEP, {"more": ", keras.callbacks.BackupAndRestore(out)"}, False),
        # Another folder is where the run begins.
        (STEP, {"folder": '"/models"'}, False),
        (OPTIMIZER, {}, False),
        (OPTIMIZER, {"load": "net.load_weights(newest)", "suffix": ".weights.h5"}, True),
        (
            OPTIMIZER,
            {
                "load": "net.optimizer.build(net.trainable_variables); net.load_weights(newest)",
                "suffix": ".weights.h5",
            },
            False,
        ),
    ],
)
def test_keras(rule: str, change: dict[str, str], fires: bool) -> None:
    given = {"folder": "out", "load": LOAD, "more": "", "begin": "", "suffix": ".keras", **change}
    assert (rule in remarks(python(KERAS.format(**given)))) is fires


BOOSTED = """\
import os
import pathlib
import {package} as boost
from task import data, settings

out = pathlib.Path(os.environ["CKPT_DIR"])


def keep(env):
    if env.iteration % 100 == 0:
        env.model.save_model(out / f"at_{{env.iteration:06d}}.txt")


newest = max(out.glob("at_*"), default=None)
boost.train(settings, data, num_boost_round={rounds}, {model}={start}, callbacks=[keep])
"""


@pytest.mark.parametrize(("package", "model"), [("xgboost", "xgb_model"), ("lightgbm", "init_model")])
@pytest.mark.parametrize(
    ("rounds", "start", "fires"),
    [("9000", "newest", True), ("9000 - done", "newest", False), ("9000", '"/models/base.txt"', False)],
)
def test_rounds_on_top_of_rounds(package: str, model: str, rounds: str, start: str, fires: bool) -> None:
    text = BOOSTED.format(package=package, model=model, rounds=rounds, start=start)
    assert (STEP in remarks(python(text))) is fires


SB3 = """\
import os
import pathlib
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CheckpointCallback
from task import world

out = pathlib.Path(os.environ["CKPT_DIR"])
newest = max(out.glob("*_steps.zip"), key=lambda p: p.stat().st_mtime, default=None)
agent = PPO.load({start}, env=world) if newest else PPO("MlpPolicy", world)
agent.learn(900000, callback=CheckpointCallback(1000, out){more})
"""


@pytest.mark.parametrize(
    ("start", "more", "fires"),
    [
        ("newest", "", True),
        ("newest", ", reset_num_timesteps=False", False),
        ('"/models/pretrained.zip"', "", False),
    ],
)
def test_timesteps(start: str, more: str, fires: bool) -> None:
    assert (STEP in remarks(python(SB3.format(start=start, more=more)))) is fires
