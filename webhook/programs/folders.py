"""The working directory of each command of a shell text: ``cd`` as far as it is certain, from where the text starts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from webhook.model.path import components
from webhook.programs.values import UNKNOWN, Text, Value, head, is_text, join_path

if TYPE_CHECKING:
    from webhook.programs.python import Python

_APART: Final = frozenset(("subshell", "substitution", "function", "&"))
"""Constructs whose ``cd`` ends with them."""
_PERHAPS: Final = frozenset(("if", "else", "case", "while", "for"))
"""Constructs that may not be run."""
_MOVES: Final = frozenset(("cd", "pushd", "popd", "chroot"))
_SCOPES: Final = _APART | _PERHAPS
_OWN: Final = r"""["']?\$(?:0|\{0\}|BASH_SOURCE|\{BASH_SOURCE(?:\[0\])?\})["']?"""
_DIRNAME: Final = rf"""(?:\$\(\s*dirname\s+(?:--\s+)?{_OWN}\s*\)|`\s*dirname\s+{_OWN}\s*`)"""
_ITS_FOLDER: Final = re.compile(_DIRNAME)
_ITS_FOLDER_FROM_ROOT: Final = re.compile(
    rf"""\$\(\s*cd\s+(?:--\s+)?["']?{_DIRNAME}["']?(?:/(?P<below>[\w./-]*))?["']?\s*[^&;|]*(?:&&|;)\s*pwd(?:\s+-P)?\s*\)"""
)
_OF_FILE: Final = re.compile(
    r"os\.path\.dirname\((?:os\.path\.(?:abspath|realpath)\()?__file__\)?\)|(?:pathlib\.)?Path\(__file__\)(?:\.resolve\(\))?\.parent"
)
"""The folder of the program's own file."""
_HERE: Final = re.compile(r"\$\(\s*pwd(?:\s+-P)?\s*\)|`\s*pwd\s*`")


class Folders:
    """Where the commands of one text run, told as they are met in order.

    ``start`` is where the text starts, ``file`` its own path from the root, where it is a file. ``here`` is the working
    directory of what was entered last.
    """

    def __init__(self, start: Value, file: str = "") -> None:
        self.here = start
        self.file = file if file.startswith("/") else ""
        self._known: dict[tuple[int, ...], Value] = {(): start}
        self._moved = False
        """Until something moves, all is where it started, and no construct is remembered."""
        self._tried = False
        """The command before was a ``cd`` whose failure is caught."""
        self._movers: set[str] = set()
        """Functions of the text that change the directory."""

    def heeds(self, name: str) -> bool:
        """Whether ``run`` has to be told of a command of this name: most change nothing."""
        return self._tried or name in _MOVES or name in self._movers

    def enter(self, around: Sequence[Any]) -> Value:
        """The working directory of what stands in these constructs, which ``here`` is from now on."""
        if not self._moved:
            return self.here
        key = _key(around)
        for size in range(len(key), -1, -1):
            found = self._known.get(key[:size])
            if found is not None:
                break
        for below in range(size + 1, len(key) + 1):  # so that no outer one is looked for again
            self._known[key[:below]] = found
        self.here = found
        return self.here

    def run(self, name: str, arguments: Sequence[Value], around: Sequence[Any], home: Value) -> None:
        """What a command does to the working directory of those behind it."""
        caught = any(one.kind == "||" and one.index for one in around)
        if self._tried and caught and name not in ("exit", "return", "false", "kill"):
            self._move(UNKNOWN, around)
        self._tried = name in ("cd", "pushd") and any(one.kind == "||" for one in around) and not caught
        if name in self._movers:
            self._move(UNKNOWN, around)
        elif name in ("cd", "pushd", "popd", "chroot"):
            self._move(UNKNOWN if name in ("popd", "chroot") else self._target(arguments, home), around)

    def _target(self, arguments: Sequence[Value], home: Value) -> Value:
        given = [one for one in arguments if not head(one).startswith("-") or one == "-"]
        if not given:
            return home
        target = given[0]
        if len(given) > 1 or target == "-" or head(target).startswith("~") or not is_text(target):
            return UNKNOWN
        return joined(self.here, target)

    def _move(self, target: Value, around: Sequence[Any]) -> None:
        if any(one.kind == "||" and one.index for one in around):
            target = UNKNOWN
        for one in around:
            if one.kind == "function":
                self._movers.add(one.name)
        key = _key(around)
        if not self._moved:
            self._moved = True
            self._known.update((key[:size], self.here) for size in range(1, len(key) + 1))
        kinds = [one.kind for one in around if one.kind in _SCOPES]
        self._known[key] = target
        # What follows the condition runs there too, or where it was before.
        for size in range(len(key) - 1, -1, -1):
            if kinds[size] in _APART:
                break
            before = self._known.get(key[:size])
            if before is UNKNOWN:
                break  # and so are those around it
            if before != target:
                self._known[key[:size]] = UNKNOWN

    def printed(self, raw: str) -> Value | None:
        """The directory that ``$(pwd)`` or ``$(dirname "$0")`` prints; None for anything else."""
        if len(raw) > 256:
            return None
        if _HERE.fullmatch(raw):
            return self.here
        own = self.file.rpartition("/")[0] or "/"
        if not self.file:
            return None
        if _ITS_FOLDER.fullmatch(raw):
            return own
        found = _ITS_FOLDER_FROM_ROOT.fullmatch(raw)
        return joined(own, found["below"] or ".") if found is not None else None


def joined(folder: Value, path: Value) -> Value:
    """A path from the root: as it is where it begins there, else below ``folder``; unknown where that is not known."""
    if not head(path).startswith("/"):
        if not head(folder).startswith("/") or not head(path):
            return UNKNOWN
        path = join_path((folder, path))
    if isinstance(path, str):
        return "/" + "/".join(components(path))
    return path if isinstance(path, Text) else UNKNOWN


def changed(python: Python) -> Value:
    """Where a program works after its one ``os.chdir``; unknown where it has several, or one that may not be run."""
    calls = python.source.by_attr["chdir"]
    if len(calls) != 1 or calls[0].inside("for", "while", "if", "except") or not calls[0].node.args:
        return UNKNOWN
    call = calls[0]
    text = python.text(call.node.args[0])
    if _OF_FILE.fullmatch(text):
        own = joined(python.folder, python.file)
        return own.rpartition("/")[0] or "/" if isinstance(own, str) else UNKNOWN
    return joined(python.folder, python.value(call.node.args[0], call.around))


def _key(around: Sequence[Any]) -> tuple[int, ...]:
    return tuple(id(one) for one in around if one.kind in _SCOPES)
