"""Where a relative path lies: below the one folder that the shell goes into, where that is known."""

from __future__ import annotations

from typing import Any

import pytest

from tests.programs.reading import LAUNCH
from webhook.programs.program import Script, read_script
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
        ("cd /a\ncd /b\n", "y.pt", "y.pt"),
        ("if [ -d /a ]; then cd /a; fi\n", "y.pt", "y.pt"),
        ("(cd /a; make)\n", "y.pt", "y.pt"),
        ("cd /a || true\n", "y.pt", "y.pt"),
    ],
)
def test_it_is_below_what_the_shell_goes_into(before: str, path: str, wanted: str) -> None:
    assert script(before).placed(path) == wanted


def test_a_program_that_goes_elsewhere_itself_is_not_followed() -> None:
    program = "exec python - <<'PY'\nimport os\nos.chdir('/b')\nPY\n"
    assert script("cd /a\n", program).placed("y.pt") == "y.pt"


def test_pieces_that_are_not_known_are_kept() -> None:
    path = join(("step_", Unknown("loop", "step"), ".pt"))
    found: Any = script("cd /a\n").placed(path)
    assert isinstance(found, Text)
    assert found.parts[0] == "/a/step_"


def test_what_is_not_known_at_all_stays() -> None:
    unknown = Unknown("", "x")
    assert script("cd /a\n").placed(unknown) is unknown
