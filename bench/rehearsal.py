"""What it costs a training program to be watched by ``rehearse``: the hook in its interpreter and the kernel's events.

One program saves in turns where it is watched and where it is not (another directory, the hook told to be silent): so
both have the same machine, whatever else that does. That a rehearsal stops a program to look at a save is not in it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.measure import Row, compare, milliseconds
from webhook.rehearsal.local import Rehearsal
from webhook.rehearsal.model import Settings

WATCHED: Final = 1.02
"""Issue: at most 2 % of a run that does little but save."""
_TURNS: Final = 20
_PROGRAM: Final = """\
import json, os, pathlib, pickle, random, sys, time

import sitecustomize as hook

seen, away = pathlib.Path(os.environ["CKPT_DIR"]), pathlib.Path(os.environ["AWAY"])
state = [random.random() for _ in range(400_000)]


def saves(out, first, watched):
    hook._busy = not watched
    began = time.process_time()
    for step in range(first, first + 3):
        for at in range(0, len(state), 4):
            state[at] = state[at] * 0.999 + at
        with open(out / "new", "wb") as file:
            pickle.dump(state, file)
        os.replace(out / "new", out / f"step_{step}.pkl")
        (out / f"step_{step - 2}.pkl").unlink(missing_ok=True)
    return time.process_time() - began


spent = {True: [], False: []}
for turn in range(int(sys.argv[1]) + 1):
    for watched in (turn % 2 == 0, turn % 2 == 1):
        took = saves(seen if watched else away, 3 * turn, watched)
        if turn:
            spent[watched].append(took)
print("SPENT" + json.dumps([spent[True], spent[False]]), flush=True)
"""


_SMALL: Final = """\
import json, os, pathlib, time

out = pathlib.Path(os.environ["CKPT_DIR"])
found = sorted(int(one.name[5:-5]) for one in out.glob("step_*.json"))
step = json.loads((out / f"step_{found[-1]}.json").read_text())["step"] if found else 0
while True:
    time.sleep(0.5)
    step += 1
    if step % 4 == 0:
        (out / "new").write_text(json.dumps({"step": step}))
        os.replace(out / "new", out / f"step_{step}.json")
"""
BESIDE: Final = 30.0
"""Seconds that a rehearsal of such a program may take beside the program's own time."""


def measure_rehearsal(rounds: int, _: int) -> list[Row]:
    """The processor time of saves, watched and not; how long the rehearsal of a small program takes."""
    watched, alone = _saves(_TURNS * rounds)
    row = compare("three saves of 4 MB, watched", watched, alone, f"<= {WATCHED}", milliseconds, "not watched")
    return [row._replace(spread=f"{len(alone)} turns, load {os.getloadavg()[0]:.0f}"), _whole()]


def _saves(turns: int) -> tuple[list[float], list[float]]:
    command = (sys.executable, "-c", _PROGRAM, str(turns))
    rehearsal = Rehearsal(Settings(command), lambda _: None, print)
    with (
        tempfile.TemporaryDirectory() as away,
        rehearsal.scratch() as scratch,
        rehearsal.stage(scratch, "start 1", more={"AWAY": str(Path(away).resolve())}) as stage,
    ):
        stage.track.begin()
        while not stage.processes.ended():
            stage.pump(0.02, together=True)
        stage.pump(0)
        text = stage.processes.output.tail.decode()
    if "SPENT" not in text:
        raise RuntimeError(f"the program of the benchmark ended early: {text[-500:]}")
    watched, alone = json.loads(text[text.index("SPENT") + 5 :])
    return watched, alone


def _whole() -> Row:
    """A save every two seconds, which is the program's own time: what it had reached in the end."""
    settings = Settings((sys.executable, "-c", _SMALL), grace=1.0)
    report = Rehearsal(settings, lambda _: None, print).run()
    if report.verdict != "resumed":
        raise RuntimeError(f"the small program was judged {report.verdict}: {report.why or report.findings}")
    own = max(step for start in report.starts for step in start.steps()) * 0.5
    what = "a rehearsal where a save comes every 2 s / its own time + 30 s"
    return Row(what, f"{report.seconds:.0f} s", f"{own:.0f} s of its own", report.seconds / (own + BESIDE), "<= 1")
