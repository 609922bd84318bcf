"""``ckptguard preflight``: before a platform change, which unfinished runs will not come back."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from webhook.cli.cluster_flags import RELEASES, add_context, add_dump, add_scope, connect, trainer_release
from webhook.cli.output import complain
from webhook.cli.outputs import add_output, printed, write_outputs
from webhook.model.printable import printable
from webhook.reports.json import SCHEMA, encode

if TYPE_CHECKING:
    from webhook.model.cluster import Runtime
    from webhook.model.release import Release
    from webhook.runs.api import Api
    from webhook.runs.fleet import Fleet
    from webhook.runs.preflight import Item, Report

_SHOWN: Final = 3
_DUMP: Final = (
    "kubectl get trainjobs,jobsets,configmaps,trainingruntimes,clustertrainingruntimes -A -o yaml; "
    "kubectl get crd trainjobs.trainer.kubeflow.org -o yaml"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``preflight``."""
    parser.description = (
        "Before Trainer, a runtime or Kueue is changed: for each unfinished run, whether it comes back afterwards. "
        "lost: JobSet refuses the change of its pods, so that it never resumes once it is suspended; stops: its pods "
        "are stopped and it is queued again; safe; unknown: it could not be judged, and why. It only reads."
    )
    change = parser.add_mutually_exclusive_group(required=True)
    change.add_argument(
        "--trainer", metavar="RELEASE", type=trainer_release, help=f"Trainer becomes this release: {RELEASES}"
    )
    change.add_argument("--runtime", metavar="FILE", help="the runtimes of this file are applied; - is standard input")
    change.add_argument("--delete-runtime", metavar="[KIND/]NAME", help="this runtime is deleted")
    change.add_argument("--kueue", metavar="RELEASE", type=_kueue, help="Kueue becomes this release: 0.17, 0.19, 0.20")
    add_scope(parser, one="default: that of the context; of a dump: all", every="the runs of all namespaces")
    add_context(parser)
    parser.add_argument("--live", action="store_true", help="look at the cluster, which is the default")
    add_dump(parser, f"a dump instead of a cluster; file, folder or -; repeatable ({_DUMP})")
    parser.add_argument(
        "--from",
        dest="running",
        metavar="RELEASE",
        type=trainer_release,
        help="the Trainer that runs now; default: the one that the cluster serves, or the CRD of the dump",
    )
    add_output(parser, ("text", "json"))
    parser.epilog = "exit code: 0 nothing against it, 1 a run is lost or stopped, 2 could not be done"


