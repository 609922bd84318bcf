"""Words that are read from the text alone are those that the tree gives; what is cut late is what was there."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.model.script import Place
from webhook.programs.shell import Shell, read_shell
from webhook.programs.shell_words import Words
from webhook.programs.values import Unknown, Value

ENV = {"A": "one two", "RUN": Unknown("fresh", "$RUN"), "CKPT_DIR": "/state/run"}
TEXTS = (
    'echo "plain" "" "a b" "$A" "$A/$RUN-x" "to $CKPT_DIR."',
    'echo "$A $A" " $A" "$A\t$RUN" "a $1 $0b"',
    'echo "a\\"b" "$(date)" "`date`" "${A}x" "$" "a $ b" "$@" "${LIST[@]}"',
    "echo 'raw' $'a\\n' pre\"$A\"post $A \"é $A\" {1,2} a*b",
    'set -- x "y z"; run "$@" "$1"; for i in a; do echo "$1" "$i"; done',
    'LIST=(a "b $A"); run "${LIST[@]}" "$LIST"',
    '"$A" x; /usr/bin/env python a.py; ./run-1.sh; a/b_c "d"',
    'cd /x && echo "$PWD"; (cd y; ls "$PWD"); echo "$PWD"',
    'if [ -n "$A" ]; then echo "$RUN"',
)


def _read(text: str) -> Shell:
    return read_shell(text, Place("args", 0, 1), ENV, "bash", folder="/work")


@pytest.mark.parametrize("text", TEXTS)
def test_a_string_is_what_its_nodes_are(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = [(one.words, one.raw, one.folder, one.assigned) for one in _read(text).commands]
    monkeypatch.setattr(Words, "string", lambda self, raw: None)
    assert quick == [(one.words, one.raw, one.folder, one.assigned) for one in _read(text).commands]


def test_a_plain_string_asks_no_node_for_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    joined = Words._joined

    def counted(self: Words, node: Any, depth: int, quoted: bool) -> Value:
        asked.append(node.type)
        return joined(self, node, depth, quoted)

    monkeypatch.setattr(Words, "_joined", counted)
    _read('echo "step of $RUN" "a b" "$A"\n' * 20)
    assert not asked
    _read('echo "a \\$ $RUN"')
    assert asked == ["string"]


def test_place_source_and_lines_are_those_of_the_text() -> None:
    text = "# é\nexport A=1\nif true; then\n  python \\\n    train.py \\\n    > log 2>&1 &\nfi\n"
    train = _read(text).named("python")[0]
    assert (train.place, train.line, train.lines) == (Place("args", 0, 4), 4, 3)
    assert train.source == "python train.py"  # a text to paste: a backslash would escape the blank after it
    assert _read(text).commands[0].source == "export A=1"


def test_commands_are_found_by_name_in_order() -> None:
    shell = _read("ls a; $A b; ls c | tail -1; A=1")
    assert [one.words[1] for one in shell.named("ls")] == ["a", "c"]
    assert shell.has("rm", "tail")
    assert not shell.has("rm")
    assert shell.holds(shell.commands[0])
    assert not shell.holds(_read("ls a").commands[0])


@pytest.mark.parametrize("second", ["$B", "${B}"])
@pytest.mark.parametrize("blank", [" ", "  ", "\t", "\n"])
def test_blanks_between_two_variables_in_quotes_are_no_part_of_the_second(second: str, blank: str) -> None:
    word = _read(f'A=run\nB=train.py\nbash -c "$A{blank}{second}"').named("bash")[0].words[2]
    assert word == f"run{blank}train.py"
    unknown = _read(f'bash -c "$C{blank}{second}"').named("bash")[0].words[2]
    assert [one.source for one in unknown.parts if isinstance(one, Unknown)] == ["$C", "$B"]
