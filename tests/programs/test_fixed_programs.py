"""Fixes are programs: a faulty one is run, the fix is put in, it is killed and started again, and it goes on.

Plain Python here; what needs torch, transformers, Lightning or DCP is marked full, and skipped where they are missing.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
from msgspec.structs import replace

from webhook.model.script import Launch, Lines
from webhook.programs.alone import judge_alone, read_alone

STOP = 107
"""The step before which a first start ends, as if it had been killed."""

NET = """\
import os
import pickle


class Net:
    def __init__(self):
        self.seen = []

    def train_batch(self, step):
        if os.environ.get("STOP") == str(step):
            os._exit(137)
        self.seen.append(step)


net = Net()
"""
TEXT_ORDER = (
    NET
    + """\
OUT = os.environ["CKPT_DIR"]
start = 0
names = sorted(name for name in os.listdir(OUT) if name.startswith("step_"))
if names:
    with open(os.path.join(OUT, names[-1]), "rb") as file:
        state = pickle.load(file)
    net.seen = state["seen"]
    start = state["step"] + 1
print("from", start)
for step in range(start, 120):
    net.train_batch(step)
    if step % 5 == 0:
        with open(os.path.join(OUT, f"step_{step}.pkl"), "wb") as file:
            pickle.dump({"seen": net.seen, "step": step}, file)
"""
)
IN_PLACE = (
    NET
    + """\
path = os.path.join(os.environ["CKPT_DIR"], "latest.pkl")
start = 0
if os.path.exists(path):
    state = pickle.load(open(path, "rb"))
    net.seen = state["seen"]
    start = state["step"] + 1
print("from", start)
for step in range(start, 120):
    net.train_batch(step)
    if step % 5 == 0:
        with open(path, "wb") as file:
            pickle.dump({"seen": net.seen, "step": step}, file)
"""
)
AT_THE_END = (
    NET
    + """\
for step in range(2000):
    net.train_batch(step)
with open(os.path.join(os.environ["CKPT_DIR"], "model.pkl"), "wb") as file:
    pickle.dump(net.seen, file)
"""
)


def mended(text: str, rule: str, folder: Path, nodes: int = 1) -> str:
    """The program with the fix of one rule in it."""
    launch = Launch(pods=nodes, directories=(str(folder),), alone=True)
    script = read_alone(["python", "train.py"], {"train.py": text}, launch, {"CKPT_DIR": str(folder)})
    found = [one for one in judge_alone(script, "train.py", {}) if one.rule == rule]
    assert found, f"{rule} says nothing"
    fix = found[0].lines
    assert isinstance(fix, Lines), found[0].fix
    return fix.paste(text)


def start(text: str, folder: Path, stop: int | None = None) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    env = {**os.environ, "CKPT_DIR": str(folder), "STOP": "" if stop is None else str(stop)}
    return subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("rule", "text"), [("text-order-resume", TEXT_ORDER), ("overwritten-checkpoint", IN_PLACE)])
def test_a_mended_program_goes_on_where_it_was(rule: str, text: str, tmp_path: Path) -> None:
    fixed = mended(text, rule, tmp_path / "ckpt")
    first = start(fixed, tmp_path / "ckpt", STOP)
    assert first.returncode == 137, first.stderr
    assert first.stdout.split() == ["from", "0"]
    again = start(fixed, tmp_path / "ckpt")
    assert again.returncode == 0, again.stderr
    assert again.stdout.split() == ["from", "106"]


def test_the_faulty_one_goes_back(tmp_path: Path) -> None:
    """Else the test above shows nothing: in text order step_95 is the newest."""
    start(TEXT_ORDER, tmp_path / "ckpt", STOP)
    assert start(TEXT_ORDER, tmp_path / "ckpt").stdout.split() == ["from", "96"]


def test_nothing_is_torn_by_a_kill_while_it_saves(tmp_path: Path) -> None:
    """The mended program is killed in the middle of a save: what was saved before is whole."""
    fixed = mended(IN_PLACE, "overwritten-checkpoint", tmp_path / "ckpt")
    half = 'step == 50 and file.write(b"half") and os._exit(137)'
    killed = fixed.replace("            pickle.dump({", f"            {half}\n            pickle.dump({{")
    assert killed != fixed
    first = start(killed, tmp_path / "ckpt")
    assert first.returncode == 137, first.stderr
    again = start(fixed, tmp_path / "ckpt")
    assert (again.returncode, again.stdout.split()) == (0, ["from", "46"])


@pytest.mark.parametrize("path", ['os.path.join(out, "last.pt")', "os.path.join(out, 'last.pt')", 'out + "/it\'s.pt"'])
def test_a_path_with_quotes_and_a_long_state(path: str, tmp_path: Path) -> None:
    """In the program's own names and, before Python 3.12 too, in quotes that may stand there."""
    text = TORCH.replace("SAVE", f'torch.save({WHOLE[:-1]}, "more": [1, 2, 3, 4, 5, 6]}}, {path})')
    loaded = (
        f"if os.path.exists({path}):\n    state = torch.load({path})\n    net.load_state_dict(state['net'])\nfor step"
    )
    fixed = mended(text.replace("for step", loaded), "overwritten-checkpoint", tmp_path / "ckpt")
    tree = ast.parse(fixed, feature_version=(3, 11))
    saved = next(one for one in ast.walk(tree) if isinstance(one, ast.Call) and ast.unparse(one.func) == "torch.save")
    assert isinstance(saved.args[0], ast.Dict)


