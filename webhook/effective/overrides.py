"""The second stage: what a TrainJob overrides in the runtime's pods, in the one shape that a release serves."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from webhook.model.pod import EMPTY, Layer, Raw
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
_CONTAINER: Final = {
    Release.V2_0: frozenset(("name", "env", "volumeMounts")),
    Release.V2_1: frozenset(("name", "env", "volumeMounts")),
    Release.V2_2: frozenset(("name", "env", "volumeMounts", "securityContext")),
    Release.V2_3: frozenset(("name", "env", "volumeMounts", "securityContext")),
}


class Override(Struct, frozen=True):
    """What one entry changes in one job: the pod (in its layer) and the labels of the job template (2.2 and later)."""

    job: str
    layer: Layer
    labels: Raw


def overrides_of(spec: Raw, label: str, release: Release) -> dict[str, list[Override]]:
    """The overrides of a TrainJob's ``spec`` by job name, in the order in which Trainer merges them.

    Only the field that the release serves is read, and only what its CRD keeps. ``label`` is ``TrainJob/<name>``.
    """
    found: dict[str, list[Override]] = {}
    if release is Release.V2_2 or release is Release.V2_3:
        for index, entry in enumerate(spec.get("runtimePatches") or ()):
            template = (entry.get("trainingRuntimeSpec") or EMPTY).get("template")
            jobs = ((template or EMPTY).get("spec") or EMPTY).get("replicatedJobs")
            for at, job in enumerate(jobs or ()):
                patch = job.get("template")
                if not patch:
                    continue
                pod = ((patch.get("spec") or EMPTY).get("template") or EMPTY).get("spec")
                labels = (patch.get("metadata") or EMPTY).get("labels")
                if not pod and not labels:
                    continue
                name = job.get("name") or ""
                layer = Layer(
                    label,
                    f"spec.runtimePatches[{index}].trainingRuntimeSpec.template.spec.replicatedJobs[{at}]"
                    ".template.spec.template.spec",
                    f"runtimePatches[{entry.get('manager') or index}] job {name}",
                    served(pod, release) if pod else EMPTY,
                )
                found.setdefault(name, []).append(Override(name, layer, labels or EMPTY))
        return found
    nested = release is Release.V2_1
    field = "podTemplateOverrides" if nested else "podSpecOverrides"
    for index, entry in enumerate(spec.get(field) or ()):
        pod = entry.get("spec") if nested else entry
        if not pod:
            continue
        kept: Raw | None = None
        names: set[str] = set()
        for target in entry.get("targetJobs") or ():
            name = target.get("name") or ""
            if name in names:
                continue
            names.add(name)
            if kept is None:
                kept = served(pod, release)
            path = f"spec.{field}[{index}].spec" if nested else f"spec.{field}[{index}]"
            layer = Layer(label, path, f"{field}[{index}] job {name}", kept)
            found.setdefault(name, []).append(Override(name, layer, EMPTY))
    return found


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
