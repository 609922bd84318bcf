"""What is counted from nothing again after a load, and where the program could take the count from.

Read in xgboost 3.2.0 (``training.py``: ``train`` does ``num_boost_round`` rounds on top of ``xgb_model``), lightgbm
4.7.0 (``engine.py``: the same of ``init_model``), stable_baselines3 2.9.2 (``common/base_class.py``: ``learn`` sets
``num_timesteps`` to 0, and with ``reset_num_timesteps=False`` it does ``total_timesteps`` more). Keras 3.15.1 was run:
``fit`` begins at ``initial_epoch`` (0) whatever was loaded.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.script import Lines, Remark
from webhook.programs.beginning import begun_at
from webhook.programs.corrected import in_line
from webhook.programs.flow import in_loop, is_no_start
from webhook.programs.goes_on import Whole
from webhook.programs.pasted import counter_in, module_name, with_import
from webhook.programs.program import Script
from webhook.programs.python import Around, Call, Python
from webhook.programs.readback import is_elsewhere, mentions
from webhook.programs.values import Text, Unknown, head, said, tail

_RESUMES: Final = ("newest", "latest", "last", "ckpt", "checkpoint", "resum", "restor", "found", "glob", "listdir")
"""Parts of the words for what a run goes on from."""
_KEPT_WHERE: Final = {
    "accelerate": "an object that accelerator.register_for_checkpointing() is given",
    "deepspeed": 'save_checkpoint(..., client_state={{"{0}": {0}}})',
    "fabric": 'the state that is saved, as "{0}"',
    "dcp": 'the state that is saved, as "{0}"',
    "orbax": 'the state that is saved, as "{0}"',
    "flax": "the state that is saved: state.step",
    "tf": "tf.train.Checkpoint({0}=tf.Variable(0), ...)",
}


def told_where(python: Python, whole: Whole, loop: ast.For | ast.While) -> str:
    """Where the loop takes its first turn from, in the user's own names; in words where that takes two places."""
    counter = counter_in(loop)
    read, modules = _first(python, whole, loop, counter)
    fix = begun_at(python, whole.load, loop, read, *modules) if read else ""
    if fix:
        return fix
    name, at = counter or "step", max(python.place.line, 1) - 1 + loop.lineno
    where = _KEPT_WHERE[whole.kind].format(name)
    kept = f"# keep {name} in {where},\n# and begin at the one behind it"
    return Lines(f"# begin at {read}" if read else kept, at, at - 1)


def _first(python: Python, whole: Whole, loop: ast.For | ast.While, counter: str) -> tuple[str, tuple[str, ...]]:
    """What says how far the run is, where the checkpoint has it already, and the modules that this needs."""
    if not counter:
        return "", ()
    if whole.kind == "orbax" and _is_name(whole.save.argument("step", 0), counter) and _latest(python, whole):
        return f"{whole.owner}.latest_step() + 1", ()
    if whole.kind == "deepspeed" and not counter.startswith("ep") and _alone(whole.save, loop):
        return f"{whole.owner}.global_steps", ()
    if whole.kind != "accelerate" or not whole.load.node.args:
        return "", ()
    path, read = whole.save.argument("output_dir", 0), python.source.source(whole.load.node.args[0])
    value = python.value(path, whole.save.around) if path is not None else None
    holes = [one for one in value.parts if isinstance(one, Unknown)] if isinstance(value, Text) else []
    if [one.source for one in holes if one.kind == "loop"] != [counter]:
        return "", ()
    return rf'int(re.findall(r"\d+", os.path.basename({read}))[-1]) + 1', ("os", "re")


