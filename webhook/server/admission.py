"""What happens between the bytes of a review and the bytes of its answer. Knows no HTTP.

``Admission.answer`` answers at once, unless a live read of the cluster has to be waited for: then it is a coroutine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from webhook.audit import AuditLog, decision_record, patch_record
from webhook.metrics import MUTATE, Metrics
from webhook.model.cluster import ClusterView
from webhook.model.finding import Severity, as_set
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.model.verdict import Decision, Defaulted
from webhook.server.caller import Caller
from webhook.server.envelope import (
    NotAReview,
    Review,
    allow,
    broken,
    error_line,
    judged,
    parse_review,
    patched,
    told_strangers,
)

if TYPE_CHECKING:
    from webhook.server.gate import Gate

Answer = tuple[int, bytes]
"""HTTP code and JSON body."""
Default = Callable[[Request, ClusterView, Policy, Release | None], Defaulted]
Judge = Callable[[Request, ClusterView, Policy, Release | None], Decision]

LOOKUP_SECONDS: Final = 2.0
_ROUNDS: Final = 12
"""A runtime leads to a claim, that to a class, and so on: some four rounds, and as many before a denial."""

_log = logging.getLogger("ckptguard.server")


class Views(Protocol):
    """Where a request gets its view of the cluster.

    A view answers at once. What it could not answer it remembers; then it ``lacks`` something, and the verdict counts
    for nothing until that is read and the engine has been asked again.
    """

    def at_once(self, request: Request) -> ClusterView | None:
        """The view, or None where something has to be read from the cluster first."""
        ...

    def lacks(self, view: ClusterView, denies: bool) -> bool:
        """Whether a verdict by this view has to wait for a read; ``denies``: it is a denial, or may lead to one."""
        ...

    async def read(self, request: Request, view: ClusterView | None) -> ClusterView:
        """Read what is missing (None: nothing was looked at yet). Cancelled when the time is used up; may raise."""
        ...

    def without(self, request: Request, view: ClusterView | None) -> ClusterView:
        """The view in which what could not be read in time is ``Gap.UNKNOWN``. It lacks nothing."""
        ...


class FixedViews:
    """The same view for every request: what ``--no-cluster`` and tests use."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def at_once(self, request: Request) -> ClusterView | None:
        return self._view

    def lacks(self, view: ClusterView, denies: bool) -> bool:
        return False

    async def read(self, request: Request, view: ClusterView | None) -> ClusterView:
        return self._view

    def without(self, request: Request, view: ClusterView | None) -> ClusterView:
        return self._view


