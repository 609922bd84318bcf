"""Which checkpoints lie in a directory, and which of them are complete: the table, one function for each layout.

A checkpoint is a folder or file that a framework can resume from. Whether it is complete is judged by what the
framework writes last or cannot do without, read in the frameworks' own writers:

| layout | recognised by | complete where |
|---|---|---|
| hf | folder ``checkpoint-N`` | ``trainer_state.json`` (written last), the optimizer's file, the weights, all shards |
| deepspeed | ``mp_rank_*_model_states.pt`` in a folder | ``latest`` is as new, and every rank's shard is there |
| dcp | ``*.distcp`` in a folder | ``.metadata`` (written last) is there |
| megatron | folder ``iter_N`` | ``latest_checkpointed_iteration.txt`` is as new, and no rank's folder is empty |
| accelerate | folder ``checkpoint_N`` or ``epoch_N`` with ``random_states_*.pkl`` | weights and optimizer are there |
| orbax | folder ``N`` | its name is final, ``_CHECKPOINT_METADATA`` is there (unknown without it: older releases) |
| file, folder | a number in the name | unknown; incomplete where its own end is missing (zip archives, safetensors) |

A file of weights or state without a byte in it is what a lost node leaves of one that was just written: incomplete.
One that cannot be read (see ``listing``) makes its checkpoint damaged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from webhook.runs.listing import ASIDE, REMOVING, Entry, Listing

_DEPTH: Final = 4
"""Lightning's own is ``lightning_logs/version_0/checkpoints``."""
_NUMBER: Final = re.compile(r"\d+")
_TEMPORARY: Final = re.compile(
    r"(\.|_|-|^)(tmp|temp|partial|part|incomplete|writing)([-_.]|\d|$)|\.orbax-checkpoint-tmp"
)
_SHARD: Final = re.compile(r"^(.*)-(\d{5})-of-(\d{5})\.(safetensors|bin)$")
_ZERO: Final = re.compile(r"^(?:bf16_|fp16_)?zero_pp_rank_(\d{1,9})_mp_rank_(\d{1,9})_optim_states\.pt$")
_MODEL_STATES: Final = re.compile(r"^(?:zero_pp_rank_(\d{1,9})_)?mp_rank_(\d{1,9})_model_states\.pt$")
_ENDINGS: Final = (
    ".pt",
    ".pth",
    ".ckpt",
    ".bin",
    ".safetensors",
    ".npz",
    ".json",
    ".pkl",
    ".ubj",
    ".h5",
    ".tar",
    ".model",
)
_DIGITS: Final = 15
"""No step has more: they are a date with a time, or a hash."""
_VERSION: Final = re.compile(r"-v\d+$")
"""Lightning's, behind a name that is there already: no step."""
_BY_NAME: Final = frozenset({"hf", "accelerate", "orbax"})
"""Layouts whose framework looks for its own kind of name alone, whatever copies lie beside it."""
_STATE: Final = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".npz")
_BESIDE_WEIGHTS: Final = re.compile(
    r"(optimizer|scheduler|scaler|sampler|rng_state|random_states_|trainer_state|training_args|dl_state_dict|"
    r"config|generation_config|tokenizer|special_tokens|added_tokens|vocab|merges|preprocessor|processor|chat_template|"
    r"README|latest|zero_to_fp32)"
)
"""What Hugging Face's writers put beside the weights."""
_WORDS: Final = re.compile(
    r"(step|iter|iteration|epoch|checkpoint|ckpt|model|save|state|global_step|last|latest)", re.I
)


