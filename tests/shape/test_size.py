"""No file of the programs is so long that nobody reads it to its end."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
CEILING = 600


def test_no_file_is_longer_than_the_ceiling() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines())
        for package in ("webhook", "certs")
        for path in (ROOT / package).rglob("*.py")
    }
    assert len(lengths) > 400
    long = {path: lines for path, lines in lengths.items() if lines > CEILING}
    assert not long, f"split by meaning into modules of at most {CEILING} lines: {long}"
