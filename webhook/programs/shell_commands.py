"""What a shell text amounts to: its commands in order, each with what surrounds it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping

from msgspec import Struct

from webhook.model.script import Place
from webhook.programs.heredoc import Document
from webhook.programs.values import UNKNOWN, Value, shown


class NotRead(Exception):  # noqa: N818 - what happened, not an error of ours
    """The text is not read; the message is the reason in words, without any of the text."""


class Around(Struct, frozen=True):
    """A construct that a command stands in: ``kind`` and, for lists and pipelines, which of how many it is.

    ``pipeline``, ``&&``, ``||``, ``if``, ``test`` (the condition of an ``if`` or a loop), ``else``, ``for``, ``while``,
    ``case``, ``subshell``, ``group``, ``function``, ``substitution``, ``!``, ``&``.
    """

    kind: str
    index: int = 0
    size: int = 1
    name: str = ""


class Spelled:
    """The text that commands are cut from, and where its first line is. Offsets are of its UTF-8 bytes."""

    __slots__ = ("_ends", "data", "place")

    def __init__(self, data: bytes, place: Place) -> None:
        self.data = data
        self.place = place
        self._ends: list[int] | None = None

    def at(self, offset: int) -> Place:
        """The place of the line that an offset stands in."""
        return Place(self.place.field, self.place.index, self.line(offset))

    def line(self, offset: int) -> int:
        """The line that an offset stands in."""
        if self._ends is None:
            ends, at = [], self.data.find(b"\n")
            while at >= 0:
                ends.append(at)
                at = self.data.find(b"\n", at + 1)
            self._ends = ends
        return self.place.line + bisect_left(self._ends, offset)

    def text(self, start: int, end: int) -> str:
        return self.data[start:end].decode("utf-8", "replace")


class Command(Struct):
    """One simple command.

    ``words`` are its words with quotes taken off and variables put in, ``raw`` the same as written; ``name`` is the
    first without its directory, ``""`` where it is not known. ``assigned`` are the variables in front of it (or set by
    it alone), ``env`` everything that the shell had set at this point. ``document`` is what it reads from standard
    input where the text has that. ``writes`` is the file that its output goes to. ``statement`` is the number of the
    top-level statement that it stands in. What is rarely asked for is cut from the text (``spelled``) when it is.
    """

    words: tuple[Value, ...]
    raw: tuple[str, ...]
    name: str
    spelled: Spelled
    start: int
    end: int
    last: int
    """Where it ends with what it is redirected to."""
    around: tuple[Around, ...]
    assigned: Mapping[str, Value]
    env: Mapping[str, Value]
    statement: int
    folder: Value = UNKNOWN
    """Where it runs, from the root; unknown where the image says it, or a condition does."""
    document: Document | None = None
    here_string: Value = None
    reads: Value = None
    writes: Value = None
    redirected: bool = False
    exported: bool = False
    shown: str | None = None

    def exits(self) -> bool:
        return self.name in ("exit", "return", "false", "kill")

    @property
    def place(self) -> Place:
        """Its first line."""
        return self.spelled.at(self.start)

    @property
    def line(self) -> int:
        """The number of that line."""
        return self.spelled.line(self.start)

    @property
    def source(self) -> str:
        """It as written, on one line, without what it is redirected to; cut where it is long."""
        if self.shown is None:
            self.shown = shown(self.spelled.text(self.start, self.end).replace("\\\n", " "))
        return self.shown

    @property
    def lines(self) -> int:
        """Lines that it takes, with what it is redirected to."""
        return 1 + self.spelled.data.count(b"\n", self.start, self.last)

    @property
    def beginning(self) -> str:
        """Its first three words as written; a variable that gives several of them once."""
        words = self.raw[:1] + tuple(two for one, two in zip(self.raw, self.raw[1:], strict=False) if one != two)
        return " ".join(words[:3])

    def inside(self, *kinds: str) -> Around | None:
        """The innermost construct of one of these kinds that it stands in."""
        for around in reversed(self.around):
            if around.kind in kinds:
                return around
        return None


class Shell(Struct):
    """One shell text: its commands in order and the options that it runs under.

    ``statements`` counts the top-level statements, ``trailing`` says that a comment stands in a line below the last.
    ``functions`` are the names that it defines. ``last_separate``: the last statement is on lines of its own.
    """

    commands: tuple[Command, ...]
    statements: int
    place: Place
    dialect: str
    errexit: bool = False
    pipefail: bool = False
    functions: frozenset[str] = frozenset()
    trailing: bool = False
    faults: bool = False
    inline: bool = True
    """A ``-c`` text, not a file: only there does bash exec the last command."""
    lines: tuple[str, ...] = ()
    uncertain: bool = False
    """``set +e`` stands somewhere, so which commands end the shell is not told."""
    by_name: dict[str, list[Command]] | None = None
    own: frozenset[int] | None = None

    def line(self, place: Place) -> str:
        """A line as written; ``""`` where it is not of this text."""
        number = place.line - (self.place.line or 1)
        return self.lines[number].strip() if 0 <= number < len(self.lines) else ""

    def written(self, place: Place, count: int) -> list[str]:
        """Lines as written, each with what stands before it."""
        number = place.line - (self.place.line or 1)
        return list(self.lines[number : number + count]) if 0 <= number < len(self.lines) else []

    def named(self, name: str) -> list[Command]:
        """The commands of a name, in order."""
        if self.by_name is None:
            found: dict[str, list[Command]] = {}
            for command in self.commands:
                if command.name in found:
                    found[command.name].append(command)
                else:
                    found[command.name] = [command]
            self.by_name = found
        return self.by_name.get(name) or []

    def has(self, *names: str) -> bool:
        """Whether it has a command of one of these names."""
        return any(map(self.named, names))

    def holds(self, command: Command) -> bool:
        """Whether a command is one of its own."""
        if self.own is None:
            self.own = frozenset(map(id, self.commands))
        return id(command) in self.own

    def traps(self) -> Iterator[tuple[Command, str]]:
        """Every ``trap HANDLER SIGNAL...`` that names SIGTERM, with its handler as written."""
        for command in self.named("trap"):
            if len(command.words) > 1:
                signals = {str(word).upper().removeprefix("SIG") for word in command.words[2:]}
                if signals & {"TERM", "15", "EXIT", "0"}:
                    yield command, command.raw[1].strip("\"'")
