"""Frees a wedged run: its JobSet is deleted in the background, and Trainer makes it anew from the TrainJob.

A run is wedged where JobSet refuses what Trainer wants to change in its pods, after an upgrade, an edit of its runtime
or of the TrainJob: it can no longer be resumed, suspended or preempted, and only an event of the TrainJob says so, once
somebody has tried (seen on Trainer 2.1 to 2.3). So the JobSet is compared with what Trainer builds now, too. Claims and
checkpoints stay; the restart count begins again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct, structs

from webhook.effective import build_trainer_pods
from webhook.effective.changes import refused_changes
from webhook.model.cluster import Runtime
from webhook.model.override import overrides_yaml
from webhook.model.pod import EMPTY, EffectiveJob, EffectiveSet, Raw
from webhook.runs.api import Api
from webhook.runs.delete import claims_that_go
from webhook.runs.fleet import Fleet, FleetRun
from webhook.runs.overview import seconds_of
from webhook.runs.run import JOBSETS, CannotDo, Run, again, effective_pods, is_running
from webhook.runs.session import POLL, Session
from webhook.runs.words import pods

REFUSED: Final = "TrainJobResourcesCreationFailed"
"""Reason of the event that Trainer writes where its JobSet is refused."""
_BY_JOBSET: Final = re.compile(r"immutable|denied the request|Invalid value", re.IGNORECASE)
_FRESH: Final = 1200.0
"""Seconds. Trainer tries again, and says so again, at least every 1,000 s (its controller's longest back-off)."""
_SETTLES: Final = 5.0
"""Seconds in which Trainer tells a JobSet whether it is suspended."""
_LONGEST: Final = 300
_UNREADABLE: Final = (CannotDo, ValueError, TypeError, KeyError, AttributeError)


class Wedge(Struct, frozen=True):
    """Why a run cannot go on. ``said`` is the event's message, ``difference`` our own reading of what changed."""

    said: str
    difference: tuple[str, ...]

    def text(self) -> str:
        """One line."""
        parts = [f"JobSet refuses {', '.join(self.difference)}"] if self.difference else []
        return "; ".join([*parts, self.said] if self.said else parts)


class Rescued(Struct, frozen=True):
    """What became of it. ``wedge`` is None where the run is not wedged; ``action`` is what was done, or would be."""

    wedge: Wedge | None
    action: str
    done: bool
    words: tuple[str, ...] = ()


Agree = Callable[[Wedge, str], bool]
"""Shown the wedge and what would be done; whether to do it. May raise CannotDo."""


def rescue(session: Session, dry_run: bool, agree: Agree) -> Rescued:
    """Make the JobSet of a wedged run anew. Raises CannotDo and Unreachable; nothing is changed before ``agree``."""
    run = session.find()
    if run.over is not None:
        raise CannotDo(f'"{run.name}" {run.state()}: there is nothing to rescue')
    if run.jobset is None:
        raise CannotDo(*_no_jobset(session, run))
    wedge = find_wedge(session, run)
    if isinstance(wedge, str):
        words = f'"{run.name}" is not wedged: it {run.state()}'
        if wedge:
            unknown = f"what Trainer builds now is unknown: {wedge}"
            words = f'nothing says that "{run.name}" is wedged: it {run.state()}; {unknown}'
        return Rescued(None, "none", False, (words,))
    action = f'delete JobSet "{run.name}" in the background; Trainer makes it anew, and its restart count begins again'
    run = _without_pods(session, run, wedge)
    _claims_stay(session, run)
    missing = claims_left_out(session.kube, run)
    if missing is not None and not run.suspended:
        raise CannotDo(
            f"{missing.text}: it would start from nothing",
            f"  {session.command('stop')}    # then this in the TrainJob (kubectl edit), and resume it:",
            *missing.lines(),
        )
    _may_delete(session, run)
    if dry_run:
        return Rescued(wedge, f"would {action}", False)
    if not agree(wedge, action):
        return Rescued(wedge, "none", False, ("nothing was changed",))
    restarts = run.restarts
    _delete(session, run)
    done = _made_anew(session, run, wedge, restarts)
    if missing is None or not done.done:
        return done
    more = (f"{missing.text}: before it is resumed, say in the TrainJob", *missing.lines())
    return structs.replace(done, words=(*done.words, *more))


def find_wedge(session: Session, run: Run) -> Wedge | str:
    """What JobSet refuses. A text where there is no sign of it: empty, or why it could not be worked out."""
    said = _event(session, run)
    found = difference(session.kube, run)
    changed = () if isinstance(found, str) else found
    if said or changed or _at_odds(session, run):
        return Wedge(said, changed)
    return found if isinstance(found, str) else ""


def _event(session: Session, run: Run) -> str:
    """The newest event of the TrainJob that says that its JobSet was refused, if it still is."""
    answer = session.kube.request(
        "GET",
        f"/api/v1/namespaces/{run.namespace}/events",
        {"fieldSelector": f"involvedObject.name={run.name},reason={REFUSED}"},
    )
    if not answer.ok:
        session.say(f"warning: events cannot be read, so what JobSet said is not known: {answer.message}")
        return ""
    made = seconds_of((run.jobset or EMPTY)["metadata"].get("creationTimestamp")) or 0.0
    newest = ("", 0.0)
    for event in answer.body.get("items") or ():
        about = event.get("involvedObject") or EMPTY
        when = max((seconds_of(text) or 0.0 for text in _times(event)), default=0.0)
        message = " ".join(str(event.get("message") or "").split())
        if about.get("uid") not in (None, run.uid) or event.get("reason") != REFUSED or when < made:
            continue
        if _BY_JOBSET.search(message) and session.kube.clock.now() - when < _FRESH and when >= newest[1]:
            newest = message, when
    # Behind that stand the pods, as far as an event has room for them.
    before, mark, _ = newest[0].partition(": Invalid value")
    said = f"{before}{mark}"
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]} ..."


