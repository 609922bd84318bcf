"""What knowing a cluster costs: memory, listing, stalls, answers at 100,000 claims, live reads.

All of it against an API server that costs next to nothing (``bench.fake_api``), so that what is measured is ours.
``python -m bench.cache ROLE PORT`` is a child process of a measurement.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from bench.fake_api import HIDDEN
from bench.measure import Row, compare, cpu_seconds, milliseconds, resident_mebibytes
from bench.objects import review, trainjob

CLAIMS = 20_000
MANY = 100_000
EVENTS = 1000
ROUND_TRIP = 0.25
"""Seconds that a single GET takes: long beside what the guard itself does, so that round trips can be counted."""
PARALLEL = 200
TURNOVER = 50_000
"""Events a minute."""
WARM_UP = 90


def measure_cache(rounds: int, requests: int) -> list[Row]:
    """All figures of the cache."""
    with fake_api(CLAIMS) as port:
        listing = [child("list", port) for _ in range(rounds)]
        stalls = [(child("stall-ours", port), child("stall-informer", port)) for _ in range(max(1, rounds // 2))]
    return [*_listing(listing), *_stalls(stalls), *_memory_and_answers(rounds, requests), *_live(rounds)]


def _listing(found: list[Any]) -> list[Row]:
    ours, bare = ([one[key] for one in found] for key in ("ours", "bare"))
    what = f"{CLAIMS} claims and volumes listed and usable"
    return [compare(what, ours, bare, "<= 1.2", "{:.2f} s".format, "orjson over the same pages")]


def _stalls(found: list[Any]) -> list[Row]:
    """The longest of a whole run is what counts; the second row tells what the stream of changes alone does."""
    rows = []
    for keys, what, goal in (
        (("sync", "churn"), f"longest stall while syncing and at {EVENTS} events a second", "<= 0.1"),
        (("churn",), f"longest stall at {EVENTS} events a second alone", ""),
    ):
        ours, informer = ([max(pair[side][key] for key in keys) for pair in found] for side in (0, 1))
        rows.append(compare(what, ours, informer, goal, milliseconds, "SharedInformer"))
    return rows


def _memory_and_answers(rounds: int, requests: int) -> list[Row]:
    with ExitStack() as stack:
        small, middle, large = (
            stack.enter_context(guard(stack.enter_context(fake_api(number)))) for number in (100, CLAIMS, MANY)
        )
        resident = [resident_mebibytes(one.pid) for one in (small, middle, large)]
        per_thousand = (resident[1] - resident[0]) / (CLAIMS / 1000)
        body = review(trainjob())
        for one in (small, large):
            one.ask(body, 300)
        small_p99, large_p99 = [], []
        for _ in range(rounds):
            small_p99.append(_p99(small.ask(body, requests // 10)))
            large_p99.append(_p99(large.ask(body, requests // 10)))
    ratios = [one / other for one, other in zip(large_p99, small_p99, strict=True)]
    at_most = " MB at most"
    return [
        Row("memory for 1,000 claims with their volumes", f"{per_thousand:.2f} MB", f"0.7{at_most}",
            per_thousand / 0.7, "<= 1"),
        Row(f"memory at {MANY} claims", f"{resident[2]:.0f} MB", f"150{at_most}", resident[2] / 150, "<= 1"),
        Row(f"p99 of answers at {MANY} claims", milliseconds(statistics.median(large_p99)),
            f"{milliseconds(statistics.median(small_p99))} at 100", statistics.median(ratios), "<= 1.3",
            f"{min(ratios):.2f}-{max(ratios):.2f}"),
    ]  # fmt: skip


def _live(rounds: int) -> list[Row]:
    hit = review(trainjob())
    miss = review(_missing())
    one_extra, many_extra = [], []
    with fake_api(100, ROUND_TRIP) as port, guard(port) as server:
        server.ask(hit, 50)
        server.ask(miss, 2)
        for _ in range(rounds):
            one_extra.append(statistics.median(server.ask(miss, 5)) - statistics.median(server.ask(hit, 20)))
            many_extra.append(asyncio.run(_at_once(server, miss)) - asyncio.run(_at_once(server, hit)))
    return [
        Row("a live read on a miss", milliseconds(statistics.median(one_extra)),
            f"{milliseconds(ROUND_TRIP)} one round trip", statistics.median(one_extra) / ROUND_TRIP, "<= 1.3"),
        Row(f"the same, {PARALLEL} at once", milliseconds(statistics.median(many_extra)),
            f"{milliseconds(ROUND_TRIP)} one round trip", statistics.median(many_extra) / ROUND_TRIP, "<= 1.5"),
    ]  # fmt: skip


def measure_churn(rounds: int, requests: int) -> list[Row]:
    """As many minutes as there are rounds in which objects of all kinds come, change and go, while requests arrive."""
    body = review(trainjob())
    levels: list[float] = []
    waited: list[float] = []
    with fake_api(2000) as port, guard(port) as server, ThreadPoolExecutor(1) as pool:
        quiet = server.ask(body, 500)
        url = f"http://127.0.0.1:{port}/bench/turnover?rate={TURNOVER / 60}&seconds={rounds * 60 + WARM_UP}"
        coming = pool.submit(_fetch, url)
        time.sleep(WARM_UP)  # until as many go as come, and the tables of what is shared are full
        started = time.monotonic()
        while not coming.done():
            if time.monotonic() - started >= 10 * len(levels):
                levels.append(resident_mebibytes(server.pid))
            waited += server.ask(body, 10)
            time.sleep(0.2)
        sent = int(coming.result())
        spent = cpu_seconds(server.pid) / (rounds * 60 + WARM_UP)
    pace = f"{sent / (rounds * 60 + WARM_UP) * 60:.0f} a minute"
    return [
        Row(f"memory after {rounds} minutes of changes, {pace}", f"{levels[-1]:.1f} MB", f"{levels[0]:.1f} MB before",
            levels[-1] / levels[0], "<= 1.05", f"{min(levels):.1f}-{max(levels):.1f}"),
        Row("p99 of answers meanwhile", milliseconds(_p99(waited)), f"{milliseconds(_p99(quiet))} in peace",
            _p99(waited) / _p99(quiet), "", f"{spent:.0%} of a core"),
    ]  # fmt: skip


def _fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=3600) as answer:  # noqa: S310 - loopback
        return bytes(answer.read())


def _missing() -> dict[str, Any]:
    """The TrainJob with its state on a claim that no list has: a volume of the same name takes the runtime's place."""
    job = json.loads(json.dumps(trainjob()))
    pod = {"containers": [{"name": "node", "volumeMounts": [{"name": "more", "mountPath": "/state"}]}],
           "volumes": [{"name": "more", "persistentVolumeClaim": {"claimName": HIDDEN}}]}  # fmt: skip
    patch = {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]}
    job["spec"]["runtimePatches"] = [
        {"manager": "vision.example.com/owner", "trainingRuntimeSpec": {"template": {"spec": patch}}}
    ]
    return dict(job)


