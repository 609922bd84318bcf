"""Removes a run's older checkpoints: a plan that keeps whatever could be needed, shown first, then carried out.

Never removed: a checkpoint whose completeness is not known, the newest complete ones (by step and by time), what a file
such as ``latest`` or a link names, what a restart would take, ``.set-aside``, and names that a person seems to have
given. A step of several ranks is one checkpoint, complete where all of its ranks' parts are.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from webhook.cluster.access import Refused
from webhook.model.pod import EMPTY, Raw
from webhook.model.release import NEWEST
from webhook.runs.api import each
from webhook.runs.helper import LABEL, MOUNT, inside, run_helper
from webhook.runs.install_check import read_release
from webhook.runs.layouts import Found, Saved, find_saved
from webhook.runs.listing import ASIDE, REMOVING, Listing, parse
from webhook.runs.run import (
    JOBSETS,
    CannotDo,
    Directory,
    Run,
    again,
    directory_of,
    effective_pods,
    has_ended,
    known_checkpoint,
)
from webhook.runs.session import Session
from webhook.runs.suspension import held_by_queue
from webhook.runs.sweep import LARGEST, Outcome, look_command, parse_look, parse_outcome, remove_command
from webhook.runs.words import pods

_RANK: Final = re.compile(
    r"((?:^|[^a-z])(?:rank|node|worker|proc|process|host|replica|gpu|shard|local_rank|r)[-_]?)\d+", re.I
)
"""``rank_0/``, ``worker-1/``, ``step_100_rank0.pt``: parts of one step."""
_TRAINING: Final = ("jobset.sigs.k8s.io/jobset-name", "batch.kubernetes.io/job-name", "training.kubeflow.org/job-name")
"""Labels of pods that some workload made to do work (JobSet, Job, Training Operator)."""
_DEADLINE: Final = 6 * 3600
"""Seconds that a removal may take: some file systems take minutes for a checkpoint of many files."""


class Part(Struct, frozen=True):
    """One step: the checkpoint, or the parts of several ranks. ``remove``: whether the plan says so, ``reason`` why."""

    saved: tuple[Saved, ...]
    step: int | None
    complete: bool | None
    remove: bool
    reason: str

    @property
    def path(self) -> str:
        """Its path; with ``*`` in the place of the ranks where it has several parts."""
        paths = sorted(one.path for one in self.saved)
        return paths[0] if len(paths) == 1 else _RANK.sub(r"\g<1>*", paths[0])

    @property
    def size(self) -> int:
        return sum(one.size for one in self.saved)


class Pruned(Struct, frozen=True):
    """A part, and what came of it."""

    part: Part
    removed: bool
    reason: str

    def as_json(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {
            "path": self.part.path,
            "step": self.part.step,
            "complete": self.part.complete,
            "bytes": self.part.size,
            "removed": self.removed,
            "reason": self.reason,
        }


class Plan(Struct, frozen=True):
    """What is to be done to a directory, as it was in ``state``."""

    run: Run
    directory: Directory
    parts: tuple[Part, ...]
    state: tuple[int, ...] = ()

    def to_remove(self) -> list[Part]:
        """Oldest first."""
        return [part for part in self.parts if part.remove]


def choose(found: Found, listing: Listing, names: dict[str, str], directory: str, keep: int) -> tuple[Part, ...]:
    """Every checkpoint of a directory, and which are to be removed. Pure.

    ``names``: texts that may name a checkpoint, by the path of their file. ``directory``: its path in the container,
    which links may begin with.
    """
    families: dict[tuple[str, str, str, str], dict[int | str, list[Saved]]] = {}
    for saved in found.saved:
        above, _, name = saved.path.rpartition("/")
        family = (_unranked(above), saved.layout, saved.unit, re.sub(r"\d+", "#", _unranked(name)))
        key: int | str = _unranked(saved.path) if saved.step is None else saved.step
        families.setdefault(family, {}).setdefault(key, []).append(saved)
    pointed = _pointed(found, listing, names, directory)
    main = _main_families(families)
    newest: dict[tuple[str, ...], int] = {}
    for family, steps in families.items():
        for some in steps.values():
            if all(one.complete for one in some):
                newest[family[:3]] = max(newest.get(family[:3], -1), _step_of(some))
    parts: list[Part] = []
    for family, steps in families.items():
        whole = max((_ranks(some) for some in steps.values()), key=len)
        judged = [(some, _complete(some, whole)) for some in steps.values()]
        good = [some for some, complete in judged if complete]
        kept = {_step_of(some): "the newest complete one" for some in sorted(good, key=_step_of)[-1:]}
        for order in (_step_of, _time_of):
            for some in sorted(good, key=order)[-keep:]:
                kept.setdefault(_step_of(some), f"one of the {keep} newest complete ones")
        for some, complete in judged:
            reason = kept.get(_step_of(some)) if complete else None
            parts.append(
                _judged(some, complete, whole, reason, pointed, found, family in main, keep, newest.get(family[:3], -1))
            )
    for entry in listing.entries:
        name = entry.path.rpartition("/")[2]
        if name.startswith(REMOVING) and not entry.path.startswith(ASIDE):
            left = Saved(
                path=entry.path,
                layout="left",
                step=None,
                size=_below(listing, entry.path),
                mtime=entry.mtime,
                complete=False,
            )
            parts.append(Part((left,), None, False, True, "left by a prune that did not come to its end"))
        elif entry.path == ASIDE:
            aside = Saved(
                path=ASIDE, layout="aside", step=None, size=_below(listing, ASIDE), mtime=entry.mtime, complete=None
            )
            parts.append(Part((aside,), None, None, False, "set aside by resume --from-step (back with --undo)"))
    return tuple(sorted(parts, key=lambda part: (part.step is None, part.step or 0, part.path)))


def _judged(
    some: list[Saved],
    complete: bool | None,
    whole: frozenset[str],
    kept: str | None,
    pointed: dict[str, str],
    found: Found,
    main: bool,
    keep: int,
    newest: int,
) -> Part:
    step = some[0].step
    parts = tuple(sorted(some, key=lambda one: one.path))

    def stays(reason: str) -> Part:
        return Part(parts, step, complete, False, reason)

    for one in some:
        if one.path in pointed:
            return stays(f"named by {pointed[one.path]}")
    if found.taken is not None and found.taken in some:
        return stays(kept or "a restart takes this one")
    if complete is None:
        return stays(next((one.why for one in some if one.why), "") or "whether it is complete is not known")
    if complete is False:
        why = (
            next((one.why for one in some if one.why), "")
            or f"parts of {len(whole) - len(_ranks(some))} ranks are missing"
        )
        if all(one.temporary for one in some) and 0 <= _step_of(some) <= newest and len(parts) == 1:
            return Part(parts, step, complete, True, f"left half-written, and older than a complete one: {why}")
        return stays(f"incomplete ({why}): it may be an export of weights, so a person has to remove it")
    if kept is not None:
        return stays(kept)
    if not main:
        return stays("its place or name is not that of the newest complete ones: somebody may have kept it")
    if not all(map(_plain, (one.path for one in some))):
        return stays("its name holds characters that cannot be shown as they are")
    return Part(
        parts,
        step,
        complete,
        True,
        f"older than the {keep} newest complete ones" if keep > 1 else "older than the newest complete one",
    )


def _plain(path: str) -> bool:
    """Whether a path came through the listing as it is, and goes down only."""
    return (
        path.isprintable()
        and not set(path) & set("?\\")
        and all(part not in ("", ".", "..") for part in path.split("/"))
    )


def _unranked(text: str) -> str:
    return _RANK.sub(r"\1*", text)


def _ranks(some: Iterable[Saved]) -> frozenset[str]:
    """What tells the parts of one step apart."""
    return frozenset("/".join(match[0] for match in _RANK.finditer(one.path)) for one in some)


def _complete(some: list[Saved], whole: frozenset[str]) -> bool | None:
    if any(one.complete is False for one in some) or _ranks(some) != whole:
        return False
    return None if any(one.complete is None for one in some) else True


def _step_of(some: list[Saved]) -> int:
    return some[0].step if some[0].step is not None else -1


def _time_of(some: list[Saved]) -> float:
    return max(one.mtime for one in some)


def _main_families(
    families: dict[tuple[str, str, str, str], dict[int | str, list[Saved]]],
) -> set[tuple[str, str, str, str]]:
    """The one kind of name in the one place that the program writes now: that of the newest complete checkpoint.

    In the directory itself where one lies there (or in folders of ranks); what lies deeper may be another run's.
    """
    best: tuple[int, float] = (0, -1.0)
    main: set[tuple[str, str, str, str]] = set()
    for family, steps in families.items():
        times = [_time_of(some) for some in steps.values() if all(one.complete for one in some)]
        depth = sum(1 for part in family[0].split("/") if part and "*" not in part)
        if times and (-depth, max(times)) > (best if main else (-99, -1.0)):
            best, main = (-depth, max(times)), {family}
    return main


def _pointed(found: Found, listing: Listing, names: dict[str, str], directory: str) -> dict[str, str]:
    """Path of a checkpoint -> what names it: a link, or a file. By its whole path, its name, or its number."""
    by_name: dict[str, list[Saved]] = {}
    for saved in found.saved:
        by_name.setdefault(saved.name, []).append(saved)
    pointed: dict[str, str] = {}
    within = directory.rstrip("/") + "/"
    for path, target in listing.links.items():
        if path.startswith(ASIDE):
            continue
        # Wherever the link stands and however it gets there: whatever has one of the names on the way is kept.
        for name in {*target.removeprefix(within).split("/"), *target.split("/")}:
            for saved in by_name.get(name, ()):
                pointed[saved.path] = f"link {path}"
    for path, text in (listing.texts | names).items():
        if path.startswith(ASIDE):
            continue
        # The file in a checkpoint names a part of that checkpoint, as DeepSpeed's within one of Hugging Face's does.
        own = next((saved.path for saved in found.saved if path.startswith(saved.path + "/")), None)
        words = set(re.split(r"[\s\"'/\\,:;=()\[\]{}<>]+", text))
        number = int(text) if text.strip().isdecimal() and len(text) < 16 else None
        for saved in found.saved:
            if saved.path != own and (saved.name in words or (number is not None and saved.step == number)):
                pointed.setdefault(saved.path, path)
    return pointed


def _below(listing: Listing, path: str) -> int:
    return sum(entry.size for entry in listing.entries if entry.kind == "f" and entry.path.startswith(path + "/"))


def plan(session: Session, keep: int) -> Plan:
    """Look, and say what would go. Raises CannotDo where a pod writes, or the directory is not the run's alone."""
    run = session.find()
    _idle(session, run)
    directory = session.directory(run)
    others = session.warn_shared(run, directory)
    if others:
        raise CannotDo(
            f'"{directory.on_claim}" of {directory.where} is not this run\'s alone: nothing is removed in it'
        )
    if directory.read_only:
        raise CannotDo(f'"{directory.path}" is mounted read-only')
    nested = _nested(session, run, directory)
    if nested:
        told = ", ".join(f'"{name}"' for name in nested[:3])
        raise CannotDo(
            f'run {told} keeps its checkpoints above or below "{directory.on_claim}" of {directory.where}: '
            "nothing is removed where two runs cannot be told apart"
        )
    _alone(session, run, directory)
    session.live(f"reading {directory.path}")
    text = run_helper(
        session.kube,
        run,
        directory,
        session.options.image,
        look_command(MOUNT, _steps(directory)),
        write=False,
        seconds=session.options.timeout,
    )
    if (failed := parse_outcome(text).failed) is not None:
        raise CannotDo(f'"{directory.path}" cannot be looked over: {failed}')
    listing = parse(text)
    try:
        state, names = parse_look(text)
    except ValueError as error:
        raise CannotDo(str(error)) from None
    if listing.state == "cut":
        raise CannotDo("the helper pod's listing ended early")
    return Plan(run, directory, choose(find_saved(listing), listing, names, directory.path, keep), tuple(state))


