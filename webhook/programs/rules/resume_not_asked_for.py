"""The program can resume, and only when it is asked to, which this command does not do.

Symptom: the checkpoints are there, and every restart begins at step 0.
Fix: ask for it, in a form that also works where there is no checkpoint yet.
Bad:
    command: [trl, sft, --output_dir, /mnt/ckpt/run]
Good:
    command: [bash, -c]
    args:
    - |
      last=$(ls -d /mnt/ckpt/run/checkpoint-* | sort -V | tail -n 1)
      exec trl sft --output_dir /mnt/ckpt/run ${last:+--resume_from_checkpoint $last}
Reads: the framework's flag for resuming; in Python, the condition or argument on which every load hangs, the defaults
of its arguments, and the command's flags.
Silent when: the framework resumes by itself; the command or the program is only partly seen; any load needs no asking.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from webhook.model.finding import Severity
from webhook.model.rule import ProgramRule
from webhook.model.script import Remark
from webhook.programs import UNKNOWN, Call, Invocation, Python, Script, Value
from webhook.programs.arguments import flags_of, hides_flags
from webhook.programs.back import asks_to_go_on, back, is_otherwise, may_be_unseen, may_load
from webhook.programs.contents import is_optimizer
from webhook.programs.corrected import in_line, with_node
from webhook.programs.flow import callers_of, in_loop, loop_learns
from webhook.programs.frameworks import Setting, Use, find_uses, mended
from webhook.programs.frameworks.hf_trainer import resume_nodes
from webhook.programs.loads import Load, loads, optional_arguments
from webhook.programs.names import saves
from webhook.programs.pasted import after, folder_in, newest_of, pattern_of, statement_of, with_import
from webhook.programs.python import Around
from webhook.programs.switches import Switch, switch_off
from webhook.programs.values import is_true, said

ID = "resume-not-asked-for"
_WHOLE: Final = frozenset(("load_state", "load_checkpoint"))
"""Loads of Accelerate and DeepSpeed: all that a run goes on from, by whatever name the argument has."""
_FITS: Final = ("keras", "hf-trainer", "lightning")
"""Frameworks whose loop is not the program's own."""
_WEIGHTS: Final = frozenset(("load_from_checkpoint", "load_checkpoint_and_dispatch", "load_checkpoint_in_model"))


def look(script: Script) -> Iterator[Remark]:
    for use in find_uses(script):
        resume = use.resume
        if (
            use.invocation is None
            or use.python is not None
            or use.partial
            or resume is None
            or use.framework.resumes_by_itself
            or not (resume.value is None or is_true(resume.value) is False)
            or (use.saves is not None and use.saves.value is False)
        ):
            continue
        given = f'"{resume.written or resume.name}"' if resume.given else f'no "{resume.name}"'
        yield Remark(
            resume.place,
            f'"{use.invocation.name}" is started with {given}, so a restart begins at 0',
            _asked(script, use, resume),
            subject=resume.name,
        )
    for invocation in script.invocations:
        if invocation.python is not None and not hides_flags(invocation.arguments):
            if not may_load(script) and not may_be_unseen(script):
                continue  # what is read is read to test, or is of others: that is never-resumed
            told = [
                *_in_text(script, invocation, invocation.python),
                *_switched_off(script, invocation, invocation.python),
            ]
            yield from told or _turned_off(script, invocation, invocation.python)


