"""What `install-check` makes of what the API server answers."""

import base64
from typing import Any

import pytest

from tests.runs.fake import FakeApi, React
from webhook.cluster.access import Unreachable
from webhook.model.names import CERTIFICATE, INJECTED
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.runs import samples
from webhook.runs.api import Answer, parse_warnings
from webhook.runs.install_check import Clock, Report, check
from webhook.runs.installation import Installation, explain_call

Object = dict[str, Any]

HOOKS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations/checkpoint-guard"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}.trainer.kubeflow.org"
GUARD = "/api/v1/namespaces/checkpoint-guard"
PATCHED = (
    "terminationGracePeriodSeconds.spec.template.spec.template.[].replicatedJobs.spec.template.trainingRuntimeSpec.[]"
)
"""From a grace period up to the list of runtimePatches, as the CRD has it."""
SLICE = "/apis/discovery.k8s.io/v1/namespaces/checkpoint-guard/endpointslices/a"


class Time:
    """A clock that moves only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def installed(**changes: Object | None) -> dict[str, Object]:
    """The objects of an installation in order; a change replaces one, None takes it away."""
    bundle = base64.b64encode(b"PEM").decode()
    service = {"namespace": "checkpoint-guard", "name": "checkpoint-guard"}

    def hooks(*names: str) -> Object:
        config = {"service": service, "caBundle": bundle}
        return {"webhooks": [{"name": f"{name}.checkpoint-guard.io", "clientConfig": config} for name in names]}

    patches: Object = {"type": "integer"}
    for part in PATCHED.split("."):
        patches = {"items": patches} if part == "[]" else {"properties": {part: patches}}
    schema = {"properties": {"spec": {"properties": {"runtimePatches": patches}}}}
    version = {"name": "v1alpha1", "served": True, "schema": {"openAPIV3Schema": schema}}
    objects: dict[str, Object | None] = {
        "mutating": hooks("mutate", "put-back-variables", "put-back-volumes", "put-back-runtimes"),
        "validating": hooks("validate", "validate-update", "protect"),
        "trainjobs": {"spec": {"versions": [version]}},
        "trainingruntimes": {},
        "clustertrainingruntimes": {},
        "service": {},
        "slice": {"endpoints": [{"conditions": {"ready": True}}]},
        "namespace": {"metadata": {"name": "default"}},
        "runtime": None,
        "pod": None,
        **changes,
    }
    paths = {
        "mutating": HOOKS.format("mutating"),
        "validating": HOOKS.format("validating"),
        **{name: CRDS.format(name) for name in ("trainjobs", "trainingruntimes", "clustertrainingruntimes")},
        "service": f"{GUARD}/services/checkpoint-guard",
        "slice": SLICE,
        "namespace": "/api/v1/namespaces/default",
        "runtime": "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/plain",
        "pod": f"{GUARD}/pods/a",
    }
    return {paths[name]: one for name, one in objects.items() if one is not None}


DENIED = 'admission webhook "validate.checkpoint-guard.io" denied the request: '


def guarded(method: str, path: str, body: Object) -> Answer | None:
    """The answers of a cluster that is guarded."""
    if method != "POST":
        return None
    if "emptyDir" in str(body):
        return Answer(
            400,
            {"message": f"{DENIED}x [ephemeral-checkpoint]"},
        )
    return Answer(201, {"metadata": {"annotations": {INJECTED: "{}"}}})


def failing(text: str) -> React:
    def react(method: str, path: str, body: Object) -> Answer | None:
        message = (
            f'Internal error occurred: failed calling webhook "validate": failed to call webhook: Post "u": {text}'
        )
        return Answer(500, {"message": message}) if method == "POST" else None

    return react


def asked(api: FakeApi, seconds: float = 0) -> Report:
    time = Time()
    return check(api, Installation(), seconds, Clock(lambda: time.now, time.sleep), lambda line: None)


def parts(report: Report) -> list[str]:
    return [fault.part for fault in report.faults]


def test_as_expected() -> None:
    report = asked(FakeApi(installed(), guarded))

    assert report.good
    assert [probe.outcome for probe in report.probes] == [
        "as expected",
        "as expected",
        "left out",
        "left out",
        "as expected",
    ]


@pytest.mark.parametrize(
    ("said", "outcome", "words"),
    [
        ("shown", "as expected", "the API server showed it"),
        ("not asked for", "as expected", "no --client-ca"),
        ("", "left out", "does not say"),
    ],
)
def test_whether_a_client_certificate_came_is_told(said: str, outcome: str, words: str) -> None:
    def react(method: str, path: str, body: Object) -> Answer | None:
        answer = guarded(method, path, body)
        warnings = (f"{CERTIFICATE}{said}",) if said else ()
        return answer if answer is None else Answer(answer.code, answer.body, warnings)

    probe = next(one for one in asked(FakeApi(installed(), react)).probes if one.what == "client certificate")
    assert probe.outcome == outcome
    assert words in probe.words


def test_everything_is_a_dry_run() -> None:
    api = FakeApi(installed(runtime=a_runtime()), guarded)

    assert asked(api).good
    posts = [(path.rpartition("/")[2], params["dryRun"]) for method, path, params in api.asked if method == "POST"]
    assert posts == [("trainingruntimes", "All")] * 2 + [("trainjobs", "All")] * 2
    assert {method for method, _, _ in api.asked} == {"GET", "POST"}


def test_it_waits_until_the_guard_is_there() -> None:
    tries = 0

    def late(method: str, path: str, body: Object) -> Answer | None:
        nonlocal tries
        if method == "POST":
            tries += 1
        return failing("connect: connection refused")(method, path, body) if tries < 6 else guarded(method, path, body)

    assert asked(FakeApi(installed(), late), 60).good


def test_a_guard_that_is_not_asked() -> None:
    def alone(method: str, path: str, body: Object) -> Answer | None:
        return Answer(201, body) if method == "POST" else None

    report = asked(FakeApi(installed(mutating=None, validating=None), alone))

    assert not report.good
    assert parts(report) == ["registration", "registration"]
    assert "/mutate was not called" in report.probes[0].words
    assert "/validate was not called" in report.probes[1].words


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("x509: certificate signed by unknown authority", "certificate"),
        ("tls: failed to verify certificate: x509: certificate has expired or is not yet valid", "certificate"),
        ("x509: certificate is valid for a.b.svc, not checkpoint-guard.checkpoint-guard.svc", "certificate"),
        ('service "checkpoint-guard" not found', "service"),
        ("dial tcp 10.0.0.1:443: connect: connection refused", "endpoints"),
        ('no endpoints available for service "checkpoint-guard"', "endpoints"),
        ("context deadline exceeded", "network"),
        ("dial tcp 10.0.0.1:443: i/o timeout", "network"),
        ("EOF", "call"),
    ],
)
def test_what_the_api_server_says_of_a_call(text: str, part: str) -> None:
    report = asked(FakeApi(installed(), failing(text)))

    assert parts(report) == [part]
    assert text in report.faults[0].problem
    assert explain_call(text).part == part


@pytest.mark.parametrize(
    ("changes", "part", "said"),
    [
        ({"trainjobs": None}, "CRDs", "trainjobs.trainer.kubeflow.org"),
        ({"service": None}, "service", "there is no Service"),
        ({"slice": {"endpoints": []}}, "endpoints", "there is no pod"),
        ({"slice": {"endpoints": [{"conditions": {"ready": False}}]}}, "endpoints", "no ready endpoint"),
        ({"mutating": {"webhooks": [{"name": "one", "clientConfig": {}}]}}, "caBundle", "1 of 4 webhooks have none"),
        ({"mutating": {"webhooks": [{"name": "o", "clientConfig": {"caBundle": "eA=="}}]}}, "caBundle", "the same"),
        ({"namespace": None}, "namespace", "does not exist"),
        ({"mutating": {"webhooks": []}}, "registration", 'lacks "mutate.checkpoint-guard.io", "put-back-variables'),
        ({"validating": {}}, "registration", 'lacks "validate.checkpoint-guard.io", "validate-update'),
    ],
)
def test_what_is_wrong_is_named(changes: Object, part: str, said: str) -> None:
    report = asked(FakeApi(installed(**changes), failing("EOF")))

    assert any(fault.part == part and said in fault.problem for fault in report.faults), report.faults


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}, "waits: ImagePullBackOff"),
        ({"containerStatuses": [{"ready": False, "state": {"running": {}}}]}, "runs and is not ready"),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes"}]}, "0/2 nodes"),
        ({"phase": "Pending"}, "is Pending"),
    ],
)
def test_the_state_of_pods_is_told(status: Object, said: str) -> None:
    pod = {"metadata": {"name": "a", "labels": {"app.kubernetes.io/component": "webhook"}}, "status": status}
    report = asked(FakeApi(installed(slice={"endpoints": []}, pod=pod), failing("connection refused")))

    assert any(said in fault.problem for fault in report.faults)


@pytest.mark.parametrize("component", ["certs", "keeper"])
def test_a_keeper_that_is_not_ready_is_told_of(component: str) -> None:
    """Without the Secret that it makes, pods of the webhook wait in ContainerCreating and never say what is missing."""
    labels = {"app.kubernetes.io/component": component}
    waits = {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}
    pod = {"metadata": {"name": "k", "labels": labels}, "status": {"containerStatuses": [{"state": waits}]}}
    objects = installed(slice={"endpoints": []}, pod=pod)
    report = asked(FakeApi(objects, failing("connection refused")))
    told = [fault.problem for fault in report.faults if "has no ready endpoint" in fault.problem]
    assert told[0].endswith("""there is no pod; the keeper's pod "k" waits: ErrImagePull (no such host)""")

    ready = {"metadata": pod["metadata"], "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    report = asked(FakeApi(objects | {f"{GUARD}/pods/a": ready}, failing("connection refused")))
    told = [fault.problem for fault in report.faults if "has no ready endpoint" in fault.problem]
    assert told
    assert "keeper" not in told[0]


def test_a_missing_right_is_named() -> None:
    def forbidden(method: str, path: str, body: Object) -> Answer | None:
        return Answer(403, {"message": "trainingruntimes is forbidden"}) if method == "POST" else None

    report = asked(FakeApi(installed(), forbidden))

    assert "RBAC" in parts(report)


@pytest.mark.parametrize("mode", ["audit", "off"])
def test_a_namespace_that_is_not_guarded_is_named(mode: str) -> None:
    space = {"metadata": {"name": "default", "labels": {"checkpoint-guard.io/mode": mode}}}

    def alone(method: str, path: str, body: Object) -> Answer | None:
        return Answer(201, body) if method == "POST" else None

    report = asked(FakeApi(installed(namespace=space), alone))

    assert "mode" in parts(report)


@pytest.mark.parametrize(
    ("selector", "guarded"),
    [
        (None, True),
        ({}, True),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}, True),
        ({"matchExpressions": [{"key": "other", "operator": "In", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "other", "operator": "NotIn", "values": ["a"]}]}, True),
        ({"matchExpressions": [{"key": "other", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"team": "a"}}, True),
        ({"matchLabels": {"team": "b"}}, False),
    ],
)
def test_a_namespace_that_the_registration_leaves_out_is_named(selector: Object | None, guarded: bool) -> None:
    space = {"metadata": {"name": "default", "labels": {"team": "a"}}}
    objects = installed(namespace=space)
    for hook in objects[HOOKS.format("validating")]["webhooks"]:
        hook["namespaceSelector"] = selector

    report = asked(FakeApi(objects, failing("EOF")))

    assert ("mode" in parts(report)) is not guarded


