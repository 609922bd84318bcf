"""Python text as facts: its calls, what surrounds each, and the values of their arguments as far as the text says.

``Source`` is what depends on the text alone; it is parsed once and shared. ``Python`` is a source in one container:
with its variables. Nothing here recurses deeper than ``_FOLLOWED``; ``ast`` has bounds of its own, and its faults are
caught.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from webhook.model.script import Place
from webhook.programs.shell import HIDDEN, NotRead
from webhook.programs.values import UNKNOWN, Text, Unknown, Value, is_known, join, join_path, shown

LONGEST: Final = 32768
DEEPEST: Final = 200
_MOST: Final = 1000
"""Semicolons of one text: Python has next to none."""
_BINDINGS: Final = 64
"""Assignments to one name that are followed; no program gives its directory a value more often."""
_FOLLOWED: Final = 16
"""Steps from a name to what it stands for."""

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
    """One place that gives a name its value. ``value`` is None for what has none to follow (a loop, a parameter)."""

    line: int
    value: Any
    how: str
    around: Any


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


class Source:
    """What one Python text says by itself. Raises ``NotRead`` where it cannot be parsed within the bounds."""

    __slots__ = (
        "bindings",
        "by_attr",
        "calls",
        "classes",
        "commented",
        "functions",
        "globals",
        "imports",
        "lines",
        "modules",
        "names",
        "picks",
        "repeated",
        "returns",
        "stars",
        "statements",
        "text",
        "tree",
    )

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise NotRead(f"it is longer than {LONGEST // 1024} KiB")
        if text.count(";") > _MOST:
            raise NotRead("it has too many statements on a line to be read in time")
        self.text = text
        self.imports: dict[str, str] = {}
        """Local name -> dotted name."""
        self.modules: set[str] = set()
        """Top-level packages that it imports."""
        self.stars = False
        self.bindings: dict[tuple[int, str], list[Binding]] = {}
        """(id of the scope's node or 0, name) -> what gives it a value, in order."""
        self.calls: list[Call] = []
        self.by_attr: dict[str, list[Call]] = {}
        self.functions: dict[str, Function] = {}
        self.repeated: set[str] = set()
        """Names of functions that are defined more than once."""
        self.classes: dict[str, ast.ClassDef] = {}
        self.returns: dict[int, list[tuple[ast.expr, Around | None]]] = {}
        """id of a function's node -> what it returns."""
        self.statements: list[tuple[ast.stmt, Around | None]] = []
        """``with``, ``for``, ``del``, ``assert``, ``raise``, subscript and attribute assignments: what is no call."""
        self.picks: list[tuple[ast.Subscript, Around | None]] = []
        """``x[0]``, ``x[-1]``: one item taken by its number."""
        self.names: set[str] = set()
        """Names of environment variables that it reads."""
        self.globals: set[str] = set()
        self.lines = text.split("\n")
        self.commented: str | None = None
        self.tree = _parse(text)
        self._walk(self.tree)
        for call in self.calls:
            self.by_attr.setdefault(call.attr, []).append(call)

    @property
    def code(self) -> str:
        """The text without the lines that are a comment: what is commented out is not done."""
        if self.commented is None:
            self.commented = "\n".join(line for line in self.lines if not line.lstrip().startswith("#"))
        return self.commented

    def calls_of(self, name: str, method: bool) -> list[Call]:
        """The calls of a function or class of this text by its bare name, or of a method on anything but an import."""
        return [
            call
            for call in self.by_attr.get(name, ())
            if not call.imported and isinstance(call.node.func, ast.Attribute if method else ast.Name)
        ]

    def line(self, number: int) -> str:
        """One line as written, for a message."""
        return shown(self.lines[number - 1]) if 0 < number <= len(self.lines) else ""

    def source(self, node: ast.AST) -> str:
        """A node's own text, on one line; ``""`` where it is not to be had."""
        start, end = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
        if not start or not end:
            return ""
        lines = self.lines[start - 1 : end]
        if not lines:
            return ""
        # Offsets are of UTF-8 bytes.
        raw = [line.encode() for line in lines] if not self.text.isascii() else None
        if raw is not None:
            raw[-1] = raw[-1][: node.end_col_offset]  # type: ignore[attr-defined]
            raw[0] = raw[0][node.col_offset :]  # type: ignore[attr-defined]
            return " ".join(part.decode("utf-8", "replace").strip() for part in raw)
        if len(lines) == 1:
            return lines[0][node.col_offset : node.end_col_offset]  # type: ignore[attr-defined]
        lines[-1] = lines[-1][: node.end_col_offset]  # type: ignore[attr-defined]
        lines[0] = lines[0][node.col_offset :]  # type: ignore[attr-defined]
        return " ".join(line.strip() for line in lines)

    def dotted(self, node: ast.expr) -> tuple[str, bool]:
        """A name or attribute chain with imports resolved, and whether its root is an import."""
        parts: list[str] = []
        here: ast.expr = node
        while isinstance(here, ast.Attribute):
            parts.append(here.attr)
            here = here.value
            if len(parts) > DEEPEST:
                return "", False
        if isinstance(here, ast.Name):
            root = self.imports.get(here.id)
            if root is not None:
                return ".".join((root, *reversed(parts))), True
            return ".".join((here.id, *reversed(parts))), False
        return ".".join(("()" if isinstance(here, ast.Call) else "[]", *reversed(parts))), False

    def _walk(self, tree: ast.Module) -> None:
        stack: list[tuple[ast.AST, Around | None, int]] = [(node, None, 1) for node in reversed(tree.body)]
        pop, push = stack.pop, stack.append
        handlers, children, skip = _HANDLERS, _CHILDREN, _SKIPPED
        while stack:
            node, around, depth = pop()
            if depth > DEEPEST:
                raise NotRead(f"it is nested deeper than {DEEPEST}")
            depth += 1
            kind = node.__class__
            handler = handlers.get(kind)
            if handler is not None:
                below = handler(self, node, around)
                if below is not None:
                    for child, inner in reversed(below):
                        if child.__class__ not in skip:
                            push((child, inner, depth))
                    continue
            for field in children.get(kind) or kind._fields[::-1]:
                value = getattr(node, field, None)
                if value.__class__ is list:
                    for item in reversed(value):
                        if item.__class__ not in skip and isinstance(item, ast.AST):
                            push((item, around, depth))
                elif value.__class__ not in skip and isinstance(value, ast.AST):
                    push((value, around, depth))

    def bind(self, name: str, line: int, value: ast.expr | None, how: str, around: Around | None) -> None:
        scope = around.scope if around is not None else None
        key = (id(scope.node) if scope is not None and name not in self.globals else 0, name)
        self.bindings.setdefault(key, []).append(Binding(line, value, how, around))

    def bind_target(self, target: ast.expr, value: ast.expr | None, how: str, line: int, around: Around | None) -> None:
        """An assignment's left side; of several names each gets its own value where both sides say so."""
        if isinstance(target, ast.Name):
            self.bind(target.id, line, value, how, around)
        elif isinstance(target, ast.Attribute):
            name = self.dotted(target)[0]
            self.bindings.setdefault((0, name), []).append(Binding(line, value, how, around))
        elif isinstance(target, ast.Tuple | ast.List):
            values: list[ast.expr | None] = [None] * len(target.elts)
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                values = list(value.elts)
            for one, its in zip(target.elts, values, strict=True):
                if isinstance(one, ast.Name):
                    self.bind(one.id, line, its, how if its is not None else "unpacked", around)
                elif isinstance(one, ast.Attribute):
                    self.bindings.setdefault((0, self.dotted(one)[0]), []).append(
                        Binding(line, its, how if its is not None else "unpacked", around)
                    )


def _parse(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as fault:
        cleaned = _without_magics(text)
        if cleaned is not None:
            try:
                return ast.parse(cleaned)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                pass
        line = fault.lineno
        raise NotRead(f"it is no Python that this version reads{f' (line {line})' if line else ''}") from None
    except (ValueError, RecursionError, MemoryError):
        raise NotRead("it is no Python that can be parsed") from None


def _without_magics(text: str) -> str | None:
    """The lines of a notebook's magics (``%cd``, ``!pip``) as comments, whose length is kept."""
    if "%" not in text and "!" not in text:
        return None
    lines = text.split("\n")
    changed = False
    for index, line in enumerate(lines):
        bare = line.lstrip()
        if bare[:1] in ("!", "%"):
            lines[index] = line[: len(line) - len(bare)] + "pass #" + bare
            changed = True
    return "\n".join(lines) if changed else None


_CHILDREN: Final[Mapping[type, tuple[str, ...]]] = {
    ast.Expr: ("value",),
    ast.Call: ("keywords", "args", "func"),
    ast.keyword: ("value",),
    ast.Attribute: ("value",),
    ast.Assign: ("value", "targets"),
    ast.AugAssign: ("value", "target"),
    ast.BinOp: ("right", "left"),
    ast.Compare: ("comparators", "left"),
    ast.BoolOp: ("values",),
    ast.UnaryOp: ("operand",),
    ast.Subscript: ("slice", "value"),
    ast.Slice: ("step", "upper", "lower"),
    ast.Tuple: ("elts",),
    ast.List: ("elts",),
    ast.Dict: ("values", "keys"),
    ast.JoinedStr: ("values",),
    ast.FormattedValue: ("format_spec", "value"),
    ast.Return: ("value",),
    ast.Starred: ("value",),
}
"""The fields of common nodes that hold nodes, last first; of others all fields are looked at."""
_SKIPPED: Final = frozenset(
    (
        type(None),
        str,
        int,
        ast.Constant,
        ast.Load,
        ast.Store,
        ast.Del,
        ast.Pass,
        ast.Break,
        ast.Continue,
        ast.alias,
        ast.Add,
        ast.Sub,
        ast.Mult,
        ast.Div,
        ast.Mod,
        ast.Eq,
        ast.Lt,
        ast.Gt,
        ast.GtE,
        ast.LtE,
        ast.NotEq,
        ast.Is,
        ast.IsNot,
        ast.In,
        ast.NotIn,
        ast.And,
        ast.Or,
        ast.Not,
        ast.Name,
    )
)

Below = list[tuple[ast.AST, Around | None]]


def _on_call(source: Source, node: ast.Call, around: Around | None) -> None:
    call = Call(source, node, around)
    source.calls.append(call)
    name = call.name
    if name in ("os.getenv", "os.environ.get", "os.environ.setdefault", "os.environ.pop") and node.args:
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            source.names.add(first.value)
    elif name == "os.path.expandvars" and node.args and isinstance(node.args[0], ast.Constant):
        source.names.update(_dollar_names(str(node.args[0].value)))


def _dollar_names(text: str) -> Iterator[str]:
    for part in text.split("$")[1:]:
        name = ""
        for letter in part.removeprefix("{"):
            if not (letter.isalnum() or letter == "_"):
                break
            name += letter
        if name:
            yield name


def _on_subscript(source: Source, node: ast.Subscript, around: Around | None) -> None:
    if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        if source.dotted(node.value)[0] == "os.environ":
            source.names.add(node.slice.value)
    elif isinstance(node.ctx, ast.Load) and _index(node.slice) is not None:
        source.picks.append((node, around))


def _index(node: ast.expr) -> int | None:
    """The number in ``x[0]`` and ``x[-1]``."""
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node, sign = node.operand, -1
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return sign * node.value
    return None


def _on_import(source: Source, node: ast.Import, around: Around | None) -> Below:
    for alias in node.names:
        top = alias.name.partition(".")[0]
        source.modules.add(top)
        if alias.asname:
            source.imports[alias.asname] = alias.name
        else:
            source.imports[top] = top
    return []


def _on_import_from(source: Source, node: ast.ImportFrom, around: Around | None) -> Below:
    module = "." * node.level + (node.module or "")
    source.modules.add(module.partition(".")[0] if not node.level else ".")
    for alias in node.names:
        if alias.name == "*":
            source.stars = True
        else:
            source.imports[alias.asname or alias.name] = f"{module}.{alias.name}"
    return []


def _on_assign(source: Source, node: ast.Assign, around: Around | None) -> None:
    for target in node.targets:
        source.bind_target(target, node.value, "=", node.lineno, around)
        if isinstance(target, ast.Subscript | ast.Attribute):
            source.statements.append((node, around))


def _on_ann_assign(source: Source, node: ast.AnnAssign, around: Around | None) -> None:
    if node.value is not None:
        source.bind_target(node.target, node.value, "=", node.lineno, around)


def _on_aug_assign(source: Source, node: ast.AugAssign, around: Around | None) -> None:
    if isinstance(node.target, ast.Name | ast.Attribute):
        source.bind_target(node.target, None, "+=", node.lineno, around)


def _on_named(source: Source, node: ast.NamedExpr, around: Around | None) -> None:
    source.bind_target(node.target, node.value, ":=", node.lineno, around)


def _on_function(source: Source, node: Function, around: Around | None) -> Below:
    if node.name in source.functions:
        source.repeated.add(node.name)
    source.functions.setdefault(node.name, node)
    inner = Around("function", node, around)
    for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg):
        if argument is not None:
            source.bind(argument.arg, node.lineno, None, "parameter", inner)
    outer: Below = [(one, around) for one in (*node.decorator_list, *node.args.defaults)]
    outer += [(one, around) for one in node.args.kw_defaults if one is not None]
    return outer + [(one, inner) for one in node.body]


def _on_lambda(source: Source, node: ast.Lambda, around: Around | None) -> Below:
    inner = Around("lambda", node, around)
    for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg):
        if argument is not None:
            source.bind(argument.arg, node.lineno, None, "parameter", inner)
    return [(node.body, inner)]


