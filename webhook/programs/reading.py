"""Which programs a command line runs: through wrappers, shells, launchers and interpreters, down to each text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from webhook.model.files import File, Files
from webhook.model.script import Launch, Place
from webhook.programs.config import read_config
from webhook.programs.folders import joined
from webhook.programs.line import Line, after_wrapper, base_name, expanded, with_assigned
from webhook.programs.program import PROGRAMS, Gathered, Script
from webhook.programs.shell import Command, Held, NotRead, plain_text, read_shell
from webhook.programs.values import UNKNOWN, Text, Unknown, Value, head, tail
from webhook.programs.words import INITS, LONGEST, SHELLS, TOOLS, WRAPPERS

_NESTED: Final = 3
"""Shells inside shells that are followed."""
_ITEMS: Final = 4096
"""Items of ``command`` and of ``args`` that are looked at."""
_SHELLS: Final = 32

_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "torch.distributed.run": ("torchrun",),
    "torch.distributed.launch": ("torchrun",),
    "accelerate.commands.launch": ("accelerate", "launch"),
    "deepspeed.launcher.runner": ("deepspeed",),
    "llamafactory.cli": ("llamafactory-cli",),
}
_HARMLESS_MODULES: Final = frozenset(("pip", "venv", "ensurepip", "compileall", "site", "json", "http", "zipfile"))
_HARMLESS: Final = frozenset(("sleep", "echo", "true", "cat", "ls", "nvidia-smi"))


_STARTS: Final = (
    INITS
    | WRAPPERS
    | SHELLS
    | TOOLS
    | {"eval", "source", ".", "torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate"}
    | {"accelerate-launch", "deepspeed", "msrun", "mpirun", "mpiexec", "srun", "horovodrun"}
)


def _may_start(name: str) -> bool:
    """Whether a shell's command of this name may start a program: of most there is nothing more to look at."""
    return name in _STARTS or name.startswith("python") or name.endswith((".py", ".sh"))


def read_script(
    command: Sequence[Any],
    args: Sequence[Any],
    env: Mapping[str, Value],
    launch: Launch,
    files: Mapping[str, tuple[str, Place]] | None = None,
    reach: Files | None = None,
) -> Script:
    """Everything legible in ``command`` and ``args``, and in the files that they name. Never raises for a text.

    ``env`` are the container's variables; references ``$(VAR)`` are put in as the kubelet does. ``files`` are texts
    that lie where the program runs, by path, each with the place of its first line; ``reach`` gives others when they
    are named. A word may be ``Unknown``.
    """
    return _Reader(env, launch, files or {}, reach).read(command, args)


