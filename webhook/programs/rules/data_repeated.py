"""The data begins anew at a restart: some of it is seen twice, and the rest of the epoch never.

Symptom: after each restart in the midst of an epoch the same batches come first.
Fix: go on behind the batches that were seen, and tell the sampler its epoch.
Bad:
    args:
    - |
      TrainingArguments(output_dir=out, ignore_data_skip=True)
Good:
    args:
    - |
      TrainingArguments(output_dir=out)
Reads: ignore_data_skip of the Trainer that resumes; DistributedSampler and set_epoch; a save in the midst of a loop
over a DataLoader, beside what is read back by hand, or with Accelerate, DeepSpeed, Fabric or DCP.
Silent when: batches are skipped in any way, the loader keeps its place (StatefulDataLoader), or it is not known; a
framework handles the data.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Lines, Remark
from webhook.programs import Call, Python, Script
from webhook.programs.corrected import in_line
from webhook.programs.frameworks import find_uses
from webhook.programs.frameworks.framework import call_setting
from webhook.programs.frameworks.hf_trainer import arguments_calls, train_calls
from webhook.programs.goes_on import Whole, wholes
from webhook.programs.pasted import loop_of
from webhook.programs.python import Around
from webhook.programs.readback import kept, mentions, read_back
from webhook.programs.values import is_true, said

ID = "data-repeated"
_SAMPLER: Final = "torch.utils.data.distributed.DistributedSampler"
_OTHERS: Final = frozenset(("transformers", "trl", "lightning", "pytorch_lightning", "accelerate", "ray", "composer"))
_SKIPS: Final = ("skip", "islice", "stateful", "resume_step", "fast_forward", "start_batch", "batch_offset", "consumed")


def look(script: Script) -> Iterator[Remark]:
    for python in script.pythons:
        yield from _told_to(script, python)
        if python.source.modules.isdisjoint(_OTHERS):
            yield from _sampled(python)
            yield from _in_the_midst(script, python)
        yield from _whole(script, python)
    for use in find_uses(script):
        if use.framework.id == "hf-trainer" and use.invocation is not None:
            flag = use.invocation.flag("ignore_data_skip")
            if flag is not None and is_true(flag.value) is not False:
                yield Remark(
                    flag.place,
                    f'"{said(flag.raw)}" begins the data anew at every resume',
                    f"without {flag.name}",
                    subject=flag.name,
                )


def _told_to(script: Script, python: Python) -> Iterator[Remark]:
    if not any(call.node.args or call.node.keywords for call in train_calls(python)):
        return
    for call in arguments_calls(python):
        setting = call_setting(python, call, "ignore_data_skip", False)
        if setting.given and setting.value is True:
            yield Remark(
                setting.place,
                '"ignore_data_skip=True" begins the data anew at every resume',
                in_line(script, setting.place, "ignore_data_skip=False", call, None, None, True),
                subject="ignore_data_skip",
            )


def _sampled(python: Python) -> Iterator[Remark]:
    """A shuffling sampler that is never told the epoch gives each the same order, and a restart the same again."""
    if mentions(python, "set_epoch"):
        return
    for call in python.calls(_SAMPLER, "torch.utils.data.DistributedSampler"):
        if python.argument(call, "shuffle", default=True) is not True:
            continue
        loop = _epochs(python)
        name = _name(python, call)
        if loop is None or not name:
            continue
        counter = loop.target.id if isinstance(loop.target, ast.Name) else "epoch"
        base = max(python.place.line, 1) - 1
        at, first = base + loop.lineno, base + loop.body[0].lineno
        yield Remark(
            python.at(call),
            f'"{name}" is never told the epoch, so each epoch and each restart has the same order',
            Lines(f"# first in the loop of line {at}:\n{name}.set_epoch({counter})", first, first - 1),
            subject=name,
        )
        return


def _name(python: Python, call: Call) -> str:
    for (_, name), found in python.source.bindings.items():
        if any(one.value is call.node for one in found):
            return name
    return ""


def _epochs(python: Python) -> ast.For | None:
    """The loop over epochs, by its counter's name."""
    for statement, _ in python.source.statements:
        if isinstance(statement, ast.For) and isinstance(statement.target, ast.Name):
            named = statement.target.id.lower()
            if named.startswith("ep"):
                return statement
    return None


