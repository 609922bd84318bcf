"""A checkpoint directory is declared, and nothing is saved into it before the end.

Symptom: the directory is empty while the run goes on, and every restart begins at step 0.
Fix: save every some hundred steps.
Bad:
    args:
    - |
      TrainingArguments(output_dir=out, save_strategy="no")
Good:
    args:
    - |
      TrainingArguments(output_dir=out, save_strategy="steps", save_steps=500)
Reads: the framework's settings for saving and the steps of the whole run; in a loop of the program's own, where it
saves.
Silent when: it only predicts; the program saves in a hook or a loop of its own, or takes hooks from elsewhere; no
directory is declared and none is on a volume; a value is not known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Lines, Remark
from webhook.programs import Call, Python, Script
from webhook.programs.flow import in_loop, loop_learns
from webhook.programs.frameworks import Setting, Use, find_uses, mended
from webhook.programs.frameworks.hf_trainer import train_calls
from webhook.programs.loads import known_packages, unseen_may_load
from webhook.programs.names import Save, saves, saves_of
from webhook.programs.pasted import LONGEST, counter_in, loop_of, opened_with, statement_of, with_import, with_opened
from webhook.programs.python import Around
from webhook.programs.values import as_number, said

ID = "never-saved"
_LIBRARIES: Final = frozenset(
    ("transformers", "trl", "peft", "lightning", "pytorch_lightning", "torchmetrics", "lightgbm", "xgboost")
)
_NO_SAVES: Final = ("savefig", "makedirs", "mkdir", "exists", "dirname", "basename")


def look(script: Script) -> Iterator[Remark]:
    for use in find_uses(script):
        yield from _of_use(script, use)
    if not find_uses(script):
        yield from _plain(script)


def _of_use(script: Script, use: Use) -> Iterator[Remark]:
    if not _wants_checkpoints(script, use):
        return
    if use.framework.id == "hf-trainer" and use.python is not None and not train_calls(use.python):
        return
    if use.saves is not None and use.saves.value is False:
        if use.python is not None and (_saves_itself(use.python) or _has_unseen_model(use, use.python)):
            return
        if use.saves.given or not use.partial:
            written = said((use.saves.written or "absent").removeprefix(use.saves.name).lstrip(" =:"))
            written = f'"{written[1:-1]}"' if written[:1] == "'" else written
            yield Remark(
                use.saves.place,
                f'"{use.saves.name}" is {written}, so nothing is saved before the end',
                mended(script, use.saves, _fix(script, use, use.saves.name), use),
                subject=use.saves.name,
            )
        return
    every, until = _number(use.every), _number(use.until)
    if every is None or until is None or until <= 0 or every < until or every < 1 or use.every is None:
        return
    if use.until is None or use.saves is None or use.saves.value is not True:
        return
    what = f'"{use.every.name}" is {every:g}' + ("" if use.every.given else " by default")
    mark = " " if use.every.name.startswith("-") else "="
    fix = f"{use.every.name}{mark}{max(1, int(until) // 10)}"
    yield Remark(
        use.every.place,
        f'{what} and "{use.until.name}" {until:g}, so nothing is saved before the end',
        mended(script, use.every, fix, use),
        subject=use.every.name,
    )


def _saves_itself(python: Python) -> bool:
    """Whether the text saves in a loop or a hook of its own, or takes hooks or a module from elsewhere that may."""
    if "should_save = True" in python.source.code:
        return True  # ``control.should_save = True``, by which a callback has the Trainer save
    for name in ("callbacks", "callback"):
        for call in python.source.calls:
            given = call.argument(name)
            if given is not None and not _are_known(python, given, call.around):
                return True
    if any(call.node.args and not _are_known(python, call.node.args[0], call.around) for call in _added(python)):
        return True
    return any(_in_hook(python, call) for call in python.source.calls if _is_save(call))


def _fix(script: Script, use: Use, name: str) -> str:
    """What has it save; ``a="b", c=1`` as flags, where the user gives flags."""
    if name == "enable_checkpointing":
        return f"{name}=True"
    if name == "--save":
        return f"{name} {script.launch.directories[0] if script.launch.directories else '$CKPT_DIR'}"
    fix = use.framework.keep_fix if name == "save_top_k" else use.framework.every_fix
    if use.keep is not None and use.keep.value is None and use.framework.keep_fix.startswith("save_total_limit"):
        fix += f", {use.framework.keep_fix}"
    if not name.startswith("--") or fix.startswith("-"):
        return fix
    return " ".join(f"--{one.replace('=', ' ')}" for one in fix.replace('"', "").split(", "))


def _has_unseen_model(use: Use, python: Python) -> bool:
    """Lightning's modules may save in hooks of their own; one that comes from elsewhere is not seen."""
    return use.framework.id == "lightning" and not python.source.modules <= known_packages() | _LIBRARIES


