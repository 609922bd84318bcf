"""RunWhere's own snippets, where they are at hand: each is judged as it deserves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.script.reading import LOOKS, python, remarks
from webhook.cluster.files import FileView, load_files
from webhook.decision import review_object
from webhook.model.finding import Severity
from webhook.model.names import KINDS
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.model.script import Launch, Remark

SEED = Path(__file__).parents[3] / "shared" / "seeds" / "002_e56bd3de86e972b1.txt"
LAUNCH = Launch(directories=("/ckpts/durable",), fast=("/ckpts/fast",), mounts=("/ckpts",))


def judged(program: str, launch: Launch = LAUNCH) -> dict[str, list[Remark]]:
    """What the rules about programs say of a Python text that is the container's command."""
    script = python(program, launch=launch)
    assert script.unread == ()
    return remarks(script)


def snippet(start: str, end: str) -> str:
    """A snippet of the document, from the line that begins it to the line that ends it."""
    if not SEED.is_file():
        pytest.skip("the document is not at hand")
    text = SEED.read_text()
    begin = text.index(start)
    return text[begin : text.index(end, begin)]


def test_the_guides_runtime_draws_one_finding() -> None:
    """Its shell keeps SIGTERM to itself; everything else in it is right."""
    folder = SEED.parents[1] / "manifests" / "checkpoint-guide"
    if not folder.is_dir():
        pytest.skip("the guide is not at hand")
    documents = load_files([str(folder)]).documents
    for document in documents:
        if document.kind in KINDS:
            request = Request("CREATE", document.kind, document.namespace, document.name, document.object, None)
            decision = review_object(request, FileView(documents, Release.V2_1), Policy(), Release.V2_1)
            about = [finding for finding in decision.findings if finding.rule in LOOKS]
            assert [finding.rule for finding in about if finding.severity is not Severity.AUDIT] == [
                "sigterm-not-forwarded"
            ]
            assert about[0].at.field.endswith("args[0] line 1")
            assert about[0].fix == "exec python - <<'PY'"


def test_save_and_resume_by_number_is_right() -> None:
    resume = snippet("import glob\nimport os\nimport torch", "\n做到这两件事后")
    save = snippet("import torch\n\nCKPT_DIR", "\n启动时恢复")
    assert judged(resume + "\n" + save).keys() <= {"unlimited-checkpoints", "optimizer-not-restored"}


def test_two_tiers_sort_as_text() -> None:
    found = judged(snippet("import glob\nimport os\n\ndef find_latest_ckpt", "\nfast 适合"))
    assert list(found) == ["text-order-resume"]
    assert found["text-order-resume"][0].place.line == 10


def test_hugging_face_example_resumes_nothing() -> None:
    found = judged(snippet("from transformers import", "\nDeepSpeed").replace(", ...)", ")"))
    assert "unused-resume-argument" in found
    assert "never-resumed" not in found
    assert found["unused-resume-argument"][0].place.line == 8


def test_deepspeed_example_is_right() -> None:
    program = snippet('model.save_checkpoint("/ckpts', "\nPyTorch Distributed")
    assert judged("import deepspeed\nmodel, *_ = deepspeed.initialize()\nstep = 1\n" + program) == {}


def test_distributed_checkpoint_example_is_right() -> None:
    assert judged(snippet("import torch.distributed.checkpoint as dcp", "\n保存频率")) == {}
