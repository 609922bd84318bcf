"""``ckptguard completion bash|zsh|fish``: a script that completes commands, flags and what flags take.

It is made from the parsers themselves, so that no flag is forgotten; the script asks nothing of this program later.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from webhook.cli.output import write_text

SHELLS: Final = ("bash", "zsh", "fish")
_USE: Final = {
    "bash": "source <(ckptguard completion bash)    # in ~/.bashrc",
    "zsh": "source <(ckptguard completion zsh)    # in ~/.zshrc, after compinit",
    "fish": "ckptguard completion fish | source    # in ~/.config/fish/config.fish",
}
_FILES: Final = ("FILE", "PATH", "DIR", "LOG")
"""What the name of a flag's value holds where it is a file."""


class Flag(NamedTuple):
    """A flag: its spellings, what it takes (None: nothing), whether that is a file, what there is to choose from."""

    names: tuple[str, ...]
    takes: str | None
    files: bool
    choices: tuple[str, ...]
    help: str


class Command(NamedTuple):
    """A command; ``path`` has more than one word for an action of it, such as ``certs run``."""

    path: tuple[str, ...]
    summary: str
    flags: tuple[Flag, ...]
    words: tuple[str, ...]
    """What may stand as an argument; empty where that is a file."""
    files: bool
    """Whether arguments are files."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that the script is for")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(("to use it:", *(f"  {line}" for line in _USE.values())))


def run(arguments: argparse.Namespace) -> int:
    """0."""
    made = list(commands())
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell](made)
    write_text("\n".join(script) + "\n")
    return 0


def commands() -> Iterator[Command]:
    """Every command and every action of one, as its parser has it."""
    from webhook.cli import COMMANDS, known_commands, load

    summaries = known_commands(COMMANDS)
    words = {"rules": _rule_ids(), "frameworks": _framework_ids(), "help": tuple(summaries)}
    for name, summary in summaries.items():
        parser = argparse.ArgumentParser(prog=f"ckptguard {name}", allow_abbrev=False)
        load(name, COMMANDS)[0].configure(parser)
        yield from _commands((name,), summary, parser, words.get(name, ()))


def _commands(
    path: tuple[str, ...], summary: str, parser: argparse.ArgumentParser, words: tuple[str, ...]
) -> Iterator[Command]:
    flags: list[Flag] = []
    below: dict[str, tuple[str, argparse.ArgumentParser]] = {}
    files = False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            told = {choice.dest: choice.help or "" for choice in action._choices_actions}
            below = {name: (told.get(name, ""), one) for name, one in action.choices.items()}
        elif action.option_strings:
            flags.append(_flag(parser, action))
        else:
            words += tuple(str(choice) for choice in action.choices or ())
            files = files or _is_file(action)
    yield Command(path, summary, tuple(flags), words + tuple(below), files)
    for name, (help_text, one) in below.items():
        yield from _commands((*path, name), help_text, one, ())


def _flag(parser: argparse.ArgumentParser, action: argparse.Action) -> Flag:
    takes = None if action.nargs == 0 else _value(action)
    choices = tuple(str(choice) for choice in action.choices or ())
    if takes and takes.startswith("{"):
        choices = tuple(takes.partition("}")[0][1:].split(","))
    for name in action.option_strings:
        choices = choices or _known(name)
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    return Flag(tuple(action.option_strings), takes, _is_file(action), choices, text)


def _value(action: argparse.Action) -> str:
    metavar = action.metavar[0] if isinstance(action.metavar, tuple) else action.metavar
    return metavar or action.dest.upper()


def _is_file(action: argparse.Action) -> bool:
    return any(word in _value(action) for word in _FILES) and not _value(action).startswith("{")


def _known(flag: str) -> tuple[str, ...]:
    """What there is to choose from, where the flag's parser checks it by itself."""
    if flag == "--framework":
        return _framework_ids()
    if flag == "--trainer":
        from webhook.model.release import Release

        return tuple(release.value for release in Release)
    return ()


def _rule_ids() -> tuple[str, ...]:
    from webhook.reports.catalogue import entries

    return tuple(entry.id for entry in entries())


def _framework_ids() -> tuple[str, ...]:
    from webhook.programs.frameworks import FRAMEWORKS

    return tuple(one.id for one in FRAMEWORKS)


# --- bash


