"""XGBoost.

Read in xgboost 3.2.0: ``callback.py`` (``TrainingCheckPoint(directory, name="model", interval=100)`` writes
``<name>_<round>.ubj``, by the first worker; the rounds go on from those of ``xgb_model``) and ``training.py``
(``train(xgb_model=None)`` begins anew; the trees are all the state there is). Nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Call, Python, Script
from webhook.programs.flow import in_loop
from webhook.programs.frameworks.framework import Framework, Setting, Use, call_setting, is_open, turned
from webhook.programs.values import as_number

_CHECKPOINTS: Final = ("xgboost.TrainingCheckPoint",)
_LONG: Final = 1000
"""Rounds of a run that takes its time: ten of the intervals at which TrainingCheckPoint saves by default."""


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        if "xgboost" in python.source.modules:
            callbacks = list(python.calls(*_CHECKPOINTS))
            if len(callbacks) == 1:
                yield _use(python, callbacks[0])
            elif not callbacks:
                yield from _at_the_end(python)


def _at_the_end(python: Python) -> Iterator[Use]:
    """A long ``train()`` without any callback: what it makes is there when it is done, and not before."""
    trains = list(python.calls("xgboost.train"))
    if len(trains) != 1 or is_open(python, trains[0]) or in_loop(python, trains[0]) is not False:
        return
    callbacks = call_setting(python, trains[0], "callbacks", None)
    begins = call_setting(python, trains[0], "xgb_model", None)
    rounds = as_number(call_setting(python, trains[0], "num_boost_round", 10, 2).value)
    if not callbacks.given and not begins.given and rounds is not None and rounds >= _LONG:
        yield Use(FRAMEWORK, python.at(trains[0]), python, trains[0], saves=turned(callbacks, False))


def _use(python: Python, callback: Call) -> Use:
    resume: Setting | None = None
    for call in (*python.calls("xgboost.train"), *python.methods("fit")):
        setting = call_setting(python, call, "xgb_model", None)
        if setting.given or resume is None:
            resume = setting
    directory = call_setting(python, callback, "directory", UNKNOWN, 0)
    newest = f'max(pathlib.Path({directory.written}).glob("*.ubj"), key=lambda p: p.stat().st_mtime, default=None)'
    return Use(
        FRAMEWORK,
        python.at(callback),
        python,
        callback,
        partial=callback.open_ended,
        directory=directory,
        resume_fix=f"xgb.train(..., xgb_model={newest})" if directory.written else "",
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
    every_fix='callbacks=[xgb.callback.TrainingCheckPoint(directory=os.environ["CKPT_DIR"], interval=100)]',
    resume_fix="xgb.train(..., xgb_model=<the newest file, or None>)",
)
