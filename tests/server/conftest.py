"""One server for the tests that do not change it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.serving import Running, serving


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    with serving() as server:
        yield server
