"""A cluster that may be out of reach for a while, and what a command has to clean up there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from webhook.runs.api import Answer, Api, Unreachable
from webhook.runs.clock import Clock

Result = TypeVar("Result")


class PodApi(Api, Protocol):
    """What the commands on a run need of a cluster; all raise Unreachable."""

    def text(self, path: str, params: Mapping[str, str] | None = None) -> tuple[int, str]: ...

    def execute(
        self, namespace: str, pod: str, container: str, command: Sequence[str], seconds: float = 60.0
    ) -> tuple[int | None, str, str]: ...


class Kube:
    """Tries reads again for ``patience`` seconds while the API server is out of reach, and says so once.

    A write is tried once more only where it is sure to have no second effect (a patch to a value, a deletion).
    """

    def __init__(self, api: PodApi, clock: Clock, say: Callable[[str], None], patience: float = 60.0) -> None:
        self._api = api
        self._say = say
        self.clock = clock
        self.patience = patience
        self.made: list[str] = []
        """Paths of what was created and is to go."""

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        if method == "POST":
            return self._api.request(method, path, params, body, content_type)
        return self._patiently(lambda: self._api.request(method, path, params, body, content_type))

    def text(self, path: str, params: Mapping[str, str] | None = None) -> tuple[int, str]:
        return self._patiently(lambda: self._api.text(path, params))

    def execute(
        self, namespace: str, pod: str, container: str, command: Sequence[str], seconds: float = 60.0
    ) -> tuple[int | None, str, str]:
        return self._api.execute(namespace, pod, container, command, seconds)

    def clean(self) -> None:
        """Delete what was made. What cannot be deleted now ends by itself."""
        while self.made:
            path = self.made.pop()
            with contextlib.suppress(Unreachable):
                self._api.request("DELETE", path, {"gracePeriodSeconds": "0", "propagationPolicy": "Background"})

    def _patiently(self, ask: Callable[[], Result]) -> Result:
        start = self.clock.monotonic()
        told = False
        while True:
            try:
                return ask()
            except Unreachable as error:
                if self.clock.monotonic() - start >= self.patience:
                    raise
                if not told:
                    self._say(f"{error}; trying again for {self.patience:.0f} s")
                    told = True
                self.clock.sleep(1.0)
