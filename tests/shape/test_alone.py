"""The clone stands alone: nothing in it is read from, or refers to, a folder beside it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

HOUSE = Path(__file__).parents[2]
BESIDE = re.compile(
    r"\.\./shared|/ \"shared\" /|\b(product|trainer-facts|architecture|run-layer|training-program)\.md\b"
)


def test_no_file_refers_to_what_is_not_in_the_clone() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=HOUSE, capture_output=True, text=True, check=True).stdout
    assert listed
    found = []
    for name in filter(None, listed.split("\0")):
        path = HOUSE / name
        if path == Path(__file__) or path.suffix == ".xz" or not path.is_file():
            continue
        found += [f"{name}: {match[0]}" for match in BESIDE.finditer(path.read_text(errors="replace"))]
    assert found == []