def _bash(made: list[Command]) -> Iterator[str]:
    """``-o default`` completes files wherever nothing is offered; ``compopt +o default`` says that there are none."""
    yield f"# {_USE['bash']}"
    yield "_ckptguard() {"
    yield "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path=${COMP_WORDS[1]}"
    yield "    local flags= words= files="
    yield "    COMPREPLY=()"
    yield "    if [[ $COMP_CWORD -eq 1 ]]; then"
    yield f"        COMPREPLY=($(compgen -W '{_joined(one.path[0] for one in made)} --help --version' -- \"$cur\"))"
    yield "        return"
    yield "    fi"
    yield "    if [[ $prev == = || $cur == = ]]; then"
    yield "        [[ $cur == = ]] && cur="
    yield '        COMPREPLY=($(compgen -f -- "$cur"))'
    yield "        return"
    yield "    fi"
    actions = [" ".join(one.path) for one in made if len(one.path) > 1]
    if actions:
        yield '    case "$path ${COMP_WORDS[2]}" in'
        yield f"        {'|'.join(map(_quoted, actions))})"
        yield '            [[ $COMP_CWORD -gt 2 ]] && path="$path ${COMP_WORDS[2]}" ;;'
        yield "    esac"
    yield '    case "$path" in'
    for one in made:
        yield f"        {_quoted(' '.join(one.path))})"
        yield f"            flags='{_joined(name for flag in one.flags for name in flag.names)}'"
        yield f"            words='{_joined(one.words)}' files={int(one.files)}"
        chosen = [flag for flag in one.flags if flag.takes is not None]
        if chosen:
            yield '            case "$prev" in'
            for flag in chosen:
                yield f"                {'|'.join(flag.names)}) {_bash_value(flag)}; return ;;"
            yield "            esac"
        yield "            ;;"
    yield "        *) return ;;"
    yield "    esac"
    yield "    if [[ $cur == -* ]]; then"
    yield '        COMPREPLY=($(compgen -W "$flags" -- "$cur"))'
    yield "    elif [[ -n $words || $files == 0 ]]; then"
    yield '        COMPREPLY=($(compgen -W "$words" -- "$cur"))'
    yield "        [[ $files == 1 ]] || compopt +o default 2>/dev/null"
    yield "    fi"
    yield "}"
    yield "complete -o default -F _ckptguard ckptguard"


def _bash_value(flag: Flag) -> str:
    if flag.choices:
        return f"COMPREPLY=($(compgen -W '{_joined(flag.choices)}' -- \"$cur\"))"
    return "COMPREPLY=()" if flag.files else "compopt +o default 2>/dev/null"


def _joined(words: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(words))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# --- zsh


def _zsh(made: list[Command]) -> Iterator[str]:
    yield "#compdef ckptguard"
    yield f"# {_USE['zsh']}"
    yield "_ckptguard() {"
    yield "    if (( CURRENT == 2 )); then"
    yield "        local -a known=("
    for one in made:
        if len(one.path) == 1:
            yield f"            {_quoted(one.path[0] + ':' + one.summary.replace(':', ' '))}"
    yield "        )"
    yield "        _describe -t commands command known"
    yield "        return"
    yield "    fi"
    yield "    local path_=${words[2]}"
    yield "    shift words; (( CURRENT-- ))"
    actions = [" ".join(one.path) for one in made if len(one.path) > 1]
    if actions:
        yield '    case "$path_ ${words[2]}" in'
        yield f"        {'|'.join(map(_zsh_pattern, actions))})"
        yield '            if (( CURRENT > 2 )); then path_="$path_ ${words[2]}"; shift words; (( CURRENT-- )); fi ;;'
        yield "    esac"
    yield '    case "$path_" in'
    for one in made:
        yield f"        {_zsh_pattern(' '.join(one.path))})"
        yield "            _arguments -s \\"
        for flag in one.flags:
            yield f"                {_zsh_flag(flag)} \\"
        yield f"                {_zsh_rest(one)} ;;"
    yield "    esac"
    yield "}"
    yield 'if [[ $funcstack[1] == _ckptguard ]]; then _ckptguard "$@"; else compdef _ckptguard ckptguard; fi'


def _zsh_pattern(text: str) -> str:
    return text.replace(" ", "\\ ")


def _zsh_flag(flag: Flag) -> str:
    text = flag.help.replace("\\", "").replace("[", "(").replace("]", ")").replace(":", " ")
    value = ""
    if flag.takes is not None:
        does = f"({' '.join(flag.choices)})" if flag.choices else "_files" if flag.files else " "
        name = "value" if flag.choices else "".join(letter for letter in flag.takes if letter.isalnum())
        value = f":{name}:{does}"
    names = "{" + ",".join(flag.names) + "}" if len(flag.names) > 1 else flag.names[0]
    return f"'*'{names}{_quoted(f'[{text}]{value}')}"


def _zsh_rest(one: Command) -> str:
    if one.words:
        return _quoted(f"*:word:({' '.join(one.words)})")
    return "'*:file:_files'" if one.files else "'*: : '"


# --- fish


def _fish(made: list[Command]) -> Iterator[str]:
    yield f"# {_USE['fish']}"
    yield "complete -c ckptguard -f"
    for one in made:
        if len(one.path) == 1:
            yield (f"complete -c ckptguard -n __fish_use_subcommand -a {one.path[0]} -d {_fish_quoted(one.summary)}")
    for one in made:
        seen = " and ".join(f"__fish_seen_subcommand_from {word}" for word in one.path).replace(" and ", "; and ")
        head = f"complete -c ckptguard -n {_fish_quoted(seen)}"
        if one.files:
            yield f"{head} -F"
        if one.words:
            yield f"{head} -a {_fish_quoted(' '.join(one.words))}"
        for flag in one.flags:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
            value = ""
            if flag.choices:
                value = f" -x -a {_fish_quoted(' '.join(flag.choices))}"
            elif flag.takes is not None:
                value = " -r -F" if flag.files else " -x"
            yield f"{head} {names}{value} -d {_fish_quoted(flag.help)}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