def _in_text(script: Script, invocation: Invocation, python: Python) -> Iterator[Remark]:
    """Every load, and every resume of a trainer, hangs on an argument that is not given and is nothing by default."""
    optional = optional_arguments(python)
    if not optional or not any(True for _ in python.methods("parse_args", "parse_known_args")):
        return
    if any(call.node.args for call in python.methods("parse_args", "parse_known_args")):
        return
    if any(_given(invocation, made) and name in invocation.flags for name, made in optional.items() if _resumes(name)):
        return
    begins = {name for name, made in optional.items() if _begins(python, name, made)}
    wanted: list[tuple[str, Call]] = []
    own = False
    for load in loads(script):
        if load.python is not python or _is_weights(load.call):
            continue
        names = _hangs_on(python, load.call, load.path, optional)
        if not names:
            return
        wanted += [(name, optional[name]) for name in names if name not in begins]
        own = own or load.function in _WHOLE or _is_of_run(python, load)
    for call, node in resume_nodes(python):
        names = _hangs_on(python, call, node, optional)
        if not names:
            return
        wanted += [(name, optional[name]) for name in names]
    for call in _unseen_loads(script, python):
        names = _hangs_on(python, call, call.node.args[0] if call.node.args else None, optional)
        if not names:
            return
        wanted += [(name, optional[name]) for name in names if name not in begins]
    if not wanted or any(name in invocation.flags or _given(invocation, made) for name, made in wanted):
        return
    named = [(name, made) for name, made in wanted if _resumes(name)]
    if not own and not named:
        return
    # A cache of the data may be loaded by a flag too: the one that resumes the run is named.
    wanted = named or wanted
    name, made = wanted[0]
    flags = flags_of(made)
    flag = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else f"--{name}")
    switch = python.argument(made, "action", default="store") == "store_true"
    place = invocation.place
    yield Remark(
        place,
        f'"{invocation.name}" loads a checkpoint only with "{flag}", which this command does not give',
        in_line(script, place, flag, None, invocation)
        if switch
        else _looked_up(script, invocation, python, made, name, flag),
        subject=flag,
    )


def _switched_off(script: Script, invocation: Invocation, python: Python) -> Iterator[Remark]:
    """Every load stands under a condition that a setting of the text itself makes false: ``RESUME = False``."""
    switches: list[Switch] = []
    for load in loads(script):
        if load.python is not python or _is_weights(load.call):
            continue
        guards = load.call.guards()
        switch = next(
            (one for test, way in guards if (one := switch_off(python, test, way, load.call)) is not None), None
        )
        if switch is None:
            return
        switches.append(switch)
    if not switches or any(True for _ in resume_nodes(python)):
        return
    switch = switches[0]
    if switch.name.rpartition(".")[2] in invocation.flags or not any(
        in_loop(save.python, save.call) for save in saves(script)
    ):
        return
    if switch.flag:
        yield Remark(
            invocation.place,
            f'"{invocation.name}" loads a checkpoint only with "{switch.flag}", which this command does not give',
            in_line(script, invocation.place, switch.flag, None, invocation),
            subject=switch.flag,
        )
        return
    yield Remark(
        python.at(switch.line),
        f'the program loads a checkpoint only where "{switch.name}" says so, and it is {_said(switch.value)}',
        _as_condition(script, python, switch.name),
        subject=switch.name,
    )


def _turned_off(script: Script, invocation: Invocation, python: Python) -> Iterator[Remark]:
    """All that could bring the run back stands under settings that this start leaves off."""
    if may_be_unseen(script):
        return
    read = back(script, python)
    asked = [one for one in read.off if asks_to_go_on(python, one.setting) and not is_otherwise(python, one)]
    if read.could or not asked:
        return
    fits = any(
        use.framework.id in _FITS and use.python is python and (use.saves is None or use.saves.value is not False)
        for use in find_uses(script)
    )
    if not fits and not (loop_learns(python) and any(in_loop(save.python, save.call) for save in saves(script))):
        return
    setting = asked[0].setting
    written = python.text(setting)
    made = optional_arguments(python).get(setting.attr) if isinstance(setting, ast.Attribute) else None
    if made is not None:
        flags = flags_of(made)
        flag = next((flag for flag in flags if flag.startswith("--")), f"--{written.rpartition('.')[2]}")
        yield Remark(
            invocation.place,
            f'"{invocation.name}" loads a checkpoint only with "{flag}", which this command does not give',
            _looked_up(script, invocation, python, made, written.rpartition(".")[2], flag),
            subject=flag,
        )
        return
    yield Remark(
        python.at(asked[0].test.lineno),
        f'the program loads a checkpoint only where "{said(written)}" says so, and this start leaves it off',
        f"# {said(written)}: {_wanted(asked[0].test, setting)} where there is a checkpoint, and the newest one then",
        subject=written,
    )


