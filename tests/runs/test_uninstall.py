"""What `uninstall` deletes, in which order, and what it does where something is gone or stays."""

from typing import Any

from tests.runs.fake import FakeApi
from webhook.runs.uninstall import Clock, remove

HOOKS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations/checkpoint-guard"
CORE = "/api/v1/namespaces/guard"
OURS: dict[str, Any] = {
    HOOKS.format("mutating"): {},
    HOOKS.format("validating"): {},
    "/apis/apps/v1/namespaces/guard/deployments/checkpoint-guard-certs": {},
    f"{CORE}/secrets/checkpoint-guard-tls": {},
    f"{CORE}/secrets/checkpoint-guard-ca": {},
    "/apis/coordination.k8s.io/v1/namespaces/guard/leases/checkpoint-guard-certs": {},
}


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now, self.sleep)


def test_the_registration_goes_first_and_nothing_is_left() -> None:
    api = FakeApi({**OURS, f"{CORE}/secrets/other": {}})

    done = list(remove(api, "guard", Time().clock))

    assert [one.fault for one in done] == [""] * len(done)
    assert list(api.objects) == [f"{CORE}/secrets/other"]
    deleted = [path for method, path, _ in api.asked if method == "DELETE"]
    assert deleted[:2] == [HOOKS.format("validating"), HOOKS.format("mutating")]


def test_what_is_gone_is_gone() -> None:
    assert all(not one.fault for one in remove(FakeApi(), "guard", Time().clock))


def test_the_registration_alone() -> None:
    api = FakeApi(OURS)

    assert [one.fault for one in remove(api, "guard", Time().clock, registration_alone=True)] == ["", ""]
    assert len(api.objects) == len(OURS) - 2


def test_secrets_wait_for_the_keeper_to_be_gone() -> None:
    api = FakeApi({**OURS, f"{CORE}/pods/keeper": {}})
    time = Time()

    def sleep(seconds: float) -> None:
        assert f"{CORE}/secrets/checkpoint-guard-tls" in api.objects
        time.sleep(seconds)
        if time.now > 5:
            api.objects.pop(f"{CORE}/pods/keeper", None)

    assert all(not one.fault for one in remove(api, "guard", Clock(lambda: time.now, sleep)))
    assert api.objects == {}


def test_a_keeper_that_stays_holds_nothing_up_for_ever() -> None:
    api = FakeApi({**OURS, f"{CORE}/pods/keeper": {}})

    done = list(remove(api, "guard", Time().clock))

    assert [one.fault for one in done if one.fault] == ["still there after 60 s"]
    assert list(api.objects) == [f"{CORE}/pods/keeper"]


def test_a_missing_right_is_said_and_the_rest_goes_on() -> None:
    api = FakeApi(OURS)
    api.forbidden.add(HOOKS.format("mutating"))

    done = list(remove(api, "guard", Time().clock))

    assert [one.label for one in done if one.fault] == ['MutatingWebhookConfiguration "checkpoint-guard"']
    assert list(api.objects) == [HOOKS.format("mutating")]
