"""What ``prune`` runs in its helper pod: looks a directory over, and removes checkpoints that a plan names.

It opens the directory, and whatever it goes down into, one name after the other and follows no link, so that nothing
outside can be reached by a name that somebody planted. A checkpoint is renamed before it is taken apart, so that one
that is half gone never has a checkpoint's name. It removes nothing once anything in the directory is not as it was when
the plan was made.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from webhook.runs.listing import PYTHON, REMOVING

LARGEST: Final = 90_000
"""Bytes of a plan in one call: Linux takes 128 KiB in one argument (MAX_ARG_STRLEN)."""

SCRIPT: Final = r"""
import errno, json, os, re, signal, stat, sys
mode, mount, plan = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
POINTER = "(latest|last|newest|current|best|checkpoint|resume|pointer)"
LETTERS = str.maketrans("0123456789", "abcdefghij")
stop, made = [], [0]
class Odd(Exception):
    pass
def say(*words):
    out = getattr(sys.stdout, "buffer", sys.stdout)
    out.write((" ".join(words) + "\n").encode("utf-8", "backslashreplace"))
    out.flush()
def fail(words):
    say("FAILED", words)
    sys.exit(1)
def enter(fd, name):
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise Odd("it has no usual name")
    try:
        return os.open(name, FLAGS, dir_fd=fd)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise Odd("a link or file is in the way, and no link is followed")
        raise
def look(fd, name):
    return os.stat(name, dir_fd=fd, follow_symlinks=False)
def may_change(fd):
    own = os.access in os.supports_effective_ids
    return os.access(".", os.W_OK | os.X_OK, dir_fd=fd, effective_ids=own)
def measure(fd, depth, within, device):
    # Entries, bytes, the newest change, and why it cannot be removed (empty: it can).
    count, size, newest, why = 0, 0, 0, ""
    if depth > 64:
        return count, size, newest, "it is nested deeper than 64"
    if within and not may_change(fd):
        why = "that user may not remove what is in it"
    for name in os.listdir(fd):
        if depth == 0 and name == ".set-aside" and not within:
            continue
        one = look(fd, name)
        count += 1
        newest = max(newest, one.st_ctime_ns)
        if one.st_dev != device:
            why = why or "another file system is mounted in it"
        elif stat.S_ISDIR(one.st_mode):
            try:
                below = enter(fd, name)
            except PermissionError:
                why = why or "that user may not look into it"
                continue
            try:
                more = measure(below, depth + 1, within, device)
            finally:
                os.close(below)
            count, size, newest, why = count + more[0], size + more[1], max(newest, more[2]), why or more[3]
        elif stat.S_ISREG(one.st_mode):
            size += one.st_size
    return count, size, newest, why
def erase(fd, name):
    if stop:
        raise KeyboardInterrupt
    if stat.S_ISDIR(look(fd, name).st_mode):
        below = enter(fd, name)
        try:
            for one in os.listdir(below):
                erase(below, one)
        finally:
            os.close(below)
        os.rmdir(name, dir_fd=fd)
    else:
        os.unlink(name, dir_fd=fd)
def words(error):
    if isinstance(error, OSError):
        return "%s: %s" % (error.filename, error.strerror)
    return str(error)
def above(path):
    *folders, name = path.split("/")
    fd = os.dup(root)
    for folder in folders:
        below = enter(fd, folder)
        os.close(fd)
        fd = below
    if name in ("", ".", ".."):
        raise Odd("it has no usual name")
    return fd, name
def fit(path, newest):
    # The folder that it lies in, its name, and why it stays (empty: it need not).
    fd, name = above(path)
    try:
        one = look(fd, name)
    except OSError as error:
        return fd, name, "it is gone" if error.errno == errno.ENOENT else words(error)
    changed = one.st_ctime_ns
    if one.st_dev != device:
        return fd, name, "another file system is mounted there"
    if stat.S_ISLNK(one.st_mode):
        return fd, name, "it is a link"
    if not may_change(fd):
        return fd, name, "that user may not remove it"
    if stat.S_ISDIR(one.st_mode):
        below = enter(fd, name)
        try:
            _, _, inner, why = measure(below, 1, True, device)
        finally:
            os.close(below)
        if why:
            return fd, name, why
        changed = max(changed, inner)
    return fd, name, "" if changed <= newest else "it has changed since the plan was made"
def pointers(fd, shown, depth, texts, states):
    # Small files that may name a checkpoint, and the states of Hugging Face's Trainer, which name the best one.
    for name in os.listdir(fd):
        path = shown + name
        one = look(fd, name)
        if stat.S_ISDIR(one.st_mode):
            if depth < 4 and path != ".set-aside":
                try:
                    below = enter(fd, name)
                except (OSError, Odd):
                    continue
                try:
                    pointers(below, path + "/", depth + 1, texts, states)
                finally:
                    os.close(below)
            continue
        small = one.st_size <= 4096 and re.match(POINTER, name, re.I)
        if stat.S_ISREG(one.st_mode) and (small or (name == "trainer_state.json" and one.st_size <= 16 << 20)):
            try:
                opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fd)
                with os.fdopen(opened, "rb") as file:
                    data = file.read(16 << 20).decode("utf-8", "replace")
            except OSError:
                continue
            if small:
                texts[path] = data
            else:
                states[:] = sorted(states + [(one.st_mtime_ns, path, data)])[-3:]
