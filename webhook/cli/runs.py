"""``ckptguard runs``: every run with its state, its newest checkpoint, and what it waits for."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from webhook.cli.cluster_flags import add_context, add_dump, add_scope, connect
from webhook.cli.output import complain
from webhook.cli.outputs import add_output, printed, write_outputs
from webhook.model.printable import printable
from webhook.reports.json import SCHEMA, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webhook.runs.overview import Item, Overview

FEW: Final = 10
"""As many running runs are asked for their step without ``--wide``: an exec each, all of them in some two seconds."""
MANY: Final = 200
"""And with it."""
_PAUSE: Final = 5.0
"""Seconds between two looks of ``--watch``; ten times as long as a look takes where that is longer."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``runs``."""
    parser.description = (
        "List the runs of a namespace: state, newest checkpoint, restarts, and what a run waits for. It takes a few "
        f"lists, however many runs there are. The step is asked of the run's own pod by exec: where up to {FEW} runs "
        f"are running always, up to {MANY} with --wide. A run without a running pod shows none: ckptguard checkpoints."
    )
    add_scope(parser, one="default: that of the context", every="the runs of all namespaces")
    parser.add_argument("--wide", action="store_true", help="directory, claim, and the steps of many runs")
    parser.add_argument("--watch", action="store_true", help="go on, and show what changes")
    add_context(parser)
    add_dump(
        parser, "a dump (kubectl get trainjobs,jobsets,pods,pvc -A -o yaml) instead of a cluster; file, folder or -"
    )
    parser.add_argument("--policy", metavar="FILE", help="the policy file of the cluster")
    add_output(parser, ("text", "json"))
    parser.epilog = "exit code: 0 success (also with no runs), 2 could not list, 130 after Ctrl-C"


def run(arguments: argparse.Namespace) -> int:
    """0 or 2, as the help says."""
    from webhook.cli.inputs import load_policy_file
    from webhook.reports.review import Fault
    from webhook.reports.text import fault_line

    if arguments.watch and (arguments.state or len(arguments.output) > 1):
        complain(["error: --watch looks at a cluster and prints: leave out --state, and files of --output"])
        return 2
    faults: list[Fault] = []
    policy = load_policy_file(arguments.policy, faults)
    if policy is None:
        complain(fault_line(fault, False) for fault in faults)
        return 2
    if arguments.state:
        return _from_files(arguments, policy)
    api = connect(Path(arguments.kubeconfig) if arguments.kubeconfig else None, arguments.context)
    if api is None:
        return 2
    from webhook.cluster.access import Unreachable
    from webhook.runs.clock import Clock
    from webhook.runs.kube import Kube
    from webhook.runs.overview import Overview, read, readable
    from webhook.runs.run import CannotDo
    from webhook.runs.steps import with_steps

    kube = Kube(api, Clock(time.monotonic, time.sleep, time.time), lambda text: complain([printable(text)]))
    namespace = None if arguments.all_namespaces else arguments.namespace or api.namespace

    def look() -> Overview:
        found = read(kube, namespace, policy, time.time())
        able = readable(found.items)
        most = MANY if arguments.wide else FEW
        if len(able) > most:
            some = "--wide asks them" if not arguments.wide and len(able) <= MANY else "ckptguard checkpoints NAME"
            note = f"steps are not read: {len(able)} runs run, and {most} are asked at most ({some})"
            return Overview(found.items, (*found.notes, note))
        items, notes = with_steps(kube, found.items, able)
        return Overview(tuple(items), (*found.notes, *notes))

    try:
        if arguments.watch:
            _watch(arguments, look)
        return _show(arguments, look(), namespace)
    except (CannotDo, Unreachable) as error:
        complain([printable(f"error: {error}")])
        return 2


