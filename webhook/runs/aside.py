"""Newer checkpoints out of the way of an older one, and back: renames within one directory, nothing is deleted.

What is moved goes to ``.set-aside/<time>/`` under its own path. A pointer file (``latest``,
``latest_checkpointed_iteration.txt``) or a link that names a newer checkpoint is moved, too, and one that names the
older is written. A journal, written first, says what is meant to move, so that a command that is killed in the middle
can be gone on from or undone. ``undo`` puts everything back to where it was; what the run has written since, as far as
it is of the same kind, goes to ``.set-aside/<time>/written/`` in turn, since it would be taken for newer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from webhook.runs.layouts import Found, Saved
from webhook.runs.listing import ASIDE, Listing

# Every step can be done twice: a rename whose source is gone and whose target is there counts as done.
SCRIPT: Final = r"""
import json, os, re, sys
root, plan = sys.argv[1], json.loads(sys.argv[2])
os.chdir(root)
def fail(words):
    print("FAILED " + words); sys.exit(1)
def move(one, two):
    if os.path.lexists(two):
        if os.path.lexists(one):
            fail("both %s and %s are there" % (one, two))
        return
    if not os.path.lexists(one):
        fail("%s is gone" % one)
    above = os.path.dirname(two)
    if above:
        os.makedirs(above, exist_ok=True)
    os.rename(one, two)
    print("MOVED %s %s" % (one, two))
def write(path, text, link):
    temporary = path + ".ckptguard"
    if os.path.lexists(temporary):
        os.unlink(temporary)
    if link:
        os.symlink(text, temporary)
    else:
        with open(temporary, "w") as file:
            file.write(text); file.flush(); os.fsync(file.fileno())
    os.rename(temporary, path)
try:
    if plan["do"] == "aside":
        folder = os.path.join(".set-aside", plan["time"])
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "journal.json.tmp"), "w") as file:
            json.dump(plan, file); file.flush(); os.fsync(file.fileno())
        os.rename(os.path.join(folder, "journal.json.tmp"), os.path.join(folder, "journal.json"))
        for path in plan["move"]:
            move(path, os.path.join(folder, "moved", path))
        for path, text, link in plan["write"]:
            write(path, text, link)
    else:
        times = sorted(os.listdir(".set-aside")) if os.path.isdir(".set-aside") else []
        times = [time for time in times if os.path.exists(os.path.join(".set-aside", time, "journal.json"))]
        if not times:
            fail("nothing is set aside")
        folder = os.path.join(".set-aside", times[-1])
        with open(os.path.join(folder, "journal.json")) as file:
            plan = json.load(file)
        shaped = lambda path: (os.path.dirname(path), re.sub(r"\d+", "#", os.path.basename(path)))
        shapes = {shaped(path) for path in plan["move"]}
        since = os.path.getmtime(os.path.join(folder, "journal.json"))
        for above in sorted({above for above, _ in shapes}):
            for name in sorted(os.listdir(above or ".")):
                path = os.path.join(above, name)
                if path == ".set-aside":
                    continue
                if path in plan["move"] and os.path.lexists(os.path.join(folder, "moved", path)):
                    move(path, os.path.join(folder, "written", path))
                elif path not in plan["move"] and shaped(path) in shapes and os.lstat(path).st_mtime > since:
                    move(path, os.path.join(folder, "written", path))
        for path in plan["move"]:
            moved = os.path.join(folder, "moved", path)
            if os.path.lexists(moved):
                move(moved, path)
        os.rename(os.path.join(folder, "journal.json"), os.path.join(folder, "journal.undone.json"))
        print("UNDONE " + times[-1])
    print("DONE")
except OSError as error:
    fail("%s: %s" % (error.filename, error.strerror))
"""

_RUN: Final = r"""
for p in python3 python /usr/bin/python3; do
  if command -v $p >/dev/null 2>&1; then exec $p -E -S -c "$1" "$2" "$3"; fi
done
echo "FAILED the image has no python, which renaming takes: say --helper-image"; exit 1
"""


class Plan(Struct, frozen=True):
    """What is to be renamed and what is to be written, by path."""

    move: tuple[str, ...]
    write: tuple[tuple[str, str, bool], ...] = ()
    """Path, text, and whether it is a link."""


def plan_aside(found: Found, listing: Listing, chosen: Saved) -> Plan:
    """Everything that a framework could find newer than ``chosen``.

    Checkpoints of a higher number; those of the same number but another layout stay. Those without a number
    (``last.ckpt``) and half-written ones where they are younger; pointers and links that do not lead to it.
    """
    move: list[str] = []
    write: list[tuple[str, str, bool]] = []
    for saved in found.saved:
        if saved.path == chosen.path:
            continue
        newer = saved.step > chosen.step if saved.step is not None and chosen.step is not None else None
        if newer is None:
            newer = saved.mtime > chosen.mtime
        if newer and not any(saved.path.startswith(path + "/") for path in move):
            move.append(saved.path)
    for path, text in sorted(listing.texts.items()):
        above = path.rpartition("/")[0]
        if above != chosen.path.rpartition("/")[0] or any(path.startswith(one + "/") for one in move):
            continue
        wanted = str(chosen.step) if path.endswith("latest_checkpointed_iteration.txt") else chosen.name
        if text != wanted:
            move.append(path)
            write.append((path, wanted, False))
    for path, target in sorted(listing.links.items()):
        above = path.rpartition("/")[0]
        if path.startswith(ASIDE) or any(path.startswith(one + "/") for one in move):
            continue
        leads = target if target.startswith("/") else f"{above}/{target}".lstrip("/")
        if leads.rstrip("/") in move or leads.rpartition("/")[2] in {one.rpartition("/")[2] for one in move}:
            move.append(path)
            if above == chosen.path.rpartition("/")[0]:
                write.append((path, chosen.name, True))
    return Plan(tuple(move), tuple(write))


def aside_command(root: str, plan: Plan, time: str) -> list[str]:
    """What to run in a pod that may write the directory. ``time`` names the folder."""
    body = {"do": "aside", "time": time, "move": list(plan.move), "write": [list(one) for one in plan.write]}
    return ["sh", "-c", _RUN, "sh", SCRIPT, root, json.dumps(body)]


def undo_command(root: str) -> list[str]:
    """Puts back what the newest journal names."""
    return ["sh", "-c", _RUN, "sh", SCRIPT, root, json.dumps({"do": "undo"})]


def parse_outcome(text: str) -> tuple[str | None, Sequence[tuple[str, str]]]:
    """Why it failed (None: it did not), and what was renamed."""
    moved: list[tuple[str, str]] = []
    failed: str | None = "it did not end"
    for line in text.splitlines():
        if line.startswith("MOVED "):
            one, _, two = line[6:].partition(" ")
            moved.append((one, two))
        elif line.startswith("FAILED "):
            failed = line[7:]
        elif line == "DONE":
            failed = None
    return failed, moved
