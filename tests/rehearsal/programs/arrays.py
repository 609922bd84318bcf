"""numpy: a generator of its own, arrays in one archive for each step, renamed when they are written."""

import os
import signal
import time
from pathlib import Path

import numpy as np

out = Path(os.environ["CKPT_DIR"])
rng = np.random.default_rng(0)
weights, moment, step = rng.normal(size=32), np.zeros(32), 0
halt = []
signal.signal(signal.SIGTERM, lambda *_: halt.append(1))
saved = sorted(out.glob("ckpt_*.npz"), key=lambda path: int(path.stem.split("_")[1]))
if saved:
    state = np.load(saved[-1], allow_pickle=True)
    weights, moment, step = state["weights"], state["moment"], int(state["step"])
    rng.bit_generator.state = state["rng"].item()
while step < 600:
    noise = rng.normal(size=32)
    moment = 0.9 * moment + weights - noise
    weights = weights - 0.01 * moment
    step += 1
    time.sleep(0.03)
    if step % 5 == 0 or halt:
        part = out / "writing.tmp"
        with part.open("wb") as file:
            np.savez(file, weights=weights, moment=moment, step=step, rng=rng.bit_generator.state)
        part.rename(out / f"ckpt_{step}.npz")
    if halt:
        break
