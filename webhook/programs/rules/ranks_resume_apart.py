"""With several nodes each process looks for its checkpoint by itself, where the others do not see the same.

Symptom: after a restart the nodes train from different steps, or the first collective hangs.
Fix: let one process choose and tell the others.
Bad:
    args:
    - |
      newest = max(glob.glob(f"{fast}/step_*.pt"), key=step_of)
Good:
    args:
    - |
      found = [max(glob.glob(f"{out}/step_*.pt"), key=step_of, default=None) if rank == 0 else None]
      dist.broadcast_object_list(found, src=0)
Reads: where the program lists checkpoints, or asks whether one is there that it saves and loads: the fast tier, the
container's own files, names with a rank in them.
Silent when: one pod trains; the files are fetched from a bucket before; a broadcast or another collective on objects
follows (one on losses tells nobody where to resume); one rank alone looks; it waits for the file; the directory is on
the shared claim and the names hold no rank.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Remark
from webhook.programs import Call, Python, Script, Value
from webhook.programs.loads import loads
from webhook.programs.names import saves
from webhook.programs.pasted import module_name, with_import
from webhook.programs.program import lies_in
from webhook.programs.ranks import guard_of
from webhook.programs.values import head, kinds, pieces, said

ID = "ranks-resume-apart"
_LISTS: Final = ("glob.glob", "glob.iglob", "os.listdir", "os.scandir")
_METHODS: Final = ("glob", "rglob", "iterdir")
_FINDERS: Final = ("get_last_checkpoint", "latest_checkpoint")
_ASKS: Final = ("os.path.exists", "os.path.isfile", "os.path.isdir", "os.path.lexists")
_ASKING: Final = ("exists", "is_file", "is_dir")
_MOST: Final = 100
"""Questions of one text that are looked at."""
_TELLS: Final = ("broadcast", "gather_object", "scatter_object", "bcast")
_SUMS: Final = ("all_reduce", "all_gather", "allreduce")
_MEASURES: Final = ("loss", "metric", "acc", "average", "mean", "reduce", "grad", "score", "correct", "eval", "valid")
"""What is summed over the processes while they train, in a name."""
_FETCHES: Final = ("s3://", "gs://", "boto3", "rsync", "gsutil", "snapshot_download", "hf_hub_download", "fsspec")
"""What fills a directory of one's own from a place that all share."""
_CONTAINERS: Final = ("/tmp/", "/var/tmp/", "/root/", "/dev/shm/")  # noqa: S108 - they are recognised, not used
_NAMED: Final = "the names hold the rank"
_WORDS: Final = ("ckpt", "checkpoint", "step", "epoch", "iter", ".pt", "global_step")


def look(script: Script) -> Iterator[Remark]:
    if script.launch.pods < 2:
        return
    for python in script.pythons:
        if any(word in python.source.code for word in (*_TELLS, *_FETCHES)) or _agree(python):
            continue
        if (
            not any(load.python is python for load in loads(script))
            and "resume_from_checkpoint" not in python.source.code
        ):
            continue
        for call, node, told in _looks(script, python):
            value = script.placed(python.value(node, call.around))
            apart = _apart(script, value)
            if apart is None or guard_of(python, call) not in ("none", "unknown"):
                continue
            if not told and not _names_checkpoints(script, value):
                continue
            yield Remark(
                python.at(call),
                f'each of {script.launch.pods} pods looks in "{said(python.text(node), 40)}" by itself: {apart}',
                _fix(python, call, apart),
                subject=python.text(node),
            )
            return


def _fix(python: Python, call: Call, apart: str) -> str:
    dist = module_name(python, "torch.distributed") or "torch.distributed"
    wanted = () if dist.partition(".")[0] in python.source.imports else ("torch.distributed",)
    line, looks = python.at(call).line, python.text(call.node)
    if apart == _NAMED:
        fix = (
            f"# before line {line}; resume at a step that all of them have:\n"
            f"found = [None] * {dist}.get_world_size()\n"
            f"{dist}.all_gather_object(found, {looks})"
        )
    else:
        fix = (
            f"# before line {line}, which takes found[0] then, in a directory on the shared claim:\n"
            f"found = [{looks} if {dist}.get_rank() == 0 else None]\n"
            f"{dist}.broadcast_object_list(found, src=0)"
        )
    return with_import(python, fix, *wanted)


def _looks(script: Script, python: Python) -> Iterator[tuple[Call, ast.expr, bool]]:
    """Every look into a directory: the call, what it looks at, and whether that is for a checkpoint by itself."""
    for call in python.calls(*_LISTS):
        if call.node.args:
            yield call, call.node.args[0], False
    for call in python.named(*_FINDERS):
        if call.node.args:
            yield call, call.node.args[0], True
    for call in python.methods(*_METHODS):
        if call.receiver is not None and not call.imported:
            yield call, call.receiver, False
    asked = [(call, call.node.args[0]) for call in python.calls(*_ASKS) if call.node.args]
    asked += [(call, call.receiver) for call in python.methods(*_ASKING) if call.receiver and not call.imported]
    for call, node in asked[:_MOST]:
        if _is_own(script, python, python.value(node, call.around)) and not _is_waited_for(python, call):
            yield call, node, True


def _is_own(script: Script, python: Python, value: Value) -> bool:
    """Whether what is asked for is a checkpoint of this program: a file that it saves to and loads from."""
    return any(load.python is python and _is_at(load.value, value) for load in loads(script)) and any(
        save.python is python and _is_at(save.value, value) for save in saves(script)
    )


def _is_at(path: Value, asked: Value) -> bool:
    """Whether a path is the one that is asked for, or a name in that directory."""
    if isinstance(asked, str):
        return lies_in(path, asked)
    return bool(head(asked)) and head(path) == head(asked) and kinds(path) == kinds(asked)


def _is_waited_for(python: Python, call: Call) -> bool:
    """``while not exists(path): sleep(1)``."""
    return any(
        isinstance(statement, ast.While) and any(node is call.node for node in ast.walk(statement.test))
        for statement, _ in python.source.statements
    )


def _agree(python: Python) -> bool:
    """Whether the processes sum or gather something that may be the step to resume at."""
    for attr, calls in python.source.by_attr.items():
        if not any(word in attr for word in _SUMS):
            continue
        for call in calls:
            about = f"{call.function or ''} {python.text(call.node.args[0]) if call.node.args else ''}".lower()
            if not call.inside("for", "while") and not any(word in about for word in _MEASURES):
                return True
    return any(word in name for name in python.source.imports for word in _SUMS)


def _apart(script: Script, value: Value) -> str | None:
    """Why the processes see different names; None where they see the same or it is not told."""
    if kinds(value) & {"rank", "local-rank", "host"}:
        return _NAMED
    start = head(value)
    if script.in_fast_tier(value):
        return "the fast tier is each pod's own"
    if start.startswith(_CONTAINERS) and not script.on_volume(value):
        return "the container's files are each pod's own"
    return None


def _names_checkpoints(script: Script, value: Value) -> bool:
    if script.in_fast_tier(value):
        return True
    text = "".join(piece for piece in pieces(value) if isinstance(piece, str)).lower()
    return any(word in text for word in _WORDS)


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="processes that resume from different steps do not fail, they train a model that is a mixture, or hang",
    look=look,
    on_runtime=Severity.WARN,
)