def _on_class(source: Source, node: ast.ClassDef, around: Around | None) -> Below:
    source.classes.setdefault(node.name, node)
    inner = Around("class", node, around)
    heads: Below = [(one, around) for one in (*node.decorator_list, *node.bases)]
    return heads + [(one.value, around) for one in node.keywords] + [(one, inner) for one in node.body]


def _on_for(source: Source, node: ast.For | ast.AsyncFor, around: Around | None) -> Below:
    inner = Around("for", node, around)
    source.bind_target(node.target, None, "for", node.lineno, inner)
    source.statements.append((node, around))
    return [
        (node.iter, around),
        *((one, inner) for one in node.body),
        *((one, around) for one in node.orelse),
    ]


def _on_while(source: Source, node: ast.While, around: Around | None) -> Below:
    inner = Around("while", node, around, node.test)
    source.statements.append((node, around))
    return [(node.test, around), *((one, inner) for one in node.body), *((one, around) for one in node.orelse)]


def _on_if(source: Source, node: ast.If, around: Around | None) -> Below:
    source.statements.append((node, around))
    if _is_main(node.test):
        # A program that is started is always __main__: no condition at all.
        return [(one, around) for one in (*node.body, *node.orelse)]
    yes = Around("if", node, around, node.test)
    below: Below = [(node.test, around), *((one, yes) for one in node.body)]
    if node.orelse:
        no = Around("if", node, around, node.test, branch=False)
        below += [(one, no) for one in node.orelse]
    return below