# --- processes


@contextmanager
def fake_api(claims: int, delay: float = 0.0) -> Iterator[int]:
    """A fake API server; its port."""
    command = [sys.executable, "-m", "bench.fake_api", "--claims", str(claims), "--delay", str(delay * 1000)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdout is not None  # noqa: S101
            yield int(process.stdout.readline())
        finally:
            process.kill()


class Server:
    """``ckptguard serve`` beside a fake API server."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.pid = process.pid
        self.port = port

    def ask(self, body: bytes, count: int) -> list[float]:
        """Seconds of each of so many requests, one after the other on one connection."""
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        spent = []
        for _ in range(count):
            started = perf_counter()
            connection.request("POST", "/validate", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            spent.append(perf_counter() - started)
            if answer.status != 200:
                raise RuntimeError(f"HTTP {answer.status}")
        connection.close()
        return spent


@contextmanager
def guard(api: int) -> Iterator[Server]:
    """The server, ready."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        kubeconfig.write_text(_kubeconfig(api))
        command = [sys.executable, "-m", "webhook", "serve", "--insecure-http", "--listen", f"127.0.0.1:{port}"]
        environment = os.environ | {
            "CKPTGUARD_KUBECONFIG": str(kubeconfig),
            "CKPTGUARD_AUDIT_STDOUT": "false",
            "CKPTGUARD_PRE_STOP_DELAY": "0",
        }
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:  # noqa: S603
            try:
                _wait_ready(f"http://127.0.0.1:{port}/readyz")
                yield Server(process, port)
            finally:
                process.kill()


def _wait_ready(url: str) -> None:
    until = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - loopback
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _kubeconfig(port: int) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "a", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "a", "user": {}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        }
    )


def child(role: str, port: int) -> Any:
    """What a measurement in a process of its own found."""
    command = [sys.executable, "-m", "bench.cache", role, str(port)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)  # noqa: S603 - ourselves
    return json.loads(done.stdout)


def _p99(spent: list[float]) -> float:
    return sorted(spent)[int(len(spent) * 0.99)]


