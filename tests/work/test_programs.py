"""A review reads each program once and no more text than its budget lets it; hostile text is given up early."""

from __future__ import annotations

import ast
import gc
from typing import Any

import pytest

from tests.work.shapes import CLAIM, Object, ask, container, job, runtime, trainjob
from webhook.model.budget import PROGRAM_BYTES, marks_in
from webhook.model.script import Place
from webhook.programs import cache, held, shell, sources
from webhook.programs.python import Source
from webhook.programs.shell import NotRead, read_shell


def python_text(seed: int, size: int = 20_000) -> str:
    line = f"loss_{seed} = model(batch).mean(); loss_{seed}.backward(); optimizer.step()\n"
    save = f"torch.save(model.state_dict(), os.environ['CKPT_DIR'] + '/last-{seed}.pt')\n"
    return "import os, torch\n" + line * (size // len(line)) + save


def bash_text(seed: int, size: int = 16_000) -> str:
    line = f'if [ -n "$A{seed}" ]; then echo "step of $RUN" | tee -a log{seed}.txt; fi\n'
    return line * (size // len(line)) + f"python train{seed}.py --output_dir $CKPT_DIR\n"


def programs(texts: list[list[str]]) -> list[Object]:
    jobs = [job(f"n{index}", [container(command=text)]) for index, text in enumerate(texts)]
    return [runtime(jobs), CLAIM, trainjob()]


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    cache.clear()


@pytest.mark.parametrize("directory", ["/state/run", None], ids=["declared", "undeclared"])
def test_each_python_text_is_parsed_once(monkeypatch: pytest.MonkeyPatch, directory: str | None) -> None:
    parsed: list[str] = []

    def counted(text: str, **bounds: Any) -> Source:
        parsed.append(text)
        return Source(text, **bounds)

    monkeypatch.setattr(sources, "Source", counted)
    texts = [["python", "-c", python_text(seed)] for seed in range(12)]
    ask([*programs(texts)[:2], trainjob(directory)])
    assert len(set(parsed)) == 12
    assert len(parsed) <= 2 * 12, "once for what to fill in, and once for the verdict"


@pytest.mark.parametrize("directory", ["/state/run", None], ids=["declared", "undeclared"])
def test_each_shell_text_is_parsed_once(monkeypatch: pytest.MonkeyPatch, directory: str | None) -> None:
    parsed: list[str] = []
    parse = shell._parse

    def counted(text: str) -> Any:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(shell, "_parse", counted)
    texts = [["bash", "-c", bash_text(seed)] for seed in range(8)]
    ask([*programs(texts)[:2], trainjob(directory)])
    assert len(set(parsed)) == 8
    assert len(parsed) <= 2 * 8, "once for what to fill in, and once for the verdict"


def test_what_is_more_than_the_budget_is_not_read_and_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []

    def counted(text: str, **bounds: Any) -> Source:
        parsed.append(len(text))
        return Source(text, **bounds)

    monkeypatch.setattr(sources, "Source", counted)
    objects = programs([["python", "-c", python_text(seed, 30_000)] for seed in range(16)])
    decision = ask(objects)[1]
    assert sum(parsed) <= PROGRAM_BYTES
    unread = [finding for finding in decision.findings if finding.rule == "program-not-read"]
    assert len(unread) == 16 - len(parsed) > 0
    assert {finding.severity.value for finding in unread} == {"audit"}
    assert ask(objects)[1] == decision


@pytest.mark.parametrize(
    "text",
    [
        "a) " + "~" * 32_000,
        "a) " + "~$" * 16_000,
        "a) " + "+-" * 16_000,
        "a) " + ("#" * 100 + "\n") * 300,
        "a) " * 2400,
    ],
    ids=["tilde", "dollar", "signs", "comments", "items"],
)
def test_shell_that_sends_the_scanner_through_the_text_is_given_up(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    import tree_sitter

    pieces = 0
    parser = tree_sitter.Parser

    class Counted:
        def __init__(self, language: tree_sitter.Language) -> None:
            self.parser = parser(language)

        def parse(self, read: Any, progress_callback: Any) -> object:
            def counted(offset: int, point: object) -> bytes:
                nonlocal pieces
                data: bytes = read(offset, point)
                pieces += bool(data)
                return data

            return self.parser.parse(counted, progress_callback=progress_callback)

    monkeypatch.setattr(tree_sitter, "Parser", Counted)
    with pytest.raises(NotRead):
        read_shell(text, Place("args", 0, 1), {}, "bash")
    assert pieces <= 64 + 4 * len(text) // 1024


def test_ordinary_shell_stays_far_below_that_bound() -> None:
    assert read_shell(bash_text(1, 32_000), Place("args", 0, 1), {}, "bash").commands


@pytest.mark.parametrize(
    "line", ["a = a + a\n", "self.a = self.a + b\n", "x = sorted(glob.glob(x))[-1]\n", "a = torch.load(a)\n"]
)
def test_a_name_with_many_values_is_not_followed_for_each_use(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    from webhook.programs.python import Python

    steps = 0
    value = Python._value

    def counted(self: Python, *arguments: Any) -> Any:
        nonlocal steps
        steps += 1
        return value(self, *arguments)

    monkeypatch.setattr(Python, "_value", counted)

    def steps_of(lines: int) -> int:
        nonlocal steps
        cache.clear()
        steps = 0
        text = "import glob, torch\n" + line * lines + "torch.save(a, '/state/run/' + a)\ntorch.save(b, self.a + x)\n"
        ask(programs([["python", "-c", text]]))
        return steps

    few, many = steps_of(150), steps_of(600)
    assert many < 6 * few + 100


@pytest.mark.parametrize(
    "line",
    [
        "a+b+c+d\n",
        "a^b%c@d\n",
        "~~~~~~a\n",
        "not a\n",
        "a\r",
        "a;a;a\n",
        "f(a)(b)\n",
        "a[0][1]\n",
        'f"{a}{b}"\n',
        "lambda: 0\n",
        "a = b = c\n",
        "a < b < c\n",
    ],
)
def test_the_nodes_of_a_dense_text_are_foretold(line: str) -> None:
    text = line * 200
    nodes = [one for one in ast.walk(ast.parse(text)) if not isinstance(one, _SHARED)]
    assert len(nodes) <= 2 * marks_in(text), "memory is what its nodes take"


def test_what_one_review_reads_of_ordinary_programs_stays_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def counted(text: str, longest: int) -> Source:
        parsed.append(text)
        return Source(text, longest=longest)

    monkeypatch.setattr(sources, "Source", counted)
    cache.clear()
    unit = (
        "def advance(net, rows, adam):\n    error = net(rows['pixels']).sum()\n    error.backward()\n    adam.step()\n"
    )
    texts = [f"# {seed}\n" + unit * (30_000 // len(unit)) for seed in range(12)]
    for text in (*texts, *texts):
        sources.python_source(text)
    assert len(parsed) == 12


_SHARED = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)
"""One object for all places."""


def test_each_mark_is_counted_whatever_stands_between() -> None:
    text = "f(\u00e9, \ud800)[0]\n" * 3
    assert marks_in(text) == 3 * 7, "a bracket and a line's end count twice; letters of any kind do not"


@pytest.mark.parametrize("collects", [True, False])
def test_python_looks_for_no_cycles_while_a_review_is_under_way(
    monkeypatch: pytest.MonkeyPatch, collects: bool
) -> None:
    seen: list[bool] = []

    def watched(text: str, longest: int) -> Source:
        seen.append(gc.isenabled())
        raise RuntimeError("a rule that breaks")

    monkeypatch.setattr(sources, "Source", watched)
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        ask(programs([["python", "-c", python_text(0)]]))
        assert gc.isenabled() is collects, "as it was, though a rule broke"
    finally:
        (gc.enable if before else gc.disable)()
    assert seen
    assert not any(seen)


def test_a_review_within_another_leaves_it_as_it_was() -> None:
    assert gc.isenabled()
    held.begin()
    held.begin()
    held.end()
    held.end()
    assert gc.isenabled()
