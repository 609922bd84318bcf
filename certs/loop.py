"""The loop around the rotation: whose turn it is, how faults are told and waited out, when it ends."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from typing import Final, NamedTuple

from certs import lease
from certs.cluster import Away, Cluster, Conflict, Refused
from certs.gate import Gate
from certs.rotation import Renew, Rotation, Settings, Step

_TICK: Final = 2.0
"""Seconds between two looks at the Lease."""


class Clock(NamedTuple):
    """Time as the loop needs it; ``pause`` returns True where the process is to end."""

    now: Callable[[], datetime.datetime]
    monotonic: Callable[[], float]
    pause: Callable[[float], bool]


class Status:
    """What health and metrics say about the loop."""

    def __init__(self) -> None:
        self.leading = False
        self.fault: str | None = None
        self.writes = {"ca": 0, "leaf": 0, "bundle": 0, "order": 0, "policy": 0}
        self.failures = 0
        self.last_turn = 0.0


class Keeper:
    """Both parts of the work; either may be left out."""

    def __init__(self, rotation: Rotation | None, gate: Gate | None = None) -> None:
        self.rotation = rotation
        self.gate = gate

    @property
    def missing(self) -> tuple[str, ...]:
        """Configurations that the last step did not find, in words."""
        parts = [part.missing for part in (self.rotation, self.gate) if part is not None]
        return tuple(dict.fromkeys(what for part in parts for what in part))

    def stand_by(self) -> None:
        """This replica does not do the work now."""
        if self.gate is not None:
            self.gate.stand_by()

    def step(self, now: datetime.datetime, monotonic: float) -> Step:
        """Certificates first: a pod is not ready before they are right. Raises Conflict, Away or Refused."""
        step = Step(()) if self.rotation is None else self.rotation.step(now, monotonic)
        if self.gate is None:
            return step
        try:
            done = self.gate.step(monotonic)
        except (Conflict, Away, Refused):
            if not step.done:
                raise
            return Step(step.done, step.wait or 1.0)  # what was done is told; the next step meets the fault again
        return Step((*step.done, *done), step.wait)


class Leadership:
    """The Lease of one replica, held or waited for."""

    def __init__(self, cluster: Cluster, settings: Settings, me: str, clock: Clock) -> None:
        self._cluster = cluster
        self._settings = settings
        self._me = me
        self._clock = clock
        self._seen: lease.Seen | None = None

    def hold(self) -> bool:
        """Take or renew the Lease; False where another holds it. Raises Conflict, Away or Refused."""
        settings = self._settings
        found = self._cluster.lease(settings.lease)
        monotonic = self._clock.monotonic()
        self._seen = lease.observe(found, self._seen, monotonic)
        if lease.decide(found, self._seen, self._me, monotonic) == "wait":
            return False
        self._cluster.write_lease(lease.build(found, settings.namespace, settings.lease, self._me, self._clock.now()))
        return True

    def leave(self) -> None:
        """Let the Lease go, if it is ours and the cluster is there."""
        try:
            found = self._cluster.lease(self._settings.lease)
            if found is not None and (found.get("spec") or {}).get("holderIdentity") == self._me:
                self._cluster.write_lease(lease.release(found))
        except (Conflict, Away, Refused):
            pass


Tell = Callable[[str], None]


def run_once(rotation: Rotation, clock: Clock, tell: Tell, renew: Renew | None = None, attempts: int = 10) -> None:
    """Step until nothing is left to do. Raises Refused, and Away or Conflict after so many attempts in vain."""
    while True:
        try:
            step = rotation.step(clock.now(), clock.monotonic(), renew)
        except (Conflict, Away) as error:
            attempts -= 1
            if attempts <= 0:
                raise
            tell(f"again, since {error}")
            if clock.pause(random.uniform(0.2, 1.0)):  # noqa: S311 - jitter
                return
            continue
        renew = None
        for what in step.done:
            tell(what.words)
        if not step.wait:
            return
        tell(f"waiting {step.wait:.0f} s until every API server has the new authority")
        if clock.pause(step.wait):
            return


def run(keeper: Keeper, leadership: Leadership, status: Status, clock: Clock, tell: Tell, interval: float) -> None:
    """Keep certificates and registration until ``clock.pause`` says to end. Faults are told and waited out.

    The Lease is looked at oftener than the rest, so that the next replica goes on within ten seconds of a power cut.
    """
    failing = 0
    missing: tuple[str, ...] = ()
    due = clock.monotonic()
    while True:
        pause = min(interval, _TICK)
        try:
            led = status.leading
            status.leading = leadership.hold()
            begun = clock.monotonic()
            if status.leading and (not led or begun >= due):
                due = begun  # again at once, where it fails
                step = keeper.step(clock.now(), begun)
                for what in step.done:
                    tell(what.words)
                    status.writes[what.what] += 1
                if keeper.missing != missing:
                    missing = keeper.missing
                    tell(", ".join(missing) or "the webhook configurations are there")
                due = clock.monotonic() + (min(interval, step.wait or 1.0) if step.done or step.wait else interval)
            if status.leading:
                pause = max(0.05, min(pause, due - clock.monotonic()))
            else:
                keeper.stand_by()
            if status.fault is not None:
                tell(f"in order again, after {failing} attempts in vain")
            status.fault, failing = None, 0
        except Conflict:
            pause = random.uniform(0.1, 0.5)  # noqa: S311 - jitter
        except (Away, Refused) as error:
            failing += 1
            status.failures += 1
            if status.fault != str(error):
                tell(f"cannot go on, what stands stays in use: {error}")
            status.fault = str(error)
            keeper.stand_by()
            pause = min(interval, 2.0 ** min(failing, 6)) * random.uniform(0.8, 1.2)  # noqa: S311
        status.last_turn = clock.monotonic()
        if clock.pause(pause):
            break
    leadership.leave()
