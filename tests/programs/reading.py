"""Reads programs as the engine does, without a cluster around them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from webhook.model.script import Launch, Remark
from webhook.programs.program import Script
from webhook.programs.reading import read_script
from webhook.programs.values import Value
from webhook.rules import RULES

LAUNCH = Launch(directories=("/mnt/ckpt/run",), mounts=("/mnt/ckpt",))
LOOKS: dict[str, Any] = {rule.id: import_module(rule.check.__module__).look for rule in RULES if rule.reads_program}


def shell(text: str, env: Mapping[str, Value] | None = None, launch: Launch = LAUNCH) -> Script:
    """``bash -ec TEXT``."""
    return read_script(["bash", "-ec"], [text], env or {}, launch)


def python(text: str, env: Mapping[str, Value] | None = None, launch: Launch = LAUNCH) -> Script:
    """``python -c TEXT``."""
    return read_script(["python", "-c", text], [], env or {}, launch)


def remarks(script: Script) -> dict[str, list[Remark]]:
    """What each rule about programs says; rules that say nothing are left out."""
    found = {name: list(look(script)) for name, look in LOOKS.items()}
    return {name: said for name, said in found.items() if said}
