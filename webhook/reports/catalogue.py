"""The catalogue of rules, taken from the rules themselves: their ids, severities and docstrings.

A rule's docstring is its page. It begins with the bad pattern in one sentence and has sections that start at the left
edge: ``Symptom:`` (what one sees when it has happened), ``Fix:``, ``Bad:`` and ``Good:`` (YAML), and, for readers of
the code, ``Reads:``, ``Silent when:`` and ``Source:``.

``python -m webhook.reports.catalogue docs/rules.md README.md`` writes the generated parts of the documentation.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module

from msgspec import Struct

from webhook.model.finding import Severity
from webhook.model.nearest import distance, near, nearest

BEGIN = "<!-- rules: written by python -m webhook.reports.catalogue -->"
END = "<!-- end of rules -->"
_SECTIONS = ("Symptom", "Fix", "Bad", "Good", "Reads", "Silent when", "Source")


class Entry(Struct, frozen=True):
    """One rule as the catalogue shows it; ``bad`` and ``good`` are YAML. A part that nobody wrote is ``""``."""

    id: str
    severity: Severity
    title: str
    why: str
    detail: str = ""
    symptom: str = ""
    fix: str = ""
    bad: str = ""
    good: str = ""
    silent: str = ""


_WITHOUT_A_RULE: tuple[tuple[str, Severity, str, str], ...] = (
    (
        "immutable-default",
        Severity.WARN,
        "the API server refuses the update, and with it the restart budget stays as it is",
        """An UPDATE changes a failurePolicy that Checkpoint Guard had filled in, and that field is immutable.

Symptom: kubectl apply of the runtime is refused with "field is immutable".
Fix: delete the runtime and create it with the failurePolicy that you want, once no unfinished TrainJob uses it.
Bad:
    failurePolicy: {maxRestarts: 10}    # stored: {maxRestarts: 3}
Good:
    failurePolicy: {maxRestarts: 3}     # as stored, until the runtime is created anew
""",
    ),
    (
        "malformed-object",
        Severity.WARN,
        "what cannot be read cannot be judged, so nothing is known about a resume",
        """A field of the object has the wrong type, so the object was not judged.

Symptom: the API server refuses the object, naming the same field.
Fix: give the field the type that kubectl explain shows.
Bad:
    volumes: ckpt
Good:
    volumes:
    - name: ckpt
      persistentVolumeClaim: {claimName: train-ckpt}
""",
    ),
    (
        "broken-rule",
        Severity.WARN,
        "a fault that this rule would have found goes unseen",
        """A rule of Checkpoint Guard itself failed on this object; the other rules were applied.

Symptom: a warning that names the rule and the error.
Fix: report it together with the object; it is a fault of Checkpoint Guard, not of the object.
Bad:
    # nothing in the object is known to be wrong
Good:
    # nothing to change
""",
    ),
    (
        "expired-exception",
        Severity.WARN,
        "the excused rules apply again",
        """An exception for this object, in the policy or a CheckpointException, has passed its end, or soon will.

Symptom: an object that was let in is refused from one day to the next.
Fix: mend the object, or ask the owner of the exception for a new end date.
Bad:
    exceptions:
    - {rules: [node-local-checkpoint], reason: scratch benchmarks, owner: team-a, until: 2020-01-31}
Good:
    exceptions:
    - {rules: [node-local-checkpoint], reason: scratch benchmarks, owner: team-a, until: 2030-01-31}
""",
    ),
    (
        "void-exception",
        Severity.WARN,
        "what it was meant to excuse counts",
        """An exception excuses nothing: a line of annotation checkpoint-guard.io/allow, or a CheckpointException.

Symptom: an object is refused although an exception seems to excuse it.
Fix: write <rule>: <reason>; until <day> with a rule of the policy's selfService, at most its maxDays ahead. A
CheckpointException ends at most limits.exceptionDays ahead. Where exceptions could not be read, let the guard do it.
Bad:
    checkpoint-guard.io/allow: short-grace
Good:
    checkpoint-guard.io/allow: "short-grace: ends within seconds; until 2030-01-31"
""",
    ),
)
"""Ids that findings carry without a rule file: id, severity, why, page."""


def entries() -> tuple[Entry, ...]:
    """All rules, in the order of reports, then the ids that have no rule of their own."""
    from webhook.rules import RULES

    known = {rule.id for rule in RULES}
    modules = ((rule, import_module(rule.check.__module__)) for rule in RULES)
    rules = (_entry(rule.id, rule.severity, module.RULE.why, module.__doc__) for rule, module in modules)
    others = (_entry(*given) for given in _WITHOUT_A_RULE if given[0] not in known)
    return (*rules, *others)


def find(rule: str, among: Sequence[Entry]) -> Entry | None:
    """The rule of that id."""
    return next((entry for entry in among if entry.id == rule), None)


def close_to(rule: str, among: Sequence[Entry]) -> list[str]:
    """Up to three ids that were probably meant.

    Those that share a word with it; else those whose page says it ("emptydir"); else the one with the fewest edits.
    """
    wanted = rule.strip().lower().replace("_", "-")[:64]
    ordered = nearest(wanted, (entry.id for entry in among))
    words = {word for word in wanted.split("-") if len(word) > 2}
    alike = [known for known in ordered if words & set(known.split("-"))]
    if not alike and len(wanted) > 3 and distance(wanted, ordered[0]) * 2 > len(wanted):
        speak = [entry.id for entry in among if wanted in "\n".join(page(entry)).lower()]
        if speak:
            return speak[:3]
    close = near(wanted, ordered)
    return list(dict.fromkeys((*((close,) if close else ()), *alike)))[:3]


def as_json(among: Sequence[Entry]) -> str:
    """The rules for a program: id, default severity, and the parts of the page."""
    from webhook.reports.json import SCHEMA, encode

    fields = ("title", "detail", "symptom", "why", "fix", "bad", "good", "silent")
    rows = [
        {"id": one.id, "severity": one.severity.value, **{field: getattr(one, field) for field in fields}}
        for one in among
    ]
    return encode({"schema": SCHEMA, "results": rows})


def table(among: Sequence[Entry]) -> list[str]:
    """One line a rule: id, severity, the bad pattern."""
    width = max(len(entry.id) for entry in among)
    return [f"{entry.id:<{width}}  {entry.severity.value:<5}  {entry.title}" for entry in among]


def page(entry: Entry) -> Iterator[str]:
    """One rule's page for a terminal."""
    yield f"{entry.id} ({entry.severity.value})"
    yield ""
    yield from entry.title.split("\n")
    if entry.detail:
        yield ""
        yield from entry.detail.split("\n")
    yield ""
    for name, text in (
        ("symptom", entry.symptom),
        ("why", entry.why),
        ("fix", entry.fix),
        ("silent when", entry.silent),
    ):
        if text:
            first, *rest = text.split("\n")
            yield f"{name}: {first}"
            yield from (f"  {line}" for line in rest)
    for name, text in (("bad", entry.bad), ("good", entry.good)):
        if text:
            yield ""
            yield f"{name}:"
            yield from (f"  {line}".rstrip() for line in text.split("\n"))


