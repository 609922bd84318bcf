"""The training program: what reading it costs a decision, cold and cached, and what a hostile one costs the others."""

from __future__ import annotations

import ast
import copy
import statistics
import subprocess
import sys
import time
from typing import Any

import orjson

from bench.measure import Row, compare, microseconds, milliseconds, per_call
from bench.objects import BenchView, review, trainjob
from bench.offline import PROGRAM
from webhook.decision import review_object
from webhook.effective import kept
from webhook.model.policy import Policy
from webhook.model.request import Request
from webhook.programs import cache
from webhook.server.envelope import parse_review
from webhook.server.run import spare_collections

COLD = 2.9
"""Allowed are 25 us and 3 ms where ``orjson.loads`` takes 4.6 us and ``ast.parse`` 3.4 us a line."""

_LINES = 300


def measure_program(rounds: int, _: int) -> list[Row]:
    """A decision with a program of 300 lines, cached and cold, against one whose program is in the image.

    Collected as in the server: a syntax tree is some ten thousand objects.
    """
    spare_collections()
    view, policy = BenchView(), Policy()
    image = _request(_job(["python", "/app/train.py"], []))
    shell = _request(_job(["bash", "-ec"], [f"exec python - <<'PY'\n{program()}PY\n"]))
    body, text = review(trainjob()), program()
    bare, cached, cold, loads, parse = [], [], [], [], []
    for _ in range(rounds):
        loads.append(per_call(lambda: orjson.loads(body)))
        parse.append(per_call(lambda: ast.parse(text)))
        bare.append(per_call(lambda: _anew(image, view, policy)))
        cached.append(per_call(lambda: _anew(shell, view, policy)))
        cold.append(per_call(lambda: _cold(shell, view, policy)))
    added = [one - other for one, other in zip(cached, bare, strict=True)]
    first = [one - other for one, other in zip(cold, cached, strict=True)]
    return [
        compare("a program read before adds", added, loads, f"<= {PROGRAM}", microseconds, "orjson.loads"),
        compare(f"first read of {_LINES} lines", first, parse, f"<= {COLD}", milliseconds, "ast.parse"),
        _beside_hostile(view, policy, shell, rounds),
        _start(),
    ]


def program() -> str:
    """A training program of 300 lines: a loop, its data, its model, saves and a resume."""
    head = (
        "import glob\nimport os\nimport re\n\nimport torch\nfrom torch import nn\n\n"
        'out = os.environ["CKPT_DIR"]\nos.makedirs(out, exist_ok=True)\n'
    )
    layer = (
        "\n\nclass Block{0}(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
        "        self.first = nn.Linear(width, 4 * width)\n        self.second = nn.Linear(4 * width, width)\n\n"
        "    def forward(self, x):\n        return x + self.second(torch.relu(self.first(x)))\n"
    )
    tail = (
        "\n\nmodel = nn.Sequential(Block0(64), Block1(64))\noptimizer = torch.optim.AdamW(model.parameters())\n"
        'found = sorted(glob.glob(f"{out}/step_*.pt"), key=lambda p: int(re.findall(r"\\d+", p)[-1]))\nstart = 0\n'
        "if found:\n    state = torch.load(found[-1])\n    model.load_state_dict(state['model'])\n"
        "    optimizer.load_state_dict(state['optimizer'])\n    start = state['step'] + 1\n"
        "for step in range(start, 100000):\n    loss = model(torch.randn(8, 64)).pow(2).mean()\n    loss.backward()\n"
        "    optimizer.step()\n    optimizer.zero_grad()\n    if step % 100 == 0:\n"
        "        state = {'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'step': step}\n"
        '        torch.save(state, f"{out}/step_{step:08d}.pt.tmp")\n'
        '        os.replace(f"{out}/step_{step:08d}.pt.tmp", f"{out}/step_{step:08d}.pt")\n'
        "        for old in found[:-3]:\n            os.remove(old)\n"
    )
    blocks = (_LINES - head.count("\n") - tail.count("\n")) // layer.count("\n")
    text = head + "".join(layer.format(number) for number in range(blocks)) + tail
    return text + "#\n" * (_LINES - text.count("\n"))


def _job(command: list[str], args: list[str]) -> dict[str, Any]:
    obj = copy.deepcopy(trainjob())
    obj["spec"]["trainer"]["command"] = command
    obj["spec"]["trainer"]["args"] = args
    return obj


def _request(obj: dict[str, Any]) -> Request:
    request = parse_review(review(obj)).request
    if request is None:
        raise RuntimeError("the benchmark's own review holds nothing to decide")
    return request


def _anew(request: Request, view: BenchView, policy: Policy) -> None:
    """Nothing is known of the spec; of its program, what the rules said."""
    kept.clear()
    review_object(request, view, policy)


def _cold(request: Request, view: BenchView, policy: Policy) -> None:
    cache.clear()
    _anew(request, view, policy)


def _beside_hostile(view: BenchView, policy: Policy, quiet: Request, rounds: int) -> Row:
    """The 99th percentile of the decisions on others, among which are some on a text of 1 MiB."""
    hostile = [_request(_job(["bash", "-c"], ["a;(" * (2**20 // 3) + str(number)])) for number in range(5)]
    alone, beside = [], []
    for _ in range(rounds):
        alone.append(_slowest([quiet] * 1000, quiet, view, policy))
        mixed = [hostile[number // 200] if number % 200 == 99 else quiet for number in range(1000)]
        beside.append(_slowest(mixed, quiet, view, policy))
    return compare("p99 beside programs of 1 MiB / alone", beside, alone, "<= 1.5", microseconds, "alone")


def _slowest(requests: list[Request], counted: Request, view: BenchView, policy: Policy) -> float:
    """The 99th percentile of the time until an answer: one's own, and that of the one before, which may be hostile."""
    spent = []
    before = 0.0
    for request in requests:
        started = time.perf_counter()
        review_object(request, view, policy)
        took = time.perf_counter() - started
        if request is counted:
            spent.append(before + took)
        before = took
    return statistics.quantiles(spent, n=100)[-1]


def _start() -> Row:
    """Modules of the grammar that are imported before a program is read: none."""
    code = (
        "import sys, webhook.cli.review, webhook.decision; "
        "print(sum(name.partition('.')[0].startswith('tree_sitter') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)  # noqa: S603 - our own code
    loaded = float(done.stdout)
    return Row("modules of tree-sitter at start", f"{loaded:g}", "0 allowed", loaded, "<= 0")
