"""From the effective pods to programs, and from what rules say of them to findings; what was worked out is kept.

A program is known by its texts (long ones by their SHA-256), the values of the variables that they mention, and its
launch. What rules said of it is kept longer than the parsed text itself (``webhook.model.caches``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from webhook.model.budget import PROGRAM_BYTES, Reading
from webhook.model.caches import cache, weight_of
from webhook.model.files import File, Files
from webhook.model.finding import Finding, Origin
from webhook.model.pod import EffectiveJob, EffectiveSet, Raw
from webhook.model.script import Launch, Lines, Look, Place, Program, ProgramFact, Remark, Remarks, Written
from webhook.programs.held import held, hold
from webhook.programs.values import UNKNOWN, Text, Unknown, Value
from webhook.programs.words import INITS, LAUNCHERS, LONGEST, SHELLS, TOOLS, WRAPPERS

if TYPE_CHECKING:
    from webhook.programs.program import Script

_READ: Final = cache("programs")
"""(digest, values, launch) -> Script"""
_REMARKS: Final = cache("remarks")
"""(digest, values, launch) -> {rule: remarks}"""
_DIGESTS: Final = cache("digests")
"""long texts -> digest: those of a runtime are the same objects each time, so they are found without being read"""
_SHORT: Final = 4096
"""Characters of all texts of a program that is its own key: hashlib is dear to import, and a string keeps its hash."""
_DIRECTORIES: Final = cache("directories")
"""(digest, values) -> (the directory that the program writes to,)"""
RUN: Final = "\ua66e"
"""Stands for what the declared directory has below its mount: each run has its own, and the program reads the same."""
_TELLING: Final = ("checkpoint", "ckpt", "step", "epoch", "iter", "tmp")
"""Words that mean something to the rules wherever they stand: a directory with one of them is read as it is."""
_MENTIONED: Final = cache("mentions")
"""digest -> the names that the texts mention as variables"""

_VARIABLES: Final = 256
"""Variables of a container that a program in a file is told."""
_LEAST: Final = 8192
"""Bytes of an entry whose key is no longer than ``_SHORT``, but for what is kept under it."""
_LETTER: Final = 128
"""Bytes of what is read for each character of a program."""

Environment = Callable[[EffectiveJob, Raw], Mapping[str, Any]]
"""A container's variables as ``webhook.effective.expansion`` evaluates them."""
LaunchOf = Callable[[EffectiveJob, Raw], Launch]
FilesOf = Callable[[EffectiveJob, Raw, Sequence[Any], Sequence[Any]], Files | None]
"""(job, container, command, args) -> the files in reach that the command may name."""

_PROGRAMS: Final = SHELLS | INITS | LAUNCHERS | TOOLS | WRAPPERS


def find_programs(
    effective: EffectiveSet, environment: Environment, launch_of: LaunchOf, files_of: FilesOf | None = None
) -> tuple[Program, ...]:
    """The programs of the training containers whose command says anything. Nothing is parsed yet."""
    found: list[Program] = []
    room = Reading()
    for job in effective.jobs:
        if job.trains:
            for container in job.training_containers():
                command = container.get("command") or ()
                args = container.get("args") or ()
                if not command and not args:
                    continue
                files = None if files_of is None else files_of(job, container, command, args)
                if _is_legible((*command[:1], *args[:1]), files):
                    if room.takes((*command, *args), LONGEST, (0, 0) if files is None else files.size):
                        found.append(_program(job, container, command, args, environment, launch_of, files))
                    else:
                        found.append(_cut(job, container, "args" if args else "command", launch_of))
    return tuple(found)


def _cut(job: EffectiveJob, container: Raw, field: str, launch_of: LaunchOf) -> Program:
    """A program that is not read, since those before it are as much as one review reads."""

    def read() -> Script:
        from webhook.programs.program import Script

        reason = f"the programs before it are as much as one review reads, {PROGRAM_BYTES // 1024} KiB"
        return Script(launch_of(job, container), unread=((Place(field, 0), reason),), whole=False)

    return Program(job, container, Remarks(), read)


def _is_legible(first: Sequence[Any], files: Files | None) -> bool:
    for word in first:
        if isinstance(word, str):
            if files is not None and files.begins(word):
                return True
            name = word.rpartition("/")[2] if len(word) < 512 else ""
            return name in _PROGRAMS or name.startswith("python") or name.endswith((".py", ".sh"))
    return False


