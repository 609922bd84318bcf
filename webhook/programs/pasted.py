"""Program text that a fix adds: it parses, brings its imports, and speaks in the program's own names.

``Lines`` is a fix with its place: the lines of the program that it stands for. Whoever pastes by machine (``ckptguard
fix --unsafe``, the tests) needs that; whatever has no such place is advice that a person puts where it belongs.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from typing import Final

from webhook.model.script import Lines
from webhook.programs.config import Config
from webhook.programs.names import Save, tag_of
from webhook.programs.program import Script
from webhook.programs.python import Around, Call, Python
from webhook.programs.ranks import guard_of, processes_of
from webhook.programs.shell import Command
from webhook.programs.values import Text, Unknown, head, kinds, pieces

LONGEST: Final = 80
"""Characters of the user's own that a fix may hold, as a message may."""
_SIMPLE: Final = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign)
_RANKS: Final = ("rank", "global_rank", "world_rank", "RANK")
_RANK: Final = 'int(os.environ.get("RANK") or os.environ.get("JOB_COMPLETION_INDEX") or 0)'
_DISTRIBUTED: Final = "torch.distributed"


def with_import(python: Python, fix: str, *modules: str) -> str:
    """The same behind those of the modules that it needs and the text does not import.

    Of a ``Lines`` the place stays: what is imported goes to the head of the program.
    """
    missing = [name for name in dict.fromkeys(modules) if name not in python.source.imports]
    if not missing:
        return fix
    return headed(python, fix, f"import {', '.join(sorted(missing))}")


def headed(python: Python, fix: str, *imports: str) -> str:
    """The fix behind these lines, which go to the head of the program."""
    first = "\n".join(imports)
    return fix.behind(first, python.at(_head(python)).line) if isinstance(fix, Lines) else f"{first}\n{fix}"


def _head(python: Python) -> int:
    """The line of the first import, or of the first statement: neither the docstring nor ``from __future__``."""
    body = python.source.tree.body
    first = 0
    for node in body:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node is body[0]
        if text or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            return node.lineno
        first = first or node.lineno
    return first or 1


def module_name(python: Python, module: str) -> str:
    """What a module is called in the text: ``dist`` after ``import torch.distributed as dist``; ``""`` where it is not
    imported, be it as a part of its package."""
    for name, dotted in python.source.imports.items():
        if dotted == module:
            return name
    top, _, rest = module.partition(".")
    return module if rest and python.source.imports.get(top) == top else ""


def folder_in(script: Script, save: Save, line: int = 0) -> str:
    """``folder_of`` a save, or the declared directory where that is what the text amounts to or nothing is told."""
    folder = folder_of(save.python, save, line)
    declared = script.launch.directories[:1]
    if declared and (not folder or folder == f'"{declared[0]}"'):
        return in_python(script)
    return folder


def quoted(word: str) -> str:
    """A word as a shell takes it for one."""
    if word and word.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum() and word.isascii():
        return word
    return "'" + word.replace("'", "'\\''") + "'"


def in_python(script: Script) -> str:
    """The declared directory as Python has it; what rehearsals and runs export where none is declared."""
    name = script.launch.variable
    if not name and not script.launch.directories:
        return 'os.environ["CKPT_DIR"]'
    return f'os.environ["{name}"]' if name else f'"{script.launch.directories[0]}"'


def in_command(script: Script, command: Command | None) -> str:
    """The same as an argument: ``"$CKPT_DIR"`` of a shell, ``$(CKPT_DIR)`` where the kubelet starts the program."""
    name = script.launch.variable
    if not name:
        return script.launch.directories[0]
    return f'"${name}"' if command is not None else f"$({name})"


def in_config(script: Script, config: Config) -> str:
    """The same in a file: ``${CKPT_DIR}`` where the shell puts variables into it."""
    name = script.launch.variable
    return f"${{{name}}}" if name and config.expands else script.launch.directories[0]


