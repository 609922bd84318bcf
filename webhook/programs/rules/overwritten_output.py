"""A restart throws away what the run has saved so far.

Symptom: the directory holds a few young checkpoints after every restart, and the run begins at step 0.
Fix: take out the flag or the command that empties the directory.
Bad:
    args:
    - |
      rm -rf "$CKPT_DIR"
      exec torchrun train.py
Good:
    args:
    - |
      mkdir -p "$CKPT_DIR"
      exec torchrun train.py
Reads: overwrite_output_dir, resume_mode=disable, --finetune; rm and shutil.rmtree before the training.
Silent when: the program never reads the flag; something else is removed; a quoted star removes nothing; it stands under
a condition.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Lines, Remark
from webhook.programs import Call, Invocation, Python, Script, Value
from webhook.programs.corrected import LONGEST, in_line
from webhook.programs.flow import in_loop, is_training
from webhook.programs.frameworks import find_uses, mended
from webhook.programs.pasted import after, with_import
from webhook.programs.program import lies_in
from webhook.programs.shell import Command, Shell
from webhook.programs.values import is_text, is_true, said

ID = "overwritten-output"
_EXAMPLES: Final = frozenset(
    (
        "run_clm.py",
        "run_fim.py",
        "run_mlm.py",
        "run_plm.py",
        "run_glue.py",
        "run_xnli.py",
        "run_classification.py",
        "run_qa.py",
        "run_seq2seq_qa.py",
        "run_ner.py",
        "run_swag.py",
        "run_summarization.py",
        "run_translation.py",
        "run_speech_recognition_ctc.py",
        "run_speech_recognition_seq2seq.py",
        "run_audio_classification.py",
        "run_image_classification.py",
        "run_semantic_segmentation.py",
        "run_object_detection.py",
        "run_mae.py",
        "run_mim.py",
        "run_clip.py",
    )
)
"""transformers' own examples up to 4.x, which look for a checkpoint only without --overwrite_output_dir. Read in
``examples/pytorch/*/run_*.py``: ``if ... do_train and not training_args.overwrite_output_dir``. From 5.0 on the flag is
no argument any more, so whoever gives it runs an older one."""
_CHOOSES: Final = frozenset(
    ("-name", "-iname", "-path", "-regex", "-mtime", "-mmin", "-newer", "-size", "-empty", "-not", "!", "-prune")
)
"""Tests of ``find`` by which not everything is removed."""
_SAVES: Final = (
    "output_dir",
    "checkpoint_dir",
    "checkpoints_dir",
    "ckpt_dir",
    "save_dir",
    "save_path",
    "save",
    "save_folder",
    "out_dir",
    "trainer.default_local_dir",
)
"""Flags by which programs are told where to save."""


def look(script: Script) -> Iterator[Remark]:
    for use in find_uses(script):
        if use.overwrite is not None and use.overwrite.value is True:
            name = use.overwrite.written or use.overwrite.name
            fix = use.framework.resume_fix if not name.startswith("--") else f"without {use.overwrite.name}"
            yield Remark(
                use.overwrite.place,
                f'"{said(name)}" makes every start begin at step 0, checkpoints or not',
                mended(script, use.overwrite, fix, use),
                subject=use.overwrite.name,
            )
    for invocation in script.invocations:
        yield from _skipped(script, invocation)
    for shell in script.shells:
        yield from _removed(script, shell)
    for python in script.pythons:
        yield from _rmtree(script, python)


def _skipped(script: Script, invocation: Invocation) -> Iterator[Remark]:
    """``--overwrite_output_dir`` for a program that looks for no checkpoint when it is set."""
    flag = invocation.flag("overwrite_output_dir")
    if flag is None or is_true(flag.value) is not True or "resume_from_checkpoint" in invocation.flags:
        return
    if invocation.python is not None:
        if not _reads_flag(invocation.python):
            return
    elif invocation.file.rpartition("/")[2] not in _EXAMPLES:
        return
    yield Remark(
        flag.place,
        f'"{flag.name}" keeps "{invocation.name}" from looking for its last checkpoint',
        in_line(script, flag.place, f"without {flag.name}"),
        subject=flag.name,
    )


def _reads_flag(python: Python) -> bool:
    """``if ... and not args.overwrite_output_dir: last_checkpoint = get_last_checkpoint(...)``."""
    for call in python.named("get_last_checkpoint"):
        for test, branch in call.guards():
            for part in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]:
                if (
                    branch
                    and isinstance(part, ast.UnaryOp)
                    and isinstance(part.op, ast.Not)
                    and isinstance(part.operand, ast.Attribute)
                    and part.operand.attr == "overwrite_output_dir"
                ):
                    return True
    return False


def _removed(script: Script, shell: Shell) -> Iterator[Remark]:
    """``rm -rf`` of the directory or of all in it, before the training and on no condition."""
    if not shell.has("rm", "find"):
        return
    trainings = [invocation for invocation in script.invocations if is_training(invocation)]
    own = {id(invocation.command) for invocation in trainings}
    last = max((at for at, command in enumerate(shell.commands) if id(command) in own), default=-1)
    for at, command in enumerate(shell.commands):
        if at > last or not _recursive(command) or _conditional(shell, command):
            continue
        for word, raw in zip(command.words[1:], command.raw[1:], strict=False):
            if _empties(script, word, raw) or any(_is_saved_to(invocation, word) for invocation in trainings):
                yield Remark(
                    command.place,
                    f'"{said(command.source)}" removes the checkpoints at every start',
                    _kept(shell, command, f"mkdir -p {raw.removesuffix('/*').removesuffix('/') or raw}"),
                    subject=command.source,
                )
                return


def _kept(shell: Shell, command: Command, instead: str) -> str:
    """The line with another command in place of the one that removes."""
    line = shell.line(command.place)
    if command.source and line.count(command.source) == 1 and len(line) <= LONGEST:
        return Lines(line.replace(command.source, instead), command.place.line, command.place.line)
    return instead


def _is_saved_to(invocation: Invocation, word: Value) -> bool:
    """Whether a flag of the training says that it saves there: ``rm -rf $OUT`` and then ``--output_dir $OUT``."""
    flag = invocation.flag(*_SAVES)
    if flag is None or not is_text(flag.value) or not is_text(word):
        return False
    if isinstance(word, str):
        return word.strip("./~") != "" and lies_in(flag.value, word)
    return bool(flag.value == word)


def _recursive(command: Command) -> bool:
    """``rm -r``; ``find DIR -delete`` where nothing chooses among what is found."""
    if command.name == "find":
        return "-delete" in command.words and _CHOOSES.isdisjoint(command.words)
    if command.name != "rm":
        return False
    flags = "".join(
        word for word in command.words[1:] if isinstance(word, str) and word[:1] == "-" and word[:2] != "--"
    )
    return "r" in flags.lower() or "--recursive" in command.words


def _conditional(shell: Shell, command: Command) -> bool:
    if command.inside("else", "case", "test", "for", "while", "function", "||", "&", "!") is not None:
        return True
    tests = [around.name for around in command.around if around.kind == "if"]
    both = command.inside("&&")
    if both is not None and both.index > 0:
        tests.append(shell.line(command.place).strip().partition("&&")[0])
    return not all(_is_there(test, command) for test in tests)


def _is_there(test: str, command: Command) -> bool:
    """``[ -d "$OUT" ]`` before ``rm -r "$OUT"``: whether there is anything to remove is no condition."""
    words = test.replace('"', "").replace("'", "").split()
    removed = {raw.replace('"', "").replace("'", "").removesuffix("*").rstrip("/") for raw in command.raw[1:]}
    return (
        len(words) in (3, 4)
        and words[0] in ("[", "[[", "test")
        and words[1] in ("-d", "-e")
        and words[2].rstrip("/;") in removed
    )


def _empties(script: Script, word: Value, raw: str) -> bool:
    if not isinstance(word, str):
        return False
    if word.endswith("/*"):
        # Between quotes the star is no pattern, and nothing is removed.
        if raw.rstrip("\"'") != raw or ("*" in raw and raw.count('"') % 2 == 0 and raw.endswith('*"')):
            return False
        word = word[:-2]
    elif "*" in word or "?" in word:
        return False
    return _is_directory(script, word)


def _is_directory(script: Script, path: Value) -> bool:
    """The declared directory itself or one above it (not above its mount: that is not emptied by a run)."""
    if not isinstance(path, str) or not path.startswith("/") or path.strip("/") == "":
        return False
    place = path.rstrip("/")
    directories = (*script.launch.directories, *_written(script))
    return any(one.rstrip("/") == place or one.startswith(place + "/") for one in directories)


def _written(script: Script) -> tuple[str, ...]:
    """Directories that frameworks save to, where they lie on a volume."""
    return tuple(
        use.directory.value
        for use in find_uses(script)
        if use.directory is not None and isinstance(use.directory.value, str) and script.on_volume(use.directory.value)
    )


def _rmtree(script: Script, python: Python) -> Iterator[Remark]:
    for call in python.calls("shutil.rmtree"):
        node = call.argument("path", 0)
        if node is None or in_loop(python, call) is not False or not _at_every_start(python, call):
            continue
        if _is_directory(script, python.value(node, call.around)) and _before_training(python, call):
            yield Remark(
                python.at(call),
                f'"{python.text(call.node)}" removes the checkpoints at every start',
                with_import(python, after(python, call, (), f"os.makedirs({python.text(node)}, exist_ok=True)"), "os"),
                subject=python.text(node),
            )


def _at_every_start(python: Python, call: Call) -> bool:
    """On no condition but that the directory is there, or that this is the first process."""
    for test, branch in call.guards():
        text = python.source.source(test)
        exists = any(word in text for word in ("exists(", "isdir(", "is_dir(", "rank", "is_main", "is_master"))
        if not branch or not exists or "not " in text or " and " in text or " or " in text:
            return False
    return not call.inside("except", "finally")


def _before_training(python: Python, call: Call) -> bool:
    later = [one.line for one in python.methods("backward", "fit", "train", "train_batch", "save_checkpoint")]
    return not later or call.line < max(later)


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="a restart finds nothing to resume from, since the start itself has thrown it away",
    look=look,
    on_runtime=Severity.WARN,
)
