"""The frameworks, in the order of the table: an explicit tuple, so that one is in it or it is nowhere.

One module = one framework: a ``FRAMEWORK`` (its row, and ``uses`` that finds it in a script). Facts come from the
released source that its docstring names.
"""

from __future__ import annotations

from typing import Final

from webhook.frameworks.framework import Framework, Setting, Use
from webhook.frameworks.hf_trainer import FRAMEWORK as HF_TRAINER
from webhook.script import Script

FRAMEWORKS: Final[tuple[Framework, ...]] = (HF_TRAINER,)

__all__ = ["FRAMEWORKS", "Framework", "Setting", "Use", "find_uses"]


def find_uses(script: Script) -> tuple[Use, ...]:
    """Every use of a framework in the script, in the order of the table; found once for each script."""
    found = script.memo.get("uses")
    if found is None:
        found = tuple(use for framework in FRAMEWORKS for use in framework.uses(script))
        script.memo["uses"] = found
    return found
