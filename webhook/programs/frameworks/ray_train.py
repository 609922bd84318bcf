"""Ray Train.

Read in ray 2.60.0, ``train/v2/api/config.py`` (``RunConfig(storage_path=None)`` is ``~/ray_results``; without ``name``
every start is a run of its own, ``ray_train_run-<time>``; ``CheckpointConfig(num_to_keep=None)`` keeps all;
``FailureConfig(max_failures=0)``) and ``train/v2/api/train_fn_utils.py`` (``get_checkpoint()`` gives what was reported
last, also of an earlier start with the same name and ``storage_path``; it is None where there is none). Its storage is
a file system of pyarrow or fsspec.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Call, Python, Script
from webhook.programs.frameworks.framework import Framework, Setting, Use, call_setting, is_open, turned

_RUN: Final = ("ray.RunConfig",)
_TRAINERS: Final = ("TorchTrainer", "TensorflowTrainer", "XGBoostTrainer", "LightGBMTrainer", "JaxTrainer")
_KEEPS: Final = ("ray.CheckpointConfig",)


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        # A search of Ray Tune has the same RunConfig.
        if "ray" in python.source.modules and any(True for _ in python.named(*_TRAINERS)):
            runs = list(python.calls(*_RUN))
            if len(runs) == 1:
                yield _use(script, python, runs[0])


def _use(script: Script, python: Python, run: Call) -> Use:
    reads = any(True for _ in python.named("get_checkpoint")) or not script.whole
    resume = Setting("get_checkpoint", UNKNOWN if reads else None, python.at(run), given=False)
    keeps = list(python.calls(*_KEEPS))
    keep = Setting("num_to_keep", None, python.at(run), given=False)
    if len(keeps) == 1:
        keep = call_setting(python, keeps[0], "num_to_keep", None, 0)
    elif keeps or run.argument("checkpoint_config") is not None:
        keep = turned(keep, UNKNOWN)
    return Use(
        FRAMEWORK,
        python.at(run),
        python,
        run,
        partial=is_open(python, run),
        directory=call_setting(python, run, "storage_path", UNKNOWN, 1),
        resume=resume,
        keep=keep,
        keep_fix="num_to_keep=3" if keep.call is not None else "",
    )


FRAMEWORK = Framework(
    id="ray-train",
    title="Ray Train",
    release="ray 2.60.0",
    recognised="RunConfig(...) of ray.train beside a trainer",
    saves="RunConfig(storage_path=DIR, name=NAME), what report(checkpoint=...) is given",
    resumes="get_checkpoint() in the training function, of an earlier start of the same name",
    keeps="CheckpointConfig(num_to_keep=...) (all)",
    sigterm="not heard",
    ranks="every worker reports its own part",
    uses=uses,
    remote=("*",),
    resumes_if_any=True,
    keep_fix="checkpoint_config=ray.train.CheckpointConfig(num_to_keep=3)",
    resume_fix="checkpoint = ray.train.get_checkpoint()    # in the training function, before its loop",
    every_fix="ray.train.report(metrics, checkpoint=...)    # every so many steps",
)
