"""One request after the other to the API server, with the rights of whoever runs the command.

``Api`` is what the commands need of a cluster; ``KubernetesApi`` is the official client behind it, imported when a
connection is made, since that costs half a second.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import Struct

Raw = dict[str, Any]

_SECONDS: Final = (5.0, 30.0)
"""To connect, and between two bytes of an answer."""
_WARNING: Final = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')
JSON_PATCH: Final = "application/json-patch+json"


class Answer(Struct, frozen=True):
    """What the API server said. ``body`` is an object, or the Status of a refusal."""

    code: int
    body: Mapping[str, Any] = {}
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return 200 <= self.code < 300

    @property
    def message(self) -> str:
        """Why it was refused, in the API server's words."""
        return str(self.body.get("message") or f"HTTP {self.code}")


class Unreachable(Exception):  # noqa: N818 - a state
    """The API server did not answer."""


class NoCluster(Exception):  # noqa: N818 - a state
    """There is no usable configuration; the text says why."""


class Api(Protocol):
    """Raises Unreachable."""

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
    ) -> Answer: ...


class Refused(Exception):  # noqa: N818 - a state
    """A list that the API server does not give out."""

    def __init__(self, path: str, answer: Answer) -> None:
        super().__init__(f"{path}: {answer.message}")
        self.answer = answer


def each(api: Api, path: str, params: Mapping[str, str] | None = None, page: int = 200) -> Iterator[Raw]:
    """All objects of a collection, page by page. Raises Refused (404: the kind is not served) and Unreachable."""
    asked = {"limit": str(page), **(params or {})}
    while True:
        answer = api.request("GET", path, asked)
        if not answer.ok:
            raise Refused(path, answer)
        yield from answer.body.get("items") or ()
        more = (answer.body.get("metadata") or {}).get("continue")
        if not more:
            return
        asked["continue"] = more


class KubernetesApi:
    """A cluster through the official client: ``kubeconfig``, else the pod's service account, else kubectl's own."""

    def __init__(self, kubeconfig: Path | None = None) -> None:
        from kubernetes import client

        made = _configuration(kubeconfig)
        if not made.verify_ssl:
            # The kubeconfig says insecure-skip-tls-verify; its owner knows.
            import urllib3

            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self._client = client.ApiClient(made)
        self._client.user_agent = "checkpoint-guard"

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        from urllib3.exceptions import HTTPError

        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        prepared = self._client.param_serialize(
            method,
            path,
            query_params=list((params or {}).items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            response = self._client.call_api(*prepared, _request_timeout=_SECONDS)
            data = response.read()  # type: ignore[no-untyped-call]
        except (HTTPError, OSError) as error:
            raise Unreachable(f"the API server cannot be reached: {' '.join(str(error).split())[:200]}") from error
        warnings = response.getheader("Warning")  # type: ignore[no-untyped-call]
        return Answer(response.status, _decoded(data), parse_warnings(warnings or ""))


def parse_warnings(header: str) -> tuple[str, ...]:
    """The texts of ``Warning`` headers (RFC 7234), joined by commas as HTTP libraries do."""
    return tuple(re.sub(r"\\(.)", r"\1", text) for text in _WARNING.findall(header))


def inside() -> bool:
    """Whether this is a pod of a cluster."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def _decoded(data: bytes) -> Raw:
    try:
        found = json.loads(data)
    except ValueError:
        return {"message": data[:300].decode(errors="replace")}
    return found if isinstance(found, dict) else {}


def _configuration(kubeconfig: Path | None) -> Any:
    from kubernetes import client, config

    made = client.Configuration()
    made.retries = 0
    try:
        if kubeconfig is None and inside() and not os.environ.get("KUBECONFIG"):
            config.load_incluster_config(client_configuration=made)  # type: ignore[no-untyped-call]
        else:
            chosen = str(kubeconfig) if kubeconfig is not None else None
            config.load_kube_config(config_file=chosen, client_configuration=made, persist_config=False)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError, ValueError, TypeError, KeyError) as error:
        raise NoCluster(f"the cluster's configuration cannot be used: {error}") from None
    return made
