"""``ckptguard review train.py``: programs from files, judged by the rules about programs, without a cluster.

Each ``.py`` or ``.sh`` file is what somebody starts, with arguments that are not known; ``--command`` says how it is
started. Files that a program starts beside it (``run.sh`` that starts ``train.py``) are read with it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from webhook.model.files import File
from webhook.model.finding import Judged, Origin, Severity
from webhook.model.script import Launch
from webhook.model.verdict import Facts
from webhook.programs.alone import (
    KIND,
    Ignored,
    ignored_in,
    judge_alone,
    read_alone,
    reason_for,
    spans_of,
    trains,
    written_to,
)
from webhook.programs.fact import fact_of
from webhook.programs.program import Script
from webhook.programs.values import Unknown
from webhook.reports.review import Fault, Place, Review, Reviewed

_LONGEST: Final = 1024 * 1024
_ROUNDS: Final = 4
"""Files that start files that start files."""
_BESIDE: Final = 64
"""Files beside those that are named, which one program may bring in."""
_MOST: Final = 5000
"""Programs of one folder."""
_ARGUMENTS: Final = Unknown("", "the arguments")
_TRAINS: Final = (".backward(", "optimizer.step", "Trainer(", ".fit(", "torchrun", "accelerate launch")
"""What a text that cannot be read has in it, where it may be one that trains."""
_TAKES: Final = (
    "argparse",
    "sys.argv",
    "click",
    "absl",
    "HfArgumentParser",
    "tyro",
    "hydra",
    "fire.Fire",
    '"$@"',
    "$1",
)


class _Files:
    """The texts that were read, and what was wrong with them."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.faults: list[Fault] = []
        self.comments: dict[str, list[Ignored]] = {}

    def read(self, path: str, named: bool) -> bool:
        """Whether the file is there; a fault where it was named and cannot be read."""
        path = _plain(path)
        if path in self.texts:
            return True
        try:
            if not named and not os.path.isfile(path):  # noqa: PTH113
                return False
            with open(path, "rb") as stream:  # noqa: PTH123
                data = stream.read(_LONGEST + 1)
        except (OSError, ValueError) as error:
            if named:
                reason = getattr(error, "strerror", None) or str(error)
                missing = isinstance(error, FileNotFoundError)
                self.faults.append(Fault(path, "no such file" if missing else reason[:1].lower() + reason[1:]))
            return False
        fault = ""
        if len(data) > _LONGEST:
            fault = f"it is longer than {_LONGEST // 1024} KiB"
        elif b"\0" in data:
            fault = "this is binary: a NUL byte stands in it"
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            fault = fault or f"this is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}"
        if fault:
            if named:
                self.faults.append(Fault(path, fault))
            return False
        self.texts[path] = text = text.replace("\r\n", "\n")
        self.comments[path], wrong = ignored_in(text, path.endswith(".py"))
        self.faults.extend(Fault(path, one.message, one.line) for one in wrong)
        return True


class _Beside:
    """What a program imports from beside it, from below its own folder or the working directory."""

    key = "beside"
    size = (0, 0)
    checkout = True

    def __init__(self, files: _Files, folder: str) -> None:
        self._files = files
        self._folder = folder

    def find(self, path: str) -> None:
        """Nothing: scripts that are started are read by name."""

    def begins(self, path: str) -> bool:
        """No path of a container leads here."""
        return False

    def beside(self, path: str) -> File | None:
        """The module at that path."""
        path = _plain(path if self._folder.startswith("/") else path.lstrip("/"))
        below = _is_below(path, self._folder or ".") or _is_below(path, ".")
        if not below or not self._files.read(path, False):
            return None
        return File(path, self._files.texts[path], Origin(f"{KIND}/{path}", "", ""))


