"""``review --source DIR``: programs of the image, read from the checkout that it is built from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.files import write
from tests.cli.mounted import WHOLE, config_map, job, mounted
from tests.cli.test_review import Run, document, rules, run
from webhook.cluster import checkout as module

__all__ = ["run"]


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def reviewed(run: Run, files: Mapping[str, str], text: str) -> tuple[dict[str, Any], set[str]]:
    """``facts.program`` of the TrainJob and the rules, with these files below ``code/``."""
    for name, content in files.items():
        path = Path("code") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    Path("code").mkdir(exist_ok=True)
    Path("job.yaml").write_text(text)
    _, answer = document(run, "job.yaml", "--source", "code")
    assert answer["errors"] == []
    result = next(one for one in answer["results"] if one["kind"] == "TrainJob")
    return result["facts"]["program"], rules(answer)


@pytest.mark.parametrize(
    ("command", "working_dir", "file"),
    [
        (["torchrun", "/app/train.py"], None, "train.py"),
        (["torchrun", "/app/src/train.py"], None, "src/train.py"),
        (["torchrun", "/workspace/project/src/train.py"], None, "src/train.py"),
        (["torchrun", "src/train.py"], None, "src/train.py"),
        (["python", "train.py"], "/app/examples", "examples/train.py"),
        (["python", "-m", "pkg.train"], "/app", "pkg/train.py"),
        (["python", "-m", "pkg"], "/app", "pkg/__main__.py"),
        (["torchrun", "--nproc-per-node=2", "-m", "pkg.train"], "/app", "pkg/train.py"),
        (["bash", "-c", "cd /app/src && exec python train.py"], None, "src/train.py"),
        (["bash", "-c", "exec python /app/train.py"], None, "train.py"),
    ],
)
def test_the_file_is_found(run: Run, folder: Path, command: list[str], working_dir: str | None, file: str) -> None:
    fact, found = reviewed(run, {file: WHOLE}, job(command, working_dir=working_dir))
    assert fact["state"] == "read", fact
    assert "never-resumed" in found
    _, out, _ = run("review", "job.yaml", "--source", "code", "-o", "line")
    assert f"code/{file}:9: warning: TrainJob/train in team:" in out


def test_the_line_is_that_of_the_file_in_sarif(run: Run, folder: Path) -> None:
    reviewed(run, {"src/train.py": WHOLE}, job(["torchrun", "/app/src/train.py"]))
    _, out, _ = run("review", "job.yaml", "--source", "code", "-o", "sarif")
    results = json.loads(out)["runs"][0]["results"]
    places = [one["locations"][0]["physicalLocation"] for one in results if one["ruleId"] == "never-resumed"]
    assert places == [{"artifactLocation": {"uri": "code/src/train.py"}, "region": {"startLine": 9}}]


def test_the_longest_common_end_counts(run: Run, folder: Path) -> None:
    files = {"a/train.py": "print(1)\n", "b/train.py": WHOLE}
    fact, found = reviewed(run, files, job(["python", "/opt/b/train.py"]))
    assert (fact["state"], "never-resumed" in found) == ("read", True)


def test_two_that_fit_are_none_and_both_are_said(run: Run, folder: Path) -> None:
    fact, found = reviewed(run, {"a/train.py": WHOLE, "b/train.py": WHOLE}, job(["python", "/opt/train.py"]))
    assert (fact["state"], fact["path"]) == ("not-found", "/opt/train.py")
    assert fact["reason"] == "2 files of code fit equally well: a/train.py, b/train.py"
    assert found == set()
    many = {f"{letter}/train.py": WHOLE for letter in "abcdef"}
    fact, _ = reviewed(run, many, job(["python", "/opt/train.py"]))
    assert fact["reason"].endswith("a/train.py, b/train.py, c/train.py and 3 more")


def test_of_two_the_one_at_the_root_or_below_the_working_directory(run: Run, folder: Path) -> None:
    files = {"train.py": WHOLE, "old/train.py": "print(1)\n"}
    fact, found = reviewed(run, files, job(["python", "/app/train.py"]))
    assert (fact["state"], "never-resumed" in found) == ("read", True)
    files = {"a/b/train.py": "print(1)\n", "b/train.py": WHOLE}
    fact, found = reviewed(run, files, job(["python", "/app/b/train.py"], working_dir="/app"))
    assert (fact["state"], "never-resumed" in found) == ("read", True)


def test_what_is_not_there_is_said(run: Run, folder: Path) -> None:
    fact, found = reviewed(run, {"other.py": WHOLE}, job(["python", "/app/train.py"]))
    assert (fact["state"], fact["reason"], found) == ("not-found", "code has no train.py", set())


def test_a_shell_file_of_the_checkout_leads_to_its_program(run: Run, folder: Path) -> None:
    files = {
        "scripts/run.sh": 'cd "$(dirname "$0")/.."\nexec python src/train.py --out /mnt/ckpt/run\n',
        "src/train.py": WHOLE,
        "other/src/train.py": "print(1)\n",
    }
    fact, found = reviewed(run, files, job(["bash", "/app/scripts/run.sh"]))
    assert (fact["state"], "never-resumed" in found) == ("read", True)


def test_what_is_mounted_comes_before_the_checkout(run: Run, folder: Path) -> None:
    text = config_map("code", {"train.py": WHOLE}) + "---\n" + job(["python", "/scripts/train.py"], **mounted())
    fact, found = reviewed(run, {"scripts/train.py": "print(1)\n"}, text)
    assert (fact["state"], "never-resumed" in found) == ("read", True)
    # A program on a claim is looked for as well: it came from somewhere.
    fact, found = reviewed(run, {"scripts/train.py": WHOLE}, job(["python", "/mnt/ckpt/scripts/train.py"]))
    assert (fact["state"], "never-resumed" in found) == ("read", True)


def test_hidden_folders_and_links_are_not_followed(run: Run, folder: Path) -> None:
    away = folder / "away"
    away.mkdir()
    (away / "train.py").write_text(WHOLE)
    Path("code").mkdir()
    Path("code/linked").symlink_to(away)
    fact, _ = reviewed(run, {".git/train.py": WHOLE, "node_modules/train.py": WHOLE}, job(["python", "/app/train.py"]))
    assert fact["state"] == "not-found"


def test_a_file_that_cannot_be_read_is_said(run: Run, folder: Path) -> None:
    Path("code").mkdir()
    Path("code/train.py").write_bytes(b"\xff\xfe\x00\x01")
    fact, _ = reviewed(run, {}, job(["python", "/app/train.py"]))
    assert (fact["state"], fact["reason"]) == ("not-found", "code/train.py is binary or not UTF-8")
    Path("code/train.py").write_text("x = 1\n" * 30_000)
    fact, _ = reviewed(run, {}, job(["python", "/app/train.py"]))
    assert (fact["state"], fact["reason"]) == ("partly-read", "it is longer than 128 KiB")


def test_a_checkout_of_very_many_files_is_cut_and_it_is_said(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 5)
    files = {f"a{number}.txt": "" for number in range(9)}
    fact, _ = reviewed(run, {**files, "train.py": WHOLE}, job(["python", "/app/train.py"]))
    assert (fact["state"], fact["reason"]) == ("not-found", "code has no train.py among its first 5 files")
    _, _, err = run("review", "job.yaml", "--source", "code")
    assert "--source code: it has more than 5 files: the rest is not looked at" in err


@pytest.mark.parametrize(("name", "message"), [("nowhere", "no such folder"), ("job.yaml", "a folder is wanted")])
def test_a_source_that_is_no_folder_is_an_error(run: Run, folder: Path, name: str, message: str) -> None:
    write(folder, "job.yaml", job(["python", "/app/train.py"]))
    code, _, err = run("review", "job.yaml", "--source", name)
    assert code == 2
    assert f"{name}: --source: " in err
    assert message in err


# --- modules beside the program

PROGRAM = """\
import torch
from helpers import {imported}

