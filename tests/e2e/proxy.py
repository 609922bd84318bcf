"""A bad line between our server and the API server: slow, silent, or cut in the middle of a word."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import yaml

from tests.e2e.controlplane.controlplane import GUARD, ControlPlane


class _Pair:
    """One connection through the line."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near = near
        self.far = far
        self.silent = False
        self.left: int | None = None
        """Bytes until it is cut."""
        self.closed = False

    def close(self) -> None:
        self.closed = True
        for end in (self.near, self.far):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Line:
    """Listens on loopback and hands on to the API server. TLS goes through as it is."""

    def __init__(self, plane: ControlPlane) -> None:
        self.delay = 0.0
        """Seconds that everything from the API server takes longer."""
        host, _, port = plane.server.removeprefix("https://").partition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[_Pair] = []
        self._closed = False
        self.kubeconfig: Path = plane.scratch / f"kubeconfig-line-{self._listener.getsockname()[1]}"
        """That of our server's account, with this line in between."""
        config = yaml.safe_load(plane.kubeconfig_of(GUARD).read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(yaml.safe_dump(config))
        self._start(self._accept)

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._listener.close()
        for pair in self._pairs:
            pair.close()

    def silence(self) -> int:
        """On the connections of now nothing more is heard, and they stay open until ``cut``; how many these are."""
        for pair in self._pairs:
            pair.silent = True
        return len(self._pairs)

    def cut(self, after: int = 0) -> None:
        """The connections of now break after so many further bytes from the API server."""
        for pair in list(self._pairs):
            pair.left = after
            if not after:
                pair.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, 5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            pair = _Pair(near, far)
            self._pairs.append(pair)
            self._start(lambda pair=pair: self._there(pair))
            self._start(lambda pair=pair: self._back(pair))

    def _there(self, pair: _Pair) -> None:
        with suppress(OSError):
            while data := pair.near.recv(65536):
                pair.far.sendall(data)
        pair.close()

    def _back(self, pair: _Pair) -> None:
        with suppress(OSError):
            while data := pair.far.recv(65536):
                time.sleep(self.delay)
                while pair.silent:
                    time.sleep(0.1)
                    if pair.closed:
                        return
                if pair.left is not None:
                    data = data[: pair.left]
                    pair.left -= len(data)
                pair.near.sendall(data)
                if pair.left == 0:
                    break
        pair.close()
        with suppress(ValueError):
            self._pairs.remove(pair)

    def _start(self, job: object) -> None:
        threading.Thread(target=job, daemon=True).start()  # type: ignore[arg-type]
