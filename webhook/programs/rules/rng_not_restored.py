"""The random numbers begin anew at every restart: the same seed is set again, and their state is not saved.

Symptom: after a restart the same shuffles and the same dropout come again, and the run is not the one without a stop.
Fix: save the state of the generators with the rest, and set it back.
Bad:
    args:
    - |
      torch.manual_seed(1)
      model.load_state_dict(state["model"])
Good:
    args:
    - |
      torch.manual_seed(1)
      model.load_state_dict(state["model"])
      torch.set_rng_state(state["rng"])
Reads: the seed that the program sets, and what it reads back of its own checkpoint, by hand, with DeepSpeed, Fabric or
torch.distributed.checkpoint; the key of JAX that the loop splits again and again.
Silent when: no seed is set; anything speaks of the generators' state; the seed is made of the step or the epoch; JAX's
key is saved, folded with the step, or made in the loop; Accelerate restores the generators by itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Lines, Remark
from webhook.programs import Call, Python, Script
from webhook.programs.flow import in_loop
from webhook.programs.goes_on import Whole, result_of, wholes
from webhook.programs.pasted import after, counter_in, loop_of, module_name, statement_of
from webhook.programs.python import Around
from webhook.programs.readback import mentions, read_back
from webhook.programs.values import said

ID = "rng-not-restored"
_SEEDS: Final = ("torch.manual_seed", "torch.cuda.manual_seed_all", "random.seed", "numpy.random.seed")


def look(script: Script) -> Iterator[Remark]:
    for python in script.pythons:
        yield from _seeds(script, python)
        yield from _keys(script, python)


def _seeds(script: Script, python: Python) -> Iterator[Remark]:
    back = [(one.call, one.state) for one in read_back(script, python)]
    whole = [one for one in wholes(script, python) if one.kind in _OF_TORCH]
    if not (back or whole) or mentions(python, "rng", "random_state", "random.setstate", "get_state()", "generator"):
        return
    # Python's own and numpy's mostly give the files of the data an order, which has to be the same at each start.
    for call in python.calls(*(_SEEDS if back else _SEEDS[:2])):
        if not call.node.args or _is_of_run(python, call.node.args[0]):
            continue
        yield Remark(
            python.at(call),
            f'"{said(python.text(call.node))}" is done at every start, and no generator gets its state back',
            after(python, back[-1][0], [_set_back(python, back[-1][1])]) if back else _kept_beside(python, whole[0]),
            subject=call.name,
        )
        return


_OF_TORCH: Final = ("deepspeed", "fabric", "dcp")


def _kept_beside(python: Python, whole: Whole) -> str:
    """The words for a state that goes through one call of a framework."""
    torch = module_name(python, "torch") or "torch"
    kept = {
        "deepspeed": f'client_state={{"rng": {torch}.get_rng_state()}} of save_checkpoint',
        "fabric": f'"rng": {torch}.get_rng_state() in the state that is saved',
        "dcp": f'"rng": {torch}.get_rng_state() in the state that is saved',
    }[whole.kind]
    at = python.at(whole.load).line
    return Lines(f"# {kept},\n# and {torch}.set_rng_state(...) with it behind line {at}", at + 1, at)


_MAKES: Final = ("jax.random.PRNGKey", "jax.random.key")


def _keys(script: Script, python: Python) -> Iterator[Remark]:
    """``key = jax.random.PRNGKey(0)``, split again and again in the loop, and no part of what is saved."""
    whole = [one for one in wholes(script, python) if one.kind in ("orbax", "flax")]
    if not whole or mentions(python, "fold_in", "rngs(", "rng_state"):
        return
    for call in python.calls(*_MAKES):
        name = next(iter(result_of(python, call)), "")
        if not name or in_loop(python, call) or not call.node.args or _is_of_run(python, call.node.args[0]):
            continue
        if not _is_split(python, name) or any(_holds(python, one, name) for one in whole) or _is_given(python, name):
            continue
        yield Remark(
            python.at(call),
            f'"{said(python.text(call.node))}" is made at every start, and "{said(name)}" is no part of what is saved',
            _folded(python, call, name, whole[0]),
            subject=name,
        )
        return


def _is_split(python: Python, name: str) -> bool:
    """``key, sub = jax.random.split(key)`` in a loop: what is drawn hangs on how often that was done."""
    return any(
        in_loop(python, call)
        and any(isinstance(one, ast.Name) and one.id == name for one in call.node.args[:1])
        and name in result_of(python, call)
        for call in list(python.calls("jax.random.split"))[:_MOST]
    )


_MOST: Final = 4


def _holds(python: Python, whole: Whole, name: str) -> bool:
    """Whether what is saved has the key in it."""
    given = [*whole.save.node.args, *(one.value for one in whole.save.node.keywords)]
    return any(
        isinstance(part, ast.Name) and part.id == name
        for node in given
        for one, _ in [(node, None), *_inner(python, whole, node)]
        for part in ast.walk(one)
    )


def _inner(python: Python, whole: Whole, node: ast.expr) -> list[tuple[ast.expr, Around | None]]:
    """What the names in an argument stand for: ``args=ocp.args.StandardSave(state)``."""
    names = [part for part in ast.walk(node) if isinstance(part, ast.Name)][:_MOST]
    found = [origin for one in names for origin in python.origins(one, whole.save.around)]
    # What is worked out with the key (``init(key)``) does not have it in it.
    return [one for one in found if isinstance(one[0], ast.Dict | ast.Tuple | ast.List)]


def _is_given(python: Python, name: str) -> bool:
    """Whether the key goes into a state: ``TrainState.create(..., rng=key)``, ``state.replace(key=key)``."""
    return any(
        isinstance(keyword.value, ast.Name) and keyword.value.id == name
        for call in python.source.calls
        if call.attr in ("create", "replace", "_replace") or call.attr.endswith("State")
        for keyword in call.node.keywords
    )


def _folded(python: Python, call: Call, name: str, whole: Whole) -> str:
    """The keys of a loop made of its counter, so that none has to be kept."""
    loop = loop_of(whole.save)
    counter = (counter_in(loop) if loop is not None else "") or "step"
    split = next(one for one in python.calls("jax.random.split") if in_loop(python, one))
    stmt = statement_of(python, split.node)
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
    jax = python.text(split.node.func).rpartition(".")[0] or "jax.random"
    others = [one for one in target.elts if python.text(one) != name] if isinstance(target, ast.Tuple) else []
    if len(others) == 1:
        return after(python, split, (), f"{python.text(others[0])} = {jax}.fold_in({name}, {counter})")
    return f"# in the loop: {jax}.fold_in({name}, {counter}) in the place of split"


def _set_back(python: Python, state: ast.expr) -> str:
    torch = module_name(python, "torch") or "torch"
    line = f'{torch}.set_rng_state({python.text(state)}["rng"])'
    return f'{line}    # and save it: "rng": {torch}.get_rng_state()'


def _is_of_run(python: Python, node: ast.expr) -> bool:
    """Whether the seed is worked out, by the rank or by what was done so far, or is named for that."""
    words = python.source.source(node).lower()
    return not isinstance(node, ast.Constant | ast.Name | ast.Attribute) or any(
        word in words for word in ("step", "epoch", "iter", "start", "time")
    )


RULE = ProgramRule(
    id=ID,
    severity=Severity.AUDIT,
    why="what follows a restart is drawn from the same random numbers as the beginning: the same shuffles come again",
    look=look,
    on_runtime=Severity.AUDIT,
)
