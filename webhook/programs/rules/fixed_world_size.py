"""Each process saves its own part in a form that loads only at the same number of processes.

Symptom: the run that had 16 GPUs cannot be resumed with 8, though the checkpoints are there.
Fix: save with torch.distributed.checkpoint, or in the framework's distributed format.
Bad:
    args:
    - |
      torch.save(model.state_dict(), f"{out}/step_{step}_rank{rank}.pt")
Good:
    args:
    - |
      dcp.save(state, checkpoint_id=f"{out}/step_{step}")
Reads: torch.save of a model's or optimizer's state into a name with the rank; --ckpt-format torch; DeepSpeed's
configuration.
Silent when: what the ranks save is their random state or their place in the data; DCP, a universal checkpoint of
DeepSpeed, a distributed one of Megatron.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Remark
from webhook.programs import Script
from webhook.programs.frameworks import find_calls, find_uses, mended
from webhook.programs.names import Save, saves
from webhook.programs.pasted import after, counter_of, folder_of, headed, module_name, pattern_of, with_import
from webhook.programs.values import as_number, is_true, kinds, said

ID = "fixed-world-size"


def look(script: Script) -> Iterator[Remark]:
    for use in find_uses(script):
        if use.fixed is not None and use.fixed.value is True:
            name = use.fixed.written or use.fixed.name
            yield Remark(
                use.fixed.place,
                f'"{said(name)}" saves parts that load at the same tensor- and pipeline-parallel sizes only',
                mended(script, use.fixed, "--ckpt-format torch_dist", use),
                subject=use.fixed.name,
            )
    yield from _zero(script)
    for save in saves(script):
        if save.function == "torch.save" and "rank" in kinds(save.value) and _holds_state(save):
            yield Remark(
                save.python.at(save.call),
                f'"{said(save.python.text(save.path), 44)}" is one process\'s part, for this number of processes only',
                _in_parts(save),
                subject=save.name,
            )
            return


def _in_parts(save: Save) -> str:
    """DCP's save of the same state, which all processes write into one directory."""
    python = save.python
    node = save.call.argument("obj", 0)
    name = module_name(python, "torch.distributed.checkpoint")
    pattern, _ = pattern_of(save)
    folder = folder_of(python, save) or f"os.path.dirname({python.text(save.path)})"
    counter = counter_of(python, save.call)
    where = f'os.path.join({folder}, f"step_{{{counter}:08d}}")' if pattern and counter else folder
    whole = f"{name or 'dcp'}.save({python.text(node) if node is not None else 'state'}, checkpoint_id={where})"
    fix = with_import(python, after(python, save.call, (), whole), "os")
    return fix if name else headed(python, fix, "import torch.distributed.checkpoint as dcp")


def _zero(script: Script) -> Iterator[Remark]:
    """ZeRO's parts, where the configuration is seen and does not ask for universal checkpoints."""
    calls = [use for use in find_calls(script) if use.framework.id == "deepspeed"]
    if not calls or any("universal" in python.source.code for python in script.pythons):
        return
    for config in script.configs:
        stage = as_number(config.values.get("zero_optimization.stage"))
        if stage and stage > 0 and is_true(config.values.get("checkpoint.load_universal", False)) is False:
            yield Remark(
                config.at("zero_optimization.stage"),
                f"ZeRO stage {stage:g} saves parts that load at this number of processes only",
                '"checkpoint": {"load_universal": true}    # after ds_to_universal.py',
                subject="zero_optimization",
            )
            return


def _holds_state(save: Save) -> bool:
    node = save.call.argument("obj", 0)
    if node is None:
        return False
    python = save.python
    texts = [python.source.source(origin).lower() for origin, _ in python.origins(node, save.call.around)]
    name = python.text(save.path).lower()
    if any(word in name for word in ("rng", "random", "data", "sampler", "loader")):
        return False
    return any(("model" in text or "optim" in text or "fsdp" in text) and "state" in text for text in texts)


RULE = ProgramRule(
    id=ID,
    severity=Severity.AUDIT,
    why="a run that comes back with another number of processes cannot load what it has saved",
    look=look,
    on_runtime=Severity.AUDIT,
)
