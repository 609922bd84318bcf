"""The second stage: what a TrainJob overrides in the runtime's pods, in the one shape that a release serves."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from webhook.model.finding import Origin
from webhook.model.pod import EMPTY, Layer, Metadata, Raw
from webhook.model.release import Release

_POD: Final = {
    Release.V2_0: frozenset(
        (
            "serviceAccountName",
            "nodeSelector",
            "tolerations",
            "volumes",
            "initContainers",
            "containers",
            "schedulingGates",
        )
    )
}
_POD[Release.V2_1] = _POD[Release.V2_0] | {"affinity", "imagePullSecrets"}
_POD[Release.V2_2] = _POD[Release.V2_1] | {"securityContext"}
_POD[Release.V2_3] = _POD[Release.V2_2] | {"terminationGracePeriodSeconds"}
_POD[Release.V2_4] = _POD[Release.V2_3]
_CONTAINER: Final = {
    Release.V2_0: frozenset(("name", "env", "volumeMounts")),
    Release.V2_1: frozenset(("name", "env", "volumeMounts")),
    Release.V2_2: frozenset(("name", "env", "volumeMounts", "securityContext")),
    Release.V2_3: frozenset(("name", "env", "volumeMounts", "securityContext")),
    Release.V2_4: frozenset(("name", "env", "volumeMounts", "securityContext")),
}


class Override(Struct, frozen=True):
    """What one entry changes in one job: the pod (in its layer), the labels of the job template (2.2 and later), and
    the labels and annotations of pod and Job (2.1 and later)."""

    job: str
    layer: Layer
    labels: Raw
    metadata: tuple[Metadata, ...] = ()


def overrides_of(spec: Raw, label: str, release: Release) -> dict[str, list[Override]]:
    """The overrides of a TrainJob's ``spec`` by job name, in the order in which Trainer merges them.

    Only the field that the release serves is read, and only what its CRD keeps. ``label`` is ``TrainJob/<name>``.
    """
    found: dict[str, list[Override]] = {}
    if release.at_least(Release.V2_2):
        for index, entry in enumerate(spec.get("runtimePatches") or ()):
            runtime = (entry.get("trainingRuntimeSpec") or EMPTY).get("template")
            jobs = ((runtime or EMPTY).get("spec") or EMPTY).get("replicatedJobs")
            for at, job in enumerate(jobs or ()):
                patch = job.get("template")
                if not patch:
                    continue
                template = (patch.get("spec") or EMPTY).get("template") or EMPTY
                pod = template.get("spec")
                of_job, of_pod = patch.get("metadata"), template.get("metadata")
                if not pod and not of_job and not of_pod:
                    continue
                name = job.get("name") or ""
                layer = Layer(
                    label,
                    f"spec.runtimePatches[{index}].trainingRuntimeSpec.template.spec.replicatedJobs[{at}]"
                    ".template.spec.template.spec",
                    f"runtimePatches[{entry.get('manager') or index}] job {name}",
                    served(pod, release) if pod else EMPTY,
                )
                metadata: tuple[Metadata, ...] = ()
                if of_job or of_pod:
                    at_job = layer.field.removesuffix(".spec.template.spec")
                    metadata = (
                        *_metadata("Job", label, f"{at_job}.metadata", of_job),
                        *_metadata("pod", label, f"{at_job}.spec.template.metadata", of_pod),
                    )
                labels = (of_job or EMPTY).get("labels") or EMPTY
                found.setdefault(name, []).append(Override(name, layer, labels, metadata))
        return found
    nested = release is Release.V2_1
    field = "podTemplateOverrides" if nested else "podSpecOverrides"
    for index, entry in enumerate(spec.get(field) or ()):
        pod = entry.get("spec") if nested else entry
        metadata = _metadata("pod", label, f"spec.{field}[{index}].metadata", entry.get("metadata")) if nested else ()
        if not pod and not metadata:
            continue
        kept: Raw | None = None
        names: set[str] = set()
        for target in entry.get("targetJobs") or ():
            name = target.get("name") or ""
            if name in names:
                continue
            names.add(name)
            if kept is None:
                kept = served(pod or EMPTY, release)
            path = f"spec.{field}[{index}].spec" if nested else f"spec.{field}[{index}]"
            layer = Layer(label, path, f"{field}[{index}] job {name}", kept)
            found.setdefault(name, []).append(Override(name, layer, EMPTY, metadata))
    return found


def _metadata(of: str, label: str, field: str, raw: Raw | None) -> tuple[Metadata, ...]:
    for kind in ("labels", "annotations"):
        if raw and "$patch" in (raw.get(kind) or ()):  # a directive of the merge, and no label
            raw = {**raw, kind: {key: value for key, value in raw[kind].items() if key != "$patch"}}
    return (Metadata(of, Origin(label, field, f"{of} metadata"), raw),) if raw else ()


def served(pod: Raw, release: Release) -> Raw:
    """The part of an override's PodSpec that the CRD of the release keeps; the same object where that is all of it.

    Unknown fields are pruned before anything is merged (``command`` in a container, ``$patch`` anywhere).
    """
    fields = _POD[release]
    keep = _CONTAINER[release]
    whole = pod.keys() <= fields
    for kind in ("containers", "initContainers"):
        for container in pod.get(kind) or ():
            if not container.keys() <= keep:
                whole = False
    if whole:
        return pod
    out: dict[str, Any] = {field: value for field, value in pod.items() if field in fields}
    for kind in ("containers", "initContainers"):
        if out.get(kind):
            out[kind] = [
                {field: value for field, value in container.items() if field in keep} for container in out[kind]
            ]
    return out