class Saved(Struct, frozen=True):
    """One checkpoint. ``step`` is None where no number tells it (``last.ckpt``); ``unit`` is what the number counts.

    ``complete`` is None where nobody can tell. ``why`` says what is missing, or how it was judged. ``mtime``: the
    newest of its files. ``aside``: further paths that go with it.
    """

    path: str
    layout: str
    step: int | None
    size: int
    mtime: float
    complete: bool | None
    why: str = ""
    unit: str = "step"
    files: int = 1
    temporary: bool = False
    """Under a name that only a writer uses: what a framework leaves behind when it is killed."""
    damaged: bool = False
    """A file of it cannot be read: no restart can take it, whatever else is there."""

    @property
    def state(self) -> str:
        """``complete``, ``incomplete``, ``unknown`` or ``damaged``."""
        if self.damaged:
            return "damaged"
        return "unknown" if self.complete is None else "complete" if self.complete else "incomplete"

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Found(Struct, frozen=True):
    """All checkpoints, by step (those without a number last), and which one a restart takes.

    ``taken`` follows the framework: a pointer file where there is one, else the highest number, whether it is complete
    or not. None: there is none.
    """

    saved: tuple[Saved, ...] = ()
    taken: Saved | None = None
    pointer: str | None = None
    """The path of the file that names ``taken``; it names nothing that is there where that is None."""

    def newest_complete(self) -> Saved | None:
        """The newest that is known to be complete; where nobody can tell of any, the newest that may be.

        One that has no number counts where none has: a program that writes ``checkpoint.pt`` over and over.
        """
        final = _candidates(self.saved)
        numbered = [one for one in final if one.step is not None]
        for some in (numbered, [one for one in final if one.step is None]):
            known = [one for one in some if one.complete]
            maybe = [one for one in some if one.complete is None]
            if known or maybe:
                return max(known or maybe, key=_order)
        return None

    def steps(self) -> list[int]:
        """The numbers that ``at_step`` knows, in order."""
        return sorted({one.step for one in _candidates(self.saved) if one.step is not None})

    def at_step(self, step: int) -> Saved | None:
        """The checkpoint of that step: a complete one before others."""
        found = [one for one in _candidates(self.saved) if one.step == step]
        return max(found, key=lambda one: (one.complete is not False, one.complete is True)) if found else None


class _Folder:
    """A folder of the listing with what lies directly in it."""

    __slots__ = ("entry", "files", "folders", "links", "path")

    def __init__(self, path: str, entry: Entry | None) -> None:
        self.path = path
        self.entry = entry
        self.files: dict[str, Entry] = {}
        self.folders: dict[str, _Folder] = {}
        self.links: dict[str, Entry] = {}

    def everything(self) -> Iterator[Entry]:
        """Every file below, however deep."""
        stack = [self]
        while stack:
            here = stack.pop()
            yield from here.files.values()
            stack.extend(here.folders.values())


_BY_POINTER: Final = frozenset({"deepspeed", "megatron"})
"""Layouts whose framework takes what its pointer file says, and nothing without the file or what it names."""


def find_saved(listing: Listing) -> Found:
    """The checkpoints of a directory."""
    root = _tree(listing)
    saved = tuple(sorted(_walk(root, root, listing, 0), key=_order))
    if not saved and (one := _dcp(root, "", root, listing)) is not None:
        saved = (replace(one, path="."),)
    pointer = _pointer(listing)
    taken: Saved | None = None
    if pointer is not None:
        path, named = pointer
        above = path.rpartition("/")[0]
        for one in saved:
            beside_it = one.path.rpartition("/")[0] == above
            # A number names the folder of that step: Megatron's iter_0000020, verl's global_step_20.
            if one.path in (named, f"{above}/{named}") or (
                beside_it
                and one.layout in ("megatron", "folder")
                and one.step is not None
                and one.step == _number(named)
            ):
                taken = one
        beside = {one.layout for one in saved if one.path.rpartition("/")[0] == above}
        if taken is not None or not beside.isdisjoint(_BY_POINTER):
            return Found(saved, taken, path)
    final = [one for one in _candidates(saved) if one.layout not in _BY_POINTER]
    # Frameworks that look into a directory take the highest number of one kind of name; one that has no number is
    # taken for sure where there is no other.
    numbered = [one for one in final if one.step is not None]
    if numbered or len(final) == 1:
        return Found(saved, max(numbered or final, key=_order))
    return Found(saved)


