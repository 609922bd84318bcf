"""`make e2e-nodes`: the tests on nodes and those of `deploy/`, or one line that says why not, and exit code 0.

What is marked `each_change`, and with `E2E_FULL=1` everything.
"""

import os
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

from tests.conftest import FULL
from tests.deploy.tools import TOOLS, build
from tests.e2e_nodes.machine import ROOT, log, missing

# Runs first: they wait more than they work, and what is still to be built is built meanwhile.
NODES = sorted(
    (str(path.relative_to(ROOT)) for path in Path(__file__).parent.glob("test_*.py")),
    key=lambda name: ("test_runs" not in name, "kustomize" not in name, name),
)

_FAILED: list[str] = []
"""The last lines of each run of pytest that failed."""


def main() -> int:
    """The exit code of pytest; 0 where there is nothing to test on."""
    why = None if os.environ.get("E2E_KUBECONFIG") else missing()
    if why is not None:
        print(f"e2e-nodes: skipped: there is no cluster whose nodes run pods: {why}")
        return 0
    began = time.monotonic()
    build("kustomize")
    wanted = TOOLS if FULL else ("helm", "actionlint")
    others = [sys.executable, "-m", "tests.deploy.tools", *wanted]
    with subprocess.Popen(["nice", "-n", "19", *others], cwd=ROOT, stdout=subprocess.DEVNULL) as building:
        code = _pytest("-s", *NODES)
    codes: list[int] = [code, building.returncode, _pytest("tests/deploy")]
    for text in _FAILED:  # once more at the end, where it is looked for first
        print(text)
    if building.returncode:
        print(f"e2e-nodes: failed: {' '.join(others[1:])}")
    log(f"e2e-nodes: {(time.monotonic() - began) / 60:.0f} minutes")
    return max(abs(code) for code in codes)


def _pytest(*arguments: str) -> int:
    # The first test waits for all that has to be built.
    limit = ["-o", "faulthandler_timeout=3600", "-o", "faulthandler_exit_on_timeout=true"]
    command = [sys.executable, "-m", "pytest", "-vv", "--durations=12", *limit, *arguments]
    last: deque[str] = deque(maxlen=80)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, errors="replace") as running:
        for line in running.stdout or ():
            sys.stdout.write(line)
            sys.stdout.flush()
            last.append(line)
    code: int = running.returncode
    if code:
        _FAILED.append(f"e2e-nodes: failed: {' '.join(command[3:])}\n{''.join(last)}")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
