"""What could bring a run back: the calls by which a program may read its own checkpoint at its start.

A call counts by its name, unless it is seen to read something else: it comes behind the loop that trains, it reads data
or the weights that a run begins with, or a path that the program does not save to. One under a condition that is known
not to hold is turned off, and the setting that does so is told.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from webhook.programs.arguments import flag_value, flags_of, has_line, names_file
from webhook.programs.bound import holds
from webhook.programs.flow import callers_of, in_loop, is_handed_on, is_no_start
from webhook.programs.loads import NAMES_OF_DATA, known_packages, optional_arguments, reads_data, unseen_may_load
from webhook.programs.names import saves
from webhook.programs.program import Script, lies_in
from webhook.programs.python import Around, Call, Python
from webhook.programs.results import default_of
from webhook.programs.values import head, is_known, is_true
from webhook.programs.words import words_in

_PARTS: Final = ("from_checkpoint", "from_pretrained", "ckpt_path", "init_model", "xgb_model", "resume", "restore")
_BEGINNINGS: Final = ("load", "reload", "preload", "resum", "restor", "recover")
_MAY_LOAD: Final = re.compile("|".join(_PARTS + _BEGINNINGS))
"""Most names hold none of them."""
_NO_LOAD: Final = frozenset(("loader", "loaders", "loading"))
_KEYWORDS: Final = ("load_in_", "load_best_model", "load_from_cache", "resume_download")
"""Beginnings of keywords that load nothing of a run."""
_BY_SAVE: Final = ("numpy", "pickle", "joblib", "safetensors", "h5py")
"""Packages that read data as often as checkpoints: one counts where the program saves by it in its loop."""
_READERS: Final = frozenset(
    (
        *("json", "yaml", "toml", "tomllib", "omegaconf", "dotenv", "spacy", "nltk", "gensim", "librosa", "soundfile"),
        *(
            "torchaudio",
            "torchvision",
            "datasets",
            "scipy",
            "nibabel",
            "h5py",
            "clip",
            "mlflow",
            "wandb",
            "comet_ml",
            "neptune",
            "swanlab",
            "cv2",
            "PIL",
        ),
        *("sentencepiece", "tokenizers", "pandas", "skimage", "imageio", "evaluate", "marshal", "importlib", "triton"),
    )
)
"""Packages whose loads are of data, words or networks of others."""
_BEGINS: Final = (
    *("pretrain", "pre_train", "teacher", "imagenet", "backbone", "vocab", "tokenizer", "embedding", "feature", "vgg"),
    *("inception", "basenet", "word2vec", "glove", "label", "cache", "dataset", "data_", "_data", "mean_std", "stats"),
    *(
        "hub.load",
        "initial_",
        "init_ckpt",
        "init_checkpoint",
        "reward_model",
        "model_zoo",
        "load_url",
        "from_url",
        "load_tf",
    ),
)
"""Parts of what is written for the weights that a run begins with, or for data."""
_OF_DATA: Final = frozenset(
    (
        *("data", "dataset", "datasets", "split", "splits", "result", "results", "ref", "refs", "annotation", "index"),
        *("annotations", "properties", "features", "labels", "graph", "graphs", "sample", "samples", "question"),
    )
)
"""Words of the names of files that hold no run."""
_OWN: Final = ("ckpt", "checkpoint", "resum", "output", "save", "latest", "last", "snapshot", "restor", "newest")
_ASKS: Final = (
    *("resum", "restor", "ckpt", "checkpoint", "continu", "load", "start", "snapshot", "init_from", "weights"),
    *("recover", "reload", "init_epoch", "initial_epoch", "last_epoch", "again"),
)
"""Parts of the names of settings that have a run go on."""
_OTHERWISE: Final = ("eval", "test", "infer", "predict", "generate", "demo", "export", "only_val", "visual")
"""Parts of the names of settings by which a program does not train."""
_DEEPEST: Final = 3
_OF_RUNS: Final = ("resum", "restor", "recover", "ckpt", "checkpoint", "trainer", "engine", "elastic")
"""Parts of the names of what another package may restore a run with."""


_FRAMEWORKS: Final = frozenset(("lightning", "pytorch_lightning"))
"""Packages whose trainers are read for what they are told, so their names alone say nothing."""


class Off(Struct, frozen=True):
    """A load that this start leaves out: the call, the condition, and the node of the setting in it."""

    call: Call
    test: ast.expr
    setting: ast.expr


class Back(Struct, frozen=True):
    """``could``: something may bring the run back. ``off``: what would, if it were asked for."""

    could: bool
    off: tuple[Off, ...]


def back(script: Script, python: Python) -> Back:
    """What could bring back the run of one text; found once."""
    memo: Back | None = python.memo.get("back")
    if memo is None:
        could, off = False, []
        for call in _suspects(script, python):
            found = _turned_off(python, call)
            if found is None:
                could = True
                break
            off.append(found)
        memo = python.memo["back"] = Back(could, tuple(off))
    return memo


def may_load(script: Script) -> bool:
    """Whether anything that the program calls or imports could read a checkpoint: by its name, or because it is unseen.

    Only where this is False does the absence of a load mean anything. What a setting turns off could.
    """
    found = script.memo.get("may_load")
    if found is None:
        found = may_be_unseen(script) or any(
            read.could or any(asks_to_go_on(python, one.setting) and not is_otherwise(python, one) for one in read.off)
            for python in script.pythons
            for read in (back(script, python),)
        )
        script.memo["may_load"] = found
    return bool(found)


def may_be_unseen(script: Script) -> bool:
    """Whether a part of the program is not seen that could read a checkpoint."""
    return (
        not script.whole
        or bool(script.unread)
        or any((_others_may_load if script.checkout else unseen)(python) for python in script.pythons)
    )


def unseen(python: Python) -> bool:
    """Whether what is not seen may load: star imports, and packages that nobody knows."""
    return python.source.stars or (not python.source.modules <= known_packages() and unseen_may_load(python))


def _others_may_load(python: Python) -> bool:
    """The same where the whole checkout is in reach: what is not in it comes from a package that is installed."""
    known = known_packages() | _FRAMEWORKS
    return python.source.stars or any(
        dotted.partition(".")[0] not in known
        and not reads_data(dotted.rpartition(".")[2])
        and not any(word in dotted.lower() for word in ("activation", "clean"))
        and (dotted[:1] == "." or any(word in dotted.lower() for word in _OF_RUNS))
        for dotted in python.source.imports.values()
    )


def asks_to_go_on(python: Python, node: ast.expr) -> bool:
    """Whether a setting is named for going on: ``args.resume``, ``opt.continue_train``, ``config["preload"]``."""
    text = python.source.source(node).lower()
    return any(word in text for word in _ASKS) and not _is_left_to_default(python, node)


def _is_left_to_default(python: Python, node: ast.expr) -> bool:
    """``def net(weights_path=None)``, which no call of the text gives any: no start could ask for it."""
    known: dict[int, bool] = python.memo.setdefault("left to default", {})
    if id(node) not in known:
        known[id(node)] = isinstance(node, ast.Name) and _is_default(python, node)
    return known[id(node)]


def _is_default(python: Python, node: ast.Name) -> bool:
    scope = next((one for one in python.source.functions.values() if holds_line(one, node.lineno)), None)
    if scope is None or node.id not in {one.arg for one in (*scope.args.args, *scope.args.kwonlyargs)}:
        return False
    if scope.decorator_list or default_of(scope, node.id) is None:
        return False
    calls = python.source.by_attr.get(scope.name, ())
    return bool(calls) and not any(
        call.open_ended or call.argument(node.id, [one.arg for one in scope.args.args].index(node.id)) is not None
        for call in calls
        if node.id in {one.arg for one in scope.args.args}
    )


def holds_line(function: ast.AST, line: int) -> bool:
    """Whether a line stands in a function."""
    return getattr(function, "lineno", 0) <= line <= (getattr(function, "end_lineno", 0) or 0)


def _suspects(script: Script, python: Python) -> Iterator[Call]:
    """The calls by which the run's own state may be read before it trains."""
    for call in python.source.calls:
        named = _loads_by_name(python, call)
        if not named and not _is_told_to(python, call):
            continue
        if is_no_start(python, call) or _is_never_run(python, call) or (named and _reads_other(script, python, call)):
            continue
        yield call


