"""A container's command and arguments -> the programs that it runs, with their texts, flags and configuration files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from webhook.model.files import File, Files, Lost
from webhook.model.path import components
from webhook.model.script import Launch, Place
from webhook.programs.config import Config, read_config
from webhook.programs.folders import changed, joined
from webhook.programs.python import Python
from webhook.programs.shell import Command, Held, NotRead, Shell, plain_text, read_shell
from webhook.programs.sources import dedented, python_source
from webhook.programs.values import UNKNOWN, Text, Unknown, Value, after_mark, head, is_known, tail
from webhook.programs.words import INITS, LONGEST, SHELLS, TOOLS, WRAPPERS

if TYPE_CHECKING:
    from webhook.programs.linked import Linked

_NESTED: Final = 3
"""Shells inside shells that are followed."""
_ITEMS: Final = 4096
"""Items of ``command`` and of ``args`` that are looked at."""
_SHELLS: Final = 32
_LONGEST_PATH: Final = 4096
_SETTINGS: Final = 32
"""Configuration files of one container."""
SETTINGS_ENDINGS: Final = (".yaml", ".yml", ".json", ".toml")
_SETTINGS_FILE: Final = re.compile(r"""["']([\w./-]+\.(?:ya?ml|json|toml))["']""")
_FOLDERS: Final = 8
"""Of PYTHONPATH."""
_OPENED: Final = 96 * 1024
"""Characters of files in reach that are read for one container."""
_PROGRAMS: Final = 128
"""Shell texts and programs of one container that are looked at."""


_ALONE: Final = 256 * 1024
"""Characters of a Python text that somebody reviews without a cluster: it is their own machine."""


class Flag(Struct, frozen=True):
    """One flag or ``key=value`` of a command line. ``value`` is True for a flag without one."""

    name: str
    value: Value
    place: Place
    raw: str


class Invocation(Struct):
    """One program that the container runs.

    ``launchers`` are what it is started by (``("torchrun",)``); ``tool`` is a command that trains by itself
    (``llamafactory-cli``), ``module`` what ``-m`` names, ``file`` the script's path, each ``""`` where it is another.
    ``python`` is the text where the manifest has it. ``arguments`` are what follows, ``launcher_flags`` those before.
    ``command`` is the shell's command; None where the container starts the program without a shell.
    """

    launchers: tuple[str, ...]
    tool: str
    module: str
    file: str
    python: Python | None
    arguments: tuple[Value, ...]
    raws: tuple[str, ...]
    places: tuple[Place, ...]
    place: Place
    command: Command | None = None
    launcher_flags: Mapping[str, Flag] = field(default_factory=dict)
    flags: Mapping[str, Flag] = field(default_factory=dict)
    inline: bool = False
    source: str = ""
    folder: Value = UNKNOWN
    """Where it is started, from the root."""

    @property
    def name(self) -> str:
        """What it is called in a message: ``train.py``, ``llamafactory-cli``, ``python``."""
        return self.tool or self.module or self.file.rpartition("/")[2] or "python"

    def flag(self, *names: str) -> Flag | None:
        """The first of these flags that is given; names without dashes, ``_`` for ``-``: ``save_interval``."""
        for name in names:
            found = self.flags.get(name)
            if found is not None:
                return found
        return None

    @property
    def processes(self) -> int | None:
        """Processes in this pod as the launcher's flags say; None where they do not."""
        for name in ("nproc_per_node", "num_processes", "num_gpus", "local_worker_num", "np", "n"):
            found = self.launcher_flags.get(name)
            if found is not None:
                value = found.value
                if isinstance(value, str) and value.isdecimal() and len(value) < 10:
                    return int(value)
                return value if isinstance(value, int) and not isinstance(value, bool) else None
        return None


class Script(Struct):
    """The legible program of one container: what a rule and a framework see.

    ``invocations`` are in order. ``pythons`` are all Python texts that run, ``configs`` the files that the shell text
    writes. ``shells`` are the shell texts, the container's own first. ``unread`` are texts that were given up, each
    with the reason. ``whole`` says that everything that runs is in the manifest: no script of the image, no shell file.
    ``first`` is the first process: ``shell``, ``init`` or ``program``.
    """

    launch: Launch
    invocations: tuple[Invocation, ...] = ()
    pythons: tuple[Python, ...] = ()
    configs: tuple[Config, ...] = ()
    shells: tuple[Shell, ...] = ()
    unread: tuple[tuple[Place, str], ...] = ()
    whole: bool = True
    first: str = "program"
    missing: tuple[str, ...] = ()
    """Scripts that are started and whose text is not here, as the command names them."""
    lost: tuple[tuple[str, Lost], ...] = ()
    """Paths of programs and files that lie on a volume and gave no text, each with the reason."""
    memo: dict[str, Any] = field(default_factory=dict)
    """For whoever asks twice: lives as long as this object."""

    @property
    def shell(self) -> Shell | None:
        """The shell text that the container's first process runs."""
        return self.shells[0] if self.shells and self.first == "shell" else None

    def config(self, file: Value) -> Config | None:
        """The configuration file of that name (a path, or the last part of one)."""
        if not isinstance(file, str):
            return None
        for config in self.configs:
            if config.file == file:
                return config
        last = file.rpartition("/")[2]
        for config in self.configs:
            if config.file.rpartition("/")[2] == last:
                return config
        return None

    def placed(self, path: Value) -> Value:
        """A path that is relative to where the programs run, from the root, where that is one place and known.

        Elsewhere the path as it is.
        """
        beginning = head(path)
        if not beginning or beginning.startswith(("/", "~")) or "://" in beginning:
            return path
        if "folder" not in self.memo:
            self.memo["folder"] = self._folder()
        found = joined(self.memo["folder"], path)
        return path if found is UNKNOWN else found

    def _folder(self) -> Value:
        """Where the programs run; unknown where they do so in several places."""
        found: list[Value] = [python.folder for python in self.pythons]
        found += [one.folder for one in self.invocations if one.python is None]
        if not found or any(folder != found[0] for folder in found):
            return UNKNOWN
        if len(self.pythons) == 1 and "chdir" in self.pythons[0].source.by_attr:
            return changed(self.pythons[0])
        return UNKNOWN if any("chdir" in python.source.by_attr for python in self.pythons) else found[0]

    def on_volume(self, path: Value) -> bool:
        """Whether a path lies in a declared directory or on a mounted volume."""
        launch = self.launch
        if launch.alone and not launch.directories:
            return True
        path = self.placed(path)
        return any(lies_in(path, place) for place in (*launch.directories, *launch.mounts))

    def counts(self, path: Value) -> bool:
        """Whether what is saved there is what a restart would go on from.

        It is on a volume, or where a directory is declared it is a name without a root: a run that is to be resumed and
        saves beside its storage lacks the rest as well. A place of its own from the root is meant to be another.
        """
        beginning = head(path)
        return self.on_volume(path) or bool(
            self.launch.directories and beginning and beginning[0] not in "/~$" and "://" not in beginning
        )

    @property
    def wants_checkpoints(self) -> bool:
        """Whether a checkpoint directory is declared; of a program without a cluster it is taken for granted."""
        return bool(self.launch.directories) or self.launch.alone

    def in_fast_tier(self, path: Value) -> bool:
        """Whether a path lies in the fast tier, which each pod has for itself."""
        path = self.placed(path)
        return any(lies_in(path, place) for place in self.launch.fast)

    def commands(self) -> Iterator[Command]:
        """The commands of all shell texts."""
        for shell in self.shells:
            yield from shell.commands

    @property
    def processes(self) -> int | None:
        """Processes that train in one pod, as flags or the launch say."""
        for invocation in self.invocations:
            found = invocation.processes
            if found is not None:
                return found
        return self.launch.processes


def lies_in(path: Value, directory: str) -> bool:
    """Whether the known beginning of a path is a directory or leads below it, by whole components."""
    place = components(directory)
    known = head(path)
    rooted = known.startswith("/") == directory.startswith("/")
    return rooted and bool(place) and components(known)[: len(place)] == place


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


class _Reader:
    def __init__(
        self,
        env: Mapping[str, Value],
        launch: Launch,
        files: Mapping[str, tuple[str, Place]],
        reach: Files | None,
    ) -> None:
        self.env = env
        self.launch = launch
        self.given = reach
        self.lost: dict[str, Lost] = {}
        self.settings: dict[str, Config | None] = {}
        self.opened = 0
        self.start: Value = launch.working_dir if launch.working_dir.startswith("/") else UNKNOWN
        self.invocations: list[Invocation] = []
        self.pythons: list[Python] = []
        self.configs: list[Config] = []
        self.shells: list[Shell] = []
        self.unread: list[tuple[Place, str]] = []
        self.files: dict[str, tuple[str, Place]] = dict(files)
        self.missing: list[str] = []
        self.whole = True
        self.first = ""
        self.read_so_far = 0
        self.evaluated = 0

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
                    words.append(_expanded(item, self.env))
                    if words[-1] is UNKNOWN:
                        self.unread.append((place, f"it is longer than {LONGEST // 1024} KiB with its variables"))
                places.append(place)
        self._run(words, [str(word) if isinstance(word, str) else "" for word in words], places, self.env, None, 0)
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
        )

    def _open(self, file: str, command: Command | None) -> tuple[str, Place] | None:
        """The text of a file that is in reach, and its place; None where it is not."""
        if self.given is None or not file or len(file) > _LONGEST_PATH:
            return None
        folder = self.start if command is None else command.folder
        path = joined(folder, file)
        found = self.given.find(path if isinstance(path, str) else file)
        if isinstance(found, Lost):
            if len(self.lost) < _PROGRAMS:
                self.lost[path if isinstance(path, str) else file] = found
            return None
        if found is None:
            return None
        place = Place(found.path, 0, 1)
        self.opened += len(found.text)
        if len(found.text) > LONGEST or self.opened > _OPENED:
            most = LONGEST if len(found.text) > LONGEST else _OPENED
            more = "" if len(found.text) > LONGEST else " with those before it"
            self.unread.append((Place(found.path, 0), f"it is longer than {most // 1024} KiB{more}"))
            return None
        if not found.executable and command is not None and command.words and command.words[0] == file:
            self.lost[found.path] = Lost("its mode does not let it be executed: defaultMode: 0755")
        return found.text, place

    def _run(
        self,
        words: Sequence[Value],
        raws: Sequence[str],
        places: Sequence[Place],
        env: Mapping[str, Value],
        command: Command | None,
        depth: int,
        launchers: tuple[str, ...] = (),
        launcher_flags: Mapping[str, Flag] | None = None,
    ) -> None:
        """One command line: a wrapper's, a shell's, a launcher's or a program's."""
        at = 0
        rounds = 0
        while at < len(words) and rounds < 32:
            rounds += 1
            name = _base(words[at])
            if name in INITS:
                if command is None and not self.first:
                    self.first = "init"
                at += 1
                while at < len(words) and head(words[at]).startswith("-") and words[at] != "--":
                    at += 1
                if at < len(words) and words[at] == "--":
                    at += 1
            elif name in WRAPPERS:
                start, at = at + 1, _after_wrapper(name, words, at + 1)
                if name == "env":
                    env = _with_assigned(env, words[start:at])
            elif name == "eval" and command is not None:
                rest = slice(at + 1, None)
                self.evaluated += 64 + sum(len(word) for word in words[rest] if isinstance(word, str))
                known = self.evaluated <= LONGEST
                evaluated = _evaluated(words[rest], raws[rest], places[rest], env) if known else None
                if evaluated is None:
                    self.whole = False
                    return
                words, raws, places = evaluated
                at = 0
            else:
                break
        if at >= len(words):
            return
        words, raws, places = words[at:], raws[at:], places[at:]
        name = _base(words[0])
        if command is None and not self.first:
            self.first = "shell" if name in SHELLS else "program"
        if name in SHELLS:
            self._shell(name, words, places, env, command, depth)
        elif name in ("torchrun", "torch.distributed.run", "torch.distributed.launch"):
            self._launch("torchrun", words, raws, places, env, command, depth, launchers)
        elif (name == "accelerate" and list(words[1:2]) == ["launch"]) or name == "accelerate-launch":
            skip = 1 if name == "accelerate" else 0
            self._launch("accelerate", words[skip:], raws[skip:], places[skip:], env, command, depth, launchers)
        elif name in ("deepspeed", "msrun"):
            self._launch(name, words, raws, places, env, command, depth, launchers)
        elif name in ("mpirun", "mpiexec", "srun", "horovodrun"):
            self._spread(name, words, raws, places, env, command, depth, launchers)
        elif name.startswith("python") and (name[6:7] in ("", "3", "2")):
            self._python(words, raws, places, env, command, depth, launchers, launcher_flags or {})
        elif name in TOOLS:
            self._add(launchers, name, "", "", None, words[1:], raws[1:], places, command, launcher_flags or {})
        elif name.endswith(".py"):
            self._script(words, raws, places, env, command, launchers, launcher_flags or {})
        elif name.endswith(".sh") or name in ("source", "."):
            self._shell_file(words[1] if name in ("source", ".") and len(words) > 1 else words[0], env, command, depth)
        elif isinstance(words[0], str) and (opened := self._by_first_line(words[0], command)) is not None:
            inner = (*opened, *words)
            self._run(
                inner,
                (*opened, *raws),
                (*[places[0]] * len(opened), *places),
                env,
                command,
                depth,
                launchers,
                launcher_flags,
            )
        elif (command is None and not isinstance(words[0], str)) or (command is None and name not in _HARMLESS):
            self.whole = False

    def _config(self, folder: Value, file: str, named: bool = False) -> Config | None:
        """The configuration file at a path; ``named``: the command names it, so it may lie anywhere in a checkout."""
        for config in self.configs:
            if config.file == file:
                return config
        path = joined(folder, file)
        path = path if isinstance(path, str) else file
        if path in self.settings:
            return self.settings[path]
        if self.given is None or len(file) > _LONGEST_PATH or len(self.settings) >= _SETTINGS:
            last = file.rpartition("/")[2]
            written = [one for one in self.configs if one.file.rpartition("/")[2] == last]
            return written[0] if len(written) == 1 else None
        found: File | Lost | None = self.given.beside(path)
        if found is None and named:
            found = self.given.find(path)
        made: Config | None = None
        if isinstance(found, File) and len(found.text) <= LONGEST and self.opened + len(found.text) <= _OPENED:
            self.opened += len(found.text)
            made = read_config(file, found.text, Place(found.path, 0, 1))
        self.settings[path] = made
        if made is not None:
            self.configs.append(made)
        return made

    def _named_configs(self, words: Sequence[Value], command: Command | None) -> None:
        """Reads the files of settings that a command names, and those that they name themselves."""
        if self.given is None:
            return
        folder = self.start if command is None else command.folder
        pending = [str(word).rpartition("=")[2] for word in words if isinstance(word, str)]
        for _ in range(2):
            inner: list[str] = []
            for file in pending[:_ITEMS]:
                if file.endswith(SETTINGS_ENDINGS):
                    config = self._config(folder, file, named=True)
                    if config is not None:
                        inner += [value for value in config.values.values() if isinstance(value, str)]
            pending = inner

    def _read_configs(self, python: Python) -> None:
        """Reads the files of settings that a program names itself, as long as they are in reach."""
        text = python.source.text
        for match in islice(_SETTINGS_FILE.finditer(text), _SETTINGS):
            python.config(match[1])
        if "hydra.main" in text:
            from webhook.programs.given import hydra_config

            for function in python.source.functions.values():
                hydra_config(python, function)

    def _module(self, module: str, command: Command | None) -> str | None:
        """The path of a module that is in reach, from where it is started; None where it may be installed."""
        folder = self.start if command is None else command.folder
        if self.given is None or not module or not all(map(str.isidentifier, module.split("."))):
            return None
        inside = module.replace(".", "/")
        for end in (".py", "/__main__.py"):
            path = joined(folder, inside + end)
            found = self.given.find(path if isinstance(path, str) else inside + end)
            if isinstance(found, File) and (
                found.origin.object.endswith("/" + inside + end) or not found.origin.object.startswith("Program/")
            ):
                return found.path
        return None

    def _by_first_line(self, file: str, command: Command | None) -> tuple[str, ...] | None:
        """The interpreter of a file in reach that is started by its name alone, as its first line has it."""
        path = joined(self.start if command is None else command.folder, file) if "/" in file else None
        if self.given is None or not isinstance(path, str) or not self.given.begins(path):
            return None
        found = self.given.find(path)
        if not isinstance(found, File):
            self._open(file, command)
            return None
        first = found.text[:256].partition("\n")[0]
        names = [_base(word) for word in first[2:].split()] if first[:2] == "#!" else []
        name = next((one for one in names if one in SHELLS or one.startswith("python")), "")
        return (name,) if name else None

    def _shell(
        self,
        name: str,
        words: Sequence[Value],
        places: Sequence[Place],
        env: Mapping[str, Value],
        command: Command | None,
        depth: int,
    ) -> None:
        options = ""
        at = 1
        while at < len(words) and isinstance(words[at], str) and words[at][:1] in ("-", "+"):
            word = words[at]
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
                line = command.document.line if command.document is not None else 0
                if text is not None:
                    place = _moved(command.place, line, self)
                    self._shell_text(text, place, name, options, env, depth, command.folder)
            elif at < len(words):
                self._shell_file(words[at], env, command, depth, words[at:])
            return
        if at >= len(words):
            return
        text = plain_text(words[at])
        place = places[at] if command is None else command.place
        if text is None:
            if not any(one == place for one, _ in self.unread):
                self.whole = False
            return
        where = Place(place.field, place.index, place.line or 1)
        folder = self.start if command is None else command.folder
        self._shell_text(text, where, name, options, env, depth, folder, "", tuple(words[at + 1 :]) or ("",))

    def _shell_file(
        self,
        file: Value,
        env: Mapping[str, Value],
        command: Command | None,
        depth: int,
        positional: Sequence[Value] | None = None,
    ) -> None:
        known = self.files.get(file) if isinstance(file, str) else None
        if known is None and isinstance(file, str):
            known = self.files.get(file.removeprefix("./")) or self._open(file, command)
        if known is None:
            if isinstance(file, str) and file.endswith(("activate", "bashrc", "profile", "setvars.sh", "conda.sh")):
                return
            if isinstance(file, str) and len(self.missing) < _PROGRAMS:
                self.missing.append(file)
            self.whole = False
            return
        before = len(self.shells)
        given = tuple(positional) if positional is not None else None
        folder = self.start if command is None else command.folder
        path = joined(folder, file)
        own = known[1].field if known[1].in_file else path if isinstance(path, str) else ""
        self._shell_text(known[0], known[1], "bash", "", env, depth + 1, folder, own, given)
        if len(self.shells) > before:
            self.shells[before].inline = False

    def _shell_text(
        self,
        text: str,
        place: Place,
        dialect: str,
        options: str,
        env: Mapping[str, Value],
        depth: int,
        folder: Value,
        file: str = "",
        positional: tuple[Value, ...] | None = None,
    ) -> None:
        if depth > _NESTED:
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
        try:
            shell = read_shell(text, place, env, dialect, options, positional, folder, file)
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
                self._run(
                    command.words,
                    command.raw,
                    [command.place] * len(command.words),
                    command.env,
                    command,
                    depth + 1,
                )
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

    def _launch(
        self,
        launcher: str,
        words: Sequence[Value],
        raws: Sequence[str],
        places: Sequence[Place],
        env: Mapping[str, Value],
        command: Command | None,
        depth: int,
        launchers: tuple[str, ...],
    ) -> None:
        """``torchrun [flags] train.py args``: the target is the first word that is a script, a module or a program."""
        bare = "--no-python" in words or "--no_python" in words
        for at in range(1, len(words)):
            word = words[at]
            if word in ("-m", "--module") and at + 1 < len(words):
                flags = _flags(words[1:at], raws[1:at], places[1:at])
                module = words[at + 1] if isinstance(words[at + 1], str) else ""
                own = self._module(module, command)
                if own is not None:
                    rest = slice(at + 1, None)
                    own_words = [own, *words[at + 2 :]]
                    self._script(own_words, raws[rest], places[rest], env, command, (*launchers, launcher), flags)
                    return
                self._add(
                    (*launchers, launcher),
                    "",
                    module,
                    "",
                    None,
                    words[at + 2 :],
                    raws[at + 2 :],
                    places[at + 1 :],
                    command,
                    flags,
                )
                self.whole = False
                return
            name = _base(word)
            if name.endswith(".py") or (bare and (name.startswith("python") or name in SHELLS)):
                flags = _flags(words[1:at], raws[1:at], places[1:at])
                self._run(words[at:], raws[at:], places[at:], env, command, depth, (*launchers, launcher), flags)
                return
            if isinstance(word, Text) and str(word.parts[-1]).endswith(".py"):
                break
        self.whole = False
        for at in range(1, len(words)):
            previous = head(words[at - 1])
            if not head(words[at]).startswith("-") and (at == 1 or not previous.startswith("-") or "=" in previous):
                flags = _flags(words[1:at], raws[1:at], places[1:at])
                rest = slice(at + 1, None)
                self._add(
                    (*launchers, launcher),
                    "",
                    "",
                    head(words[at]),
                    None,
                    words[rest],
                    raws[rest],
                    places[at:],
                    command,
                    flags,
                )
                return

    def _spread(
        self,
        launcher: str,
        words: Sequence[Value],
        raws: Sequence[str],
        places: Sequence[Place],
        env: Mapping[str, Value],
        command: Command | None,
        depth: int,
        launchers: tuple[str, ...],
    ) -> None:
        """``mpirun -np 8 python train.py``: the program is the first word that names one."""
        for at in range(1, len(words)):
            name = _base(words[at])
            if (
                name in SHELLS
                or name in TOOLS
                or name in ("torchrun", "deepspeed", "accelerate")
                or name.endswith((".py", ".sh"))
                or (name.startswith("python") and not head(words[at - 1]).startswith("-x"))
            ):
                flags = _flags(words[1:at], raws[1:at], places[1:at])
                self._run(words[at:], raws[at:], places[at:], env, command, depth, (*launchers, launcher), flags)
                return
        self.whole = False

    def _python(
        self,
        words: Sequence[Value],
        raws: Sequence[str],
        places: Sequence[Place],
        env: Mapping[str, Value],
        command: Command | None,
        depth: int,
        launchers: tuple[str, ...],
        launcher_flags: Mapping[str, Flag],
    ) -> None:
        at = 1
        while at < len(words):
            word = words[at]
            if not isinstance(word, str):
                if tail(word).endswith(".py"):
                    # "$(pwd)/train.py": its name is known, where it lies is not.
                    named = tail(word).rpartition("/")[2] if "/" in tail(word) else ""
                    own = [named, *words[at + 1 :]]
                    self._script(own, raws[at:], places[at:], env, command, launchers, launcher_flags)
                    return
                self.whole = False
                return
            if word == "-c" or (word[:1] == "-" and word[:2] != "--" and word.endswith("c") and len(word) < 5):
                if at + 1 < len(words):
                    text = plain_text(words[at + 1])
                    place = places[at + 1]
                    if text is None:
                        if not any(one.field == place.field and one.index == place.index for one, _ in self.unread):
                            self.whole = False
                        return
                    rest = slice(at + 2, None)
                    where = Place(place.field, place.index, place.line or 1)
                    self._text(
                        text, where, "", words[rest], raws[rest], places, env, command, launchers, launcher_flags
                    )
                return
            if word == "-m" or (word[:1] == "-" and word[:2] != "--" and word.endswith("m") and len(word) < 5):
                module = words[at + 1] if at + 1 < len(words) and isinstance(words[at + 1], str) else ""
                inner = _MODULES.get(module)
                if inner is not None:
                    self._run(
                        [*inner, *words[at + 2 :]],
                        [*inner, *raws[at + 2 :]],
                        [*[places[at]] * len(inner), *places[at + 2 :]],
                        env,
                        command,
                        depth,
                        launchers,
                    )
                elif (file := self._module(module, command)) is not None:
                    rest = slice(at + 1, None)
                    started = [file, *words[at + 2 :]]
                    self._script(started, raws[rest], places[rest], env, command, launchers, launcher_flags)
                elif module.partition(".")[0] not in _HARMLESS_MODULES:
                    rest = slice(at + 2, None)
                    self._add(
                        launchers,
                        "",
                        module,
                        "",
                        None,
                        words[rest],
                        raws[rest],
                        places[at + 1 :],
                        command,
                        launcher_flags,
                    )
                    self.whole = False
                return
            if word == "-":
                break
            if word in ("-W", "-X"):
                at += 2
                continue
            if word[:1] == "-":
                at += 1
                continue
            self._script(words[at:], raws[at:], places[at:], env, command, launchers, launcher_flags)
            return
        if command is None:
            return
        text = None
        line = 0
        if command.document is not None:
            text, line = command.document.text, command.document.line
        elif isinstance(command.here_string, Held):
            text, line = command.here_string.text, command.here_string.line
        elif command.here_string is not None:
            text = plain_text(command.here_string)
        if text is None:
            self.whole = False
            return
        rest = slice(at + 1, None)
        self._text(
            text,
            _moved(command.place, line, self),
            "",
            words[rest],
            raws[rest],
            places,
            env,
            command,
            launchers,
            launcher_flags,
        )

    def _script(
        self,
        words: Sequence[Value],
        raws: Sequence[str],
        places: Sequence[Place],
        env: Mapping[str, Value],
        command: Command | None,
        launchers: tuple[str, ...],
        launcher_flags: Mapping[str, Flag],
    ) -> None:
        file = words[0] if isinstance(words[0], str) else ""
        known = self.files.get(file) or self.files.get(file.removeprefix("./")) or self._open(file, command)
        if known is None and file:
            last = file.rpartition("/")[2]
            found = [one for name, one in self.files.items() if name.rpartition("/")[2] == last]
            known = found[0] if len(found) == 1 else None
        if known is None:
            if file and len(self.missing) < _PROGRAMS:
                self.missing.append(file)
            self.whole = False
            self._add(launchers, "", "", file, None, words[1:], raws[1:], places, command, launcher_flags)
            return
        self._text(known[0], known[1], file, words[1:], raws[1:], places, env, command, launchers, launcher_flags)

    def _text(
        self,
        text: str,
        place: Place,
        file: str,
        words: Sequence[Value],
        raws: Sequence[str],
        places: Sequence[Place],
        env: Mapping[str, Value],
        command: Command | None,
        launchers: tuple[str, ...],
        launcher_flags: Mapping[str, Flag],
    ) -> None:
        try:
            self.read_so_far += len(text)
            longest = _ALONE if self.launch.alone else LONGEST
            if self.read_so_far > 2 * longest:
                raise NotRead(f"its programs are longer than {2 * longest // 1024} KiB together")
            text = dedented(text)
            linked = self._linked(text, place, command, env)
            source = linked.source if linked is not None and linked.source is not None else python_source(text, longest)
        except NotRead as reason:
            self.unread.append((place, str(reason)))
            self.whole = False
            self._add(launchers, "", "", file, None, words, raws, places, command, launcher_flags)
            return
        python = Python(source, place, env, file, tuple(words), () if linked is None else linked.segments)
        python.folder = self.start if command is None else command.folder
        python.config = partial(self._config, python.folder)
        if self.given is not None:
            self._read_configs(python)
        self.pythons.append(python)
        self._add(launchers, "", "", file, python, words, raws, places, command, launcher_flags, inline=not file)

    def _linked(self, text: str, place: Place, command: Command | None, env: Mapping[str, Value]) -> Linked | None:
        """The program with the modules that it imports from beside it. Raises ``NotRead``."""
        if (self.given is None and len(self.files) < 2) or "import" not in text:
            return None
        from webhook.programs.linked import link

        start = self.start if command is None else command.folder
        folder = place.field.rpartition("/")[0] if place.in_file else start if isinstance(start, str) else ""
        more = [one for one in str(env.get("PYTHONPATH") or "").split(":") if one.startswith("/")][:_FOLDERS]
        if isinstance(start, str):
            more.append(start)

        def opened(path: str) -> tuple[str, Place] | None:
            written = self.files.get(path) or self.files.get(path.removeprefix(f"{folder}/"))
            if written is not None or self.given is None:
                return written
            found = self.given.beside(path)
            return None if found is None else (found.text, Place(found.path, 0, 1))

        linked = link(text, folder, more, opened, 2 * LONGEST - self.read_so_far)
        if linked.source is not None:
            self.read_so_far += len(linked.source.text) - len(text)
        if linked.left_out is not None:
            self.lost.setdefault(linked.left_out[0], Lost(linked.left_out[1]))
        return linked

    def _add(
        self,
        launchers: tuple[str, ...],
        tool: str,
        module: str,
        file: str,
        python: Python | None,
        words: Sequence[Value],
        raws: Sequence[str],
        places: Sequence[Place],
        command: Command | None,
        launcher_flags: Mapping[str, Flag],
        inline: bool = False,
    ) -> None:
        self._named_configs(words, command)
        own = tuple(places[-len(words) :]) if words else ()
        place = places[0] if places else Place("command", 0)
        if len(self.invocations) >= _PROGRAMS:
            if self.whole:
                self.unread.append((place, f"it starts more than {_PROGRAMS} programs"))
            self.whole = False
            return
        self.invocations.append(
            Invocation(
                launchers,
                tool,
                module,
                file,
                python,
                tuple(words),
                tuple(raws),
                own,
                place if command is None else command.place,
                command,
                launcher_flags,
                _flags(words, raws, own),
                inline,
                command.source if command is not None else "",
                self.start if command is None else command.folder,
            )
        )


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