def _wanted(test: ast.AST, setting: ast.expr) -> str:
    """What the setting has to be for the test to hold: the word that it is compared with, else true."""
    written = ast.dump(setting)
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
            for one, other in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
                if ast.dump(one) == written and isinstance(other, ast.Constant) and isinstance(other.value, str):
                    return said(repr(other.value))
    return "true"


def _asked(script: Script, use: Use, resume: Setting) -> str:
    """What has the framework resume: for one that takes the directory of its checkpoints, that of the saves."""
    directory = use.directory.value if use.directory is not None else UNKNOWN
    fix = use.resume_fix or use.framework.resume_fix
    if resume.name.startswith("--") and use.framework.loads_directory and isinstance(directory, str):
        return mended(script, resume, f"{resume.name} {directory}", use)
    return fix if use.resume_fix else mended(script, resume, fix, use)


def _looked_up(script: Script, invocation: Invocation, python: Python, made: Call, name: str, flag: str) -> str:
    """The argument's value where it is not given: the newest that the program has saved."""
    save = next((one for one in saves(script) if one.python is python and in_loop(python, one.call)), None)
    if save is not None and save.function == "save_checkpoint" and "deepspeed" in python.source.modules:
        directory = python.value(save.path, save.call.around)
        if isinstance(directory, str):
            return in_line(script, invocation.place, f"{flag} {directory}", None, invocation)
    for call in python.methods("parse_args", "parse_known_args"):
        stmt = statement_of(python, call.node)
        if not isinstance(stmt, ast.Assign) or not isinstance(stmt.targets[0], ast.Name) or save is None:
            continue
        args = stmt.targets[0].id
        folder = folder_in(script, save, stmt.lineno + 1)
        pattern, _ = pattern_of(save)
        if folder and pattern:
            newest = f"{args}.{name} = {args}.{name} or {newest_of(folder, pattern)}"
            return with_import(python, after(python, call, [newest]), "glob", "os")
    return f"# {flag}: the newest checkpoint; or let the program look for it where {flag} is None"


def _as_condition(script: Script, python: Python, switch: str) -> str:
    """The switch as a question: whether what is loaded is there."""
    load = next((one for one in loads(script) if one.python is python and one.path is not None), None)
    if load is None or load.path is None:
        return f"# {switch}: true where there is a checkpoint"
    test = next((test for test, way in load.call.guards() if way and python.source.dotted(test)[0] == switch), None)
    path, made = load.path, [one for one, _ in python.origins(load.path, load.call.around)]
    guards = [one.lineno for one, _ in load.call.guards()]
    if isinstance(path, ast.Name) and len(made) == 1 and guards and made[0].lineno > min(guards):
        path = made[0]  # the name is made behind the condition
    asked = f"os.path.exists({python.text(path)})"
    if test is None or test.lineno != test.end_lineno:
        return with_import(python, f"# as the condition of the load:\n{asked}", "os")
    return with_import(python, with_node(python, test, asked), "os")


def _said(value: Value) -> str:
    return f'"{said(value)}"' if isinstance(value, str) else str(value)


def _given(invocation: Invocation, made: Call) -> bool:
    return any(flag.lstrip("-").replace("-", "_") in invocation.flags for flag in flags_of(made))


