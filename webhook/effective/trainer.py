"""The third stage: what ``spec.trainer`` and the framework's plugin change in container ``node``.

Each function is one of Trainer's plugins (``pkg/runtime/framework/plugins``) as released; where releases differ it says
so. Nothing here changes its arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from webhook.effective.template import Prepared
from webhook.model.pod import EMPTY, Raw, Stopped
from webhook.model.quantity import BILLION, parse_quantity
from webhook.model.release import Release

RANK: Final = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
"""The pod's rank: the one ``valueFrom`` that Trainer writes, always this object."""
_PORT: Final = "29500"
_NODE_RANK: Final = {"name": "PET_NODE_RANK", "valueFrom": RANK}
_MASTER_PORT: Final = {"name": "PET_MASTER_PORT", "value": _PORT}
TORCHTUNE: Final = ["tune", "run"]


class UnbuildableError(Exception):
    """Trainer's controller stops at this TrainJob (an error or a panic), so no JobSet ever comes; the text says why.

    ``stopped`` is there where neither Trainer's webhook nor a CRD refuses it first.
    """

    def __init__(self, text: str, stopped: Stopped | None = None) -> None:
        super().__init__(text)
        self.stopped = stopped


def upsert(env: Sequence[Raw], *added: Iterable[Raw]) -> list[Raw]:
    """Variables with others put in: a known name keeps its place, a new one goes to the end."""
    named: dict[Any, Raw] = {variable.get("name"): variable for variable in env}
    if len(named) == len(env):
        for variables in added:
            for variable in variables:
                named[variable.get("name")] = variable
        return list(named.values())
    # A name that stands twice: the first is the one that is replaced, and the rest stay.
    out = list(env)
    place: dict[Any, int] = {}
    for index, variable in enumerate(out):
        place.setdefault(variable.get("name"), index)
    for variables in added:
        for variable in variables:
            name = variable.get("name")
            at = place.get(name)
            if at is None:
                place[name] = len(out)
                out.append(variable)
            else:
                out[at] = variable
    return out


def upsert_before(env: Sequence[Raw], own: Sequence[Raw], added: Sequence[Raw]) -> list[Raw]:
    """``upsert`` of ``own``, and then of those of ``added`` that have none of its names."""
    named: dict[Any, Raw] = {variable.get("name"): variable for variable in env}
    mine: dict[Any, Raw] = {variable.get("name"): variable for variable in own}
    if len(named) == len(env):
        # A name keeps its first place and gets its last value.
        named.update(mine)
        for variable in added:
            if (name := variable["name"]) not in mine:
                named[name] = variable
        return list(named.values())
    return upsert(env, own, [variable for variable in added if variable["name"] not in mine])


def written_env(variables: Iterable[Raw]) -> list[Raw]:
    """``spec.trainer.env`` (or an initializer's) as Trainer copies it: ``valueFrom`` leaves no ``value`` beside it, and
    neither ``fileKeyRef`` nor the ``apiVersion`` of a ``fieldRef`` is copied."""
    out: list[Raw] = []
    for variable in variables:
        source = variable.get("valueFrom")
        if source is not None and ("value" in variable or "fileKeyRef" in source or "fieldRef" in source):
            field = source.get("fieldRef")
            if "fileKeyRef" in source or "apiVersion" in (field or EMPTY):
                source = {kind: value for kind, value in source.items() if kind != "fileKeyRef"}
                if field:
                    source["fieldRef"] = {key: value for key, value in field.items() if key != "apiVersion"}
            elif "value" not in variable:
                out.append(variable)
                continue
            variable = {"name": variable.get("name"), "valueFrom": source}
        out.append(variable)
    return out


def torch_env(nodes: int, processes: str, name: str, torchtune: bool) -> list[Raw]:
    """``PET_*``. torchtune gets its rendezvous from its command, so no master."""
    env: list[Raw] = [
        {"name": "PET_NNODES", "value": str(nodes)},
        {"name": "PET_NPROC_PER_NODE", "value": processes},
        _NODE_RANK,
    ]
    if not torchtune:
        env.append({"name": "PET_MASTER_ADDR", "value": f"{name}-node-0-0.{name}"})
        env.append(_MASTER_PORT)
    return env


