"""The names that a program gives its checkpoints, and whether text order is their order."""

from __future__ import annotations

import ast
from typing import Final

from msgspec import Struct

from webhook.programs.listing import name_of
from webhook.programs.program import Script
from webhook.programs.python import Around, Call, Python
from webhook.programs.values import Text, Unknown, Value, as_number, is_known

_SAVES: Final[dict[str, tuple[int | None, tuple[str, ...]]]] = {
    "torch.save": (1, ("f",)),
    "torch.distributed.checkpoint.save": (None, ("checkpoint_id",)),
    "torch.distributed.checkpoint.async_save": (None, ("checkpoint_id",)),
    "pickle.dump": (1, ("file",)),
    "joblib.dump": (1, ("filename",)),
    "numpy.savez": (0, ("file",)),
    "numpy.save": (0, ("file",)),
    "safetensors.torch.save_file": (1, ("filename",)),
}
"""Function -> position and keywords of the path."""
LOCAL: Final = frozenset(_SAVES) - {"torch.distributed.checkpoint.save", "torch.distributed.checkpoint.async_save"}
"""Functions for which a path is a file of the pod, whatever it looks like, where nothing else opened it."""
_METHODS: Final[dict[str, tuple[int | None, tuple[str, ...]]]] = {
    "save_checkpoint": (0, ("save_dir", "filepath", "path")),
    "save_state": (0, ("output_dir",)),
    "save_pretrained": (0, ("save_directory",)),
    "save_model": (0, ("output_dir", "fname")),
    "save_weights": (0, ("filepath",)),
    "save_lora": (0, ("save_directory",)),
}
_WIDE: Final = 99
"""As wide as it need be. Epochs that nobody counts are taken to be less than a hundred."""


class Save(Struct, frozen=True):
    """One call that writes a checkpoint (or weights): its path's value, and the last component with ``*`` for pieces.

    ``path`` is the node of the path. ``text_order_fails``: its number is neither padded nor bounded below ten.
    ``function`` is the dotted name of what saves. ``numbered``: a step or an epoch is in the path.
    """

    python: Python
    call: Call
    path: ast.expr
    value: Value
    name: str
    function: str
    numbered: bool
    text_order_fails: bool
    target: ast.expr | None = None
    """What the file is called in the end, where it is renamed after the save; ``value`` and ``name`` are of that."""
    opener: str = ""
    """What opened the file (``open``, ``fsspec.open``); empty where the save opens it by itself."""


def saves(script: Script) -> tuple[Save, ...]:
    """Every save in the Python texts whose path is an argument."""
    found = script.memo.get("saves")
    if found is None:
        found = tuple(save for python in script.pythons for save in saves_of(python))
        script.memo["saves"] = found
    return found


def numbered_saves(script: Script) -> tuple[Save, ...]:
    """Those with a step or an epoch in their path."""
    return tuple(save for save in saves(script) if save.numbered)


def saves_of(python: Python) -> list[Save]:
    """Those of one text."""
    out: list[Save] = []
    for name, (position, keywords) in _SAVES.items():
        for call in python.calls(name):
            _add(python, call, name, position, keywords, out)
    for attr, (position, keywords) in _METHODS.items():
        for call in python.methods(attr):
            _add(python, call, attr, position, keywords, out)
    for call in python.methods("save"):
        name = _saver(python, call)
        if name:
            _add(python, call, name, 0 if name == "fabric.save" else 1, ("path", "save_path"), out)
    return out


def _saver(python: Python, call: Call) -> str:
    """What saves: Lightning's Fabric (``fabric.save(path, state)``), TensorFlow's ``Saver().save(session, path)``."""
    if call.receiver is None or len(call.node.args) < 2:
        return ""
    made = python.class_of(call.receiver, call.around)
    if made.endswith("Fabric") or python.text(call.receiver) in ("fabric", "self.fabric"):
        return "fabric.save"
    return "tf.train.Saver.save" if made.startswith("tensorflow.") and made.endswith("train.Saver") else ""


