"""Newer checkpoints out of the way of an older one, and back: renames within one directory, nothing is deleted.

What is moved goes to ``.set-aside/<time>/`` under its own path. A pointer file (``latest``,
``latest_checkpointed_iteration.txt``) or a link that names a newer checkpoint is moved, too, and one that names the
older is written. A journal, written first, says what is meant to move, so that a command that is killed in the middle
can be gone on from or undone. ``undo`` puts everything back to where it was; what the run has written since, as far as
it is of the same kind, goes to ``.set-aside/<time>/written/`` in turn, since it would be taken for newer. No link is
followed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from webhook.runs.layouts import Found, Saved
from webhook.runs.listing import ASIDE, Listing

# Every step can be done twice: a rename whose source is gone and whose target is there counts as done. It runs in a
# pod that may be root and sees the whole claim, in a directory that its user fills: every folder on the way, that of
# the journal too, is entered without following a link, and what the journal names has to lie within the directory.
SCRIPT: Final = r"""
import json, os, re, stat, sys
root, plan = sys.argv[1], json.loads(sys.argv[2])
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
TOP = []
def say(words):
    print("".join(letter if letter.isprintable() else "?" for letter in words))
def fail(words):
    say("FAILED " + words)
    sys.exit(1)
def names(path):
    found = path.split("/") if path else []
    if any(name in ("", ".", "..") or "\0" in name for name in found):
        fail("%s leads elsewhere" % path)
    return found
def step(here, name, path):
    try:
        return os.open(name, FOLDER, dir_fd=here)
    except FileNotFoundError:
        raise
    except OSError:
        fail("%s is no folder, or not to be read: links are not followed" % path)
def enter(path, make=False):
    here = os.dup(TOP[0])
    for name in names(path):
        if make:
            try:
                os.mkdir(name, dir_fd=here)
            except FileExistsError:
                pass
        below = step(here, name, path)
        os.close(here)
        here = below
    return here
class Place:
    def __init__(self, path, make=False):
        above, _, self.name = path.rpartition("/")
        names(path)
        self.make, self.above = make, above
    def __enter__(self):
        try:
            self.fd = enter(self.above, self.make)
        except FileNotFoundError:
            self.fd = None
        return self
    def __exit__(self, *_):
        if self.fd is not None:
            os.close(self.fd)
    def there(self):
        try:
            return self.fd is not None and os.lstat(self.name, dir_fd=self.fd)
        except FileNotFoundError:
            return None
def there(path):
    with Place(path) as place:
        return place.there()
def move(one, two):
    with Place(one) as old, Place(two, True) as new:
        if new.there():
            if old.there():
                fail("both %s and %s are there" % (one, two))
            return
        if not old.there():
            fail("%s is gone" % one)
        os.rename(old.name, new.name, src_dir_fd=old.fd, dst_dir_fd=new.fd)
    say("MOVED %s %s" % (one, two))
def write(path, text, link=False):
    with Place(path) as place, Place(path + ".ckptguard") as new:
        if new.there():
            os.unlink(new.name, dir_fd=new.fd)
        if link:
            os.symlink(text, new.name, dir_fd=new.fd)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with open(os.open(new.name, flags, 0o666, dir_fd=new.fd), "w") as file:
                file.write(text); file.flush(); os.fsync(file.fileno())
        os.rename(new.name, place.name, src_dir_fd=new.fd, dst_dir_fd=place.fd)
def journal(path):
    with Place(path) as place:
        with open(os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place.fd)) as file:
            one = os.fstat(file.fileno())
            if not stat.S_ISREG(one.st_mode) or one.st_size > 64000000:
                fail("%s is no journal" % path)
            text = file.read()
    try:
        paths = json.loads(text)["move"]
        if not isinstance(paths, list) or not all(isinstance(one, str) and one for one in paths):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        fail("%s is damaged; what was set aside lies in the folder moved beside it" % path)
    for one in paths:
        if names(one)[0] == ".set-aside":
            fail("%s leads elsewhere" % one)
    return paths
def listed(path):
    here = enter(path)
    try:
        return sorted(os.listdir(here))
    finally:
        os.close(here)
def undo():
    times = listed(".set-aside") if there(".set-aside") else []
    times = [time for time in times if there(".set-aside/%s/journal.json" % time)]
    if not times:
        fail("nothing is set aside")
    folder = ".set-aside/" + times[-1]
    kept = folder + "/journal.json"
    since = there(kept).st_mtime
    paths = journal(kept)
    wanted = set(paths)
    shaped = lambda path: (os.path.dirname(path), re.sub(r"\d+", "#", os.path.basename(path)))
    shapes = {shaped(path) for path in paths}
    for above in sorted({above for above, _ in shapes}):
        if above and not there(above):
            continue
        for name in listed(above):
            path = above + "/" + name if above else name
            if path == ".set-aside":
                continue
            if path in wanted and there(folder + "/moved/" + path):
                move(path, folder + "/written/" + path)
            elif path not in wanted and shaped(path) in shapes and there(path).st_mtime > since:
                move(path, folder + "/written/" + path)
    for path in paths:
        if there(folder + "/moved/" + path):
            move(folder + "/moved/" + path, path)
    with Place(kept) as place:
        os.rename(place.name, "journal.undone.json", src_dir_fd=place.fd, dst_dir_fd=place.fd)
    say("UNDONE " + times[-1])
try:
    here = os.open("/", FOLDER)
    for name in names(root.strip("/")):
        here = step(here, name, root)
    TOP.append(here)
    if plan["do"] == "aside":
        folder = ".set-aside/" + plan["time"]
        os.close(enter(folder, True))
        write(folder + "/journal.json", json.dumps(plan))
        for path in plan["move"]:
            move(path, folder + "/moved/" + path)
        for path, text, link in plan["write"]:
            write(path, text, link)
    else:
        undo()
    print("DONE")
except OSError as error:
    fail("%s: %s" % (error.filename or root, error.strerror))
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
