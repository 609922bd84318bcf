"""The programs that render and check `deploy/`: built once per version with Go, kept outside the clone.

`make deploy-tools` builds them, which takes minutes the first time; tests skip what is not there.
"""

import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Tool:
    """A Go program, the version it is built in, and build tags."""

    package: str
    version: str
    tags: str = ""


TOOLS = {
    "kustomize": Tool("sigs.k8s.io/kustomize/kustomize/v5", "v5.8.1"),
    "actionlint": Tool("github.com/rhysd/actionlint/cmd/actionlint", "v1.7.12"),
    "helm": Tool("helm.sh/helm/v3/cmd/helm", "v3.22.0"),
    # Without the clients of every cloud that Prometheus finds its targets in: less than half the time to build.
    "promtool": Tool("github.com/prometheus/prometheus/cmd/promtool", "v0.316.0", "remove_all_sd"),
}


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME/checkpoint-guard/tools`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "checkpoint-guard" / "tools"


def build(name: str) -> Path:
    """The program, built unless it is in the cache; several processes may ask at once. Raises FileNotFoundError where
    there is no Go to build it with, CalledProcessError where that fails."""
    tool = TOOLS[name]
    home = cache_directory() / f"{name}-{tool.version}"
    program = home / name
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise FileNotFoundError(f"{name} {tool.version} is not in {home} and there is no Go to build it with")
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            fresh = home / "fresh"
            environment = os.environ | {"CGO_ENABLED": "0", "GOBIN": str(fresh), "GOWORK": "off"}
            subprocess.run(
                [
                    "go",
                    "install",
                    "-trimpath",
                    "-tags",
                    tool.tags,
                    "-ldflags",
                    "-s -w",
                    f"{tool.package}@{tool.version}",
                ],
                env=environment,
                check=True,
                capture_output=True,
                text=True,
            )
            (fresh / name).rename(program)
    return program


def find(name: str) -> Path:
    """The program for a test, from the cache; skips the test where it is not built yet (`make deploy-tools`)."""
    tool = TOOLS[name]
    program = cache_directory() / f"{name}-{tool.version}" / name
    if not program.exists():
        pytest.skip(f"{name} {tool.version} is not built: make deploy-tools")
    return program


if __name__ == "__main__":
    import sys

    for wanted in sys.argv[1:] or TOOLS:
        print(build(wanted))
