"""One command on one run: what it works on, what it says, and what an interruption leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from webhook.model.policy import Policy
from webhook.runs.api import Answer
from webhook.runs.clock import Waiting
from webhook.runs.kube import Kube
from webhook.runs.lost import Lost, lost_pods, waited_for, waits_lines
from webhook.runs.run import CannotDo, Directory, Run, directory_at, find_directory, find_run, others_on

POLL: Final = 0.5
"""Seconds between two looks at what is waited for."""


class Options(Struct, frozen=True):
    """What the flags say. ``timeout`` in seconds, for each wait; ``helper``: a helper pod may be made."""

    timeout: float = 600.0
    directory: str | None = None
    image: str | None = None
    helper: bool = True


class Session:
    """One command on one run.

    ``live`` shows what is going on now (it may be called often), ``say`` a line that stays. ``state`` is what an
    interruption leaves behind, and how to go on.
    """

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        policy: Policy,
        options: Options,
        say: Callable[[str], None],
        live: Callable[[str], None],
    ) -> None:
        self.kube = kube
        self.namespace = namespace
        self.name = name
        self.policy = policy
        self.options = options
        self.say = say
        self.live = live
        self.state = f'run "{name}" was not changed'
        self.program = "ckptguard"
        """How the command line is called, for commands to paste."""
        self.flags = "" if namespace == "default" else f" -n {namespace}"
        """What such a command needs to find the same run of the same cluster, and its directory."""

    def find(self) -> Run:
        """The run. Raises CannotDo."""
        return find_run(self.kube, self.namespace, self.name)

    def directory(self, run: Run) -> Directory:
        """Its checkpoint directory; says which other runs share it. Raises CannotDo."""
        if self.options.directory is not None:
            return directory_at(self.kube, run, self.options.directory.rstrip("/") or "/", self.policy)
        return find_directory(self.kube, run, self.policy)

    def warn_shared(self, run: Run, directory: Directory) -> list[str]:
        """Other runs with the same directory, which are said."""
        try:
            others = others_on(self.kube, run, directory, self.policy)
        except Exception as error:  # a courtesy: what it needs may not be readable
            self.say(f"warning: whether another run keeps its checkpoints there too is not known: {error}")
            return []
        if others:
            names = ", ".join(f'"{other}"' for other in others[:3])
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            self.say(
                f"warning: {names}{more} keep{'s' if len(others) == 1 else ''} checkpoints in the same directory "
                f'"{directory.on_claim}" of {directory.where}: a step may be another run\'s'
            )
        return others

    def lost(self, run: Run) -> tuple[Lost, ...]:
        """Pods on nodes that do not answer, which the run waits for."""
        return waited_for(run.pods, lost_pods(self.kube, run.pods))

    def waits_lines(self, lost: Sequence[Lost]) -> list[str]:
        """What they mean for the run, and the ways out; nothing where there are none."""
        return list(waits_lines(lost, self.namespace, self.kube.clock.now())) if lost else []

    def waiting(self) -> Waiting:
        return Waiting(self.kube.clock, self.options.timeout)

    def change(self, state: str, ask: Callable[[], Answer]) -> Answer:
        """Ask for a change. ``state`` is what is left behind from now on; a refusal changes nothing."""
        before, self.state = self.state, state
        answer = ask()
        if not answer.ok and answer.code < 500:
            self.state = before
        return answer

    def command(self, verb: str) -> str:
        """A command to paste."""
        return f"{self.program} {verb} {self.name}{self.flags}"


def any_directory(session: Session, run: Run) -> Directory | None:
    try:
        return session.directory(run)
    except CannotDo:
        return None
