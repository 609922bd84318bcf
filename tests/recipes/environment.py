"""The virtual environment that the recipes run in, made once for each lock file and Python, outside the clone."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).parent / "requirements.lock"


def python() -> Path:
    """The interpreter of the environment. Raises ``EnvironmentFault`` where it cannot be made."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "checkpoint-guard"
    home = cache / f"recipes-{version}-{digest}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f".{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            # Made where it will stand: an environment holds its own path.
            _run(sys.executable, "-m", "venv", str(home))
            _run(str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(LOCK))
            (home / "complete").touch()
    return home / "bin" / "python"


def _run(*command: str) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise EnvironmentFault(f"{' '.join(command[:4])}: {run.stderr.strip() or run.stdout.strip()}")


def asked_for() -> Path:
    """The interpreter that ``RECIPES_PYTHON`` names, else that of the environment, made where it is not there yet."""
    given = os.environ.get("RECIPES_PYTHON")
    return Path(given) if given else python()


class EnvironmentFault(Exception):  # noqa: N818 - what happened to the environment, said as that
    """The environment could not be made; the text is what the failed command printed."""
