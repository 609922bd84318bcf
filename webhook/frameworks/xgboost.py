"""XGBoost.

Read in xgboost 3.2.0: ``callback.py`` (``TrainingCheckPoint(directory, name="model", interval=100)`` writes
``<name>_<round>.ubj``, by the first worker; the rounds go on from those of ``xgb_model``) and ``training.py``
(``train(xgb_model=None)`` begins anew; the trees are all the state there is). Nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.frameworks.framework import Framework, Setting, Use, call_setting, turned
from webhook.script import UNKNOWN, Call, Python, Script

_CHECKPOINTS: Final = ("xgboost.TrainingCheckPoint",)


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        if "xgboost" in python.source.modules:
            callbacks = list(python.calls(*_CHECKPOINTS))
            if len(callbacks) == 1:
                yield _use(python, callbacks[0])


def _use(python: Python, callback: Call) -> Use:
    resume: Setting | None = None
    for call in (*python.calls("xgboost.train"), *python.methods("fit")):
        setting = call_setting(python, call, "xgb_model", None)
        if setting.given or resume is None:
            resume = setting
    return Use(
        FRAMEWORK,
        python.at(callback),
        python,
        callback,
        partial=callback.open_ended,
        directory=call_setting(python, callback, "directory", UNKNOWN, 0),
        resume=resume if resume is None or resume.value is None else turned(resume, UNKNOWN),
        every=turned(call_setting(python, callback, "interval", 100), UNKNOWN),
    )


FRAMEWORK = Framework(
    id="xgboost",
    title="XGBoost",
    release="xgboost 3.2.0",
    recognised="TrainingCheckPoint(...) of xgboost.callback",
    saves="TrainingCheckPoint(directory=DIR, interval=100)",
    resumes="train(..., xgb_model=<the newest file>); None begins anew",
    keeps="all (the files are small)",
    sigterm="not heard",
    ranks="the first worker writes",
    uses=uses,
    resume_fix="xgb.train(..., xgb_model=<the newest file, or None>)",
)