async def _at_once(server: Server, body: bytes) -> float:
    """Seconds from the first of many requests that are sent at once to the last answer."""
    head = b"POST /validate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    whole = head % len(body) + body
    pairs = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(PARALLEL)]
    started = perf_counter()
    for _, writer in pairs:
        writer.write(whole)
    for reader, _ in pairs:
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer:
            raise RuntimeError(answer.decode())
    spent = perf_counter() - started
    for _, writer in pairs:
        writer.close()
    return spent


# --- children


async def _list_once(port: int) -> dict[str, float]:
    """Our list and a bare one, in turns."""
    import orjson

    from webhook.cluster.connection import Connection, configuration
    from webhook.cluster.kinds import CLAIM, KINDS, VOLUME
    from webhook.cluster.tables import Tables
    from webhook.cluster.watch import Watch

    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(_kubeconfig(port))
        file.flush()
        connection = Connection(configuration(Path(file.name)))
        await connection.get(KINDS[CLAIM].collection, {"limit": "1"})
    ours, bare = [], []
    for _ in range(2):
        tables = Tables()
        started = perf_counter()
        for kind in (CLAIM, VOLUME):
            await Watch(KINDS[kind], connection, tables.by_kind[kind])._list()
        ours.append(perf_counter() - started)
        if len(tables.claims) != CLAIMS:
            raise RuntimeError("claims are missing")
        started = perf_counter()
        for kind in (CLAIM, VOLUME):
            params = {"limit": "500"}
            while True:
                page = orjson.loads(await connection.get(KINDS[kind].collection, params))
                if not page["metadata"].get("continue"):
                    break
                params["continue"] = page["metadata"]["continue"]
        bare.append(perf_counter() - started)
    await connection.close()
    return {"ours": min(ours), "bare": min(bare)}


class Ticker:
    """How much processor time the process spends between two turns of a task that wants one every millisecond.

    Not the time of day: on a busy machine that measures the neighbours. Other threads count, since they hold the GIL.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            started = process_time()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, process_time() - started)

    def stop(self) -> float:
        self._task.cancel()
        return self.longest


async def _stall_ours(port: int) -> dict[str, float]:
    from webhook.cluster.connection import Connection, configuration
    from webhook.cluster.kinds import CLAIM, KINDS, VOLUME
    from webhook.cluster.tables import Tables
    from webhook.cluster.watch import Watch

    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(_kubeconfig(port))
        file.flush()
        connection = Connection(configuration(Path(file.name)))
        await connection.get(KINDS[CLAIM].collection, {"limit": "1"})
    tables = Tables()
    ticker = Ticker()
    watches = [Watch(KINDS[kind], connection, tables.by_kind[kind]) for kind in (CLAIM, VOLUME)]
    running = [asyncio.create_task(watch.run()) for watch in watches]
    for watch in watches:
        await watch.synced.wait()
    sync = ticker.stop()
    gc.collect()
    gc.freeze()
    await asyncio.sleep(0.3)
    churn = await _stall_by_churn(port)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await connection.close()
    return {"sync": sync, "churn": churn}


async def _stall_informer(port: int) -> dict[str, float]:
    import kubernetes.client
    from kubernetes.informer import SharedInformer

    configuration = kubernetes.client.Configuration()
    configuration.host = f"http://127.0.0.1:{port}"
    core = kubernetes.client.CoreV1Api(kubernetes.client.ApiClient(configuration))
    ticker = Ticker()
    shared: Any = SharedInformer
    informers = [
        shared(core.list_persistent_volume_claim_for_all_namespaces),
        shared(core.list_persistent_volume),
    ]
    for informer in informers:
        informer.start()
    while any(len(informer.cache.list()) < CLAIMS for informer in informers):  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.05)
    sync = ticker.stop()
    await asyncio.sleep(0.3)
    churn = await _stall_by_churn(port)
    # Its threads end when the process does.
    return {"sync": sync, "churn": churn}


async def _stall_by_churn(port: int) -> float:
    """The longest stall in the midst of a stream of changes. To ask for it costs time too, which is left out."""
    seconds = 3.0
    coming = asyncio.create_task(
        asyncio.to_thread(_fetch, f"http://127.0.0.1:{port}/bench/churn?rate={EVENTS}&seconds={seconds}")
    )
    await asyncio.sleep(0.3)
    ticker = Ticker()
    await asyncio.sleep(seconds - 0.6)
    longest = ticker.stop()
    await coming
    return longest


def _main() -> None:
    logging.disable(logging.CRITICAL)
    role, port = sys.argv[1], int(sys.argv[2])
    found = asyncio.run({"list": _list_once, "stall-ours": _stall_ours, "stall-informer": _stall_informer}[role](port))
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    _main()
