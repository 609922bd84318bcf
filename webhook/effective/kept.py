"""What follows from a spec, its runtime and the object's name alone: worked out once, found again the next time.

One TrainJob comes by many times as it is: mutated and judged, applied again, tried by a GitOps controller, suspended,
annotated, old object and new. The runtime's part of the key is its object in the store, which is another one for every
resourceVersion; of the TrainJob it is the text of all that the builders read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.json import encode

from webhook.effective.build import build_trainer_pods
from webhook.effective.checkpoint import WrittenBy, locate_checkpoints
from webhook.effective.launch import EnvironmentOf, environment_of
from webhook.effective.limits import entries_of_jobs, is_within_limits, within_limits
from webhook.model.budget import NODES
from webhook.model.caches import cache
from webhook.model.cluster import Runtime
from webhook.model.pod import EMPTY, Checkpoint, EffectiveSet, Raw
from webhook.model.release import Release

LONGEST: Final = 16 * 1024
"""Bytes of a spec that is kept: a program in it is long, and seldom the same twice."""
_KEPT: Final = cache("pods")
"""key -> Built: some thousand TrainJobs of a few jobs."""
_LEAST: Final = 4096
_JOB: Final = 2048
"""What is kept of one job beside the runtime's part of it."""
_JOBS: Final = 256
"""Jobs of a set that is kept."""


class Built(Struct):
    """The pods of one object, the variables of their containers, and in ``known`` whatever else follows from them.

    ``known`` is shared with later decisions: it may hold nothing that depends on cluster, policy or request, unless
    that is part of its key.
    """

    effective: EffectiveSet
    environment: EnvironmentOf
    known: dict[Any, Any]

    def within_limits(self, variables: Sequence[str]) -> Built:
        """The same with no more of the pods than a review looks at; itself where all of them are within the limits."""
        if self.known.get("whole") is None:
            self.known["whole"] = is_within_limits(self.effective)
        if self.known["whole"]:
            return self
        key = ("within limits", variables)
        found: Built | None = self.known.get(key)
        if found is None:
            effective = within_limits(self.effective, self.checkpoints(variables, None))
            found = self.known[key] = Built(effective, environment_of(effective), {"whole": True})
        return found

    def checkpoints(self, variables: Sequence[str], written_by: WrittenBy | None) -> tuple[Checkpoint, ...]:
        """``locate_checkpoints``, worked out once for these ``variables`` and with a program to ask or without."""
        key = ("checkpoints", variables, written_by is None)
        found: tuple[Checkpoint, ...] | None = self.known.get(key)
        if found is None:
            found = self.known[key] = locate_checkpoints(self.effective, variables, written_by, self.environment)
        return found


def build(trainjob: Raw | None, runtime: Runtime, release: Release) -> Built:
    """``build_trainer_pods``, found again where the same was built before."""
    key = None if trainjob is None else _key(trainjob, runtime, release)
    found: Built | None = None if key is None else _KEPT.get(key)
    if found is None:
        effective = build_trainer_pods(trainjob, runtime, release)
        found = Built(effective, environment_of(effective), {})
        if key is not None and _is_surely_within(runtime, release, len(key[2])):
            found.known["whole"] = True
        if key is not None and len(effective.jobs) <= _JOBS:
            # The pods hold the spec's text as objects, and so do what locates and reads its programs.
            weight = _LEAST + 8 * len(key[2]) + _JOB * len(effective.jobs)
            _KEPT.put(key, found, weight + 8 * max(_length(runtime) - LONGEST, 0))
    return found


def _length(runtime: Runtime) -> int:
    """The bytes of the runtime, which is held as well once the store has a newer one."""
    length: int | None = runtime.prepared.get("length")
    if length is None:
        try:
            length = len(encode(runtime.raw))
        except Exception:  # half a surrogate, a number beyond 64 bits
            length = 16 * LONGEST
        runtime.prepared["length"] = length
    return length


def _is_surely_within(runtime: Runtime, release: Release, length: int) -> bool:
    """Whether a spec of that length can make no more of the runtime's pods than a review looks at.

    An entry has two letters at least, and an override may bring it to every job.
    """
    alone = runtime.prepared[release].alone
    entries: int | None = alone.memo.get("entries")
    if entries is None:
        entries = alone.memo["entries"] = entries_of_jobs(alone)
    return entries + length * len(alone.jobs) // 2 <= NODES


def _key(trainjob: Raw, runtime: Runtime, release: Release) -> tuple[object, Release, bytes] | None:
    metadata = trainjob.get("metadata") or EMPTY
    spec = trainjob.get("spec") or EMPTY
    try:
        for item in (spec.get("trainer") or EMPTY).get("args") or ():
            if len(item) > LONGEST:  # not even looked at: it may be a megabyte
                return None
        text = encode((spec, metadata.get("name"), metadata.get("generateName"), metadata.get("namespace")))
    except Exception:  # half a surrogate, a number beyond 64 bits: built anew each time
        return None
    if len(text) > LONGEST:
        return None
    mark = runtime.prepared.get("mark")
    if mark is None:
        # Part of the key and so alive with it: never mistaken for that of another runtime.
        mark = runtime.prepared["mark"] = object()
    return mark, release, text


def clear() -> None:
    """Forget everything (tests, measurements)."""
    _KEPT.clear()
