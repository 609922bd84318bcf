"""A disk without room: the server answers with what it has, log and metrics name the fault, and it heals by itself.

A real one, of 64 KiB in memory, which takes the right to mount.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.certs.cluster import DAY, authority, leaf
from tests.server.serving import review, serving
from tests.server.test_tls import NOW, Heard, look, mount, write
from webhook.audit import FileSink
from webhook.server.tls import Certificate

LOST = 'ckptguard_audit_lines_lost_total{sink="file"}'


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting takes root on Linux")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(disk: Path) -> Path:
    """Take all the room that is left; the file that has it."""
    filler = disk / "filler"
    room = True
    with filler.open("wb", buffering=0) as file:
        while room:
            try:
                file.write(b"x" * 512)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                room = False
    return filler


def by(user: str) -> dict[str, object]:
    return review(userInfo={"username": user, "groups": []})


def until(met: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_audit_lines_are_lost_and_no_answer_is(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    path = disk / "audit.log"
    with serving(sinks=[FileSink(path)]) as running:

        def lost() -> float:
            lines = running.get("/metrics").body.decode().splitlines()
            return float(next(line for line in lines if line.startswith(LOST)).rpartition(" ")[2])

        assert running.post("/validate", by("first")).code == 200
        until(lambda: path.read_bytes().endswith(b"\n"))
        filler = fill(disk)
        for _ in range(60):
            assert running.post("/validate", by("while-full")).response["allowed"]
            assert running.post("/mutate", by("while-full")).response["allowed"]
        until(lambda: lost() > 0)
        assert running.get("/readyz").code == 200
        assert "audit lines are lost, requests are answered all the same: file: No space left on device" in caplog.text
        filler.unlink()
        assert running.post("/validate", by("afterwards")).code == 200
        until(lambda: b"afterwards" in path.read_bytes())
        until(lambda: "audit lines are written to file again" in caplog.text)
    # One line of the log for the fault and one for its end; what was cut off spoils no other line.
    assert caplog.text.count("audit lines are") == 2
    lines = path.read_bytes().splitlines()
    assert json.loads(lines[0])["user"] == "first"
    assert json.loads(lines[-1])["user"] == "afterwards"


def test_a_pair_that_does_not_fit_leaves_the_old_one(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever brings it stops half-way; whether the half is swapped in or not, the old pair is served."""
    heard, signer = Heard(), authority(NOW)
    old, new = leaf(signer, NOW), leaf(signer, NOW - DAY)
    certificate = Certificate(*mount(disk, "one", old), told=heard.told)
    served = certificate.context.inner
    filler = fill(disk)
    (disk / "..new").unlink(missing_ok=True)
    with pytest.raises(OSError, match="No space left on device"):
        write(disk / "two", new)
    look(certificate, 2)
    assert (certificate.context.inner is served, heard.stale) == (True, [])
    # The half of it, as one who writes in place and does not look leaves it.
    (disk / "..data").unlink()
    (disk / "..data").symlink_to("two")
    look(certificate, 2)
    assert (certificate.context.inner is served, heard.reloads, heard.stale) == (True, [False], [True])
    assert "is refused, the one in use stays" in caplog.text
    filler.unlink()
    (disk / "..data").unlink()
    mount(disk, "three", new)
    look(certificate)
    assert certificate.context.inner is not served
    assert (heard.reloads, heard.stale) == ([False, True], [True, False])
