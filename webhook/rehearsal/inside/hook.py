"""Loaded as ``sitecustomize`` by every Python process of a rehearsal: notes what is opened, and what is restored.

It writes lines of JSON into ``$CKPTGUARD_REHEARSAL/record/PID.jsonl``: ``start`` once a process, then ``open`` (path,
``w`` or ``r``; ``anew`` where the file begins empty), ``move``, ``look`` (a directory that was listed), ``load``
(``load_state_dict`` and its like, by kind), ``rng`` (a generator that was set), ``epoch`` (``set_epoch``), ``first``
(the first step of an optimizer: whether it has a state, how far the schedulers are), ``batch`` (what a DataLoader gave
for a step), ``sigterm`` (a handler was set), ``read`` (a part of a checkpoint that was taken, in the start that asks
for it). The clock is CLOCK_MONOTONIC.

Where a second save begins, it makes a file in ``$CKPTGUARD_REHEARSAL/gate``, if that is there, and waits until it is
removed, so that whoever watches sees each save whole, however busy the machine is; after a while it goes on by itself.

Whatever goes wrong in here must not reach the program: it is swallowed.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from typing import Any, Callable, Dict, List, Optional

_HOME = os.environ.get("CKPTGUARD_REHEARSAL", "")
_DIRECTORY = os.environ.get("CKPTGUARD_DIRECTORY", "")
_KEYS = bool(os.environ.get("CKPTGUARD_KEYS"))
_STATES = bool(os.environ.get("CKPTGUARD_STATES"))
_OWN = os.path.join(_HOME, "record") if _HOME else ""
_GATE = os.path.join(_HOME, "gate") if _HOME else ""
_MOST = 20000
_LONGEST_HOLD = 20.0
_MOST_HOLDS = 500
_CHANGING = re.compile(r"(?<![a-z0-9])(?:tmp[a-z0-9_]{8}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})|\d+")
_NOT_SAVED = re.compile(
    r"(?:^|/)(?:events\.out\.tfevents[^/]*|wandb|mlruns)(?:/|$)|\.(?:log|out|err|lock|jsonl|csv|tsv|md|yaml|yml)$|"
    r"(?:^|/)(?:metrics|log)[^/]*$",
    re.IGNORECASE,
)
_STATE_ENDS = (
    ".pt .pth .ckpt .bin .safetensors .npz .npy .json .pkl .pickle .ubj .h5 .msgpack .model .state .distcp .metadata "
    ".db .sqlite .txt .csv .jsonl .parquet .arrow .tar .gz .zst .bin .idx .dat .yaml .rec"
).split()

_file: Any = None
_pid = 0
_count = 0
_busy = False
_said: Dict[str, int] = {}
_started = time.monotonic()


def _say(what: str, **more: Any) -> None:
    global _file, _pid, _count, _busy
    if _busy or not _OWN:
        return
    _busy = True
    try:
        pid = os.getpid()
        if pid != _pid:
            _pid, _count = pid, 0
            _said.clear()
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            _file = os.open(os.path.join(_OWN, "%d.jsonl" % pid), flags, 0o600)
            _write("start", _head())
        if _count < _MOST:
            _count += 1
            _write(what, more)
    except Exception:  # noqa: S110
        pass
    finally:
        _busy = False


def _head() -> Dict[str, Any]:
    rank = os.environ.get("RANK", os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")))
    return {
        "executable": sys.executable,
        "argv": list(getattr(sys, "orig_argv", None) or getattr(sys, "argv", [])),
        "version": list(sys.version_info[:3]),
        "rank": int(rank) if rank and rank.isdigit() else None,
        "parent": os.getppid(),
        "cwd": os.getcwd(),
    }


def _write(what: str, more: Dict[str, Any]) -> None:
    line = json.dumps({"is": what, "at": time.monotonic(), **more}) + "\n"
    os.write(_file, line.encode("utf-8", "backslashreplace"))


def _once(key: str, most: int = 1) -> bool:
    _said[key] = _said.get(key, 0) + 1
    return _said[key] <= most


# --- what the interpreter tells by itself


def _text(path: Any) -> Optional[str]:
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    elif not isinstance(path, str):
        try:
            path = os.fspath(path)
        except TypeError:
            return None
        if isinstance(path, bytes):
            path = os.fsdecode(path)
    return str(os.path.abspath(path))


def _audit(event: str, args: Any) -> None:
    watched = _WATCHED.get(event)
    if watched is None or _busy:
        return
    try:
        watched(args)
    except Exception:  # noqa: S110
        pass


def _opened(args: Any) -> None:
    path, mode, flags = args
    if isinstance(path, int) or path is None:
        return
    named = _text(path)
    if named is None or named.startswith(_SKIPPED):
        return
    if isinstance(flags, int) and flags & getattr(os, "O_DIRECTORY", 0):
        return  # a folder that is taken apart
    if isinstance(mode, str):
        writes = any(letter in mode for letter in "wax+")
        anew = "w" in mode or "x" in mode
    else:
        flags = flags if isinstance(flags, int) else 0
        writes = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        anew = bool(flags & (os.O_TRUNC | os.O_EXCL))
    inside = _within(named)
    if not inside and not writes and os.path.splitext(named)[1] not in _STATE_ENDS:
        return
    how = "w" if writes else "r"
    if inside and writes:
        _quietly(_wait_at_gate, named[len(_DIRECTORY) + 1 :])  # what goes wrong there must not lose the line
    if _once(how + named, 1000 if inside else 200):
        _say("open", path=named, how=how, **({"anew": True} if writes and anew else {}))
    if inside and writes and _STATES:
        _say_generators()


_shapes: Dict[str, str] = {}
_leaders: Dict[int, str] = {}
_holds = 0


def _wait_at_gate(path: str) -> None:
    """Where a name comes again, numbers apart, and in another folder, the next save begins.

    The first name that does so is the one that is waited at: what else a save consists of comes again, too.
    """
    global _holds
    if not path or _holds >= _MOST_HOLDS or _NOT_SAVED.search(path):
        return
    pid = os.getpid()
    top, _, below = path.partition("/")
    key = "%d %s" % (pid, _CHANGING.sub("#", path))
    before, _shapes[key] = _shapes.get(key), top
    if before is None or (below and before == top) or _leaders.setdefault(pid, key) != key:
        return
    if not os.path.isdir(_GATE):
        return  # nobody waits for a save now
    _holds += 1
    name = os.path.join(_GATE, "%d-%d" % (pid, _holds))
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    until = time.monotonic() + _LONGEST_HOLD
    while os.path.exists(name) and time.monotonic() < until:
        time.sleep(0.01)


def _say_generators() -> None:
    """What each generator of random numbers would give next, as digests: when a save begins."""
    global _asked
    if time.monotonic() - _asked < 0.02:
        return
    states: Dict[str, str] = {}
    modules = sys.modules
    if "random" in modules:
        import gc

        python = modules["random"]
        states["python"] = _digest(python.getstate())
        found = gc.get_objects()
        made = [one for one in found if type(one) is python.Random and one is not getattr(python, "_inst", None)]
        numpy = [one for one in found if type(one).__name__ == "Generator" and hasattr(one, "bit_generator")]
        for at, one in enumerate(made[:8]):
            states["random.Random %d" % at] = _digest(one.getstate())
        for at, one in enumerate(numpy[:8]):
            states["numpy Generator %d" % at] = _digest(one.bit_generator.state)
    if "numpy.random" in modules:
        states["numpy"] = _digest(modules["numpy.random"].get_state())
    if "torch.random" in modules and hasattr(modules.get("torch"), "get_rng_state"):
        states["torch"] = _digest(modules["torch"].get_rng_state())
    if states:
        _say("generators", states=states)
    _asked = time.monotonic()


_asked = 0.0


def _within(path: str) -> bool:
    return path == _DIRECTORY or path.startswith(_DIRECTORY + "/")


def _moved(args: Any) -> None:
    old, new = _text(args[0]), _text(args[1])
    if old and new:
        _say("move", path=new, old=old)


def _looked(args: Any) -> None:
    path = args[0] if args and args[0] is not None else "."
    if isinstance(path, int):
        return
    named = _text(path)
    if named and not named.startswith(_SKIPPED) and _once("look" + named, 3):
        _say("look", path=named)


_WATCHED: Dict[str, Callable[[Any], None]] = {
    "open": _opened,
    "os.rename": _moved,
    "os.listdir": _looked,
    "os.scandir": _looked,
    "glob.glob": _looked,
}
_SKIPPED = tuple(
    {path for path in (sys.prefix + "/lib", sys.base_prefix + "/lib", _OWN, _GATE, "/proc/", "/sys/", "/dev/") if path}
)

# --- what frameworks restore: their functions are wrapped when their module has been imported


def _wrap(owner: Any, name: str, note: Callable[..., None], after: bool = False) -> None:
    old = getattr(owner, name, None)
    if old is None or getattr(old, "_ckptguard", False):
        return

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not after:
            _quietly(note, *args, **kwargs)
        done = old(*args, **kwargs)
        if after:
            _quietly(note, *args, **kwargs)
        return done

    for one in ("__name__", "__qualname__", "__doc__", "__module__"):
        try:
            setattr(wrapped, one, getattr(old, one))
        except (AttributeError, TypeError):
            pass
    wrapped.__dict__.update(getattr(old, "__dict__", {}))
    wrapped.__wrapped__ = old  # type: ignore[attr-defined]
    wrapped._ckptguard = True  # type: ignore[attr-defined]
    setattr(owner, name, wrapped)


def _quietly(note: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    try:
        note(*args, **kwargs)
    except Exception:  # noqa: S110
        pass


def _note_load(kind: str) -> Callable[..., None]:
    def note(target: Any, *_: Any, **__: Any) -> None:
        name = type(target).__name__
        if _once("load" + kind + name, 50):
            _say("load", kind=kind, name=name)

    return note


def _note_rng(which: str) -> Callable[..., None]:
    def note(*_: Any, **__: Any) -> None:
        if _once("rng" + which, 50):
            _say("rng", which=which)

    return note


_schedulers: List[Any] = []
_optimizers: Dict[int, int] = {}
_batches: List[str] = []


def _note_step(optimizer: Any, *_: Any, **__: Any) -> None:
    import weakref

    steps = _optimizers[id(optimizer)] = _optimizers.get(id(optimizer), 0) + 1
    inner = getattr(optimizer, "optimizer", None)
    if inner is not None and hasattr(inner, "state"):
        return  # a wrapper (accelerate's): the one within is noted
    if steps <= 2:
        state = getattr(optimizer, "state", {})
        filled = any(
            hasattr(one, "shape") for slots in list(state.values()) for one in getattr(slots, "values", list)()
        )
        alive = [one() for one in _schedulers if isinstance(one, weakref.ref)]
        at = [getattr(one, "last_epoch", None) for one in alive if one is not None]
        _say("first", step=steps, name=type(optimizer).__name__, filled=filled, schedulers=at)
    if _batches:
        _say("batch", seen=list(_batches[-4:]))
        _batches.clear()


def _note_scheduler(scheduler: Any, *_: Any, **__: Any) -> None:
    import weakref

    _schedulers.append(weakref.ref(scheduler))


def _digest(value: Any, depth: int = 0) -> str:
    import zlib

    if hasattr(value, "detach") and hasattr(value, "cpu"):
        return "%08x" % zlib.crc32(value.detach().cpu().contiguous().numpy().tobytes())
    if hasattr(value, "tobytes"):
        return "%08x" % zlib.crc32(value.tobytes())
    if depth < 3 and isinstance(value, dict):
        return "-".join(_digest(one, depth + 1) for one in value.values())
    if depth < 3 and isinstance(value, (list, tuple)) and len(value) < 64:
        return "-".join(_digest(one, depth + 1) for one in value)
    return "%08x" % zlib.crc32(repr(value)[:20000].encode())


def _patch_loader(module: Any) -> None:
    base = getattr(module, "_BaseDataLoaderIter", None)
    if base is None or not _STATES:
        return
    old = base.__next__

    def following(self: Any) -> Any:
        batch = old(self)
        try:
            _batches.append(_digest(batch)[:200])
        except Exception:  # noqa: S110
            pass
        return batch

    base.__next__ = following


def _patch_optimizer(module: Any) -> None:
    base = getattr(module, "Optimizer", None)
    if base is None:
        return
    _wrap(base, "load_state_dict", _note_load("optimizer"))
    hook = getattr(module, "register_optimizer_step_pre_hook", None)
    if hook is not None:
        hook(lambda optimizer, *_: _quietly(_note_step, optimizer))


def _patch_schedulers(module: Any) -> None:
    for name in ("LRScheduler", "_LRScheduler", "ReduceLROnPlateau", "LambdaLR", "SequentialLR"):
        base = getattr(module, name, None)
        if base is not None:
            _wrap(base, "load_state_dict", _note_load("scheduler"))
    base = getattr(module, "LRScheduler", None) or getattr(module, "_LRScheduler", None)
    if base is not None:
        _wrap(base, "__init__", _note_scheduler)


def _patch_module(module: Any) -> None:
    _wrap(module.Module, "load_state_dict", _note_load("weights"))


def _patch_sampler(module: Any) -> None:
    _wrap(module.DistributedSampler, "set_epoch", lambda _, epoch, *__: _say("epoch", epoch=int(epoch)))


def _patch_torch_random(module: Any) -> None:
    _wrap(module, "set_rng_state", _note_rng("torch"))


def _patch_numpy(module: Any) -> None:
    _wrap(module, "set_state", _note_rng("numpy"))


def _patch_random(module: Any) -> None:
    _wrap(module, "setstate", _note_rng("python"))


def _patch_signal(module: Any) -> None:
    def note(number: Any, handler: Any, *_: Any) -> None:
        if int(number) == 15 and callable(handler):
            _say("sigterm")

    _wrap(module, "signal", note)


def _patch_json(module: Any) -> None:
    for name in ("load", "loads"):
        _recording(module, name)


def _patch_pickle(module: Any) -> None:
    for name in ("load", "loads"):
        _recording(module, name)


def _patch_serialization(module: Any) -> None:
    _recording(module, "load")
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "load"):
        _recording(torch, "load")


def _patch_npz(module: Any) -> None:
    base = getattr(module, "NpzFile", None)
    if base is not None and _KEYS:
        _wrap(base, "__getitem__", lambda _, key, *__: _taken("", str(key)))


class _Recorded(dict):  # type: ignore[type-arg]
    """What a checkpoint held, and which of its parts are taken out."""

    _within = ""

    def _got(self, key: Any) -> None:
        _taken(self._within, str(key))

    def __getitem__(self, key: Any) -> Any:
        self._got(key)
        return dict.__getitem__(self, key)

    def get(self, key: Any, default: Any = None) -> Any:
        self._got(key)
        return dict.get(self, key, default)

    def pop(self, key: Any, *default: Any) -> Any:
        self._got(key)
        return dict.pop(self, key, *default)

    def __iter__(self) -> Any:
        _taken(self._within, "*")
        return dict.__iter__(self)

    def keys(self) -> Any:
        _taken(self._within, "*")
        return dict.keys(self)

    def items(self) -> Any:
        _taken(self._within, "*")
        return dict.items(self)

    def values(self) -> Any:
        _taken(self._within, "*")
        return dict.values(self)

    def copy(self) -> Any:
        _taken(self._within, "*")
        return dict.copy(self)

    def __reduce_ex__(self, _: Any) -> Any:
        return (dict, (dict(dict.items(self)),))


def _taken(within: str, key: str) -> None:
    path = within + key
    if _once("read" + path):
        _say("read", key=path)


def _record_value(value: Any, within: str = "", depth: int = 0) -> Any:
    if type(value) is dict and depth < 2 and all(isinstance(key, str) for key in value):
        made = _Recorded({key: _record_value(one, within + key + ".", depth + 1) for key, one in value.items()})
        made._within = within
        return made
    return value


def _recording(module: Any, name: str) -> None:
    """Only in the start that asks which parts of a checkpoint are taken; what it gives is a dictionary all the same."""
    old = getattr(module, name, None)
    if not _KEYS or old is None or getattr(old, "_ckptguard", False):
        return

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value = old(*args, **kwargs)
        try:
            return _record_value(value)
        except Exception:
            return value

    wrapped._ckptguard = True  # type: ignore[attr-defined]
    setattr(module, name, wrapped)


_PATCHES: Dict[str, Callable[[Any], None]] = {
    "signal": _patch_signal,
    "random": _patch_random,
    "json": _patch_json,
    "pickle": _patch_pickle,
    "numpy.random": _patch_numpy,
    "numpy.random.mtrand": _patch_numpy,
    "numpy.lib._npyio_impl": _patch_npz,
    "numpy.lib.npyio": _patch_npz,
    "torch.random": _patch_torch_random,
    "torch.nn.modules.module": _patch_module,
    "torch.optim.optimizer": _patch_optimizer,
    "torch.optim.lr_scheduler": _patch_schedulers,
    "torch.serialization": _patch_serialization,
    "torch.utils.data.dataloader": _patch_loader,
    "torch.utils.data.distributed": _patch_sampler,
}


class _Finder:
    """Finds nothing itself: it lets the others find, and wraps when the module has been executed."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        patch = _PATCHES.get(name)
        if patch is None:
            return None
        for finder in sys.meta_path:
            if finder is _Finder or getattr(finder, "find_spec", None) is None:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is None:
                continue
            loader = spec.loader
            if loader is not None and not isinstance(loader, type) and hasattr(loader, "exec_module"):
                execute = loader.exec_module

                def exec_module(module: Any) -> None:
                    execute(module)
                    _quietly(patch, module)

                try:
                    loader.exec_module = exec_module  # type: ignore[method-assign]
                except AttributeError:
                    return None
            return spec
        return None


def _next_sitecustomize() -> None:
    """The one that the user's installation has is not hidden."""
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    rest = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def install() -> None:
    """Begin to note. The variables of this process alone say where."""
    if not _OWN:
        return
    _say("begin")
    for name in list(_PATCHES):
        if name in sys.modules:
            _quietly(_PATCHES[name], sys.modules[name])
    sys.meta_path.insert(0, _Finder)
    sys.addaudithook(_audit)


if __name__ == "sitecustomize":
    try:
        install()
    finally:
        _next_sitecustomize()
