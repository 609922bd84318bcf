"""Over pairs of runtime and TrainJob that a real Trainer was given: ours is added and nothing else changes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests import golden
from tests.defaults.world import applied, default
from tests.effective.objects import find_checkpoints
from webhook.cluster.file_view import FileView
from webhook.cluster.files import load_text
from webhook.effective import build_trainer_pods
from webhook.model.cluster import Runtime
from webhook.model.names import CLAIM
from webhook.model.pod import DirectoryStatus, EffectiveSet, Storage, StorageKind
from webhook.model.policy import Policy
from webhook.model.release import Release, parse_release
from webhook.model.request import Request

POLICY = Policy()
NAMES = ("TRAINJOB_NAME", *POLICY.directory.variables)


def without_ours(effective: EffectiveSet) -> list[Any]:
    """The jobs as they are built, less what a patch of ours may add."""
    jobs: list[Any] = []
    for job in effective.jobs:
        pod = copy.deepcopy(dict(job.pod))
        pod["volumes"] = [one for one in pod.get("volumes") or [] if not one["name"].startswith("checkpoint-guard")]
        for container in pod.get("containers") or []:
            mounts = container.get("volumeMounts") or []
            container["volumeMounts"] = [one for one in mounts if not one["name"].startswith("checkpoint-guard")]
            container["env"] = [one for one in container.get("env") or [] if one["name"] not in NAMES]
        jobs.append((job.name, job.pods, job.trains, job.receives_trainer, job.backoff_limit, pod))
    return jobs


@pytest.mark.parametrize("recorded", golden.RELEASES)
def test_only_ours_is_added(recorded: str) -> None:
    release = parse_release(golden.minor(recorded))
    filled = 0
    for pair in golden.pairs(recorded):
        loaded = load_text(pair.input, pair.name)
        view = FileView(loaded.documents, release)
        for document in loaded.of_kind("TrainJob"):
            run = copy.deepcopy(document.object)
            annotations = run["metadata"].get("annotations") or {}
            run["metadata"]["annotations"] = {**annotations, CLAIM: "unknown"}
            asked = Request("CREATE", "TrainJob", document.namespace, document.name, run)
            done = default(asked, view, POLICY, release)
            assert done.broken == (), pair
            assert applied(run, done.patch) == done.object
            again = Request("CREATE", "TrainJob", document.namespace, document.name, done.object)
            assert default(again, view, POLICY, release).patch == (), pair
            if done.patch:
                filled += 1
                check(view, document.namespace, run, done.object, release, pair)
    assert filled > 10


def check(view: FileView, namespace: str, run: Any, after: Any, release: Release, pair: golden.Pair) -> None:
    reference = run["spec"]["runtimeRef"]
    runtime = view.runtime(reference.get("kind") or "ClusterTrainingRuntime", namespace, reference["name"])
    assert isinstance(runtime, Runtime)
    before = build_trainer_pods(run, runtime, release)
    built = build_trainer_pods(after, runtime, release)
    assert without_ours(built) == without_ours(before), pair
    for checkpoint in find_checkpoints(built, POLICY.directory.variables, lambda *_: Storage(StorageKind.NONE, "")):
        if checkpoint.status is not DirectoryStatus.NONE:
            assert checkpoint.mount is not None, pair
            assert checkpoint.status is not DirectoryStatus.UNEXPANDED, pair
