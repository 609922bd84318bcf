"""``ckptguard review``: what the API server would be told about each object, and what the rules say of a program.

Objects are judged in ``webhook.cli.reviewing``, programs (``train.py``, ``run.sh``) in ``webhook.cli.programs``; what
neither needs is not imported for it.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from webhook.cli.flags import add_flags
from webhook.cli.output import coloured, complain
from webhook.cli.outputs import printed, write_outputs
from webhook.reports.review import FAIL_ON, Review

INTERMIXED = True


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``review``."""
    add_flags(parser, ("text", "json", "junit", "sarif", "line"))
    parser.add_argument("--old", metavar="FILE", help="current objects; matching ones in FILE are reviewed as updates")
    parser.add_argument("--policy", metavar="FILE", help="the policy file")
    parser.add_argument(
        "--without-guard", action="store_true", help="review the objects as written, without the guard's defaults"
    )
    parser.add_argument(
        "--fail-on",
        choices=FAIL_ON,
        default="deny",
        help="what makes the exit code 1, each includes the one before it (default deny)",
    )
    parser.add_argument(
        "--source",
        metavar="DIR",
        help="the checkout that the image is built from: programs of the image are looked for there",
    )
    programs = parser.add_argument_group(
        "programs", "train.py and run.sh are reviewed by themselves, without a cluster"
    )
    programs.add_argument("--programs", action="store_true", help="review the .py and .sh files of folders too")
    programs.add_argument(
        "--command",
        metavar="COMMAND",
        help="how it is started, e.g. 'torchrun --nproc-per-node 4 train.py --out /ckpt'",
    )
    programs.add_argument("--nodes", metavar="N", type=_number, help="nodes that it runs on (default 1)")
    programs.add_argument("--directory", metavar="DIR", help="where its checkpoints have to go, and CKPT_DIR for it")
    parser.epilog = "exit code: 0 no finding that fails, 1 a finding that fails (see --fail-on), 2 could not review"


def _number(text: str) -> int:
    if not text.isdecimal() or not 0 < len(text) < 7 or int(text) < 1:
        raise argparse.ArgumentTypeError(f'"{text}" is no number of nodes: 1 or more')
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """0 nothing against it, 1 by ``--fail-on``, 2 could not review."""
    review = _review(arguments)
    if review is None:
        return 2
    done = print_review(review, arguments)
    return review.exit_code(arguments.fail_on) if done else 2


def _review(arguments: argparse.Namespace) -> Review | None:
    """Programs, objects or both; None, and a line on standard error, where nothing is named."""
    files = [*arguments.files, *arguments.more]
    programs = [file for file in files if _is_program(file)]
    others = [file for file in files if not _is_program(file)]
    alone = bool(programs or arguments.command or arguments.programs)
    if not alone:
        from webhook.cli.reviewing import review_files
        from webhook.reports.review import Fault

        review = review_files(arguments)
        unused = next((flag for flag in ("nodes", "directory") if getattr(arguments, flag) is not None), "")
        if review is None or not unused:
            return review
        fault = Fault(None, f"--{unused} is about program files (.py, .sh), and FILE names none")
        return Review(review.results, (*review.faults, fault), review.notices, review.guarded, review.skipped)
    from webhook.cli.programs import review_programs

    about = review_programs(arguments, programs, others)
    if not others:
        return about
    from webhook.cli.reviewing import review_files

    arguments.files, arguments.more = others, []
    review = review_files(arguments, needed=not arguments.programs)
    if review is not None and (review.results or review.faults):
        return review.beside(about)
    if about.results or about.faults:
        return about
    from webhook.reports.review import Fault

    nothing = Fault(others[0] if len(others) == 1 else None, "nothing to review: no program here trains, and no object")
    return Review(faults=(nothing,), notices=about.notices, skipped=about.skipped)


def _is_program(file: str) -> bool:
    """A ``.py`` or ``.sh`` file by its name; a folder may be called so."""
    if not file.endswith((".py", ".sh")):
        return False
    import os

    return not os.path.isdir(file)  # noqa: PTH112 - pathlib alone would be a tenth of the start-up time


def print_review(review: Review, arguments: argparse.Namespace) -> bool:
    """Print it and write its files as ``--output`` says; whether everything could be written."""
    shown = printed(arguments.output)
    if review.notices or shown == "text":
        from webhook.reports.text import fault_line, notice_line

        colour = coloured(sys.stderr)
        # The formats for programs have the faults themselves; what was passed over has no place in them.
        faults = [fault_line(fault, colour) for fault in review.faults] if shown == "text" else ()
        complain([*(notice_line(notice, colour) for notice in review.notices), *faults], colour)
    return write_outputs(arguments.output, partial(_render, review))


def _render(review: Review, output: str, colour: bool) -> str:
    """The report in one format; empty where there is nothing to say."""
    if output == "json":
        from webhook.reports.json import render as as_json

        return as_json(review)
    if output == "junit":
        from webhook.reports.junit import render as as_junit

        return as_junit(review)
    if output == "sarif":
        from webhook.reports.sarif import render as as_sarif

        return as_sarif(review)
    if output == "line":
        from webhook.reports.line import render as as_lines

        return "".join(f"{line}\n" for line in as_lines(review))
    from webhook.reports.text import render

    return "".join(f"{line}\n" for line in render(review, colour)) if review.results else ""
