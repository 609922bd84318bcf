"""docs/labels.md names every label and annotation of ours, and nothing that the code does not know."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "labels.md"
IMAGE = "never-pulled"
"""Part of the name of an image that install-check names and nobody pulls."""


def _in_code() -> set[str]:
    found = set()
    for folder in ("webhook", "certs"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            found |= set(re.findall(r"(?<!modes\.)checkpoint-guard\.io/([a-z0-9][a-z0-9-]*)", text))
            found |= set(re.findall(r'PREFIX \+ "([a-z0-9-]+)"', text))
    found.discard(IMAGE)
    return {name for name in found if not re.fullmatch(r"v\d+(alpha\d+|beta\d+)?", name)}


def test_every_name_of_ours_is_on_the_page() -> None:
    on_page = set(re.findall(r"checkpoint-guard\.io/([a-z0-9-]+)", PAGE.read_text()))
    missing = _in_code() - on_page
    assert not missing, f"docs/labels.md does not explain {sorted(missing)}: add a row for each"
    gone = on_page - _in_code()
    assert not gone, f"docs/labels.md explains {sorted(gone)}, which no code reads or writes: take the row out"
