from tests.programs.frameworks.reading import OUT, none, only, shell, value

CONFIG = """
cat > sft.yaml <<'EOF'
stage: sft
do_train: true
output_dir: /mnt/ckpt/run
save_steps: 200
{extra}
EOF
llamafactory-cli train sft.yaml {flags}
"""


def test_the_file_says_it() -> None:
    found = only(shell(CONFIG.format(extra="save_total_limit: 2", flags="")), "llamafactory")
    assert value(found.directory) == OUT
    assert (value(found.every), value(found.keep), value(found.saves)) == (200, 2, True)
    assert (value(found.resume), value(found.overwrite), value(found.full)) == (None, False, True)
    assert found.every is not None
    assert found.every.written == "save_steps: 200"
    assert found.every.place.line == 6


def test_a_word_of_the_command_wins_over_the_file() -> None:
    text = CONFIG.format(extra="overwrite_output_dir: false", flags="overwrite_output_dir=true")
    found = only(shell(text), "llamafactory")
    assert value(found.overwrite) is True
    assert found.overwrite is not None
    assert found.overwrite.written == "overwrite_output_dir=true"


def test_told_what_to_resume_from_it_overwrites_nothing() -> None:
    extra = "overwrite_output_dir: true\nresume_from_checkpoint: /mnt/ckpt/run/checkpoint-100"
    assert value(only(shell(CONFIG.format(extra=extra, flags="")), "llamafactory").overwrite) == "?"


def test_a_file_of_the_image_leaves_everything_open() -> None:
    found = only(shell("llamafactory-cli train /app/sft.yaml save_steps=50"), "llamafactory")
    assert found.partial
    assert (value(found.every), value(found.keep), value(found.overwrite)) == (50, "?", "?")


def test_prediction_saves_no_checkpoints() -> None:
    none(shell("llamafactory-cli train stage=sft do_train=false do_predict=true output_dir=/mnt/ckpt/run"))
    none(shell("llamafactory-cli chat model.yaml"))


def test_its_script_under_a_launcher() -> None:
    text = "torchrun --nproc_per_node 8 src/train.py --stage sft --do_train --output_dir /mnt/ckpt/run"
    assert value(only(shell(text), "llamafactory").directory) == OUT


def test_deepspeed_s_own_file_is_not_its_configuration() -> None:
    text = (
        "deepspeed src/train_bash.py --deepspeed ds.json --stage sft --do_train --overwrite_output_dir --output_dir /o"
    )
    found = only(shell(text), "llamafactory")
    assert not found.partial
    assert value(found.overwrite) is True
