"""The rotation: what stands in the cluster, what should, and one step from the one towards the other.

Nothing is remembered that the cluster does not hold, but for one instant (when the bundle was published), so any
replica can go on where another was killed. The order of a step is what keeps every request served:

1. The authority. A new one is stored beside those before it, and signs nothing yet.
2. ``caBundle`` of every configuration: all of them. API servers hear of it within moments.
3. The serving pair. One of a new authority is made only when the bundle has stood for the time ``settle``; then the
   kubelets bring it, within a minute or two, and the servers load it. The old authority is trusted until it expires.

A pair that nobody can use (missing, expired, foreign) is replaced at once: there is nothing to lose.
"""

from __future__ import annotations

import datetime
from typing import Final, Literal, NamedTuple

from certs import bundle, secret
from certs.cluster import MUTATING, VALIDATING, Cluster, Raw, Refused
from certs.issue import AUTHORITY_LIFE, LEAF_LIFE, Pair, issue_authority, issue_leaf, new_key
from certs.renewal import Fault, authority_fault, expires, leaf_fault

KINDS: Final = (MUTATING, VALIDATING)

Renew = Literal["ca", "leaf"]
Configurations = dict[tuple[str, str], Raw]
"""By kind and name."""


class Settings(NamedTuple):
    """What is to be kept, and where. ``settle`` is in seconds."""

    namespace: str
    names: tuple[str, ...]
    configurations: tuple[str, ...] = ("checkpoint-guard",)
    secret: str = "checkpoint-guard-tls"  # noqa: S105 - a name
    authority_secret: str = "checkpoint-guard-ca"  # noqa: S105 - a name
    lease: str = "checkpoint-guard-certs"
    leaf_life: datetime.timedelta = LEAF_LIFE
    authority_life: datetime.timedelta = AUTHORITY_LIFE
    settle: float = 20.0


class Done(NamedTuple):
    """Something that was written: which kind of thing, and in words."""

    what: Literal["ca", "leaf", "bundle", "order", "policy"]
    words: str


class Step(NamedTuple):
    """What one step did, and for how many seconds the next has to wait (0: it is complete)."""

    done: tuple[Done, ...]
    wait: float = 0.0


