"""What a decision keeps of a training program: where a line stands, what a rule said of it, and how it is started.

The program itself (``webhook.programs.Script``) is read anew when it is needed and is not kept; this is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import Struct

from webhook.model.files import Files
from webhook.model.finding import Measure, Severity
from webhook.model.pod import EffectiveJob, Raw


class Place(Struct, frozen=True):
    """A line of the program: item ``index`` of ``field`` (``command`` or ``args``), ``line`` from 1; 0 = the item.

    Where ``field`` is another word it is the path of a file in the container, and ``index`` is 0.
    """

    field: str
    index: int
    line: int = 0

    @property
    def in_file(self) -> bool:
        """Whether it stands in a file, and not in the command itself."""
        return self.field != "args" and self.field != "command"


class Written(Struct, frozen=True):
    """A directory that a program writes its checkpoints to: its path, what names it (an argument), and where.

    It may be an address (``s3://...``); ``local`` then names the writer that takes it for a path of the pod.
    """

    directory: str
    name: str
    place: Place
    local: str = ""


BEHIND: Final = "# and behind these the items of command as they are"
"""The last line of a fix that puts items before those of a container's ``command``."""


class Lines(str):
    """A fix that is lines of the program: it stands in the place of lines ``first`` to ``last`` of the item.

    Where ``last`` is one less than ``first`` it comes before ``first``. Each line is indented as line ``like`` is. Its
    ``import`` lines go before line ``head`` instead, and its remarks (``# ...``) are for a person. ``whole`` is the
    text itself where what is shown leaves out a long line of the user's.
    """

    __slots__ = ("first", "head", "last", "like", "whole")

    first: int
    last: int
    like: int
    head: int
    whole: str

    def __new__(cls, text: str, first: int, last: int, like: int = 0, head: int = 0, whole: str = "") -> Lines:
        made = super().__new__(cls, text)
        made.first, made.last, made.like, made.head, made.whole = first, last, like or first, head, whole or text
        return made

    def behind(self, text: str, head: int = 0) -> Lines:
        """The same behind other lines."""
        whole = f"{text}\n{self.whole}"
        return Lines(f"{text}\n{self}", self.first, self.last, self.like, head or self.head, whole)

    def before(self, text: str) -> Lines:
        """The same with a remark at its end."""
        return Lines(f"{self}{text}", self.first, self.last, self.like, self.head, f"{self.whole}{text}")

    def paste(self, item: str) -> str:
        """The item with these lines in it."""
        lines = item.split("\n")
        given = [line for line in self.whole.split("\n") if not line.lstrip().startswith("#")]
        imports = [line for line in given if line.startswith(("import ", "from "))] if self.head else []
        indent = _indent(lines, self.like)
        own = [indent + line if line else line for line in given if line not in imports]
        own = [line.partition("    # line ")[0] for line in own]
        lines[self.first - 1 : self.last] = own
        if imports:
            before = _indent(item.split("\n"), self.head)
            lines[self.head - 1 : self.head - 1] = [before + one for one in imports]
        return "\n".join(lines)


def _indent(lines: list[str], number: int) -> str:
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    return line[: len(line) - len(line.lstrip())]


class Remark(Struct, frozen=True):
    """What a rule says of a program. Cached across decisions, so it holds nothing that depends on anything else.

    ``subject`` is its identity on UPDATE (a name, an argument; not a line number). ``why`` replaces the rule's.
    ``directory`` is where the program writes its checkpoints, absolute, where that is beside the declared one.
    """

    place: Place
    problem: str
    fix: str
    subject: str = ""
    why: str | None = None
    at_most: Severity | None = None
    directory: str = ""
    measure: Measure | None = None


class Launch(Struct, frozen=True):
    """How the program is started: everything outside its text that a rule about it may look at.

    ``pods`` train; ``processes`` are those of one pod where that is known (``numProcPerNode`` as a number, or GPUs).
    ``directories`` are the declared checkpoint directories, absolute and normalised, the fast tier apart in ``fast``.
    ``mounts`` are the paths of the container's mounts. ``grace`` is in seconds. ``seconds_per_step``, ``params`` and
    ``lost_work`` (seconds) are what annotations and policy say. ``shared_process_namespace``: the pod's process 1 is
    the pause container's, so a shell is never process 1. ``entrypoint`` says that the image's own entrypoint runs first
    (no ``command``). ``variable`` declares the first of the directories. ``alone``: there is no pod; where no directory
    is declared, whatever the program saves is its checkpoint.
    """

    pods: int = 1
    processes: int | None = None
    directories: tuple[str, ...] = ()
    fast: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    working_dir: str = ""
    grace: int = 30
    seconds_per_step: float | None = None
    params: int | None = None
    lost_work: int | None = None
    shared_process_namespace: bool = False
    entrypoint: bool = False
    stable_hostname: bool = False
    variable: str = ""
    alone: bool = False
    cannot: tuple[str, ...] = ()
    """What the storage under the first directory cannot do: ``rename``, ``append``, ``overwrite``, ``delete``."""


class ProgramFact(Struct, frozen=True):
    """How much of a program was read.

    ``state`` is ``read``, ``partly-read``, ``in-image`` or ``not-found``; ``path`` its path in the container, None
    where it stands in the command itself; ``line`` that of the item or file in which its text begins, None where there
    is none; ``reason`` says why not all of it was read.
    """

    state: str
    path: str | None = None
    line: int | None = None
    reason: str | None = None

    def words(self) -> str:
        """One line for people: ``partly read: the file is longer than 32 KiB``."""
        path = f" {self.path}" if self.path else ""
        because = f" ({self.reason})" if self.reason else ""
        if self.state == "partly-read":
            return f"partly read: {self.reason}"
        if self.state == "in-image":
            return f"in the image, not read:{path}{because}" if path else f"in the image, not read{because}"
        if self.state == "not-found":
            return f"not found:{path}{because}"
        return f"read{path}{because}"


class Remarks(dict[str, "tuple[Remark, ...]"]):
    """What each rule said of a program, by its id.

    ``spoke`` is for whoever asks the rules: which of them said anything, once all (of TrainJobs, True, or of runtimes,
    False) have read it.
    """

    __slots__ = ("fact", "grown", "spoke")

    def __init__(self) -> None:
        self.spoke: dict[bool, frozenset[str]] = {}
        self.fact: ProgramFact | None = None
        self.grown: Callable[[int], None] | None = None
        """Told how many bytes more it holds, for the cache that it lies in."""

    def __setitem__(self, rule: str, remarks: tuple[Remark, ...]) -> None:
        super().__setitem__(rule, remarks)
        if remarks and self.grown is not None:
            self.grown(sum(512 + 2 * (len(one.problem) + len(one.fix) + len(one.subject)) for one in remarks))


class Program(Struct):
    """The program of one training container.

    ``remarks`` holds what each rule said, by its id; it is shared with later decisions on the same text, values and
    launch. ``read`` gives the ``webhook.programs.Script`` (parsed on the first call of a decision). Where ``named`` is
    set, both leave out what the run's directory is called; ``named`` gives the program with that name in it.
    """

    job: EffectiveJob
    container: Raw
    remarks: Remarks
    read: Callable[[], Any]
    named: Callable[[], Program] | None = None
    files: Files | None = None
    """The files in reach that it was read with."""


Look = Callable[[Any], Iterable[Remark]]
"""``look(script) -> remarks``: what a rule about programs amounts to."""
