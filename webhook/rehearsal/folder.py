"""What runs in the helper pod of a rehearsal: makes its folder on the claim, and removes it. It follows no link."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from webhook.runs.sweep import RUN

SCRIPT: Final = r"""
import errno, json, os, stat, sys
mode, mount, plan = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
def fail(words):
    print("FAILED", words, flush=True)
    sys.exit(1)
def enter(fd, name):
    if name in ("", ".", "..") or "/" in name:
        fail("%s is no usual name" % name)
    try:
        return os.open(name, FLAGS, dir_fd=fd)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            fail("%s is a link or a file, and no link is followed" % name)
        raise
def make(fd, parts):
    for part in parts:
        try:
            os.mkdir(part, 0o777, dir_fd=fd)
        except FileExistsError:
            pass
        fd = enter(fd, part)
    return fd
def made(parts):
    # Another rehearsal that ends removes the folder above where nothing is in it.
    for left in (2, 1, 0):
        try:
            return make(root, parts)
        except FileNotFoundError:
            if not left:
                raise
def erase(fd, name):
    if stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
        below = enter(fd, name)
        for one in os.listdir(below):
            erase(below, one)
        os.close(below)
        os.rmdir(name, dir_fd=fd)
    else:
        os.unlink(name, dir_fd=fd)
try:
    root = os.open(mount, FLAGS)
    if os.geteuid() == 0:
        os.umask(0)  # nobody knows the user of the run's image
    if mode == "make":
        for path in plan:
            last = made(path.split("/"))
            # A claim that is full takes a folder, and no file.
            probe = os.open(".ckptguard-probe", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=last)
            try:
                if os.write(probe, b"x" * 65536) < 65536:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(probe)
            finally:
                os.close(probe)
                os.unlink(".ckptguard-probe", dir_fd=last)
        room = os.fstatvfs(root)
        print("MADE", room.f_bavail * room.f_frsize, flush=True)
    else:
        *above, name = plan[0].split("/")
        fd = root
        try:
            for part in above:
                fd = enter(fd, part)
            erase(fd, name)
        except FileNotFoundError:
            pass
        if above:
            try:
                os.rmdir(above[0], dir_fd=root)
            except OSError:
                pass
        print("ERASED", flush=True)
except OSError as error:
    fail("FULL" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "%s: %s" % (error.filename, error.strerror))
"""


def make_command(mount: str, folders: Sequence[str]) -> list[str]:
    """Makes the folders; prints ``MADE`` and the bytes that are free, or ``FAILED`` and why (``FULL``)."""
    return ["sh", "-c", RUN, "sh", SCRIPT, "make", mount, json.dumps(list(folders))]


def erase_command(mount: str, folder: str) -> list[str]:
    """Removes the folder, and the one above where nothing else is in it; prints ``ERASED`` or ``FAILED``."""
    return ["sh", "-c", RUN, "sh", SCRIPT, "erase", mount, json.dumps([folder])]