def _candidates(saved: Sequence[Saved]) -> list[Saved]:
    """What a restart may take: not what a writer left under its temporary name, nor copies that somebody renamed."""
    ruled = {one.path.rpartition("/")[0] for one in saved if one.layout in _BY_NAME}
    return [
        one
        for one in saved
        if not one.temporary and not (one.layout in ("file", "folder") and one.path.rpartition("/")[0] in ruled)
    ]


def _order(saved: Saved) -> tuple[bool, int, float]:
    return saved.step is None, saved.step or 0, saved.mtime


def _tree(listing: Listing) -> _Folder:
    root = _Folder("", None)
    folders: dict[str, _Folder] = {"": root}

    def folder(path: str, entry: Entry | None = None) -> _Folder:
        known = folders.get(path)
        if known is None:
            above, _, name = path.rpartition("/")
            known = folders[path] = _Folder(path, entry)
            folder(above).folders[name] = known
        elif entry is not None and known.entry is None:
            known.entry = entry
        return known

    for entry in listing.entries:
        if entry.path == ASIDE or entry.path.startswith((ASIDE + "/", REMOVING)) or f"/{REMOVING}" in entry.path:
            continue
        above, _, name = entry.path.rpartition("/")
        if entry.kind == "d":
            folder(entry.path, entry)
        elif entry.kind == "f":
            folder(above).files[name] = entry
        else:
            folder(above).links[name] = entry
    return root


def _walk(here: _Folder, root: _Folder, listing: Listing, depth: int) -> Iterator[Saved]:
    # Where the files of one checkpoint and the next lie side by side, each file is one; in a folder that is one, none.
    for name, below in here.folders.items():
        found = next((one for judge in _LAYOUTS if (one := judge(below, name, here, listing)) is not None), None)
        if found is not None:
            closed = any(path == below.path or path.startswith(below.path + "/") for path in listing.denied)
            yield replace(found, complete=None, why="it may not be read by that user") if closed else found
        elif depth + 1 < _DEPTH:
            yield from _walk(below, root, listing, depth + 1)
    for name, entry in here.files.items():
        found = _file(name, entry)
        if found is not None:
            yield found


def _hf(folder: _Folder, name: str, above: _Folder, _listing: Listing) -> Saved | None:
    # One that is still empty counts too: it is what get_last_checkpoint takes.
    match = re.fullmatch(r"(tmp-)?checkpoint-(\d+)", name)
    if match is None or len(match[2]) > _DIGITS:
        return None
    lacks: list[str] = []
    if _empty_or_absent(folder, "trainer_state.json"):
        lacks.append("trainer_state.json")
    if not _has_weights(folder):
        lacks.append("the weights")
    lacks += _shards(folder)
    if not _has_optimizer(folder):
        lacks.append("the optimizer's file (save_only_model?)")
    lacks += _inner_shards(folder, above)
    if any(_ZERO.match(file) for below in folder.folders.values() for file in below.files):
        # Accelerate names the folder when it loads; the Trainer leaves that to DeepSpeed.
        lacks += ["the file latest"] if _empty_or_absent(folder, "latest") else []
    if match[1] is not None:
        lacks.append("its final name")
    return _saved(folder, "hf", int(match[2]), [*lacks, *_cut(folder)], temporary=match[1] is not None)


def _deepspeed(folder: _Folder, name: str, above: _Folder, listing: Listing) -> Saved | None:
    models = [match for file in folder.files if (match := _MODEL_STATES.match(file))]
    ranks = [match for file in folder.files if (match := _ZERO.match(file))]
    if not models and not ranks:
        return None
    lacks: list[str] = []
    if not models:
        lacks.append("mp_rank_*_model_states.pt")
    lacks += _zero_shards(folder, above.folders.values())
    step = _last_number(name)
    latest = listing.texts.get(f"{above.path}/latest".lstrip("/"))
    if latest is None:
        lacks.append("the file latest")
    elif step is not None and (newest := _last_number(latest)) is not None and newest < step:
        lacks.append(f"its name in the file latest, which says {latest}")
    return _saved(folder, "deepspeed", step, [*lacks, *_cut(folder)])