def _is_main(test: ast.expr) -> bool:
    """``__name__ == "__main__"``."""
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and isinstance(test.ops[0], ast.Eq)
    )


def _on_if_expression(source: Source, node: ast.IfExp, around: Around | None) -> Below:
    return [
        (node.test, around),
        (node.body, Around("if", node, around, node.test)),
        (node.orelse, Around("if", node, around, node.test, branch=False)),
    ]


def _on_try(source: Source, node: Any, around: Around | None) -> Below:
    inner = Around("try", node, around)
    below: Below = [(one, inner) for one in node.body]
    for handler in node.handlers:
        caught = Around("except", handler, around)
        if handler.name:
            source.bind(handler.name, handler.lineno, None, "except", caught)
        below += [(one, caught) for one in handler.body]
    below += [(one, inner) for one in node.orelse]
    if node.finalbody:
        last = Around("finally", node, around)
        below += [(one, last) for one in node.finalbody]
    return below


def _on_with(source: Source, node: ast.With | ast.AsyncWith, around: Around | None) -> Below:
    inner = Around("with", node, around)
    source.statements.append((node, around))
    below: Below = []
    for item in node.items:
        below.append((item.context_expr, around))
        if item.optional_vars is not None:
            source.bind_target(item.optional_vars, item.context_expr, "with", node.lineno, inner)
    return below + [(one, inner) for one in node.body]


def _on_comprehension(source: Source, node: Any, around: Around | None) -> Below:
    inner = Around("comprehension", node, around)
    below: Below = []
    for generator in node.generators:
        source.bind_target(generator.target, None, "for", node.lineno, inner)
        below.append((generator.iter, around))
        below += [(one, inner) for one in generator.ifs]
    parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
    return below + [(one, inner) for one in parts]


def _on_return(source: Source, node: ast.Return, around: Around | None) -> None:
    scope = around.scope if around is not None else None
    if scope is not None and node.value is not None:
        source.returns.setdefault(id(scope.node), []).append((node.value, around))


def _on_global(source: Source, node: ast.Global, around: Around | None) -> None:
    source.globals.update(node.names)


def _on_statement(source: Source, node: ast.stmt, around: Around | None) -> None:
    source.statements.append((node, around))


