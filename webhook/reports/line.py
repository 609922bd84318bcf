"""A review for editors and problem matchers: one line a finding, as compilers print them."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.message import place
from webhook.model.finding import Severity
from webhook.model.printable import printable
from webhook.reports.review import Review

_WORD = {Severity.DENY: "error", Severity.WARN: "warning", Severity.AUDIT: "note"}


def render(review: Review) -> Iterator[str]:
    """``job.yaml:12: error: TrainJob/a in team: spec.trainer.env[0]: <fact> [<id>]``, in the order of the objects."""
    for fault in review.faults:
        where = "ckptguard" if fault.file is None else printable(fault.file)
        where += "" if fault.line is None else f":{fault.line}"
        text = ": ".join(part for part in (fault.field, fault.message) if part)
        yield f"{where}: error: {printable(text)}"
    for told in review.told():
        result, finding = told.result, told.finding
        at = result.locate(finding.at) or result.at
        more = f" (and of {told.others[0].title}" if told.others else ""
        more += f" and {len(told.others) - 1} more" if len(told.others) > 1 else ""
        more += ")" if told.others else ""
        yield (
            f"{printable(str(at))}: {_WORD[told.severity()]}: {printable(result.title)}: "
            f"{place(finding, result.label)}: {printable(finding.problem)} [{finding.rule}]{printable(more)}"
        )
