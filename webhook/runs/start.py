"""What ``init`` writes: a claim, a TrainingRuntime and a TrainJob that come back, for a framework and so many nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from webhook.defaults.backoff_limit import wanted_limit
from webhook.model.cluster import StorageClass
from webhook.model.names import ANCESTOR_LABEL, API_VERSION, CHECKPOINT_SIZE, JOBSET_NAME_LABEL, TRAINER_STEP
from webhook.model.policy import CheckpointSize, Policy
from webhook.model.release import NEWEST, Release
from webhook.model.size import parse_bytes, parse_count
from webhook.runs.starters import STARTERS, Starter
from webhook.storage import provisioner_reach

Raw = dict[str, Any]
_GI: Final = 2**30
MOUNT: Final = "/mnt/ckpt"
CODE: Final = "/code"
IN_IMAGE: Final = "/app"
"""Where Python looks for the user's module: a ConfigMap is mounted over the first."""
VARIABLE: Final = "CKPT_DIR"
"""As the programs are written."""
_SINCE_2_2: Final = frozenset(("jax", "xgboost"))


class Plan(Struct, frozen=True):
    """What was asked for. ``size`` is that of one checkpoint, in bytes; ``shared``: the class serves many nodes."""

    starter: Starter
    name: str = "train"
    namespace: str | None = None
    nodes: int = 1
    size: int = 80 * _GI
    keep: int = 3
    every: int = 500
    storage_class: str = ""
    shared: bool = True
    release: Release = NEWEST
    image: str | None = None
    gpus: int = 1
    policy: Policy = Policy()


def starter_of(framework: str) -> Starter | None:
    """By id."""
    return next((starter for starter in STARTERS if starter.id == framework), None)


def checkpoint_bytes(params: str, table: Iterable[CheckpointSize]) -> int | None:
    """The size of one checkpoint of a model, by the policy's table; beyond it in proportion. None: no number."""
    count = parse_count(params)
    rows = sorted((parse_count(row.up_to_params) or 0, parse_bytes(row.size) or 0) for row in table)
    if not count or not rows:
        return None
    for up_to, size in rows:
        if count <= up_to:
            return size
    return rows[-1][1] * count // rows[-1][0]


def choose_class(classes: Iterable[StorageClass], nodes: int, policy: Policy) -> tuple[StorageClass, bool] | None:
    """The class to take, and whether many nodes can mount its volumes; None where none is fit.

    Many nodes need one that serves many; one node alone is better off with such a one too, since the pod may come back
    on another node sooner. Of several the cluster's default goes first, then the first by name.
    """
    order = {"many-nodes": 0, "one-node": 1}
    fit: list[tuple[int, bool, str, StorageClass]] = []
    for one in classes:
        reach = provisioner_reach(one.provisioner, policy) or ""
        if reach in order and (nodes == 1 or reach == "many-nodes"):
            fit.append((order[reach], not one.default, one.name, one))
    if not fit:
        return None
    best = min(fit, key=lambda entry: entry[:3])
    return best[3], best[0] == 0


def objects(plan: Plan) -> list[Raw]:
    """The three, in the order to apply them."""
    return [_claim(plan), _runtime(plan), _trainjob(plan)]


def how_to_start(plan: Plan) -> list[str]:
    """What is left to do before the three are applied, as lines for a person."""
    starter = plan.starter
    steps: list[list[str]] = []
    if starter.pip and plan.image is None:
        steps.append(
            [
                f"No public image is known to have {starter.title}, so it is yours. Build it, and put its name in the",
                f'place of "{starter.image}" below (or give --image):',
                f"  FROM {starter.base}",
                f"  RUN pip install {starter.pip}",
            ]
        )
    elif starter.pip:
        steps.append([f"Image {plan.image} has to have {starter.title}:", f"  pip install {starter.pip}"])
    if starter.own_module:
        where = f" -n {plan.namespace}" if plan.namespace else ""
        names = next(line for _, text in starter.files for line in text.splitlines() if "from my_training" in line)
        what = names.partition("import ")[2].partition("  #")[0]
        steps.append(
            [
                f"my_training.py is your module; the program imports {what} from it.",
                f"It gets into the pods by a ConfigMap (up to 1 MiB) that is mounted at {CODE}:",
                f"  kubectl create configmap {plan.name}-code{where} --from-file=my_training.py",
                f"or by your image: COPY my_training.py {IN_IMAGE}/",
            ]
        )
    if starter.program:
        steps.append([starter.program[:1].upper() + starter.program[1:]])
    return [
        f"{number}. {line}" if index == 0 else f"   {line}"
        for number, lines in enumerate(steps, 1)
        for index, line in enumerate(lines)
    ]