def _is_never_run(python: Python, call: Call) -> bool:
    """Whether a call stands in a function that nothing leads to, or in one of a data set."""
    scope = call.around.scope if call.around is not None else None
    if scope is None or scope.kind == "lambda" or getattr(scope.node, "decorator_list", None):
        return False
    if scope.outer is not None:
        return _is_of_data(python, scope) or _is_method_left(python, scope)
    callers = callers_of(python, scope)
    return callers is not None and not callers and f"{scope.node.name}" not in ("main", "train", "run")


def _is_method_left(python: Python, scope: Around) -> bool:
    """Whether a method is one that the text never calls, of a class that nobody else's code knows."""
    owner, name = scope.outer.node if scope.outer is not None else None, scope.node.name
    if not isinstance(owner, ast.ClassDef) or name.startswith(("__", "on_")) or owner.decorator_list or owner.keywords:
        return False
    if any(not isinstance(base, ast.Name) or base.id not in {*python.source.classes, "object"} for base in owner.bases):
        return False
    return all(one.imported for one in python.source.by_attr.get(name, ())) and not is_handed_on(python, name)


def _is_of_data(python: Python, scope: Around) -> bool:
    """Whether a method is one of a data set: ``class Scans(Dataset)``."""
    owner = scope.outer.node if scope.outer is not None else None
    if not isinstance(owner, ast.ClassDef):
        return False
    return any("data" in python.source.dotted(base)[0].lower() for base in owner.bases) or reads_data(owner.name)


