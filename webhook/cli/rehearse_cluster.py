"""``ckptguard rehearse job.yaml``: the TrainJob of a file, rehearsed in the cluster."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from webhook.cli.output import complain
from webhook.cli.rehearse import finish
from webhook.cli.run_flags import run_on

if TYPE_CHECKING:
    from webhook.model.cluster import Runtime
    from webhook.model.release import Release
    from webhook.rehearsal.plan import Plan
    from webhook.runs.session import Session


def run_in_cluster(arguments: argparse.Namespace, file: str) -> int:
    """0, 1 or 2, as the help says; 130 after Ctrl-C."""
    from webhook.cluster.files import load_files

    loaded = load_files([file])
    jobs = [one for one in loaded.documents if one.kind == "TrainJob"]
    if loaded.errors or len(jobs) != 1:
        why = str(loaded.errors[0]) if loaded.errors else f"{file}: {len(jobs)} TrainJobs in it; rehearse takes one"
        complain([f"error: {why}"])
        return 2
    named = (jobs[0].object.get("metadata") or {}).get("namespace")
    if named and arguments.namespace and named != arguments.namespace:
        complain([f'error: -n {arguments.namespace}: {file} says namespace "{named}"'])
        return 2
    target = None
    if arguments.write is not None:
        from webhook.cli.rehearsed import CannotNote, find_target

        try:
            target = find_target(arguments.write)
        except CannotNote as error:
            complain([f"error: --write {error}"])
            return 2
    arguments.namespace = arguments.namespace or named
    arguments.name, arguments.directory = "", None
    runtimes = [one for one in loaded.documents if one.kind in ("TrainingRuntime", "ClusterTrainingRuntime")]

    def act(session: Session) -> int:
        from webhook.rehearsal.cluster import LEFT, rehearse
        from webhook.rehearsal.model import CannotRehearse, Report
        from webhook.runs.run import CannotDo

        session.state = "nothing was made; the run was not changed"
        command = (file,)
        try:
            made = _plan(session, arguments, jobs[0].object, {(one.kind, one.name): one.object for one in runtimes})
            session.name = made.name
            report = rehearse(session, made, command)
        except (CannotRehearse, CannotDo) as error:
            report = Report(command, "not-rehearsable", why=error.lines)
        if session.state.startswith(LEFT):
            report.notes.append(session.state)
        return finish(report, target, arguments.output)

    return run_on(arguments, act)


def _plan(
    session: Session,
    arguments: argparse.Namespace,
    job: Mapping[str, Any],
    files: Mapping[tuple[str, str], Mapping[str, Any]],
) -> Plan:
    from webhook.model.release import NEWEST
    from webhook.rehearsal.plan import Wanted, plan
    from webhook.runs.install_check import read_release

    release = read_release(session.kube) or NEWEST
    trainjob = {**job, "metadata": {**(job.get("metadata") or {}), "namespace": session.namespace}}
    runtime = _runtime(session, trainjob, files)
    wanted = Wanted(arguments.nodes, arguments.resources, arguments.claim)
    made = plan(trainjob, runtime, secrets.token_hex(3), release, session.policy, wanted)
    _raise_if_elsewhere(session, made, release)
    return made


def _runtime(
    session: Session, trainjob: Mapping[str, Any], files: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Runtime:
    """The runtime that it names: from the file, else from the cluster. Raises CannotDo."""
    from webhook.model.cluster import Runtime
    from webhook.runs.run import CannotDo, read_runtime, runtime_of

    kind, name = runtime_of(trainjob)
    if (found := files.get((kind, name))) is not None:
        return Runtime(kind, session.namespace, name, found)
    answer = read_runtime(session.kube, kind, session.namespace, name)
    if not answer.ok:
        raise CannotDo(f'spec.runtimeRef: {kind} "{name}" is not in the file and cannot be read: {answer.message}')
    return Runtime(kind, session.namespace, name, answer.body)


def _raise_if_elsewhere(session: Session, made: Plan, release: Release) -> None:
    """A program that writes to a literal path outside the directory would write over what the run has saved."""
    from webhook.cluster.file_view import FileView
    from webhook.decision import review_object
    from webhook.model.cluster import Runtime
    from webhook.model.request import Request
    from webhook.rehearsal.model import CannotRehearse

    view = FileView((), release)
    view.put_runtime(Runtime("TrainingRuntime", made.namespace, made.name, made.runtime))
    request = Request("CREATE", "TrainJob", made.namespace, made.name, made.trainjob)
    for one in review_object(request, view, session.policy, release).findings:
        if one.rule == "directory-not-used":
            raise CannotRehearse(
                f"it writes outside its checkpoint directory: {one.problem}", "rehearse it once that is mended"
            )