def _times(event: Raw) -> list[object]:
    series = event.get("series") or EMPTY
    return [event.get("lastTimestamp"), event.get("eventTime"), series.get("lastObservedTime")]


def _at_odds(session: Session, run: Run) -> bool:
    """Whether the TrainJob is suspended and its JobSet is not, or the other way round, and stays so."""
    until = session.kube.clock.monotonic() + _SETTLES
    while True:
        spec = (run.jobset or EMPTY).get("spec") or EMPTY
        if run.jobset is None or bool(spec.get("suspend")) == run.suspended:
            return False
        if session.kube.clock.monotonic() >= until:
            return True
        session.kube.clock.sleep(POLL)
        run = again(session.kube, run)


def difference(api: Api, run: Run) -> tuple[str, ...] | str:
    """What differs between the run's JobSet and what Trainer builds now, and JobSet refuses; or why that is unknown."""
    try:
        both = _both(api, run)
        return both if isinstance(both, str) else tuple(refused_changes(*map(_comparable, both)))
    except _UNREADABLE as error:
        return str(error) or "its objects are malformed"


def _both(api: Api, run: Run) -> tuple[EffectiveSet, EffectiveSet] | str:
    """The run by its JobSet, and by what Trainer builds now; or why that is unknown. Raises any of ``_UNREADABLE``."""
    fleet = Fleet(api, run.namespace)
    release = fleet.served()
    if release is None:
        return "which Trainer runs here is not known"
    source = fleet.source(FleetRun(run.trainjob), release)
    if not isinstance(source, Runtime):
        return source
    return effective_pods(run, None, release), build_trainer_pods(run.trainjob, source, release)


class LeftOut(Struct, frozen=True):
    """Claims that the run's JobSet mounts and that nothing mounts any more, with what to write to keep them."""

    text: str
    yaml: str

    def lines(self) -> list[str]:
        """The text to paste, set in."""
        return [f"  {line}" for line in self.yaml.splitlines()]


def claims_left_out(api: Api, run: Run) -> LeftOut | None:
    """What a JobSet that is made anew would not mount any more; None where it mounts all, or that is unknown.

    Trainer 2.1 and 2.2 renamed the field for overrides, and the API server drops the old one (seen 2.0 to 2.1, 2.1 to
    2.2): the volumes that it held are in the JobSet alone.
    """
    try:
        both = _both(api, run)
        if isinstance(both, str):
            return None
        pods = {
            job.name: found for job, new in zip(*(one.jobs for one in both), strict=False) if (found := _lost(job, new))
        }
        if not pods:
            return None
        spec = run.trainjob.get("spec") or EMPTY
        yaml = overrides_yaml(both[1].release, spec, {job: lost.pod for job, lost in pods.items()})
    except _UNREADABLE:
        return None
    names = ", ".join(sorted(set().union(*(lost.claims for lost in pods.values()))))
    return LeftOut(f'the JobSet of "{run.name}" mounts claim {names}, and one that is made anew does not', yaml)


class _Lost(NamedTuple):
    pod: Raw
    """What an override has to say: volumes of claims that only the old job has, and mounts that only it has."""
    claims: set[str]
    """How each is called in a message."""


