"""The exceptions of a policy: which of many could be for one request, found by what is rarest about each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from msgspec import Struct

from webhook.model.excuse import Excuse
from webhook.model.glob import Globs, begins_with, fits, is_glob
from webhook.model.moment import parse_moment
from webhook.model.policy import Exemption
from webhook.model.request import Request

Value = TypeVar("Value")


class Filed(Struct, frozen=True, gc=False):
    """An entry, and the excuse that it makes."""

    # Ten thousand of them live for long: the collector has nothing to look for in texts.
    entry: Exemption
    excuse: Excuse


class Exceptions:
    """The exceptions of a policy. To find those for one request costs what can match, however many there are.

    Each is filed under that one of its conditions whose keys the fewest others share: ten thousand for one namespace
    that differ in the names of their objects are found by name.
    """

    def __init__(self, entries: Iterable[Exemption]) -> None:
        every = [Filed(entry, _excuse(number, entry)) for number, entry in enumerate(entries)]
        shared: Counter[tuple[str, str]] = Counter()
        for one in every:
            for condition, keys in _conditions(one.entry):
                shared.update({(condition, _bucket(key)) for key in keys})
        filed: dict[str, list[tuple[str, Filed]]] = {}
        self._always: list[Filed] = []
        for one in every:
            best = min(
                _conditions(one.entry),
                key=lambda choice: sum(shared[choice[0], _bucket(key)] for key in choice[1]),
                default=None,
            )
            if best is None:
                self._always.append(one)
            else:
                filed.setdefault(best[0], []).extend((key, one) for key in best[1])
        self._namespaces = Globs(filed.get("namespaces", ()))
        self._names = Globs(filed.get("names", ()))
        self._users = _by_key(filed.get("users", ()))
        self._groups = _by_key(filed.get("groups", ()))
        self._labels = _by_key(filed.get("labels", ()))
        self._fingerprints = _by_key(filed.get("fingerprints", ()))

    def for_request(self, request: Request) -> dict[str, list[Filed]]:
        """Rule -> the exceptions for this object and caller, but for their fingerprints; the latest end first."""
        found = [one for one in self._candidates(request) if _meant(one.entry, request)]
        return _by_rule(found) if found else {}

    def _candidates(self, request: Request) -> list[Filed]:
        found = [*self._always]
        found += self._users.get(request.user, ())
        if self._namespaces:
            found += self._namespaces.may_fit(request.namespace)
        if self._names:
            found += self._names.may_fit(request.name)
        for group in request.groups if self._groups else ():
            found += self._groups.get(group, ())
        if self._labels:
            for key, value in labels_of(request).items():
                found += self._labels.get(f"{key}={value}", ())
        # One may be filed under two keys that both fit.
        return found if len(found) < 2 else list({id(one): one for one in found}.values())

    def of_fingerprint(self, request: Request, mark: str) -> dict[str, list[Filed]]:
        """The same for those that were filed under one fault's fingerprint."""
        return _by_rule(one for one in self._fingerprints.get(mark, ()) if _meant(one.entry, request))

    @property
    def by_fingerprint(self) -> bool:
        """Whether any was filed under one."""
        return bool(self._fingerprints)


def labels_of(request: Request) -> Mapping[str, str]:
    """The labels of the object itself; those of a wrong type are none."""
    metadata = request.object.get("metadata")
    labels = metadata.get("labels") if type(metadata) is dict else None
    return labels if type(labels) is dict else {}


def _meant(entry: Exemption, request: Request) -> bool:
    """Whether all its conditions fit, but for fingerprints."""
    match = entry.match
    if match.users and request.user not in match.users:
        return False
    if match.namespaces and not _any_fits(match.namespaces, request.namespace):
        return False
    if match.names and not _any_fits(match.names, request.name):
        return False
    if match.groups and set(match.groups).isdisjoint(request.groups):
        return False
    if match.labels:
        labels = labels_of(request)
        return all(labels.get(key) == value for key, value in match.labels.items())
    return True


def _any_fits(patterns: tuple[str, ...], name: str) -> bool:
    return name in patterns or any(is_glob(pattern) and fits(pattern, name) for pattern in patterns)


def _conditions(entry: Exemption) -> Iterator[tuple[str, list[str]]]:
    match = entry.match
    if match.fingerprints:
        yield "fingerprints", [*match.fingerprints]
    if match.names:
        yield "names", [*match.names]
    if match.users:
        yield "users", [*match.users]
    if match.namespaces:
        yield "namespaces", [*match.namespaces]
    if match.groups:
        yield "groups", [*match.groups]
    if match.labels:
        # One of them has to be there: the first does.
        yield "labels", [f"{key}={value}" for key, value in match.labels.items()][:1]


def _bucket(key: str) -> str:
    """What a key is found by: of a glob its beginning."""
    return f"{begins_with(key)}*" if is_glob(key) else key


def _by_key(pairs: Iterable[tuple[str, Value]]) -> dict[str, tuple[Value, ...]]:
    made: dict[str, list[Value]] = {}
    for key, value in pairs:
        made.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in made.items()}


def _by_rule(found: Iterable[Filed]) -> dict[str, list[Filed]]:
    made: dict[str, list[Filed]] = {}
    for one in sorted(found, key=_end):
        for rule in one.entry.rules:
            made.setdefault(rule, []).append(one)
    return made


def _end(one: Filed) -> float:
    return -one.excuse.end


def _excuse(number: int, entry: Exemption) -> Excuse:
    end = parse_moment(entry.until)
    return Excuse(
        entry.rules,
        entry.reason,
        entry.owner,
        entry.until,
        float("inf") if end is None else end,
        f"exceptions[{number}]",
    )
