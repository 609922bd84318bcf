"""The straw man: how one would write it without a thought for time. Copies everything, compares everything."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jsonpatch


def decide(obj: dict[str, Any], runtime: dict[str, Any]) -> tuple[str, list[dict[str, Any]], list[str]]:
    """Verdict, patch and findings of about a tenth of the rules, by deep copies and a diff."""
    wanted = copy.deepcopy(obj)
    merged = copy.deepcopy(runtime)
    trainer = wanted["spec"].get("trainer", {})
    jobs = merged["spec"]["template"]["spec"]["replicatedJobs"]
    for patch in wanted["spec"].get("runtimePatches", []):
        for job in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]:
            for target in jobs:
                if target["name"] == job["name"]:
                    _merge(_pod(target), copy.deepcopy(_pod(job)))
    findings: list[str] = []
    for rule in _RULES:
        findings += rule(copy.deepcopy(wanted), copy.deepcopy(jobs), copy.deepcopy(trainer))
    wanted["metadata"].setdefault("annotations", {})["example.com/seen"] = "true"
    patch = jsonpatch.make_patch(obj, wanted).patch
    return ("deny" if findings else "allow"), patch, findings


def _pod(job: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = job["template"]["spec"]["template"]["spec"]
    return pod


def _merge(into: dict[str, Any], what: dict[str, Any]) -> None:
    for key, value in what.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _directory(wanted: dict[str, Any], jobs: list[dict[str, Any]], trainer: dict[str, Any]) -> list[str]:
    found = []
    for job in jobs:
        for container in _pod(job)["containers"]:
            variables = {entry["name"]: entry.get("value", "") for entry in container.get("env", [])}
            variables |= {entry["name"]: entry.get("value", "") for entry in trainer.get("env", [])}
            directory = variables.get("CKPT_DIR")
            if directory and not any(directory.startswith(m["mountPath"]) for m in container.get("volumeMounts", [])):
                found.append("ephemeral-checkpoint")
    return found


def _restarts(wanted: dict[str, Any], jobs: list[dict[str, Any]], trainer: dict[str, Any]) -> list[str]:
    return ["pods-retry-alone" for job in jobs if job["template"]["spec"].get("backoffLimit", 0) > 0]


def _grace(wanted: dict[str, Any], jobs: list[dict[str, Any]], trainer: dict[str, Any]) -> list[str]:
    return ["short-grace" for job in jobs if _pod(job).get("terminationGracePeriodSeconds", 60) < 60]


_RULES: tuple[Callable[[dict[str, Any], list[dict[str, Any]], dict[str, Any]], list[str]], ...] = (
    _directory,
    _restarts,
    _grace,
)
