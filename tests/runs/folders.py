"""Small checkpoint directories as the frameworks leave them, and what the listing script says of them."""

from __future__ import annotations

import json
import struct
import subprocess
import zipfile
from pathlib import Path

from webhook.runs.layouts import Found, find_saved
from webhook.runs.listing import Listing, command, parse


def write(path: Path, content: bytes = b"content") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def archive(path: Path, cut: bool = False) -> Path:
    """What `torch.save` writes since 1.6: a zip archive; or the beginning of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", b"x" * 200)
    if cut:
        path.write_bytes(path.read_bytes()[:-30])
    return path


def safetensors(path: Path, cut: bool = False) -> Path:
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    return write(path, struct.pack("<Q", len(header)) + header + b"\0" * (8 if cut else 16))


def hf(root: Path, step: int, *, lacks: str = "") -> Path:
    folder = root / f"checkpoint-{step}"
    safetensors(folder / "model.safetensors")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        if name != lacks:
            archive(folder / name)
    if lacks != "trainer_state.json":
        write(folder / "trainer_state.json", json.dumps({"global_step": step}).encode())
    return folder


def deepspeed(root: Path, step: int, ranks: int = 2, *, latest: bool = True) -> Path:
    folder = root / f"global_step{step}"
    archive(folder / "mp_rank_00_model_states.pt")
    for rank in range(ranks):
        archive(folder / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    if latest:
        write(root / "latest", folder.name.encode())
    return folder


def dcp(root: Path, step: int, *, done: bool = True) -> Path:
    folder = root / f"step_{step}"
    for rank in range(2):
        write(folder / f"__{rank}_0.distcp")
    if done:
        write(folder / ".metadata")
    return folder


def megatron(root: Path, step: int, *, tracked: bool = True, ranks: int = 2) -> Path:
    folder = root / f"iter_{step:07d}"
    for rank in range(ranks):
        archive(folder / f"mp_rank_{rank:02d}" / "model_optim_rng.pt")
    if tracked:
        write(root / "latest_checkpointed_iteration.txt", str(step).encode())
    return folder


def listing(root: Path) -> Listing:
    """What the script says, run here as it would be in a container."""
    done = subprocess.run(command(str(root)), capture_output=True, check=False, timeout=60)
    return parse(done.stdout.decode(errors="replace"))


def found(root: Path) -> Found:
    return find_saved(listing(root))


def table(root: Path) -> dict[str, bool | None]:
    """Path -> complete."""
    return {saved.path: saved.complete for saved in found(root).saved}
