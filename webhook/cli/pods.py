"""``ckptguard pods``: the pods that Trainer and JobSet will build, each part with the field that it comes from.

From the objects as written: what we would fill in is not applied. A runtime is shown alone where no TrainJob of FILE
uses it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial

from webhook.cli.flags import add_flags
from webhook.cli.inputs import Inputs, inputs_of, runtime_key
from webhook.cli.output import coloured, complain
from webhook.cli.outputs import write_outputs
from webhook.cluster.documents import Document
from webhook.decision import build_subject
from webhook.model.cluster import Gap
from webhook.model.policy import Policy
from webhook.model.request import Request
from webhook.model.subject import Subject
from webhook.reports.review import Fault
from webhook.reports.text import fault_line, notice_line

_Built = tuple[Document, Subject, str]
"""An object, its pods, and the shipped runtime that they were built from, where one was assumed."""

INTERMIXED = True


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``pods``."""
    add_flags(parser, ("text", "json"))
    parser.epilog = "exit code: 0 success, 2 an object could not be read or has no runtime"


def run(arguments: argparse.Namespace) -> int:
    """0, or 2 where something could not be read or built."""
    inputs = inputs_of(arguments)
    if inputs is None:
        return 2
    nothing = inputs.nothing()
    faults = list(inputs.faults) if nothing is None else [nothing]
    notices: list[str] = []
    built = list(_built(inputs))
    inputs.close()
    for document, subject, assumed in built:
        if assumed:
            notices.append(f"{document.label}: assumed: {assumed}")
        if subject.effective is None:
            kind, namespace, name = runtime_key(document)
            where = f" in namespace {namespace}" if namespace else ""
            if not arguments.live:
                message = f'there is no {kind} "{name}"{where} among the files: add it with --state'
            elif subject.runtime is Gap.ABSENT:
                message = f'there is no {kind} "{name}"{where}, neither among the files nor in the cluster'
            else:
                message = f'{kind} "{name}"{where} is not known: {subject.cluster.why_unknown(kind)}'
            faults.append(
                Fault(document.file, message, document.line_of("spec.runtimeRef.name"), "spec.runtimeRef.name")
            )
    colour = coloured(sys.stderr)
    complain(
        [
            *(notice_line(notice, colour) for notice in (*inputs.notices, *notices)),
            *(fault_line(fault, colour) for fault in faults),
        ],
        colour,
    )
    done = write_outputs(arguments.output, partial(_render, built))
    return 2 if faults or not done else 0


def _render(built: list[_Built], output: str, colour: bool) -> str:
    if output == "json":
        from webhook.reports.json import SCHEMA, encode
        from webhook.reports.pods import pods_result

        results = [
            pods_result(document.kind, document.namespace, document.name, subject.effective)
            | {"trainer": subject.release.value}  # which is known without a runtime, too
            for document, subject, _ in built
        ]
        return encode({"schema": SCHEMA, "results": results})
    return "".join(f"{line}\n" for line in _text(built, colour))


def _built(inputs: Inputs) -> Iterator[_Built]:
    used = {runtime_key(document) for document in inputs.documents if document.kind == "TrainJob"}
    for document in inputs.documents:
        if document.kind == "TrainJob" or document.key not in used:
            request = Request("CREATE", document.kind, document.namespace, document.name, document.object)
            release = inputs.release(document)
            inputs.settle_for(document)
            assumed = inputs.assume_for(document, release)
            yield document, inputs.asked(partial(build_subject, request, inputs.view, Policy(), release)), assumed


def _text(built: list[_Built], colour: bool) -> Iterator[str]:
    from webhook.reports.pods import render_pods

    first = True
    for document, subject, _ in built:
        if subject.effective is None:
            continue
        if not first:
            yield ""
        first = False
        place = f"{document.namespace}/{document.name}" if document.namespace else document.name
        yield from render_pods(f"{document.kind} {place}", subject.effective, subject.checkpoints, colour)