def _loads_by_name(python: Python, call: Call) -> bool:
    attr = call.attr
    if not _is_load(attr) or attr.lower() in NAMES_OF_DATA or reads_data(attr):
        return False
    if attr == "load_state_dict":
        return not _is_read_elsewhere(python)
    own = attr in python.source.functions and attr not in python.source.repeated
    # What a function of the text does is seen in it.
    return not own or call.imported


def _is_read_elsewhere(python: Python) -> bool:
    """Whether the text has the load whose result ``load_state_dict`` is given."""
    known: bool | None = python.memo.get("loads by another name")
    if known is None:
        known = python.memo["loads by another name"] = any(
            _is_load(name) and name != "load_state_dict" and not reads_data(name) for name in python.source.by_attr
        )
    return known


def _is_load(name: str) -> bool:
    lowered = name.lower()
    if _MAY_LOAD.search(lowered) is None:
        return False
    if any(part in lowered for part in _PARTS):
        return True
    return any(word.startswith(_BEGINNINGS) and word not in _NO_LOAD for word in words_in(name))


def _is_told_to(python: Python, call: Call) -> bool:
    """``trainer(..., resume=True)`` of elsewhere; ``**settings`` where nobody sees what takes them."""
    if not call.node.keywords or call.attr in python.source.functions or call.attr in python.source.classes:
        return False
    if call.name.partition(".")[0] in _READERS or reads_data(call.attr):
        return False
    known = call.name.partition(".")[0] in known_packages()
    for keyword in call.node.keywords:
        if keyword.arg is None:
            if call.imported and not known:
                return True
        elif (
            not keyword.arg.startswith(_KEYWORDS)
            and _is_load(keyword.arg)
            and not reads_data(keyword.arg)
            and not _is_plainly_nothing(python, keyword.value, call.around)
        ):
            return True
    return False


