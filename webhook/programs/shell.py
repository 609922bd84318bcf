"""Shell text -> the commands in it, in order, with what surrounds each. Parsed by tree-sitter, never run.

The parser is imported on first use. Its work is bounded by counting its progress calls (no clock), since hostile text
makes it quadratic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from webhook.model.script import Place
from webhook.programs.folders import Folders
from webhook.programs.held import held, hold
from webhook.programs.heredoc import MARK, Document, lift
from webhook.programs.values import (
    LONGEST,
    UNKNOWN,
    Text,
    Unknown,
    Value,
    is_known,
    join,
    kinds,
    pieces,
    shown,
    split_fields,
)

DEEPEST: Final = 200
_BUDGET: Final = 1200
"""Progress calls of the parser: three times what 32 KiB of dense and right shell take."""
_FAULTY: Final = 80
"""Those of them that may fall after a fault, which is where the parser begins to search."""
_PIECE: Final = 1024
"""Bytes that the parser is given at a time."""
_READS: Final = 64
"""Pieces that it may ask for, besides four times the whole text: shell asks for each some twice."""
_OPERATORS: Final = "()<>|&;`{}[]"
_ITEMS: Final = 1024
"""Items of one array."""
_WORDS: Final = 16384
"""Words of all commands: as many as 32 KiB without variables can have."""
_MOST: Final = 2500
"""Operators of one text. The parser's time grows with the square of their number in texts that are no shell."""


class NotRead(Exception):  # noqa: N818 - what happened, not an error of ours
    """The text is not read; the message is the reason in words, without any of the text."""


class Around(Struct, frozen=True):
    """A construct that a command stands in: ``kind`` and, for lists and pipelines, which of how many it is.

    ``pipeline``, ``&&``, ``||``, ``if``, ``test`` (the condition of an ``if`` or a loop), ``else``, ``for``, ``while``,
    ``case``, ``subshell``, ``group``, ``function``, ``substitution``, ``!``, ``&``.
    """

    kind: str
    index: int = 0
    size: int = 1
    name: str = ""


class Command(Struct):
    """One simple command.

    ``words`` are its words with quotes taken off and variables put in, ``raw`` the same as written. ``assigned`` are
    the variables in front of it (or set by it alone), ``env`` everything that the shell had set at this point.
    ``document`` is what it reads from standard input where the text has that. ``writes`` is the file that its output
    goes to. ``statement`` is the number of the top-level statement that it stands in.
    """

    words: tuple[Value, ...]
    raw: tuple[str, ...]
    place: Place
    source: str = ""
    around: tuple[Around, ...] = ()
    assigned: Mapping[str, Value] = {}
    env: Mapping[str, Value] = {}
    document: Document | None = None
    here_string: Value = None
    reads: Value = None
    writes: Value = None
    redirected: bool = False
    statement: int = 0
    exported: bool = False
    folder: Value = UNKNOWN
    """Where it runs, from the root; unknown where the image says it, or a condition does."""
    lines: int = 1
    """Lines that it takes, with what it is redirected to."""

    def exits(self) -> bool:
        return self.name in ("exit", "return", "false", "kill")

    @property
    def name(self) -> str:
        """The command's own name without its directory; ``""`` where it is not known."""
        first = self.words[0] if self.words else ""
        return first.rpartition("/")[2] if isinstance(first, str) else ""

    @property
    def beginning(self) -> str:
        """Its first three words as written; a variable that gives several of them once."""
        words = self.raw[:1] + tuple(two for one, two in zip(self.raw, self.raw[1:], strict=False) if one != two)
        return " ".join(words[:3])

    def inside(self, *kinds: str) -> Around | None:
        """The innermost construct of one of these kinds that it stands in."""
        for around in reversed(self.around):
            if around.kind in kinds:
                return around
        return None


