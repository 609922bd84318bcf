"""Interpreters with frameworks in them, made once and kept beside the clone's other tools, outside it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "checkpoint-guard" / "rehearsal"
PACKAGES: Final = {
    "light": ("numpy==2.4.6", "xgboost==3.2.0", "jax==0.10.2", "orbax-checkpoint==0.12.8"),
    "full": ("numpy", "torch==2.15.0", "transformers==5.24.0", "accelerate==1.15.0", "lightning==2.6.6"),
}
"""``full`` is some gigabytes: PyPI's torch brings CUDA's libraries, which nobody needs here."""


def interpreter(needs: str) -> str:
    """The Python that has what a program needs. Raises CalledProcessError where it cannot be installed."""
    if not needs:
        return sys.executable
    folder = CACHE / needs
    python = folder / "bin" / "python"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{needs}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = "\n".join(PACKAGES[needs])
        done = folder / ".done"
        if not done.exists() or done.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            install = [str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir", *PACKAGES[needs]]
            subprocess.run(install, check=True)
            done.write_text(wanted)
    return str(python)
