"""Which expressions are names of files in a directory, in what order, and what those names look like.

``ordered`` tells how a list of names is ordered: what a program takes as the newest checkpoint hangs on it.
"""

from __future__ import annotations

import ast
from typing import Final

from msgspec import Struct

from webhook.programs.python import Around, Call, Python
from webhook.programs.values import Text, Value, pieces

MOST: Final = 200
"""Places of one text that are looked at."""
_LISTS: Final = frozenset(("glob.glob", "glob.iglob", "os.listdir", "os.scandir"))
_METHODS: Final = frozenset(("glob", "rglob", "iterdir"))
_TEXT_FUNCTIONS: Final = frozenset(
    ("str", "os.path.basename", "os.path.join", "os.fspath", "os.path.splitext", "pathlib.Path", "os.path.abspath")
)
_TEXT_METHODS: Final = frozenset(
    ("lower", "upper", "strip", "split", "rsplit", "partition", "rpartition", "replace", "removeprefix", "removesuffix")
)
_TEXT_ATTRIBUTES: Final = frozenset(("name", "stem", "path", "suffix"))
_FOUND: Final = frozenset(("re.search", "re.match", "re.findall", "re.fullmatch"))
"""What finds a part of a name: digits that stay a text."""


class Listing(Struct, frozen=True):
    """Names read from a directory.

    ``pattern`` is the value of what names them: a glob's pattern, or the directory's path. ``marks`` are the texts that
    conditions demand of a name (``startswith("checkpoint-")``). ``node`` is the expression that lists them.
    """

    node: ast.expr
    around: Around | None
    pattern: Value
    marks: tuple[str, ...] = ()
    glob: bool = False


def listing(python: Python, node: ast.expr, around: Around | None, depth: int = 0) -> Listing | None:
    """The names that an expression lists, as texts, filtered or not; None for anything else, numbers included."""
    if depth > 8:
        return None
    if isinstance(node, ast.Call):
        name, _ = python.source.dotted(node.func)
        if name in _LISTS:
            pattern = python.value(node.args[0], around) if node.args else "."
            return Listing(node, around, pattern, glob="glob" in name)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS and len(node.args) <= 1:
            base = python.value(node.func.value, around)
            if node.func.attr == "iterdir":
                return Listing(node, around, base)
            pattern = python.value(node.args[0], around) if node.args else "*"
            return Listing(node, around, _under(base, pattern), glob=True)
        if name in ("list", "tuple", "set", "iter") and len(node.args) == 1:
            return listing(python, node.args[0], around, depth + 1)
        if name == "filter" and len(node.args) == 2:
            found = listing(python, node.args[1], around, depth + 1)
            return found and _marked(found, python, node.args[0])
        if name == "map" and len(node.args) == 2:
            function = python.source.dotted(node.args[0])[0]
            return listing(python, node.args[1], around, depth + 1) if function in _TEXT_FUNCTIONS else None
        if isinstance(node.func, ast.Name):
            return _only(python, node, around, depth)
        return None
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
        if len(node.generators) != 1 or not _is_text(python, node.elt, node.generators[0].target):
            return None
        found = listing(python, node.generators[0].iter, around, depth + 1)
        for test in node.generators[0].ifs:
            found = found and _marked(found, python, test)
        return found
    if isinstance(node, ast.Name | ast.Attribute):
        return _only(python, node, around, depth)
    return None


def _only(python: Python, node: ast.expr, around: Around | None, depth: int) -> Listing | None:
    """Through a name or a function of this text, where all that it may be are lists of names."""
    found: Listing | None = None
    for origin, where in python.origins(node, around):
        if origin is node:
            return None
        if isinstance(origin, ast.List) and not origin.elts:
            continue
        one = listing(python, origin, where, depth + 1)
        if one is None:
            return None
        found = found or one
    return found


def _under(base: Value, pattern: Value) -> Value:
    from webhook.programs.values import join_path

    return join_path((base, pattern))


def _marked(found: Listing, python: Python, test: ast.expr) -> Listing:
    """The listing with the texts that a condition names."""
    marks = list(found.marks)
    for node in _walk(test):
        value = node.value if isinstance(node, ast.Constant) else None
        marks += [value] if isinstance(value, str) and len(value) < 80 else []
    return Listing(found.node, found.around, found.pattern, tuple(marks), found.glob)


