"""``args.NAME`` of ``argparse``: what the command line gives, else the default that the program states.

And ``training_args.NAME`` of Hugging Face's ``HfArgumentParser``, as far as the command line gives it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from webhook.programs.bound import is_sure
from webhook.programs.constructs import Around, Binding, Call
from webhook.programs.literals import kind_of_name
from webhook.programs.parsed import index_of
from webhook.programs.values import UNKNOWN, Text, Unknown, Value, after_mark, head, pieces, tail

if TYPE_CHECKING:
    from webhook.programs.python import Python

_CONDITIONS: Final = 6
"""How deep a condition is followed by which an argument may be set."""
_SETTINGS: Final = 16
"""Assignments to one argument that are asked about."""
_TYPES: Final = {"int": int, "float": float}
_TEXTS: Final = frozenset(("str", "pathlib.Path", "os.path.expanduser", "os.path.abspath"))


def argument_of(python: Python, node: ast.Attribute, around: Around | None, depth: int) -> Value:
    """The value of ``args.NAME`` where ``args`` comes from ``parse_args()`` alone; ``UNKNOWN`` where it is not told.

    A word of the command line that may be a flag of any name makes the whole line unknown; one that is a flag's value
    makes that flag unknown. An argument that the program sets by itself, or defines twice, is not told.
    """
    table = _arguments(python)
    made = table.get(node.attr) if table is not None else None
    if made is None and depth < _CONDITIONS:
        made = _left_alone(python, node.attr, depth)
    if made is None:
        return _from_dictionary(python, node, around, depth) or dataclass_field(python, node, around, depth)
    if not _is_parsed(python, node.value, around):
        return UNKNOWN
    line = _line(python)
    if line is None:
        return UNKNOWN
    action = python.argument(made, "action", default="store")
    given = _given(line, flags_of(made), action == "store")
    kind = kind_of_name(node.attr.lower()) if given is None else ""
    if kind in ("rank", "local-rank"):
        return Unknown(kind, python.text(node) if hasattr(node, "lineno") else "")  # set by whoever starts the group
    if action in ("store_true", "store_false"):
        chosen = action == "store_true"
        return chosen if given is not None else _default(python, made, depth, not chosen)
    if action != "store" or made.argument("nargs") is not None:
        return UNKNOWN
    if given is None:
        required = python.argument(made, "required", default=False)
        return _default(python, made, depth, None) if required is False else UNKNOWN
    return _as_type(python, made, given)


def _left_alone(python: Python, name: str, depth: int) -> Call | None:
    """The definition of an argument that the program sets by itself under conditions alone that do not hold."""
    made: Call | None = python.memo.get("all arguments", {}).get(name)
    if made is None:
        return None
    known: dict[str, Call | None] = python.memo.setdefault("left alone", {})
    if name not in known:
        known[name] = None  # a condition that asks for the argument itself
        known[name] = made if _is_never_set(python, name, depth) else None
    return known[name]


def _is_never_set(python: Python, name: str, depth: int) -> bool:
    by_name: dict[str, list[Binding]] | None = python.memo.get("set by itself")
    if by_name is None:
        by_name = python.memo["set by itself"] = {}
        for (_, written), found in python.source.bindings.items():
            if _is_elsewhere(written):
                by_name.setdefault(written.rpartition(".")[2], []).extend(found)
    given = by_name.get(name, [])
    return 0 < len(given) <= _SETTINGS and all(is_sure(python, one.around, set(), depth + 1) is False for one in given)


def _from_dictionary(python: Python, node: ast.Attribute, around: Around | None, depth: int) -> Value:
    """``for key, value in defaults.items(): parser.add_argument(f"--{key}", default=value)``; None where it is not."""
    table: dict[str, Value] | None = python.memo.get("dictionary of arguments")
    if table is None:
        table = python.memo["dictionary of arguments"] = {}
        for call in python.methods("add_argument"):
            defaults = dictionary_of(python, call, depth)
            if defaults is not None and not any(True for _ in python.named("setattr", "Namespace", "set_defaults")):
                table.update(defaults)
    if node.attr not in table or node.attr in _filled(python) or not _is_parsed(python, node.value, around):
        return None
    line = _line(python)
    given = _given(line, (f"--{node.attr}",), True) if line is not None else UNKNOWN
    if given is None:
        return table[node.attr]
    return given if isinstance(given, str) and isinstance(table[node.attr], str | None) else UNKNOWN


def dictionary_of(python: Python, call: Call, depth: int) -> dict[str, Value] | None:
    """The dictionary whose keys an ``add_argument(f"--{key}", default=value)`` in a loop makes flags of."""
    first = call.node.args[0] if call.node.args else None
    if not isinstance(first, ast.JoinedStr) or len(first.values) != 2 or call.around is None:
        return None
    name = getattr(first.values[1], "value", None)
    loop = next((one.node for one in call.around.outwards() if one.kind == "for"), None)
    if not isinstance(name, ast.Name) or loop is None or not isinstance(loop.iter, ast.Call):
        return None
    keys = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and loop.target.elts else None
    function = loop.iter.func
    if not isinstance(keys, ast.Name) or keys.id != name.id:
        return None
    if not isinstance(function, ast.Attribute) or function.attr != "items":
        return None
    value = python.follow(function.value, call.around, depth)
    return value if isinstance(value, dict) else None


DATACLASSES: Final = ("parse_args_into_dataclasses", "parse_args_and_config", "parse_json_file", "parse_yaml_file")
"""Methods of ``HfArgumentParser`` and TRL's ``TrlParser`` that give a tuple of objects (transformers 5.24.0,
hf_argparser.py; trl 1.16.0, scripts/utils.py)."""


def dataclass_field(python: Python, node: ast.Attribute, around: Around | None, depth: int) -> Value:
    """A field of one of ``HfArgumentParser``'s objects: what its flag gives, else the default of a class of the text.

    The default of a class that comes from elsewhere is not seen. A file of arguments may give any of them.
    """
    if _DATACLASSES.isdisjoint(python.source.by_attr) or not isinstance(node.value, ast.Name | ast.Subscript):
        return UNKNOWN
    if node.attr in _filled(python) or names_file(python):
        return UNKNOWN
    made = _dataclass_of(python, node.value, around)
    line = _line(python)
    if made is None or line is None:
        return UNKNOWN
    given = _given(line, (f"--{node.attr}", f"--{node.attr.replace('_', '-')}"), True)
    own = python.source.classes.get(made)
    if given is not None:
        return given if isinstance(given, str) and ("/" in given or _is_text_field(own, node.attr)) else UNKNOWN
    if own is None:
        return UNKNOWN
    from webhook.programs.records import of_class

    found = of_class(python, own, node.attr, 0)
    return python.follow(found[0], found[1], depth) if found is not None else UNKNOWN


def _is_text_field(made: ast.ClassDef | None, name: str) -> bool:
    """Whether a field of a class of the text is annotated as a text."""
    for one in made.body if made is not None else ():
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.target.id == name:
            return "str" in {part.id for part in ast.walk(one.annotation) if isinstance(part, ast.Name)}
    return False


_DATACLASSES: Final = frozenset(DATACLASSES)


def _dataclass_of(python: Python, node: ast.expr, around: Around | None) -> str | None:
    """The class whose object the parser gives for a name; ``""`` for one that is not told which; None for no such."""
    whole, index = node, 0
    if isinstance(node, ast.Subscript):
        whole, index = node.value, index_of(node.slice) or 0
    else:
        bound: list[Binding] = python.bindings(node, around)
        if len(bound) == 1 and bound[0].how == "parameter" and isinstance(node, ast.Name):
            handed = python.given(bound[0], node.id)
            return _dataclass_of(python, handed[0][0], handed[0][1]) if len(handed) == 1 else None
        if len(bound) == 1 and isinstance(bound[0].value, ast.Subscript):
            return _dataclass_of(python, bound[0].value, bound[0].around)
        lines = {call.line for call in python.methods(*DATACLASSES)}
        if not bound or not all(one.how == "unpacked" and one.line in lines for one in bound):
            return None
        if len(bound) != 1 or bound[0].whole is None:
            return ""
        whole, index, around = bound[0].whole, bound[0].index, bound[0].around
    if not isinstance(whole, ast.Call) or not isinstance(whole.func, ast.Attribute):
        return None
    if whole.func.attr not in _DATACLASSES:
        return None
    for origin, _ in python.origins(whole.func.value, around)[:1]:
        if isinstance(origin, ast.Call) and origin.args:
            given = origin.args[0]
            items = given.elts if isinstance(given, ast.Tuple | ast.List) else [given]
            if 0 <= index < len(items) and isinstance(items[index], ast.Name):
                return python.source.dotted(items[index])[0]
    return ""


def names_file(python: Python) -> bool:
    """Whether the command line names a file of arguments, as far as such a file is read at all."""
    memo = python.memo.get("names a file")
    if memo is None:
        words = python.arguments or ()
        reads = not {"parse_json_file", "parse_yaml_file", "parse_args_and_config"}.isdisjoint(python.source.by_attr)
        memo = any(word in ("--config", "--config_file") or head(word).startswith("--config=") for word in words) or (
            reads and tail(words[0] if words else "").endswith((".json", ".yaml", ".yml"))
        )
        python.memo["names a file"] = memo
    return bool(memo)


def flags_of(call: Call) -> tuple[str, ...]:
    """The flags that an ``add_argument`` defines, as written."""
    return tuple(one.value for one in call.node.args if isinstance(one, ast.Constant) and isinstance(one.value, str))


def destination_of(python: Python, call: Call) -> str | None:
    """The name of the attribute that an ``add_argument`` fills; None for a positional one, or one that is not told."""
    flags = flags_of(call)
    if not flags or len(flags) != len(call.node.args) or call.open_ended or not flags[0].startswith("-"):
        return None
    named = python.argument(call, "dest", default=None)
    if named is None:
        long = [flag for flag in flags if flag.startswith("--")]
        return (long or list(flags))[0].lstrip("-").replace("-", "_")
    return named if isinstance(named, str) else None


def filled_by_itself(python: Python) -> frozenset[str]:
    """Names of attributes that the program gives a value of its own: ``args.resume = ...``, ``set_defaults(...)``."""
    memo = python.memo.get("filled")
    if memo is None:
        filled = {
            name.rpartition(".")[2]
            for (_, name), bound in python.source.bindings.items()
            if "." in name and any(not _is_nothing(one.value) for one in bound)
        }
        filled.update(
            str(keyword.arg)
            for call in python.methods("set_defaults")
            for keyword in call.node.keywords
            if not _is_nothing(keyword.value)
        )
        memo = frozenset(filled)
        python.memo["filled"] = memo
    return memo


def _filled(python: Python) -> frozenset[str]:
    """Names of attributes that the program gives to anything but ``self``, which is not what was parsed.

    One that is made of itself (``args.out = join(args.out, stamp)``) was parsed before.
    """
    memo = python.memo.get("given to others")
    if memo is None:
        memo = frozenset(
            name.rpartition(".")[2]
            for (_, name), bound in python.source.bindings.items()
            if _is_elsewhere(name) and not (len(bound) == 1 and _is_made_of(python, bound[0].value, name))
        )
        python.memo["given to others"] = memo
    return memo


def _is_made_of(python: Python, node: ast.expr | None, name: str) -> bool:
    return node is not None and any(
        isinstance(part, ast.Attribute) and python.source.dotted(part)[0] == name for part in ast.walk(node)
    )


def _is_elsewhere(name: str) -> bool:
    root, _, rest = name.partition(".")
    return bool(rest) and (root != "self" or "." in rest)


def _arguments(python: Python) -> dict[str, Call]:
    memo = python.memo.get("arguments")
    if memo is None:
        memo = {}
        twice: set[str] = set()
        for call in python.methods("add_argument"):
            name = destination_of(python, call)
            if name is None or (name in memo and _is_of_module(python, call) and not _is_of_module(python, memo[name])):
                continue  # a module beside the program has a command line of its own
            twice.update((name,) if name in memo else ())
            memo[name] = call
        own = _filled(python) | twice
        every = {name: call for name, call in memo.items() if name not in twice}
        memo = {name: call for name, call in memo.items() if name not in own}
        # Whatever is taken out of a file or a dictionary may be any of them.
        if any(_fills_any(python, call) for call in python.named("setattr", "set_defaults")) or _is_updated(python):
            memo, every = {}, {}
        python.memo["arguments"], python.memo["all arguments"] = memo, every
    return memo


def _is_of_module(python: Python, call: Call) -> bool:
    """Whether a call stands in a module that was joined to a program which parses its command line itself."""
    first: int | None = python.memo.get("first module")
    if first is None:
        first = python.segments[0][0] if python.segments else 0
        own = any(one.line < first for one in python.methods("parse_args", "parse_known_args"))
        first = python.memo["first module"] = first if own else 0
    return 0 < first <= call.line


def _fills_any(python: Python, call: Call) -> bool:
    """``setattr(args, name, value)``, and not ``setattr(module, name, layer)``."""
    if call.attr != "setattr" or not call.node.args:
        return True
    told = python.text(call.node.args[0]).lower()
    if told == "self":
        scope = call.around.scope if call.around is not None else None
        owner = scope.outer.node if scope is not None and scope.outer is not None else None
        bases = owner.bases if isinstance(owner, ast.ClassDef) else ()
        return any("Namespace" in python.source.dotted(base)[0] for base in bases)
    return any(word in told for word in _OPTIONS) and not _is_made(python, call.node.args[0], call.around)


def _is_made(python: Python, node: ast.expr, around: Around | None) -> bool:
    """Whether an object comes of calls that parse nothing: ``config = AutoConfig.from_pretrained(name)``."""
    origins = python.origins(node, around)
    return all(
        isinstance(one, ast.Call) and not any(word in python.source.source(one).lower() for word in ("pars", "arg"))
        for one, _ in origins
    )


_OPTIONS: Final = ("arg", "opt", "cfg", "conf", "flag", "hp", "names", "setting")
"""Parts of what the arguments of a program are called."""


def _is_updated(python: Python) -> bool:
    """``vars(args).update(...)``, ``args.__dict__.update(...)``."""
    return any(
        any(word in python.source.source(call.receiver) for word in ("vars(", "__dict__", "args", "opt"))
        for call in python.methods("update")
        if call.receiver is not None
    )


def _is_parsed(python: Python, node: ast.expr, around: Around | None, steps: int = 0) -> bool:
    """Whether something is what the parser made of the command line, and nothing else here."""
    if not isinstance(node, ast.Name | ast.Attribute | ast.Call) or steps > _STEPS:
        return False
    if isinstance(node, ast.Name):
        bound = python.bindings(node, around)
        if bound and all(one.how == "unpacked" and one.index == 0 and _parses(one.whole) for one in bound):
            return True
        if any(one.how == "parameter" for one in bound) and len(bound) > 1:
            return _is_still_parsed(python, node, bound, around, steps)
        if len(bound) == 1 and bound[0].how == "parameter":
            given = python.given(bound[0], node.id)
            return bool(given) and all(_is_parsed(python, one, where, steps + 1) for one, where in given)
        if len(bound) > 1 and all(one.how == "=" and one.value is not None for one in bound):
            return _is_last_parsed(python, node, bound, around, steps)
    origins = python.origins(node, around)
    return bool(origins) and all(
        _parses(one)
        or _parses_all(python, one, where)
        or (isinstance(one, ast.Subscript) and index_of(one.slice) == 0 and _parses(one.value))
        or (isinstance(one, ast.Name) and one is not node and _is_parsed(python, one, where, steps + 1))
        for one, where in origins
    )


_STEPS: Final = 8


def _is_last_parsed(
    python: Python, node: ast.Name, bound: Sequence[Binding], around: Around | None, steps: int
) -> bool:
    """``opt = parser.parse_args()`` and then ``if opt.resume: opt = Namespace(**saved)``, which is not run."""
    above = set(around.outwards()) if around is not None else set()
    scope = around.scope if around is not None else None
    for one in reversed(bound):
        own = one.around.scope if one.around is not None else None
        if own is scope and one.line >= node.lineno:
            continue
        sure = is_sure(python, one.around, above, steps + 1)
        if sure:
            return _is_parsed(python, one.value, one.around, steps + 1)
        if sure is None and not _is_parsed(python, one.value, one.around, steps + 1):
            return False
    return False


def _is_still_parsed(
    python: Python, node: ast.Name, bound: Sequence[Binding], around: Around | None, steps: int
) -> bool:
    """A parameter that is given another value only below, or where a condition does not hold: ``if args.ckpt: args =
    torch.load(args.ckpt)["args"]``."""
    above = set(around.outwards()) if around is not None else set()
    for one in reversed(bound):
        last = one.how == "=" and one.value is not None and one.line < node.lineno
        if last and one.value is not None and is_sure(python, one.around, above, steps + 1):
            return _is_parsed(python, one.value, one.around, steps + 1)
    for one in bound:
        if one.how == "parameter":
            given = python.given(one, node.id)
            if not given or not all(_is_parsed(python, value, where, steps + 1) for value, where in given):
                return False
        elif one.line < node.lineno and is_sure(python, one.around, set(), steps + 1) is not False:
            return False
    return True


def _parses(node: ast.expr | None) -> bool:
    """``parser.parse_args()`` of the command line."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("parse_args", "parse_known_args")
        and not node.args
        and not node.keywords
    )


