"""The line of a program with a setting as it has to be."""

from __future__ import annotations

import pytest

from webhook.model.script import Launch, Place
from webhook.programs.corrected import LONGEST, in_line
from webhook.programs.program import Script
from webhook.programs.reading import read_script

KEEP = "save_total_limit=3"


def script_of(*lines: str) -> Script:
    return read_script(["bash", "-ec"], ["\n".join(lines)], {}, Launch())


def in_call(settings: str, *program: str, line: int, position: int | None = None, given: bool = False) -> str:
    script = script_of("python - <<'PY'", *program, "PY")
    call = next(call for call in script.pythons[0].source.calls if call.attr == "Settings")
    return in_line(script, Place("args", 0, line), settings, call, None, position, given)


@pytest.mark.parametrize(
    ("program", "corrected"),
    [
        ("a = Settings()", "a = Settings(save_total_limit=3)"),
        ("a = Settings(out, )", "a = Settings(out, save_total_limit=3)"),
        ("a = Settings(save_total_limit=None, b=1)", "a = Settings(save_total_limit=3, b=1)"),
        ("a = Settings(name='ä', save_total_limit=n)", "a = Settings(name='ä', save_total_limit=3)"),
        ("run(Settings(out), 1)", "run(Settings(out, save_total_limit=3), 1)"),
        ("a = Settings(**more)", KEEP),
    ],
)
def test_an_argument_is_set_where_it_stands_or_put_beside_the_others(program: str, corrected: str) -> None:
    assert in_call(KEEP, program, line=2) == corrected


def test_of_a_call_of_several_lines_the_one_pointed_at_is_corrected() -> None:
    program = ("a = Settings(", "    out,", "    save_total_limit=1,  # few", ")")
    assert in_call(KEEP, *program, line=4) == "save_total_limit=3,  # few"
    assert in_call("b=2", "a = Settings(", "    c=1,", ")", line=2) == "a = Settings(b=2,"
    assert in_call("b=2", "a = Settings(", "    out,", ")", line=2) == "b=2"


def test_an_argument_without_its_name_stays_so() -> None:
    assert in_call('out="/mnt/it\'s"', "a = Settings(where, 1)", line=2, position=0) == 'a = Settings("/mnt/it\'s", 1)'


def test_of_a_long_line_the_setting_alone_is_said() -> None:
    assert in_call(KEEP, f"a = Settings(name='{'x' * LONGEST}')", line=2) == KEEP


@pytest.mark.parametrize(
    ("line", "fix", "corrected"),
    [
        ("exec train.py --save A --load B", "--load /mnt/ckpt", "exec train.py --save A --load /mnt/ckpt"),
        ("exec train.py --load=B | tee log", "--load /mnt/ckpt", "exec train.py --load=/mnt/ckpt | tee log"),
        ("exec train.py --save_steps 5 \\", "--save-steps 500", "exec train.py --save_steps 500 \\"),
        ("exec train.py --finetune --save A", "without --finetune", "exec train.py --save A"),
        ("exec train.py --overwrite true --save A", "without --overwrite", "exec train.py --save A"),
        ('exec train.py "x.mode=off" y=1', "x.mode=auto", "exec train.py x.mode=auto y=1"),
        ("exec train.py --save A", "--absent 1", "--absent 1"),
        ("exec train.py --load", "--load <the newest>", "--load <the newest>"),
    ],
)
def test_a_flag_is_set_where_it_stands(line: str, fix: str, corrected: str) -> None:
    assert in_line(script_of(line), Place("args", 0, 1), fix) == corrected


def test_a_flag_that_is_absent_goes_behind_the_programs_name() -> None:
    script = script_of("exec torchrun train.py --save A | tee log")
    place, invocation = Place("args", 0, 1), script.invocations[0]
    corrected = "exec torchrun train.py --save-interval 500 --save A | tee log"
    assert in_line(script, place, "--save-interval 500", None, invocation) == corrected
    assert in_line(script, place, "--save-interval 500", None, invocation, given=True) == "--save-interval 500"


def test_a_line_of_a_file_keeps_the_files_form() -> None:
    script = script_of("cat > a.yaml <<'E'", "save_strategy: no", "E", "llamafactory-cli train a.yaml")
    assert in_line(script, Place("args", 0, 2), 'save_strategy="steps"') == "save_strategy: steps"
    assert in_line(script, Place("args", 0, 2), "save_only_model=False") == "save_only_model: false"