def _from_files(arguments: argparse.Namespace, policy: Any) -> int:
    from webhook.runs.dump import DumpError, read_dump
    from webhook.runs.overview import Overview, read
    from webhook.runs.run import CannotDo

    try:
        stdin = sys.stdin.buffer.read() if "-" in arguments.state else None
        dump, now = read_dump(arguments.state, stdin)
        if not dump.has_runs():
            raise CannotDo("there is no TrainJob among the files: kubectl get trainjobs,jobsets,pods,pvc -A -o yaml")
        found = read(dump, arguments.namespace, policy, now)
    except (CannotDo, DumpError) as error:
        complain([printable(f"error: {error}")])
        return 2
    arguments.all_namespaces = arguments.namespace is None
    return _show(arguments, Overview(found.items, found.notes), arguments.namespace)


def _show(arguments: argparse.Namespace, found: Overview, namespace: str | None) -> int:
    """0, or 2 where a file cannot be written."""

    def render(output: str, _: bool) -> str:
        if output == "json":
            return encode(_document(found.items, found.notes))
        if not found.items:
            return ""
        return "\n".join(table(found.items, arguments.all_namespaces, arguments.wide, time.time())) + "\n"

    if printed(arguments.output) == "text":
        complain(printable(f"note: {note}") for note in found.notes)
        if not found.items:
            complain([f"no runs in namespace {namespace}" if namespace else "no runs"])
    return 0 if write_outputs(arguments.output, render) else 2


def _document(items: Sequence[Item], notes: Sequence[str] = ()) -> dict[str, Any]:
    return {"schema": SCHEMA, "results": [item.as_json() for item in items], "errors": [], "notes": list(notes)}


def table(items: Sequence[Item], namespaces: bool, wide: bool, now: float) -> list[str]:
    """The lines for a person: a title and one line a run."""
    titles = ["NAMESPACE", "NAME", "STATE", "NODES", "STEP", "SAVED", "RESTARTS"]
    rows = [[*titles, *(["DIRECTORY", "ON"] if wide else []), "WAITS FOR"]]
    rows += [_row(item, wide, now) for item in items]
    rows = [row if namespaces else row[1:] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(item: Item, wide: bool, now: float) -> list[str]:
    from webhook.runs.words import duration

    directory = item.directory
    restarts = "-" if item.restarts is None and item.budget is None else f"{item.restarts or 0}/{_or(item.budget)}"
    cells = [
        item.run.namespace,
        item.run.name,
        item.state,
        _or(item.nodes),
        _or(item.step),
        "-" if item.saved is None else f"{duration(now - item.saved)} ago",
        restarts,
    ]
    if wide:
        cells += ["-", "-"] if directory is None else [directory.path, directory.where]
    return [printable(cell) for cell in (*cells, item.waits_for or item.reason or "-")]


def _or(value: int | None) -> str:
    return "-" if value is None else str(value)


def _watch(arguments: argparse.Namespace, look: Callable[[], Overview]) -> None:
    """Show the table, and again what changes, until somebody ends it."""
    as_text = printed(arguments.output) == "text"
    live = as_text and sys.stdout.isatty()
    before: dict[tuple[str, str], dict[str, Any]] = {}
    said: set[str] = set()
    first = True
    while True:
        begun = time.monotonic()
        found = look()
        took = time.monotonic() - begun
        now = {(item.run.namespace, item.run.name): item.as_json() for item in found.items}
        gone = [key for key in before if key not in now]
        changed = [item for item in found.items if before.get((item.run.namespace, item.run.name)) != item.as_json()]
        complain(printable(f"note: {note}") for note in found.notes if note not in said)
        said.update(found.notes)
        if live:
            if changed or gone or first:
                lines = table(found.items, arguments.all_namespaces, arguments.wide, time.time())
                _put("\x1b[H\x1b[2J" + "\n".join(lines) + "\n")
        elif not as_text:
            if changed or first:
                _put_json(_document(changed))
        elif changed:
            lines = table(changed, arguments.all_namespaces, arguments.wide, time.time())
            _put("\n".join(lines if first else lines[1:]) + "\n")
        if not live:
            complain(f"{namespace}/{name} is gone" for namespace, name in gone)
        before, first = now, False
        time.sleep(max(_PAUSE, 10 * took))


def _put_json(value: object) -> None:
    import msgspec

    _put(msgspec.json.encode(value).decode() + "\n")


def _put(text: str) -> None:
    """Print, and end where nobody reads any more."""
    sys.stdout.write(text)
    sys.stdout.flush()
