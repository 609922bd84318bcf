"""``ckptguard scan``: what the cluster holds now, judged as ``review`` judges files."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.cli.cluster_flags import RELEASES, add_context, add_dump, add_scope, connect, trainer_release
from webhook.cli.inputs import Inputs, load_policy_file
from webhook.cli.output import complain
from webhook.cli.outputs import add_output
from webhook.cli.review import print_review
from webhook.model.cluster import finished
from webhook.reports.review import FAIL_ON, Fault, Place, Review

if TYPE_CHECKING:
    from webhook.cluster.documents import Document
    from webhook.model.policy import Policy
    from webhook.reports.review import Reviewed
    from webhook.runs.api import Api
    from webhook.scan.cluster import ClusterScan
    from webhook.scan.reports import Reports

_EVERY: Final = 300.0
_PATIENCE: Final = 30.0
"""Seconds for which a read is tried again while the API server is out of reach, or has too much to do."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``scan``."""
    parser.description = (
        "Judge the unfinished TrainJobs and the runtimes of a cluster as they stand, by the same rules as review. In "
        "namespaces of mode warn or audit it says what enforce would refuse. What may not be listed is said, and what "
        "depends on it is unknown."
    )
    add_scope(parser, one="default: that of the context", every="all namespaces, and ClusterTrainingRuntimes")
    add_context(parser)
    add_dump(
        parser,
        "a dump of the cluster (kubectl get ... -o yaml) instead of a cluster; a file, a folder or -; repeatable",
    )
    parser.add_argument("--policy", metavar="FILE", help="the policy file of the cluster")
    parser.add_argument(
        "--trainer",
        metavar="RELEASE",
        type=trainer_release,
        help=f"the Trainer release: {RELEASES}; else the one that the cluster serves",
    )
    parser.add_argument(
        "--fail-on",
        choices=FAIL_ON,
        help="what makes the exit code 1, each includes the one before it (default deny; with --report nothing)",
    )
    parser.add_argument(
        "--report",
        action="store_true",
        help="write it into the cluster too: one Report (openreports.io) or PolicyReport (wgpolicyk8s.io) a namespace",
    )
    parser.add_argument(
        "--metrics",
        metavar="ADDR:PORT",
        type=_address,
        help="go on, scan again every --every, and serve /metrics and /healthz over HTTP",
    )
    parser.add_argument(
        "--every", metavar="TIME", type=_time, help="between two scans of --metrics: 90s, 5m, 1h (default 5m)"
    )
    add_output(parser, ("text", "json", "junit", "sarif", "line"))
    parser.epilog = (
        "exit code: 0 no finding that fails, 1 a finding that fails (see --fail-on), 2 could not scan or report"
    )


def run(arguments: argparse.Namespace) -> int:
    """0, 1 or 2, as the help says."""
    faults: list[Fault] = []
    policy = load_policy_file(arguments.policy, faults)
    if policy is None:
        review: Review | None = Review(faults=tuple(faults), scanned=True)
    elif refused := _refused(arguments):
        complain([f"error: {refused}"])
        return 2
    elif arguments.state:
        review = scan_files(arguments, policy)
    elif arguments.metrics is not None:
        return _go_on(arguments, policy)
    else:
        review = _scan_cluster(arguments, policy)
    if review is None:
        return 2
    # A scan for reports alone prints none of them: it keeps nothing of an object.
    done = print_review(review, arguments) if _prints(arguments) else _tell(review)
    if not done:
        return 2
    if arguments.report and arguments.fail_on is None:
        return 2 if review.faults else 0
    return review.exit_code(arguments.fail_on or "deny")


def _refused(arguments: argparse.Namespace) -> str:
    """Why these flags do not go together; empty where they do."""
    if arguments.state and (arguments.report or arguments.metrics):
        return "--report and --metrics are about a cluster: leave out --state"
    if arguments.every is not None and arguments.metrics is None:
        return "--every is for --metrics: a single scan has no next one"
    if arguments.metrics is not None and (hasattr(arguments, "given_outputs") or arguments.fail_on is not None):
        return "--metrics goes on and on: leave out --output and --fail-on"
    return ""


def _prints(arguments: argparse.Namespace) -> bool:
    return not arguments.report or hasattr(arguments, "given_outputs")


def _tell(review: Review) -> bool:
    from webhook.reports.text import fault_line, notice_line

    complain([*map(notice_line, review.notices), *map(fault_line, review.faults)])
    return True


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise argparse.ArgumentTypeError(f'"{text}" is not ADDR:PORT')
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - asked for


def _time(text: str) -> float:
    number, unit = text[:-1], text[-1:]
    if unit not in ("s", "m", "h") or not (number.isascii() and number.isdigit()):
        raise argparse.ArgumentTypeError(f'"{text}" is no time: write 90s, 5m or 1h')
    seconds = float(number) * {"s": 1, "m": 60, "h": 3600}[unit]
    if not 10 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f'"{text}" is not from 10s to 24h')
    return seconds


def _scan_cluster(arguments: argparse.Namespace, policy: Policy) -> Review | None:
    """None, and a line on standard error, where there is no cluster."""
    connected = _connected(arguments)
    if connected is None:
        return None
    from webhook.cluster.access import Unreachable

    api, namespace = connected
    results: list[Reviewed] = []
    keep = results.append if _prints(arguments) or arguments.fail_on is not None else None
    try:
        once = _once(api, arguments, policy, namespace, keep)
    except Unreachable as error:
        return Review(tuple(results), (Fault(None, str(error)),), scanned=True)
    scan = once.scan
    if not once.number and not scan.faults:
        complain([f"no TrainJob and no runtime in namespace {namespace}" if namespace else "no TrainJob, no runtime"])
    return Review(tuple(results), tuple(scan.faults), tuple(scan.notices), False, scan.passed_over, scanned=True)


