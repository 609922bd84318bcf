"""XGBoost: a model every few rounds, renamed when it is written; a restart boosts on from the newest."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import xgboost as xgb

OUT = Path(os.environ["CKPT_DIR"])
ROUNDS, EVERY = 500, 4
halt = []
signal.signal(signal.SIGTERM, lambda *_: halt.append(1))


def rounds(path):
    return int(path.stem.rpartition("_")[2])


class Keep(xgb.callback.TrainingCallback):
    def after_iteration(self, model, epoch, evals_log):
        time.sleep(0.04)
        done = model.num_boosted_rounds()
        if done % EVERY == 0 or halt:
            part = OUT / "part.tmp.ubj"
            model.save_model(part)
            part.rename(OUT / f"model_{done}.ubj")
        if halt:
            sys.stdout.flush()
            os._exit(0)
        return False


rng = np.random.default_rng(1)
x = rng.normal(size=(200, 5))
y = x @ np.arange(5) + rng.normal(size=200)
newest = max(OUT.glob("model_*.ubj"), key=rounds, default=None)
done = rounds(newest) if newest else 0
xgb.train(
    {"max_depth": 3, "eta": 0.1, "nthread": 1, "seed": 0},
    xgb.DMatrix(x, y),
    num_boost_round=ROUNDS - done,
    xgb_model=newest,
    callbacks=[Keep()],
)
