"""Where a call stands in the course of a program: in a loop or after it, and which programs are the training."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from webhook.programs.program import Invocation, Script
from webhook.programs.python import Around, Call, Python
from webhook.programs.shell import Command, Shell
from webhook.programs.values import Value, head
from webhook.programs.words import NO_RUN, words_in

_OTHERS: Final = (
    "download",
    "prepare",
    "preprocess",
    "convert",
    "eval",
    "export",
    "merge",
    "upload",
    "setup",
    "test",
    "install",
    "check",
    "infer",
    "serve",
    "tokeniz",
    "predict",
    "generate",
    "benchmark",
    "build",
    "wait",
    "probe",
    "plot",
    "report",
    "clean",
    "patch",
    "fix_",
    "init",
    "make_",
    "create",
)
"""Parts of the names of programs that do not train."""
_TRAINING: Final = frozenset(
    ("torch", "transformers", "trl", "jax", "tensorflow", "lightning", "pytorch_lightning", "accelerate", "deepspeed")
)


def is_training(invocation: Invocation) -> bool:
    """Whether a program is likely the training: by launcher, by tool, by its name, by its imports."""
    if _asks(invocation.arguments):
        return False
    if invocation.tool:
        return not any(word in _NOT_TRAINING for word in invocation.arguments[:1])
    if invocation.launchers:
        return invocation.python is not None or not _is_named_otherwise(invocation.name)
    if invocation.python is not None:
        source = invocation.python.source
        if not source.modules.isdisjoint(_TRAINING) or "xgboost" in source.modules or "." in source.modules:
            return any(_teaches(name) for name in source.by_attr) or _is_named_so(invocation.name)
        return any(_teaches(name) for name in source.by_attr) or _is_named_so(invocation.name)
    above, _, name = (invocation.file or invocation.module).lower().rpartition("/")
    if "configs" in above.split("/"):
        return False  # a configuration in Python, which a broken line makes a command of
    if _is_named_so(name):
        return True
    folders = {word for folder in above.split("/") for word in words_in(folder)}
    return bool(name) and folders.isdisjoint(_ELSEWHERE) and not any(word in name for word in _OTHERS)


def is_surely_training(invocation: Invocation) -> bool:
    """The same where something says so, and not for want of a name that says otherwise."""
    if invocation.launchers or invocation.tool or invocation.python is not None:
        return is_training(invocation)
    return _is_named_so((invocation.file or invocation.module).rpartition("/")[2].lower())


_NOT_TRAINING: Final = frozenset(
    (
        "export",
        "eval",
        "evaluate",
        "download",
        "chat",
        "preprocess",
        "inference",
        "merge-lora",
        "merge_lora",
        "fetch",
        "convert",
        "generate",
        "serve",
        "api",
        "webchat",
        "env",
        "version",
    )
)
"""What a tool is told to do instead: ``axolotl preprocess``."""


def _is_named_so(name: str) -> bool:
    """``pretrain_gpt.py``, ``run_sft.py``, ``trainer.py``; not ``ultrainteract.py``."""
    return any(
        word.startswith(("train", "pretrain", "finetun", "sft")) or (word.endswith("train") and word not in _NO_TRAIN)
        for word in words_in(name.removesuffix(".py"))
    )


_NO_TRAIN: Final = frozenset(("constrain", "restrain", "strain", "distrain", "overstrain"))
_ELSEWHERE: Final = frozenset(
    ("prep", "prepare", "preprocess", "preprocessing", "eval", "evaluation", "benchmark", "benchmarks", "inference")
)
"""Words of folders whose programs do not train."""


def _asks(words: Sequence[Value]) -> bool:
    """``--help``, and ``--version`` that has no value: ``--version v1`` names one."""
    for at, word in enumerate(words):
        if word == "--help":
            return True
        if word == "--version" and (at + 1 == len(words) or head(words[at + 1]).startswith("-")):
            return True
    return False


def _teaches(name: str) -> bool:
    """Whether a call of that name trains: ``train_one_epoch``; not ``train_test_split`` or ``get_train_loader``."""
    if name in _LEARNS:
        return True
    if "rain" not in name and "fine" not in name.lower():
        return False
    words = set(words_in(name))
    return not words.isdisjoint(("train", "training", "trainer", "pretrain", "finetune")) and words.isdisjoint(NO_RUN)


def _is_named_otherwise(name: str) -> bool:
    """``ds_eval.py``: what a launcher starts trains, but for what says that it does not."""
    words = name.lower().removesuffix(".py").replace("-", "_").replace(".", "_").split("_")
    return not _is_named_so(name) and not _AFTERWARDS.isdisjoint(words)


_AFTERWARDS: Final = frozenset(
    ("eval", "evaluate", "evaluation", "infer", "inference", "predict", "generate", "sample", "export", "convert")
)


_LEARNS: Final = frozenset(("backward", "fit", "train", "train_batch", "step", "save_checkpoint", "learn", "update"))


def trainings(script: Script, shell: Shell) -> Iterator[tuple[Invocation, Command]]:
    """The training programs that a shell text starts, each with its command there."""
    for invocation in script.invocations:
        if invocation.command is not None and shell.holds(invocation.command) and is_training(invocation):
            yield invocation, invocation.command


def foremost(found: list[tuple[Invocation, Command]]) -> list[tuple[Invocation, Command]]:
    """Those of ``trainings`` without what comes behind the last that surely trains: ``python parse_log.py`` uses what
    that made. What takes the shell's place at the end is what the shell was made for, whatever its name."""
    if not found or found[-1][1].name == "exec":
        return found
    for at in range(len(found), 0, -1):
        invocation, _ = found[at - 1]
        if is_surely_training(invocation) and "tokeniz" not in invocation.name.lower():
            return found[:at]
    return found


