"""What a shell makes of its quotes, escapes and here-documents. Nothing here runs anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.programs.shell_commands import NotRead
from webhook.programs.values import LONGEST, UNKNOWN, Text, Unknown, Value, kinds, pieces, shown

HIDDEN: Final = "__SHELL_"


def expand_document(text: str, variables: Mapping[str, Value]) -> str:
    """A text between ``<<EOF`` and ``EOF`` with the shell's variables in it."""
    out: list[str] = []
    at = size_of = 0
    size = len(text)
    while at < size:
        next_at = min((found for mark in "$`\\" if (found := text.find(mark, at)) >= 0), default=size)
        out.append(text[at:next_at])
        at = next_at
        if at >= size:
            break
        letter = text[at]
        if letter == "\\":
            after = text[at + 1 : at + 2]
            if after == "\n":
                out.append("")
            elif after in ("$", "`", "\\"):
                out.append(after)
            else:
                out.append("\\" + after)
            at += 2
        elif letter == "`":
            end = text.find("`", at + 1)
            out.append(HIDDEN + "__")
            at = size if end < 0 else end + 1
        else:
            at = _expand_one(text, at, variables, out)
            if len(out[-1]) > 256:
                size_of += len(out[-1])
                if size_of > LONGEST:
                    raise NotRead("its here-documents are too long with their variables")
    return "".join(out)


def _expand_one(text: str, at: int, variables: Mapping[str, Value], out: list[str]) -> int:
    after = text[at + 1 : at + 2]
    if after == "(":
        depth = 0
        for index in range(at + 1, min(len(text), at + 4096)):
            depth += (text[index] == "(") - (text[index] == ")")
            if depth == 0:
                kind = run_by(text[at : index + 1]).kind
                out.append(f"{HIDDEN}{'FRESH' if kind == 'fresh' else ''}__")
                return index + 1
        out.append("$")
        return at + 1
    brace = after == "{"
    start = at + 2 if brace else at + 1
    end = start
    while end < len(text) and (text[end].isalnum() or text[end] == "_"):
        end += 1
    name = text[start:end]
    if not name or name[0].isdigit():
        out.append("$")
        return at + 1
    close = text.find("}", end) if brace else end - 1
    if close < 0:
        out.append("$")
        return at + 1
    value = variables.get(name)
    plain = not brace or text[end:close] == ""
    if isinstance(value, str) and value and (plain or text[end : end + 1] == ":"):
        out.append(value)
    elif name in ("RANDOM", "SECONDS", "EPOCHSECONDS"):
        out.append(f"{HIDDEN}FRESH_{name}__")
    elif plain and isinstance(value, Text | Unknown) and "fresh" in kinds(value):
        out.append("".join(one if isinstance(one, str) else f"{HIDDEN}FRESH_{name}__" for one in pieces(value)))
    else:
        out.append(f"{HIDDEN}{name}__")
    return close + 1


_FRESH: Final = ("date", "uuidgen", "mktemp", "openssl", "od", "shuf", "pwgen")


def run_by(raw: str) -> Unknown:
    """What is known of ``$(command)``: nothing but whether it differs at every start."""
    inner = raw.strip("`").removeprefix("$(").removesuffix(")").split()
    name = inner[0].rpartition("/")[2] if inner else ""
    if name in _FRESH or "/proc/sys/kernel/random/uuid" in raw:
        return Unknown("fresh", shown(raw))
    if name == "hostname":
        return Unknown("host", shown(raw))
    return Unknown("", shown(raw))


def unescaped(raw: str) -> str:
    if "\\" not in raw:
        return raw
    out: list[str] = []
    at = 0
    while at < len(raw):
        if raw[at] == "\\" and at + 1 < len(raw):
            if raw[at + 1] != "\n":
                out.append(raw[at + 1])
            at += 2
        else:
            out.append(raw[at])
            at += 1
    return "".join(out)


def in_quotes(raw: str) -> str:
    if "\\" not in raw:
        return raw
    out: list[str] = []
    at = 0
    while at < len(raw):
        after = raw[at + 1 : at + 2]
        if raw[at] == "\\" and after in ('"', "$", "`", "\\", "\n"):
            if after != "\n":
                out.append(after)
            at += 2
        else:
            out.append(raw[at])
            at += 1
    return "".join(out)


_ANSI: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


def ansi(raw: str) -> Value:
    out: list[str] = []
    at = 0
    while at < len(raw):
        if raw[at] == "\\" and at + 1 < len(raw):
            if raw[at + 1] not in _ANSI:
                return UNKNOWN
            out.append(_ANSI[raw[at + 1]])
            at += 2
        else:
            out.append(raw[at])
            at += 1
    return "".join(out)