class Shell(Struct):
    """One shell text: its commands in order and the options that it runs under.

    ``statements`` counts the top-level statements, ``trailing`` says that a comment stands in a line below the last.
    ``functions`` are the names that it defines. ``last_separate``: the last statement is on lines of its own.
    """

    commands: tuple[Command, ...]
    statements: int
    place: Place
    dialect: str
    errexit: bool = False
    pipefail: bool = False
    functions: frozenset[str] = frozenset()
    trailing: bool = False
    faults: bool = False
    inline: bool = True
    """A ``-c`` text, not a file: only there does bash exec the last command."""
    lines: tuple[str, ...] = ()
    uncertain: bool = False
    """``set +e`` stands somewhere, so which commands end the shell is not told."""

    def line(self, place: Place) -> str:
        """A line as written; ``""`` where it is not of this text."""
        number = place.line - (self.place.line or 1)
        return self.lines[number].strip() if 0 <= number < len(self.lines) else ""

    def written(self, place: Place, count: int) -> list[str]:
        """Lines as written, each with what stands before it."""
        number = place.line - (self.place.line or 1)
        return list(self.lines[number : number + count]) if 0 <= number < len(self.lines) else []

    def traps(self) -> Iterator[tuple[Command, str]]:
        """Every ``trap HANDLER SIGNAL...`` that names SIGTERM, with its handler as written."""
        for command in self.commands:
            if command.name == "trap" and len(command.words) > 1:
                signals = {str(word).upper().removeprefix("SIG") for word in command.words[2:]}
                if signals & {"TERM", "15", "EXIT", "0"}:
                    yield command, command.raw[1].strip("\"'")


_language: Any = None


def is_installed() -> bool:
    """Whether shell text can be parsed at all (extra ``script``)."""
    return _load() is not None


def _load() -> Any:
    global _language
    if _language is None:
        try:
            import tree_sitter

            from webhook.programs.grammar import bash

            _language = tree_sitter.Language(bash())
        except ImportError:
            _language = False
    return _language or None


def read_shell(
    text: str,
    place: Place,
    env: Mapping[str, Value],
    dialect: str,
    options: str = "",
    positional: tuple[Value, ...] | None = None,
    folder: Value = UNKNOWN,
    file: str = "",
) -> Shell:
    """The commands of a shell text. ``env`` are the variables as they are before it; ``options`` are those of ``-ec``.

    ``place`` is that of the text's first line. ``positional`` are ``$0``, ``$1`` and so on; None where they are not
    known. ``folder`` is where it is started, ``file`` its path where it is a file. Raises ``NotRead``.
    """
    key = ("shell", text)
    parsed = held(key)
    if parsed is None:
        try:
            parsed = _parse(text)
        except NotRead as reason:
            parsed = str(reason)
        hold(key, parsed)
    if isinstance(parsed, str):
        raise NotRead(parsed)
    root, data, documents = parsed
    reader = _Reader(data, documents, place, env, dialect, options, Folders(folder, file))
    reader.positional = positional
    shell = reader.read(root)
    shell.lines = tuple(text.split("\n"))
    return shell


def _parse(text: str) -> tuple[Any, bytes, tuple[Document, ...]]:
    """The tree's root, the text that its offsets are of, and the here-documents lifted from it. Raises ``NotRead``."""
    language = _load()
    if language is None:
        raise NotRead("tree-sitter-bash is not installed")
    import tree_sitter

    plain, documents = lift(text.replace("\r\n", "\n"))
    if "\0" in plain or sum(map(plain.count, _OPERATORS)) > _MOST:
        raise NotRead("its shell text is too dense to be parsed in time")
    data = plain.encode("utf-8", "replace")
    calls = faulty = reads = 0
    most = _READS + 4 * len(data) // _PIECE

    def piece(offset: int, _point: Any) -> bytes:
        # Behind a fault the scanner may look through the rest for every letter, inside one progress call. It asks for
        # each piece of the text anew, and the end of the text ends it.
        nonlocal reads
        reads += 1
        return data[offset : offset + _PIECE] if reads <= most else b""

    def spent(_offset: int, error: bool) -> bool:
        nonlocal calls, faulty
        calls += 1
        faulty += error
        return calls > _BUDGET or faulty > _FAULTY or reads > most

    parser = tree_sitter.Parser(language)
    try:
        tree = parser.parse(piece, progress_callback=spent)
    except ValueError:
        tree = None
    if tree is None or reads > most:
        raise NotRead("its shell text takes too long to parse")
    return tree.root_node, data, documents


_MOVING: Final = frozenset(("function", "while", "for", "case"))
_BLOCKS: Final = frozenset(("subshell", "compound_statement", "do_group"))