def test_an_exempt_namespace_is_named() -> None:
    objects = installed()
    objects["/api/v1/namespaces/kube-system"] = {"metadata": {"name": "kube-system"}}
    time = Time()
    clock = Clock(lambda: time.now, time.sleep)
    report = check(FakeApi(objects, failing("EOF")), Installation(namespace="kube-system"), 0, clock, lambda line: None)

    assert "mode" in parts(report)


def test_a_registration_by_url_needs_no_service() -> None:
    objects = installed(service=None, slice=None)
    for kind in ("mutating", "validating"):
        for hook in objects[HOOKS.format(kind)]["webhooks"]:
            hook["clientConfig"] = {"url": "https://guard", "caBundle": "eA=="}

    assert parts(asked(FakeApi(objects, failing("EOF")))) == ["call"]


def test_a_namespace_that_is_not_there_is_no_missing_kind() -> None:
    def absent(method: str, path: str, body: Object) -> Answer | None:
        return Answer(404, {"message": 'namespaces "default" not found'}) if method == "POST" else None

    report = asked(FakeApi(installed(namespace=None), absent))

    assert parts(report) == ["namespace"]
    assert all("Trainer" not in probe.words for probe in report.probes if probe.outcome == "not yet")


def test_warn_is_as_expected() -> None:
    def warn(method: str, path: str, body: Object) -> Answer | None:
        answer = guarded(method, path, body)
        if answer is not None and not answer.ok:
            return Answer(201, body, ("spec: emptyDir [ephemeral-checkpoint] (would be denied)",))
        return answer

    assert asked(FakeApi(installed(), warn)).good


