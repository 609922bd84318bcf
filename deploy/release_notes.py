"""The notes of a release: what CHANGELOG.md says of it. ``python -m deploy.release_notes [VERSION]``."""

from __future__ import annotations

import re
import sys
from pathlib import Path


def notes(changelog: str, version: str) -> str:
    """The section of ``version`` (``0.1.0``, ``Unreleased``), without its heading. Raises ValueError: there is none."""
    sections = re.split(r"(?m)^## \[", changelog)[1:]
    for section in sections:
        name, _, rest = section.partition("]")
        if name == version:
            return rest.partition("\n")[2].strip() + "\n"
    known = ", ".join(section.partition("]")[0] for section in sections)
    raise ValueError(f"CHANGELOG.md has no section {version}; it has {known}")


def main() -> int:
    """0, or 2 where the changelog says nothing of the version that was asked for."""
    changelog = Path("CHANGELOG.md").read_text(encoding="utf-8")
    asked = sys.argv[1] if len(sys.argv) > 1 else None
    try:
        if asked is None:
            found = re.search(r'__version__ = "(.+)"', Path("webhook/__init__.py").read_text(encoding="utf-8"))
            asked = found[1] if found and f"## [{found[1]}]" in changelog else "Unreleased"
        sys.stdout.write(notes(changelog, asked))
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