def claim_bytes(plan: Plan) -> int:
    """One checkpoint more than is kept."""
    return plan.size * (plan.keep + plan.starter.more + 1)


def claim_size(plan: Plan) -> str:
    """The same, in whole Gi."""
    return f"{-(-claim_bytes(plan) // _GI)}Gi"


def _claim(plan: Plan) -> Raw:
    spec: Raw = {
        "accessModes": ["ReadWriteMany" if plan.shared else "ReadWriteOnce"],
        "storageClassName": plan.storage_class,
        "resources": {"requests": {"storage": claim_size(plan)}},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": _metadata(plan, "-ckpt"), "spec": spec}


def _runtime(plan: Plan) -> Raw:
    field = f"metadata.labels['{JOBSET_NAME_LABEL}']"
    container: Raw = {
        "name": "node",
        "image": plan.image or plan.starter.image,
        "env": [
            {"name": "TRAINJOB_NAME", "valueFrom": {"fieldRef": {"fieldPath": field}}},
            {"name": _variable(plan), "value": f"{MOUNT}/$(TRAINJOB_NAME)"},
        ],
        "volumeMounts": [{"name": "ckpt", "mountPath": MOUNT}],
    }
    volumes: list[Raw] = [{"name": "ckpt", "persistentVolumeClaim": {"claimName": f"{plan.name}-ckpt"}}]
    if plan.starter.own_module:
        container["env"].append({"name": "PYTHONPATH", "value": f"{CODE}:{IN_IMAGE}"})
        container["volumeMounts"].append({"name": "code", "mountPath": CODE, "readOnly": True})
        # The module may as well be in the image.
        volumes.append({"name": "code", "configMap": {"name": f"{plan.name}-code", "optional": True}})
    pod: Raw = {
        # No less than the policy's floor, and of restarts no more than its ceiling.
        "terminationGracePeriodSeconds": max(
            plan.policy.defaults.termination_grace_period_seconds, plan.policy.limits.termination_grace_period_seconds
        ),
        "volumes": volumes,
        "containers": [container],
    }
    retries = wanted_limit(plan.policy.defaults.backoff_limit, plan.nodes) is None
    job: Raw = {
        "name": "node",
        "template": {
            "metadata": {"labels": {ANCESTOR_LABEL: TRAINER_STEP}},
            "spec": {**({} if retries else {"backoffLimit": 0}), "template": {"spec": pod}},
        },
    }
    restarts = min(max(plan.policy.defaults.max_restarts, 1), plan.policy.limits.max_restarts)
    policy: Raw = {"numNodes": plan.nodes}
    framework = plan.starter.policy
    if framework is not None and (framework not in _SINCE_2_2 or plan.release.at_least(Release.V2_2)):
        policy[framework] = {}
    metadata = _metadata(plan, "")
    metadata["labels"] = {"trainer.kubeflow.org/framework": framework or "plain"}
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingRuntime",
        "metadata": metadata,
        "spec": {
            "mlPolicy": policy,
            "template": {"spec": {"failurePolicy": {"maxRestarts": restarts}, "replicatedJobs": [job]}},
        },
    }


def _trainjob(plan: Plan) -> Raw:
    metadata = _metadata(plan, "-1")
    metadata["annotations"] = {CHECKPOINT_SIZE: _quantity(plan.size)}
    trainer: Raw = {"numNodes": plan.nodes, "command": ["bash", "-ec"], "args": [program(plan)]}
    if plan.gpus:
        amount = {"nvidia.com/gpu": plan.gpus}
        trainer["resourcesPerNode"] = {"requests": amount, "limits": amount}
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": plan.name}
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": {"runtimeRef": reference, "trainer": trainer},
    }


def program(plan: Plan) -> str:
    """The shell text: files by here-document, then the launcher in the shell's place, so that it hears SIGTERM."""
    values = {"every": plan.every, "keep": plan.keep, "directory": f"{MOUNT}/{plan.name}-1"}
    text = ""
    for path, content in plan.starter.files:
        text += f"cat > {path} <<'EOF'\n{content % values}EOF\n"
    text += plan.starter.launch % values + "\n"
    return text.replace(VARIABLE, _variable(plan))


def _variable(plan: Plan) -> str:
    """The variable that declares the directory: the usual one where the policy knows it."""
    known = plan.policy.directory.variables
    return VARIABLE if VARIABLE in known or not known else known[0]


def _metadata(plan: Plan, suffix: str) -> Raw:
    metadata: Raw = {"name": plan.name + suffix}
    if plan.namespace:
        metadata["namespace"] = plan.namespace
    return metadata


def _quantity(size: int) -> str:
    return f"{size // _GI}Gi" if size % _GI == 0 else f"{-(-size // 2**20)}Mi"
