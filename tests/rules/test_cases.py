"""Every rule judges its cases as their names say, in the words of the golden text beside them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.rules.cases import FOLDER, VERDICTS, case_files, each_case, golden_text, outcome, run_case
from webhook.message import FACT, LINE, warning_line
from webhook.model.finding import Judged, Severity

CASES = case_files()
UPDATE = bool(os.environ.get("UPDATE_GOLDEN"))


@each_case()
def test_case(path: Path) -> None:
    expected = path.name.partition("-")[0]
    assert expected in VERDICTS, "a case is named <verdict>-<what it shows>.yaml"
    found, broken = run_case(path)
    assert broken == ()
    assert outcome(found) == expected, golden_text(found)
    golden = path.with_suffix(".txt")
    if expected == "allow":
        assert not golden.exists()
        return
    text = golden_text(found)
    if UPDATE:
        golden.write_text(text)
    assert golden.is_file(), "make golden writes it"
    assert text == golden.read_text()
    for _, finding in found:
        assert_told(finding)


def assert_told(finding: Judged) -> None:
    """The line fits, fact and id stand at its beginning, and what is cut of a fact is a value or its reason."""
    line = warning_line(finding)
    assert len(line) <= LINE
    fact, id_, place = line.partition(f" [{finding.rule}]")
    assert id_, line
    assert len(fact + id_) <= FACT
    assert place.startswith(" (")
    assert place.endswith(")")
    # A reason after a colon may be cut, and so may what is only audited, which is told by no such line.
    if finding.severity is not Severity.AUDIT:
        told, whole = unquoted(fact), unquoted(finding.problem)
        assert whole.startswith(told.removesuffix("…").rstrip('"').rstrip())
        assert told.startswith(whole.partition(": ")[0]), line


def unquoted(fact: str) -> str:
    """The words of a fact without the values that it quotes, the last of which may be cut."""
    return re.sub(r'"[^"]*("|…$)', '""', fact)


def test_no_golden_text_without_a_case() -> None:
    stray = [path for path in FOLDER.glob("*/*.txt") if not path.with_suffix(".yaml").exists()]
    assert stray == []


def test_what_a_user_must_not_read_stays_out_of_the_text() -> None:
    """The cases give every path, server, node and zone of a volume a name that holds ``secret``."""
    for path in CASES:
        golden = path.with_suffix(".txt")
        if golden.is_file():
            assert "secret-" not in golden.read_text(), path
