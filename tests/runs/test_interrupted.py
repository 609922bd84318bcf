"""Ctrl-C in every single request of every command: what is said is true, and the run can be gone on with."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runs.fake_cluster import FakeCluster
from tests.runs.test_actions import cluster, suspended
from webhook.runs.delete import delete
from webhook.runs.drill import drill
from webhook.runs.helper import LABEL
from webhook.runs.resume import resume
from webhook.runs.run import CannotDo
from webhook.runs.session import Session
from webhook.runs.stop import stop

KEPT = {"checkpoint-100", "checkpoint-200", "checkpoint-300"}
Command = Callable[[Session], Any]
COMMANDS: dict[str, tuple[bool, Command]] = {
    "stop": (True, stop),
    "drill": (True, drill),
    "delete": (True, lambda session: delete(session, False)),
    "resume": (False, resume),
    "resume --from-step": (False, lambda session: resume(session, from_step=200)),
    "resume --undo": (False, lambda session: resume(session, undo=True)),
}
"""Whether the run runs, and what is done to it."""


SEEN: dict[tuple[str, ...], tuple[int, str, str]] = {}


class Interrupting:
    """Interrupts in call number ``at``: before it is carried out, while it is, or before its answer is read."""

    def __init__(self, fake: FakeCluster, at: int, when: str) -> None:
        self.fake, self.at, self.when = fake, at, when
        self.calls: list[str] = []
        for name in ("request", "text", "execute"):
            setattr(fake, name, self._wrapped(name, getattr(fake, name)))

    def _wrapped(self, name: str, carry_out: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            kind = name if name == "execute" else f"{name} {arguments[0]} {arguments[1]}"
            self.calls.append(re.sub(r"ckptguard-\w+", "helper", kind))
            if len(self.calls) != self.at + 1:
                return carry_out(*arguments)
            if self.when == "on its way":
                self.fake.after(0.5, lambda: carry_out(*arguments) and None)
            elif self.when == "unread":
                carry_out(*arguments)
            raise KeyboardInterrupt

        return call


def prepared(folder: Path, name: str, aside: Path | None) -> FakeCluster:
    """A cluster in which the command has something to do; ``aside``: a folder in which newer ones are set aside."""
    folder.mkdir()

    def log(_: int) -> str:
        return f"resuming from checkpoint-{max(int(path[11:]) for path in on_disk(folder))}"

    if aside is not None:
        shutil.copytree(aside / "run", folder / "run", symlinks=True)
        fake = FakeCluster(folder, log)
        fake.trainjobs["run"]["spec"]["suspend"] = True
        fake.pods = {}
    else:
        fake = (cluster if COMMANDS[name][0] else suspended)(folder, 100, 200, 300, log=log)
    fake.seen = SEEN
    return fake


def on_disk(folder: Path) -> set[str]:
    return {path.name for path in (folder / "run").iterdir()} - {".set-aside"}


def state_of(fake: FakeCluster) -> tuple[object, ...]:
    run = fake.trainjobs.get("run")
    return run is None or run["spec"]["suspend"], on_disk(fake.folder)


def moments_of(fake: FakeCluster, name: str) -> list[tuple[int, str]]:
    """The very first call; from the first write on, the first of each kind: what waits makes the same again and again.

    What a read has done when it is interrupted is nothing, so when that is makes no difference.
    """
    interrupting = Interrupting(fake, -1, "")
    COMMANDS[name][1](fake.session([]))
    calls = interrupting.calls
    written = next(at for at, kind in enumerate(calls) if kind.startswith(WRITES))
    return [
        (at, when)
        for at, kind in enumerate(calls)
        if (at == 0 or at >= written) and kind not in calls[min(at, written) : at]
        for when in (("on its way", "unread") if kind.startswith(WRITES) else ("before",))
    ]


WRITES = ("request POST", "request PATCH", "request DELETE")
DONE_ALREADY = (
    "nothing to resume",
    "nothing is set aside",
    "there is no TrainJob",
    "its program writes the directory now",
)


def obey(fake: FakeCluster, state: str) -> None:
    """Do what the words tell to do."""
    for verb, flag in re.findall(r"ckptguard (\w+) run -n team( --undo)?", state):
        told = ""
        try:
            if verb == "resume":
                resume(fake.session([]), undo=bool(flag))
            elif verb == "delete":
                delete(fake.session([]), False)
        except CannotDo as error:
            told = str(error)
        assert not told or any(words in told for words in DONE_ALREADY), f"{state}\n{told}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_moment(tmp_path: Path, name: str) -> None:
    aside: Path | None = None
    if name == "resume --undo":
        aside = tmp_path / "aside"
        resume(prepared(aside, "resume --from-step", None).session([]), from_step=100)
        assert on_disk(aside) == {"checkpoint-100"}
    moments = moments_of(prepared(tmp_path / "whole", name, aside), name)
    assert len(moments) > 3
    for at, when in moments:
        fake = prepared(tmp_path / f"{at} {when}", name, aside)
        before = state_of(fake)
        session = fake.session([])
        interrupting = Interrupting(fake, at, when)
        with contextlib.suppress(KeyboardInterrupt):
            COMMANDS[name][1](session)
        what = f"{name}, interrupted in {interrupting.calls[-1]} ({at}), {when}: {session.state}"
        session.kube.clean()  # what every command does at its end
        at_once = state_of(fake)
        for _ in range(20):
            fake.sleep(0.5)
        assert [pod for pod in fake.pods.values() if LABEL in pod["metadata"]["labels"]] == [], what
        if "was not changed" in session.state:
            assert at_once == state_of(fake) == before, what
        if "goes on by itself" in session.state:
            assert state_of(fake)[0] is False, what
        if "is suspended" in session.state:
            assert state_of(fake)[0] is True, what
        obey(fake, session.state)
        if name != "delete":
            # Wherever it was left: it can be stopped, what was set aside comes back, and it runs with all that it had.
            stop(fake.session([]))
            resume(fake.session([]), undo=on_disk(fake.folder) != KEPT)
            assert state_of(fake)[0] is False, what
            assert len(fake.pods) == 1, what
        assert on_disk(fake.folder) == KEPT, what
