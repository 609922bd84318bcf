"""A fuzzer that looks for work that grows faster than the object: any list or map of the CRDs is made twice as long.

Work is counted in instructions of Python, so a machine that is busy changes nothing. A failure names its seed and the
places that were long; ``CKPTGUARD_TIME_FUZZ=2000`` tries as many, ``-s`` shows the worst.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache as once
from types import FrameType
from typing import Any, Final

import pytest

from tests import fast_yaml
from tests.golden import files
from tests.work.shapes import CLAIM, Object, ask, job, runtime, trainjob
from webhook.effective import kept
from webhook.model.release import Release

SEEDS: Final = int(os.environ.get("CKPTGUARD_TIME_FUZZ", "400"))
LONG: Final = 48
"""Items of what is made long; then twice as many."""
MOST: Final = 1.6
"""How much more the second half may cost than the first: 1 where work is linear, 3 where it is the square."""
SLACK: Final = 10_000
"""Instructions that count for nothing: what is done once."""
RECORDED: Final = {"2.0.1": Release.V2_0, "2.1.0": Release.V2_1, "2.2.1": Release.V2_2, "2.3.0": Release.V2_3}
WORDS: Final = ("a", "node", "state", "/state/run", "$(CKPT_DIR)/x", "launcher", "10Gi", "${HOME}", "team", "x" * 60)

Schema = Mapping[str, Any]
Path = tuple[str, ...]


@once
def spec_of(release: str, plural: str) -> Schema:
    """The schema of ``spec``, as the CRD of a release has it."""
    crd = fast_yaml.safe_load(files()[f"crds/{release}/{plural}.yaml"])
    schema: Schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def long_places(schema: Schema, path: Path = ()) -> Iterator[Path]:
    """Where the schema has a list or a map of any length."""
    if schema.get("type") == "array":
        yield path
        yield from long_places(schema["items"], (*path, "[]"))
    elif schema.get("additionalProperties"):
        yield path
    for name, inner in (schema.get("properties") or {}).items():
        yield from long_places(inner, (*path, name))


class Maker:
    """Makes values of a schema. The same place gets the same value, however long another one is."""

    def __init__(self, seed: int, long: set[Path], number: int) -> None:
        self._seed, self._long, self._number = seed, long, number

    def value(self, schema: Schema, path: Path, at: str = "") -> Any:
        dice = random.Random(f"{self._seed}{path}{at}")
        if "enum" in schema:
            return dice.choice(schema["enum"])
        if schema.get("x-kubernetes-int-or-string"):
            return dice.choice((1, "10%", "1Gi"))
        match schema.get("type"):
            case "array":
                number = self._number if path in self._long else dice.randrange(2) if not self._leads(path) else 1
                return [self.value(schema["items"], (*path, "[]"), f"{at}.{item}") for item in range(number)]
            case "object" if schema.get("additionalProperties"):
                number = self._number if path in self._long else dice.randrange(2)
                inner = schema["additionalProperties"]
                return {f"k{item}": self.value(inner, (*path, "{}"), f"{at}.{item}") for item in range(number)}
            case "object":
                known = schema.get("properties") or {}
                needed = set(schema.get("required") or ())
                share = 2 / (len(known) + 1)
                return {
                    name: self.value(inner, (*path, name), at)
                    for name, inner in known.items()
                    if name in needed or self._leads((*path, name)) or dice.random() < share
                }
            case "integer" | "number":
                return dice.choice((0, 1, 2, 7))
            case "boolean":
                return dice.random() < 0.5
        if path[-1] in ("name", "mountPath", "key") and path[-2:-1] == ("[]",):
            return f"/m{at}" if path[-1] == "mountPath" else dice.choice((f"n{at.replace('.', '-')}", "node", "state"))
        return dice.choice(WORDS)

    def _leads(self, path: Path) -> bool:
        return any(one[: len(path)] == path for one in self._long)


def grafted(base: Any, made: Any) -> Any:
    """``made`` over ``base``: what makes the pair one that is judged stays, and its lists grow."""
    if isinstance(base, dict) and isinstance(made, dict):
        return {**base, **{name: grafted(base[name], value) if name in base else value for name, value in made.items()}}
    if isinstance(base, list) and isinstance(made, list):
        first = grafted(base[0], made[0]) if base and made else None
        return [*([first] if first is not None else base[:1]), *base[1:], *made[1:]]
    return base


def instructions(work: Callable[[], object]) -> int:
    """How many instructions of Python are executed."""
    count = 0

    def each(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += 1
        return each

    def entered(frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return each

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def objects(seed: int, number: int) -> tuple[list[Object], Release, set[Path], str]:
    """A runtime and a TrainJob of it, one of them with one or two places that are so long."""
    dice = random.Random(seed)
    release = dice.choice(list(RECORDED))
    plural = dice.choice(("trainjobs", "trainingruntimes"))
    schema = spec_of(release, plural)
    long = set(dice.sample(sorted(long_places(schema)), dice.choice((1, 1, 2))))
    made = Maker(seed, long, number).value(schema, ())
    pair = {"trainingruntimes": runtime([job()]), "trainjobs": trainjob()}
    pair[plural]["spec"] = grafted(pair[plural]["spec"], made)
    return [*pair.values(), CLAIM], RECORDED[release], long, f"{release} {plural}"


def grows(seed: int) -> tuple[float, str]:
    """What the second half costs as a multiple of the first, each by its letters, and what was long."""
    spent, letters = [], []
    what = ""
    for number in (0, LONG, 2 * LONG):
        made, release, long, kind = objects(seed, number)
        kept.clear()
        letters.append(len(json.dumps(made)))
        spent.append(instructions(lambda made=made, release=release: ask(made, release=release)))  # type: ignore[misc]
        what = f"seed {seed}, {kind} {' and '.join('.'.join(path) for path in sorted(long))}: {spent}"
    # One list within another makes the object as long as their product.
    longer = max(letters[2] - letters[1], 1) / max(letters[1] - letters[0], 1)
    return max(spent[2] - spent[1] - SLACK, 0) / max(spent[1] - spent[0], SLACK) / longer, what


@pytest.mark.full
def test_work_grows_no_faster_than_what_is_long() -> None:
    worst = sorted((grows(seed) for seed in range(SEEDS)), reverse=True)[:5]
    print("\n" + "\n".join(f"{ratio:.2f} {what}" for ratio, what in worst))
    assert [what for ratio, what in worst if ratio > MOST] == []


def test_many_volumes_of_one_name_with_two_sources() -> None:
    """Found by seed 53: each was compared with all texts of its name."""
    one = {"name": "twice", "emptyDir": {}, "configMap": {"name": "x"}}

    def work(number: int) -> int:
        pair = [runtime([job(volumes=[one] * number)]), trainjob(), CLAIM]
        kept.clear()
        return instructions(lambda: ask(pair))

    work(1)
    none, some, twice = (work(number) for number in (0, 100, 200))
    assert twice - some < MOST * (some - none) + SLACK


def test_what_is_the_square_is_found() -> None:
    def square(number: int) -> Callable[[], int]:
        return lambda: sum(one * other for one in range(number) for other in range(number))

    spent = [instructions(square(number)) for number in (0, 200, 400)]
    assert (spent[2] - spent[1]) / (spent[1] - spent[0]) > 2.9
    assert instructions(square(200)) == spent[1]