def _base(word: Value) -> str:
    return word.rpartition("/")[2] if isinstance(word, str) and len(word) < 512 else ""


def _named(target: Value) -> bool:
    return isinstance(target, Text) and isinstance(target.parts[-1], str)


def _after_wrapper(name: str, words: Sequence[Value], at: int) -> int:
    """Past a wrapper's own flags and, for ``env``, its assignments; ``timeout`` and others take one more word."""
    while at < len(words):
        word = words[at]
        text = head(word)
        if text.startswith("-"):
            at += 1
            if text in ("-n", "-c", "-s", "--signal", "-k", "-u", "-o", "-i", "-e", "-m", "-N") and "=" not in text:
                follows = words[at] if at < len(words) else ""
                if isinstance(follows, str) and (follows.lstrip("-+").isalnum()) and _base(follows) not in SHELLS:
                    at += 1 if not follows.startswith("python") else 0
        elif (name == "env" and "=" in text and not text.startswith("/")) or (name == "timeout" and text[:1].isdigit()):
            at += 1
        else:
            break
    return at


def _with_assigned(env: Mapping[str, Value], words: Sequence[Value]) -> Mapping[str, Value]:
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


def _evaluated(
    words: Sequence[Value], raws: Sequence[str], places: Sequence[Place], env: Mapping[str, Value]
) -> tuple[Sequence[Value], Sequence[str], Sequence[Place]] | None:
    """The words of the one command that ``eval`` makes of its own; None where it makes several, or a pipeline."""
    if not words or not all(isinstance(word, str) for word in words):
        return words, raws, places
    try:
        shell = read_shell(" ".join(words), places[0], env, "bash", "")
    except NotRead:
        return None
    if len(shell.commands) != 1 or shell.commands[0].around or shell.faults:
        return None
    found = shell.commands[0]
    return found.words, found.raw, [places[0]] * len(found.words)


def _moved(place: Place, line: int, reader: _Reader) -> Place:
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


def _flags(words: Sequence[Value], raws: Sequence[str], places: Sequence[Place]) -> dict[str, Flag]:
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


def _expanded(item: str, env: Mapping[str, Value]) -> Value:
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
    from webhook.programs.values import join

    return join(out)


__all__ = ["Flag", "Invocation", "Script", "Unknown", "read_script"]
