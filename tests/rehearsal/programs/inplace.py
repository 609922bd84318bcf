"""Writes each checkpoint under its final name, and takes the newest that can be read to its end."""

import glob
import json
import os
import random
import re
import signal
import sys
import time

OUT = os.environ["CKPT_DIR"]
halt = False


def on_term(number, frame):
    global halt
    halt = True


def step_of(path):
    return int(re.search(r"(\d+)\.json$", path).group(1))


def load():
    for path in sorted(glob.glob(f"{OUT}/state-*.json"), key=step_of, reverse=True):
        try:
            with open(path) as file:
                return json.load(file)
        except ValueError:
            print(f"{path} is torn, looking further", flush=True)
    return None


signal.signal(signal.SIGTERM, on_term)
random.seed(5)
state = load()
if state is None:
    state = {"step": 0, "theta": [0.0] * 4, "momentum": [0.0] * 4, "rng": None}
else:
    version, internal, gauss = state["rng"]
    random.setstate((version, tuple(internal), gauss))
    print(f"resuming at step {state['step']}", flush=True)
for step in range(state["step"] + 1, 601):
    for i in range(4):
        state["momentum"][i] = 0.8 * state["momentum"][i] + random.gauss(i, 1) - state["theta"][i]
        state["theta"][i] += 0.01 * state["momentum"][i]
    state["step"] = step
    time.sleep(0.03)
    if step % 5 == 0 or halt:
        state["rng"] = random.getstate()
        with open(f"{OUT}/state-{step}.json", "w") as file:
            json.dump(state, file)
    if halt:
        sys.exit(0)
