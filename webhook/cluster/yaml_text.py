"""YAML and JSON text -> the JSON objects that kubectl would send, with the line of every fault.

Scalars are read as kubectl reads them, which is not how PyYAML's loaders do (source: ``resolve.go`` and ``decode.go``
of go.yaml.in/yaml/v2, ``yaml.go`` of sigs.k8s.io/yaml): ``1:30`` and timestamps are strings, ``0o17`` and ``017`` are
octal, keys become strings, a whole float becomes an integer, ``.inf`` cannot be sent at all. One exception: ``y`` and
``n`` are strings here and booleans there, because PyYAML writes the strings so, and a file may come from it.
PyYAML's parser gives the events; values are built from them here, in one pass and without recursion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NoReturn

import yaml
from msgspec import Struct
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from webhook.cluster.places import Place, Step, field_of
from webhook.cluster.yaml_scalars import (
    INFINITY,
    INT64,
    MERGE,
    NUMERIC,
    ODD_KEYS,
    PLAIN_HINT,
    TAG,
    float_key,
    plain_value,
    whole_number,
)

MAX_DEPTH: Final = 256
"""Deeper nesting is refused, as the server does."""
MAX_ALIASED: Final = 100_000
"""Values that aliases may add to one document. kubectl allows some 400,000 in a small one; no manifest comes near."""


class TextError(Exception):
    """What is wrong in a text. ``line`` counts from 1, ``field`` is a field path; None where there is none to name."""

    def __init__(self, message: str, line: int | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.field = field


class Piece(Struct):
    """A part of a text that is read by itself, so that a fault in it leaves the others alone.

    ``data`` is UTF-8 without a byte order mark; ``line`` is the line of the text that it begins on; ``placed`` is what
    ``places`` found, kept since all objects of a List ask for it.
    """

    data: bytes
    line: int = 1
    json: bool = False
    placed: list[Place] | None = None


def decode(data: bytes) -> bytes:
    """The text as UTF-8 without byte order mark. UTF-16 and UTF-32 are known by their mark. Raises TextError."""
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    elif data.startswith((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")):
        return _recode(data, "utf-32")
    elif data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _recode(data, "utf-16")
    at = data.find(b"\0")
    if at >= 0:
        raise TextError("this is binary: a NUL byte stands in it", data.count(b"\n", 0, at) + 1)
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TextError(f"this is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}", line) from None
    return data


def _recode(data: bytes, encoding: str) -> bytes:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise TextError(f"this is not {encoding.upper()}, which its byte order mark promises: {error.reason}") from None
    return decode(text.encode())


def split(data: bytes) -> list[Piece]:
    """The pieces between lines that begin with ``---``, as kubectl divides a text; JSON is one piece."""
    if data.lstrip().startswith(b"{"):
        return [Piece(data, json=True)]
    pieces: list[Piece] = []
    start, line, at = 0, 1, -1
    while True:
        at = data.find(b"\n---", at + 1)
        if at < 0:
            break
        if data[at + 4 : at + 5] not in _AFTER_MARK or data.startswith(b"%", _past_comments(data, start)):
            continue
        pieces.append(Piece(data[start : at + 1], line))
        line += data.count(b"\n", start, at + 1)
        start = at + 1
    pieces.append(Piece(data[start:], line))
    return pieces


_AFTER_MARK: Final = (b"", b"\n", b"\r", b" ", b"\t")


def _past_comments(data: bytes, start: int) -> int:
    """Where the first line begins that is neither empty nor a comment: ``%YAML 1.1`` belongs to what stands below."""
    while data.startswith((b"#", b"\n", b"\r\n"), start):
        end = data.find(b"\n", start)
        if end < 0:
            return len(data)
        start = end + 1
    return start


def parse(piece: Piece) -> Iterator[tuple[int, Any]]:
    """The documents of a piece, each with the line that it begins on. Raises TextError at the first fault.

    Values that an alias repeats are one and the same object: never change what comes out of here.
    """
    if piece.json:
        documents = _parse_json(piece)
        if documents is not None:
            yield from documents
            return
    yield from _parse_yaml(piece)


def places(piece: Piece) -> list[Place]:
    """Where everything in the documents of a piece stands. Costs as much as parsing, so only done for what is reported.

    What cannot be read is left out; never raises. A second call for the same piece costs nothing.
    """
    if piece.placed is not None:
        return piece.placed
    found = piece.placed = []
    try:
        for line, place in _Builder(piece, _PLACES).documents():
            found.append(place if isinstance(place, Place) else Place(line))
    except TextError:
        pass
    return found


# --- YAML


def _events(data: bytes) -> Any:
    """PyYAML's parser over libyaml; the one in Python where the wheel came without libyaml."""
    if yaml.__with_libyaml__:
        from yaml.cyaml import CParser  # type: ignore[attr-defined]

        return CParser(data)
    from yaml.parser import Parser
    from yaml.reader import Reader
    from yaml.scanner import Scanner

    class PythonParser(Reader, Scanner, Parser):
        def __init__(self, stream: str) -> None:
            Reader.__init__(self, stream)
            Scanner.__init__(self)
            Parser.__init__(self)

    return PythonParser(data.decode())


