"""The guard in a cluster with nodes: installed by kustomize or Helm, asked, counted, and looked for when it is gone."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.rendered import DEPLOY
from tests.deploy.tools import build
from tests.e2e_nodes.machine import Nodes, Object, wait_until

NAMESPACE = "checkpoint-guard"
MINUTES = float(os.environ.get("E2E_MINUTES") or 1)
"""Of load for each of the figures that are taken under load; 10 is what docs/operations.md quotes."""


def rendered(image: str, folder: str = "overlays/self-signed", components: Sequence[str] = ()) -> list[Object]:
    """`kustomize build` of a folder of `deploy/`, as an overlay that names another image, and components if need be."""
    repository, _, tag = image.rpartition(":")
    with tempfile.TemporaryDirectory() as place:
        up = "../" * (len(Path(place).resolve().parts) - 1)
        overlay = {
            "resources": [up + str((DEPLOY / folder).resolve())[1:]],
            "components": [up + str((DEPLOY / "components" / one).resolve())[1:] for one in components],
            "images": [{"name": "ghcr.io/checkpoint-guard/checkpoint-guard", "newName": repository, "newTag": tag}],
        }
        (Path(place) / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
        done = subprocess.run([build("kustomize"), "build", place], capture_output=True, text=True, check=True)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def install(nodes: Nodes, image: str) -> None:
    """`kubectl apply -k`, and wait."""
    nodes.apply(rendered(image))
    for name in ("checkpoint-guard-certs", "checkpoint-guard"):
        nodes.rolled_out(name)


def uninstall(nodes: Nodes) -> None:
    """The two lines of the emergency switch, then `kubectl delete -k`."""
    switch_off(nodes)
    nodes.run("delete", "--ignore-not-found", "-f", "-", text=yaml.safe_dump_all(rendered(nodes.image)))


def switch_off(nodes: Nodes) -> None:
    """The emergency switch, as docs/operations.md has it."""
    for kind in ("validatingwebhookconfiguration", "mutatingwebhookconfiguration"):
        nodes.run("delete", kind, "checkpoint-guard", "--ignore-not-found")


def helm(nodes: Nodes, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """`helm ...` on the cluster."""
    done = subprocess.run(
        [build("helm"), *arguments], env=nodes.environment, capture_output=True, text=True, check=False, timeout=600
    )
    if check and done.returncode != 0:
        raise AssertionError(f"helm {' '.join(arguments)}: {done.stderr}\n{_jobs(nodes)}")
    return done


def helm_values(image: str) -> list[str]:
    """Flags that name an image."""
    repository, _, tag = image.rpartition(":")
    return ["--set", f"image.repository={repository},image.tag={tag}"]


def ckptguard(nodes: Nodes, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line of this clone on the cluster; the exit code is the caller's to look at."""
    return subprocess.run(
        [sys.executable, "-m", "webhook", *arguments],
        env=nodes.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def certs(nodes: Nodes, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`ckptguard certs ...` on the guard's Secrets."""
    return ckptguard(nodes, "certs", *arguments, "--namespace", NAMESPACE)


def left_over(nodes: Nodes) -> list[str]:
    """Everything in the cluster that has our name; events and what is on its way out aside."""
    found = []
    names = nodes.run("api-resources", "--verbs=list", "-o", "name").stdout.split()
    skipped = {"events", "events.events.k8s.io", "componentstatuses"}
    for name in names:
        if name in skipped or name.endswith("metrics.k8s.io"):
            continue
        listed: dict[str, Any] = json.loads(nodes.run("get", name, "-A", "-o", "json", check=False).stdout or "{}")
        for item in listed.get("items") or ():
            metadata = item["metadata"]
            ours = "checkpoint-guard" in metadata["name"] or metadata.get("namespace") == NAMESPACE
            # What Kubernetes puts into every namespace, and the namespace that Helm was told to make.
            usual = metadata["name"] in ("kube-root-ca.crt", "default") or (item["kind"] == "Namespace")
            if ours and not usual:
                found.append(f"{item['kind']}/{metadata['name']}")
    return found


def wait_for_nothing(nodes: Nodes) -> None:
    """Pods take their grace period."""
    wait_until(lambda: not left_over(nodes), 90, f"nothing is left: {left_over(nodes)}", 3)


def lost_runtime(namespace: str) -> Object:
    """A runtime whose checkpoints are gone with the pod."""
    container = {
        "name": "node",
        "image": "python:3.12-slim",
        "command": ["python", "-c", "pass"],
        "env": [{"name": "CKPT_DIR", "value": "/ckpt"}],
        "volumeMounts": [{"name": "ckpt", "mountPath": "/ckpt"}],
    }
    pod = {"containers": [container], "volumes": [{"name": "ckpt", "emptyDir": {}}]}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": {"spec": pod}}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "lost", "namespace": namespace, "labels": {"trainer.kubeflow.org/framework": "plain"}},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


def suspended_run(namespace: str, name: str) -> Object:
    """A suspended run of it."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "lost"},
            "suspend": True,
        },
    }


def _jobs(nodes: Nodes) -> str:
    names = ("checkpoint-guard-install-check", "checkpoint-guard-uninstall")
    return "\n".join(nodes.run("logs", "-n", NAMESPACE, f"job/{name}", check=False).stdout for name in names)