def _program(
    job: EffectiveJob,
    container: Raw,
    command: Sequence[Any],
    args: Sequence[Any],
    environment: Environment,
    launch_of: LaunchOf,
    files: Files | None,
) -> Program:
    digest, env = _known(job, container, command, args, environment, files)
    launch = launch_of(job, container)
    common = _without_run(env, launch, command, args)
    if common is None:
        return _cached(job, container, command, args, digest, env, launch, files)
    program = _cached(job, container, command, args, digest, *common, files)
    program.named = lambda: _cached(job, container, command, args, digest, env, launch, files)
    return program


def _cached(
    job: EffectiveJob,
    container: Raw,
    command: Sequence[Any],
    args: Sequence[Any],
    digest: Any,
    env: dict[str, Value],
    launch: Launch,
    files: Files | None,
) -> Program:
    key = _known_by(digest, env, launch, files)
    remarks = _REMARKS.get(key)
    if remarks is None:
        remarks = Remarks()
        _REMARKS.put(key, remarks, _LEAST)
        remarks.grown = partial(_REMARKS.grow, key)

    def read() -> Script:
        script = held(key)
        if script is None:
            script = _READ.get(key)
            if script is None:
                from webhook.programs.reading import read_script

                script = read_script(command, args, env, launch, reach=files)
                _READ.put(key, script, _weight(command, args, env, launch, files))
            hold(key, script)
        return script  # type: ignore[no-any-return]

    return Program(job, container, remarks, read, files=files)


def _weight(
    command: Sequence[Any], args: Sequence[Any], env: Mapping[str, Value], launch: Launch, files: Files | None
) -> int:
    """What a program that was read holds: what is made of its text, and the values that were put into it."""
    length = sum(map(len, command)) + sum(map(len, args)) + (0 if files is None else files.size[0])
    values = sum(weight_of(value) for value in env.values()) + weight_of(
        (launch.mounts, launch.directories, launch.fast)
    )
    return _LEAST + _LETTER * length + 4 * values


def _known_by(digest: Any, env: Mapping[str, Value], launch: Launch | None, files: Files | None = None) -> Any:
    """The key of a program: what it is known by, or a digest of that where it is long."""
    length = 0 if files is None else _SHORT + 1
    for name, value in env.items():
        length += len(name) + (len(value) if isinstance(value, str) else 256)
    if launch is not None:
        length += sum(map(len, launch.mounts)) + sum(map(len, launch.directories)) + sum(map(len, launch.fast))
    key = digest, tuple(env.items()), launch, None if files is None else files.key
    if length <= _SHORT:
        return key
    from hashlib import blake2b

    return blake2b(repr(key).encode("utf-8", "surrogatepass")).digest()


def _without_run(
    env: dict[str, Value], launch: Launch, command: Sequence[Any], args: Sequence[Any]
) -> tuple[dict[str, Value], Launch] | None:
    """Variables and launch with ``RUN`` for the run's own part of its directory: the same for every run of a runtime.

    None where nothing is the run's own, and where that part may also be written elsewhere: then it is no mere name.
    """
    own = _own_part(launch)
    if not own:
        return None
    for items in (command, args):
        for item in items:
            if own in item and len(item) <= LONGEST:
                return None
    directories = _renamed(launch.directories, own)
    fast = _renamed(launch.fast, own)
    if directories is None or fast is None:
        return None
    common: dict[str, Value] = {}
    for name, value in env.items():
        if not isinstance(value, str):
            if own in repr(value):
                return None
        elif own in value:
            renamed = _renamed((value,), own)
            if renamed is None:
                return None
            value = renamed[0]
        common[name] = value
    return common, replace(launch, directories=directories, fast=fast)


def _own_part(launch: Launch) -> str:
    """What the first declared directory has below the mount it lies on; empty where that is nothing or telling."""
    if not launch.directories:
        return ""
    directory = launch.directories[0]
    longest = 0
    for mount in launch.mounts:
        size = len(mount)
        if size > longest and directory.startswith(mount) and directory[size : size + 1] == "/":
            longest = size
    if longest < 2:
        return ""
    own = directory[longest + 1 :]
    low = own.lower()
    for word in _TELLING:
        if word in low:
            return ""
    for mount in launch.mounts:
        if own in mount:
            return ""
    return own


def _renamed(paths: tuple[str, ...], own: str) -> tuple[str, ...] | None:
    """The paths with ``RUN`` where ``own`` is a whole part of one; None where it is more often there, or otherwise."""
    if not paths:
        return paths
    out: list[str] = []
    for path in paths:
        if own in path:
            before, _, after = path.partition(own)
            if before[-1:] not in _PATH_ENDS or after[:1] not in _PATH_ENDS or own in after:
                return None
            path = before + RUN + after
        out.append(path)
    return tuple(out)


_PATH_ENDS: Final = ("", "/")


