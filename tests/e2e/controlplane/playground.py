"""A cluster for a person: left running in the foreground, with a job that is accepted and one that is denied."""

import signal
import sys
from pathlib import Path

from . import build
from .controlplane import ControlPlane, needed_components
from .guard import Guard
from .releases import Release

EXAMPLES = Path(__file__).parent / "examples"


def run(release: Release, *, kueue: bool, guard: bool) -> int:
    """Starts it, says how to use it, and waits for Ctrl-C or SIGTERM; the exit code."""
    if kueue and not release.runs_with_kueue:
        print(f"Kueue does not run with Trainer {release.trainer}", file=sys.stderr)
        return 1
    build.ensure_all(needed_components(release, kueue=kueue), lambda line: print(line, file=sys.stderr, flush=True))
    signal.signal(signal.SIGTERM, _interrupt)
    print(f"starting Trainer {release.trainer}, some 15 s", file=sys.stderr, flush=True)
    try:
        with ControlPlane(release, kueue=kueue) as plane:
            server = None
            try:
                if guard:
                    server = Guard(plane)
                    server.start()
                    server.register()
                plane.kubectl("apply", "-f", str(EXAMPLES / "runtime.yaml"))
                print(_welcome(plane, server), flush=True)
                while True:
                    signal.pause()
            finally:
                if server is not None:
                    server.stop()
    except KeyboardInterrupt:
        return 0


def _welcome(plane: ControlPlane, server: Guard | None) -> str:
    lines = [
        "",
        f"export KUBECONFIG={plane.kubeconfig}",
        f"alias kubectl={build.kubernetes().program('kubectl')}",
        "",
        f"Trainer {plane.release.trainer} runs there, without nodes: pods are made and stay pending. To try:",
        "",
        "# accepted: the runtime mounts a claim that every node can mount",
        f"kubectl apply -f {EXAMPLES / 'accepted.yaml'}",
        "kubectl get trainjobs,jobsets,pods",
        "",
        "# denied: the checkpoints would lie in the container's own filesystem" if server else "# the same, unguarded:",
        f"kubectl apply -f {EXAMPLES / 'denied.yaml'}",
    ]
    if server:
        lines += [
            "",
            "# filled in: a volume, its mount, the directory; once more, and nothing is lost",
            f"kubectl apply -f {EXAMPLES / 'filled.yaml'}",
            "kubectl get trainjob filled -o yaml",
            f"kubectl apply -f {EXAMPLES / 'filled.yaml'}",
        ]
    lines += [
        "",
        f"Logs are in {plane.directory}" + (f", Checkpoint Guard's in {server.log}" if server else ""),
        "Ctrl-C ends and deletes all of it",
    ]
    return "\n".join(lines)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
