"""The command line: ``ckptguard COMMAND ...``.

A command is a module with ``configure(parser)`` and ``run(arguments) -> exit code``, and one line in ``COMMANDS``. Only
the module of the command that was asked for is imported, since the start-up time of ``review`` is part of its contract.
Other distributions add commands through the entry point group ``checkpoint_guard.commands``.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

Commands = Mapping[str, tuple[str, str]]

COMMANDS: Final[Commands] = {
    "review": ("webhook.cli.review", "review TrainJobs, runtimes and programs from files: would the run resume?"),
    "fix": ("webhook.cli.fix", "apply fixes to the files and review them again"),
    "pods": ("webhook.cli.pods", "show the pods that Trainer builds, and where each field comes from"),
    "rules": ("webhook.cli.rules", "list the rules, or explain one"),
    "frameworks": ("webhook.cli.frameworks", "how each framework saves, resumes and keeps checkpoints"),
    "policy": ("webhook.cli.policy", "check, explain, compare and test policy files"),
    "preview": ("webhook.cli.preview", "which requests of the audit log would enforce, or a new policy, refuse?"),
    "audit": ("webhook.cli.audit", "find lines in the audit log, or count them"),
    "serve": ("webhook.cli.serve", "run the admission webhook"),
    "install-check": (
        "webhook.cli.install_check",
        "check that the API server calls the webhook and gets correct answers",
    ),
    "runtimes": ("webhook.cli.runtimes", "list runtimes without our defaults; --heal adds them where it is safe"),
    "uninstall": ("webhook.cli.uninstall", "remove the webhook configurations and what the guard created"),
    "scan": ("webhook.cli.scan", "review the unfinished runs and the runtimes in a cluster"),
    "preflight": ("webhook.cli.preflight", "before a platform change: which unfinished runs will not come back"),
    "runs": ("webhook.cli.runs", "list runs: state, newest checkpoint, restarts, what each waits for"),
    "checkpoints": ("webhook.cli.checkpoints", "list a run's checkpoints, and which one a restart uses"),
    "prune": ("webhook.cli.prune", "remove a run's older checkpoints; the newest complete ones stay"),
    "stop": ("webhook.cli.stop", "suspend a run and wait until its pods are gone"),
    "resume": ("webhook.cli.resume", "resume a suspended run and report the step it continued from"),
    "drill": ("webhook.cli.drill", "interrupt a run once and check that it resumes"),
    "rescue": ("webhook.cli.rescue", "free a run that JobSet holds, or whose machine is off"),
    "rehearse": ("webhook.cli.rehearse", "run a program, interrupt it, and see whether it goes on"),
    "delete": ("webhook.cli.delete", "delete a run; its checkpoints stay"),
    "convert": ("webhook.cli.convert", "convert a PyTorchJob, MPIJob or RunWhere Training to a TrainJob"),
    "init": ("webhook.cli.init", "generate a claim, a runtime and a TrainJob that pass review"),
    "help": ("webhook.cli.help", "show help for a command"),
    "version": ("webhook.cli.version", "print the version"),
    "completion": ("webhook.cli.completion", "print a completion script for bash, zsh or fish"),
}
"""Name -> module and one line of help. Add a command here."""

GROUP: Final = "checkpoint_guard.commands"


def main(argv: Sequence[str] | None = None, commands: Commands = COMMANDS) -> int:
    """Run one command and return its exit code. Never a traceback: an error of ours is one line and exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Modules and documents stay until the end: to look through them every 700 objects took a tenth of the time.
    gc.set_threshold(50_000, 20, 100)
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(arguments, commands)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _let_go()
        return 2
    except Exception as error:
        from webhook.cli.output import complain

        complain([_missing(error) or _bug(error)])
        return 2


def _open_closed() -> None:
    """Python has None for a stream that is closed (``>&-``): what goes there is not wanted, and it holds nothing."""
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        import os

        # In this order each gets back its own number.
        sys.stdin = sys.stdin or open(os.devnull)  # noqa: PTH123, SIM115
        sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115
        sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115


