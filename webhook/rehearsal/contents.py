"""Asks the user's own interpreter what is in a checkpoint, and whether two are the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from webhook.rehearsal.model import Part

_READER: Final = Path(__file__).with_name("inside") / "reader.py"
_SECONDS: Final = 300


def steps(paths: list[str], interpreter: str | None) -> dict[str, dict[str, Any]]:
    """Path -> ``step`` (None where none is found) and ``keys`` (part -> names)."""
    return _ask(["steps", *paths], interpreter) if paths else {}


def compare(reference: str, resumed: str, again: str | None, interpreter: str | None) -> tuple[list[Part], str]:
    """Part by part; the text says why it could not be done. ``again``: a second reference, for the noise."""
    answer = _ask(["compare", reference, resumed, *([again] if again else [])], interpreter)
    if "error" in answer:
        return [], str(answer["error"])
    parts = []
    for name, one in sorted(answer.items()):
        leaves = tuple(str(leaf) for leaf in one.get("differ", []))
        parts.append(Part(name, not leaves, leaves, float(one.get("most", 0.0)), float(one.get("noise", 0.0))))
    return parts, ""


def _ask(arguments: list[str], interpreter: str | None) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CKPTGUARD_")}
    environment.update(JAX_PLATFORMS=environment.get("JAX_PLATFORMS", "cpu"), CUDA_VISIBLE_DEVICES="")
    for python in dict.fromkeys([interpreter or sys.executable, sys.executable]):
        try:
            answer = subprocess.run(  # noqa: S603 - the user's own interpreter
                [python, str(_READER), *arguments],
                capture_output=True,
                check=False,
                timeout=_SECONDS,
                env=environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            value = msgspec.json.decode(answer.stdout.strip().rpartition(b"\n")[2])
        except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError):
            continue
        if isinstance(value, dict):
            return value
    return {"error": "the checkpoint could not be read"} if arguments[0] == "compare" else {}