def statement_of(python: Python, node: ast.AST) -> ast.stmt | None:
    """The innermost statement that a node stands in."""
    line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
    found: ast.stmt | None = None
    body: Sequence[ast.stmt] = python.source.tree.body
    while body:
        inner = next((one for one in body if _covers(one, line, column)), None)
        if inner is None:
            break
        found = inner
        body = [one for field in ast.iter_child_nodes(inner) for one in _statements(field)]
    return found


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    if isinstance(node, ast.stmt):
        yield node
    elif isinstance(node, ast.ExceptHandler | ast.match_case):
        yield from node.body


def _covers(node: ast.stmt, line: int, column: int) -> bool:
    start, end = (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return start <= (line, column) < end


def after(python: Python, call: Call, added: Sequence[str], instead: str = "") -> str:
    """The statement of ``call`` and behind it the lines that are ``added``; ``instead`` replaces the statement's text.

    Where the statement has more lines, or more characters than a message may quote, the added lines alone, with the
    line that they come after.
    """
    stmt = statement_of(python, call.node)
    text = "\n".join(added)
    if not isinstance(stmt, _SIMPLE):
        return text
    first, last = stmt.lineno, stmt.end_lineno or stmt.lineno
    opening = python.source.lines[first - 1].encode()[: stmt.col_offset].decode()
    closing = python.source.lines[last - 1].encode()[stmt.end_col_offset or 0 :].decode()
    base = max(python.place.line, 1) - 1
    bare = not closing.strip() or closing.lstrip().startswith("#")
    own = python.source.lines[first - 1].strip()
    if bare and first == last and len(own) <= LONGEST and (not opening.strip() or opening.rstrip().endswith(":")):
        whole = instead or python.source.source(stmt)
        whole += closing.rstrip() if not instead else ""
        if opening.strip():
            inner = "\n".join("    " + one for one in [*whole.split("\n"), *text.split("\n")] if one)
            return Lines(f"{opening.strip()}\n{inner}", base + first, base + first)
        return Lines(f"{whole}\n{text}" if text else whole, base + first, base + first)
    if instead and not (bare and not opening.strip()):
        return f"{instead}\n{text}" if text else instead
    if instead:
        return Lines(f"{instead}\n{text}" if text else instead, base + first, base + last)
    return Lines(f"# after line {base + last}:\n{text}", base + last + 1, base + last, base + first)


def opened_with(save: Save) -> ast.With | None:
    """The ``with open(path, "wb") as file:`` that holds a save to that file and nothing else."""
    python = save.python
    if save.opener not in ("open", "io.open"):
        return None
    for node in ast.walk(python.source.tree):
        if not isinstance(node, ast.With) or len(node.items) != 1 or len(node.body) != 1:
            continue
        made = node.items[0].context_expr
        if isinstance(made, ast.Call) and made.args and made.args[0] is save.path:
            return node if statement_of(python, save.call.node) is node.body[0] else None
    return None


def with_opened(save: Save, opened: ast.With, path: str) -> str:
    """The same ``with`` for another path, from the left edge."""
    source = save.python.source
    item = opened.items[0]
    made = source.source(item.context_expr).replace(source.source(save.path), path, 1)
    name = f" as {source.source(item.optional_vars)}" if item.optional_vars is not None else ""
    return f"with {made}{name}:\n    {source.source(opened.body[0])}"


def guarded(python: Python, call: Call, condition: str) -> str:
    """The statement of a call below a condition. What is too long to be quoted stands as ``...`` in what is shown."""
    stmt = statement_of(python, call.node)
    if not isinstance(stmt, _SIMPLE):
        return f"if {condition}:\n    {python.text(call.node)}"
    first, last = stmt.lineno, stmt.end_lineno or stmt.lineno
    lines = python.source.lines[first - 1 : last]
    opening = lines[0].encode()[: stmt.col_offset].decode()
    base = max(python.place.line, 1) - 1
    if opening.strip():
        return f"if {condition}:\n    {python.text(call.node)}"
    own = [line[len(opening) :] if not line[: len(opening)].strip() else line for line in lines]
    whole = "\n".join([f"if {condition}:", *("    " + line for line in own)])
    long = first != last or len(own[0].strip()) > LONGEST
    shown = f"if {condition}:\n    ...    # {_lines(base + first, base + last)}, one level deeper" if long else whole
    return Lines(shown, base + first, base + last, whole=whole)


def _lines(first: int, last: int) -> str:
    return f"line {first}" if first == last else f"lines {first} to {last}"


def only_first(script: Script, python: Python, call: Call) -> tuple[str, tuple[str, ...]]:
    """A condition under which one process of the run does what stands below, and the modules that it needs; ``""``
    where the call is one process's own already."""
    if processes_of(script, python) == "one" or guard_of(python, call) == "global":
        return "", ()
    receiver = python.text(call.receiver) if call.receiver is not None else ""
    if "accelerate" in python.source.modules and call.attr == "save_state" and receiver:
        return f"{receiver}.is_main_process", ()
    if "deepspeed" in python.source.modules and call.attr == "save_checkpoint" and receiver:
        return f"{receiver}.global_rank == 0", ()
    rank, modules = rank_of(python, call)
    return f"{rank} == 0", modules


def rank_of(python: Python, call: Call) -> tuple[str, tuple[str, ...]]:
    """The number of the process in the program's own words, and the modules that they need."""
    for name in _RANKS:
        found = python.bindings(ast.Name(name), call.around)
        first = found[0] if found and found[0].line < call.line else None
        if first is not None and kinds(python.value(first.value, first.around)) == {"rank"}:
            return name, ()
    function = module_name(python, f"{_DISTRIBUTED}.get_rank")
    if function and function in python.source.imports:
        return f"{function}()", ()
    dist = module_name(python, _DISTRIBUTED)
    if dist and ("init_process_group" in python.source.code or "init_device_mesh" in python.source.code):
        return f"{dist}.get_rank()", ()
    if dist and _DISTRIBUTED in python.source.imports.values():
        return f"({dist}.get_rank() if {dist}.is_initialized() else 0)", ()
    return _RANK, ("os",)


def nested(condition: str, lines: Sequence[str]) -> list[str]:
    """The lines below a condition; as they are where there is none."""
    return [f"if {condition}:", *("    " + line for line in lines)] if condition else list(lines)


def loop_of(call: Call) -> ast.For | ast.While | None:
    """The outermost loop around a call, within its own function."""
    scope = call.around.scope if call.around is not None else None
    found: ast.For | ast.While | None = None
    for around in call.around.outwards() if call.around is not None else ():
        if around is scope:
            break
        if around.kind in ("for", "while") and isinstance(around.node, ast.For | ast.While):
            found = around.node
    return found


def counter_of(python: Python, call: Call) -> str:
    """The name that counts in the outermost loop around a call: ``step`` of ``for step, x in enumerate(...)``."""
    loop = loop_of(call)
    return counter_in(loop) if loop is not None else ""


def counter_in(loop: ast.For | ast.While) -> str:
    """The name that a loop counts by; ``""`` where none is told."""
    if not isinstance(loop, ast.For):
        return ""
    name = loop.iter.func.id if isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Name) else ""
    target = loop.target
    if name == "enumerate" and isinstance(target, ast.Tuple):
        target = target.elts[0]
    if not isinstance(target, ast.Name):
        return ""
    counts = name in ("enumerate", "range", "trange") or any(word in target.id for word in ("step", "epoch", "iter"))
    return target.id if counts else ""


