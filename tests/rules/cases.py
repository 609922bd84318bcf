"""Runs one case of a rule: a self-contained YAML file, judged by the whole engine.

The first line may hold options: ``# ckptguard: --trainer 2.1 --old other.old.yaml --dry-run --user NAME --only NAME``.
``--old`` is beside the case and holds the objects as they were; ``--only`` judges the object of that name alone.
Our own defaults are not applied: a case shows what the rule says of the object as it stands.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.together import together
from webhook.cluster.documents import Document
from webhook.cluster.file_view import FileView
from webhook.cluster.files import load_files
from webhook.decision import review_object
from webhook.message import block, warning_line
from webhook.model.finding import Judged, Severity
from webhook.model.names import KINDS
from webhook.model.policy import Policy
from webhook.model.release import Release, infer_release, parse_release
from webhook.model.request import Request

FOLDER = Path(__file__).parent
MARK = "# ckptguard:"
VERDICTS = ("deny", "warn", "audit", "allow")
WEIGHT = {Severity.DENY: 2, Severity.WARN: 1, Severity.AUDIT: 0}


def case_files() -> list[Path]:
    """Every case of every rule."""
    return sorted(path for path in FOLDER.glob("*/*.yaml") if not path.name.endswith(".old.yaml"))


def each_case(
    paths: Iterable[Path] | None = None,
) -> Callable[[Callable[[Path], None]], Callable[[list[Path]], None]]:
    """Makes of a check of one case a test for each rule that has cases (all, or those of ``paths``)."""
    return together(case_files() if paths is None else paths, lambda path: path.parent.name, lambda path: path.stem)


@cache
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--trainer", type=parse_release)
    parser.add_argument("--old")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--kueue", action="store_true", help="the cluster serves Kueue")
    parser.add_argument("--user", default="")
    parser.add_argument("--only")
    parser.add_argument("--named", action="store_true", help="the policy names the rule, which is asked only then")
    return parser


@cache
def options_of(path: Path) -> argparse.Namespace:
    """The options of the case's first line; shared, so never change them."""
    with path.open() as text:
        first = text.readline().rstrip("\n")
    return _parser().parse_args(shlex.split(first.removeprefix(MARK)) if first.startswith(MARK) else [])


@cache
def run_case(path: Path) -> tuple[list[tuple[str, Judged]], tuple[str, ...]]:
    """The findings of the rule whose folder the case is in, each with the label of its object, and rules that broke."""
    return run_documents(path, documents_of(path))


def run_documents(
    path: Path, documents: list[Document], served: Release | None = None, every: bool = False
) -> tuple[list[tuple[str, Judged]], tuple[str, ...]]:
    """The same for documents that stand for the case's own, on a release of one's choice; of ``every`` rule."""
    options = options_of(path)
    before = documents_of(path.parent / options.old) if options.old else []
    found: list[tuple[str, Judged]] = []
    broken: list[str] = []
    for document in documents:
        if document.kind not in KINDS or options.only not in (None, document.name):
            continue
        release = served or options.trainer or infer_release(document.object.get("spec"))
        view = FileView(documents, release)
        view.kueue = options.kueue or None
        decision = review_object(_request(document, before, options), view, _policy(path, options), release)
        broken += decision.broken
        found += [
            (document.label, finding) for finding in decision.findings if every or finding.rule == path.parent.name
        ]
    return found, tuple(broken)


def _policy(path: Path, options: argparse.Namespace) -> Policy:
    return Policy(rules={path.parent.name: "warn"}) if options.named else Policy()


def outcome(found: list[tuple[str, Judged]]) -> str:
    """``deny``, ``warn``, ``audit`` or ``allow``, whichever weighs most."""
    severities = [finding.severity for _, finding in found]
    return max(severities, key=WEIGHT.__getitem__).value if severities else "allow"


def golden_text(found: list[tuple[str, Judged]]) -> str:
    """What a person reads of this rule alone: the warning line and the block, object by object."""
    return "\n".join(_texts(found)) + "\n"


def _texts(found: list[tuple[str, Judged]]) -> Iterator[str]:
    last = None
    for label, finding in found:
        if label != last:
            yield f"== {label}"
            last = label
        yield warning_line(finding)
        yield from block(finding, label)


@cache
def documents_of(path: Path) -> list[Document]:
    """The documents of a file; shared, so never change them."""
    loaded = load_files([str(path)])
    assert not loaded.errors, [str(error) for error in loaded.errors]
    return loaded.documents


def _request(document: Document, before: list[Document], options: argparse.Namespace) -> Request:
    old = next((other.object for other in before if other.key == document.key), None)
    # The API server gives a ClusterTrainingRuntime no namespace; our files put what names none into "default".
    namespace = "" if document.kind == "ClusterTrainingRuntime" else document.namespace
    return Request(
        "CREATE" if old is None else "UPDATE",
        document.kind,
        namespace,
        document.name,
        document.object,
        old,
        user=options.user,
        dry_run=options.dry_run,
    )
