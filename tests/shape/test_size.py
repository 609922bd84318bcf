"""No file of the programs is so long that nobody reads it to its end, and no call so long that nobody can check it."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
CEILING = 600
MOST = 5
"""Arguments of a constructor that may go by their place."""
HOT = ("decision", "defaults", "effective", "model", "programs", "storage", "cluster/objects.py",
       "cluster/storage_tables.py", "server/envelope.py")  # fmt: skip
"""What runs for each verdict: a name costs 15 ns there, which is in docs/decisions.md."""


def test_no_file_is_longer_than_the_ceiling() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines())
        for package in ("webhook", "certs")
        for path in (ROOT / package).rglob("*.py")
    }
    assert len(lengths) > 400
    long = {path: lines for path, lines in lengths.items() if lines > CEILING}
    assert not long, f"split by meaning into modules of at most {CEILING} lines: {long}"


def test_constructors_of_many_arguments_name_them() -> None:
    found = []
    for package in ("webhook", "certs"):
        for path in (ROOT / package).rglob("*.py"):
            place = path.relative_to(ROOT / package).as_posix()
            if place.startswith(HOT):
                continue
            for call in ast.walk(ast.parse(path.read_text())):
                if not isinstance(call, ast.Call) or len(call.args) <= MOST:
                    continue
                name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
                if name.lstrip("_")[:1].isupper():
                    found.append(f"{place}:{call.lineno}: {name}")
    assert not found, f"name the arguments where there are more than {MOST}: {found}"
