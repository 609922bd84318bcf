"""What the README shows is what one gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from webhook.cli import main

ROOT = Path(__file__).parents[2]
BEGIN, END = "by tests/cli/test_readme.py -->\n```\n", "```\n<!-- end of demo -->"


def test_demo_prints_what_the_readme_shows(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["review", "examples"]) == 1
    out = capsys.readouterr().out
    readme = (ROOT / "README.md").read_text()
    head, _, rest = readme.partition(BEGIN)
    shown, _, tail = rest.partition(END)
    assert tail, "the markers of the demo are gone"
    if os.environ.get("UPDATE_GOLDEN"):
        (ROOT / "README.md").write_text(f"{head}{BEGIN}{out}{END}{tail}")
    else:
        assert shown == out, "run UPDATE_GOLDEN=1 pytest tests/cli/test_readme.py and read the diff"


@pytest.mark.parametrize("example", ["good.yaml", "bad.yaml"])
def test_examples_alone_are_never_denied_for_what_is_unknown(
    example: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["review", f"examples/{example}"]) == 0
    assert "[unknown-runtime]" in capsys.readouterr().out
