"""One walk over the tree of a shell text: each command as it is met, with the state of the shell at that point."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from webhook.programs.folders import Folders
from webhook.programs.heredoc import MARK, Document
from webhook.programs.shell_commands import Around, Command, NotRead, Shell, Spelled
from webhook.programs.shell_quotes import unescaped
from webhook.programs.shell_words import Held, Words
from webhook.programs.values import LONGEST, UNKNOWN, Unknown, Value, join, shown

DEEPEST: Final = 200
_ITEMS: Final = 1024
"""Items of one array."""
_MOVING: Final = frozenset(("function", "while", "for", "case"))
_PERHAPS: Final = frozenset(("if", "else", "case", "while", "for", "||", "function"))
_BLOCKS: Final = frozenset(("subshell", "compound_statement", "do_group"))
_ASSIGNMENTS: Final = frozenset(("variable_assignment", "variable_assignments", "declaration_command", "unset_command"))
_STATEMENTS: Final = frozenset(
    (
        "command",
        "redirected_statement",
        "pipeline",
        "list",
        *_ASSIGNMENTS,
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
_BRANCHES: Final = _STATEMENTS | {"else_clause", "elif_clause"}
_STARTS: Final = (b"$(", b"`", b"<(", b">(")
"""How a command inside a word begins."""
_SIGNS: Final = frozenset((">", ">>", ">|", "&>", "&>>"))
_NEGATED: Final = Around("!")
_TEST_OF_IF: Final = Around("test", name="if")
_TEST_OF_LOOP: Final = Around("test", name="while")

Arounds = tuple[Around, ...]
Item = tuple[Any, str, bool, Arounds, tuple[Any, ...]]
"""A node that is still to be visited, its type, whether ``&`` follows it, what surrounds it, its redirections."""


class Walk(Words):
    """One walk over one tree. It is not recursive over statements; words are bounded.

    Each node that is looked at costs an object of the parser's binding, and each question to it a call: so a node's
    type is asked for once, its children once, and what follows it is seen in the list of its parent's children.
    """

    def __init__(
        self,
        spelled: Spelled,
        documents: tuple[Document, ...],
        env: Mapping[str, Value],
        dialect: str,
        options: str,
        folders: Folders,
    ) -> None:
        super().__init__(spelled, documents, env, folders)
        self.spelled = spelled
        self.exported: set[str] = set(env)
        self.dialect = dialect
        self.errexit = "e" in options
        self.pipefail = False
        self.uncertain = False
        self.commands: list[Command] = []
        self.functions: set[str] = set()
        self.statement = 0
        self.environment: Mapping[str, Value] | None = None
        self.nests = any(mark in self.data for mark in _STARTS)
        """Whether a command may stand inside a word anywhere."""

    def read(self, root: Any) -> Shell:
        """The text as its commands. Raises ``NotRead``."""
        self.plain = self.ascii is not None and len(self.ascii) <= LONGEST and not root.has_error
        statements: list[tuple[Any, str, bool]] = []
        comment = None
        for child, kind, behind in _children(root):
            if kind == "comment":
                comment = child
            elif child.is_named and kind != "ERROR":
                statements.append((child, kind, behind))
        for number, (node, kind, behind) in enumerate(statements):
            self.statement = number
            stack: list[tuple[Item, int]] = [((node, kind, behind, (), ()), 0)]
            while stack:
                item, depth = stack.pop()
                if depth > DEEPEST:
                    raise NotRead(f"its shell text is nested deeper than {DEEPEST}")
                below = self._visit(item)
                if below:
                    depth += 1
                    below.reverse()
                    stack += [(one, depth) for one in below]
        return Shell(
            tuple(self.commands),
            len(statements),
            self.spelled.place,
            self.dialect,
            self.errexit,
            self.pipefail,
            frozenset(self.functions),
            comment is not None and bool(statements) and self._is_below(statements[-1][0], comment),
            root.has_error,
            uncertain=self.uncertain,
        )

    def _is_below(self, statement: Any, comment: Any) -> bool:
        """Whether a comment stands in a line below a statement, and not behind it, be it on a line that goes on."""
        if comment.start_byte <= statement.end_byte:
            return False
        between = self.text(max(statement.end_byte - 1, 0), comment.start_byte)
        return "\n" in between.replace("\\\n", "")

    def _visit(self, item: Item) -> list[Item] | None:
        """Takes in a command; of anything else what stands in it and is to be visited next, in order."""
        node, kind, behind, around, redirects = item
        if kind == "command":
            self._command(node, (*around, Around("&")) if behind else around, around, redirects)
            return None
        visit = _VISITS.get(kind)
        if visit is None:
            return None
        return visit(self, node, kind, (*around, Around("&")) if behind else around, around, redirects)

    def _redirected(self, node: Any, _kind: str, outer: Arounds, _around: Arounds, redirects: Any) -> list[Item] | None:
        body = node.child_by_field_name("body")
        if body is None:
            return None
        own = [child for child, kind, _ in _children(node) if kind.endswith("redirect") and child.is_named]
        return [(body, body.type, _is_behind(body), outer, (*own, *redirects))]

    def _pipeline(self, node: Any, _kind: str, _outer: Arounds, around: Arounds, redirects: Any) -> list[Item]:
        parts = [part for part in _children(node) if part[1] != "comment" and part[0].is_named]
        last = len(parts) - 1
        return [
            (child, kind, behind, (*around, Around("pipeline", at, last + 1)), redirects if at == last else ())
            for at, (child, kind, behind) in enumerate(parts)
        ]

    def _list(self, node: Any, _kind: str, outer: Arounds, around: Arounds, _redirects: Any) -> list[Item]:
        behind = len(outer) > len(around)
        children = _children(node)
        name = next((kind for _, kind, _ in children if kind in ("&&", "||")), ";")
        parts = [part for part in children if part[1] != "comment" and part[0].is_named]
        return [
            # Each in a process of its own: where one goes to is not told to the next.
            (child, kind, its, (*around, *([Around("&")] if behind else ()), Around(name, at, len(parts))), ())
            for at, (child, kind, its) in enumerate(parts)
        ]

    def _negated(self, node: Any, _kind: str, _outer: Arounds, around: Arounds, redirects: Any) -> list[Item]:
        inner = (*around, _NEGATED)
        return [(child, kind, behind, inner, redirects) for child, kind, behind in _children(node) if child.is_named]

    def _function(self, node: Any, _kind: str, _outer: Arounds, around: Arounds, redirects: Any) -> list[Item] | None:
        name_node = node.child_by_field_name("name")
        name = self.raw(name_node) if name_node is not None else ""
        self.functions.add(name)
        body = node.child_by_field_name("body")
        if body is None:
            return None
        return [(body, body.type, _is_behind(body), (*around, Around("function", name=name)), redirects)]

    def _loop(self, node: Any, _kind: str, _outer: Arounds, around: Arounds, _redirects: Any) -> list[Item]:
        variable = node.child_by_field_name("variable")
        if variable is not None:
            self.environment = None
            name = self.raw(variable)
            self.variables[name] = Unknown("loop", "$" + name)
        return [
            (child, kind, behind, (*around, Around("for")), ())
            for child, kind, behind in _children(node)
            if kind == "do_group"
        ]

    def _case(self, node: Any, kind: str, _outer: Arounds, around: Arounds, _redirects: Any) -> list[Item]:
        return self._inside(node, around, "else" if kind == "else_clause" else "case", ())

    def _block(self, node: Any, kind: str, outer: Arounds, _around: Arounds, redirects: Any) -> list[Item]:
        return self._inside(node, outer, "subshell" if kind == "subshell" else "group", redirects)

    def _inside(self, node: Any, around: Arounds, name: str, redirects: Any) -> list[Item]:
        """What stands in a block, all of it within one and the same construct."""
        inner = (*around, Around(name))
        return [
            (child, kind, behind, inner, redirects) for child, kind, behind in _children(node) if kind in _STATEMENTS
        ]

    def _test(self, node: Any, _kind: str, _outer: Arounds, around: Arounds, _redirects: Any) -> None:
        if self.nests:
            self._substitutions(node, around)

    def _conditional(self, node: Any, kind: str, _outer: Arounds, around: Arounds, _redirects: Any) -> list[Item]:
        looped = kind == "while_statement"
        name = "while" if looped else "if"
        tests = (*around, _TEST_OF_LOOP if looped else _TEST_OF_IF)
        below: list[Item] = []
        tested = True
        inner = (*around, Around(name))
        for child, its, behind in _children(node):
            if its in ("then", "do", "do_group"):
                tested = False
            if tested:
                if its != "comment" and child.is_named:
                    inner = (*around, Around(name, name=shown(self.raw(child))))
                    below.append((child, its, behind, tests, ()))
            elif its in _BRANCHES:
                below.append((child, its, behind, inner, ()))
        return below

    def _command(self, node: Any, outer: Arounds, around: Arounds, redirects: tuple[Any, ...]) -> None:
        words: list[Value] = []
        raw: list[str] = []
        assigned: dict[str, Value] = {}
        own = list(redirects)
        spent = 0
        self.moving = _is_moving(around)
        folder = self.folders.enter(around)
        plain = self.ascii if self.plain else None
        for child in node.children:
            kind = child.type
            if kind == "word" and not child.child_count:
                # Most words: nothing is put in, and no command runs in them.
                text = self.text(child.start_byte, child.end_byte)
                words.append(unescaped(text) if "\\" in text else text)
                raw.append(text)
                spent += 1
            elif kind == "command_name":
                text = self.text(child.start_byte, child.end_byte)
                if plain is not None and _is_name(text):
                    words.append(text)
                    raw.append(text)
                    spent += 1
                    continue
                parts = child.children or (child,)
                if len(parts) == 1:
                    # ``$LAUNCHER train.py``: a command in a variable is split into words as its arguments are.
                    text = self.raw(parts[0])
                    fields = self.fields(parts[0], parts[0].type, text)
                    self.spend(len(fields))
                    words.extend(fields)
                    raw.extend([text] * len(fields))
                else:
                    for part in parts:
                        words.append(self.word(part))
                        raw.append(self.raw(part))
            elif kind == "variable_assignment":
                name, value = self._assignment(child)
                assigned[name] = value
            elif kind.endswith("redirect"):
                own.append(child)
            elif kind in _EQUALS:
                words.append(kind)
                raw.append(kind)
            elif kind != "comment" and child.is_named:
                text = self.text(child.start_byte, child.end_byte)
                if plain is not None and kind == "string" and text not in _ALL and not text.endswith(("[@]}", "[*]}")):
                    value = self.string(text)
                    if value is not None:
                        words.append(value)
                        raw.append(text)
                        spent += 1
                        continue
                fields = self.fields(child, kind, text)
                self.spend(len(fields))
                words.extend(fields)
                raw.extend([text] * len(fields))
                if self.nests:
                    self._substitutions(child, around)
        self.spend(spent)
        env = self.environment
        if env is None:
            env = self._environment()
        first = words[0] if words else ""
        end = last = node.end_byte
        for one in own:
            last = max(last, one.end_byte)
        command = Command(
            tuple(words),
            tuple(raw),
            first.rpartition("/")[2] if isinstance(first, str) else "",
            self.spelled,
            node.start_byte,
            end,
            last,
            outer,
            assigned,
            {**env, **assigned} if assigned else env,
            self.statement,
            folder,
        )
        if own:
            self._redirect(command, own)
        self.commands.append(command)
        self._run(command, around)

    def _run(self, command: Command, around: Arounds) -> None:
        """What a command changes for those behind it."""
        name = command.name
        if self.folders.heeds(name):
            self.folders.run(name, command.words[1:], around, self.variables.get("HOME", UNKNOWN))
        if name == "set":
            self._set(command)
        elif name == "shift":
            self._shift(command)
        elif name == "read":
            self._read(command)
        elif name == "export":
            self.environment = None
            self.exported.update(str(word) for word in command.words[1:])

    def _environment(self) -> Mapping[str, Value]:
        """What is exported by now; the same object for as long as nothing changes."""
        if self.environment is None:
            self.spend(len(self.variables) // 16)
            self.environment = {name: value for name, value in self.variables.items() if name in self.exported}
        return self.environment

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
                child.type == "file_descriptor" and self.raw(child) == "2" for child in redirect.children
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

    def _assign(self, node: Any, kind: str, _outer: Arounds, around: Arounds, _redirects: Any) -> None:
        first = self.raw(node.children[0]) if node.children else ""
        self.folders.enter(around)
        self.environment = None
        self.moving = _is_moving(around)
        if kind == "unset_command":
            for child in node.named_children:
                self.variables.pop(self.raw(child), None)
            return
        nodes = (node,) if kind == "variable_assignment" else node.named_children
        certain = not any(one.kind in _PERHAPS for one in around)
        assigned: dict[str, Value] = {}
        for child in nodes:
            if child.type == "variable_assignment":
                name, value = self._assignment(child)
                if self.nests:
                    self._substitutions(child, around)
                assigned[name] = value
                if not certain and name in self.variables and self.variables[name] != value:
                    value = UNKNOWN
                self.variables[name] = value
            elif child.type in ("variable_name", "word"):
                name = self.raw(child)
            else:
                continue
            if kind == "declaration_command" and (first == "export" or "-x" in self.raw(node).split()):
                self.exported.add(name)
        # Once more: what a value runs (``$(date)``) has asked for it in between.
        self.environment = None
        self.commands.append(
            Command(
                (),
                (),
                "",
                self.spelled,
                node.start_byte,
                node.end_byte,
                node.start_byte,
                around,
                assigned,
                {},
                self.statement,
                exported=first == "export",
            )
        )

    def _assignment(self, node: Any) -> tuple[str, Value]:
        name = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        target = self.raw(name) if name is not None else ""
        adds = any(child.type == "+=" for child in node.children)
        if value is not None and value.type == "array":
            items = tuple(
                item for child in value.named_children for item in self.fields(child, child.type, self.raw(child))
            )
            before = self.variables.get(target, ()) if adds else ()
            self.spend(len(items))
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
        if not any(mark in text for mark in _STARTS):
            return
        stack = [(node, around, 0)]
        while stack:
            here, outer, depth = stack.pop()
            if depth > DEEPEST:
                raise NotRead(f"its shell text is nested deeper than {DEEPEST}")
            if here.type in ("command_substitution", "process_substitution"):
                inside = (*outer, Around("substitution"))
                pending = [
                    (child, kind, behind, inside, ()) for child, kind, behind in _children(here) if child.is_named
                ][::-1]
                rounds = 0
                while pending and rounds < 1000:
                    rounds += 1
                    if len(pending[-1][3]) > DEEPEST:
                        raise NotRead(f"its shell text is nested deeper than {DEEPEST}")
                    below = self._visit(pending.pop())
                    if below:
                        pending.extend(reversed(below))
                continue
            stack.extend((child, outer, depth + 1) for child in reversed(here.named_children))


def _children(node: Any) -> list[tuple[Any, str, bool]]:
    """A node's children, each with its type and whether ``&`` follows it."""
    children = node.children
    kinds = [child.type for child in children]
    kinds.append("")
    return [(child, kinds[at], kinds[at + 1] == "&") for at, child in enumerate(children)]


