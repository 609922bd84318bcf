"""Hugging Face Trainer, and the trainers of TRL and sentence-transformers, which are subclasses of it.

Read in transformers 4.57.1 and 5.24.0: ``training_args.py`` (``output_dir`` is ``trainer_output`` where it is not
given, ``save_strategy`` ``steps``, ``save_steps`` 500, ``save_total_limit`` None; ``resume_from_checkpoint`` is for
scripts, the Trainer does not use it; ``enable_jit_checkpoint``, the save on SIGTERM, since 5.0 and off by default) and
``trainer.py`` (``train(resume_from_checkpoint=True)`` raises where ``get_last_checkpoint(output_dir)`` is None; nothing
in it reads ``args.resume_from_checkpoint``). Read in trl 1.16.0: ``scripts/sft.py``, ``dpo.py``, ``grpo.py`` and the
others call ``trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)``. Read in
sentence-transformers 6.2.0: ``base/trainer.py`` and ``base/training_args.py`` leave ``train``, the saving and the
resuming as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Call, Invocation, Python, Script, Value
from webhook.programs.arguments import DATACLASSES, hides_flags, names_file
from webhook.programs.corrected import in_line, looked_for
from webhook.programs.frameworks.framework import (
    Framework,
    Options,
    Setting,
    Use,
    call_setting,
    flag_setting,
    is_open,
    options,
    turned,
)
from webhook.programs.frameworks.odh_sdk import is_patched
from webhook.programs.pasted import headed, quoted
from webhook.programs.values import is_true

_LIBRARIES: Final = ("transformers", "trl", "sentence_transformers")
_TRL_COMMANDS: Final = frozenset(("sft", "dpo", "grpo", "kto", "reward", "rloo", "distillation"))


def is_trainer(python: Python, name: str) -> bool:
    """Whether a dotted name is a trainer class of transformers or TRL, or one that this text derives from it."""
    for _ in range(8):
        if name.partition(".")[0] in _LIBRARIES:
            return name.endswith("Trainer")
        derived = python.source.classes.get(name)
        if derived is None or not derived.bases:
            return False
        above = python.source.dotted(derived.bases[0])[0]
        if above == name:
            return False
        name = above
    return False


def is_arguments(name: str) -> bool:
    """Whether a dotted name is a class of training arguments: ``TrainingArguments``, TRL's ``SFTConfig``."""
    top, _, last = name.partition(".")
    last = last.rpartition(".")[2]
    if top in ("transformers", "sentence_transformers"):
        return last.endswith("TrainingArguments")
    return top == "trl" and last.endswith("Config") and last != "ModelConfig"


def train_calls(python: Python) -> list[Call]:
    """``trainer.train(...)``: on an object that is made here by a trainer's class, or that is called a trainer."""
    known, named = [], []
    for call in python.methods("train"):
        made_by = python.class_of(call.receiver, call.around)
        if is_trainer(python, made_by):
            known.append(call)
        elif "trainer" in call.name.lower() and (not made_by or made_by.endswith("Trainer")):
            named.append(call)
    return known or named


def resumed(script: Script, python: Python, train: Call, where: str, at: ast.AST | Call | None = None) -> str:
    """The line of a ``train()`` that resumes from the newest checkpoint in ``where``, as far as there is one.

    ``at`` is the node in its line that is pointed at, where that is not the call. ``where`` is ``""`` where only the
    trainer knows.
    """
    where = where or f"{python.text(train.receiver) if train.receiver is not None else 'trainer'}.args.output_dir"
    name = next((own for own, dotted in python.source.imports.items() if dotted.endswith(".get_last_checkpoint")), "")
    last = f"{name or 'get_last_checkpoint'}({where})"
    setting = f"resume_from_checkpoint={last} if os.path.isdir({where}) else None"
    line = in_line(script, python.at(at or train), setting, train, position=0)
    if line == setting and not train.name.startswith("()"):
        line = f"{train.name}({setting})"
    own = () if name else ("from transformers.trainer_utils import get_last_checkpoint",)
    missing = () if "os" in python.source.imports else ("import os",)
    return headed(python, line, *missing, *own) if own or missing else line


def arguments_calls(python: Python) -> Iterator[Call]:
    """The calls that make training arguments."""
    for call in python.source.calls:
        if call.imported and is_arguments(call.name) and not _is_thrown_away(python, call):
            yield call