class Rotation:
    """One replica's view of the work. Not for several threads."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._published: tuple[bytes, float] | None = None
        self._asked_for: Pair | None = None
        self.leaf_ends: datetime.datetime | None = None
        """When the serving pair that was last seen or made expires."""
        self.authority_ends: datetime.datetime | None = None
        self.missing: tuple[str, ...] = ()
        """Configurations that the last step did not find, in words."""

    def step(self, now: datetime.datetime, monotonic: float, renew: Renew | None = None) -> Step:
        """Bring the cluster as far as it can be brought now. Raises Conflict, Away or Refused.

        ``renew`` replaces that one as if it were due; the same again after Conflict or Away goes on with what is there.
        """
        done: list[Done] = []
        # Before the Secrets: a bundle that another replica writes after it wrote its authority is then seen with that
        # authority, or has changed when we write.
        configurations = self._configurations()
        stored, held = self._read()
        authority, authorities = self._authority(configurations, stored, held, now, renew == "ca", done)
        self.authority_ends = expires(authority.cert)
        as_wanted = self._publish(configurations, authorities, done)
        if self._published is None or self._published[0] != authorities[0] or not as_wanted:
            self._published = (authorities[0], monotonic)
        wait = self._leaf(stored, authority, authorities, now, monotonic, renew == "leaf", done)
        self._asked_for = None
        return Step(tuple(done), wait)

    def faults(self, now: datetime.datetime) -> tuple[str, ...]:
        """What is due or wrong, in words; nothing is written. Raises Away or Refused."""
        settings = self._settings
        stored, held = self._read()
        found: list[str] = []
        signing = secret.read(held)
        if fault := authority_fault(signing.pair, now):
            found.append(f'Secret "{settings.authority_secret}": {fault.reason}')
        authorities = bundle.trusted(signing.pair.cert if signing.pair else b"", [signing.authorities], now)
        serving = secret.read(stored)
        if fault := self._leaf_fault(serving, authorities, now):
            found.append(f'Secret "{settings.secret}": {fault.reason}')
        for name in settings.configurations:
            for kind in KINDS:
                configuration = self._cluster.configuration(kind, name)
                if configuration is None:
                    found.append(f'{kind} "{name}" does not exist')
                elif authorities:
                    found += [f'{kind} "{name}": {what}' for what in bundle.wrong(configuration, authorities)]
        self.leaf_ends = expires(serving.pair.cert) if serving.pair else None
        self.authority_ends = expires(signing.pair.cert) if signing.pair else None
        return tuple(found)

    def _read(self) -> tuple[Raw | None, Raw | None]:
        settings = self._settings
        stored = self._cluster.secret(settings.secret)
        held = self._cluster.secret(settings.authority_secret)
        for found in (stored, held):
            if why := secret.untouchable(found):
                raise Refused(why)
        return stored, held

    def _authority(
        self,
        configurations: Configurations,
        stored: Raw | None,
        held: Raw | None,
        now: datetime.datetime,
        forced: bool,
        done: list[Done],
    ) -> tuple[Pair, tuple[bytes, ...]]:
        """The authority that signs and all that are trusted; both are in the Secret when this returns."""
        settings = self._settings
        found = secret.read(held)
        fault = authority_fault(found.pair, now)
        # One that was asked for may be there already, from a step that another replica or a lost answer ended later: a
        # second would leave the first trusted for its whole life and never used.
        if fault is None and forced and (self._asked_for is None or found.pair != self._asked_for):
            fault = Fault("a new one was asked for")
        if fault is None and found.pair is not None:
            authorities = bundle.trusted(found.pair.cert, [found.authorities], now)
            if b"".join(authorities) != found.authorities:
                self._write_secret(held, settings.authority_secret, found.pair, authorities)
                done.append(Done("order", f'put the authorities in Secret "{settings.authority_secret}" in order'))
            return found.pair, authorities
        earlier = [found.authorities, found.pair.cert if found.pair else b""]
        if fault is not None and fault.level == "broken":
            # Whatever the pods still serve must stay trusted, and the Secret does not say any more what that is.
            earlier += [secret.read(stored).authorities, *bundle.ours(configurations.values())]
        made = issue_authority(new_key(), now, settings.authority_life)
        authorities = bundle.trusted(made.cert, earlier, now)
        self._asked_for = made if forced else None
        self._write_secret(held, settings.authority_secret, made, authorities)
        why = fault.reason if fault else ""
        done.append(Done("ca", f'made a new authority in Secret "{settings.authority_secret}": {why}'))
        return made, authorities

    def _publish(self, configurations: Configurations, authorities: tuple[bytes, ...], done: list[Done]) -> bool:
        """Write the bundles that are not right; whether all were."""
        as_wanted = True
        for (kind, name), configuration in configurations.items():
            if wrong := bundle.wrong(configuration, authorities):
                as_wanted = False
                self._cluster.patch_configuration(kind, name, bundle.patch(configuration, authorities))
                done.append(Done("bundle", f'wrote caBundle of {kind} "{name}" ({"; ".join(wrong)})'))
        return as_wanted

    def _leaf(
        self,
        stored: Raw | None,
        authority: Pair,
        authorities: tuple[bytes, ...],
        now: datetime.datetime,
        monotonic: float,
        forced: bool,
        done: list[Done],
    ) -> float:
        """Replace the serving pair where that is due; the seconds to wait where it is too early."""
        settings = self._settings
        found = secret.read(stored)
        self.leaf_ends = expires(found.pair.cert) if found.pair else None
        fault = self._leaf_fault(found, authorities, now) or (Fault("a new one was asked for") if forced else None)
        if fault is None and found.pair is not None:
            if b"".join(authorities) != found.authorities:
                self._write_secret(stored, settings.secret, found.pair, authorities)
                done.append(Done("order", f'put the authorities in Secret "{settings.secret}" in order'))
            return 0.0
        if fault is not None and fault.level == "signer" and self._published is not None:
            left = self._published[1] + settings.settle - monotonic
            if left > 0:
                return left
        made = issue_leaf(settings.names, new_key(), authority, now, settings.leaf_life)
        self._write_secret(stored, settings.secret, made, authorities)
        self.leaf_ends = expires(made.cert)
        why = fault.reason if fault else ""
        done.append(Done("leaf", f'made a new pair in Secret "{settings.secret}": {why}'))
        return 0.0

    def _leaf_fault(self, found: secret.Stored, authorities: tuple[bytes, ...], now: datetime.datetime) -> Fault | None:
        signer = authorities[0] if authorities else b""
        return leaf_fault(found.pair, self._settings.names, signer, authorities[1:], now)

    def _configurations(self) -> Configurations:
        found: Configurations = {}
        missing = []
        for name in self._settings.configurations:
            for kind in KINDS:
                if (configuration := self._cluster.configuration(kind, name)) is not None:
                    found[kind, name] = configuration
                else:
                    missing.append(f'{kind} "{name}" does not exist')
        self.missing = tuple(missing)
        return found

    def _write_secret(self, previous: Raw | None, name: str, pair: Pair, authorities: tuple[bytes, ...]) -> None:
        self._cluster.write_secret(secret.build(previous, self._settings.namespace, name, pair, authorities))
