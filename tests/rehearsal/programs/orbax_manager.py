"""Orbax: its CheckpointManager keeps two; a restart takes the latest step."""

import os
import signal
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

out = Path(os.environ["CKPT_DIR"]).absolute()
halt = []
manager = ocp.CheckpointManager(out, options=ocp.CheckpointManagerOptions(max_to_keep=2, create=True))
state = {"params": jnp.zeros(8), "mu": jnp.zeros(8), "key": jax.random.PRNGKey(0)}
step = 0
if manager.latest_step() is not None:
    step = manager.latest_step()
    state = manager.restore(step, args=ocp.args.StandardRestore(state))
signal.signal(signal.SIGTERM, lambda *_: halt.append(1))


@jax.jit
def update(state):
    key, used = jax.random.split(state["key"])
    mu = 0.9 * state["mu"] + state["params"] - jax.random.normal(used, (8,))
    return {"params": state["params"] - 0.1 * mu, "mu": mu, "key": key}


while step < 400:
    state = update(state)
    step += 1
    time.sleep(0.1)
    if step % 10 == 0 or halt:
        manager.save(step, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
    if halt:
        break
