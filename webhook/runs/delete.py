"""Deletes a run; its data stays, unless it belongs to the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from webhook.model.pod import EMPTY, Raw
from webhook.runs.lost import Lost, lost_pods, lost_words, ways_out
from webhook.runs.run import JOBSETS, TRAINJOBS, CannotDo, Directory, Run, every_pod_of
from webhook.runs.session import POLL, Session, any_directory
from webhook.runs.words import pods, still


class Deleted(Struct, frozen=True):
    """What a deletion leaves: ``directory`` None where none is known; ``lost`` are claims that went with the run.

    ``absent``: the claim under the directory was not there any more. ``unseen``: what could not be seen to be gone.
    """

    directory: Directory | None
    lost: tuple[str, ...] = ()
    seconds: float = 0.0
    absent: bool = False
    unseen: str = ""


def delete(session: Session, with_data: bool) -> Deleted:
    """Delete the TrainJob and wait until it, its JobSet and its pods are gone. Raises CannotDo."""
    run = session.find()
    started = session.kube.clock.monotonic()
    directory = any_directory(session, run)
    lost = claims_that_go(run)
    absent = False
    if run.jobset is None and not with_data:
        _only_where_there_is_none(session, run)
    if directory is not None and directory.claim is not None:
        answer = session.kube.request(
            "GET", f"/api/v1/namespaces/{run.namespace}/persistentvolumeclaims/{directory.claim}"
        )
        absent = answer.code == 404
        owners = {one.get("uid") for one in (answer.body.get("metadata") or EMPTY).get("ownerReferences") or ()}
        jobset = str(((run.jobset or EMPTY).get("metadata") or EMPTY).get("uid") or "")
        if directory.claim not in lost and not owners.isdisjoint({run.uid, jobset}):
            lost = (*lost, directory.claim)
    if lost and not with_data:
        names = ", ".join(f'"{name}"' for name in lost)
        raise CannotDo(
            f"claim {names} belongs to the run (volumeClaimPolicies, whenDeleted: Delete) and goes with it, with every "
            f"checkpoint on it: copy them first, or say --with-data"
        )
    path = f"{TRAINJOBS}/namespaces/{run.namespace}/trainjobs/{run.name}"
    # In the foreground the TrainJob would stay until its JobSet is gone, and Trainer makes a new one each second.
    # Asked again in the background, the API server also ends a deletion that somebody began in the foreground.
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {"uid": run.uid},
    }
    answer = session.change(
        f'run "{run.name}" is being deleted; where it stays, again: {session.command("delete")}',
        lambda: session.kube.request("DELETE", path, None, options),
    )
    if answer.code == 409:
        raise CannotDo(f'TrainJob "{run.name}" was deleted and created again meanwhile: {answer.message}')
    if not answer.ok and answer.code != 404:
        raise CannotDo(f'"{run.name}" cannot be deleted: {answer.message}')
    unseen = _wait_gone(session, run, path)
    session.state = f'run "{run.name}" is deleted'
    return Deleted(directory, tuple(lost), session.kube.clock.monotonic() - started, absent, unseen)


def _wait_gone(session: Session, run: Run, path: str) -> str:
    """Until TrainJob, JobSet and pods are gone. Says what could not be seen (empty: nothing). Raises CannotDo."""
    wait = session.waiting()
    ours = {str(pod["metadata"].get("uid")) for pod in run.pods}
    told = False
    while True:
        trainjob, again = _still(session, path, run.uid)
        jobset, unseen = None, ""
        answer = session.kube.request("GET", f"{JOBSETS}/namespaces/{run.namespace}/jobsets/{run.name}")
        if answer.ok and _owned(answer.body, run):
            jobset = answer.body
        elif not answer.ok and answer.code in (401, 403):
            unseen = f"whether its JobSet is gone could not be seen: {answer.message}"
        elif not answer.ok and answer.code != 404:
            raise CannotDo(f'whether the JobSet of "{run.name}" is gone by now is not known: {answer.message}')
        pods = _pods(session, run, ours if again else None)
        ours |= {str(pod["metadata"].get("uid")) for pod in pods}
        if trainjob is None and jobset is None and not pods:
            return unseen
        lost = lost_pods(session.kube, pods)
        if lost and not told:
            told = True
            session.say(f"{lost_words(lost, session.kube.clock.now())}; it stays until its kubelet says that it ended")
        if trainjob is None and jobset is None:
            session.state = f'TrainJob and JobSet of "{run.name}" are deleted, {pods_words(pods)}'
        if wait.over():
            raise CannotDo(*_late(session, run, trainjob, jobset, pods, lost))
        session.live(f"waiting until {_left(trainjob, jobset, pods)} gone ({wait.passed():.0f} s)")
        wait.pause(POLL)


def _still(session: Session, path: str, uid: str) -> tuple[Raw | None, bool]:
    """The TrainJob while it is there, and whether another one has its name by now."""
    answer = session.kube.request("GET", path)
    if answer.code == 404:
        return None, False
    if not answer.ok:
        raise CannotDo(f'whether "{session.name}" is gone by now is not known: {answer.message}')
    if str((answer.body.get("metadata") or EMPTY).get("uid")) != uid:
        return None, True
    return answer.body, False


def _owned(jobset: Raw, run: Run) -> bool:
    """A JobSet of the run, and not of another one that has its name by now."""
    owners = (jobset.get("metadata") or EMPTY).get("ownerReferences") or ()
    return any(owner.get("uid") == run.uid for owner in owners)


def _pods(session: Session, run: Run, known: set[str] | None) -> list[Raw]:
    """Its pods, those that have ended too; ``known``: of these alone, since the name is somebody else's by now."""
    found = every_pod_of(session.kube, run.namespace, run.name)
    return [pod for pod in found if known is None or str(pod["metadata"].get("uid")) in known]


