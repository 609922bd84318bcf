"""Users who create without a pause: dry-runs through the API server, each answer checked."""

import base64
import http.client
import json
import ssl
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import yaml

from webhook.model.names import INJECTED
from webhook.runs import samples

CLIENTS = 8
_PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainingruntimes?dryRun=All"


@dataclass
class Tally:
    """What came of the requests. Times are seconds since the load began."""

    answered: int = 0
    failed: list[tuple[float, str]] = field(default_factory=list)
    slowest: float = 0.0

    def between(self, begin: float, end: float) -> list[tuple[float, str]]:
        """Failures in a span of time."""
        return [(at, why) for at, why in self.failed if begin <= at < end]


class Load:
    """`with Load(...) as load:` eight clients create runtimes until the block ends; `load.tally` then holds the count.

    Three good ones, which have to come back filled in, for each bad one, which has to be refused by its rule: a
    /mutate that did not answer would go unnoticed otherwise.
    """

    def __init__(self, kubeconfig: Path, namespace: str, clients: int = CLIENTS, pause: float = 0.02) -> None:
        self.tally = Tally()
        self._kubeconfig = yaml.safe_load(kubeconfig.read_text())
        self._namespace = namespace
        self._pause = pause
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._threads = [
            threading.Thread(target=self._client, args=(number,), daemon=True) for number in range(clients)
        ]

    def __enter__(self) -> "Load":
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def _client(self, number: int) -> None:
        connection: http.client.HTTPSConnection | None = None
        turn = number
        while not self._over.is_set():
            bad = turn % 4 == 0
            turn += 1
            at = self.seconds
            try:
                if connection is None:
                    connection = self._connect()
                why = self._ask(connection, bad)
            except (OSError, http.client.HTTPException) as error:
                # The way to the API server itself is not what is tried here, but a failure is a failure.
                why = f"{type(error).__name__}: {error}"
                if connection is not None:
                    connection.close()
                connection = None
            with self._lock:
                self.tally.answered += 1
                self.tally.slowest = max(self.tally.slowest, self.seconds - at)
                if why:
                    self.tally.failed.append((at, why))
            self._over.wait(self._pause)
        if connection is not None:
            connection.close()

    def _ask(self, connection: http.client.HTTPSConnection, bad: bool) -> str:
        """Why the answer is not as expected; empty where it is."""
        body = json.dumps(samples.runtime(self._namespace, bad))
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        connection.request("POST", _PATH.format(self._namespace), body, headers)
        response = connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
        if bad:
            refused = response.status == 400 or response.status == 403
            if refused and f"[{samples.RULE}]" in answer.get("message", ""):
                return ""
            return f"the bad one: {response.status} {answer.get('message', 'created')}"[:300]
        if response.status != 201:
            return f"the good one: {response.status} {answer.get('message')}"[:300]
        if INJECTED not in (answer["metadata"].get("annotations") or {}):
            return "the good one: not filled in"
        return ""

    @property
    def _token(self) -> str:
        token: str = self._user.get("token", "")
        return token

    @property
    def _user(self) -> dict[str, Any]:
        user: dict[str, Any] = self._kubeconfig["users"][0]["user"]
        return user

    def _connect(self) -> http.client.HTTPSConnection:
        server = urlsplit(self._kubeconfig["clusters"][0]["cluster"]["server"])
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if "client-certificate-data" in self._user:
            with tempfile.NamedTemporaryFile("wb") as pair:
                for part in ("client-certificate-data", "client-key-data"):
                    pair.write(base64.b64decode(self._user[part]) + b"\n")
                pair.flush()
                context.load_cert_chain(pair.name)
        elif "client-certificate" in self._user:
            context.load_cert_chain(self._user["client-certificate"], self._user["client-key"])
        return http.client.HTTPSConnection(server.hostname or "", server.port or 443, timeout=30, context=context)