class _Reader(Gathered):
    def read(self, command: Sequence[Any], args: Sequence[Any]) -> Script:
        words: list[Value] = []
        places: list[Place] = []
        for name, items in (("command", command), ("args", args)):
            for index, item in enumerate(items):
                place = Place(name, index)
                if index >= _ITEMS:
                    # What follows may be any flag, so nothing is known to be absent.
                    words.append(UNKNOWN)
                    places.append(place)
                    break
                if isinstance(item, Unknown):
                    words.append(item)
                    places.append(place)
                    continue
                if not isinstance(item, str):
                    continue
                if len(item) > LONGEST:
                    self.unread.append((place, f"it is longer than {LONGEST // 1024} KiB"))
                    words.append(UNKNOWN)
                else:
                    words.append(expanded(item, self.env))
                    if words[-1] is UNKNOWN:
                        self.unread.append((place, f"it is longer than {LONGEST // 1024} KiB with its variables"))
                places.append(place)
        raws = [word if isinstance(word, str) else "" for word in words]
        self._run(Line(words, raws, places, self.env))
        # What was read may be kept for long, and the files are not to be kept with it.
        self.given, self.files = None, {}
        return Script(
            self.launch,
            tuple(self.invocations),
            tuple(self.pythons),
            tuple(self.configs),
            tuple(self.shells),
            tuple(self.unread),
            self.whole,
            self.first or "program",
            tuple(dict.fromkeys(self.missing)),
            tuple(self.lost.items()),
            self.checkout,
        )

    def _run(self, line: Line) -> None:
        """One command line: a wrapper's, a shell's, a launcher's or a program's."""
        unwrapped = self._unwrapped(line)
        if unwrapped is None or not unwrapped.words:
            return
        line = unwrapped
        words = line.words
        name = base_name(words[0])
        if line.command is None and not self.first:
            self.first = "shell" if name in SHELLS else "program"
        if name in SHELLS:
            self._shell(name, line)
        elif name in ("torchrun", "torch.distributed.run", "torch.distributed.launch"):
            self._launch("torchrun", line)
        elif name == "accelerate" and list(words[1:2]) == ["launch"]:
            self._launch("accelerate", line.past(1))
        elif name == "accelerate-launch":
            self._launch("accelerate", line)
        elif name in ("deepspeed", "msrun"):
            self._launch(name, line)
        elif name in ("mpirun", "mpiexec", "srun", "horovodrun"):
            self._spread(name, line)
        elif name.startswith("python") and (name[6:7] in ("", "3", "2")):
            self._python(line)
        elif name in TOOLS:
            self.add(line, tool=name)
        elif name.endswith(".py"):
            self._script(line)
        elif name.endswith(".sh") or name in ("source", "."):
            self._shell_file(words[1] if name in ("source", ".") and len(words) > 1 else words[0], line)
        elif isinstance(words[0], str) and (opened := self._by_first_line(words[0], line.command)) is not None:
            self._run(line.begun_with(opened, line.places[0]))
        elif line.command is None and (not isinstance(words[0], str) or name not in _HARMLESS):
            self.whole = False

    def _unwrapped(self, line: Line) -> Line | None:
        """What is started behind init programs, wrappers and ``eval``; None where that cannot be told."""
        for _ in range(32):
            words = line.words
            name = base_name(words[0]) if words else ""
            if name in INITS:
                if line.command is None and not self.first:
                    self.first = "init"
                at = 1
                while at < len(words) and head(words[at]).startswith("-") and words[at] != "--":
                    at += 1
                line = line.past(at + 1 if at < len(words) and words[at] == "--" else at)
            elif name in WRAPPERS:
                at = after_wrapper(name, words, 1)
                if name == "env":
                    line = replace(line, env=with_assigned(line.env, words[1:at]))
                line = line.past(at)
            elif name == "eval" and line.command is not None:
                line = line.past(1)
                self.evaluated += 64 + sum(len(word) for word in line.words if isinstance(word, str))
                evaluated = _evaluated(line) if self.evaluated <= LONGEST else None
                if evaluated is None:
                    self.whole = False
                    return None
                line = evaluated
            else:
                break
        return line

    def _by_first_line(self, file: str, command: Command | None) -> tuple[str, ...] | None:
        """The interpreter of a file in reach that is started by its name alone, as its first line has it."""
        path = joined(self.folder_of(command), file) if "/" in file else None
        if self.given is None or not isinstance(path, str) or not self.given.begins(path):
            return None
        found = self.given.find(path)
        if not isinstance(found, File):
            self.open(file, command)
            return None
        first = found.text[:256].partition("\n")[0]
        names = [base_name(word) for word in first[2:].split()] if first[:2] == "#!" else []
        name = next((one for one in names if one in SHELLS or one.startswith("python")), "")
        return (name,) if name else None

    def _shell(self, name: str, line: Line) -> None:
        words, command = line.words, line.command
        options = ""
        at = 1
        while at < len(words) and isinstance(word := words[at], str) and word[:1] in ("-", "+"):
            at += 1
            if word in ("-o", "+o", "-O") or (word[:1] == "-" and word.endswith("o") and not word.startswith("--")):
                options += word.lstrip("-").rstrip("o")
                if at < len(words) and words[at] == "pipefail":
                    options += "|"
                at += 1
            elif not word.startswith("--"):
                options += word.lstrip("-+")
        if "c" not in options:
            if command is not None and (command.document is not None or command.here_string is not None):
                text = command.document.text if command.document is not None else plain_text(command.here_string)
                number = command.document.line if command.document is not None else 0
                if text is not None:
                    self._shell_text(text, _moved(command.place, number, self), line, name, options=options)
            elif at < len(words):
                self._shell_file(words[at], line, words[at:])
            return
        if at >= len(words):
            return
        text = plain_text(words[at])
        place = line.places[at] if command is None else command.place
        if text is None:
            if not any(one == place for one, _ in self.unread):
                self.whole = False
            return
        where = Place(place.field, place.index, place.line or 1)
        self._shell_text(text, where, line, name, options=options, positional=tuple(words[at + 1 :]) or ("",))

    def _shell_file(self, file: Value, line: Line, positional: Sequence[Value] | None = None) -> None:
        known = self.files.get(file) if isinstance(file, str) else None
        if known is None and isinstance(file, str):
            known = self.files.get(file.removeprefix("./")) or self.open(file, line.command)
        if known is None:
            if isinstance(file, str) and file.endswith(("activate", "bashrc", "profile", "setvars.sh", "conda.sh")):
                return
            if isinstance(file, str) and len(self.missing) < PROGRAMS:
                self.missing.append(file)
            self.whole = False
            return
        before = len(self.shells)
        path = joined(self.folder_of(line.command), file)
        own = known[1].field if known[1].in_file else path if isinstance(path, str) else ""
        inner = replace(line, depth=line.depth + 1)
        given = None if positional is None else tuple(positional)
        self._shell_text(known[0], known[1], inner, "bash", file=own, positional=given)
        if len(self.shells) > before:
            self.shells[before].inline = False

    def _shell_text(
        self,
        text: str,
        place: Place,
        line: Line,
        dialect: str,
        *,
        options: str = "",
        file: str = "",
        positional: tuple[Value, ...] | None = None,
    ) -> None:
        if line.depth > _NESTED:
            self.whole = False
            return
        if len(self.shells) >= _SHELLS:
            if self.whole:
                self.unread.append((place, f"it starts more than {_SHELLS} shells"))
            self.whole = False
            return
        if len(text) > LONGEST:
            self.unread.append((place, f"it is longer than {LONGEST // 1024} KiB"))
            return
        folder = self.folder_of(line.command)
        try:
            shell = read_shell(
                text, place, line.env, dialect, options=options, positional=positional, folder=folder, file=file
            )
        except NotRead as reason:
            self.unread.append((place, str(reason)))
            self.whole = False
            return
        if "|" in options:
            shell.pipefail = True
        self.shells.append(shell)
        previous: Command | None = None
        for command in shell.commands:
            if command.writes is not None or command.name == "tee":
                self._write(command, place)
            if previous is not None and previous.name in _PRINTS and command.words:
                _take_from_pipe(command, previous)
            if command.words and (self.given is not None or _may_start(command.name)):
                places = [command.place] * len(command.words)
                self._run(Line(command.words, command.raw, places, command.env, command, line.depth + 1))
            previous = command

    def _write(self, command: Command, place: Place) -> None:
        """What a command writes into a file that may run or be read later: ``cat > f <<EOF``, ``printf "$X" > f``."""
        target = command.writes
        if command.name == "tee" and len(command.words) > 1:
            target = next((word for word in command.words[1:] if not head(word).startswith("-")), None)
        if target is None or target == "/dev/null":
            return
        text: str | None = None
        line = 0
        if command.name in ("cat", "tee"):
            if command.document is not None:
                text, line = command.document.text, command.document.line
            elif command.here_string is not None:
                text = plain_text(command.here_string)
        elif command.name in ("printf", "echo"):
            for word in reversed(command.words[1:]):
                if isinstance(word, Held):
                    text, line = word.text, word.line
                    break
            else:
                words = [word for word in command.words[1:] if word not in ("-e", "-n", "%s", "%s\\n")]
                texts = [plain_text(word) for word in words]
                if texts and all(one is not None for one in texts):
                    text = " ".join(one for one in texts if one is not None)
                    if command.name == "printf" or "-e" in command.words:
                        text = text.replace("\\n", "\n")
        name = target if isinstance(target, str) else "/" + target.parts[-1].lstrip("/") if _named(target) else ""
        if not name:
            return
        if text is None:
            self.files.pop(name, None)
            return
        where = Place(place.field, place.index, (place.line or 1) + line - 1 if line else command.place.line)
        self.files[name] = (text, where)
        config = read_config(name, text, where)
        if config is not None:
            config.expands = command.document is not None and not command.document.quoted
            self.configs.append(config)

    def _launch(self, launcher: str, line: Line) -> None:
        """``torchrun [flags] train.py args``: the target is the first word that is a script, a module or a program."""
        words = line.words
        bare = "--no-python" in words or "--no_python" in words
        for at in range(1, len(words)):
            word = words[at]
            if word in ("-m", "--module") and at + 1 < len(words):
                started = line.launched(launcher, at).past(1)
                module = word if isinstance(word := words[at + 1], str) else ""
                own = self.module(module, line.command)
                if own is not None:
                    self._script(started.named(own))
                    return
                self.add(started, module=module)
                self.whole = False
                return
            name = base_name(word)
            if name.endswith(".py") or (bare and (name.startswith("python") or name in SHELLS)):
                self._run(line.launched(launcher, at))
                return
            if isinstance(word, Text) and str(word.parts[-1]).endswith(".py"):
                break
        self.whole = False
        for at in range(1, len(words)):
            previous = head(words[at - 1])
            if not head(words[at]).startswith("-") and (at == 1 or not previous.startswith("-") or "=" in previous):
                self.add(line.launched(launcher, at), file=head(words[at]))
                return

    def _spread(self, launcher: str, line: Line) -> None:
        """``mpirun -np 8 python train.py``: the program is the first word that names one."""
        words = line.words
        for at in range(1, len(words)):
            name = base_name(words[at])
            if (
                name in SHELLS
                or name in TOOLS
                or name in ("torchrun", "deepspeed", "accelerate")
                or name.endswith((".py", ".sh"))
                or (name.startswith("python") and not head(words[at - 1]).startswith("-x"))
            ):
                self._run(line.launched(launcher, at))
                return
        self.whole = False

    def _python(self, line: Line) -> None:
        words = line.words
        at = 1
        while at < len(words):
            word = words[at]
            if not isinstance(word, str):
                if tail(word).endswith(".py"):
                    # "$(pwd)/train.py": its name is known, where it lies is not.
                    self._script(line.past(at).named(tail(word).rpartition("/")[2] if "/" in tail(word) else ""))
                    return
                self.whole = False
                return
            if _is_short(word, "c"):
                if at + 1 < len(words):
                    self._given_text(line, at + 1)
                return
            if _is_short(word, "m"):
                self._given_module(line, at)
                return
            if word == "-":
                break
            if word in ("-W", "-X"):
                at += 2
            elif word[:1] == "-":
                at += 1
            else:
                self._script(line.past(at))
                return
        self._standard_input(line, at)

    def _given_text(self, line: Line, at: int) -> None:
        """``python -c TEXT``, where word ``at`` is the text."""
        text = plain_text(line.words[at])
        place = line.places[at]
        if text is not None:
            self.text(text, Place(place.field, place.index, place.line or 1), "", line.without(1, at + 1))
        elif not any(one.field == place.field and one.index == place.index for one, _ in self.unread):
            self.whole = False

    def _given_module(self, line: Line, at: int) -> None:
        """``python -m MODULE``, where word ``at`` is the flag."""
        words = line.words
        module = word if at + 1 < len(words) and isinstance(word := words[at + 1], str) else ""
        inner = _MODULES.get(module)
        if inner is not None:
            self._run(replace(line.past(at + 2).begun_with(inner, line.places[at]), flags={}))
        elif (file := self.module(module, line.command)) is not None:
            self._script(line.past(at + 1).named(file))
        elif module.partition(".")[0] not in _HARMLESS_MODULES:
            self.add(line.past(at + 1), module=module)
            self.whole = False

    def _standard_input(self, line: Line, at: int) -> None:
        """``python - <<EOF``, with the program's arguments after word ``at``."""
        command = line.command
        if command is None:
            return
        text = None
        number = 0
        if command.document is not None:
            text, number = command.document.text, command.document.line
        elif isinstance(command.here_string, Held):
            text, number = command.here_string.text, command.here_string.line
        elif command.here_string is not None:
            text = plain_text(command.here_string)
        if text is None:
            self.whole = False
            return
        self.text(text, _moved(command.place, number, self), "", line.without(1, at + 1))

    def _script(self, line: Line) -> None:
        file = word if isinstance(word := line.words[0], str) else ""
        known = self.files.get(file) or self.files.get(file.removeprefix("./")) or self.open(file, line.command)
        if known is None and file:
            last = file.rpartition("/")[2]
            found = [one for name, one in self.files.items() if name.rpartition("/")[2] == last]
            known = found[0] if len(found) == 1 else None
        if known is None:
            if file and len(self.missing) < PROGRAMS:
                self.missing.append(file)
            self.whole = False
            self.add(line, file=file)
            return
        self.text(known[0], known[1], file, line)


