"""The cluster of the session. Without one, everything here is skipped with the reason."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e_nodes.machine import Given, Lab, Nodes, NoNodesError


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """A cluster whose nodes run pods, with Trainer and our images; the guard is not installed."""
    try:
        given = os.environ.get("E2E_KUBECONFIG")
        found: Nodes = Given(Path(given)) if given else Lab()
    except NoNodesError as missing:
        pytest.skip(str(missing))
    try:
        if isinstance(found, Lab):
            found.start()
        yield found
    finally:
        found.stop()
