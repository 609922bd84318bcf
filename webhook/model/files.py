"""Texts that a program's command names by their path, and where each of them was written."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Protocol

from msgspec import Struct

from webhook.model.finding import Origin

LONGEST: Final = 32768
"""Characters of one file that is read."""


FROM_CHECKOUT: Final = 4 * LONGEST
"""Those of one file of a checkout, which the user has at hand: an admission has none."""


class File(Struct, frozen=True):
    """A text that a container can open at ``path``; ``origin`` is what to edit.

    ``executable``: whether its mode lets it be started by its name.
    """

    path: str
    text: str
    origin: Origin
    executable: bool = True


class Lost(Struct, frozen=True):
    """Why there is no text at a path that does not lie in the image: in words, for a message.

    ``unknown`` says that nobody could look, so that the file may well be there.
    """

    reason: str
    unknown: bool = False


class Source(Protocol):
    """What images are built from: a checkout."""

    @property
    def key(self) -> Hashable: ...

    def find(self, path: str, working_dir: str = "") -> File | Lost:
        """The file that lies at a path of the container."""
        ...

    def beside(self, path: str) -> File | None:
        """The file at that very path, where files found before say which folder of the checkout is meant."""
        ...


class Files(Protocol):
    """The files of one container that are in reach, beside its ``command`` and ``args``."""

    @property
    def key(self) -> Hashable:
        """What their content is known by: equal keys, equal files."""
        ...

    @property
    def size(self) -> tuple[int, int]:
        """Characters that may be read, and about how many nodes their trees have."""
        ...

    @property
    def checkout(self) -> bool:
        """Whether they are all that the image is built from, so that what is not among them is a package."""
        ...

    def find(self, path: str) -> File | Lost | None:
        """The file at a path; None where the path lies in the image. A relative path is looked for where it may be."""
        ...

    def beside(self, path: str) -> File | None:
        """The file at that very path: what another file of these brings in. None where it is not in reach."""
        ...

    def begins(self, path: str) -> bool:
        """Whether an absolute path lies where these files do."""
        ...
