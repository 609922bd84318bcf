"""What happens between the bytes of a review and the bytes of its answer. Knows no HTTP.

``Admission.answer`` answers at once, unless a live read of the cluster has to be waited for, or the review is too heavy
for the event loop: then it is a coroutine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from webhook.audit import AuditLog, took
from webhook.metrics import Metrics
from webhook.model.budget import worth
from webhook.model.cluster import ClusterView, Run
from webhook.model.deletion import Deletion
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.server.caller import Caller
from webhook.server.envelope import NotAReview, error_line, parse_review
from webhook.server.judging import Default, Judge, Outcome, answer_deletion, answer_review, guarded, pass_by

if TYPE_CHECKING:
    from webhook.server.gate import Gate
    from webhook.server.pool import Worker

Answer = tuple[int, bytes]
"""HTTP code and JSON body."""

LOOKUP_SECONDS: Final = 2.0
_ROUNDS: Final = 12
"""A runtime leads to a claim, that to a class, and so on: some four rounds, and as many before a denial."""

HEAVY: Final = 32 * 1024
"""What a review and its runtime are worth (``budget.worth``) above which the worker judges them: bytes of plain JSON or
4,096 nodes of programs' trees, a twentieth of what one review may visit."""

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

    def weight(self, request: Request) -> int:
        """What that is worth which is stored in the cluster and judged with the object: its runtime."""
        ...

    def read_weight(self, view: ClusterView) -> int:
        """Characters that were read from the cluster for this view and are judged: those of programs."""
        ...


