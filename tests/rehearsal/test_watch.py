"""Events of files: by inotify and by polling."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from webhook.rehearsal.saves import Track, is_state, named_state, reached, shape
from webhook.rehearsal.watch import Event, Place, Poller, Watcher, watcher

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


def kinds(events: list[Event], name: str) -> list[str]:
    return [event.kind for event in events if event.path.endswith(name)]


def test_a_save_that_is_renamed(tmp_path: Path) -> None:
    watch = Watcher([Place(str(tmp_path), reads=True)])
    part = tmp_path / "a.tmp"
    part.write_text("x")
    part.rename(tmp_path / "a.json")
    (tmp_path / "a.json").read_text()
    events = watch.read()
    watch.close()
    assert kinds(events, "a.tmp") == ["made", "write", "closed"]
    assert kinds(events, "a.json") == ["moved", "read"]
    assert next(event for event in events if event.kind == "moved").old == str(part)


def test_what_lies_in_a_new_folder_before_it_is_watched(tmp_path: Path) -> None:
    watch = Watcher([Place(str(tmp_path), reads=True)])
    (tmp_path / "one" / "two").mkdir(parents=True)
    (tmp_path / "one" / "two" / "x.json").write_text("x")
    assert "write" in kinds(watch.read(), "one/two/x.json")
    (tmp_path / "one").rename(tmp_path / "three")
    (tmp_path / "three" / "two" / "y.json").write_text("y")
    assert "closed" in kinds(watch.read(), "three/two/y.json")
    watch.close()


def test_polling_sees_writes_renames_and_ends(tmp_path: Path) -> None:
    watch = Poller([Place(str(tmp_path), reads=True)])
    (tmp_path / "a.tmp").write_text("x")
    assert kinds(watch.read(), "a.tmp") == ["made", "write"]
    (tmp_path / "a.tmp").rename(tmp_path / "a.json")
    assert kinds(watch.read(), "a.json") == ["moved"]
    (tmp_path / "a.json").unlink()
    assert kinds(watch.read(), "a.json") == ["gone"]


def test_without_inotify_it_polls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "inotify_simple", None)
    assert isinstance(watcher([Place(str(tmp_path))]), Poller)


def test_what_is_open_and_what_was_written_in_place(tmp_path: Path) -> None:
    track = Track(str(tmp_path))
    now = time.monotonic()
    whole, part = f"{tmp_path}/a.json", f"{tmp_path}/b.tmp"
    Path(whole).write_text("x")
    track.add([Event(now, "made", whole), Event(now, "write", whole), Event(now, "made", part)])
    assert set(track.writing) == {whole, part}
    track.add([Event(now, "closed", whole), Event(now, "moved", f"{tmp_path}/b.json", part)])
    assert set(track.writing) == {f"{tmp_path}/b.json"}
    assert track.in_place(["a.json"]) == ([whole], True)
    assert track.in_place([]) == ([whole], False)


def test_what_came_after_a_file_whether_written_or_renamed(tmp_path: Path) -> None:
    track = Track(str(tmp_path))
    first, second, third = (f"{tmp_path}/{name}" for name in ("0.distcp", "1.distcp", ".metadata"))
    for path in (first, second, third):
        Path(path).write_text("x")
    track.add([Event(1.0, "moved", f"{tmp_path}/before", f"{tmp_path}/b.tmp")])
    track.add([Event(1.0, "write", first), Event(2.0, "write", second), Event(3.0, "write", f"{tmp_path}/m.tmp")])
    track.add([Event(4.0, "moved", third, f"{tmp_path}/m.tmp")])
    assert track.in_place([])[0] == [first, second]
    assert track.later(first) == [second, third]


@pytest.mark.parametrize(
    ("path", "expected"),
    [("step_4.json", True), ("run/events.out.tfevents.1", False), ("train.log", False), ("x.jsonl", False)],
)
def test_what_may_be_a_checkpoint(path: str, expected: bool) -> None:
    assert is_state(path) is expected


def test_names() -> None:
    assert shape("run-3/tmpab12cd_9/step_40.json") == "run-#/*/step_#.json"
    assert named_state("/x/model-3.pt")
    assert not named_state("/x/cache.json")
    assert reached("step 3 loss 0.1\nstep: 14 loss 0.2\n") == 14
