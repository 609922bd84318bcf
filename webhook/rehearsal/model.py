"""What a rehearsal is told, what was seen in each start, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from webhook.runs.layouts import Saved


class Settings(Struct, frozen=True):
    """What to run, and how. ``directory``: checkpoints to begin with, copied. ``grace``, ``timeout`` in seconds."""

    command: tuple[str, ...]
    directory: str | None = None
    saves: int = 1
    timeout: float = 600.0
    grace: float = 60.0
    processes: int = 1
    compare: bool = False


class CannotRehearse(Exception):  # noqa: N818 - as CannotDo
    """There is no verdict; the first line says why, the others what to do."""

    def __init__(self, *lines: str) -> None:
        super().__init__(lines[0])
        self.lines = lines


class Save(Struct):
    """One checkpoint that a start wrote. ``path`` below the directory; ``seconds`` from its first write to its last.

    ``kept`` is a copy of it beside the directory, where one was needed.
    """

    saved: Saved
    step: int | None = None
    began: float = 0.0
    done: float = 0.0
    kept: str | None = None
    shapes: tuple[str, ...] = ()
    """What its files were called while it was written, without numbers."""
    stood: float = 0.0
    """When the processes stood still, after it: what happened later is none of it."""

    @property
    def path(self) -> str:
        return self.saved.path

    @property
    def seconds(self) -> float:
        return max(self.done - self.began, 0.0)


class Opened(Struct, frozen=True):
    """A file that was opened, or a directory that was listed: by whom where the hook saw it."""

    at: float
    path: str
    how: str
    """``r``, ``w``, ``look``."""
    rank: int | None = None
    pid: int = 0
    anew: bool = False
    """Opened to be written from its beginning: nothing of what was in it is kept."""


class Inside(Struct):
    """What the hook noted in the Python processes of a start. ``pids``: none where it was not loaded."""

    pids: tuple[int, ...] = ()
    executable: str | None = None
    opened: list[Opened] = []
    moved: list[tuple[float, str, str]] = []
    loads: dict[str, list[str]] = {}
    """Kind -> names of what was restored: ``weights``, ``optimizer``, ``scheduler``."""
    generators_set: set[str] = set()
    epochs: list[int] = []
    first: list[dict[str, object]] = []
    batches: dict[int, list[str]] = {}
    """Rank (0 where there is none) -> what each step of an optimizer was given, in order."""
    states: list[tuple[float, dict[str, str]]] = []
    """Generators of random numbers when a save began."""
    taken: set[str] = set()
    sigterm: bool = False


class Start(Struct):
    """What one start did. Paths are relative to the directory, where they lie in it.

    ``before``: what it found; ``read``: the checkpoints that it opened before it saved anything, in order; ``torn``:
    the paths that the kill in the middle of a save left unfinished, ``cut`` where they were cut afterwards.
    """

    number: int
    before: tuple[Saved, ...] = ()
    newest: Save | None = None
    """The newest complete checkpoint that it found."""
    read: list[str] = []
    saves: list[Save] = []
    signal: str | None = None
    heard: bool | None = None
    """Whether SIGTERM led to a save; None where none was sent."""
    ended: str = ""
    """How it ended after SIGTERM: ``exited``, ``died`` of the signal, ``killed`` after the grace period."""
    code: int | None = None
    """Its exit code where it ended by itself; negative for a signal."""
    torn: list[str] = []
    torn_over: bool = False
    """What was torn is the checkpoint that was there before, overwritten in place."""
    cut: bool = False
    order: str = ""
    """Of a save that was too quick to be stopped: ``renamed`` (whole or not there) or ``in place``."""
    wrote: str = ""
    """The first file of a state that it wrote: all that there is to tell where it saves, if it was killed so early."""
    tried: list[int] = []
    """The steps in the names that it gave, or tried to give, to what it had written."""
    outside: list[str] = []
    inside: Inside = field(default_factory=Inside)
    lines: list[str] = []
    head: str = ""
    seconds: float = 0.0
    reached: int | None = None
    """The last step that it printed."""
    reads_seen: bool = True
    files: dict[str, set[str]] = {}
    """Checkpoint -> which of its files were opened."""

    def steps(self) -> list[int]:
        """The steps that it saved, in order."""
        return [one.step for one in self.saves if one.step is not None]


class Finding(Struct, frozen=True):
    """A fault that the rehearsal showed: the rule's id, what was seen, and what to change."""

    rule: str
    severity: str
    problem: str
    why: str
    fix: str


class Part(Struct, frozen=True):
    """One kind of state, compared with an uninterrupted run at the same step."""

    name: str
    same: bool
    leaves: tuple[str, ...] = ()
    most: float = 0.0
    noise: float = 0.0


class Compared(Struct, frozen=True):
    """``--compare``: at which step, part by part. ``why`` where it could not be done."""

    step: int | None = None
    parts: tuple[Part, ...] = ()
    why: str = ""
    batches: str = ""
    """``same``, ``repeated``, ``other``; empty where no loader could be asked."""
    generators: tuple[str, ...] = ()
    """Generators of random numbers that were elsewhere than in the uninterrupted run."""

    @property
    def same(self) -> bool:
        return all(part.same for part in self.parts) and not self.why


class Report(Struct):
    """A rehearsal. ``verdict``: ``resumed``, ``not-resumed``, ``not-rehearsable``."""

    command: tuple[str, ...]
    verdict: str
    starts: list[Start] = []
    findings: list[Finding] = []
    lost: int | None = None
    compared: Compared | None = None
    notes: list[str] = []
    why: Sequence[str] = ()
    seconds: float = 0.0

    @property
    def code(self) -> int:
        return {"resumed": 0, "not-resumed": 1}.get(self.verdict, 2)
