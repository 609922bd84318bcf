"""The words of a shell text as the programs get them: quotes taken off, variables put in as far as they are known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from webhook.programs.folders import Folders
from webhook.programs.heredoc import MARK, Document
from webhook.programs.shell_commands import NotRead, Spelled
from webhook.programs.shell_quotes import ansi, expand_document, in_quotes, run_by, unescaped
from webhook.programs.values import LONGEST, UNKNOWN, Unknown, Value, is_known, join, shown, split_fields

_WORDS: Final = 16384
"""Words of all commands: as many as 32 KiB without variables can have."""
_DEEP: Final = 20
"""Words inside words that are followed."""
_PLAIN: Final = re.compile(r'"[^"\\`$]*"')
_WITH_NAMES: Final = re.compile(r'"(?:[^"\\`$]|\$\w+)*"', re.ASCII)
_NAMES: Final = re.compile(r"\$(\w+)", re.ASCII)
_LEAVES: Final = frozenset(
    ("word", "number", "variable_name", "test_operator", "extglob_pattern", "regex", "file_descriptor")
)


class Held(Struct, frozen=True):
    """A text that a variable holds, with the line in the shell text where it begins."""

    text: str
    line: int


class Words:
    """What words become at the point that the walk over a text has come to."""

    def __init__(
        self, spelled: Spelled, documents: tuple[Document, ...], env: Mapping[str, Value], folders: Folders
    ) -> None:
        self.data = spelled.data
        self.ascii = spelled.data.decode() if spelled.data.isascii() else None
        """The text itself where its offsets are those of its letters."""
        self.plain = False
        """Whether strings may be read without their nodes: no fault, no letter of several bytes, not too long."""
        self.documents = documents
        self.folders = folders
        self.variables: dict[str, Value] = dict(env)
        self.words = 0
        self.expanded = 0
        self.positional: tuple[Value, ...] | None = None
        self.moving = False
        """In a loop, which may shift them, or in a function, which has its own."""

    def spend(self, words: int) -> None:
        """Counts the words that variables are split into. Raises ``NotRead`` where a few letters make a great many."""
        self.words += words
        if self.words > _WORDS:
            raise NotRead("its variables make too many words, or change too often")

    def string(self, raw: str) -> Value:
        """A string in double quotes that has nothing but letters and ``$NAME`` in it; None for any other."""
        if _PLAIN.fullmatch(raw):
            return raw[1:-1]
        if not _WITH_NAMES.fullmatch(raw):
            return None
        parts: list[Value] = _NAMES.split(raw[1:-1])
        if len(parts) == 3 and not parts[0] and not parts[2]:
            return self.variable(parts[1])
        parts[1::2] = map(self.variable, parts[1::2])
        return join(parts)

    def fields(self, node: Any, kind: str, raw: str) -> list[Value]:
        """What one word of the text becomes: a variable without quotes is split at blanks, an array is its items."""
        if kind in ("simple_expansion", "expansion", "string"):
            name = raw.strip('"')
            if name in ("$@", "${@}", "$*", "${*}") and self.positional is not None and not self.moving:
                return list(self.positional[1:])
            if name.endswith(("[@]}", "[*]}")):
                items = self.variables.get(name[2:-4])
                return list(items) if isinstance(items, tuple) else [self.word(node)]
            if kind != "string":
                return split_fields(self.variable(raw[1:]) if kind == "simple_expansion" else self.word(node))
        return [self.word(node)]

    def word(self, node: Any, depth: int = 0) -> Value:
        """One word as the program sees it."""
        kind = node.type
        if depth > _DEEP:
            return UNKNOWN
        if kind in _LEAVES:
            if node.child_count and node.named_child_count:
                return self._joined(node, depth, quoted=False)
            return unescaped(self.raw(node))
        if kind == "raw_string":
            return self.raw(node)[1:-1]
        if kind == "ansi_c_string":
            return ansi(self.raw(node)[2:-1])
        if kind == "string":
            if self.plain and depth < _DEEP:
                value = self.string(self.raw(node))
                if value is not None:
                    return value
            return self._joined(node, depth, quoted=True)
        if kind == "concatenation":
            return join(self.word(child, depth + 1) for child in node.children)
        if kind == "string_content":
            return in_quotes(self.raw(node))
        if kind in ("simple_expansion", "expansion"):
            # The grammar takes blanks between two variables in quotes for a part of the second.
            raw = self.raw(node)
            written = raw.lstrip()
            value = self.variable(written[1:]) if kind == "simple_expansion" else self._expansion(node, depth, written)
            return value if written == raw else join((raw[: -len(written)], value))
        if kind == "command_substitution":
            return self._output(self.raw(node))
        if kind == "translated_string":
            return self.word(node.named_children[0], depth + 1) if node.named_children else UNKNOWN
        return Unknown("", shown(self.raw(node)))

    def _joined(self, node: Any, depth: int, quoted: bool) -> Value:
        """A string: the grammar leaves out some of what stands between its parts, so the gaps are filled in."""
        start = node.start_byte + (1 if quoted else 0)
        end = node.end_byte - (1 if quoted else 0)
        children = node.named_children
        if len(children) == 1 and children[0].type == "simple_expansion":
            only = children[0]
            if only.start_byte == start and only.end_byte == end:
                return self.word(only, depth + 1)
        parts: list[Value] = []
        at = start
        for child in children:
            if child.start_byte > at:
                parts.append(in_quotes(self.text(at, child.start_byte)))
            parts.append(self.word(child, depth + 1))
            at = child.end_byte
        if at < end:
            parts.append(in_quotes(self.text(at, end)))
        return join(parts)

    def variable(self, name: str) -> Value:
        """What ``$NAME`` is here."""
        if name in self.variables:
            value = self.variables[name]
            return (value[0] if value else "") if isinstance(value, tuple) else value
        if name == "PWD":
            return self.folders.here
        if name in ("0", "BASH_SOURCE") and self.folders.file:
            return self.folders.file
        if name.isdecimal() and self.positional is not None and not self.moving and len(name) < 4:
            return self.positional[int(name)] if int(name) < len(self.positional) else ""
        if name in ("RANDOM", "SRANDOM", "$", "BASHPID", "SECONDS", "EPOCHSECONDS", "EPOCHREALTIME"):
            return Unknown("fresh", "$" + name)
        if name == "HOSTNAME":
            return Unknown("host", "$HOSTNAME")
        return Unknown("", "$" + name)

    def _expansion(self, node: Any, depth: int, raw: str) -> Value:
        body = raw[2:-1]
        name = ""
        for letter in body:
            if not (letter.isalnum() or letter == "_"):
                break
            name += letter
        rest = body[len(name) :]
        if not name:
            return Unknown("", shown(raw))
        value = self.variable(name)
        if rest == "":
            return value
        if rest[:2] in (":-", ":=") or rest[:1] in ("-", "="):
            if is_known(value) and value != "":
                return value
            if (name in self.variables or name.isdecimal()) and is_known(value):
                default = [child for child in node.named_children if child.type != "variable_name"]
                return join(self.word(child, depth + 1) for child in default)
            return Unknown(value.kind if isinstance(value, Unknown) else "", shown(raw))
        return Unknown("", shown(raw))

    def _output(self, raw: str) -> Value:
        """``$(cat <<EOF ... )`` is the document; of other commands' output nothing is known."""
        if raw.startswith("$(cat ") and MARK in raw:
            number = raw.partition(MARK)[2].split()[0].rstrip(")")
            if number.isdecimal() and len(number) < 10 and int(number) < len(self.documents):
                document = self.documents[int(number)]
                return Held(self.expand(document), document.line)
        folder = self.folders.printed(raw)
        return run_by(raw) if folder is None else folder

    def expand(self, document: Document) -> str:
        """A here-document as the program gets it: in one without quotes the shell puts its variables in.

        What is not known becomes ``HIDDEN`` plus the variable's name, a word that Python reads as a name or a text.
        """
        if document.quoted or ("$" not in document.text and "`" not in document.text and "\\" not in document.text):
            return document.text
        text = expand_document(document.text, self.variables)
        self.expanded += len(text)
        if self.expanded > 2 * LONGEST:
            raise NotRead("its here-documents are too long with their variables")
        return text

    def raw(self, node: Any) -> str:
        """A node as written."""
        return self.text(node.start_byte, node.end_byte)

    def text(self, start: int, end: int) -> str:
        """What stands between two offsets."""
        return self.data[start:end].decode("utf-8", "replace") if self.ascii is None else self.ascii[start:end]


def plain_text(value: Value) -> str | None:
    """The text that a word or variable holds, where it is known whole."""
    if isinstance(value, Held):
        return value.text
    return value if isinstance(value, str) else None