def _zero_shards(folder: _Folder, others: Iterable[_Folder]) -> list[str]:
    """How many ranks' shards are missing, held against the highest ranks that are named here or beside it."""
    optimizer = {match.groups() for file in folder.files if (match := _ZERO.match(file))}
    weights = {match.groups() for file in folder.files if (match := _MODEL_STATES.match(file)) and match[1]}
    known = optimizer | weights
    known |= {match.groups() for other in others for file in other.files if (match := _ZERO.match(file))}
    if not known:
        return []
    every = (max(int(data) for data, _ in known) + 1) * (max(int(model) for _, model in known) + 1)
    lacks = [(every - len(optimizer), "optimizer")]
    if weights:  # ZeRO 3 cuts these, too
        lacks.append((every - len(weights), "model"))
    return [f"{count} of {every} {kind} shards" for count, kind in lacks if count > 0]


def _inner_shards(folder: _Folder, above: _Folder) -> list[str]:
    """The same for a checkpoint that has DeepSpeed's folder within it."""
    beside = [one for other in above.folders.values() for one in other.folders.values()]
    within = [one for one in folder.folders.values() if any(_ZERO.match(file) for file in one.files)]
    return [lack for one in within for lack in _zero_shards(one, beside)]


def _megatron(folder: _Folder, name: str, above: _Folder, listing: Listing) -> Saved | None:
    match = re.fullmatch(r"iter_(\d+)", name)
    if match is None or len(match[1]) > _DIGITS:
        return None
    step = int(match[1])
    lacks: list[str] = []
    tracker = listing.texts.get(f"{above.path}/latest_checkpointed_iteration.txt".lstrip("/"))
    if tracker is None:
        lacks.append("latest_checkpointed_iteration.txt")
    elif (tracked := _number(tracker)) is not None and tracked < step:
        lacks.append(f"its number in latest_checkpointed_iteration.txt, which says {tracker}")
    if any(file.endswith(".distcp") for file in folder.files):
        if _empty_or_absent(folder, ".metadata"):
            lacks.append(".metadata")
    else:
        ranks = {rank: below for rank, below in folder.folders.items() if rank.startswith("mp_rank_")}
        most = max(
            (sum(one.startswith("mp_rank_") for one in other.folders) for other in above.folders.values()), default=0
        )
        # mp_rank_00_001_003: of tensor, pipeline and expert parallelism; each of one stands with each of the others.
        numbers = [tuple(map(int, re.findall(r"\d{1,9}", rank)[:4])) for rank in ranks]
        most = max(most, prod(max(column) + 1 for column in zip(*numbers, strict=False)) if ranks else 0)
        empty = sum(not any(entry.size for entry in below.files.values()) for below in ranks.values())
        if not ranks or len(ranks) < most or empty:
            lacks.append(f"{max(most - len(ranks), 0) + empty or 'all'} of {most or 'the'} ranks' files")
    return _saved(folder, "megatron", step, [*lacks, *_cut(folder)])


def _dcp(folder: _Folder, name: str, _above: _Folder, _listing: Listing) -> Saved | None:
    if not any(file.endswith(".distcp") for file in folder.files):
        return None
    lacks = [".metadata"] if _empty_or_absent(folder, ".metadata") else []
    return _saved(folder, "dcp", _last_number(name), lacks)


