"""Exceptions of a policy or a namespace: which of many could be for one request, found by what is rarest of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final

from msgspec import Struct

from webhook.model.excuse import Excuse
from webhook.model.glob import Globs, begins_with, fits, is_glob
from webhook.model.moment import parse_moment
from webhook.model.names import EXCEPTION
from webhook.model.policy import Exemption
from webhook.model.request import Request

OBJECT: Final = f"{EXCEPTION}/"
"""What the source of an excuse begins with that a CheckpointException makes."""


_ORDER: Final = attrgetter("order")


class Filed(Struct, frozen=True, gc=False):
    """An entry, and the excuse that it makes."""

    # Ten thousand of them live for long: the collector has nothing to look for in texts.
    entry: Exemption
    excuse: Excuse
    order: float
    """The later it ends, the less."""

    def is_for(self, request: Request) -> bool:
        """Whether all its conditions fit, but for fingerprints."""
        match = self.entry.match
        if (users := match.users) and request.user not in users:
            return False
        if (names := match.names) and request.name not in names and not _any_fits(names, request.name):
            return False
        spaces, space = match.namespaces, request.namespace
        if spaces and space not in spaces and not _any_fits(spaces, space):
            return False
        if match.groups and set(match.groups).isdisjoint(request.groups):
            return False
        if match.labels:
            labels = labels_of(request)
            return all(labels.get(key) == value for key, value in match.labels.items())
        return True


class Exceptions:
    """The exceptions of a policy, or with ``of_objects`` those of a namespace.

    To find those for one finding costs what can match, however many there are.
    Each is filed under its rules, and there under that one of its conditions whose keys the fewest others share: ten
    thousand for one namespace that differ in the names of their objects are found by name.
    """

    def __init__(self, entries: Iterable[Exemption] = ()) -> None:
        self._entries: Mapping[str, Exemption] = {}
        self.every: list[Filed] = []
        """All of them, the latest end first."""
        self.fingerprinted: set[str] = set()
        """The rules of which any was filed under one fault's fingerprint."""
        self._shelves: dict[str, _Shelf] = {}
        for _ in self.filing(entries):
            pass

    @classmethod
    def of_objects(cls, entries: Mapping[str, Exemption]) -> Exceptions:
        """Those of the CheckpointExceptions of one namespace, by name; how far ahead they end is not known."""
        made = cls()
        made._entries = entries
        for _ in made._file(_filed(entry, _excuse(f"{OBJECT}{name}", entry, False)) for name, entry in entries.items()):
            pass
        return made

    def before(self, others: Exceptions) -> Exceptions:
        """These, and those of ``others`` with other names; both of the objects of one namespace."""
        return Exceptions.of_objects({**others._entries, **self._entries})

    def filing(self, entries: Iterable[Exemption]) -> Iterator[None]:
        """File all of them, once, in steps: whoever makes it may do something else after each."""
        return self._file(_filed(one, _excuse(f"exceptions[{number}]", one)) for number, one in enumerate(entries))

    def _file(self, entries: Iterable[Filed]) -> Iterator[None]:
        every = self.every
        for one in entries:
            every.append(one)
            yield
        every.sort(key=_ORDER)
        shared: Counter[tuple[str, str]] = Counter()
        for one in every:
            for condition, keys in _conditions(one.entry):
                shared.update({(condition, _bucket(key)) for key in keys})
            yield
        filed: dict[str, dict[str, list[tuple[str, Filed]]]] = {}
        for one in every:
            best = min(
                _conditions(one.entry),
                key=lambda choice: sum(shared[choice[0], _bucket(key)] for key in choice[1]),
                default=("", [""]),
            )
            for rule in one.entry.rules:
                filed.setdefault(rule, {}).setdefault(best[0], []).extend((key, one) for key in best[1])
            yield
        for rule, by_condition in filed.items():
            shelf = self._shelves[rule] = _Shelf()
            yield from shelf.filing(by_condition)
            if shelf.fingerprints:
                self.fingerprinted.add(rule)

    def may_fit(self, rule: str, request: Request) -> Sequence[Filed]:
        """The exceptions of a rule that may be for this object and caller, the latest end first: ask ``is_for``."""
        shelf = self._shelves.get(rule)
        return () if shelf is None else shelf.candidates(request)

    def of_fingerprint(self, rule: str, request: Request, mark: str) -> Iterator[Filed]:
        """Those that were filed under one fault's fingerprint and are for this request; the latest end first."""
        shelf = self._shelves.get(rule)
        for one in shelf.fingerprints.get(mark, ()) if shelf is not None else ():
            if one.is_for(request):
                yield one


