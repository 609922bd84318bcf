"""With several nodes each process looks for the newest checkpoint by itself, where the others do not see the same.

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
Reads: where the program lists checkpoints: the fast tier, the container's own files, names with a rank in them.
Silent when: one pod trains; the files are fetched from a bucket before; a broadcast or another collective on objects
follows; one rank alone looks; the directory is on the shared claim and the names hold no rank.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Finding, Severity
from webhook.model.rule import Rule
from webhook.model.script import Remark
from webhook.model.subject import Subject
from webhook.script import Call, Python, Script, Value, program_findings
from webhook.script.loads import loads
from webhook.script.program import lies_in
from webhook.script.ranks import guard_of
from webhook.script.values import head, kinds, pieces, said

ID = "ranks-resume-apart"
_LISTS: Final = ("glob.glob", "glob.iglob", "os.listdir", "os.scandir")
_METHODS: Final = ("glob", "rglob", "iterdir", "get_last_checkpoint", "latest_checkpoint")
_TELLS: Final = ("broadcast", "all_gather", "all_reduce", "allreduce", "gather_object", "scatter_object", "bcast")
_FETCHES: Final = ("s3://", "gs://", "boto3", "rsync", "gsutil", "snapshot_download", "hf_hub_download", "fsspec")
"""What fills a directory of one's own from a place that all share."""
_CONTAINERS: Final = ("/tmp/", "/var/tmp/", "/root/", "/dev/shm/")  # noqa: S108 - they are recognised, not used
_WORDS: Final = ("ckpt", "checkpoint", "step", "epoch", "iter", ".pt", "global_step")


def look(script: Script) -> Iterator[Remark]:
    if script.launch.pods < 2:
        return
    for python in script.pythons:
        if any(word in python.source.code for word in (*_TELLS, *_FETCHES)):
            continue
        if (
            not any(load.python is python for load in loads(script))
            and "resume_from_checkpoint" not in python.source.code
        ):
            continue
        for call, node in _listings(python):
            value = python.value(node, call.around)
            apart = _apart(script, value)
            if apart is None or not _names_checkpoints(value) or guard_of(python, call) not in ("none", "unknown"):
                continue
            yield Remark(
                python.at(call),
                f'each of {script.launch.pods} pods looks in "{said(python.text(node))[:40]}" by itself: {apart}',
                f"found = [{python.text(call.node)} if dist.get_rank() == 0 else None]\n"
                "dist.broadcast_object_list(found, src=0)    # and a directory on the shared claim",
                subject=python.text(node),
            )
            return


def _listings(python: Python) -> Iterator[tuple[Call, ast.expr]]:
    for call in python.calls(*_LISTS):
        if call.node.args:
            yield call, call.node.args[0]
    for call in python.named(*_METHODS):
        if call.imported and call.name in _LISTS:
            continue
        if call.attr in ("get_last_checkpoint", "latest_checkpoint") and call.node.args:
            yield call, call.node.args[0]
        elif call.receiver is not None and not call.imported:
            yield call, call.receiver


def _apart(script: Script, value: Value) -> str | None:
    """Why the processes see different names; None where they see the same or it is not told."""
    if kinds(value) & {"rank", "local-rank", "host"}:
        return "the names hold the rank"
    start = head(value)
    if any(lies_in(value, fast) for fast in script.launch.fast):
        return "the fast tier is each pod's own"
    if start.startswith(_CONTAINERS) and not script.on_volume(value):
        return "the container's files are each pod's own"
    return None


def _names_checkpoints(value: Value) -> bool:
    text = "".join(piece for piece in pieces(value) if isinstance(piece, str)).lower()
    return any(word in text for word in _WORDS)


def check(subject: Subject) -> Iterator[Finding]:
    return program_findings(subject, ID, look)


RULE = Rule(
    id=ID,
    severity=Severity.WARN,
    why="processes that resume from different steps do not fail, they train a model that is a mixture, or hang",
    check=check,
    on_runtime=Severity.WARN,
    reads_program=True,
)