def test_a_save_moves_into_the_loop(tmp_path: Path) -> None:
    fixed = mended(AT_THE_END, "never-saved", tmp_path / "ckpt")
    first = start(fixed, tmp_path / "ckpt", 1600)
    assert first.returncode == 137, first.stderr
    assert sorted(path.name for path in (tmp_path / "ckpt").iterdir()) == [
        f"step_{step:08d}.pkl" for step in (0, 500, 1000, 1500)
    ]


SHELL = "trap 'echo heard > told; exit 0' TERM\nwhile :; do sleep 0.05; done\n"


def mended_shell(text: str, rule: str) -> str:
    files = {"run.sh": text, "train.py": "print(1)\n"}
    script = read_alone(["bash", "run.sh"], files, Launch(alone=True))
    found = [one for one in judge_alone(script, "run.sh", {}) if one.rule == rule]
    assert found, f"{rule} says nothing"
    assert isinstance(found[0].lines, Lines)
    return found[0].lines.paste(text)


@pytest.mark.parametrize(
    "text",
    ["python train.py | tee log.txt\n", "python train.py\necho done\n", "python train.py \\\n  --lr 1\necho done\n"],
)
def test_a_failure_reaches_the_status_of_the_script(text: str, tmp_path: Path) -> None:
    fixed = mended_shell(text, "exit-status-lost")
    (tmp_path / "train.py").write_text("import sys\nsys.exit(3)\n")
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    assert subprocess.run(["bash", "-c", text], cwd=tmp_path, env=env, capture_output=True).returncode == 0
    assert subprocess.run(["bash", "-c", fixed], cwd=tmp_path, env=env, capture_output=True).returncode == 3


@pytest.mark.parametrize("text", ["python train.py | tee log.txt\n", "python train.py\necho done\n"])
def test_sigterm_reaches_the_program(text: str, tmp_path: Path) -> None:
    fixed = mended_shell(text, "sigterm-not-forwarded")
    (tmp_path / "train.py").write_text(
        textwrap.dedent("""\
        import signal, sys, time
        def heard(*_):
            open("told", "w").close()
            sys.exit(0)
        signal.signal(signal.SIGTERM, heard)
        print("ready", flush=True)
        time.sleep(30)
        """)
    )
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run = subprocess.Popen(["bash", "-c", fixed], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stdout.readline().strip() == "ready"
    run.terminate()
    run.wait(20)
    run.stdout.close()
    assert (tmp_path / "told").exists()


MODULE = """\
import pickle


def save(obj, f):
    with open(f, "wb") as file:
        pickle.dump(obj, file)


def load(f, map_location=None, weights_only=True):
    with open(f, "rb") as file:
        return pickle.load(file)


class Loss:
    def __init__(self, net):
        self.net = net

    def backward(self):
        self.net.seen += 1


class nn:
    class Linear:
        def __init__(self, *_):
            self.seen = 0

        def __call__(self, _):
            return Loss(self)

        def parameters(self):
            return []

        def state_dict(self):
            return {"seen": self.seen}

        def load_state_dict(self, state):
            self.seen = state["seen"]


class optim:
    class AdamW(nn.Linear):
        def step(self):
            self.seen += 1
"""
"""What the programs below need of torch, in plain Python: which calls are made in which order is what is looked at."""
TORCH = """\
import os

import torch

out = os.environ["CKPT_DIR"]
net = torch.nn.Linear(2, 2)
adam = torch.optim.AdamW(net.parameters())
for step in range(120):
    if os.environ.get("STOP") == str(step):
        print("done", net.seen, adam.seen)
        os.sys.stdout.flush()
        os._exit(137)
    print("at", step)
    net(None).backward()
    adam.step()
    if step % 5 == 0:
        SAVE
"""
WHOLE = '{"net": net.state_dict(), "adam": adam.state_dict(), "step": step}'
NUMBERED = 'os.path.join(out, f"step_{step:08d}.pt")'


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module above, in front of any other of its name."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "torch.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))


@pytest.mark.usefixtures("torch")
def test_all_that_was_saved_is_read_back_and_the_loop_goes_on(tmp_path: Path) -> None:
    faulty = TORCH.replace("SAVE", f"torch.save({WHOLE}, {NUMBERED})")
    fixed = mended(faulty, "never-resumed", tmp_path / "ckpt")
    first = start(fixed, tmp_path / "ckpt", STOP)
    assert (first.returncode, first.stdout.split()[:2]) == (137, ["at", "0"]), first.stderr
    again = start(fixed, tmp_path / "ckpt", STOP + 1)
    assert again.stdout.split()[:2] == ["at", "106"], again.stderr
    # 106 steps are in the checkpoint and two follow: weights and optimizer have seen every step once.
    assert again.stdout.split()[-3:] == ["done", "108", "108"]


