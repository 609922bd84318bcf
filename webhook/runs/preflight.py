"""Before a platform change: which unfinished runs will not come back after it, and in what order to act.

A change of what JobSet refuses to change in a JobSet that exists (``webhook.effective.changes``) means that the run is
lost once it is suspended, until its JobSet is made anew. Seen on the real controllers: an upgrade of Trainer, an edit
of a runtime (up to 2.2), a runtime deleted under runs (2.3), an edit of containers under runs with a queue (2.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

from msgspec import Struct, structs

from webhook.effective import build_trainer_pods
from webhook.effective.changes import refused_changes, without_retention
from webhook.effective.kueue import TYPES, container_changes, lost_in_a_write
from webhook.model.cluster import Runtime
from webhook.model.pod import EMPTY
from webhook.model.printable import shell_word
from webhook.model.release import Release
from webhook.runs.fleet import Fleet, FleetRun
from webhook.runs.overview import RUNNING

Verdict = Literal["lost", "stops", "restarts", "safe", "unknown"]
FAILING: Final = ("lost", "stops")
_ORDER: Final = ("lost", "stops", "restarts", "unknown", "safe")
_PASSED: Final = Release.V2_3
"""On the way from an older release to a newer one, this one has to run for a while (release notes of 2.4.0)."""
_NO_JOBSETS: Final = "whether it has a JobSet is not known"
_NOT_MADE: Final = "it has no JobSet yet, so the first one is made after the change"
_ELSEWHERE: Final = "another cluster runs it (MultiKueue)"
_CHANCE: Final = (
    "XGBoost beside variables of the TrainJob: each start of Trainer's controller puts them in one of two orders, "
    "and JobSet refuses the other"
)
_MAX_JOB_NAME: Final = 20
_HELD: Final = (
    "volumeClaimPolicies without retentionPolicy: JobSet refuses each suspend and resume, before this change too"
)

_DROPPED: Final = "is dropped, since this release calls it otherwise"
_NEEDS_RETENTION: Final = (
    "the runs with volumeClaimPolicies: let those that run finish; one that is suspended needs a new TrainJob, "
    "and their runtime retentionPolicy: {whenDeleted: Retain}"
)


class Item(Struct, frozen=True):
    """One unfinished run. ``difference`` is what changes for it, or why nothing is known; ``rescue`` frees it."""

    namespace: str
    name: str
    state: str
    verdict: Verdict
    difference: tuple[str, ...] = ()
    rescue: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "state": self.state,
            "verdict": self.verdict,
            "difference": list(self.difference),
            "rescue": self.rescue,
        }


class Report(Struct, frozen=True):
    """All runs that were looked at, worst first, what to do in which order, and what could not be read."""

    items: tuple[Item, ...]
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def fails(self) -> bool:
        return any(item.verdict in FAILING for item in self.items)

    def count(self, verdict: Verdict) -> int:
        """How many runs have it."""
        return sum(item.verdict == verdict for item in self.items)


def hops_between(old: Release, new: Release) -> tuple[Release, ...]:
    """The releases to install one after the other; none where it is the same one."""
    if old is new:
        return ()
    if not old.at_least(_PASSED) and new.at_least(_PASSED) and new is not _PASSED:
        return _PASSED, new
    return (new,)


def for_trainer(fleet: Fleet, now: Release, target: Release) -> Report:
    """What becomes of each run when Trainer ``now`` is replaced by ``target``."""
    hops = hops_between(now, target)
    items = _sorted(_by_trainer(fleet, run, now, hops) for run in fleet.runs)
    notes = list(fleet.notes)
    if target.at_least(Release.V2_4) and not now.at_least(Release.V2_4):
        notes += _long_names(fleet)
    report = Report(items, tuple(_steps_of_trainer(items, now, hops)), tuple(notes))
    if len(hops) > 1 and not report.fails:
        way = f"Trainer {now.value} to {target.value} goes by {hops[0].value}: install that first, and let it run"
        return structs.replace(report, notes=(*notes, way))
    return report


def _by_trainer(fleet: Fleet, run: FleetRun, now: Release, hops: Sequence[Release]) -> Item:
    early = _told_at_once(fleet, run)
    if early is not None:
        return early
    found: list[str] = []
    release, chance, dropped, rescued = now, False, "", False
    for hop in hops:
        # A run from before 2.3 has no copy yet: that is made of the runtime as it is then.
        sources = tuple(fleet.source(run, at if now.at_least(Release.V2_3) else now) for at in (release, hop))
        for source in sources:
            if isinstance(source, str):
                return _item(run, "unknown", (source,))
        before, after = (
            build_trainer_pods(run.trainjob, source, at)
            for source, at in zip(sources, (release, hop), strict=True)
            if isinstance(source, Runtime)
        )
        if before.elsewhere or after.elsewhere:
            return _item(run, "safe", (_ELSEWHERE,))
        if release.at_least(Release.V2_2) and without_retention(before.jobset_spec):
            # Its claims go with its JobSet, so there is no rescue.
            return _item(run, "lost", (_HELD,))
        changed = [f"{hop.value}: {change}" for change in refused_changes(before, after)]
        if release.override_field != hop.override_field and changed and run.spec.get(release.override_field):
            dropped = f"{hop.value}: {release.override_field} {_DROPPED}"
            changed.insert(0, dropped)
            # Written in the new field it is the same JobSet again, unless something else differs too.
            spec = {key: value for key, value in run.spec.items() if key != release.override_field}
            plain = build_trainer_pods({**run.trainjob, "spec": spec}, sources[0], release)  # type: ignore[arg-type]
            rescued = bool(refused_changes(plain, after))
        else:
            rescued = rescued or bool(changed)
        found += changed
        release = hop
        chance = chance or _is_left_to_chance(run, sources[1])
    if found:
        return _lost(run, found) if rescued else _item(run, "lost", tuple(found))
    return _item(run, "unknown", (_CHANCE,)) if chance else _item(run, "safe")


def _is_left_to_chance(run: FleetRun, source: Runtime | str) -> bool:
    """Whether Trainer's controller writes the run's variables in an order that its start decides (seen on 2.2 and 2.3).

    Two of its plugins add to them, in an order that Go's maps give: the TrainJob's own, and XGBoost's.
    """
    policy = {} if isinstance(source, str) else (source.raw.get("spec") or EMPTY).get("mlPolicy") or EMPTY
    return policy.get("xgboost") is not None and bool((run.spec.get("trainer") or EMPTY).get("env"))


def for_runtime(fleet: Fleet, now: Release, edited: Sequence[Runtime]) -> Report:
    """What the new text of runtimes does to the runs that use them."""
    new = {(one.kind, one.namespace, one.name): one for one in edited}
    runs = [run for run in fleet.runs if run.reference in new]
    items = _sorted(_by_runtime(fleet, run, now, new[run.reference]) for run in runs)
    unused = sorted(set(new) - {run.reference for run in runs})
    notes = [f'no unfinished run uses {kind} "{name}"' for kind, _, name in unused]
    return Report(items, tuple(_steps_of_runtime(items, now)), (*fleet.notes, *notes))


def _by_runtime(fleet: Fleet, run: FleetRun, now: Release, new: Runtime) -> Item:
    early = _told_at_once(fleet, run)
    if early is not None:
        return early
    source = fleet.source(run, now)
    if isinstance(source, str):
        return _item(run, "unknown", (source,))
    if now.at_least(Release.V2_2) and without_retention(build_trainer_pods(run.trainjob, source, now).jobset_spec):
        return _item(run, "lost", (_HELD,))
    kept = now.at_least(Release.V2_3) and fleet.snapshot(run) is not None
    live = fleet.live_runtime(run.reference)
    if not kept:
        before, after = (build_trainer_pods(run.trainjob, one, now) for one in (source, new))
        if before.elsewhere:
            return _item(run, "safe", (_ELSEWHERE,))
        changed = refused_changes(before, after)
        return _lost(run, changed) if changed else _item(run, "safe")
    if run.queue is None:
        return _item(run, "safe", ("Trainer has its own copy of the runtime for it, so the edit does not reach it",))
    return _by_queue(run, now, live or source, new, "the edit")


def _by_queue(run: FleetRun, now: Release, old: Runtime, new: Runtime, what: str) -> Item:
    """Kueue builds its Workload from the live runtime, whatever copy Trainer has."""
    changed = container_changes(build_trainer_pods(run.trainjob, old, now), build_trainer_pods(run.trainjob, new, now))
    if not changed:
        return _item(run, "safe")
    if run.state == RUNNING:
        return _item(run, "stops", tuple(changed))
    return _item(run, "safe", (f"its Workload is made anew after {what}: {changed[0]}",))


def for_deletion(fleet: Fleet, now: Release, kind: str, namespace: str, name: str) -> Report:
    """What deleting a runtime does to the runs that refer to it."""
    runs = [run for run in fleet.runs if run.reference == (kind, namespace, name)]
    items: list[Item] = []
    for run in runs:
        if run.malformed:
            items.append(_item(run, "unknown", (run.malformed,)))
        elif not now.at_least(Release.V2_3):
            items.append(_item(run, "safe", ("Trainer keeps the runtime (a finalizer) until its runs have finished",)))
        else:
            then = "it can neither resume nor be labelled" if run.suspended else "it can no longer be suspended"
            items.append(_item(run, "lost", (f"Trainer refuses every UPDATE of it from then on: {then}",)))
    steps = []
    if any(item.verdict == "lost" for item in items):
        steps = [
            f"wait until these runs have finished, or delete them: {kind}/{name} is needed until then",
            f"deleted already? create {kind}/{name} again, as it was: that frees them all",
        ]
    return Report(_sorted(items), tuple(steps), fleet.notes)


def for_kueue(fleet: Fleet, now: Release, kueue: str) -> Report:
    """What a start of Kueue ``kueue`` does: what its writes lose, and which runs it stops at their next event."""
    items = _sorted(_by_kueue(fleet, run, now, kueue) for run in fleet.runs)
    steps = []
    if any(item.verdict == "lost" for item in items):
        steps.append("before: move what would be lost into the runtime of new runs, and let these runs finish")
    if any(item.verdict == "stops" for item in items):
        steps.append("the runs that stop are queued again, and go on from their checkpoint when their queue has room")
    if any(item.verdict == "lost" for item in items):
        steps += ["after: " + item.rescue for item in items if item.verdict == "lost" and item.rescue]
    return Report(items, tuple(steps), fleet.notes)


def _by_kueue(fleet: Fleet, run: FleetRun, now: Release, kueue: str) -> Item:
    if run.malformed:
        return _item(run, "unknown", (run.malformed,))
    if run.queue is None:
        return _item(run, "safe")
    lost = lost_in_a_write(run.spec, f"TrainJob/{run.name}", now, TYPES[kueue])
    if lost:
        return _lost(run, lost)
    if not now.at_least(Release.V2_3):
        return _item(run, "safe")
    copy = fleet.snapshot(run)
    if isinstance(copy, str):
        return _item(run, "unknown", (copy,))
    live = fleet.live_runtime(run.reference)
    if copy is None or live is None:
        return _item(run, "safe" if copy is None else "unknown", () if copy is None else ("its runtime is not known",))
    return _by_queue(run, now, copy, live, "the start")


def _told_at_once(fleet: Fleet, run: FleetRun) -> Item | None:
    if run.malformed:
        return _item(run, "unknown", (run.malformed,))
    if fleet.jobsets is None:
        return _item(run, "unknown", (_NO_JOBSETS,))
    if (run.namespace, run.name) not in fleet.jobsets:
        return _item(run, "safe", (_NOT_MADE,))
    return None


def _item(run: FleetRun, verdict: Verdict, difference: tuple[str, ...] = ()) -> Item:
    return Item(run.namespace, run.name, run.state, verdict, difference)


def _lost(run: FleetRun, changed: Iterable[str]) -> Item:
    rescue = f"ckptguard rescue {shell_word(run.name)} -n {shell_word(run.namespace)}"
    return Item(
        namespace=run.namespace,
        name=run.name,
        state=run.state,
        verdict="lost",
        difference=tuple(changed),
        rescue=rescue,
    )


def _sorted(items: Iterable[Item]) -> tuple[Item, ...]:
    return tuple(sorted(items, key=lambda item: _ORDER.index(item.verdict)))


def _steps_of_trainer(items: Sequence[Item], now: Release, hops: Sequence[Release]) -> Iterator[str]:
    lost = [item for item in items if item.verdict == "lost" and item.rescue]
    if any(item.difference == (_HELD,) for item in items):
        yield _NEEDS_RETENTION
    running = sum(item.state == RUNNING for item in lost)
    if running:
        these = "the running one" if running == 1 else f"the {running} running ones"
        yield f"before: let {these} finish, or run on: whichever is suspended after it needs its rescue first"
    yield from _keep_overrides(items, now, hops)
    if len(hops) > 1:
        yield f"Trainer {now.value} to {hops[-1].value} goes by {hops[0].value}, and stays there until this is done:"
    for hop in hops:
        yield f"install Trainer {hop.value}"
        if dropping := sum(_is_dropped(item, hop) for item in items):
            these = "of the one whose" if dropping == 1 else f"of each of the {dropping} whose"
            yield (
                f"  while it is suspended, write spec.{hop.override_field} {these} {now.override_field} was dropped "
                "(kubectl edit trainjob), before anything else: without it the run would mount none of its volumes"
            )
        mine = [item for item in lost if any(one.startswith(f"{hop.value}: ") for one in item.difference)]
        yield from (f"  {item.rescue}" for item in mine if item.state != RUNNING and item.rescue)
        if any(item.state == RUNNING for item in mine):
            yield "  each of the running ones, once it has been suspended: ckptguard rescue NAME -n NAMESPACE"


def _is_dropped(item: Item, hop: Release) -> bool:
    return any(one.startswith(f"{hop.value}: ") and one.endswith(_DROPPED) for one in item.difference)


def _keep_overrides(items: Sequence[Item], now: Release, hops: Sequence[Release]) -> Iterator[str]:
    """The API server gives out what it does not serve no more (seen from 2.0 to 2.1 and from 2.1 to 2.2)."""
    if any(_is_dropped(item, hop) for item in items for hop in hops):
        yield (
            f"before: keep a copy (kubectl get trainjobs -A -o yaml > trainjobs.yaml): {now.override_field} is spec."
            f"{hops[0].override_field} in Trainer {hops[0].value}, and nothing shows the old one then"
        )


def _steps_of_runtime(items: Sequence[Item], now: Release) -> Iterator[str]:
    if any(item.difference == (_HELD,) for item in items):
        yield _NEEDS_RETENTION
    if any(item.verdict == "lost" and item.rescue for item in items):
        yield "give the change to a new runtime instead, and let new runs use that one"
        yield "changed already? undo it, or free each of these runs:"
        yield from (f"  {item.rescue}" for item in items if item.verdict == "lost" and item.rescue)
    if any(item.verdict == "stops" for item in items):
        yield (
            "Kueue stops each of these runs at its next event and queues it again; it comes back from its checkpoint, "
            f"with the pods of before (Trainer {now.value} has a copy): give the change to a new runtime instead"
        )


def _long_names(fleet: Fleet) -> Iterator[str]:
    """Runtimes whose jobs have names that Trainer 2.4 does not take."""
    told: set[tuple[str, str, str]] = set()
    for run in fleet.runs:
        if run.reference in told or (runtime := fleet.live_runtime(run.reference)) is None:
            continue
        told.add(run.reference)
        template = (runtime.raw.get("spec") or EMPTY).get("template") or EMPTY
        for job in (template.get("spec") or EMPTY).get("replicatedJobs") or ():
            name = str(job.get("name") or "")
            if len(name) > _MAX_JOB_NAME:
                yield (
                    f'{runtime.label}: job name "{name}" has {len(name)} characters, and Trainer 2.4 takes at most '
                    f"{_MAX_JOB_NAME} (its release notes): the runtime cannot be changed any more"
                )
