"""A Python text in one container: the values of its expressions as far as the text and its variables say.

``Source`` (``parsed.py``) is what depends on the text alone; it is parsed once and shared. Nothing here recurses deeper
than ``_FOLLOWED``; ``ast`` has bounds of its own, and its faults are caught.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from webhook.model.script import Place
from webhook.programs.bound import bound, holds, is_sure, truth, visible
from webhook.programs.constructs import Around, Binding, Call
from webhook.programs.literals import (
    ENVIRONMENT_KINDS,
    KINDS,
    PATHS,
    SAME,
    arithmetic,
    compared,
    constant,
    convert,
    end_of_path,
    hidden_kind,
    is_number,
    kind_of_name,
    percent,
    truth_of,
)
from webhook.programs.methods import method_value
from webhook.programs.parsed import Source, dollar_names
from webhook.programs.results import (
    calls_below,
    default_of,
    function_of,
    incremented,
    is_listed,
    keyed,
    of_vars,
    of_writer,
    returned,
)
from webhook.programs.shell import HIDDEN
from webhook.programs.values import UNKNOWN, Text, Unknown, Value, is_known, join, join_path, shown

if TYPE_CHECKING:
    from webhook.programs.config import Config

_BINDINGS: Final = 64
"""Assignments to one name that are followed; no program gives its directory a value more often."""
_FOLLOWED: Final = 16
"""Steps from a name to what it stands for."""


def _no_config(_: str) -> Config | None:
    return None


def _first_line(segment: tuple[int, Place]) -> int:
    return segment[0]


class Python:
    """A Python text in one container.

    ``place`` is that of its first line; ``env`` the variables that are known, ``closed`` says that there are no others
    than those in ``env`` and the image's. ``file`` is the name that it is written to, ``""`` where it has none.
    ``arguments`` are those that it is started with; None where it is not known how it is started.
    """

    __slots__ = (
        "arguments",
        "called",
        "config",
        "env",
        "file",
        "folder",
        "frames",
        "memo",
        "place",
        "segments",
        "source",
        "values",
    )

    def __init__(
        self,
        source: Source,
        place: Place,
        env: Mapping[str, Value],
        file: str = "",
        arguments: tuple[Value, ...] | None = None,
        segments: tuple[tuple[int, Place], ...] = (),
    ) -> None:
        self.source = source
        self.place = place
        self.env = env
        self.file = file
        self.arguments = arguments
        self.config: Callable[[str], Config | None] = _no_config
        """The configuration file at a path, as the program would open it."""
        self.folder: Value = UNKNOWN
        """Where it is started, from the root."""
        self.segments = segments
        """Modules that are part of the text: the first line of each in it, and the place of that line."""
        self.memo: dict[str, Any] = {}
        """For whoever asks twice: lives as long as this object."""
        self.values: dict[int, Value] = {}
        self.frames: list[tuple[int, dict[str, Value]]] = []
        """Functions whose result is being worked out, each with what it was called with."""
        self.called = 0

    def at(self, node: ast.AST | Call | int) -> Place:
        """The place of a node in the manifest."""
        line = node if isinstance(node, int) else node.line if isinstance(node, Call) else getattr(node, "lineno", 1)
        start, place = 1, self.place
        if self.segments and line >= self.segments[0][0]:
            start, place = self.segments[bisect_right(self.segments, line, key=_first_line) - 1]
        return Place(place.field, place.index, max(place.line, 1) + line - start)

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
                return visible(found, around) if len(found) <= _BINDINGS else []
            here = here.scope.outer
        return visible(self._few((0, node.id)), around)

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
        calls = self.source.calls_of(called, method=owner is not None and called == function.name)
        if owner is not None and called == owner.name:
            calls = [*calls, *calls_below(self, owner)]
        for call in calls:
            if call.open_ended or len(out) > 8:
                return []
            node = call.argument(name, position if position is None or position >= 0 else None)
            if node is None:
                node = default_of(function, name)
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
            return constant(node.value)  # type: ignore[attr-defined]
        key = id(node)
        if key in self.values:
            return self.values[key]
        if depth > _FOLLOWED:
            return UNKNOWN
        self.values[key] = UNKNOWN  # a name that is made of itself
        value = _EVALUATE[kind](self, node, around, depth + 1) if kind in _EVALUATE else UNKNOWN
        self.values[key] = value
        return value

    def _name(self, node: ast.Name, around: Around | None, depth: int) -> Value:
        if node.id.startswith(HIDDEN):
            return hidden_kind(node.id)
        if node.id == "__file__":
            return self._own_file(node)
        lowered = node.id.lower()
        found = self.bindings(node, around)
        if not found:
            return Unknown(kind_of_name(lowered), node.id)
        value = bound(self, found, node, around, depth)
        if isinstance(value, Unknown) and not value.kind:
            kind = kind_of_name(lowered) or ("loop" if any(one.how in ("for", "+=") for one in found) else "")
            return Unknown(kind, node.id)
        return value

    def _own_file(self, node: ast.Name) -> Value:
        """The path of the file that a line stands in, where it is told from the root."""
        place = self.at(node)
        if place.in_file and place.field.startswith("/"):
            return place.field
        found = join_path((self.folder, self.file)) if self.file else UNKNOWN
        return self.file if self.file.startswith("/") else found

    def _attribute(self, node: ast.Attribute, around: Around | None, depth: int) -> Value:
        name, imported = self.source.dotted(node)
        if imported:
            if name.startswith("absl.flags.FLAGS."):
                from webhook.programs.commanded import absl_flag

                return absl_flag(self, node, around, depth)
            return Unknown(KINDS.get(name, ""), name)
        if not isinstance(node.value, ast.Name | ast.Attribute):
            base = self._value(node.value, around, depth)
            if isinstance(base, Unknown) and base.kind:
                return Unknown(base.kind, self.text(node))
        if node.attr in ("log_dir", "logdir"):
            told = of_writer(self, node.value, around, depth)
            if told is not None:
                return told
        if node.attr in ("parent", "name", "stem"):
            base = self._value(node.value, around, depth)
            if isinstance(base, str) and base:
                if node.attr == "parent":
                    return base.rstrip("/").rpartition("/")[0] or "/"
                return base.rstrip("/").rpartition("/")[2] if node.attr == "name" else UNKNOWN
        if depth < _FOLLOWED and not _NODES.isdisjoint(self.source.modules):
            from webhook.programs.nodes import node_value

            value = node_value(self, node, around, depth + 1)
            if not isinstance(value, Unknown) or value.kind:
                return value
        # ``args.out = join(args.out, stamp)``: what stands on the right is what it was before.
        found = [one for one in self._few((0, name)) if not holds(one.value, node)]
        called = self.source.by_attr
        if found and "add_argument" in called and depth < _FOLLOWED:
            # ``if args.resume: args.out = dirname(args.resume)`` is not run where nothing is to be resumed.
            found = [one for one in found if is_sure(self, one.around, set(), depth + 1) is not False]
        if found:
            value = bound(self, found, node, around, depth)
            if not isinstance(value, Unknown) or value.kind:
                return value
        if not found and ("add_argument" in called or "parse_args_into_dataclasses" in called) and depth < _FOLLOWED:
            from webhook.programs.arguments import argument_of

            value = argument_of(self, node, around, depth + 1)
            if not isinstance(value, Unknown) or value.kind:
                return value
        if depth < _FOLLOWED:
            from webhook.programs.records import field_of

            value = field_of(self, node, around, depth)
            if not isinstance(value, Unknown) or value.kind:
                return value
            if not found:
                from webhook.programs.given import given_value

                value = given_value(self, node, around, depth + 1)
                if not isinstance(value, Unknown) or value.kind:
                    return value
        return Unknown(kind_of_name(node.attr.lower()), self.text(node))

    def _joined(self, node: ast.JoinedStr, around: Around | None, depth: int) -> Value:
        parts: list[Value] = []
        for one in node.values:
            if isinstance(one, ast.Constant):
                parts.append(constant(one.value))
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
        if (
            operator is ast.Div
            and left is not None
            and (isinstance(left, str | Text) or (isinstance(right, str | Text) and right))
        ):
            return join_path((left, right))
        if operator is ast.Mod and isinstance(left, str):
            return percent(left, right)
        if is_number(left) and is_number(right):
            return arithmetic(operator, left, right)
        unknown = left if isinstance(left, Unknown) and left.kind else right
        return Unknown(unknown.kind, self.text(node)) if isinstance(unknown, Unknown) else UNKNOWN

    def _call(self, node: ast.Call, around: Around | None, depth: int) -> Value:
        name, _imported = self.source.dotted(node.func)
        if name in KINDS:
            return Unknown(KINDS[name], self.text(node))
        if name in ("os.getenv", "os.environ.get"):
            return self._variable(node, around, depth)
        if name in ("os.path.join", "posixpath.join") or (name in PATHS and node.args):
            if any(isinstance(one, ast.Starred) for one in node.args):
                return UNKNOWN
            return join_path(self._value(one, around, depth) for one in node.args)
        if name in SAME and node.args:
            return self._value(node.args[0], around, depth)
        if name.rpartition(".")[2] == "increment_path" and node.args:
            return incremented(self, node, around, depth)
        if name == "len" and len(node.args) == 1 and is_listed(self, node.args[0]):
            return Unknown("count", self.text(node))
        if name in ("str", "int", "float", "bool", "repr") and len(node.args) == 1:
            return convert("str" if name == "repr" else name, self._value(node.args[0], around, depth))
        if name == "dict" and not node.args and all(keyword.arg for keyword in node.keywords):
            return {str(one.arg): self._value(one.value, around, depth) for one in node.keywords}
        if name == "os.path.expandvars" and node.args:
            return self._expanded(self._value(node.args[0], around, depth))
        if name in ("os.getcwd", "pathlib.Path.cwd"):
            return self.folder if isinstance(self.folder, str) else "."
        if name in ("os.path.dirname", "os.path.basename") and len(node.args) == 1:
            return end_of_path(self._value(node.args[0], around, depth), name == "os.path.dirname")
        function = function_of(self, node, around)
        if function is not None:
            return returned(self, node, function, around, depth)
        if isinstance(node.func, ast.Attribute):
            return method_value(self, node, node.func, around, depth)
        return Unknown(kind_of_name(name.lower()) if name.startswith("get_") else "", self.text(node))

    def _subscript(self, node: ast.Subscript, around: Around | None, depth: int) -> Value:
        if self.source.dotted(node.value)[0] == "os.environ":
            return self._environment(self._value(node.slice, around, depth), None)
        base = self._value(node.value, around, depth)
        index = self._value(node.slice, around, depth)
        if isinstance(index, str):
            item = keyed(self, node.value, index, around, depth)
            if item is not None:
                return item[0]
            told = of_vars(self, node.value, index, around, depth)
            if told is not None:
                return told
        if isinstance(base, tuple) and isinstance(index, int) and -len(base) <= index < len(base):
            return base[index]
        if isinstance(base, dict) and isinstance(index, str) and index in base:
            return base[index]
        if isinstance(index, str) and isinstance(base, Unknown) and not base.kind and depth < _FOLLOWED:
            from webhook.programs.given import given_value

            value = given_value(self, node, around, depth + 1)
            if not isinstance(value, Unknown) or value.kind:
                return value
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
            name = next(iter(dollar_names("$" + part)), "")
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
        met = truth(self, node.test, around, depth)
        if met is not None:
            return self._value(node.body if met else node.orelse, around, depth)
        one = self._value(node.body, around, depth)
        two = self._value(node.orelse, around, depth)
        return one if type(one) is type(two) and one == two else UNKNOWN

    def _boolean(self, node: ast.BoolOp, around: Around | None, depth: int) -> Value:
        value: Value = UNKNOWN
        for one in node.values:
            value = self._value(one, around, depth)
            met = truth_of(value)
            if met is None:
                return UNKNOWN
            if isinstance(node.op, ast.Or) == met:
                return value
        return value

    def _compare(self, node: ast.Compare, around: Around | None, depth: int) -> Value:
        left = self._value(node.left, around, depth)
        right = self._value(node.comparators[0], around, depth)
        return compared(node.ops[0], left, right) if len(node.ops) == 1 else UNKNOWN

    def _unary(self, node: ast.UnaryOp, around: Around | None, depth: int) -> Value:
        value = self._value(node.operand, around, depth)
        if isinstance(node.op, ast.USub) and is_number(value):
            return -value
        if isinstance(node.op, ast.Not):
            met = truth_of(value)
            return UNKNOWN if met is None else not met
        return UNKNOWN

    def _walrus(self, node: ast.NamedExpr, around: Around | None, depth: int) -> Value:
        return self._value(node.value, around, depth)


_NODES: Final = frozenset(("yacs", "fvcore"))
"""Packages whose settings are nodes of keys."""


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
    ast.Compare: Python._compare,
    ast.UnaryOp: Python._unary,
    ast.NamedExpr: Python._walrus,
}


__all__ = ["ENVIRONMENT_KINDS", "Around", "Binding", "Call", "Python", "Source"]
