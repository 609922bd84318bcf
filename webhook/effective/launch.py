"""How a training container's program is started, as far as rules about its text have to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from webhook.effective.expansion import Value, evaluate
from webhook.model.moment import parse_duration
from webhook.model.names import MODEL_PARAMS, SECONDS_PER_STEP
from webhook.model.pod import EMPTY, Checkpoint, DirectoryStatus, EffectiveJob, EffectiveSet, Raw
from webhook.model.policy import Policy
from webhook.model.quantity import BILLION, parse_quantity
from webhook.model.script import Launch
from webhook.model.size import parse_count

_FAST: Final = "CKPT_FAST_DIR"
_PROCESSES: Final = "PET_NPROC_PER_NODE"
_READ: Final = frozenset((_FAST, _PROCESSES))
_INFERRED: Final = DirectoryStatus.INFERRED
_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu", "huawei.com/Ascend910")


EnvironmentOf = Callable[[EffectiveJob, Raw], Mapping[str, Value]]
"""(job, container) -> the container's variables with ``$(VAR)`` put in; KeyError where one is not set."""


class Environment(dict[str, Value]):
    """A container's variables with ``$(VAR)`` put in, worked out when they are asked for; KeyError where not set."""

    def __init__(self, effective: EffectiveSet, job: EffectiveJob, container: Raw) -> None:
        self._of = effective, job, container

    def __missing__(self, name: str) -> Value:
        effective, job, container = self._of
        env = container.get("env") or ()
        # Most programs ask for one; whoever asks for a second may ask for all.
        wanted = [variable.get("name") or "" for variable in env] if self else (name,)
        known = evaluate(env, effective, job, bool(container.get("envFrom")), wanted)
        if self:
            self.update(known)
        else:
            self[name] = known[name]
        return known[name]


def environment_of(effective: EffectiveSet) -> EnvironmentOf:
    """A container's variables with ``$(VAR)`` put in, each worked out once."""
    known: dict[int, Environment] = {}

    def environment(job: EffectiveJob, container: Raw) -> Mapping[str, Value]:
        found = known.get(id(container))
        if found is None:
            found = known[id(container)] = Environment(effective, job, container)
        return found

    return environment


class Launches:
    """``launches(job, container)``: how each container's program is started.

    ``told`` is all that it depends on besides the pods: annotations, policy, and what the storage cannot do.
    """

    __slots__ = ("_directories", "_pods", "_variable", "told")

    def __init__(
        self,
        pods: int,
        directories: tuple[str, ...],
        told: tuple[float | None, int | None, int | None, tuple[str, ...]],
        variable: str = "",
    ) -> None:
        self._pods = pods
        self._directories = directories
        self._variable = variable
        self.told = told

    def __call__(self, job: EffectiveJob, container: Raw) -> Launch:
        processes: int | None = None
        fast: tuple[str, ...] = ()
        for variable in container.get("env") or ():
            if (name := variable.get("name")) not in _READ:
                continue
            value = str(variable.get("value") or "")
            if name == _PROCESSES:
                processes = int(value) if value.isdecimal() and len(value) < 6 else _gpus(container)
            elif value:
                fast = (value.rstrip("/"),)
        seconds, params, lost, cannot = self.told
        return Launch(
            self._pods,
            processes,
            self._directories,
            fast,
            tuple([mount.get("mountPath") or "" for mount in container.get("volumeMounts") or ()]),
            container.get("workingDir") or "",
            job.pod.get("terminationGracePeriodSeconds", 30),
            seconds,
            params,
            lost,
            bool(job.pod.get("shareProcessNamespace")),
            not container.get("command"),
            job.spec.get("completionMode") == "Indexed",
            self._variable,
            cannot=cannot,
        )


def launches_of(
    effective: EffectiveSet,
    checkpoints: Sequence[Checkpoint],
    policy: Policy,
    annotations: Sequence[Mapping[str, Any]],
    cannot: tuple[str, ...] = (),
) -> Launches:
    """The launch of each container. ``annotations`` are those of the object, then of its runtime; ``cannot`` is what
    the storage under the declared directory cannot do."""
    directories: tuple[str, ...] = ()
    variable = ""
    for checkpoint in checkpoints:
        directory = checkpoint.directory
        if directory is not None and checkpoint.status is not _INFERRED and directory not in directories:
            variable = variable if directories else checkpoint.variable or ""
            directories += (directory,)
    seconds: float | None = None
    params: int | None = None
    for given in annotations:
        if seconds is None and (text := given.get(SECONDS_PER_STEP)):
            billionths = parse_quantity(text)
            seconds = None if billionths is None else billionths / BILLION
        if params is None and (text := given.get(MODEL_PARAMS)):
            params = parse_count(text)
    told = (seconds, params, parse_duration(policy.limits.lost_work), cannot)
    return Launches(effective.training_pods, directories, told, variable)


def _gpus(container: Raw) -> int | None:
    limits = (container.get("resources") or EMPTY).get("limits") or EMPTY
    for name in _GPUS:
        text = str(limits.get(name) or "")
        if text.isdecimal() and len(text) < 6:
            return int(text)
    return None