def _run(arguments: list[str], commands: Commands) -> int:
    name = arguments[0] if arguments else ""
    if name and not name.startswith("-"):
        command, summary = load(name, commands)
        if command is not None:
            parser: argparse.ArgumentParser = _Parser(
                prog=f"{_prog()} {name}", description=summary, formatter_class=_formatter, allow_abbrev=False
            )
            command.configure(parser)
            # Files may stand on both sides of a flag.
            parse = parser.parse_intermixed_args if getattr(command, "INTERMIXED", False) else parser.parse_args
            return int(command.run(parse(arguments[1:])))
        from webhook.cli.output import complain
        from webhook.model.nearest import near

        close = near(name, known_commands(commands))
        meant = f"; nearest: {close}" if close else ""
        complain([f'error: unknown command "{name}"{meant}; see {_prog()} --help'])
        return 2
    parser = _overview(commands)
    parser.parse_args(arguments)
    parser.print_help(sys.stderr)
    return 2


class _Parser(argparse.ArgumentParser):
    """An argument that is told back is shown as what a terminal does not act on."""

    def error(self, message: str) -> NoReturn:
        from webhook.model.printable import printable

        super().error(printable(message))


def load(name: str, commands: Commands) -> tuple[Any, str]:
    """A command's module and its line of help; None and nothing where there is no such command."""
    if name in commands:
        from importlib import import_module

        _import_msgspec()
        module, summary = commands[name]
        return import_module(module), summary
    for entry in _elsewhere():
        if entry.name == name:
            command = entry.load()
            return command, _summary(command)
    return None, ""


def _import_msgspec() -> None:
    """msgspec without typing_extensions, of which it takes two names that ``typing`` has since Python 3.11.

    That saves a tenth of the start-up time of ``review``. Whoever needs typing_extensions later still gets it.
    """
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


def _elsewhere() -> Any:
    """Commands of other distributions."""
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def _formatter(prog: str) -> argparse.HelpFormatter:
    """argparse's own, told the width: left to itself it imports shutil for every flag's sake, help or not."""
    import os

    try:
        width = os.get_terminal_size().columns
    except (OSError, ValueError):
        width = 100
    return argparse.HelpFormatter(prog, width=max(min(width, 120), 40) - 2)


def _overview(known: Commands) -> argparse.ArgumentParser:
    """The parser of the bare ``ckptguard``: help and version."""
    import webhook

    commands = known_commands(known)
    width = max(len(name) for name in commands)
    parser = argparse.ArgumentParser(
        prog=_prog(),
        usage="%(prog)s COMMAND ...",
        description="Would this Kubeflow TrainJob come back from where it stopped?",
        epilog="commands:\n"
        + "\n".join(f"  {name:<{width}}  {summary}" for name, summary in commands.items())
        + f"\n\n{_prog()} COMMAND --help says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ckptguard {webhook.__version__}")
    return parser


def known_commands(known: Commands) -> dict[str, str]:
    """Every command, those of other distributions too, and its line of help."""
    commands = {name: summary for name, (_, summary) in known.items()}
    for entry in _elsewhere():
        commands.setdefault(entry.name, _summary(entry.load()))
    return commands


def _summary(command: Any) -> str:
    """The first line of what a command says about itself."""
    return (command.__doc__ or "").strip().partition("\n")[0]


def _prog() -> str:
    """The name to print: kubectl runs ``kubectl-ckptguard`` as ``kubectl ckptguard``."""
    called = sys.argv[0].replace("\\", "/").rpartition("/")[2]
    return "kubectl ckptguard" if called.startswith("kubectl-") else "ckptguard"


def _missing(error: Exception) -> str:
    """What to install, where a library is missing: ``python -m webhook`` by another Python than the set-up one."""
    name = (getattr(error, "name", None) or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if not name or name == "webhook":
        return ""
    return f"error: {sys.executable} has no library {name}: pip install ., or use .venv/bin/ckptguard after make setup"


def _bug(error: Exception) -> str:
    """One line that names the fault and its place in our own code."""
    trace = error.__traceback__
    place = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if "webhook" in code.co_filename:
            place = f" in {code.co_filename.rpartition('webhook')[2].lstrip('/')} line {trace.tb_lineno}"
        trace = trace.tb_next
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return f"error: a fault of ckptguard itself, not of your files ({what[:300]}{place}): report it with the command"


def _let_go() -> None:
    """The reader of our output has gone: nothing more is written, not even at exit."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
