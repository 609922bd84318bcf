"""What is known of a framework, and what one program makes of it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from webhook.model.addresses import scheme_of
from webhook.model.script import Place
from webhook.programs import UNKNOWN, Call, Python, Script, Value
from webhook.programs.arguments import hides_flags
from webhook.programs.config import Config
from webhook.programs.corrected import in_line
from webhook.programs.pasted import with_import
from webhook.programs.program import Invocation
from webhook.programs.values import is_true, tail


class Framework(Struct, frozen=True):
    """One framework: a row of ``ckptguard frameworks``, and how it is found in a program.

    ``recognised``, ``saves``, ``resumes``, ``keeps``, ``sigterm`` and ``ranks`` are the row's cells, for a person.
    ``uses`` finds it in a script. ``resumes_if_any``: asked to resume where there is no checkpoint, it starts afresh
    (False: it fails). ``resumes_by_itself``: it resumes without being asked. ``flushes``: it saves on SIGTERM by
    itself. ``loads_directory``: what it resumes from is the directory of checkpoints, not one of them.
    ``by_hand``: it has no settings; the program's own loop calls it, and its uses are found by ``find_calls``.
    ``guards_ranks``: several processes may call its save. ``remote``: the schemes of addresses that it writes to by
    itself (``*``: any that its libraries know); for the rest an address is a path of the pod. ``keep_fix``,
    ``resume_fix`` and ``every_fix`` are the text that sets the number of copies, the resume and the interval, as the
    user writes it.
    """

    id: str
    title: str
    release: str
    recognised: str
    saves: str
    resumes: str
    keeps: str
    sigterm: str
    ranks: str
    uses: Callable[[Script], Iterator[Use]]
    resumes_if_any: bool = False
    resumes_by_itself: bool = False
    flushes: bool = False
    loads_directory: bool = False
    by_hand: bool = False
    guards_ranks: bool = True
    remote: tuple[str, ...] = ()
    keep_fix: str = ""
    resume_fix: str = ""
    every_fix: str = ""

    def writes_to(self, address: str) -> bool:
        """Whether it writes to an address by itself."""
        return "*" in self.remote or scheme_of(address) in self.remote


CELLS: Final = ("recognised", "saves", "resumes", "keeps", "sigterm", "ranks")
"""The columns of the table, after the title."""


class Setting(Struct, frozen=True):
    """One argument, flag or key as the program gives it, or the framework's default where it does not.

    ``name`` and ``written`` are as the user writes them (``save_total_limit``, ``--save-interval``). ``call`` is the
    call whose argument it is, ``position`` where it may stand without its name.
    """

    name: str
    value: Value
    place: Place
    given: bool = True
    written: str = ""
    call: Call | None = None
    position: int | None = None


class Use(Struct):
    """One use of a framework by a program: its settings as far as they are seen.

    A setting is None where this framework has none of the kind. Its value is ``UNKNOWN`` where it is given from
    somewhere that nobody sees; ``partial`` says that this holds for all that are not given. ``keep``: how many copies
    stay (None: all). ``every``: steps between two saves. ``saves``: False where nothing is saved before the end.
    ``overwrite``: True where an earlier run's checkpoints are thrown away. ``loads``: False where the optimizer is
    saved and not read back. ``fixed``: True where what is saved loads at the same number of processes only.
    ``flushes``: True where it saves on SIGTERM.
    ``until``: the steps of the whole run. ``resume``: what the run is told to resume from (None: nothing).
    ``full``: False where a checkpoint lacks the optimizer. ``python`` is the text that uses it.
    ``fast``: what it saves is on the node or in its memory, and goes with it.
    ``call`` is the call that holds the settings, ``invocation`` the command line that does. ``resume_fix`` and
    ``keep_fix`` replace the framework's where this use asks in another way.
    """

    framework: Framework
    place: Place
    python: Python | None = None
    call: Call | None = None
    invocation: Invocation | None = None
    partial: bool = False
    directory: Setting | None = None
    resume: Setting | None = None
    keep: Setting | None = None
    every: Setting | None = None
    saves: Setting | None = None
    until: Setting | None = None
    full: Setting | None = None
    resume_fix: str = ""
    keep_fix: str = ""
    overwrite: Setting | None = None
    loads: Setting | None = None
    fixed: Setting | None = None
    flushes: Setting | None = None
    fast: bool = False


def call_setting(
    python: Python, call: Call, name: str, default: Value = UNKNOWN, position: int | None = None
) -> Setting:
    """An argument of a call, under its keyword's name."""
    node = call.argument(name, position)
    if node is None:
        spread = _spread(python, call) if call.open_ended else {}
        if spread and name in spread:
            return Setting(name, spread[name], python.at(call), call=call)
        return Setting(name, UNKNOWN if spread is None else default, python.at(call), given=False, call=call)
    return Setting(name, python.value(node, call.around), python.at(node), True, python.text(node), call, position)


def is_open(python: Python, call: Call) -> bool:
    """Whether a call may be given arguments that nobody sees; those of a dictionary in the text are seen."""
    return call.open_ended and _spread(python, call) is None


_CHANGES: Final = ("update", "setdefault", "pop", "clear", "popitem")


def _spread(python: Python, call: Call) -> dict[str, Value] | None:
    """What ``**settings`` gives where the text has the dictionary and leaves it as it is; None where it is not told."""
    memo: dict[int, dict[str, Value] | None] = python.memo.setdefault("spread", {})
    key = id(call.node)
    if key not in memo:
        memo[key] = None
        found: dict[str, Value] = {}
        nodes = [keyword.value for keyword in call.node.keywords if keyword.arg is None]
        values = [python.value(node, call.around) for node in nodes]
        starred = any(isinstance(one, ast.Starred) for one in call.node.args)
        if not starred and all(isinstance(one, dict) for one in values) and not any(_changes(python, n) for n in nodes):
            for value in values:
                found.update(value)
            memo[key] = found
        elif not starred and len(nodes) == 1 and isinstance(nodes[0], ast.Name) and isinstance(values[0], dict):
            added = _added(python, nodes[0], call)
            memo[key] = {**values[0], **added} if added is not None else None
    return memo[key]