class Admission:
    """Decides, logs, counts. The two functions of the engine come in as arguments."""

    def __init__(
        self,
        default: Default,
        judge: Judge,
        views: Views,
        policy: Callable[[], Policy],
        audit: AuditLog,
        metrics: Metrics,
        gate: Gate,
        release: Release | None = None,
        lookup_seconds: float = LOOKUP_SECONDS,
    ) -> None:
        self._default = default
        self._judge = judge
        self._views = views
        self._policy = policy
        self._audit = audit
        self._metrics = metrics
        self._gate = gate
        self._release = release
        self._lookup_seconds = lookup_seconds

    def answer(
        self,
        webhook: str,
        body: bytes,
        trace: str = "",
        since: float | None = None,
        caller: Caller = Caller.ANYBODY,
    ) -> Answer | Coroutine[None, None, Answer]:
        """``webhook`` is ``/mutate`` or ``/validate``, ``trace`` a W3C traceparent. Never raises.

        ``since``: when the body was complete, by ``perf_counter``, where that was not just now.
        """
        started = perf_counter() if since is None else since
        try:
            review = parse_review(body)
        except NotAReview as fault:
            return self.refuse(webhook, 400, str(fault))
        except Exception as error:  # what no test has found; the caller has to get an answer all the same
            _log.error("reading a review failed with %s", type(error).__name__, exc_info=error)
            return self.refuse(webhook, 400, "the body could not be read")
        request = review.request
        if request is None:
            return self._pass(webhook, review, started, trace, caller)
        try:
            view = self._views.at_once(request)
        except Exception as error:
            return self._guarded(webhook, request, error, started, caller)
        if view is not None and (answer := self._decide(webhook, request, view, started, trace, caller)) is not None:
            return answer
        return self._after_reading(webhook, request, view, started, trace, caller)

    def refuse(self, webhook: str, code: int, message: str) -> Answer:
        """An answer without a review: counted, one line of JSON."""
        self._metrics.requests[webhook, code].inc()
        return code, error_line(message)

    async def _after_reading(
        self, webhook: str, request: Request, view: ClusterView | None, started: float, trace: str, caller: Caller
    ) -> Answer:
        """Read and decide by turns, until nothing is lacking or the time is used up."""
        lookups = self._metrics.lookups
        try:
            async with asyncio.timeout(self._lookup_seconds), self._gate.turn:
                for _ in range(_ROUNDS):
                    view = await self._views.read(request, view)
                    if (answer := self._decide(webhook, request, view, started, trace, caller)) is not None:
                        lookups["answered"].inc()
                        return answer
            lookups["failed"].inc()
            _log.warning("a request lacked something after %d rounds of look-ups", _ROUNDS)
        except TimeoutError:
            lookups["late"].inc()
        except Exception as error:
            lookups["failed"].inc()
            _log.warning("a look-up failed with %s: %s", type(error).__name__, error)
        view = self._views.without(request, view)
        return self._decide(webhook, request, view, started, trace, caller, True) or self.refuse(
            webhook, 503, "no answer"
        )

    def _decide(
        self,
        webhook: str,
        request: Request,
        view: ClusterView,
        started: float,
        trace: str,
        caller: Caller,
        last: bool = False,
    ) -> Answer | None:
        """None where the view lacks something, unless this is the ``last`` word."""
        try:
            policy = self._policy()
            metrics = self._metrics
            if webhook == MUTATE:
                defaulted = self._default(request, view, policy, self._release)
                if not last and self._views.lacks(view, False):
                    return None
                if caller is Caller.STRANGER:
                    answer = told_strangers(request.uid, True, defaulted.findings)
                else:
                    answer = patched(request.uid, defaulted, policy.hash)
                if defaulted.patch:
                    metrics.patches[request.kind, request.operation].inc()
                if defaulted.broken:
                    metrics.broke(defaulted.broken)
                elapsed = perf_counter() - started
                self._audit.write(patch_record(request, defaulted, _generated(request), elapsed, policy.hash, trace))
            else:
                decision = self._judge(request, view, policy, self._release)
                if not last and self._views.lacks(view, decision.verdict == "deny"):
                    return None
                if caller is Caller.STRANGER:
                    answer = told_strangers(request.uid, decision.verdict != "deny", decision.findings)
                else:
                    answer = judged(request.uid, decision, f"{request.kind}/{request.name}")
                metrics.decisions[request.kind, request.operation, decision.verdict].inc()
                if decision.findings:
                    metrics.found(decision.findings)
                if decision.broken:
                    metrics.broke(decision.broken)
                elapsed = perf_counter() - started
                self._audit.write(decision_record(request, decision, _generated(request), elapsed, trace))
        except Exception as error:
            return self._guarded(webhook, request, error, started, caller)
        metrics.requests[webhook, 200].inc()
        metrics.latency[webhook].observe(elapsed)
        return 200, answer

    def _pass(self, webhook: str, review: Review, started: float, trace: str, caller: Caller) -> Answer:
        """Nothing to decide, or an object that cannot be read: through it goes."""
        metrics = self._metrics
        metrics.requests[webhook, 200].inc()
        if review.malformed is None or review.about is None:
            metrics.latency[webhook].observe(perf_counter() - started)
            return 200, allow(review.uid)
        policy = self._policy()
        request = review.about
        findings = as_set(review.malformed, policy.rules)
        warns = any(finding.severity is Severity.WARN for finding in findings)
        decision = Decision("warn" if warns else "allow", findings, policy_hash=policy.hash)
        if caller is Caller.STRANGER:
            answer = told_strangers(review.uid, True, findings)
        else:
            answer = judged(review.uid, decision, f"{request.kind}/{request.name}")
        elapsed = perf_counter() - started
        metrics.latency[webhook].observe(elapsed)
        if webhook == MUTATE:
            told = Defaulted((), {}, decision.findings)
            self._audit.write(patch_record(request, told, False, elapsed, policy.hash, trace))
        else:
            metrics.decisions[request.kind, request.operation, decision.verdict].inc()
            metrics.found(decision.findings)
            self._audit.write(decision_record(request, decision, False, elapsed, trace))
        return 200, answer

    def _guarded(self, webhook: str, request: Request, error: Exception, started: float, caller: Caller) -> Answer:
        """The last resort: whatever went wrong in us, the object goes through, with a warning."""
        metrics = self._metrics
        _log.error("%s failed on %s with %s", webhook, request.uid, type(error).__name__, exc_info=error)
        metrics.broke(("server",))
        finding = broken(request, error)
        told = Defaulted((), {}, (finding,))
        if caller is Caller.STRANGER:
            answer = told_strangers(request.uid, True, (finding,))
        else:
            answer = patched(request.uid, told, "")
        metrics.requests[webhook, 200].inc()
        elapsed = perf_counter() - started
        metrics.latency[webhook].observe(elapsed)
        try:
            if webhook == MUTATE:
                self._audit.write(patch_record(request, told, False, elapsed, "", ""))
            else:
                decision = Decision("warn", (finding,), broken=("server",))
                metrics.decisions[request.kind, request.operation, "warn"].inc()
                metrics.found(decision.findings)
                self._audit.write(decision_record(request, decision, False, elapsed, ""))
        except Exception as again:
            _log.error("the audit line of %s failed with %s", request.uid, type(again).__name__)
        return 200, answer


def _generated(request: Request) -> bool:
    """Whether the name is a generateName: the API server has not made a name of it yet."""
    metadata = request.object.get("metadata") or {}
    return not metadata.get("name") and bool(metadata.get("generateName"))