def _is_text(python: Python, node: ast.expr, target: ast.expr, depth: int = 0) -> bool:
    """Whether an expression over a name gives a text that sorts as the name does."""
    if depth > 6:
        return False
    if isinstance(node, ast.Name):
        return isinstance(target, ast.Name) and node.id == target.id
    if isinstance(node, ast.Attribute):
        return node.attr in _TEXT_ATTRIBUTES and _is_text(python, node.value, target, depth + 1)
    if isinstance(node, ast.Call):
        name, _ = python.source.dotted(node.func)
        if name in _TEXT_FUNCTIONS and node.args:
            return _is_text(python, node.args[-1], target, depth + 1)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _TEXT_METHODS:
            return _is_text(python, node.func.value, target, depth + 1)
        return False
    if isinstance(node, ast.Subscript):
        return _is_text(python, node.value, target, depth + 1)
    if isinstance(node, ast.BinOp):
        return _is_text(python, node.right, target, depth + 1) or _is_text(python, node.left, target, depth + 1)
    if isinstance(node, ast.JoinedStr):
        return any(
            isinstance(one, ast.FormattedValue) and _is_text(python, one.value, target, depth + 1)
            for one in node.values
        )
    return False


class Pick(Struct, frozen=True):
    """One name taken from a listing as the last in its order.

    ``order``: ``text``, ``digit`` (one of its digits alone), ``none`` (as the file system gives them).
    ``looped``: a loop over ``node`` leaves it in a name.
    """

    node: ast.expr
    around: Around | None
    names: Listing
    order: str
    looped: bool = False


def picks(python: Python) -> list[Pick]:
    """Every place where the last name of a listing is taken in an order that is not that of its numbers."""
    memo = python.memo.get("picks")
    if memo is not None:
        return memo  # type: ignore[no-any-return]
    found: list[Pick] = []
    python.memo["picks"] = found
    if not any(
        call.name in _LISTS or (call.attr in _METHODS and isinstance(call.node.func, ast.Attribute))
        for attr in ("glob", "iglob", "listdir", "scandir", "rglob", "iterdir")
        for call in python.source.by_attr.get(attr, ())
    ):
        return found
    from webhook.programs.parsed import index_of

    for node, around in python.source.picks[:MOST]:
        index = index_of(node.slice)
        if index in (0, -1):
            _taken(python, node, node.value, around, index == 0, found)
    for call in python.named("max"):
        if call.name == "max" and len(call.node.args) == 1:
            names = listing(python, call.node.args[0], call.around)
            order = _key_order(python, call.argument("key"), call.around)
            if names is not None and order:
                found.append(Pick(call.node, call.around, names, order))
    for call in python.methods("pop"):
        if not call.node.args and call.receiver is not None:
            _taken(python, call.node, call.receiver, call.around, False, found)
    for call in python.named("next"):
        if call.name == "next" and call.node.args:
            inner = call.node.args[0]
            if isinstance(inner, ast.Call) and python.source.dotted(inner.func)[0] == "reversed" and inner.args:
                _taken(python, call.node, inner.args[0], call.around, False, found)
            elif isinstance(inner, ast.Call) and python.source.dotted(inner.func)[0] == "iter" and inner.args:
                _taken(python, call.node, inner.args[0], call.around, True, found)
    for statement, around in python.source.statements:
        if isinstance(statement, ast.For):
            _left_by(python, statement, around, found)
    return found


_NAMES: Final = (".pt", ".ckpt", "ckpt", "checkpoint", "step", "epoch", "iter")


def _left_by(python: Python, loop: ast.For, around: Around | None, found: list[Pick]) -> None:
    """``for name in sorted(os.listdir(d)): newest = name``, under a test of the name or under none."""
    body: list[ast.stmt] = loop.body
    test: ast.expr | None = None
    inner = body[0]
    if len(body) == 1 and isinstance(inner, ast.If) and not inner.orelse:
        body, test = inner.body, inner.test
    if len(body) != 1 or not isinstance(body[0], ast.Assign) or not isinstance(loop.target, ast.Name) or loop.orelse:
        return
    kept, name = body[0].value, loop.target.id
    if not isinstance(body[0].targets[0], ast.Name) or not _is_kept_whole(python, kept, name):
        return
    if test is not None and not _is_of_checkpoints(test):
        return
    taken: list[Pick] = []
    _taken(python, loop.iter, loop.iter, around, False, taken)
    for pick in (one for one in taken if one.order != "none"):
        names = pick.names if test is None else _marked(pick.names, python, test)
        found.append(Pick(pick.node, pick.around, names, pick.order, True))