def _left(trainjob: Raw | None, jobset: Raw | None, found: Sequence[Raw]) -> str:
    """What is still there, with its verb."""
    if trainjob is not None:
        return "the TrainJob is"
    return "its JobSet is" if jobset is not None else f"{pods(len(found))} {'is' if len(found) == 1 else 'are'}"


def pods_words(found: Sequence[Raw], of: str = "") -> str:
    return f"{pods(len(found))}{of} {still(len(found))} ending"


def _late(
    session: Session,
    run: Run,
    trainjob: Raw | None,
    jobset: Raw | None,
    left: Sequence[Raw],
    lost: Sequence[Lost],
) -> Iterator[str]:
    """Why it takes so long, and what helps."""
    after, named = f"after {session.options.timeout:.0f} s", f' of "{run.name}"'
    what, where = f"{run.name} -n {run.namespace}", f"-n {run.namespace}"
    for kind, one in (("trainjob", trainjob), ("jobset", jobset)):
        if one is None:
            continue
        title = f'{"TrainJob" if kind == "trainjob" else "JobSet"} "{run.name}"'
        metadata = one.get("metadata") or EMPTY
        finalizers = [str(name) for name in metadata.get("finalizers") or ()]
        if "foregroundDeletion" in finalizers:
            yield f"{title} is still there {after}: it is deleted in the foreground, which never ends with Trainer"
            yield f"  kubectl delete {kind} {what} --cascade=background"
        elif finalizers:
            yield (
                f"{title} is still there {after}: it is held by finalizer {', '.join(finalizers)}, "
                "and goes when the controller behind that has taken it off"
            )
            yield f"  kubectl get {kind} {what} -o yaml    # metadata.finalizers, and its events below"
        else:
            yield f"{title} is still there {after}: the garbage collector of the control plane has not come to it"
            yield f"  kubectl delete {kind} {what} --cascade=background"
        return
    if lost:
        yield f"{pods_words(left, named)} {after}; {lost_words(lost, session.kube.clock.now())}"
        yield from ways_out(lost, run.namespace)
        return
    names = " ".join(str(pod["metadata"]["name"]) for pod in left[:4])
    grace = max((int(pod["metadata"].get("deletionGracePeriodSeconds") or 0) for pod in left), default=0)
    yield f"{pods_words(left, named)} {after}; the TrainJob and its JobSet are gone"
    if grace > session.options.timeout:
        yield f"  they have {grace} s to save and end (terminationGracePeriodSeconds): wait, or --timeout {grace + 60}s"
    yield f"  kubectl get pod {names} {where} -o wide"


def _only_where_there_is_none(session: Session, run: Run) -> None:
    """Raises CannotDo where there may be a JobSet: what it takes with it would not be known."""
    answer = session.kube.request("GET", f"{JOBSETS}/namespaces/{run.namespace}/jobsets/{run.name}")
    if answer.code != 404:
        raise CannotDo(
            f"whether a claim goes with the run is not known, its JobSet cannot be read (kubectl auth can-i get "
            f"jobsets -n {run.namespace}): {answer.message}; with --with-data it is deleted all the same"
        )


def claims_that_go(run: Run) -> tuple[str, ...]:
    """Claims that JobSet made for the run and deletes with it."""
    found: list[str] = []
    for policy in ((run.jobset or EMPTY).get("spec") or EMPTY).get("volumeClaimPolicies") or ():
        if ((policy.get("retentionPolicy") or EMPTY).get("whenDeleted") or "Delete") == "Delete":
            templates = policy.get("templates") or ()
            found += [f"{(template.get('metadata') or EMPTY).get('name')}-{run.name}" for template in templates]
    return tuple(found)
