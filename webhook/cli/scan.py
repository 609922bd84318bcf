"""``ckptguard scan``: what the cluster holds now, judged as ``review`` judges files."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.cli.cluster_flags import RELEASES, add_kubeconfig, connect, object_name, trainer_release
from webhook.cli.inputs import Inputs, load_policy_file
from webhook.cli.output import complain
from webhook.cli.outputs import add_output
from webhook.cli.review import print_review
from webhook.model.cluster import finished
from webhook.reports.review import FAIL_ON, Fault, Place, Review

if TYPE_CHECKING:
    from webhook.cluster.files import Document
    from webhook.model.policy import Policy
    from webhook.reports.review import Reviewed


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``scan``."""
    parser.description = (
        "Judge the unfinished TrainJobs and the runtimes of a cluster as they stand, by the same rules as review. In "
        "namespaces of mode warn or audit it says what enforce would refuse. What may not be listed is said, and what "
        "depends on it is unknown."
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-n", "--namespace", type=object_name, help="default: that of the context")
    where.add_argument(
        "-A", "--all-namespaces", action="store_true", help="all namespaces, and ClusterTrainingRuntimes"
    )
    parser.add_argument("--context", help="context of the kubeconfig; default: the current one")
    add_kubeconfig(parser)
    parser.add_argument(
        "--state",
        metavar="PATH",
        action="append",
        default=[],
        help="a dump of the cluster (kubectl get ... -o yaml) instead of a cluster; a file, a folder or -; repeatable",
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
        default="deny",
        help="what makes the exit code 1, each includes the one before it (default deny)",
    )
    add_output(parser, ("text", "json", "junit", "sarif", "line"))
    parser.epilog = "exit code: 0 nothing against it, 1 a finding that fails (--fail-on), 2 could not scan"


def run(arguments: argparse.Namespace) -> int:
    """0, 1 or 2, as the help says."""
    faults: list[Fault] = []
    policy = load_policy_file(arguments.policy, faults)
    if policy is None:
        review: Review | None = Review(faults=tuple(faults), scanned=True)
    elif arguments.state:
        review = scan_files(arguments, policy)
    else:
        review = _scan_cluster(arguments, policy)
    if review is None:
        return 2
    done = print_review(review, arguments)
    return review.exit_code(arguments.fail_on) if done else 2


def _scan_cluster(arguments: argparse.Namespace, policy: Policy) -> Review | None:
    """None, and a line on standard error, where there is no cluster."""
    api = connect(Path(arguments.kubeconfig) if arguments.kubeconfig else None, arguments.context)
    if api is None:
        return None
    from webhook.runs.api import Unreachable
    from webhook.scan.cluster import ClusterScan

    namespace = None if arguments.all_namespaces else arguments.namespace or api.namespace
    scan = ClusterScan(api, policy, namespace, arguments.trainer)
    results: list[Reviewed] = []
    faults: list[Fault] = []
    try:
        results.extend(scan.results())
    except Unreachable as error:
        faults.append(Fault(None, str(error)))
    if not results and not scan.faults and not faults:
        complain([f"no TrainJob and no runtime in namespace {namespace}" if namespace else "no TrainJob, no runtime"])
    return Review(tuple(results), (*scan.faults, *faults), tuple(scan.notices), False, scan.passed_over, scanned=True)


def scan_files(arguments: argparse.Namespace, policy: Policy) -> Review:
    """The same over a dump: its objects are all that is known of the cluster."""
    from webhook.scan.stored import enforced, enforced_namespace, judge_stored

    policy = enforced(policy)
    inputs = Inputs(arguments.state, [], arguments.trainer, policy, namespace=arguments.namespace)
    for namespace in inputs.of_kind("Namespace"):
        inputs.view.store.put("Namespace", enforced_namespace(namespace.object))
    results: list[Reviewed] = []
    over = 0

    def wanted(document: Document) -> bool:
        return arguments.namespace is None or document.namespace == arguments.namespace

    for document in filter(wanted, inputs.documents):
        metadata = document.object.get("metadata") or {}
        if metadata.get("deletionTimestamp") or (document.kind == "TrainJob" and finished(document.object)):
            over += 1
            continue
        inputs.settle_for(document)
        release = inputs.release(document)
        results.append(
            judge_stored(
                document.kind,
                document.namespace,
                document.name,
                document.object,
                inputs.view,
                policy,
                release,
                Place(document.file, document.line),
                inputs.assume_for(document, release),
                partial(inputs.locate, document),
            )
        )
    nothing = None if over else inputs.nothing()
    faults = inputs.faults if nothing is None else [nothing]
    return Review(tuple(results), tuple(faults), tuple(inputs.notices), False, inputs.skipped + over, scanned=True)
