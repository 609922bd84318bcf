"""``ckptguard scan``: as many objects a second as ``review`` judges, and the memory of ten times as many."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from bench.measure import Row, compare
from bench.objects import RUNTIME, trainjob

RUNS = 10_000
MORE = 5
"""Times as many runs, for the memory."""

# A process each, so that its memory is its own: it is the scan of a cluster that makes its pages as they are asked for.
_SCAN = textwrap.dedent(
    """
    import json, resource, sys, time
    from bench.scanning import Pages
    from webhook.model.policy import Policy
    from webhook.model.release import Release
    from webhook.scan.cluster import ClusterScan
    from webhook.scan.serve import count
    list(ClusterScan(Pages(10), Policy(), None, Release.V2_3).results())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    found = count(ClusterScan(Pages(int(sys.argv[1])), Policy(), None, Release.V2_3).results())
    spent = time.process_time() - began
    assert sum(found.values()) == int(sys.argv[1]), found
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": spent, "mebibytes": peak / 1024, "grown": (peak - before) / 1024}))
    """
)
_REVIEW = textwrap.dedent(
    """
    import contextlib, io, json, resource, sys, time
    from webhook.cli import main
    main(["review", sys.argv[2], "--without-guard", "--trainer", "2.3", "-o", "json=/dev/null"])
    began = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        main(["review", sys.argv[1], "--without-guard", "--trainer", "2.3", "-o", "json"])
    print(json.dumps({"seconds": time.process_time() - began}))
    """
)


def _run(number: int) -> dict[str, Any]:
    obj: dict[str, Any] = copy.deepcopy(trainjob())
    obj["metadata"] = {"name": f"run-{number:06}", "namespace": RUNTIME["metadata"]["namespace"], "uid": str(number)}
    return obj


class Pages:
    """An API server whose TrainJobs are made page by page; a runtime, a claim and a class beside them."""

    def __init__(self, runs: int) -> None:
        self._runs = runs

    def request(self, method: str, path: str, params: Any = None, body: Any = None, content_type: str = "") -> Any:
        from webhook.runs.api import Answer

        kind = path.rpartition("/")[2]
        begin, limit = int((params or {}).get("continue") or 0), int((params or {}).get("limit") or 0)
        if kind == "trainjobs":
            end = min(begin + limit, self._runs)
            items = json.loads(json.dumps([_run(number) for number in range(begin, end)]))
            return Answer(200, {"items": items, "metadata": {"continue": str(end)} if end < self._runs else {}})
        found = {"trainingruntimes": [RUNTIME]}.get(kind, [])
        return Answer(200, {"items": json.loads(json.dumps(found)), "metadata": {}})


def measure_scan(rounds: int, _: int) -> list[Row]:
    """Processor time for the same objects, and what memory grows by where there are several times as many."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("few.json", "all.json")]
        for file, number in zip(files, (10, RUNS), strict=True):
            objects = [RUNTIME, *(_run(one) for one in range(number))]
            file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        scans, reviews, grown, more = [], [], [], []
        for _round in range(min(rounds, 3)):
            one = _asked(_SCAN, str(RUNS))
            scans.append(RUNS / one["seconds"])
            grown.append(one["mebibytes"])
            more.append(_asked(_SCAN, str(MORE * RUNS))["mebibytes"])
            reviews.append(RUNS / _asked(_REVIEW, str(files[1]), str(files[0]))["seconds"])
    return [
        compare(f"scan of {RUNS} runs / review of them, objects a second", scans, reviews, ">= 0.33", _rate, "review"),
        compare(f"memory of a scan of {MORE * RUNS} runs / of {RUNS}", more, grown, "<= 1.5", _mebibytes, "a fifth"),
    ]


def _asked(program: str, *arguments: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _rate(number: float) -> str:
    return f"{number:.0f}/s"


def _mebibytes(number: float) -> str:
    return f"{number:.0f} MiB"
