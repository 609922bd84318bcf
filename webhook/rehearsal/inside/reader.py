"""Run by the user's own interpreter, from Python 3.8 on: reads checkpoints with the frameworks' own readers.

``reader.py steps PATH...`` prints, for each, the step that it holds and the names of its parts. ``reader.py compare A C
[B]`` prints, part by part, where C is elsewhere than A by more than B is. What no reader knows is compared as bytes.
A pickle runs what it holds: it was written by the program that is rehearsed, and is read as that program reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import sys
from typing import Any, Dict, List, Optional

_STEP = re.compile(
    r"^(global_?step|step|steps|iteration|iterations|iter|it|num_steps|step_count|current_step|trainer_step|"
    r"completed_steps|round|rounds|num_trees|epoch|epochs|current_epoch|num_boosted_rounds)$",
    re.IGNORECASE,
)
_PARTS = (
    ("rng", r"rng|^key$|random_state|random|seed|generator|prng"),
    ("data", r"sampler|loader|position|cursor|offset|order|permutation|perm|dataset|shard|consumed|batch|data"),
    ("scheduler", r"sched|lr_|^lr$|learning_rate|warmup"),
    ("optimizer", r"optim|momentum|moments?$|velocity|exp_avg|adam|adagrad|slots|opt_?state|^opt$|^m$|^v$|^mu$|^nu$"),
    ("step", r"global_?step|^steps?$|^iter|iteration|epoch|num_trees|^rounds?$|^it$|current_step|completed"),
    ("weights", r"model|weight|param|state_dict|net|layer|theta|^w\d*$|^b\d*$|bias|kernel|learner|tree|embedding|ema"),
)
_TOLERANCE = 1e-6
_IGNORED = re.compile(r"time|date|stamp|elapsed|duration|hostname|pid|uuid|path|version|log_history|runtime|per_second")


def load(path: str) -> Any:
    """What a checkpoint holds; a folder is a dictionary of its files."""
    if os.path.isdir(path):
        return _folder(path)
    return _file(path)


def _folder(path: str) -> Any:
    names = sorted(os.listdir(path))
    if "_CHECKPOINT_METADATA" in names:
        try:
            return _orbax(path)
        except Exception:  # noqa: S110
            pass
    if ".metadata" in names:
        try:
            return _dcp(path)
        except Exception:  # noqa: S110
            pass
    found: Dict[str, Any] = {}
    for name in names:
        try:
            found[os.path.splitext(name)[0]] = load(os.path.join(path, name))
        except Exception:
            found[os.path.splitext(name)[0]] = _bytes(os.path.join(path, name))
    return found


def _orbax(path: str) -> Any:
    import orbax.checkpoint as ocp  # type: ignore[import-not-found,unused-ignore]

    inner = [name for name in sorted(os.listdir(path)) if os.path.isdir(os.path.join(path, name))]
    items = [name for name in inner if os.path.exists(os.path.join(path, name, "_METADATA"))]
    if os.path.exists(os.path.join(path, "_METADATA")):
        return ocp.PyTreeCheckpointer().restore(os.path.abspath(path))
    found = {name: ocp.PyTreeCheckpointer().restore(os.path.abspath(os.path.join(path, name))) for name in items}
    for name in inner:
        if name not in found:
            for file in sorted(os.listdir(os.path.join(path, name))):
                found.setdefault(name, _file(os.path.join(path, name, file)))
    return found


def _dcp(path: str) -> Any:
    import tempfile

    from torch.distributed.checkpoint.format_utils import (  # type: ignore[import-not-found,unused-ignore]
        dcp_to_torch_save,
    )

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "state.pt")
        dcp_to_torch_save(path, file)
        return _torch(file)


def _torch(path: str) -> Any:
    import torch  # type: ignore[import-not-found,unused-ignore]

    return torch.load(path, map_location="cpu", weights_only=False)


def _file(path: str) -> Any:
    end = os.path.splitext(path)[1]
    with open(path, "rb") as file:
        head = file.read(8)
    if end == ".safetensors":
        return _safetensors(path)
    if end == ".npz" or end == ".npy":
        import numpy  # type: ignore[import-not-found,unused-ignore]

        with open(path, "rb") as file:
            value = numpy.load(file, allow_pickle=True)
            return {name: value[name] for name in value.files} if hasattr(value, "files") else value
    if head[:4] == b"PK\x03\x04":
        return _torch(path)
    if end == ".ubj" or end == ".model":
        return _xgboost(path)
    if head[:1] in b"{[" or end == ".json":
        with open(path, "rb") as file:
            return json.loads(file.read().decode())
    if head[:1] == b"\x80":
        return _pickle(path)
    return _bytes(path)


def _xgboost(path: str) -> Any:
    import xgboost  # type: ignore[import-not-found,unused-ignore]

    booster = xgboost.Booster()
    booster.load_model(path)
    made = json.loads(bytes(booster.save_raw("json")).decode())
    made["num_boosted_rounds"] = booster.num_boosted_rounds()
    return made


def _safetensors(path: str) -> Any:
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length).decode())
        start = 8 + length
        found: Dict[str, Any] = {}
        for name, one in header.items():
            if name == "__metadata__":
                continue
            begin, end = one["data_offsets"]
            file.seek(start + begin)
            data = file.read(end - begin)
            try:
                import numpy

                kinds = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}
                found[name] = numpy.frombuffer(data, kinds[one["dtype"]])
            except Exception:
                found[name] = data
    return found


class _Stub:
    """Stands for a class of the program's, which is not there: what was in it is all there is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.inner = {"args": list(args), **kwargs}

    def __setstate__(self, state: Any) -> None:
        self.inner = {"state": state}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except Exception:
            return _Stub


