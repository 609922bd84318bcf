"""Sharded state is gathered whole in one process for every checkpoint.

Symptom: all GPUs wait while one process collects and writes, and large models run out of the host's memory.
Fix: let every process write its own part with torch.distributed.checkpoint.
Bad:
    args:
    - |
      with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
          torch.save(model.state_dict(), path)    # every 500 steps
Good:
    args:
    - |
      model_state, optimizer_state = get_state_dict(model, optimizer)
      dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=path)
Reads: FULL_STATE_DICT and full_state_dict=True in the training loop; fsdp_state_dict_type of Accelerate and of the
Trainer; Lightning's FSDPStrategy(state_dict_type="full").
Silent when: it stands after the loop (an export); DCP saves; nothing is sharded.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Place, Remark
from webhook.programs import Call, Python, Script
from webhook.programs.contents import optimizer_of
from webhook.programs.flow import in_loop
from webhook.programs.names import saves
from webhook.programs.values import is_true, said

ID = "gathered-shards"


def look(script: Script) -> Iterator[Remark]:
    for python in script.pythons:
        if "dcp.save" in python.source.code or "async_save" in python.source.code:
            continue
        for call, written in _gathers(python):
            if in_loop(python, call):
                yield _remark(python.at(call), written, _in_parts(script, python))
                break
        yield from _settings(python)
    for config in script.configs:
        for key in ("fsdp_config.fsdp_state_dict_type", "fsdp_config.state_dict_type"):
            if str(config.values.get(key, "")).upper() == "FULL_STATE_DICT":
                line = config.line(key)
                yield _remark(config.at(key), line, f"{key.rpartition('.')[2]}: SHARDED_STATE_DICT")
    for invocation in script.invocations:
        flag = invocation.launcher_flags.get("fsdp_state_dict_type")
        if flag is not None and str(flag.value).upper() == "FULL_STATE_DICT":
            yield _remark(flag.place, flag.raw, f"{flag.name} SHARDED_STATE_DICT")


def _in_parts(script: Script, python: Python) -> str:
    """What every process writes of its own, in the place of the save of the whole."""
    save = next((one for one in saves(script) if one.python is python and one.function == "torch.save"), None)
    states = "get_model_state_dict, get_optimizer_state_dict"
    optimizer = optimizer_of(python)
    model = next((python.text(call.receiver) for call in python.methods("parameters") if call.receiver), "model")
    path = "os.environ['CKPT_DIR']" if save is None else python.text(save.path)
    where = "" if save is None else f"# instead of the save in line {python.at(save.call).line}, by all processes:\n"
    state = f'{{"model": get_model_state_dict({model}), "optimizer": get_optimizer_state_dict({model}, {optimizer})}}'
    return (
        "import torch.distributed.checkpoint as dcp\n"
        f"from torch.distributed.checkpoint.state_dict import {states}\n"
        f"{where}dcp.save({state}, checkpoint_id=os.path.splitext({path})[0])"
    )


def _gathers(python: Python) -> Iterator[tuple[Call, str]]:
    for call in python.named("state_dict_type", "set_state_dict_type"):
        if any(python.source.dotted(node)[0].endswith("FULL_STATE_DICT") for node in call.node.args):
            yield call, python.text(call.node)
    for call in python.named("StateDictOptions"):
        if is_true(python.argument(call, "full_state_dict", default=False)) is True:
            yield call, python.text(call.node)
    for call in python.named("full_optim_state_dict"):
        yield call, python.text(call.node)


def _settings(python: Python) -> Iterator[Remark]:
    for call in python.named("FSDPStrategy"):
        if python.argument(call, "state_dict_type", default=None) == "full":
            yield _remark(python.at(call), 'state_dict_type="full"', 'state_dict_type="sharded"')
    for call in python.named("FullyShardedDataParallelPlugin"):
        kind = python.argument(call, "state_dict_type", default=None)
        if isinstance(kind, str) and kind.upper() == "FULL_STATE_DICT":
            yield _remark(python.at(call), f'state_dict_type="{kind}"', 'state_dict_type="SHARDED_STATE_DICT"')


def _remark(place: Place, written: str, fix: str) -> Remark:
    return Remark(place, f'"{said(written, 48)}" gathers the whole state in one process', fix, subject=said(written))


RULE = ProgramRule(
    id=ID,
    severity=Severity.AUDIT,
    why="every save stops all processes for as long as one needs to collect and write the whole model and optimizer",
    look=look,
    on_runtime=Severity.AUDIT,
)
