"""The cluster of the session. Without one, everything here is skipped with the reason."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import FULL
from tests.e2e_nodes import guard
from tests.e2e_nodes.machine import TRAINERS, Given, Lab, Nodes, NoNodesError


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "every_trainer: with E2E_FULL=1 on each release of Trainer")
    config.addinivalue_line("markers", "each_change: also where E2E_FULL is not set; all others are marked full")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Nodes take minutes: what is not said to be worth them for each change is ``full``."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("each_change") is None:
            item.add_marker("full")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "trainer" in metafunc.fixturenames:
        every = FULL and metafunc.definition.get_closest_marker("every_trainer") is not None
        metafunc.parametrize("trainer", TRAINERS if every else TRAINERS[:1], indirect=True, scope="module")


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
            try:
                found.start()
            except AssertionError as fault:
                pytest.exit(f"the lab does not come up: {fault}", 1)
            except NoNodesError as missing:
                pytest.exit(f"e2e-nodes: skipped: {missing}", 0)
            found.build_images(before=FULL)
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def trainer(request: pytest.FixtureRequest, nodes: Nodes) -> str:
    """The Trainer release of these tests, `2.3.0`; a cluster that was given has the one it has."""
    release = str(request.param)
    if isinstance(nodes, Lab):
        nodes.use_trainer(release)
    elif nodes.trainer() != release.rpartition(".")[0]:
        pytest.skip(f"the cluster has Trainer {nodes.trainer()}")
    return release


@pytest.fixture(scope="session")
def guarded(nodes: Nodes) -> Iterator[Nodes]:
    """With the guard in its place: runs are submitted through it."""
    ours = nodes.get("validatingwebhookconfiguration", "checkpoint-guard") is None
    if ours:
        guard.install(nodes, nodes.image)
    yield nodes
    if ours:
        guard.uninstall(nodes)