def test_trainjobs_are_tried_on_a_runtime_that_takes_them() -> None:
    report = asked(FakeApi(installed(runtime=a_runtime()), guarded))

    names = ["good runtime", "bad runtime", "client certificate", "good TrainJob", "bad TrainJob", "registration"]
    assert [probe.what for probe in report.probes] == names


def test_a_runtime_that_refuses_every_trainjob_is_no_fault_of_the_installation() -> None:
    def picky(method: str, path: str, body: Object) -> Answer | None:
        if method == "POST" and path.endswith("/trainjobs"):
            return Answer(
                403,
                {"message": f"{DENIED}[undeclared-checkpoint]"},
            )
        return guarded(method, path, body)

    report = asked(FakeApi(installed(runtime=a_runtime()), picky))

    assert report.good
    assert report.probes[-2].outcome == "left out"
    assert "undeclared-checkpoint" in report.probes[-2].words


def test_it_waits_for_the_registration_to_be_fail_and_says_so() -> None:
    api = FakeApi(installed(), guarded)
    hooks = api.objects[HOOKS.format("validating")]["webhooks"]
    hooks[0]["failurePolicy"] = "Ignore"

    report = asked(api)

    assert not report.good
    (told,) = [probe for probe in report.probes if probe.what == "registration"]
    assert told.words.startswith("Ignore: TrainJobs pass unjudged while no pod answers; the keeper turns it to Fail")
    assert parts(report) == ["registration"]
    hooks[0]["failurePolicy"] = "Fail"
    assert asked(api).probes[-1].words == "Fail: a TrainJob is refused while no pod answers"


