"""``ckptguard fix``: what it writes, what it leaves alone and why, and what of the file stays as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from webhook.cli import main

RUNTIME = """\
# a runtime of the team
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata:
  name: torch      # the one that all use
  namespace: team
spec:
  mlPolicy:
    numNodes: 1
    torch: {}
  template:
    spec:
      failurePolicy: {maxRestarts: 3}
      replicatedJobs:
      - name: node
        template:
          metadata:
            labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}
          spec:
            backoffLimit: 0
            template:
              spec:
                terminationGracePeriodSeconds: 120
                containers:
                - name: node
                  image: 'registry.example/train:1'
                  env:
                  - name: RUN_ID
                    value: "7"    # quoted
                  - {name: CKPT_DIR, value: '/mnt/ckpt/${RUN_ID}'}
                  volumeMounts: [{name: ckpt, mountPath: /mnt/ckpt}]
                volumes:
                - name: ckpt
                  persistentVolumeClaim: {claimName: runs}
"""
TRAINJOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: llm
  namespace: team
spec:
  runtimeRef: {apiGroup: trainer.kubeflow.org, kind: TrainingRuntime, name: torch}
  trainer:
    numNode: 1      # one is enough
    command: [bash, -c]
    args:
    - |
      set -e
      # first
      python train.py --a "b  c"
      echo done
"""


def fixed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code = main(["fix", *arguments, "-o", "json"])
    out = capsys.readouterr()
    assert "Traceback" not in out.err
    told: dict[str, Any] = json.loads(out.out) if out.out else {"schema": 1, "results": []}
    assert told["schema"] == 1
    return code, told["results"]


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_only_what_is_wrong_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str], ends: str) -> None:
    before = (RUNTIME + "---\n" + TRAINJOB).replace("\n", ends)
    path = put(tmp_path, "all.yaml", before)
    code, items = fixed(capsys, str(path), "--write")
    rules = {item["rule"]: item for item in items}
    assert rules["unexpanded-directory"]["applied"]
    assert rules["unknown-field"]["applied"]
    assert rules["unknown-field"]["file"] == str(path)
    assert not rules["sigterm-not-forwarded"]["applied"]
    assert "--unsafe" in rules["sigterm-not-forwarded"]["reason"]
    assert code == 1
    after = path.read_bytes().decode()
    assert after == before.replace("/mnt/ckpt/${RUN_ID}", "/mnt/ckpt/$(RUN_ID)").replace(
        "numNode: 1      #", "numNodes: 1     #"
    )
    code, items = fixed(capsys, str(path), "--write")
    assert [item["rule"] for item in items] == ["sigterm-not-forwarded"]
    assert path.read_bytes().decode() == after


def test_lines_of_a_program_are_written_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path, "all.yaml", RUNTIME.replace("${", "$(").replace("D}'", "D)'") + "---\n" + TRAINJOB)
    code, _ = fixed(capsys, str(path), "--write", "--unsafe")
    assert code == 0
    text = path.read_text()
    assert '      python train.py --a "b  c" & pid=$!\n      trap' in text
    assert "      # first\n" in text
    assert fixed(capsys, str(path), "--write", "--unsafe") == (0, [])


def test_nothing_is_written_without_being_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path, "all.yaml", RUNTIME)
    assert main(["fix", str(path)]) == 0
    out = capsys.readouterr().out
    assert "+                  - {name: CKPT_DIR, value: '/mnt/ckpt/$(RUN_ID)'}" in out
    assert path.read_text() == RUNTIME


def test_what_the_guard_fills_in_is_written_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path, "r.yaml", RUNTIME.replace("            backoffLimit: 0\n", "").replace("${RUN_ID}", "r"))
    code, items = fixed(capsys, str(path), "--write")
    assert (code, [item["rule"] for item in items]) == (0, ["filled-in"])
    assert "            backoffLimit: 0\n" in path.read_text()
    assert "injected" not in path.read_text()


def test_the_runtime_is_mended_in_its_own_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runtime = put(tmp_path, "runtime.yaml", RUNTIME)
    job = put(tmp_path, "job.yaml", TRAINJOB.replace("numNode:", "numNodes:").replace("echo done", "true"))
    _, items = fixed(capsys, str(tmp_path), "--write")
    assert [item["file"] for item in items if item["rule"] == "unexpanded-directory"] == [str(runtime)]
    assert "$(RUN_ID)" in runtime.read_text()
    _, items = fixed(capsys, str(job), "--state", str(put(tmp_path, "other.yml", RUNTIME)))
    told = [item for item in items if item["rule"] == "unexpanded-directory"]
    assert "not among FILE" in told[0]["reason"]


