"""Clusters for the end-to-end tests: one control plane per Trainer release, started when a test first asks for it.

With `E2E_KUBECONFIG`, tests run on that cluster, and those for other Trainer releases are skipped. Without Go, and
with nothing built yet, they are skipped with a reason; where `CI` is `true` that is a failure.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.controlplane import build
from tests.e2e.controlplane.cluster import Cluster, GivenCluster, Object
from tests.e2e.controlplane.controlplane import ControlPlane, needed_components
from tests.e2e.controlplane.guard import Guard, is_registered, registrations, unregister_webhook
from tests.e2e.controlplane.releases import RELEASES


class Clusters:
    """The clusters of this test process and the guard beside each; all of it ends with the session."""

    def __init__(self) -> None:
        self._given: GivenCluster | None = None
        self._started: dict[tuple[str, bool], ControlPlane] = {}
        self._guards: dict[tuple[str, bool], Guard] = {}
        self._found: list[Object] = []
        """What was registered under our name on the given cluster."""

    def get(self, release: str, *, kueue: bool = False) -> Cluster:
        """The cluster for a release, with Kueue where asked for. Skips the test where there can be none."""
        if given := os.environ.get("E2E_KUBECONFIG"):
            if self._given is None:
                self._given = _given(Path(given))
                self._found = registrations(self._given)
            _skip_unless_fit(self._given, release, kueue)
            return self._given
        key = (release, kueue)
        if key not in self._started:
            self._started[key] = _started(release, kueue)
        return self._started[key]

    def guard(self, release: str, *, kueue: bool = False) -> Guard:
        """Our webhook on that cluster, running and registered."""
        key = (release, kueue)
        cluster = self.get(release, kueue=kueue)
        if key not in self._guards:
            # Where one is installed already, ours takes its place until the end.
            if self._found:
                unregister_webhook(cluster)
            self._guards[key] = Guard(cluster)
        guard = self._guards[key]
        if not guard.running:
            guard.start()
        if not is_registered(cluster):
            guard.register()
        return guard

    def stop(self) -> None:
        """Ends everything."""
        if self._given is not None and self._guards:
            if self._found:
                self._given.apply(*self._found, server_side=True)
            else:
                unregister_webhook(self._given)
        for guard in self._guards.values():
            guard.stop()
        for plane in self._started.values():
            plane.stop()
        if self._given is not None:
            self._given.stop()


def _given(kubeconfig: Path) -> GivenCluster:
    return GivenCluster(kubeconfig, Path(shutil.which("kubectl") or build.kubernetes().program("kubectl")))


def _skip_unless_fit(cluster: GivenCluster, release: str, kueue: bool) -> None:
    if cluster.release.trainer != release:
        pytest.skip(f"the cluster of E2E_KUBECONFIG runs Trainer {cluster.release.minor}")
    if kueue and cluster.get("customresourcedefinitions", "workloads.kueue.x-k8s.io") is None:
        pytest.skip("the cluster of E2E_KUBECONFIG does not have Kueue")


def _started(release: str, kueue: bool) -> ControlPlane:
    try:
        for component in needed_components(RELEASES[release], kueue=kueue):
            build.ensure(component)
    except build.GoMissingError as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    plane = ControlPlane(RELEASES[release], kueue=kueue)
    plane.start()
    return plane


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "ends: on the newest and the oldest release of Trainer; what is tried does not depend on it, so those between "
        "are full",
    )


NEWEST = next(iter(RELEASES))
SINGLE = ("upgrade", "rehearsal")
"""Modules each of whose tests has a cluster of its own, or none."""
ALONE = ("certs", "cluster_lines", "cluster_faults", "cluster_cli", "scan_faults", "scan")
"""Modules with a cluster of their own. The tests of certificates last as long as all others of their release."""
BESIDE = ("cluster_bundle", "policy_life", "checkpoint_exceptions", "scan_copies", "runs_list", "runtime_changes")
"""Modules on a second cluster of the newest release, so that no worker has to do most of the work."""
LONGEST = ("cluster_lines", NEWEST, "2.0.1", "certs", "beside", "2.2.1", "2.1.0", "upgrade", "cluster_faults")
"""What is begun first, so that all workers end together."""


def _module(nodeid: str) -> str:
    return nodeid.partition("::")[0].rpartition("/test_")[2].removesuffix(".py")


def cluster_of(nodeid: str) -> str:
    """Which tests run on one cluster, one after the other."""
    module = _module(nodeid)
    if module in SINGLE:
        return nodeid
    if module in ALONE:
        return module
    found = re.search(r"\[.*?((kueue-)?\d+\.\d+\.\d+)", nodeid)
    release = found[1] if found else None
    if module in BESIDE and release in (None, NEWEST):
        return "beside"
    return release or module


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    _, *between, _ = RELEASES
    for item in items:
        if item.get_closest_marker("ends") is not None and any(f"[{name}" in item.nodeid for name in between):
            item.add_marker("full")
    yield
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    order = {
        item: ranks.setdefault(_module(item.nodeid), len(ranks)) for item in items if _module(item.nodeid) in SINGLE
    }
    order |= {item: ranks.setdefault(cluster_of(item.nodeid), len(ranks)) for item in items if item not in order}
    items.sort(key=order.__getitem__)


@pytest.hookimpl(optionalhook=True)  # there is no such hook without pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Has pytest-xdist run all tests of one cluster on one worker, so that each cluster is started once."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByCluster(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return cluster_of(nodeid)

    config.option.loadscopereorder = False  # not by how many they are, but in the order of above
    return ByCluster(config, log)


@pytest.fixture(scope="session")
def clusters() -> Iterator[Clusters]:
    """All clusters of the session, for tests that choose one themselves."""
    clusters = Clusters()
    yield clusters
    clusters.stop()


@pytest.fixture(scope="session", params=list(RELEASES))
def release(request: pytest.FixtureRequest) -> str:
    """A Trainer release; a test that uses it, or a fixture below, runs once for each."""
    return str(request.param)


@pytest.fixture
def cluster(clusters: Clusters, release: str) -> Cluster:
    """The cluster of the release. Whether our webhook is registered there, other fixtures say."""
    return clusters.get(release)


@pytest.fixture
def control_plane(cluster: Cluster) -> ControlPlane:
    """The cluster of the release, for tests that restart its programs or play its kubelet."""
    if not isinstance(cluster, ControlPlane):
        pytest.skip("the cluster of E2E_KUBECONFIG has nodes of its own and is not ours to restart")
    return cluster


@pytest.fixture
def unguarded(cluster: Cluster) -> Cluster:
    """The cluster of the release, with our webhook not registered."""
    if is_registered(cluster):
        unregister_webhook(cluster)
    return cluster


@pytest.fixture
def guard(clusters: Clusters, release: str) -> Guard:
    """Our webhook, running and registered on the cluster of the release."""
    return clusters.guard(release)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A new namespace on the cluster of the release, with the default mode."""
    name = cluster.new_namespace()
    yield name
    cluster.delete_namespace(name)


@pytest.fixture(
    scope="session",
    params=[name for name, release in RELEASES.items() if release.runs_with_kueue],
    ids=lambda name: f"kueue-{name}",
)
def kueue_release(request: pytest.FixtureRequest) -> str:
    """A Trainer release that Kueue runs with."""
    return str(request.param)


@pytest.fixture
def kueue_cluster(clusters: Clusters, kueue_release: str) -> Cluster:
    """A cluster with Kueue, of its own: Kueue adds its entry to every TrainJob there."""
    return clusters.get(kueue_release, kueue=True)


@pytest.fixture
def kueue_guard(clusters: Clusters, kueue_release: str) -> Guard:
    """Our webhook, running and registered on the cluster with Kueue."""
    return clusters.guard(kueue_release, kueue=True)
