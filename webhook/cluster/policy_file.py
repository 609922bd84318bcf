"""The policy file (YAML) -> the model's Policy, with its hash; every fault with its line, field and fix."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import Struct

from webhook.cluster.documents import FileError
from webhook.cluster.places import field_of
from webhook.cluster.yaml_text import Piece, TextError, decode, parse, places, split
from webhook.model.names import SYSTEM_NAMESPACE, WITHOUT_A_RULE
from webhook.model.policy import Exemption, Policy, changed

_HASH_DIGITS: Final = 12
_TOLD: Final = 100
"""Faults, and warnings, that are told; nobody mends more at a time."""


class PolicyError(Exception):
    """A policy that cannot be used. ``errors`` are all its faults, at least one."""

    def __init__(self, errors: list[FileError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = errors


class Checked(Struct, frozen=True):
    """A policy file that was read: the policy, or its faults; what to know of it beside; where its lines are."""

    policy: Policy | None
    faults: tuple[FileError, ...] = ()
    warnings: tuple[FileError, ...] = ()
    piece: Piece | None = None
    raw: Any = None
    unread: bool = False
    """The file could not be read at all."""

    def used(self) -> Policy:
        """The policy. Raises PolicyError."""
        if self.policy is None:
            raise PolicyError([*self.faults])
        return self.policy


def load_policy(path: str, rule_ids: Collection[str] | None = None, default_mode: str | None = None) -> Policy:
    """Reads and parses a policy file; see ``parse_policy``. Raises PolicyError also where it cannot be read."""
    return read_policy(path, rule_ids, default_mode).used()


def read_policy(path: str, rule_ids: Collection[str] | None = None, default_mode: str | None = None) -> Checked:
    """``check_policy`` of a file, ``-`` for standard input; one that cannot be read has that for its fault."""
    from pathlib import Path

    try:
        if path == "-":
            import sys

            data = sys.stdin.buffer.read()
        else:
            data = Path(path).read_bytes()
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error.strerror)
        return Checked(None, (FileError(path, None, None, reason),), unread=True)
    return check_policy(data, path, rule_ids, default_mode)


def parse_policy(
    data: bytes,
    file: str,
    rule_ids: Collection[str] | None = None,
    default_mode: str | None = None,
    now: float | None = None,
) -> Policy:
    """One YAML document -> Policy. An empty file is the built-in policy. Raises PolicyError with all its faults.

    ``rule_ids`` are the ids that ``rules`` may name; None means those of this release. ``default_mode`` is
    ``modes.default`` where the file does not write one. ``now`` is Unix time, None for the clock's.
    ``Policy.hash`` depends on what the policy says, not on how it is written.
    """
    return check_policy(data, file, rule_ids, default_mode, now).used()


def check_policy(
    data: bytes,
    file: str,
    rule_ids: Collection[str] | None = None,
    default_mode: str | None = None,
    now: float | None = None,
) -> Checked:
    """``parse_policy`` that raises nothing, and says beside the faults what will not do what somebody may expect."""
    from webhook.cluster.policy_check import Context, check, warnings

    if now is None:
        import time

        now = time.time()
    try:
        pieces = [(piece, value) for piece in split(decode(data)) for _, value in parse(piece) if value is not None]
    except TextError as error:
        return Checked(None, (FileError(file, error.line, error.field, error.message),))
    if not pieces:
        return Checked(_hashed(with_default_mode(Policy(), default_mode)), raw={})
    piece, raw = pieces[0]
    if len(pieces) > 1:
        fault = FileError(file, pieces[1][0].line, None, "more than one document: a policy is one")
        return Checked(None, (fault,))
    if not isinstance(raw, dict):
        fault = FileError(file, piece.line, None, "this is no mapping: a policy begins with apiVersion")
        return Checked(None, (fault,))
    raw = _current(raw)
    faults = check(raw, Context(frozenset(known_rules() if rule_ids is None else rule_ids), now))
    if faults:
        told = [*_located(file, piece, faults[:_TOLD])]
        if len(faults) > _TOLD:
            told.append(FileError(file, None, None, f"and {len(faults) - _TOLD} more faults"))
        return Checked(None, tuple(told), (), piece, raw)
    policy = _converted(raw)
    modes = raw.get("modes")
    if not (isinstance(modes, dict) and "default" in modes):
        policy = with_default_mode(policy, default_mode)
    policy = _hashed(_with_system(policy))
    remarks = tuple(_located(file, piece, islice(warnings(policy, now), _TOLD)))
    return Checked(policy, (), remarks, piece, raw)


def with_default_mode(policy: Policy, mode: str | None) -> Policy:
    """The policy with this ``modes.default``; as it is where None."""
    if mode is None:
        return policy
    return changed(policy, modes=msgspec.structs.replace(policy.modes, default=mode))


def _current(raw: dict[str, Any]) -> dict[str, Any]:
    """The file as it is written today: ``selfService`` was a list of rules."""
    if isinstance(raw.get("selfService"), list):
        return {**raw, "selfService": {"rules": raw["selfService"]}}
    return raw


def _converted(raw: dict[str, Any]) -> Policy:
    """Checked already. Entry by entry: whoever answers beside it is kept waiting for one of them at most."""
    exceptions = tuple([msgspec.convert(one, Exemption) for one in raw.get("exceptions", ())])
    return changed(msgspec.convert({**raw, "exceptions": ()}, Policy), exceptions=exceptions)


def _with_system(policy: Policy) -> Policy:
    exempt = policy.exempt
    if SYSTEM_NAMESPACE in exempt.namespaces:
        return policy
    exempt = msgspec.structs.replace(exempt, namespaces=(*exempt.namespaces, SYSTEM_NAMESPACE))
    return changed(policy, exempt=exempt)


def known_rules() -> list[str]:
    """The ids that a policy may name in this release."""
    from webhook.rules import RULES

    return [*(rule.id for rule in RULES), *WITHOUT_A_RULE]


def _hashed(policy: Policy) -> Policy:
    import hashlib

    rest = changed(policy, hash="", exceptions=())
    digest = hashlib.sha256(msgspec.json.encode(rest, order="sorted"))
    for one in policy.exceptions:
        digest.update(msgspec.json.encode(one, order="sorted"))
    return changed(policy, hash=digest.hexdigest()[:_HASH_DIGITS])


def exception_faults(raw: Mapping[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
    """What is wrong with a CheckpointException: the steps to a field and what to write there."""
    from webhook.cluster.policy_check import Context, check_exception

    return check_exception(raw.get("spec"), Context(frozenset(known_rules())))


def _located(file: str, piece: Piece, faults: Iterable[tuple[tuple[str | int, ...], str]]) -> Iterable[FileError]:
    for steps, message in faults:
        found = places(piece)
        line = found[0].find([*steps]) if found else piece.line
        yield FileError(file, line, field_of([*steps]) or None, message)
