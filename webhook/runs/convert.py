"""RunWhere's ``Training`` as a TrainJob: every field is placed, or named as one that has no place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from webhook.effective.buildable.syntax import is_dns_subdomain
from webhook.model.names import API_VERSION, LAYOUT, PATH, RUNTIME_KINDS
from webhook.model.policy import Policy
from webhook.model.release import NEWEST, Release
from webhook.storage.placing import is_mount_path

Raw = dict[str, Any]

JOB: Final = "node"
"""The job that trains in every runtime that Trainer ships; node selectors go there."""
MANAGER: Final = "checkpoint-guard.io/convert"
GPU: Final = "nvidia.com/gpu"
_FIELDS: Final[Mapping[str, Any]] = {
    "kind": None,
    "version": None,
    "job": {"name": None},
    "environment": {"image": None, "command": None},
    "resources": {"gpuNum": None, "gpuType": None},
    "storage": {"checkpoint": {"path": None}},
}
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LONGEST: Final = 50
"""Leaves room for what JobSet and the Job put behind it, within 63."""
_NAME_RULE: Final = f"a-z, 0-9 and -, a letter first, at most {_LONGEST} characters"
_LABEL: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SHELL: Final = frozenset("|&;<>()$`\\\"'*?[]#~=%!{}\n")
_BUILT_IN: Final = frozenset((".", "cd", "eval", "exec", "export", "set", "source", "time", "trap", "ulimit", "umask"))
"""First words that name no program: the shell alone knows them."""


class Fault(Struct, frozen=True):
    """A field that has no place (``no_place``), or whose value is none; ``field`` is its path."""

    field: str
    message: str
    no_place: bool = False


class Wanted(Struct, frozen=True):
    """What the command says beyond the file."""

    runtime: str = "torch-distributed"
    runtime_kind: str = "ClusterTrainingRuntime"
    release: Release = NEWEST
    gpu_label: str = "nvidia.com/gpu.product"
    namespace: str | None = None
    policy: Policy = Policy()
    explicit: bool = False
    """Whether the runtime was named."""


def parse_runtime(text: str) -> tuple[str, str]:
    """``[Kind/]NAME`` -> kind and name. Raises ValueError."""
    kind, mark, name = text.rpartition("/")
    kind = kind if mark else "ClusterTrainingRuntime"
    if kind not in RUNTIME_KINDS:
        raise ValueError(f'"{kind}" is no kind of runtime: {" or ".join(RUNTIME_KINDS)}')
    if not name:
        raise ValueError("the runtime has no name")
    if not is_dns_subdomain(name):
        raise ValueError(f'"{name}" is no name of a runtime: a-z, 0-9, "-" and "."')
    return kind, name


def convert(training: Any, wanted: Wanted) -> tuple[Raw, list[Fault]]:
    """The TrainJob, and what stands in its way; it is not to be used where a fault is no ``no_place``."""
    if not isinstance(training, Mapping):
        return {}, [Fault("", "is no map: a Training has kind, version, job, environment, resources and storage")]
    faults = list(_strangers(training, _FIELDS, ""))
    if training.get("kind") != "Training":
        said = f'is "{training["kind"]}", not' if "kind" in training else "is absent: write"
        faults.append(Fault("kind", f'{said} "Training"'))
    if training.get("version") not in ("v1", None):
        faults.append(Fault("version", f'is "{training.get("version")}": only v1 is known'))
    name = _at(training, "job", "name")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _LONGEST:
        faults.append(
            Fault("job.name", "is absent" if name is None else f'"{name}" is no name of a TrainJob: {_NAME_RULE}')
        )
    metadata: Raw = {"name": name}
    if wanted.namespace:
        metadata["namespace"] = wanted.namespace
    trainer: Raw = {}
    spec: Raw = {
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": wanted.runtime_kind, "name": wanted.runtime},
        "trainer": trainer,
    }
    image = _at(training, "environment", "image")
    if image is not None:
        if isinstance(image, str) and image and not any(letter.isspace() for letter in image):
            trainer["image"] = image
        else:
            faults.append(Fault("environment.image", f'"{image}" is no image'))
    command = _at(training, "environment", "command")
    if command is not None:
        words = _command(command)
        if words is None:
            faults.append(Fault("environment.command", "is neither a text nor a list of texts"))
        else:
            trainer["command"] = words
    gpus = _at(training, "resources", "gpuNum")
    if gpus is not None:
        if isinstance(gpus, int) and not isinstance(gpus, bool) and gpus > 0:
            trainer["resourcesPerNode"] = {"limits": {GPU: gpus}, "requests": {GPU: gpus}}
        else:
            faults.append(Fault("resources.gpuNum", f'"{gpus}" is no number of GPUs'))
    gpu_type = _at(training, "resources", "gpuType")
    if gpu_type is not None:
        if isinstance(gpu_type, str) and _LABEL.fullmatch(gpu_type):
            spec[wanted.release.override_field] = [_selector(wanted, gpu_type)]
        else:
            faults.append(Fault("resources.gpuType", f'"{gpu_type}" is no value of a label'))
    path = _at(training, "storage", "checkpoint", "path")
    if path is not None:
        if not isinstance(path, str) or not path.startswith("/") or not path.strip("/"):
            faults.append(Fault("storage.checkpoint.path", f'"{path}" is no absolute path'))
        elif not is_mount_path(f"{path.rstrip('/')}/durable"):  # the guard would not make the layout there
            faults.append(Fault("storage.checkpoint.path", f'no volume can be mounted at "{path}": write /ckpts, say'))
        else:
            metadata["annotations"] = {PATH: path.rstrip("/"), LAYOUT: "tiered"}
    return {"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": metadata, "spec": spec}, faults


def _at(raw: Any, *steps: str) -> Any:
    for step in steps:
        raw = raw.get(step) if isinstance(raw, Mapping) else None
    return raw


def _strangers(raw: Mapping[Any, Any], known: Mapping[str, Any], above: str) -> Iterator[Fault]:
    for key, value in raw.items():
        field = f"{above}.{key}" if above else str(key)
        if key not in known:
            yield Fault(field, "has no place in a TrainJob, nor in its runtime as far as this command knows", True)
        elif known[key] is not None and value is not None:
            if isinstance(value, Mapping):
                yield from _strangers(value, known[key], field)
            else:
                yield Fault(field, f"is no map of {', '.join(known[key])}")


def _command(command: Any) -> list[str] | None:
    """Words as they are; a text that needs a shell gets one.

    The text stays as it is: bash replaces itself by the program where that is one simple command, so that SIGTERM
    reaches it; where it does not, ``sigterm-not-forwarded`` says so at review.
    """
    if isinstance(command, str) and command.strip():
        words = command.split()
        if _SHELL.isdisjoint(command.strip()) and words[0] not in _BUILT_IN:
            return words
        return ["bash", "-c", command]
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        return list(command)
    return None


def _selector(wanted: Wanted, gpu_type: str) -> Raw:
    pod: Raw = {"nodeSelector": {wanted.gpu_label: gpu_type}}
    if wanted.release is Release.V2_0:
        return {"targetJobs": [{"name": JOB}], **pod}
    if wanted.release is Release.V2_1:
        return {"targetJobs": [{"name": JOB}], "spec": pod}
    job = {"name": JOB, "template": {"spec": {"template": {"spec": pod}}}}
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}