def _claims(job: EffectiveJob) -> dict[str, str]:
    """The claim of each volume that has one."""
    volumes = (volume for volume in job.pod.get("volumes") or () if volume.get("persistentVolumeClaim"))
    return {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in volumes}


def _mounts(container: Raw, claims: Mapping[str, str]) -> dict[tuple[str, ...], Raw]:
    """Its mounts of claims, by claim and place."""
    return {
        (claims[mount["name"]], mount["mountPath"], mount.get("subPath") or mount.get("subPathExpr") or ""): mount
        for mount in container.get("volumeMounts") or ()
        if mount.get("name") in claims
    }


def _lost(old: EffectiveJob, new: EffectiveJob) -> _Lost | None:
    """What of claims the old job alone mounts."""
    if old.name != new.name:
        return None
    before, now = _claims(old), _claims(new)
    volume_of = {claim: name for name, claim in now.items()}
    gone = {name: claim for name, claim in before.items() if claim not in volume_of}
    named = {f'"{claim}"' for claim in gone.values()}
    mounted = {one["name"]: _mounts(one, now) for one in new.pod.get("containers") or ()}
    containers = []
    for container in old.pod.get("containers") or ():
        kept = mounted.get(container["name"], {})
        mounts = []
        for (claim, path, within), mount in _mounts(container, before).items():
            if (claim, path, within) in kept:
                continue
            mounts.append({**mount, "name": volume_of.get(claim, mount["name"])})
            if claim in volume_of:
                named.add(f'"{claim}" at "{path}"')
        if mounts:
            containers.append({"name": container["name"], "volumeMounts": mounts})
    if not gone and not containers:
        return None
    volumes = [volume for volume in old.pod.get("volumes") or () if volume["name"] in gone]
    parts = {"volumes": volumes, "containers": containers}
    return _Lost({part: value for part, value in parts.items() if value}, named)


def _comparable(effective: EffectiveSet) -> EffectiveSet:
    """Without what a stored JobSet has and no build tells: Trainer's own ports, and its order of variables.

    A change of these alone is missed, and a run is never called wedged that is not.
    """
    return structs.replace(effective, jobs=tuple(structs.replace(job, pod=_plain(job.pod)) for job in effective.jobs))


def _plain(pod: Raw) -> Raw:
    plain = dict(pod)
    for field in ("containers", "initContainers"):
        plain[field] = [
            {
                **{part: value for part, value in container.items() if part != "ports"},
                "env": sorted(container.get("env") or (), key=lambda one: str(one.get("name"))),
            }
            for container in pod.get(field) or ()
        ]
    return plain


def _no_jobset(session: Session, run: Run) -> list[str]:
    answer = session.kube.request("GET", f"{JOBSETS}/namespaces/{run.namespace}/jobsets/{run.name}")
    if answer.code != 404:
        return [f"its JobSet cannot be read: {answer.message}"]
    return [
        f'"{run.name}" has no JobSet, so none stands in its way: Trainer makes it',
        f"  kubectl describe trainjob {run.name} -n {run.namespace}    # where it does not: its events say why",
    ]


def _without_pods(session: Session, run: Run, wedge: Wedge) -> Run:
    """The run once no pod of it runs; where it is suspended, a deletion ends them. Raises CannotDo."""
    if run.suspended or not run.pods:
        return run
    if any(not pod["metadata"].get("deletionTimestamp") for pod in run.pods):
        raise CannotDo(
            f'"{run.name}" {run.state()}: its pods would be ended without a word; suspend it first '
            f"({wedge.text() or 'its JobSet does not follow it'})",
            f"  {session.command('stop')}    # then the rescue, whether or not its pods end",
        )
    wait = session.waiting()
    while run.pods:
        if wait.over():
            lost = session.lost(run)
            raise CannotDo(f'{pods(len(run.pods))} of "{run.name}" did not end', *session.waits_lines(lost))
        session.live(f"waiting for {pods(len(run.pods))} to end ({wait.passed():.0f} s)")
        wait.pause(POLL)
        run = again(session.kube, run)
        if run.jobset is None:
            raise CannotDo(f'the JobSet of "{run.name}" is gone by itself: Trainer makes it anew')
    return run


