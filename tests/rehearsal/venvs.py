"""Interpreters with frameworks in them, made once and kept beside the clone's other tools, outside it.

``light`` is that of the recipes, so that a run of CI makes one and no more.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.recipes import environment

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "checkpoint-guard" / "rehearsal"
FULL: Final = ("numpy", "torch==2.15.0", "transformers==5.24.0", "accelerate==1.15.0", "lightning==2.6.6")
"""Some gigabytes: PyPI's torch brings CUDA's libraries, which nobody needs here."""


def interpreter(needs: str) -> str:
    """The Python that has what a program needs (nothing, ``light``, ``full``).

    Skips the test where it cannot be installed, which in CI is a failure.
    """
    if not needs:
        return sys.executable
    try:
        return str(environment.asked_for()) if needs == "light" else _full()
    except (subprocess.CalledProcessError, environment.EnvironmentFault, OSError) as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"{needs} cannot be installed here: {error}")


def _full() -> str:
    folder = CACHE / "full"
    python = folder / "bin" / "python"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "full.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = "\n".join(FULL)
        done = folder / ".done"
        if not done.exists() or done.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir", *FULL], check=True)
            done.write_text(wanted)
    return str(python)
