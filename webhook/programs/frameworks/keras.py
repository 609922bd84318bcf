"""Keras.

Read in keras 3.15.1, ``callbacks/model_checkpoint.py`` (``ModelCheckpoint(filepath, save_weights_only=False,
save_freq="epoch")``: a path without ``{epoch}`` is written over; nothing is deleted; ``saving/saving_lib.py``: a file
of weights alone has the optimizer's state too) and
``callbacks/backup_and_restore.py`` (``BackupAndRestore(backup_dir)`` saves every epoch, is read by the next ``fit()``
by itself, and removes its files when training is over; ``double_checkpoint`` keeps the one before).
``utils/file_utils.py``: addresses go through TensorFlow's gfile where that is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Call, Python, Script
from webhook.programs.back import may_load
from webhook.programs.frameworks.copies import cleans_up
from webhook.programs.frameworks.framework import Framework, Setting, Use, call_setting, negated, turned
from webhook.programs.values import Value, head, tail

_MODULES: Final = ("keras", "tensorflow", "tf_keras")
_SAVES: Final = tuple(f"{module}.ModelCheckpoint" for module in _MODULES)
_RESTORES: Final = tuple(f"{module}.BackupAndRestore" for module in _MODULES)


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        if python.source.modules.isdisjoint(_MODULES):
            continue
        backups = list(python.calls(*_RESTORES))
        saves = list(python.calls(*_SAVES))
        if len(backups) == 1:
            yield _of_backup(python, backups[0])
        elif not backups and len(saves) == 1:
            yield _of_checkpoint(script, python, saves[0])


def _of_backup(python: Python, backup: Call) -> Use:
    directory = call_setting(python, backup, "backup_dir", UNKNOWN, 0)
    return Use(
        FRAMEWORK,
        python.at(backup),
        python,
        backup,
        partial=backup.open_ended,
        directory=directory,
        resume=turned(directory, UNKNOWN),
    )


def _of_checkpoint(script: Script, python: Python, callback: Call) -> Use:
    path = call_setting(python, callback, "filepath", UNKNOWN, 0)
    best = python.argument(callback, "save_best_only", default=False) is not False
    reads = may_load(script)
    numbered = "{epoch" in head(path.value) and not best and not cleans_up(python)
    return Use(
        FRAMEWORK,
        python.at(callback),
        python,
        callback,
        partial=callback.open_ended or best,
        directory=path,
        full=_full(python, callback, path.value),
        resume=Setting("initial_epoch", UNKNOWN if reads else None, python.at(callback), given=False),
        keep_fix=_three(path.value) if isinstance(path.value, str) and numbered else "",
        keep=Setting("os.remove", None if numbered else UNKNOWN, python.at(callback), given=False),
    )


def _full(python: Python, callback: Call, path: Value) -> Setting | None:
    """``save_weights_only=True`` into the HDF5 of Keras 2 has no optimizer; ``.weights.h5`` of Keras 3 has it."""
    alone = call_setting(python, callback, "save_weights_only", False)
    old = tail(path).endswith((".h5", ".hdf5")) and not tail(path).endswith(".weights.h5")
    return negated(alone) if old else None


def _three(path: str) -> str:
    """A callback that removes all but the newest three."""
    folder, _, name = path.rpartition("/")
    pattern = name.partition("{epoch")[0] + "*" + name.rpartition("}")[2]
    return (
        "import pathlib\n# one more callback:\n"
        f"keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: [old.unlink() for old in sorted(pathlib.Path("
        f'"{folder}").glob("{pattern}"), key=lambda p: p.stat().st_mtime)[:-3]])'
    )


FRAMEWORK = Framework(
    id="keras",
    title="Keras",
    release="keras 3.15.1",
    recognised="ModelCheckpoint(...) or BackupAndRestore(...) of keras.callbacks",
    saves="BackupAndRestore(backup_dir=DIR), every epoch",
    resumes="fit() with BackupAndRestore reads it by itself; ModelCheckpoint's files are the program's to load",
    keeps="BackupAndRestore one, or two with double_checkpoint=True; ModelCheckpoint all of {epoch}",
    sigterm="not heard",
    ranks="the first process writes",
    uses=uses,
    remote=("*",),
    keep_fix="# behind each save: remove all but the newest three",
    resume_fix='callbacks=[keras.callbacks.BackupAndRestore(os.environ["CKPT_DIR"], double_checkpoint=True)]',
    every_fix="save_freq=500",
)
