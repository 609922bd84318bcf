"""A terminal that goes away ends a command as Ctrl-C does: what it made in the cluster is not left to itself."""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

import pytest

from webhook.cli import run_flags
from webhook.runs.kube import Kube
from webhook.runs.session import Session


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    monkeypatch.setattr(run_flags, "connect", lambda *_: argparse.Namespace(namespace="team"))
    parser = argparse.ArgumentParser()
    run_flags.add_flags(parser)
    return parser.parse_args(["run"])


@pytest.fixture
def cleaned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr(Kube, "clean", lambda _: found.append(signal.getsignal(signal.SIGHUP)))
    return found


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_it_clears_up_and_says_what_is_left(
    arguments: argparse.Namespace, cleaned: list[Any], number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGHUP)

    def act(session: Session) -> int:
        session.state = "half of it is done"
        os.kill(os.getpid(), number)
        return 0

    assert run_flags.run_on(arguments, act) == 130
    assert "interrupted: half of it is done" in capsys.readouterr().err
    assert cleaned == [signal.SIG_IGN]  # a second one does not end the clearing up
    assert signal.getsignal(signal.SIGHUP) is before


def test_with_nohup_it_goes_on(arguments: argparse.Namespace, cleaned: list[Any]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:

        def act(_: Session) -> int:
            os.kill(os.getpid(), signal.SIGHUP)
            return 7

        assert run_flags.run_on(arguments, act) == 7
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert len(cleaned) == 1