def test_before_a_pod_can_answer_it_says_why() -> None:
    pod = {"status": {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}}
    api = FakeApi(installed(pod={"metadata": {"name": "a"}, **pod}, slice={"endpoints": []}), lambda *_: None)
    api.objects[HOOKS.format("validating")]["webhooks"][0]["failurePolicy"] = "Ignore"

    report = asked(api)

    assert not report.good
    assert any(fault.part == "endpoints" and "ImagePullBackOff" in fault.problem for fault in report.faults)


def test_an_api_server_that_is_away() -> None:
    api = FakeApi()
    api.away = True

    with pytest.raises(Unreachable):
        asked(api, 10)


@pytest.mark.parametrize("release", Release)
def test_samples_are_what_they_are_said_to_be(release: Release) -> None:
    """Judged by the engine itself: the bad ones are refused by exactly their rule, the good ones pass."""
    from webhook.cluster.file_view import FileView
    from webhook.cluster.objects import parse_runtime
    from webhook.decision import review_object

    view = FileView((), release)
    view.put_runtime(parse_runtime(a_runtime()))
    for bad in (False, True):
        for obj in (
            samples.runtime("default", bad),
            samples.trainjob("default", "plain", "node", release, bad),
        ):
            request = Request("CREATE", obj["kind"], "default", samples.NAME, obj)
            decision = review_object(request, view, Policy(), release)
            denied = [finding.rule for finding in decision.findings if finding.severity.value == "deny"]
            assert denied == (["ephemeral-checkpoint"] if bad else []), (obj["kind"], bad)


def a_runtime() -> Object:
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "python"}]}}},
        },
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "plain"},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


