"""`ckptguard scan --metrics`: runs by namespace and verdict, scanned again and again, and what a failed scan leaves."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections import Counter

import pytest

from tests.cli.test_review import Run, run
from tests.runs.fake import FakeApi
from tests.scan.clusters import api_of, objects
from webhook.cli import scan as command
from webhook.cluster.access import Unreachable
from webhook.model.policy import Policy
from webhook.scan.cluster import ClusterScan
from webhook.scan.serve import VERDICTS, Figures, Loop, count, listen, text

__all__ = ["run"]


def test_runs_are_counted_by_namespace_and_verdict() -> None:
    api = api_of(objects("team"), objects("lost", bad=True))
    seen: list[str] = []
    counts = count(ClusterScan(api, Policy()).results(), lambda result: seen.append(result.kind))
    assert counts == {("team", "allow"): 1, ("lost", "deny"): 1}
    assert len(seen) == 4
    shown = text(Figures(counts, 1.5, 1000.0, 2))
    assert 'ckptguard_runs{namespace="lost",verdict="deny"} 1' in shown
    assert 'ckptguard_runs{namespace="lost",verdict="allow"} 0' in shown
    assert shown.count("ckptguard_runs{") == 2 * len(VERDICTS)
    assert "ckptguard_scan_failures_total 2" in shown


def test_what_is_not_judged_is_no_good_verdict() -> None:
    api = api_of(objects("team"))
    del api.objects["/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainingruntimes/plain"]
    assert count(ClusterScan(api, Policy()).results()) == {("team", "not-judged"): 1}


def test_a_scan_that_fails_leaves_the_figures_before_it() -> None:
    turns = iter([Counter({("team", "deny"): 2}), None, Counter({("other", "allow"): 1})])
    loop = Loop(lambda: next(turns), 0.0)
    seen: list[Figures] = []

    def turn() -> Counter[tuple[str, str]] | None:
        seen.append(loop.figures)
        found = next(turns, Counter())
        if not found and len(seen) > 3:
            loop.end()
        return found

    loop._turn = turn
    loop.run()
    assert (seen[2].runs, seen[2].failures) == ({("team", "deny"): 2}, 1)
    # A namespace that is empty now is seen to fall to 0.
    assert (seen[3].runs, seen[3].failures) == ({("other", "allow"): 1, ("team", "deny"): 0}, 1)


def test_it_is_served_and_ends(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Connected(FakeApi):
        namespace = "team"

    api = Connected(api_of(objects("team")).objects)
    monkeypatch.setattr(command, "connect", lambda kubeconfig, context: api)
    monkeypatch.setattr(Loop, "until_signal", lambda loop: threading.Timer(0.5, loop.end).start())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answers: list[str] = []

    def ask() -> None:
        for path in ("metrics", "healthz"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as answer:
                answers.append(answer.read().decode())

    threading.Timer(0.3, ask).start()
    assert run("scan", "-A", "--metrics", f"127.0.0.1:{port}")[0] == 0
    assert 'ckptguard_runs{namespace="team",verdict="allow"} 1' in answers[0]
    assert answers[1] == "ok\n"


def test_a_port_that_is_taken_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "connect", lambda kubeconfig, context: api_of())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, _, err = run("scan", "-A", "--metrics", f"127.0.0.1:{taken.getsockname()[1]}")
    assert code == 2
    assert "--metrics: " in err


def test_an_api_server_that_goes_away_counts_as_a_failure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(FakeApi):
        namespace = "team"

    monkeypatch.setattr(command, "_PATIENCE", 0.0)
    api = Away()
    api.away = True
    with pytest.raises(Unreachable):
        list(ClusterScan(api, Policy()).results())
    monkeypatch.setattr(command, "connect", lambda kubeconfig, context: api)
    ended: list[Loop] = []

    def until(loop: Loop) -> None:
        ended.append(loop)
        loop._every = 0.0
        threading.Timer(0.3, loop.end).start()

    monkeypatch.setattr(Loop, "until_signal", until)
    code, _, err = run("scan", "-A", "--metrics", "127.0.0.1:0")
    assert code == 0
    assert "cannot be reached" in err
    assert ended[0].figures.failures >= 1


def test_a_scan_that_hangs_is_no_healthy_process() -> None:
    loop = Loop(Counter, 10.0)
    server = listen(("127.0.0.1", 0), loop)
    port = server.server_address[1]
    loop._began -= 1000
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/else", timeout=5)
    server.shutdown()
    server.server_close()
