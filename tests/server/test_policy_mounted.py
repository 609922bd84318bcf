"""A policy that is mounted as a ConfigMap is: by a link that changes at once. Tried on the server as it runs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from tests.server.serving import Answered, Wire, message, review
from tests.server.test_bootstrap import command
from tests.server.test_lane import wait_for
from tests.server.test_run import ready

HEAD = "apiVersion: checkpoint-guard.io/v1\nkind: Policy\n"
DENY = HEAD + "rules: {short-grace: deny}\n"
LOST = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch"},
    "spec": {
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                            "spec": {
                                "backoffLimit": 0,
                                "template": {
                                    "spec": {
                                        "terminationGracePeriodSeconds": 5,
                                        "containers": [{"name": "node", "image": "i"}],
                                    }
                                },
                            },
                        },
                    }
                ]
            }
        }
    },
}
"""A runtime that rule ``short-grace`` speaks of, whatever is known of the cluster."""
SHORT = message(
    "/validate", json.dumps(review(LOST, kind="ClusterTrainingRuntime", namespace="", name="torch")).encode()
)


class Mount:
    """A directory as the kubelet makes it: ``policy.yaml`` -> ``..data/policy.yaml``, ``..data`` -> the version."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder = folder
        self.file = folder / "policy.yaml"
        self._number = 0
        self.swap(text)
        self.file.symlink_to(Path("..data", "policy.yaml"))

    def swap(self, text: str) -> None:
        """A new version, in force by one rename."""
        self._number += 1
        version = self.folder / f"..version-{self._number}"
        version.mkdir()
        (version / "policy.yaml").write_text(text)
        link = self.folder / "..data_tmp"
        link.symlink_to(version.name)
        link.rename(self.folder / "..data")


@contextmanager
def served(policy: Path, errors: list[str]) -> Iterator[int]:
    """The command with this policy; what it said on standard error is in ``errors`` at the end."""
    with command("--insecure-http", "--policy", str(policy)) as (child, port):
        pipes = (child.stdout, None), (child.stderr, errors)
        readers = [threading.Thread(target=_lines, args=one) for one in pipes]
        for reader in readers:
            reader.start()
        wait_for(lambda: ready(port) == 200, 60)
        yield port
        child.terminate()
        for reader in readers:
            reader.join(15)


def _lines(stream: IO[bytes], into: list[str] | None) -> None:
    for line in stream:
        if into is not None:
            into.append(line.decode())


def ask(wire: Wire) -> Answered:
    wire.send(SHORT)
    return wire.answer()


def allowed(port: int) -> bool:
    with Wire(port) as wire:
        return bool(ask(wire).response["allowed"])


def until(port: int, wanted: bool, seconds: float = 20.0) -> float:
    """Seconds until the answer is this."""
    began = time.monotonic()
    wait_for(lambda: allowed(port) is wanted, seconds)
    return time.monotonic() - began


def test_a_change_of_the_link_is_in_force_and_a_broken_one_is_not(tmp_path: Path) -> None:
    errors: list[str] = []
    mount = Mount(tmp_path, DENY)
    with served(mount.file, errors) as port:
        assert not allowed(port)
        mount.swap(HEAD + "rules: {short-grace: warn}\n")
        print(f"\nin force after {until(port, True):.1f} s")
        mount.swap(HEAD + "rules: {short-grce: deny}\n")
        time.sleep(2)
        assert allowed(port)
        mount.swap(HEAD + "rules: {short-grace: deny}\n")
        until(port, False)
    text = "".join(errors)
    assert 'the nearest is \\"short-grace\\"' in text
    assert "stays in force" in text


def test_a_file_half_written_is_not_in_force(tmp_path: Path) -> None:
    """What is there of it is a policy, and would refuse: it is read when it has stayed as it is."""
    errors: list[str] = []
    file = tmp_path / "policy.yaml"
    file.write_text(HEAD + "rules: {short-grace: warn}\n")
    with served(file, errors) as port:
        assert allowed(port)
        with file.open("w") as stream:
            for piece in (
                HEAD,
                *["# a remark\n"] * 12,
                "rules:\n",
                "  short-grace:",
                " warn\n",
                "limits: {maxRestarts: 7}\n",
            ):
                stream.write(piece)
                stream.flush()
                assert allowed(port)
                time.sleep(0.1)
        wait_for(lambda: any(" is in force, after " in line for line in errors), 20)
        assert allowed(port)
    assert sum(" is in force, after " in line for line in errors) == 1
    assert "cannot be used" not in "".join(errors)


def test_the_file_taken_away_and_put_back(tmp_path: Path) -> None:
    errors: list[str] = []
    file = tmp_path / "policy.yaml"
    file.write_text(HEAD + "rules: {short-grace: warn}\n")
    with served(file, errors) as port:
        file.unlink()
        wait_for(lambda: any("is not there" in line for line in errors), 20)
        assert allowed(port)
        file.write_text(DENY)
        until(port, False)


