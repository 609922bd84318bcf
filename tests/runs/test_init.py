"""What `init` writes is right as it stands: our own review has nothing to say and nothing to add."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.together import together
from webhook.cli import main
from webhook.cli.init import yaml_of
from webhook.cluster.file_view import FileView
from webhook.cluster.files import load_text
from webhook.decision import default_object, review_object
from webhook.model.cluster import StorageClass
from webhook.model.policy import DirectoryPolicy, Limits, Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.programs.frameworks import FRAMEWORKS
from webhook.runs.start import Plan, checkpoint_bytes, choose_class, claim_size, objects
from webhook.runs.starters import STARTERS, Starter

GI = 2**30


def class_object(provisioner: str) -> str:
    raw = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "shared"},
        "provisioner": provisioner,
    }
    return json.dumps(raw)


@together(
    [(starter, nodes, release) for starter in STARTERS for nodes in (1, 2, 16) for release in Release],
    lambda case: case[0].id,
    lambda case: f"{case[0].id} nodes={case[1]} {case[2].value}",
)
def test_the_guard_has_nothing_to_say(case: tuple[Starter, int, Release]) -> None:
    starter, nodes, release = case
    plan = Plan(starter, nodes=nodes, storage_class="shared", release=release)
    text = "---\n".join([class_object("efs.csi.aws.com") + "\n", *map(yaml_of, objects(plan))])
    loaded = load_text(text.encode(), "init")
    assert loaded.errors == []
    view = FileView(loaded.documents, release)
    judged = [document for document in loaded.documents if document.kind in ("TrainingRuntime", "TrainJob")]
    assert len(judged) == 2
    for document in judged:
        request = Request("CREATE", document.kind, document.namespace, document.name, document.object)
        filled = default_object(request, view, Policy(), release)
        assert (filled.patch, filled.findings) == ((), ())
        decision = review_object(request, view, Policy(), release)
        assert decision.findings == ()
        assert decision.broken == ()
        assert decision.facts.nodes == nodes


@pytest.mark.parametrize("starter", STARTERS, ids=lambda starter: starter.id)
def test_by_a_policy_of_ones_own(starter: Starter) -> None:
    """What its policy warns of is not written, and the directory is declared by a variable that it knows."""
    policy = Policy(
        limits=Limits(max_restarts=2, termination_grace_period_seconds=300), directory=DirectoryPolicy(("OUT_DIR",))
    )
    plan = Plan(starter, nodes=2, storage_class="shared", policy=policy)
    text = "---\n".join([class_object("efs.csi.aws.com") + "\n", *map(yaml_of, objects(plan))])
    assert "CKPT_DIR" not in text
    view = FileView(load_text(text.encode(), "init").documents, Release.V2_3)
    for raw in objects(plan)[1:]:
        request = Request("CREATE", raw["kind"], "default", raw["metadata"]["name"], raw)
        decision = review_object(request, view, policy, Release.V2_3)
        assert decision.findings == ()
        assert (default_object(request, view, policy, Release.V2_3).patch, decision.broken) == ((), ())
    assert decision.facts.directory is not None


OF_NAMESPACES = """apiVersion: checkpoint-guard.io/v1
kind: Policy
namespaces:
- {names: [team-a], limits: {terminationGracePeriodSeconds: 240}, defaults: {maxRestarts: 9, backoffLimit: keep}}
- {selector: {matchLabels: {checkpoint-guard.io/tier: prod}}, mode: warn}
"""


@pytest.mark.parametrize(
    ("flags", "restarts", "grace", "note"),
    [
        (["-n", "team-a"], 9, 240, "1 entry of the policy's namespaces select by labels"),
        (["-n", "team-b"], 3, 60, "1 entry of the policy's namespaces select by labels"),
        ([], 3, 60, "no namespace is named: say -n"),
    ],
)
def test_by_what_the_policy_says_of_the_namespace(
    flags: list[str], restarts: int, grace: int, note: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(OF_NAMESPACES)
    assert main(["init", "--class", "shared", "--policy", str(file), *flags]) == 0
    said = capsys.readouterr()
    assert f"maxRestarts: {restarts}\n" in said.out
    assert f"terminationGracePeriodSeconds: {grace}\n" in said.out
    assert note in said.err


def test_one_node_and_a_class_for_one() -> None:
    plan = Plan(STARTERS[0], nodes=1, storage_class="shared", shared=False)
    text = "---\n".join([class_object("ebs.csi.aws.com") + "\n", *map(yaml_of, objects(plan))])
    view = FileView(load_text(text.encode(), "init").documents, Release.V2_3)
    for raw in objects(plan)[1:]:
        request = Request("CREATE", raw["kind"], "default", raw["metadata"]["name"], raw)
        assert review_object(request, view, Policy(), Release.V2_3).findings == ()


def test_python_in_it_is_python() -> None:
    for starter in STARTERS:
        for path, content in starter.files:
            if path.endswith(".py"):
                compile(content % {"every": 500, "keep": 3, "directory": "/x"}, path, "exec")


WITHOUT = frozenset(
    [
        "composer",
        "dlrover",
        "easylm",
        "keras",
        "lightgbm",
        "litgpt",
        "nemo",
        "nvidia-resiliency",
        "odh-sdk",
        "open-clip",
        "openrlhf",
        "ray-train",
        "stable-baselines3",
        "torchft",
    ]
)
"""Known to the rules, and without a program to start from yet: ``init`` says which it has."""


def test_every_framework_that_is_known_has_one() -> None:
    assert not WITHOUT & {starter.id for starter in STARTERS}
    known = {framework.id for framework in FRAMEWORKS}
    assert len({starter.id for starter in STARTERS}) == len(STARTERS)
    assert known - WITHOUT <= {starter.id for starter in STARTERS}


@pytest.mark.parametrize(
    ("size", "keep", "expected"), [(80 * GI, 3, "320Gi"), (1, 1, "1Gi"), (5 * GI // 2, 2, "8Gi"), (GI + 1, 1, "3Gi")]
)
def test_the_size_has_room_for_one_more(size: int, keep: int, expected: str) -> None:
    assert claim_size(Plan(STARTERS[0], size=size, keep=keep)) == expected


def test_the_size_of_one_checkpoint() -> None:
    table = Policy().checkpoint_sizes
    assert checkpoint_bytes("350M", table) == 2 * GI
    assert checkpoint_bytes("7B", table) == 80 * GI
    assert checkpoint_bytes("70B", table) == 800 * GI
    assert checkpoint_bytes("seven", table) is None


CLASSES = (
    StorageClass("local", "rancher.io/local-path", default=True),
    StorageClass("disk", "ebs.csi.aws.com"),
    StorageClass("odd", "example.com/unknown"),
)


@pytest.mark.parametrize(
    ("more", "nodes", "expected"),
    [
        ((), 1, ("disk", False)),
        ((), 2, None),
        ((StorageClass("z-files", "nfs.csi.k8s.io"), StorageClass("files", "efs.csi.aws.com")), 2, ("files", True)),
        ((StorageClass("z", "nfs.csi.k8s.io", default=True), StorageClass("a", "efs.csi.aws.com")), 2, ("z", True)),
        ((StorageClass("files", "efs.csi.aws.com"),), 1, ("files", True)),
    ],
)
def test_the_class(more: Any, nodes: int, expected: Any) -> None:
    chosen = choose_class((*CLASSES, *more), nodes, Policy())
    assert (None if chosen is None else (chosen[0].name, chosen[1])) == expected


@pytest.mark.parametrize("flags", [["--checkpoint-size", "9999999Ei"], ["--model-params", "1e30B"]])
def test_a_size_that_no_claim_has(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--class", "shared", *flags]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: no claim is large enough for 3 checkpoints of ")


def test_one_kept_is_written_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--class", "shared", "--keep", "1"]) == 0
    said = capsys.readouterr()
    assert "save_total_limit=1" in said.out
    assert "[single-checkpoint-kept]" in said.err


@pytest.mark.parametrize("image", ["", "a b"])
def test_an_image_that_is_none(image: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["init", "--class", "shared", "--image", image])
    assert f'"{image}" is no image' in capsys.readouterr().err


OWN = "<your image>"
FITS = {"pytorch", "torch-distributed-checkpoint", "llamafactory", "axolotl"}
"""Whose framework is in the public image that is written."""


@pytest.mark.parametrize("starter", STARTERS, ids=lambda starter: starter.id)
def test_image_and_program_fit_or_the_image_is_the_users(starter: Starter, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--class", "shared", "--framework", starter.id, "-n", "team"]) == 0
    out = capsys.readouterr().out
    runtime = next(one for one in yaml.safe_load_all(out) if one["kind"] == "TrainingRuntime")
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    head = out[: out.index("apiVersion")]
    assert (pod["containers"][0]["image"] == OWN) is (starter.id not in FITS)
    assert (f"RUN pip install {starter.pip}" in head and f"FROM {starter.base}" in head) is (starter.id not in FITS)
    # Where its own module comes from is shown, and the place where Python looks for it is there.
    if "my_training" in out[len(head) :]:
        assert "kubectl create configmap train-code -n team --from-file=my_training.py" in head
        assert {"name": "code", "configMap": {"name": "train-code", "optional": True}} in pod["volumes"]
        assert {"name": "PYTHONPATH", "value": "/code:/app"} in pod["containers"][0]["env"]
    else:
        assert starter.program
        assert "code" not in [volume["name"] for volume in pod["volumes"]]


def test_an_image_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--class", "shared", "--image", "mine:1"]) == 0
    out = capsys.readouterr().out
    assert "# 1. Image mine:1 has to have Hugging Face Trainer, TRL:" in out
    assert "pip install 'transformers" in out
    assert OWN not in out