_MET_FIRST = frozenset(
    (
        "ephemeral-checkpoint",
        "node-local-checkpoint",
        "missing-claim",
        "claim-not-shared",
        "per-attempt-directory",
        "unknown-override-target",
        "no-restart-budget",
        "never-resumed",
        "exit-status-lost",
        "sigterm-not-forwarded",
    )
)
"""The rules that the README shows: what most people meet first."""


def markdown_table(among: Sequence[Entry]) -> str:
    """The table of the README: ten rules; the others are in docs/rules.md."""
    rows = [
        f"| [`{entry.id}`](docs/rules.md#{entry.id}) | {entry.severity.value} | {_cell(entry.title)} |"
        for entry in among
        if entry.id in _MET_FIRST
    ]
    return "\n".join(["| rule | default | what is wrong |", "|---|---|---|", *rows])


def markdown_pages(among: Sequence[Entry]) -> str:
    """The whole of docs/rules.md."""
    out = [
        "# Rules",
        "",
        f"{BEGIN}",
        "",
        "What each rule finds, what is lost, and what to write instead; `ckptguard rules ID` prints the same.",
        "`deny`, `warn` and `audit` are the defaults; a policy sets each rule to `deny`, `warn`, `audit` or `off`.",
    ]
    for entry in among:
        out += ["", f"## {entry.id}", "", f"Default: **{entry.severity.value}**. {_sentence(entry.title)}"]
        if entry.detail:
            out += ["", entry.detail]
        out.append("")
        for name, text in (
            ("Symptom", entry.symptom),
            ("Why", entry.why),
            ("Fix", entry.fix),
            ("Silent when", entry.silent),
        ):
            if text:
                out.append(f"- {name}: {' '.join(text.split())}")
        for name, text in (("Bad", entry.bad), ("Good", entry.good)):
            if text:
                out += ["", f"{name}:", "", "```yaml", text, "```"]
    out += ["", END, ""]
    return "\n".join(out)


def insert_table(document: str, among: Sequence[Entry]) -> str:
    """The document with its part between the two markers written anew. Raises ValueError where a marker is missing."""
    head, found, rest = document.partition(BEGIN)
    _, closed, tail = rest.partition(END)
    if not (found and closed):
        raise ValueError("no markers for the rules table")
    return f"{head}{BEGIN}\n{markdown_table(among)}\n{END}{tail}"


def _entry(rule: str, severity: Severity, why: str, doc: str | None) -> Entry:
    sections = _sections(doc or "")
    title, _, detail = sections.get("", why).partition("\n\n")
    return Entry(
        id=rule,
        severity=severity,
        title=" ".join(title.split()).removesuffix("."),
        why=why,
        detail=detail,
        symptom=sections.get("Symptom", ""),
        fix=sections.get("Fix", ""),
        bad=sections.get("Bad", ""),
        good=sections.get("Good", ""),
        silent=sections.get("Silent when", ""),
    )


def _sections(doc: str) -> dict[str, str]:
    """A docstring's sections by name, without indentation; ``""`` is what stands before the first."""
    parts: dict[str, list[str]] = {"": []}
    current = parts[""]
    for line in doc.strip().splitlines():
        name, colon, rest = line.partition(":")
        if colon and name in _SECTIONS:
            current = parts.setdefault(name, [])
            if rest.strip():
                current.append(rest.strip())
        else:
            current.append(line.rstrip())
    return {name: _dedented(lines) for name, lines in parts.items()}


def _dedented(lines: list[str]) -> str:
    """Lines without the indentation that all but the first share (the first may follow the section's name)."""
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip() and line[0] == " "]
    cut = min(indents, default=0)
    return "\n".join(line[cut:] if line[:1] == " " else line for line in lines).strip("\n")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def write(rules_page: str, readme: str) -> None:
    """Write docs/rules.md whole and the table into the README."""
    from pathlib import Path

    among = entries()
    Path(rules_page).write_text(markdown_pages(among), encoding="utf-8")
    document = Path(readme).read_text(encoding="utf-8")
    Path(readme).write_text(insert_table(document, among), encoding="utf-8")


if __name__ == "__main__":
    write(*sys.argv[1:])