class Asking:
    """Requests one after the other on some connections, until told to stop; each answer and how long it took."""

    def __init__(self, port: int, connections: int) -> None:
        self.took: list[tuple[float, float]] = []
        self.allowed: list[bool] = []
        self.faults: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(port,)) for _ in range(connections)]
        for thread in self._threads:
            thread.start()

    def _ask(self, port: int) -> None:
        try:
            with Wire(port) as wire:
                while not self._stop.is_set():
                    began = time.monotonic()
                    answer = ask(wire).response
                    self.took.append((began, time.monotonic() - began))
                    self.allowed.append(bool(answer["allowed"]))
                    time.sleep(0.002)
        except BaseException as error:
            self.faults.append(error)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(10)

    def longest(self, since: float, to: float) -> float:
        return max(took for began, took in self.took if since <= began < to)


def _large(setting: str, entries: int = 10_000) -> str:
    entry = "- {rules: [short-grace], match: {names: ['run-%d-*']}, reason: r, owner: o, until: 2020-01-01}\n"
    lines = "".join(entry % number for number in range(entries))
    return f"{HEAD}rules: {{short-grace: {setting}}}\nexceptions:\n{lines}"


def _reloads(port: int, mount: Mount, change: Callable[[int], str], times: int) -> list[float]:
    took = []
    for number in range(times):
        mount.swap(change(number))
        took.append(until(port, number % 2 == 0, 60.0))
    return took


def test_ten_thousand_exceptions_while_requests_are_answered(tmp_path: Path) -> None:
    """Nothing is dropped; the longest answers are told beside those of as long a time without a change."""
    errors: list[str] = []
    mount = Mount(tmp_path, DENY)
    with served(mount.file, errors) as port:
        asking = Asking(port, 3)
        time.sleep(1.0)  # whatever is made for the first requests
        began = time.monotonic()
        took = _reloads(port, mount, lambda number: _large("deny" if number % 2 else "warn"), 2)
        changed = time.monotonic()
        time.sleep(changed - began)
        ended = time.monotonic()
        asking.stop()
    assert not asking.faults
    assert True in asking.allowed
    assert False in asking.allowed
    during, quiet = asking.longest(began, changed), asking.longest(changed + 1.5, ended)
    print(
        f"\n{len(asking.took)} answers; in force after {', '.join(f'{one:.1f}' for one in took)} s; "
        f"longest answer while it changes {during * 1000:.0f} ms, else {quiet * 1000:.0f} ms"
    )
    assert not any("read by the server itself" in line for line in errors)


def test_small_ones_one_after_the_other(tmp_path: Path) -> None:
    errors: list[str] = []
    mount = Mount(tmp_path, DENY)
    with served(mount.file, errors) as port:
        asking = Asking(port, 2)
        took = _reloads(
            port, mount, lambda number: f"{HEAD}rules: {{short-grace: {'deny' if number % 2 else 'warn'}}}\n", 4
        )
        asking.stop()
    assert not asking.faults
    print(f"\nin force after {', '.join(f'{one:.1f}' for one in took)} s")
    assert "Traceback" not in "".join(errors)


@pytest.mark.parametrize("broken", [b"", b"1", b"rubbish that is no pickle"])
def test_where_the_process_that_reads_fails_the_server_reads_itself(
    broken: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import asyncio
    import subprocess
    import sys

    from webhook.server import policy_reading

    start = subprocess.Popen

    def other(arguments: list[str], **more: Any) -> subprocess.Popen[bytes]:
        code = f"import os; os.write({arguments[-1]}, {broken!r})"
        return start([sys.executable, "-c", code], **more)

    monkeypatch.setattr(subprocess, "Popen", other)
    made = asyncio.run(policy_reading.read(_large("warn", 400).encode(), "p.yaml", None))
    assert made.policy is not None
    assert len(made.policy.exceptions) == 400
    assert "read by the server itself" in caplog.text


def test_the_process_says_what_the_thread_says() -> None:
    import asyncio

    from webhook.model.policy import Policy
    from webhook.server import policy_reading

    namespaces = "namespaces:\n" + "".join(
        f"- {{names: [team-{n}], rules: {{short-grace: audit}}}}\n" for n in range(300)
    )
    text = (_large("warn", 300) + namespaces).encode()
    apart = asyncio.run(policy_reading.read(text, "p.yaml", "warn"))
    beside = policy_reading._beside(text, "p.yaml", "warn")
    assert isinstance(apart.policy, Policy)
    assert apart == beside
    assert apart.policy.modes.default == "warn"
    assert len(apart.policy.derived["packed"]) == 7
    faulty = asyncio.run(policy_reading.read(text + b"rulez: {}\n", "p.yaml", None))
    assert faulty.policy is None
    assert "rulez" in faulty.faults[0]