def _is_thrown_away(python: Python, call: Call) -> bool:
    """``_ = TrainingArguments(".")``, made for what its making does."""
    bound = python.bindings(ast.Name("_", ast.Load()), call.around)
    return any(one.value is call.node for one in bound)


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        if not python.source.modules.isdisjoint(_LIBRARIES) and not is_patched(python):
            yield from _in_text(script, python)
    for invocation in script.invocations:
        if _is_unseen_trainer(invocation):
            yield _of_unseen(invocation)
        elif invocation.tool == "trl" and invocation.arguments[:1] and invocation.arguments[0] in _TRL_COMMANDS:
            yield _on_line(script, invocation)


_ITS_FLAGS: Final = frozenset(
    (
        *("per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs", "save_strategy"),
        *("save_total_limit", "output_dir", "lr_scheduler_type", "warmup_ratio", "logging_steps", "learning_rate"),
        *("weight_decay", "evaluation_strategy", "eval_strategy", "report_to", "gradient_checkpointing", "bf16"),
        *("dataloader_num_workers", "per_device_eval_batch_size", "max_steps", "save_only_model", "deepspeed"),
        "save_steps",
    )
)
_ENOUGH: Final = 5
"""Flags of the Trainer that make it the Trainer's command line."""


def _is_unseen_trainer(invocation: Invocation) -> bool:
    """``train_mem.py --output_dir D --save_steps 1000 --per_device_train_batch_size 16``: the script is not seen."""
    if invocation.python is not None or invocation.tool or not {"output_dir", "save_steps"} & set(invocation.flags):
        return False
    its = _ITS_FLAGS.intersection(invocation.flags)
    return len(its) >= _ENOUGH and bool(its & {"per_device_train_batch_size", "save_strategy", "save_total_limit"})


def _of_unseen(invocation: Invocation) -> Use:
    """What the flags say; of what is not given the script may have defaults of its own."""
    use = _from_flags(invocation, None, None)
    use.partial = True
    return use


def _in_text(script: Script, python: Python) -> Iterator[Use]:
    if not any(is_trainer(python, call.name) for call in python.source.calls):
        return
    trains = train_calls(python)
    if not trains:
        # It predicts or evaluates, or somebody else trains: nothing is known to be saved.
        return
    resume = _resume(python, trains)
    for call in arguments_calls(python):
        yield _from_call(python, call, resume)
    if any(_parses_arguments(python, call) for call in _parsing(python)):
        invocation = next((one for one in script.invocations if one.python is python), None)
        if invocation is not None:
            recipe = _recipe(script, python, invocation)
            yield _from_flags(invocation, python, resume) if recipe is None else _from_recipe(recipe, python, resume)


def _recipe(script: Script, python: Python, invocation: Invocation) -> Options | None:
    """The command line with the file that ``--config`` names, which TRL's parser reads below the flags."""
    if invocation.flag("config") is None or not any(True for _ in python.methods("parse_args_and_config")):
        return None
    found = options(script, invocation, "config")
    return found if found.whole_file is not None and not found.partial else None


def _from_recipe(given: Options, python: Python, resume: Setting | None) -> Use:
    """As ``TrlParser.parse_args_and_config`` does (trl/scripts/utils.py of TRL 0.20): flags win over the file."""
    strategy = given.setting("save_strategy", default="steps")
    every = given.setting("save_steps", default=500)
    only_model = given.setting("save_only_model", default=False)
    return Use(
        FRAMEWORK,
        given.invocation.place,
        python,
        None,
        given.invocation,
        directory=given.setting("output_dir", default=UNKNOWN),
        resume=resume,
        keep=given.setting("save_total_limit", default=None),
        every=every if strategy.value == "steps" else turned(every, UNKNOWN),
        saves=turned(strategy, _saves(strategy.value)),
        until=given.setting("max_steps", default=-1),
        full=turned(only_model, _not(only_model.value)),
    )


def _parsing(python: Python) -> Iterator[Call]:
    return python.methods(*DATACLASSES, "parse_dict")


def _parses_arguments(python: Python, call: Call) -> bool:
    """Whether the Trainer's arguments are among those that a parser fills, or a class that may be derived from them."""
    for origin, _ in python.origins(call.receiver, call.around) if call.receiver is not None else ():
        name = python.source.dotted(origin.func)[0] if isinstance(origin, ast.Call) else ""
        if not name.endswith(("HfArgumentParser", "TrlParser")) or not isinstance(origin, ast.Call):
            return False
        if origin.args and all(_is_its_own(python, one) for one in _items(origin.args[0])):
            return False
    return call.receiver is not None


def _items(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple | ast.List) else [node]


