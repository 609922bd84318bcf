"""Deletes a run; its data stays, unless it belongs to the run."""

from __future__ import annotations

from msgspec import Struct

from webhook.model.pod import EMPTY
from webhook.runs.run import JOBSETS, TRAINJOBS, CannotDo, Directory, Run
from webhook.runs.session import POLL, Session, any_directory


class Deleted(Struct, frozen=True):
    """What a deletion leaves: ``directory`` None where none is known; ``lost`` are claims that went with the run.

    ``absent``: the claim under the directory was not there any more.
    """

    directory: Directory | None
    lost: tuple[str, ...] = ()
    seconds: float = 0.0
    absent: bool = False


def delete(session: Session, with_data: bool) -> Deleted:
    """Delete the TrainJob and wait until its pods are gone. Raises CannotDo."""
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
    answer = session.change(
        f'run "{run.name}" is being deleted; where it stays, again: {session.command("delete")}',
        lambda: session.kube.request("DELETE", path, {"propagationPolicy": "Foreground"}),
    )
    if not answer.ok and answer.code != 404:
        raise CannotDo(f'"{run.name}" cannot be deleted: {answer.message}')
    wait = session.waiting()
    while True:
        answer = session.kube.request("GET", path)
        if answer.code == 404 or (answer.ok and str((answer.body.get("metadata") or EMPTY).get("uid")) != run.uid):
            break
        if not answer.ok:
            raise CannotDo(f'whether "{run.name}" is gone by now is not known: {answer.message}')
        if wait.over():
            raise CannotDo(f'"{run.name}" is still being deleted after {session.options.timeout:.0f} s')
        session.live(f"waiting until it is gone ({wait.passed():.0f} s)")
        wait.pause(POLL)
    session.state = f'run "{run.name}" is deleted'
    return Deleted(directory, tuple(lost), session.kube.clock.monotonic() - started, absent)


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