def _begins(python: Python, name: str, made: Call) -> bool:
    """An argument for the weights that a run begins with, which are not what it saved: ``--init_checkpoint``."""
    told = python.argument(made, "help", default="")
    words = f"{name} {told if isinstance(told, str) else ''}".lower()
    if "resum" in words or "restor" in words:
        return False
    return name.startswith(("init", "pretrain", "base_", "teacher", "source_", "finetune")) or "pretrain" in words


def _is_weights(call: Call) -> bool:
    return "pretrain" in call.name


def _unseen_loads(script: Script, python: Python) -> Iterator[Call]:
    """Calls of what is defined elsewhere and loads by its name: ``trainer.resume_from_checkpoint()``."""
    known = {id(load.call.node) for load in loads(script)}
    for call in python.source.calls:
        name = call.name.rpartition(".")[2]
        if (
            id(call.node) not in known
            and name not in python.source.functions
            and ("checkpoint" in name or "ckpt" in name)
            and name.startswith(("load_", "resume_", "restore_", "maybe_", "auto_"))
            and name not in _WEIGHTS
            and "pretrain" not in name
        ):
            yield call


def _hangs_on(python: Python, call: Call, path: ast.expr | None, optional: dict[str, Call]) -> list[str]:
    """The arguments without any of which this load does not take place; empty where it needs none."""
    names = _guarded_by(python, call, optional)
    if names:
        return names
    if path is not None:
        found = {_argument(origin, optional) for origin, _ in python.origins(path, call.around)}
        if len(found) == 1 and None not in found:
            return [name for name in found if name is not None]
    scope = call.around.scope if call.around is not None else None
    return _callers_guarded_by(python, scope, optional) if scope is not None else []


def _callers_guarded_by(python: Python, scope: Around, optional: dict[str, Call]) -> list[str]:
    """The same of a function whose every call stands under such a condition."""
    known: dict[int, list[str]] = python.memo.setdefault("callers guarded by", {})
    if id(scope.node) not in known:
        names: dict[str, None] = {}
        for call in callers_of(python, scope) or ():
            found = _guarded_by(python, call, optional)
            if not found:
                names.clear()
                break
            names.update(dict.fromkeys(found))
        known[id(scope.node)] = list(names)
    return known[id(scope.node)]


def _resumes(name: str) -> bool:
    return any(word in name for word in ("resum", "restor", "ckpt", "checkpoint"))


def _is_of_run(python: Python, load: Load) -> bool:
    """Whether what is loaded goes back into an optimizer: a run's state, by whatever name its flag has."""
    return any(
        call.receiver is not None and is_optimizer(python, python.source.dotted(call.receiver)[0])
        for call in python.methods("load_state_dict")
    ) and not any(word in python.text(load.call.node).lower() for word in ("data", "cache", "token", "pretrain"))


def _guarded_by(python: Python, call: Call, optional: dict[str, Call]) -> list[str]:
    """``if args.resume:``, and both of ``if args.resume or args.resume_from:``; ``AGAIN = args.resume is not None``."""
    for test, branch in call.guards():
        if not branch:
            continue
        if isinstance(test, ast.Name):
            origins = python.origins(test, call.around)
            test = origins[0][0] if len(origins) == 1 else test
        for part in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]:
            either = part.values if isinstance(part, ast.BoolOp) and isinstance(part.op, ast.Or) else [part]
            names = [_argument(one, optional) for one in either]
            if None not in names:
                return [name for name in names if name is not None]
    return []


def _argument(node: ast.expr, optional: dict[str, Call]) -> str | None:
    """``args.resume``, ``args.resume is not None``, ``args.resume != ""``, ``os.path.isfile(args.resume)``."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.IsNot | ast.NotEq):
        node = node.left
    if isinstance(node, ast.Call) and len(node.args) == 1:
        node = node.args[0]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in optional:
        return node.attr
    return None


RULE = ProgramRule(
    id=ID,
    severity=Severity.WARN,
    why="every restart begins at step 0, with the checkpoints beside it",
    look=look,
    on_runtime=Severity.WARN,
)
