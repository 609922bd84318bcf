"""The interval between two saves does not fit the model, or loses more work than is allowed.

Symptom: a restart does hours of work again; or the GPUs wait for the disk a good part of the time.
Fix: an interval of the table below, or one that fits the ceiling.
Bad:
    metadata:
      annotations: {checkpoint-guard.io/seconds-per-step: "5"}
    args:
    - |
      TrainingArguments(output_dir=out, save_steps=5000)    # almost seven hours
Good:
    metadata:
      annotations: {checkpoint-guard.io/seconds-per-step: "5"}
    args:
    - |
      TrainingArguments(output_dir=out, save_steps=300)    # 25 minutes
Reads: steps between two saves; annotations seconds-per-step and model-params; the policy's ceiling for lost work.
Below 1B parameters about every 100 steps, below 7B 500, below 70B 1,000, above 2,000; a fifth and five times of it
pass.
Silent when: neither annotation is given; the interval is not known or counts epochs.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from typing import Final

from webhook.model.finding import Measure, Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Lines, Place, Remark
from webhook.programs import Python, Script
from webhook.programs.corrected import with_node
from webhook.programs.frameworks import Setting, Use, find_uses, mended
from webhook.programs.intervals import interval_of, with_interval
from webhook.programs.names import saves
from webhook.programs.values import as_number, said

ID = "save-interval"
_TABLE: Final = ((1_000_000_000, 100), (7_000_000_000, 500), (70_000_000_000, 1_000))
_ABOVE: Final = 2_000
_FAR: Final = 5


def look(script: Script) -> Iterator[Remark]:
    launch = script.launch
    if launch.seconds_per_step is None and launch.params is None:
        return
    found = next(_intervals(script), None)
    if found is None:
        return
    place, shown, steps, written = found
    seconds, ceiling = launch.seconds_per_step, launch.lost_work
    if seconds and ceiling and steps * seconds > ceiling:
        yield Remark(
            place,
            f'"{shown}": {steps:g} steps of {seconds:g} s may lose {steps * seconds:g} s, and {ceiling} s are allowed',
            written(max(1, int(ceiling / seconds))),
            subject="interval",
            measure=Measure(math.ceil(steps * seconds), "s", ceiling=ceiling),
        )
    elif launch.params is not None:
        fits = next((fits for below, fits in _TABLE if launch.params < below), _ABOVE)
        if steps > fits * _FAR or steps * _FAR < fits:
            yield Remark(
                place,
                f'"{shown}" for {launch.params / 1e9:g}B parameters, where about {fits} steps are usual',
                _remarked(written(fits)) if fits == _ABOVE else written(fits),
                subject="interval",
            )


def _remarked(fix: str) -> str:
    remark = "    # with asynchronous or distributed saving"
    return fix.before(remark) if isinstance(fix, Lines) else fix + remark


def _intervals(script: Script) -> Iterator[tuple[Place, str, float, Callable[[int], str]]]:
    """Where an interval stands, as it is written, its steps, and how another one is written in its place."""
    for use in find_uses(script):
        every = use.every
        steps = as_number(every.value) if every is not None else None
        if every is None or steps is None or steps < 1 or (use.saves is not None and use.saves.value is not True):
            continue
        mark = " " if every.name.startswith("--") else ": " if every.written.startswith(f"{every.name}:") else "="
        yield every.place, f"{every.name}{mark}{steps:g}", steps, _writer(script, use, every, every.name + mark)
    for save in saves(script):
        found = interval_of(save.python, save.call)
        if found is not None:
            steps, test = found
            yield save.python.at(test), said(save.python.text(test)), steps, _in_loop(save.python, test)


def _writer(script: Script, use: Use, every: Setting, before: str) -> Callable[[int], str]:
    return lambda steps: mended(script, every, f"{before}{steps}", use)


def _in_loop(python: Python, test: ast.Compare) -> Callable[[int], str]:
    def written(steps: int) -> str:
        fix = with_interval(python, test, steps)
        return with_node(python, test, fix) if fix.endswith("== 0") else fix

    return written


RULE = ProgramRule(
    id=ID,
    severity=Severity.AUDIT,
    why="too seldom loses work at every restart, too often keeps the GPUs waiting for the disk",
    look=look,
    on_runtime=Severity.AUDIT,
)
