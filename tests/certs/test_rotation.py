"""The rotation against a cluster in memory: order, repair, conflicts, and that nothing served is ever distrusted."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest

from certs import lease
from certs.bundle import split
from certs.cluster import MUTATING, VALIDATING, Away, Conflict, Refused
from certs.issue import Pair
from certs.loop import Clock, Keeper, Leadership, Status, run, run_once
from certs.rotation import Rotation
from tests.certs.cluster import DAY, NAMES, NOW, SETTINGS, FakeCluster, authority, leaf, registration, stored
from tests.certs.test_issue import verify

BOTH = {(MUTATING, "checkpoint-guard"), (VALIDATING, "checkpoint-guard")}
CA = ("Secret", SETTINGS.authority_secret)
LEAF = ("Secret", SETTINGS.secret)


def kinds(step: object) -> list[str]:
    return [done.what for done in step.done]  # type: ignore[attr-defined]


def trusted(cluster: FakeCluster, pair: Pair | None = None, at: datetime.datetime = NOW) -> bool:
    """Whether API servers trust the pair (that in the Secret) by either bundle."""
    for kind in (MUTATING, VALIDATING):
        verify((pair or cluster.pair()).cert, *split(cluster.bundle(kind)), at=at)
    return True


def installed() -> tuple[FakeCluster, Rotation]:
    cluster = FakeCluster()
    rotation = Rotation(cluster, SETTINGS)
    rotation.step(NOW, 0.0)
    cluster.writes.clear()
    return cluster, rotation


def test_from_nothing_in_one_step_and_in_order() -> None:
    cluster = FakeCluster()
    step = Rotation(cluster, SETTINGS).step(NOW, 0.0)
    assert kinds(step) == ["ca", "bundle", "bundle", "leaf"]
    assert step.wait == 0
    assert cluster.writes[0] == CA
    assert set(cluster.writes[1:3]) == BOTH
    assert cluster.writes[3:] == [LEAF]
    assert trusted(cluster)
    assert cluster.data(SETTINGS.secret, "ca.crt") == cluster.bundle()
    assert cluster.objects[LEAF]["type"] == "kubernetes.io/tls"
    assert step.done[0].words == 'made a new authority in Secret "checkpoint-guard-ca": there is none yet'


def test_nothing_is_written_where_nothing_is_due() -> None:
    cluster, rotation = installed()
    for day in range(59):
        assert rotation.step(NOW + day * DAY, day * 86400.0).done == ()
    assert cluster.writes == []
    assert rotation.faults(NOW) == ()


def test_a_pair_is_renewed_at_two_thirds() -> None:
    cluster, rotation = installed()
    old = cluster.pair()
    step = rotation.step(NOW + 60 * DAY, 9e6)
    assert kinds(step) == ["leaf"]
    assert cluster.writes == [LEAF]
    assert cluster.pair() != old
    assert trusted(cluster, at=NOW + 60 * DAY)
    assert trusted(cluster, old, at=NOW + 60 * DAY)


def test_a_new_authority_is_published_before_it_signs() -> None:
    cluster, rotation = installed()
    old, at = cluster.pair(), NOW + 490 * DAY
    cluster.put("Secret", stored(SETTINGS.secret, leaf(cluster.pair(CA[1]), at - DAY), cluster.bundle()))
    served = cluster.pair()
    step = rotation.step(at, 1000.0)
    assert kinds(step) == ["ca", "bundle", "bundle"]
    assert step.wait == 20
    assert cluster.pair() == served
    assert len(split(cluster.bundle())) == 2
    assert trusted(cluster, served, at)
    assert rotation.step(at, 1019.0).wait == 1
    assert cluster.pair() == served
    step = rotation.step(at, 1020.0)
    assert kinds(step) == ["leaf"]
    assert step.done[0].words.endswith("the certificate is signed by an earlier authority")
    assert cluster.pair() != served != old
    assert trusted(cluster, served, at)
    assert trusted(cluster, at=at)
    # The old one stays until it expires, and not longer.
    assert rotation.step(NOW + 500 * DAY, 2e6).done == ()
    last = rotation.step(NOW + 730 * DAY, 3e7)
    assert kinds(last) == ["order", "bundle", "bundle", "leaf"]
    assert len(split(cluster.bundle())) == 1


def test_a_bundle_that_was_overwritten_is_repaired_and_settles_anew() -> None:
    cluster, rotation = installed()
    right = cluster.bundle()
    for nonsense in (None, "", "AAAA", "LS0tLS0="):
        found = registration(VALIDATING, "validate")
        if nonsense is not None:
            found["webhooks"][0]["clientConfig"]["caBundle"] = nonsense
        cluster.put(VALIDATING, found)
        assert rotation.faults(NOW) != ()
        assert kinds(rotation.step(NOW, 50.0)) == ["bundle"]
        assert cluster.bundle() == right
    assert kinds(rotation.step(NOW, 100.0, renew="ca")) == ["ca", "bundle", "bundle"]
    cluster.put(VALIDATING, registration(VALIDATING, "validate"))
    step = rotation.step(NOW, 125.0)
    assert (kinds(step), step.wait) == (["bundle"], 20)
    assert kinds(rotation.step(NOW, 145.0)) == ["leaf"]


def test_a_foreign_authority_is_not_kept() -> None:
    cluster, rotation = installed()
    right = cluster.bundle()
    found = cluster.objects[VALIDATING, "checkpoint-guard"]
    import base64

    found["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(right + authority().cert).decode()
    assert [done.words for done in rotation.step(NOW, 9.0).done] == [
        'wrote caBundle of ValidatingWebhookConfiguration "checkpoint-guard" '
        "(validate.checkpoint-guard.io: trusts 1 too many)"
    ]
    assert cluster.bundle() == right


def test_the_serving_secret_is_deleted() -> None:
    cluster, rotation = installed()
    served = cluster.pair()
    del cluster.objects[LEAF]
    assert kinds(rotation.step(NOW, 9.0)) == ["leaf"]
    assert trusted(cluster)
    assert trusted(cluster, served)


@pytest.mark.parametrize("lost", [[CA], [CA, LEAF]], ids=["authority", "both"])
def test_secrets_are_deleted_and_what_pods_serve_stays_trusted(lost: list[tuple[str, str]]) -> None:
    cluster, rotation = installed()
    served = cluster.pair()
    for one in lost:
        del cluster.objects[one]
    step = rotation.step(NOW, 9.0)
    assert kinds(step)[:3] == ["ca", "bundle", "bundle"]
    assert trusted(cluster, served)
    assert trusted(cluster)
    rotation.step(NOW, 30.0)
    assert trusted(cluster, served)
    assert trusted(cluster)
    assert rotation.faults(NOW) == ()


@pytest.mark.parametrize(
    "broken",
    [
        Pair(b"", b""),
        Pair(authority().cert, authority().key),
        authority(NOW - 800 * DAY),
        authority(NOW + 3 * DAY),
        leaf(authority()),
        Pair(authority().cert[:100], authority().key),
    ],
    ids=["empty", "mismatched", "expired", "not-yet-valid", "no-authority", "truncated"],
)
def test_an_authority_that_cannot_sign_is_replaced(broken: Pair) -> None:
    cluster, rotation = installed()
    served = cluster.pair()
    cluster.put("Secret", stored(SETTINGS.authority_secret, broken, b"nonsense"))
    assert kinds(rotation.step(NOW, 50.0))[0] == "ca"
    assert trusted(cluster, served)
    rotation.step(NOW, 70.0)
    assert trusted(cluster)
    assert rotation.faults(NOW) == ()


def test_a_pair_that_nobody_can_use_is_replaced_at_once() -> None:
    cluster, rotation = installed()
    signer = cluster.pair(CA[1])
    for broken in (
        leaf(authority()),
        leaf(signer, NOW - 100 * DAY),
        leaf(signer, NOW + DAY),
        leaf(signer, names=("a.b.svc",)),
        Pair(b"x", b"y"),
    ):
        cluster.put("Secret", stored(SETTINGS.secret, broken, cluster.bundle()))
        assert rotation.faults(NOW) != ()
        assert kinds(rotation.step(NOW, 9.0)) == ["leaf"]
        assert trusted(cluster)


def test_more_names_are_added_in_peace() -> None:
    cluster, _ = installed()
    more = Rotation(cluster, SETTINGS._replace(names=(*NAMES, "10.1.2.3")))
    step = more.step(NOW, 9.0)
    assert kinds(step) == ["leaf"]
    assert "10.1.2.3" in step.done[0].words


def test_no_configuration_yet() -> None:
    cluster = FakeCluster(configurations=False)
    rotation = Rotation(cluster, SETTINGS)
    assert kinds(rotation.step(NOW, 0.0)) == ["ca", "leaf"]
    assert rotation.faults(NOW) == rotation.missing
    assert [fault.endswith("does not exist") for fault in rotation.missing] == [True, True]
    cluster.put(VALIDATING, registration(VALIDATING, "validate"))
    assert kinds(rotation.step(NOW, 1.0)) == ["bundle"]
    assert len(rotation.missing) == 1
    assert split(cluster.bundle()) == split(cluster.data(SETTINGS.secret, "ca.crt"))


def test_cert_manager_s_secret_is_left_alone() -> None:
    cluster = FakeCluster()
    found = stored(SETTINGS.secret, leaf(authority()), b"")
    found["metadata"]["annotations"] = {"cert-manager.io/certificate-name": "guard"}
    cluster.put("Secret", found)
    with pytest.raises(Refused, match="belongs to cert-manager"):
        Rotation(cluster, SETTINGS).step(NOW, 0.0)
    assert cluster.writes == []


def test_two_rotators_at_once() -> None:
    """Each write of one is preceded by whole steps of the other; what is served is always trusted."""
    cluster = FakeCluster()
    one, two = Rotation(cluster, SETTINGS), Rotation(cluster, SETTINGS)
    busy = False

    def meanwhile(kind: str, name: str) -> None:
        nonlocal busy
        if busy:
            return
        busy = True
        for _ in range(2):
            two.step(NOW, 0.0)
        busy = False

    cluster.before_write = meanwhile
    conflicts = 0
    for monotonic in (0.0, 1.0, 2.0):
        try:
            one.step(NOW, monotonic)
        except Conflict:
            conflicts += 1
    assert conflicts == 1
    assert trusted(cluster)
    assert one.faults(NOW) == two.faults(NOW) == ()
    served = cluster.pair()
    for rotation in (one, two):
        for monotonic in (100.0, 121.0):
            try:
                rotation.step(NOW, monotonic, renew="ca")
            except Conflict:
                continue
            assert trusted(cluster)
            assert trusted(cluster, served)


def test_a_bundle_of_an_authority_that_was_just_replaced_is_not_written() -> None:
    """The other replica makes a new authority between our reads and our write."""
    cluster, one = installed()
    two = Rotation(cluster, SETTINGS)
    cluster.put(VALIDATING, registration(VALIDATING, "validate"))

    def meanwhile(kind: str, name: str) -> None:
        cluster.before_write = lambda kind, name: None
        two.step(NOW, 5.0, renew="ca")

    cluster.before_write = meanwhile
    with pytest.raises(Conflict):
        one.step(NOW, 5.0)
    assert len(split(cluster.bundle())) == 2


@pytest.mark.parametrize("lost", [Conflict, Away], ids=["another-was-faster", "no-answer"])
@pytest.mark.parametrize("where", [MUTATING, VALIDATING])
def test_one_request_makes_one_authority_however_often_it_is_tried(where: str, lost: type[Exception]) -> None:
    """The step that stored it ends while it is published: asked again, it goes on with that one."""
    cluster, _ = installed()
    first = cluster.bundle()

    def before(kind: str, name: str) -> None:
        if kind == where:
            cluster.before_write = lambda kind, name: None
            raise lost("again")

    cluster.before_write = before
    told: list[str] = []
    run_once(Rotation(cluster, SETTINGS), Time().clock, told.append, renew="ca")
    assert "again, since again" in told
    assert split(cluster.bundle())[1:] == split(first)
    assert trusted(cluster)


def test_an_authority_whose_answer_was_lost_is_not_made_twice() -> None:
    class Deaf(FakeCluster):
        """The first write of a Secret is done, and its answer is lost."""

        def write_secret(self, secret: dict[str, object]) -> None:
            super().write_secret(secret)
            if not told:
                raise Away("no answer")

    cluster, told = Deaf(), ["installing"]
    Rotation(cluster, SETTINGS).step(NOW, 0.0)
    told.clear()
    run_once(Rotation(cluster, SETTINGS), Time().clock, told.append, renew="ca")
    assert told[0] == "again, since no answer"
    assert len(split(cluster.bundle())) == 2


def test_a_second_request_makes_a_second_authority() -> None:
    cluster, rotation = installed()
    for number in (2, 3):
        rotation.step(NOW, 0.0, renew="ca")
        assert len(split(cluster.bundle())) == number


class Time:
    """A clock that a test moves; ``pause`` moves it and ends after so many turns."""

    def __init__(self, turns: int = 1000) -> None:
        self.at = 0.0
        self.turns = turns
        self.before_turn: Callable[[int], None] = lambda turn: None

    @property
    def clock(self) -> Clock:
        return Clock(lambda: NOW + datetime.timedelta(seconds=self.at), lambda: self.at, self.pause)

    def pause(self, seconds: float) -> bool:
        self.at += seconds
        self.turns -= 1
        self.before_turn(self.turns)
        return self.turns <= 0


def test_once_waits_for_the_new_authority_to_be_known() -> None:
    cluster, _ = installed()
    served, told, time = cluster.pair(), list[str](), Time()
    run_once(Rotation(cluster, SETTINGS), time.clock, told.append, renew="ca")
    assert time.at == 20
    assert cluster.pair() != served
    assert [line.split()[0] for line in told] == ["made", "wrote", "wrote", "waiting", "made"]
    run_once(Rotation(cluster, SETTINGS), time.clock, told.append, renew="leaf")
    assert time.at == 20
    assert told[-1].endswith("a new one was asked for")


def test_once_gives_up() -> None:
    cluster, time, told = FakeCluster(), Time(), list[str]()
    cluster.away = True
    with pytest.raises(Away):
        run_once(Rotation(cluster, SETTINGS), time.clock, told.append, attempts=3)
    assert told == ["again, since 503: no answer"] * 2


def test_the_loop_tells_once_of_a_configuration_that_is_not_there() -> None:
    cluster, time, told = FakeCluster(configurations=False), Time(turns=30), list[str]()

    def register(turn: int) -> None:
        if turn == 20:
            for kind in (MUTATING, VALIDATING):
                cluster.put(kind, registration(kind, "one"))

    time.before_turn = register
    run(
        Keeper(Rotation(cluster, SETTINGS)),
        Leadership(cluster, SETTINGS, "me", time.clock),
        Status(),
        time.clock,
        told.append,
        10,
    )
    assert [line.endswith("does not exist") for line in told].count(True) == 1
    assert told[-1] == "the webhook configurations are there"


def test_the_loop_tells_a_fault_once_and_heals() -> None:
    cluster, time, status, told = FakeCluster(), Time(turns=300), Status(), list[str]()

    def away(turn: int) -> None:
        cluster.away = 100 < turn < 200

    time.before_turn = away
    seen: list[bool] = []
    rotation = Rotation(cluster, SETTINGS)
    leadership = Leadership(cluster, SETTINGS, "me", time.clock)
    keeper = Keeper(rotation)

    def tell(line: str) -> None:
        told.append(line)
        seen.append(cluster.away)

    run(keeper, leadership, status, time.clock, tell, 10)
    assert told[-2:] == [
        "cannot go on, what stands stays in use: 503: no answer",
        "in order again, after 99 attempts in vain",
    ]
    assert seen[-2:] == [True, False]
    assert (status.fault, status.failures, status.leading) == (None, 99, True)
    assert status.writes == {"ca": 1, "leaf": 1, "bundle": 2, "order": 0, "policy": 0}
    assert cluster.objects["Lease", SETTINGS.lease]["spec"]["holderIdentity"] == ""


@pytest.mark.parametrize("offset", [0.0, 0.3, 0.9, 1.5, 1.9])
def test_the_next_replica_mends_within_ten_seconds_of_the_holders_death(offset: float) -> None:
    """Whenever between two looks it dies, and the bundle is overwritten in the same moment; intervals as by default."""
    cluster, _ = installed()
    dies, time = 20.0 + offset, Time(turns=40)
    overwritten: list[float] = []
    mended: list[float] = []

    def holder(_: int) -> None:
        """The other replica renews every two seconds, with its last breath too."""
        last = min(time.at - time.at % 2, dies)
        found = cluster.lease(SETTINGS.lease)
        if time.at <= dies + 2 and (found is None or found["spec"]["renewTime"] != str(last)):
            spec = {"holderIdentity": "one", "leaseDurationSeconds": lease.SECONDS, "renewTime": str(last)}
            cluster.put("Lease", {"metadata": {"name": SETTINGS.lease}, "spec": spec})
        if time.at >= dies and not overwritten:
            overwritten.append(time.at)
            for kind in (MUTATING, VALIDATING):
                for hook in cluster.objects[kind, "checkpoint-guard"]["webhooks"]:
                    hook["clientConfig"]["caBundle"] = ""

    holder(0)
    time.before_turn = holder
    leadership = Leadership(cluster, SETTINGS, "two", time.clock)
    keeper = Keeper(Rotation(cluster, SETTINGS))
    run(keeper, leadership, Status(), time.clock, lambda _: mended.append(time.at), 5)
    assert overwritten
    assert mended, "nobody went on"
    assert 4 <= mended[0] - dies <= 10, mended


def test_of_several_one_works() -> None:
    cluster = FakeCluster()
    first, second = Time(turns=5), Time(turns=2)
    working, idle = Status(), Status()
    nested = False

    def other(turn: int) -> None:
        nonlocal nested
        if turn == 3 and not nested:
            nested = True
            leadership = Leadership(cluster, SETTINGS, "two", second.clock)
            run(Keeper(Rotation(cluster, SETTINGS)), leadership, idle, second.clock, lambda line: None, 10)

    first.before_turn = other
    keeper = Keeper(Rotation(cluster, SETTINGS))
    run(keeper, Leadership(cluster, SETTINGS, "one", first.clock), working, first.clock, print, 10)
    assert nested
    assert (working.leading, idle.leading) == (True, False)
    assert sum(idle.writes.values()) == 0
