"""What holds for every suite: tests marked `full` run where `E2E_FULL=1`, which `make e2e-full` sets."""

import os

import pytest

FULL = os.environ.get("E2E_FULL") == "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if FULL:
        return
    kept = [item for item in items if item.get_closest_marker("full") is None]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("full") is not None])
        items[:] = kept


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not FULL:
        terminalreporter.write_line("tests marked full are left out; E2E_FULL=1 or `make e2e-full` runs them")
