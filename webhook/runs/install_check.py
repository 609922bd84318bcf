"""Whether the guard guards: it is asked through the API server, as a user asks it, and nothing is stored.

A good and a bad runtime, and a good and a bad TrainJob where there is a runtime to refer to, are created by dry-run
until the API server answers both as expected. Where it does not in time, ``find_faults`` says what of the installation
is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from webhook.cluster.access import Refused, Unreachable
from webhook.cluster.kinds import TRAINJOB_CRD, served_release
from webhook.cluster.served import told, unknown_parts
from webhook.model.names import CERTIFICATE, GROUP, INJECTED, MODE
from webhook.model.printable import printable
from webhook.model.release import Release
from webhook.runs import samples
from webhook.runs.api import Answer, Api, each
from webhook.runs.guarded_modes import self_service
from webhook.runs.installation import CONFIGURATION, VALIDATING, Fault, Installation, explain_call, find_faults
from webhook.runs.probe import Probe

PLURALS: Final = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")
_BASE: Final = f"/apis/{GROUP}/v1alpha1"
_CANDIDATES: Final = 5
"""Runtimes tried for the TrainJobs."""

_DENIED: Final = re.compile(r'admission webhook "([^"]+)" denied the request')
_OURS: Final = ".checkpoint-guard.io"
"""How the names of our webhooks end (deploy/base)."""

Tell = Callable[[str], None]


class Clock(Struct, frozen=True):
    """Seconds that only grow, and a pause."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], None]


class Report(Struct, frozen=True):
    """The last round of probes and, where one is not as expected, what is wrong."""

    probes: tuple[Probe, ...]
    faults: tuple[Fault, ...] = ()

    @property
    def good(self) -> bool:
        return all(probe.outcome != "not yet" for probe in self.probes)


def check(api: Api, installation: Installation, seconds: float, clock: Clock, tell: Tell) -> Report:
    """Ask until everything is as expected, for so long. Raises Unreachable where the API server is not there at all."""
    until = clock.monotonic() + seconds
    said = ""
    reached = False
    while True:
        try:
            probes = tuple(ask(api, installation.namespace, installation.guard))
            reached = True
        except Unreachable as error:
            if not reached and clock.monotonic() >= until:
                raise
            probes = (Probe("API server", "not yet", str(error)),)
        report = Report(probes)
        if report.good:
            return report
        waits = "; ".join(f"{probe.what}: {probe.words}" for probe in probes if probe.outcome == "not yet")
        if clock.monotonic() >= until:
            return Report(probes, tuple(_faults(api, installation, probes)))
        if waits != said:
            tell(f"waiting: {waits}")
            said = waits
        clock.sleep(2.0)


def ask(api: Api, namespace: str, guard: str) -> Iterator[Probe]:
    """One round of probes; ``guard`` is the namespace that the guard is in."""
    mode = _mode(api, namespace)
    good = _create(api, "trainingruntimes", samples.runtime(namespace, bad=False))
    yield _judge_good("good runtime", good, mode, filled=True)
    bad = _create(api, "trainingruntimes", samples.runtime(namespace, bad=True))
    refused = _judge_bad("bad runtime", bad, mode)
    yield refused
    if refused.outcome == "as expected":
        yield _judge_certificate(bad)
    yield from _ask_trainjobs(api, namespace, mode)
    yield _failure_policy(api)
    yield from self_service(api, guard)


def _failure_policy(api: Api) -> Probe:
    """Whether a CREATE is refused while nobody answers; the keeper sees to that when a pod is ready."""
    what = "registration"
    answer = api.request("GET", f"{VALIDATING}/{CONFIGURATION}")
    entry = next((hook for hook in answer.body.get("webhooks") or () if hook.get("name") == f"validate{_OURS}"), None)
    if not answer.ok or entry is None:
        return Probe(what, "left out", "it cannot be looked at" if answer.code in (401, 403) else "there is none")
    if entry.get("failurePolicy") != "Ignore":
        return Probe(what, "as expected", "Fail: a TrainJob is refused while no pod answers")
    return Probe(what, "not yet", f"Ignore: TrainJobs pass unjudged while no pod answers; {_KEEPER}")


