"""How long answers take while the policy file changes under load, and as long without a change, in one run."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.measure import Row, milliseconds
from bench.objects import review, trainjob
from bench.serving import _free_ports, _pair, _started, lacking

CONNECTIONS = 8
PER_SECOND = 250
"""Requests of each connection."""
ENTRIES = 10_000
_FREED = 2.5
"""Seconds after a change in which the policy before is let go."""
_HEAD = "apiVersion: checkpoint-guard.io/v1\nkind: Policy\n"
_ENTRY = "- {rules: [short-grace], match: {names: ['run-%d-*']}, reason: version %d, owner: o, until: 2020-01-01}\n"
_WORD = "is in force, after"


class Window(NamedTuple):
    """From one moment to another, in seconds since the epoch."""

    began: float
    ended: float


class Felt(NamedTuple):
    """The slowest answer of each window, in seconds, and all answers that were none."""

    changing: list[float]
    quiet: list[float]
    answers: int
    lost: int


def measure_reload(rounds: int, _: int) -> list[Row]:
    """A small policy and one of ten thousand exceptions, each changed ``rounds`` times."""
    if missing := lacking("h2load", "openssl"):
        return [Row(f"reload: no {', '.join(missing)} (apt-get install nghttp2-client)", "", "", None, "")]
    rows = []
    for what, text in (("a small policy", _small), (f"{ENTRIES:,} exceptions", _large)):
        felt = _feel([text(number) for number in range(max(rounds, 5) + 1)])
        rows += [
            Row(
                f"reload of {what}: slowest answer more than without, ms",
                milliseconds(max(felt.changing)),
                f"{milliseconds(max(felt.quiet))} without",
                (max(felt.changing) - max(felt.quiet)) * 1e3,
                "<= 20",
                f"{felt.answers} answers",
            ),
            Row(
                f"reload of {what}: the same, median of windows, ms",
                milliseconds(statistics.median(felt.changing)),
                f"{milliseconds(statistics.median(felt.quiet))} without",
                (statistics.median(felt.changing) - statistics.median(felt.quiet)) * 1e3,
                "<= 20",
                f"{len(felt.changing)} windows each",
            ),
            Row(f"reload of {what}: requests lost", str(felt.lost), "", float(felt.lost), "<= 0"),
        ]
    return rows


def _small(number: int) -> str:
    return f"{_HEAD}limits: {{maxRestarts: {20 + number}}}\n"


def _large(number: int) -> str:
    return f"{_HEAD}exceptions:\n" + "".join(_ENTRY % (entry, number) for entry in range(ENTRIES))


def _feel(versions: list[str]) -> Felt:
    """The first version is what the server starts with; the others follow, each before a window without a change."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cert, key = _pair(folder)
        policy, body, log = folder / "policy.yaml", folder / "review.json", folder / "log"
        body.write_bytes(review(trainjob()))
        _put(policy, versions[0])
        (port,) = _free_ports(1)
        command = [sys.executable, "-m", "bench.guarded", f"listen=127.0.0.1:{port}", "no_cluster=true"]
        command += [f"tls_cert={cert}", f"tls_key={key}", f"audit_file={folder / 'audit'}", "audit_stdout=false"]
        with _started([*command, f"policy={policy}"], port, log):
            requests = folder / "requests"
            load = ["h2load", "--h1", "-t1", f"-c{CONNECTIONS}", f"--rps={PER_SECOND}", "-D3600", f"-d{body}"]
            load += ["-H", "content-type: application/json", f"--log-file={requests}"]
            child = subprocess.Popen([*load, f"https://127.0.0.1:{port}/validate"], stdout=subprocess.DEVNULL)  # noqa: S603 - fixed words
            try:
                time.sleep(3.0)
                windows = [*_windows(versions[1:], policy, log)]
            finally:
                child.terminate()
                child.wait()
            return _read(requests, windows)


def _windows(versions: list[str], policy: Path, log: Path) -> Iterator[tuple[Window, Window]]:
    for number, version in enumerate(versions, 1):
        began = time.time()
        _put(policy, version)
        while log.read_text().count(_WORD) < number:
            if time.time() > began + 60:
                raise RuntimeError(f"the policy is not in force: {log.read_text()[-500:]}")
            time.sleep(0.1)
        time.sleep(_FREED)
        changed = time.time()
        time.sleep(changed - began)
        yield Window(began, changed), Window(changed, time.time())


def _put(policy: Path, text: str) -> None:
    """By one rename, as the kubelet does."""
    beside = policy.with_suffix(".new")
    beside.write_text(text)
    beside.rename(policy)


def _read(requests: Path, windows: list[tuple[Window, Window]]) -> Felt:
    slowest = [[0.0, 0.0] for _ in windows]
    answers = lost = at = 0
    for line in sorted(requests.read_text().splitlines()[:-1]):
        began, code, took = (int(field) for field in line.split()[:3])
        while at < len(windows) and began / 1e6 >= windows[at][1].ended:
            at += 1
        if at == len(windows) or began / 1e6 < windows[0][0].began:
            continue
        answers += 1
        lost += code != 200
        pair = slowest[at]
        side = int(began / 1e6 >= windows[at][0].ended)
        pair[side] = max(pair[side], took / 1e6)
    return Felt([one for one, _ in slowest], [other for _, other in slowest], answers, lost)
