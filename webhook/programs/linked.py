"""A Python program with the modules that it imports from beside it, as one text: what they define it defines.

The program comes first, so that its lines keep their numbers; the modules follow, each as a segment of its own. Of a
module is left out what an import does not run or nobody mentions: its ``__main__`` part, functions and classes without
a use, and names that the program defines itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from webhook.model.script import Place
from webhook.programs.parsed import Source, is_main, parse
from webhook.programs.shell import NotRead

DEEPEST: Final = 6
"""Imports from the program to a module that is followed."""
MOST: Final = 48
"""Modules of one program."""
_LOOKED_AT: Final = 1024 * 1024
"""Characters of a program's modules that are looked at, be they read or not."""
_CONCERNS: Final = re.compile(
    r"(?i)\bsave|_save|resum|restor|torch\.load|load_(?:state|checkpoint|ckpt|model|weight|latest|last|snapshot|net)"
    r"|(?<!np\.)(?<!json\.)(?<!yaml\.)(?<!numpy\.)\bload\(|pickle|ckpt|checkpoint(?!ing|_?wrapper|\.checkpoint|\()"
    r"|rmtree|unlink|os\.remove|add_argument|DEFINE_|environ|getenv|(?:out|output|exp|log|work|run|result)s?_?dir"
    r"|chdir|signal|callback|backward\(|\.fit\(|yaml|omegaconf|hydra|@dataclass|config|(?-i:DIR\b|PATH\b|SAVE|LOAD|Trainer)"
)
"""What a module has that says anything of checkpoints, settings or the loop. One without it is a network or data."""
_GOES_BACK: Final = re.compile(
    r"(?i)resum|restor|torch\.load|load_(?:state|checkpoint|ckpt|model|weight|latest|last|snapshot|net)|rmtree|unlink"
    r"|os\.remove|\.save\(|save_"
)
"""What a module has that saves, reads back or removes. Where one has no room that lacks it, nothing is missed."""
_RENAMES: Final = re.compile(r"^from[ \t]+\.[\w.]*[ \t]+import[^#\n]*\bas[ \t]", re.M)
"""An import by which a package gives what is in it another name: ``from .defaults import _C as cfg``."""
_IMPORTS: Final = 200
"""Imports of one text that are looked at."""
_ABOVE: Final = 3
"""Folders above the program's own in which a package is looked for."""
_IMPORT: Final = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*[ \t]*[\w.]*)[ \t]+import\b[ \t]*\(?([^#\n]*)|import[ \t]+([\w., \t]+))", re.M
)

Open = Callable[[str], "tuple[str, Place] | None"]
"""The text of the file at a path, and the place of its first line."""


class Linked(Struct, frozen=True):
    """The parsed whole, None where nothing was joined.

    ``segments`` are pairs of a module's first line in it and the place of that line. ``left_out`` is the path of a
    module that is not in it, and why.
    """

    source: Source | None
    segments: tuple[tuple[int, Place], ...]
    left_out: tuple[str, str] | None = None


class _Module(Struct):
    """One module: the dotted name that it is imported by, its folder, its text."""

    name: str
    folder: str
    text: str
    place: Place
    first: int = 0


def link(text: str, folder: str, more: Sequence[str], opened: Open, room: int) -> Linked:
    """The program ``text`` with those of its modules that are in reach.

    ``folder`` is where the program lies, ``more`` are other folders that modules come from; ``room`` is how many
    characters the modules may have. Raises ``NotRead`` where the program itself cannot be parsed.
    """
    modules, harmless, left_out = _modules(text, folder, more, opened, room)
    while modules or harmless:
        parts = [text]
        line = text.count("\n") + 2
        for module in modules.values():
            module.first = line
            parts.append(module.text)
            line += module.text.count("\n") + 1
        whole = "\n".join(parts)
        try:
            tree = parse(whole)
        except NotRead as reason:
            parse(text)
            wrong = next((name for name, module in modules.items() if not _is_python(module.text)), None)
            if wrong is None:
                raise
            left_out = modules.pop(wrong).place.field, str(reason)
            continue
        _join(tree, text.count("\n") + 1, modules, harmless)
        segments = tuple((module.first, module.place) for module in modules.values())
        return Linked(Source(whole, tree), segments, left_out)
    return Linked(None, (), left_out)


def _is_python(text: str) -> bool:
    try:
        parse(text)
    except NotRead:
        return False
    return True


def _modules(
    text: str, folder: str, more: Sequence[str], opened: Open, room: int
) -> tuple[dict[str, _Module], set[str], tuple[str, str] | None]:
    """The modules in reach by the path of each, in the order in which they are met; all names of these and of
    those that do nothing for or against a resume; and why one is not among them."""
    found: dict[str, _Module] = {}
    harmless: set[str] = set()
    joined: dict[str, set[str]] = {}
    looked_at = 0
    left_out: tuple[str, str] | None = None
    above = folder.split("/")
    folders = [folder, *more]
    folders += ["/".join(above[:size]) for size in range(len(above) - 1, max(len(above) - 1 - _ABOVE, 0), -1)]
    if "sys.path" in text or "_init_paths" in text:
        folders += [f"{one}/{below}" for one in folders[:_ABOVE] for below in ("lib", "src")]
    folders = list(dict.fromkeys(folders))
    pending = [(text, folder, 0)]
    tried: set[str] = set()
    while pending:
        own, here, depth = pending.pop(0)
        for name, relative in _imported(own):
            for path, where in _candidates(name, relative, here, folders):
                if path in found or path in joined:
                    joined[path].add(name)
                    break
                if path in tried:
                    continue
                tried.add(path)
                at = opened(path) if looked_at < _LOOKED_AT else None
                if at is None:
                    continue
                looked_at += len(at[0])
                own_text = at[0].replace("\r\n", "\n")
                if _CONCERNS.search(own_text) is None and _RENAMES.search(own_text) is None:
                    joined[path] = {name}
                    if depth < DEEPEST:
                        pending.append((own_text, where, depth + 1))
                    elif _leads_on(own_text, where, folders, opened):
                        left_out = left_out or (path, "imports lead to more than is read of one program")
                    break
                if len(found) >= MOST or depth >= DEEPEST or len(own_text) > room:
                    if _GOES_BACK.search(own_text) is None:
                        joined[path] = {name}
                    else:
                        left_out = left_out or (path, "imports lead to more than is read of one program")
                    break
                room -= len(own_text)
                joined[path] = {name}
                found[path] = _Module(name, where, own_text, at[1])
                pending.append((own_text, where, depth + 1))
                break
    # One module may be imported by several names: ``utils.paths`` and ``.paths``.
    harmless.update(name for names in joined.values() for name in names)
    return found, harmless, left_out


def _leads_on(text: str, here: str, folders: Sequence[str], opened: Open) -> bool:
    """Whether a module imports from what is in reach."""
    return any(
        opened(path) is not None
        for name, relative in _imported(text)
        for path, _ in _candidates(name, relative, here, folders)
    )


def _imported(text: str) -> Iterator[tuple[str, int]]:
    """The dotted names that a text imports, and how many dots stood before each."""
    count = 0
    for match in _IMPORT.finditer(text):
        count += 1
        if count > _IMPORTS:
            return
        if match[3] is not None:
            for one in match[3].split(","):
                yield one.split()[0] if one.split() else "", 0
            continue
        module = match[1].replace(" ", "")
        dots = len(module) - len(module.lstrip("."))
        module = module.lstrip(".")
        yield module, dots
        for one in match[2].strip(") ").split(","):
            word = one.split()[0] if one.split() else ""
            if word.isidentifier():
                yield f"{module}.{word}" if module else word, dots


def _candidates(name: str, dots: int, here: str, folders: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Where a module may lie: its path, and the folder that its own relative imports start from."""
    inside = name.replace(".", "/")
    if (not inside and not dots) or len(inside) > 256:
        return
    if dots:
        parts = here.split("/")
        if dots > len(parts):
            return
        roots: Sequence[str] = ("/".join(parts[: len(parts) - dots + 1]),)
    else:
        roots = folders
    for root in roots:
        base = f"{root}/{inside}" if root and inside else root or inside
        if inside:
            yield f"{base}.py", base.rpartition("/")[0]
        yield f"{base}/__init__.py", base


def _join(tree: ast.Module, program: int, modules: Mapping[str, _Module], harmless: set[str]) -> None:
    """Makes one program of the tree: ``program`` is the number of its own lines."""
    own = [node for node in tree.body if node.lineno <= program]
    defined = {name for node in own for name in _defines(node)}
    body: list[ast.stmt] = []
    for node in tree.body[len(own) :]:
        if isinstance(node, ast.If) and is_main(node.test):
            continue
        given = list(_defines(node))
        if given and all(name in defined for name in given):
            continue
        defined.update(given)
        body.append(node)
    tree.body = [*own, *body]
    aliases = _take_imports_out(tree, {module.name for module in modules.values()} | harmless)
    if aliases:
        _put_names(tree, aliases)
    tree.body = list(_used(tree.body, program))


def _used(body: Sequence[ast.stmt], program: int) -> Iterator[ast.stmt]:
    """The statements without functions and classes of modules that nothing leads to from what is run."""
    waiting: dict[str, list[ast.stmt]] = {}
    pending: list[ast.stmt] = []
    for node in body:
        if node.lineno > program and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting.setdefault(node.name, []).append(node)
        else:
            pending.append(node)
    left_out = {id(node) for nodes in waiting.values() for node in nodes}
    while pending:
        for inner in ast.walk(pending.pop()):
            if isinstance(inner, ast.Name) and inner.id in waiting:
                found = waiting.pop(inner.id)
                left_out.difference_update(map(id, found))
                pending += found
    return (node for node in body if id(node) not in left_out)


def _defines(node: ast.stmt) -> Iterator[str]:
    """The names that a statement of the outermost level gives a meaning, as far as they are simple."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def _take_imports_out(tree: ast.Module, names: set[str]) -> dict[str, str]:
    """Imports of what is defined here now go. What they call a module is given: ``{"u": "lib.utils"}``."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and any(isinstance(one, ast.Import | ast.ImportFrom) for one in block):
                setattr(node, field, [left for one in block for left in _left_of(one, names, aliases)])
    return aliases


def _left_of(node: ast.stmt, names: set[str], aliases: dict[str, str]) -> list[ast.stmt]:
    if isinstance(node, ast.Import):
        kept = []
        for alias in node.names:
            if alias.name in names:
                aliases[alias.asname or alias.name] = alias.name
            else:
                kept.append(alias)
        node.names = kept
        return [node] if kept else []
    if not isinstance(node, ast.ImportFrom):
        return [node]
    module = node.module or ""
    renamed: list[ast.stmt] = []
    kept = []
    for alias in node.names:
        below = f"{module}.{alias.name}" if module else alias.name
        if below in names:
            aliases[alias.asname or alias.name] = below
        elif module not in names:
            kept.append(alias)
        elif alias.asname and alias.asname != alias.name:
            made = ast.Assign([ast.Name(alias.asname, ast.Store())], ast.Name(alias.name, ast.Load()))
            renamed.append(ast.fix_missing_locations(ast.copy_location(made, node)))
    node.names = kept
    return [node, *renamed] if kept else renamed or [ast.copy_location(ast.Pass(), node)]


def _put_names(tree: ast.Module, aliases: Mapping[str, str]) -> None:
    """``utils.save(...)`` becomes ``save(...)`` where ``utils`` is a module that is part of the text now."""
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.Attribute):
                setattr(node, field, _bare(value, aliases))
            elif isinstance(value, list):
                for index, item in enumerate(value):
                    if isinstance(item, ast.Attribute):
                        value[index] = _bare(item, aliases)


def _bare(node: ast.Attribute, aliases: Mapping[str, str]) -> ast.expr:
    parts: list[str] = []
    here: ast.expr = node.value
    while isinstance(here, ast.Attribute) and len(parts) < 16:
        parts.append(here.attr)
        here = here.value
    if not isinstance(here, ast.Name):
        return node
    named = ".".join((here.id, *reversed(parts)))
    if named not in aliases:
        return node
    return ast.copy_location(ast.Name(node.attr, node.ctx), node)
