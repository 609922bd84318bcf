"""The program does not hear SIGTERM, and the next save comes later than the grace period ends.

Symptom: a suspend, an eviction or a preemption loses all the work since the last save.
Fix: save on SIGTERM, or save so often that it does not matter.
Bad:
    args:
    - |
      TrainingArguments(output_dir=out, save_steps=5000)    # 2 s a step, 60 s of grace
Good:
    args:
    - |
      TrainingArguments(output_dir=out, save_steps=5000, enable_jit_checkpoint=True)
Reads: handlers of SIGTERM, the framework's own, steps between two saves, annotation seconds-per-step, the grace period.
Silent when: no annotation says how long a step takes; SIGTERM is named anywhere; the framework saves by itself, or may.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Place, Remark
from webhook.programs import Script
from webhook.programs.frameworks import Use, find_uses
from webhook.programs.intervals import interval_of
from webhook.programs.names import Save, saves
from webhook.programs.pasted import loop_of, with_import
from webhook.programs.values import as_number, is_true

ID = "no-flush-on-sigterm"
_HEARD = ("SIGTERM", "signal.signal", "add_signal_handler", "jit_checkpoint", "GracefulShutdown", "preempt", "SIGUSR")


def look(script: Script) -> Iterator[Remark]:
    seconds = script.launch.seconds_per_step
    if seconds is None or seconds <= 0 or _heard(script):
        return
    for place, steps, flush in _intervals(script):
        takes, grace = steps * seconds, script.launch.grace
        if takes > grace:
            yield Remark(
                place,
                f"nothing saves on SIGTERM; {steps:g} steps take {takes:g} s, the grace period is {grace} s",
                flush,
                subject="SIGTERM",
            )
            return


def _intervals(script: Script) -> Iterator[tuple[Place, float, str]]:
    for use in find_uses(script):
        steps = as_number(use.every.value) if use.every is not None else None
        if use.every is not None and steps is not None and steps > 0 and not _may_flush(use):
            yield use.every.place, steps, _flush_of(use)
    for save in saves(script):
        found = interval_of(save.python, save.call)
        if found is not None:
            yield (
                save.python.at(found[1]),
                found[0],
                _own_handler(save),
            )


def _own_handler(save: Save) -> str:
    """A handler before the loop, and the condition of the save with it."""
    python, loop = save.python, loop_of(save.call)
    found = interval_of(python, save.call)
    where = f"before line {python.at(loop).line}" if loop is not None else "before the loop"
    lines = [f"# {where}:", "stop = []", "signal.signal(signal.SIGTERM, lambda *_: stop.append(1))"]
    if found is not None:
        line = python.at(found[1]).line
        lines.append(f"# in line {line}: if stop or {python.text(found[1])}; and leave the loop where stop is set")
    return with_import(python, "\n".join(lines), "signal")


def _may_flush(use: Use) -> bool:
    if use.framework.flushes or (use.saves is not None and use.saves.value is not True):
        return True
    if use.flushes is not None:
        return use.flushes.value is not False
    if use.partial:
        return True
    if use.framework.id != "hf-trainer":
        return False
    if use.call is not None and use.python is not None:
        return is_true(use.python.argument(use.call, "enable_jit_checkpoint", default=False)) is not False
    return use.invocation is not None and "enable_jit_checkpoint" in use.invocation.flags


def _flush_of(use: Use) -> str:
    known = {
        "hf-trainer": "enable_jit_checkpoint=True    # transformers 5.0 and newer",
        "llamafactory": "enable_jit_checkpoint: true    # transformers 5.0 and newer",
        "megatron": "--exit-signal-handler",
        "lightning": "ModelCheckpoint(..., save_on_exception=True)",
        "training-hub": "enable_jit_checkpoint=True",
    }
    return known.get(use.framework.id, use.framework.every_fix)


def _heard(script: Script) -> bool:
    """Whether anything may hear SIGTERM: the text names it, or a callback comes from what is not seen."""
    for python in script.pythons:
        text = python.source.code
        if any(word in text for word in _HEARD):
            return True
        for call in python.source.calls:
            if call.argument("callbacks") is not None and not _known_callbacks(text):
                return True
    return any("enable_jit_checkpoint" in config.values for config in script.configs)


def _known_callbacks(text: str) -> bool:
    return any(word in text for word in ("EarlyStoppingCallback", "ModelCheckpoint", "LearningRateMonitor"))


RULE = ProgramRule(
    id=ID,
    severity=Severity.AUDIT,
    why="a pod that is asked to go loses the work since the last save, though it was given time to save",
    look=look,
    on_runtime=Severity.AUDIT,
)
