"""`make e2e-nodes`: the tests of `deploy/` and those on nodes, or one line that says why not, and exit code 0.

Seen whole on 2026-11-29: 123 passed and 1 skipped (no network plugin here enforces NetworkPolicy) in 42 minutes, with
two minutes of load a figure, programs in the cache, on two cores that had five to seven times that much to do.
"""

import os
import subprocess
import sys
import time

from tests.deploy.tools import TOOLS, build
from tests.e2e_nodes.machine import NO_LAB, ROOT, log, missing

# Runs first: they wait more than they work, and what is still to be built is built meanwhile.
NODES = [
    f"tests/e2e_nodes/test_{name}.py"
    for name in ("runs", "runs_faults", "runs_kueue", "runs_nodes", "kustomize", "cert_manager", "helm")
]
FAILED = 1
"""pytest's exit code where tests failed."""


def main() -> int:
    """The exit code of pytest; 0 where there is nothing to test on."""
    why = None if os.environ.get("E2E_KUBECONFIG") else missing()
    if why is not None:
        print(f"e2e-nodes: skipped: there is no cluster whose nodes run pods: {why}")
        return 0
    began = time.monotonic()
    build("kustomize")
    others = [sys.executable, "-m", "tests.deploy.tools", *(name for name in TOOLS if name != "kustomize")]
    with subprocess.Popen(["nice", "-n", "19", *others], cwd=ROOT, stdout=subprocess.DEVNULL) as building:
        code = _pytest("-s", *NODES)
        if code == FAILED:
            # Nodes lose their power here and clocks decide: what fails has to fail twice.
            log("e2e-nodes: what failed is tried once more")
            code = _pytest("-s", "--last-failed", "--last-failed-no-failures=none", *NODES)
    if code == NO_LAB:
        log("e2e-nodes: skipped: the recipes of the lab do not run on this machine, see above")
        code = 0
    codes = [code, building.returncode, _pytest("tests/deploy")]
    log(f"e2e-nodes: {(time.monotonic() - began) / 60:.0f} minutes")
    return max(map(abs, codes))


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", "-vv", "--durations=12", *arguments], cwd=ROOT).returncode


if __name__ == "__main__":
    raise SystemExit(main())
