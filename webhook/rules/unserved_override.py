"""The TrainJob was written with an override field that this cluster's CRD does not serve, so the API server pruned it.

Symptom: the TrainJob is stored without its override: no volume, no mount, and nobody says so.
Fix: use the override field of the Trainer release that the cluster runs.
Bad:
    spec:
      podSpecOverrides:    # Trainer 2.0; dropped by 2.1 and later
      - targetJobs: [{name: node}]
        nodeSelector: {pool: a}
Good:
    spec:
      runtimePatches:      # Trainer 2.2 and later
      - manager: example.com/team
        trainingRuntimeSpec:
          template:
            spec:
              replicatedJobs:
              - name: node
                template: {spec: {template: {spec: {nodeSelector: {pool: a}}}}}
Reads: what the user applied (`kubectl.kubernetes.io/last-applied-configuration`), else the object itself, which in a
    file still has the field.
Silent when: the field is the one that the release serves; the annotation is absent or not JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from webhook.effective.overrides import overrides_of, served
from webhook.effective.strategic_merge import merge_pod
from webhook.model.finding import Finding, Origin, Severity
from webhook.model.names import LAST_APPLIED
from webhook.model.override import overrides_yaml
from webhook.model.pod import Raw
from webhook.model.release import NEWEST, OVERRIDE_FIELDS, Release
from webhook.model.rule import Rule
from webhook.model.sign import UNSERVED
from webhook.model.subject import Subject

_WRITTEN_FOR: Final = {
    "podSpecOverrides": Release.V2_0,
    "podTemplateOverrides": Release.V2_1,
    "runtimePatches": NEWEST,
}


def check(subject: Subject) -> Iterator[Finding]:
    if not subject.is_trainjob:
        return
    served = subject.release.override_field
    annotation = ((subject.request.object.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    applied: Raw | None = None
    own = subject.spec
    for field in OVERRIDE_FIELDS:
        if field == served:
            continue
        spec = own if own.get(field) else None
        if spec is None and annotation and f'"{field}"' in annotation:
            if applied is None:
                applied = _spec(annotation)
            spec = applied if applied.get(field) else None
        if spec is not None:
            yield Finding(
                Origin(subject.label, f"spec.{field}", field),
                f'"{field}" is no field of a TrainJob in Trainer {subject.release.value}, which serves "{served}"',
                _fix(subject, spec, field),
                subject=field,
            )


def _spec(annotation: str) -> Raw:
    """``spec`` of what was applied; empty where the annotation does not hold such an object."""
    try:
        applied: Any = msgspec.json.decode(annotation)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    spec = applied.get("spec") if isinstance(applied, Mapping) else None
    return spec if isinstance(spec, Mapping) else {}


def _fix(subject: Subject, spec: Raw, field: str) -> str:
    """All that the field says, in the shape that is served; several entries for one job become one."""
    pods: dict[str, Raw] = {}
    lost: set[str] = set()
    try:
        for job, found in overrides_of(spec, subject.label, _WRITTEN_FOR[field]).items():
            pod: Raw = {}
            for override in found:
                pod = merge_pod(pod, override.layer.pod)
            if kept := served(pod, subject.release):
                pods[job] = kept
            lost.update(pod.keys() - kept.keys())
    except (AttributeError, TypeError):  # the annotation is the user's text and nobody checked its types
        pods = {}
    text = overrides_yaml(subject.release, subject.spec, pods or {"node": {"volumes": ["<as they are>"]}})
    return f"{text}\n# no override of Trainer {subject.release.value}: {', '.join(sorted(lost))}" if lost else text


RULE = Rule(
    id="unserved-override",
    severity=Severity.WARN,
    why="the API server drops the field without a word, so the claim or mount in it never reaches the pods",
    check=check,
    when=UNSERVED,
)
