"""`python -m tests.golden unpack FOLDER`, `... pack FOLDER`: the archive as files, and the archive again.

The archive's bytes depend on the names and contents of the files alone, so that what did not change does not.
"""

from __future__ import annotations

import io
import lzma
import sys
import tarfile
from pathlib import Path

from tests.golden import ARCHIVE, files


def unpack(folder: Path) -> None:
    for name, data in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def pack(folder: Path) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        # Files of one name are much alike (`expected.json`), also across releases: side by side they pack better.
        for path in sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: (path.name, path)):
            data = path.read_bytes()
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return lzma.compress(out.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def main() -> int:
    match sys.argv[1:]:
        case ["unpack", folder]:
            unpack(Path(folder))
        case ["pack", folder]:
            ARCHIVE.write_bytes(pack(Path(folder)))
        case _:
            print(__doc__)
            return 2
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
