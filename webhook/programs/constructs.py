"""What surrounds a node of a Python text, what gives a name its value, and a call with both."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from webhook.programs.parsed import Source

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Around:
    """A construct that a node stands in, linked outwards.

    ``kind``: ``function``, ``class``, ``lambda``, ``for``, ``while``, ``if`` (``branch`` says which way of ``test``),
    ``try``, ``except``, ``finally``, ``with``, ``comprehension``.
    """

    __slots__ = ("branch", "kind", "node", "outer", "scope", "test")

    def __init__(
        self,
        kind: str,
        node: Any,
        outer: Around | None,
        test: ast.expr | None = None,
        branch: bool = True,
    ) -> None:
        self.kind = kind
        self.node = node
        self.outer = outer
        self.test = test
        self.branch = branch
        self.scope: Around | None = (
            self if kind in ("function", "lambda") else (outer.scope if outer is not None else None)
        )

    def outwards(self) -> Iterator[Around]:
        here: Around | None = self
        while here is not None:
            yield here
            here = here.outer


class Binding(Struct, frozen=True):
    """One place that gives a name its value. ``value`` is None for what has none to follow (a loop, a parameter).

    ``whole`` is what is taken apart where several names are given their values at once, ``index`` which of them it is.
    """

    line: int
    value: Any
    how: str
    around: Any
    whole: Any = None
    index: int = 0


class Call:
    """One call.

    ``name`` is dotted, imports resolved (``torch.save``, ``transformers.Trainer``); for a method of something that is
    not an import it is the dotted text as written (``trainer.train``, ``self.model.save``), or ``().train`` on a call.
    ``attr`` is its last part.
    """

    __slots__ = ("around", "attr", "imported", "line", "name", "node", "program")

    def __init__(self, program: Source, node: ast.Call, around: Around | None) -> None:
        self.program = program
        self.node = node
        self.around = around
        self.line = node.lineno
        self.name, self.imported = program.dotted(node.func)
        self.attr = self.name.rpartition(".")[2]

    @property
    def receiver(self) -> ast.expr | None:
        """``x`` of ``x.train()``."""
        return self.node.func.value if isinstance(self.node.func, ast.Attribute) else None

    @property
    def function(self) -> str | None:
        """The name of the innermost function that it stands in."""
        scope = self.around.scope if self.around is not None else None
        return getattr(scope.node, "name", "<lambda>") if scope is not None else None

    def inside(self, *kinds: str) -> bool:
        """Whether it stands in such a construct of its own function (or, without one, of the module)."""
        here = self.around
        while here is not None and here.kind not in ("function", "lambda"):
            if here.kind in kinds:
                return True
            here = here.outer
        return False

    def guards(self) -> Iterator[tuple[ast.expr, bool]]:
        """The conditions that it stands under, from the inside out, functions passed: test and which way."""
        here = self.around
        while here is not None:
            if here.kind == "if" and here.test is not None:
                yield here.test, here.branch
            here = here.outer

    def argument(self, name: str, position: int | None = None) -> ast.expr | None:
        """The node of a keyword argument, else of the one at ``position``; None where neither is given."""
        for keyword in self.node.keywords:
            if keyword.arg == name:
                return keyword.value
        if position is not None and position < len(self.node.args):
            given = self.node.args[: position + 1]
            if not any(isinstance(one, ast.Starred) for one in given):
                return given[position]
        return None

    @property
    def open_ended(self) -> bool:
        """``*args`` or ``**kwargs`` may hold arguments that are not seen."""
        return any(keyword.arg is None for keyword in self.node.keywords) or any(
            isinstance(argument, ast.Starred) for argument in self.node.args
        )