def in_loop(python: Python, call: Call, depth: int = 0) -> bool | None:
    """Whether a call runs again and again: in a loop, or in a function that one calls. None where that is not told."""
    if call.inside("for", "while", "comprehension"):
        return True
    scope = call.around.scope if call.around is not None else None
    if scope is None:
        return False
    if scope.kind == "lambda" or depth > 3:
        return None
    name = scope.node.name
    known: dict[str, bool | None] = python.memo.setdefault("in_loop", {})
    if name not in known:
        known[name] = None  # a function that calls itself
        known[name] = _called_in_loop(python, call, scope, name, depth)
    return known[name]


def _called_in_loop(python: Python, call: Call, scope: Around, name: str, depth: int) -> bool | None:
    method = scope.outer is not None and scope.outer.kind == "class"
    callers = [one for one in python.source.calls_of(name, method) if one.node is not call.node]
    if method and name in _COMMON:
        # ``model.train()`` does not call the ``train()`` of the program's own trainer.
        callers = [one for one in callers if _is_own(python, one)]
    if not callers:
        # A method may be a hook that a framework calls; a function may be handed on, and one that is told the epoch
        # is called for each.
        return True if not method and _is_told_the_time(scope.node) and is_handed_on(python, name) else None
    if (method and not _is_plain(python, scope)) or is_handed_on(python, name):
        return True if any(in_loop(python, one, depth + 1) for one in callers) else None
    answers = [in_loop(python, one, depth + 1) for one in callers]
    if any(answers):
        return True
    return None if None in answers else False


def callers_of(python: Python, scope: Around) -> list[Call] | None:
    """All calls of the function or method that ``scope`` is; None where others than this text may call it."""
    if scope.kind == "lambda":
        return None
    name = scope.node.name
    method = scope.outer is not None and scope.outer.kind == "class"
    if (method and (name in _COMMON or not _is_plain(python, scope))) or is_handed_on(python, name):
        return None
    return python.source.calls_of(name, method)


