"""Bodies and clusters that nobody would send: captured reviews and stored objects, garbled by a seed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

from tests.golden import captures
from tests.server.serving import body_of, review
from webhook.bootstrap import NothingKnown
from webhook.cluster.tables import Tables
from webhook.model.cluster import Claim, ConfigMap, CsiDriver, Gap, Namespace, PersistentVolume, Runtime, StorageClass

PROGRAM = """\
import os, torch
torch.distributed.init_process_group()
for step in range(1000):
    if step % 100 == 0:
        torch.save(model.state_dict(), f"{os.environ['CKPT_DIR']}/checkpoint-{step}.pt")
"""
RUNTIME: dict[str, Any] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch", "resourceVersion": "7"},
    "spec": {
        "mlPolicy": {"numNodes": 2, "torch": {}},
        "template": {
            "spec": {
                "failurePolicy": {"maxRestarts": 3},
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                            "spec": {
                                "backoffLimit": 0,
                                "template": {
                                    "spec": {
                                        "terminationGracePeriodSeconds": 90,
                                        "containers": [
                                            {
                                                "name": "node",
                                                "image": "example.com/train",
                                                "command": ["python", "-c", PROGRAM],
                                                "env": [{"name": "CKPT_DIR", "value": "/state/$(RUN)"}],
                                                "volumeMounts": [{"name": "state", "mountPath": "/state"}],
                                            }
                                        ],
                                        "volumes": [{"name": "state", "persistentVolumeClaim": {"claimName": "state"}}],
                                    }
                                },
                            },
                        },
                    }
                ],
            }
        },
    },
}
CLAIM = {
    "metadata": {"name": "state", "namespace": "team", "resourceVersion": "8"},
    "spec": {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "shared",
        "volumeName": "pv",
        "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": "100Gi"}},
    },
    "status": {"phase": "Bound", "capacity": {"storage": "100Gi"}},
}
VOLUME = {
    "metadata": {"name": "pv", "labels": {"topology.kubernetes.io/zone": "a"}},
    "spec": {
        "capacity": {"storage": "100Gi"},
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "shared",
        "nfs": {"server": "nfs.example.com", "path": "/x", "readOnly": False},
        "mountOptions": ["hard"],
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}
                ]
            }
        },
    },
    "status": {"phase": "Available"},
}
CLASS = {
    "metadata": {"name": "shared", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "nfs.csi.k8s.io",
    "volumeBindingMode": "WaitForFirstConsumer",
    "allowedTopologies": [{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["a"]}]}],
}
NAMESPACE = {
    "metadata": {
        "name": "team",
        "labels": {"checkpoint-guard.io/mode": "enforce"},
        "annotations": {"checkpoint-guard.io/default-claim": "state"},
    }
}

SEEDS: list[bytes] = [capture.body for capture in captures()] + [
    body_of(review()),
    body_of(review(RUNTIME, kind="ClusterTrainingRuntime")),
    body_of(review(operation="UPDATE", oldObject=review()["request"]["object"])),
]
VALUES: Sequence[Any] = (
    None,
    True,
    0,
    -1,
    2**63,
    1e400,
    "",
    "x",
    "\u0000",
    "\ud800",
    "$(CKPT_DIR)",
    "$(A)$$(B)$(",
    "/mnt/ckpt",
    "../..",
    "9" * 400,
    "1e9999",
    [],
    [None],
    ["x"],
    [[]],
    {},
    {"": None},
    {"name": "node"},
    {"fieldRef": {"fieldPath": "metadata.name"}},
    {"persistentVolumeClaim": {"claimName": "state"}},
    [{"name": "CKPT_DIR", "value": "/mnt/ckpt"}],
    [{"name": "node", "volumeMounts": [{"name": "a", "mountPath": "/mnt"}]}],
    ["python", "-c", PROGRAM],
)
KEYS = ("metadata", "spec", "name", "env", "volumes", "template", "trainer", "value", "valueFrom", "subPath", "kind",
        "annotations", "runtimePatches", "replicatedJobs", "containers", "initContainers", "failurePolicy",
        "volumeClaimPolicies", "status", "accessModes")  # fmt: skip
BYTES = (b'"', b"{", b"[", b"}", b"\\", b"\\ud800", b"[" * 300, b"\x00", b"\xff", b",", b"1e999", b"\\u0000", b"null")
CHARACTERS = (
    "\x00",
    "\ud800",
    "\u202e",
    "\n",
    "'",
    '"',
    "$(",
    ")",
    "\\",
    "{",
    "}",
    "/",
    " ",
    "\U0001f9ea",
    "((((",
    "if ",
)


def places(value: Any, out: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            out.append((value, key))
            places(inner, out)
    elif isinstance(value, list):
        for key, inner in enumerate(value):
            out.append((value, key))
            places(inner, out)
    return out


def garble_value(start: Any, dice: random.Random, times: int) -> None:
    """Change some of the values below ``start``, in place."""
    for _ in range(times):
        found = places(start, [])
        if not found:
            return
        where, key = dice.choice(found)
        action = dice.random()
        if action < 0.35:
            where[key] = copy.deepcopy(dice.choice(VALUES))
        elif action < 0.5 and isinstance(where[key], str):
            where[key] = garble_text(where[key], dice)
        elif action < 0.6:
            other, its = dice.choice(found)  # another part of the same object in its place
            where[key] = copy.deepcopy(other[its])
        elif action < 0.8:
            del where[key]
        elif isinstance(where, dict):
            where[dice.choice(KEYS)] = copy.deepcopy(where[key])
        else:
            where.insert(0, copy.deepcopy(dice.choice((where[key], dice.choice(VALUES)))))


def garble_text(text: str, dice: random.Random) -> str:
    """A text with a piece replaced, or many times as long."""
    if dice.random() < 0.05:
        return text * dice.choice((2, 50, 1000))
    at = dice.randrange(len(text) + 1)
    return text[:at] + dice.choice(CHARACTERS) + text[at + dice.randrange(4) :]


def garble_bytes(body: bytes, dice: random.Random) -> bytes:
    """A body with bytes changed, missing, or more of them."""
    data = bytearray(body)
    for _ in range(dice.choice((1, 1, 2, 8))):
        at = dice.randrange(len(data) + 1)
        action = dice.random()
        if action < 0.4:
            data[at : at + 1] = bytes([dice.randrange(256)])
        elif action < 0.7:
            data[at : at + dice.randrange(1, 40)] = b""
        elif action < 0.95:
            data[at:at] = dice.choice(BYTES)
        else:
            del data[at:]
    return bytes(data)


def garbled(seed: int) -> bytes:
    """A captured review with some of its values or bytes changed; a seed gives the same one each time."""
    dice = random.Random(seed)
    body = dice.choice(SEEDS)
    if dice.random() < 0.8:
        value = json.loads(body)
        garble_value(value if dice.random() < 0.1 else value["request"], dice, dice.choice((1, 1, 2, 3, 6)))
        body = json.dumps(value).encode()
    if dice.random() < 0.25:
        body = garble_bytes(body, dice)
    return body


class OddCluster(NothingKnown):
    """One object of each kind under every name, each a little wrong; ``draw`` makes them anew.

    They go the way of real ones: as bytes into the tables. What these do not take is absent or unknown.
    """

    def __init__(self) -> None:
        self.draw(0)

    def draw(self, seed: int) -> None:
        """Another cluster."""
        dice = random.Random(seed)
        tables = Tables()
        self._gap = dice.choice((Gap.ABSENT, Gap.UNKNOWN))

        def put(table: Any, good: dict[str, Any]) -> tuple[str, str]:
            obj = copy.deepcopy(good)
            garble_value(obj, dice, dice.choice((0, 0, 1, 1, 3)))
            key: tuple[str, str] | None = table.put(json.dumps(obj).encode())
            return key or ("", "")

        self._claim = tables.claims.get(*put(tables.claims, CLAIM)) or self._gap
        name = put(tables.volumes, VOLUME)[1]
        self._volume = tables.volumes.get(name) or self._gap
        self._free = tables.volumes.available("shared")
        self._class = tables.classes.get(put(tables.classes, CLASS)[1]) or self._gap
        self._default = tables.classes.default()
        self._namespace = tables.namespaces.get(put(tables.namespaces, NAMESPACE)[1]) or self._gap
        key = put(tables.cluster_runtimes, RUNTIME)
        self._runtime = tables.cluster_runtimes.get(*key) or self._gap

    def claim(self, namespace: str, name: str) -> Claim | Gap:
        return self._claim

    def volume(self, name: str) -> PersistentVolume | Gap:
        return self._volume

    def available_volumes(self, storage_class: str) -> Sequence[PersistentVolume] | Gap:
        return self._free

    def storage_class(self, name: str) -> StorageClass | Gap:
        return self._class

    def default_storage_class(self) -> StorageClass | Gap:
        return self._default

    def csi_driver(self, name: str) -> CsiDriver | Gap:
        return Gap.UNKNOWN

    def config_map(self, namespace: str, name: str) -> ConfigMap | Gap:
        return Gap.UNKNOWN

    def namespace(self, name: str) -> Namespace | Gap:
        return self._namespace

    def runtime(self, kind: str, namespace: str, name: str) -> Runtime | Gap:
        return self._runtime


def uid_in(body: bytes) -> str | None:
    """The uid as another reader of JSON finds it; None where there is none or the body is none."""
    try:
        value = json.loads(body.decode("utf-8", "replace"))
        uid = value["request"]["uid"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return uid.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(uid, str) else None
