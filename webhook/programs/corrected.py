"""The line that a finding points at, with a setting as it has to be: what its ``fix:`` is wherever one line will do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.script import BEHIND, Lines, Place
from webhook.programs.config import Config
from webhook.programs.program import Invocation, Script
from webhook.programs.python import Call, Python
from webhook.programs.shell import Shell

LONGEST: Final = 80
"""Characters of the user's own that the corrected line may hold, as a message may; where there
are more, the setting alone is said."""
_YAML: Final = {"True": "true", "False": "false", "None": "null"}
_TRUTHS: Final = frozenset(("true", "false", "yes", "no", "on", "off", "1", "0"))
_ENDS: Final = ("|", "||", "&", "&&", ";")


def in_line(
    script: Script,
    place: Place,
    fix: str,
    call: Call | None = None,
    invocation: Invocation | None = None,
    position: int | None = None,
    given: bool = False,
) -> str:
    """The line at ``place`` with ``fix`` in it; ``fix`` itself where the line is too long or cannot be told.

    ``fix`` is one or several settings as they are written there: ``name=value, other=value`` in a call (``call``;
    ``position`` is where the first may stand without its name), ``key: value`` in a file, ``--flag value`` or
    ``without --flag`` on a command line (``invocation``: where one that is absent goes; a first
    one that is ``given`` and not in the line comes out of a variable). A remark behind it stays.
    """
    bare, mark, remark = fix.partition("    #")
    if not place.line:
        return fix
    line = old = ""
    for python in script.pythons:
        if call is not None and not line and _holds(python.place, len(python.source.lines), place):
            line = _in_call(python, call, place, bare, position)
            old = python.source.lines[place.line - max(python.place.line, 1)].strip()
    for config in script.configs:
        if not line and _holds(config.place, config.text.count("\n") + 1, place):
            return _in_file(config, place, bare)
    for shell in reversed(script.shells):
        if not line and call is None and _holds(shell.place, len(shell.lines), place):
            line, old = _in_command(shell, place, bare, invocation, given), shell.line(place)
    if not line:
        return fix
    remark = mark + remark if call is None and not line.endswith("\\") else ""
    shown = fix if _shared(line, old) > LONGEST or (mark and line.endswith("\\")) else line + remark
    return Lines(shown, place.line, place.line, whole=line + remark)


def looked_for(script: Script, invocation: Invocation, before: str, argument: str) -> str:
    """A command that is given an argument by what the shell finds first: ``before`` sets a variable, and ``argument``
    uses it. Where the kubelet starts the program, a shell in front of the command does it.
    """
    if invocation.command is None:
        text = "\n".join(f"  {line}" for line in before.split("\n"))
        return f'command:\n- bash\n- -c\n- |\n{text}\n  exec "$0" "$@" {argument}\n{BEHIND}'
    line = in_line(script, invocation.place, f"{_MARK}={_MARK}", None, invocation)
    number = invocation.place.line
    if isinstance(line, Lines):
        return Lines(f"{before}\n{line.replace(f'{_MARK}={_MARK}', argument)}", number, number)
    return f"# before line {number}:\n{before}\n# and behind the arguments of that command: {argument}"


_MARK: Final = "CKPTGUARD"


def with_node(python: Python, node: ast.expr, text: str) -> str:
    """The node's line with ``text`` in its place; ``text`` where it has more lines or is too long."""
    old = python.source.lines[node.lineno - 1]
    raw = old.encode()
    line = (raw[: node.col_offset] + text.encode() + raw[node.end_col_offset :]).decode("utf-8", "replace")
    at = python.at(node).line
    if node.lineno != node.end_lineno:
        return text
    return Lines(line.strip() if len(old) <= LONGEST else text, at, at, whole=line.strip())


def whole_line(line: str, instead: str) -> str:
    """A line as written; ``instead`` where it is too long for a message."""
    return line.strip() if len(line.strip()) <= LONGEST else instead


def _shared(line: str, old: str) -> int:
    """Characters that stay as they were, at both ends."""
    most = min(len(line), len(old))
    front = next((at for at in range(most) if line[at] != old[at]), most)
    return front + next((at for at in range(most - front) if line[-1 - at] != old[-1 - at]), most - front)


def _holds(start: Place, count: int, place: Place) -> bool:
    first = max(start.line, 1)
    return (start.field, start.index) == (place.field, place.index) and first <= place.line < first + count


