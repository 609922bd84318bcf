"""Linear regression by momentum SGD in plain Python: saves whole files, resumes from all of them, saves on SIGTERM."""

import json
import os
import random
import re
import signal
import sys
import time
from pathlib import Path

OUT = Path(os.environ["CKPT_DIR"])
STEPS, EVERY = 400, 4
stop = False


def on_term(*_):
    global stop
    stop = True


def path(step):
    return OUT / f"step_{step}.json"


def save(step, state):
    tmp = OUT / f"step_{step}.json.tmp"
    tmp.write_text(json.dumps(state))
    os.replace(tmp, path(step))
    for old in sorted(OUT.glob("step_*.json"), key=number)[:-3]:
        old.unlink()


def number(file):
    return int(re.findall(r"\d+", file.name)[-1])


def newest():
    return max(OUT.glob("step_*.json"), key=number, default=None)


def main():
    signal.signal(signal.SIGTERM, on_term)
    random.seed(7)
    state = {"w": [0.0, 0.0], "velocity": [0.0, 0.0], "step": 0, "position": 0}
    found = newest()
    if found is not None:
        loaded = json.loads(found.read_text())
        state = {name: loaded[name] for name in state}
        version, internal, gauss = loaded["rng"]
        random.setstate((version, tuple(internal), gauss))
        print(f"resumed from step {state['step']}")
    data = [(i / 64, 3 * i / 64 - 1) for i in range(64)]
    while state["step"] < STEPS:
        x, y = data[state["position"]]
        state["position"] = (state["position"] + 1) % len(data)
        x += random.gauss(0, 0.01)
        error = state["w"][0] * x + state["w"][1] - y
        for i, slope in enumerate((error * x, error)):
            state["velocity"][i] = 0.9 * state["velocity"][i] + slope
            state["w"][i] -= 0.01 * state["velocity"][i]
        state["step"] += 1
        time.sleep(0.02)
        print(f"step {state['step']} loss {error * error:.5f}")
        if state["step"] % EVERY == 0 or stop:
            save(state["step"], {**state, "rng": random.getstate()})
        if stop:
            sys.exit(0)


main()
