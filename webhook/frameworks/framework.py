"""What is known of a framework, and what one program makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from webhook.model.script import Place
from webhook.script import UNKNOWN, Call, Python, Script, Value
from webhook.script.program import Invocation


class Framework(Struct, frozen=True):
    """One framework: a row of ``ckptguard frameworks``, and how it is found in a program.

    ``recognised``, ``saves``, ``resumes``, ``keeps``, ``sigterm`` and ``ranks`` are the row's cells, for a person.
    ``uses`` finds it in a script. ``resumes_if_any``: asked to resume where there is no checkpoint, it starts afresh
    (False: it fails). ``resumes_by_itself``: it resumes without being asked. ``flushes``: it saves on SIGTERM by
    itself. ``guards_ranks``: several processes may call its save. ``keep_fix``, ``resume_fix`` and ``every_fix`` are
    the text that sets the number of copies, the resume and the interval, as the user writes it.
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
    guards_ranks: bool = True
    keep_fix: str = ""
    resume_fix: str = ""
    every_fix: str = ""


class Setting(Struct, frozen=True):
    """One argument, flag or key as the program gives it, or the framework's default where it does not.

    ``name`` and ``written`` are as the user writes them (``save_total_limit``, ``--save-interval``).
    """

    name: str
    value: Value
    place: Place
    given: bool = True
    written: str = ""


class Use(Struct):
    """One use of a framework by a program: its settings as far as they are seen.

    A setting is None where this framework has none of the kind. Its value is ``UNKNOWN`` where it is given from
    somewhere that nobody sees; ``partial`` says that this holds for all that are not given. ``keep``: how many copies
    stay (None: all). ``every``: steps between two saves. ``saves``: False where nothing is saved before the end.
    ``until``: the steps of the whole run. ``resume``: what the run is told to resume from (None: nothing).
    ``full``: False where a checkpoint lacks the optimizer. ``python`` is the text that uses it.
    ``call`` is the call that holds the settings, ``invocation`` the command line that does.
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


def call_setting(
    python: Python, call: Call, name: str, default: Value = UNKNOWN, position: int | None = None
) -> Setting:
    """An argument of a call, under its keyword's name."""
    node = call.argument(name, position)
    if node is None:
        value = UNKNOWN if call.open_ended else default
        return Setting(name, value, python.at(call), given=False)
    return Setting(name, python.value(node, call.around), python.at(node), True, python.text(node))


def flag_setting(invocation: Invocation, *names: str, default: Value = UNKNOWN, shown: str = "") -> Setting:
    """A flag of a command line: the first of ``names`` (``_`` for ``-``) that is given."""
    flag = invocation.flag(*names)
    if flag is None:
        return Setting(shown or "--" + names[0], default, invocation.place, given=False)
    return Setting(flag.name, flag.value, flag.place, True, flag.raw)
