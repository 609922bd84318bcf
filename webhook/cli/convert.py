"""``ckptguard convert``: RunWhere's ``Training``, a ``PyTorchJob`` or an ``MPIJob`` as a TrainJob."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webhook.cli.cluster_flags import RELEASES, object_name, trainer_release
from webhook.cli.output import coloured, complain, write_text
from webhook.cli.outputs import add_output, write_outputs
from webhook.model.printable import printable
from webhook.model.release import NEWEST

if TYPE_CHECKING:
    from webhook.reports.review import Fault
    from webhook.runs.convert import Wanted


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``convert``."""
    parser.description = (
        "Write a RunWhere Training, or a PyTorchJob or MPIJob of the Training Operator (kubeflow.org/v1, MPIJob also "
        "v2beta1), as a TrainJob; a PyTorchJob or MPIJob with a TrainingRuntime of its own. Other objects of FILE are "
        "written as they are. A field that has no place is named, and stands as a comment before the TrainJob."
    )
    parser.add_argument("file", metavar="FILE", help="YAML or JSON, or - for standard input")
    parser.add_argument(
        "--runtime",
        metavar="[KIND/]NAME",
        type=_runtime,
        help="the runtime of a Training (default ClusterTrainingRuntime/torch-distributed)",
    )
    parser.add_argument(
        "--trainer",
        metavar="RELEASE",
        type=trainer_release,
        default=NEWEST,
        help=f"write it for this Trainer: {RELEASES} (default {NEWEST.value})",
    )
    parser.add_argument(
        "--gpu-label",
        metavar="KEY",
        type=_label_key,
        default="nvidia.com/gpu.product",
        help="node label of a Training's gpuType (default %(default)s)",
    )
    parser.add_argument("-n", "--namespace", type=object_name, help="the TrainJob's namespace")
    parser.add_argument("--policy", metavar="FILE", help="the policy file of the cluster, for the number of restarts")
    add_output(parser, ("text", "json"))
    parser.epilog = "exit code: 0 converted, 1 a field has no equivalent (named), 2 could not convert"


