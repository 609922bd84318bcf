"""What real controllers and API servers made of real objects: recordings in one archive, read in memory.

README.md says what was recorded and how to record it again, NOTICE whose work is in it. There is no other place to
look: a recording that a test asks for and that is not in the archive is an error.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ARCHIVE = Path(__file__).with_name("recordings.tar.xz")
TRAINERS: Mapping[str, str] = {"2.0": "2.0.1", "2.1": "2.1.0", "2.2": "2.2.1", "2.3": "2.3.0", "2.4": "2.4-pre"}
"""Of each minor release, the one that was recorded; ``2.4-pre`` is the newest source before 2.4.0."""
RELEASES = tuple(TRAINERS.values())


def minor(release: str) -> str:
    """``2.3`` of ``2.3.0``, ``2.4`` of ``2.4-pre``."""
    return next(short for short, recorded in TRAINERS.items() if recorded == release)


@cache
def files() -> Mapping[str, bytes]:
    """Every file of the archive by its path."""
    with tarfile.open(fileobj=io.BytesIO(ARCHIVE.read_bytes()), mode="r:xz") as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}  # type: ignore[union-attr]


@dataclass(frozen=True)
class Pair:
    """A runtime and a TrainJob, and what became of them on a cluster with one release of Trainer."""

    release: str
    name: str

    def __str__(self) -> str:
        return f"{self.release}/{self.name}"

    def _file(self, name: str) -> bytes | None:
        return files().get(f"pairs/{self}/{name}")

    @property
    def input(self) -> bytes:
        """The objects as YAML, in the order in which they were created."""
        return files()[f"pairs/{self}/input.yaml"]

    @property
    def expected(self) -> Any:
        """What the controllers made of them."""
        return json.loads(files()[f"pairs/{self}/expected.json"])

    @property
    def outcomes(self) -> list[Any]:
        """`expected`, and where the controllers' order is not always the same, the other one."""
        other = self._file("expected.alt.json")
        return [self.expected, *([] if other is None else [json.loads(other)])]

    @property
    def update(self) -> Any:
        """The patches that were sent afterwards; `expected` is the state after them. None where there are none."""
        patches = self._file("update.json")
        return None if patches is None else json.loads(patches)


@cache
def pairs(release: str) -> tuple[Pair, ...]:
    """All pairs of a release (`2.3.0`), by name."""
    names = sorted({path.split("/")[2] for path in files() if path.startswith(f"pairs/{release}/")})
    if not names:
        raise LookupError(f"no pairs of Trainer {release} in {ARCHIVE}")
    return tuple(Pair(release, name) for name in names)


@dataclass(frozen=True)
class Capture:
    """An AdmissionReview as an API server with Trainer's CRDs sent it."""

    release: str
    name: str

    def __str__(self) -> str:
        return f"{self.release}/{self.name}"

    @property
    def body(self) -> bytes:
        return files()[f"admission-reviews/{self}.json"]

    @property
    def review(self) -> Any:
        return json.loads(self.body)


@cache
def captures() -> tuple[Capture, ...]:
    """All of them, in the order in which they were sent."""
    paths = [path.removesuffix(".json").split("/") for path in files() if path.startswith("admission-reviews/")]
    return tuple(Capture(release, name) for _, release, name in sorted(paths))


def crd(release: str, plural: str) -> bytes:
    """A CustomResourceDefinition of Trainer (`2.3.0`, `trainjobs`) as that release ships it."""
    return files()[f"crds/{release}/{plural}.yaml"]


def crds() -> list[bytes]:
    """All that there are, JobSet's too."""
    return [text for path, text in sorted(files().items()) if path.startswith("crds/")]