_HANDLERS: Final[Mapping[type, Any]] = {
    ast.Call: _on_call,
    ast.Subscript: _on_subscript,
    ast.Import: _on_import,
    ast.ImportFrom: _on_import_from,
    ast.Assign: _on_assign,
    ast.AnnAssign: _on_ann_assign,
    ast.AugAssign: _on_aug_assign,
    ast.NamedExpr: _on_named,
    ast.FunctionDef: _on_function,
    ast.AsyncFunctionDef: _on_function,
    ast.Lambda: _on_lambda,
    ast.ClassDef: _on_class,
    ast.For: _on_for,
    ast.AsyncFor: _on_for,
    ast.While: _on_while,
    ast.If: _on_if,
    ast.IfExp: _on_if_expression,
    ast.Try: _on_try,
    ast.With: _on_with,
    ast.AsyncWith: _on_with,
    ast.ListComp: _on_comprehension,
    ast.SetComp: _on_comprehension,
    ast.GeneratorExp: _on_comprehension,
    ast.DictComp: _on_comprehension,
    ast.Return: _on_return,
    ast.Global: _on_global,
    ast.Raise: _on_statement,
    ast.Delete: _on_statement,
}


class Python:
    """A Python text in one container.

    ``place`` is that of its first line; ``env`` the variables that are known, ``closed`` says that there are no others
    than those in ``env`` and the image's. ``file`` is the name that it is written to, ``""`` where it has none.
    ``arguments`` are those that it is started with; None where it is not known how it is started.
    """

    __slots__ = ("_values", "arguments", "env", "file", "memo", "place", "source")

    def __init__(
        self,
        source: Source,
        place: Place,
        env: Mapping[str, Value],
        file: str = "",
        arguments: tuple[Value, ...] | None = None,
    ) -> None:
        self.source = source
        self.place = place
        self.env = env
        self.file = file
        self.arguments = arguments
        self.memo: dict[str, Any] = {}
        """For whoever asks twice: lives as long as this object."""
        self._values: dict[int, Value] = {}

    def at(self, node: ast.AST | Call | int) -> Place:
        """The place of a node in the manifest."""
        line = node if isinstance(node, int) else node.line if isinstance(node, Call) else getattr(node, "lineno", 1)
        return Place(self.place.field, self.place.index, max(self.place.line, 1) + line - 1)

    def calls(self, *names: str) -> Iterator[Call]:
        """The calls of these dotted names (``torch.save``, ``transformers.Trainer``).

        A name matches the end of a longer import too: ``transformers.trainer_utils.get_last_checkpoint`` is
        ``get_last_checkpoint`` of ``transformers``.
        """
        for name in names:
            root, _, last = name.rpartition(".")
            top = root.partition(".")[0]
            for call in self.source.by_attr.get(last, ()):
                if (
                    call.name == name
                    or (
                        # What has a name of its own is told from others of its package by that alone.
                        root == top
                        and call.imported
                        and ("_" in last or last[:1].isupper())
                        and call.name.partition(".")[0] == top
                    )
                    or (self.source.stars and not call.imported and call.name == last and top in self.source.modules)
                ):
                    yield call

    def methods(self, *attrs: str) -> Iterator[Call]:
        """The calls of methods with these last names, whatever they are called on."""
        for attr in attrs:
            for call in self.source.by_attr.get(attr, ()):
                if isinstance(call.node.func, ast.Attribute):
                    yield call

    def named(self, *attrs: str) -> Iterator[Call]:
        """The calls whose last name is one of these, function or method."""
        for attr in attrs:
            yield from self.source.by_attr.get(attr, ())

    def value(self, node: ast.expr | None, around: Around | None = None) -> Value:
        """What an expression amounts to. ``around`` is what it stands in (``call.around``). None gives ``UNKNOWN``."""
        if node is None:
            return UNKNOWN
        return self._value(node, around, 0)

    def follow(self, node: ast.expr, around: Around | None, depth: int) -> Value:
        """The same in the midst of following something else: ``depth`` steps have been taken."""
        return self._value(node, around, depth)

    def argument(self, call: Call, name: str, position: int | None = None, default: Value = UNKNOWN) -> Value:
        """The value of an argument; ``default`` where it is not given and cannot be given unseen."""
        node = call.argument(name, position)
        if node is None:
            return UNKNOWN if call.open_ended else default
        return self._value(node, call.around, 0)

    def class_of(self, node: ast.expr | None, around: Around | None = None) -> str:
        """The dotted name of the call that made an object: ``transformers.Trainer`` for ``trainer``; ``""`` unknown."""
        for _ in range(_FOLLOWED):
            if isinstance(node, ast.Call):
                return self.source.dotted(node.func)[0]
            if not isinstance(node, ast.Name | ast.Attribute):
                return ""
            found = self.bindings(node, around)
            values = [binding.value for binding in found if binding.value is not None]
            if len(found) != len(values) or not values:
                return ""
            names = {self.source.dotted(value.func)[0] for value in values if isinstance(value, ast.Call)}
            if len(names) == 1 and len(values) > 1:
                return names.pop()
            if len(values) > 1:
                return ""
            node, around = values[0], found[0].around
        return ""

    def bindings(self, node: ast.expr, around: Around | None) -> list[Binding]:
        """What gives a name (or ``self.x``) its value: the bindings of the innermost scope that has any."""
        if isinstance(node, ast.Attribute):
            name, imported = self.source.dotted(node)
            return [] if imported else self._few((0, name))
        if not isinstance(node, ast.Name):
            return []
        here = around
        while here is not None:
            if here.scope is None:
                break
            found = self.source.bindings.get((id(here.scope.node), node.id))
            if found:
                return found if len(found) <= _BINDINGS else []
            here = here.scope.outer
        return self._few((0, node.id))

    def _few(self, key: tuple[int, str]) -> list[Binding]:
        """The bindings of a name; none where there are more than are followed: each use would go through all."""
        found = self.source.bindings.get(key, [])
        return found if len(found) <= _BINDINGS else []

    def given(self, binding: Binding, name: str) -> list[tuple[ast.expr, Around | None]]:
        """What the calls of a function give for its parameter, its default among them; empty where that is not told.

        It is told where the function has its name alone, and is called by it and not handed on.
        """
        scope = binding.around
        function = scope.node if scope is not None else None
        if binding.how != "parameter" or not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            return []
        owner = scope.outer.node if scope.outer is not None and scope.outer.kind == "class" else None
        called = owner.name if owner is not None and function.name == "__init__" else function.name
        if called in self.source.repeated or (owner is None and function.decorator_list):
            return []
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        position = names.index(name) - (owner is not None) if name in names else None
        out: list[tuple[ast.expr, Around | None]] = []
        for call in self.source.calls_of(called, method=owner is not None and called == function.name):
            if call.open_ended or len(out) > 8:
                return []
            node = call.argument(name, position if position is None or position >= 0 else None)
            if node is None:
                node = _default(function, name)
                if node is None:
                    return []
                out.append((node, None))
            else:
                out.append((node, call.around))
        return out

    def origins(self, node: ast.expr, around: Around | None = None) -> list[tuple[ast.expr, Around | None]]:
        """Every expression that a value may come from: names followed, both ways of ``a if b else c`` and ``a or b``,
        and what a function of this text returns.

        What cannot be followed stands in the list as it is.
        """
        out: list[tuple[ast.expr, Around | None]] = []
        pending: list[tuple[ast.expr, Around | None, int]] = [(node, around, 0)]
        seen: set[int] = set()
        while pending and len(seen) < 200:
            here, where, steps = pending.pop()
            if id(here) in seen:
                continue
            seen.add(id(here))
            if steps < _FOLLOWED:
                if isinstance(here, ast.Name | ast.Attribute):
                    found = [one for one in self.bindings(here, where) if one.value is not None]
                    if found:
                        pending += [(one.value, one.around, steps + 1) for one in reversed(found)]
                        continue
                    if isinstance(here, ast.Name):
                        bound = self.bindings(here, where)
                        handed = self.given(bound[0], here.id) if len(bound) == 1 else []
                        if handed:
                            pending += [(node, outer, steps + 1) for node, outer in reversed(handed)]
                            continue
                elif isinstance(here, ast.IfExp):
                    pending += [(here.orelse, where, steps + 1), (here.body, where, steps + 1)]
                    continue
                elif isinstance(here, ast.BoolOp):
                    pending += [(one, where, steps + 1) for one in reversed(here.values)]
                    continue
                elif isinstance(here, ast.NamedExpr):
                    pending.append((here.value, where, steps + 1))
                    continue
                elif isinstance(here, ast.Call) and isinstance(here.func, ast.Name):
                    function = self.source.functions.get(here.func.id)
                    given = self.source.returns.get(id(function)) if function is not None else None
                    if given:
                        pending += [(value, inner, steps + 1) for value, inner in reversed(given)]
                        continue
            out.append((here, where))
        return out

    def text(self, node: ast.AST) -> str:
        """The node as written, at most 80 characters, on one line."""
        return shown(self.source.source(node))

    def _value(self, node: ast.expr, around: Around | None, depth: int) -> Value:
        kind = type(node)
        if kind is ast.Constant:
            return _constant(node.value)  # type: ignore[attr-defined]
        key = id(node)
        if key in self._values:
            return self._values[key]
        if depth > _FOLLOWED:
            return UNKNOWN
        self._values[key] = UNKNOWN  # a name that is made of itself
        value = _EVALUATE[kind](self, node, around, depth + 1) if kind in _EVALUATE else UNKNOWN
        self._values[key] = value
        return value

    def _name(self, node: ast.Name, around: Around | None, depth: int) -> Value:
        if node.id.startswith(HIDDEN):
            return _hidden_kind(node.id)
        lowered = node.id.lower()
        found = self.bindings(node, around)
        if not found:
            return Unknown(_kind_of_name(lowered), node.id)
        value = self._bound(found, node, depth)
        if isinstance(value, Unknown) and not value.kind:
            kind = _kind_of_name(lowered) or ("loop" if any(one.how in ("for", "+=") for one in found) else "")
            return Unknown(kind, node.id)
        return value

    def _bound(self, found: list[Binding], node: ast.expr, depth: int) -> Value:
        """The value that several assignments leave: the last unconditional one before the use, where there is one."""
        if len(found) == 1 and found[0].how == "parameter" and isinstance(node, ast.Name):
            values = [self._value(one, where, depth) for one, where in self.given(found[0], node.id)]
            same = values and all(type(one) is type(values[0]) and one == values[0] for one in values[1:])
            return values[0] if same else UNKNOWN
        if any(one.value is None or one.how == "with" for one in found):
            if any(one.how in ("for", "+=") for one in found):
                return Unknown("loop", self.text(node))
            return UNKNOWN
        if len(found) == 1:
            return self._value(found[0].value, found[0].around, depth)
        values = [self._value(one.value, one.around, depth) for one in found]
        if all(type(value) is type(values[0]) and value == values[0] for value in values[1:]):
            return values[0]
        scope = found[0].around.scope if found[0].around is not None else None
        plain = all(one.around is scope or one.around is None for one in found)
        before = [value for one, value in zip(found, values, strict=True) if one.line < node.lineno]
        if plain and before:
            return before[-1]
        return UNKNOWN

    def _attribute(self, node: ast.Attribute, around: Around | None, depth: int) -> Value:
        name, imported = self.source.dotted(node)
        if imported:
            return Unknown(_KINDS.get(name, ""), name)
        if not isinstance(node.value, ast.Name | ast.Attribute):
            base = self._value(node.value, around, depth)
            if isinstance(base, Unknown) and base.kind:
                return Unknown(base.kind, self.text(node))
        if node.attr in ("parent", "name", "stem"):
            base = self._value(node.value, around, depth)
            if isinstance(base, str) and base:
                if node.attr == "parent":
                    return base.rstrip("/").rpartition("/")[0] or "/"
                return base.rstrip("/").rpartition("/")[2] if node.attr == "name" else UNKNOWN
        # ``args.out = join(args.out, stamp)``: what stands on the right is what it was before.
        found = [one for one in self._few((0, name)) if not _holds(one.value, node)]
        if found:
            value = self._bound(found, node, depth)
            if not isinstance(value, Unknown) or value.kind:
                return value
        called = self.source.by_attr
        if not found and ("add_argument" in called or "parse_args_into_dataclasses" in called) and depth < _FOLLOWED:
            from webhook.programs.arguments import argument_of

            value = argument_of(self, node, around, depth + 1)
            if not isinstance(value, Unknown) or value.kind:
                return value
        return Unknown(_kind_of_name(node.attr.lower()), self.text(node))

    def _joined(self, node: ast.JoinedStr, around: Around | None, depth: int) -> Value:
        parts: list[Value] = []
        for one in node.values:
            if isinstance(one, ast.Constant):
                parts.append(_constant(one.value))
            elif isinstance(one, ast.FormattedValue):
                value = self._value(one.value, around, depth)
                if one.format_spec is not None and is_known(value):
                    spec = self._value(one.format_spec, around, depth)
                    try:
                        value = format(value, spec) if isinstance(spec, str) and len(spec) < 8 else UNKNOWN
                    except (ValueError, TypeError):
                        value = UNKNOWN
                elif one.format_spec is not None and isinstance(value, Unknown):
                    value = Unknown(value.kind, self.text(one.value))
                parts.append(value)
        return join(parts)

    def _operation(self, node: ast.BinOp, around: Around | None, depth: int) -> Value:
        left = self._value(node.left, around, depth)
        right = self._value(node.right, around, depth)
        operator = type(node.op)
        if operator is ast.Add:
            if isinstance(left, str | Text) or isinstance(right, str | Text):
                return join((left, right))
            if isinstance(left, tuple) and isinstance(right, tuple):
                return left + right
        if operator is ast.Div and (isinstance(left, str | Text) or (isinstance(right, str | Text) and right)):
            return join_path((left, right))
        if operator is ast.Mod and isinstance(left, str):
            return _percent(left, right)
        if _is_number(left) and _is_number(right):
            return _arithmetic(operator, left, right)
        unknown = left if isinstance(left, Unknown) and left.kind else right
        return Unknown(unknown.kind, self.text(node)) if isinstance(unknown, Unknown) else UNKNOWN

    def _call(self, node: ast.Call, around: Around | None, depth: int) -> Value:
        name, _imported = self.source.dotted(node.func)
        if name in _KINDS:
            return Unknown(_KINDS[name], self.text(node))
        if name in ("os.getenv", "os.environ.get"):
            return self._variable(node, around, depth)
        if name in ("os.path.join", "posixpath.join") or (name in _PATHS and node.args):
            if any(isinstance(one, ast.Starred) for one in node.args):
                return UNKNOWN
            return join_path(self._value(one, around, depth) for one in node.args)
        if name in _SAME and node.args:
            return self._value(node.args[0], around, depth)
        if name.rpartition(".")[2] == "increment_path" and node.args:
            return self._incremented(node, around, depth)
        if name == "len" and len(node.args) == 1 and self._is_listed(node.args[0]):
            return Unknown("count", self.text(node))
        if name in ("str", "int", "float", "bool") and len(node.args) == 1:
            return _convert(name, self._value(node.args[0], around, depth))
        if name == "dict" and not node.args and all(keyword.arg for keyword in node.keywords):
            return {str(one.arg): self._value(one.value, around, depth) for one in node.keywords}
        if name == "os.path.expandvars" and node.args:
            return self._expanded(self._value(node.args[0], around, depth))
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func, around, depth)
        return Unknown("", self.text(node))

    def _incremented(self, node: ast.Call, around: Around | None, depth: int) -> Value:
        """YOLO's ``increment_path(path, exist_ok=False)``: ``exp``, ``exp2``, ``exp3``, whichever is not there yet."""
        given = [one.value for one in node.keywords if one.arg == "exist_ok"] or node.args[1:2]
        stays = self._value(given[0], around, depth) if given else False
        path = self._value(node.args[0], around, depth)
        if stays is True:
            return path
        return join((path, Unknown("fresh", self.text(node)))) if stays is False else UNKNOWN

    def _is_listed(self, node: ast.expr) -> bool:
        """``glob("runs/*")``, ``os.listdir("runs")``, ``list(Path("runs").iterdir())``: what a directory holds now."""
        if not isinstance(node, ast.Call):
            return False
        name, _ = self.source.dotted(node.func)
        if name in ("list", "sorted") and len(node.args) == 1:
            return self._is_listed(node.args[0])
        return name in ("glob.glob", "os.listdir") or name.endswith((".glob", ".iterdir"))

    def _method(self, node: ast.Call, function: ast.Attribute, around: Around | None, depth: int) -> Value:
        attr = function.attr
        base = self._value(function.value, around, depth)
        if attr in ("joinpath",) and isinstance(base, str | Text):
            return join_path((base, *(self._value(one, around, depth) for one in node.args)))
        if attr in ("resolve", "absolute", "expanduser", "as_posix", "strip") and isinstance(base, str | Text):
            return base
        if attr in ("strftime", "isoformat", "timestamp", "hex") and isinstance(base, Unknown) and base.kind:
            return Unknown(base.kind, self.text(node))
        if attr == "format" and isinstance(base, str):
            return self._formatted(base, node, around, depth)
        if attr in ("lower", "upper", "rstrip", "lstrip", "replace", "removesuffix") and isinstance(base, str):
            given = [self._value(one, around, depth) for one in node.args]
            if all(isinstance(one, str) for one in given):
                try:
                    return getattr(base, attr)(*given)
                except TypeError:
                    return UNKNOWN
        if isinstance(base, Unknown) and base.kind in ("fresh", "host", "rank", "local-rank"):
            return Unknown(base.kind, self.text(node))
        if attr in ("zfill", "rjust", "ljust", "item") and isinstance(base, Unknown):
            return Unknown(base.kind, self.text(node))
        return Unknown(_kind_of_name(attr.lower()) if attr.startswith("get_") else "", self.text(node))

    def _formatted(self, base: str, node: ast.Call, around: Around | None, depth: int) -> Value:
        """``"a{}b{name}".format(...)`` with plain fields."""
        parts: list[Value] = []
        given = iter(node.args)
        named = {one.arg: one.value for one in node.keywords}
        rest = base
        while "{" in rest:
            before, _, rest = rest.partition("{")
            field, closed, rest = rest.partition("}")
            if not closed or before.endswith("}") or field.startswith("{"):
                return UNKNOWN
            name, _, spec = field.partition(":")
            parts.append(before)
            found = next(given, None) if name == "" else named.get(name)
            if found is None and name.isdecimal() and len(name) < 4 and int(name) < len(node.args):
                found = node.args[int(name)]
            value = self._value(found, around, depth) if found is not None else UNKNOWN
            parts.append(UNKNOWN if spec and is_known(value) else value)
        parts.append(rest)
        return join(parts)

    def _subscript(self, node: ast.Subscript, around: Around | None, depth: int) -> Value:
        if self.source.dotted(node.value)[0] == "os.environ":
            return self._environment(self._value(node.slice, around, depth), None)
        base = self._value(node.value, around, depth)
        index = self._value(node.slice, around, depth)
        if isinstance(base, tuple) and isinstance(index, int) and -len(base) <= index < len(base):
            return base[index]
        if isinstance(base, dict) and isinstance(index, str) and index in base:
            return base[index]
        return Unknown(base.kind if isinstance(base, Unknown) and base.kind == "fresh" else "", self.text(node))

    def _variable(self, node: ast.Call, around: Around | None, depth: int) -> Value:
        if not node.args:
            return UNKNOWN
        default = node.args[1] if len(node.args) > 1 else None
        for keyword in node.keywords:
            if keyword.arg == "default":
                default = keyword.value
        name = self._value(node.args[0], around, depth)
        return self._environment(name, None if default is None else self._value(default, around, depth))

    def _environment(self, name: Value, default: Value) -> Value:
        """A variable of the container. One that nobody sets may still come from the image, so it stays unknown."""
        if not isinstance(name, str):
            return UNKNOWN
        if name in self.source.names and name in self.env:
            return self.env[name]
        return Unknown(ENVIRONMENT_KINDS.get(name, ""), f"${name}")

    def _expanded(self, value: Value) -> Value:
        if not isinstance(value, str) or "$" not in value:
            return value
        parts: list[Value] = []
        first, *rest = value.split("$")
        parts.append(first)
        for part in rest:
            name = next(iter(_dollar_names("$" + part)), "")
            brace = part.startswith("{")
            parts.append(self._environment(name, None) if name else "$")
            parts.append(part[len(name) + (2 if brace else 0) :] if name else part)
        return join(parts)

    def _sequence(self, node: ast.Tuple | ast.List, around: Around | None, depth: int) -> Value:
        if len(node.elts) > 256 or any(isinstance(one, ast.Starred) for one in node.elts):
            return UNKNOWN
        return tuple(self._value(one, around, depth) for one in node.elts)

    def _mapping(self, node: ast.Dict, around: Around | None, depth: int) -> Value:
        out: dict[str, Value] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                return UNKNOWN
            out[key.value] = self._value(value, around, depth)
        return out

    def _either(self, node: ast.IfExp, around: Around | None, depth: int) -> Value:
        one = self._value(node.body, around, depth)
        two = self._value(node.orelse, around, depth)
        return one if type(one) is type(two) and one == two else UNKNOWN

    def _boolean(self, node: ast.BoolOp, around: Around | None, depth: int) -> Value:
        first = self._value(node.values[0], around, depth)
        if not is_known(first) or isinstance(first, tuple | dict):
            return UNKNOWN
        if isinstance(node.op, ast.Or) == bool(first):
            return first
        return self._value(node.values[1], around, depth) if len(node.values) == 2 else UNKNOWN

    def _unary(self, node: ast.UnaryOp, around: Around | None, depth: int) -> Value:
        value = self._value(node.operand, around, depth)
        if isinstance(node.op, ast.USub) and _is_number(value):
            return -value
        if isinstance(node.op, ast.Not) and is_known(value):
            return not value
        return UNKNOWN

    def _walrus(self, node: ast.NamedExpr, around: Around | None, depth: int) -> Value:
        return self._value(node.value, around, depth)


