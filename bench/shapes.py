"""Objects that make one list long: what a review of N and of 2N of it costs, beside parsing the same bytes.

A shape with programs is held against ``ast.parse`` or tree-sitter for the texts that are read.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import orjson

from bench.measure import Row, milliseconds
from webhook.cluster.file_view import FileView
from webhook.decision import default_object, review_object
from webhook.effective import kept
from webhook.model.cluster import Claim, Gap
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.programs import cache
from webhook.server.envelope import judged, patched

Object = dict[str, Any]
LABEL: Final = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
API: Final = "trainer.kubeflow.org/v1alpha1"
JSON, PROGRAMS, DOUBLED = 60, 3, 2.5
"""At most so many times the parsing of the same bytes, of the same programs, and of half the size."""


def container(name: str = "node", mounts: Iterable[Object] = (), **more: Any) -> Object:
    return {"name": name, "image": "r/t:1", **more, "volumeMounts": [{"name": "state", "mountPath": "/state"}, *mounts]}


def job(
    name: str = "node", containers: list[Object] | None = None, volumes: Iterable[Object] = (), **of: Any
) -> Object:
    claim = {"name": "state", "persistentVolumeClaim": {"claimName": "state"}}
    pod = {"containers": containers or [container()], "volumes": [claim, *volumes]}
    return {"name": name, **of, "template": {"metadata": {"labels": LABEL}, "spec": {"template": {"spec": pod}}}}


def runtime(jobs: list[Object]) -> Object:
    spec = {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": jobs}}}
    metadata = {"name": "shaped", "namespace": "team"}
    return {"apiVersion": API, "kind": "TrainingRuntime", "metadata": metadata, "spec": spec}


def trainjob(env: Iterable[Object] = (), **spec: Any) -> Object:
    trainer = {"numNodes": 1, "env": [{"name": "CKPT_DIR", "value": "/state/run"}, *env]}
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "shaped"}
    metadata = {"name": "run", "namespace": "team"}
    return {
        "apiVersion": API,
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": {"runtimeRef": reference, "trainer": trainer, **spec},
    }


def patch(jobs: list[Object]) -> Object:
    return {
        "manager": "example.com/a",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }


def of_pod(name: str, **pod: Any) -> Object:
    return {"name": name, "template": {"spec": {"template": {"spec": pod}}}}


def python_text(seed: int) -> str:
    line = f"loss_{seed} = model(batch).mean(); loss_{seed}.backward(); optimizer.step()\n"
    return "import os, torch\n" + line * 380 + f"torch.save(model, os.environ['CKPT_DIR'] + '/last-{seed}.pt')\n"


def shell_text(seed: int) -> str:
    line = f'if [ -n "$A{seed}" ]; then echo "step of $RUN" | tee -a log{seed}.txt; fi\n'
    return line * 240 + f"python train{seed}.py --output_dir $CKPT_DIR\n"


Shape = Callable[[int], list[Object]]


def _named(name: str, source: Mapping[str, Any], number: int) -> list[Object]:
    return [{"name": f"{name}{at}", **source} for at in range(number)]


SHAPES: Final[Mapping[str, tuple[Shape, int]]] = {
    "jobs without a mount": (
        lambda n: [runtime([job(f"n{at}", [{"name": "node", "image": "x"}]) for at in range(n)]), trainjob()],
        150,
    ),
    "inline disks": (
        lambda n: [
            runtime([job(volumes=[{"name": f"d{at}", "gcePersistentDisk": {"pdName": f"d{at}"}} for at in range(n)])]),
            trainjob(),
        ],
        2500,
    ),
    "claims": (
        lambda n: [
            runtime(
                [job(volumes=[{"name": f"c{at}", "persistentVolumeClaim": {"claimName": f"c{at}"}} for at in range(n)])]
            ),
            trainjob(),
        ],
        2500,
    ),
    "ports": (
        lambda n: [
            runtime([job(containers=[container(ports=[{"containerPort": 1 + at % 65000} for at in range(n)])])]),
            trainjob(),
        ],
        2500,
    ),
    "mounts": (
        lambda n: [
            runtime(
                [job(containers=[container(mounts=[{"name": "state", "mountPath": f"/m/{at}"} for at in range(n)])])]
            ),
            trainjob(),
        ],
        2000,
    ),
    "missing volumes": (
        lambda n: [
            runtime(
                [job(containers=[container(mounts=[{"name": f"z{at}", "mountPath": f"/m/{at}"} for at in range(n)])])]
            ),
            trainjob(),
        ],
        2000,
    ),
    "bad variables": (
        lambda n: [runtime([job()]), trainjob([{"name": f"9 bad={at}", "value": "x"} for at in range(n)])],
        2500,
    ),
    "unknown jobs": (
        lambda n: [
            runtime([job(f"n{at}") for at in range(n)]),
            trainjob(runtimePatches=[patch([of_pod(f"w-{at}", nodeSelector={"a": "b"}) for at in range(n)])]),
        ],
        150,
    ),
    "unknown containers": (
        lambda n: [
            runtime([job(containers=[container(), *_named("side", {"image": "x"}, n)])]),
            trainjob(runtimePatches=[patch([of_pod("node", containers=_named("sidecar-", {"volumeMounts": []}, n))])]),
        ],
        250,
    ),
    "dependsOn": (
        lambda n: [
            runtime(
                [
                    job(f"n{at}", **({"dependsOn": [{"name": f"n{at - 1}", "status": "Ready"}]} if at else {}))
                    for at in range(n)
                ]
            ),
            trainjob(),
        ],
        300,
    ),
}
"""Name -> what makes the objects of size N, and N."""
TEXTS: Final[Mapping[str, tuple[str, Callable[[int], str], int]]] = {
    "Python programs": ("python", python_text, 6),
    "shell programs": ("bash", shell_text, 4),
}


class _All(FileView):
    """What was put in is all there is."""

    def claim(self, namespace: str, name: str) -> Claim | Gap:
        return self.store.claim(namespace, name)


def measure_shapes(rounds: int, _: int) -> list[Row]:
    """Each shape at N and at 2N: how it grows, and what it costs beside the parsers alone."""
    rows: list[Row] = []
    for name, (make, number) in SHAPES.items():
        small, large = (_best(make, size, rounds) for size in (number, 2 * number))
        parse = _least(partial(orjson.loads, orjson.dumps(make(2 * number))), rounds)
        rows += _rows(name, number, small, large, parse, "orjson.loads", JSON)
    for name, (shell, text, number) in TEXTS.items():

        def programs(n: int, shell: str = shell, text: Callable[[int], str] = text) -> list[Object]:
            jobs = [job(f"n{at}", [container(command=[shell, "-c", text(at)])]) for at in range(n)]
            return [runtime(jobs), trainjob()]

        small, large = (_best(programs, size, rounds) for size in (number, 2 * number))
        texts = [text(at) for at in range(2 * number)]
        parser = ast.parse if shell == "python" else _tree_sitter()
        parse = _least(partial(_each, parser, texts), rounds)
        rows += _rows(name, number, small, large, parse, "of the parser", PROGRAMS)
    return rows


def _rows(name: str, number: int, small: float, large: float, parse: float, against: str, goal: int) -> list[Row]:
    return [
        Row(
            f"{name}, {2 * number}",
            milliseconds(large),
            f"{milliseconds(small)} of {number}",
            large / max(small, 1e-6),
            f"<= {DOUBLED}",
        ),
        Row(
            f"{name}, {2 * number}",
            milliseconds(large),
            f"{milliseconds(parse)} {against}",
            large / parse,
            f"<= {goal}",
        ),
    ]


def _tree_sitter() -> Callable[[str], object]:
    import tree_sitter

    from webhook.programs.grammar import bash

    parser = tree_sitter.Parser(tree_sitter.Language(bash()))
    return lambda text: parser.parse(text.encode())


def _best(make: Shape, number: int, rounds: int) -> float:
    """Processor seconds of both questions and of their answers, with nothing kept from before."""
    data = orjson.dumps(make(number))
    best = float("inf")
    for _ in range(max(rounds, 2)):
        objects = orjson.loads(data)
        view = _All(())
        view.store.unknown.clear()
        for one in objects[:-1]:
            view.store.put(one["kind"], one)
        kept.clear()
        cache.clear()
        started = time.process_time()
        request = Request("CREATE", "TrainJob", "team", "run", objects[-1], uid="u")
        defaulted = default_object(request, view, Policy(), Release.V2_3)
        patched("u", defaulted, "")
        stored = Request("CREATE", "TrainJob", "team", "run", defaulted.object, uid="u")
        judged("u", review_object(stored, view, Policy(), Release.V2_3), "TrainJob/run")
        best = min(best, time.process_time() - started)
    return best


def _each(parser: Callable[[str], object], texts: Iterable[str]) -> None:
    for one in texts:
        parser(one)


def _least(function: Callable[[], object], rounds: int) -> float:
    best = float("inf")
    for _ in range(max(rounds, 2)):
        started = time.process_time()
        function()
        best = min(best, time.process_time() - started)
    return max(best, 1e-6)