def _steps(directory: Directory) -> list[str]:
    return _parts(inside(directory).removeprefix(MOUNT))


def _idle(session: Session, run: Run) -> None:
    """Raises CannotDo where the run may write: it has pods, or may get some at any moment."""
    if run.over is None and not run.suspended and not held_by_queue(session, run):
        raise CannotDo(
            f'run "{run.name}" {run.state()}: its program writes the directory; first {session.command("stop")}'
        )
    if run.over is None and run.queue is not None and not held_by_queue(session, run):
        raise CannotDo(
            f'run "{run.name}" is suspended, but queue "{run.queue}" may start it at any moment; '
            f"first {session.command('stop')}"
        )
    if run.pods:
        names = ", ".join(str(pod["metadata"]["name"]) for pod in run.pods[:3])
        raise CannotDo(
            f'{pods(len(run.pods))} of "{run.name}" may still write the directory ({names}): wait for the end'
        )


def _nested(session: Session, run: Run, directory: Directory) -> list[str]:
    """Other runs of the namespace, ended ones too, whose directory lies above or below this one on the same claim."""
    if directory.claim is None or directory.on_claim is None:
        return []
    mine = _parts(directory.on_claim)
    release = read_release(session.kube) or NEWEST
    found: list[str] = []
    try:
        for jobset in each(session.kube, f"{JOBSETS}/namespaces/{run.namespace}/jobsets"):
            name = str(jobset["metadata"]["name"])
            if name == run.name:
                continue
            other = Run({"metadata": {"name": name, "namespace": run.namespace}}, jobset, ())
            checkpoint = known_checkpoint(effective_pods(other, None, release), session.policy)
            theirs = None if checkpoint is None else directory_of(checkpoint, session.policy)
            if theirs is None or theirs.claim != directory.claim or theirs.on_claim is None:
                continue
            parts = _parts(theirs.on_claim)
            short = min(len(parts), len(mine))
            if parts != mine and parts[:short] == mine[:short]:
                found.append(name)
    except Refused as refused:
        raise CannotDo(f"whether other runs keep theirs there is not known: {refused}") from None
    return found


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _alone(session: Session, run: Run, directory: Directory) -> None:
    """Raises CannotDo where another workload's pod has the directory mounted to write; others are named."""
    answer = session.kube.request("GET", f"/api/v1/namespaces/{run.namespace}/pods")
    if not answer.ok:
        raise CannotDo(
            f"whether a pod writes the directory is not known, since pods cannot be listed: {answer.message}"
        )
    for pod in answer.body.get("items") or ():
        labels = pod["metadata"].get("labels") or EMPTY
        if LABEL in labels or has_ended(pod) or not _may_write(pod, directory):
            continue
        name = pod["metadata"]["name"]
        if any(label in labels for label in _TRAINING):
            raise CannotDo(f'pod "{name}" has the directory mounted too, and may write in it: end it first')
        session.say(
            f'warning: pod "{name}" has the directory mounted too; nothing is removed if anything changes there'
        )


