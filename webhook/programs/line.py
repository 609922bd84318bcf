"""A command line as it is started: its words with what surrounds them, its flags, and the words that start others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from webhook.model.script import Place
from webhook.programs.shell import Command
from webhook.programs.values import UNKNOWN, Value, after_mark, head, is_known, join
from webhook.programs.words import LONGEST, SHELLS


class Flag(Struct, frozen=True):
    """One flag or ``key=value`` of a command line. ``value`` is True for a flag without one."""

    name: str
    value: Value
    place: Place
    raw: str


class Line(Struct, frozen=True):
    """What is started: words, as written and with their places, and how.

    ``env`` are the variables; ``command`` is the shell's command, None where the container starts it without a shell;
    ``depth`` counts shells inside shells. ``launchers`` have begun before it (``("torchrun",)``), with ``flags``.
    """

    words: Sequence[Value]
    raws: Sequence[str]
    places: Sequence[Place]
    env: Mapping[str, Value]
    command: Command | None = None
    depth: int = 0
    launchers: tuple[str, ...] = ()
    flags: Mapping[str, Flag] = {}

    def past(self, count: int) -> Line:
        """The line without its first ``count`` words."""
        return replace(self, words=self.words[count:], raws=self.raws[count:], places=self.places[count:])

    def without(self, start: int, end: int) -> Line:
        """The line without its words from ``start`` to ``end``, this one not counted."""
        return replace(
            self,
            words=[*self.words[:start], *self.words[end:]],
            raws=[*self.raws[:start], *self.raws[end:]],
            places=[*self.places[:start], *self.places[end:]],
        )

    def named(self, word: Value) -> Line:
        """The line with another first word."""
        return replace(self, words=[word, *self.words[1:]])

    def begun_with(self, words: Sequence[str], place: Place) -> Line:
        """The line with words before it, which stand for what is at ``place``."""
        return replace(
            self,
            words=[*words, *self.words],
            raws=[*words, *self.raws],
            places=[*[place] * len(words), *self.places],
        )

    def launched(self, launcher: str, at: int) -> Line:
        """What a launcher starts, whose own flags end at ``at``."""
        flags = flags_of(self.words[1:at], self.raws[1:at], self.places[1:at])
        return replace(self.past(at), launchers=(*self.launchers, launcher), flags=flags)


def base_name(word: Value) -> str:
    return word.rpartition("/")[2] if isinstance(word, str) and len(word) < 512 else ""


def after_wrapper(name: str, words: Sequence[Value], at: int) -> int:
    """Past a wrapper's own flags and, for ``env``, its assignments; ``timeout`` and others take one more word."""
    while at < len(words):
        word = words[at]
        text = head(word)
        if text.startswith("-"):
            at += 1
            if text in ("-n", "-c", "-s", "--signal", "-k", "-u", "-o", "-i", "-e", "-m", "-N") and "=" not in text:
                follows = words[at] if at < len(words) else ""
                if isinstance(follows, str) and (follows.lstrip("-+").isalnum()) and base_name(follows) not in SHELLS:
                    at += 1 if not follows.startswith("python") else 0
        elif (name == "env" and "=" in text and not text.startswith("/")) or (name == "timeout" and text[:1].isdigit()):
            at += 1
        else:
            break
    return at


def with_assigned(env: Mapping[str, Value], words: Sequence[Value]) -> Mapping[str, Value]:
    """The variables with those that ``env NAME=value`` sets, and without what ``-u NAME`` or ``-i`` takes away."""
    out = dict(env)
    for index, word in enumerate(words):
        text = head(word)
        if text in ("-i", "-", "--ignore-environment"):
            out.clear()
        elif text == "-u" and index + 1 < len(words):
            out.pop(head(words[index + 1]), None)
        elif "=" in text and not text.startswith("-"):
            out[text.partition("=")[0]] = after_mark(word)
    return out


def flags_of(words: Sequence[Value], raws: Sequence[str], places: Sequence[Place]) -> dict[str, Flag]:
    """``--name value``, ``--name=value``, ``name=value``; the last of a name wins."""
    out: dict[str, Flag] = {}
    at = 0
    count = min(len(words), 2000)
    while at < count:
        word = words[at]
        text = head(word)
        place = places[at] if at < len(places) else Place("args", 0)
        raw = raws[at] if at < len(raws) else text
        if text.startswith("-") and text.strip("-") and not text[1:2].isdigit():
            name, mark, _ = text.partition("=")
            if mark:
                out[_key(name)] = Flag(name, after_mark(word), place, _shown(name, after_mark(word), raw, "="))
            else:
                value: Value = True
                if at + 1 < count and not _is_flag(words[at + 1]):
                    value = words[at + 1]
                    raw = f"{raw} {raws[at + 1] if at + 1 < len(raws) else ''}".rstrip()
                    at += 1
                out[_key(name)] = Flag(name, value, place, _shown(name, value, raw, " "))
        elif "=" in text:
            name = text.partition("=")[0]
            if name and all(letter.isalnum() or letter in "_.+-~/@" for letter in name):
                out[name.lstrip("+~").replace("-", "_")] = Flag(name, after_mark(word), place, raw)
        at += 1
    return out


def _shown(name: str, value: Value, raw: str, mark: str) -> str:
    """A flag as written; one that comes out of a variable (``$ARGS``) as the variable gives it."""
    if raw.lstrip("\"'").startswith(name):
        return raw
    return f"{name}{mark}{value}" if isinstance(value, str) else name


def _key(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _is_flag(word: Value) -> bool:
    text = head(word)
    return text.startswith("-") and not text[1:2].isdigit() and text != "-"


def expanded(item: str, env: Mapping[str, Value]) -> Value:
    """``$(VAR)`` as the kubelet puts it in; a name that nobody defines stays, ``$$`` is ``$``.

    An unknown value in a text of one line leaves the item a ``Text``; in a program it becomes a word without meaning.
    """
    if "$(" not in item and "$$" not in item:
        return item
    out: list[Any] = []
    at = size = 0
    known = True
    while True:
        found = item.find("$", at)
        if size > LONGEST:
            return UNKNOWN
        if found < 0 or found + 1 >= len(item):
            out.append(item[at:])
            break
        out.append(item[at:found])
        after = item[found + 1]
        if after == "$":
            out.append("$")
            at = found + 2
            continue
        end = item.find(")", found) if after == "(" else -1
        name = item[found + 2 : end] if end > 0 else ""
        if name and name in env:
            value = env[name]
            known = known and is_known(value)
            size += len(value) if isinstance(value, str) else 0
            out.append(value)
            at = end + 1
        else:
            out.append("$")
            at = found + 1
    if known:
        return "".join(str(part) for part in out)
    if "\n" in item or " " in item:
        return "".join(part if isinstance(part, str) else "__SHELL___" for part in out)
    return join(out)
