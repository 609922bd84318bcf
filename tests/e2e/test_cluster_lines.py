"""A minute without the API server, bad lines to it, other clocks, forgotten versions, and churn: answers go on.

Each test takes its time; all of them have one API server of their own.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count

import aiohttp
import pytest
import yaml

from tests.e2e.bare import (
    Answer,
    BareControlPlane,
    OwnGuard,
    claim,
    on_claim,
    runtime,
    team_plane,
    trainjob,
)
from tests.e2e.controlplane.cluster import Object
from tests.e2e.controlplane.processes import wait_until
from tests.e2e.proxy import Line

CLAIMS = "persistentvolumeclaims"
CLOCK = """\
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t which, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, which, now);
    if (!failed && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += AHEAD;
    return failed;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}
"""
"""The time of day, so many seconds ahead; how long something takes stays as it is."""


@pytest.fixture(scope="module")
def plane() -> Iterator[BareControlPlane]:
    with team_plane(runtime("big", "team", on_claim("big"))) as plane:
        yield plane


@pytest.fixture
def line(plane: BareControlPlane) -> Iterator[Line]:
    with Line(plane) as line:
        yield line


@pytest.fixture
def guard(plane: BareControlPlane, line: Line) -> Iterator[OwnGuard]:
    """Our server, at the far end of the line."""
    guard = OwnGuard(plane, kubeconfig=line.kubeconfig)
    guard.grant()
    guard.start()
    yield guard
    guard.stop()


def ask(guard: OwnGuard, name: str) -> Answer:
    return guard.validate(trainjob(name, "team", name))


def reasons(guard: OwnGuard, answer: Answer) -> set[tuple[str, str]]:
    return {(found["rule"], found["severity"]) for found in guard.audited(answer)["findings"]}


def as_ever(guard: OwnGuard) -> None:
    """The three verdicts of a cluster that answers."""
    good = ask(guard, "good")
    assert (good.allowed, good.warnings) == (True, [])
    assert "[ephemeral-checkpoint]" in ask(guard, "bad").text
    assert "[missing-claim]" in ask(guard, "lost").text


def without_it(guard: OwnGuard) -> None:
    """What is known is answered at once; what a table has is denied; what would have to be read is unknown."""
    good = ask(guard, "good")
    assert (good.allowed, good.warnings, good.seconds < 0.5) == (True, [], True), good
    bad = ask(guard, "bad")
    assert (bad.allowed, bad.seconds < 3) == (False, True), bad
    lost = ask(guard, "lost")
    assert (lost.allowed, lost.seconds < 3) == (True, True), lost
    assert reasons(guard, lost) == {("missing-claim", "audit")}
    nowhere = guard.validate(trainjob("x", "nobody-knows", "nothing"))
    assert (nowhere.allowed, nowhere.seconds < 3) == (True, True), nowhere
    assert guard.get("/healthz")[0] == 200
    assert guard.get("/readyz")[0] == 200


def test_the_api_server_is_away_for_a_minute(plane: BareControlPlane, guard: OwnGuard) -> None:
    as_ever(guard)
    plane.stop_process("kube-apiserver")
    until = time.monotonic() + 60
    while time.monotonic() < until:
        without_it(guard)
        time.sleep(2)
    plane.start_process("kube-apiserver")
    plane.wait_api()
    plane.apply(claim("since", "team"), runtime("since", "team", on_claim("since")))
    as_ever(guard)
    assert ask(guard, "since").allowed
    guard.wait_for_objects("PersistentVolumeClaim", len(plane.all_of(CLAIMS)), 40)
    guard.wait_for_objects("TrainingRuntime", len(plane.all_of("trainingruntimes.trainer.kubeflow.org")), 40)


def test_answers_that_take_five_seconds(guard: OwnGuard, line: Line) -> None:
    as_ever(guard)
    line.delay = 5
    without_it(guard)
    lost = ask(guard, "lost")
    assert (lost.allowed, 1.5 < lost.seconds < 3) == (True, True), lost
    line.delay = 0
    wait_until("answers in time", lambda: not ask(guard, "lost").allowed, 30)
    as_ever(guard)


def test_connections_that_break_in_the_middle_of_an_event(plane: BareControlPlane, guard: OwnGuard, line: Line) -> None:
    """Events of 100 kB and more, so that many a cut goes through one."""
    dice = random.Random(5)
    before = guard.objects("PersistentVolumeClaim")
    relists = guard.metric("ckptguard_cache_relists_total", kind="PersistentVolumeClaim")
    for number in range(40):
        line.cut(dice.randrange(1, 250_000))
        big = claim(f"big-{number}", "team")
        big["metadata"]["annotations"] = {"example.com/text": "x" * dice.randrange(100_000, 240_000)}
        plane.kubectl("create", "-f", "-", input=json.dumps(big))
    line.cut()
    guard.wait_for_objects("PersistentVolumeClaim", before + 40, 40)
    assert guard.metric("ckptguard_cache_relists_total", kind="PersistentVolumeClaim") == relists
    as_ever(guard)
    plane.kubectl("patch", "pvc", "-n", "team", *(f"big-{number}" for number in range(40)), "--type=merge",
                  "-p", '{"metadata":{"finalizers":null}}')  # fmt: skip
    plane.kubectl("delete", "pvc", "-n", "team", *(f"big-{number}" for number in range(40)))
    guard.wait_for_objects("PersistentVolumeClaim", before, 40)


def test_watches_that_say_nothing_any_more(plane: BareControlPlane, guard: OwnGuard, line: Line) -> None:
    """The connections are open and dead, as behind a firewall that forgot them. After 150 s they are given up."""
    as_ever(guard)
    before = guard.objects("PersistentVolumeClaim")
    assert line.silence() >= 8
    plane.apply(claim("unheard", "team"), runtime("unheard", "team", on_claim("unheard")))
    assert ask(guard, "unheard").allowed  # read live
    as_ever(guard)
    assert guard.objects("PersistentVolumeClaim") == before
    guard.wait_for_objects("PersistentVolumeClaim", before + 1, 220)
    assert guard.get("/healthz")[0] == 200
    as_ever(guard)


def test_versions_that_etcd_has_forgotten(plane: BareControlPlane, guard: OwnGuard, line: Line) -> None:
    """While its line is dead, objects come and go, etcd is compacted and the API server starts anew: 410."""
    relists = guard.metric("ckptguard_cache_relists_total", kind="PersistentVolumeClaim")
    plane.apply(claim("goes", "team"), runtime("goes", "team", on_claim("goes")))
    guard.wait_for_objects("PersistentVolumeClaim", len(plane.all_of(CLAIMS)))
    line.silence()
    plane.kubectl("patch", "pvc", "goes", "-n", "team", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    plane.kubectl("delete", "pvc", "goes", "-n", "team")
    plane.apply(claim("comes", "team"), runtime("comes", "team", on_claim("comes")))
    plane.compact_etcd()
    plane.restart_apiserver()
    line.cut()

    def listed_again() -> bool:
        return guard.metric("ckptguard_cache_relists_total", kind="PersistentVolumeClaim") > relists

    wait_until("the claims to be listed again", listed_again, 60)
    guard.wait_for_objects("PersistentVolumeClaim", len(plane.all_of(CLAIMS)), 40)
    assert ask(guard, "comes").allowed
    assert "[missing-claim]" in ask(guard, "goes").text
    as_ever(guard)


@pytest.mark.parametrize("minutes", [-50, 50, 24 * 60])
def test_another_clock_than_the_api_servers(plane: BareControlPlane, minutes: int) -> None:
    """No further behind than the certificates here are old: what is not valid yet is not trusted, by any clock."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = plane.scratch / f"clock{minutes}.so"
    command = [compiler, f"-DAHEAD=({minutes} * 60)", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=CLOCK, text=True, check=True)
    guard = OwnGuard(plane, LD_PRELOAD=str(library))
    guard.grant()
    guard.launch()
    try:
        wait_until("the server to be ready", lambda: guard.get("/readyz")[0] == 200, 60)
        as_ever(guard)
        name = f"clock{minutes}"
        plane.apply(claim(name, "team"), runtime(name, "team", on_claim(name)))
        assert ask(guard, name).allowed
        guard.wait_for_objects("PersistentVolumeClaim", len(plane.all_of(CLAIMS)))
        told = datetime.fromisoformat(guard.audited(ask(guard, "good"))["time"])
        assert abs((told - datetime.now(UTC)).total_seconds() - minutes * 60) < 60
        as_ever(guard)
    finally:
        guard.stop()


