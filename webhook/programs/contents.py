"""What a save writes: weights alone, or the optimizer with them."""

from __future__ import annotations

import ast
from typing import Final

from webhook.programs.lines import search
from webhook.programs.loads import known_packages
from webhook.programs.names import Save
from webhook.programs.python import Around, Call, Python
from webhook.programs.words import words_in

_MODELS: Final = (
    "model",
    "net",
    "module",
    "encoder",
    "decoder",
    "generator",
    "discriminator",
    "policy",
    "actor",
    "critic",
    "lora",
    "unet",
    "vae",
    "backbone",
    "classifier",
    "gpt",
    "llm",
    "resnet",
    "bert",
    "transformer",
    "pipe",
)
_PLAIN: Final = (
    "epoch",
    "step",
    "iter",
    "loss",
    "best",
    "args",
    "config",
    "cfg",
    "hparam",
    "arch",
    "vocab",
    "acc",
    "metric",
    "param",
    "name",
    "version",
    "seed",
    "class",
    "dim",
    "size",
    "score",
    "time",
    "path",
    "status",
    "history",
    "label",
    "git",
    "date",
    "update",
    "wandb",
    "hash",
    "commit",
    "type",
    "tag",
)
_FULL: Final = (
    r"optim[^\n]{0,60}state_dict|state_dict[^\n]{0,60}optim|\bopt\w{0,40}\.state_dict|save_state\(|get_state_dict\("
    r"|optimizer_state|opt_state|train_state|TrainState|scaler\.state_dict|sched\w{0,40}\.state_dict"
)
_BY_OTHERS: Final = frozenset(("save_checkpoint", "_save_checkpoint"))
"""They save all there is, unless the text itself says what they do."""


def keeps_optimizer(python: Python) -> bool:
    """Whether anything in the text may save an optimizer's state."""
    memo = python.memo.get("keeps_optimizer")
    if memo is None:
        memo = search(python.source, _FULL, "opt", "state", "save_", "sched", "scaler") is not None or any(
            (call.attr in _BY_OTHERS and call.attr not in python.source.functions) or _is_given_optimizer(python, call)
            for call in python.source.calls
        )
        python.memo["keeps_optimizer"] = memo
    return bool(memo)


def _is_given_optimizer(python: Python, call: Call) -> bool:
    """``keeping.save(folder, net, optim=opt)`` of elsewhere: what it is given it may save."""
    if _SAVING.isdisjoint(words_in(call.attr)) or call.name.partition(".")[0] in known_packages():
        return False
    if call.attr in python.source.functions:
        return False
    given = [*call.node.args, *(one.value for one in call.node.keywords)]
    return any(
        isinstance(one, ast.Name | ast.Attribute) and is_optimizer(python, python.source.dotted(one)[0])
        for one in given[:32]
    ) or any((one.arg or "").startswith("optim") for one in call.node.keywords)


_SAVING: Final = frozenset(("save", "store", "keep", "dump", "write", "checkpoint", "ckpt", "snapshot", "persist"))


def optimizer_of(python: Python) -> str:
    """The optimizer's name in the text: what steps in the loop, else what is called so."""
    steps = [
        python.text(call.receiver)
        for call in python.methods("step")
        if isinstance(call.receiver, ast.Name | ast.Attribute)
    ]
    named = [name for name in steps if "opt" in name.lower()]
    made = [name for name in steps if is_optimizer(python, name)]
    zeroed = {python.text(call.receiver) for call in python.methods("zero_grad") if call.receiver is not None}
    return next(iter([*named, *made, *(name for name in steps if name in zeroed)]), "optimizer")


def is_optimizer(python: Python, name: str) -> bool:
    """Whether a name is given an optimizer of torch, or is called one."""
    if "optim" in name.lower() or name.lower().rpartition(".")[2] == "opt":
        return True
    made: frozenset[str] | None = python.memo.get("optimizers")
    if made is None:
        made = python.memo["optimizers"] = frozenset(
            bound
            for (_, bound), found in python.source.bindings.items()
            for binding in found
            if isinstance(binding.value, ast.Call) and ".optim." in f".{python.source.dotted(binding.value.func)[0]}"
        )
    return name in made


def is_weights(save: Save) -> bool:
    """Whether a save holds a model's weights and nothing that a run could go on from; False where it is not told."""
    python = save.python
    if save.function == "save_pretrained":
        return save.call.receiver is not None and _is_model(python, save.call.receiver)
    node = save.call.argument("obj", 0) or save.call.argument("state_dict", 0)
    if node is None:
        return False
    if isinstance(node, ast.Name | ast.Attribute) and _is_trained(python, python.source.dotted(node)[0]):
        return True
    origins = python.origins(node, save.call.around)
    return bool(origins) and all(
        _holds_weights(python, origin, where)
        or _filled_with_weights(python, node, origin)
        or _is_loaded_whole(python, node, origin)
        for origin, where in origins
    )


