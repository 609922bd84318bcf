"""``ckptguard init`` as its users call it; what it writes is tested with ``webhook.runs``."""

from __future__ import annotations

from pathlib import Path

import pytest

from webhook.cli import main


@pytest.mark.parametrize(
    ("flag", "text", "words"),
    [
        ("--name", "A_b", "a-z, 0-9"),
        ("--name", "", "a-z, 0-9"),
        ("--name", "-a", "begin or end"),
        ("--name", "1a", "a letter first"),
        ("--name", "a" * 41, "at most 40"),
        ("--namespace", "A b", "a-z, 0-9"),
        ("--namespace", "a-", "begin or end"),
        ("--namespace", "a" * 64, "at most 63"),
        ("--class", "Fast_SSD", "is no name"),
    ],
)
def test_a_name_that_the_api_server_would_refuse(
    flag: str, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["init", "--class", "efs", f"{flag}={text}"])
    assert left.value.code == 2
    assert words in capsys.readouterr().err


def test_the_longest_name_is_not_refused_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--class", "efs", "--nodes", "2", "--name", "a" * 40]) == 0
    written = tmp_path / "start.yaml"
    written.write_text(capsys.readouterr().out)
    assert main(["review", str(written)]) == 0
    assert "warning" not in capsys.readouterr().out


def test_frameworks_are_listed_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--framework", "?"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed[:2]] == ["hf-trainer", "pytorch"]
    assert main(["init", "--framework", "nope"]) == 2
    assert capsys.readouterr().err.splitlines()[1:] == listed
