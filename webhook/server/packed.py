"""A policy on its way between two processes of ours: pieces that each take well under a millisecond."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, Final

from webhook.model.policy import Policy, changed

ENTRIES: Final = 100
"""Entries of one of the lists below that are packed at a time."""
_LISTS: Final = ("exceptions", "namespaces")
"""The lists of a policy that may be long."""
_DERIVED: Final = "packed"


def packed(policy: Policy) -> list[bytes]:
    """The policy in pieces; made once."""
    made: list[bytes] | None = policy.derived.get(_DERIVED)
    if made is None:
        made = policy.derived[_DERIVED] = [*_pieces(policy)]
    return made


def _pieces(policy: Policy) -> Iterator[bytes]:
    yield pickle.dumps(changed(policy, exceptions=(), namespaces=()), pickle.HIGHEST_PROTOCOL)
    for name in _LISTS:
        entries = getattr(policy, name)
        for at in range(0, len(entries), ENTRIES):
            yield pickle.dumps((name, entries[at : at + ENTRIES]), pickle.HIGHEST_PROTOCOL)


class Unpacking:
    """The way back, one piece after the other. The pieces are our own: whoever can write them can do all we can."""

    def __init__(self) -> None:
        self._policy: Policy | None = None
        self._lists: dict[str, list[Any]] = {name: [] for name in _LISTS}
        self._pieces: list[bytes] = []

    def take(self, piece: bytes) -> None:
        """The next piece."""
        found = pickle.loads(piece)  # noqa: S301 - see above
        self._pieces.append(piece)
        if self._policy is None:
            self._policy = found
        else:
            self._lists[found[0]].extend(found[1])

    def policy(self) -> Policy:
        """What the pieces make, and its pieces kept. Raises ValueError where there was none."""
        if self._policy is None:
            raise ValueError("no piece of a policy")
        made = changed(self._policy, **{name: tuple(entries) for name, entries in self._lists.items()})
        made.derived[_DERIVED] = self._pieces
        return made


def unpack(pieces: list[bytes]) -> Policy:
    """What ``packed`` made of a policy."""
    unpacking = Unpacking()
    for piece in pieces:
        unpacking.take(piece)
    return unpacking.policy()