_SHOWN_STEPS: Final = 20
_VALUES: Final = 0
_PLACES: Final = 1


def _parse_yaml(piece: Piece) -> Iterator[tuple[int, Any]]:
    return _Builder(piece, _VALUES).documents()


class _Frame:
    """A mapping or list that is being filled."""

    __slots__ = ("anchor", "before", "by_merge", "container", "key", "key_line", "place", "wants_merge")

    def __init__(self, container: Any, anchor: str | None, before: int, place: Place | None) -> None:
        self.container = container
        self.anchor = anchor
        self.before = before
        self.place = place
        self.key: Any = None
        self.key_line = 0
        self.by_merge: frozenset[str] = frozenset()
        self.wants_merge = False


class _Builder:
    """Events -> values, or values and their places."""

    def __init__(self, piece: Piece, mode: int) -> None:
        self.piece = piece
        self.mode = mode
        self.stack: list[_Frame] = []

    def documents(self) -> Iterator[tuple[int, Any]]:
        piece = self.piece
        try:
            parser = _events(piece.data)
            get = parser.get_event
            event = get()
            while event is not None:
                if type(event) is DocumentStartEvent:
                    self.stack = []
                    event = get()
                    line = event.start_mark.line + piece.line
                    value, place = self._document(event, get)
                    yield line, (place if self.mode else value)
                event = get()
        except yaml.YAMLError as error:
            raise self._syntax_error(error) from None
        except RecursionError:
            raise TextError(f"nested deeper than {MAX_DEPTH}", piece.line) from None

    def _document(self, event: Any, get: Any) -> tuple[Any, Place | None]:
        """One document, from the event after its start on."""
        base = self.piece.line
        places_too = self.mode == _PLACES
        anchors: dict[str, tuple[Any, int, Place | None]] = {}
        open_anchors: set[str] = set()
        stack = self.stack
        nodes = aliased = 0
        # A list that holds the document as its only item, so that there always is a container.
        root = frame = _Frame([], None, 0, None)
        stack.append(root)
        container: Any = root.container
        is_map = False
        key: str | None = None
        place: Place | None = None
        while True:
            kind = type(event)
            if kind is ScalarEvent:
                nodes += 1
                if is_map and key is None:
                    text = event.value
                    if (event.implicit[0] and text in ODD_KEYS) or event.tag or text[:1] in NUMERIC:
                        if text == "<<" and (event.implicit[0] or event.tag == MERGE):
                            frame.wants_merge = True
                            key = "<<"
                            event = get()
                            continue
                        text = self._key(event)
                    if text in container:
                        if text not in frame.by_merge:
                            self._fail(f'key "{text}" stands twice in one mapping', event, text)
                        frame.by_merge = frame.by_merge - {text}
                    key = text
                    if places_too:
                        frame.key_line = event.start_mark.line + base
                    event = get()
                    continue
                value: Any = event.value
                if event.implicit[0]:
                    if value[:1] in PLAIN_HINT:
                        value = plain_value(value)
                        if type(value) is float:
                            value = self._number(value, event, key)
                elif event.tag is not None and event.tag != "!":
                    value = self._tagged(event, key)
                if event.anchor is not None:
                    anchors[event.anchor] = (value, 1, None)
                if places_too:
                    at = event.start_mark.line + base
                    place = Place(at, {}, at + 1 if event.style == "|" else 0)
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                nodes += 1
                if is_map and key is None:
                    self._fail("a mapping or a list stands where a key belongs", event, None)
                if len(stack) > MAX_DEPTH:
                    self._fail(f"nested deeper than {MAX_DEPTH}", event, key)
                frame.key = key
                if event.anchor is not None:
                    open_anchors.add(event.anchor)
                is_map = kind is MappingStartEvent
                container = {} if is_map else []
                frame = _Frame(
                    container, event.anchor, nodes, Place(event.start_mark.line + base, {}) if places_too else None
                )
                stack.append(frame)
                key = None
                event = get()
                continue
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                value = container
                place = frame.place
                if frame.anchor is not None:
                    open_anchors.discard(frame.anchor)
                    anchors[frame.anchor] = (value, nodes - frame.before + 1, place)
                stack.pop()
                frame = stack[-1]
                container = frame.container
                is_map = type(container) is dict
                key = frame.key
            elif kind is AliasEvent:
                name = event.anchor
                if is_map and key is None:
                    target = anchors.get(name)
                    if target is None or not isinstance(target[0], str):
                        self._fail(f"alias *{name} stands where a key belongs", event, None)
                    if target[0] in container:
                        self._fail(f'key "{target[0]}" stands twice in one mapping', event, target[0])
                    key = target[0]
                    if places_too:
                        frame.key_line = event.start_mark.line + base
                    event = get()
                    continue
                if name in open_anchors:
                    self._fail(f"alias *{name} stands inside the value that it repeats", event, key)
                if name not in anchors:
                    self._fail(f"alias *{name} names no anchor", event, key)
                value, size, place = anchors[name]
                if places_too and place is None:
                    place = Place(event.start_mark.line + base)
                nodes += size
                aliased += size
                if aliased > MAX_ALIASED:
                    self._fail(f"aliases repeat more than {MAX_ALIASED:,} values", event, key)
            else:
                event = get()
                continue
            # a value is complete: it goes into the container around it
            if frame is root:
                return value, place
            if is_map:
                if frame.wants_merge:
                    self._merge(frame, value, event, place)
                else:
                    container[key] = value
                    if places_too and frame.place is not None and place is not None:
                        # a copy: an alias's place is shared, and its line here is that of this key
                        frame.place.children[key or ""] = Place(frame.key_line, place.children, place.text)
                key = None
            else:
                if places_too and frame.place is not None and place is not None:
                    frame.place.children[len(container)] = place
                container.append(value)
            event = get()

    def _merge(self, frame: _Frame, value: Any, event: Any, place: Place | None) -> None:
        """``<<``: what is merged replaces earlier keys and is replaced by later ones, as in go-yaml."""
        frame.wants_merge = False
        sources = [value] if isinstance(value, dict) else value
        if not isinstance(sources, list) or not all(isinstance(source, dict) for source in sources):
            self._fail("<< takes a mapping or a list of mappings", event, "<<")
        for index in range(len(sources) - 1, -1, -1):
            frame.container.update(sources[index])
            frame.by_merge |= sources[index].keys()
            if frame.place is not None and place is not None:
                source = place if isinstance(value, dict) else place.children.get(index)
                frame.place.children.update(source.children if source is not None else {})

    def _key(self, event: Any) -> str:
        """A key that is no plain word: numbers and booleans become strings as sigs.k8s.io/yaml turns them."""
        value = event.value
        if event.tag is not None and event.tag != "!":
            value = self._tagged(event, None)
        elif event.implicit[0]:
            value = plain_value(value)
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return str(value)
        if isinstance(value, float):
            return float_key(value)
        self._fail("null stands where a key belongs", event, None)

    def _number(self, value: float, event: Any, key: str | None) -> float | int:
        if value != value or value in (INFINITY, -INFINITY):
            self._fail(f'"{event.value}" is no number that JSON can carry', event, key)
        return whole_number(value)

    def _tagged(self, event: Any, key: str | None) -> Any:
        """A scalar with an explicit tag; tags that are not YAML's own say nothing, as in go-yaml."""
        tag = event.tag.removeprefix(TAG)
        text = event.value
        if tag == event.tag or tag == "str":
            return text
        if tag == "binary":
            import base64
            import binascii

            try:
                return base64.b64decode("".join(text.split()), validate=True).decode("utf-8", "replace")
            except binascii.Error:
                self._fail("!!binary holds no base64", event, key)
        value = plain_value(text)
        if type(value) is float:
            value = self._number(value, event, key)
        wanted = {"int": int, "float": float, "bool": bool, "null": type(None), "timestamp": str}.get(tag)
        if wanted is float and type(value) is int:
            return value
        if wanted is not None and type(value) is not wanted:
            self._fail(f'"{text}" is no !!{tag}', event, key)
        return value if wanted is not None else text

    def _fail(self, message: str, event: Any, key: str | None) -> NoReturn:
        """Raises TextError at the event."""
        steps: list[Step] = [
            len(frame.container) if type(frame.container) is list else frame.key for frame in self.stack[1:-1]
        ]
        last = self.stack[-1]
        if type(last.container) is dict and key is not None:
            steps.append(key)
        elif type(last.container) is list and len(self.stack) > 1:
            steps.append(len(last.container))
        del steps[_SHOWN_STEPS:]
        line = event.start_mark.line + self.piece.line
        template = template_line(self.piece) if message.startswith("a mapping or a list stands") else None
        if template is not None:
            raise TextError(TEMPLATE, template, field_of(steps) or None)
        raise TextError(message, line, field_of(steps) or None)

    def _syntax_error(self, error: yaml.YAMLError) -> TextError:
        piece = self.piece
        template = template_line(piece)
        if template is not None:
            return TextError(TEMPLATE, template)
        if isinstance(error, yaml.reader.ReaderError):
            line = piece.line + piece.data.count(b"\n", 0, max(error.position, 0))
            code = error.character if isinstance(error.character, int) else ord(error.character)
            return TextError(f"this is binary or not UTF-8: character U+{code:04X} is not allowed in YAML", line)
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            mark = error.problem_mark
            # At the end of the text libyaml names the line after the last one.
            last = piece.data.rstrip().count(b"\n")
            rows = piece.data.split(b"\n", mark.line + 1)
            row = rows[mark.line].decode("utf-8", "replace") if mark.line < len(rows) else ""
            problem = str(error.problem)
            if "cannot start any token" in problem and row[mark.column : mark.column + 1] == "\t":
                return TextError("not YAML: a tab indents this line, where only spaces may", mark.line + piece.line)
            if "cannot start any token" in problem:
                problem = f'"{row[mark.column : mark.column + 1]}" cannot begin a value: quote it'
            context = ""
            if error.context:
                context = f" ({error.context}"
                if error.context_mark is not None and error.context_mark.line != mark.line:
                    context += f" that begins on line {error.context_mark.line + piece.line}"
                context += ")"
            return TextError(f"not YAML: {problem}{context}", min(mark.line, last) + piece.line)
        return TextError(f"not YAML: {error}", piece.line)


