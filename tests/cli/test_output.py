"""What a terminal would act on never reaches it: from whatever file, cluster or user it comes."""

from __future__ import annotations

import io
import json
import sys
import unicodedata
from pathlib import Path

import pytest

from tests.runs.fake_cluster import FakeCluster
from tests.runs.folders import hf, write
from webhook.cli import checkpoints, main, output
from webhook.cli.drill import junit
from webhook.cli.outputs import write_json
from webhook.cli.run_flags import Progress
from webhook.model.printable import LONGEST_LINE
from webhook.runs.drill import Drill, Step

EVIL = {
    "title of the window": "\x1b]0;owned\x07",
    "clear the screen": "\x1b[2J\x1b[H",
    "one-byte CSI": "\x9b2J",
    "conceal": "\x1b[8m",
    "carriage return": "safe\rFAKE",
    "backspace": "abc\b\b\bxyz",
    "forged line": "x\nerror: forged\n::set-output name=a::b",
    "line separator": "x\u2028forged\u2029forged\x85forged\x0bforged\x0cforged",
    "right to left": "\u202egnp.exe\u202c\u2066\u2067\u2069\u200f\u061c",
    "nothing to see": "a\u200b\u200d\ufeff\u00adb",
    "delete": "\x7f",
    "tag letters": "\U000e0041\U000e0042",
    "surrogate": "\udcff",
    "null": "\0",
}


def acts(text: str, breaks: int = 1) -> list[str]:
    """What is in a text that a terminal acts on; ``breaks`` are the line breaks that belong there."""
    found = [letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp", "Cs")]
    for _ in range(breaks):
        if "\n" in found:
            found.remove("\n")
    return found


@pytest.mark.parametrize("evil", EVIL.values(), ids=EVIL.keys())
@pytest.mark.parametrize("painted", [False, True])
def test_a_line_is_one_line(evil: str, painted: bool, capsys: pytest.CaptureFixture[str]) -> None:
    output.write([f"a {evil} b"], painted)
    output.complain([f"a {evil} b"], painted)
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert text.startswith("a ")
        assert text.endswith(" b\n")
        assert acts(text) == ([] if not painted or evil != EVIL["conceal"] else ["\x1b"])


def test_colours_of_the_reports_stay(capsys: pytest.CaptureFixture[str]) -> None:
    output.write(["\x1b[1;31mdenied\x1b[0m: \x1b[2Jx"], painted=True)
    assert capsys.readouterr().out == "\x1b[1;31mdenied\x1b[0m: \\x1b[2Jx\n"


@pytest.mark.parametrize("evil", EVIL.values(), ids=EVIL.keys())
def test_json_is_the_same_and_harmless(evil: str, capsys: pytest.CaptureFixture[str]) -> None:
    if evil == "\udcff":
        evil = evil.encode("utf-8", "backslashreplace").decode()  # msgspec has no such text
    write_json({evil: [evil]})
    said = capsys.readouterr().out
    assert acts(said, said.count("\n")) == []
    assert json.loads(said) == {"schema": 1, evil: [evil]}


def test_what_people_write_stays(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("检查点 café ÄÖÜ 🚀 ελληνικά עברית", "a b", "c:\\x \"q\" 'r'"):
        output.write([text])
        assert capsys.readouterr().out == f"{text}\n"
        output.write_text(f"{text}\n\tb\n")
        assert capsys.readouterr().out == f"{text}\n\tb\n"


@pytest.mark.parametrize("name", [name for name, evil in EVIL.items() if "\0" not in evil and "/" not in evil])
def test_names_of_files_in_a_listing(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    evil = EVIL[name]
    hf(tmp_path / "run", 100)
    write(tmp_path / "run" / f"step_7{evil}.pt")
    write(tmp_path / "run" / f"sub{evil}" / "step_8.pt")
    write(tmp_path / "run" / "latest", f"checkpoint{evil}-5".encode("utf-8", "surrogateescape"))
    fake = FakeCluster(tmp_path)
    assert checkpoints._list(fake.session([]), "text") == 0
    said = capsys.readouterr()
    assert "checkpoint-100" in said.out
    assert acts(said.out + said.err, 8) == []
    assert not any(line.startswith(("error: forged", "::set-output", "forged")) for line in said.out.splitlines())
    assert checkpoints._list(fake.session([]), "json") == 0
    said = capsys.readouterr()
    assert acts(said.out, said.out.count("\n")) == []
    assert json.loads(said.out)["checkpoints"]


@pytest.mark.parametrize("evil", EVIL.values(), ids=EVIL.keys())
def test_progress_and_verdicts(evil: str, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    progress.say(f"new pod {evil}")
    progress.live(f"waiting: {evil}")
    progress.close()
    assert acts(capsys.readouterr().err, 2) == []
    steps = [Step("find", "passed", evil), Step("resume", "error", evil), Step("verdict")]
    text = junit(f"team{evil}", f"run{evil}", Drill(steps))
    output.write_text(text)
    said = capsys.readouterr().out
    assert acts(said, said.count("\n")) == []


def test_a_terminal_gets_them_no_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The live line is drawn by rich, which obeys escape sequences."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    progress = Progress()
    progress.live("pod \x1b]0;owned\x07 [red]x[/red]\nforged")
    progress.close()
    assert "\x1b]0;owned" not in terminal.getvalue()
    assert "\nforged" not in terminal.getvalue()


@pytest.mark.parametrize("evil", [evil for evil in EVIL.values() if "\0" not in evil and "\udcff" not in evil])
def test_arguments_that_are_told_back(evil: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"no{evil}"]) == 2
    with pytest.raises(SystemExit):
        main(["stop", f"run{evil}"])
    with pytest.raises(SystemExit):
        main(["stop", "run", f"--no{evil}"])
    said = capsys.readouterr().err
    assert acts(said, said.count("\n")) == []
    assert not any(line.startswith(("error: forged", "::set-output")) for line in said.splitlines())


@pytest.mark.parametrize("painted", [False, True])
def test_of_a_long_line_both_ends_are_shown(painted: bool, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"directory /{'a' * 500_000}/end"
    output.write([line, "a" * LONGEST_LINE], painted)
    output.complain([line], painted)
    said = capsys.readouterr()
    long, whole = said.out.splitlines()
    assert long.startswith("directory /aaa")
    assert long.endswith("aaa/end")
    assert "… 497,967 characters left out …" in long
    assert max(len(long), len(said.err)) < LONGEST_LINE + 50
    assert whole == "a" * LONGEST_LINE


def test_no_command_prints_a_long_value_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = {"name": "CKPT_DIR", "value": f"/mnt/{'a' * 500_000}"}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"env": [env]}}
    metadata = {"name": "run", "namespace": "team"}
    job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": spec}
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job))
    for arguments in (
        ["review", str(file)],
        ["review", str(file), "-o", "line"],
        ["review", str(file), "-o", "junit"],
        ["review", str(file), "--without-guard"],
        ["pods", str(file)],
        ["fix", str(file)],
        ["runs", "--state", str(file)],
    ):
        main(arguments)
        said = capsys.readouterr()
        assert max(map(len, (said.out + said.err).splitlines())) < LONGEST_LINE + 300, arguments
        assert len(said.out + said.err) < 30_000, arguments
