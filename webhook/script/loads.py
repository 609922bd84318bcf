"""What a program reads back: the calls that load a checkpoint, and whether anything in it could."""

from __future__ import annotations

import ast
import sys
from typing import Final

from msgspec import Struct

from webhook.script.arguments import destination_of, filled_by_itself
from webhook.script.program import Script
from webhook.script.python import Call, Python
from webhook.script.values import UNKNOWN, Value

_FUNCTIONS: Final[dict[str, tuple[int | None, str]]] = {
    "torch.load": (0, "f"),
    "torch.distributed.checkpoint.load": (None, "checkpoint_id"),
    "torch.distributed.checkpoint.load_state_dict": (None, "storage_reader"),
    "pickle.load": (0, "file"),
    "joblib.load": (0, "filename"),
    "safetensors.torch.load_file": (0, "filename"),
    "jax.numpy.load": (0, "file"),
}
_METHODS: Final[dict[str, tuple[int | None, str]]] = {
    "load_checkpoint": (0, "load_dir"),
    "load_state": (0, "input_dir"),
    "restore": (None, "path"),
    "load_weights": (0, "filepath"),
    "load_model": (0, "fname"),
}
_WORDS: Final = (
    "load",
    "resum",
    "restor",
    "from_checkpoint",
    "from_pretrained",
    "ckpt_path",
    "init_model",
    "xgb_model",
)
"""Parts of a call's or argument's name by which something may be read back."""


class Load(Struct, frozen=True):
    """One call that reads a checkpoint. ``path`` is the node of its path; None where it has none."""

    python: Python
    call: Call
    path: ast.expr | None
    value: Value
    function: str


def loads(script: Script) -> tuple[Load, ...]:
    """Every call in the Python texts that is known to read a checkpoint or weights."""
    found = script.memo.get("loads")
    if found is None:
        found = tuple(load for python in script.pythons for load in _loads(python))
        script.memo["loads"] = found
    return found


def _loads(python: Python) -> list[Load]:
    out: list[Load] = []
    for name, (position, keyword) in _FUNCTIONS.items():
        out += [_load(python, call, name, position, keyword) for call in python.calls(name)]
    for attr, (position, keyword) in _METHODS.items():
        out += [_load(python, call, attr, position, keyword) for call in python.methods(attr)]
    return out


def _load(python: Python, call: Call, name: str, position: int | None, keyword: str) -> Load:
    node = call.argument(keyword, position)
    value = python.value(node, call.around) if node is not None else UNKNOWN
    return Load(python, call, node, value, name)


def may_load(script: Script) -> bool:
    """Whether anything that the program calls or imports could read a checkpoint: by its name, or because it is unseen.

    Only where this is False does the absence of a load mean anything.
    """
    found = script.memo.get("may_load")
    if found is None:
        found = not script.whole or bool(script.unread) or any(_may_load(python) for python in script.pythons)
        script.memo["may_load"] = found
    return bool(found)


def _may_load(python: Python) -> bool:
    source = python.source
    if source.stars or not source.modules <= known_packages():
        return True
    names = {attr.lower() for attr in source.by_attr} - _DATA
    names.update((keyword.arg or "load").lower() for call in source.calls for keyword in call.node.keywords)
    told = " ".join(names)
    if any(word in told for word in _WORDS):
        return True
    return any(any(word in name.lower() for word in ("load_", "resum", "restor")) for name in source.functions)


_DATA: Final = frozenset(("load_dataset", "dataloader", "load_from_disk", "load_metric", "safe_load", "loads"))


def known_packages() -> frozenset[str]:
    """Packages whose insides are known: the standard library and what training programs commonly import."""
    return sys.stdlib_module_names | _PACKAGES


_PACKAGES: Final = frozenset(
    (
        "torch",
        "torchvision",
        "torchaudio",
        "torchtext",
        "numpy",
        "pandas",
        "scipy",
        "sklearn",
        "tqdm",
        "yaml",
        "transformers",
        "datasets",
        "tokenizers",
        "evaluate",
        "safetensors",
        "huggingface_hub",
        "requests",
        "wandb",
        "tensorboard",
        "matplotlib",
        "PIL",
        "cv2",
        "einops",
        "psutil",
        "rich",
        "sentencepiece",
        "tiktoken",
        "boto3",
        "packaging",
        "pyarrow",
        "nltk",
        "jax",
        "flax",
        "optax",
        "bitsandbytes",
        "kubernetes",
    )
)


def optional_arguments(python: Python) -> dict[str, Call]:
    """``args.NAME`` -> the ``add_argument`` that defines it, where its default is nothing (None, "", False).

    One that the program sets by itself (``args.resume = newest(...)``) is none of them.
    """
    memo = python.memo.get("optional")
    if memo is not None:
        return memo  # type: ignore[no-any-return]
    out: dict[str, Call] = {}
    filled = filled_by_itself(python)
    for call in python.methods("add_argument"):
        destination = destination_of(python, call)
        if destination is None or destination in filled:
            continue
        action = python.argument(call, "action", default="store")
        default = python.argument(call, "default", default=False if action == "store_true" else None)
        required = python.argument(call, "required", default=False)
        if (
            (default is None or default is False or default == "")
            and required is False
            and action in ("store", "store_true")
        ):
            out[destination] = call
    python.memo["optional"] = out
    return out
