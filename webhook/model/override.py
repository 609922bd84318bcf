"""The TrainJob field that changes pods, in the shape that a release serves: text for fixes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from webhook.model.names import MANAGER
from webhook.model.paste import to_yaml
from webhook.model.release import Release

_TEXT_MANAGER: Final = "example.com/checkpoint"
_NOT_THE_USERS: Final = frozenset({MANAGER, "kueue.x-k8s.io/manager"})


def override_yaml(release: Release, spec: Mapping[str, Any], job: str, pod: Mapping[str, Any]) -> str:
    """YAML to paste into a TrainJob whose ``spec`` is given: ``pod`` holds the PodSpec fields to merge into ``job``.

    Where the TrainJob has an entry that this belongs to, a comment says that there may be one only: for each job (2.0)
    or for each manager (2.2 and later).
    """
    return overrides_yaml(release, spec, {job: pod})


def overrides_yaml(release: Release, spec: Mapping[str, Any], pods: Mapping[str, Mapping[str, Any]]) -> str:
    """The same for several jobs, each with its PodSpec fields."""
    if release is Release.V2_0:
        entries = [{"targetJobs": [{"name": job}], **pod} for job, pod in pods.items()]
        text = to_yaml({"spec": {"podSpecOverrides": entries}})
        if spec.get("podSpecOverrides"):
            named = " or ".join(f'"{job}"' for job in pods)
            if any(len(jobs) > 1 and jobs & pods.keys() for jobs in map(_targets, spec["podSpecOverrides"])):
                how = f"take {named} out of the one that has other jobs too, and write here what it says"
            else:
                how = f"merge into the one that targets {named}, if there is one"
            text = f"# one entry for each job: {how}\n{text}"
        return text
    if release is Release.V2_1:
        entries = [{"targetJobs": [{"name": job}], "spec": pod} for job, pod in pods.items()]
        return to_yaml({"spec": {"podTemplateOverrides": entries}})
    jobs = [{"name": job, "template": {"spec": {"template": {"spec": pod}}}} for job, pod in pods.items()]
    entry = {
        "manager": _manager(spec.get("runtimePatches") or ()),
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
    text = to_yaml({"spec": {"runtimePatches": [entry]}})
    if any(other.get("manager") == entry["manager"] for other in spec.get("runtimePatches") or ()):
        text = f"# one entry for each manager: merge into the one that is there\n{text}"
    return text


def _targets(entry: Mapping[str, Any]) -> set[str]:
    return {target.get("name") or "" for target in entry.get("targetJobs") or ()}


def override_manager(spec: Mapping[str, Any]) -> str:
    """The ``manager`` that an entry of the user's own in ``spec.runtimePatches`` has or could have (2.2 and later)."""
    return _manager(spec.get("runtimePatches") or ())


def _manager(entries: Sequence[Mapping[str, Any]]) -> str:
    """The manager of the user's own entry, since each manager has one entry."""
    for entry in entries:
        manager = entry.get("manager")
        if isinstance(manager, str) and manager not in _NOT_THE_USERS:
            return manager
    return _TEXT_MANAGER