net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(100000):
    net(torch.ones(4)).sum().backward()
    opt.step()
    if step % 500 == 0:
        {save}(net, opt, step)
"""
HELPERS = """\
import os

import torch

FOLDER = "/mnt/ckpt/run"


def save(net, opt, step):
    torch.save({"model": net.state_dict(), "optimizer": opt.state_dict()}, os.path.join(FOLDER, f"{step:09d}.pt"))


def load(net, opt):
    state = torch.load(os.path.join(FOLDER, max(os.listdir(FOLDER))))
    net.load_state_dict(state["model"])
    opt.load_state_dict(state["optimizer"])
"""


@pytest.mark.parametrize(
    ("text", "helpers"),
    [
        (PROGRAM.format(imported="save", save="save"), "helpers.py"),
        (PROGRAM.format(imported="save as keep", save="keep"), "helpers.py"),
        (PROGRAM.replace("from helpers import {imported}", "import helpers").format(save="helpers.save"), "helpers.py"),
        (
            PROGRAM.replace("from helpers import {imported}", "import helpers as h").format(save="h.save"),
            "helpers.py",
        ),
        (PROGRAM.replace("from helpers import {imported}", "from helpers import *").format(save="save"), "helpers.py"),
        (PROGRAM.format(imported="save", save="save"), "helpers/__init__.py"),
        (PROGRAM.replace("helpers", "lib.helpers").format(imported="save", save="save"), "lib/helpers.py"),
        (PROGRAM.replace("helpers", "lib").format(imported="helpers", save="helpers.save"), "lib/helpers.py"),
    ],
)
def test_a_save_in_a_module_beside_it_is_seen(run: Run, folder: Path, text: str, helpers: str) -> None:
    fact, found = reviewed(run, {"train.py": text, helpers: HELPERS}, job(["python", "/app/train.py"]))
    assert fact["state"] == "read"
    assert {"never-resumed", "unlimited-checkpoints"} <= found
    _, out, _ = run("review", "job.yaml", "--source", "code", "-o", "line")
    assert f"code/{helpers}:9: warning:" in out


def test_a_load_in_a_module_beside_it_counts(run: Run, folder: Path) -> None:
    text = PROGRAM.format(imported="save, load", save="save").replace("for step", "load(net, opt)\nfor step")
    _, found = reviewed(run, {"train.py": text, "helpers.py": HELPERS}, job(["python", "/app/train.py"]))
    assert "never-resumed" not in found


def test_what_a_module_defines_and_nobody_uses_is_not_run(run: Run, folder: Path) -> None:
    unused = HELPERS + '\n\ndef other(net):\n    torch.save(net.state_dict(), "/tmp/a.pt")\n'
    unused += '\n\nif __name__ == "__main__":\n    while True:\n        torch.save(1, "/tmp/b.pt")\n'
    text = PROGRAM.format(imported="save", save="save")
    _, found = reviewed(run, {"train.py": text, "helpers.py": HELPERS}, job(["python", "/app/train.py"]))
    _, same = reviewed(run, {"train.py": text, "helpers.py": unused}, job(["python", "/app/train.py"]))
    assert same == found


def test_modules_of_a_map_are_read_too(run: Run, folder: Path) -> None:
    data = {"train.py": PROGRAM.format(imported="save", save="save"), "helpers.py": HELPERS}
    maps = config_map("code", data) + "---\n"
    Path("job.yaml").write_text(maps + job(["python", "/scripts/train.py"], **mounted()))
    _, answer = document(run, "job.yaml")
    assert {"never-resumed", "unlimited-checkpoints"} <= rules(answer)
    at = [one["at"] for result in answer["results"] for one in result["findings"] if one["rule"] == "never-resumed"]
    assert at == ["ConfigMap/code data[helpers.py] line 9"]


def test_modules_that_the_shell_writes_are_read_too(run: Run, folder: Path) -> None:
    text = PROGRAM.format(imported="save", save="save")
    shell = f"cat > helpers.py <<'EOF'\n{HELPERS}EOF\ncat > train.py <<'EOF'\n{text}EOF\nexec python train.py\n"
    Path("job.yaml").write_text(job(["bash", "-c", shell]))
    _, answer = document(run, "job.yaml")
    assert {"never-resumed", "unlimited-checkpoints"} <= rules(answer)


def test_modules_that_import_one_another_end(run: Run, folder: Path) -> None:
    files = {
        "train.py": PROGRAM.format(imported="save", save="save"),
        "helpers.py": "from other import thing\n" + HELPERS,
        "other.py": "import helpers\nfrom train import net\nthing = 1\n",
    }
    fact, found = reviewed(run, files, job(["python", "/app/train.py"]))
    assert fact["state"] == "read"
    assert "never-resumed" in found


def test_a_chain_of_modules_is_followed_to_a_depth_and_a_number(run: Run, folder: Path) -> None:
    chain = {f"m{number}.py": f"from m{number + 1} import x\n" for number in range(40)}
    fact, _ = reviewed(run, {**chain, "train.py": "from m0 import x\n" + WHOLE}, job(["python", "/app/train.py"]))
    assert (fact["state"], fact["reason"]) == (
        "partly-read",
        "/app/m6.py: imports lead to more than is read of one program",
    )
    wide = {f"m{number}.py": "save_every = 1\n" for number in range(60)}
    text = "".join(f"import m{number}\n" for number in range(60)) + WHOLE
    fact, _ = reviewed(run, {**wide, "train.py": text}, job(["python", "/app/train.py"]))
    assert (fact["state"], fact["reason"].partition(":")[0]) == ("partly-read", "/app/m48.py")


def test_modules_beyond_the_bytes_are_left_out_and_said(run: Run, folder: Path) -> None:
    files = {"train.py": "import big\n" + WHOLE, "big.py": "save_every = 1\n" * 40_000}
    fact, _ = reviewed(run, files, job(["python", "/app/train.py"]))
    assert (fact["state"], fact["reason"].partition(":")[0]) == ("partly-read", "/app/big.py")


def test_a_network_beside_the_program_takes_no_room_and_hides_nothing(run: Run, folder: Path) -> None:
    files = {"train.py": "import net\n" + WHOLE, "net.py": "x = 1\n" * 20_000}
    fact, _ = reviewed(run, files, job(["python", "/app/train.py"]))
    assert fact["state"] == "read"


def test_a_module_that_is_no_python_is_left_out_and_said(run: Run, folder: Path) -> None:
    files = {"train.py": "import broken\n" + WHOLE, "broken.py": "def save(:\n"}
    fact, _ = reviewed(run, files, job(["python", "/app/train.py"]))
    assert fact["state"] == "partly-read"
    assert fact["reason"].startswith("/app/broken.py: it is no Python that this version reads")


def test_a_fix_of_a_module_is_pasted_into_the_module(run: Run, folder: Path) -> None:
    data = {"train.py": PROGRAM.format(imported="save", save="save"), "helpers.py": HELPERS}
    Path("job.yaml").write_text(config_map("code", data) + "---\n" + job(["python", "/scripts/train.py"], **mounted()))
    _, _, err = run("fix", "job.yaml", "--unsafe", "--write")
    assert "Traceback" not in err
    text = Path("job.yaml").read_text()
    documents = list(yaml.safe_load_all(text))
    program, helpers = documents[0]["data"]["train.py"], documents[0]["data"]["helpers.py"]
    compile(program, "train.py", "exec")
    compile(helpers, "helpers.py", "exec")
    assert program == data["train.py"]
