"""The rules keep the shape that CONTRIBUTING.md gives them."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from tests.rules.cases import FOLDER
from webhook.rules import RULES

HOUSE = Path(__file__).parents[2]
FOLDERS = (HOUSE / "webhook" / "rules", HOUSE / "webhook" / "programs" / "rules")
FILES = sorted(path for folder in FOLDERS for path in folder.glob("*.py") if path.name != "__init__.py")


def test_every_file_is_in_rules_and_named_after_its_id() -> None:
    assert sorted(rule.id.replace("-", "_") for rule in RULES) == sorted(path.stem for path in FILES)


def test_ids_are_told_once() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_rule_file(path: Path) -> None:
    tree = ast.parse(path.read_text())
    docstring = ast.get_docstring(tree) or ""
    first, _, rest = docstring.partition("\n")
    assert first.endswith("."), "the first line says what is wrong"
    assert re.search(r"^Reads: ", rest, re.MULTILINE)
    assert re.search(r"^Silent when: ", rest, re.MULTILINE)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for package in ("webhook.rules", "webhook.programs.rules"):
                assert not (node.module or "").startswith(package), "rules do not import each other"
    rule = importlib.import_module(".".join(path.relative_to(HOUSE).with_suffix("").parts)).RULE
    assert rule.id == path.stem.replace("_", "-")
    assert rule.why
    assert not rule.why.endswith(".")
    assert rule.why[0].islower() or rule.why.split()[0] in ("JobSet", "Trainer", "Kueue", "Kubernetes")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_has_both_kinds_of_case(rule: object) -> None:
    names = [path.name for path in (FOLDER / rule.id).glob("*.yaml")]  # type: ignore[attr-defined]
    assert any(name.startswith("allow-") for name in names)
    assert any(name.startswith(("deny-", "warn-", "audit-")) for name in names)


def test_every_folder_of_cases_is_a_rules() -> None:
    folders = {path.name for path in FOLDER.iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert folders <= {rule.id for rule in RULES}


def test_texts_keep_the_house_style() -> None:
    """Lower case, no full stop, no begging and no blaming (the texts as users read them)."""
    for golden in FOLDER.glob("*/*.txt"):
        for line in golden.read_text().splitlines():
            assert line == line.rstrip().expandtabs(), f"{golden.name}: {line}"
            assert not line.startswith("    ") or not line.endswith("…"), "what is cut cannot be pasted"
            if re.search(r"\[[a-z-]+\]( \(warning\))?$", line) or line.startswith("  why: "):
                assert not re.search(r"\b(please|should|invalid)\b", line, re.IGNORECASE), f"{golden.name}: {line}"
                assert not line.endswith("."), f"{golden.name}: {line}"