def _added(python: Python) -> Iterator[Call]:
    return python.methods("add_callback")


def _are_known(python: Python, node: ast.expr, around: Around | None) -> bool:
    """Whether hooks are all made here of classes that are known or seen."""
    for one, where in python.origins(node, around):
        parts = one.elts if isinstance(one, ast.List | ast.Tuple) else [one]
        for part in parts:
            if isinstance(part, ast.Constant) and part.value is None:
                continue
            name = python.source.dotted(part.func if isinstance(part, ast.Call) else part)[0]
            if isinstance(part, ast.Name) and not (name in python.source.classes or "." in name):
                name = python.class_of(part, where)
            if name not in python.source.classes and name.partition(".")[0] not in _LIBRARIES:
                return False
    return True


def _is_save(call: Call) -> bool:
    if call.attr in ("savefig", "save_hyperparameters", "save_image"):
        return False
    return any(word in call.name.lower().rpartition(".")[2] for word in ("save", "dump", "checkpoint", "ckpt"))


def _in_hook(python: Python, call: Call) -> bool:
    """In a loop, or in a method that somebody else calls: one in which nothing is trained."""
    if in_loop(python, call) is True:
        return True
    scope = call.around.scope if call.around is not None else None
    if scope is None or scope.outer is None or scope.outer.kind != "class":
        return False
    return not any(
        one.around is not None and one.around.scope is scope for one in python.methods("train", "fit", "fit_loop")
    )


def _wants_checkpoints(script: Script, use: Use) -> bool:
    """A directory is declared for the container, or the program's own lies on a volume."""
    if use.directory is not None and use.directory.given and script.counts(use.directory.value):
        return True
    return script.wants_checkpoints


def _number(setting: Setting | None) -> float | None:
    return None if setting is None else as_number(setting.value)


def _plain(script: Script) -> Iterator[Remark]:
    """A loop of the program's own, and every save of it after the loop."""
    if not script.whole or script.unread or not script.wants_checkpoints:
        return
    yield from _nothing(script)
    for python in script.pythons:
        yield from _fitted(script, python)
        yield from _fitted_by_keras(python)
    found = saves(script)
    if not found or not all(_after(save) for save in found):
        return
    save = next((one for one in found if script.counts(one.value)), None)
    if save is None or _saves_otherwise(save.python):
        return
    yield Remark(
        save.python.at(save.call),
        f'the only save, "{said(save.python.text(save.call.node), 60)}", comes after the training loop',
        _in_the_loop(save),
        subject=save.name,
    )


def _nothing(script: Script) -> Iterator[Remark]:
    """A loop that trains in a program that saves nothing, neither itself nor by what comes from elsewhere."""
    for python in script.pythons:
        if not loop_learns(python) or saves_of(python) or _saves_otherwise(python) or _may_save(python):
            continue
        learns = next(
            (call for call in python.methods("backward", "train_batch", "step") if in_loop(python, call)), None
        )
        loop = loop_of(learns) if learns is not None else None
        if loop is None:
            continue
        line = python.source.line(loop.lineno)
        at = max(python.place.line, 1) - 1 + (loop.end_lineno or loop.lineno)
        yield Remark(
            python.at(loop),
            f'"{said(line.rstrip(":"), 60)}" trains, and the program saves nothing',
            Lines("# in the loop, every so many steps: torch.save(...) of model, optimizer and step", at + 1, at),
            subject=line,
        )
        return


def _may_save(python: Python) -> bool:
    """Whether anything that comes from a package which is not seen may save: it is told a place or what there is."""
    return python.source.stars or (not python.source.modules <= known_packages() and unseen_may_load(python))


_ESTIMATORS: Final = frozenset(("sklearn", "xgboost", "lightgbm", "catboost", "stable_baselines3"))
_AT_THE_END: Final = frozenset(("dump", "save", "save_model"))


def _fitted(script: Script, python: Python) -> Iterator[Remark]:
    """``model.fit(x, y)`` or ``model.learn(steps)`` once, told of no callback, and what it made is saved behind it."""
    for call in python.methods("fit", "learn"):
        made = python.class_of(call.receiver, call.around)
        if made.partition(".")[0] not in _ESTIMATORS or in_loop(python, call) is not False or call.open_ended:
            continue
        if any((one.arg or "").startswith("callback") for one in call.node.keywords):
            continue
        later = [one for one in python.source.calls if one.attr in _AT_THE_END and one.attr not in ("savefig",)]
        if not later or not all(one.line > call.line and in_loop(python, one) is False for one in later):
            continue
        yield Remark(
            python.at(later[0]),
            f'the only save, "{said(python.text(later[0].node), 60)}", comes after "{said(call.name, 30)}"',
            Lines(
                "# a callback that saves while it learns, as the library has one",
                python.at(call).line,
                python.at(call).line - 1,
            ),
            subject=call.name,
        )
        return


