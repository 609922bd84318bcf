"""A cluster that may be out of reach for a while, and what a command has to clean up there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from webhook.cluster.access import Unreachable
from webhook.runs.api import Answer, Api
from webhook.runs.clock import Clock, Waiting

Result = TypeVar("Result")

_NOT_NOW: Final = frozenset({429, 502, 503, 504})
"""What an API server answers that has just begun, has too much to do, or has lost its own store; and a proxy for it."""

APPEARS: Final = 2.0
"""Seconds after which a creation whose answer was not waited for has surely been carried out, or never will be."""


class PodApi(Api, Protocol):
    """What the commands on a run need of a cluster; all raise Unreachable."""

    def text(self, path: str, params: Mapping[str, str] | None = None) -> tuple[int, str]: ...

    def execute(
        self, namespace: str, pod: str, container: str, command: Sequence[str], seconds: float = 60.0
    ) -> tuple[int | None, str, str]: ...


class _NotNow(Unreachable):
    """There was an answer: to try again."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"the API server cannot answer now: {answer.message[:200]}")
        self.answer = answer


class Kube:
    """Tries reads again for ``patience`` seconds while the API server is out of reach, and says so once.

    A write is tried once more only where it is sure to have no second effect (a patch to a value, a deletion).
    """

    def __init__(self, api: PodApi, clock: Clock, say: Callable[[str], None], patience: float = 60.0) -> None:
        self._api = api
        self._say = say
        self.clock = clock
        self.patience = patience
        self.nodes: dict[str, tuple[float, Answer]] = {}
        """What is known of nodes, and since when by the clock (``lost``)."""
        self._made: dict[str, bool] = {}
        """Paths of what is to go, and whether its creation was answered."""

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

        def ask() -> Answer:
            answer = self._api.request(method, path, params, body, content_type)
            if answer.code in _NOT_NOW:
                raise _NotNow(answer)
            return answer

        try:
            return self._patiently(ask)
        except _NotNow as last:
            return last.answer

    def text(self, path: str, params: Mapping[str, str] | None = None) -> tuple[int, str]:
        def ask() -> tuple[int, str]:
            code, text = self._api.text(path, params)
            if code in _NOT_NOW:
                raise _NotNow(Answer(code, {"message": text}))
            return code, text

        try:
            return self._patiently(ask)
        except _NotNow as last:
            return last.answer.code, last.answer.message

    def execute(
        self, namespace: str, pod: str, container: str, command: Sequence[str], seconds: float = 60.0
    ) -> tuple[int | None, str, str]:
        return self._api.execute(namespace, pod, container, command, seconds)

    def create(self, path: str, body: Mapping[str, Any]) -> Answer:
        """Create an object that ``clean`` deletes. Its name is ours, not generated: an interruption before the answer
        would leave one that nobody can name."""
        one = f"{path}/{body['metadata']['name']}"
        self._made[one] = False
        answer = self.request("POST", path, None, body)
        if answer.ok:
            self._made[one] = True
        elif answer.code < 500:
            del self._made[one]
        return answer

    def clean(self) -> None:
        """Delete what was made. What cannot be deleted now ends by itself.

        An interruption forgets nothing: the next call goes on. What was asked for without an answer may appear yet.
        """
        for path, answered in list(self._made.items()):
            wait = Waiting(self.clock, 0.0 if answered else APPEARS)
            with contextlib.suppress(Unreachable):
                while self._delete(path).code == 404 and not wait.over():
                    wait.pause(0.2)
            del self._made[path]

    def _delete(self, path: str) -> Answer:
        return self._api.request("DELETE", path, {"gracePeriodSeconds": "0", "propagationPolicy": "Background"})

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
