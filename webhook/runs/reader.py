"""Reads a run's checkpoint directory: by exec in a pod of the run, else by a helper pod."""

from __future__ import annotations

from msgspec import Struct

from webhook.runs.helper import inside, run_helper
from webhook.runs.kube import Kube
from webhook.runs.layouts import Found, find_saved
from webhook.runs.listing import Listing, command, parse
from webhook.runs.lost import lost_pods, lost_words, without_lost
from webhook.runs.run import CannotDo, Directory, Run, is_running, pods_of_job


class Look(Struct, frozen=True):
    """One look into a directory. ``by`` says who looked, ``notes`` what was in the way."""

    listing: Listing
    found: Found
    by: str
    notes: tuple[str, ...] = ()


class NobodyToAsk(CannotDo):
    """No pod of the run can be asked, and a helper pod was not wanted."""


def look(
    kube: Kube,
    run: Run,
    directory: Directory,
    *,
    helper: bool = True,
    image: str | None = None,
    seconds: float = 60.0,
) -> Look:
    """What lies in the directory now. Raises CannotDo and Unreachable.

    ``helper``: whether a pod may be made for it where no pod of the run can be asked.
    """
    notes: list[str] = []
    running = [pod for pod in pods_of_job(run.pods, directory.job) if is_running(pod, directory.container)]
    lost = lost_pods(kube, running)
    if lost:
        notes.append(f"not asked: {lost_words(lost, kube.clock.now())}")
    for pod in without_lost(running, lost)[:2]:  # what two cannot do a third will not
        name = str(pod["metadata"]["name"])
        code, output, errors = kube.execute(
            run.namespace, name, directory.container, command(directory.path), min(seconds, 60.0)
        )
        if code is not None:
            listing = parse(output)
            if listing.state != "cut":
                return Look(listing, find_saved(listing), f"exec in pod {name}", tuple(notes))
            errors = errors.strip() or "the listing ended early"
        notes.append(f"pod {name} cannot be asked: {_exec_words(errors, run.namespace)}")
    if not helper:
        raise NobodyToAsk("; ".join(notes) or f'no pod of "{run.name}" runs')
    try:
        text = run_helper(
            kube, run, directory, image, command(inside(directory), links=False), write=False, seconds=seconds
        )
    except CannotDo as error:
        first, *others = error.lines
        raise CannotDo("; ".join([*notes, first]), *others) from None
    listing = parse(text)
    if listing.state == "link":
        raise CannotDo(
            f'"{directory.on_claim}" of {directory.where} is a link, or lies below one, and a helper pod follows none: '
            "look while a pod of the run runs, which may be asked by exec"
        )
    if listing.state == "cut":
        raise CannotDo(f"the helper pod's listing ended early: {text.strip()[-200:] or 'no output'}")
    return Look(listing, find_saved(listing), "helper pod", tuple(notes))


def _exec_words(errors: str, namespace: str) -> str:
    if "403" in errors or "forbidden" in errors.lower():
        # A websocket begins with a GET: the API server asks for "get" and, in newer releases, for "create" too.
        can = f"kubectl auth can-i get pods --subresource=exec -n {namespace}"
        return f"no right to exec, which takes get and create ({can}; {can.replace(' get ', ' create ')})"
    if "executable file not found" in errors or "no such file" in errors:
        return "its image has no shell"
    return errors.strip()[:200] or "exec failed"


def first_words(look: Look, directory: Directory) -> str | None:
    """Why there is nothing to list; None where there is."""
    if look.listing.state == "absent":
        return f'directory "{directory.path}" does not exist yet'
    if look.listing.state == "file":
        return f'"{directory.path}" is no directory'
    if look.listing.denied and not look.listing.entries:
        return f'directory "{directory.path}" may not be read by that user'
    if not look.found.saved:
        count = look.listing.files()
        return (
            f'directory "{directory.path}" has no checkpoint ({count} other files)'
            if count
            else (f'directory "{directory.path}" is empty')
        )
    return None
