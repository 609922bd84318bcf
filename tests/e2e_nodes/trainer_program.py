"""A small trainer that needs Python alone: counts steps, saves atomically, resumes from the newest, flushes on SIGTERM.

Its state is a chain of hashes over all steps, so that a state at step N is right or it is not: `expected(n)` tells.
"""

import hashlib

PROGRAM = """\
import hashlib
import json
import os
import signal
import sys
import time

out = os.environ["CKPT_DIR"]
pace = float(os.environ.get("SECONDS_PER_STEP", "0.2"))
every = int(os.environ.get("SAVE_EVERY", "10"))
crash_from = int(os.environ.get("CRASH_FROM", "0")) or float("inf")
crash_if_fresh = int(os.environ.get("CRASH_IF_FRESH_AT", "0"))
stopping = False


def stop(*_):
    global stopping
    stopping = True


def step_of(name):
    return int(name.removeprefix("step_").removesuffix(".json"))


def saved():
    names = [name for name in os.listdir(out) if name.startswith("step_") and name.endswith(".json")]
    return sorted(names, key=step_of)


def save(step, chain):
    path = os.path.join(out, f"step_{step}.json")
    with open(path + ".tmp", "w") as file:
        json.dump({"step": step, "chain": chain, "by": os.environ.get("NODE", "")}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)
    for old in saved()[:-20]:
        os.remove(os.path.join(out, old))


signal.signal(signal.SIGTERM, stop)
os.makedirs(out, exist_ok=True)
step, chain = 0, ""
found = saved()
if found:
    with open(os.path.join(out, found[-1])) as file:
        state = json.load(file)
    step, chain = state["step"], state["chain"]
    print(f"[checkpoint] resuming from {out}/{found[-1]}", flush=True)
else:
    print("[checkpoint] no prior checkpoint, starting fresh", flush=True)
while True:
    time.sleep(pace)
    step += 1
    chain = hashlib.sha256(f"{chain}{step}".encode()).hexdigest()
    if step % every == 0 or stopping:
        save(step, chain)
    if stopping:
        print(f"[checkpoint] flushed step {step}", flush=True)
        sys.exit(143)
    if step >= crash_from or (not found and step == crash_if_fresh):
        print(f"crash at step {step}", flush=True)
        sys.exit(1)
"""


def expected(step: int) -> str:
    """The state that a run which did every step once has at this one."""
    chain = ""
    for number in range(1, step + 1):
        chain = hashlib.sha256(f"{chain}{number}".encode()).hexdigest()
    return chain