def _may_write(pod: Raw, directory: Directory) -> bool:
    """Whether a pod mounts the claim where it may reach the directory, and not read-only."""
    spec = pod.get("spec") or EMPTY
    volumes = {
        str(volume.get("name"))
        for volume in spec.get("volumes") or ()
        if directory.claim is not None
        and (source := volume.get("persistentVolumeClaim") or EMPTY).get("claimName") == directory.claim
        and not source.get("readOnly")
    }
    wanted = _parts(directory.on_claim or "")
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        for mount in container.get("volumeMounts") or ():
            if str(mount.get("name")) not in volumes or mount.get("readOnly"):
                continue
            at = _parts(str(mount.get("subPath") or ""))
            short = min(len(at), len(wanted))
            if mount.get("subPathExpr") or at[:short] == wanted[:short]:
                return True
    return False


def carry_out(session: Session, made: Plan) -> list[Pruned]:
    """Remove what the plan says, as far as it is still so. Raises CannotDo; ``session.state`` says what is gone."""
    run = again(session.kube, made.run)
    _idle(session, run)
    groups: list[Part] = []
    size = 0
    for part in made.to_remove():
        size += sum(len(one.path) + 8 for one in part.saved)
        if size > LARGEST:
            break
        groups.append(part)
    token = "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(10))
    command = remove_command(
        MOUNT, _steps(made.directory), made.state, [[one.path for one in part.saved] for part in groups], token
    )
    watch = _Watch(session, run, groups)
    text = run_helper(
        session.kube,
        run,
        made.directory,
        session.options.image,
        command,
        write=True,
        seconds=session.options.timeout,
        deadline=_DEADLINE,
        watch=watch,
    )
    watch.told(text)
    done = parse_outcome(text)
    if done.failed is not None:
        raise CannotDo(f"the plan was not carried out: {done.failed}")
    return [_result(part, groups, done) for part in made.parts]