def find_directory(
    job: EffectiveJob,
    container: Raw,
    environment: Environment,
    directory_of: Callable[[Script], Written | None],
    room: Reading,
    files_of: FilesOf | None = None,
) -> tuple[Written, Origin] | None:
    """The directory that a container's program writes its checkpoints to, as ``directory_of`` tells it; cached.

    None too where there is no ``room`` left to read the program.
    """
    command = container.get("command") or ()
    args = container.get("args") or ()
    if not (command or args):
        return None
    files = None if files_of is None else files_of(job, container, command, args)
    if not _is_legible((*command[:1], *args[:1]), files):
        return None
    if not room.takes((*command, *args), LONGEST, (0, 0) if files is None else files.size):
        return None
    digest, env = _known(job, container, command, args, environment, files)
    mounts = tuple([mount.get("mountPath") or "" for mount in container.get("volumeMounts") or ()])
    launch = Launch(mounts=mounts, working_dir=container.get("workingDir") or "")
    key = _known_by(digest, env, launch, files)
    found = _DIRECTORIES.get(key)
    if found is None:
        from webhook.programs.reading import read_script

        found = (directory_of(read_script(command, args, env, launch, reach=files)),)
        _DIRECTORIES.put(key, found, _LEAST)
    written = found[0]
    return None if written is None else (written, origin_of(job, container, written.place, files))


def _known(
    job: EffectiveJob,
    container: Raw,
    command: Sequence[Any],
    args: Sequence[Any],
    environment: Environment,
    files: Files | None,
) -> tuple[Any, dict[str, Value]]:
    """What a program is known by: its texts (or their digest), and the variables that they mention, with values."""
    digest = _key(command, args)
    mentioned = _MENTIONED.get(digest)
    if mentioned is None:
        mentioned = _mentions((*command, *args))
        _MENTIONED.put(digest, mentioned, _LEAST + weight_of(mentioned))
    env: dict[str, Value] = {}
    if files is not None:
        # Their texts are not looked through: any of the variables may be read there.
        mentioned = frozenset([str(one.get("name")) for one in container.get("env") or ()][:_VARIABLES])
    if mentioned:
        whole: Mapping[str, Any] | None = None
        for variable in container.get("env") or ():
            name = variable.get("name")
            if name not in mentioned:
                continue
            value = variable.get("value")
            if isinstance(value, str) and "$" not in value:
                env[name] = value
            else:
                if whole is None:
                    whole = environment(job, container)
                env[name] = _value_of(name, whole[name])
    return digest, env


def _key(command: Sequence[Any], args: Sequence[Any]) -> Any:
    texts = (*command, None, *args)
    length = sum(map(len, command)) + sum(map(len, args))
    if length <= _SHORT:
        return texts
    digest = _DIGESTS.get(texts)
    if digest is None:
        digest = _digest(command, args)
        _DIGESTS.put(texts, digest, weight_of(texts))
    return digest


def _digest(command: Sequence[Any], args: Sequence[Any]) -> bytes:
    """Items too long to be read count by their length and ends: a hostile one costs nothing."""
    from hashlib import sha256

    known = sha256()
    for mark, items in ((b"c", command), (b"a", args)):
        for item in items:
            if not isinstance(item, str):
                continue
            if len(item) > LONGEST:
                known.update(b"%s%d:" % (mark, len(item)))
                continue
            data = item.encode("utf-8", "surrogatepass")
            known.update(b"%s%d:" % (mark, len(data)))
            known.update(data)
    return known.digest()


def _mentions(items: Sequence[Any]) -> frozenset[str]:
    """Names that stand behind ``$``, ``${``, ``$(`` or a quote: more than the variables used, and never fewer."""
    import re

    found: set[str] = set()
    for item in items:
        if isinstance(item, str) and len(item) <= LONGEST and ("$" in item or "environ" in item or "getenv" in item):
            found.update(re.findall(r"""[$"'({]([A-Za-z_][A-Za-z0-9_]*)""", item))
    return frozenset(found)


def _value_of(name: str, value: Any) -> Value:
    """What ``webhook.effective.expansion`` says of a variable, in our terms."""
    if value.unknown:
        return Unknown("", f"${name}")
    if not value.per_pod and "<" not in value.text:
        return value.text
    if "job-completion-index" in value.text:
        return Unknown("rank", f"${name}")
    if any(one not in ("spec.nodeName", "status.hostIP", "status.hostIPs") for one in value.per_pod):
        return _around(value.text, Unknown("fresh", f"${name}"))
    if value.per_pod:
        return _around(value.text, Unknown("host", f"${name}"))
    return Unknown("", f"${name}")


