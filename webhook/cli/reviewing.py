"""Objects from files through both questions of the engine.

Each object is first filled in, as ``/mutate`` does, then judged as it would be stored, as ``/validate`` does; with
``--without-guard`` it is judged as it is. Runtimes of FILE are filled in before any TrainJob is judged; those of
``--state`` count as stored.
"""

from __future__ import annotations

import argparse
import os
from functools import lru_cache, partial
from time import time
from typing import Literal

from msgspec.structs import replace

from webhook.cli.inputs import Inputs, fault_of, inputs_of, load_policy_file
from webhook.cluster import checkout
from webhook.cluster.checkout import Checkout
from webhook.cluster.documents import Document
from webhook.cluster.files import load_files, settle_namespaces
from webhook.decision import default_object, review_object
from webhook.model.finding import Judged, Severity
from webhook.model.names import KINDS, RUNTIME_KINDS
from webhook.model.policy import Policy
from webhook.model.request import Request
from webhook.model.verdict import Defaulted
from webhook.reports.review import Fault, Place, Review, Reviewed

_WEIGHT = {Severity.DENY: 0, Severity.WARN: 1, Severity.AUDIT: 2}
_EXEMPT = "exempt"
_LEFT_ALONE = {_EXEMPT: "the policy exempts it", "off": "the mode of its namespace is off"}


def review_files(arguments: argparse.Namespace, needed: bool = True) -> Review | None:
    """Read, fill in, judge. None, and a line on standard error, where the command line names no file.

    ``needed``: that there is no object at all is a fault.
    """
    faults: list[Fault] = []
    notices: list[str] = []
    policy = load_policy_file(arguments.policy, faults, notices)
    if policy is None:
        return Review(faults=tuple(faults))
    inputs = inputs_of(arguments, policy)
    if inputs is None:
        return None
    guarded = not arguments.without_guard
    nothing = inputs.nothing() if needed else None
    faults.extend(inputs.faults if nothing is None else (nothing,))
    old: dict[tuple[str, str, str], Document] = {}
    if arguments.old is not None:
        before = load_files([arguments.old], settled=False)
        settle_namespaces(inputs.namespace, before)
        faults.extend(fault_of(error) for error in before.errors)
        named = (document for document in before.of_kind(*KINDS) if document.object["metadata"].get("name"))
        old = {document.key: document for document in named}
        if inputs.documents and not before.errors and not any(document.key in old for document in inputs.documents):
            notices.append(f"{arguments.old}: none of the objects in FILE stands there, so all are reviewed as new")
    # Runtimes first: a TrainJob of FILE is built from them as they will be stored.
    requests = {id(document): _request(document, old.get(document.key)) for document in inputs.documents}
    filled: dict[int, Defaulted] = {}
    for document in inputs.documents if guarded else ():
        if document.kind in RUNTIME_KINDS:
            inputs.settle_for(document)
            done = inputs.asked(
                partial(default_object, requests[id(document)], inputs.view, policy, inputs.release(document))
            )
            filled[id(document)] = done
            if done.patch:
                inputs.put_runtime(document, done.object)
    source, fault = _source(getattr(arguments, "source", None))
    if fault is not None:
        inputs.close()
        return Review(faults=(*faults, fault))
    results = tuple(
        _reviewed(document, requests[id(document)], filled.get(id(document)), inputs, policy, guarded, source)
        for document in inputs.documents
    )
    inputs.close()
    if source is not None and source.cut:
        notices.append(f"--source {source.folder}: it has more than {checkout.MOST} files: the rest is not looked at")
    return Review(results, tuple(faults), (*inputs.notices, *notices), guarded, inputs.skipped)


def _source(folder: str | None) -> tuple[Checkout | None, Fault | None]:
    """The checkout that ``--source`` names, or why there is none."""
    if folder is None:
        return None, None
    if not os.path.isdir(folder):  # noqa: PTH112 - as elsewhere, pathlib would be a tenth of the start-up time
        what = "this is a file, and a folder is wanted" if os.path.exists(folder) else "no such folder"  # noqa: PTH110
        return None, Fault(folder, what, field="--source")
    return Checkout(folder), None


def _request(document: Document, old: Document | None) -> Request:
    return Request(
        operation="CREATE" if old is None else "UPDATE",
        kind=document.kind,
        namespace=document.namespace,
        name=document.name,
        object=document.object,
        old=None if old is None else old.object,
        at=time(),
    )


def _reviewed(
    document: Document,
    request: Request,
    filled: Defaulted | None,
    inputs: Inputs,
    policy: Policy,
    guarded: bool,
    source: Checkout | None,
) -> Reviewed:
    """The result for one object; ``filled`` is what ``default_object`` already said of it."""
    release = inputs.release(document)
    inputs.settle_for(document)
    assumed = inputs.assume_for(document, release)
    if not guarded:
        filled = Defaulted((), request.object)
    elif filled is None:
        filled = inputs.asked(partial(default_object, request, inputs.view, policy, release))
    stored = replace(request, object=filled.object, as_written=not guarded)
    decision = inputs.asked(partial(review_object, stored, inputs.view, policy, release, source))
    findings = decision.findings
    verdict: Literal["allow", "warn", "deny", "exempt"] = decision.verdict
    if filled.findings:
        findings = _joined(findings, filled.findings)
        if verdict == "allow" and any(finding.severity is Severity.WARN for finding in findings):
            verdict = "warn"
    if decision.mode == _EXEMPT:
        verdict = "exempt"
    return Reviewed(
        kind=request.kind,
        namespace=request.namespace,
        name=request.name,
        operation=request.operation,
        at=Place(document.file, document.line),
        verdict=verdict,
        findings=findings,
        facts=decision.facts,
        patch=filled.patch,
        before=request.object,
        after=filled.object,
        locate=partial(inputs.locate, document),
        judged=decision.judged,
        unjudged=_LEFT_ALONE.get(decision.mode, ""),
        assumed=assumed if decision.judged else "",
        scope=inputs.settled,
    )


@lru_cache(maxsize=1)
def _order() -> dict[str, int]:
    from webhook.rules import RULES

    return {rule.id: at for at, rule in enumerate(RULES)}


def _joined(judged: tuple[Judged, ...], filling: tuple[Judged, ...]) -> tuple[Judged, ...]:
    """The findings of both questions, each once, by severity and then in the order of the rules."""
    order = _order()
    known = set(judged)
    more = [finding for finding in filling if finding not in known]
    return tuple(
        sorted(
            (*judged, *more),
            key=lambda finding: (_WEIGHT[finding.severity], order.get(finding.rule, len(order))),
        )
    )
