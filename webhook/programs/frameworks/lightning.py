"""Lightning (``lightning``, ``pytorch_lightning``).

Read in lightning 2.6.6: ``pytorch/callbacks/model_checkpoint.py`` (``dirpath`` None means ``version_N`` of the logger,
new at every start; ``save_top_k`` 1, ``save_last`` None, ``every_n_train_steps`` None, which means every epoch;
``save_weights_only`` and ``save_on_exception`` off), ``pytorch/trainer/connectors/checkpoint_connector.py``
(``fit(ckpt_path="last")`` looks for ``last*.ckpt`` alone, which only ``save_last`` writes, and starts afresh with a
warning where there is none; ``"best"`` fails) and ``signal_connector.py`` (SIGTERM ends the loop by an exception, which
``save_on_exception=True`` and ``OnExceptionCheckpoint`` save; outside of SLURM nothing else does).
``fabric/utilities/cloud_io.py``: what it writes goes through fsspec, to addresses too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Call, Python, Script
from webhook.programs.frameworks.framework import Framework, Setting, Use, call_setting, is_open, negated, turned
from webhook.programs.values import is_true

_MODULES: Final = ("lightning", "pytorch_lightning")
_TRAINERS: Final = tuple(f"{module}.Trainer" for module in _MODULES)
_COMMAND_LINES: Final = ("pytorch_lightning.cli.LightningCLI", "lightning.pytorch.cli.LightningCLI")
"""They make the trainer of ``cli.trainer``; a configuration file and flags may set what the call does not."""
_CALLBACKS: Final = tuple(f"{module}.ModelCheckpoint" for module in _MODULES)
_ON_EXCEPTION: Final = tuple(f"{module}.OnExceptionCheckpoint" for module in _MODULES)


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        if not python.source.modules.isdisjoint(_MODULES):
            trainers = list(python.calls(*_TRAINERS))
            if len(trainers) > 1:
                # One that only tests has a function of its own.
                places = {id(_scope(fit)) for fit in _fits(python)}
                trainers = [trainer for trainer in trainers if id(_scope(trainer)) in places]
            trainers = trainers or list(python.calls(*_COMMAND_LINES))
            if len(trainers) == 1 and any(True for _ in _fits(python)):
                yield _use(python, trainers[0])


def _scope(call: Call) -> object:
    return call.around.scope if call.around is not None else None


def _fits(python: Python) -> Iterator[Call]:
    for call in python.methods("fit"):
        made = python.class_of(call.receiver, call.around)
        if made.lower().endswith("trainer") or (not made and "trainer" in call.name.lower()):
            yield call


def _use(python: Python, trainer: Call) -> Use:
    resume: Setting | None = None
    for fit in _fits(python):
        setting = call_setting(python, fit, "ckpt_path", None)
        if setting.given or resume is None:
            resume = setting
    callbacks = [*python.calls(*_CALLBACKS), *_own_callbacks(python)]
    enabled = call_setting(python, trainer, "enable_checkpointing", True)
    until = call_setting(python, trainer, "max_steps", -1)
    root = call_setting(python, trainer, "default_root_dir", UNKNOWN)
    other = trainer.argument("callbacks") is not None
    use = Use(
        FRAMEWORK,
        python.at(trainer),
        python,
        trainer,
        partial=is_open(python, trainer),
        directory=root,
        resume=resume,
        until=until,
        saves=turned(enabled, False if is_true(enabled.value) is False else UNKNOWN if other else True),
    )
    if any(True for _ in python.calls(*_ON_EXCEPTION)):
        use.flushes = turned(enabled, True)
    if len(callbacks) == 1:
        _with_callback(python, callbacks[0], use, enabled)
    elif callbacks:
        use.saves = turned(enabled, UNKNOWN)
        use.flushes = turned(enabled, UNKNOWN)
    return use


def _own_callbacks(python: Python) -> Iterator[Call]:
    """``class Kept(ModelCheckpoint)`` of the text."""
    for name, made in python.source.classes.items():
        bases = getattr(made, "bases", ())
        if any(
            python.source.dotted(base)[0].startswith(_MODULES) and python.text(base).endswith("ModelCheckpoint")
            for base in bases
        ):
            yield from python.source.calls_of(name, method=False)


def _with_callback(python: Python, callback: Call, use: Use, enabled: Setting) -> None:
    directory = call_setting(python, callback, "dirpath", None, 0)
    if directory.value is not None:
        use.directory = directory
    top = call_setting(python, callback, "save_top_k", 1)
    last = call_setting(python, callback, "save_last", None)
    has_last = True if last.value == "link" else is_true(last.value)
    kept = top.value
    if kept == -1:
        use.keep = turned(top, None)
    elif isinstance(kept, int) and not isinstance(kept, bool) and has_last is not None:
        use.keep = turned(top, kept + has_last)
    else:
        use.keep = turned(top, UNKNOWN)
    use.every = call_setting(python, callback, "every_n_train_steps", UNKNOWN)
    if kept == 0 and has_last is False and is_true(enabled.value) is not False:
        use.saves = turned(top, False)
    use.full = negated(call_setting(python, callback, "save_weights_only", False))
    on_exception = call_setting(python, callback, "save_on_exception", False)
    truth = is_true(on_exception.value)
    if use.flushes is None:
        use.flushes = turned(on_exception, UNKNOWN if truth is None else truth)


def names_unpadded(python: Python) -> bool:
    """Whether ModelCheckpoint surely keeps several files that begin with an unpadded number, and no ``last.ckpt``.

    Without ``filename`` they are ``epoch=3-step=1200.ckpt``; ``{epoch:03d}`` pads.
    """
    callbacks = list(python.calls(*_CALLBACKS))
    if len(callbacks) != 1 or is_open(python, callbacks[0]):
        return False
    callback = callbacks[0]
    kept = python.argument(callback, "save_top_k", default=1)
    name = python.argument(callback, "filename", 1, default=None)
    if not isinstance(kept, int) or kept in (0, 1) or python.argument(callback, "save_last", default=None):
        return False
    if name is None:
        return True
    before, _, rest = name.partition("{") if isinstance(name, str) else ("", "", "")
    return rest.partition("}")[0] in ("epoch", "step", "global_step") and not any(one.isdecimal() for one in before)


FRAMEWORK = Framework(
    id="lightning",
    title="Lightning",
    release="lightning 2.6.6",
    recognised="Trainer(...) of lightning or pytorch_lightning, and fit(...)",
    saves="ModelCheckpoint(dirpath=...), every epoch, or every_n_train_steps",
    resumes='fit(..., ckpt_path="last") with save_last=True; where there is none it starts afresh',
    keeps="save_top_k (1), and save_last",
    sigterm="ModelCheckpoint(save_on_exception=True) saves",
    ranks="the first process writes",
    uses=uses,
    remote=("*",),
    resumes_if_any=True,
    keep_fix='save_top_k=3, monitor="step", mode="max"',
    resume_fix='trainer.fit(..., ckpt_path="last")',
    every_fix="every_n_train_steps=500",
)