def named():
    texts, states = {}, []
    pointers(root, "", 0, texts, states)
    for _, path, data in states:
        try:
            best = json.loads(data).get("best_model_checkpoint")
        except (ValueError, AttributeError):
            continue
        if best:
            texts[path] = str(best)
    return texts
def remove():
    if list(measure(root, 0, False, device)[:3]) != plan["state"]:
        fail("the directory is not as it was when the plan was made: "
             "somebody writes in it, or another prune is at work")
    for index, group in enumerate(plan["groups"]):
        if stop:
            break
        found, moved, why = [], [], ""
        try:
            for path in group:
                fd, name, why = fit(path, plan["state"][2])
                found.append((fd, name))
                if why:
                    break
            for fd, name in found if not why else ():
                if name.startswith(plan["prefix"]):
                    moved.append((fd, name, name))
                    continue
                # Letters alone: a number would be taken for a step by who looks for one in every name.
                new = plan["prefix"] + plan["token"] + str(made[0]).translate(LETTERS)
                made[0] += 1
                try:
                    os.rename(name, new, src_dir_fd=fd, dst_dir_fd=fd)
                except OSError as error:
                    # A claim that is full may have no room for the longer name.
                    if error.errno not in (errno.ENOSPC, errno.EDQUOT) or len(group) > 1:
                        raise
                    new = name
                moved.append((fd, name, new))
        except (OSError, Odd) as error:
            why = words(error)
            for fd, name, new in moved:
                os.rename(new, name, src_dir_fd=fd, dst_dir_fd=fd)
            moved = []
        if why:
            say("KEPT", str(index), why)
        else:
            say("TAKEN", str(index))
            try:
                for fd, name, new in moved:
                    erase(fd, new)
                say("GONE", str(index))
            except KeyboardInterrupt:
                pass
            except (OSError, Odd) as error:
                say("LEFT", str(index), words(error))
        for fd, _ in found:
            os.close(fd)
    say("STOPPED" if stop else "DONE")
try:
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    root = os.open(mount, FLAGS)
    for part in plan["parts"]:
        try:
            below = enter(root, part)
        except Odd:
            fail("%s is a link or a file on the way to the directory: no link is followed" % part)
        os.close(root)
        root = below
    device = os.fstat(root).st_dev
    if mode == "remove":
        remove()
    else:
        say("STATE", json.dumps(list(measure(root, 0, False, device)[:3])))
        say("NAMES", json.dumps(named()))
        sys.argv = ["-", "/".join([mount] + plan["parts"])]
        exec(compile(plan["listing"], "listing", "exec"), {"__name__": "listing"})
except (OSError, Odd) as error:
    fail(words(error))
"""

RUN: Final = r"""
for p in python3 python /usr/bin/python3; do
  if command -v $p >/dev/null 2>&1; then exec $p -E -S -u -c "$1" "$2" "$3" "$4"; fi
done
echo "FAILED the image has no python, which this takes: say --helper-image"; exit 1
"""


class Outcome(Struct, frozen=True):
    """What came of a plan, by the number of the group: ``taken`` has lost its name, ``gone`` is deleted.

    ``kept`` and ``left`` say why. ``failed``: why nothing was done at all; ``ended``: the script came to its end.
    """

    taken: frozenset[int] = frozenset()
    gone: frozenset[int] = frozenset()
    kept: dict[int, str] = {}
    left: dict[int, str] = {}
    failed: str | None = None
    ended: bool = False


def look_command(mount: str, parts: Sequence[str]) -> list[str]:
    """Looks a directory over, and lists it (``listing.parse`` reads that)."""
    return _command("look", mount, {"parts": list(parts), "listing": PYTHON})


def remove_command(
    mount: str, parts: Sequence[str], state: Sequence[int], groups: Sequence[Sequence[str]], token: str
) -> list[str]:
    """Removes what ``groups`` names, one group after the other, if the directory is still in ``state``."""
    plan = {"parts": list(parts), "state": list(state), "groups": [list(one) for one in groups]}
    return _command("remove", mount, {**plan, "prefix": REMOVING, "token": token})


def _command(mode: str, mount: str, plan: dict[str, Any]) -> list[str]:
    return ["sh", "-c", RUN, "sh", SCRIPT, mode, mount, json.dumps(plan)]


def parse_look(text: str) -> tuple[list[int], dict[str, str]]:
    """The state of the directory, and the texts that may name a checkpoint, by path. Raises ValueError."""
    state: list[int] | None = None
    for line in text.split("\n"):
        if line.startswith("STATE ") and state is None:
            state = [int(number) for number in json.loads(line[6:])]
        elif line.startswith("NAMES ") and state is not None:
            return state, {str(path): str(said) for path, said in json.loads(line[6:]).items()}
    raise ValueError("the directory was not looked over to the end")


def parse_outcome(text: str) -> Outcome:
    """What the script said so far."""
    taken, gone = set(), set()
    kept: dict[int, str] = {}
    left: dict[int, str] = {}
    failed: str | None = None
    ended = False
    for line in text.split("\n"):
        word, _, rest = line.partition(" ")
        number, _, why = rest.partition(" ")
        if word == "FAILED":
            failed = rest
        elif word in ("DONE", "STOPPED"):
            ended = True
        elif number.isdecimal():
            index = int(number)
            if word == "TAKEN":
                taken.add(index)
            elif word == "GONE":
                gone.add(index)
            elif word == "KEPT":
                kept[index] = why
            elif word == "LEFT":
                left[index] = why
    return Outcome(taken=frozenset(taken), gone=frozenset(gone), kept=kept, left=left, failed=failed, ended=ended)
