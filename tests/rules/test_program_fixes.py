"""The corrected line of a program does settle it: it is put in the place of the one that is pointed at."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests import fast_yaml
from tests.rules.cases import FOLDER, run_documents
from webhook.cluster.files import load_text
from webhook.model.finding import Judged
from webhook.rules import RULES
from webhook.script.corrected import LONGEST

PROGRAM = frozenset(rule.id for rule in RULES if rule.reads_program)
ADDED = frozenset(
    ("fast-only-checkpoint", "gathered-shards", "no-flush-on-sigterm", "program-not-read", "ranks-resume-apart")
)
"""Rules whose fix is text to add to the program, or says what to do: no line in the place of another mends it."""
BESIDE = frozenset(
    (
        # The save has to move into the loop.
        "never-saved/warn-after-the-loop",
        "never-saved/warn-after-the-loop-in-a-function",
        "never-saved/warn-method-after-its-loop",
        # What is given stands in another line than the one that uses it.
        "fixed-world-size/audit-megatron-in-a-variable",
        "sigterm-not-forwarded/warn-eval",
        "timestamped-directory/warn-argument-made-of-itself",
        "timestamped-directory/warn-counter",
        "timestamped-directory/warn-hook-of-epoch",
        "timestamped-directory/warn-incremented-path",
        "timestamped-directory/warn-plain",
        "weights-only-checkpoint/warn-filled-key-by-key",
        "weights-only-checkpoint/warn-with-a-path-and-a-history",
        # The condition of the load is to change.
        "resume-not-asked-for/warn-field-of-a-class",
        "resume-not-asked-for/warn-switched-off",
    )
)
"""Cases in which the line that is pointed at is not the one to change."""
FOLLOWS = {
    "never-saved": {"never-resumed", "unlimited-checkpoints"},
    "overwritten-checkpoint": {"unlimited-checkpoints"},
    "weights-only-checkpoint": {"optimizer-not-restored", "unlimited-checkpoints"},
    "overwritten-output": {"unlimited-checkpoints"},
}
"""What is wrong as well, and is said once there is something to restore and to count."""
ITEM = re.compile(r"(command|args)\[(\d+)\] line (\d+)$")


def cases() -> list[Path]:
    """Of rules whose fix is a line; what points at an item of a list has no line."""
    found = [
        path
        for rule in PROGRAM - ADDED
        for kind in ("warn", "audit")
        for path in (FOLDER / rule).glob(f"{kind}-*.yaml")
    ]
    return sorted(path for path in found if f"{path.parent.name}/{path.stem}" not in BESIDE)


def mended(text: str, number: int, fix: str) -> str:
    """The program with line ``number`` as the fix has it; what it imports stands before the other imports."""
    lines = text.split("\n")
    given = [line for line in fix.split("\n") if not line.startswith("#")]
    imports = [line for line in given if line.startswith(("import ", "from "))]
    named = re.search(r"    # line (\d+)$", given[-1])
    number = int(named[1]) if named else number
    old = lines[number - 1]
    indent = old[: len(old) - len(old.lstrip())]
    lines[number - 1 : number] = [indent + line for line in given if line not in imports]
    first = next((at for at, one in enumerate(lines) if one.strip().startswith(("import ", "from "))), 0)
    before = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    return "\n".join([*lines[:first], *(before + one for one in imports), *lines[first:]])


def findings(path: Path, documents: list[dict[str, Any]]) -> list[Judged]:
    text = fast_yaml.safe_dump_all(documents).encode()
    found, broken = run_documents(path, load_text(text, "case").documents, every=True)
    assert broken == ()
    return [finding for label, finding in found if label.startswith("TrainJob/") and finding.rule in PROGRAM]


@pytest.mark.parametrize("path", cases(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_corrected_line_settles_it(path: Path) -> None:
    rule = path.parent.name
    documents = list(fast_yaml.safe_load_all(path.read_text()))
    trainer = documents[-1]["spec"]["trainer"]
    before = findings(path, documents)
    for _ in range(4):
        wrong = [finding for finding in findings(path, documents) if finding.rule == rule]
        if not wrong:
            break
        item = ITEM.search(wrong[0].at.field)
        if item is None:
            pytest.skip("the fix is an item of a list")
        items = trainer[item[1]]
        if len(items[int(item[2])].split("\n")[int(item[3]) - 1].strip()) > LONGEST:
            pytest.skip("the line is longer than what a message may quote")
        items[int(item[2])] = mended(items[int(item[2])], int(item[3]), wrong[0].fix)
    after = findings(path, documents)
    assert [finding.problem for finding in after if finding.rule == rule] == []
    told = {finding.rule for finding in before} | FOLLOWS.get(rule, set())
    assert {finding.rule for finding in after} <= told, trainer
