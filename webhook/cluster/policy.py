"""The policy file -> ``Policy``, with the field and the line of every fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from webhook.cluster.yaml_text import Piece, TextError, decode, parse, places, split, steps_of
from webhook.model.policy import Policy

MAX_FILE: Final = 4 * 1024 * 1024
"""Bytes; a ConfigMap holds 1 MiB."""
NOT_READ_YET: Final = ("namespaces", "exceptions", "selfService")
"""Parts of the format that later versions act on; they are passed over with a notice."""
_SETTINGS: Final = ("deny", "warn", "audit", "off")


class PolicyError(Exception):
    """What is wrong in a policy file. ``line`` and ``field`` are None where there is none to name."""

    def __init__(self, file: str, message: str, line: int | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.file = file
        self.message = message
        self.line = line
        self.field = field


def load_policy(path: str) -> tuple[Policy, list[str]]:
    """The policy in a file, and notices about what was passed over. Raises PolicyError."""
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_FILE + 1)
    except (OSError, ValueError) as error:
        raise PolicyError(path, (getattr(error, "strerror", None) or str(error)).lower()) from None
    if len(data) > MAX_FILE:
        raise PolicyError(path, f"the file is larger than {MAX_FILE // 2**20} MiB")
    return parse_policy(data, path)


def parse_policy(data: bytes, file: str) -> tuple[Policy, list[str]]:
    """The policy in a text; ``file`` is what errors call it. Its hash is that of the text."""
    import hashlib

    try:
        pieces = split(decode(data))
        found = [(piece, value) for piece in pieces for _, value in parse(piece) if value is not None]
    except TextError as error:
        raise PolicyError(file, error.message, error.line, error.field) from None
    if len(found) != 1:
        raise PolicyError(file, f"one policy is expected, {len(found)} documents stand here")
    piece, value = found[0]
    if not isinstance(value, dict):
        raise PolicyError(file, "this is no policy: a map is expected", piece.line)
    for key in ("apiVersion", "kind"):
        if key not in value:
            begin = 'absent: a policy begins with apiVersion "checkpoint-guard.io/v1" and kind "Policy"'
            raise PolicyError(file, begin, piece.line, key)
    settings = {key: entry for key, entry in value.items() if key not in NOT_READ_YET and key != "hash"}
    if isinstance(settings.get("rules"), dict):
        # Without quotes YAML reads the setting off as a boolean.
        settings["rules"] = {rule: "off" if how is False else how for rule, how in settings["rules"].items()}
        for rule, how in settings["rules"].items():
            if how not in _SETTINGS:
                field = f"rules.{rule}"
                raise PolicyError(file, f'"{how}" is none of {", ".join(_SETTINGS)}', _line(piece, field), field)
    try:
        policy = msgspec.convert(settings, Policy)
    except msgspec.ValidationError as error:
        field, message = _words(str(error))
        raise PolicyError(file, message, _line(piece, field), field or None) from None
    notices = [f"{key} is not acted on by this version" for key in NOT_READ_YET if value.get(key)]
    return msgspec.structs.replace(policy, hash=hashlib.sha256(data).hexdigest()[:12]), notices


def _words(text: str) -> tuple[str, str]:
    """msgspec's ``Expected `int`, got `str` - at `$.limits.maxRestarts```: the field, and the fact in our words."""
    fact, _, place = text.partition(" - at `")
    field = place.removesuffix("`").removeprefix("key in ").removeprefix("$").removeprefix(".").replace("[...]", "")
    _, unknown, name = fact.partition("unknown field `")
    if unknown:
        return ".".join(part for part in (field, name.rstrip("`")) if part), "no such setting"
    return field, fact[:1].lower() + fact[1:].replace("`", '"')


def _line(piece: Piece, field: str) -> int:
    found = places(piece)
    steps: list[Any] = steps_of(field)
    return found[0].find(steps) if found else piece.line
