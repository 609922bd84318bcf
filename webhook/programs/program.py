"""The programs that a container runs, with their texts, flags and configuration files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from webhook.model.files import FROM_CHECKOUT, File, Files, Lost
from webhook.model.path import components
from webhook.model.script import Launch, Place
from webhook.programs.config import Config, read_config
from webhook.programs.folders import changed, joined
from webhook.programs.line import Flag, Line, flags_of
from webhook.programs.python import Python
from webhook.programs.shell import Command, NotRead, Shell
from webhook.programs.sources import dedented, python_source
from webhook.programs.values import UNKNOWN, Value, head
from webhook.programs.words import LONGEST

if TYPE_CHECKING:
    from webhook.programs.linked import Linked

_ITEMS: Final = 4096
"""Items of ``command`` and of ``args`` that are looked at."""
_LONGEST_PATH: Final = 4096
_SETTINGS: Final = 32
"""Configuration files of one container."""
SETTINGS_ENDINGS: Final = (".yaml", ".yml", ".json", ".toml")
_SETTINGS_FILE: Final = re.compile(r"""["']([\w./-]+\.(?:ya?ml|json|toml))["']""")
_FOLDERS: Final = 8
"""Of PYTHONPATH."""
_OPENED: Final = 96 * 1024
"""Characters of files in reach that are read for one container."""
PROGRAMS: Final = 128
"""Programs of one container that are looked at."""
_ALONE: Final = 256 * 1024
"""Characters of a Python text that somebody reviews without a cluster: it is their own machine."""


class Invocation(Struct, kw_only=True):
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
    checkout: bool = False
    """Whether all that the image is built from is in reach, so that what is imported from elsewhere is a package."""
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
        if self.on_volume(path):
            return True
        if not self.launch.directories or not beginning or "://" in beginning:
            return False
        if beginning[0] == "/":
            # Beside the program, by ``os.path.dirname(__file__)`` or ``os.getcwd()``.
            here = self.pythons[0].folder if self.pythons else None
            return isinstance(here, str) and here.strip("/") != "" and lies_in(path, here)
        return beginning[0] not in "~$"

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


_OF_CHECKOUT: Final = 4
"""Times the longest text that a program and its modules may have together, where a command reads a checkout."""


class Gathered:
    """What is found of a container so far, and the files in reach."""

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
        self.checkout = reach is not None and reach.checkout
        self.longest = FROM_CHECKOUT if self.checkout else LONGEST
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

    def folder_of(self, command: Command | None) -> Value:
        """Where a command is started, from the root."""
        return self.start if command is None else command.folder

    def open(self, file: str, command: Command | None) -> tuple[str, Place] | None:
        """The text of a file that is in reach, and its place; None where it is not."""
        if self.given is None or not file or len(file) > _LONGEST_PATH:
            return None
        folder = self.folder_of(command)
        path = joined(folder, file)
        found = self.given.find(path if isinstance(path, str) else file)
        if isinstance(found, Lost):
            if len(self.lost) < PROGRAMS:
                self.lost[path if isinstance(path, str) else file] = found
            return None
        if found is None:
            return None
        place = Place(found.path, 0, 1)
        self.opened += len(found.text)
        longest, opened = self.longest, _OPENED * self.longest // LONGEST
        if len(found.text) > longest or self.opened > opened:
            most = longest if len(found.text) > longest else opened
            more = "" if len(found.text) > longest else " with those before it"
            self.unread.append((Place(found.path, 0), f"it is longer than {most // 1024} KiB{more}"))
            return None
        if not found.executable and command is not None and command.words and command.words[0] == file:
            self.lost[found.path] = Lost("its mode does not let it be executed: defaultMode: 0755")
        return found.text, place

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
        folder = self.folder_of(command)
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

    def module(self, module: str, command: Command | None) -> str | None:
        """The path of a module that is in reach, from where it is started; None where it may be installed."""
        folder = self.folder_of(command)
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

    def text(self, text: str, place: Place, file: str, line: Line) -> None:
        """Takes in a Python program by its text; ``line`` starts it."""
        try:
            self.read_so_far += len(text)
            longest = _ALONE if self.launch.alone else self.longest
            if self.read_so_far > (_OF_CHECKOUT if self.checkout else 2) * longest:
                most = (_OF_CHECKOUT if self.checkout else 2) * longest
                raise NotRead(f"its programs are longer than {most // 1024} KiB together")
            text = dedented(text)
            linked = self._linked(text, place, line.command, line.env)
            source = linked.source if linked is not None and linked.source is not None else python_source(text, longest)
        except NotRead as reason:
            self.unread.append((place, str(reason)))
            self.whole = False
            self.add(line, file=file)
            return
        segments = () if linked is None else linked.segments
        python = Python(source, place, line.env, file, tuple(line.words[1:]), segments)
        python.folder = self.folder_of(line.command)
        python.config = partial(self._config, python.folder)
        if self.given is not None:
            self._read_configs(python)
        self.pythons.append(python)
        self.add(line, file=file, python=python, inline=not file)

    def _linked(self, text: str, place: Place, command: Command | None, env: Mapping[str, Value]) -> Linked | None:
        """The program with the modules that it imports from beside it. Raises ``NotRead``."""
        if (self.given is None and len(self.files) < 2) or "import" not in text:
            return None
        from webhook.programs.linked import link

        start = self.folder_of(command)
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

        room = (_OF_CHECKOUT if self.checkout else 2) * self.longest
        linked = link(text, folder, more, opened, room - self.read_so_far)
        if linked.source is not None:
            self.read_so_far += len(linked.source.text) - len(text)
        if linked.left_out is not None:
            self.lost.setdefault(linked.left_out[0], Lost(linked.left_out[1]))
        return linked

    def add(
        self,
        line: Line,
        *,
        tool: str = "",
        module: str = "",
        file: str = "",
        python: Python | None = None,
        inline: bool = False,
    ) -> None:
        """Takes in that a program is run; the first word of ``line`` names it or its interpreter."""
        command, words, raws = line.command, line.words[1:], line.raws[1:]
        self._named_configs(words, command)
        own = tuple(line.places[-len(words) :]) if words else ()
        place = line.places[0] if line.places else Place("command", 0)
        if len(self.invocations) >= PROGRAMS:
            if self.whole:
                self.unread.append((place, f"it starts more than {PROGRAMS} programs"))
            self.whole = False
            return
        self.invocations.append(
            Invocation(
                launchers=line.launchers,
                tool=tool,
                module=module,
                file=file,
                python=python,
                arguments=tuple(words),
                raws=tuple(raws),
                places=own,
                place=place if command is None else command.place,
                command=command,
                launcher_flags=line.flags,
                flags=flags_of(words, raws, own),
                inline=inline,
                source=command.source if command is not None else "",
                folder=self.folder_of(command),
            )
        )