def jax_env(nodes: int, name: str) -> list[Raw]:
    """``JAX_*``."""
    return [
        {"name": "JAX_NUM_PROCESSES", "value": str(nodes)},
        {"name": "JAX_PROCESS_ID", "valueFrom": RANK},
        {"name": "JAX_COORDINATOR_ADDRESS", "value": f"{name}-node-0-0.{name}:{_PORT}"},
    ]


def xgboost_env(prepared: Prepared, trainer: Raw, nodes: int, name: str) -> list[Raw]:
    """``DMLC_*``: one worker a GPU, without GPUs one a node."""
    limits, requests = resources_of(prepared, trainer)
    workers = nodes * (gpus(limits, requests) or 1)
    return [
        {"name": "DMLC_TRACKER_URI", "value": f"{name}-node-0-0.{name}"},
        {"name": "DMLC_TRACKER_PORT", "value": _PORT},
        {"name": "DMLC_TASK_ID", "valueFrom": RANK},
        {"name": "DMLC_NUM_WORKER", "value": str(workers)},
    ]


def openmpi_env(prepared: Prepared, trainer: Raw | None) -> list[Raw]:
    """``OMPI_MCA_*`` of the launcher. From 2.1 a numProcPerNode of 1 in the runtime means the number of GPUs.

    From 2.4 ``PRTE_MCA_*`` too, for OpenMPI 5. Source: the release notes of 2.4.0, which name them and not their place
    in the list; its sources were not read.
    """
    slots: Any = None if trainer is None else trainer.get("numProcPerNode")
    if slots is None:
        slots = (prepared.mpi or EMPTY).get("numProcPerNode")
        slots = 1 if slots is None else slots
        if slots == 1 and prepared.release is not Release.V2_0:
            count = gpus(*resources_of(prepared, trainer or EMPTY))
            slots = count if count > 1 else slots
    elif type(slots) is str:
        # intstr.IntValue of a string: its number, or 0.
        slots = int(slots) if slots.lstrip("+-").isdecimal() and len(slots) < 12 else 0
    env: list[Raw] = [
        {"name": "OMPI_MCA_orte_default_hostfile", "value": "/etc/mpi/hostfile"},
        {"name": "OMPI_MCA_orte_keep_fqdn_hostnames", "value": "true"},
        {"name": "OMPI_MCA_orte_set_default_slots", "value": str(slots)},
        {"name": "OMPI_MCA_plm_rsh_args", "value": "-o ConnectionAttempts=10"},
    ]
    if prepared.release.at_least(Release.V2_4):
        env += [
            {"name": "PRTE_MCA_prte_default_hostfile", "value": "/etc/mpi/hostfile"},
            {"name": "PRTE_MCA_prte_keep_fqdn_hostnames", "value": "false"},
            {"name": "PRTE_MCA_prte_set_default_slots", "value": str(slots)},
            {"name": "PRTE_MCA_plm_ssh_args", "value": "-o ConnectionAttempts=10"},
        ]
    return env


def mpi_volumes(prepared: Prepared, launcher: bool, name: str) -> list[Raw]:
    """The volumes that job ``node`` and job ``launcher`` get."""
    modes = prepared.release.at_least(Release.V2_3)
    items: list[Raw] = []
    for key, path, mode in (
        ("ssh-privatekey", "id_rsa", 0o640),
        ("ssh-publickey", "id_rsa.pub", 0o644),
        ("ssh-publickey", "authorized_keys", 0o644),
    ):
        items.append({"key": key, "path": path, "mode": mode} if modes else {"key": key, "path": path})
    secret: dict[str, Any] = {"secretName": f"{name}-mpi-ssh-auth", "items": items}
    if modes:
        secret["defaultMode"] = 0o400
    volumes: list[Raw] = [{"name": "mpi-ssh-auth", "secret": secret}]
    if launcher:
        hostfile = {"name": f"{name}-mpi-hostfile", "items": [{"key": "hostfile", "path": "hostfile", "mode": 0o444}]}
        volumes.append({"name": "mpi-hostfile", "configMap": hostfile})
    return volumes