_KEEPER: Final = "the keeper turns it to Fail when a pod is ready"


def _ask_trainjobs(api: Api, namespace: str, mode: str | None) -> Iterator[Probe]:
    release, unknown = read_trainer(api)
    if unknown:
        yield Probe("Trainer", "left out", printable(told(unknown)))
    if release is None:
        yield Probe("TrainJobs", "left out", "the Trainer release cannot be told from its CRD")
        return
    tried = 0
    why = "there is no ClusterTrainingRuntime to refer to yet"
    try:
        for runtime in each(api, f"{_BASE}/clustertrainingruntimes", page=50):
            name = str((runtime.get("metadata") or {}).get("name"))
            job = samples.training_job(runtime)
            if job is None:
                continue
            answer = _create(api, "trainjobs", samples.trainjob(namespace, name, job, release, bad=False))
            good = _judge_good("good TrainJob", answer, mode, filled=False)
            if good.outcome == "as expected":
                yield good
                bad = _create(api, "trainjobs", samples.trainjob(namespace, name, job, release, bad=True))
                yield _judge_bad("bad TrainJob", bad, mode)
                return
            if good.call is not None or good.forbidden is not None:
                yield good
                return
            tried += 1
            why = f'on runtime "{name}" a plain TrainJob is refused: {good.words}'
            if tried == _CANDIDATES:
                break
    except Refused as refused:
        why = f"runtimes cannot be listed: {refused}"
    yield Probe("TrainJobs", "left out", why)


def read_release(api: Api) -> Release | None:
    """The Trainer release whose CRD is served; None where it is not known."""
    return read_trainer(api)[0]


def read_trainer(api: Api) -> tuple[Release | None, tuple[str, ...]]:
    """The same, and the fields that no known release has."""
    answer = api.request("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{TRAINJOB_CRD}")
    return (served_release(dict(answer.body)), unknown_parts(answer.body)) if answer.ok else (None, ())


def _create(api: Api, plural: str, obj: Mapping[str, Any]) -> Answer:
    path = f"{_BASE}/namespaces/{obj['metadata']['namespace']}/{plural}"
    return api.request("POST", path, {"dryRun": "All", "fieldManager": "ckptguard-install-check"}, obj)


def _mode(api: Api, namespace: str) -> str | None:
    answer = api.request("GET", f"/api/v1/namespaces/{namespace}")
    label = ((answer.body.get("metadata") or {}).get("labels") or {}).get(MODE) if answer.ok else None
    return str(label) if label else None


_NO_CERTIFICATE: Final = "client certificate alone"
"""In what the guard tells callers without the certificate that it asks for (``webhook.server.envelope``)."""
NO_CERTIFICATE: Final = (
    "the guard asks for a client certificate (--client-ca) and the API server shows none of that authority: give it "
    "one by AdmissionConfiguration, or leave the flag out"
)


def _judge_good(what: str, answer: Answer, mode: str | None, filled: bool) -> Probe:
    if answer.ok:
        annotations = (answer.body.get("metadata") or {}).get("annotations") or {}
        if filled and INJECTED not in annotations:
            words = "admitted, but nothing was filled in: /mutate was not called, or did not answer"
            if mode in ("audit", "off"):
                words = f'admitted, but nothing is filled in where the namespace\'s mode is "{mode}"'
            return Probe(what, "not yet", words)
        return Probe(what, "as expected", "admitted and filled in" if filled else "admitted")
    if answer.code == 409:
        return Probe(what, "not yet", f'an object "{samples.NAME}" is in the way: delete it')
    return _refused(what, answer)


