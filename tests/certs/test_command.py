"""``ckptguard certs``: flags, words, exit codes."""

from __future__ import annotations

import argparse
import datetime
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from certs import command
from certs.actions import parse_time, read_settings
from certs.health import metrics_text, serve_health
from certs.loop import Clock, Keeper, Status
from certs.rotation import Rotation
from tests.certs.cluster import NOW, SETTINGS, FakeCluster
from webhook.cli import main

Run = Callable[..., tuple[int, str, str]]


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    return parser.parse_args(arguments)


def test_defaults() -> None:
    settings = read_settings(parse("run", "--namespace", "guard"))
    assert settings == SETTINGS
    assert read_settings(parse("check")).namespace == "checkpoint-guard"


def test_flags() -> None:
    settings = read_settings(
        parse("once", "--namespace=ns", "--service=svc", "--name=127.0.0.1", "--life=30s", "--ca-life=2m",
              "--settle=2s", "--configuration=a", "--configuration=b", "--secret=s", "--ca-secret=t")
    )  # fmt: skip
    assert settings.names == ("svc.ns.svc", "svc.ns", "svc.ns.svc.cluster.local", "127.0.0.1")
    assert settings.configurations == ("a", "b")
    assert (settings.leaf_life.seconds, settings.authority_life.seconds, settings.settle) == (30, 120, 2.0)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--life=1"], '"1" is no time'),
        (["--life=-5d"], '"-5d" is no time'),
        (["--life=5s"], "--life is at least 10s"),
        (["--life=90d", "--ca-life=30d"], "--ca-life at least --life"),
        (["--life=30s", "--settle=20s"], "--settle is longer than a third"),
        (["--life=99999999999999999999d"], "longer than 100 years"),
        (["--ca-life=9999999d"], "longer than 100 years"),
        (["--name="], "neither a DNS name nor an address"),
        (["--name=a..b"], "neither a DNS name nor an address"),
        (["--name=Bücher.example"], "neither a DNS name nor an address"),
        (["--namespace=a/b"], "neither a DNS name nor an address"),
        (["--secret=a", "--ca-secret=a"], "pods would get the authority's key"),
    ],
)
def test_flags_that_make_no_sense(flags: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_settings(parse("once", *flags))


def test_times() -> None:
    assert parse_time("90d") == datetime.timedelta(days=90)
    assert parse_time("1.5h") == datetime.timedelta(minutes=90)
    assert parse_time("15m").total_seconds() == 900


@pytest.fixture
def ckptguard(capsys: pytest.CaptureFixture[str]) -> Run:
    """``ckptguard certs`` in this process: exit code, output and errors. The handlers of signals are put back."""

    def run(*arguments: str) -> tuple[int, str, str]:
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            code = main(["certs", *arguments])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return (code, *capsys.readouterr())

    return run


@pytest.mark.parametrize("listen", [":http", ":99999", "192.0.2.1:8080"])
def test_where_nobody_can_listen(ckptguard: Run, tmp_path: Path, listen: str) -> None:
    config = tmp_path / "config"
    config.write_text(
        "current-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {}}]\n"
        "clusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}]\n"
    )
    code, _, err = ckptguard("run", "--kubeconfig", str(config), "--listen", listen)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "a fault of ckptguard itself" not in err
    assert listen in err


@pytest.mark.parametrize("text", [None, "a: [", "only a text", "contexts: [1]\ncurrent-context: x\nclusters: 5"])
def test_no_cluster_is_two(ckptguard: Run, tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "none").write_text(text)
    code, out, err = ckptguard("check", "--kubeconfig", str(tmp_path / "none"))
    assert (code, out) == (2, "")
    assert "error: the cluster's configuration cannot be used" in err
    assert len(err.splitlines()) == 1


def test_an_api_server_that_does_not_answer_cannot_be_checked(ckptguard: Run, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],"
        " clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: a, user: {token: x}}]}"
    )
    code, out, err = ckptguard("check", "--kubeconfig", str(config))
    assert (code, out) == (2, "")
    assert "error: cannot be checked" in err


def test_looking_at_the_command_imports_nothing_heavy() -> None:
    code = "import sys, certs.command; print(sorted({m.partition('.')[0] for m in sys.modules} & {'cryptography', 'kubernetes'}))"  # noqa: E501
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_health_and_metrics() -> None:
    rotation, status, at = Rotation(FakeCluster(), SETTINGS), Status(), [0.0]
    assert "expires" not in metrics_text(status, Keeper(rotation))
    rotation.step(NOW, 0.0)
    status.leading, status.writes["ca"] = True, 1
    clock = Clock(lambda: NOW, lambda: at[0], lambda seconds: False)
    server = serve_health("127.0.0.1:0", status, Keeper(rotation), clock, 10)
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{url}/healthz") as answer:
            assert answer.read() == b"ok\n"
        with opener.open(f"{url}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        assert "ckptguard_certs_leading 1" in lines
        assert 'ckptguard_certs_writes_total{what="ca"} 1' in lines
        assert f'ckptguard_certs_expires_seconds{{what="leaf"}} {int(NOW.timestamp()) + 90 * 86400}' in lines
        at[0] = 1000.0
        with pytest.raises(urllib.error.HTTPError, match="503"):
            opener.open(f"{url}/healthz")
    finally:
        server.shutdown()
        server.server_close()
