"""The corrected line of a program does settle it: it is put in the place of the one that is pointed at."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

from tests.rules.cases import FOLDER, run_documents
from webhook.cluster.files import load_text
from webhook.model.finding import Judged

RULES = ("text-order-resume",)
CASES = sorted(path for rule in RULES for path in (FOLDER / rule).glob("warn-*.yaml"))


def mended(text: str, number: int, fix: str) -> str:
    """The program with line ``number`` as the fix has it; what it imports stands before the other imports."""
    lines = text.split("\n")
    *imports, line = fix.split("\n")
    old = lines[number - 1]
    indent = old[: len(old) - len(old.lstrip())]
    lines[number - 1] = indent + line
    first = next((at for at, one in enumerate(lines) if one.strip().startswith("import ")), 0)
    before = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    return "\n".join([*lines[:first], *(before + one for one in imports), *lines[first:]])


def findings(path: Path, documents: list[dict[str, object]]) -> list[Judged]:
    text = yaml.safe_dump_all(documents).encode()
    found, _ = run_documents(path, load_text(text, "case").documents)
    return [finding for label, finding in found if label.startswith("TrainJob/")]


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_corrected_line_settles_it(path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text()))
    for _ in range(4):
        found = findings(path, documents)
        if not found:
            break
        field, _, number = found[0].at.field.partition(" line ")
        assert field == "spec.trainer.args[0]"
        args = documents[-1]["spec"]["trainer"]["args"]
        if "import " in args[0]:
            ast.parse(found[0].fix)
        args[0] = mended(args[0], int(number or "1"), found[0].fix)
    assert findings(path, documents) == []
