"""Which checkpoints are complete, framework by framework, and which one a restart takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.runs.folders import archive, dcp, deepspeed, found, hf, listing, megatron, safetensors, table, write
from webhook.runs.layouts import find_saved
from webhook.runs.listing import Listing


def taken(root: Path) -> str | None:
    saved = found(root).taken
    return None if saved is None else saved.path


def newest(root: Path) -> str | None:
    saved = found(root).newest_complete()
    return None if saved is None else saved.path


def test_hugging_face(tmp_path: Path) -> None:
    for step in (50, 100, 1000):
        hf(tmp_path, step)
    hf(tmp_path, 1500, lacks="trainer_state.json")
    write(tmp_path / "README.md")
    assert table(tmp_path) == {
        "checkpoint-50": True,
        "checkpoint-100": True,
        "checkpoint-1000": True,
        "checkpoint-1500": False,
    }
    # get_last_checkpoint takes the highest number, whatever is in it.
    assert taken(tmp_path) == "checkpoint-1500"
    assert newest(tmp_path) == "checkpoint-1000"


@pytest.mark.parametrize("lacks", ["trainer_state.json", "optimizer.pt"])
def test_hugging_face_lacks(tmp_path: Path, lacks: str) -> None:
    hf(tmp_path, 5, lacks=lacks)
    (saved,) = found(tmp_path).saved
    assert saved.complete is False
    assert ("optimizer" in saved.why) is (lacks == "optimizer.pt")


def test_hugging_face_with_shards_fsdp_and_deepspeed(tmp_path: Path) -> None:
    sharded = hf(tmp_path, 10)
    for part in (1, 2, 3):
        safetensors(sharded / f"model-{part:05d}-of-00003.safetensors")
    short = hf(tmp_path, 20)
    safetensors(short / "model-00001-of-00003.safetensors")
    fsdp = hf(tmp_path, 30, lacks="optimizer.pt")
    write(fsdp / "optimizer_0" / ".metadata")
    inside = hf(tmp_path, 40, lacks="optimizer.pt")
    deepspeed(inside, 40)
    assert table(tmp_path) == {
        "checkpoint-10": True,
        "checkpoint-20": False,
        "checkpoint-30": True,
        "checkpoint-40": True,
    }
    # The file latest within a checkpoint names a part of it.
    assert taken(tmp_path) == "checkpoint-40"


def test_deepspeed_within_another_writers_folder(tmp_path: Path) -> None:
    def within(name: str, ranks: tuple[int, ...]) -> None:
        folder = hf(tmp_path, 9, lacks="optimizer.pt").rename(tmp_path / name)
        archive(folder / "global_step1" / "mp_rank_00_model_states.pt")
        for rank in ranks:
            archive(folder / "global_step1" / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
        write(folder / "random_states_0.pkl")
        if name != "checkpoint-3":
            write(folder / "latest", b"global_step1")

    for name, ranks in (("checkpoint-1", (0, 1, 2)), ("checkpoint-2", (0, 2)), ("checkpoint-3", (0, 1, 2))):
        within(name, ranks)
    within("epoch_1", (0, 1))
    assert {one.path: one.why for one in found(tmp_path).saved} == {
        "checkpoint-1": "",
        "checkpoint-2": "lacks 1 of 3 optimizer shards",
        "checkpoint-3": "lacks the file latest",
        "epoch_1": "lacks 1 of 3 optimizer shards",
    }


def test_a_rank_that_is_missing_by_what_the_others_are_called(tmp_path: Path) -> None:
    for rank in range(3):
        archive(tmp_path / "global_step1" / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
    for rank in range(2):
        archive(tmp_path / "global_step1" / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    write(tmp_path / "latest", b"global_step1")
    assert found(tmp_path).saved[0].why == "lacks 1 of 3 optimizer shards"
    for shard in ("00_000", "01_000", "01_001"):
        archive(tmp_path / "m" / "iter_0000001" / f"mp_rank_{shard}" / "model_optim_rng.pt")
    write(tmp_path / "m" / "latest_checkpointed_iteration.txt", b"1")
    assert {one.path: one.why for one in found(tmp_path).saved}["m/iter_0000001"] == "lacks 1 of 4 ranks' files"


def test_an_index_is_no_weights_and_a_temporary_name_not_final(tmp_path: Path) -> None:
    (hf(tmp_path, 1) / "model.safetensors").unlink()
    write(tmp_path / "checkpoint-1" / "model.safetensors.index.json", b'{"weight_map": {}}')
    hf(tmp_path, 2).rename(tmp_path / "tmp-checkpoint-2")
    assert [one.why for one in found(tmp_path).saved] == ["lacks the weights", "lacks its final name"]


def test_a_temporary_name_is_not_final_whatever_framework_writes_in_it(tmp_path: Path) -> None:
    dcp(tmp_path, 500).rename(tmp_path / "step_500.part")
    write(tmp_path / "writing.tmp" / "random_states_0.pkl")
    safetensors(tmp_path / "writing.tmp" / "model.safetensors")
    archive(tmp_path / "writing.tmp" / "optimizer.bin")
    assert [(one.layout, one.temporary, one.complete) for one in found(tmp_path).saved] == [
        ("dcp", True, False),
        ("accelerate", True, False),
    ]
    assert newest(tmp_path) is None


def test_where_frameworks_put_them_by_themselves(tmp_path: Path) -> None:
    for at, path in enumerate(("lightning_logs/version_0/checkpoints/epoch=0-step=5.ckpt", "checkpoint_6")):
        archive(tmp_path / str(at) / path)
    assert [one.step for one in found(tmp_path / "0").saved + found(tmp_path / "1").saved] == [5, 6]
    write(tmp_path / "2" / "__0_0.distcp")
    assert (taken(tmp_path / "2"), found(tmp_path / "2").saved[0].complete) == (".", False)
    write(tmp_path / "2" / ".metadata")
    assert found(tmp_path / "2").saved[0].complete is True


def test_a_file_that_was_cut_off(tmp_path: Path) -> None:
    archive(hf(tmp_path, 1) / "optimizer.pt", cut=True)
    safetensors(hf(tmp_path, 2) / "model.safetensors", cut=True)
    hf(tmp_path, 3)
    assert table(tmp_path) == {"checkpoint-1": False, "checkpoint-2": False, "checkpoint-3": True}
    assert "the end of optimizer.pt" in found(tmp_path).saved[0].why


def test_deepspeed(tmp_path: Path) -> None:
    deepspeed(tmp_path, 100, 4)
    deepspeed(tmp_path, 200, 4)
    deepspeed(tmp_path, 300, 3, latest=False)
    assert table(tmp_path) == {"global_step100": True, "global_step200": True, "global_step300": False}
    assert (taken(tmp_path), newest(tmp_path)) == ("global_step200", "global_step200")
    why = found(tmp_path).saved[-1].why
    assert "1 of 4 optimizer shards" in why
    assert "latest, which says global_step200" in why


def test_dcp(tmp_path: Path) -> None:
    dcp(tmp_path, 500)
    dcp(tmp_path, 1000, done=False)
    assert table(tmp_path) == {"step_500": True, "step_1000": False}
    assert (taken(tmp_path), newest(tmp_path)) == ("step_1000", "step_500")


def test_megatron(tmp_path: Path) -> None:
    megatron(tmp_path, 500)
    megatron(tmp_path, 1000)
    megatron(tmp_path, 1500, tracked=False, ranks=1)
    assert table(tmp_path) == {"iter_0000500": True, "iter_0001000": True, "iter_0001500": False}
    assert (taken(tmp_path), newest(tmp_path)) == ("iter_0001000", "iter_0001000")


@pytest.mark.parametrize(
    ("made", "name", "says"),
    [
        (deepspeed, "latest", b"global_step999"),
        (deepspeed, "latest", None),
        (megatron, "latest_checkpointed_iteration.txt", b"999"),
        (megatron, "latest_checkpointed_iteration.txt", b"release"),
        (megatron, "latest_checkpointed_iteration.txt", None),
    ],
)
def test_a_pointer_to_nothing_takes_nothing(tmp_path: Path, made: Any, name: str, says: bytes | None) -> None:
    """DeepSpeed and Megatron take what their file says; without it they start afresh."""
    for step in (100, 200):
        made(tmp_path, step, ranks=2)
    if says is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(says)
    assert found(tmp_path).taken is None
    assert found(tmp_path).pointer == (None if says is None else name)


def test_megatron_distributed(tmp_path: Path) -> None:
    for step, done in ((1, True), (2, False)):
        folder = tmp_path / f"iter_{step:07d}"
        write(folder / "__0_0.distcp")
        write(folder / "common.pt")
        if done:
            write(folder / ".metadata")
    write(tmp_path / "latest_checkpointed_iteration.txt", b"1\n")
    assert table(tmp_path) == {"iter_0000001": True, "iter_0000002": False}


def test_a_file_without_content_is_no_checkpoint(tmp_path: Path) -> None:
    """What a lost node leaves of a file that was closed and not yet written to the disk."""
    write(hf(tmp_path / "hf", 1) / "model.safetensors", b"")
    write(deepspeed(tmp_path / "ds", 2) / "zero_pp_rank_1_mp_rank_00_optim_states.pt", b"")
    write(megatron(tmp_path / "mg", 3) / "mp_rank_00" / "distrib_optim.pt", b"")
    archive(tmp_path / "own" / "step_4" / "model.pt")
    write(tmp_path / "own" / "step_4" / "optimizer.pt", b"")
    write(tmp_path / "own" / "step_5.ckpt", b"")
    assert set(table(tmp_path).values()) == {False}
    assert len(table(tmp_path)) == 5
    # A marker may be empty.
    write(hf(tmp_path / "marked", 6) / "done", b"")
    assert table(tmp_path)["marked/checkpoint-6"] is True


@pytest.mark.parametrize("weights", [None, "adapter_model.safetensors", "unet/x.bin", "pytorch_model_fsdp_0/.metadata"])
def test_a_checkpoint_without_weights(tmp_path: Path, weights: str | None) -> None:
    folders = hf(tmp_path / "hf", 10), tmp_path / "checkpoints" / "checkpoint_1"
    (folders[0] / "model.safetensors").unlink()
    write(folders[1] / "optimizer.bin")
    write(folders[1] / "random_states_0.pkl")
    for folder in folders if weights else ():
        (safetensors if str(weights).endswith(".safetensors") else archive)(folder / str(weights))
    write(folders[0] / "config.json")
    assert set(table(tmp_path).values()) == {weights is not None}
    assert ("the weights" in found(tmp_path).saved[0].why) is (weights is None)


def test_a_folder_that_is_still_empty(tmp_path: Path) -> None:
    """get_last_checkpoint takes it, and the run ends with an error."""
    hf(tmp_path, 10)
    (tmp_path / "checkpoint-20").mkdir()
    assert table(tmp_path) == {"checkpoint-10": True, "checkpoint-20": False}
    assert (taken(tmp_path), newest(tmp_path)) == ("checkpoint-20", "checkpoint-10")


@pytest.mark.parametrize("inside", ["", "/global_step20"])
def test_what_may_not_be_read_is_unknown(tmp_path: Path, inside: str) -> None:
    """Neither complete nor not: who looks is another user than who wrote it."""
    hf(tmp_path, 10)
    (tmp_path / "checkpoint-20" / "global_step20").mkdir(parents=True)
    told = listing(tmp_path)
    seen = find_saved(structs.replace(told, denied=(f"checkpoint-20{inside}",)))
    assert [(saved.step, saved.complete) for saved in seen.saved] == [(10, True), (20, None)]
    assert "may not be read" in seen.saved[1].why


def test_copies_under_other_names_are_not_taken(tmp_path: Path) -> None:
    hf(tmp_path, 10)
    for name in ("checkpoint-20.bak", "old-checkpoint-30", "checkpoint-40 (copy)"):
        hf(tmp_path, 1).rename(tmp_path / name)
    archive(tmp_path / "model_step_50.pt")
    archive(tmp_path / "own" / "step_5.pt")
    assert (taken(tmp_path), newest(tmp_path)) == ("checkpoint-10", "checkpoint-10")
    seen = found(tmp_path)
    assert len(seen.saved) == 6
    assert seen.steps() == [5, 10]
    assert seen.at_step(30) is None


@pytest.mark.parametrize("name", ["checkpoint.pt", "last.ckpt", "last-v2.ckpt"])
def test_one_file_written_over_and_over(tmp_path: Path, name: str) -> None:
    archive(tmp_path / name)
    seen = found(tmp_path)
    assert seen.taken is not None
    assert seen.taken.step is None
    assert seen.newest_complete() == seen.taken
    # Which of two a program reads is its own affair; one with a number tells the step.
    archive(tmp_path / "latest.pt")
    assert taken(tmp_path) is None
    archive(tmp_path / "epoch=2-step=70-v1.ckpt")
    assert (taken(tmp_path), newest(tmp_path)) == ("epoch=2-step=70-v1.ckpt", "epoch=2-step=70-v1.ckpt")


def test_a_folder_of_shards_without_a_number(tmp_path: Path) -> None:
    dcp(tmp_path, 5).rename(tmp_path / "ckpt")
    assert (taken(tmp_path), newest(tmp_path)) == ("ckpt", "ckpt")


def test_verl(tmp_path: Path) -> None:
    """A folder for each model in it; the file beside it says which one is read."""
    for step in (10, 20):
        for model in ("actor", "critic"):
            archive(tmp_path / f"global_step_{step}" / model / "model_world_size_1_rank_0.pt")
    write(tmp_path / "latest_checkpointed_iteration.txt", b"10")
    assert table(tmp_path) == {"global_step_10": None, "global_step_20": None}
    assert taken(tmp_path) == "global_step_10"


@pytest.mark.parametrize(
    "name", ["checkpoint-{}/x.bin", "iter_{}/x.bin", "{}/_CHECKPOINT_METADATA", "step_{}.pt", "step_{}/x.bin"]
)
def test_a_number_that_is_no_step(tmp_path: Path, name: str) -> None:
    """JSON ends at 64 bits, and --from-step takes 15 digits."""
    archive(tmp_path / name.format("9" * 26))
    archive(tmp_path / "step_5.pt")
    assert [saved.step for saved in found(tmp_path).saved if saved.step is not None] == [5]


def test_accelerate_and_training_hub(tmp_path: Path) -> None:
    for number in (0, 1):
        folder = tmp_path / "checkpoints" / f"checkpoint_{number}"
        safetensors(folder / "model.safetensors")
        write(folder / "random_states_0.pkl")
        if number == 0:
            write(folder / "optimizer.bin")
    full = tmp_path / "full_state" / "epoch_3"
    write(full / "optimizer.bin")
    write(full / "random_states_0.pkl")
    assert table(tmp_path) == {
        "checkpoints/checkpoint_0": True,
        "checkpoints/checkpoint_1": False,
        "full_state/epoch_3": True,
    }
    assert [saved.unit for saved in found(tmp_path).saved] == ["number", "number", "epoch"]


def test_orbax(tmp_path: Path) -> None:
    write(tmp_path / "100" / "_CHECKPOINT_METADATA")
    write(tmp_path / "200.orbax-checkpoint-tmp-3" / "default" / "x")
    write(tmp_path / "50" / "default" / "x")
    # Releases that wrote no such file have the name alone to tell.
    assert table(tmp_path) == {"50": None, "100": True, "200.orbax-checkpoint-tmp-3": False}
    assert taken(tmp_path) == "100"


def test_files(tmp_path: Path) -> None:
    archive(tmp_path / "step_100.pt")
    archive(tmp_path / "step_900.pt", cut=True)
    write(tmp_path / "step_1000.pt.tmp")
    archive(tmp_path / "epoch=1-step=950.ckpt")
    archive(tmp_path / "last.ckpt")
    write(tmp_path / "step_7.json")
    write(tmp_path / "step_8.json", b"")
    for name in ("config.json", "train.log", "events.out.tfevents.1", "notes_2024.txt"):
        write(tmp_path / name)
    assert table(tmp_path) == {
        "step_7.json": None,
        "step_8.json": False,
        "step_100.pt": None,
        "step_900.pt": False,
        "epoch=1-step=950.ckpt": None,
        "step_1000.pt.tmp": False,
        "last.ckpt": None,
    }
    seen = found(tmp_path)
    assert seen.at_step(950) is not None
    assert seen.at_step(1000) is None
    assert seen.taken is not None
    assert seen.taken.step == 950


def test_folders_of_somebodys_own(tmp_path: Path) -> None:
    for step in (9, 100):
        archive(tmp_path / "run" / f"ckpt_{step}" / "weights.pt")
    write(tmp_path / "logs" / "2024" / "x.txt")
    assert table(tmp_path) == {"run/ckpt_9": None, "run/ckpt_100": None}
    assert taken(tmp_path) == "run/ckpt_100"
    assert newest(tmp_path) == "run/ckpt_100"


def test_nothing() -> None:
    from webhook.runs.layouts import find_saved

    assert find_saved(Listing("absent")).taken is None


def test_what_was_set_aside_does_not_count(tmp_path: Path) -> None:
    hf(tmp_path, 1)
    hf(tmp_path / ".set-aside" / "20260101T000000Z" / "moved", 2)
    assert list(table(tmp_path)) == ["checkpoint-1"]