def pattern_of(save: Save) -> tuple[str, bool]:
    """What ``glob`` finds the numbered checkpoints by, below the directory that ``folder_of`` tells: the component with
    the number, and whether that is a directory. ``""`` where no number is in the path."""
    before, number, behind = "", False, ""
    for piece in pieces(save.value):
        text = piece if isinstance(piece, str) else "*"
        if not number and isinstance(piece, Unknown) and piece.kind == "loop":
            number = True
        elif number:
            behind += text
        else:
            before += text
    if not number or any(mark in before + behind for mark in "[]?"):
        return "", False
    name, below, _ = behind.partition("/")
    folder = bool(below) or save.function in _FOLDERS
    return f"{before.rpartition('/')[2]}[0-9]*{name}".replace("**", "*"), folder


_FOLDERS: Final = frozenset(
    (
        "torch.distributed.checkpoint.save",
        "torch.distributed.checkpoint.async_save",
        "save_checkpoint",
        "save_state",
        "save_pretrained",
    )
)


def folder_of(python: Python, save: Save, line: int = 0) -> str:
    """The directory above the numbered checkpoints, as an expression of names that are there in ``line`` (0: at the
    save); a text where its names are not; ``""`` where it is not told."""
    written = save.target if save.target is not None else save.path
    node: ast.expr | None = written
    known = head(save.value)
    literal = f'"{known.rpartition("/")[0]}"' if known.startswith("/") and "/" in known[1:] else ""
    if tag_of(python, save.call) is None:
        node = _above(python, written, save.call.around)
    if node is None:
        return literal
    text = ast.unparse(node)
    if len(text) > LONGEST or not _is_there(python, node, save.call.around, line or save.call.line):
        return literal
    if isinstance(node, ast.Constant):
        return f'"{node.value!s}"'
    return python.source.source(node) if hasattr(node, "lineno") else text


