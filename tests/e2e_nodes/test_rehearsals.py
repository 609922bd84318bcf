"""``ckptguard rehearse job.yaml`` on the real Trainer: what SIGTERM loses is seen before the run is submitted, and
nothing of the rehearsal is left, however it ends.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e_nodes.machine import Nodes, Object, wait_until
from tests.e2e_nodes.runs import (
    NAMESPACE,
    Told,
    ckptguard,
    drop_namespace,
    make_namespace,
    runtime,
    shell,
    trainjob,
)
from tests.e2e_nodes.trainer_program import PROGRAM

HEREDOC = f"python -u - <<'PY'\n{PROGRAM}PY\n"
GRACE = 8


@pytest.fixture(scope="module", autouse=True)
def place(nodes: Nodes, guarded: Nodes, trainer: str) -> Iterator[None]:
    drop_namespace(nodes)
    make_namespace(nodes)
    nodes.apply([runtime("brief", grace=GRACE)])
    yield
    drop_namespace(nodes)


def written(tmp_path: Path, name: str, text: str = f"exec {HEREDOC}", **env: str) -> str:
    """A file with a TrainJob, its runtime in the cluster: a shell text with the program in it, as guides have it."""
    pace: dict[str, Any] = {"SECONDS_PER_STEP": "0.1", **env}
    job = trainjob(name, "brief", ["bash", "-ec", text], **pace)
    path = tmp_path / f"{name}.yaml"
    path.write_text(yaml.safe_dump(job))
    return str(path)


def left(nodes: Nodes) -> list[str]:
    """Objects of rehearsals."""
    found: list[Object] = []
    for kind in ("trainjobs", "trainingruntimes", "jobsets", "pods"):
        found += nodes.objects(kind, NAMESPACE)
    names = [str(one["metadata"]["name"]) for one in found]
    return [name for name in names if "-rehearsal-" in name or "-ckptguard-" in name]


def nothing_left(nodes: Nodes) -> None:
    wait_until(lambda: left(nodes) == [], 30, "nothing of a rehearsal is left", 1)
    assert shell(nodes, "ls -A /c").split() in ([], ["kept"])


def rules(told: Told) -> list[tuple[str, str]]:
    return [(one["rule"], one["severity"]) for one in told.json["findings"]]


def test_with_exec_the_flush_is_there(nodes: Nodes, tmp_path: Path) -> None:
    told = ckptguard(nodes, "rehearse", written(tmp_path, "with-exec"), "-o", "json")
    assert told.code == 0, told.err + told.out
    assert (told.json["verdict"], rules(told)) == ("resumed", [])
    first, second = told.json["starts"]
    assert first["savedOnSigterm"] is True
    assert second["from"] == first["to"]
    nothing_left(nodes)


def test_without_exec_it_is_lost(nodes: Nodes, tmp_path: Path) -> None:
    """The shell is process 1 and keeps SIGTERM to itself: what the guide's own runtime does."""
    told = ckptguard(nodes, "rehearse", written(tmp_path, "guide", HEREDOC), "-o", "json")
    assert told.code == 0, told.err + told.out
    assert rules(told) == [("sigterm-not-forwarded", "audit")]
    assert told.json["starts"][0]["savedOnSigterm"] is False
    assert "process 1 of the container is bash" in told.json["findings"][0]["problem"]
    nothing_left(nodes)


def test_one_that_begins_anew_and_what_the_run_has_saved_stays(nodes: Nodes, tmp_path: Path) -> None:
    shell(nodes, "mkdir -p /c/kept && echo 1 > /c/kept/step_999.json")
    text = HEREDOC.replace("found = saved()", "found = []").replace("python", "exec python", 1)
    told = ckptguard(nodes, "rehearse", written(tmp_path, "anew", text), "-o", "json")
    assert told.code == 1, told.err + told.out
    assert ("never-resumed", "warn") in rules(told)
    nothing_left(nodes)
    assert shell(nodes, "ls /c/kept").split() == ["step_999.json"]


def test_one_that_ends_before_it_saves(nodes: Nodes, tmp_path: Path) -> None:
    told = ckptguard(nodes, "rehearse", written(tmp_path, "broken", "echo no module named x; exit 3"), "-o", "json")
    assert told.code == 2, told.err
    assert told.json["why"] == ["it ended with exit code 3 before it saved anything", "no module named x"]
    nothing_left(nodes)


@pytest.mark.parametrize("moment", ["[rehearsal", "waiting for a first checkpoint", "[interrupt]"])
def test_interrupted_it_leaves_nothing(nodes: Nodes, tmp_path: Path, moment: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "webhook", "rehearse", written(tmp_path, "stopped"), "-n", NAMESPACE],
        env=nodes.environment,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if moment.strip("[") in line:
                process.send_signal(signal.SIGINT)
                break
        said += process.stderr.readlines()
    assert process.returncode == 130, said
    assert "nothing is left of the rehearsal" in said[-1]
    nothing_left(nodes)


def test_two_at_once(nodes: Nodes, tmp_path: Path) -> None:
    file = written(tmp_path, "twice")
    told: list[Told] = []
    threads = [
        threading.Thread(target=lambda: told.append(ckptguard(nodes, "rehearse", file, "-o", "json"))) for _ in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.code for one in told] == [0, 0], [one.err for one in told]
    nothing_left(nodes)


def test_what_the_guard_refuses_is_refused_here_too(nodes: Nodes, tmp_path: Path) -> None:
    job: Any = trainjob("refused", "brief", CKPT_DIR="/tmp/ckpt")
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    told = ckptguard(nodes, "rehearse", str(path))
    assert told.code == 2
    assert "a rehearsal in the cluster takes a claim" in told.out
    nothing_left(nodes)


def test_without_the_right_to_create_nothing_is_made(nodes: Nodes, tmp_path: Path) -> None:
    nodes.apply(
        [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": NAMESPACE}}]
    )
    nodes.run(
        *("create", "rolebinding", "reader", "--clusterrole=view", f"--serviceaccount={NAMESPACE}:reader"),
        *("-n", NAMESPACE),
        check=False,
    )
    token = nodes.run("create", "token", "reader", "-n", NAMESPACE).stdout.strip()
    config = yaml.safe_load(nodes.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    told = ckptguard(nodes, "rehearse", written(tmp_path, "reader"), "--claim", "train-ckpt", kubeconfig=str(path))
    assert told.code == 2
    text = told.out + told.err
    assert "rights that are missing; nothing was made" in text or "cannot be read" in text
    nothing_left(nodes)
