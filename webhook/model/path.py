"""Paths in a container, without touching a file system."""

from __future__ import annotations


def components(path: str) -> list[str]:
    """The components of a path from the root, ``.`` and ``..`` resolved as the kernel does without symbolic links."""
    out: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if out:
                out.pop()
        elif part and part != ".":
            out.append(part)
    return out