def _is_plainly_nothing(python: Python, node: ast.expr, around: Around | None) -> bool:
    """``resume=None``: nothing could ever be given there."""
    return not isinstance(node, ast.Attribute | ast.Subscript) and _is_nothing(python, node, around)


def _is_nothing(python: Python, node: ast.expr, around: Around | None) -> bool:
    value = python.value(node, around)
    return value is None or is_true(value) is False


def _reads_other(script: Script, python: Python, call: Call) -> bool:
    """Whether a call is seen to read data, what a run begins with, or what the program does not save."""
    package = call.name.partition(".")[0]
    if package in _READERS or (call.receiver is not None and python.text(call.receiver) in ("yaml", "json")):
        return True
    if package in _BY_SAVE and package not in _saving(script, python):
        return True
    written = python.source.source(call.node).lower()
    path = call.argument("pretrained_model_name_or_path", 0) or next(
        (one.value for one in call.node.keywords if one.arg in ("f", "path", "filepath", "checkpoint_id", "file")), None
    )
    if call.attr in ("load_state_dict",) or path is None:
        return False
    origins = python.origins(path, call.around)
    told = " ".join((written, *(python.source.source(origin).lower() for origin, _ in origins)))
    if any(word in told for word in _BEGINS) and not any(word in told for word in ("resum", "latest", "last_")):
        return True
    if not _OF_DATA.isdisjoint(words_in(told[:256])) and not any(word in told for word in _OWN):
        return True
    if call.attr == "from_pretrained" and not any(word in told for word in _OWN):
        return True
    value = python.value(path, call.around)
    if not isinstance(value, str) or not is_known(value) or not value:
        return False
    return _is_elsewhere(script, python, str(script.placed(value)))


def _saving(script: Script, python: Python) -> frozenset[str]:
    """The packages by which the program saves in a loop."""
    known: frozenset[str] | None = python.memo.get("packages of saves")
    if known is None:
        known = python.memo["packages of saves"] = frozenset(
            save.function.partition(".")[0] for save in saves(script) if in_loop(save.python, save.call)
        )
    return known


def _is_elsewhere(script: Script, python: Python, path: str) -> bool:
    """Whether a path that is known is neither what a save writes, nor above or beside it."""
    known: frozenset[str] | None = python.memo.get("folders of saves")
    if known is None:
        own = (save for save in saves(script) if save.python is python)
        known = frozenset(head(script.placed(save.value)).rpartition("/")[0] for save in own)
        python.memo["folders of saves"] = known
    if not known or "" in known or len(known) > _FOLDERS:
        return False
    return not any(lies_in(path, folder) or lies_in(folder, path) for folder in known)


def _turned_off(python: Python, call: Call, depth: int = 0) -> Off | None:
    """The condition around a call that is known not to hold; of its function, where each of its calls has one."""
    found = next((one for test, way in _conditions(python, call) if (one := _fails(python, call, test, way))), None)
    if found is not None:
        return found
    for keyword in call.node.keywords if not _loads_by_name(python, call) else ():
        node = keyword.value
        told = keyword.arg and _is_load(keyword.arg) and isinstance(node, ast.Attribute | ast.Subscript)
        if told and (_is_nothing(python, node, call.around) or _is_flag_not_given(python, node)):
            return Off(call, node, node)
    found = _is_given_nothing(python, call)
    if found is not None:
        return found
    scope = call.around.scope if call.around is not None else None
    if scope is None or depth >= _DEEPEST:
        return None
    first: Off | None = None
    for caller in callers_of(python, scope) or ():
        if is_no_start(python, caller):
            continue  # what is saved in the loop and read back by one function
        one = _turned_off(python, caller, depth + 1)
        if one is None:
            return None
        first = first or Off(call, one.test, one.setting)
    return first