def _is_name(node: ast.expr | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _latest(python: Python, whole: Whole) -> bool:
    return any(call.name == f"{whole.owner}.latest_step" for call in python.methods("latest_step"))


def _alone(save: Call, loop: ast.For | ast.While) -> bool:
    """Whether the loop is the only one around the save: one turn is one step."""
    for here in save.around.outwards() if save.around is not None else ():
        if here.kind in ("for", "while"):
            return here.node is loop
    return False


def counted_anew(script: Script, python: Python) -> Iterator[Remark]:
    """Rounds, epochs and timesteps that are done once more on top of what was loaded."""
    modules = python.source.modules
    if "xgboost" in modules:
        yield from _rounds(script, python, "xgboost", "xgb_model", "num_boosted_rounds")
    if "lightgbm" in modules:
        yield from _rounds(script, python, "lightgbm", "init_model", "current_iteration")
    if not modules.isdisjoint(("stable_baselines3", "sb3_contrib")):
        yield from _timesteps(script, python)
    if not modules.isdisjoint(("keras", "tensorflow", "tf_keras")):
        yield from _epochs(script, python)


def _is_resumed(python: Python, call: Call, node: ast.expr | None) -> bool:
    """Whether what is loaded is named for the run's own last state."""
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return False
    shown = python.source.source(node).lower()
    shown += " ".join(python.source.source(one).lower() for one, _ in python.origins(node, call.around))
    return any(word in shown for word in _RESUMES) and not is_elsewhere(python, node, call.around)


def _rounds(script: Script, python: Python, package: str, model: str, done: str) -> Iterator[Remark]:
    trains = list(python.calls(f"{package}.train"))
    if len(trains) != 1 or in_loop(python, trains[0]) is not False or mentions(python, done, "best_iteration"):
        return
    call = trains[0]
    given, rounds = call.argument(model), call.argument("num_boost_round", 2)
    if given is None or rounds is None or not _is_resumed(python, call, given) or not _saves_own(python):
        return
    if any(isinstance(part, ast.BinOp) for one, _ in python.origins(rounds, call.around) for part in ast.walk(one)):
        return
    name = module_name(python, package)
    shown, loaded = python.source.source(rounds), python.source.source(given)
    made = python.class_of(given, call.around).endswith("Booster")
    booster = loaded if made else f"{name}.Booster(model_file={loaded})"
    fix = f"num_boost_round={shown} - ({booster}.{done}() if {loaded} else 0)"
    yield Remark(
        python.at(rounds),
        f'"{said(shown)}" rounds are done on top of those of "{said(loaded)}", at every start',
        in_line(script, python.at(rounds), fix, call, None, 2, True),
        subject=model,
    )


def _saves_own(python: Python) -> bool:
    """Whether the text saves on the way, and not the outcome alone."""
    if any(True for _ in python.calls("xgboost.TrainingCheckPoint")):
        return True
    return any(call.around is not None and call.around.scope is not None for call in python.methods("save_model"))


def _timesteps(script: Script, python: Python) -> Iterator[Remark]:
    learns = [call for call in python.methods("learn") if call.argument("total_timesteps", 0) is not None]
    if len(learns) != 1 or in_loop(python, learns[0]) is not False or learns[0].open_ended:
        return
    call = learns[0]
    if call.argument("reset_num_timesteps") is not None or mentions(python, "num_timesteps"):
        return
    if not any(True for _ in python.calls("stable_baselines3.CheckpointCallback")):
        return
    for load in python.methods("load"):
        if not load.name.startswith(("stable_baselines3.", "sb3_contrib.")) or load.line > call.line:
            continue
        if not _is_resumed(python, load, load.argument("path", 0)) or is_no_start(python, load):
            continue
        node = call.argument("total_timesteps", 0)
        shown = python.source.source(node) if node is not None else ""
        owner = python.text(call.receiver) if call.receiver is not None else "model"
        fix = f"total_timesteps={shown} - {owner}.num_timesteps, reset_num_timesteps=False"
        yield Remark(
            python.at(call),
            f'"{said(python.text(call.node), 60)}" counts anew after "{said(python.text(load.node), 50)}"',
            in_line(script, python.at(call), fix, call, None, 0, False),
            subject="reset_num_timesteps",
        )
        return


_FOLLOWED: Final = 12
"""Expressions of a path that are looked at."""
_LOADS: Final = ("keras.load_model", "tensorflow.load_model", "tf_keras.load_model")
_CALLBACKS: Final = ("keras.ModelCheckpoint", "tensorflow.ModelCheckpoint", "tf_keras.ModelCheckpoint")


def keras_resume(python: Python) -> tuple[Call, Call, Call] | None:
    """The load of the run's own checkpoint, the one ``fit`` behind it, and the callback that wrote it; None where
    another callback restores, or where what is loaded may be where the run begins."""
    memo: tuple[Call, Call, Call] | str | None = python.memo.get("keras resume", "")
    if isinstance(memo, str):
        memo = python.memo["keras resume"] = _keras_resume(python)
    return memo


def _keras_resume(python: Python) -> tuple[Call, Call, Call] | None:
    fits = list(python.methods("fit", "fit_generator"))
    callbacks = list(python.calls(*_CALLBACKS))
    if len(fits) != 1 or len(callbacks) != 1 or in_loop(python, fits[0]) is not False or fits[0].open_ended:
        return None
    if mentions(python, "backupandrestore") or fits[0].argument("callbacks") is None:
        return None
    saved = callbacks[0].argument("filepath", 0)
    for load in (*python.calls(*_LOADS), *python.methods("load_weights")):
        path = load.argument("filepath", 0)
        if path is None or saved is None or is_no_start(python, load) or in_loop(python, load):
            continue
        if load.line > fits[0].line and load.around is fits[0].around:
            continue
        under = load.inside("if", "try") or any(True for _ in load.guards())
        if (
            under
            and _one_folder(python, load, path, callbacks[0], saved)
            and not is_elsewhere(python, path, load.around)
        ):
            return load, fits[0], callbacks[0]
    return None


def _one_folder(python: Python, load: Call, path: ast.expr, save: Call, saved: ast.expr) -> bool:
    """Whether both paths are below one directory, by their values or by the names that they are made of."""
    read, written = head(python.value(path, load.around)), head(python.value(saved, save.around))
    if "/" in read and "/" in written:
        return read.rpartition("/")[0] == written.rpartition("/")[0]
    return not _names(python, load, path).isdisjoint(_names(python, save, saved))


def _names(python: Python, call: Call, node: ast.expr) -> set[str]:
    """The names and the longer texts that a path is made of, and those that these are made of."""
    found: set[str] = set()
    left: list[tuple[ast.expr, Around | None]] = [(node, call.around)]
    for _ in range(_FOLLOWED):
        if not left:
            break
        one, around = left.pop()
        for part in ast.walk(one):
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and len(part.value) > 3:
                found.add(part.value)
            elif isinstance(part, ast.Name) and part.id not in found and part.id not in python.source.imports:
                found.add(part.id)
                left += [(origin, where) for origin, where in python.origins(part, around) if origin is not part]
    return found


def _epochs(script: Script, python: Python) -> Iterator[Remark]:
    found = keras_resume(python)
    if found is None:
        return
    load, fit, _ = found
    # What is positional up to there is not written by anybody.
    if fit.argument("initial_epoch") is not None or fit.argument("epochs") is None or mentions(python, "initial_epoch"):
        return
    yield Remark(
        python.at(fit),
        f'"{said(python.text(fit.node), 60)}" begins at epoch 0 after "{said(python.text(load.node), 60)}"',
        _initial_epoch(script, python, *found),
        subject="initial_epoch",
    )


def _initial_epoch(script: Script, python: Python, load: Call, fit: Call, save: Call) -> str:
    """The epoch out of the file's name, which Keras counts from 1; else the callback that restores all of it."""
    path, saved = load.argument("filepath", 0), save.argument("filepath", 0)
    name, mark, _ = (_last(python, save, saved) if saved is not None else "").partition("{epoch")
    plain = isinstance(path, ast.Name) and bool(mark) and not any(letter.isdecimal() for letter in name)
    if plain and path is not None and any(one.line < fit.line for one in python.bindings(path, fit.around)):
        shown = python.text(path)
        read = rf'int(re.findall(r"\d+", os.path.basename({shown}))[0]) if {shown} else 0'
        return with_import(python, in_line(script, python.at(fit), f"initial_epoch={read}", fit), "os", "re")
    keras = next(
        (name for name, dotted in python.source.imports.items() if dotted in ("keras", "tensorflow.keras")), "keras"
    )
    return f"# one more callback, which restores weights, optimizer and epoch by itself:\n{keras}.callbacks.{_BACKUP}"


def _last(python: Python, call: Call, node: ast.expr) -> str:
    """The last component of a path, where that is told."""
    value = python.value(node, call.around)
    return tail(value).rpartition("/")[2] if not isinstance(value, str) else value.rpartition("/")[2]


_BACKUP: Final = 'BackupAndRestore(os.environ["CKPT_DIR"], double_checkpoint=True)'