def _is_behind(node: Any) -> bool:
    """Whether ``&`` follows a node that was not met among its parent's children."""
    after = node.next_sibling
    return after is not None and after.type == "&"


def _is_moving(around: Arounds) -> bool:
    return bool(around) and any(one.kind in _MOVING for one in around)


_is_name: Final = re.compile(r"[\w./-]+", re.ASCII).fullmatch
_EQUALS: Final = frozenset(("==", "=~", "=", "!="))
_ALL: Final = frozenset(('"$@"', '"${@}"', '"$*"', '"${*}"'))
_VISITS: Final[Mapping[str, Callable[[Walk, Any, str, Arounds, Arounds, Any], list[Item] | None]]] = {
    "redirected_statement": Walk._redirected,
    "pipeline": Walk._pipeline,
    "list": Walk._list,
    **dict.fromkeys(_ASSIGNMENTS, Walk._assign),
    "negated_command": Walk._negated,
    "function_definition": Walk._function,
    **dict.fromkeys(("if_statement", "elif_clause", "while_statement"), Walk._conditional),
    **dict.fromkeys(("for_statement", "c_style_for_statement"), Walk._loop),
    **dict.fromkeys(("else_clause", "case_statement", "case_item"), Walk._case),
    **dict.fromkeys(_BLOCKS, Walk._block),
    "test_command": Walk._test,
}
