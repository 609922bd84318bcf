"""One Python text as facts that depend on it alone: its calls, what surrounds each, what gives each name its value."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from webhook.programs.constructs import Around, Binding, Call, Function
from webhook.programs.shell import NotRead
from webhook.programs.values import shown

LONGEST: Final = 32768
DEEPEST: Final = 200
_MOST: Final = 1000
"""Semicolons of one text: Python has next to none."""


class Source:
    """What one Python text says by itself. Raises ``NotRead`` where it cannot be parsed within the bounds."""

    __slots__ = (
        "bindings",
        "by_attr",
        "calls",
        "choices",
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

    def __init__(self, text: str, tree: ast.Module | None = None, longest: int = LONGEST) -> None:
        if tree is None and len(text) > longest:
            raise NotRead(f"it is longer than {longest // 1024} KiB")
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
        self.choices: list[ast.IfExp] = []
        """``x if y else z``."""
        self.names: set[str] = set()
        """Names of environment variables that it reads."""
        self.globals: set[str] = set()
        self.lines = text.split("\n")
        self.commented: str | None = None
        self.tree = parse(text) if tree is None else tree
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
        if isinstance(node, ast.Name):
            root = self.imports.get(node.id)
            return (node.id, False) if root is None else (root, True)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            root = self.imports.get(node.value.id)
            return f"{node.value.id if root is None else root}.{node.attr}", root is not None
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

    def bind(
        self,
        name: str,
        line: int,
        value: ast.expr | None,
        how: str,
        around: Around | None,
        whole: ast.expr | None = None,
        index: int = 0,
    ) -> None:
        scope = around.scope if around is not None else None
        key = (id(scope.node) if scope is not None and name not in self.globals else 0, name)
        self.bindings.setdefault(key, []).append(Binding(line, value, how, around, whole, index))

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
            for index, (one, its) in enumerate(zip(target.elts, values, strict=True)):
                way, whole = (how, None) if its is not None else ("unpacked", value)
                if isinstance(one, ast.Name):
                    self.bind(one.id, line, its, way, around, whole, index)
                elif isinstance(one, ast.Attribute):
                    bound = Binding(line, its, way, around, whole, index)
                    self.bindings.setdefault((0, self.dotted(one)[0]), []).append(bound)


_ASYNC: Final = re.compile(r"\basync(?=\s*=)")


def parse(text: str) -> ast.Module:
    """The tree of a text. Raises ``NotRead``."""
    try:
        return ast.parse(text)
    except SyntaxError as fault:
        cleaned = _without_magics(text)
        if "async" in text:
            # A keyword of that name was Python until 3.7: ``x.cuda(async=True)``.
            cleaned = _ASYNC.sub("asyn_", cleaned or text)
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


def _on_choice(source: Source, node: ast.IfExp, around: Around | None) -> None:
    source.choices.append(node)


def _on_call(source: Source, node: ast.Call, around: Around | None) -> None:
    call = Call(source, node, around)
    source.calls.append(call)
    name = call.name
    if name in ("os.getenv", "os.environ.get", "os.environ.setdefault", "os.environ.pop") and node.args:
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            source.names.add(first.value)
    elif name == "os.path.expandvars" and node.args and isinstance(node.args[0], ast.Constant):
        source.names.update(dollar_names(str(node.args[0].value)))


def dollar_names(text: str) -> Iterator[str]:
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
    elif isinstance(node.ctx, ast.Load) and index_of(node.slice) is not None:
        source.picks.append((node, around))


def index_of(node: ast.expr) -> int | None:
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
    if is_main(node.test):
        # A program that is started is always __main__: no condition at all.
        return [(one, around) for one in (*node.body, *node.orelse)]
    yes = Around("if", node, around, node.test)
    below: Below = [(node.test, around), *((one, yes) for one in node.body)]
    if node.orelse:
        no = Around("if", node, around, node.test, branch=False)
        below += [(one, no) for one in node.orelse]
    return below


def is_main(test: ast.expr) -> bool:
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
    ast.IfExp: _on_choice,
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