def _kueue(text: str) -> str:
    from webhook.effective.kueue import parse_kueue

    try:
        return parse_kueue(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(arguments: argparse.Namespace) -> int:
    """0, 1 or 2, as the help says."""
    from webhook.cluster.access import Unreachable
    from webhook.runs.run import CannotDo

    if arguments.live and arguments.state:
        complain(["error: --live looks at the cluster and --state at a dump: leave one out"])
        return 2
    try:
        found = _report(arguments)
    except (CannotDo, Unreachable) as error:
        complain(printable(f"error: {line}" if at == 0 else line) for at, line in enumerate(str(error).splitlines()))
        return 2
    if found is None or not _show(arguments, found):
        return 2
    return 1 if found.fails else 0


def _report(arguments: argparse.Namespace) -> Report | None:
    """None, and a line on standard error, where there is no cluster. Raises CannotDo and Unreachable."""
    from webhook.runs.fleet import Fleet
    from webhook.runs.preflight import for_deletion, for_kueue, for_runtime, for_trainer

    edited = _edited(arguments.runtime, arguments.namespace) if arguments.runtime is not None else ()
    api, namespace = _source(arguments)
    if api is None:
        return None
    fleet = Fleet(api, namespace)
    now = _release(arguments, fleet)
    if arguments.trainer is not None:
        return for_trainer(fleet, now, arguments.trainer)
    if arguments.runtime is not None:
        return for_runtime(fleet, now, edited)
    if arguments.kueue is not None:
        return for_kueue(fleet, now, arguments.kueue)
    return for_deletion(fleet, now, *_named(arguments.delete_runtime, fleet, arguments.namespace))


def _source(arguments: argparse.Namespace) -> tuple[Api | None, str | None]:
    """Where to look, and the namespace; None: all of them. Raises CannotDo."""
    if not arguments.state:
        api = connect(Path(arguments.kubeconfig) if arguments.kubeconfig else None, arguments.context)
        if api is None:
            return None, None
        return api, None if arguments.all_namespaces else arguments.namespace or api.namespace
    from webhook.runs.dump import DumpError, read_dump
    from webhook.runs.run import CannotDo

    try:
        dump, _ = read_dump(arguments.state, sys.stdin.buffer.read() if "-" in arguments.state else None)
    except DumpError as error:
        raise CannotDo(str(error)) from None
    if not dump.has_runs():
        raise CannotDo(f"there is no TrainJob among the files: {_DUMP}")
    return dump, arguments.namespace


def _release(arguments: argparse.Namespace, fleet: Fleet) -> Release:
    from webhook.runs.run import CannotDo

    now: Release | None = arguments.running or fleet.served()
    if now is None:
        raise CannotDo(
            "which Trainer runs now is not known: say --from RELEASE, or add its CRD to the dump "
            "(kubectl get crd trainjobs.trainer.kubeflow.org -o yaml)"
        )
    return now


def _edited(path: str, namespace: str | None) -> tuple[Runtime, ...]:
    """The runtimes of a file. Raises CannotDo, which names file, line or field."""
    from webhook.cluster.files import load_files, load_text
    from webhook.model.cluster import Runtime
    from webhook.model.names import RUNTIME_KINDS
    from webhook.runs.run import CannotDo

    loaded = load_text(sys.stdin.buffer.read(), "standard input") if path == "-" else load_files([path])
    for fault in loaded.errors:
        at = f":{fault.line}" if fault.line else ""
        field = f"{fault.field}: " if fault.field else ""
        raise CannotDo(f"{fault.file or path}{at}: {field}{fault.message}")
    found = []
    for document in loaded.documents:
        if document.kind in RUNTIME_KINDS:
            metadata = document.object.get("metadata") or {}
            space = "" if document.kind == "ClusterTrainingRuntime" else metadata.get("namespace") or namespace
            found.append(Runtime(document.kind, "default" if space is None else space, document.name, document.object))
    if not found:
        raise CannotDo(f"{path}: there is no TrainingRuntime or ClusterTrainingRuntime in it")
    return tuple(found)


def _named(text: str, fleet: Fleet, namespace: str | None) -> tuple[str, str, str]:
    """Kind, namespace and name of the runtime to delete. Raises CannotDo."""
    from webhook.model.names import RUNTIME_KINDS
    from webhook.model.nearest import near
    from webhook.runs.run import CannotDo

    kind, given, name = text.rpartition("/")
    kinds = [one for one in RUNTIME_KINDS if not given or kind.lower() in (one.lower(), f"{one.lower()}s")]
    if not kinds:
        raise CannotDo(f'"{kind}" is no kind of a runtime: {" or ".join(RUNTIME_KINDS)}')
    used = {run.reference for run in fleet.runs}
    spaces = {space for one, space, _ in used if one == "TrainingRuntime"}
    if namespace is not None:
        spaces = {namespace}
    asked = [
        (one, space, name) for one in kinds for space in ([""] if one == "ClusterTrainingRuntime" else sorted(spaces))
    ]
    found = [one for one in asked if one in used or fleet.live_runtime(one) is not None]
    if len(found) == 1:
        return found[0]
    if found:
        both = ", ".join(f"{one}/{name}" + (f" in {space}" if space else "") for one, space, name in found)
        raise CannotDo(f'"{text}" is the name of several: {both}: say KIND/NAME, and -n')
    meant = near(name, sorted({name for _, _, name in used}))
    raise CannotDo(f'there is no runtime "{text}"' + (f"; nearest: {meant}" if meant else ""))


def _show(arguments: argparse.Namespace, found: Report) -> bool:
    """False where a file cannot be written."""

    def render(output: str, _: bool) -> str:
        if output == "json":
            results = [item.as_json() for item in found.items]
            document: dict[str, Any] = {"schema": SCHEMA, "results": results, "errors": []}
            return encode({**document, "steps": list(found.steps), "notes": list(found.notes)})
        return "".join(f"{printable(line)}\n" for line in _lines(found))

    if printed(arguments.output) == "text":
        complain(printable(f"note: {note}") for note in found.notes)
    return write_outputs(arguments.output, render)


def _lines(found: Report) -> list[str]:
    told = [item for item in found.items if item.verdict != "safe" or item.difference]
    rows = [["NAMESPACE", "NAME", "STATE", "VERDICT", "DIFFERENCE"], *map(_row, told)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (rows if told else ())
    ]
    counted = [
        f"{found.count(verdict)} {verdict}"
        for verdict in ("lost", "stops", "restarts", "unknown", "safe")
        if found.count(verdict)
    ]
    lines.append(f"{len(found.items)} unfinished runs: {', '.join(counted)}" if found.items else "no unfinished runs")
    if found.fails:
        lines += ["", "in this order:", *(f"  {step}" for step in found.steps)]
    return lines


def _row(item: Item) -> list[str]:
    shown = "; ".join(item.difference[:_SHOWN])
    more = f"; and {len(item.difference) - _SHOWN} more" if len(item.difference) > _SHOWN else ""
    return [item.namespace, item.name, item.state, item.verdict, shown + more or "-"]
