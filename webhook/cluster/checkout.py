"""A folder that an image is built from (``--source DIR``): the file that a path in the container is."""

from __future__ import annotations

import os
from collections.abc import Hashable
from itertools import count
from typing import Final

from webhook.model.files import FROM_CHECKOUT, File, Lost
from webhook.model.finding import Origin
from webhook.model.path import components

MOST: Final = 100_000
"""Files of the folder that are looked at, in the order of their paths."""
_PASSED_OVER: Final = frozenset(("node_modules", "__pycache__", "site-packages"))
_SHOWN: Final = 3
"""Files that are named where several fit."""
_MAPPINGS: Final = 64
_NUMBERS: Final = count()

Parts = tuple[str, ...]


class Checkout:
    """The files below ``folder``, listed at the first question. ``cut`` says that there were more than ``MOST``."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.key: Hashable = ("checkout", next(_NUMBERS))
        """Of this object alone: what another one has read is read again."""
        self.cut = False
        self._by_name: dict[str, list[Parts]] | None = None
        self._known: dict[tuple[str, str], File | Lost] = {}
        self._bases: dict[Parts, Parts] = {}
        """Folder in the container -> the folder of the checkout that it is, as files found so far say."""

    def find(self, path: str, working_dir: str = "") -> File | Lost:
        """The file of the checkout that lies at a path of the container.

        Where it lies below ``working_dir`` and the checkout has it at the rest of the path, it is that one; else the
        one with the longest common end. Two that fit equally well are none.
        """
        found = self._known.get((path, working_dir))
        if found is None:
            found = self._known[path, working_dir] = self._find(path, working_dir)
        return found

    def beside(self, path: str) -> File | None:
        """The file at a path below a folder that is known to be one of the checkout's; None where there is none."""
        parts = tuple(components(path))
        for size in range(len(parts) - 1, -1, -1):
            base = self._bases.get(parts[:size])
            if base is not None:
                inside = (*base, *parts[size:])
                found = self._read(inside, path) if inside in self._files().get(inside[-1], ()) else None
                return found if isinstance(found, File) else None
        return None

    def _find(self, path: str, working_dir: str) -> File | Lost:
        parts = tuple(components(path))
        if not parts:
            return Lost(f"{self.folder} has no such file")
        known = self.beside(path)
        if known is not None:
            return known
        named = self._files().get(parts[-1], [])
        if not named:
            more = f" among its first {MOST} files" if self.cut else ""
            return Lost(f"{self.folder} has no {parts[-1]}{more}")
        root = tuple(components(working_dir))
        common = {one: _common_end(one, parts) for one in named}
        best = max(common.values())
        # A working directory below the root of the image's own is a folder of the checkout, where that has one.
        deeper = len(root) > 1 and best > len(parts) - len(root)
        if root and parts[: len(root)] == root and parts[len(root) :] in named and not deeper:
            return self._taken(parts[len(root) :], parts, path)
        fitting = [one for one in named if common[one] == best]
        # Of equal ends the one at the root of the checkout, which is what a Dockerfile copies.
        whole = [one for one in fitting if len(one) == best]
        if len(fitting) > 1 and len(whole) != 1:
            shown = ", ".join("/".join(one) for one in sorted(fitting)[:_SHOWN])
            more = f" and {len(fitting) - _SHOWN} more" if len(fitting) > _SHOWN else ""
            return Lost(f"{len(fitting)} files of {self.folder} fit equally well: {shown}{more}")
        return self._taken(whole[0] if len(fitting) > 1 else fitting[0], parts, path)

    def _taken(self, inside: Parts, parts: Parts, path: str) -> File | Lost:
        size = _common_end(inside, parts)
        if len(self._bases) < _MAPPINGS:
            self._bases.setdefault(parts[: len(parts) - size], inside[: len(inside) - size])
        return self._read(inside, path)

    def _read(self, inside: Parts, path: str) -> File | Lost:
        name = os.path.join(self.folder, *inside)  # noqa: PTH118 - pathlib alone would be a tenth of the start-up time
        try:
            with open(name, "rb") as stream:  # noqa: PTH123
                text = stream.read(4 * FROM_CHECKOUT + 4).decode("utf-8-sig", "strict")
                executable = bool(os.fstat(stream.fileno()).st_mode & 0o111)
        except UnicodeDecodeError as error:
            # What was cut in the middle of a letter is too long all the same.
            if error.reason != "unexpected end of data":
                return Lost(f"{name} is binary or not UTF-8")
            text, executable = " " * (FROM_CHECKOUT + 1), True
        except OSError as error:
            return Lost(f"{name}: {error.strerror}")
        if "\0" in text:
            return Lost(f"{name} is binary or not UTF-8")
        return File(path, text.replace("\r\n", "\n"), Origin(f"Program/{name}", "", ""), executable)

    def _files(self) -> dict[str, list[Parts]]:
        """Name -> the paths of the files of that name."""
        if self._by_name is None:
            self._by_name = {}
            seen = 0
            for where, folders, names in os.walk(self.folder):
                folders[:] = sorted(one for one in folders if one[0] != "." and one not in _PASSED_OVER)
                inside = tuple(components(os.path.relpath(where, self.folder)))
                for name in sorted(names):
                    seen += 1
                    if seen > MOST:
                        self.cut = True
                        return self._by_name
                    self._by_name.setdefault(name, []).append((*inside, name))
        return self._by_name


def _common_end(one: Parts, other: Parts) -> int:
    size = 0
    while size < min(len(one), len(other)) and one[-1 - size] == other[-1 - size]:
        size += 1
    return size
