"""Child processes with a log file, that end with the process that started them; free ports; waiting."""

import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class WaitTimeoutError(AssertionError):
    """Something that was waited for did not come about; the text says what, and what was seen last."""


class Process:
    """A program that runs in the background and writes to a log file. It can be started again after it ended."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._environment = dict(environment or {})
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Starts it. Call from the main thread: with `setpriv` it dies with the thread that started it."""
        # A killed test run must leave nothing behind that holds a port.
        tether = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [*tether, *self._command],
                env=os.environ | self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self, how: signal.Signals = signal.SIGKILL, timeout: float = 30) -> int | None:
        """Ends it and waits for that; the exit code, None where it never ran. SIGKILL follows after `timeout`."""
        if self._child is None:
            return None
        if self._child.poll() is None:
            os.killpg(self._child.pid, how)
            try:
                self._child.wait(timeout)
            except subprocess.TimeoutExpired:
                os.killpg(self._child.pid, signal.SIGKILL)
        return self._child.wait()

    def log_tail(self, lines: int = 15) -> str:
        """The end of its log."""
        if not self.log.exists():
            return ""
        return "\n".join(line[:400] for line in self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_ready(self, url: str, context: ssl.SSLContext | None = None, timeout: float = 90) -> None:
        """Waits until `url` answers 200. Raises WaitTimeoutError, with the end of the log, when it does not."""
        deadline = time.monotonic() + timeout
        while not answers(url, context):
            if not self.running:
                raise WaitTimeoutError(f"{self.name} ended before it was ready:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise WaitTimeoutError(f"{self.name} was not ready after {timeout:.0f} s:\n{self.log_tail()}")
            time.sleep(0.1)


def answers(url: str, context: ssl.SSLContext | None = None) -> bool:
    """Whether a GET of `url` gives 200 now."""
    # A proxy of the machine has no business with loopback.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=context)] if context else [])
    )
    try:
        with opener.open(url, timeout=3) as response:
            return bool(response.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on."""
    # Below the range from which the kernel takes ports for outgoing connections: nothing can take one of these
    # between now and the moment when the program listens, and a restarted program finds its own free again.
    held: list[socket.socket] = []
    try:
        while len(held) < count:
            candidate = socket.socket()
            try:
                candidate.bind(("127.0.0.1", random.randrange(10_000, 32_000)))
            except OSError:
                candidate.close()
                continue
            held.append(candidate)
        return [int(candidate.getsockname()[1]) for candidate in held]
    finally:
        for candidate in held:
            candidate.close()


def wait_until(what: str, probe: Callable[..., T | None], timeout: float = 30, every: float = 0.2) -> T:
    """Calls `probe` until it gives something true, and returns that. Raises WaitTimeoutError naming `what`."""
    deadline = time.monotonic() + timeout
    while True:
        if seen := probe():
            return seen
        if time.monotonic() > deadline:
            raise WaitTimeoutError(f"{what}: not seen within {timeout:.0f} s; last: {seen!r}")
        time.sleep(every)