def _runtime(text: str) -> tuple[str, str]:
    from webhook.runs.convert import parse_runtime

    try:
        return parse_runtime(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _label_key(text: str) -> str:
    from webhook.effective.buildable.syntax import is_qualified_name

    if not is_qualified_name(text):
        raise argparse.ArgumentTypeError(f'"{text}" is no key of a label')
    return text


class Output:
    """What came of a file: objects with the comments before each, and what was found, by weight."""

    def __init__(self) -> None:
        self.objects: list[tuple[dict[str, Any], list[str]]] = []
        self.bad: list[Fault] = []
        self.lost: list[Fault] = []
        self.notes: list[Fault] = []


def run(arguments: argparse.Namespace) -> int:
    """0, 1 or 2, as the help says."""
    from webhook.cli.inputs import load_policy_file
    from webhook.reports.text import fault_line
    from webhook.runs.convert import Wanted

    faults: list[Fault] = []
    policy = load_policy_file(arguments.policy, faults)
    if policy is None:
        complain(fault_line(fault, False) for fault in faults)
        return 2
    kind, name = arguments.runtime or ("ClusterTrainingRuntime", "torch-distributed")
    wanted = Wanted(
        runtime=name,
        runtime_kind=kind,
        release=arguments.trainer,
        gpu_label=arguments.gpu_label,
        namespace=arguments.namespace,
        policy=policy,
        explicit=arguments.runtime is not None,
    )
    made = converted(arguments.file, wanted)
    colour = coloured(sys.stderr)
    if made.bad:
        complain((fault_line(fault, colour) for fault in (*made.bad, *made.lost)), colour)
        return 2

    def render(output: str, _: bool) -> str:
        if output == "json":
            from webhook.reports.json import SCHEMA, encode

            errors, notes = map(_fault_json, made.lost), map(_fault_json, made.notes)
            objects = [one for one, _ in made.objects]
            return encode({"schema": SCHEMA, "objects": objects, "errors": list(errors), "notes": list(notes)})
        from webhook.model.paste import to_yaml

        return "---\n".join(
            "".join(f"# {line}\n" for line in above) + to_yaml(one) + "\n" for one, above in made.objects
        )

    write_text("")  # YAML is for programs too: in UTF-8, whatever the locale says
    if not write_outputs(arguments.output, render, whole=True):
        return 2
    complain((fault_line(fault, colour) for fault in made.lost), colour)
    complain(fault_line(fault, False).replace("error: ", "note: ", 1) for fault in made.notes)
    return 1 if made.lost else 0


def _fault_json(fault: Fault) -> dict[str, Any]:
    return {"file": fault.file, "line": fault.line, "field": fault.field, "message": fault.message}


def converted(file: str, wanted: Wanted) -> Output:
    """The objects of a file, and what is to be said of its fields with their lines."""
    from webhook.cluster.places import steps_of
    from webhook.cluster.yaml_text import TextError, decode, parse, places, split
    from webhook.reports.review import Fault

    out = Output()
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        pieces = split(decode(data))
    except OSError as error:
        out.bad.append(Fault(file, f"cannot be read: {error.strerror}"))
        return out
    except TextError as error:
        out.bad.append(Fault(file, error.message, error.line))
        return out
    known = False
    for piece in pieces:
        try:
            documents = list(parse(piece))
        except TextError as error:
            out.bad.append(Fault(file, error.message, error.line, error.field))
            continue
        where: list[Any] | None = None
        for index, (line, document) in enumerate(documents):
            for item, one in _flat(document):
                made, comments, found = _one(one, wanted)
                for field, message, weight in found:
                    if where is None:
                        where = places(piece)
                    steps = steps_of(field)
                    steps[:0] = ["items", item] if item is not None else []
                    at = where[index].find(steps) if index < len(where) else line
                    {"bad": out.bad, "lost": out.lost, "note": out.notes}[weight].append(
                        Fault(file, message, at, field or None)
                    )
                known = known or comments is not None
                out.objects += [(made_one, (comments or []) if at == 0 else []) for at, made_one in enumerate(made)]
    if not known and not out.bad:
        kinds = "no Training, PyTorchJob or MPIJob" if out.objects else "nothing"
        out.bad.append(Fault(file, f"there is {kinds} in it"))
    return out


def _flat(document: Any) -> Iterator[tuple[int | None, Any]]:
    if document is None:
        return
    items = document.get("items") if isinstance(document, Mapping) else None
    if isinstance(items, list) and str(document.get("kind") or "").endswith("List"):
        yield from enumerate(items)
    else:
        yield None, document


def _one(raw: Any, wanted: Wanted) -> tuple[list[dict[str, Any]], list[str] | None, list[tuple[str, str, str]]]:
    """The objects of one document, comments to stand before them (None: it is none of ours), and what was found."""
    from webhook.runs.convert import convert
    from webhook.runs.from_v1 import KINDS, convert_v1, is_v1_job

    if is_v1_job(raw):
        if wanted.explicit:
            return [], [], [("", "--runtime is for a Training: this gets a TrainingRuntime of its own", "bad")]
        made = convert_v1(raw, wanted.release, wanted.namespace, wanted.policy)
        found = [(one.field, one.message, one.weight) for one in made.found]
        return list(made.objects), _comments(found), found
    if isinstance(raw, Mapping) and raw.get("apiVersion") and raw.get("kind") != "Training":
        if str(raw["apiVersion"]).partition("/")[0] == "kubeflow.org":
            known = " and ".join(KINDS)
            return [], [], [("kind", f'"{raw.get("kind")}" is not known: of kubeflow.org {known} are', "bad")]
        return [dict(raw)], None, []
    trainjob, faults = convert(raw, wanted)
    found = [(fault.field, fault.message, "lost" if fault.no_place else "bad") for fault in faults]
    return [trainjob], _comments(found), found


def _comments(found: list[tuple[str, str, str]]) -> list[str]:
    return [printable(f"has no place: {field}: {message}") for field, message, weight in found if weight == "lost"]