def _claims_stay(session: Session, run: Run) -> None:
    """Raises CannotDo where a claim belongs to the JobSet and would go with it."""
    going = list(claims_that_go(run))
    uid = (run.jobset or EMPTY)["metadata"].get("uid")
    answer = session.kube.request("GET", f"/api/v1/namespaces/{run.namespace}/persistentvolumeclaims")
    for claim in (answer.body.get("items") or ()) if answer.ok else ():
        owners = claim["metadata"].get("ownerReferences") or ()
        if claim["metadata"]["name"] not in going and any(owner.get("uid") == uid for owner in owners):
            going.append(str(claim["metadata"]["name"]))
    if going:
        names = ", ".join(f'"{name}"' for name in going)
        raise CannotDo(
            f"claim {names} belongs to the JobSet (volumeClaimPolicies, whenDeleted: Delete) and would go with it, and "
            "every checkpoint on it: copy them to another claim, and start a new run from there"
        )


def _path(run: Run) -> str:
    return f"{JOBSETS}/namespaces/{run.namespace}/jobsets/{run.name}"


def _options(run: Run) -> dict[str, object]:
    """Only this very JobSet, as it was looked at: one that has begun to start meanwhile has another version."""
    metadata = (run.jobset or EMPTY)["metadata"]
    wanted = {key: metadata[key] for key in ("uid", "resourceVersion") if metadata.get(key)}
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": wanted,
    }


def _may_delete(session: Session, run: Run) -> None:
    """Raises CannotDo where the right is missing, before anything is done."""
    answer = session.kube.request("DELETE", _path(run), {"dryRun": "All"}, {**_options(run), "dryRun": ["All"]})
    if answer.code in (401, 403):
        raise CannotDo(
            f"you may not delete its JobSet, so nothing was done: {answer.message}",
            f"  kubectl auth can-i delete jobsets.jobset.x-k8s.io -n {run.namespace}    # whoever may: "
            f"kubectl delete jobset {run.name} -n {run.namespace} --cascade=background",
        )
    _refused(session, run, answer.code, answer.message, answer.ok)


def _delete(session: Session, run: Run) -> None:
    answer = session.change(
        f'the JobSet of "{run.name}" is deleted, and Trainer makes it anew as soon as its controller runs',
        lambda: session.kube.request("DELETE", _path(run), None, _options(run)),
    )
    _refused(session, run, answer.code, answer.message, answer.ok)


def _refused(session: Session, run: Run, code: int, message: str, ok: bool) -> None:
    if code == 409:
        now = again(session.kube, run)
        raise CannotDo(f'the JobSet of "{run.name}" changed meanwhile, so nothing was deleted: it {now.state()}')
    if not ok and code != 404:
        raise CannotDo(f'the JobSet of "{run.name}" cannot be deleted: {message}')


def _made_anew(session: Session, run: Run, wedge: Wedge, restarts: int) -> Rescued:
    """Wait until Trainer has made the JobSet again and the run goes on, or is suspended as it was."""
    old = (run.jobset or EMPTY)["metadata"].get("uid")
    before = {str(pod["metadata"].get("uid")) for pod in run.pods}
    count = f"the restart count began again (it was {restarts})"
    action = "deleted the JobSet in the background"
    wait = session.waiting()
    while True:
        now = again(session.kube, run)
        fresh = now.jobset is not None and now.jobset["metadata"].get("uid") != old
        old_pods = [pod for pod in now.pods if str(pod["metadata"].get("uid")) in before]
        if fresh and not old_pods:
            session.state = f'the JobSet of "{run.name}" is made anew, and the run {now.state()}'
            if now.suspended:
                words = "its JobSet is made anew and suspended, as the run is"
                return Rescued(wedge, action, True, (words, count, f"go on with it: {session.command('resume')}"))
            if any(is_running(pod) for pod in now.pods):
                return Rescued(wedge, action, True, (f'"{run.name}" runs again: it {now.state()}', count))
        if wait.over():
            return _late(session, now, wedge, action, count, fresh)
        session.live(f"waiting for {'its pods' if fresh else 'its new JobSet'} ({wait.passed():.0f} s)")
        wait.pause(POLL)


def _late(session: Session, run: Run, wedge: Wedge, action: str, count: str, fresh: bool) -> Rescued:
    after = f"after {session.options.timeout:.0f} s"
    if not fresh:
        return Rescued(
            wedge,
            action,
            False,
            (
                f"its JobSet is deleted, and Trainer made no new one {after}: it does as soon as its controller runs",
                "  kubectl get deploy -A -l app.kubernetes.io/name=trainer",
            ),
        )
    lost = session.lost(run)
    if lost:
        return Rescued(wedge, action, False, (count, *session.waits_lines(lost)))
    # JobSet took the pods: what they wait for now (a queue, a node, an image) is no wedge any more.
    return Rescued(wedge, action, True, (f"its JobSet is made anew; {after} it {run.state()}", count))