def mpi_mounts(prepared: Prepared, launcher: bool) -> list[Raw]:
    """The mounts of container ``node``."""
    path = (prepared.mpi or EMPTY).get("sshAuthMountPath")
    mounts: list[Raw] = [{"name": "mpi-ssh-auth", "mountPath": "/root/.ssh" if path is None else path}]
    if launcher:
        mounts.append({"name": "mpi-hostfile", "mountPath": "/etc/mpi"})
    return mounts


def flux_pod(prepared: Prepared, env: Sequence[Raw], trainer: Raw, name: str) -> tuple[list[Raw], list[Raw], Raw]:
    """Volumes of job ``node``, mounts of its container ``node``, and the init container that Flux adds.

    ``env`` is the environment of the labelled job's container ``node``.
    """
    image = "ghcr.io/converged-computing/flux-view-ubuntu:tag-jammy"
    for variable in env:
        if variable.get("name") == "FLUX_VIEW_IMAGE" and variable.get("value"):
            image = variable["value"]
    for variable in trainer.get("env") or ():
        if variable.get("name") == "FLUX_VIEW_IMAGE":
            image = variable.get("value") or ""
    config = f"{name}-flux-entrypoint"
    memory = prepared.release.at_least(Release.V2_3)
    volumes: list[Raw] = [
        {"name": "spack-install", "emptyDir": {}},
        {"name": "flux-install", "emptyDir": {}},
        {"name": config, "configMap": {"name": config, "defaultMode": 0o755}},
    ]
    if memory:
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory"}})
    volumes.append({"name": "flux-curve", "secret": {"secretName": f"{name}-flux-curve", "defaultMode": 0o400}})
    install = {"name": "flux-install", "mountPath": "/mnt/flux"}
    scripts = {"name": config, "readOnly": True, "mountPath": "/etc/flux-config"}
    mounts: list[Raw] = [
        install,
        {"name": "spack-install", "mountPath": "/opt/software"},
        scripts,
        {"name": "flux-curve", "readOnly": True, "mountPath": "/curve"},
    ]
    if memory:
        mounts.append({"name": "shared-memory", "readOnly": True, "mountPath": "/dev/shm"})  # noqa: S108
    installer = {
        "name": "flux-installer",
        "image": image,
        "command": ["/bin/bash", "/etc/flux-config/init.sh"],
        "volumeMounts": [install, scripts],
    }
    return volumes, mounts, installer


def flux_command(container: Raw, trainer: Raw) -> list[str]:
    """The command that Flux puts in place of the user's: its entrypoint with the user's words as one argument.

    The runtime's own args are not among them; they stay as args.
    """
    command = trainer.get("command")
    if command is None:
        command = container.get("command") or ()
    words = " ".join((*command, *(trainer.get("args") or ())))
    return ["/bin/bash", "/etc/flux-config/entrypoint.sh", words.strip()]


def processes_per_node(prepared: Prepared, trainer: Raw | None) -> int | str:
    """torch's processes per node: a number, or a word that torchrun understands."""
    release = prepared.release
    trainer_resources = None if trainer is None else trainer.get("resourcesPerNode")
    asked: Any = None if trainer is None else trainer.get("numProcPerNode")
    if asked is None:
        asked = (prepared.torch or EMPTY).get("numProcPerNode") if release in (Release.V2_0, Release.V2_1) else None
    if asked is None:
        asked = "auto"
    if release is Release.V2_0:
        return asked if trainer_resources is None else _processes_2_0(asked, trainer_resources)
    limits, requests = resources_of(prepared, trainer or EMPTY)
    if (asked == "cpu" and release is Release.V2_1) or (asked == "auto" and not gpus(limits, requests)):
        return max(1, _cpus(limits, requests))
    return asked  # type: ignore[no-any-return]


def _processes_2_0(asked: int | str, resources: Raw) -> int | str:
    """2.0 looks at the limits and, if they do not decide, at the requests of ``spec.trainer`` alone."""
    for values in (resources.get("limits"), resources.get("requests")):
        if values is None:
            result: int | str = 1
        elif (asked == "auto" and not any("gpu" in str(key).lower() for key in values)) or (
            asked == "cpu" and "cpu" in values
        ):
            return max(1, _value(values.get("cpu")))
        else:
            result = 1 if asked == "cpu" else asked
    return result