def _pickle(path: str) -> Any:
    with open(path, "rb") as file:
        return _Unpickler(file).load()


def _bytes(path: str) -> Any:
    with open(path, "rb") as file:
        return file.read()


def flatten(value: Any, at: str = "", found: Optional[Dict[str, Any]] = None, depth: int = 0) -> Dict[str, Any]:
    """Leaves by path: numbers, texts, lists of numbers; arrays as they are."""
    found = {} if found is None else found
    if isinstance(value, _Stub):
        value = value.inner
    if len(found) > 200000:
        return found
    if isinstance(value, dict) and depth < 24:
        for key, one in value.items():
            flatten(one, at + "." + str(key) if at else str(key), found, depth + 1)
    elif isinstance(value, (list, tuple)) and depth < 24:
        if value and all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in value):
            found[at] = list(value)
        else:
            for index, one in enumerate(value):
                flatten(one, at + "." + str(index) if at else str(index), found, depth + 1)
    elif depth < 24 and hasattr(value, "__dict__") and not hasattr(value, "shape") and not callable(value):
        flatten(vars(value), at, found, depth + 1)
    else:
        found[at] = value
    return found


def part_of(path: str) -> str:
    """Which kind of state a leaf is: the outermost word that says it, but a step within an optimizer's is its own."""
    words = path.lower().split(".")
    # Lightning's callbacks and Hugging Face's arguments are settings and records, no state that is trained on.
    if words[0] in ("training_args", "config", "callbacks", "hparams", "hyper_parameters", "args"):
        return "other"
    for word in words:
        for name, pattern in _PARTS:
            if re.search(pattern, word):
                return name
    return "other"


def step_of(leaves: Dict[str, Any]) -> Optional[int]:
    """The step that a checkpoint says of itself: the shallowest; a step before an epoch."""
    best = None
    for path, value in leaves.items():
        words = path.split(".")
        if hasattr(value, "shape") and getattr(value, "size", None) in (1,):
            value = value.item()
        elif hasattr(value, "numel") and callable(value.numel) and value.numel() == 1:
            value = value.item()
        if isinstance(value, str) and words[-1] == "num_trees" and value.isdigit():
            value = int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not _STEP.match(words[-1]):
            continue
        if any(re.search(r"optim|sched|callback|param_groups", word.lower()) for word in words[:-1]):
            continue
        rank = ("epoch" in words[-1].lower(), len(words))
        if best is None or rank < best[0]:
            best = (rank, value)
    return best[1] if best is not None else None