def _judge_bad(what: str, answer: Answer, mode: str | None) -> Probe:
    """It has to be refused by a webhook of ours, and for what is wrong with it: other reasons prove nothing."""
    named = f"[{samples.RULE}]"
    if not answer.ok:
        webhook = _DENIED.search(answer.message)
        if webhook is None:
            return _refused(what, answer)
        if not webhook[1].endswith(_OURS):
            words = f'refused by webhook "{printable(webhook[1])}", so whether the guard refuses it is not known'
            return Probe(what, "not yet", words)
        lines = [line.rstrip() for line in answer.message.splitlines()]
        if any(line.endswith(named) for line in lines):
            return Probe(what, "as expected", f"refused {named}")
        beside = f", and {named} is a warning" if any(named in line for line in lines) else f", not for {named}"
        return Probe(what, "not yet", f"refused by the guard for another reason{beside}: {_first_rule(lines)}")
    if any(named in warning for warning in answer.warnings):
        return Probe(what, "as expected", f"admitted with a warning {named}, since the mode is warn")
    if mode in ("audit", "off"):
        return Probe(what, "not yet", f'admitted: the namespace\'s mode is "{mode}"')
    return Probe(what, "not yet", "admitted without a word: /validate was not called, or the default mode is audit")


def _judge_certificate(answer: Answer) -> Probe:
    """Whether the API server showed the guard a certificate. One that was asked for and did not come is a refusal."""
    what = "client certificate"
    said = next((one.partition(CERTIFICATE)[2] for one in answer.warnings if CERTIFICATE in one), "")
    if said.startswith("shown"):
        return Probe(what, "as expected", "the API server showed it, so answers name other objects")
    if said.startswith("not asked for"):
        words = "not asked for (no --client-ca): whoever reaches the guard's port gets verdicts, and no names of others"
        return Probe(what, "as expected", words)
    return Probe(what, "left out", "this guard does not say whether one came")


def _first_rule(lines: list[str]) -> str:
    """The first line that ends with a rule's id, else what the refusal begins with."""
    return printable(next((line for line in lines if re.search(r"\[[a-z-]+\]$", line)), lines[0])[:200])


def _refused(what: str, answer: Answer) -> Probe:
    message = answer.message
    if "denied the request" in message and _NO_CERTIFICATE in message:
        return Probe(what, "not yet", f"refused, and why is not told: {NO_CERTIFICATE}")
    if "failed calling webhook" in message:
        return Probe(what, "not yet", explain_call(message).problem, call=message)
    if answer.code == 404 and message.startswith("namespaces "):
        return Probe(what, "not yet", message)
    if answer.code == 404:
        return Probe(what, "not yet", "the kind is not served: Kubeflow Trainer is not installed")
    if answer.code in (401, 403) and "exceeded quota" not in message and "denied the request" not in message:
        return Probe(what, "not yet", message, forbidden=message)
    return Probe(what, "not yet", printable(f"refused: {message.splitlines()[0][:200]}"))


def _faults(api: Api, installation: Installation, probes: tuple[Probe, ...]) -> Iterator[Fault]:
    seen = set()
    for probe in probes:
        fault = None
        if probe.fix is not None:
            fault = Fault(probe.what, probe.words, probe.fix)
        elif probe.call is not None:
            fault = explain_call(probe.call)
        elif probe.forbidden is not None:
            fault = Fault(
                "RBAC",
                probe.forbidden,
                f"let this user create trainingruntimes and trainjobs in namespace {installation.namespace}",
            )
        if fault is not None and fault not in seen:
            seen.add(fault)
            yield fault
    try:
        for fault in find_faults(api, installation):
            if fault not in seen:
                seen.add(fault)
                yield fault
    except Unreachable as error:
        yield Fault("API server", str(error), "try again when it answers")
    if not seen:
        for probe in probes:
            if probe.outcome == "not yet":
                yield Fault(probe.what, probe.words, "look at the log of the guard's pods: kubectl logs -n "
                            f"{installation.guard} deploy/{installation.service}")  # fmt: skip