def _is_of_checkpoints(test: ast.expr) -> bool:
    """``name.endswith(".pt")``, ``"ckpt" in name``, ``os.path.isfile(name)``: no test of a number."""
    if not isinstance(test, ast.Call) and not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In)):
        return False
    words = [part.value for part in ast.walk(test) if isinstance(part, ast.Constant)]
    return not words or any(isinstance(word, str) and any(mark in word for mark in _NAMES) for word in words)


def _is_kept_whole(python: Python, node: ast.expr, name: str) -> bool:
    """``name``, ``os.path.join(folder, name)``, ``folder / name``: no part of it, and nothing read from it."""
    if isinstance(node, ast.Call) and python.source.dotted(node.func)[0] in ("os.path.join", "str", "pathlib.Path"):
        node = node.args[-1] if node.args else node
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Add):
        node = node.right
    return isinstance(node, ast.Name) and node.id == name


def _taken(
    python: Python, node: ast.expr, base: ast.expr, around: Around | None, first: bool, found: list[Pick]
) -> None:
    """``base[-1]`` (``base[0]`` where ``first``): how is base ordered, by every way that leads to it?"""
    orders: set[str] = set()
    names: Listing | None = None
    for origin, where in python.origins(base, around):
        if isinstance(origin, ast.List) and not origin.elts:
            continue
        if isinstance(origin, ast.Constant) and origin.value is None:
            continue
        one, order, backwards = _ordered(python, origin, where)
        if one is None or not order:
            return
        sorts = _sorts_of(python, base, around)
        if sorts is not None:
            order, backwards = sorts
            if not order:
                return
        if order != "none" and backwards != first:
            return
        orders.add(order)
        names = one if names is None or (one.marks and not names.marks) else names
    if names is None or not orders:
        return
    order = orders.pop() if len(orders) == 1 else "text"
    if order == "none" and first:
        return
    found.append(Pick(node, around, names, order))


def _ordered(python: Python, node: ast.expr, around: Around | None) -> tuple[Listing | None, str, bool]:
    """(names, order, backwards) of a list; order ``""`` where it is right or not known."""
    if isinstance(node, ast.Call):
        name, _ = python.source.dotted(node.func)
        if name == "sorted" and node.args:
            names = listing(python, node.args[0], around)
            keywords = {one.arg: one.value for one in node.keywords}
            order = _key_order(python, keywords.get("key"), around)
            backwards = python.value(keywords["reverse"], around) if "reverse" in keywords else False
            if not isinstance(backwards, bool):
                return None, "", False
            return names, order, backwards
        if name in ("list", "tuple") and len(node.args) == 1:
            inner = node.args[0]
            made = python.source.dotted(inner.func)[0] if isinstance(inner, ast.Call) else ""
            if isinstance(inner, ast.Call) and made == "reversed" and inner.args:
                names, order, backwards = _ordered(python, inner.args[0], around)
                return names, order, not backwards
            if made == "sorted":
                return _ordered(python, inner, around)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        step = python.value(node.slice.step, around) if node.slice.step is not None else 1
        if node.slice.lower is None and node.slice.upper is None and step == -1:
            for origin, where in python.origins(node.value, around):
                names, order, backwards = _ordered(python, origin, where)
                return names, order, not backwards
        return None, "", False
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        # A comprehension keeps the order of what it runs over.
        if len(node.generators) != 1 or not _is_text(python, node.elt, node.generators[0].target):
            return None, "", False
        for origin, where in python.origins(node.generators[0].iter, around):
            names, order, backwards = _ordered(python, origin, where)
            for test in node.generators[0].ifs:
                names = names and _marked(names, python, test)
            return names, order, backwards
    names = listing(python, node, around)
    return names, "none" if names is not None else "", False


