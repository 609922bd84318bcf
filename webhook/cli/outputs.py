"""``-o FORMAT`` and ``-o FORMAT=FILE``: what a command prints, and what it writes into files beside that."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from webhook.cli.output import complain, write_text


class Output(Struct, frozen=True):
    """A format, and the file that it goes to; None is standard output."""

    format: str
    file: str | None = None


def add_output(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    """``-o/--output``, once for standard output and as often as wanted with a file."""

    def one(text: str) -> Output:
        format_, given, file = text.partition("=")
        if format_ not in formats:
            raise argparse.ArgumentTypeError(f'"{text}" is no format: {", ".join(formats)}, or one with =FILE')
        if given and not file:
            raise argparse.ArgumentTypeError(f'"{text}" names no file: {format_}=FILE, or {format_} alone')
        return Output(format_, None if file in ("", "-") else file)

    parser.add_argument(
        "-o",
        "--output",
        type=one,
        action=_Outputs,
        default=(Output("text"),),
        metavar=f"{{{','.join(formats)}}}[=FILE]",
        help="the format (default text); FORMAT=FILE writes it into a file beside what is printed, repeatable",
    )


class _Outputs(argparse.Action):
    """Collects the outputs; the first one takes the place of the default where it goes to standard output."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        given: list[Output] = getattr(namespace, "given_outputs", [])
        if isinstance(values, Output):
            given.append(values)
        namespace.given_outputs = given
        printed = [one for one in given if one.file is None]
        if len(printed) > 1:
            parser.error(f"two formats for standard output: give {printed[-1].format} a file, as {option} FORMAT=FILE")
        if len({one.file for one in given}) < len(given):
            parser.error(f"{option}: two formats go into one file: {given[-1].file}")
        namespace.output = (*(printed or [Output("text")]), *(one for one in given if one.file is not None))


def printed(outputs: Iterable[Output]) -> str:
    """The format that goes to standard output."""
    return next(one.format for one in outputs if one.file is None)


def write_json(value: Mapping[str, Any]) -> None:
    """Print one JSON document, with its ``schema``."""
    from webhook.reports.json import SCHEMA, encode

    write_text(encode({"schema": SCHEMA, **value}))


def write_outputs(outputs: Iterable[Output], render: Callable[[str, bool], str], whole: bool = False) -> bool:
    """Write all of them, the files first; ``render`` makes the text of a format, in colour or not.

    ``whole``: the text is for programs too (YAML), so no line of it is shortened.

    False, and a line on standard error, where a file cannot be written.
    """
    from webhook.cli.output import as_document, as_text, coloured, write_plain

    done = True
    for one in sorted(outputs, key=lambda one: one.file is None):
        if one.file is None:
            if text := render(one.format, coloured(sys.stdout)):
                if one.format in ("text", "line"):
                    write_plain(text, whole)
                else:
                    write_text(text)
            continue
        try:
            with open(one.file, "w", encoding="utf-8", errors="backslashreplace") as stream:  # noqa: PTH123
                text = render(one.format, False)
                stream.write(as_text(text, whole=whole) if one.format in ("text", "line") else as_document(text))
        except (OSError, ValueError) as error:
            done = False
            why = getattr(error, "strerror", None) or str(error)
            complain([f"error: {one.file} cannot be written: {why}"])
    return done