def _around(text: str, unknown: Unknown) -> Value:
    before, _, rest = text.partition("<")
    after = rest.rpartition(">")[2]
    parts = tuple(part for part in (before, unknown, after) if part != "")
    return parts[0] if len(parts) == 1 else Text(parts)


def program_findings(programs: Iterable[Program], rule: str, look: Look, why: str) -> Iterator[Finding]:
    """What ``look`` says of each program, as findings at the line of the field that the user edits.

    ``why`` says what is lost, where a remark does not.
    """
    for program in programs:
        for remark in remarks_on(program, rule, look):
            concealed = None
            if is_concealed(program, remark):
                concealed = origin_of(program.job, program.container, Place(_field_of(program.container), 0)), why
            yield Finding(
                origin_of(program.job, program.container, remark.place, program.files),
                remark.problem,
                remark.fix,
                remark.at_most,
                job=program.job.name,
                container=str(program.container.get("name") or ""),
                subject=remark.subject,
                why=remark.why or why,
                measure=remark.measure,
                concealed=concealed,
            )


def _field_of(container: Raw) -> str:
    return "args" if container.get("args") else "command"


def is_concealed(program: Program, remark: Remark) -> bool:
    """Whether a remark tells what stands in a mounted file, which whoever sends the object may not be able to read."""
    if program.files is None:
        return False
    if remark.place.in_file:
        return True
    own = [*(program.container.get("command") or ()), *(program.container.get("args") or ())]
    own += [str(one.get("value")) for one in program.container.get("env") or ()]
    return any(not any(value in text for text in own) for value in remark.problem.split('"')[1::2])


def remarks_on(program: Program, rule: str, look: Look) -> tuple[Remark, ...]:
    """What ``look`` says of one program; cached."""
    remarks = _remarks(program, rule, look)
    if remarks and program.named is not None and any(map(_mentions_run, remarks)):
        remarks = _remarks(program.named(), rule, look)
    return remarks


def _remarks(program: Program, rule: str, look: Look) -> tuple[Remark, ...]:
    remarks = program.remarks.get(rule)
    if remarks is None:
        script = program.read()
        remarks = program.remarks[rule] = tuple([_in_its_file(script, remark) for remark in look(script)])
    return remarks


def _in_its_file(script: Script, remark: Remark) -> Remark:
    """The remark with the lines of its fix counted in the module that it is about, where it is about one."""
    fix = remark.fix
    if not isinstance(fix, Lines):
        return remark
    for python in script.pythons:
        base = max(python.place.line, 1) - 1
        if not python.segments or fix.first - base < python.segments[0][0]:
            continue
        if python.at(fix.first - base).field != remark.place.field:
            continue
        first = python.at(fix.first - base).line
        moved = first - fix.first
        # Where the module's imports stand nobody has looked: one that the fix brings stays in front of it.
        return replace(remark, fix=Lines(str(fix), first, fix.last + moved, fix.like + moved, 0, fix.whole))
    return remark


def _mentions_run(remark: Remark) -> bool:
    texts = (remark.problem, remark.fix, remark.subject, remark.why or "", remark.directory)
    return any(RUN in text for text in texts)


def fact_of(program: Program) -> ProgramFact:
    """How much of a program was read; cached."""
    fact = program.remarks.fact
    if fact is None:
        from webhook.programs.fact import fact_of as told_of

        fact = program.remarks.fact = told_of(program.read())
    if program.named is not None and any(RUN in text for text in (fact.path or "", fact.reason or "")):
        return fact_of(program.named())
    return fact


def origin_of(job: EffectiveJob, container: Raw, place: Place, files: Files | None = None) -> Origin:
    """``spec.trainer.args[0] line 14``; of a file in reach ``data[train.py] line 14`` of its ConfigMap."""
    if files is not None and place.in_file:
        found = files.find(place.field)
        if isinstance(found, File):
            line = f" line {place.line}" if place.line else ""
            field, short = f"{found.origin.field}{line}".strip(), f"{found.origin.short}{line}".strip()
            return Origin(found.origin.object, field, short)
    origin = job.container_field_origin(str(container.get("name") or ""), place.field)
    line = f" line {place.line}" if place.line else ""
    at = f"{origin.field}[{place.index}]{line}" if origin.field else ""
    return Origin(origin.object, at, f"{place.field}[{place.index}]{line}")


def clear() -> None:
    """Forget everything (tests, measurements)."""
    for store in (_DIGESTS, _READ, _REMARKS, _DIRECTORIES, _MENTIONED):
        store.clear()
    from webhook.programs import sources

    sources.clear()


__all__ = [
    "UNKNOWN",
    "clear",
    "fact_of",
    "find_directory",
    "find_programs",
    "is_concealed",
    "origin_of",
    "program_findings",
    "remarks_on",
]