def _holds(outer: ast.expr | None, node: ast.expr) -> bool:
    """Whether ``node`` stands in ``outer``, by their lines and columns."""
    return (
        outer is not None
        and (outer.lineno, outer.col_offset) <= (node.lineno, node.col_offset)
        and (node.end_lineno or 0, node.end_col_offset or 0) <= (outer.end_lineno or 0, outer.end_col_offset or 0)
    )


def _default(function: Function, name: str) -> ast.expr | None:
    """The default of a parameter; None where it has none."""
    positional = [*function.args.posonlyargs, *function.args.args]
    for argument, value in zip(reversed(positional), reversed(function.args.defaults), strict=False):
        if argument.arg == name:
            return value
    for argument, keyword_default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if argument.arg == name:
            return keyword_default
    return None


_EVALUATE: Final[Mapping[type, Any]] = {
    ast.Name: Python._name,
    ast.Attribute: Python._attribute,
    ast.JoinedStr: Python._joined,
    ast.BinOp: Python._operation,
    ast.Call: Python._call,
    ast.Subscript: Python._subscript,
    ast.Tuple: Python._sequence,
    ast.List: Python._sequence,
    ast.Dict: Python._mapping,
    ast.IfExp: Python._either,
    ast.BoolOp: Python._boolean,
    ast.UnaryOp: Python._unary,
    ast.NamedExpr: Python._walrus,
}