@pytest.mark.usefixtures("torch")
def test_the_optimizer_is_saved_and_then_read_back(tmp_path: Path) -> None:
    """One fix after another, as somebody would do it who asks again after each."""
    fixed = TORCH.replace("SAVE", f"torch.save(net.state_dict(), {NUMBERED})")
    for rule in ("weights-only-checkpoint", "never-resumed", "unlimited-checkpoints"):
        fixed = mended(fixed, rule, tmp_path / "ckpt")
    start(fixed, tmp_path / "ckpt", STOP)
    names = sorted(path.name for path in (tmp_path / "ckpt").iterdir())
    assert names == [f"step_{step:08d}.pt" for step in (95, 100, 105)]
    again = start(fixed, tmp_path / "ckpt", STOP + 1)
    assert again.stdout.split()[:2] == ["at", "106"], again.stderr
    assert again.stdout.split()[-3:] == ["done", "108", "108"]


@pytest.mark.usefixtures("torch")
def test_a_file_that_is_moved_into_place_is_the_one_that_is_read(tmp_path: Path) -> None:
    saves = f'torch.save({WHOLE}, os.path.join(out, "new"))\n        os.replace(os.path.join(out, "new"), PATH)'
    faulty = TORCH.replace("SAVE", saves.replace("PATH", 'os.path.join(out, "last.pt")'))
    fixed = mended(faulty, "never-resumed", tmp_path / "ckpt")
    start(fixed, tmp_path / "ckpt", STOP)
    again = start(fixed, tmp_path / "ckpt", STOP + 1)
    assert again.stdout.split()[:2] == ["at", "106"], again.stderr
    assert again.stdout.split()[-3:] == ["done", "108", "108"]


@pytest.mark.usefixtures("torch")
def test_one_process_of_two_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = TORCH.replace("SAVE", f"torch.save({WHOLE}, {NUMBERED})")
    fixed = mended(faulty, "unguarded-rank-write", tmp_path / "ckpt", nodes=2)
    monkeypatch.setenv("RANK", "1")
    assert start(fixed, tmp_path / "ckpt", STOP).returncode == 137
    assert list((tmp_path / "ckpt").iterdir()) == []
    monkeypatch.setenv("RANK", "0")
    start(fixed, tmp_path / "ckpt", STOP)
    assert len(list((tmp_path / "ckpt").iterdir())) == 22


FULL = pytest.mark.skipif(not os.environ.get("E2E_FULL") or not find_spec("torch"), reason="full, and needs torch")


@FULL
@pytest.mark.full
def test_the_same_with_torch(tmp_path: Path) -> None:
    text = TORCH.replace("net(None).backward()", "net(torch.randn(2, 2)).sum().backward()")
    fixed = text.replace("net.seen, adam.seen", "0, 0").replace("SAVE", f"torch.save(net.state_dict(), {NUMBERED})")
    for rule in ("weights-only-checkpoint", "never-resumed", "unlimited-checkpoints"):
        fixed = mended(fixed, rule, tmp_path / "ckpt")
    assert start(fixed, tmp_path / "ckpt", STOP).returncode == 137
    assert len(list((tmp_path / "ckpt").iterdir())) == 3
    again = start(fixed, tmp_path / "ckpt", STOP + 1)
    assert again.stdout.split()[:2] == ["at", "106"], again.stderr


BUCKET = Launch(directories=("/ckpt",), mounts=("/ckpt",), cannot=("rename", "append", "overwrite", "delete"))


@pytest.mark.parametrize(
    "text",
    [
        IN_PLACE,
        TEXT_ORDER,
        AT_THE_END,
        TORCH.replace("SAVE", f"torch.save({WHOLE}, {NUMBERED})"),
        TORCH.replace("SAVE", f"torch.save(net.state_dict(), {NUMBERED})"),
        TORCH.replace("SAVE", f'torch.save({WHOLE}, os.path.join(out, "last.pt"))'),
    ],
)
def test_no_fix_asks_of_a_bucket_what_its_mount_cannot(text: str) -> None:
    files = {"train.py": text}
    for nodes in (1, 2):
        script = read_alone(["python", "train.py"], files, replace(BUCKET, pods=nodes), {"CKPT_DIR": "/ckpt"})
        for finding in judge_alone(script, "train.py", {}):
            for word in ("os.replace", "os.rename", "shutil.move", "os.remove", "rmtree", "unlink", '"a"'):
                assert word not in finding.fix, finding
    on_disk = read_alone(["python", "train.py"], files, replace(BUCKET, cannot=()), {"CKPT_DIR": "/ckpt"})
    told = " ".join(finding.fix for finding in judge_alone(on_disk, "train.py", {}))
    assert told
