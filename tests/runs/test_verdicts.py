"""What a pod's first lines say. The lines are those that the frameworks print."""

from __future__ import annotations

import pytest

from webhook.runs.verdicts import read_log


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("[checkpoint] resuming from /mnt/ckpt/sft-run-1/checkpoint-150", 150),
        ("Resumed from step 12001", 12001),
        ("  Continuing training from global step 500", 500),
        ("successfully loaded checkpoint from /ckpt/run [ t 1/2, p 1/1 ] at iteration 1500", 1500),
        ("Restoring states from the checkpoint path at /ckpt/epoch=1-step=950.ckpt", 950),
        ("INFO accelerate: Loading states from /ckpt/checkpoints/checkpoint_3", 3),
        ("Loading checkpoint from /ckpts/durable/step_500.pt", 500),
        ("resuming from round 20", None),
        ("Resuming training from epoch 3", None),
        ("[checkpoint] resuming from /ckpt/step_100.", 100),
    ],
)
def test_resumed(line: str, step: int | None) -> None:
    verdict = read_log(f"INFO start\n{line}\nstep 1 loss 2.0\n")
    assert verdict is not None
    assert (verdict.resumed, verdict.step) == (True, step)
    assert verdict.line == line.strip()


@pytest.mark.parametrize(
    "line",
    [
        "[checkpoint] no prior checkpoint, starting fresh",
        "No checkpoint found, starting from scratch",
        "WARNING: could not find the metadata file /ckpt/latest_checkpointed_iteration.txt",
        "    will not load any checkpoints and will start from random",
        "Starting training from step 0",
    ],
)
def test_afresh(line: str) -> None:
    verdict = read_log(f"hello\n{line}")
    assert verdict is not None
    assert not verdict.resumed


@pytest.mark.parametrize(
    "line",
    [
        "",
        "epoch 1 loss 0.3",
        "Loading checkpoint shards: 100%|##| 3/3 [00:02]",
        "Loading model-00001-of-00003.safetensors",
        "resume_from_checkpoint=None,",
        "Resume from checkpoint: None",
        "loaded 12000 samples",
        "wandb: Resuming run llama-model-7",
        "wandb: Resuming run sft checkpoint-12",
        "Resuming the record at https://tracker.example/runs/step-5",
        "Load checkpoint-12 failed: no such file",
        "Failed to load checkpoint step_300.pt, trying another",
        "could not resume from step 300",
        "Cannot restore checkpoint /mnt/ckpt/step_300",
        "restored 0 parameters, model 7B",
        "Loading dataset shard step-3",
        "Loading base model org/name checkpoint-100",
        "checkpoint saved at step 100",
        "x" * 5000,
    ],
)
def test_says_nothing(line: str) -> None:
    assert read_log(line) is None


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("loading configuration file /models/sft/checkpoint-500/config.json", None),
        ("Loading checkpoint from /models/base/step_7.pt", None),
        ("Loading model from /mnt/ckpt/run/checkpoint-200.", 200),
        ("loading checkpoint step-40", 40),
        # A word of its own is believed wherever it points: the volume may be mounted twice.
        ("resuming from /mnt/same/run/checkpoint-60", 60),
    ],
)
def test_what_is_loaded_from_elsewhere_is_no_resume(line: str, step: int | None) -> None:
    verdict = read_log(f"{line}\n", "/mnt/ckpt/run")
    assert (verdict.step if verdict is not None else None) == step


def test_an_attempt_that_failed_leaves_the_word_to_the_next_line() -> None:
    verdict = read_log("Failed to load checkpoint-300: truncated\nresuming from /mnt/ckpt/run/checkpoint-200\n")
    assert verdict is not None
    assert verdict.step == 200
