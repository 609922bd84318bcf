"""``ckptguard pods`` as its users call it; what the pods are is tested with the engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.files import CLAIM, GOOD, JOB, RUNTIME, write
from webhook.cli import main


def test_json_of_a_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pods", write(tmp_path, "a.yaml", GOOD), "--output", "json", "--trainer", "2.1"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert list(result) == ["kind", "namespace", "name", "trainer", "failurePolicy", "jobs"]
    assert (result["kind"], result["namespace"], result["name"]) == ("TrainJob", "default", "digits")
    assert result["trainer"] == "2.1"
    assert result["failurePolicy"]["maxRestarts"] == 3
    (job,) = result["jobs"]
    assert {"name", "pods", "trains", "backoffLimit", "pod", "origins"} <= set(job)
    assert (job["name"], job["pods"], job["trains"], job["backoffLimit"]) == ("node", 1, True, 0)
    assert job["pod"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "train-ckpt"}
    path = "spec.template.spec.replicatedJobs[0].template.spec.template.spec.volumes[0]"
    assert job["origins"]["/volumes/0"] == f"TrainingRuntime/plain {path}"


def test_our_own_defaults_are_not_applied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runtime = RUNTIME.replace("      failurePolicy:\n        maxRestarts: 3\n", "").replace("backoffLimit: 0", "")
    path = write(tmp_path, "a.yaml", "---\n".join((CLAIM, runtime, JOB)))
    assert main(["pods", path, "--output", "json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["failurePolicy"] is None
    assert result["jobs"][0]["backoffLimit"] == 6


def test_text_is_a_tree_with_origins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pods", write(tmp_path, "a.yaml", GOOD)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("TrainJob default/digits ")
    assert "directory /mnt/ckpt/run" in out
    assert 'claim "train-ckpt"' in out
    assert "<- TrainingRuntime/plain " in out


def test_runtime_that_no_trainjob_uses_is_shown_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pods", write(tmp_path, "a.yaml", RUNTIME), "--output", "json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert (result["kind"], result["name"]) == ("TrainingRuntime", "plain")
    assert result["jobs"]


def test_without_its_runtime_a_trainjob_has_no_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "a.yaml", JOB)
    assert main(["pods", path, "--output", "json"]) == 2
    out, err = capsys.readouterr()
    (result,) = json.loads(out)["results"]
    assert (result["jobs"], result["trainer"]) == ([], "2.4")
    assert err.startswith(f"error: {path}:8: spec.runtimeRef.name: there is no TrainingRuntime")
    assert main(["pods", path]) == 2
    assert capsys.readouterr().out == ""


def test_live_and_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pods", write(tmp_path, "a.yaml", GOOD), "--live"]) == 2
    assert "--live" in capsys.readouterr().err
    assert main(["pods", write(tmp_path, "b.yaml", "a: [")]) == 2
    assert "b.yaml:" in capsys.readouterr().err
