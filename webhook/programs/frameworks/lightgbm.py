"""LightGBM.

Read in lightgbm 4.7.0, ``engine.py``: ``train(init_model=None)`` begins anew, and goes on from the trees of a file that
``init_model`` names; no callback of ``callback.py`` saves, so the program saves ``booster.save_model(...)`` itself,
in a callback of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.programs import Python, Script
from webhook.programs.flow import in_loop
from webhook.programs.frameworks.framework import Framework, Use, call_setting, is_open, turned
from webhook.programs.values import as_number

_OWN: Final = frozenset(("early_stopping", "log_evaluation", "record_evaluation", "reset_parameter"))
"""Callbacks of its own, none of which saves."""
_LONG: Final = 1000
"""Rounds of a run that takes its time."""


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        if "lightgbm" in python.source.modules:
            yield from _at_the_end(python)


def _at_the_end(python: Python) -> Iterator[Use]:
    """A long ``train()`` with no callback but LightGBM's own: what it makes is there when it is done, not before."""
    trains = list(python.calls("lightgbm.train"))
    if len(trains) != 1 or is_open(python, trains[0]) or in_loop(python, trains[0]) is not False:
        return
    callbacks = call_setting(python, trains[0], "callbacks", None)
    begins = call_setting(python, trains[0], "init_model", None)
    rounds = as_number(call_setting(python, trains[0], "num_boost_round", 100, 2).value)
    node = trains[0].argument("callbacks")
    own = node is None or (isinstance(node, ast.List) and all(_is_own(python, one) for one in node.elts))
    if own and not begins.given and rounds is not None and rounds >= _LONG:
        yield Use(FRAMEWORK, python.at(trains[0]), python, trains[0], saves=turned(callbacks, False))


def _is_own(python: Python, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and python.source.dotted(node.func)[0].rpartition(".")[2] in _OWN


FRAMEWORK = Framework(
    id="lightgbm",
    title="LightGBM",
    release="lightgbm 4.7.0",
    recognised="lightgbm.train(...)",
    saves="booster.save_model(FILE), in a callback of the program's own",
    resumes="train(..., init_model=<the newest file>); None begins anew",
    keeps="all (the files are small)",
    sigterm="not heard",
    ranks="every worker has the same trees; one writes",
    uses=uses,
    resume_fix="lgb.train(..., init_model=<the newest file, or None>)",
    every_fix='callbacks=[lambda env: env.iteration % 100 or env.model.save_model(f"{out}/{env.iteration:06d}.txt")]',
)
