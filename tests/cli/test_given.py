"""Configuration files that a program is given, beside it in a ConfigMap or a checkout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.files import write
from tests.cli.mounted import config_map, job, mounted
from tests.cli.test_review import Run, document, rules, run

__all__ = ["run"]

LOOP = """\
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(100000):
    net(torch.ones(4)).sum().backward()
    opt.step()
    if step % 500 == 0:
        state = {{"model": net.state_dict(), "optimizer": opt.state_dict()}}
        torch.save(state, os.path.join({folder}, f"step_{{step}}.pt"))
"""
OTHER = {"directory-not-used", "ephemeral-checkpoint"}


def found(run: Run, folder: Path, data: Mapping[str, str], command: list[str], **more: Any) -> set[str]:
    items = [{"key": key, "path": key.replace("__", "/")} for key in data]
    text = config_map("code", data) + "---\n" + job(command, **mounted(items=items), **more)
    _, answer = document(run, write(folder, "job.yaml", text))
    assert answer["errors"] == []
    return rules(answer)


@pytest.mark.parametrize(
    ("load", "name", "text"),
    [
        ('cfg = OmegaConf.load("/scripts/c.yaml")', "c.yaml", "out:\n  dir: {}\n"),
        ('cfg = yaml.safe_load(open("c.yaml"))', "c.yaml", "out: {{dir: {}}}\n"),
        (
            'with open("c.yml") as stream:\n    cfg = yaml.load(stream, Loader=yaml.SafeLoader)',
            "c.yml",
            "out: {{dir: {}}}\n",
        ),
        ('cfg = json.load(open("/scripts/c.json"))', "c.json", '{{"out": {{"dir": "{}"}}}}\n'),
        ('with open("c.toml", "rb") as stream:\n    cfg = tomllib.load(stream)', "c.toml", '[out]\ndir = "{}"\n'),
    ],
)
def test_a_directory_out_of_a_file_that_is_loaded(run: Run, tmp_path: Path, load: str, name: str, text: str) -> None:
    key = "cfg.out.dir" if "OmegaConf" in load else 'cfg["out"]["dir"]'
    imports = "import json\nimport os\nimport tomllib\n\nimport torch\nimport yaml\nfrom omegaconf import OmegaConf\n\n"
    program = f"{imports}{load}\n{LOOP.format(folder=key)}"
    command = ["bash", "-c", "cd /scripts && exec python train.py"]
    data = {"train.py": program, name: text.format("/tmp/away")}
    assert found(run, tmp_path, data, command) >= OTHER
    data[name] = text.format("/mnt/ckpt/run")
    assert not found(run, tmp_path, data, command) & OTHER
    del data[name]
    assert not found(run, tmp_path, data, command) & OTHER


HYDRA = f"""\
import os

import hydra
import torch


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    {LOOP.format(folder="cfg.train.out").replace(chr(10), chr(10) + "    ").rstrip()}


main()
"""
START = ["python", "/scripts/train.py"]


def test_the_files_of_hydra(run: Run, tmp_path: Path) -> None:
    data = {
        "train.py": HYDRA,
        "conf__config.yaml": "defaults:\n  - train: near\n  - _self_\nroot: /tmp/away\n",
        "conf__train__near.yaml": "out: /mnt/ckpt/run/a\n",
        "conf__train__far.yaml": "out: ${root}/b\n",
        "conf__train__new.yaml": "out: /mnt/ckpt/run/${now:%Y}\n",
        "conf__train__env.yaml": "out: ${oc.env:OUT}/x\n",
    }
    assert not found(run, tmp_path, data, START) & OTHER
    assert found(run, tmp_path, data, [*START, "train=far"]) >= OTHER
    assert found(run, tmp_path, data, [*START, "train.out=/tmp/c"]) >= OTHER
    assert not found(run, tmp_path, data, [*START, "root=/mnt/ckpt/run", "train=far"]) & OTHER
    assert "timestamped-directory" in found(run, tmp_path, data, [*START, "train=new"])
    there = {"CKPT_DIR": "/mnt/ckpt/run", "OUT": "/tmp/d"}
    assert found(run, tmp_path, data, [*START, "train=env"], variables=there) >= OTHER
    assert not found(run, tmp_path, data, [*START, "train=env"]) & OTHER
    other = {**data, "conf__second.yaml": "train: {out: /tmp/e}\n"}
    assert found(run, tmp_path, other, [*START, "--config-name", "second"]) >= OTHER
    # The file's own value counts where _self_ stands.
    data["conf__config.yaml"] = "defaults:\n  - train: near\n  - _self_\ntrain: {out: /tmp/f}\n"
    assert found(run, tmp_path, data, START) >= OTHER
    data["conf__config.yaml"] = "defaults:\n  - _self_\n  - train: near\ntrain: {out: /tmp/f}\n"
    assert not found(run, tmp_path, data, START) & OTHER


def test_a_file_that_the_command_names(run: Run, tmp_path: Path) -> None:
    text = "stage: sft\ndo_train: true\noutput_dir: {}\nsave_steps: 100\nsave_total_limit: 3\n"
    command = ["llamafactory-cli", "train", "/scripts/sft.yaml"]
    assert found(run, tmp_path, {"sft.yaml": text.format("/tmp/away")}, command) >= OTHER
    assert not found(run, tmp_path, {"sft.yaml": text.format("/mnt/ckpt/run")}, command) & OTHER
    assert "single-checkpoint-kept" in found(
        run, tmp_path, {"sft.yaml": text.format("/mnt/ckpt/run").replace("3", "1")}, command
    )


def test_the_same_out_of_a_checkout(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("src/conf/train").mkdir(parents=True)
    Path("src/train.py").write_text(HYDRA)
    Path("src/conf/config.yaml").write_text("defaults:\n  - train: near\n")
    Path("src/conf/train/near.yaml").write_text("out: /tmp/away\n")
    Path("job.yaml").write_text(job(["python", "/app/src/train.py"]))
    _, answer = document(run, "job.yaml", "--source", ".")
    assert rules(answer) >= OTHER
    Path("src/conf/train/near.yaml").write_text("out: [\n")
    _, answer = document(run, "job.yaml", "--source", ".")
    assert not rules(answer) & OTHER
