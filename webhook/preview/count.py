"""Which requests of an audit log another mode or policy would refuse, counted. Memory is level: groups are bounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct, field

from webhook.preview.lines import Line

KEYS: Final = ("namespace", "rule", "user")
"""What may be counted by."""
_GROUPS: Final = 50_000
_OTHERS: Final = "(others)"
_EXAMPLES: Final = 3
Denying = Callable[[Line], Sequence[str]]
"""The rules that would refuse a line's request."""


class Group(Struct):
    """One row: how many requests, and kind and name of the last of them."""

    denied: int = 0
    seen: list[tuple[object, object]] = field(default_factory=list)

    @property
    def examples(self) -> list[str]:
        """``TrainJob/run``, the latest first."""
        return [f"{kind}/{name}" for kind, name in reversed(self.seen)]


class Preview(Struct):
    """What would be refused of the lines that were counted."""

    by: Sequence[str]
    groups: dict[tuple[str, ...], Group] = field(default_factory=dict)
    known: dict[tuple[object, object, tuple[str, ...]], list[Group]] = field(default_factory=dict)
    requests: int = 0
    """Verdicts that were looked at; dry-runs are not."""
    denied: int = 0
    """Requests that would be refused."""
    refused: int = 0
    """Of all: those that were refused at the time."""
    not_judged: int = 0
    """Requests that were let through unseen: exempt, or mode ``off``."""
    unfilled: int = 0
    """Of those that would be refused: in mode ``audit``, where the guard fills nothing in."""
    older: int = 0
    """Lines of a release that did not say what ``enforce`` would do, in a mode that does not show it."""
    first: str = ""
    last: str = ""
    """The times of the first and the last line that counted."""

    def add(self, line: Line, denying: Denying) -> None:
        """Count one line."""
        if line.webhook != "validate" or line.dry_run or line.operation == "DELETE":
            return
        mode = line.mode
        self.requests += 1
        self.last = line.time or self.last
        if not self.first:
            self.first = self.last
        if line.verdict == "deny":
            self.refused += 1
        if mode == "off" or mode == "exempt":
            self.not_judged += 1
            return
        if line.would_be is None and mode in ("warn", "audit"):
            self.older += 1
            return
        if not line.findings:
            return
        rules = denying(line)
        if not rules:
            return
        self.denied += 1
        if mode == "audit":
            self.unfilled += 1
        told = (line.kind, line.name or f"{line.generate_name or ''}*")
        for group in self._groups_of(line.namespace, line.user, tuple(rules)):
            group.denied += 1
            seen = group.seen
            if not seen or seen[-1] != told:
                if told in seen:
                    seen.remove(told)
                seen.append(told)
                if len(seen) > _EXAMPLES:
                    del seen[0]

    def _groups_of(self, namespace: object, user: object, rules: tuple[str, ...]) -> list[Group]:
        """The rows that a request counts in, each once; remembered, since most lines are like some before."""
        key = (namespace, user, rules)
        found = self.known.get(key)
        if found is None:
            values = {"namespace": str(namespace or ""), "user": str(user or "")}
            rows = {tuple(rule if part == "rule" else values[part] for part in self.by) for rule in rules}
            found = [self._row(row) for row in rows]
            if len(self.known) < _GROUPS:
                self.known[key] = found
        return found

    def _row(self, key: tuple[str, ...]) -> Group:
        if key not in self.groups and len(self.groups) >= _GROUPS:
            key = (_OTHERS,) * len(key)
        return self.groups.setdefault(key, Group())

    def rows(self) -> list[tuple[tuple[str, ...], Group]]:
        """The groups, most first, then by their names."""
        return sorted(self.groups.items(), key=lambda row: (-row[1].denied, row[0]))


def as_logged(line: Line) -> list[str]:
    """The rules that mode ``enforce`` refuses the request for, by the policy that was in force."""
    if (line.verdict if line.would_be is None else line.would_be) != "deny":
        return []
    return [one["rule"] for one in line.findings if one.get("enforced", one["severity"]) == "deny"]


def nothing(line: Line) -> list[str]:
    """Modes other than ``enforce`` refuse nothing."""
    return []
