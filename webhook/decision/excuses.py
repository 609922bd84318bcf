"""Exceptions at work: what excuses a finding of one request, and what has to be said about it.

They come from the policy's ``exceptions``, from the CheckpointExceptions of the object's namespace and from annotation
``checkpoint-guard.io/allow``. One that has ended counts
no more on CREATE; on UPDATE it still keeps a finding from denying, so that no end ever blocks a resume.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from webhook.model.cluster import ClusterView, Gap
from webhook.model.excuse import Excuse, fingerprint
from webhook.model.finding import Judged, Origin, Severity, place_of
from webhook.model.moment import DAY, day_of
from webhook.model.names import ALLOW, EXCEPTION
from webhook.model.policy import Policy
from webhook.model.request import Request

if TYPE_CHECKING:
    from webhook.model.annotated import Void
    from webhook.model.exceptions import Exceptions

SOON: Final = 14 * DAY
"""So long before its end an exception is spoken of at every use."""
_INDEX: Final = "exceptions"
_SHOWN: Final = 8
"""Lines of an annotation that are told as void."""
_FIELD: Final = f"metadata.annotations[{ALLOW}]"


class Excuses:
    """What may excuse the findings of one request. Nothing is looked up before the first finding that counts.

    ``given`` are excuses that are known to be the object's, beside those that are read here.
    """

    def __init__(self, request: Request, cluster: ClusterView, policy: Policy, given: Iterable[Excuse] = ()) -> None:
        self._request = request
        self._cluster = cluster
        self._policy = policy
        self._label = f"{request.kind}/{request.name}"
        self._granted: Exceptions | Gap | None = None
        self._annotated: list[Excuse] = [*given]
        self._void: list[Void] = []
        self._used: dict[tuple[str, str], tuple[Excuse, str]] = {}
        self._unread: list[str] = []
        self._text = annotation_of(request.object)
        if self._text:
            self._read()

    def weigh(self, rule: str, at: Origin, severity: Severity) -> tuple[Severity, Excuse | None]:
        """What a finding weighs with the exceptions, and the one that was taken for it."""
        if severity is Severity.AUDIT:
            return severity, None
        granted = self._granted
        if granted is None:
            granted = self._granted = self._cluster.exceptions(self._request.namespace)
        if isinstance(granted, Gap) and not (self._policy.exceptions or self._annotated):
            return self._unless_unknown(severity, rule), None
        ended: Excuse | None = None
        far = False
        now = self._request.at
        for excuse in self._for(rule, at):
            if not now or now < excuse.end:
                if now and not excuse.bounded and excuse.end > now + self._policy.limits.exception_days * DAY:
                    self._used[excuse.source, rule] = (excuse, "far")
                    far = True
                    continue
                if now and excuse.end - now < SOON:
                    self._used[excuse.source, rule] = (excuse, "ends")
                return Severity.AUDIT, excuse
            ended = ended or excuse
        if ended is None and not far:
            return self._unless_unknown(severity, rule), None
        if ended is not None:
            self._used[ended.source, rule] = (ended, "ended")
        if self._request.operation == "UPDATE" and severity is Severity.DENY:
            return Severity.WARN, None
        return self._unless_unknown(severity, rule), None

    def _unless_unknown(self, severity: Severity, rule: str) -> Severity:
        """Where the exceptions of the namespace cannot be read, one may be for this: that denies nothing."""
        if severity is not Severity.DENY or self._granted is not Gap.UNKNOWN:
            return severity
        self._unread.append(rule)
        return Severity.WARN

    def remarks(self) -> Iterator[Judged]:
        """``expired-exception`` for what ends soon or has ended, ``void-exception`` for lines that say nothing."""
        for (source, rule), (excuse, word) in self._used.items():
            yield self._too_far(source, rule, excuse) if word == "far" else self._expired(source, rule, excuse, word)
        if self._unread:
            yield self._not_read()
        if self._void and self._text != annotation_of(self._request.old or {}):
            for void in self._void[:_SHOWN]:
                yield self._voided(void)

    def _for(self, rule: str, at: Origin) -> Iterator[Excuse]:
        """The exceptions for one finding, the policy's first, and of these the one that ends last."""
        request = self._request
        for index in (index_of(self._policy), self._granted):
            if index is None or isinstance(index, Gap):
                continue
            yield from fitting(index, rule, request, at)
        for excuse in self._annotated:
            if rule in excuse.rules:
                yield excuse

    def _read(self) -> None:
        from webhook.model.annotated import Void, read_annotation

        request, service = self._request, self._policy.self_service
        self._annotated, self._void = read_annotation(self._text, service, f"annotation {ALLOW}", request.at)
        if not self._annotated or annotation_of(request.old or {}):
            return
        others = self._cluster.excused_runs(request.namespace, request.name)
        if not isinstance(others, Gap) and others >= service.max_per_namespace:
            self._annotated = []
            why = f"{others} TrainJobs of the namespace have exceptions of their own already, which is the most"
            fix = "# take annotation checkpoint-guard.io/allow off one of them, or mend this object"
            self._void = [Void(1, why, fix)]

    def _expired(self, source: str, rule: str, excuse: Excuse, word: str) -> Judged:
        at = Origin(self._label, _FIELD if source == ALLOW else "", f"exception for {rule}")
        said = "has ended" if word == "ended" else "ends"
        return Judged(
            "expired-exception",
            Severity.WARN,
            at,
            f'the exception for "{rule}" {said} on {excuse.until}: "{excuse.reason}", by "{excuse.owner}"',
            "from then on a new object with this fault counts as if there were no exception",
            f"# mend what {rule} says, or ask for a later day: {excuse.owner}",
            subject=f"{source} {rule}",
        )

    def _too_far(self, source: str, rule: str, excuse: Excuse) -> Judged:
        days = self._policy.limits.exception_days
        last = day_of((self._request.at + days * DAY) // DAY * DAY)
        return Judged(
            "void-exception",
            Severity.WARN,
            Origin(self._label, "", f"exception for {rule}"),
            f"{source} excuses nothing: it ends on {excuse.until}, more than {days} days ahead, which is the most",
            "what it was meant to excuse counts",
            f"# in {source}: until: {last}, at most",
            subject=f"{source} {rule}",
        )

    def _not_read(self) -> Judged:
        namespace = self._request.namespace
        why = self._cluster.why_unknown(EXCEPTION)
        return Judged(
            "void-exception",
            Severity.WARN,
            Origin(self._label, "", "exceptions"),
            f'the exceptions of namespace "{namespace}" are not known, so "{self._unread[0]}" only warns: {why}',
            "with them it may be excused, and without one it would be refused",
            f"# let them be read: kubectl get checkpointexceptions -n {namespace}",
            subject="unread",
        )

    def _voided(self, void: Void) -> Judged:
        return Judged(
            "void-exception",
            Severity.WARN,
            Origin(self._label, _FIELD, f"annotation {ALLOW}"),
            f"line {void.line} of the annotation excuses nothing: {void.why}",
            "what it was meant to excuse counts",
            f"metadata:\n  annotations:\n    {ALLOW}: |-\n      {void.fix}" if void.fix[:1] != "#" else void.fix,
            subject=str(void.line),
        )


def fitting(index: Exceptions, rule: str, request: Request, at: Origin | str) -> Iterator[Excuse]:
    """The excuses for one finding, the latest end first, and then those for its fingerprint.

    ``at`` is its place: of a log already as ``place_of`` writes it.
    """
    mark = _mark(rule, request, at) if rule in index.fingerprinted else ""
    for one in index.may_fit(rule, request):
        if one.is_for(request):
            marks = one.entry.match.fingerprints
            if not marks or (mark or _mark(rule, request, at)) in marks:
                yield one.excuse
    if mark:
        yield from (one.excuse for one in index.of_fingerprint(rule, request, mark))


def _mark(rule: str, request: Request, at: Origin | str) -> str:
    place = at if isinstance(at, str) else place_of(at, f"{request.kind}/{request.name}")
    return fingerprint(rule, request.kind, request.namespace, request.name, place)


def index_of(policy: Policy) -> Exceptions | None:
    """What a policy's exceptions are found by, made once; None without any."""
    if not policy.exceptions:
        return None
    made: Exceptions | None = policy.derived.get(_INDEX)
    if made is None:
        for _ in indexing(policy):
            pass
        made = policy.derived[_INDEX]
    return made


def indexing(policy: Policy) -> Iterator[None]:
    """Make that now, in steps."""
    if policy.exceptions and _INDEX not in policy.derived:
        from webhook.model.exceptions import Exceptions

        made = Exceptions()
        yield from made.filing(policy.exceptions)
        policy.derived[_INDEX] = made


def annotation_of(obj: Mapping[str, object]) -> str:
    """The text of annotation ``checkpoint-guard.io/allow``; empty without one."""
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if type(metadata) is dict else None
    text = annotations.get(ALLOW) if type(annotations) is dict else None
    return text if isinstance(text, str) else ""