def _in_call(python: Python, call: Call, place: Place, settings: str, position: int | None) -> str:
    written = f"f({settings})"
    try:
        wanted = ast.parse(written, mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    number = place.line - max(python.place.line, 1) + 1
    node, raw = call.node, python.source.lines[number - 1].encode()
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    edits: list[tuple[int, int, str]] = []
    absent: list[str] = []
    for keyword in wanted.keywords if isinstance(wanted, ast.Call) else ():
        text, old = ast.get_source_segment(written, keyword.value) or "", given.get(keyword.arg)
        if old is None and position is not None and len(node.args) > position:
            old = node.args[position]
        if old is None:
            absent.append(f"{keyword.arg}={text}")
        elif old.lineno == number == old.end_lineno:
            edits.append((old.col_offset, old.end_col_offset or 0, text))
        else:
            return ""
    if absent and None in given:
        return ""  # ``**settings`` may hold it
    if absent:
        at, before, after = _gap(python, node, number, edits)
        if at < 0:
            return ""
        edits.append((at, at, before + ", ".join(absent) + after))
    for start, end, text in sorted(edits, reverse=True):
        raw = raw[:start] + text.encode() + raw[end:]
    return raw.decode("utf-8", "replace").strip()


def _gap(python: Python, node: ast.Call, number: int, edits: list[tuple[int, int, str]]) -> tuple[int, str, str]:
    """Where in a line another argument goes, and what stands before and after it; -1 where it cannot be told."""
    raw = python.source.lines[number - 1].encode()
    if edits:
        return max(end for _, end, _ in edits), ", ", ""
    if node.end_lineno == number:
        at = (node.end_col_offset or 0) - 1
        last = raw[:at].rstrip()[-1:]
        return at, "" if last in b"(," else ", ", ""
    if node.lineno != number or any(one.lineno > number for one in node.args):
        return -1, "", ""
    code = raw.rstrip()
    return (len(code), "" if code.endswith(b"(") else " ", ",") if code[-1:] in (b"(", b",") else (-1, "", "")


def _in_file(config: Config, place: Place, settings: str) -> Lines:
    """The lines of a file; what has no line of its own is one to add, before its first."""
    base = max(config.place.line, 1)
    lines = config.text.split("\n")
    old = lines[place.line - base].strip()
    json = config.file.endswith(".json")
    out = []
    has = False
    for one in settings.split(", "):
        name, _, value = one.partition(": ") if ": " in one else one.partition("=")
        name, value = name.strip('" '), value.strip()
        has = has or old.lstrip("{- ").strip("\"'").startswith(name)
        if json:
            comma = "," if old.endswith(",") or not old.strip('"').startswith(name) else ""
            out.append(f'"{name}": {_YAML.get(value, value)}{comma}')
        else:
            quote = old[-1:] if has and old[-1:] in "\"'" and old[-1:] else ""
            out.append(f"{name}: {quote}{_YAML.get(value, value).strip(chr(34))}{quote}")
    text = "\n".join(out)
    if has:
        return Lines(text, place.line, place.line)
    first = next((at for at, line in enumerate(lines) if line.strip() and not line.startswith(("---", "#", "%"))), 0)
    if json:
        first += lines[first].strip() == "{"
    return Lines(text, base + first, base + first - 1, base + first)


def _in_command(shell: Shell, place: Place, settings: str, invocation: Invocation | None, given: bool) -> str:
    line = shell.line(place)
    words = list(_words(line))
    pairs = list(_pairs(settings))
    for name, value, keeps in pairs:
        found = next(
            (at for at in range(len(words)) if _key(words[at][2].partition("=")[0].strip("\"'")) == _key(name)), None
        )
        if found is None:
            anchor = _anchor(words, invocation)
            if not keeps or anchor is None or (given and name == pairs[0][0]):
                return ""
            line = f"{line[:anchor]} {name}{value}{line[anchor:]}"
        else:
            start, end, word = words[found]
            marked = "=" in word
            follows = words[found + 1] if found + 1 < len(words) and not marked else None
            if keeps:
                if not marked and (follows is None or follows[2] in ("\\", *_ENDS)):
                    return ""
                end = end if marked or follows is None else follows[1]
                word = word.partition("=")[0].lstrip("\"'") + "=" if marked else word + " "
                line = line[:start] + word + value[1:] + line[end:]
            else:
                if follows is not None and follows[2].strip("\"'").lower() in _TRUTHS:
                    end = follows[1]
                line = (line[:start] + line[end:].lstrip()).rstrip() if start else line[end:].lstrip()
        words = list(_words(line))
    return line if pairs else ""


def _pairs(settings: str) -> Iterator[tuple[str, str, bool]]:
    """Names, values with the mark before them, and whether they are to be there."""
    if settings.startswith("without "):
        yield settings.removeprefix("without ").partition(" ")[0], "", False
        return
    words = settings.split()
    if not words or any(word.startswith("<") for word in words):
        return
    if not words[0].startswith("-"):
        name, mark, value = settings.partition("=")
        if mark and " " not in settings:
            yield name, "=" + value, True
        return
    if len(words) == 1:
        yield words[0], "", True
    for at, word in enumerate(words):
        if word.startswith("--") and at + 1 < len(words):
            yield word, " " + words[at + 1], True


def _anchor(words: list[tuple[int, int, str]], invocation: Invocation | None) -> int | None:
    """Behind the program's name: its arguments may be given in any order."""
    if invocation is None:
        return None
    if invocation.tool and words and words[-1][2] != "\\" and not any(word in _ENDS for _, _, word in words):
        return words[-1][1]
    names = [name for name in (invocation.file, invocation.module) if name]
    return next((end for _, end, word in words if word.strip("\"'") in names), None)


def _key(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _words(line: str) -> Iterator[tuple[int, int, str]]:
    """The words of a line of shell: where each begins and ends."""
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        start, quote = at, ""
        while at < len(line) and (quote or not line[at].isspace()):
            if line[at] == "\\" and quote != "'":
                at += 1
            elif line[at] in "\"'" and quote in ("", line[at]):
                quote = "" if quote else line[at]
            at += 1
        yield start, min(at, len(line)), line[start:at]


__all__ = ["LONGEST", "in_line", "looked_for", "whole_line", "with_node"]
