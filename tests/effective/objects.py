"""Small runtimes and TrainJobs to build pods from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webhook.effective import build_trainer_pods, judge_checkpoints, locate_checkpoints
from webhook.effective.checkpoint import Classify
from webhook.model.cluster import Runtime
from webhook.model.pod import Checkpoint, EffectiveJob, EffectiveSet
from webhook.model.release import Release

LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"


def job(name: str = "node", pod: Any = None, label: str | None = "trainer", **spec: Any) -> Any:
    template: Any = {"spec": {**spec, "template": {"spec": pod or {"containers": [{"name": "node", "image": "i:1"}]}}}}
    if label is not None:
        template["metadata"] = {"labels": {LABEL: label}}
    return {"name": name, "template": template}


def runtime(*jobs: Any, policy: Any = None, **spec: Any) -> Runtime:
    jobset = {**spec, "replicatedJobs": list(jobs)}
    raw: Any = {"metadata": {"name": "rt", "namespace": "team"}, "spec": {"template": {"spec": jobset}}}
    if policy is not None:
        raw["spec"]["mlPolicy"] = policy
    return Runtime("TrainingRuntime", "team", "rt", raw, {})


def trainjob(trainer: Any = None, name: str = "run", **spec: Any) -> Any:
    out: Any = {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "rt"}, **spec},
    }
    if trainer is not None:
        out["spec"]["trainer"] = trainer
    return out


def override(release: Release, pod: Any, target: str = "node", manager: str = "example.com/me") -> Any:
    """``{field: [one entry]}`` in the shape of the release."""
    if release is Release.V2_0:
        return {"podSpecOverrides": [{"targetJobs": [{"name": target}], **pod}]}
    if release is Release.V2_1:
        return {"podTemplateOverrides": [{"targetJobs": [{"name": target}], "spec": pod}]}
    jobs = [{"name": target, "template": {"spec": {"template": {"spec": pod}}}}]
    entry = {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    return {"runtimePatches": [entry]}


def pods(rt: Runtime, run: Any, release: Release = Release.V2_3) -> EffectiveSet:
    return build_trainer_pods(run, rt, release)


def only(effective: EffectiveSet) -> EffectiveJob:
    (single,) = effective.jobs
    return single


def env_of(found: EffectiveJob, container: int = 0) -> dict[str, Any]:
    """Names in order with their values (or the source of the value)."""
    variables = found.pod["containers"][container].get("env") or ()
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in variables}


def find_checkpoints(effective: EffectiveSet, variables: Sequence[str], classify: Classify) -> tuple[Checkpoint, ...]:
    """The checkpoint directories with what lies under each."""
    return judge_checkpoints(locate_checkpoints(effective, variables), classify)