def _add(
    python: Python, call: Call, function: str, position: int | None, keywords: tuple[str, ...], out: list[Save]
) -> None:
    node = None
    for keyword in keywords:
        node = node if node is not None else call.argument(keyword)
    if node is None and position is not None:
        node = call.argument("", position)
    if node is None:
        return
    node, around, opener = _opened(python, node, call.around)
    written = node
    renamed = _renamed(python).get(ast.dump(node))
    if renamed is not None and renamed[1].line >= call.line:
        node, around = renamed[0], renamed[1].around
    value = python.value(node, around)
    tag = tag_of(python, call)
    if tag is not None:
        from webhook.programs.values import join_path

        value = join_path((value, python.value(tag, call.around)))
    holes = [piece for piece in value.parts if isinstance(piece, Unknown)] if isinstance(value, Text) else []
    numbered = any(hole.kind == "loop" for hole in holes)
    fresh = any(hole.kind == "fresh" for hole in holes)
    fails = numbered and not fresh and not _padded(python, node, around, call)
    target = None if node is written else node
    out.append(Save(python, call, written, value, name_of(value), function, numbered, fails, target, opener))


def _renamed(python: Python) -> dict[str, tuple[ast.expr, Call]]:
    """What is renamed in the text, by the expression of its first name: the name that it gets, and the call."""
    memo: dict[str, tuple[ast.expr, Call]] | None = python.memo.get("renamed")
    if memo is None:
        memo = {}
        for function in ("os.replace", "os.rename", "shutil.move"):
            for call in python.calls(function):
                if len(call.node.args) == 2:
                    memo[ast.dump(call.node.args[0])] = call.node.args[1], call
        for call in python.methods("replace", "rename"):
            if call.receiver is not None and len(call.node.args) == 1 and call.name not in ("os.replace", "os.rename"):
                memo[ast.dump(call.receiver)] = call.node.args[0], call
        python.memo["renamed"] = memo
    return memo


def tag_of(python: Python, call: Call) -> ast.expr | None:
    """The name of one checkpoint below the directory, as DeepSpeed's ``save_checkpoint(directory, tag)`` is told it."""
    own = call.attr == "save_checkpoint" and "deepspeed" in python.source.modules
    return call.argument("tag", 1 if own else None)


def _opened(python: Python, node: ast.expr, around: Around | None) -> tuple[ast.expr, Around | None, str]:
    """``with open(path, "wb") as f: torch.save(x, f)``: the path of the file that is written to, and what opened it."""
    if isinstance(node, ast.Name):
        for binding in python.bindings(node, around):
            opened = binding.value
            if isinstance(opened, ast.Call) and opened.args:
                name = python.source.dotted(opened.func)[0]
                if name.rpartition(".")[2] in ("open", "GFile"):
                    return opened.args[0], binding.around, name
    if isinstance(node, ast.Call) and node.args:
        name = python.source.dotted(node.func)[0]
        if name in ("open", "fsspec.open", "smart_open.open"):
            return node.args[0], around, name
    return node, around, ""


def _padded(python: Python, node: ast.expr, around: Around | None, call: Call) -> bool:
    """Whether every number in the path is as wide as it will ever get, so that text order is right."""
    widths: list[int] = []
    for origin, where in python.origins(node, around):
        for part in ast.walk(origin):
            if isinstance(part, ast.FormattedValue):
                inner = python.value(part.value, where)
                if part.format_spec is None and _is_padded_before(python, part.value, where):
                    widths.append(_WIDE)
                    continue
                if isinstance(inner, Unknown) and inner.kind == "loop":
                    spec = python.value(part.format_spec, where) if part.format_spec is not None else ""
                    width = _width(spec) if isinstance(spec, str) else _WIDE
                    widths.append(_enough(width, _reaches(python, part.value, where), python.text(part.value)))
            elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "zfill":
                wide = as_number(python.value(part.args[0], where)) if part.args else None
                return wide is None or wide >= 4
            elif isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod):
                left = python.value(part.left, where)
                if isinstance(left, str) and is_known(left):
                    at = left.find("%0")
                    digits = (
                        "".join(letter for letter in left[at + 2 : at + 5] if letter.isdecimal()) if at >= 0 else ""
                    )
                    widths.append(int(digits) if digits else 0)
            elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "format":
                base = python.value(part.func.value, where)
                at = base.find(":0") if isinstance(base, str) else -1
                digits = "".join(letter for letter in base[at + 2 : at + 5] if letter.isdecimal()) if at >= 0 else ""
                widths.append(int(digits) if digits else 0)
    # A number that is built in a way not followed may be padded there.
    return min(widths) >= 4 if widths else not _plain(python, node, around)


