"""A default that raises is named and undone, and the rest go on."""

from __future__ import annotations

from typing import Any

from tests.defaults.world import applied, claim, cluster, default, job, mounting, request, runtime, trainjob, volume
from webhook.cluster.file_view import FileView
from webhook.model.policy import Policy
from webhook.model.release import Release


class Failing(FileView):
    """A cluster whose look-ups fail in a way that nobody foresaw."""

    def __init__(self, inner: FileView, *broken: str) -> None:
        self._inner, self._broken = inner, broken

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        if name in self._broken:
            raise ZeroDivisionError("secret text")
        return getattr(self._inner, name)


def test_one_default_fails_and_another_goes_on() -> None:
    view = Failing(cluster(runtime(job(pod=mounting())), claim("mine"), volume()), "namespace")
    run = trainjob()

    done = default(request(run), view, Policy(), Release.V2_3)

    assert done.broken == ("tiered_layout", "checkpoint_volume")
    assert done.applied == ("checkpoint_variables",)
    assert applied(run, done.patch) == done.object
    for found in done.findings:
        assert found.rule == "broken-rule"
        assert "ZeroDivisionError" in found.problem
        assert "secret" not in found.problem


def test_the_pods_cannot_be_built() -> None:
    done = default(request(trainjob()), Failing(cluster(), "runtime"), Policy(), Release.V2_3)
    assert (done.patch, done.broken) == ((), ("effective",))


def test_half_an_edit_is_undone() -> None:
    """The second job of the runtime has a pod template that is no map, which the shape check keeps out."""
    raw = runtime(job(), job("node"))
    raw["spec"]["mlPolicy"] = {"mpi": {}}
    raw["spec"]["template"]["spec"]["replicatedJobs"][0]["name"] = "launcher"
    raw["metadata"]["annotations"] = "no map"

    done = default(request(raw), cluster(), Policy(), Release.V2_3)

    assert done.broken == ("record",)
    assert done.patch == ()
    assert done.object == raw