def _accelerate(folder: _Folder, name: str, above: _Folder, _listing: Listing) -> Saved | None:
    states = any(file.startswith("random_states_") for file in folder.files)
    match = re.fullmatch(r"(checkpoint|epoch|step)_(\d+)", name)
    if not states and (match is None or "optimizer.bin" not in folder.files):
        return None
    lacks = _shards(folder)
    if match is not None and match[1] != "epoch" and not _has_weights(folder):
        lacks.append("the weights")
    if not states:
        lacks.append("random_states_*.pkl")
    if not _has_optimizer(folder):
        lacks.append("the optimizer's file")
    lacks += _inner_shards(folder, above)
    unit = (
        "epoch" if match is not None and match[1] == "epoch" else "number" if name.startswith("checkpoint_") else "step"
    )
    return _saved(folder, "accelerate", _last_number(name), [*lacks, *_cut(folder)], unit=unit)


def _orbax(folder: _Folder, name: str, _above: _Folder, _listing: Listing) -> Saved | None:
    match = re.fullmatch(r"(\d+)(\.orbax-checkpoint-tmp.*)?", name)
    if match is None or len(match[1]) > _DIGITS or not (folder.files or folder.folders):
        return None
    marked = "_CHECKPOINT_METADATA" in folder.files or "commit_success.txt" in folder.files
    marked = marked or "_METADATA" in folder.files
    if match[2] is None and not marked and "default" not in folder.folders:
        return None
    lacks = [] if match[2] is None else ["its final name"]
    return _saved(folder, "orbax", int(match[1]), lacks, known=marked, temporary=match[2] is not None)


def _plain(folder: _Folder, name: str, _above: _Folder, _listing: Listing) -> Saved | None:
    """A folder with a step in its name and weights in it: who writes it is not known."""
    temporary = _TEMPORARY.search(name) is not None
    step = _last_number(name)
    if not folder.files and not temporary and not (re.fullmatch(r"global_step_\d+", name) and folder.folders):
        return None  # verl's has a folder for each model
    if step is None or _WORDS.search(name) is None:
        return None
    cut = _cut(folder)
    if temporary:
        return _saved(folder, "folder", step, ["its final name"], temporary=True)
    if cut:
        return _saved(folder, "folder", step, cut)
    return _saved(folder, "folder", step, [], known=False, unit=_unit(name))


_LAYOUTS: Final[Sequence[Callable[[_Folder, str, _Folder, Listing], Saved | None]]] = (
    _hf,
    _deepspeed,
    _megatron,
    _dcp,
    _accelerate,
    _orbax,
    _plain,
)


def _file(name: str, entry: Entry) -> Saved | None:
    temporary = _TEMPORARY.search(name) is not None
    stem = name
    ended = False
    for ending in (*_ENDINGS, ".tmp"):
        if stem.endswith(ending):
            stem = stem[: -len(ending)]
            ended = True
            break
    # Flax writes checkpoint_100 as one file.
    if not ended and not temporary and re.fullmatch(r"checkpoint_\d+", name) is None:
        return None
    stem = _VERSION.sub("", stem)
    if _WORDS.search(stem) is None or stem in ("trainer_state", "scheduler", "model_config"):
        return None
    step = _last_number(re.sub(r"\.(tmp|partial).*$", "", stem))
    if step is None and not re.search(r"last|latest|checkpoint|ckpt", stem, re.IGNORECASE):
        return None
    # A file that is whole need not be all that its program resumes from.
    complete = False if entry.whole is False else None
    why = "damaged: it cannot be read" if entry.damaged else "its end is missing" if complete is False else ""
    if temporary:
        complete, why = False, "its final name is missing"
    elif entry.size == 0:
        complete, why = False, "it is empty"
    return Saved(
        path=entry.path,
        layout="file",
        step=step,
        size=entry.size,
        mtime=entry.mtime,
        complete=complete,
        why=why,
        unit=_unit(stem),
        files=1,
        temporary=temporary,
        damaged=entry.damaged,
    )


