"""Here-documents, taken out of a shell text before its grammar is asked.

A body is data, mostly Python, and may be longer than the shell around it; the grammar reads the shell alone. In place
of ``<<'PY'`` stands a redirection from a file with a name of ours, and the lines of the body are left empty, so that
every line keeps its number.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

MARK: Final = "/@here-"
"""Beginning of the name that stands in place of a here-document: ``< /@here-0``."""
MOST: Final = 64
"""Here-documents that are looked at in one text."""


class Document(Struct, frozen=True):
    """One here-document: its text (tabs taken off for ``<<-``), its first line's number, and whether it is quoted.

    In one that is not quoted the shell expands variables.
    """

    text: str
    line: int
    quoted: bool


def lift(text: str) -> tuple[str, tuple[Document, ...]]:
    """The shell text without its here-documents, and those. One that is never closed reaches to the end, as in bash."""
    if "<<" not in text:
        return text, ()
    lines = text.split("\n")
    documents: list[Document] = []
    stack: list[str] = []
    index = 0
    while index < len(lines):
        pending: list[tuple[str, bool, bool]] = []
        lines[index] = _scan(lines[index], stack, pending, len(documents))
        index += 1
        for word, quoted, tabs in pending:
            start = index
            body: list[str] = []
            while index < len(lines):
                line = lines[index].lstrip("\t") if tabs else lines[index]
                lines[index] = ""
                index += 1
                if line == word or line == word + "\r":
                    break
                body.append(line)
            documents.append(Document("\n".join(body) + "\n" if body else "", start + 1, quoted))
    return "\n".join(lines), tuple(documents)


def _scan(line: str, stack: list[str], pending: list[tuple[str, bool, bool]], known: int) -> str:
    """One line of shell with its ``<<WORD`` replaced. ``stack`` holds what quotes and brackets are open."""
    out: list[str] = []
    at = 0
    size = len(line)
    while at < size:
        letter = line[at]
        top = stack[-1] if stack else ""
        if top == "'":
            end = line.find("'", at)
            if end < 0:
                out.append(line[at:])
                return "".join(out)
            stack.pop()
            out.append(line[at : end + 1])
            at = end + 1
        elif letter == "\\":
            out.append(line[at : at + 2])
            at += 2
        elif letter == "$" and line[at + 1 : at + 3] == "((":
            stack.append("((")
            out.append("$((")
            at += 3
        elif letter == "$" and line[at + 1 : at + 2] == "(":
            stack.append("(")
            out.append("$(")
            at += 2
        elif letter == '"':
            if top == '"':
                stack.pop()
            else:
                stack.append('"')
            out.append(letter)
            at += 1
        elif top == '"':
            out.append(letter)
            at += 1
        elif letter == "'":
            stack.append("'")
            out.append(letter)
            at += 1
        elif letter == "(":
            double = line[at + 1 : at + 2] == "(" and not line[:at].strip()
            stack.append("((" if double else "(")
            out.append("((" if double else "(")
            at += 2 if double else 1
        elif letter == ")":
            if top == "((" and line[at + 1 : at + 2] == ")":
                stack.pop()
                out.append("))")
                at += 2
                continue
            if top:
                stack.pop()
            out.append(letter)
            at += 1
        elif letter == "#" and (at == 0 or line[at - 1] in " \t;&|("):
            out.append(line[at:])
            return "".join(out)
        elif letter == "<" and line[at : at + 3] == "<<<":
            out.append("<<<")
            at += 3
        elif letter == "<" and line[at + 1 : at + 2] == "<" and top != "((":
            found = _word(line, at + 2)
            if found is None or known + len(pending) >= MOST:
                out.append("<<")
                at += 2
                continue
            word, quoted, tabs, at = found
            out.append(f"< {MARK}{known + len(pending)}")
            pending.append((word, quoted, tabs))
        else:
            out.append(letter)
            at += 1
    return "".join(out)


def _word(line: str, at: int) -> tuple[str, bool, bool, int] | None:
    """The delimiter after ``<<``: the word, whether it is quoted, whether tabs are taken off, and where it ends."""
    tabs = line[at : at + 1] == "-"
    if tabs:
        at += 1
    while line[at : at + 1] in (" ", "\t"):
        at += 1
    word: list[str] = []
    quoted = False
    while at < len(line):
        letter = line[at]
        if letter in "'\"":
            end = line.find(letter, at + 1)
            if end < 0:
                return None
            quoted = True
            word.append(line[at + 1 : end])
            at = end + 1
        elif letter == "\\":
            quoted = True
            word.append(line[at + 1 : at + 2])
            at += 2
        elif letter in " \t;|&<>()\r":
            break
        else:
            word.append(letter)
            at += 1
    if not word:
        return None
    return "".join(word), quoted, tabs, at
