"""The lines that a program lacks before its loop: they read back what its own save writes, in its own names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.script import Lines
from webhook.programs.contents import is_optimizer
from webhook.programs.names import Save
from webhook.programs.pasted import folder_in, loop_of, module_name, newest_of, pattern_of, with_import
from webhook.programs.program import Script
from webhook.programs.python import Python
from webhook.programs.values import Unknown, pieces

_DCP: Final = ("torch.distributed.checkpoint.save", "torch.distributed.checkpoint.async_save")
_READERS: Final = {
    "pickle.dump": "pickle.load(open(newest, 'rb'))",
    "joblib.dump": "joblib.load(newest)",
    "numpy.save": "numpy.load(newest)",
    "numpy.savez": "numpy.load(newest)",
    "safetensors.torch.save_file": "safetensors.torch.load_file(newest)",
}
_BY_NAME: Final = {"save_weights": "load_weights", "save_checkpoint": "load_checkpoint", "save_state": "load_state"}


def restored(script: Script, save: Save) -> str:
    """What loads the newest that ``save`` has left; it stands before the loop, which begins where that stopped."""
    python, loop = save.python, loop_of(save.call)
    pattern, _ = pattern_of(save)
    folder = folder_in(script, save, loop.lineno if loop is not None else 0)
    if not pattern or not folder:
        return _fixed_name(python, save, loop)
    distributed = save.function in _DCP
    glob = f"{pattern}/.metadata" if distributed else pattern
    lines = [f"newest = {newest_of(folder, glob)}"]
    read, modules = _read(python, save, "os.path.dirname(newest)" if distributed else "newest")
    start, header = _begins(python, save, loop)
    if start:
        lines.append(f"{start[0]} = {start[1]}")
    body = [*read, *_counters(python, save, loop)]
    if start:
        body.append(f"{start[0]} = {start[2]}")
    lines += ["if newest:", *("    " + one for one in body)]
    wanted = ["glob", "os", *modules, *(("re",) if start and "re.findall" in start[2] else ())]
    return with_import(python, _before(python, loop, lines, header), *wanted)


def _fixed_name(python: Python, save: Save, loop: ast.For | ast.While | None) -> str:
    path = python.text(save.target if save.target is not None else save.path)
    read, modules = _read(python, save, path)
    body = [*read, *_counters(python, save, loop)]
    start, header = _begins(python, save, loop)
    lines = []
    if start:
        lines.append(f"{start[0]} = {start[1]}")
        body.append(f"{start[0]} = {start[2]}")
    lines += [f"if os.path.exists({path}):", *("    " + one for one in body)]
    return with_import(python, _before(python, loop, lines, header), "os", *modules)


def _before(python: Python, loop: ast.For | ast.While | None, lines: list[str], header: str) -> str:
    """In the place of the loop's first line, where that has one line; else with a word where it goes."""
    text = "\n".join(lines)
    if loop is None:
        return f"# before the loop:\n{text}"
    base = max(python.place.line, 1) - 1
    at = base + loop.lineno
    if header:
        return Lines(f"# line {at}:\n{text}\n{header}", at, at)
    return Lines(f"# before line {at}:\n{text}", at, at - 1)


def _begins(python: Python, save: Save, loop: ast.For | ast.While | None) -> tuple[tuple[str, str, str] | None, str]:
    """The name, first and restored value of where ``for x in range(n)`` begins, and the loop's line with it."""
    if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name) or not isinstance(loop.iter, ast.Call):
        return None, ""
    ranged = loop.iter
    if not isinstance(ranged.func, ast.Name) or ranged.func.id != "range" or len(ranged.args) not in (1, 2):
        return None, ""
    line = python.source.lines[loop.lineno - 1]
    if ranged.end_lineno != loop.lineno or len(line.strip()) > 80 or not line.isascii():
        return None, ""
    target = loop.target.id
    key = next((key for key, node in parts_of(save) if isinstance(node, ast.Name) and node.id == target), None)
    holes = [piece for piece in pieces(save.value) if isinstance(piece, Unknown) and piece.kind == "loop"]
    found = "os.path.dirname(newest)" if save.function in _DCP else "newest"
    if key is not None:
        told = f'state["{key}"] + 1'
    elif len(holes) == 1 and holes[0].source == target:
        told = rf'int(re.findall(r"\d+", os.path.basename({found}))[-1]) + 1'
    else:
        return None, ""
    name = "first" if not python.source.bindings.keys() & {(0, "first")} else "first_step"
    begin = python.source.source(ranged.args[0]) if len(ranged.args) == 2 else "0"
    end = python.source.source(ranged.args[-1])
    header = line[: ranged.col_offset] + f"range({name}, {end})" + line[ranged.end_col_offset :]
    return (name, begin, told), header.strip()


