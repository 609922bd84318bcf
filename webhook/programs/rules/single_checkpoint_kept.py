"""One checkpoint is kept, so a torn one leaves nothing.

Symptom: the node dies while the newest is written or the oldest removed, and no restart can load anything.
Fix: keep two or three.
Bad:
    args:
    - |
      TrainingArguments(output_dir=out, save_steps=100, save_total_limit=1)
Good:
    args:
    - |
      TrainingArguments(output_dir=out, save_steps=100, save_total_limit=3)
Reads: the framework's own argument or flag for the number of copies.
Silent when: two or more are kept; the number is not known; the best one is kept beside the last.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Remark
from webhook.programs import Script
from webhook.programs.frameworks import Use, find_calls, find_uses, mended
from webhook.programs.values import as_number, is_true

ID = "single-checkpoint-kept"


def look(script: Script) -> Iterator[Remark]:
    for use in (*find_uses(script), *find_calls(script)):
        keep = use.keep
        if keep is None or as_number(keep.value) != 1 or (use.saves is not None and use.saves.value is False):
            continue
        if _keeps_best(use):
            continue
        given = f'"{keep.name}" is 1' if keep.given else f'"{keep.name}" is absent, which means 1'
        fix = use.keep_fix or use.framework.keep_fix
        if keep.name.startswith("--") and not fix.startswith("-"):
            fix = f"--{fix.replace('=', ' ')}"
        fix = mended(script, keep, fix, use)
        yield Remark(keep.place, f"{given}: one checkpoint is kept", fix, subject=keep.name)


def _keeps_best(use: Use) -> bool:
    """``load_best_model_at_end`` keeps the best and the last, whatever the limit."""
    if use.call is not None and use.python is not None:
        best = use.python.argument(use.call, "load_best_model_at_end", default=False)
        return is_true(best) is not False
    return use.invocation is not None and "load_best_model_at_end" in use.invocation.flags


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="if that one is torn or damaged there is no older one, and the run begins at step 0",
    look=look,
    on_runtime=Severity.WARN,
)