def _parses_all(python: Python, node: ast.expr, around: Around | None) -> bool:
    """``parser.parse_args(args)`` where that is ``sys.argv[1:]`` or None, which is the same."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "parse_args":
        return False
    if len(node.args) != 1 or node.keywords:
        return False
    return all(
        one is node
        or (isinstance(one, ast.Constant) and one.value is None)
        or python.source.source(one) == "sys.argv[1:]"
        for one, _ in python.origins(node.args[0], around)
    )


class _Given(Struct):
    """A flag as the command line has it last: where, ``--flag=value`` or the word that follows."""

    at: int
    marked: bool
    value: Value
    following: Value


def hides_flags(words: Sequence[Value]) -> bool:
    """Whether a word that is not known may be flags of any name: ``$EXTRA_ARGS``, ``"$@"``, one in a flag's place.

    One behind a flag is its value, and so is what a word with a known beginning goes on with.
    """
    previous: Value = ""
    for word in words:
        if not isinstance(word, str) and _may_be_flags(word, previous):
            return True
        previous = word
    return False


def _may_be_flags(word: Value, previous: Value) -> bool:
    beginning = head(word)
    if beginning:
        return beginning.startswith("-") and "=" not in beginning
    unknown = next((one for one in pieces(word) if isinstance(one, Unknown)), UNKNOWN)
    name = unknown.source.upper()
    if not name or "--" in name or any(mark in name for mark in _SEVERAL):
        return True
    return not isinstance(previous, str) or not previous.startswith("-") or "=" in previous


_SEVERAL: Final = ("ARG", "OPT", "EXTRA", "FLAG", "PARAM", "CMD", "OVERRIDE", "@", "*", "+", "COMMON", "SETTING")
"""Marks of a variable that holds several words."""


def _line(python: Python) -> dict[str, _Given] | None:
    """The flags of the command line; None where it is not known, or a word of it may be any flag."""
    memo: dict[str, _Given] | None = python.memo.get("line", _UNREAD)
    if memo is _UNREAD:
        words = python.arguments
        memo = None
        if words is not None and not hides_flags(words):
            memo = {}
            for at, word in enumerate(words):
                name, mark, _ = head(word).partition("=")
                value = after_mark(word) if mark else ""
                memo[name] = _Given(at, mark != "", value, words[at + 1] if at + 1 < len(words) else None)
        python.memo["line"] = memo
    return memo


_UNREAD: Final[dict[str, _Given]] = {}


def has_line(python: Python) -> bool:
    """Whether the command line is known as far as its flags go."""
    return _line(python) is not None


def flag_value(python: Python, flags: Sequence[str], takes: bool) -> Value:
    """The last value of one of these flags on the command line; ``""`` for one without; None where it is absent."""
    line = _line(python)
    return None if line is None else _given(line, flags, takes)


def word_of(python: Python, name: str) -> Value:
    """The value of a word ``name=value``; ``""`` where there is none; None where the line is not known."""
    line = _line(python)
    if line is None:
        return None
    given = line.get(name)
    return given.value if given is not None and given.marked and isinstance(given.value, str) else ""


def given_otherwise(python: Python) -> frozenset[str]:
    """Names of attributes that the text gives a value to on anything but ``self``."""
    return _filled(python)


def _given(line: Mapping[str, _Given], flags: Sequence[str], takes: bool) -> Value:
    """The last value of one of the flags; ``""`` for one that takes none; None where it is absent."""
    found = max((line[flag] for flag in flags if flag in line), key=lambda one: one.at, default=None)
    if found is None:
        return None
    if not takes:
        return ""
    return found.value if found.marked else found.following


def _default(python: Python, made: Call, depth: int, absent: Value) -> Value:
    node = made.argument("default")
    if node is None:
        return absent
    value = python.follow(node, made.around, depth)
    return _as_type(python, made, value) if isinstance(value, str) else value


def _as_type(python: Python, made: Call, word: Value) -> Value:
    if not isinstance(word, str):
        return word if isinstance(word, Text | Unknown) else UNKNOWN
    node = made.argument("type")
    name = "str" if node is None else python.source.dotted(node)[0]
    if name in _TEXTS:
        return word
    convert = _TYPES.get(name)
    if convert is None or len(word) > 32:
        return UNKNOWN
    try:
        return convert(word)
    except (ValueError, OverflowError):
        return UNKNOWN


def _is_nothing(node: object) -> bool:
    return isinstance(node, ast.Constant) and node.value in (None, False, "")
