"""Directories that a framework's flag names in ``command`` and ``args``, where no variable declares one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

FLAGS: Final = (
    "output_dir",
    "output-dir",
    "save",
    "save_dir",
    "save-dir",
    "save_path",
    "save-path",
    "checkpoint_dir",
    "checkpoint-dir",
    "checkpoint_path",
    "checkpoint-path",
    "ckpt_dir",
    "ckpt-dir",
    "default_root_dir",
    "default-root-dir",
)
"""``--<flag> X`` and ``--<flag>=X``: Hugging Face, Megatron-LM (``--save``), Lightning, and what scripts use."""
SETTINGS: Final = ("output_dir", "trainer.default_root_dir", "checkpointer.output_dir", "training_args.output_dir")
"""``<setting>=X``: torchtune and Hydra."""

_DASHED: Final = frozenset("--" + flag for flag in FLAGS)
_SET: Final = frozenset(SETTINGS)
_HINTS: Final = ("output_dir", "output-dir", "save", "checkpoint", "ckpt", "default_root_dir", "default-root-dir")
LONGEST: Final = 32768
"""Characters of one text that are searched; the rest of a longer one is program text with nothing to find."""


class Flag(Struct, frozen=True):
    """A flag found: its name as written, its value, and the index of the item that it stands in."""

    name: str
    value: str
    index: int


def find_flag(words: Sequence[Any]) -> Flag | None:
    """The last flag in ``command`` or ``args`` that names a directory (the last one wins in every parser)."""
    found: Flag | None = None
    for index, word in enumerate(words):
        if not isinstance(word, str) or not any(hint in word for hint in _HINTS):
            continue
        if " " in word or "\n" in word:
            inner = _in_script(word[:LONGEST], index)
            found = inner or found
        elif word in _DASHED:
            if index + 1 < len(words) and isinstance(words[index + 1], str) and not words[index + 1].startswith("-"):
                found = Flag(word, words[index + 1], index + 1)
        else:
            name, mark, value = word.partition("=")
            if mark and value and (name in _DASHED or name in _SET):
                found = Flag(name, value, index)
    return found


def _in_script(text: str, index: int) -> Flag | None:
    """The same in a shell line (``bash -c "torchrun x.py --output_dir /ckpt"``): absolute directories alone.

    Quotes are taken off; a comment line does not count, nor does a value with a shell variable or command in it.
    """
    found: Flag | None = None
    for line in text.split("\n"):
        if not any(hint in line for hint in _HINTS) or line.lstrip()[:1] == "#":
            continue
        words = line.split()
        for at, word in enumerate(words):
            word = word.lstrip("\"'`(")
            name, mark, value = word.partition("=")
            if name in _DASHED and not mark and at + 1 < len(words):
                value = words[at + 1]
            elif not mark or (name not in _DASHED and name not in _SET):
                continue
            value = value.strip("\"'").rstrip("\"'`;,)&|\\")
            if value[:1] == "/" and not any(mark in value for mark in "$`*?{<>|;&\"'"):
                found = Flag(name, value, index)
    return found