class _Watch:
    """Says how far the removal is, and ends it where the run is started meanwhile."""

    def __init__(self, session: Session, run: Run, groups: Sequence[Part]) -> None:
        self._session = session
        self._run = run
        self._groups = groups
        self._told = ""
        session.state = "nothing was removed"

    def told(self, text: str) -> bool:
        if len(text) > len(self._told):
            self._told = text
        done = parse_outcome(self._told)
        self._session.state = _removed_words(self._groups, done, self._session)
        self._session.live(f"removed {len(done.taken)} of {len(self._groups)}")
        return done.ended

    def check(self) -> None:
        now = again(self._session.kube, self._run)
        if now.pods or (now.over is None and not (now.suspended or held_by_queue(self._session, now))):
            raise CannotDo(f'run "{now.name}" was started by somebody meanwhile: the removal was ended')


def _result(part: Part, groups: Sequence[Part], done: Outcome) -> Pruned:
    if not part.remove:
        return Pruned(part, False, part.reason)
    index = next((at for at, one in enumerate(groups) if one is part), None)
    if index is None:
        return Pruned(part, False, "more than fits into one call: give the command again")
    if index in done.gone:
        return Pruned(part, True, part.reason)
    if index in done.taken:
        why = done.left.get(index, "the removal was ended")
        return Pruned(part, True, f"renamed, but not all of it is deleted ({why}): give the command again")
    return Pruned(part, False, done.kept.get(index, "the removal was ended before it"))


def _removed_words(groups: Sequence[Part], done: Outcome, session: Session) -> str:
    """What an interruption leaves behind."""
    paths = [groups[index].path for index in sorted(done.taken) if index < len(groups)]
    if not paths:
        return f"nothing was removed yet, as far as it is known; look with {session.command('checkpoints')}"
    left = sorted(done.taken - done.gone)
    more = "; of the last a part may be left, which the next prune removes" if left else ""
    some = f"{', '.join(paths[:20])}{f' and {len(paths) - 20} more' if len(paths) > 20 else ''}"
    return f"removed: {some}{more}; one more may have gone since: {session.command('checkpoints')}"
