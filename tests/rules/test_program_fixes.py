"""The corrected line of a program does settle it: it is put in the place of the one that is pointed at."""

from __future__ import annotations

import ast
import builtins
import copy
import re
from pathlib import Path
from typing import Any

from tests import fast_yaml
from tests.rules.cases import FOLDER, each_case, run_documents
from webhook.cluster.files import load_text
from webhook.model.finding import Judged
from webhook.model.script import Launch, Lines
from webhook.programs.program import Script
from webhook.programs.reading import read_script
from webhook.rules import RULES

PROGRAM = frozenset(rule.id for rule in RULES if rule.reads_program)
ADDED = frozenset(
    ("fast-only-checkpoint", "gathered-shards", "no-flush-on-sigterm", "program-not-read", "ranks-resume-apart")
)
"""Rules whose fix is text to add to the program, or says what to do: no line in the place of another mends it."""
BESIDE = frozenset(
    (
        # The processes are started in one place and waited for in another.
        "exit-status-lost/warn-left-by-loop",
        "exit-status-lost/warn-loop-waited-for-without-status",
        "exit-status-lost/warn-loops-in-loops",
        "sigterm-not-forwarded/warn-loop-waited-for",
        # What stands behind it in its line hangs on its status.
        "sigterm-not-forwarded/warn-command-in-a-variable",
        # The whole of an ``if`` gives way to the program.
        "exit-status-lost/warn-only-reported",
        # The name alone is given, and nobody sees the directory.
        "fixed-resume-path/warn-name-of-one",
        # A key of its own, and a tool that has to run before.
        "fixed-world-size/audit-zero",
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
        # The loop begins at what was not saved, and the loader at what nobody counts.
        "step-not-restored/warn-counter-under-no-key",
        "data-repeated/audit-saved-in-the-midst-of-an-epoch",
        "data-repeated/audit-accelerate-in-the-midst",
        # The condition of the load is to change.
        "resume-not-asked-for/warn-field-of-a-class",
        "resume-not-asked-for/warn-switched-off",
    )
)
"""Cases in which the line that is pointed at is not the one to change."""
FOLLOWS = {
    "directory-not-used": {"unlimited-checkpoints"},
    "never-saved": {"never-resumed", "unlimited-checkpoints"},
    # Boosters count their rounds anew on top of what they load.
    "never-resumed": {"step-not-restored"},
    "overwritten-checkpoint": {"unlimited-checkpoints"},
    "weights-only-checkpoint": {"optimizer-not-restored", "unlimited-checkpoints"},
    "overwritten-output": {"unlimited-checkpoints"},
}
"""What is wrong as well, and is said once there is something to restore and to count."""
READ_BACK = {"torn-newest", "rng-not-restored"}
"""What is audited of every program that reads its newest back."""
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


def findings(path: Path, documents: list[dict[str, Any]]) -> list[Judged]:
    text = fast_yaml.safe_dump_all(documents).encode()
    found, broken = run_documents(path, load_text(text, "case").documents, every=True)
    assert broken == ()
    return [finding for label, finding in found if label.startswith("TrainJob/") and finding.rule in PROGRAM]


@each_case(cases())
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
            return  # the fix is an item of a list
        items = trainer[item[1]]
        fix = wrong[0].lines
        assert isinstance(fix, Lines), fix
        items[int(item[2])] = fix.paste(items[int(item[2])])
    after = findings(path, documents)
    assert [finding.problem for finding in after if finding.rule == rule] == []
    told = {finding.rule for finding in before} | FOLLOWS.get(rule, set()) | READ_BACK
    assert {finding.rule for finding in after} <= told, trainer


def unbound(script: Script) -> set[str]:
    """Names that the Python texts of a program use and nothing in them binds."""
    found: set[str] = set()
    for python in script.pythons:
        bound = set(dir(builtins)) | {"__file__", "__name__"}
        used: set[str] = set()
        for node in ast.walk(python.source.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                bound |= {(one.asname or one.name).partition(".")[0] for one in node.names}
            elif isinstance(node, ast.Name):
                (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                bound.add(node.name)
            elif isinstance(node, ast.arg):
                bound.add(node.arg)
            elif isinstance(node, ast.ExceptHandler | ast.MatchAs) and node.name:
                bound.add(node.name)
        found |= set() if "*" in bound else used - bound
    return found


def read(trainer: dict[str, Any]) -> Script:
    command, args = ([str(item) for item in trainer.get(field) or ()] for field in ("command", "args"))
    return read_script(command, args, {}, Launch(pods=2, directories=("/mnt/ckpt/llm",), variable="CKPT_DIR"))


def every_case() -> list[Path]:
    found = [path for rule in PROGRAM for path in (FOLDER / rule).glob("*.yaml")]
    return sorted(path for path in found if not path.name.endswith(".old.yaml"))


@each_case(every_case())
def test_what_is_pasted_parses_and_has_its_names(path: Path) -> None:
    """Each fix that is lines of the program, of whatever rule the case draws: Python and shell stay what they are."""
    documents = list(fast_yaml.safe_load_all(path.read_text()))
    jobs = [document for document in documents if document["kind"] == "TrainJob"]
    trainer = (jobs[-1]["spec"].get("trainer") or {}) if jobs else {}
    for finding in findings(path, documents) if trainer else ():
        item = ITEM.search(finding.at.field)
        if item is None or not isinstance(finding.lines, Lines) or item[1] not in trainer:
            continue
        fixed = copy.deepcopy(trainer)
        fixed[item[1]][int(item[2])] = finding.lines.paste(fixed[item[1]][int(item[2])])
        before, after = read(trainer), read(fixed)
        assert after.unread == before.unread, finding.fix
        assert len(after.pythons) == len(before.pythons), finding.fix
        assert any(shell.faults for shell in after.shells) is any(shell.faults for shell in before.shells), finding.fix
        assert unbound(after) <= unbound(before), finding.fix
