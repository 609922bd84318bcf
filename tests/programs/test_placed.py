"""Where a relative path lies: below the folder that shell and program go into, where that is known."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.programs.reading import LAUNCH
from webhook.programs.program import Script
from webhook.programs.reading import read_script
from webhook.programs.values import Text, Unknown, join

RUN = "exec python - <<'PY'\nimport os\nPY\n"


def script(before: str, program: str = RUN) -> Script:
    return read_script(["bash", "-ec"], [before + program], {"CKPT_FAST_DIR": "/fast"}, LAUNCH)


@pytest.mark.parametrize(
    ("before", "path", "wanted"),
    [
        ("cd /a\n", "x/y.pt", "/a/x/y.pt"),
        ("mkdir -p /a && cd /a\n", "y.pt", "/a/y.pt"),
        ("cd $CKPT_FAST_DIR\n", "y.pt", "/fast/y.pt"),
        ("cd /a\n", "/b/y.pt", "/b/y.pt"),
        ("cd /a\n", "~/y.pt", "~/y.pt"),
        ("cd /a\n", "s3://b/y.pt", "s3://b/y.pt"),
        ("", "y.pt", "y.pt"),
        ("cd a\n", "y.pt", "y.pt"),
        ("cd $UNKNOWN\n", "y.pt", "y.pt"),
        ("cd -\n", "y.pt", "y.pt"),
        ("cd\n", "y.pt", "y.pt"),
        ("cd /a\ncd /b\n", "y.pt", "/b/y.pt"),
        ("cd /a\ncd b/../c\n", "./y.pt", "/a/c/y.pt"),
        ("cd /a\n(cd /b && make)\n", "y.pt", "/a/y.pt"),
        ("cd /a || exit 1\n", "y.pt", "/a/y.pt"),
        ("cd /a\npushd /b\n", "y.pt", "/b/y.pt"),
        ("cd /a\npushd /b\npopd\n", "y.pt", "y.pt"),
        ("cd /a\nif [ -d /b ]; then cd /b; fi\n", "y.pt", "y.pt"),
        ("cd /a\nif [ -d /a ]; then cd /a; fi\n", "y.pt", "/a/y.pt"),
        ("cd /a\nfor one in b c; do cd $one; done\n", "y.pt", "y.pt"),
        ("away() { cd /b; }\ncd /a\n", "y.pt", "/a/y.pt"),
        ("away() { cd /b; }\ncd /a\naway\n", "y.pt", "y.pt"),
        ("cd /a\nHERE=$(pwd)\ncd /b\ncd $HERE/c\n", "y.pt", "/a/c/y.pt"),
        ("cd /a\ncd $PWD/b\n", "y.pt", "/a/b/y.pt"),
        ("if [ -d /a ]; then cd /a; fi\n", "y.pt", "y.pt"),
        ("(cd /a; make)\n", "y.pt", "y.pt"),
        ("cd /a || true\n", "y.pt", "y.pt"),
    ],
)
def test_it_is_below_what_the_shell_goes_into(before: str, path: str, wanted: str) -> None:
    assert script(before).placed(path) == wanted


@pytest.mark.parametrize(
    ("moves", "wanted"),
    [
        ("os.chdir('/b')", "/b/y.pt"),
        ("os.chdir('b')", "/a/b/y.pt"),
        ("os.chdir(os.environ['CKPT_FAST_DIR'])", "/fast/y.pt"),
        ("os.chdir('/b')\nos.chdir('/c')", "y.pt"),
        ("if x:\n    os.chdir('/b')", "y.pt"),
        ("os.chdir(find())", "y.pt"),
    ],
)
def test_a_program_that_goes_elsewhere_itself_is_followed(moves: str, wanted: str) -> None:
    program = f"exec python - <<'PY'\nimport os\n{moves}\nPY\n"
    assert script("cd /a\n", program).placed("y.pt") == wanted


def test_a_program_that_goes_to_its_own_folder() -> None:
    text = "import os\nos.chdir(os.path.dirname(os.path.abspath(__file__)))\n"
    before = f"mkdir -p /b\ncat > /b/t.py <<'PY'\n{text}PY\ncd /a\n"
    assert script(before, "exec python /b/t.py\n").placed("y.pt") == "/b/y.pt"


def test_two_programs_in_two_places_are_not_told_apart() -> None:
    found = script("cd /a\npython - <<'PY'\nimport os\nPY\ncd /b\n")
    assert found.placed("y.pt") == "y.pt"


def test_the_working_directory_is_where_it_begins() -> None:
    found = read_script(["python", "-c", "import os"], [], {}, replace(LAUNCH, working_dir="/work"))
    assert found.placed("y.pt") == "/work/y.pt"


def test_pieces_that_are_not_known_are_kept() -> None:
    path = join(("step_", Unknown("loop", "step"), ".pt"))
    found: Any = script("cd /a\n").placed(path)
    assert isinstance(found, Text)
    assert found.parts[0] == "/a/step_"


def test_what_is_not_known_at_all_stays() -> None:
    unknown = Unknown("", "x")
    assert script("cd /a\n").placed(unknown) is unknown
