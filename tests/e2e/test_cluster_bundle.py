"""A claim, a runtime and a TrainJob in one file: the verdict comes milliseconds after what it rests on was made."""

from __future__ import annotations

from collections.abc import Iterator
from subprocess import CompletedProcess

import pytest

from tests.e2e.bare import claim, on_claim, runtime, shared_class, trainjob
from tests.e2e.controlplane.cluster import Cluster, as_list, when_trainer_knows
from tests.e2e.controlplane.guard import Guard

TIMES = 200


@pytest.fixture(autouse=True)
def _class(cluster: Cluster) -> Iterator[None]:
    """The class of the claims; no other test finds it among those to choose from."""
    cluster.apply(shared_class())
    yield
    cluster.kubectl("delete", "storageclass", "shared")


@pytest.mark.parametrize("release", ["2.3.0"], indirect=True)
def test_a_bundle_is_never_denied_for_what_came_a_moment_ago(guard: Guard, cluster: Cluster, namespace: str) -> None:
    for number in range(TIMES):
        name = f"bundle-{number}"
        bundle = as_list(
            [claim(name, namespace), runtime(name, namespace, on_claim(name)), trainjob(name, namespace, name)]
        )

        def attempt(number: int = number, bundle: str = bundle) -> CompletedProcess[str]:
            run = cluster.kubectl("apply", "-f", "-", input=bundle, check=False)
            assert "checkpoint-guard" not in run.stderr, f"round {number}: {run.stderr}"
            return run

        applied = when_trainer_knows(attempt)
        assert applied.returncode == 0, f"round {number}: {applied.stderr}"
        assert "Warning" not in applied.stderr, f"round {number}: {applied.stderr}"


@pytest.mark.parametrize("release", ["2.3.0"], indirect=True)
def test_namespaces_may_be_deleted_under_it(guard: Guard, cluster: Cluster) -> None:
    for number in range(5):
        name = cluster.new_namespace(prefix="short")
        cluster.apply(claim("ckpt", name), runtime("plain", name, on_claim("ckpt")))
        cluster.apply(trainjob("first", name, "plain"))
        cluster.delete_namespace(name)
        refused = cluster.send("apply", objects=[trainjob(f"late-{number}", name, "plain")], check=False)
        # The API server refuses it, or it is gone already. We do not.
        assert "denied the request" not in refused.stderr or "checkpoint-guard" not in refused.stderr, refused.stderr
    fresh = cluster.new_namespace(prefix="short")
    cluster.apply(claim("ckpt", fresh), runtime("plain", fresh, on_claim("ckpt")), trainjob("run", fresh, "plain"))
    cluster.delete_namespace(fresh)