def review_programs(arguments: argparse.Namespace, named: Sequence[str], folders: Sequence[str]) -> Review:
    """The programs of ``named``, and those of the folders where ``--programs`` says so."""
    faults: list[Fault] = []
    rules: Mapping[str, str] = {}
    if arguments.policy is not None:
        from webhook.cli.inputs import load_policy_file

        policy = load_policy_file(arguments.policy, faults)
        if policy is None:
            return Review(faults=tuple(faults))
        rules = policy.rules
    directory = _plain(arguments.directory) if arguments.directory else ""
    launch = Launch(
        pods=arguments.nodes or 1,
        directories=(directory,) if directory else (),
        variable="",
        alone=True,
    )
    variables = {"CKPT_DIR": directory} if directory else {}
    files = _Files()
    for path in named:
        files.read(path, True)
    notices: list[str] = []
    skipped = 0
    results: list[Reviewed] = []
    asked = _Asked(files, launch, variables, rules, arguments.nodes)
    if arguments.command is not None:
        one = asked.command(arguments.command, [_plain(path) for path in named])
        results += [] if one is None else [one]
    else:
        entries = [_plain(path) for path in dict.fromkeys(named) if _plain(path) in files.texts]
        results += [asked.file(path) for path in entries]
        if arguments.programs:
            found = [path for folder in folders for path in _in_folder(folder, arguments.exclude, faults)]
            results += asked.folder([path for path in dict.fromkeys(found) if path not in entries])
            skipped = asked.skipped
    if asked.unknown:
        more = f" and of {len(asked.unknown) - 1} more" if len(asked.unknown) > 1 else ""
        notices.append(f"the arguments of {asked.unknown[0]}{more} are not known: name them with --command")
    return Review(tuple(results), (*faults, *files.faults), tuple(notices), True, skipped)


class _Asked:
    """One review for each program."""

    def __init__(
        self,
        files: _Files,
        launch: Launch,
        variables: Mapping[str, str],
        rules: Mapping[str, str],
        nodes: int | None,
    ) -> None:
        self.files = files
        self.launch = launch
        self.variables = variables
        self.rules = rules
        self.nodes = nodes
        self.skipped = 0
        self.unknown: list[str] = []

    def file(self, path: str) -> Reviewed:
        """A file as what somebody starts."""
        return self._judged(path, self._script(self._words(path), os.path.dirname(path)))  # noqa: PTH120

    def _words(self, path: str) -> list[object]:
        return ["bash" if path.endswith(".sh") else "python", path, _ARGUMENTS]

    def command(self, command: str, named: Sequence[str]) -> Reviewed | None:
        """``--command``, which is called by the first of FILE that it starts, or of those that it names."""
        words = ["bash", "-c", command]
        script = self._script(words, os.path.dirname(named[0]) if named else "")  # noqa: PTH120
        started = _started(script)
        own = next((path for path in named if path in started), "" if named else next(iter(started), ""))
        if own:
            return self._judged(own, script, command)
        if self.files.faults:
            return None
        what = "FILE" if named else "a .py or .sh file that is here"
        fault = Fault(None, f"--command: it starts no program of {what}: {command[:200]}")
        if named or not trains(script):
            self.files.faults.append(fault)
            return None
        return self._judged("-", script, command)

    def folder(self, paths: Sequence[str]) -> list[Reviewed]:
        """The programs of a folder: launch scripts first, then what neither they start nor another file imports."""
        for path in paths:
            self.files.read(path, True)
        here = [path for path in paths if path in self.files.texts]
        imported = _imported(self.files.texts, here)
        covered: set[str] = set()
        results: list[Reviewed] = []
        for path in sorted(here, key=lambda one: (not one.endswith(".sh"), one)):
            if path in covered or path in imported:
                continue
            script = self._script(self._words(path), os.path.dirname(path))  # noqa: PTH120
            unread = bool(script.unread) and not any(word in self.files.texts[path] for word in _TRAINS)
            if unread or not trains(script):
                self.skipped += 1
                continue
            covered |= _started(script) if path.endswith(".sh") else set()
            results.append(self._judged(path, script))
        return results

    def _script(self, words: Sequence[object], folder: str) -> Script:
        """The command read, with the files beside it that it starts."""
        beside = _Beside(self.files, folder)
        script = read_alone(words, self.files.texts, self.launch, self.variables, beside)
        for _ in range(_ROUNDS):
            new = [path for name in script.missing[:_BESIDE] if (path := self._beside(name, folder))]
            if not new:
                break
            script = read_alone(words, self.files.texts, self.launch, self.variables, beside)
        return script

    def _beside(self, name: str, folder: str) -> str:
        """The path of a script below the folder of the program or the working directory, once it is read."""
        if name.startswith(("/", "~")) or not name.endswith((".py", ".sh")):
            return ""
        for base in dict.fromkeys((folder, "")):
            path = _plain(os.path.join(base, name))  # noqa: PTH118
            below = _is_below(path, folder or ".") or _is_below(path, ".")
            if below and path not in self.files.texts and self.files.read(path, False):
                return path
        return ""

    def _judged(self, own: str, script: Script, command: str | None = None) -> Reviewed:
        findings: list[Judged] = []
        ignored: list[tuple[Judged, str]] = []
        spans: dict[str, dict[int, tuple[int, int]]] = {}
        for finding in judge_alone(script, own, self.rules):
            reason = self._ignored(finding, script, spans)
            if reason:
                ignored.append((finding, reason))
            else:
                findings.append(finding)
        text = self.files.texts.get(own, "")
        if command is None and any(word in text for word in _TAKES):
            self.unknown.append(own)
        heaviest = findings[0].severity if findings else Severity.AUDIT
        unread = any(finding.rule == "program-not-read" for finding in findings)
        return Reviewed(
            kind=KIND,
            namespace="",
            name=own,
            operation="CREATE",
            at=Place(own),
            verdict="deny" if heaviest is Severity.DENY else "warn" if heaviest is Severity.WARN else "allow",
            findings=tuple(findings),
            facts=Facts(
                nodes=self.nodes,
                directory=written_to(script) or next(iter(self.launch.directories), None),
                program=fact_of(script),
            ),
            locate=_locate,
            judged=not unread,
            ignored=tuple(ignored),
        )

    def _ignored(self, finding: Judged, script: Script, spans: dict[str, dict[int, tuple[int, int]]]) -> str:
        path, line = _where(finding.at)
        comments = self.files.comments.get(path)
        if not comments:
            return ""
        text = self.files.texts[path]
        if path not in spans:
            spans[path] = spans_of(script, path)
        return reason_for(finding.rule, line, comments, spans[path], text.split("\n"))