def _is_short(word: str, letter: str) -> bool:
    """Whether it is a flag of one letter, or several in one word that end with it: ``-c``, ``-uc``."""
    return word[:1] == "-" and word[:2] != "--" and word.endswith(letter) and len(word) < 5


def _named(target: Value) -> bool:
    return isinstance(target, Text) and isinstance(target.parts[-1], str)


def _evaluated(line: Line) -> Line | None:
    """The one command that ``eval`` makes of its words; None where it makes several, or a pipeline."""
    words = [word for word in line.words if isinstance(word, str)]
    if not words or len(words) < len(line.words):
        return line
    try:
        shell = read_shell(" ".join(words), line.places[0], line.env, "bash")
    except NotRead:
        return None
    if len(shell.commands) != 1 or shell.commands[0].around or shell.faults:
        return None
    found = shell.commands[0]
    return replace(line, words=found.words, raws=found.raw, places=[line.places[0]] * len(found.words))


def _moved(place: Place, line: int, reader: Gathered) -> Place:
    """The place of a here-document: its line is counted in the shell text, whose own first line is somewhere."""
    if not line:
        return place
    base = reader.shells[-1].place.line or 1
    return Place(place.field, place.index, base + line - 1)


_PRINTS: Final = frozenset(("cat", "echo", "printf"))


def _take_from_pipe(command: Command, previous: Command) -> None:
    """``cat <<PY | python -``: what the command before writes is what this one reads."""
    own = command.inside("pipeline")
    if own is None or own.index == 0 or command.document is not None or command.here_string is not None:
        return
    if previous.document is not None:
        command.document = previous.document
    elif previous.name in ("echo", "printf") and len(previous.words) > 1:
        command.here_string = previous.words[-1]
