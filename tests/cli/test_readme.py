"""What the README shows is what one gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

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


def test_the_examples_come_in_an_order_that_kubectl_apply_takes() -> None:
    """``kubectl apply -f examples`` goes by file name: what is referred to has to stand before."""
    made: set[tuple[str, str]] = set()
    for path in sorted((ROOT / "examples").iterdir()):
        for raw in yaml.safe_load_all(path.read_text()):
            namespace = raw["metadata"].get("namespace")
            assert namespace is None or ("Namespace", namespace) in made, path
            if raw["kind"] == "TrainJob":
                assert ("ClusterTrainingRuntime", raw["spec"]["runtimeRef"]["name"]) in made, path
            made.add((raw["kind"], raw["metadata"]["name"]))


def test_the_readme_is_short() -> None:
    """Two commands, one screen of output, ten rules; the rest is in docs."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