def _is_told_the_time(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(one.arg in ("epoch", "step", "global_step", "iteration", "n_iter") for one in function.args.args)


_COMMON: Final = frozenset(("train", "eval", "step", "forward", "save", "load", "update", "fit"))


def _is_own(python: Python, call: Call) -> bool:
    receiver = call.receiver
    if isinstance(receiver, ast.Name) and receiver.id in ("self", "cls"):
        return True
    return python.class_of(receiver, call.around) in python.source.classes


def _is_plain(python: Python, scope: Around) -> bool:
    """A method that nobody calls but this text: of a class of its own, without a base, and with a name of its own."""
    owner = scope.outer.node if scope.outer is not None else None
    name = scope.node.name
    return (
        isinstance(owner, ast.ClassDef)
        and not owner.bases
        and not owner.keywords
        and not owner.decorator_list
        and not scope.node.decorator_list
        and name not in python.source.repeated
        and not name.startswith(("__", "on_"))
    )


def is_handed_on(python: Python, name: str) -> bool:
    """Whether a function's name is used as a value: in a call's arguments or on the right of an assignment."""
    named: set[str] | None = python.memo.get("named")
    if named is None:
        values = [one for call in python.source.calls for one in call.node.args]
        values += [one.value for call in python.source.calls for one in call.node.keywords]
        values += [one.value for found in python.source.bindings.values() for one in found if one.value is not None]
        named = {one.id for one in values if isinstance(one, ast.Name)}
        named |= {one.attr for one in values if isinstance(one, ast.Attribute)}
        python.memo["named"] = named
    return name in named


def loop_learns(python: Python) -> bool:
    """Whether the text has a training loop of its own: ``loss.backward()`` or ``optimizer.step()`` again and again."""
    return any(in_loop(python, call) for call in python.methods("backward", "train_batch")) or any(
        in_loop(python, call) and "optim" in call.name for call in python.methods("step")
    )


def is_no_start(python: Python, call: Call, depth: int = 0) -> bool:
    """Whether a call surely does not belong to a start of the training: it comes behind the loop that trains, to test
    or to go back to the best, or in a function that only predicts; so do all calls of its own function."""
    scope = call.around.scope if call.around is not None else None
    if any(end < call.line for end in _lessons(python).get(id(scope), ())):
        return True
    if scope is None or scope.kind == "lambda":
        return False
    name = scope.node.name
    known: dict[str, bool] = python.memo.setdefault("no start", {})
    if name not in known:
        known[name] = False  # a function that calls itself
        method = scope.outer is not None and scope.outer.kind == "class"
        callers = [one for one in python.source.calls_of(name, method) if one.node is not call.node]
        words = set(name.lower().split("_"))
        known[name] = (not _PREDICTS.isdisjoint(words) and _TRAINS.isdisjoint(words)) or (
            bool(callers) and depth <= 3 and all(is_no_start(python, one, depth + 1) for one in callers)
        )
    return known[name]


def _lessons(python: Python) -> dict[int, list[int]]:
    """The last lines of the loops that train, by the function that they stand in."""
    memo: dict[int, list[int]] | None = python.memo.get("lessons")
    if memo is None:
        memo = python.memo["lessons"] = {}
        named = python.source.by_attr
        taught = sorted(call.line for name in named if _teaches(name) for call in named[name])
        for statement, around in python.source.statements if taught else ():
            if isinstance(statement, ast.For | ast.While):
                at, end = bisect_left(taught, statement.lineno), statement.end_lineno or 0
                if at < len(taught) and taught[at] <= end:
                    memo.setdefault(id(around.scope if around is not None else None), []).append(end)
    return memo


_TRAINS: Final = frozenset(("train", "training", "fit", "finetune"))
"""``train_and_eval`` does both."""
_PREDICTS: Final = frozenset(
    ("infer", "inference", "predict", "test", "eval", "evaluate", "generate", "demo", "export")
)