def _added(python: Python, node: ast.Name, call: Call) -> dict[str, Value] | None:
    """What ``settings["name"] = value`` adds in the same block before the call; None where it is changed otherwise."""
    out: dict[str, Value] = {}
    if any(one.receiver is not None and python.text(one.receiver) == node.id for one in python.methods(*_CHANGES)):
        return None
    for statement, around in python.source.statements:
        if not isinstance(statement, ast.Assign):
            continue
        for target in statement.targets:
            if not isinstance(target, ast.Subscript) or python.source.dotted(target.value)[0] != node.id:
                continue
            key = target.slice.value if isinstance(target.slice, ast.Constant) else None
            if not isinstance(key, str) or around is not call.around or statement.lineno > call.line:
                return None
            out[key] = python.value(statement.value, around)
    return out


def _changes(python: Python, node: ast.expr) -> bool:
    """Whether a dictionary with a name is changed after it was written."""
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    changed: frozenset[str] | None = python.memo.get("changed")
    if changed is None:
        targets = [one.receiver for one in python.methods(*_CHANGES)]
        targets += [
            target.value
            for statement, _ in python.source.statements
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Subscript)
        ]
        changed = frozenset(python.source.dotted(target)[0] for target in targets if target is not None)
        python.memo["changed"] = changed
    return python.source.dotted(node)[0] in changed


def flag_setting(invocation: Invocation, *names: str, default: Value = UNKNOWN, shown: str = "") -> Setting:
    """A flag of a command line: the first of ``names`` (``_`` for ``-``) that is given."""
    flag = invocation.flag(*names)
    if flag is None:
        return Setting(shown or "--" + names[0], default, invocation.place, given=False)
    return Setting(flag.name, flag.value, flag.place, True, flag.raw)


class Options(Struct):
    """The settings of a command line and of the configuration file that it names: flags win over the file.

    ``partial``: there are words or a file that nobody sees, so what is not given here may be given there.
    ``whole_file`` is the file where the manifest has it.
    """

    invocation: Invocation
    whole_file: Config | None = None
    partial: bool = False

    def setting(self, *names: str, default: Value = None, shown: str = "") -> Setting:
        """The first of ``names`` (``_`` for ``-``, dotted for nested keys) that is given, as a plain value."""
        flag = self.invocation.flag(*names)
        if flag is not None:
            return Setting(flag.name, plain(flag.value), flag.place, True, flag.raw)
        for name in names:
            if self.whole_file is not None and name in self.whole_file.values:
                value = plain(self.whole_file.values[name])
                return Setting(name, value, self.whole_file.at(name), True, self.whole_file.line(name))
        place = self.whole_file.place if self.whole_file is not None else self.invocation.place
        return Setting(shown or names[0], UNKNOWN if self.partial else default, place, given=False)


def options(script: Script, invocation: Invocation, *files: str) -> Options:
    """The options of an invocation. ``files`` are the flags that name a configuration file; ``""`` is the first word
    (after a command such as ``train``), where it ends as one does."""
    partial = hides_flags(invocation.arguments)
    named: Value = None
    for name in files:
        if name:
            flag = invocation.flag(name)
            named = flag.value if flag is not None else None
        else:
            first = invocation.arguments[1:2] if invocation.tool else invocation.arguments[:1]
            named = next((word for word in first if tail(word).endswith(_ENDINGS)), None)
        if named is not None:
            break
    found = script.config(named) if named is not None else None
    return Options(invocation, found, partial or (named is not None and found is None))


def plain(value: Value) -> Value:
    """A value as YAML and command lines mean it: ``null`` is None, ``true`` a bool, ``500`` a number."""
    if not isinstance(value, str):
        return value
    word = value.strip()
    lowered = word.lower()
    if lowered in ("null", "none", "~"):
        return None
    if lowered in ("true", "false"):
        return lowered == "true"
    if word.lstrip("-").isdigit() and len(word) < 18:
        return int(word)
    return value


def mended(script: Script, setting: Setting, fix: str, use: Use | None = None) -> str:
    """The line that a setting stands in, or would, as it has to be; ``fix`` is the setting alone."""
    invocation = use.invocation if use is not None else None
    return in_line(script, setting.place, fix, setting.call, invocation, setting.position, setting.given)


def told(script: Script, resume: Setting, fix: str, python: Python | None = None) -> str:
    """``fit(..., ckpt_path="last")`` as the user's own call has it."""
    setting = fix.partition("(..., ")[2].removesuffix(")")
    if not setting or resume.call is None:
        return fix
    line = mended(script, resume, setting)
    if line == setting:
        return fix
    return with_import(python, line, "pathlib") if python is not None and "pathlib." in setting else line


def turned(setting: Setting, value: Value) -> Setting:
    """The same setting with another value: ``save_only_model=True`` as "full: False"."""
    return Setting(setting.name, value, setting.place, setting.given, setting.written, setting.call, setting.position)


def negated(setting: Setting) -> Setting:
    """The opposite of a yes or no; unknown stays so."""
    truth = is_true(setting.value)
    return turned(setting, UNKNOWN if truth is None else not truth)


_ENDINGS: Final = (".yaml", ".yml", ".json", ".toml")