def _connected(arguments: argparse.Namespace) -> tuple[Api, str | None] | None:
    """A cluster that is asked again for a while where it cannot answer now, and the namespace (None: all)."""
    api = connect(Path(arguments.kubeconfig) if arguments.kubeconfig else None, arguments.context)
    if api is None:
        return None
    from webhook.runs.clock import Clock
    from webhook.runs.kube import Kube

    clock = Clock(time.monotonic, time.sleep, time.time)
    kube = Kube(api, clock, lambda text: complain([f"note: {text}"]), _PATIENCE)
    return kube, None if arguments.all_namespaces else arguments.namespace or api.namespace


class _Once(NamedTuple):
    """One scan that came to its end: what could not be listed, how many results, TrainJobs by namespace and verdict."""

    scan: ClusterScan
    number: int
    counts: Counter[tuple[str, str]]


def _once(
    api: Api,
    arguments: argparse.Namespace,
    policy: Policy,
    namespace: str | None,
    keep: Callable[[Reviewed], None] | None,
) -> _Once:
    """One scan of a cluster, and its reports where asked for. Raises Unreachable."""
    from webhook.scan.cluster import ClusterScan
    from webhook.scan.reports import Reports
    from webhook.scan.serve import count

    scan = ClusterScan(api, policy, namespace, arguments.trainer)
    reports = Reports()
    number = 0

    def take(result: Reviewed) -> None:
        nonlocal number
        number += 1
        if arguments.report:
            reports.take(result)
        if keep is not None:
            keep(result)

    counts = count(scan.results(), take)
    if arguments.report:
        _write_reports(api, scan, reports, namespace)
    return _Once(scan, number, counts)


def _write_reports(api: Api, scan: ClusterScan, reports: Reports, namespace: str | None) -> None:
    """What cannot be written is a fault of the scan. Raises Unreachable."""
    from webhook.cluster.access import Refused
    from webhook.scan.reports import NoReports, served_api, write

    if scan.faults:
        scan.faults.append(Fault(None, "reports: not written, since not everything could be scanned"))
        return
    try:
        written = write(api, served_api(api), reports, namespace)
    except (NoReports, Refused) as error:
        scan.faults.append(Fault(None, f"reports: {error}"))
        return
    scan.faults.extend(Fault(None, f"reports: {notice}") for notice in written.notices)
    complain([str(written)])


def _go_on(arguments: argparse.Namespace, policy: Policy) -> int:
    """Scan until SIGTERM; 0 then, 2 where there is no cluster or the address cannot be had."""
    connected = _connected(arguments)
    if connected is None:
        return 2
    from webhook.cluster.access import Unreachable
    from webhook.scan.serve import Loop, listen

    api, namespace = connected
    said: set[str] = set()

    def turn() -> Counter[tuple[str, str]] | None:
        try:
            once = _once(api, arguments, policy, namespace, None)
        except Unreachable as error:
            complain([f"error: {error}"])
            return None
        told = {*(f"note: {notice}" for notice in once.scan.notices), *(f"error: {one}" for one in once.scan.faults)}
        complain(sorted(told - said))  # each once, until it is over
        said.clear()
        said.update(told)
        return None if once.scan.incomplete else once.counts

    loop = Loop(turn, arguments.every or _EVERY)
    try:
        server = listen(arguments.metrics, loop)
    except OSError as error:
        complain([f"error: --metrics: {error.strerror or error}"])
        return 2
    loop.until_signal()
    loop.run()
    server.shutdown()
    server.server_close()
    return 0


def scan_files(arguments: argparse.Namespace, policy: Policy) -> Review:
    """The same over a dump: its objects are all that is known of the cluster."""
    from webhook.cluster.kinds import SNAPSHOT_SUFFIX
    from webhook.scan.copies import Copies, with_copy
    from webhook.scan.stored import enforced, enforced_namespace, judge_stored

    policy = enforced(policy)
    inputs = Inputs(arguments.state, [], arguments.trainer, policy, namespace=arguments.namespace)
    for namespace in inputs.of_kind("Namespace"):
        inputs.view.store.put("Namespace", enforced_namespace(namespace.object))
    results: list[Reviewed] = []
    over = 0
    kept = {(one.namespace, one.name): one.object for one in inputs.of_kind("ConfigMap")}
    copies = Copies(lambda namespace, name: kept.get((namespace, f"{name}{SNAPSHOT_SUFFIX}")))

    def wanted(document: Document) -> bool:
        return arguments.namespace is None or document.namespace == arguments.namespace

    for document in filter(wanted, inputs.documents):
        metadata = document.object.get("metadata") or {}
        if metadata.get("deletionTimestamp") or (document.kind == "TrainJob" and finished(document.object)):
            over += 1
            continue
        inputs.settle_for(document)
        release = inputs.release(document)
        assumed = inputs.assume_for(document, release)
        copy = copies.of(document.stored, inputs.view, release) if document.kind == "TrainJob" else None
        results.append(
            judge_stored(
                document.kind,
                document.namespace,
                document.name,
                document.object,
                with_copy(inputs.view, copy),
                policy,
                release,
                Place(document.file, document.line),
                assumed,
                partial(inputs.locate, document),
            )
        )
    nothing = None if over else inputs.nothing()
    faults = inputs.faults if nothing is None else [nothing]
    return Review(tuple(results), tuple(faults), tuple(inputs.notices), False, inputs.skipped + over, scanned=True)