_OF_KERAS: Final = frozenset(("keras", "tensorflow", "tf_keras"))
_KEEP: Final = ("ModelCheckpoint", "BackupAndRestore", "Saver", "CheckpointManager", "Checkpoint")
_LAST: Final = frozenset(("save", "save_weights", "save_model", "export", "savedmodel"))


def _fitted_by_keras(python: Python) -> Iterator[Remark]:
    """Keras' ``model.fit()`` outside a loop without a callback that saves, and the model is saved behind it."""
    source = python.source
    if source.modules.isdisjoint(_OF_KERAS) or any(name in source.code for name in _KEEP):
        return
    fits = [call for call in python.methods("fit", "fit_generator") if in_loop(python, call) is not None]
    if len(fits) != 1 or in_loop(python, fits[0]) or fits[0].open_ended:
        return
    hooks = fits[0].argument("callbacks")
    if hooks is not None and not _are_known(python, hooks, fits[0].around):
        return
    if any("Callback" in python.text(base) for made in source.classes.values() for base in getattr(made, "bases", ())):
        return
    saved = [one for one in source.calls if one.attr in _LAST and (one.receiver is not None or one.imported)]
    later = [one for one in saved if _is_of_model(python, one)]
    if not later or not all(one.line > fits[0].line and in_loop(python, one) is False for one in later):
        return
    yield Remark(
        python.at(later[0]),
        f'the only save, "{said(python.text(later[0].node), 60)}", comes after "{said(fits[0].name, 30)}"',
        'callbacks=[keras.callbacks.BackupAndRestore(os.environ["CKPT_DIR"], double_checkpoint=True)]',
        subject=fits[0].name,
    )


def _is_of_model(python: Python, call: Call) -> bool:
    """``model.save(path)``, ``tf.saved_model.save(model, path)``; not ``figure.save()``."""
    named = python.text(call.node.func).lower()
    return "model" in named or call.attr in ("save_weights", "export")


def _in_the_loop(save: Save) -> str:
    """The same save at the end of the outermost loop before it, under a name of each step."""
    python, path = save.python, save.python.text(save.path)
    stmt = statement_of(python, save.call.node)
    scope = save.call.around.scope if save.call.around is not None else None
    loops = [
        node
        for node in ast.walk(scope.node if scope is not None else python.source.tree)
        if isinstance(node, ast.For | ast.While) and (node.end_lineno or 0) < save.call.line
    ]
    loop = next((one for one in loops if not any(_within(one, other) for other in loops if other is not one)), None)
    counter = counter_in(loop) if loop is not None else ""
    text = python.source.source(save.call.node)
    opened = opened_with(save)
    inside = opened is not None or save.path in ast.walk(save.call.node)
    if not counter or stmt is None or loop is None or not inside or (save.opener and opened is None):
        return f"# in the loop too, every so many steps:\n{text if len(text) <= LONGEST else '...'}"
    ending = "" if "." not in save.name else f".{save.name.rpartition('.')[2]}"
    word = "epoch" if "epoch" in counter else "step"
    named = f'os.path.join(os.path.dirname({path}), f"{word}_{{{counter}:08d}}{ending}")'
    call = text.replace(python.source.source(save.path), named, 1)
    if opened is not None:
        call = with_opened(save, opened, named)
    last, base = loop.end_lineno or loop.lineno, max(python.place.line, 1) - 1
    condition = f"# in the loop, after line {base + last}:\n"
    if word != "epoch":
        condition += f"if {counter} % 500 == 0:\n    "
        call = call.replace("\n", "\n    ") if opened is not None else call
    shown = call if len(text) <= LONGEST else f"...    # line {base + save.call.line}, into {named}"
    at = base + last + 1, base + last, base + loop.body[0].lineno
    return with_import(python, Lines(condition + shown, *at, whole=condition + call), "os")


def _within(inner: ast.stmt, outer: ast.stmt) -> bool:
    return outer.lineno <= inner.lineno and (inner.end_lineno or 0) <= (outer.end_lineno or 0)


def _after(save: Save) -> bool:
    return in_loop(save.python, save.call) is False and loop_learns(save.python)


def _saves_otherwise(python: Python) -> bool:
    """Whether something else in the text is called save, dump or checkpoint."""
    known = {id(save.call) for save in saves_of(python)}
    return any(
        id(call) not in known and any(word in call.name.lower() for word in ("save", "dump", "checkpoint", "ckpt"))
        for call in python.source.calls
        if call.attr not in _NO_SAVES and not any(word in call.name.lower() for word in ("load", "from_"))
    )


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="a run that is stopped before its end has nothing to resume from and begins at step 0",
    look=look,
    on_runtime=Severity.WARN,
)