class Needs(Protocol):
    """Who needs what is being deleted."""

    def view(self) -> ClusterView:
        """What the verdict sees of the cluster; it lacks nothing."""
        ...

    async def of(self, deletion: Deletion) -> tuple[Sequence[Run], int]:
        """Unfinished runs in protected namespaces that are sure to need it, and how many there may be. May raise."""
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

    def weight(self, request: Request) -> int:
        return 0

    def read_weight(self, view: ClusterView) -> int:
        return 0


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
        worker: Worker | None = None,
        needs: Needs | None = None,
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
        self._worker = worker
        """Judges what is too heavy for the event loop; None: nothing is."""
        self._needs = needs
        """None: every DELETE passes."""

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
        size = 0 if self._worker is None else worth(body) if len(body) <= HEAVY else len(body)
        heavy = size > HEAVY
        if heavy and self._worker is not None and not self._worker.has_room():
            return self.refuse(webhook, 503, "too many large objects at once")
        if heavy:
            return self._elsewhere(webhook, body, None, None, started, trace, caller)
        try:
            review = parse_review(body)
        except NotAReview as fault:
            return self.refuse(webhook, 400, str(fault))
        except Exception as error:  # what no test has found; the caller has to get an answer all the same
            _log.error("reading a review failed with %s", type(error).__name__, exc_info=error)
            return self.refuse(webhook, 400, "the body could not be read")
        request = review.request
        if request is None:
            passed = pass_by(webhook, review, self._policy(), caller, trace)
            if passed.deletion is not None and self._needs is not None:
                return self._on_deletion(webhook, passed, passed.deletion, self._needs, started, trace, caller)
            return self._told(webhook, passed, started)
        try:
            if self._worker is not None and size + self._views.weight(request) > HEAVY:
                if not self._worker.has_room():
                    return self.refuse(webhook, 503, "too many large objects at once")
                return self._elsewhere(webhook, body, request, None, started, trace, caller)
            view = self._views.at_once(request)
        except Exception as error:
            return self._guarded(webhook, request, error, started, caller)
        if view is not None and (answer := self._decide(webhook, request, view, started, trace, caller)) is not None:
            return answer
        return self._after_reading(webhook, body, request, view, started, trace, caller)

    def refuse(self, webhook: str, code: int, message: str) -> Answer:
        """An answer without a review: counted, one line of JSON."""
        self._metrics.requests[webhook, code].inc()
        return code, error_line(message)

    async def _after_reading(
        self,
        webhook: str,
        body: bytes,
        request: Request,
        view: ClusterView | None,
        started: float,
        trace: str,
        caller: Caller,
    ) -> Answer:
        """Read and decide by turns, until nothing is lacking or the time is used up."""
        lookups = self._metrics.lookups
        heavy = False
        try:
            async with asyncio.timeout(self._lookup_seconds), self._gate.turn:
                for _ in range(_ROUNDS):
                    view = await self._views.read(request, view)
                    heavy = self._worker is not None and len(body) + self._views.read_weight(view) > HEAVY
                    if heavy:
                        break
                    if (answer := self._decide(webhook, request, view, started, trace, caller)) is not None:
                        lookups["answered"].inc()
                        return answer
                else:
                    lookups["failed"].inc()
                    _log.warning("a request lacked something after %d rounds of look-ups", _ROUNDS)
        except TimeoutError:
            lookups["late"].inc()
        except Exception as error:
            lookups["failed"].inc()
            _log.warning("a look-up failed with %s: %s", type(error).__name__, error)
        if heavy and self._worker is not None:
            if not self._worker.has_room():
                return self.refuse(webhook, 503, "too many large objects at once")
            return await self._elsewhere(webhook, body, request, view, started, trace, caller)
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
            outcome = answer_review(
                webhook, request, view, self._policy(), self._release, self._default, self._judge, caller, trace
            )
            if not last and self._views.lacks(view, outcome.denies):
                return None
            return self._told(webhook, outcome, started)
        except Exception as error:
            return self._guarded(webhook, request, error, started, caller)

    async def _elsewhere(
        self,
        webhook: str,
        body: bytes,
        request: Request | None,
        view: ClusterView | None,
        started: float,
        trace: str,
        caller: Caller,
    ) -> Answer:
        """Judged by the worker, with the same view and the same rounds of look-ups as on the event loop.

        ``request`` is None where the body was not read here: then the worker says what is in it. ``view`` is what was
        read for it before.
        """
        from webhook.server.pool import Died, Overloaded

        for last in (False, True):
            try:
                return await self._by_worker(webhook, body, request, view, started, trace, caller)
            except Overloaded as error:
                return self.refuse(webhook, 503, str(error))
            except Died:
                if last:
                    return self.refuse(webhook, 503, "the process that judges large objects ended over this one")
            except Exception as error:
                if request is not None:
                    return self._guarded(webhook, request, error, started, caller)
                _log.error("the worker failed with %s", type(error).__name__, exc_info=error)
                break
        return self.refuse(webhook, 503, "no answer")

    async def _by_worker(
        self,
        webhook: str,
        body: bytes,
        request: Request | None,
        view: ClusterView | None,
        started: float,
        trace: str,
        caller: Caller,
    ) -> Answer:
        if self._worker is None:
            return self.refuse(webhook, 503, "no answer")
        async with self._worker.session() as session:
            read = await session.read(webhook, body, self._policy(), caller, trace)
            if isinstance(read, str):
                return self.refuse(webhook, 400, read)
            if isinstance(read, Outcome):
                if read.deletion is None or self._needs is None:
                    return self._told(webhook, read, started)
                deletion = read.deletion
                return await self._on_deletion(webhook, read, deletion, self._needs, started, trace, caller)
            request = read if request is None else request
            view = self._views.at_once(request) if view is None else view
            result, left = "", self._lookup_seconds
            for _ in range(_ROUNDS):
                if view is not None:
                    outcome = await session.judge(view)
                    if not self._views.lacks(view, outcome.denies):
                        break
                began = perf_counter()
                try:
                    async with asyncio.timeout(max(left, 0.0)), self._gate.turn:
                        view = await self._views.read(request, view)
                    result = "answered"
                except TimeoutError:
                    result = "late"
                except Exception as error:
                    result = "failed"
                    _log.warning("a look-up failed with %s: %s", type(error).__name__, error)
                if result != "answered":
                    outcome = await session.judge(self._views.without(request, view))
                    break
                left -= perf_counter() - began
            else:
                result = "failed"
                outcome = await session.judge(self._views.without(request, view))
        if result:
            self._metrics.lookups[result].inc()
        return self._told(webhook, outcome, started)

    async def _on_deletion(
        self,
        webhook: str,
        passed: Outcome,
        deletion: Deletion,
        needs: Needs,
        started: float,
        trace: str,
        caller: Caller,
    ) -> Answer:
        """Whatever goes wrong, and whatever is not known in time, lets it through."""
        from webhook.decision.protection import judge_deletion

        outcome = passed
        try:
            async with asyncio.timeout(self._lookup_seconds), self._gate.turn:
                needed_by, count = await needs.of(deletion)
            decision = judge_deletion(deletion, needed_by, count, needs.view(), self._policy())
            outcome = answer_deletion(deletion, decision, caller, trace)
            self._metrics.deletions[deletion.kind, decision.verdict].inc()
        except TimeoutError:
            self._metrics.lookups["late"].inc()
        except Exception as error:
            self._metrics.lookups["failed"].inc()
            _log.warning("whether a run needs what is deleted is not known: %s: %s", type(error).__name__, error)
        return self._told(webhook, outcome, started)

    def _told(self, webhook: str, outcome: Outcome, started: float) -> Answer:
        """Counts and writes what is to be told of an answer, and gives it."""
        metrics = self._metrics
        if outcome.patched:
            metrics.patches[outcome.kind, outcome.operation].inc()
        if outcome.verdict and outcome.operation != "DELETE":
            metrics.decisions[outcome.kind, outcome.operation, outcome.verdict].inc()
        if outcome.would_deny:
            metrics.would_deny[outcome.kind, outcome.operation, outcome.would_deny].inc()
        if outcome.found:
            metrics.found_rules(outcome.found)
        if outcome.broken:
            metrics.broke(outcome.broken)
        elapsed = perf_counter() - started
        if outcome.record is not None:
            self._audit.write(took(outcome.record, elapsed))
        metrics.requests[webhook, 200].inc()
        metrics.latency[webhook].observe(elapsed)
        return 200, outcome.answer

    def _guarded(self, webhook: str, request: Request, error: Exception, started: float, caller: Caller) -> Answer:
        """The last resort: whatever went wrong in us, the object goes through, with a warning."""
        _log.error("%s failed on %s with %s", webhook, request.uid, type(error).__name__, exc_info=error)
        try:
            return self._told(webhook, guarded(webhook, request, error, caller), started)
        except Exception as again:
            _log.error("the audit line of %s failed with %s", request.uid, type(again).__name__)
            outcome = guarded(webhook, Request("CREATE", request.kind, "", "", {}, uid=request.uid), error, caller)
            self._metrics.requests[webhook, 200].inc()
            return 200, outcome.answer