_PATHS: Final = frozenset(("pathlib.Path", "pathlib.PosixPath", "pathlib.PurePath", "pathlib.PurePosixPath"))
_SAME: Final = frozenset(
    ("os.path.abspath", "os.path.realpath", "os.path.normpath", "os.path.expanduser", "os.fspath", "os.fsdecode")
)

_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "datetime.datetime.now",
            "datetime.datetime.utcnow",
            "datetime.datetime.today",
            "datetime.date.today",
            "datetime.now",
            "datetime.utcnow",
            "datetime.today",
            "time.time",
            "time.time_ns",
            "time.strftime",
            "time.localtime",
            "time.gmtime",
            "time.ctime",
            "time.monotonic",
            "uuid.uuid1",
            "uuid.uuid4",
            "os.getpid",
            "os.urandom",
            "secrets.token_hex",
            "secrets.token_urlsafe",
            "secrets.randbelow",
            "random.randint",
            "random.random",
            "random.choice",
            "random.choices",
            "random.randrange",
            "numpy.random.randint",
            "tempfile.mkdtemp",
            "tempfile.gettempdir",
            "tempfile.TemporaryDirectory",
            "tempfile.NamedTemporaryFile",
        ),
        "fresh",
    ),
    **dict.fromkeys(("socket.gethostname", "platform.node", "os.uname"), "host"),
    **dict.fromkeys(
        (
            "torch.distributed.get_rank",
            "jax.process_index",
            "accelerate.state.process_index",
            "lightning.fabric.utilities.rank_zero._get_rank",
        ),
        "rank",
    ),
}
ENVIRONMENT_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("RANK", "NODE_RANK", "GROUP_RANK", "PET_NODE_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"), "rank"
    ),
    **dict.fromkeys(("PMI_RANK", "JOB_COMPLETION_INDEX", "SLURM_NODEID"), "rank"),
    **dict.fromkeys(("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"), "local-rank"),
    "HOSTNAME": "host",
}


