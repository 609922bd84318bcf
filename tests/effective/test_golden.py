"""Our pods against those that the real Trainer and JobSet controllers made of the same objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import fast_yaml, golden
from webhook.effective import build_trainer_pods
from webhook.model.cluster import Runtime
from webhook.model.release import parse_release
from webhook.reports.pods import pods_result

FIELDS = ("name", "image", "command", "args", "env", "volumeMounts", "envFrom", "restartPolicy", "workingDir")
REFUSED_BY_THE_JOB_API = "Job"
FOREIGN_JOB = "g-107"
"""An override of a job that the runtime does not have: refused, and not among the pods that we tell."""


@pytest.mark.parametrize("release", golden.RELEASES)
def test_pods_equal_the_recorded_ones(release: str) -> None:
    compared = 0
    wrong: dict[str, Any] = {}
    for pair in golden.pairs(release):
        if pair.update is not None or not _has_pods(pair.expected, pair.name):
            continue
        trainjob, runtime = _read(pair)
        effective = build_trainer_pods(trainjob, runtime, parse_release(golden.minor(release)))
        ours = pods_result("TrainJob", pair.name, trainjob["metadata"].get("name", ""), effective)
        compared += 1
        if _comparable(ours) not in [_comparable(_renamed(record, trainjob)) for record in pair.outcomes]:
            wrong[pair.name] = _comparable(ours)
    assert not wrong
    assert compared > 100


def _has_pods(recorded: Any, name: str) -> bool:
    if recorded["accepted"]:
        return True
    return bool(recorded["jobs"]) and recorded["refused"]["by"] == REFUSED_BY_THE_JOB_API and FOREIGN_JOB not in name


def _read(pair: golden.Pair) -> tuple[Any, Runtime]:
    documents = list(fast_yaml.safe_load_all(pair.input))
    (trainjob,) = [document for document in documents if document["kind"] == "TrainJob"]
    ref = trainjob["spec"]["runtimeRef"]
    kind = ref.get("kind", "ClusterTrainingRuntime")
    (raw,) = [
        document for document in documents if document["kind"] == kind and document["metadata"]["name"] == ref["name"]
    ]
    return trainjob, Runtime(kind, raw["metadata"].get("namespace", ""), ref["name"], raw, {})


def _renamed(record: Any, trainjob: Any) -> Any:
    """The recording with the name that the API server generated taken back."""
    begin = trainjob["metadata"].get("generateName")
    if begin is None or not record["jobs"]:
        return record
    return json.loads(json.dumps(record).replace(record["jobs"][0]["more"]["subdomain"], begin))


def _comparable(result: Any) -> Any:
    jobs = []
    for job in result["jobs"]:
        pod = job["pod"]
        grace = pod["terminationGracePeriodSeconds"]
        jobs.append(
            {
                "name": job["name"],
                "pods": job["pods"],
                # A Job that waits for another one stands in the JobSet, without the Job API's defaults.
                "backoffLimit": 6 if job["backoffLimit"] is None else job["backoffLimit"],
                "terminationGracePeriodSeconds": 30 if grace is None else grace,
                "restartPolicy": pod["restartPolicy"],
                "volumes": [_plain(volume) for volume in pod["volumes"]],
                "nodeSelector": pod.get("nodeSelector"),
                "affinity": pod.get("affinity"),
                **{
                    kind: [_plain({field: container.get(field) for field in FIELDS}) for container in pod[kind]]
                    for kind in ("initContainers", "containers")
                },
            }
        )
    return {"failurePolicy": result["failurePolicy"], "jobs": jobs}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            field: _plain(inner)
            for field, inner in value.items()
            if inner is not None and field not in ("defaultMode", "apiVersion")
        }
    return [_plain(inner) for inner in value] if isinstance(value, list) else value
