"""The programs of ``tests/rehearsal``, rehearsed: each planted fault is named, and no clean program is accused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rehearsal.corpus import CASES, Case
from tests.rehearsal.venvs import interpreter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the machine that is tried is Linux")
# Full: on two cores with other tests beside them, about one program in a hundred is still judged by what its kill left
# half seen, and a false accusation in a run of CI says nothing about the change.
PARAMETERS = [pytest.param(case, id=case.name, marks=pytest.mark.full) for case in CASES]


@pytest.mark.parametrize("case", PARAMETERS)
def test_program(case: Case, tmp_path: Path) -> None:
    try:
        python = interpreter(case.needs)
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"{case.needs} cannot be installed here: {error}")
    file = tmp_path / "train.py"
    file.write_text(case.text())
    command = [python, str(file)]
    if case.shell:
        command = ["bash", "-c", case.shell.replace("PROGRAM", str(file)).replace("python3", python)]
    # torch takes its time to be imported, and to come to its end, on a machine with much else to do.
    waits = ("--grace", "30s", "--timeout", "120s") if case.needs else ("--grace", "10s", "--timeout", "60s")
    flags = (*waits, *case.flags)
    done = subprocess.run(
        [sys.executable, "-m", "webhook", "rehearse", *flags, "-o", "json", "--", *command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        timeout=800,
    )
    answer = json.loads(done.stdout)
    said = {one["rule"] for one in answer["findings"]}
    assert (case.rule in said) if case.rule else not said, done.stdout
    assert said <= {case.rule, *case.also}, done.stdout
    assert answer["verdict"] == ("resumed" if case.rule in (None, "no-flush-on-sigterm") else "not-resumed")


def test_the_corpus_has_each_kind_and_clean_ones() -> None:
    clean = [case for case in CASES if case.rule is None]
    assert len(CASES) >= 40
    assert len({case.rule for case in CASES if case.rule}) >= 13
    assert len(clean) >= 15
