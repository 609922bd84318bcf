"""``ckptguard runtimes``: runtimes that lack what admission fills in today; ``--heal`` adds it where that is safe."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webhook.cli.cluster_flags import RELEASES, add_kubeconfig, add_output, connect, object_name, trainer_release
from webhook.cli.output import complain, write
from webhook.cli.outputs import write_json

if TYPE_CHECKING:
    from webhook.runs.heal import Healed


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``runtimes``."""
    parser.description = (
        "List the runtimes that lack the guard's defaults (made before it, or while it was down), and with --heal add "
        "them where no unfinished run can be wedged. What is left is named with its reason."
    )
    parser.add_argument("--heal", action="store_true", help="add them: each by dry-run first, then for good")
    parser.add_argument("--namespace", type=object_name, help="TrainingRuntimes of this namespace alone")
    parser.add_argument("--policy", metavar="FILE", help="the policy file of the cluster")
    parser.add_argument(
        "--trainer",
        metavar="RELEASE",
        type=trainer_release,
        help=f"the Trainer release: {RELEASES}; default: read from the cluster's CRD",
    )
    add_kubeconfig(parser)
    add_output(parser)
    parser.epilog = "exit code: 0 all complete, 1 some lack defaults, 2 could not check"


def run(arguments: argparse.Namespace) -> int:
    """0, 1 or 2, as the help says."""
    from webhook.cli.inputs import load_policy_file
    from webhook.cluster.access import Refused, Unreachable
    from webhook.reports.review import Fault
    from webhook.reports.text import fault_line
    from webhook.runs.heal import Cluster, Healed, find_lacking, heal, held_words, read_failed
    from webhook.runs.install_check import read_release

    faults: list[Fault] = []
    policy = load_policy_file(arguments.policy, faults)
    if policy is None:
        complain(fault_line(fault, False) for fault in faults)
        return 2
    api = connect(Path(arguments.kubeconfig) if arguments.kubeconfig else None)
    if api is None:
        return 2
    done: list[Healed] = []
    try:
        release = arguments.trainer or read_release(api)
        if release is None:
            complain(["error: the cluster's Trainer release cannot be told from its CRD: say --trainer"])
            return 2
        cluster = Cluster(api, release)
        if arguments.heal:
            done.extend(heal(cluster, policy, arguments.namespace))
        else:
            done.extend(
                Healed(found, "lacks", held_words(found) if found.held_by else "")
                for found in find_lacking(cluster, policy, arguments.namespace)
            )
    except Refused as refused:
        complain([f"error: {read_failed(refused)}"])
        return 2
    except Unreachable as error:
        complain([f"error: {error}"])
        return 2
    finally:
        if done or arguments.output == "json":
            _say(done, arguments.output)
    if not done:
        if arguments.output == "text":
            write(["every runtime has what the guard fills in"])
        return 0
    return 0 if all(healed.outcome == "added" for healed in done) else 1


def _say(done: list[Healed], output: str) -> None:
    from webhook.runs.heal import retries_words

    notes = [line.strip() if output == "json" else line for line in retries_words(done)]
    if output == "json":
        results = [_result(healed) for healed in done]
        write_json({"results": results, "notes": [" ".join(notes)] if notes else []})
    else:
        write([*(line for healed in done for line in _lines(healed)), *notes])


def _result(healed: Healed) -> dict[str, Any]:
    runtime = healed.runtime
    return {
        "kind": runtime.kind,
        "namespace": runtime.namespace,
        "name": runtime.name,
        "outcome": healed.outcome,
        "patch": runtime.patch,
        "safeNow": runtime.now,
        "heldBy": [f"{run.namespace}/{run.name}" for run in runtime.held_by],
        "why": healed.words,
    }


def _lines(healed: Healed) -> Iterator[str]:
    from webhook.runs.heal import added_words

    runtime = healed.runtime
    yield f"{runtime.label}: {healed.outcome}"
    shown = runtime.now if healed.outcome == "added in part" else runtime.patch
    for line in added_words(shown):
        yield f"  {line}"
    if healed.words:
        yield f"  {'why' if healed.outcome == 'failed' else 'left out'}: {healed.words}"
