"""Several processes write one file, each over the other.

Symptom: a checkpoint that cannot be loaded, now and then, with several processes or nodes.
Fix: let the process with rank 0 write, or every process its own file.
Bad:
    args:
    - |
      torch.save(state, f"{out}/step_{step:08d}.pt")
Good:
    args:
    - |
      if dist.get_rank() == 0:
          torch.save(state, f"{out}/step_{step:08d}.pt")
Reads: torch.save and its kin in the training loop, the conditions around them, how many processes there are.
Silent when: one process trains, or it is not known how many; a condition names a rank, or may; the file's name holds
the rank; a local rank guards what lies in the fast tier, which is each pod's own; the framework sees to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Remark
from webhook.programs import Script
from webhook.programs.flow import in_loop
from webhook.programs.names import Save, saves
from webhook.programs.pasted import guarded, rank_of, with_import
from webhook.programs.ranks import guard_of, processes_of
from webhook.programs.values import Unknown, kinds, pieces, said

ID = "unguarded-rank-write"
_PLAIN: Final = frozenset(
    ("torch.save", "pickle.dump", "joblib.dump", "safetensors.torch.save_file", "save_pretrained")
)
_HANDLED: Final = frozenset(("accelerate", "lightning", "pytorch_lightning", "deepspeed", "ray", "horovod", "composer"))


def look(script: Script) -> Iterator[Remark]:
    for save in saves(script):
        python = save.python
        if save.function not in _PLAIN or not script.on_volume(save.value) or not in_loop(python, save.call):
            continue
        if kinds(save.value) & {"rank", "local-rank", "host", "fresh"} or not python.source.modules.isdisjoint(
            _HANDLED
        ):
            continue
        if any(isinstance(piece, Unknown) and "rank" in piece.source.lower() for piece in pieces(save.value)):
            continue
        count = processes_of(script, python)
        if count not in ("pod", "pods"):
            continue
        guard = guard_of(python, save.call)
        own = script.in_fast_tier(script.placed(save.value))
        if guard == "none" or (guard == "local" and count == "pods" and not own):
            yield _remark(script, save, guard == "local")
            return


def _remark(script: Script, save: Save, local: bool) -> Remark:
    python = save.python
    path = said(python.text(save.path), 48)
    rank, modules = rank_of(python, save.call)
    problem = (
        f'a local rank is 0 in each of {script.launch.pods} pods, which all write "{path}"'
        if local
        else f'every process writes "{path}": no condition on the rank'
    )
    return Remark(
        python.at(save.call),
        problem,
        with_import(python, guarded(python, save.call, f"{rank} == 0"), *modules),
        subject=save.name,
    )


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="processes that write the same file at the same time leave a torn one, which no restart can load",
    look=look,
    on_runtime=Severity.WARN,
)