def _kind_of_name(name: str) -> str:
    """What a name alone says: ``rank``, ``local_rank``, ``step``; used only where the value itself is not known."""
    bare = name.strip("_").removeprefix("get_")
    if bare in ("local_rank", "localrank", "local_process_index"):
        return "local-rank"
    if bare in ("rank", "global_rank", "process_index", "world_rank", "node_rank", "proc_id", "dist_rank"):
        return "rank"
    if bare in _LOOPS or bare.endswith(("_step", "_epoch", "_iter", "_iteration", "_steps_done")):
        return "loop"
    return ""


_LOOPS: Final = frozenset(
    (
        "step",
        "epoch",
        "iteration",
        "it",
        "iter",
        "i",
        "global_step",
        "steps",
        "n_iter",
        "batch_idx",
        "update",
        "idx",
        "ep",
    )
)


def _hidden_kind(name: str) -> Unknown:
    inner = name.removeprefix(HIDDEN).rstrip("_")
    fresh, _, variable = inner.partition("_")
    if fresh == "FRESH":
        return Unknown("fresh", f"${variable}" if variable else "$(...)")
    return Unknown(ENVIRONMENT_KINDS.get(inner, ""), f"${inner}")


def _constant(value: Any) -> Value:
    if value.__class__ is str and HIDDEN in value:
        parts: list[Value] = []
        first, *rest = value.split(HIDDEN)
        parts.append(first)
        for part in rest:
            name, _, after = part.partition("__")
            parts += [_hidden_kind(HIDDEN + name), after]
        return join(parts)
    if value is None or value.__class__ in (str, int, float, bool):
        return value
    return UNKNOWN


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18