def _is_loaded_whole(python: Python, node: ast.expr, origin: ast.expr) -> bool:
    """``self.model = torch.load(path)`` that has ``parameters()``: a model with its code, and no checkpoint."""
    if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(origin, ast.Call):
        return False
    if python.source.dotted(origin.func)[0] != "torch.load" or not _is_model(python, node):
        return False
    name = python.source.dotted(node)[0]
    return any(call.name == f"{name}.parameters" for call in python.methods("parameters"))


def _filled_with_weights(python: Python, node: ast.expr, origin: ast.expr) -> bool:
    """``state = {}`` and then ``state["model"] = model.state_dict()``, key by key."""
    if not isinstance(node, ast.Name) or not isinstance(origin, ast.Dict) or origin.keys:
        return False
    items: list[tuple[str, ast.expr, Around | None]] = []
    for statement, around in python.source.statements:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id == node.id:
                key = target.slice
                if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                    return False
                items.append((key.value.lower(), statement.value, around))
    return _all_weights(python, items, 1)


def _holds_weights(python: Python, node: ast.expr, around: Around | None, depth: int = 0) -> bool:
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "state_dict":
            return _is_model(python, node.func.value)
        if python.source.dotted(node.func)[0].endswith("get_model_state_dict"):
            return True
        inner = _same_model(python, node)
        return inner is not None and depth < 6 and _holds_weights(python, inner, around, depth + 1)
    if isinstance(node, ast.Name | ast.Attribute):
        # torch.save(model): the object itself, of which nothing is known but its name.
        last = python.source.dotted(node)[0].lower().rpartition(".")[2]
        if last == "ema" or (last.endswith(("model", "net", "network")) and _is_model(python, node)):
            return True
        return isinstance(node, ast.Name) and _is_trained(python, node.id)
    if not isinstance(node, ast.Dict) or depth > 4:
        return False
    items: list[tuple[str, ast.expr, Around | None]] = []
    for key, value in zip(node.keys, node.values, strict=True):
        name = key.value.lower() if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
        items.append((name, value, around))
    return _all_weights(python, items, depth + 1)


def _same_model(python: Python, node: ast.Call) -> ast.expr | None:
    """``deepcopy(model)``, ``unwrap_model(model)``, ``model.half()``: the model itself."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("half", "float", "cpu", "eval", "bfloat16"):
        return node.func.value
    name = python.source.dotted(node.func)[0].rpartition(".")[2]
    return node.args[0] if name in ("deepcopy", "de_parallel", "unwrap_model") and node.args else None


def _all_weights(python: Python, items: list[tuple[str, ast.expr, Around | None]], depth: int) -> bool:
    """Whether one is a model's state and no other can be an optimizer's."""
    weights = False
    for name, value, around in items:
        if isinstance(value, ast.Constant) and value.value is None:
            continue
        if name == "opt" and isinstance(value, ast.Call) and python.source.dotted(value.func)[0] == "vars":
            continue  # the options of the command line
        if not name or "optim" in name or name == "opt":
            return False
        if any(_holds_weights(python, origin, where, depth) for origin, where in python.origins(value, around)):
            weights = True
        elif not any(word in name for word in _PLAIN) and not _is_plain(python, value):
            return False
    return weights


def _is_plain(python: Python, node: ast.expr) -> bool:
    """A number or a text by what it is, whatever its key: ``epoch``, ``step + 1``, ``int(n)``, ``3``."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.BinOp):
        return _is_plain(python, node.left) and _is_plain(python, node.right)
    if isinstance(node, ast.Call):
        return python.source.dotted(node.func)[0] in ("int", "float", "str", "len")
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    last = python.source.dotted(node)[0].lower().rpartition(".")[2]
    return any(word in last for word in _PLAIN) and "opt" not in last and "state" not in last


def _is_trained(python: Python, name: str) -> bool:
    """Whether an optimizer is made with the parameters of what has that name."""
    trained: frozenset[str] | None = python.memo.get("trained")
    if trained is None:
        found = set()
        for call in python.methods("parameters"):
            if isinstance(call.receiver, ast.Name | ast.Attribute):
                found.add(python.source.dotted(call.receiver)[0].removesuffix(".module"))
        trained = python.memo["trained"] = frozenset(one for one in found if "optim" not in one)
    return name in trained


def _is_model(python: Python, node: ast.expr) -> bool:
    if _is_trained(python, python.source.dotted(node)[0].removesuffix(".module")):
        return True
    name = python.source.dotted(node)[0].lower().removesuffix(".module").rpartition(".")[2]
    return any(word in name for word in _MODELS) and "train" not in name and "optim" not in name