def test_more_volumes_than_are_listed_for_one_request(plane: BareControlPlane, guard: OwnGuard) -> None:
    """Above 5,000 it is told by the table whether a volume is free: not before that has what was just created."""
    before = guard.objects("PersistentVolume")
    asyncio.run(_create_volumes(plane, 5001))
    guard.wait_for_objects("PersistentVolume", before + 5001, 60)
    for number in range(10):
        name = f"static-{number}"
        lonely = claim(name, "team")
        lonely["spec"]["storageClassName"] = name
        plane.apply(lonely, runtime(name, "team", on_claim(name)))
        assert "[unbindable-claim]" in ask(guard, name).text
        plane.apply(nfs_volume(name, name))
        answer = ask(guard, name)
        assert (answer.allowed, answer.seconds < 3) == (True, True), answer
        assert reasons(guard, answer) == set()


def nfs_volume(name: str, storage_class: str) -> Object:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "storageClassName": storage_class,
        "nfs": {"server": "nfs.example.com", "path": "/x"},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


async def _create_volumes(plane: BareControlPlane, count: int) -> None:
    numbers = iter(range(count))

    async def create(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            made = nfs_volume(f"many-{number}", "many")
            async with session.post(f"{plane.server}/api/v1/persistentvolumes", json=made) as answer:
                assert answer.status == 201, await answer.text()

    async with _session(plane) as session:
        await asyncio.gather(*(create(session) for _ in range(12)))


def test_churn(plane: BareControlPlane, guard: OwnGuard) -> None:
    """As many changes as this API server takes, for half a minute and once more: memory is where it was."""
    as_ever(guard)
    levels, waits, rates = [], [], []
    for _ in range(3):
        changed, slowest = asyncio.run(_churn(plane, guard, 15))
        guard.wait_for_objects("PersistentVolumeClaim", len(plane.all_of(CLAIMS)), 40)
        levels.append(guard.resident_kilobytes())
        rates.append(changed / 15)
        waits.append(slowest)
    print(f"{[round(rate) for rate in rates]} changes a second, {levels} kB, slowest answers {waits}")
    assert max(waits) < 1
    assert levels[-1] < levels[0] + 8 * 1024
    as_ever(guard)


_numbers = count()


async def _churn(plane: BareControlPlane, guard: OwnGuard, seconds: float) -> tuple[int, float]:
    """Claims that come, change and go: how many changes, and the slowest answer meanwhile."""
    base = f"{plane.server}/api/v1/namespaces/team/{CLAIMS}"
    until = time.monotonic() + seconds
    done = 0

    async def lives(session: aiohttp.ClientSession) -> None:
        nonlocal done
        while time.monotonic() < until:
            name = f"churn-{next(_numbers)}"
            made = claim(name, "team")
            made["spec"]["resources"]["requests"]["storage"] = f"{hash(name) % 5000 + 1}Mi"
            patch = {"Content-Type": "application/merge-patch+json"}
            nothing = b'{"metadata":{"finalizers":null}}'
            for call in (
                session.post(base, json=made),
                session.patch(f"{base}/{name}", data=nothing, headers=patch),
                session.delete(f"{base}/{name}"),
            ):
                async with call as answer:
                    assert answer.status < 300, await answer.text()
                done += 1

    async def answers() -> float:
        slowest = 0.0
        while time.monotonic() < until:
            answer = await asyncio.to_thread(ask, guard, "good")
            assert (answer.allowed, answer.warnings) == (True, []), answer
            slowest = max(slowest, answer.seconds)
            await asyncio.sleep(0.1)
        return slowest

    async with _session(plane) as session:
        found = await asyncio.gather(answers(), *(lives(session) for _ in range(12)))
    assert isinstance(found[0], float)
    return done, found[0]


def _session(plane: BareControlPlane) -> aiohttp.ClientSession:
    """As the administrator; a kubectl for each change would take most of the time."""
    token = yaml.safe_load(plane.kubeconfig.read_text())["users"][0]["user"]["token"]
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=plane.authority.ca_pem), limit=0)
    return aiohttp.ClientSession(connector=connector, headers={"Authorization": f"Bearer {token}"})
