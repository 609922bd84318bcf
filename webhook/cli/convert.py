"""``ckptguard convert``: RunWhere's ``Training`` YAML as a TrainJob on standard output."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.cli.cluster_flags import object_name, trainer_release
from webhook.cli.output import coloured, complain, write_text
from webhook.model.release import NEWEST

if TYPE_CHECKING:
    from webhook.reports.review import Fault


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``convert``."""
    parser.add_argument("file", metavar="FILE", help="YAML of kind Training, or - for standard input")
    parser.add_argument(
        "--runtime",
        metavar="[KIND/]NAME",
        type=_runtime,
        default="torch-distributed",
        help="the runtime that trains it (default ClusterTrainingRuntime/torch-distributed)",
    )
    parser.add_argument(
        "--trainer",
        metavar="RELEASE",
        type=trainer_release,
        default=NEWEST,
        help=f"write it for this Trainer ({NEWEST.value})",
    )
    parser.add_argument(
        "--gpu-label",
        metavar="KEY",
        type=_label_key,
        default="nvidia.com/gpu.product",
        help="node label of gpuType (default %(default)s)",
    )
    parser.add_argument("-n", "--namespace", type=object_name, help="the TrainJob's namespace")
    parser.epilog = "exit code: 0 converted, 2 some field has no place, which is named"


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


def run(arguments: argparse.Namespace) -> int:
    """0, or 2 where something cannot be placed; then nothing is written."""
    from webhook.reports.text import fault_line
    from webhook.runs.convert import Wanted

    kind, name = arguments.runtime
    wanted = Wanted(name, kind, arguments.trainer, arguments.gpu_label, arguments.namespace)
    texts, faults = converted(arguments.file, wanted)
    if faults or not texts:
        complain(fault_line(fault, coloured(sys.stderr)) for fault in faults)
        return 2
    write_text("---\n".join(texts))
    return 0


def converted(file: str, wanted: object) -> tuple[list[str], list[Fault]]:
    """The TrainJobs of a file as YAML, and what cannot be placed with its line."""
    from webhook.cluster.yaml_text import TextError, decode, parse, places, split, steps_of
    from webhook.model.paste import to_yaml
    from webhook.reports.review import Fault
    from webhook.runs.convert import Wanted, convert

    assert isinstance(wanted, Wanted)  # noqa: S101 - its module is imported late
    texts: list[str] = []
    faults: list[Fault] = []
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        pieces = split(decode(data))
    except OSError as error:
        return [], [Fault(file, f"cannot be read: {error.strerror}")]
    except TextError as error:
        return [], [Fault(file, error.message, error.line)]
    for piece in pieces:
        try:
            documents = list(parse(piece))
        except TextError as error:
            faults.append(Fault(file, error.message, error.line, error.field))
            continue
        where = places(piece)
        for index, (line, document) in enumerate(documents):
            if document is None:
                continue
            trainjob, found = convert(document, wanted)
            for fault in found:
                at = where[index].find(steps_of(fault.field)) if index < len(where) else line
                faults.append(Fault(file, fault.message, at, fault.field or None))
            texts.append(to_yaml(trainjob) + "\n")
    if not texts and not faults:
        faults.append(Fault(file, "there is nothing in it"))
    return texts, faults