def _is_given_nothing(python: Python, call: Call) -> Off | None:
    """``load_weights(path)`` whose path is None or empty wherever it comes from: it stands under a condition."""
    path = call.node.args[0] if call.node.args else None
    if path is None or not any(True for _ in call.guards()):
        return None
    setting: ast.expr | None = None
    for origin, where in python.origins(path, call.around):
        value = python.value(origin, where)
        if value is not None and value != "":
            return None
        if isinstance(origin, ast.Attribute | ast.Subscript):
            setting = setting or origin
    return Off(call, setting, setting) if setting is not None else None


def _conditions(python: Python, call: Call) -> Iterator[tuple[ast.expr, bool]]:
    """The conditions that a call stands under: of ``if``, of ``x if y else z``, and ``if not y: return`` above it."""
    yield from call.guards()
    choices = python.source.choices
    for choice in choices if len(choices) <= _CHOICES else ():
        if holds(choice.body, call.node):
            yield choice.test, True
        elif holds(choice.orelse, call.node):
            yield choice.test, False
    scope = call.around.scope if call.around is not None else None
    if scope is None or scope.kind == "lambda":
        return
    leaves: dict[int, list[ast.If]] = python.memo.setdefault("leaves", {})
    if id(scope.node) not in leaves:
        leaves[id(scope.node)] = [
            one
            for one in scope.node.body
            if isinstance(one, ast.If) and isinstance(one.body[-1], ast.Return) and not one.orelse
        ][:_LEAVES]
    yield from ((one.test, False) for one in leaves[id(scope.node)] if one.lineno < call.line)


_CHOICES: Final = 50
_LEAVES: Final = 20
_FOLDERS: Final = 16
"""Conditions and folders of one text that are asked about for each call."""


def _is_flag_not_given(python: Python, node: ast.expr) -> bool:
    """``training_args.resume_from_checkpoint`` of transformers' parser, and no such flag on the command line."""
    if not isinstance(node, ast.Attribute) or node.attr != "resume_from_checkpoint" or not has_line(python):
        return False
    if not any(True for _ in python.methods("parse_args_into_dataclasses")) or names_file(python):
        return False
    return flag_value(python, ("--resume_from_checkpoint", "--resume-from-checkpoint"), True) is None


def _fails(python: Python, call: Call, test: ast.expr, way: bool) -> Off | None:
    """Whether a condition does not let a call happen, and by which setting."""
    joined = ast.And if way else ast.Or
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, joined) else [test]
    for part in parts:
        held = is_true(python.value(part, call.around))
        if held is None and way and _is_not_given(python, part):
            held = False
        if held is None or held == way:
            continue
        named = [node for node in ast.walk(part) if isinstance(node, ast.Attribute | ast.Subscript | ast.Name)]
        setting = next((node for node in named if not isinstance(node, ast.Name)), named[0] if named else None)
        if isinstance(setting, ast.Name) and not asks_to_go_on(python, setting):
            # ``found = args.resume != ""`` and then ``if found:``
            parts_of: Iterator[ast.AST] = (
                one for origin, _ in python.origins(setting, call.around) for one in ast.walk(origin)
            )
            found = next((one for one in parts_of if _is_setting(python, one)), None)
            setting = found if isinstance(found, ast.Attribute | ast.Subscript) else setting
        if setting is not None:
            return Off(call, test, setting)
    return None


def _is_setting(python: Python, node: ast.AST) -> bool:
    """``args.resume``, ``config["resume"]``, and not ``torch.load``, which a package gives."""
    return isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and not python.source.dotted(node)[1])


def _is_not_given(python: Python, part: ast.expr) -> bool:
    """``if resume:`` of a function far from the command line, where that has a ``--resume`` which is not given."""
    if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.IsNot | ast.NotEq):
        part = part.left
    name = part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else ""
    made = optional_arguments(python).get(name) if name else None
    return made is not None and has_line(python) and flag_value(python, flags_of(made), True) is None


def is_otherwise(python: Python, off: Off) -> bool:
    """Whether the setting has the program do something else than to train: ``if args.evaluate:``."""
    text = python.source.source(off.setting).lower()
    return any(word in text for word in _OTHERWISE)
