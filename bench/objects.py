"""What is decided on in the benchmark: a TrainJob like those of a checkpoint guide, and the cluster around it."""

from __future__ import annotations

import json
from typing import Any, Final

from webhook.bootstrap import NothingKnown
from webhook.cluster.objects import parse_claim, parse_namespace, parse_runtime, parse_storage_class, parse_volume
from webhook.model.cluster import Claim, ConfigMap, CsiDriver, Gap, Namespace, PersistentVolume, Runtime, StorageClass
from webhook.model.release import Release

SCRIPT = """\
torchrun --nnodes=2 --nproc-per-node=auto - <<'EOF'
import os, re, signal
from pathlib import Path
from transformers import Trainer, TrainerCallback, TrainingArguments

root = Path(os.environ["CKPT_DIR"])
root.mkdir(parents=True, exist_ok=True)
steps = {int(m[1]): p for p in root.iterdir() if (m := re.fullmatch(r"checkpoint-(\\d+)", p.name))}
latest = str(steps[max(steps)]) if steps else None

class Stop(TrainerCallback):
    asked = False
    def on_step_end(self, args, state, control, **_):
        control.should_save = control.should_training_stop = Stop.asked
        return control

signal.signal(signal.SIGTERM, lambda *_: setattr(Stop, "asked", True))
arguments = TrainingArguments(output_dir=str(root), save_strategy="steps", save_steps=200, save_total_limit=3)
Trainer(model=build_model(), args=arguments, train_dataset=load(), callbacks=[Stop()]).train(
    resume_from_checkpoint=latest)
EOF
"""

RUN_NAME = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}}

RUNTIME: dict[str, Any] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainingRuntime",
    "metadata": {"name": "resumable", "namespace": "vision", "uid": "7d0e", "resourceVersion": "41"},
    "spec": {
        "mlPolicy": {"numNodes": 2, "torch": {"numProcPerNode": "auto"}},
        "template": {
            "spec": {
                "failurePolicy": {"maxRestarts": 5},
                "replicatedJobs": [
                    {
                        "name": "dataset-initializer",
                        "template": {
                            "metadata": {
                                "labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "dataset-initializer"}
                            },
                            "spec": {
                                "template": {
                                    "spec": {
                                        "containers": [
                                            {
                                                "name": "dataset-initializer",
                                                "image": "registry.example.com/fetch:1",
                                                "env": [{"name": "STORAGE_URI", "value": "hf://example/images"}],
                                                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                                            }
                                        ],
                                        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "images"}}],
                                    }
                                }
                            },
                        },
                    },
                    {
                        "name": "node",
                        "dependsOn": [{"name": "dataset-initializer", "status": "Complete"}],
                        "template": {
                            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                            "spec": {
                                "backoffLimit": 0,
                                "template": {
                                    "spec": {
                                        "terminationGracePeriodSeconds": 120,
                                        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000},
                                        "volumes": [
                                            {"name": "data", "persistentVolumeClaim": {"claimName": "images"}},
                                            {"name": "state", "persistentVolumeClaim": {"claimName": "run-state"}},
                                            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
                                        ],
                                        "containers": [
                                            {
                                                "name": "node",
                                                "image": "registry.example.com/torch:2.9",
                                                "command": ["bash", "-euc"],
                                                "args": [SCRIPT],
                                                "env": [
                                                    {"name": "PYTHONUNBUFFERED", "value": "1"},
                                                    {"name": "RUN", "valueFrom": RUN_NAME},
                                                    {"name": "CKPT_DIR", "value": "/state/$(RUN)"},
                                                ],
                                                "volumeMounts": [
                                                    {"name": "data", "mountPath": "/data", "readOnly": True},
                                                    {"name": "state", "mountPath": "/state"},
                                                    {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - where it belongs
                                                ],
                                                "resources": {"limits": {"nvidia.com/gpu": 8, "memory": "400Gi"}},
                                            }
                                        ],
                                    }
                                },
                            },
                        },
                    },
                ],
            }
        },
    },
}

SPEC: dict[str, Any] = {
    "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "resumable"},
    "suspend": False,
    "managedBy": "trainer.kubeflow.org/trainjob-controller",
    "trainer": {
        "numNodes": 4,
        "env": [{"name": "EPOCHS", "value": "30"}, {"name": "LEARNING_RATE", "value": "0.0002"}],
        "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}, "requests": {"cpu": "32"}},
    },
    "runtimePatches": [
        {
            "manager": "vision.example.com/queue",
            "trainingRuntimeSpec": {
                "template": {
                    "spec": {
                        "replicatedJobs": [
                            {
                                "name": "node",
                                "template": {
                                    "spec": {
                                        "template": {
                                            "spec": {
                                                "nodeSelector": {"pool": "a100"},
                                                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                                            }
                                        }
                                    }
                                },
                            }
                        ]
                    }
                }
            },
        }
    ],
}