def _is_its_own(python: Python, node: ast.expr) -> bool:
    """A class of this text that is derived from none of training arguments: the Trainer's flags are none of its."""
    for _ in range(8):
        made = python.source.classes.get(node.id) if isinstance(node, ast.Name) else None
        if made is None:
            return False
        if not made.bases:
            return True
        node = made.bases[0]
    return False


def _from_call(python: Python, call: Call, resume: Setting | None) -> Use:
    strategy = call_setting(python, call, "save_strategy", "steps")
    saves = turned(strategy, _saves(strategy.value))
    every = call_setting(python, call, "save_steps", 500)
    if strategy.value != "steps":
        every = turned(every, UNKNOWN)
    only_model = call_setting(python, call, "save_only_model", False)
    return Use(
        FRAMEWORK,
        python.at(call),
        python,
        call,
        partial=is_open(python, call),
        directory=call_setting(python, call, "output_dir", UNKNOWN, 0),
        resume=resume,
        keep=_all_for_none(call_setting(python, call, "save_total_limit", None)),
        every=every,
        saves=saves,
        until=call_setting(python, call, "max_steps", -1),
        full=turned(only_model, _not(only_model.value)),
    )


def _all_for_none(keep: Setting) -> Setting:
    """A limit of 0 is none: transformers/trainer_utils.py, ``rotate_checkpoints``."""
    return turned(keep, None) if keep.value == 0 and keep.value is not False else keep


def _from_flags(invocation: Invocation, python: Python | None, resume: Setting | None) -> Use:
    strategy = flag_setting(invocation, "save_strategy", default="steps")
    only_model = flag_setting(invocation, "save_only_model", default=False)
    files = "config" in invocation.flags or (python is not None and names_file(python))
    partial = files or hides_flags(invocation.arguments)
    every = flag_setting(invocation, "save_steps", default=500)
    return Use(
        FRAMEWORK,
        invocation.place,
        python,
        None,
        invocation,
        partial=partial,
        directory=flag_setting(invocation, "output_dir"),
        resume=resume,
        keep=flag_setting(invocation, "save_total_limit", default=UNKNOWN if partial else None),
        every=every if strategy.value == "steps" else turned(every, UNKNOWN),
        saves=turned(strategy, _saves(strategy.value)),
        until=flag_setting(invocation, "max_steps", default=UNKNOWN if partial else -1),
        full=turned(only_model, _not(only_model.value)),
    )


def _on_line(script: Script, invocation: Invocation) -> Use:
    """``trl sft --output_dir ...``: its script passes ``--resume_from_checkpoint`` on."""
    flag = flag_setting(invocation, "resume_from_checkpoint", default=UNKNOWN if "config" in invocation.flags else None)
    use = _from_flags(invocation, None, flag)
    directory = use.directory.value if use.directory is not None else UNKNOWN
    if isinstance(directory, str) and directory:
        use.resume_fix = looked_for(
            script,
            invocation,
            f"last=$(ls -d {quoted(directory)}/checkpoint-* 2>/dev/null | sort -V | tail -n 1)",
            '${last:+--resume_from_checkpoint "$last"}',
        )
    return use


def _resume(python: Python, trains: list[Call]) -> Setting | None:
    """What ``train()`` is told; None where no call of it is seen. Of several, one that resumes counts."""
    found: Setting | None = None
    for call in trains:
        setting = call_setting(python, call, "resume_from_checkpoint", None, 0)
        if setting.given or found is None:
            found = setting
    return found


def resume_nodes(python: Python) -> Iterator[tuple[Call, ast.expr]]:
    """Every expression that a ``train()`` is told to resume from."""
    for call in train_calls(python):
        node = call.argument("resume_from_checkpoint", 0)
        if node is not None:
            yield call, node


def _saves(strategy: Value) -> Value:
    if not isinstance(strategy, str):
        return UNKNOWN
    return strategy != "no"


def _not(value: Value) -> Value:
    truth = is_true(value)
    return UNKNOWN if truth is None else not truth


FRAMEWORK = Framework(
    id="hf-trainer",
    title="Hugging Face Trainer, TRL",
    release="transformers 5.24.0, trl 1.16.0",
    recognised="Trainer(...) of transformers or trl; trl sft|dpo|grpo|...",
    saves='output_dir, every save_steps (500), save_strategy="steps"',
    resumes="train(resume_from_checkpoint=<path>); True fails where there is none; TrainingArguments' own is not read",
    keeps="save_total_limit (all)",
    sigterm="not heard; enable_jit_checkpoint=True saves (5.0 and newer)",
    ranks="the first process writes",
    uses=uses,
    keep_fix="save_total_limit=3",
    resume_fix="--resume_from_checkpoint",
    every_fix='save_strategy="steps", save_steps=500',
)
