"""A folder for each checkpoint, written in place, with a marker at its end that a restart asks for."""

import json
import os
import random
import shutil
import signal
import time

OUT = os.environ["CKPT_DIR"]
STOP = []


def whole(folder):
    return os.path.exists(os.path.join(folder, "COMPLETE"))


def checkpoints():
    names = [name for name in os.listdir(OUT) if name.startswith("ckpt-")]
    return sorted((os.path.join(OUT, name) for name in names), key=lambda path: int(path.rsplit("-", 1)[1]))


def save(step, weights, slots):
    folder = os.path.join(OUT, f"ckpt-{step}")
    os.makedirs(folder, exist_ok=True)
    parts = {
        "model.json": weights,
        "optimizer.json": slots,
        "train.json": {"step": step, "rng": random.getstate()},
    }
    for name, part in parts.items():
        with open(os.path.join(folder, name), "w") as file:
            json.dump(part, file)
    with open(os.path.join(folder, "COMPLETE"), "w") as file:
        file.write("yes")
    for old in [path for path in checkpoints() if whole(path)][:-2]:
        shutil.rmtree(old)


def load(folder):
    parts = {}
    for name in ("model", "optimizer", "train"):
        with open(os.path.join(folder, name + ".json")) as file:
            parts[name] = json.load(file)
    version, internal, gauss = parts["train"]["rng"]
    random.setstate((version, tuple(internal), gauss))
    return parts["train"]["step"], parts["model"], parts["optimizer"]


random.seed(11)
step, weights, slots = 0, [random.random() for _ in range(16)], [0.0] * 16
good = [path for path in checkpoints() if whole(path)]
if good:
    step, weights, slots = load(good[-1])
signal.signal(signal.SIGTERM, lambda *_: STOP.append(1))
while step < 600:
    for i in range(16):
        slots[i] = 0.9 * slots[i] + weights[i] - random.random()
        weights[i] -= 0.01 * slots[i]
    step += 1
    time.sleep(0.03)
    if step % 6 == 0 or STOP:
        save(step, weights, slots)
    if STOP:
        break
