"""The script in a container: whatever the image has to run it with, and however large the directory is."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.runs.folders import archive, hf, listing, write
from webhook.runs.layouts import find_saved
from webhook.runs.listing import command, parse


def without_python(root: Path, folder: Path, *, gnu: bool = True) -> str:
    """The script where there is no Python, and with busybox' `find` where GNU's is not to be used."""
    folder.mkdir(exist_ok=True)
    for name in ("sh", "find", "stat", "head", "tr", "date", "cat"):
        if name == "find" and not gnu:
            # GNU's, which refuses to print like busybox'.
            real = shutil.which("find")
            script = f'#!/bin/sh\ncase "$*" in *-printf*) exit 1;; esac\nexec {real} "$@"\n'
            (folder / "find").write_text(script)
            (folder / "find").chmod(0o755)
            continue
        found = shutil.which(name)
        assert found is not None
        if not (folder / name).exists():
            (folder / name).symlink_to(found)
    words = [word.replace("/usr/bin/python3", "/nowhere/python3") for word in command(str(root))]
    done = subprocess.run(words, env={"PATH": str(folder)}, capture_output=True, text=True, check=False)
    return done.stdout


@pytest.mark.parametrize("gnu", [True, False])
def test_without_python(tmp_path: Path, gnu: bool) -> None:
    root = tmp_path / "ckpt"
    hf(root, 5)
    write(root / "latest", b"checkpoint-5\n")
    write(root / ".set-aside" / "1" / "deep" / "x")
    told = parse(without_python(root, tmp_path / "bin", gnu=gnu))
    assert told.state == "there"
    assert told.texts == {"latest": "checkpoint-5"}
    assert {entry.path for entry in told.entries if entry.kind == "f"} == {
        "latest",
        *(f"checkpoint-5/{name}" for name in sorted(path.name for path in (root / "checkpoint-5").iterdir())),
    }
    found = find_saved(told)
    assert [(saved.step, saved.complete) for saved in found.saved] == [(5, True)]


def test_states(tmp_path: Path) -> None:
    assert listing(tmp_path / "none").state == "absent"
    assert listing(write(tmp_path / "file")).state == "file"
    (tmp_path / "empty").mkdir()
    assert listing(tmp_path / "empty").state == "there"
    assert listing(tmp_path / "empty").entries == ()
    assert parse("").state == "cut"
    assert parse("CKPTGUARD\tpython\t5\nd\t1\t2\t\tx").state == "cut"
    assert parse("motd\nCKPTGUARD\tpython\t5\nEND").state == "there"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look as somebody else")
@pytest.mark.parametrize("tools", ["python", "gnu", "busybox"])
def test_what_may_not_be_read(tools: str) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to others
        above = Path(name)
        above.chmod(0o755)
        root = above / "ckpt"
        hf(root, 5)
        closed = hf(root, 6)
        closed.chmod(0o700)
        (root / "checkpoint-5" / "model.safetensors").chmod(0)
        words = command(str(root))
        if tools != "python":
            without_python(root, above / "bin", gnu=tools == "gnu")
            words = [word.replace("/usr/bin/python3", "/nowhere/python3") for word in words]
        path = "/usr/bin:/bin" if tools == "python" else str(above / "bin")
        done = subprocess.run(
            words, env={"PATH": path}, user=65534, group=65534, extra_groups=[], capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        told = parse(done.stdout)
        assert told.denied == ("checkpoint-6",)
        assert [(saved.step, saved.complete) for saved in find_saved(told).saved] == [(5, True), (6, None)]
        root.chmod(0o700)
        told = parse(
            subprocess.run(
                words, env={"PATH": path}, user=65534, group=65534, extra_groups=[], capture_output=True, text=True,
                check=False,
            ).stdout
        )  # fmt: skip
        assert (told.state, told.entries, told.denied) == ("there", (), ("",))


def test_odd_names_and_links(tmp_path: Path) -> None:
    write(tmp_path / "a b.pt")
    write(tmp_path / "tab\there.pt")
    write(tmp_path / "line\nbreak.pt")
    write(tmp_path / "feed\x0cand\u2028line\rends.pt")
    os.mkfifo(tmp_path / "latest")  # nobody writes to it: reading it would never end
    (tmp_path / os.fsdecode(b"\xff.pt")).write_bytes(b"x")
    (tmp_path / "last").symlink_to("a b.pt")
    (tmp_path / "loop").symlink_to("loop")
    told = listing(tmp_path)
    assert told.state == "there"
    assert told.links == {"last": "a b.pt", "loop": "loop"}
    assert told.texts == {}
    odd = "feed\x0cand\u2028line\rends.pt"
    assert {"a b.pt", "tab?here.pt", "line?break.pt", odd} <= {entry.path for entry in told.entries}


def test_ten_thousand_files(tmp_path: Path) -> None:
    for number in range(100):
        folder = tmp_path / f"checkpoint-{number}"
        folder.mkdir()
        for part in range(100):
            (folder / f"rank-{part}.bin").touch()
    archive(tmp_path / "checkpoint-5" / "optimizer.pt")
    before = os.times()
    began = time.monotonic()
    told = listing(tmp_path)
    found = find_saved(told)
    after = os.times()
    assert told.files() == 10_001
    assert len(found.saved) == 100
    spent = sum(after[:4]) - sum(before[:4])
    # Of 3 s the rest is the API server's and the client's; counted in CPU, since the machine may be busy.
    assert spent < 1.0, (spent, time.monotonic() - began)


@pytest.mark.parametrize("tools", ["python", "gnu", "busybox"])
def test_a_name_forges_no_line(tmp_path: Path, tools: str) -> None:
    """The end of the listing above all: what comes behind it would not be seen."""
    root = tmp_path / "ckpt"
    hf(root, 5)
    for name in ("a\nEND\nz", "b\nf\t5\t5\t\tcheckpoint-9/x.bin", "c\nTEXT\tlatest\tcheckpoint-9", "d\nDENIED\t"):
        write(root / name / "step_7.pt")
        write(root / name / "latest", b"checkpoint-9")
    write(root / "zz" / "step_8.pt")
    gnu = tools == "gnu"
    told = listing(root) if tools == "python" else parse(without_python(root, tmp_path / "bin", gnu=gnu))
    assert told.state == "there"
    assert "zz/step_8.pt" in {entry.path for entry in told.entries}
    assert {saved.path for saved in find_saved(told).saved} >= {"checkpoint-5", "zz/step_8.pt"}
    assert not any(entry.path.startswith("checkpoint-9") for entry in told.entries)
    assert told.denied == ()
    assert "latest" not in told.texts


@pytest.mark.parametrize("gnu", [True, False])
def test_a_pointer_that_is_a_link_is_not_read(tmp_path: Path, gnu: bool) -> None:
    """A helper pod may be root, and `latest` may lead to what only root may read."""
    root = tmp_path / "ckpt"
    hf(root, 5)
    secret = write(tmp_path / "secret" / "latest", b"secret")
    (root / "latest").symlink_to(secret)
    (root / "sub").symlink_to(secret.parent)
    assert listing(root).texts == {}
    assert parse(without_python(root, tmp_path / "bin", gnu=gnu)).texts == {}


def test_a_helper_pod_follows_no_link_to_the_directory(tmp_path: Path) -> None:
    hf(tmp_path / "other", 5)
    (tmp_path / "run").symlink_to("other")
    (tmp_path / "team").symlink_to(".")
    for path in ("run", "team/other", "team/none"):
        done = subprocess.run(command(str(tmp_path / path), links=False), capture_output=True, text=True, check=False)
        assert parse(done.stdout).state == "link"
    for path in ("other", "none"):
        done = subprocess.run(command(str(tmp_path / path), links=False), capture_output=True, text=True, check=False)
        assert parse(done.stdout).state == ("there" if path == "other" else "absent")
    assert listing(tmp_path / "run").state == "there"
