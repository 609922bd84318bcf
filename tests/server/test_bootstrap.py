"""Settings from flags and environment, faults in words, and the real command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.server.serving import UID, Wire, message, review
from tests.server.test_lane import wait_for
from tests.server.test_run import free_port, ready
from tests.server.test_tls import client, write_pair
from webhook.bootstrap import SettingsError, read_settings, serve
from webhook.settings import Settings, parse_listen

HTTP = {"insecure_http": True}


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("CKPTGUARD_"):
            monkeypatch.delenv(name)


def test_flags_win_over_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKPTGUARD_LISTEN", "127.0.0.1:1")
    monkeypatch.setenv("CKPTGUARD_AUDIT_QUEUE", "5")
    monkeypatch.setenv("CKPTGUARD_POLICY", "")
    settings = read_settings({**HTTP, "listen": "127.0.0.1:2", "tls_cert": None, "command": "serve"})
    assert settings.listen == "127.0.0.1:2"
    assert settings.audit_queue == 5
    assert settings.policy is None


def test_defaults() -> None:
    settings = read_settings(HTTP)
    assert parse_listen(settings.listen) == ("0.0.0.0", 8443)
    assert settings.lookup_timeout == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8443", ("127.0.0.1", 8443)),
        (":9443", ("0.0.0.0", 9443)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_listen(text: str, expected: tuple[str, int]) -> None:
    assert parse_listen(text) == expected


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({}, "--tls-cert and --tls-key are needed, or --insecure-http"),
        ({"tls_cert": "a"}, "--tls-cert and --tls-key are needed"),
        ({**HTTP, "tls_cert": "a"}, "excludes"),
        ({**HTTP, "listen": "8443"}, "is not ADDR:PORT"),
        ({**HTTP, "listen": "::1:8443"}, "brackets"),
        ({**HTTP, "listen": "x:99999"}, "is not ADDR:PORT"),
        ({**HTTP, "audit_queue": 0}, "CKPTGUARD_AUDIT_QUEUE: "),
        ({**HTTP, "log_level": "loud"}, "CKPTGUARD_LOG_LEVEL: "),
    ],
)
def test_faults(flags: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        read_settings(flags)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"tls_cert": "none.crt", "tls_key": "none.key"}, "none.crt and none.key: none.crt: No such file"),
        ({**HTTP, "policy": "none.yaml"}, "none.yaml"),
        ({**HTTP, "trainer": "9.9"}, "unknown Trainer release"),
        ({**HTTP, "audit_file": "none/audit.log"}, "none/audit.log"),
    ],
)
def test_faults_found_late_end_with_2(
    flags: dict[str, object],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in flags.items():
        monkeypatch.setenv(f"CKPTGUARD_{name.upper()}", str(value).lower() if value is True else str(value))
    assert serve(SimpleNamespace(no_cluster=True)) == 2
    assert words in capsys.readouterr().err


def test_every_setting_is_documented() -> None:
    readme = Path(__file__).parents[2] / "docs" / "settings.md"
    text = readme.read_text()
    for name in Settings.model_fields:
        assert f"`CKPTGUARD_{name.upper()}`" in text


@contextmanager
def command(*flags: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    child = subprocess.Popen(
        [sys.executable, "-m", "webhook", "serve", "--listen", f"127.0.0.1:{port}", "--no-cluster", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env={"CKPTGUARD_PRE_STOP_DELAY": "0"},
    )
    try:
        yield child, port
    finally:
        child.kill()
        child.communicate()


def test_the_command_serves_plain_http() -> None:
    with command("--insecure-http") as (child, port):
        wait_for(lambda: ready(port) == 200, 20)
        with Wire(port) as wire:
            for path in ("/mutate", "/validate"):
                wire.send(message(path, json.dumps(review()).encode()))
                assert wire.answer().response["uid"] == UID
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=15)
    assert child.returncode == 0, err
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["webhook"] for line in lines] == ["mutate", "validate"]
    assert b"Traceback" not in err


def test_the_command_serves_tls(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path, 51)
    with command("--tls-cert", str(cert), "--tls-key", str(key)) as (child, port):

        def up() -> bool:
            try:
                with Wire(port, client(cert)) as wire:
                    wire.send(message("/validate", json.dumps(review()).encode()))
                    return bool(wire.answer().response["uid"] == UID)
            except OSError:
                assert child.poll() is None
                return False

        wait_for(up, 20)


def test_a_port_in_use_ends_with_1() -> None:
    with command("--insecure-http") as (_, port):
        wait_for(lambda: ready(port) == 200, 20)
        second = subprocess.run(
            [
                sys.executable,
                "-m",
                "webhook",
                "serve",
                "--listen",
                f"127.0.0.1:{port}",
                "--no-cluster",
                "--insecure-http",
            ],
            capture_output=True,
            cwd=Path(__file__).parents[2],
            timeout=30,
            check=False,
        )
    assert second.returncode == 1
    assert b"Traceback" not in second.stderr