def _is_padded_before(python: Python, node: ast.expr, around: Around | None) -> bool:
    """``name_of(f"{epoch:02d}")``: what is put into the name was padded by whoever gives it."""
    origins = [origin for origin, _ in python.origins(node, around)] if isinstance(node, ast.Name) else []
    return any(
        isinstance(origin, ast.JoinedStr)
        and any(isinstance(part, ast.FormattedValue) and part.format_spec is not None for part in origin.values)
        for origin in origins
    )


def _plain(python: Python, node: ast.expr, around: Around | None) -> bool:
    """``"step_" + str(step)``: no padding can hide in it."""
    for origin, where in python.origins(node, around):
        for part in ast.walk(origin):
            if isinstance(part, ast.Call):
                name = python.source.dotted(part.func)[0]
                if name not in ("str", "os.path.join", "pathlib.Path", "int", "repr"):
                    return False
            # ``os.path.join(folder, name)`` with ``name = f"net_{epoch:02d}.pt"`` above it.
            elif isinstance(part, ast.Name) and any(
                isinstance(one, ast.JoinedStr) for one, _ in python.origins(part, where)
            ):
                return False
    return True


def _enough(width: int, most: float, name: str) -> int:
    """``_WIDE`` where every number fits, 0 where one does not; the width itself where it is not known how many come."""
    if most < 10 ** max(width, 1):
        return _WIDE
    if most < float("inf"):
        return 0
    return _WIDE if width > 1 and "ep" in name.lower() and "step" not in name.lower() else width


def _width(spec: str) -> int:
    digits = spec.rstrip("dn")
    return int(digits[1:]) if digits[:1] == "0" and digits[1:].isdecimal() and len(digits) < 10 else 0


def _reaches(python: Python, node: ast.expr, around: Around | None) -> float:
    """The largest value of a loop's variable, where ``range`` says it; else infinite. ``epoch + 1`` is one more."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        more = as_number(python.value(node.right, around))
        return float("inf") if more is None else _reaches(python, node.left, around) + more
    if isinstance(node, ast.Name):
        for binding in python.bindings(node, around):
            if binding.how == "for":
                loop = binding.around.node
                iterated = getattr(loop, "iter", None)
                if (
                    isinstance(iterated, ast.Call)
                    and isinstance(iterated.func, ast.Name)
                    and iterated.func.id in ("range", "trange")
                    and iterated.args
                ):
                    end = as_number(python.value(iterated.args[min(1, len(iterated.args) - 1)], binding.around.outer))
                    if end is not None:
                        return end - 1
        return _counted_to(python, node, around)
    return float("inf")


def _counted_to(python: Python, name: ast.Name, around: Around | None) -> float:
    """The end of ``while n < LAST`` around a use of ``n``, which the loop counts up; else infinite."""
    if not any(one.how == "+=" for one in python.bindings(name, around)):
        return float("inf")
    for here in around.outwards() if around is not None else ():
        test = here.node.test if here.kind == "while" else None
        if (
            isinstance(test, ast.Compare)
            and len(test.ops) == 1
            and isinstance(test.left, ast.Name)
            and test.left.id == name.id
            and isinstance(test.ops[0], ast.Lt | ast.LtE)
        ):
            end = as_number(python.value(test.comparators[0], here.outer))
            return float("inf") if end is None else end
    return float("inf")
