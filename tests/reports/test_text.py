"""The text that people read."""

from __future__ import annotations

from tests.reports.reviews import BAD, FAULT, GOOD, REVIEW
from webhook.reports.review import Review
from webhook.reports.text import fault_line, render, summary


def test_blocks_patch_and_summary() -> None:
    assert list(render(REVIEW)) == [
        "TrainJob/bad in team  jobs/a b.yaml:3: denied",
        "",
        '  spec.trainer.env[0]: volume "a\\x1b[31m<&\\x00\\ud800" is "gone" [ephemeral-checkpoint]'
        " (denied, jobs/a b.yaml:12)",
        "    why: the run starts again at step 0",
        "    fix:",
        "      - name: ckpt",
        "        persistentVolumeClaim:",
        "          claimName: train-ckpt",
        "",
        "  TrainingRuntime/r spec.template: terminationGracePeriodSeconds is 30 [short-grace] (warning)",
        "    why: no time to flush",
        "    fix: terminationGracePeriodSeconds: 60",
        "",
        "  noted: spec.x: from a Secret [unresolved-directory]",
        "",
        "  filled in on admission:",
        "    --- TrainJob/bad as written",
        "    +++ TrainJob/bad as stored",
        "    @@ -1,2 +1,4 @@",
        "     spec:",
        "       trainer: {}",
        "    +  x:",
        "    +    z: 1",
        "",
        "ClusterTrainingRuntime/torch (update)  -:1: allowed",
        "",
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
        "2 reviewed: 2 allowed",
    ]


def test_fault_names_file_line_and_field() -> None:
    assert fault_line(FAULT) == 'error: /abs/broken.yaml:7: spec.a: key "a" stands twice'


def test_summary_without_faults() -> None:
    assert summary(Review((BAD,))) == "1 reviewed: 1 denied (1 warning)"