class _Shelf:
    """The exceptions of one rule, each under one of its conditions; under one key they lie by their end."""

    __slots__ = ("_always", "_groups", "_labels", "_names", "_namespaces", "_users", "fingerprints")

    def __init__(self) -> None:
        self._always: tuple[Filed, ...] = ()
        self._namespaces: Globs[Filed] | None = None
        self._names: Globs[Filed] | None = None
        self._users: dict[str, tuple[Filed, ...]] = {}
        self._groups: dict[str, tuple[Filed, ...]] = {}
        self._labels: dict[str, tuple[Filed, ...]] = {}
        self.fingerprints: dict[str, tuple[Filed, ...]] = {}

    def filing(self, filed: Mapping[str, list[tuple[str, Filed]]]) -> Iterator[None]:
        """File them by condition and key, in steps."""
        self._always = tuple([one for _, one in filed.get("", ())])
        yield
        if "namespaces" in filed:
            self._namespaces = Globs()
            yield from self._namespaces.filing(filed["namespaces"])
        if "names" in filed:
            self._names = Globs()
            yield from self._names.filing(filed["names"])
        for condition, table in (
            ("users", self._users),
            ("groups", self._groups),
            ("labels", self._labels),
            ("fingerprints", self.fingerprints),
        ):
            made: dict[str, list[Filed]] = {}
            for key, one in filed.get(condition, ()):
                made.setdefault(key, []).append(one)
                yield
            for key, values in made.items():
                table[key] = tuple(values)
                yield

    def candidates(self, request: Request) -> Sequence[Filed]:
        """Those that may fit, the latest end first."""
        # This is on the way of every denial: one look at each table that there is, and no frame for it.
        found: Sequence[Filed] = self._always
        some: Sequence[Filed] | None
        if self._users and (some := self._users.get(request.user)):
            found = [*found, *some] if found else some
        if self._names is not None and (some := self._names.may_fit(request.name)):
            found = [*found, *some] if found else some
        if self._namespaces is not None and (some := self._namespaces.may_fit(request.namespace)):
            found = [*found, *some] if found else some
        for group in request.groups if self._groups else ():
            if some := self._groups.get(group):
                found = [*found, *some] if found else some
        for key, value in labels_of(request).items() if self._labels else ():
            if some := self._labels.get(f"{key}={value}"):
                found = [*found, *some] if found else some
        if type(found) is tuple:
            return found  # what lies under one key lies by its end
        # One may lie under two keys that both fit: to ask it twice costs less than to look for it.
        return sorted(found, key=_ORDER)


def labels_of(request: Request) -> Mapping[str, str]:
    """The labels of the object itself; those of a wrong type are none."""
    metadata = request.object.get("metadata")
    labels = metadata.get("labels") if type(metadata) is dict else None
    return labels if type(labels) is dict else {}


def _any_fits(patterns: tuple[str, ...], name: str) -> bool:
    for pattern in patterns:  # noqa: SIM110 - this is asked for each line of a log, and mostly of one pattern
        if fits(pattern, name):
            return True
    return False


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


def _filed(entry: Exemption, excuse: Excuse) -> Filed:
    return Filed(entry, excuse, -excuse.end)


def _excuse(source: str, entry: Exemption, bounded: bool = True) -> Excuse:
    end = parse_moment(entry.until)
    return Excuse(
        entry.rules,
        entry.reason,
        entry.owner,
        entry.until,
        float("inf") if end is None else end,
        source,
        bounded,
    )
