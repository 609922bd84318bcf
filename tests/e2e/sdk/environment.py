"""The virtual environment with the SDK, made once for each lock file and Python, outside the clone."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e.controlplane.build import cache_directory

LOCK = Path(__file__).parent / "requirements.lock"


def python() -> Path:
    """The interpreter of the environment. Raises SdkError where it cannot be made."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    home = cache_directory().parent / f"sdk-{version}-{digest}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / f".{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            _make(home)
            (home / "complete").touch()
    return home / "bin" / "python"


def _make(home: Path) -> None:
    # Made where it will stand: an environment holds its own path.
    _run(sys.executable, "-m", "venv", str(home))
    _run(str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(LOCK))


def _run(*command: str) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SdkError(f"{' '.join(command[:4])}: {run.stderr.strip() or run.stdout.strip()}")


class SdkError(Exception):
    """The environment could not be made; the text is what the failed command printed."""


def run(script: Path, *arguments: str, kubeconfig: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script there as a user of that cluster; never raises for what the script does."""
    with tempfile.TemporaryDirectory() as directory:
        return subprocess.run(
            [str(python()), str(script), *arguments],
            env={**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": ""},
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
