"""``ckptguard preflight``: as many unfinished runs a second as a third of what ``review`` judges in the same file."""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.measure import Row, compare, milliseconds
from bench.objects import RUNTIME, trainjob
from bench.offline import cpu_seconds

RUNS = 5_000
_MPI = {"mpiImplementation": "OpenMPI", "numProcPerNode": 1, "sshAuthMountPath": "/root/.ssh"}


def measure_preflight(rounds: int, _: int) -> list[Row]:
    """Processor time of both commands over one dump of suspended runs with their JobSets, a fifth of them MPI."""
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder) / "dump.json"
        dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(_objects())}))
        command = [sys.executable, "-m", "webhook"]
        output = ["-o", f"json={Path(folder) / 'out.json'}"]
        asked = [*command, "preflight", "--trainer", "2.3", "--from", "2.2", "--state", str(dump), *output]
        judged = [*command, "review", "--without-guard", "--trainer", "2.2", str(dump), *output]
        ours, against = [], []
        for _ in range(rounds):
            against.append(cpu_seconds(judged))
            ours.append(cpu_seconds(asked))
            found = json.loads((Path(folder) / "out.json").read_bytes())
            lost = sum(item["verdict"] == "lost" for item in found["results"])
            if (len(found["results"]), lost) != (RUNS, RUNS // 5):
                raise RuntimeError(f"preflight names {lost} of {len(found['results'])} runs as lost")
    name = f"ckptguard preflight of {RUNS} unfinished runs / review of the same file"
    return [compare(name, ours, against, "<= 3", milliseconds, "review")]


def _objects() -> Iterator[dict[str, Any]]:
    mpi = _of_mpi()
    yield from (RUNTIME, mpi)
    for number in range(RUNS):
        run = trainjob(f"resnet-{number}")
        run["metadata"] = {"name": f"resnet-{number}", "namespace": "vision"}
        used = mpi if number % 5 == 0 else RUNTIME
        reference = {"kind": used["kind"], "name": used["metadata"]["name"]}
        # Beside resources of the runtime, every one of them would be lost.
        trainer = {**run["spec"]["trainer"], "resourcesPerNode": None}
        run["spec"] = {**run["spec"], "trainer": trainer, "suspend": True, "runtimeRef": reference}
        yield run
        jobs = used["spec"]["template"]["spec"]["replicatedJobs"]
        yield {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": dict(run["metadata"]),
            "spec": {"suspend": True, "replicatedJobs": jobs},
        }


def _of_mpi() -> dict[str, Any]:
    """The benchmark's runtime, started by a launcher."""
    runtime = copy.deepcopy(RUNTIME)
    runtime["metadata"]["name"] = f"{RUNTIME['metadata']['name']}-mpi"
    runtime["spec"]["mlPolicy"] = {"numNodes": 1, "mpi": _MPI}
    spec = runtime["spec"]["template"]["spec"]
    node = spec["replicatedJobs"][-1]
    node.pop("dependsOn")
    launcher = {**copy.deepcopy(node), "name": "launcher"}
    node["template"]["metadata"] = {}
    spec["replicatedJobs"] = [launcher, node]
    return runtime