def _sorts_of(python: Python, base: ast.expr, around: Around | None) -> tuple[str, bool] | None:
    """The order that ``names.sort(...)`` gives; None where it is not called."""
    if not isinstance(base, ast.Name | ast.Attribute):
        return None
    name = python.source.dotted(base)[0]
    last: Call | None = None
    for call in python.methods("sort"):
        if call.receiver is not None and python.source.dotted(call.receiver)[0] == name and call.line <= base.lineno:
            last = call
    if last is None:
        return None
    backwards = python.argument(last, "reverse", default=False)
    order = _key_order(python, last.argument("key"), last.around)
    return (order, backwards) if isinstance(backwards, bool) else ("", False)


def _key_order(python: Python, key: ast.expr | None, around: Around | None) -> str:
    """``text``, ``digit``, or ``""`` where a key makes the order right or cannot be judged."""
    if key is None:
        return "text"
    if isinstance(key, ast.Lambda):
        return _expression_order(python, key.body)
    name = python.source.dotted(key)[0]
    if name in _TEXT_FUNCTIONS:
        return "text"
    function = python.source.functions.get(name)
    returned = python.source.returns.get(id(function)) if function is not None else None
    if returned:
        orders = {_expression_order(python, value) for value, _ in returned}
        return orders.pop() if len(orders) == 1 else ""
    return ""


def _expression_order(python: Python, body: ast.expr) -> str:
    """What a key that returns ``body`` sorts by."""
    texts = True
    for node in _walk(body):
        if isinstance(node, ast.Call):
            name, _ = python.source.dotted(node.func)
            if name == "int" and node.args and (_last_letter(node.args[0]) or _one_digit(python, node.args[0])):
                return "digit"
            plain = (
                name in _TEXT_FUNCTIONS
                or name in _FOUND
                or (isinstance(node.func, ast.Attribute) and node.func.attr in (*_TEXT_METHODS, "group"))
            )
            texts = texts and plain
        elif isinstance(node, ast.Attribute):
            called = (
                node.attr in _TEXT_METHODS
                or node.attr in _TEXT_ATTRIBUTES
                or node.attr in ("path", "basename", "join", "group")
                or python.source.dotted(node)[0] in _FOUND
            )
            texts = texts and called
        elif not isinstance(
            node, ast.Name | ast.Constant | ast.Subscript | ast.UnaryOp | ast.USub | ast.Load | ast.Slice
        ):
            texts = False
    return "text" if texts else ""


def _last_letter(node: ast.expr) -> bool:
    """``p[-4]``, ``p.stem[-1]``, ``p.split(".")[0][-1]``: one letter of a name, not the last part of it."""
    from webhook.programs.parsed import index_of

    if not isinstance(node, ast.Subscript) or index_of(node.slice) is None:
        return False
    inner = node.value
    if isinstance(inner, ast.Name):
        return True
    if isinstance(inner, ast.Attribute):
        return inner.attr in _TEXT_ATTRIBUTES
    # What finds several groups gives them, and no letters.
    return (
        isinstance(inner, ast.Subscript)
        and index_of(inner.slice) is not None
        and isinstance(inner.value, ast.Call)
        and isinstance(inner.value.func, ast.Attribute)
        and inner.value.func.attr in _TEXT_METHODS
    )


def _one_digit(python: Python, node: ast.expr) -> bool:
    r"""``re.search(r"\d", p).group()``: a pattern for one digit, with nothing that repeats it."""
    for part in _walk(node):
        if isinstance(part, ast.Call) and python.source.dotted(part.func)[0] in _FOUND and part.args:
            pattern = python.value(part.args[0])
            if isinstance(pattern, str):
                bare = pattern.replace("[0-9]", r"\d")
                return bare.count(r"\d") == 1 and bare.partition(r"\d")[2].lstrip(")")[:1] not in ("+", "*", "{")
    return False


def _walk(node: ast.AST) -> list[ast.AST]:
    out: list[ast.AST] = []
    pending = [node]
    while pending and len(out) < 400:
        here = pending.pop()
        out.append(here)
        pending.extend(ast.iter_child_nodes(here))
    return out


def name_of(value: Value) -> str:
    """The last component of a path or pattern, unknown pieces as ``*``."""
    text = "".join(piece if isinstance(piece, str) else "*" for piece in pieces(value))
    return text.rstrip("/").rpartition("/")[2]


__all__ = ["Listing", "Pick", "Text", "listing", "name_of", "picks"]
