"""A loop that begins where a checkpoint ends: the lines from the load to its header, in the program's own words."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

from webhook.model.script import Lines
from webhook.programs.pasted import LONGEST, statement_of, with_import
from webhook.programs.python import Call, Python

_SHOWN: Final = 8
"""Lines that a message shows whole."""
_RANGES: Final = ("range", "trange")


def begun_at(python: Python, load: Call, loop: ast.For | ast.While, read: str, *modules: str) -> str:
    """``first = 0`` before the load, ``first = READ`` behind it, and ``range(first, n)`` in the loop's header; ``""``
    where load and loop do not stand in one block, or lines between them cannot be written again as they are."""
    ranged = _range_of(python, loop)
    own = statement_of(python, load.node)
    beside = _beside(python, load, loop)
    if ranged is None or own is None or beside is None:
        return ""
    lines = python.source.lines
    header = lines[loop.lineno - 1]
    if not header.isascii() or ranged.end_lineno != loop.lineno or not _is_alone(lines, own):
        return ""
    taken = {name for _, name in python.source.bindings}
    name = "first" if "first" not in taken else "first_step"
    end, begin = python.source.source(ranged.args[-1]), "0"
    if len(ranged.args) == 2:
        begin = python.source.source(ranged.args[0])
    last = own.end_lineno or own.lineno
    inner = _indent(lines[own.lineno - 1])
    put = f"{inner}{name} = {read}"
    mended = f"{header[: ranged.col_offset]}{python.text(ranged.func)}({name}, {end}){header[ranged.end_col_offset :]}"
    whole = [*lines[beside.lineno - 1 : last], put, *lines[last : loop.lineno - 1], mended]
    indent = _indent(lines[beside.lineno - 1])
    if indent != _indent(header) or any(_is_bound_to_its_place(line, indent) for line in whole):
        return ""
    if beside is not own:
        whole = [f"{indent}{name} = {begin}", *whole]
    text = "\n".join(line[len(indent) :] for line in whole)
    base = max(python.place.line, 1) - 1
    shown = text
    if len(whole) > _SHOWN or any(len(line) > LONGEST for line in whole):
        first = f"{name} = {begin}    # before line {base + beside.lineno}\n" if beside is not own else ""
        at = f"    # line {base + loop.lineno}"
        shown = f"{first}{put.strip()}    # behind line {base + last}\n{mended.strip()[:LONGEST]}{at}"
    fix = Lines(shown, base + beside.lineno, base + loop.lineno, whole=text)
    return with_import(python, fix, *modules)


def _range_of(python: Python, loop: ast.For | ast.While) -> ast.Call | None:
    """``range(n)`` of the header, also below ``tqdm(...)``; one that has a step is none."""
    node = loop.iter if isinstance(loop, ast.For) else None
    for _ in range(2):
        if not isinstance(node, ast.Call) or not node.args:
            return None
        if python.source.dotted(node.func)[0].rpartition(".")[2] in _RANGES:
            return node if len(node.args) < 3 and not node.keywords else None
        node = node.args[0] if isinstance(node.args[0], ast.Call) else None
    return None


def _beside(python: Python, load: Call, loop: ast.For | ast.While) -> ast.stmt | None:
    """The statement of the loop's own block that holds the load, before the loop."""
    for block in _blocks(python.source.tree):
        if loop in block:
            return next(
                (one for one in block if one.lineno <= load.line <= (one.end_lineno or 0) and one.lineno < loop.lineno),
                None,
            )
    return None


def _blocks(tree: ast.AST) -> list[Sequence[ast.stmt]]:
    found: list[Sequence[ast.stmt]] = []
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and any(isinstance(one, ast.For | ast.While) for one in block):
                found.append(block)
    return found


def _is_alone(lines: Sequence[str], own: ast.stmt) -> bool:
    """Whether nothing else stands in the lines of a statement."""
    before = lines[own.lineno - 1].encode()[: own.col_offset].strip()
    behind = lines[(own.end_lineno or own.lineno) - 1].encode()[own.end_col_offset or 0 :].strip()
    return isinstance(own, ast.Expr | ast.Assign | ast.AnnAssign) and not before and not behind


def _is_bound_to_its_place(line: str, indent: str) -> bool:
    """A remark would be lost, and a line of a longer text that begins before the block would not."""
    return bool(line.strip()) and (not line.startswith(indent) or line.lstrip().startswith("#"))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