def test_what_a_volume_holds_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An image or a ConfigMap is there to be read: the claim gets a volume and a mount of its own."""
    file = tmp_path / "runtime.yaml"
    text = RUNTIME.replace("persistentVolumeClaim: {claimName: runs}", "image: {reference: registry.example/models:1}")
    claim = (
        "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: runs, namespace: team}\n"
        "spec: {accessModes: [ReadWriteMany], storageClassName: net, resources: {requests: {storage: 1Ti}}}\n"
        "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: net}\nprovisioner: efs.csi.aws.com\n"
    )
    file.write_text(text.replace("${RUN_ID}", "llm") + claim)
    assert main(["fix", str(file), "--write"]) == 0
    pod = next(iter(yaml.safe_load_all(file.read_text())))["spec"]["template"]["spec"]["replicatedJobs"][0]
    pod = pod["template"]["spec"]["template"]["spec"]
    assert [volume.get("image", {}).get("reference") for volume in pod["volumes"]] == [
        "registry.example/models:1",
        None,
    ]
    assert pod["volumes"][1] == {"name": "ckpt-claim", "persistentVolumeClaim": {"claimName": "runs"}}
    assert [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]] == ["/mnt/ckpt", "/mnt/ckpt/llm"]
    assert main(["review", str(file)]) == 0
    # Where the directory is all of the volume, nothing is exchanged by itself.
    file.write_text(text.replace("/${RUN_ID}", "") + claim)
    capsys.readouterr()
    assert main(["fix", str(file), "--write"]) == 1
    assert "read-only-checkpoint" in capsys.readouterr().out
    assert main(["review", str(file)]) == 1
    assert 'mount volume "ckpt", which cannot be written, at another path' in capsys.readouterr().out


def test_what_nobody_has_told_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = RUNTIME.replace("volumeMounts: [{name: ckpt, mountPath: /mnt/ckpt}]", "volumeMounts: []")
    text = bare.replace("${RUN_ID}", "r") + "---\n" + TRAINJOB.replace("numNode: 1      #", "numNodes: 1     #")
    code, items = fixed(capsys, str(put(tmp_path, "all.yaml", text)), "--write")
    told = next(item for item in items if item["rule"] == "ephemeral-checkpoint")
    assert code == 1
    assert not told["applied"]
    assert "<" in told["reason"] or "PersistentVolumeClaim" in told["reason"]


def test_a_list_and_json_keep_their_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "a", "namespace": "team"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNode": 1, "image": "é"}},
    }
    whole = {"apiVersion": "v1", "kind": "List", "items": [job]}
    before = json.dumps(whole, indent=4, ensure_ascii=False) + "\n"
    path = put(tmp_path, "list.json", before)
    _, items = fixed(capsys, str(path), "--write")
    assert any(item["rule"] == "unknown-field" and item["applied"] for item in items), items
    assert '"numNodes": 1' in path.read_text()
    assert path.read_text().split("\n")[:5] == before.split("\n")[:5]


def test_an_anchor_that_others_share_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = "{name: CKPT_DIR, value: '/mnt/ckpt/${RUN_ID}'}"
    shared = RUNTIME.replace(own, "&dir {name: CKPT_DIR, value: '/c/${RUN_ID}'}")
    mounts = "                  volumeMounts:"
    shared = shared.replace(mounts, f"                  - *dir\n{mounts}")
    path = put(tmp_path, "all.yaml", shared)
    _, items = fixed(capsys, str(path), "--write")
    assert path.read_text() == shared or "*dir" in path.read_text()
    assert all(item["reason"] or item["applied"] for item in items)


def test_files_that_cannot_be_written_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path, "all.yaml", RUNTIME)
    path.chmod(0o444)
    code, items = fixed(capsys, str(path), "--write")
    assert code == 1
    assert items[0]["reason"] == "the file is read-only"
    assert path.read_text() == RUNTIME
    path.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    assert fixed(capsys, str(link), "--write")[0] == 0
    assert link.is_symlink()
    assert "$(RUN_ID)" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


def test_a_file_that_changed_meanwhile_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from webhook.cli.fix import Change, _replace

    path = put(tmp_path, "all.yaml", "a: 2\n")
    assert _replace(str(path), Change("a: 1\n", "a: 3\n")) == "the file has changed since it was read"
    assert path.read_text() == "a: 2\n"
    assert main(["fix", str(tmp_path / "none.yaml")]) == 2
    assert main(["fix", str(put(tmp_path, "tab.yaml", "kind: TrainJob\nspec:\n\ta: 1\n"))]) == 2
    assert "Traceback" not in capsys.readouterr().err


COMMAND = ["tune", "run", "full_finetune_distributed", "--config", "q/1B", "output_dir=/out"]
TUNED = f"""\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {{name: tuned}}
spec:
  mlPolicy: {{numNodes: 1, torch: {{}}}}
  template:
    spec:
      failurePolicy: {{maxRestarts: 3}}
      replicatedJobs:
      - name: node
        template:
          metadata:
            labels: {{trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            backoffLimit: 0
            template:
              spec:
                terminationGracePeriodSeconds: 120
                containers:
                - name: node
                  image: registry.example/tune:1
                  command: {json.dumps(COMMAND)}
                  volumeMounts: [{{name: out, mountPath: /out}}]
                volumes:
                - name: out
                  persistentVolumeClaim: {{claimName: runs}}
"""


def test_a_command_is_put_behind_what_goes_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path, "tuned.yaml", TUNED)
    _, rows = fixed(capsys, str(path), "--write")
    (asked,) = [row for row in rows if row["rule"] == "resume-not-asked-for"]
    assert (asked["applied"], "--unsafe" in asked["reason"]) == (False, True)
    assert path.read_text() == TUNED
    code, rows = fixed(capsys, str(path), "--write", "--unsafe")
    assert [(row["rule"], row["applied"]) for row in rows] == [("resume-not-asked-for", True)]
    job = yaml.safe_load(path.read_text())["spec"]["template"]["spec"]["replicatedJobs"][0]
    command = job["template"]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[:2] == ["bash", "-c"]
    assert command[3:] == COMMAND
    assert code == 0


def test_a_runtime_that_is_assumed_is_for_its_administrator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shipped = TRAINJOB.replace("TrainingRuntime, name: torch", "ClusterTrainingRuntime, name: torch-distributed")
    path = put(tmp_path, "job.yaml", shipped.split("    command:")[0])
    assert main(["fix", str(path), "-o", "json"]) in (0, 1)
    told = json.loads(capsys.readouterr().out)
    assert "no-restart-budget" in told["administrator"]["ClusterTrainingRuntime/torch-distributed"]
    assert all("ClusterTrainingRuntime" not in row["at"] for row in told["results"])
    main(["fix", str(path)])
    assert "for whoever administers ClusterTrainingRuntime/torch-distributed: " in capsys.readouterr().out