def _in_the_midst(script: Script, python: Python) -> Iterator[Remark]:
    """A save every so many batches of a DataLoader, from which a resume begins at the loader's first batch."""
    back = read_back(script, python)
    if not back or mentions(python, *_SKIPS) or "torch.utils.data" not in " ".join(python.source.imports.values()):
        return
    for save in kept(script, python):
        loop = loop_of(save.call)
        inner = _batches(python, save.call.around)
        if inner is None or loop is None:
            continue
        shown = python.source.line(inner.lineno).rstrip(":")
        at = max(python.place.line, 1) - 1 + inner.lineno
        yield Remark(
            python.at(inner),
            f'"{said(shown, 60)}" begins at its first batch after a restart in the midst of an epoch',
            Lines("# skip the batches that were seen, or use torchdata's StatefulDataLoader", at, at - 1),
            subject=shown,
        )
        return


_OF_TORCH: Final = ("accelerate", "deepspeed", "fabric", "dcp")
_IN_ORDER: Final = (
    *("skip", "islice", "stateful", "fast_forward", "start_batch", "batch_offset", "consumed", "resume_step"),
    *("sampler.load", "loader.load", "data_state"),
)
_SAMPLERS: Final = frozenset(
    ("DistributedSampler", "RandomSampler", "SequentialSampler", "WeightedRandomSampler", "BatchSampler")
)
"""Those of torch, which know no place to begin at; another may."""


def _whole(script: Script, python: Python) -> Iterator[Remark]:
    """The same of a state that goes through one call of a framework, none of which keeps the place in the data."""
    if mentions(python, *_IN_ORDER) or any(
        name.endswith("Sampler") and name not in _SAMPLERS for name in python.source.by_attr
    ):
        return
    for whole in wholes(script, python):
        inner = _batches(python, whole.save.around, named=True) if whole.kind in _OF_TORCH else None
        if inner is None:
            continue
        shown = python.source.line(inner.lineno).rstrip(":")
        at = max(python.place.line, 1) - 1 + inner.lineno
        yield Remark(
            python.at(inner),
            f'"{said(shown, 60)}" begins at its first batch after "{said(python.text(whole.load.node), 50)}"',
            Lines(_skipped(python, whole, inner), at, at - 1),
            subject=shown,
        )
        return


def _skipped(python: Python, whole: Whole, loop: ast.For) -> str:
    if whole.kind != "accelerate":
        return "# skip the batches that were seen, or use torchdata's StatefulDataLoader"
    node = loop.iter.args[0] if isinstance(loop.iter, ast.Call) and loop.iter.args else loop.iter
    return f"# in the first epoch after a load: {whole.owner}.skip_first_batches({python.text(node)}, <batches seen>)"


def _batches(python: Python, around: Around | None, named: bool = False) -> ast.For | None:
    """The innermost loop, where it runs over a DataLoader (``named``: or what is called one), and passes none over."""
    for here in around.outwards() if around is not None else ():
        if here.kind in ("function", "lambda", "while"):
            return None
        if here.kind == "for":
            node = here.node.iter
            if isinstance(node, ast.Call) and python.source.dotted(node.func)[0] in ("enumerate", "tqdm", "tqdm.tqdm"):
                node = node.args[0] if node.args else node
            made = python.class_of(node, here.outer)
            # What a framework prepared has no class that the text tells.
            known = made.endswith("DataLoader") or (named and "loader" in python.source.dotted(node)[0].lower())
            if not known or any(isinstance(one, ast.Continue) for one in ast.walk(here.node)):
                return None
            return here.node  # type: ignore[no-any-return]
    return None


RULE = ProgramRule(
    id=ID,
    severity=Severity.AUDIT,
    why="some data is trained on twice at every restart and some never, and nothing in the logs says so",
    look=look,
    on_runtime=Severity.AUDIT,
)
