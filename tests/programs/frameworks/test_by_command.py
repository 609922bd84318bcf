"""Frameworks that are started by a command of their own: torchtune, axolotl, verl."""

import pytest

from tests.programs.frameworks.reading import OUT, none, only, shell, value


def test_torchtune_resumes_only_when_told() -> None:
    text = "tune run --nproc_per_node 2 full_finetune_distributed --config llama3/8B_full output_dir=$CKPT_DIR"
    found = only(shell(text), "torchtune")
    assert (value(found.directory), value(found.resume), found.partial) == (OUT, None, False)
    assert value(only(shell(text + " resume_from_checkpoint=True"), "torchtune").resume) is True


def test_torchtune_with_a_file() -> None:
    text = "tune run lora_finetune_single_device --config /cfg/a.yaml"
    assert value(only(shell(text), "torchtune").resume) == "?"
    text = "cat > a.yaml <<EOF\noutput_dir: $CKPT_DIR\nresume_from_checkpoint: true\nEOF\ntune run x --config a.yaml"
    found = only(shell(text), "torchtune")
    assert (value(found.directory), value(found.resume)) == (OUT, True)
    none(shell("tune download meta-llama/x --output-dir /tmp/x"))


AXOLOTL = "cat > a.yaml <<EOF\noutput_dir: $CKPT_DIR\n{more}\nEOF\naxolotl train a.yaml {flags}"


@pytest.mark.parametrize(
    ("more", "flags", "resume", "keep", "every"),
    [
        ("", "", None, 4, "?"),
        ("auto_resume_from_checkpoints: true", "", "auto", 4, "?"),
        ("resume_from_checkpoint: /mnt/ckpt/run/checkpoint-9", "", "/mnt/ckpt/run/checkpoint-9", 4, "?"),
        ("save_steps: 100\nsave_total_limit: 2", "--auto-resume-from-checkpoints true", "auto", 2, 100),
    ],
)
def test_axolotl(more: str, flags: str, resume: object, keep: object, every: object) -> None:
    found = only(shell(AXOLOTL.format(more=more, flags=flags)), "axolotl")
    expected = (OUT, resume, keep, every)
    assert (value(found.directory), value(found.resume), value(found.keep), value(found.every)) == expected
    assert value(found.saves) is True


def test_axolotl_saves_nothing_when_told() -> None:
    assert value(only(shell(AXOLOTL.format(more='save_strategy: "no"', flags="")), "axolotl").saves) is False
    assert value(only(shell("accelerate launch -m axolotl.cli.train /cfg/a.yaml"), "axolotl").saves) == "?"
    none(shell("axolotl preprocess a.yaml"))


def test_verl_saves_nothing_by_default() -> None:
    text = "python3 -m verl.trainer.main_ppo trainer.default_local_dir=$CKPT_DIR trainer.total_epochs=3"
    found = only(shell(text), "verl")
    assert (value(found.directory), value(found.saves), value(found.resume)) == (OUT, False, "auto")
    assert (value(found.keep), value(found.full), value(found.overwrite)) == (None, True, False)


def test_verl_as_told() -> None:
    text = (
        "python3 -m verl.trainer.main_ppo trainer.save_freq=20 trainer.max_actor_ckpt_to_keep=3 "
        "trainer.resume_mode=disable actor_rollout_ref.actor.checkpoint.save_contents=['model']"
    )
    found = only(shell(text), "verl")
    assert (value(found.every), value(found.keep), value(found.saves)) == (20, 3, True)
    assert (value(found.resume), value(found.full), value(found.overwrite)) == (None, False, True)


def test_verl_with_a_configuration_of_its_own() -> None:
    found = only(shell("python3 -m verl.trainer.main_ppo --config-name mine"), "verl")
    assert (found.partial, value(found.saves), value(found.keep)) == (True, "?", "?")
    found = only(shell("torchrun -m verl.trainer.sft_trainer trainer.max_ckpt_to_keep=2"), "verl")
    assert value(found.keep) == 2
