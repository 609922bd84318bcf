"""What all tests of the commands on a run share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def python_first() -> Iterator[None]:
    """``python3`` is this one: a version manager's takes a tenth of a second, two hundred times, to find another."""
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{before}"
    yield
    os.environ["PATH"] = before
