"""``ckptguard policy test DIR``: the manifests of a folder beside what is expected of them, for a team's own CI."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from webhook.cli.output import complain
from webhook.cli.outputs import add_output, write_outputs

if TYPE_CHECKING:
    from webhook.reports.review import Review, Reviewed

EXPECTED = "expected.yaml"
_FORM = "- {file: run.yaml, name: run, verdict: deny, rules: [ephemeral-checkpoint, '!short-grace']}"
_VERDICTS = ("allow", "warn", "deny", "exempt")


def configure(parser: argparse.ArgumentParser) -> None:
    """The folder and the policy."""
    parser.description = (
        f"Review each file that DIR/{EXPECTED} names and compare verdict and rules. It is a list of entries such as "
        f"{_FORM}; name may be left out where a file has one object; a rule with ! must not be found. "
        "DIR/policy.yaml is the policy and DIR/state the cluster, where they exist."
    )
    parser.add_argument("folder", metavar="DIR", help="the folder")
    parser.add_argument("--policy", metavar="FILE", help="the policy file, instead of DIR/policy.yaml")
    parser.add_argument("--state", metavar="PATH", action="append", default=[], help="as for review; repeatable")
    parser.add_argument("--trainer", metavar="RELEASE", help="as for review")
    add_output(parser, ("text", "json"))
    parser.epilog = "exit code: 0 all as expected, 1 something is not, 2 could not be reviewed"


class Expectation(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of the list."""

    file: str
    verdict: str = ""
    name: str = ""
    kind: str = ""
    rules: list[str] = []


def run(arguments: argparse.Namespace) -> int:
    """0, 1 or 2, as the help says."""
    folder = Path(arguments.folder)
    wanted = _expectations(folder / EXPECTED)
    if wanted is None:
        return 2
    reviews: dict[str, Review] = {}
    for file in dict.fromkeys(one.file for one in wanted):
        review = _review(folder, file, arguments)
        if review is None:
            return 2
        reviews[file] = review
    results = [_compared(one, reviews[one.file]) for one in wanted]

    def render(output: str, _: bool) -> str:
        if output == "json":
            from webhook.reports.json import SCHEMA, encode

            return encode({"schema": SCHEMA, "results": results})
        lines = [f"{'ok  ' if one['ok'] else 'FAIL'} {one['file']} {one['name']}{_why(one)}" for one in results]
        failed = sum(not one["ok"] for one in results)
        return "".join(f"{line}\n" for line in (*lines, f"{len(results)} expectations, {failed} failed"))

    if not write_outputs(arguments.output, render):
        return 2
    return 0 if all(one["ok"] for one in results) else 1


def _why(result: dict[str, Any]) -> str:
    return f": {'; '.join(result['failed'])}" if result["failed"] else ""


def _expectations(path: Path) -> list[Expectation] | None:
    """The list; None, and what is wrong with it."""
    import msgspec

    from webhook.cluster.yaml_text import Piece, TextError, decode, parse
    from webhook.model.policy import NEVER_DENIES
    from webhook.rules import RULES

    try:
        found = [value for _, value in parse(Piece(decode(path.read_bytes()))) if value is not None]
        wanted = msgspec.convert(found[0] if found else [], list[Expectation])
    except OSError as error:
        complain([f"error: {path}: {error.strerror}"])
        return None
    except TextError as error:
        complain([f"error: {path}:{error.line}: {error.message}"])
        return None
    except msgspec.ValidationError as error:
        complain([f"error: {path}: {error}: an entry is {_FORM}"])
        return None
    ids = {*(rule.id for rule in RULES), *NEVER_DENIES}
    for number, one in enumerate(wanted):
        unknown = next((rule for rule in one.rules if rule.removeprefix("!") not in ids), None)
        if unknown is not None:
            complain([f'error: {path}: [{number}].rules: there is no rule "{unknown.removeprefix("!")}"'])
            return None
        if one.verdict and one.verdict not in _VERDICTS:
            complain([f'error: {path}: [{number}].verdict: "{one.verdict}" is none of {", ".join(_VERDICTS)}'])
            return None
        if not one.verdict and not one.rules:
            complain([f"error: {path}: [{number}]: it expects nothing: an entry is {_FORM}"])
            return None
    if not wanted:
        complain([f"error: {path}: it expects nothing: an entry is {_FORM}"])
        return None
    return wanted


def _review(folder: Path, file: str, arguments: argparse.Namespace) -> Review | None:
    """One file, reviewed as ``ckptguard review`` does; None, and why, where that cannot be done."""
    from webhook.cli import review as command
    from webhook.cli.reviewing import review_files

    words = [str(folder / file)]
    policy = arguments.policy or (str(folder / "policy.yaml") if (folder / "policy.yaml").exists() else None)
    state = [*arguments.state, *([str(folder / "state")] if (folder / "state").exists() else [])]
    for flag, values in (("--policy", [policy] if policy else []), ("--state", state)):
        words += [word for value in values for word in (flag, value)]
    if arguments.trainer:
        words += ["--trainer", arguments.trainer]
    parser = argparse.ArgumentParser(prog="ckptguard review", allow_abbrev=False)
    command.configure(parser)
    review = review_files(parser.parse_args(words))
    if review is not None and review.faults:
        complain(f"error: {fault}" for fault in review.faults)
        return None
    return review


def _compared(wanted: Expectation, review: Review) -> dict[str, Any]:
    results = [one for one in review.results if wanted.name in ("", one.name) and wanted.kind in ("", one.kind)]
    failed: list[str] = []
    found: Reviewed | None = results[0] if len(results) == 1 else None
    rules: list[str] = []
    if found is None:
        failed.append(f"{len(results)} objects fit: say name and kind" if results else "there is no such object")
    else:
        rules = list(dict.fromkeys(one.rule for one in found.findings))
        if wanted.verdict and found.verdict != wanted.verdict:
            failed.append(f"verdict {found.verdict}, expected {wanted.verdict}")
        for rule in wanted.rules:
            name = rule.removeprefix("!")
            if (name in rules) is rule.startswith("!"):
                failed.append(f"{name} was {'found' if name in rules else 'not found'}")
    return {
        "file": wanted.file,
        "name": wanted.name or (found.name if found is not None else ""),
        "ok": not failed,
        "verdict": None if found is None else found.verdict,
        "rules": rules,
        "failed": failed,
    }
