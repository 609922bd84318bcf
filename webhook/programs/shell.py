"""Shell text -> the commands in it, in order, with what surrounds each. Parsed by tree-sitter, never run.

The parser is imported on first use. Its work is bounded by counting its progress calls (no clock), since hostile text
makes it quadratic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from webhook.model.script import Place
from webhook.programs.folders import Folders
from webhook.programs.held import held, hold
from webhook.programs.heredoc import Document, lift
from webhook.programs.shell_commands import Around, Command, NotRead, Shell, Spelled
from webhook.programs.shell_quotes import HIDDEN, expand_document
from webhook.programs.shell_walk import Walk
from webhook.programs.shell_words import Held, plain_text
from webhook.programs.values import UNKNOWN, Text, Value

_BUDGET: Final = 1200
"""Progress calls of the parser: three times what 32 KiB of dense and right shell take."""
_FAULTY: Final = 80
"""Those of them that may fall after a fault, which is where the parser begins to search."""
_PIECE: Final = 1024
"""Bytes that the parser is given at a time."""
_READS: Final = 64
"""Pieces that it may ask for, besides four times the whole text: shell asks for each some twice."""
_OPERATORS: Final = "()<>|&;`{}[]"
"""Words of all commands: as many as 32 KiB without variables can have."""
_MOST: Final = 2500

_language: Any = None


def is_installed() -> bool:
    """Whether shell text can be parsed at all (extra ``script``)."""
    return _load() is not None


def _load() -> Any:
    global _language
    if _language is None:
        try:
            import tree_sitter

            from webhook.programs.grammar import bash

            _language = tree_sitter.Language(bash())
        except ImportError:
            _language = False
    return _language or None


def read_shell(
    text: str,
    place: Place,
    env: Mapping[str, Value],
    dialect: str,
    options: str = "",
    positional: tuple[Value, ...] | None = None,
    folder: Value = UNKNOWN,
    file: str = "",
) -> Shell:
    """The commands of a shell text. ``env`` are the variables as they are before it; ``options`` are those of ``-ec``.

    ``place`` is that of the text's first line. ``positional`` are ``$0``, ``$1`` and so on; None where they are not
    known. ``folder`` is where it is started, ``file`` its path where it is a file. Raises ``NotRead``.
    """
    key = ("shell", text)
    parsed = held(key)
    if parsed is None:
        try:
            parsed = _parse(text)
        except NotRead as reason:
            parsed = str(reason)
        hold(key, parsed)
    if isinstance(parsed, str):
        raise NotRead(parsed)
    root, data, documents = parsed
    walk = Walk(Spelled(data, place), documents, env, dialect, options, Folders(folder, file))
    walk.positional = positional
    shell = walk.read(root)
    shell.lines = tuple(text.split("\n"))
    return shell


def _parse(text: str) -> tuple[Any, bytes, tuple[Document, ...]]:
    """The tree's root, the text that its offsets are of, and the here-documents lifted from it. Raises ``NotRead``."""
    language = _load()
    if language is None:
        raise NotRead("tree-sitter-bash is not installed")
    import tree_sitter

    plain, documents = lift(text.replace("\r\n", "\n"))
    if "\0" in plain or sum(map(plain.count, _OPERATORS)) > _MOST:
        raise NotRead("its shell text is too dense to be parsed in time")
    data = plain.encode("utf-8", "replace")
    calls = faulty = reads = 0
    most = _READS + 4 * len(data) // _PIECE

    def piece(offset: int, _point: Any) -> bytes:
        # Behind a fault the scanner may look through the rest for every letter, inside one progress call. It asks for
        # each piece of the text anew, and the end of the text ends it.
        nonlocal reads
        reads += 1
        return data[offset : offset + _PIECE] if reads <= most else b""

    def spent(_offset: int, error: bool) -> bool:
        nonlocal calls, faulty
        calls += 1
        faulty += error
        return calls > _BUDGET or faulty > _FAULTY or reads > most

    parser = tree_sitter.Parser(language)
    try:
        tree = parser.parse(piece, progress_callback=spent)
    except ValueError:
        tree = None
    if tree is None or reads > most:
        raise NotRead("its shell text takes too long to parse")
    return tree.root_node, data, documents


__all__ = [
    "HIDDEN",
    "Around",
    "Command",
    "Held",
    "NotRead",
    "Shell",
    "Text",
    "expand_document",
    "is_installed",
    "plain_text",
    "read_shell",
]
