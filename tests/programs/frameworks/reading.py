"""A command, as a container has it, read into the uses of frameworks that it makes."""

from __future__ import annotations

from textwrap import dedent

from webhook.model.script import Launch
from webhook.programs.frameworks import Setting, Use, find_calls, find_uses
from webhook.programs.program import Script
from webhook.programs.reading import read_script
from webhook.programs.values import Unknown

OUT = "/mnt/ckpt/run"


def shell(text: str, **launch: object) -> Script:
    """``bash -ec`` with a text; CKPT_DIR is declared."""
    given = Launch(directories=(OUT,), mounts=("/mnt/ckpt",), **launch)  # type: ignore[arg-type]
    return read_script(["bash", "-ec"], [dedent(text)], {"CKPT_DIR": OUT}, given)


def python(text: str, **launch: object) -> Script:
    """The same for a Python text."""
    return shell("exec python - <<'PY'\n" + dedent(text) + "\nPY\n", **launch)


def only(script: Script, framework: str) -> Use:
    """The one use of a framework; no other may be found."""
    found = (*find_uses(script), *find_calls(script))
    assert [use.framework.id for use in found] == [framework]
    return found[0]


def none(script: Script) -> None:
    assert find_uses(script) == ()
    assert find_calls(script) == ()


def value(setting: Setting | None) -> object:
    """The value of a setting that there is; ``"?"`` for one that is not known."""
    assert setting is not None
    return "?" if isinstance(setting.value, Unknown) else setting.value