def trainjob(name: str = "resnet") -> dict[str, Any]:
    """The TrainJob as the API server hands it on: with last-applied and managed fields."""
    plain = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"annotations": {}, "name": name, "namespace": "vision"},
        "spec": SPEC,
    }
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "vision",
        "labels": {"team": "vision"},
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": json.dumps(plain, separators=(",", ":")) + "\n"
        },
        "managedFields": [
            {
                "manager": "kubectl-client-side-apply",
                "operation": "Update",
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "time": "2026-03-01T10:00:00Z",
                "fieldsType": "FieldsV1",
            }
        ],
    }
    written = {field: metadata[field] for field in ("annotations", "labels")}
    metadata["managedFields"][0]["fieldsV1"] = managed_fields(written, SPEC)
    return {**plain, "metadata": metadata}


_KEYS: Final = {
    "runtimePatches": "manager",
    **dict.fromkeys(("replicatedJobs", "containers", "initContainers", "env", "volumes", "volumeMounts"), "name"),
}
"""Lists whose items the API server tells apart by a key, in the CRDs of Trainer; it keeps others as one value."""


def managed_fields(metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """``fieldsV1`` of whoever wrote this, as the API server has it (structured merge, ``listType: map``)."""
    fields = {"f:metadata": _fields(metadata), "f:spec": {".": {}, **_fields(spec)}}
    return {name: inner for name, inner in fields.items() if inner}


def _fields(value: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, inner in value.items():
        below: dict[str, Any] = {}
        if isinstance(inner, dict) and inner:
            below = {".": {}, **_fields(inner)}
        elif isinstance(inner, list) and (key := _KEYS.get(name)) is not None:
            below = {".": {}}
            for item in inner:
                mark = json.dumps({key: item[key]}, separators=(",", ":"))
                below[f"k:{mark}"] = {".": {}, **_fields(item)}
        fields[f"f:{name}"] = below
    return fields


def review(obj: dict[str, Any]) -> bytes:
    """An AdmissionReview of its creation."""
    group = {"group": "trainer.kubeflow.org", "version": "v1alpha1"}
    kind, resource = {**group, "kind": obj["kind"]}, {**group, "resource": f"{obj['kind'].lower()}s"}
    request = {
        "uid": "5a1c6f0e-0b51-4f3a-9a53-2f2b8a5d8f10",
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": obj["metadata"]["name"],
        "namespace": "vision",
        "operation": "CREATE",
        "userInfo": {"username": "ada@example.com", "groups": ["vision", "system:authenticated"]},
        "object": obj,
        "oldObject": None,
        "dryRun": False,
        "options": {
            "kind": "CreateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "fieldManager": "kubectl-client-side-apply",
        },
    }
    whole = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return json.dumps(whole, separators=(",", ":")).encode()


def _claim(name: str) -> Claim:
    return parse_claim(
        {
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "vision"},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "shared",
                "volumeName": f"pv-{name}",
                "resources": {"requests": {"storage": "1Ti"}},
            },
            "status": {"phase": "Bound", "capacity": {"storage": "1Ti"}},
        }
    )


class BenchView(NothingKnown):
    """A cluster in which all that the TrainJob refers to is there."""

    def __init__(self) -> None:
        self._claims = {name: _claim(name) for name in ("images", "run-state")}
        self._volume = parse_volume(
            {
                "metadata": {"name": "pv"},
                "spec": {
                    "accessModes": ["ReadWriteMany"],
                    "storageClassName": "shared",
                    "csi": {"driver": "efs.csi.aws.com", "volumeHandle": "fs-1"},
                },
            }
        )
        self._class = parse_storage_class({"metadata": {"name": "shared"}, "provisioner": "efs.csi.aws.com"})
        self._namespace = parse_namespace({"metadata": {"name": "vision", "labels": {"team": "vision"}}})
        self._runtime = parse_runtime(RUNTIME)

    def claim(self, namespace: str, name: str) -> Claim | Gap:
        return self._claims.get(name, Gap.ABSENT)

    def volume(self, name: str) -> PersistentVolume | Gap:
        return self._volume

    def storage_class(self, name: str) -> StorageClass | Gap:
        return self._class

    def default_storage_class(self) -> StorageClass | Gap:
        return self._class

    def csi_driver(self, name: str) -> CsiDriver | Gap:
        return Gap.UNKNOWN

    def config_map(self, namespace: str, name: str) -> ConfigMap | Gap:
        return Gap.UNKNOWN

    def namespace(self, name: str) -> Namespace | Gap:
        return self._namespace

    def runtime(self, kind: str, namespace: str, name: str) -> Runtime | Gap:
        return self._runtime

    def excused_runs(self, namespace: str, besides: str) -> int:
        return 0

    def directories(self, namespace: str, claim: str, path: str | None = None) -> tuple[()]:
        return ()

    def release(self) -> Release | None:
        return Release.V2_3