def _above(python: Python, node: ast.expr, around: Around | None, depth: int = 0) -> ast.expr | None:
    """The expression for the directory above the component that holds the number."""
    if depth > 6:
        return None
    if isinstance(node, ast.Name):
        found = [one for one in python.bindings(node, around) if one.value is not None]
        if len(found) == 1 and found[0].value is not None and found[0].how == "=":
            return _above(python, found[0].value, found[0].around, depth + 1)
        return None
    if isinstance(node, ast.Call):
        name = python.source.dotted(node.func)[0]
        if name in ("str", "pathlib.Path", "os.fspath", "open") and node.args:
            return _above(python, node.args[0], around, depth + 1)
        if name == "os.path.join":
            return _join_above(python, node, around, depth)
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Add):
        if _counts(python, node.left, around):
            return _above(python, node.left, around, depth + 1)
        right = python.value(node.right, around)
        slash = isinstance(node.op, ast.Div) or head(right).startswith("/")
        before = head(right).lstrip("/") if isinstance(right, Text) else ""
        return node.left if slash and "/" not in before else None
    return _text_above(python, node, around) if isinstance(node, ast.JoinedStr) else None


def _join_above(python: Python, node: ast.Call, around: Around | None, depth: int) -> ast.expr | None:
    for at, part in enumerate(node.args):
        if not _counts(python, part, around):
            continue
        before = head(python.value(part, around))
        if at == 0:
            return _above(python, part, around, depth + 1)
        if "/" in before:
            return None
        if at == 1:
            return node.args[0]
        return ast.Call(node.func, node.args[:at], [])
    return None


def _text_above(python: Python, node: ast.JoinedStr, around: Around | None) -> ast.expr | None:
    parts: list[ast.expr] = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue) and _counts(python, part.value, around):
            break
        parts.append(part)
    while parts:
        last = parts.pop()
        if isinstance(last, ast.Constant) and isinstance(last.value, str) and "/" in last.value:
            before = last.value.rpartition("/")[0]
            if before:
                parts.append(ast.Constant(before))
            break
    if len(parts) == 1 and isinstance(parts[0], ast.FormattedValue) and parts[0].format_spec is None:
        return parts[0].value
    if len(parts) == 1 and isinstance(parts[0], ast.Constant):
        return ast.Constant(parts[0].value)
    return ast.JoinedStr(parts) if parts else None


def _counts(python: Python, node: ast.expr, around: Around | None) -> bool:
    return "loop" in kinds(python.value(node, around))


def _is_there(python: Python, node: ast.expr, around: Around | None, line: int) -> bool:
    """Whether all names of an expression have their values by ``line``."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and one.id not in python.source.imports and not hasattr(builtins, one.id):
            found = python.bindings(one, around)
            if one.id in ("self", "cls"):
                continue
            if not found or min(binding.line for binding in found) >= line:
                return False
    return True


def newest_of(folder: str, pattern: str) -> str:
    """An expression for the newest of the numbered checkpoints by the time it was written; None where there is none."""
    return f'max(glob.glob(os.path.join({folder}, "{pattern}")), key=os.path.getmtime, default=None)'
