"""`make e2e-nodes`: the tests of `deploy/` and those on nodes, or one line that says why not, and exit code 0."""

import os
import subprocess
import sys

from tests.e2e_nodes.machine import ROOT, log, missing

if __name__ == "__main__":
    why = None if os.environ.get("E2E_KUBECONFIG") else missing()
    if why is not None:
        print(f"e2e-nodes: skipped: there is no cluster whose nodes run pods: {why}")
        raise SystemExit(0)
    log("kustomize, Helm and promtool: built unless they are in the cache")
    subprocess.run([sys.executable, "-m", "tests.deploy.tools"], cwd=ROOT, check=True)
    tests = ["tests/deploy", "tests/e2e_nodes"]
    raise SystemExit(subprocess.run([sys.executable, "-m", "pytest", "-v", "-s", *tests], cwd=ROOT).returncode)