def _arithmetic(operator: type, left: Any, right: Any) -> Value:
    if operator is ast.Add:
        return left + right
    if operator is ast.Sub:
        return left - right
    if operator is ast.Mult:
        return left * right
    if operator is ast.Div and right:
        return left / right
    if operator is ast.FloorDiv and right:
        return left // right
    if operator is ast.Mod and right:
        return left % right
    if operator is ast.Pow and abs(right) <= 20 and abs(left) < 1e6:
        try:
            return left**right
        except ZeroDivisionError:
            return UNKNOWN
    return UNKNOWN


def _convert(name: str, value: Value) -> Value:
    if isinstance(value, Unknown | Text):
        return value if name == "str" or isinstance(value, Unknown) else UNKNOWN
    if isinstance(value, tuple | dict):
        return UNKNOWN
    try:
        if name == "str":
            return str(value)
        if name == "int":
            return int(value) if value is not None else UNKNOWN
        if name == "float":
            return float(value) if value is not None else UNKNOWN
        return bool(value)
    except (ValueError, TypeError, OverflowError):
        return UNKNOWN


def _percent(left: str, right: Value) -> Value:
    """``"step_%d.pt" % step``: the fields' places, and their values where they are texts or numbers."""
    values = list(right) if isinstance(right, tuple) else [right]
    parts: list[Value] = []
    rest = left
    while "%" in rest:
        before, _, rest = rest.partition("%")
        parts.append(before)
        if rest[:1] == "%":
            parts.append("%")
            rest = rest[1:]
            continue
        width = 0
        while width < len(rest) and rest[width] in "0123456789.-+# ":
            width += 1
        letter = rest[width : width + 1]
        if not letter or not values:
            return UNKNOWN
        value = values.pop(0)
        if is_known(value) and (width or letter not in "sd"):
            try:
                value = ("%" + rest[: width + 1]) % value if width < 4 else UNKNOWN
            except (TypeError, ValueError):
                value = UNKNOWN
        parts.append(value)
        rest = rest[width + 1 :]
    parts.append(rest)
    return join(parts)