def _counters(python: Python, save: Save, loop: ast.For | ast.While | None) -> Iterator[str]:
    """``steps = state["steps"]`` for what is counted and saved, and has its first value before the loop."""
    if loop is None:
        return
    for key, node in parts_of(save):
        if not isinstance(node, ast.Name):
            continue
        found = python.bindings(node, save.call.around)
        before = [one for one in found if one.line < loop.lineno and one.how == "="]
        if before and len(found) > 1 and any(one.line >= loop.lineno for one in found):
            yield f'{node.id} = state["{key}"]'


def _read(python: Python, save: Save, newest: str) -> tuple[list[str], tuple[str, ...]]:
    call = save.call
    node = call.argument("obj", 0) if call.argument("obj", 0) is not None else call.argument("state_dict", 0)
    if save.function in _DCP:
        return _distributed(python, save, node, newest)
    if save.function in ("torch.save", *_READERS):
        if save.function == "torch.save":
            torch = module_name(python, "torch") or "torch"
            reader, modules = f'{torch}.load({newest}, map_location="cpu")', ("torch",) if torch == "torch" else ()
        else:
            name, _, _ = save.function.rpartition(".")
            local = module_name(python, name)
            reader = _READERS[save.function].replace("newest", newest)
            reader = reader.replace(f"{name}.", f"{local}.") if local else reader
            modules = () if local else (name,)
        parts = list(_states(python, save))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "state_dict":
            return [f"{python.text(node.func.value)}.load_state_dict({reader})"], modules
        if parts:
            return [f"state = {reader}", *parts], modules
        if isinstance(node, ast.Name | ast.Attribute):
            whole = reader if list(parts_of(save)) or save.function != "torch.save" else None
            return [f"{python.text(node)} = {whole or reader[:-1] + ', weights_only=False)'}"], modules
        return [f"state = {reader}"], modules
    receiver = python.text(call.receiver) if call.receiver is not None else "model"
    if save.function == "save_pretrained":
        return [f"{receiver} = type({receiver}).from_pretrained({newest})"], ()
    return [f"{receiver}.{_BY_NAME.get(save.function, save.function.replace('save', 'load'))}({newest})"], ()


def _distributed(python: Python, save: Save, node: ast.expr | None, newest: str) -> tuple[list[str], tuple[str, ...]]:
    """DCP reads into a state that is there: made as for the save, and handed back."""
    function = python.text(save.call.node.func)
    load = f"{function.rpartition('.')[0]}.load" if "." in function else "torch.distributed.checkpoint.load"
    modules = () if "." in function else ("torch.distributed.checkpoint",)
    if node is None:
        return [], ()
    origin = next((one for one, _ in python.origins(node, save.call.around) if isinstance(one, ast.Dict)), None)
    if origin is not None:
        whole = python.source.source(origin)
        if len(whole) <= 80:
            return [
                *_slots(python, save),
                f"state = {whole}",
                f"{load}(state, checkpoint_id={newest})",
                *_states(python, save),
            ], modules
    return [f"{load}({python.text(node)}, checkpoint_id={newest})"], modules


def _slots(python: Python, save: Save) -> Iterator[str]:
    """An optimizer has no slots before its first step, and DCP fills only what is there; asking for them makes them."""
    names = [
        python.text(part.func.value)
        for _, part in parts_of(save)
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "state_dict"
    ]
    optimizers = [name for name in names if is_optimizer(python, name)]
    if len(optimizers) == 1 and len(names) == 2:
        yield "from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict"
        yield f"get_optimizer_state_dict({next(one for one in names if one not in optimizers)}, {optimizers[0]})"


def _states(python: Python, save: Save) -> Iterator[str]:
    """``model.load_state_dict(state["model"])`` for each part that is saved, in the user's own names."""
    for key, part in parts_of(save):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "state_dict":
            yield f'{python.text(part.func.value)}.load_state_dict(state["{key}"])'


def parts_of(save: Save) -> list[tuple[str, ast.expr]]:
    """The parts of what is saved, by their keys."""
    call, python = save.call, save.python
    node = call.argument("obj", 0) if call.argument("obj", 0) is not None else call.argument("state_dict", 0)
    pairs: list[tuple[str, ast.expr]] = []
    for origin, _ in python.origins(node, call.around) if node is not None else ():
        if isinstance(origin, ast.Dict):
            pairs += [
                (key.value, one)
                for key, one in zip(origin.keys, origin.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            ]
        elif isinstance(origin, ast.Call) and python.source.dotted(origin.func)[0] == "dict":
            pairs += [(keyword.arg, keyword.value) for keyword in origin.keywords if keyword.arg]
    return pairs
