"""``$(VAR)`` as the kubelet expands it (``k8s.io/kubernetes/third_party/forked/golang/expansion``), without running it.

A container's variables are evaluated in order, each seeing those before it. ``$$`` stands for ``$``; a reference that
nothing defines stays as it is written. What only the running pod knows becomes ``<field>``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from webhook.model.caches import kept_texts
from webhook.model.names import JOBSET_NAME_LABEL
from webhook.model.pod import EMPTY, EffectiveJob, EffectiveSet, Raw

LONGEST: Final = 8192
"""Twice Linux' PATH_MAX: a value that grows beyond it is no directory, and is not followed any further."""

_PER_POD: Final = frozenset(
    (
        "metadata.name",
        "metadata.uid",
        "spec.nodeName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    )
)
_PER_POD_LABELS: Final = frozenset(
    (
        "jobset.sigs.k8s.io/restart-attempt",
        "jobset.sigs.k8s.io/job-restart-attempt",
        "batch.kubernetes.io/controller-uid",
        "controller-uid",
        "batch.kubernetes.io/job-uid",
    )
)
"""Labels and annotations that change when JobSet makes the Jobs anew."""
_STABLE_LABELS: Final = frozenset(
    (
        "batch.kubernetes.io/job-completion-index",
        "batch.kubernetes.io/job-name",
        "job-name",
        "jobset.sigs.k8s.io/jobset-uid",
        "jobset.sigs.k8s.io/replicatedjob-name",
        "jobset.sigs.k8s.io/replicatedjob-replicas",
        "jobset.sigs.k8s.io/global-replicas",
        "jobset.sigs.k8s.io/group-name",
        "jobset.sigs.k8s.io/group-replicas",
        "jobset.sigs.k8s.io/job-index",
        "jobset.sigs.k8s.io/job-key",
        "jobset.sigs.k8s.io/job-global-index",
        "jobset.sigs.k8s.io/job-group-index",
    )
)


class Value(Struct, frozen=True):
    """What a text becomes in the container.

    ``text`` has ``<field>`` where only the running pod knows. ``per_pod`` are fields in it that change with every pod,
    ``missing`` the references that stay literal. ``unknown``: it depends on something that admission cannot read.
    """

    text: str
    per_pod: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unknown: bool = False


_UNKNOWN: Final = Value("", unknown=True)


def expand(text: str, known: Mapping[str, Value], others: bool) -> Value:
    """``text`` with its references replaced by ``known``.

    ``others`` says that variables may exist that are not in ``known`` (``envFrom``): a reference that is not known is
    then unknown, and not missing.
    """
    if "$" not in text:
        return Value(text)
    if len(text) > LONGEST:
        return _UNKNOWN
    out: list[str] = []
    per_pod: list[str] = []
    missing: list[str] = []
    unknown = False
    size = 0
    for literal, name in _pieces(text):
        out.append(literal)
        if name is None:
            continue
        value = known.get(name)
        if value is not None:
            out.append(value.text)
            size += len(value.text)
            per_pod += value.per_pod
            missing += value.missing
            unknown = unknown or value.unknown
            if size > LONGEST:
                return _UNKNOWN
        elif others or name.endswith(("_SERVICE_HOST", "_SERVICE_PORT")):
            unknown = True
        else:
            out.append(f"$({name})")
            missing.append(name)
    return Value("".join(out), tuple(dict.fromkeys(per_pod)), tuple(dict.fromkeys(missing)), unknown)


@kept_texts(384)  # the same few directories stand in every run of a runtime
def _pieces(text: str) -> tuple[tuple[str, str | None], ...]:
    """The literal parts of a text, each with the name that is referred to behind it."""
    pieces: list[tuple[str, str | None]] = []
    start = 0
    last = text.rfind(")")
    while True:
        at = text.find("$", start)
        if at < 0 or at + 1 >= len(text):
            break
        after = text[at + 1]
        end = text.find(")", at + 2) if after == "(" and at + 2 <= last else -1
        if end < 0:
            pieces.append((text[start:at] + ("$" if after == "$" else "$" + after), None))
            start = at + 2
        else:
            pieces.append((text[start:at], text[at + 2 : end]))
            start = end + 1
    if start < len(text):
        pieces.append((text[start:], None))
    return tuple(pieces)


def references(text: str) -> list[str]:
    """The names that stand in ``$(...)``, escaped ones among them."""
    return [part.partition(")")[0] for part in text.split("$(")[1:]]


def evaluate(
    env: Sequence[Raw], effective: EffectiveSet, job: EffectiveJob, others: bool, wanted: Iterable[str]
) -> dict[str, Value]:
    """The variables of a container that are ``wanted`` and set, in the kubelet's order, with those that they refer to.

    Time and space are linear in the size of ``env``.
    """
    names = set(wanted)
    needed: list[Raw] = []
    # Backwards, since a variable sees only those before it: most of them are not even looked into.
    for variable in reversed(env):
        if variable.get("name") in names:
            needed.append(variable)
            text = variable.get("value")
            if text and "$(" in text:
                names.update(references(text))
    known: dict[str, Value] = {}
    for variable in reversed(needed):
        known[variable["name"]] = variable_value(variable, known, effective, job, others)
    return known


def variable_value(
    variable: Raw, known: Mapping[str, Value], effective: EffectiveSet, job: EffectiveJob, others: bool
) -> Value:
    """One variable, seeing those in ``known``."""
    text = variable.get("value")
    if text:
        return expand(text, known, others)
    source = variable.get("valueFrom")
    if source is None:
        return Value("")
    field = (source.get("fieldRef") or EMPTY).get("fieldPath")
    return _UNKNOWN if field is None else field_value(field, effective, job)


def field_value(field: str, effective: EffectiveSet, job: EffectiveJob) -> Value:
    """What the downward API gives for a field of the pod."""
    if field in _PER_POD:
        return Value(f"<{field}>", (field,))
    if field == "metadata.namespace":
        return Value(effective.namespace or f"<{field}>")
    if field == "spec.serviceAccountName":
        return Value(job.pod.get("serviceAccountName") or job.pod.get("serviceAccount") or "default")
    kind, mark, rest = field.partition("['")
    if not mark or not rest.endswith("']"):
        return _UNKNOWN
    key = rest[:-2]
    if key == JOBSET_NAME_LABEL:
        return Value(jobset_name(effective))
    if key == "jobset.sigs.k8s.io/replicatedjob-name":
        return Value(job.name)
    if key in _PER_POD_LABELS:
        return Value(f"<{field}>", (field,))
    if key in _STABLE_LABELS:
        return Value(f"<{field}>")
    metadata: Any = (job.spec.get("template") or EMPTY).get("metadata") or EMPTY
    own = (metadata.get(kind.removeprefix("metadata.")) or EMPTY).get(key)
    return Value(own) if isinstance(own, str) else _UNKNOWN


def jobset_name(effective: EffectiveSet) -> str:
    """The JobSet's name, which is the TrainJob's; with ``generateName`` its beginning and ``<generated>``."""
    if effective.trainjob:
        return effective.trainjob
    if effective.trainjob is None:
        return "<metadata.name of the TrainJob>"
    return f"{effective.generate_name}<generated>"
