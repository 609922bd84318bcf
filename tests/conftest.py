"""What holds for every suite.

Tests marked `full` run where `E2E_FULL=1`, which `make e2e-full` sets.
"""

import gc
import os

import pytest
from hypothesis import settings

# Time is measured in benchmarks; here a busy machine would fail what is right.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Thousands of tests stay to the end: to walk through them again and again takes a fifth of the time.
gc.set_threshold(200_000, 50, 100)

FULL = os.environ.get("E2E_FULL") == "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if FULL:
        return
    kept = [item for item in items if item.get_closest_marker("full") is None]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("full") is not None])
        items[:] = kept


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not FULL:
        terminalreporter.write_line("tests marked full are left out; E2E_FULL=1 or `make e2e-full` runs them")