class _Reader:
    """One walk over one tree. It is not recursive over statements; words are bounded by ``DEEPEST``."""

    def __init__(
        self,
        data: bytes,
        documents: tuple[Document, ...],
        place: Place,
        env: Mapping[str, Value],
        dialect: str,
        options: str,
        folders: Folders,
    ) -> None:
        self.folders = folders
        self.data = data
        self.documents = documents
        self.place = place
        self.variables: dict[str, Value] = dict(env)
        self.exported: set[str] = set(env)
        self.dialect = dialect
        self.errexit = "e" in options
        self.pipefail = False
        self.uncertain = False
        self.commands: list[Command] = []
        self.functions: set[str] = set()
        self.statement = 0
        self.words = 0
        self.environment: Mapping[str, Value] | None = None
        self.expanded = 0
        self.positional: tuple[Value, ...] | None = None
        self.moving = False
        """In a loop, which may shift them, or in a function, which has its own."""

    def read(self, root: Any) -> Shell:
        statements = [node for node in root.named_children if node.type not in ("comment", "ERROR")]
        comments = [node for node in root.named_children if node.type == "comment"]
        stack: list[tuple[Any, tuple[Around, ...], tuple[Any, ...], int, int]] = [
            (node, (), (), number, 0) for number, node in reversed(list(enumerate(statements)))
        ]
        while stack:
            node, around, redirects, number, depth = stack.pop()
            if depth > DEEPEST:
                raise NotRead(f"its shell text is nested deeper than {DEEPEST}")
            self.statement = number
            below = self._visit(node, around, redirects)
            stack.extend((*item, number, depth + 1) for item in reversed(below))
        trailing = bool(comments and statements) and self._is_below(statements[-1], comments[-1])
        return Shell(
            tuple(self.commands),
            len(statements),
            self.place,
            self.dialect,
            self.errexit,
            self.pipefail,
            frozenset(self.functions),
            trailing,
            root.has_error,
            uncertain=self.uncertain,
        )

    def _is_below(self, statement: Any, comment: Any) -> bool:
        """Whether a comment stands in a line below a statement, and not behind it, be it on a line that goes on."""
        if comment.start_byte <= statement.end_byte:
            return False
        between = self._text(max(statement.end_byte - 1, 0), comment.start_byte)
        return "\n" in between.replace("\\\n", "")

    def _visit(
        self, node: Any, around: tuple[Around, ...], redirects: tuple[Any, ...]
    ) -> list[tuple[Any, tuple[Around, ...], tuple[Any, ...]]]:
        kind = node.type
        if kind == "command":
            self._command(node, around, redirects)
            return []
        if kind == "redirected_statement":
            body = node.child_by_field_name("body")
            own = tuple(child for child in node.named_children if child.type.endswith("redirect"))
            if body is None:
                return []
            return [(body, _background(node, around), (*own, *redirects))]
        if kind == "pipeline":
            children = [child for child in node.named_children if child.type != "comment"]
            last = len(children) - 1
            return [
                (child, (*around, Around("pipeline", index, len(children))), redirects if index == last else ())
                for index, child in enumerate(children)
            ]
        if kind == "list":
            children = [child for child in node.named_children if child.type != "comment"]
            operators = [child.type for child in node.children if child.type in ("&&", "||")]
            name = operators[0] if operators else ";"
            return [
                (child, (*_background(node, around), Around(name, index, len(children))), ())
                for index, child in enumerate(children)
            ]
        if kind in ("variable_assignment", "variable_assignments", "declaration_command", "unset_command"):
            self._assign(node, around)
            return []
        if kind == "negated_command":
            return [(child, (*around, Around("!")), redirects) for child in node.named_children]
        if kind == "function_definition":
            name_node = node.child_by_field_name("name")
            name = self._raw(name_node) if name_node is not None else ""
            self.functions.add(name)
            body = node.child_by_field_name("body")
            return [] if body is None else [(body, (*around, Around("function", name=name)), redirects)]
        if kind in ("if_statement", "elif_clause", "while_statement"):
            return self._conditional(node, around)
        if kind == "for_statement" or kind == "c_style_for_statement":
            variable = node.child_by_field_name("variable")
            if variable is not None:
                self.environment = None
                self.variables[self._raw(variable)] = Unknown("loop", "$" + self._raw(variable))
            return [(child, (*around, Around("for")), ()) for child in node.named_children if child.type == "do_group"]
        if kind in ("else_clause", "case_statement", "case_item"):
            name = "else" if kind == "else_clause" else "case"
            return [(child, inner, ()) for child, inner in self._inside(node, around, name)]
        if kind in _BLOCKS:
            name = "subshell" if kind == "subshell" else "group"
            inside = self._inside(node, _background(node, around), name)
            return [(child, inner, redirects) for child, inner in inside]
        if kind == "test_command":
            self._substitutions(node, around)
        return []

    def _inside(self, node: Any, around: tuple[Around, ...], kind: str) -> Any:
        """What stands in a block, all of it within one and the same construct."""
        inner = (*around, Around(kind))
        return [(child, inner) for child in node.named_children if child.type in _STATEMENTS]

    def _conditional(
        self, node: Any, around: tuple[Around, ...]
    ) -> list[tuple[Any, tuple[Around, ...], tuple[Any, ...]]]:
        name = "while" if node.type == "while_statement" else "if"
        below: list[tuple[Any, tuple[Around, ...], tuple[Any, ...]]] = []
        tested = True
        test = ""
        branch = Around(name)
        for child in node.children:
            if child.type in ("then", "do"):
                tested = False
            if not child.is_named or child.type == "comment":
                continue
            if child.type == "do_group":
                tested = False
            if tested:
                test = shown(self._raw(child))
                branch = Around(name, name=test)
                below.append((child, (*around, Around("test", name=name)), ()))
            elif child.type in _STATEMENTS or child.type in ("else_clause", "elif_clause"):
                below.append((child, (*around, branch), ()))
        return below

    def _command(self, node: Any, around: tuple[Around, ...], redirects: tuple[Any, ...]) -> None:
        words: list[Value] = []
        raw: list[str] = []
        assigned: dict[str, Value] = {}
        own = list(redirects)
        spent = 0
        self.moving = any(one.kind in _MOVING for one in around)
        folder = self.folders.enter(around)
        for child in node.children:
            kind = child.type
            if kind == "word" and not child.child_count:
                # Most words: nothing is put in, and no command runs in them.
                text = self._raw(child)
                words.append(_unescape(text))
                raw.append(text)
                spent += 1
            elif kind == "variable_assignment":
                name, value = self._assignment(child)
                assigned[name] = value
            elif kind == "command_name":
                parts = child.children or (child,)
                if len(parts) == 1:
                    # ``$LAUNCHER train.py``: a command in a variable is split into words as its arguments are.
                    fields = self._fields(parts[0])
                    self._spend(len(fields))
                    words.extend(fields)
                    raw.extend([self._raw(parts[0])] * len(fields))
                else:
                    for part in parts:
                        words.append(self.word(part))
                        raw.append(self._raw(part))
            elif kind.endswith("redirect"):
                own.append(child)
            elif child.is_named and kind != "comment":
                fields = self._fields(child)
                self._spend(len(fields))
                words.extend(fields)
                raw.extend([self._raw(child)] * len(fields))
                self._substitutions(child, around)
            elif kind in ("==", "=~", "=", "!="):
                words.append(kind)
                raw.append(kind)
        self._spend(spent)
        env = self._environment()
        command = Command(
            tuple(words),
            tuple(raw),
            self._place(node),
            shown(self._raw(node)),
            _background(node, around),
            assigned,
            {**env, **assigned} if assigned else env,
            statement=self.statement,
            lines=max([node.end_point[0], *(one.end_point[0] for one in own)]) - node.start_point[0] + 1,
            folder=folder,
        )
        self._redirect(command, own)
        self.commands.append(command)
        self.folders.run(command.name, command.words[1:], around, self.variables.get("HOME", UNKNOWN))
        if command.name == "set":
            self._set(command)
        elif command.name == "shift":
            self._shift(command)
        elif command.name == "read":
            self._read(command)
        elif command.name == "export":
            self.environment = None
            self.exported.update(str(word) for word in command.words[1:])

    def _environment(self) -> Mapping[str, Value]:
        """What is exported by now; the same object for as long as nothing changes."""
        if self.environment is None:
            self._spend(len(self.variables) // 16)
            self.environment = {name: value for name, value in self.variables.items() if name in self.exported}
        return self.environment

    def _spend(self, words: int) -> None:
        """Counts the words that variables are split into. Raises ``NotRead`` where a few letters make a great many."""
        self.words += words
        if self.words > _WORDS:
            raise NotRead("its variables make too many words, or change too often")

    def _redirect(self, command: Command, redirects: list[Any]) -> None:
        for redirect in redirects:
            command.redirected = True
            if redirect.type == "herestring_redirect":
                children = [child for child in redirect.named_children if child.type != "file_descriptor"]
                command.here_string = self.word(children[-1]) if children else UNKNOWN
                continue
            if redirect.type != "file_redirect":
                continue
            target = redirect.child_by_field_name("destination")
            value = self.word(target) if target is not None else UNKNOWN
            signs = {child.type for child in redirect.children}
            if "<" in signs:
                if isinstance(value, str) and value.startswith(MARK):
                    number = value[len(MARK) :]
                    if number.isdecimal() and len(number) < 10 and int(number) < len(self.documents):
                        document = self.documents[int(number)]
                        command.document = Document(self.expand(document), document.line, document.quoted)
                else:
                    command.reads = value
            elif signs & {">", ">>", ">|", "&>", "&>>"} and not any(
                child.type == "file_descriptor" and self._raw(child) == "2" for child in redirect.children
            ):
                command.writes = value

    def _shift(self, command: Command) -> None:
        count = command.words[1] if len(command.words) > 1 else "1"
        plain = not command.around and isinstance(count, str) and count.isdecimal() and len(count) < 4
        if self.positional is not None:
            self.positional = (*self.positional[:1], *self.positional[1 + int(count) :]) if plain else None

    def _set(self, command: Command) -> None:
        if "--" in command.words:
            at = command.words.index("--")
            self.positional = None if command.around else ("", *command.words[at + 1 :])
        words = [str(word) for word in command.words[1:] if isinstance(word, str)]
        for index, word in enumerate(words):
            if word[:1] == "-" and "e" in word and not word.startswith("--"):
                self.errexit = True
            if word[:1] == "+" and "e" in word:
                self.uncertain = True
            if word == "pipefail" and index and words[index - 1].endswith("o") and words[index - 1][:1] == "-":
                self.pipefail = True

    def _read(self, command: Command) -> None:
        """``read -r -d '' NAME << EOM``: the packaging of Trainer's SDK."""
        names = [str(word) for word in command.words[1:] if isinstance(word, str) and word and word[0] != "-"]
        if not names:
            return
        self.environment = None
        whole = "-d" in command.words
        document = command.document
        self.variables[names[-1]] = Held(document.text, document.line) if document is not None and whole else UNKNOWN

    def _assign(self, node: Any, around: tuple[Around, ...]) -> None:
        kind = node.type
        first = self._raw(node.children[0]) if node.children else ""
        self.folders.enter(around)
        self.environment = None
        self.moving = any(one.kind in _MOVING for one in around)
        if kind == "unset_command":
            for child in node.named_children:
                self.variables.pop(self._raw(child), None)
            return
        nodes = (node,) if kind == "variable_assignment" else node.named_children
        certain = not any(one.kind in ("if", "else", "case", "while", "for", "||", "function") for one in around)
        assigned: dict[str, Value] = {}
        for child in nodes:
            if child.type == "variable_assignment":
                name, value = self._assignment(child)
                self._substitutions(child, around)
                assigned[name] = value
                if not certain and name in self.variables and self.variables[name] != value:
                    value = UNKNOWN
                self.variables[name] = value
            elif child.type in ("variable_name", "word"):
                name = self._raw(child)
            else:
                continue
            if kind == "declaration_command" and (first == "export" or "-x" in self._raw(node).split()):
                self.exported.add(name)
        # Once more: what a value runs (``$(date)``) has asked for it in between.
        self.environment = None
        self.commands.append(
            Command(
                (),
                (),
                self._place(node),
                shown(self._raw(node)),
                around,
                assigned,
                statement=self.statement,
                exported=first == "export",
            )
        )

    def _assignment(self, node: Any) -> tuple[str, Value]:
        name = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        target = self._raw(name) if name is not None else ""
        adds = any(child.type == "+=" for child in node.children)
        if value is not None and value.type == "array":
            items = tuple(item for child in value.named_children for item in self._fields(child))
            before = self.variables.get(target, ()) if adds else ()
            self._spend(len(items))
            if not isinstance(before, tuple) or len(before) + len(items) > _ITEMS:
                return target, UNKNOWN
            return target, before + items
        if adds:
            return target, join((self.variables.get(target, UNKNOWN), self.word(value) if value is not None else ""))
        return target, "" if value is None else self.word(value)

    def _substitutions(self, node: Any, around: tuple[Around, ...]) -> None:
        """The commands in the ``$(...)`` of a word, which run too."""
        if not node.child_count:
            return
        text = self.data[node.start_byte : node.end_byte]
        if b"$(" not in text and b"`" not in text and b"<(" not in text and b">(" not in text:
            return
        stack = [(node, around, 0)]
        while stack:
            here, outer, depth = stack.pop()
            if depth > DEEPEST:
                raise NotRead(f"its shell text is nested deeper than {DEEPEST}")
            if here.type in ("command_substitution", "process_substitution"):
                inside = (*outer, Around("substitution"))
                pending = [(child, inside, ()) for child in reversed(here.named_children)]
                rounds = 0
                while pending and rounds < 1000:
                    rounds += 1
                    if len(pending[-1][1]) > DEEPEST:
                        raise NotRead(f"its shell text is nested deeper than {DEEPEST}")
                    below = self._visit(*pending.pop())
                    pending.extend(reversed(below))
                continue
            stack.extend((child, outer, depth + 1) for child in reversed(here.named_children))

    def _fields(self, node: Any) -> list[Value]:
        """What one word of the text becomes: a variable without quotes is split at blanks, an array is its items."""
        if node.type in ("simple_expansion", "expansion", "string"):
            name = self._raw(node).strip('"')
            if name in ("$@", "${@}", "$*", "${*}") and self.positional is not None and not self.moving:
                return list(self.positional[1:])
            if name.endswith(("[@]}", "[*]}")):
                items = self.variables.get(name[2:-4])
                return list(items) if isinstance(items, tuple) else [self.word(node)]
            if node.type != "string":
                return split_fields(self.word(node))
        return [self.word(node)]

    def word(self, node: Any, depth: int = 0) -> Value:
        """One word as the program sees it."""
        kind = node.type
        if depth > 20:
            return UNKNOWN
        if kind in ("word", "number", "variable_name", "test_operator", "extglob_pattern", "regex", "file_descriptor"):
            inner = list(node.named_children)
            if inner:
                return self._joined(node, depth, quoted=False)
            return _unescape(self._raw(node))
        if kind == "raw_string":
            return self._raw(node)[1:-1]
        if kind == "ansi_c_string":
            return _ansi(self._raw(node)[2:-1])
        if kind == "string":
            return self._joined(node, depth, quoted=True)
        if kind == "concatenation":
            return join(self.word(child, depth + 1) for child in node.children)
        if kind == "string_content":
            return _in_quotes(self._raw(node))
        if kind == "simple_expansion":
            return self._variable(self._raw(node)[1:])
        if kind == "expansion":
            return self._expansion(node, depth)
        if kind == "command_substitution":
            return self._output(self._raw(node))
        if kind == "translated_string":
            return self.word(node.named_children[0], depth + 1) if node.named_children else UNKNOWN
        return Unknown("", shown(self._raw(node)))

    def _joined(self, node: Any, depth: int, quoted: bool) -> Value:
        """A string: the grammar leaves out some of what stands between its parts, so the gaps are filled in."""
        start = node.start_byte + (1 if quoted else 0)
        end = node.end_byte - (1 if quoted else 0)
        if len(node.named_children) == 1 and node.named_children[0].type == "simple_expansion":
            only = node.named_children[0]
            if only.start_byte == start and only.end_byte == end:
                return self._variable(self._raw(only)[1:])
        parts: list[Value] = []
        at = start
        for child in node.named_children:
            if child.start_byte > at:
                parts.append(_in_quotes(self._text(at, child.start_byte)))
            parts.append(self.word(child, depth + 1))
            at = child.end_byte
        if at < end:
            parts.append(_in_quotes(self._text(at, end)))
        return join(parts)

    def _variable(self, name: str) -> Value:
        if name in self.variables:
            value = self.variables[name]
            return (value[0] if value else "") if isinstance(value, tuple) else value
        if name == "PWD":
            return self.folders.here
        if name in ("0", "BASH_SOURCE") and self.folders.file:
            return self.folders.file
        if name.isdecimal() and self.positional is not None and not self.moving and len(name) < 4:
            return self.positional[int(name)] if int(name) < len(self.positional) else ""
        if name in ("RANDOM", "SRANDOM", "$", "BASHPID", "SECONDS", "EPOCHSECONDS", "EPOCHREALTIME"):
            return Unknown("fresh", "$" + name)
        if name == "HOSTNAME":
            return Unknown("host", "$HOSTNAME")
        return Unknown("", "$" + name)

    def _expansion(self, node: Any, depth: int) -> Value:
        raw = self._raw(node)
        body = raw[2:-1]
        name = ""
        for letter in body:
            if not (letter.isalnum() or letter == "_"):
                break
            name += letter
        rest = body[len(name) :]
        if not name:
            return Unknown("", shown(raw))
        value = self._variable(name)
        if rest == "":
            return value
        if rest[:2] in (":-", ":=") or rest[:1] in ("-", "="):
            if is_known(value) and value != "":
                return value
            if (name in self.variables or name.isdecimal()) and is_known(value):
                default = [child for child in node.named_children if child.type != "variable_name"]
                return join(self.word(child, depth + 1) for child in default)
            return Unknown(value.kind if isinstance(value, Unknown) else "", shown(raw))
        return Unknown("", shown(raw))

    def _output(self, raw: str) -> Value:
        """``$(cat <<EOF ... )`` is the document; of other commands' output nothing is known."""
        if raw.startswith("$(cat ") and MARK in raw:
            number = raw.partition(MARK)[2].split()[0].rstrip(")")
            if number.isdecimal() and len(number) < 10 and int(number) < len(self.documents):
                document = self.documents[int(number)]
                return Held(self.expand(document), document.line)
        folder = self.folders.printed(raw)
        return _run(raw) if folder is None else folder

    def expand(self, document: Document) -> str:
        """A here-document as the program gets it: in one without quotes the shell puts its variables in.

        What is not known becomes ``HIDDEN`` plus the variable's name, a word that Python reads as a name or a text.
        """
        if document.quoted or ("$" not in document.text and "`" not in document.text and "\\" not in document.text):
            return document.text
        text = expand_document(document.text, self.variables)
        self.expanded += len(text)
        if self.expanded > 2 * LONGEST:
            raise NotRead("its here-documents are too long with their variables")
        return text

    def _place(self, node: Any) -> Place:
        return Place(self.place.field, self.place.index, self.place.line + node.start_point[0])

    def _raw(self, node: Any) -> str:
        return self._text(node.start_byte, node.end_byte)

    def _text(self, start: int, end: int) -> str:
        return self.data[start:end].decode("utf-8", "replace")


class Held(Struct, frozen=True):
    """A text that a variable holds, with the line in the shell text where it begins."""

    text: str
    line: int


HIDDEN: Final = "__SHELL_"
_STATEMENTS: Final = frozenset(
    (
        "command",
        "redirected_statement",
        "pipeline",
        "list",
        "variable_assignment",
        "variable_assignments",
        "declaration_command",
        "unset_command",
        "negated_command",
        "function_definition",
        "if_statement",
        "while_statement",
        "for_statement",
        "c_style_for_statement",
        "case_statement",
        "case_item",
        "test_command",
        *_BLOCKS,
    )
)


def expand_document(text: str, variables: Mapping[str, Value]) -> str:
    """A text between ``<<EOF`` and ``EOF`` with the shell's variables in it."""
    out: list[str] = []
    at = size_of = 0
    size = len(text)
    while at < size:
        next_at = min((found for mark in "$`\\" if (found := text.find(mark, at)) >= 0), default=size)
        out.append(text[at:next_at])
        at = next_at
        if at >= size:
            break
        letter = text[at]
        if letter == "\\":
            after = text[at + 1 : at + 2]
            if after == "\n":
                out.append("")
            elif after in ("$", "`", "\\"):
                out.append(after)
            else:
                out.append("\\" + after)
            at += 2
        elif letter == "`":
            end = text.find("`", at + 1)
            out.append(HIDDEN + "__")
            at = size if end < 0 else end + 1
        else:
            at = _expand_one(text, at, variables, out)
            if len(out[-1]) > 256:
                size_of += len(out[-1])
                if size_of > LONGEST:
                    raise NotRead("its here-documents are too long with their variables")
    return "".join(out)


def _expand_one(text: str, at: int, variables: Mapping[str, Value], out: list[str]) -> int:
    after = text[at + 1 : at + 2]
    if after == "(":
        depth = 0
        for index in range(at + 1, min(len(text), at + 4096)):
            depth += (text[index] == "(") - (text[index] == ")")
            if depth == 0:
                kind = _run(text[at : index + 1]).kind
                out.append(f"{HIDDEN}{'FRESH' if kind == 'fresh' else ''}__")
                return index + 1
        out.append("$")
        return at + 1
    brace = after == "{"
    start = at + 2 if brace else at + 1
    end = start
    while end < len(text) and (text[end].isalnum() or text[end] == "_"):
        end += 1
    name = text[start:end]
    if not name or name[0].isdigit():
        out.append("$")
        return at + 1
    close = text.find("}", end) if brace else end - 1
    if close < 0:
        out.append("$")
        return at + 1
    value = variables.get(name)
    plain = not brace or text[end:close] == ""
    if isinstance(value, str) and value and (plain or text[end : end + 1] == ":"):
        out.append(value)
    elif name in ("RANDOM", "SECONDS", "EPOCHSECONDS"):
        out.append(f"{HIDDEN}FRESH_{name}__")
    elif plain and isinstance(value, Text | Unknown) and "fresh" in kinds(value):
        out.append("".join(one if isinstance(one, str) else f"{HIDDEN}FRESH_{name}__" for one in pieces(value)))
    else:
        out.append(f"{HIDDEN}{name}__")
    return close + 1


def _background(node: Any, around: tuple[Around, ...]) -> tuple[Around, ...]:
    after = node.next_sibling
    if after is not None and after.type == "&":
        return (*around, Around("&"))
    return around


_FRESH: Final = ("date", "uuidgen", "mktemp", "openssl", "od", "shuf", "pwgen")


def _run(raw: str) -> Unknown:
    """What is known of ``$(command)``: nothing but whether it differs at every start."""
    inner = raw.strip("`").removeprefix("$(").removesuffix(")").split()
    name = inner[0].rpartition("/")[2] if inner else ""
    if name in _FRESH or "/proc/sys/kernel/random/uuid" in raw:
        return Unknown("fresh", shown(raw))
    if name == "hostname":
        return Unknown("host", shown(raw))
    return Unknown("", shown(raw))


def _unescape(raw: str) -> str:
    if "\\" not in raw:
        return raw
    out: list[str] = []
    at = 0
    while at < len(raw):
        if raw[at] == "\\" and at + 1 < len(raw):
            if raw[at + 1] != "\n":
                out.append(raw[at + 1])
            at += 2
        else:
            out.append(raw[at])
            at += 1
    return "".join(out)


def _in_quotes(raw: str) -> str:
    if "\\" not in raw:
        return raw
    out: list[str] = []
    at = 0
    while at < len(raw):
        after = raw[at + 1 : at + 2]
        if raw[at] == "\\" and after in ('"', "$", "`", "\\", "\n"):
            if after != "\n":
                out.append(after)
            at += 2
        else:
            out.append(raw[at])
            at += 1
    return "".join(out)


_ANSI: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


def _ansi(raw: str) -> Value:
    out: list[str] = []
    at = 0
    while at < len(raw):
        if raw[at] == "\\" and at + 1 < len(raw):
            if raw[at + 1] not in _ANSI:
                return UNKNOWN
            out.append(_ANSI[raw[at + 1]])
            at += 2
        else:
            out.append(raw[at])
            at += 1
    return "".join(out)


def plain_text(value: Value) -> str | None:
    """The text that a word or variable holds, where it is known whole."""
    if isinstance(value, Held):
        return value.text
    return value if isinstance(value, str) else None


__all__ = ["Around", "Command", "Held", "NotRead", "Shell", "Text", "expand_document", "is_installed", "read_shell"]
