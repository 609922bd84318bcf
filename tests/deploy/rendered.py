"""What kustomize and Helm make of `deploy/`, as objects."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from tests import fast_yaml
from tests.deploy.tools import find

Object = dict[str, Any]

DEPLOY = Path(__file__).parents[2] / "deploy"


def kustomize(folder: Path) -> list[Object]:
    """`kustomize build`; no warning is let pass."""
    return _objects(find("kustomize"), "build", folder)


def helm(*values: str, namespace: str = "checkpoint-guard") -> list[Object]:
    """`helm template`, with `--set` values."""
    flags = [flag for value in values for flag in ("--set-json" if "=[" in value or "={" in value else "--set", value)]
    return _objects(find("helm"), "template", "guard", DEPLOY / "chart", "-n", namespace, *flags)


def _objects(*command: str | Path) -> list[Object]:
    return [document for document in fast_yaml.safe_load_all(_rendered(command)) if document]


@cache
def _rendered(command: tuple[str | Path, ...]) -> str:
    """Many tests look at the same manifests, which change for none of them."""
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return run.stdout


def is_hook(document: Object) -> bool:
    """Whether Helm makes it around an install or a delete rather than as part of the release."""
    return "helm.sh/hook" in (document["metadata"].get("annotations") or {})


def key(document: Object) -> tuple[str, str, str]:
    """Kind, namespace and name."""
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace") or "", metadata["name"]


def by_key(documents: list[Object]) -> dict[tuple[str, str, str], Object]:
    """Objects by kind, namespace and name; none stands there twice."""
    found = {key(document): document for document in documents}
    assert len(found) == len(documents)
    return found


def pod_templates(documents: list[Object]) -> dict[tuple[str, str, str], Object]:
    """PodSpecs by the object that makes the pods."""
    found = {key(one): one["spec"]["template"]["spec"] for one in documents if one["kind"] in ("Deployment", "Job")}
    for one in documents:
        if one["kind"] == "CronJob":
            found[key(one)] = one["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return found
