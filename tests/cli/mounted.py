"""A TrainJob whose program lies in a ConfigMap, or in the image, in parts that a test puts together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from textwrap import indent
from typing import Any

CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: train-ckpt, namespace: team}
spec: {accessModes: [ReadWriteMany], storageClassName: shared}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: shared}
provisioner: nfs.csi.k8s.io
"""
WHOLE = """\
import torch

net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(100000):
    net(torch.ones(4)).sum().backward()
    opt.step()
    if step % 500 == 0:
        torch.save({"model": net.state_dict(), "optimizer": opt.state_dict()}, "/mnt/ckpt/run/last.pt")
"""
"""Draws never-resumed."""


def config_map(name: str, data: Mapping[str, str], **more: Any) -> str:
    lines = ["apiVersion: v1", "kind: ConfigMap", f"metadata: {{name: {name}, namespace: team}}", "data:"]
    for key, text in data.items():
        lines += [f"  {json.dumps(key)}: |", indent(text, "    ").rstrip("\n")]
    if not data:
        lines[-1] += " {}"
    lines += [f"{key}: {json.dumps(value)}" for key, value in more.items()]
    return "\n".join(lines) + "\n"


def job(
    command: Sequence[str],
    volumes: Sequence[Mapping[str, Any]] = (),
    mounts: Sequence[Mapping[str, Any]] = (),
    variables: Mapping[str, str] | None = None,
    working_dir: str | None = None,
    args: Sequence[str] = (),
) -> str:
    """Claim, runtime and TrainJob ``train`` in namespace ``team``; the claim lies at ``/mnt/ckpt``."""
    variables = {"CKPT_DIR": "/mnt/ckpt/run"} if variables is None else variables
    container: dict[str, Any] = {
        "name": "node",
        "image": "registry.example/train:1",
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": [{"name": "ckpt", "mountPath": "/mnt/ckpt"}, *mounts],
    }
    if working_dir is not None:
        container["workingDir"] = working_dir
    pod = {
        "terminationGracePeriodSeconds": 60,
        "containers": [container],
        "volumes": [{"name": "ckpt", "persistentVolumeClaim": {"claimName": "train-ckpt"}}, *volumes],
    }
    node = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}},
        },
    }
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "own", "namespace": "team"},
        "spec": {
            "mlPolicy": {"numNodes": 1},
            "template": {"spec": {"failurePolicy": {"maxRestarts": 3}, "replicatedJobs": [node]}},
        },
    }
    trainer = {"command": list(command), **({"args": list(args)} if args else {})}
    trainjob = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "own"}, "trainer": trainer},
    }
    return "---\n".join((CLAIM, json.dumps(runtime) + "\n", json.dumps(trainjob) + "\n"))


def mounted(name: str = "code", path: str = "/scripts", **source: Any) -> dict[str, Any]:
    """``volumes`` and ``mounts`` of one ConfigMap."""
    mount = {"name": "code", "mountPath": path}
    for field in ("subPath", "subPathExpr"):
        if field in source:
            mount[field] = source.pop(field)
    return {"volumes": [{"name": "code", "configMap": {"name": name, **source}}], "mounts": [mount]}