def resources_of(prepared: Prepared, trainer: Raw) -> tuple[Raw, Raw]:
    """Limits and requests that GPUs and CPUs are counted from: the TrainJob's own in place of the runtime's."""
    own = trainer.get("resourcesPerNode")
    if own is None:
        return prepared.limits, prepared.requests
    return own.get("limits") or EMPTY, own.get("requests") or EMPTY


def gpus(limits: Raw, requests: Raw) -> int:
    """The number of GPUs: requests count before limits. (Of several GPU resources Trainer takes one at random.)"""
    return _gpus(requests) or max(_gpus(limits), 0)


def _gpus(resources: Raw) -> int:
    for name, value in resources.items():
        if "gpu" in name.lower():
            return _value(value)
    return 0


def _cpus(limits: Raw, requests: Raw) -> int:
    return _value(requests.get("cpu")) or _value(limits.get("cpu"))


def _value(quantity: object) -> int:
    """A quantity as a whole number, rounded up (``resource.Quantity.Value``); 0 where it is none."""
    if type(quantity) is int:
        return quantity
    exact = parse_quantity(quantity)
    return 0 if exact is None else -(-exact // BILLION)


def torchtune_command(
    prepared: Prepared, trainer: Raw, nodes: int, processes: int | str, name: str, ref: str
) -> list[str]:
    """``tune run`` with what Trainer appends: rendezvous, recipe, config and the runtime's own settings.

    ``ref`` is the name of the runtime, which the model's name is part of.
    """
    first = prepared.release is Release.V2_0
    count = 0 if first else gpus(*resources_of(prepared, trainer))
    number = processes if type(processes) is int else None
    added: list[str] = list(trainer.get("command") or ())
    many = (number != 1) if first else (number is not None and number > 1) or (number is None and count > 1)
    if nodes > 1 or many:
        added.append(f"--rdzv_endpoint={name}-node-0-0.{name}:{_PORT}")
    args: Sequence[str] = () if first else trainer.get("args") or ()
    recipe, suffix = "full_finetune_distributed", "_full"
    if nodes > 1:
        suffix = "_full_multinode"
    elif nodes == 1:
        single = number == 1 or count == 1
        lora = (
            "qlora" if _qlora(args, prepared.release) else "lora" if _mentions(args, "model.lora_attn_modules") else ""
        )
        if lora:
            recipe = "lora_finetune_single_device" if single else "lora_finetune_distributed"
            suffix = f"_{lora}_single_device" if single else f"_{lora}"
        elif single:
            recipe, suffix = "full_finetune_single_device", "_full_single_device"
    words = ref.split("-")
    model = f"{words[1].replace('.', '_')}/{words[2].upper()}" if len(words) == 3 else ""
    added += (recipe, "--config", f"{model}{suffix}")
    added += prepared.tune
    return added


def _mentions(args: Sequence[str], item: str) -> bool:
    return any(item in arg for arg in args)


def _qlora(args: Sequence[str], release: Release) -> bool:
    """2.3 reads the values, earlier releases only look for the names, in the order of the arguments."""
    if release.at_least(Release.V2_3):
        return not _true(args, "model.use_dora") and _true(args, "model.quantize_base")
    return not _mentions(args, "model.use_dora") and _mentions(args, "model.quantize_base")


def _true(args: Sequence[str], item: str) -> bool:
    for arg in args:
        key, mark, value = arg.partition("=")
        if mark and item in key and value.strip().lower() == "true":
            return True
    return False


def merged_resources(prepared: Prepared, mine: Raw | None, asked: Raw) -> Raw | None:
    """``resources`` of container ``node`` with ``spec.trainer.resourcesPerNode``: merged in 2.3, replaced before."""
    limits, requests = asked.get("limits"), asked.get("requests")
    out: dict[str, Any] = {}
    if prepared.release.at_least(Release.V2_3):
        for field, value in (("limits", limits), ("requests", requests)):
            both = {**((mine or EMPTY).get(field) or EMPTY), **(value or EMPTY)}
            if both:
                out[field] = both
        return out
    if limits is None and requests is None:
        return mine
    if limits is not None:
        out["limits"] = limits
    if requests is not None:
        out["requests"] = requests
    return out