def _where(at: Origin) -> tuple[str, int]:
    number = at.field.removeprefix("line ")
    return at.object.partition("/")[2], int(number) if number.isdecimal() else 0


def _locate(at: Origin) -> Place | None:
    path, line = _where(at)
    return Place(path, line or None)


def _started(script: Script) -> set[str]:
    """The files whose text a command runs."""
    return {python.place.field for python in script.pythons} | {
        shell.place.field for shell in script.shells if shell.place.field != "command"
    }


def _imported(texts: Mapping[str, str], paths: Sequence[str]) -> set[str]:
    """The files of a folder that another one imports: parts of a program, and none by themselves."""
    import re

    found = re.compile(
        r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+\(?([\w, \t]+)|import[ \t]+([\w., \t]+))", re.MULTILINE
    )
    modules = {path.removesuffix(".py"): path for path in paths if path.endswith(".py")}
    imported: set[str] = set()
    # A package may lie below any folder: "pack.part" is each file that ends with pack/part.py.
    ends: dict[str, list[str]] = {}
    for module in modules:
        ends.setdefault(module.rpartition("/")[2], []).append(module)
    for path in modules.values():
        folder = os.path.dirname(path)  # noqa: PTH120
        for source, names, plain in found.findall(texts[path]):
            wanted = (
                [source, *(f"{source}.{name.strip()}" for name in names.split(","))] if source else plain.split(",")
            )
            for name in wanted:
                parts = name.strip().partition(" ")[0].lstrip(".").replace(".", "/")
                parts = parts or "."
                beside = modules.get(_plain(os.path.join(folder, parts)))  # noqa: PTH118
                found_at = [beside] if beside is not None else []
                among = ends.get(parts.rpartition("/")[2], ())
                if "/" in parts and len(among) <= _SAME:
                    found_at += [modules[one] for one in among if one.endswith("/" + parts) or one == parts]
                imported.update(one for one in found_at if one != path)
    return imported


def _in_folder(folder: str, exclude: Sequence[str], faults: list[Fault]) -> Iterator[str]:
    """The ``.py`` and ``.sh`` files of a folder, nothing hidden, in a fixed order."""
    if folder == "-" or not os.path.isdir(folder):  # noqa: PTH112
        return
    from webhook.cluster.folders import Excluded

    excluded = Excluded(exclude)
    count = 0
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _PACKAGES)
        for name in sorted(names):
            path = os.path.join(where, name)  # noqa: PTH118
            if name.startswith((".", "test_", "conftest.")) or not name.endswith((".py", ".sh")):
                continue
            if name.endswith("_test.py") or excluded.leaves_out(path, folder) or not os.path.isfile(path):  # noqa: PTH113
                continue
            count += 1
            if count > _MOST:
                faults.append(
                    Fault(folder, f"it has more than {_MOST} programs: name fewer, or leave some out with --exclude")
                )
                return
            yield _plain(path)


_SAME: Final = 16
"""Files of one name that an import may mean; of more, none is taken."""
_PACKAGES: Final = frozenset(("node_modules", "__pycache__", "site-packages"))


def _is_below(path: str, folder: str) -> bool:
    top = os.path.realpath(folder)
    return os.path.realpath(path).startswith(os.path.join(top, ""))  # noqa: PTH118


def _plain(path: str) -> str:
    return os.path.normpath(path)
