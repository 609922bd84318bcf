"""What came from an object, a file name or a cluster, made harmless for whoever reads it.

The one place for it: every report, message, log line and terminal goes through here. Source of what a GitHub log obeys:
``ActionCommand.cs`` of actions/runner (``::command::`` at the start of a line, spaces before it or not, and
``##[command]`` anywhere in one).
"""

from __future__ import annotations

import re
from typing import Final

LONGEST_LINE: Final = 2048
"""Characters of one line for people: a value of an object may be a megabyte."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9@%+=:,./_-]+")
_NAMED: Final = {"\n": "\\n", "\t": "\\t"}


def printable(text: str) -> str:
    """One line of text with everything that a terminal or an HTTP header would act on written as an escape.

    Control characters, marks that turn the direction of writing, invisible characters and lone surrogates become
    escapes (``\\x1b``, ``\\u202e``); letters of every script stay.
    """
    if not (text.isascii() and text.isprintable()):
        text = "".join(letter if letter.isprintable() or letter == "\u00a0" else _escape(letter) for letter in text)
    return _not_obeyed(text) if ":" in text or "#" in text else text


def bounded(text: str, most: int = LONGEST_LINE) -> str:
    """A line of which nobody reads more than ``most`` characters: what is left out is counted in its middle."""
    if len(text) <= most:
        return text
    mark = f"… {len(text) - most:,} characters left out …"
    tail = most // 4
    return f"{text[: most - tail]}{mark}{text[-tail:]}"


def shell_word(text: str) -> str:
    """A name as one word of a command that is to be pasted: quoted as by ``shlex`` where a shell would act on it."""
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "'\"'\"'") + "'"


def printable_lines(text: str) -> list[str]:
    """The lines of a text, each printable; trailing blank lines are left out."""
    return [printable(line.expandtabs(2)) for line in text.rstrip().replace("\r\n", "\n").split("\n")]


def printable_text(text: str) -> str:
    """A text of several lines for a program to show: its lines and tabs stay, the rest as in ``printable``."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def json_printable(text: str) -> str:
    """JSON text with such characters as JSON's own escapes: it says the same, and shows nothing that is obeyed."""
    if not (text.isascii() and "\x7f" not in text):
        text = "".join(
            letter if letter.isprintable() or letter in "\n\u00a0" else _json_escape(letter) for letter in text
        )
    return text.replace("##[", "#\\u0023[")


def _not_obeyed(text: str) -> str:
    """``::set-output`` and ``##[group]`` with one of their signs as an escape."""
    stripped = text.lstrip()
    if stripped.startswith("::"):
        text = f"{text[: len(text) - len(stripped)]}\\x3a{stripped[1:]}"
    return text.replace("##[", "#\\x23[")


def _escape(letter: str) -> str:
    if letter in _NAMED:
        return _NAMED[letter]
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(letter: str) -> str:
    code = ord(letter)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