def _saved(
    folder: _Folder,
    layout: str,
    step: int | None,
    lacks: Sequence[str],
    *,
    known: bool = True,
    unit: str = "step",
    temporary: bool = False,
) -> Saved:
    if not temporary and _TEMPORARY.search(folder.path.rpartition("/")[2]):
        temporary, lacks = True, [*lacks, "its final name"]
    files = list(folder.everything())
    own = folder.entry.mtime if folder.entry is not None else 0.0
    newest = max((entry.mtime for entry in files), default=own)
    damaged = [entry.path.removeprefix(f"{folder.path}/") for entry in files if entry.damaged]
    complete = False if lacks or damaged else (True if known else None)
    why = f"lacks {' and '.join(lacks)}" if lacks else ""
    if damaged:
        more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        why = f"damaged: {damaged[0]}{more} cannot be read{f'; {why}' if why else ''}"
    size = sum(entry.size for entry in files)
    return Saved(
        path=folder.path,
        layout=layout,
        step=step,
        size=size,
        mtime=newest,
        complete=complete,
        why=why,
        unit=unit,
        files=len(files),
        temporary=temporary,
        damaged=bool(damaged),
    )


def _empty_or_absent(folder: _Folder, name: str) -> bool:
    entry = folder.files.get(name)
    return entry is None or entry.size == 0


def _has_optimizer(folder: _Folder) -> bool:
    """A file of the optimizer's, or a folder that FSDP or DeepSpeed writes in its place."""
    for name, entry in folder.files.items():
        if name.startswith("optimizer") and name.endswith((".pt", ".bin", ".pth", ".safetensors")) and entry.size:
            return True
    for name, below in folder.folders.items():
        if name.startswith("optimizer_") and not _empty_or_absent(below, ".metadata"):
            return True
        if name.startswith(("global_step", "pytorch_model")) and any(_ZERO.match(file) for file in below.files):
            return True
    return False


def _has_weights(folder: _Folder) -> bool:
    """Whether anything lies there that is not known to be beside the weights; who writes them chooses the name."""
    names = [*folder.files, *(name for name, below in folder.folders.items() if below.files or below.folders)]
    return any(_BESIDE_WEIGHTS.match(name) is None and not name.endswith(".index.json") for name in names)


def _shards(folder: _Folder) -> list[str]:
    """Weights that are cut into numbered files: how many of them are missing."""
    for name in folder.files:
        if match := _SHARD.match(name):
            stem, total = match[1], int(match[3])
            there = sum(bool(one and one[1] == stem) for one in map(_SHARD.match, folder.files))
            if there < total:
                return [f"{total - there} of {total} shards of {stem}"]
    return []


def _cut(folder: _Folder) -> list[str]:
    """Files whose own end is missing, and those that nothing was written to."""
    return [
        f"{'the end' if entry.size else 'the content'} of {entry.path.rpartition('/')[2]}"
        for entry in folder.everything()
        if (entry.whole is False and not entry.damaged) or (entry.size == 0 and entry.path.endswith(_STATE))
    ][:2]


def _last_number(text: str) -> int | None:
    named = re.search(r"(?:step|iter|iteration|global_step)[=_-]?(\d+)", text, re.IGNORECASE)
    if named is not None:
        return _number(named[1])
    found = _NUMBER.findall(text)
    return _number(found[-1]) if found else None


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else None


def _unit(name: str) -> str:
    return (
        "epoch" if re.search(r"epoch", name, re.IGNORECASE) and not re.search(r"step", name, re.IGNORECASE) else "step"
    )


def _pointer(listing: Listing) -> tuple[str, str] | None:
    """The shallowest pointer file, and what it says."""
    for path in sorted(listing.texts, key=lambda one: (one.count("/"), one)):
        # The file in a checkpoint of Hugging Face's with DeepSpeed inside names a part of that checkpoint.
        if not re.search(r"checkpoint-\d+/", path) and not path.startswith(ASIDE):
            return path, listing.texts[path]
    return None
