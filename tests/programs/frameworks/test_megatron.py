import pytest

from tests.programs.frameworks.reading import OUT, none, only, shell, value

LINE = "torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 1 --tensor-model-parallel-size 2 {flags}"


def test_the_three_switches() -> None:
    flags = "--save $CKPT_DIR --load $CKPT_DIR --save-interval 500 --train-iters 5000"
    found = only(shell(LINE.format(flags=flags)), "megatron")
    assert (value(found.directory), value(found.resume)) == (OUT, OUT)
    assert (value(found.every), value(found.until), value(found.saves), value(found.keep)) == (500, 5000, True, None)
    assert (value(found.full), value(found.flushes), value(found.overwrite)) == (True, False, False)


def test_flags_in_a_variable_and_in_an_array() -> None:
    text = 'ARGS="--save $CKPT_DIR --save-interval 100"\nMORE=(--load "$CKPT_DIR")\n'
    found = only(shell(text + LINE.format(flags='$ARGS "${MORE[@]}"')), "megatron")
    assert not found.partial
    assert (value(found.directory), value(found.resume), value(found.every)) == (OUT, OUT, 100)


def test_flags_that_nobody_sees() -> None:
    found = only(shell(LINE.format(flags="--save $CKPT_DIR $EXTRA")), "megatron")
    assert found.partial
    assert (value(found.resume), value(found.saves), value(found.flushes)) == ("?", "?", "?")


@pytest.mark.parametrize("flags", ["--save $CKPT_DIR", "--save-interval 100"])
def test_one_without_the_other_saves_nothing(flags: str) -> None:
    assert value(only(shell(LINE.format(flags=flags)), "megatron").saves) is False


def test_finetuning_from_elsewhere_throws_nothing_away() -> None:
    own = "--save $CKPT_DIR --load $CKPT_DIR --save-interval 100 --finetune --no-load-optim"
    other = "--save $CKPT_DIR --load /models/base --save-interval 100 --finetune --no-load-optim"
    found = only(shell(LINE.format(flags=own)), "megatron")
    assert (value(found.overwrite), value(found.loads)) == (True, False)
    found = only(shell(LINE.format(flags=other)), "megatron")
    assert (value(found.overwrite), value(found.loads)) == ("?", "?")


def test_what_is_kept() -> None:
    base = "--save $CKPT_DIR --save-interval 100 "
    assert value(only(shell(LINE.format(flags=base + "--most-recent-k 2")), "megatron").keep) == 2
    assert value(only(shell(LINE.format(flags=base + "--save-retain-interval 1000")), "megatron").keep) == "?"


def test_mindspeed() -> None:
    text = "torchrun posttrain_gpt.py --micro-batch-size 1 --stage sft --save $CKPT_DIR --save-interval 10"
    assert value(only(shell(text), "megatron").resume) is None


def test_other_programs_with_such_names() -> None:
    none(shell("python pretrain_vae.py --save /mnt/ckpt/run"))
    none(shell("torchrun train.py --save /mnt/ckpt/run --load /mnt/ckpt/run"))
