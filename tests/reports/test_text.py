"""The text that people read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reports.reviews import BAD, FAULT, GOOD, REVIEW
from webhook.model.finding import Judged, Origin, Severity
from webhook.model.names import INJECTED
from webhook.reports.review import Place, Review, Reviewed
from webhook.reports.text import fault_line, render, summary


def test_blocks_patch_and_summary() -> None:
    assert list(render(REVIEW)) == [
        "TrainJob/bad in team  jobs/a b.yaml:3: denied",
        "  program: not found: /code/a.py (why)",
        "",
        '  env CKPT_DIR: volume "a\\x1b[31m<&\\x00\\ud800" is "gone" [ephemeral-checkpoint] (denied, jobs/a b.yaml:12)',
        "    at: spec.trainer.env[0]",
        "    why: the run starts again at step 0",
        "    fix:",
        "      - name: ckpt",
        "        persistentVolumeClaim:",
        "          claimName: train-ckpt",
        "",
        "  TrainingRuntime/r grace: terminationGracePeriodSeconds is 30 [short-grace] (warning)",
        "    at: spec.template",
        "    why: no time to flush",
        "    fix: terminationGracePeriodSeconds: 60",
        "",
        "  x: from a Secret [unresolved-directory] (noted)",
        "    why: unknown",
        "    fix: none",
        "",
        "ClusterTrainingRuntime/torch (update)  -:1: allowed",
        "",
        "filled in on admission, and recorded in annotation checkpoint-guard.io/injected:",
        "",
        "  --- TrainJob/bad as written",
        "  +++ TrainJob/bad as stored",
        "  @@ -1,2 +1,4 @@",
        "   spec:",
        "     trainer: {}",
        "  +  x:",
        "  +    z: 1",
        "",
        "judged as with the guard installed, which fills in the object above; without it: --without-guard",
        "2 reviewed: 1 denied, 1 allowed (1 warning); 2 errors, see above",
    ]


def test_colour_changes_nothing_but_colour() -> None:
    import re

    painted = list(render(REVIEW, colour=True))
    assert painted != list(render(REVIEW))
    assert [re.sub("\x1b\\[[0-9;]*m", "", line) for line in painted] == list(render(REVIEW))


def test_objects_without_anything_to_say_take_one_line_each() -> None:
    assert list(render(Review((GOOD, GOOD)))) == [
        "ClusterTrainingRuntime/torch (update)  -:1: allowed",
        "ClusterTrainingRuntime/torch (update)  -:1: allowed",
        "",
        "judged as with the guard installed, which fills in nothing here",
        "2 reviewed: 2 allowed",
    ]


def test_fault_names_file_line_and_field() -> None:
    assert fault_line(FAULT) == 'error: /abs/broken.yaml:7: spec.a: key "a" stands twice'


def test_summary_without_faults() -> None:
    assert summary(Review((BAD,))) == "1 reviewed: 1 denied (1 warning)"


def test_what_two_objects_have_from_one_runtime_is_explained_once() -> None:
    text = list(render(Review((BAD, BAD))))
    told = text.index("    why, fix: as above")
    assert text[told - 1] == "  TrainingRuntime/r grace: terminationGracePeriodSeconds is 30 [short-grace] (warning)"
    assert text.count("    why: no time to flush") == 1
    assert text.count("    why: the run starts again at step 0") == 2, "a denial of its own is always whole"


def test_an_object_without_a_runtime_is_not_called_good() -> None:
    unseen = Judged(
        "unknown-runtime", Severity.AUDIT, Origin("TrainJob/a", "spec.runtimeRef", "runtimeRef"), "p", "w", "f"
    )
    result = Reviewed("TrainJob", "team", "a", "CREATE", Place("a.yaml", 1), "allow", (unseen,), judged=False)
    assert list(render(Review((result, GOOD)))) == [
        "TrainJob/a in team  a.yaml:1: allowed, not judged",
        "",
        "  runtimeRef: p [unknown-runtime] (noted)",
        "    why: w",
        "    fix: f",
        "",
        "ClusterTrainingRuntime/torch (update)  -:1: allowed",
        "",
        "judged as with the guard installed, which fills in nothing here",
        "2 reviewed: 1 allowed, 1 not judged",
    ]


@pytest.mark.parametrize(
    "before",
    [
        {},
        {"metadata": {}},
        {"metadata": {"annotations": {}}},
        {"metadata": {"annotations": {"a": "b", INJECTED: "{}"}}},
    ],
)
def test_the_record_of_what_was_added_is_not_shown_beside_it(before: dict[str, Any]) -> None:
    annotations = {**before.get("metadata", {}).get("annotations", {}), INJECTED: '{"maxRestarts":3}'}
    after = {"metadata": {"annotations": annotations}, "spec": {}}
    patch = ({"op": "add", "path": "/spec", "value": {}},)
    result = Reviewed(
        "TrainingRuntime", "t", "r\x1b", "CREATE", Place("-"), "allow", patch=patch, before=before, after=after
    )
    lines = list(render(Review((result,))))
    assert "  +++ TrainingRuntime/r\\x1b as stored" in lines
    assert [line for line in lines if line.startswith("  +") and "+++" not in line] in (
        ["  +spec: {}"],
        ["  +metadata: {}", "  +spec: {}"],
    )
    assert not any("maxRestarts" in line for line in lines)