def _numbers(value: Any) -> Optional[List[float]]:
    if hasattr(value, "detach"):
        value = value.detach()
        value = value.float() if value.is_floating_point() else value
        value = value.cpu().numpy()
    if hasattr(value, "ravel") and hasattr(value, "dtype"):
        if getattr(value.dtype, "kind", "V") in "fiub":
            return [float(one) for one in value.ravel()[:4000000].astype("float64").tolist()]
        if "bfloat16" in str(value.dtype) or "float8" in str(value.dtype):
            return [float(one) for one in value.ravel().astype("float32").tolist()]
        return None
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return [float(value)]
    if isinstance(value, list):
        return [float(one) for one in value]
    return None


def _distance(one: Any, other: Any) -> float:
    """How far two leaves are from each other: 0.0 the same; infinite where they are no numbers, or of other lengths."""
    first, second = _numbers(one), _numbers(other)
    if first is None or second is None:
        return 0.0 if _digest(one) == _digest(other) else float("inf")
    if len(first) != len(second):
        return float("inf")
    if _whole(one) and _whole(other):  # a position in a generator is small beside its state
        return 0.0 if first == second else float("inf")
    scale = max([abs(number) for number in first if number == number] + [1e-30])
    most = 0.0
    for left, right in zip(first, second):
        if left != right and not (left != left and right != right):
            most = max(most, abs(left - right) / scale)
    return most


def _whole(value: Any) -> bool:
    """Integers: a step, a position, the state of a generator."""
    if hasattr(value, "dtype"):
        kind = getattr(value.dtype, "kind", None)
        return kind in ("i", "u") if kind is not None else not value.is_floating_point()
    if isinstance(value, list):
        return all(isinstance(number, int) for number in value)
    return isinstance(value, int)


def _digest(value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        return hashlib.sha256(value).hexdigest()
    if hasattr(value, "tobytes"):
        return hashlib.sha256(value.tobytes()).hexdigest()
    return re.sub(r"0x[0-9a-f]+", "", repr(value))


def compare(paths: List[str]) -> Dict[str, Any]:
    """Part -> how many leaves, which differ (at most five), by how much, and how much two equal runs do."""
    reference, resumed, *again = [flatten(load(path)) for path in paths]
    parts: Dict[str, Any] = {}
    for path in list(dict.fromkeys([*reference, *resumed])):
        if _IGNORED.search(path.lower()):
            continue
        name = part_of(path)
        one = parts.setdefault(name, {"leaves": 0, "differ": [], "most": 0.0, "noise": 0.0})
        one["leaves"] += 1
        if path not in reference or path not in resumed:
            far = float("inf")
        else:
            far = _distance(reference[path], resumed[path])
        noise = _distance(reference[path], again[0].get(path)) if again and path in reference else 0.0
        if far > max(_TOLERANCE, 4 * noise):
            one["differ"] = [*one["differ"], path][:5]
            one["most"] = max(one["most"], min(far, 1e300))
        one["noise"] = max(one["noise"], min(noise, 1e300))
    return parts


def steps(paths: List[str]) -> Dict[str, Any]:
    """Path -> its step and its keys by part; ``error`` where it cannot be read."""
    made: Dict[str, Any] = {}
    for path in paths:
        try:
            leaves = flatten(load(path))
            keys: Dict[str, List[str]] = {}
            for leaf in leaves:
                name = part_of(leaf)
                top = leaf.split(".")[0]
                if top not in keys.setdefault(name, []) and len(keys[name]) < 20:
                    keys[name].append(top)
            made[path] = {"step": step_of(leaves), "keys": keys}
        except Exception as error:
            made[path] = {"error": "%s: %s" % (type(error).__name__, error)}
    return made


def main(arguments: List[str]) -> None:
    """Print the answer as the last line."""
    what, paths = arguments[0], arguments[1:]
    try:
        answer = steps(paths) if what == "steps" else compare(paths)
    except Exception as error:
        answer = {"error": "%s: %s" % (type(error).__name__, error)}
    print(json.dumps(answer, default=str))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
