"""Files that a lost node, a full disk or a stranger left: a state of their checkpoint, never the end of the listing."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runs.fake_cluster import FakeCluster
from tests.runs.folders import archive, dcp, deepspeed, found, hf, megatron, safetensors, write
from webhook.cli import checkpoints
from webhook.runs.layouts import Found, find_saved
from webhook.runs.listing import parse


def tensors(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


HEADERS: dict[str, bytes] = {
    "a list": tensors(b"[]" + b" " * 30),
    "no offsets": tensors(json.dumps({"w": {"dtype": "F32", "shape": [4]}}).encode()),
    "empty offsets": tensors(json.dumps({"w": {"data_offsets": [], "dtype": "F32"}}).encode()),
    "one offset": tensors(json.dumps({"w": {"data_offsets": [3], "dtype": "F32"}}).encode()),
    "offsets of text": tensors(json.dumps({"w": {"data_offsets": ["a", "b"], "dtype": "F32"}}).encode()),
    "offsets of lists": tensors(json.dumps({"w": {"data_offsets": [[], []], "dtype": "F32"}}).encode()),
    "negative offsets": tensors(json.dumps({"w": {"data_offsets": [-9, -1], "dtype": "F32"}}).encode()),
    "an entry that is a number": tensors(json.dumps({"w": 5, "x": None, "y": "z" * 20}).encode()),
    "null": tensors(b"null" + b" " * 30),
    "a number": tensors(b"5" + b" " * 30),
    "no JSON": tensors(b"{" * 40),
    "no UTF-8": tensors(b"\xff\xfe" * 20),
    "deep": tensors(b"[" * 200_000),
    "deep objects": tensors(b'{"a":' * 100_000),
    "a length beyond all": struct.pack("<Q", 2**63 + 5) + b"x" * 40,
    "zeros": b"\0" * 4096,
    "random": bytes(range(256)) * 4,
    "more than it says": tensors(json.dumps({"w": {"data_offsets": [0, 4]}}).encode(), b"\0" * 9),
}
CUT: dict[str, bytes] = {
    "three bytes": b"\x10\0\0",
    "the length alone": struct.pack("<Q", 300),
    "in the header": tensors(json.dumps({"w": {"data_offsets": [0, 16]}}).encode())[:-5],
    "in the data": tensors(json.dumps({"w": {"data_offsets": [0, 16]}}).encode(), b"\0" * 5),
}


@pytest.mark.parametrize("content", HEADERS.values(), ids=HEADERS.keys())
def test_safetensors_that_are_none(tmp_path: Path, content: bytes) -> None:
    hf(tmp_path, 1)
    write(hf(tmp_path, 2) / "model.safetensors", content)
    write(tmp_path / "model_step_3.safetensors", content)
    states = {one.path: (one.state, one.why) for one in found(tmp_path).saved}
    assert states["checkpoint-1"] == ("complete", "")
    assert states["checkpoint-2"] == ("damaged", "damaged: model.safetensors cannot be read")
    assert states["model_step_3.safetensors"] == ("damaged", "damaged: it cannot be read")
    newest = found(tmp_path).newest_complete()
    assert newest is not None
    assert newest.path == "checkpoint-1"


@pytest.mark.parametrize("content", CUT.values(), ids=CUT.keys())
def test_safetensors_that_were_cut_off(tmp_path: Path, content: bytes) -> None:
    write(hf(tmp_path, 2) / "model.safetensors", content)
    (one,) = found(tmp_path).saved
    assert (one.state, one.why) == ("incomplete", "lacks the end of model.safetensors")


@pytest.mark.parametrize(
    "content",
    [b"{", b'{"global_step": 5', b"[]", b"null", b"\xff\xfe\0", b"[" * 200_000, b"\0" * 500, b'{"a":' * 100_000],
    ids=["begin", "cut", "list", "null", "binary", "deep", "zeros", "deep objects"],
)
@pytest.mark.parametrize("name", ["trainer_state.json", "model.safetensors.index.json"])
def test_json_that_no_restart_can_read(tmp_path: Path, name: str, content: bytes) -> None:
    hf(tmp_path, 1)
    write(hf(tmp_path, 2) / name, content)
    states = {one.path: (one.state, one.why) for one in found(tmp_path).saved}
    assert states == {
        "checkpoint-1": ("complete", ""),
        "checkpoint-2": ("damaged", f"damaged: {name} cannot be read"),
    }


def test_a_long_history_is_not_parsed_as_a_whole(tmp_path: Path) -> None:
    history = json.dumps(
        {"global_step": 2, "log_history": [{"loss": 0.1, "step": at} for at in range(60_000)]}
    ).encode()
    assert len(history) > 1_000_000
    write(hf(tmp_path, 1) / "trainer_state.json", history + b"\n")
    write(hf(tmp_path, 2) / "trainer_state.json", history[:-9])
    write(hf(tmp_path, 3) / "trainer_state.json", b"\0" * len(history))
    assert [one.state for one in found(tmp_path).saved] == ["complete", "incomplete", "damaged"]


ZEROED: dict[str, Callable[[Path], Path]] = {
    "hf": lambda root: hf(root, 2) / "optimizer.pt",
    "deepspeed": lambda root: deepspeed(root, 2) / "zero_pp_rank_0_mp_rank_00_optim_states.pt",
    "dcp": lambda root: dcp(root, 2) / "__0_0.distcp",
    "dcp metadata": lambda root: dcp(root, 2) / ".metadata",
    "megatron": lambda root: megatron(root, 2) / "mp_rank_00" / "model_optim_rng.pt",
    "file": lambda root: root / "step_2.pt",
}


@pytest.mark.parametrize("made", ZEROED.values(), ids=ZEROED.keys())
def test_zeros_in_the_place_of_what_was_written(tmp_path: Path, made: Callable[[Path], Path]) -> None:
    """XFS and ext4 leave them where the power went before the data were written and after the size was."""
    write(made(tmp_path), b"\0" * 4096)
    (one,) = found(tmp_path).saved
    assert one.state == "damaged"


@pytest.mark.parametrize("content", [b"", b"\0", b"\xff" * 300, b"[" * 200_000, b"a\nb\tEND\nEND\n"])
@pytest.mark.parametrize(
    "name", ["latest", "latest_checkpointed_iteration.txt", "checkpoint-2/latest", "0/_CHECKPOINT_METADATA", "x.json"]
)
def test_no_file_ends_the_listing(tmp_path: Path, name: str, content: bytes) -> None:
    hf(tmp_path, 1)
    write(tmp_path / name, content)
    assert "checkpoint-1" in {one.path for one in found(tmp_path).saved}


@pytest.mark.parametrize("ending", [".pt", ".pth", ".ckpt", ".npz", ".bin", ".safetensors", ".json", ".pkl", ".ubj"])
def test_no_length_ends_the_listing(tmp_path: Path, ending: str) -> None:
    whole = archive(tmp_path / "whole").read_bytes()
    header = safetensors(tmp_path / "tensors").read_bytes()
    for length in (1, 3, 4, 8, 21, 22, 40):
        write(tmp_path / f"step_{length}{ending}", whole[:length])
        write(tmp_path / f"model_{100 + length}{ending}", header[:length])
    assert len(found(tmp_path).saved) == 14


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    """A pipe to which nobody writes would never be read to its end."""
    hf(tmp_path, 1)
    for name in ("latest", "step_5.pt", "checkpoint-1/trainer_state.json.index.json"):
        os.mkfifo(tmp_path / name)
    assert "checkpoint-1" in {one.path for one in found(tmp_path).saved}


def test_what_a_container_prints_of_its_own() -> None:
    """The tools are the image's: nothing that they say raises."""
    lines = [
        "f\tinf\tnan\t\tstep_1.pt", "f\t-5\t-inf\t\tstep_2.pt", "f\t1e400\tx\t\tstep_3.pt", "f\t\t\t\t", "f\t5\t5\t\t/",
        "d\t5\t5\t\t//a", f"f\t5\t5\t\t{'a/' * 5000}step_4.pt", f"f\t5\t5\t\tstep_{'9' * 4000}.pt",
        "TEXT\tlatest\t\x1b[2J",
        f"f\t5\t5\t\tcheckpoint-5/zero_pp_rank_{'9' * 5000}_mp_rank_0_optim_states.pt",
        "LINK\t\t", "TEXT\t\t", "DENIED",
        f"f\t5\t5\t\titer_5/mp_rank_{'9' * 5000}/x.pt",
        "f\t5\t5\t\tcheckpoint-\u0665/x.bin", "f\t5\t5\t\tcheckpoint-\u00b2/x.bin",
    ]  # fmt: skip
    told = parse("\n".join(["CKPTGUARD\tsh\tinf", *lines, "END", ""]))
    assert told.state == "there"
    assert isinstance(find_saved(told), Found)


def test_it_is_told_in_both_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hf(tmp_path / "run", 100)
    write(hf(tmp_path / "run", 200) / "model.safetensors", HEADERS["deep"])
    fake = FakeCluster(tmp_path)
    assert checkpoints._list(fake.session([]), "text") == 0
    said = capsys.readouterr().out
    assert "  damaged   takes this  checkpoint-200    damaged: model.safetensors cannot be read" in said
    assert "step 100 (checkpoint-100) is complete: ckptguard resume run --from-step 100" in said.replace(" -n team", "")
    assert checkpoints._list(fake.session([]), "json") == 0
    one, two = json.loads(capsys.readouterr().out)["checkpoints"]
    assert (one["state"], two["state"], two["complete"]) == ("complete", "damaged", False)