TEMPLATE: Final = "this is a template, not YAML: render it first, e.g. helm template CHART | ckptguard review -"


def template_line(piece: Piece) -> int | None:
    """The line with the first marker of a Helm or Jinja template that stands outside quotes; None without one."""
    if b"{{" not in piece.data and b"{%" not in piece.data:
        return None
    for number, row in enumerate(piece.data.split(b"\n")):
        text = row.strip()
        while text.startswith(b"- "):
            text = text[2:].lstrip()
        if not text.startswith((b"{{", b"{%")):
            _, _, text = text.partition(b": ")
            text = text.lstrip()
        if text.startswith((b"{{", b"{%")):
            return number + piece.line
    return None


# --- JSON


class _BetterAsYamlError(Exception):
    pass


def _parse_json(piece: Piece) -> list[tuple[int, Any]] | None:
    """The objects of a JSON text; None where it is better read as YAML, of which JSON is a part: that names lines."""
    import json

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        built = dict(items)
        if len(built) != len(items):
            raise _BetterAsYamlError
        return built

    def number(text: str) -> int | float:
        value = float(text)
        if value in (INFINITY, -INFINITY):
            raise _BetterAsYamlError
        return whole_number(value)

    def integer(text: str) -> int | float:
        value = int(text) if len(text) < 25 else float(text)
        return value if -INT64 <= value < INT64 else float(value)

    def constant(text: str) -> Any:
        raise _BetterAsYamlError

    text = piece.data.decode()
    if "\\ud" in text or "\\uD" in text:
        from webhook.model.surrogates import without_lone_surrogates

        text = without_lone_surrogates(text)
    decoder = json.JSONDecoder(object_pairs_hook=pairs, parse_float=number, parse_int=integer, parse_constant=constant)
    documents: list[tuple[int, Any]] = []
    at = 0
    line = piece.line
    counted = 0
    while True:
        while at < len(text) and text[at] in " \t\r\n":
            at += 1
        if at == len(text):
            break
        line += text.count("\n", counted, at)
        counted = at
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, _BetterAsYamlError):
            return None
        except RecursionError:
            raise TextError(f"nested deeper than {MAX_DEPTH}", line) from None
        documents.append((line, value))
    if text.count("{") + text.count("[") > MAX_DEPTH and _deeper(documents):
        raise TextError(f"nested deeper than {MAX_DEPTH}", piece.line)
    return documents


def _deeper(documents: list[tuple[int, Any]]) -> bool:
    """Whether a document is nested deeper than MAX_DEPTH, found level by level."""
    level = [value for _, value in documents]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            if type(value) is dict:
                below.extend(value.values())
            elif type(value) is list:
                below.extend(value)
        level = below
    return any(type(value) is dict or type(value) is list for value in level)
