"""What a program reads back: the calls that load a checkpoint, and what is known of the packages that it imports."""

from __future__ import annotations

import ast
import sys
from typing import Final

from msgspec import Struct

from webhook.programs.arguments import destination_of, dictionary_of, filled_by_itself
from webhook.programs.program import Script
from webhook.programs.python import Call, Python
from webhook.programs.values import UNKNOWN, Value
from webhook.programs.words import NO_RUN, words_in

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


def reads_data(name: str) -> bool:
    """``prepare_dataloader``, ``load_images``, ``TrainDataset``: named for data, and not for a checkpoint."""
    words = set(words_in(name))
    return not words.isdisjoint(NO_RUN) and words.isdisjoint(_OF_RUNS)


_OF_RUNS: Final = frozenset(
    (
        *("checkpoint", "checkpoints", "ckpt", "ckpts", "resume", "resumed", "restore", "restored", "recover", "state"),
        *("model", "weights", "weight", "snapshot", "run", "optimizer", "latest", "last", "trainer", "engine", "all"),
    )
)
"""Words by which a name may be that of a run's state after all."""


def unseen_may_load(python: Python) -> bool:
    """Whether anything that comes from a package that is not seen could read a checkpoint.

    It could not where it is a value, or a function or class that is named for something else and that is told neither
    a place nor what there is to restore: ``Net()``, ``batches(step)``.
    """
    source = python.source
    known = known_packages()
    owners = {call.name.rpartition(".")[0] for call in source.calls if call.imported}
    for name, dotted in source.imports.items():
        if dotted.partition(".")[0] in known:
            continue
        lowered = dotted.lower()
        if reads_data(dotted.rpartition(".")[2]) and dotted not in owners and dotted not in source.modules:
            continue
        if dotted in source.modules or any(word in lowered for word in _BY_NAME):
            return True
        if not _WORDS_OF_IT.isdisjoint(lowered.replace(".", "_").split("_")):
            return True
        for call in source.by_attr.get(dotted.rpartition(".")[2], ()):
            if call.name == dotted and _is_told(python, call) and not removes_files(python, call):
                return True
        if dotted in owners or name in source.functions or name in source.classes:
            return True
    return False


def _is_told(python: Python, call: Call) -> bool:
    given = (*call.node.args, *(keyword.value for keyword in call.node.keywords))
    words = " ".join((*(python.source.source(one) for one in given), *(one.arg or "*" for one in call.node.keywords)))
    return call.open_ended or any(word in words.lower() for word in _TOLD)


_BY_NAME: Final = ("load", "resum", "restor", "recover", "ckpt", "checkpoint", "train", "engine", "callback")
"""Parts of the names of what may restore a run."""
_WORDS_OF_IT: Final = frozenset(
    (
        *("setup", "init", "fit", "run", "main", "state", "opt", "optim", "optimizer", "prepare", "build", "from"),
        *("latest", "newest", "last", "util", "utils", "helpers", "common", "misc", "lib", "get", "make", "create"),
    )
)
"""Whole words of such names."""
_TOLD: Final = (
    *("ckpt", "checkpoint", "resum", "restor", "dir", "path", "out", "arg", "cfg", "conf", "opt", "model", "net"),
    *("param", "flag", "hp", "self", "state", "engine", "environ", "getenv", "folder", "root", "/"),
)
"""Parts of arguments that say where checkpoints are, or that are what is restored."""
NAMES_OF_DATA: Final = frozenset(("load_dataset", "dataloader", "load_from_disk", "load_metric", "safe_load", "loads"))


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
        "accelerate",
        "deepspeed",
        "peft",
        "orbax",
        "xgboost",
        "lightgbm",
        "keras",
        "tensorflow",
        "stable_baselines3",
        "gymnasium",
        *("absl", "click", "fire", "tyro", "jsonargparse", "hydra", "omegaconf", "termcolor", "loguru", "prettytable"),
        *("tensorboardX", "tensorboard_logger", "comet_ml", "neptune", "mlflow", "torchinfo", "torchsummary", "git"),
        *("gym", "ale_py", "timm", "clip", "apex", "seaborn", "numba", "h5py", "imageio", "skimage", "albumentations"),
        *("joblib", "pynvml", "torchmetrics", "fsspec", "dotenv", "setproctitle", "pytorch_fid", "lpips", "kornia"),
        *("librosa", "soundfile", "jiwer", "sacrebleu", "seqeval", "nibabel", "networkx", "rdkit", "ogb", "spacy"),
        *("torch_geometric", "torch_scatter", "torch_sparse", "xformers", "flash_attn", "triton", "scipy", "regex"),
    )
)
_KNOWN: Final = sys.stdlib_module_names | _PACKAGES


def known_packages() -> frozenset[str]:
    """Packages whose insides are known: the standard library and what training programs commonly import."""
    return _KNOWN


def names_place(python: Python, call: Call) -> bool:
    """Whether a method is told of files, by their names: ``fs.remove(path)``, not ``names.remove("a")``."""
    given = " ".join(
        python.text(one).lower() for one in (*((call.receiver,) if call.receiver else ()), *call.node.args)
    )
    return bool(call.node.args) and any(word in given for word in _PLACES)


_PLACES: Final = ("fs", "file", "path", "ckpt", "checkpoint", "dir", "old", "storage", "gfile", "client", "stale")


def removes_files(python: Python, call: Call) -> bool:
    """``prune(ckpt_dir, keep=3)`` of elsewhere, by its name; ``os.system("ls -t ... | xargs rm")``."""
    if call.name in _COMMANDS:
        return any(
            isinstance(part, ast.Constant) and isinstance(part.value, str) and "rm" in part.value.split()
            for node in call.node.args
            for part in ast.walk(node)
        )
    words = set(words_in(call.attr))
    return (
        not _REMOVES.isdisjoint(words)
        and words <= _REMOVES | _FILES
        and (call.imported or not words <= _REMOVES or names_place(python, call))
        and bool(call.node.args or call.node.keywords)
        and call.attr not in python.source.functions
        and (call.imported or isinstance(call.node.func, ast.Attribute))
        and call.name.partition(".")[0] not in known_packages()
    )


_COMMANDS: Final = ("os.system", "os.popen", "subprocess.run", "subprocess.call", "subprocess.check_call")
_REMOVES: Final = frozenset(
    ("prune", "clean", "cleanup", "rotate", "purge", "trim", "gc", "keep", "delete", "remove", "retain")
)
"""Words of the names of functions that remove old files."""
_FILES: Final = frozenset(
    (
        *("checkpoint", "checkpoints", "ckpt", "ckpts", "file", "files", "dir", "dirs", "directory", "directories"),
        *("folder", "folders", "path", "paths", "model", "models", "weights", "snapshot", "snapshots", "save", "saves"),
        *(
            "old",
            "older",
            "oldest",
            "last",
            "latest",
            "newest",
            "best",
            "top",
            "only",
            "up",
            "n",
            "k",
            "stale",
            "extra",
        ),
        *(
            "previous",
            "excess",
            "most",
            "recent",
            "epoch",
            "epochs",
            "step",
            "steps",
            "output",
            "outputs",
            "and",
            "tree",
        ),
        *("maybe", "except", "all", "run", "runs", "state", "states", "artifacts", "if", "needed", "by", "to", "limit"),
    )
)
"""The other words of such names; ``remove_columns`` has one that is none of them."""


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
    for call in python.methods("add_argument"):
        for name, default in (dictionary_of(python, call, 0) or {}).items():
            if (default is None or default is False or default == "") and name not in filled:
                out.setdefault(name, call)
    python.memo["optional"] = out
    return out