def test_warnings_are_read_from_their_header() -> None:
    header = '299 - "spec: a \\"b\\", c [ephemeral-checkpoint]", 299 - "second"'

    assert parse_warnings(header) == ('spec: a "b", c [ephemeral-checkpoint]', "second")
    assert parse_warnings("") == ()


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            'admission webhook "validate.kyverno.svc" denied the request: no emptyDir, see [ephemeral-checkpoint]',
            'refused by webhook "validate.kyverno.svc", so whether the guard refuses it is not known',
        ),
        (
            'admission webhook "validate.checkpoint-guard.io" denied the request: x would not resume: 1 reason\n'
            "spec.a: b [unbuildable-pod]\n  why: c",
            "refused by the guard for another reason, not for [ephemeral-checkpoint]: spec.a: b [unbuildable-pod]",
        ),
        (
            'admission webhook "validate.checkpoint-guard.io" denied the request: x would not resume: 1 reason\n'
            "spec.a: b [unbuildable-pod]\nspec.c: d [ephemeral-checkpoint] (warning)",
            "for another reason, and [ephemeral-checkpoint] is a warning: spec.a: b [unbuildable-pod]",
        ),
        ("exceeded quota: runs, requested: count/trainingruntimes=1", "refused: exceeded quota: runs"),
    ],
)
def test_a_refusal_for_another_reason_proves_nothing(message: str, words: str) -> None:
    def other(method: str, path: str, body: Object) -> Answer | None:
        if method == "POST" and "emptyDir" in str(body):
            return Answer(403, {"message": message})
        return guarded(method, path, body)

    report = asked(FakeApi(installed(), other))

    assert not report.good
    assert report.probes[1].outcome == "not yet"
    assert words in report.probes[1].words
    assert "RBAC" not in parts(report)


def test_a_trainer_that_is_not_known_is_said() -> None:
    objects = installed(runtime=a_runtime())
    path = CRDS.format("trainjobs")
    spec = {"type": "object", "properties": {"runtimePatches": {"type": "array"}, "elastic": {"type": "object"}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    versions = [{"name": "v1alpha1", "served": True, "schema": schema}]
    objects[path] = {**objects[path], "spec": {**(objects[path].get("spec") or {}), "versions": versions}}
    report = asked(FakeApi(objects, guarded))
    assert report.good
    (probe,) = [probe for probe in report.probes if probe.what == "Trainer"]
    assert probe.outcome == "left out"
    assert "its TrainJob has spec.elastic; verdicts are those of Trainer" in probe.words


def _modes(expression: str | None, policy: str) -> dict[str, Object]:
    variables = [] if expression is None else [{"name": "selfService", "expression": expression}]
    text = f"apiVersion: checkpoint-guard.io/v1\nkind: Policy\n{policy}\n"
    return {
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/checkpoint-guard-mode": {
            "spec": {"variables": [*variables, {"name": "mode", "expression": "object.x"}]}
        },
        f"{GUARD}/configmaps/checkpoint-guard-policy": {"data": {"policy.yaml": text}},
    }


@pytest.mark.parametrize(
    ("expression", "policy", "words"),
    [
        ("['enforce', 'warn']", "", "users may set enforce and warn"),
        ("['warn']", "modes: {selfService: [warn]}", "users may set warn"),
        ("['']", "modes: {selfService: []}", "users may set none"),
    ],
)
def test_the_two_lists_of_what_users_may_set_agree(expression: str, policy: str, words: str) -> None:
    report = asked(FakeApi({**installed(), **_modes(expression, policy)}, guarded))
    assert report.good
    assert report.probes[-1].words == words


@pytest.mark.parametrize(
    ("expression", "policy", "fix"),
    [
        ("['enforce', 'warn']", "modes: {selfService: [warn, audit]}", "['warn', 'audit']"),
        ("['enforce', 'warn', 'off']", "", "['enforce', 'warn']"),
        ("['enforce', 'warn']", "modes: {selfService: []}", "['']"),
        (None, "", "['enforce', 'warn']"),
    ],
)
def test_where_they_differ_it_is_said(expression: str | None, policy: str, fix: str) -> None:
    report = asked(FakeApi({**installed(), **_modes(expression, policy)}, guarded))
    assert not report.good
    (fault,) = report.faults
    assert fault.part == "modes"
    assert fix in fault.fix


def test_where_one_of_them_is_not_there_nothing_is_said() -> None:
    for path in _modes("['warn']", ""):
        objects = {name: one for name, one in _modes("['warn']", "").items() if name != path}
        report = asked(FakeApi({**installed(), **objects}, guarded))
        assert report.good
        assert all(probe.what != "modes" for probe in report.probes)
