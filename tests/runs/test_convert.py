"""RunWhere's Training: every field is placed or named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from webhook.cli import main
from webhook.model.release import Release
from webhook.runs.convert import Wanted, convert, parse_runtime

TRAINING: dict[str, Any] = {
    "kind": "Training",
    "version": "v1",
    "job": {"name": "lora-a"},
    "environment": {"image": "registry.example/t:1", "command": "python train.py --lr 1e-4"},
    "resources": {"gpuNum": 4, "gpuType": "h100-80g"},
    "storage": {"checkpoint": {"path": "/ckpts/"}},
}


def changed(**fields: Any) -> dict[str, Any]:
    return {**TRAINING, **fields}


@pytest.mark.parametrize("release", list(Release))
def test_every_field_has_its_place(release: Release) -> None:
    made, faults = convert(TRAINING, Wanted(release=release))
    assert faults == []
    assert made["metadata"] == {
        "name": "lora-a",
        "annotations": {"checkpoint-guard.io/path": "/ckpts", "checkpoint-guard.io/layout": "tiered"},
    }
    spec = made["spec"]
    assert spec["runtimeRef"]["kind"] == "ClusterTrainingRuntime"
    assert spec["trainer"] == {
        "image": "registry.example/t:1",
        "command": ["python", "train.py", "--lr", "1e-4"],
        "resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}, "requests": {"nvidia.com/gpu": 4}},
    }
    assert list(spec) == ["runtimeRef", "trainer", release.override_field]
    assert '"nodeSelector": {"nvidia.com/gpu.product": "h100-80g"}' in json.dumps(spec[release.override_field])


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("python train.py", ["python", "train.py"]),
        ("python a.py && python b.py", ["bash", "-c", "python a.py && python b.py"]),
        ('python a.py "x y"', ["bash", "-c", 'python a.py "x y"']),
        (["python", "a b.py"], ["python", "a b.py"]),
        ("exec python train.py", ["bash", "-c", "exec python train.py"]),
        ("source /opt/env.sh", ["bash", "-c", "source /opt/env.sh"]),
        (" python\ttrain.py ", ["python", "train.py"]),
    ],
)
def test_a_command(command: Any, words: list[str]) -> None:
    made, faults = convert(changed(environment={"command": command}), Wanted())
    assert faults == []
    assert made["spec"]["trainer"]["command"] == words


@pytest.mark.parametrize(
    ("training", "field"),
    [
        (changed(job={"name": "a", "priority": "high"}), "job.priority"),
        (changed(queue="x"), "queue"),
        (changed(resources={"gpuNum": 1, "cpu": 4}), "resources.cpu"),
        (changed(storage={"checkpoint": {"path": "/a", "keep": 3}}), "storage.checkpoint.keep"),
        (changed(storage={"checkpoint": "/a"}), "storage.checkpoint"),
        (changed(storage={"checkpoint": {"path": "a"}}), "storage.checkpoint.path"),
        (changed(storage={"checkpoint": {"path": "/a/../etc"}}), "storage.checkpoint.path"),
        (changed(storage={"checkpoint": {"path": "/a//b"}}), "storage.checkpoint.path"),
        (changed(storage={"checkpoint": {"path": "/a:b"}}), "storage.checkpoint.path"),
        (changed(storage={"checkpoint": {"path": "/a/$(X)"}}), "storage.checkpoint.path"),
        (changed(storage={"checkpoint": {"path": "/proc/a"}}), "storage.checkpoint.path"),
        (changed(job={"name": "a" * 51}), "job.name"),
        (changed(resources={"gpuNum": 0}), "resources.gpuNum"),
        (changed(resources={"gpuNum": "8"}), "resources.gpuNum"),
        (changed(resources={"gpuNum": True}), "resources.gpuNum"),
        (changed(resources={"gpuType": "a b"}), "resources.gpuType"),
        (changed(environment={"command": 3}), "environment.command"),
        (changed(environment={"image": "a b"}), "environment.image"),
        (changed(job={"name": "No_Name"}), "job.name"),
        (changed(job={}), "job.name"),
        (changed(kind="Serving"), "kind"),
        (changed(version="v2"), "version"),
        ([1], ""),
        (None, ""),
    ],
)
def test_what_has_no_place_is_named(training: Any, field: str) -> None:
    _, faults = convert(training, Wanted())
    assert field in [fault.field for fault in faults]


def test_a_runtime() -> None:
    assert parse_runtime("mine") == ("ClusterTrainingRuntime", "mine")
    assert parse_runtime("TrainingRuntime/mine") == ("TrainingRuntime", "mine")
    for text in ("Runtime/mine", "TrainingRuntime/", "", "a b", "TrainingRuntime/Rt"):
        with pytest.raises(ValueError):
            parse_runtime(text)


def test_the_command_names_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(yaml.safe_dump(TRAINING, sort_keys=False))
    assert main(["convert", str(good), "--runtime", "TrainingRuntime/rt", "-n", "team", "--gpu-label", "gpu"]) == 0
    made = yaml.safe_load(capsys.readouterr().out)
    assert made["metadata"]["namespace"] == "team"
    assert made["spec"]["runtimeRef"] == {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "TrainingRuntime",
        "name": "rt",
    }
    bad = tmp_path / "bad.yaml"
    bad.write_text("kind: Training\njob:\n  name: a\nresources:\n  gpuNum: 1\n  memory: 3\n")
    assert main(["convert", str(bad)]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("# has no place: resources.memory: ")
    assert yaml.safe_load(printed.out)["spec"]["trainer"]["resourcesPerNode"]["limits"] == {"nvidia.com/gpu": 1}
    assert f"{bad}:6: resources.memory: has no place" in printed.err
    for text, words in (("a: [", "error"), ("", "nothing in it")):
        bad.write_text(text)
        assert main(["convert", str(bad)]) == 2
        assert words in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "none.yaml")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_document_as_guides_show_it_converts() -> None:
    text = """
kind: Training
version: v1

job:
  name: mistral-sft

environment:
  image: registry.example/sft:2
  command: python sft.py

resources:
  gpuNum: 8
  gpuType: h100-80g

storage:
  checkpoint:
    path: /data
"""
    made, faults = convert(yaml.safe_load(text), Wanted())
    assert faults == []
    assert made["metadata"]["annotations"]["checkpoint-guard.io/layout"] == "tiered"


@pytest.mark.parametrize("key", ["", "a b", "a/b/c", "/x"])
def test_a_label_key_is_one(key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(TRAINING))
    with pytest.raises(SystemExit) as ended:
        main(["convert", str(tmp_path / "t.yaml"), "--gpu-label", key])
    assert ended.value.code == 2
    assert "is no key of a label" in capsys.readouterr().err


def test_a_long_line_is_converted_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = f"print('{'a' * 10_000}')"
    file = tmp_path / "job.yaml"
    container = {"name": "pytorch", "image": "train", "command": ["python", "-c", program]}
    replica = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"pytorchReplicaSpecs": {"Master": replica}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "old"}, "spec": spec}
    file.write_text(json.dumps(job))
    assert main(["convert", str(file)]) in (0, 1)
    made = list(yaml.safe_load_all(capsys.readouterr().out))
    assert program in made[-1]["spec"]["trainer"]["command"]
