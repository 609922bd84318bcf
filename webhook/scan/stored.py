"""One stored object and its verdict, kept small: of 100,000 objects nothing stays but what a report says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import time
from typing import Any, Final, Literal

from msgspec.structs import replace

from webhook.decision import review_object
from webhook.model.cluster import ClusterView
from webhook.model.finding import Judged, Origin
from webhook.model.names import MODE
from webhook.model.policy import Policy, changed
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.reports.review import Place, Reviewed, nowhere

Raw = Mapping[str, Any]

_EXEMPT: Final = "exempt"
_LEFT_ALONE: Final = {_EXEMPT: "the policy exempts it", "off": "the mode of its namespace is off"}
_TURNED_DOWN: Final = ("warn", "audit")
"""The modes in which the guard is tried out: a scan says what ``enforce`` would refuse there."""


def enforced(policy: Policy) -> Policy:
    """The policy with ``enforce`` in the place of ``warn`` and ``audit``; ``off`` stays."""
    modes = policy.modes
    if modes.default in _TURNED_DOWN:
        modes = replace(modes, default="enforce")
    entries = tuple(replace(one, mode="enforce") if one.mode in _TURNED_DOWN else one for one in policy.namespaces)
    return changed(policy, modes=modes, namespaces=entries)


def enforced_namespace(raw: Raw) -> Raw:
    """A Namespace with ``enforce`` in the place of a label ``warn`` or ``audit``."""
    metadata = raw.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(labels, dict) or labels.get(MODE) not in _TURNED_DOWN:
        return raw
    return {**raw, "metadata": {**metadata, "labels": {**labels, MODE: "enforce"}}}


def judge_stored(
    kind: str,
    namespace: str,
    name: str,
    stored: Raw,
    view: ClusterView,
    policy: Policy,
    release: Release | None,
    at: Place,
    assumed: str = "",
    locate: Callable[[Origin], Place | None] = nowhere,
) -> Reviewed:
    """The verdict on an object as it stands, nothing filled in. The result holds neither the object nor its pods."""
    # Without a uid, as files are judged: a scan of a cluster and a review of its dump say the same.
    request = Request("CREATE", kind, namespace, name, stored, at=time())
    decision = review_object(request, view, policy, release)
    verdict: Literal["allow", "warn", "deny", "exempt"] = decision.verdict
    return Reviewed(
        kind=kind,
        namespace=namespace,
        name=name,
        operation="CREATE",
        at=at,
        verdict="exempt" if decision.mode == _EXEMPT else verdict,
        findings=tuple([_small(finding) for finding in decision.findings]),
        facts=decision.facts,
        locate=locate if decision.findings else nowhere,
        judged=decision.judged,
        unjudged=_LEFT_ALONE.get(decision.mode, ""),
        assumed=assumed if decision.judged else "",
    )


def _small(finding: Judged) -> Judged:
    """The finding without what makes its texts: that holds the object and all its pods."""
    return replace(finding, text=finding.fix, counted=None, lines=None)
