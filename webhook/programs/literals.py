"""Literals, conversions, and what the name of a function or variable says of a value that is not known."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Final

from webhook.programs.shell import HIDDEN
from webhook.programs.values import UNKNOWN, Text, Unknown, Value, is_known, join, pieces

PATHS: Final = frozenset(("pathlib.Path", "pathlib.PosixPath", "pathlib.PurePath", "pathlib.PurePosixPath"))
SAME: Final = frozenset(
    ("os.path.abspath", "os.path.realpath", "os.path.normpath", "os.path.expanduser", "os.fspath", "os.fsdecode")
)

KINDS: Final[Mapping[str, str]] = {
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


def kind_of_name(name: str) -> str:
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


def hidden_kind(name: str) -> Unknown:
    inner = name.removeprefix(HIDDEN).rstrip("_")
    fresh, _, variable = inner.partition("_")
    if fresh == "FRESH":
        return Unknown("fresh", f"${variable}" if variable else "$(...)")
    return Unknown(ENVIRONMENT_KINDS.get(inner, ""), f"${inner}")


def constant(value: Any) -> Value:
    if value.__class__ is str and HIDDEN in value:
        parts: list[Value] = []
        first, *rest = value.split(HIDDEN)
        parts.append(first)
        for part in rest:
            name, _, after = part.partition("__")
            parts += [hidden_kind(HIDDEN + name), after]
        return join(parts)
    if value is None or value.__class__ in (str, int, float, bool):
        return value
    return UNKNOWN


def is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18


def arithmetic(operator: type, left: Any, right: Any) -> Value:
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


def convert(name: str, value: Value) -> Value:
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


def percent(left: str, right: Value) -> Value:
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


def truth_of(value: Value) -> bool | None:
    """Whether a value counts as true in a condition; None where that is not told."""
    if isinstance(value, Text):
        return True if any(isinstance(piece, str) for piece in value.parts) else None
    return None if isinstance(value, Unknown) else bool(value)


def compared(operator: ast.cmpop, left: Value, right: Value) -> Value:
    """``a is None``, ``a == b``, ``a in b``, ``a < b``, as far as both sides are known."""
    if isinstance(operator, ast.Is | ast.IsNot) and right is None and not isinstance(left, Unknown):
        return (left is None) == isinstance(operator, ast.Is)
    if not is_known(left) or not is_known(right) or isinstance(left, tuple | dict):
        return UNKNOWN
    if isinstance(operator, ast.Is | ast.IsNot) and (isinstance(left, bool) or isinstance(right, bool)):
        return (left is right) == isinstance(operator, ast.Is)
    if isinstance(operator, ast.In | ast.NotIn):
        if not isinstance(right, tuple | dict | str) or (isinstance(right, str) and not isinstance(left, str)):
            return UNKNOWN
        if isinstance(right, tuple) and not all(is_known(one) for one in right):
            return UNKNOWN
        return (left in right) == isinstance(operator, ast.In)
    if isinstance(right, tuple | dict):
        return UNKNOWN
    if isinstance(operator, ast.Eq | ast.NotEq):
        return (left == right) == isinstance(operator, ast.Eq)
    if is_number(left) and is_number(right):
        if isinstance(operator, ast.Lt | ast.GtE):
            return (left < right) == isinstance(operator, ast.Lt)
        if isinstance(operator, ast.Gt | ast.LtE):
            return (left > right) == isinstance(operator, ast.Gt)
    return UNKNOWN


def end_of_path(value: Value, above: bool) -> Value:
    """``os.path.dirname`` (``above``) and ``os.path.basename`` of a path whose last slash is known."""
    parts = list(pieces(value)) if isinstance(value, str | Text) else []
    for at in range(len(parts) - 1, -1, -1):
        part = parts[at]
        if isinstance(part, str) and "/" in part:
            before, _, after = part.rpartition("/")
            if above:
                return join((*parts[:at], before)) or "/"
            return join((after, *parts[at + 1 :]))
    if isinstance(value, str):
        return "" if above else value
    return UNKNOWN
