"""When losing what we added is worth refusing an UPDATE while nobody answers: CEL for the fail-closed registration.

``/mutate`` is registered with ``failurePolicy: Ignore``. Beside it stand three registrations for UPDATE with ``Fail``,
each with one of these sets of ``matchConditions``: they match only where the old object carries our record and the
part, the new one has lost the part, and the object is not being deleted. So a healthy guard, asked by the first one
before, is not asked again, and without one suspend, resume, annotations, finalizers and deletion pass.

Every expression is written so that it cannot fail on any object that the CRDs let through: an error would refuse the
request. The record is JSON without spaces, which CEL cannot read but can look for a text in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from webhook.model.deletion import CLEANERS, PROTECTED, SNAPSHOT_SUFFIX
from webhook.model.names import ALLOW_DELETE, ANCESTOR_LABEL, INJECTED, MANAGER, PROTECT

_RECORD: Final = f"oldObject.metadata.annotations['{INJECTED}']"
_ENV: Final = ".?spec.?trainer.?env.orValue([])"
_JOBS: Final = ".?spec.?template.?spec.?replicatedJobs.orValue([])"
_BUDGET: Final = ".?spec.?template.?spec.?failurePolicy.?maxRestarts.hasValue()"
_LABELLED: Final = f"'{ANCESTOR_LABEL}' in {{}}.?template.?metadata.?labels.orValue({{{{}}}})"


class PutBack(Struct, frozen=True):
    """One registration: ``name`` is the first label of the webhook's name, ``resources`` are those of its rule."""

    name: str
    resources: tuple[str, ...]
    conditions: tuple[Mapping[str, str], ...]
    """``matchConditions``, as they are written in the configuration."""


def _named(name: str) -> str:
    return f"""{_RECORD}.contains('"name":"' + {name} + '"')"""


def _lost_entry_volume(field: str, volumes: str) -> str:
    """2.0 and 2.1: a recorded volume stands in some entry of the old object and in none of the new one."""
    return (
        f"oldObject.?spec.?{field}.orValue([]).exists(o, o.{volumes}.orValue([]).exists(v, {_named('v.name')}"
        f" && !object.?spec.?{field}.orValue([]).exists(n, n.{volumes}.orValue([]).exists(w, w.name == v.name))))"
    )


def _lost_from_job(recorded: str, there: str) -> str:
    """``there`` is a text with a place for the job's name in CEL."""
    return f"({_RECORD}.contains('\"{recorded}\":') && {there.format('o')} && !({there.format('n')}))"


_WHEN: Final = (
    {"name": "not-being-deleted", "expression": "!has(object.metadata.deletionTimestamp)"},
    {
        "name": "something-was-added",
        "expression": f"'{INJECTED}' in oldObject.metadata.?annotations.orValue({{}})",
    },
)
_LOST_VARIABLE: Final = f"oldObject{_ENV}.exists(e, {_named('e.name')} && !object{_ENV}.exists(n, n.name == e.name))"
_LOST_VOLUME: Final = " || ".join(
    (
        _lost_entry_volume("podSpecOverrides", "?volumes"),
        _lost_entry_volume("podTemplateOverrides", "?spec.?volumes"),
        # 2.2 and later: the whole entry is ours.
        f"(oldObject.?spec.?runtimePatches.orValue([]).exists(p, p.manager == '{MANAGER}')"
        f" && !object.?spec.?runtimePatches.orValue([]).exists(p, p.manager == '{MANAGER}'))",
    )
)
_LOST_FROM_RUNTIME: Final = " || ".join(
    (
        f"({_RECORD}.contains('\"maxRestarts\":') && oldObject{_BUDGET} && !object{_BUDGET})",
        f"oldObject{_JOBS}.exists(o, {_RECORD}.contains('\"' + o.name + '\":{{')"
        f" && object{_JOBS}.exists(n, n.name == o.name && ("
        + " || ".join(
            (
                _lost_from_job("backoffLimit", "{}.?template.?spec.?backoffLimit.hasValue()"),
                _lost_from_job(
                    "terminationGracePeriodSeconds",
                    "{}.?template.?spec.?template.?spec.?terminationGracePeriodSeconds.hasValue()",
                ),
                _lost_from_job("label", _LABELLED),
            )
        )
        + ")))",
    )
)

PUT_BACK: Final = (
    PutBack("put-back-variables", ("trainjobs",), (*_WHEN, {"name": "and-is-lost", "expression": _LOST_VARIABLE})),
    PutBack("put-back-volumes", ("trainjobs",), (*_WHEN, {"name": "and-is-lost", "expression": _LOST_VOLUME})),
    PutBack(
        "put-back-runtimes",
        ("trainingruntimes", "clustertrainingruntimes"),
        (*_WHEN, {"name": "and-is-lost", "expression": _LOST_FROM_RUNTIME}),
    ),
)

PROTECTED_RULES: Final[tuple[Mapping[str, Any], ...]] = tuple(
    {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": ["DELETE"],
        "resources": [resource for key, resource in PROTECTED.items() if key[:2] == (group, version)],
        "scope": "*",
    }
    for group, version in dict.fromkeys(key[:2] for key in PROTECTED)
)
"""The rules of the registration for DELETE, which is ``Ignore``: nobody is kept from tidying up while we are down."""
PROTECTED_WHEN: Final[tuple[Mapping[str, str], ...]] = (
    {
        "name": "not-by-those-who-tidy-up",
        "expression": f"!(request.userInfo.username in [{', '.join(repr(user) for user in sorted(CLEANERS))}])",
    },
    {
        "name": "a-snapshot-if-a-configmap",
        "expression": "request.resource.resource != 'configmaps'"
        f" || (oldObject != null && oldObject.metadata.name.endsWith('{SNAPSHOT_SUFFIX}'))",
    },
    {
        "name": "not-let-go",
        "expression": f"oldObject == null || oldObject.metadata.?annotations[?'{ALLOW_DELETE}'].orValue('') != 'true'",
    },
)
PROTECTED_NAMESPACES: Final[Mapping[str, Any]] = {"key": PROTECT, "operator": "In", "values": ["true"]}
"""In the ``namespaceSelector`` of that registration; it says nothing of a ClusterTrainingRuntime, which has none."""
