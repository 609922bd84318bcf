"""A program without a cluster: what the rules say of a text that somebody trains with, wherever it runs.

``read_alone`` reads a command and the files that it starts; ``judge_alone`` asks every rule about programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from webhook.model.files import Files
from webhook.model.finding import Judged, Origin, Severity, broken_rule
from webhook.model.nearest import near
from webhook.model.script import Launch, Lines, Place, Remark
from webhook.programs import held
from webhook.programs.flow import loop_learns
from webhook.programs.frameworks import directory_of, find_calls, find_uses
from webhook.programs.names import saves
from webhook.programs.program import Script
from webhook.programs.reading import read_script
from webhook.programs.rules import PROGRAM_RULES, program_rule

KIND: Final = "Program"
_ADDRESS: Final = "ephemeral-checkpoint"
"""The one rule about storage that a program shows by itself: an address that is taken for a path."""
KNOWN: Final = (*PROGRAM_RULES, _ADDRESS)
"""The rules that may speak of a program alone."""
_WEIGHT: Final = {Severity.DENY: 0, Severity.WARN: 1, Severity.AUDIT: 2}
_LIGHTER: Final = {"deny": Severity.DENY, "warn": Severity.WARN, "audit": Severity.AUDIT}


def read_alone(
    command: Sequence[Any],
    files: Mapping[str, str],
    launch: Launch,
    variables: Mapping[str, str] | None = None,
    reach: Files | None = None,
) -> Script:
    """What a command starts. ``files`` are texts by path; a word that is not known is an ``Unknown``. ``reach`` gives
    the modules that a program imports from beside it.

    A place in a file has that file's path as its field.
    """
    texts = {path: (text, Place(path, 0, 1)) for path, text in files.items()}
    return read_script(command, (), variables or {}, launch, texts, reach)


def trains(script: Script) -> bool:
    """Whether it reads as a program that trains, or could not be read to tell."""
    if script.unread or find_uses(script):
        return True
    return any(loop_learns(python) for python in script.pythons) and bool(saves(script) or find_calls(script))


def written_to(script: Script) -> str | None:
    """The directory that its checkpoints go to, where the text names one whole."""
    found = directory_of(script)
    return None if found is None else found.directory


def judge_alone(script: Script, own: str, settings: Mapping[str, str]) -> tuple[Judged, ...]:
    """What the rules say, by severity and then in their order. Never raises.

    ``own`` is the path that the program is called by; ``settings`` are the rules as policy has them (``off``).
    """
    found: list[tuple[int, int, Judged]] = []
    known: set[tuple[str, Place, str]] = set()
    held.begin()
    try:
        for order, rule_id in enumerate(PROGRAM_RULES):
            setting = settings.get(rule_id)
            if setting == "off":
                continue
            try:
                rule = program_rule(rule_id)
                severity = _LIGHTER[setting] if setting is not None else rule.severity
                for remark in rule.look(script):
                    key = (rule_id, remark.place, remark.problem)
                    if key not in known:
                        known.add(key)
                        one = _judged(rule_id, _capped(severity, remark), remark, rule.why, own)
                        found.append((_WEIGHT[one.severity], order, one))
            except Exception as error:
                name = type(error).__name__
                broken = broken_rule(
                    f"{KIND}/{own}", rule_id, f"{rule_id} failed on it: {name}", "it was not looked at"
                )
                found.append((_WEIGHT[broken.severity], order, broken))
        if settings.get(_ADDRESS) != "off" and (taken := _taken_for_a_path(script, own)) is not None:
            found.append((_WEIGHT[taken.severity], -1, taken))
    finally:
        held.end()
    found.sort(key=lambda entry: entry[:2])
    return tuple(one for _, _, one in found)


def _taken_for_a_path(script: Script, own: str) -> Judged | None:
    """An address (``s3://...``) that the writer takes for a directory of this machine."""
    written = directory_of(script)
    if written is None or not written.local:
        return None
    remark = Remark(
        written.place,
        f'{written.local} takes "{written.directory}" for a path: nothing is ever in the store',
        f"# {written.name}: a directory that outlives the run; from there a process of its own may upload",
        subject="address",
    )
    return _judged(
        _ADDRESS, Severity.WARN, remark, "a restart elsewhere finds an empty store and begins at step 0", own
    )


def _capped(severity: Severity, remark: Remark) -> Severity:
    cap = remark.at_most
    return cap if cap is not None and _WEIGHT[cap] > _WEIGHT[severity] else severity


def _judged(rule: str, severity: Severity, remark: Remark, why: str, own: str) -> Judged:
    place = remark.place
    line = f"line {place.line}" if place.line else ""
    file = own if place.field == "command" else place.field
    short = "--command" if place.field == "command" else line
    return Judged(
        rule,
        severity,
        Origin(f"{KIND}/{file}", short, short),
        remark.problem,
        remark.why or why,
        remark.fix,
        subject=remark.subject,
        lines=remark.fix if isinstance(remark.fix, Lines) else None,
    )


class Ignored(Struct, frozen=True):
    """``# ckptguard: ignore[rule] reason`` in line ``line``; ``alone``: nothing else stands in that line."""

    line: int
    rules: tuple[str, ...]
    reason: str
    alone: bool


class WrongComment(Struct, frozen=True):
    """An ignore comment that is refused, and why."""

    line: int
    message: str


_COMMENT: Final = re.compile(r"(?:^|(?<=\s))#\s*ckptguard\s*:\s*ignore\b[ \t]*(\[[^\]\n]*\])?[ \t]*(.*)$")
_WORD: Final = "ckptguard"


def ignored_in(text: str, python: bool) -> tuple[list[Ignored], list[WrongComment]]:
    """The ignore comments of a text, and those that are refused: without a rule or a reason, or for no rule of ours."""
    found: list[Ignored] = []
    wrong: list[WrongComment] = []
    if _WORD not in text:
        return found, wrong
    for line, comment, alone in _comments(text, python):
        match = _COMMENT.search(comment)
        if match is None:
            continue
        names = tuple(name.strip() for name in (match[1] or "").strip("[]").split(",") if name.strip())
        reason = match[2].strip(" \t:-")
        fault = _fault(names, reason)
        if fault:
            wrong.append(WrongComment(line, fault))
        else:
            found.append(Ignored(line, names, reason, alone))
    return found, wrong


def _fault(names: Sequence[str], reason: str) -> str:
    if not names:
        return "the ignore comment names no rule: # ckptguard: ignore[never-resumed] why it may stay"
    for name in names:
        if name not in KNOWN:
            close = near(name, KNOWN)
            return f'the ignore comment names "{name}", which is no rule about programs' + (
                f"; nearest: {close}" if close else "; see ckptguard rules"
            )
    if not reason:
        return f"the ignore comment gives no reason: # ckptguard: ignore[{', '.join(names)}] why it may stay"
    return ""


def _comments(text: str, python: bool) -> Iterator[tuple[int, str, bool]]:
    """Line, comment, and whether nothing stands before it. What looks like one in a string of Python is none."""
    lines = text.split("\n")
    marked = [number for number, line in enumerate(lines, 1) if _WORD in line]
    real: dict[int, str] | None = None
    if python and any(_COMMENT.search(lines[number - 1]) for number in marked):
        real = _tokenized(text)
    for number in marked:
        line = lines[number - 1]
        comment = line if real is None else real.get(number, "")
        if comment:
            yield number, comment, line.lstrip().startswith("#")


def _tokenized(text: str) -> dict[int, str] | None:
    from tokenize import COMMENT, TokenError, generate_tokens

    lines = iter(text.splitlines(keepends=True))
    found: dict[int, str] = {}
    try:
        for token in generate_tokens(lambda: next(lines, "")):
            if token.type == COMMENT:
                found[token.start[0]] = token.string
    except (TokenError, SyntaxError):
        return None
    return found


def spans_of(script: Script, path: str) -> dict[int, tuple[int, int]]:
    """Line -> first and last line of the statement of Python that stands there, of those that take several lines."""
    import ast

    spans: dict[int, tuple[int, int]] = {}
    for python in script.pythons:
        if python.place.field != path:
            continue
        for node in ast.walk(python.source.tree):
            if isinstance(node, ast.stmt):
                body = getattr(node, "body", None)
                end = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
                for line in range(node.lineno, min(max(end, node.lineno), node.lineno + 200) + 1):
                    spans[line] = (node.lineno, max(end, node.lineno))
    return spans


def reason_for(
    rule: str, line: int, comments: Sequence[Ignored], spans: Mapping[int, tuple[int, int]], lines: Sequence[str]
) -> str:
    """The reason of the comment that ignores a finding of ``rule`` in ``line``; empty where there is none.

    It stands in that line or elsewhere in its statement, or in a line of its own above; for a finding about the whole
    program (line 0) among the comments that the file begins with.
    """
    first, last = spans.get(line, (line, line))
    top = first - 1
    while top > 0 and lines[top - 1].lstrip().startswith("#"):
        top -= 1
    head = 0
    while line == 0 and head < len(lines) and (not lines[head].strip() or lines[head].lstrip().startswith("#")):
        head += 1
    for comment in comments:
        if rule not in comment.rules:
            continue
        if line == 0:
            if comment.line <= head:
                return comment.reason
        elif first <= comment.line <= last or (comment.alone and top < comment.line < first):
            return comment.reason
    return ""
