"""The engine without a server: one decision, one file on the command line, two thousand files."""

from __future__ import annotations

import compileall
import copy
import itertools
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import yaml

import webhook
from bench import straw
from bench.measure import Row, compare, microseconds, milliseconds, per_call
from bench.objects import RUNTIME, BenchView, review, trainjob
from webhook.decision import default_object, review_object
from webhook.effective import kept
from webhook.model.policy import Policy
from webhook.model.request import Request
from webhook.server.envelope import parse_review

FILES = 2000
CORE = 13
PROGRAM = 5.4
"""``bench.program`` measures what it adds, and says where the number comes from."""


def measure_core(rounds: int, _: int) -> list[Row]:
    """One verdict and one defaulting against parsing the review, and against the straw man.

    ``new``: no TrainJob of that spec and name was seen before. ``again``: what followed from them alone is still known,
    as for the verdict after the defaults, an apply of the same file, or an update of another field. The decision core
    is measured on a program that is in the image; one in the manifest that was read before may add ``PROGRAM``.
    """
    body = review(trainjob())
    request = _request(body)
    view, policy = BenchView(), Policy()
    obj = orjson.loads(body)["request"]["object"]
    if (decision := review_object(request, view, policy)).verdict == "deny" or decision.broken:
        raise RuntimeError(f"the benchmark's own TrainJob is not judged as meant: {decision}")
    in_image = review(_in_image())
    new, core, grown = _never_seen(trainjob), _never_seen(_in_image), _never_seen(_grown)
    parse, parse_core, verdict, verdict_core, again, fill, naive, large = [], [], [], [], [], [], [], []
    for _ in range(rounds):
        parse_core.append(per_call(lambda: orjson.loads(in_image)))
        verdict_core.append(per_call(lambda: review_object(core(), view, policy)))
        parse.append(per_call(lambda: orjson.loads(body)))
        verdict.append(per_call(lambda: review_object(new(), view, policy)))
        again.append(per_call(lambda: review_object(request, view, policy)))
        fill.append(per_call(lambda: default_object(new(), view, policy)))
        naive.append(per_call(lambda: straw.decide(obj, RUNTIME)))
        large.append(per_call(lambda: review_object(grown(), view, policy)))
    times = len(review(_grown())) / len(body)
    return [
        compare(
            "verdict, new, its program in the image / orjson.loads of its review",
            verdict_core,
            parse_core,
            f"<= {CORE}",
            microseconds,
            "orjson.loads",
        ),
        compare(
            "verdict, new, its program read before / orjson.loads of its review",
            verdict,
            parse,
            f"<= {CORE + PROGRAM}",
            microseconds,
            "orjson.loads",
        ),
        compare(
            "verdict, again / orjson.loads of its review", again, parse, f"<= {CORE}", microseconds, "orjson.loads"
        ),
        compare("defaulting, new / orjson.loads of its review", fill, parse, "", microseconds, "orjson.loads"),
        compare("straw man / verdict, new", naive, verdict, ">= 5", microseconds, "verdict"),
        compare(
            f"verdict, new, on {times:.0f} times the bytes / verdict, new",
            large,
            verdict,
            f"<= {times:.0f}",
            microseconds,
            "verdict",
        ),
    ]


def _never_seen(make: Callable[[str], dict[str, Any]]) -> Callable[[], Request]:
    """Requests for TrainJobs that differ in their names; by the time one comes round again it is forgotten."""
    requests = [_request(review(make(f"resnet-{number}"))) for number in range(64)]
    turn = itertools.cycle((*requests[1:], None))

    def request() -> Request:
        found = next(turn)
        if found is None:
            kept.clear()
        return found or requests[0]

    return request


def _request(body: bytes) -> Request:
    request = parse_review(body).request
    if request is None:
        raise RuntimeError("the benchmark's own review holds nothing to decide")
    return request


def _in_image(name: str = "resnet") -> dict[str, Any]:
    """The TrainJob with a program of which the manifest tells nothing but its path."""
    plain = trainjob(name)
    trainer = {**plain["spec"]["trainer"], "command": ["/opt/train/run"], "args": []}
    return {**plain, "spec": {**plain["spec"], "trainer": trainer}}


def _grown(name: str = "resnet") -> dict[str, Any]:
    """The TrainJob with a hundred variables, volumes and mounts more."""
    obj = copy.deepcopy(trainjob(name))
    many = range(100)
    obj["spec"]["trainer"]["env"] += [{"name": f"SETTING_{number}", "value": "x" * 40} for number in many]
    patch = obj["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
    pod = patch["template"]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": f"part-{number}", "emptyDir": {"sizeLimit": "10Gi"}} for number in many]
    mounts = [{"name": f"part-{number}", "mountPath": f"/parts/{number}"} for number in many]
    pod["containers"] = [{"name": "node", "volumeMounts": mounts}]
    return obj


def measure_cli(rounds: int, _: int) -> list[Row]:
    """``ckptguard review`` on one file, process start to verdict, against importing yaml; compiled, as in the image."""
    compileall.compile_dir(Path(webhook.__file__).parent, quiet=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_text(yaml.safe_dump_all([RUNTIME, _written("resnet")], sort_keys=False))
        ours, against = [], []
        for _ in range(max(rounds, 5) * 3):
            against.append(cpu_seconds([sys.executable, "-c", "import yaml"]))
            ours.append(cpu_seconds([sys.executable, "-m", "webhook", "review", str(path)]))
        program = Path(folder) / "train.py"
        program.write_text(_PROGRAM)
        alone = [cpu_seconds([sys.executable, "-m", "webhook", "review", str(program)]) for _ in against]
    return [
        compare("ckptguard review FILE / python -c 'import yaml'", ours, against, "<= 3", milliseconds, "import yaml"),
        compare(
            "ckptguard review train.py / python -c 'import yaml'", alone, against, "<= 4", milliseconds, "import yaml"
        ),
    ]


_PROGRAM = """\
import os

import torch

net = torch.nn.Linear(2, 2)
adam = torch.optim.AdamW(net.parameters())
for step in range(1000):
    net(torch.randn(2, 2)).sum().backward()
    adam.step()
    if step % 50 == 0:
        torch.save(net.state_dict(), os.path.join("runs", f"step_{step}.pt"))
"""


def measure_files(rounds: int, _: int) -> list[Row]:
    """``ckptguard review`` on two thousand files against what the YAML C loader alone takes for them."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "runtime.yaml").write_text(yaml.safe_dump(RUNTIME, sort_keys=False))
        paths = [Path(folder) / f"job-{number:04}.yaml" for number in range(FILES)]
        for number, path in enumerate(paths):
            path.write_text(yaml.safe_dump(_written(f"resnet-{number}"), sort_keys=False))
        ours, against = [], []
        for _ in range(rounds):
            started = time.process_time()
            for path in paths:
                yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
            against.append(time.process_time() - started)
            ours.append(cpu_seconds([sys.executable, "-m", "webhook", "review", folder, "--output", "json"]))
    return [
        compare(f"ckptguard review of {FILES} files / YAML C loader", ours, against, "<= 3", milliseconds, "C loader")
    ]


def _written(name: str) -> dict[str, Any]:
    """The TrainJob as a person writes it."""
    obj = trainjob(name)
    return {**obj, "metadata": {"name": name, "namespace": "vision"}}


def cpu_seconds(command: list[str]) -> float:
    """Seconds of processor time from start to end of a process (its children's, which is why it is read twice)."""
    before = _children()
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - our own interpreter
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{command}: {done.stderr.decode()[-500:]}")
    return _children() - before


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
