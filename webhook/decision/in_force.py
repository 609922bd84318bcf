"""Which policy holds in a namespace: the file's, with what its ``namespaces`` say of this one. Later entries win."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import UNSET
from msgspec.structs import asdict, replace

from webhook.model.cluster import ClusterView, Gap
from webhook.model.glob import Globs, fits
from webhook.model.labels import selects
from webhook.model.policy import EntryDefaults, EntryLimits, NamespaceEntry, Policy, Selector

OWN_NAME: Final = "kubernetes.io/metadata.name"
"""The label that the API server gives each namespace."""
_KEPT: Final = 1024
"""Namespaces, and policies made for some, that are kept; then all are forgotten."""
_ENTRIES: Final = "namespaces"


def in_namespace(policy: Policy, namespace: str, cluster: ClusterView) -> Policy:
    """The policy of a namespace; the file's own where no entry is for it, and for what has no namespace.

    Where its labels are not known, entries that select by other labels than its name are not for it.
    """
    if not policy.namespaces or not namespace:
        return policy
    entries = _entries(policy)
    labels: Mapping[str, str] = {}
    if entries.by_labels:
        found = cluster.namespace(namespace)
        labels = {} if isinstance(found, Gap) else found.labels
    return entries.of(namespace, labels)


def in_named(policy: Policy, namespace: str, labels: Mapping[str, str] | None = None) -> Policy:
    """The same by name and labels alone; no labels but its own name where they are not given."""
    return policy if not policy.namespaces or not namespace else _entries(policy).of(namespace, labels or {})


def matching(policy: Policy, namespace: str, labels: Mapping[str, str]) -> list[int]:
    """The numbers of the entries that are for this namespace, in their order."""
    return _entries(policy).matching(namespace, labels)


def preparing_entries(policy: Policy) -> Iterator[None]:
    """Work out now what the first request of a namespace would have to wait for, in steps."""
    if _ENTRIES not in policy.derived:
        made = _Entries(policy)
        yield from made.filing()
        policy.derived[_ENTRIES] = made


def _entries(policy: Policy) -> _Entries:
    made: _Entries | None = policy.derived.get(_ENTRIES)
    if made is None:
        for _ in preparing_entries(policy):
            pass
        made = policy.derived[_ENTRIES]
    return made


class _Entries:
    """What a policy's entries make of namespaces, once each."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._named: Globs[int] = Globs()
        self._unnamed = [number for number, entry in enumerate(policy.namespaces) if not entry.names]
        self.by_labels = any(isinstance(entry.selector, Selector) for entry in policy.namespaces)
        self._known: dict[tuple[str, frozenset[tuple[str, str]]], Policy] = {}
        self._made: dict[tuple[int, ...], Policy] = {(): policy}

    def filing(self) -> Iterator[None]:
        """File the entries by their names, in steps."""
        entries = enumerate(self._policy.namespaces)
        yield from self._named.filing((pattern, number) for number, entry in entries for pattern in entry.names)

    def of(self, namespace: str, labels: Mapping[str, str]) -> Policy:
        key = (namespace, frozenset(labels.items()))
        found = self._known.get(key)
        if found is None:
            numbers = tuple(self.matching(namespace, labels))
            found = self._made.get(numbers)
            if len(self._known) >= _KEPT or len(self._made) >= _KEPT:
                self._known, self._made = {}, {(): self._policy}
            if found is None:
                found = self._made[numbers] = self._merged(numbers)
            self._known[key] = found
        return found

    def matching(self, namespace: str, labels: Mapping[str, str]) -> list[int]:
        entries = self._policy.namespaces
        all_labels = {OWN_NAME: namespace, **labels}
        return [
            number
            for number in sorted({*self._named.may_fit(namespace), *self._unnamed})
            if _is_for(entries[number], namespace, all_labels)
        ]

    def _merged(self, numbers: tuple[int, ...]) -> Policy:
        policy = self._policy
        rules, limits, defaults, modes = {**policy.rules}, policy.limits, policy.defaults, policy.modes
        for number in numbers:
            entry = policy.namespaces[number]
            rules.update(entry.rules)
            limits = replace(limits, **_written(entry.limits))
            defaults = replace(defaults, **_written(entry.defaults))
            if entry.mode is not UNSET:
                modes = replace(modes, default=entry.mode)
        # The exceptions are the same, and so is what they are found by.
        return replace(
            policy, rules=rules, limits=limits, defaults=defaults, modes=modes, namespaces=(), derived=policy.derived
        )


def _is_for(entry: NamespaceEntry, namespace: str, labels: Mapping[str, str]) -> bool:
    if entry.names and not any(fits(pattern, namespace) for pattern in entry.names):
        return False
    return not isinstance(entry.selector, Selector) or selects(entry.selector, labels)


def _written(part: EntryLimits | EntryDefaults) -> dict[str, object]:
    return {name: value for name, value in asdict(part).items() if value is not UNSET}


__all__ = ["in_named", "in_namespace", "matching", "preparing_entries"]
