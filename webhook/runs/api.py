"""One request after the other to the API server, with the rights of whoever runs the command.

``Api`` is what the commands need of a cluster; ``KubernetesApi`` is the official client behind it, imported when a
connection is made, since that costs half a second.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import Struct

from webhook.cluster.access import NoCluster, Refused, Unreachable, kubeconfig_of

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


def each(api: Api, path: str, params: Mapping[str, str] | None = None, page: int = 200) -> Iterator[Raw]:
    """All objects of a collection, page by page. Raises Refused (404: the kind is not served) and Unreachable."""
    asked = {"limit": str(page), **(params or {})}
    while True:
        answer = api.request("GET", path, asked)
        if not answer.ok:
            raise Refused(answer.code, answer.message, path=path)
        yield from answer.body.get("items") or ()
        more = (answer.body.get("metadata") or {}).get("continue")
        if not more:
            return
        asked["continue"] = more


class KubernetesApi:
    """A cluster through the official client: ``kubeconfig``, else the pod's service account, else kubectl's own.

    ``namespace`` is the one of the context, ``default`` where it names none.
    """

    def __init__(self, kubeconfig: Path | None = None, context: str | None = None) -> None:
        from kubernetes import client

        made, self.namespace = _configuration(kubeconfig, context)
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
        code, data, warnings = self._call(method, path, params, body, content_type)
        return Answer(code, _decoded(data), parse_warnings(warnings))

    def text(self, path: str, params: Mapping[str, str] | None = None) -> tuple[int, str]:
        """A body that is no JSON (a log): the status, and the text or the API server's words. Raises Unreachable."""
        code, data, _ = self._call("GET", path, params)
        if not 200 <= code < 300:
            return code, str(_decoded(data).get("message") or f"HTTP {code}")
        return code, data.decode(errors="replace")

    def execute(
        self, namespace: str, pod: str, container: str, command: Sequence[str], seconds: float = 60.0
    ) -> tuple[int | None, str, str]:
        """Run a command in a container: its exit code, output and errors.

        The code is None where it could not be run, and the errors say why. Raises Unreachable.
        """
        from kubernetes.client.exceptions import ApiException
        from kubernetes.stream.ws_client import ERROR_CHANNEL, STDERR_CHANNEL, STDOUT_CHANNEL, websocket_call
        from websocket import WebSocketException

        # The generated method would import the model of a pod, which alone takes as long as all the rest.
        wanted = [
            ("container", container),
            ("stdout", "true"),
            ("stderr", "true"),
            ("stdin", "false"),
            ("tty", "false"),
        ]
        method, url, headers, *_ = self._client.param_serialize(
            "GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/exec", header_params={}, auth_settings=["BearerToken"]
        )
        query = [*(("command", word) for word in command), *wanted]
        try:
            socket = websocket_call(  # type: ignore[no-untyped-call]
                self._client.configuration,
                method,
                url,
                query_params=query,
                headers=headers,
                capture_all=False,
                _preload_content=False,
            )
        except ApiException as error:
            if isinstance(error.__context__, KeyboardInterrupt | SystemExit):
                raise error.__context__ from None  # the client takes every exception for a failed connection
            words = " ".join(str(error.reason or error).split())
            if "Handshake status" in words or error.status:
                return None, "", exec_words(words)
            raise Unreachable(f"the API server cannot be reached: {words[:200]}") from None
        try:
            socket.run_forever(timeout=seconds)
            ended = not socket.is_open()
            output = socket.read_channel(STDOUT_CHANNEL, 0)
            errors = socket.read_channel(STDERR_CHANNEL, 0)
            status = socket.read_channel(ERROR_CHANNEL, 0)
        except (WebSocketException, OSError):
            return None, "", "the connection to it ended early"
        finally:
            with contextlib.suppress(WebSocketException, OSError):
                socket.close()
        if not ended:
            return None, output, f"no answer within {seconds:.0f} s"
        return (*_outcome(status, output, errors),)

    def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: object | None = None,
        content_type: str = "application/json",
    ) -> tuple[int, bytes, str]:
        from urllib3.exceptions import HTTPError

        headers = {"Accept": "application/json, */*"}
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
        return response.status, data, warnings or ""


def parse_warnings(header: str) -> tuple[str, ...]:
    """The texts of ``Warning`` headers (RFC 7234), joined by commas as HTTP libraries do."""
    return tuple(re.sub(r"\\(.)", r"\1", text) for text in _WARNING.findall(header))


def handshake_words(text: str) -> str:
    """A refused exec without the headers that websocket-client puts into its words, the body as Python prints it."""
    head, *rest = text.split(" -+-+- ")
    said = re.search(r'"message": ?"((?:[^"\\]|\\.)+)"', "".join(rest[-1:]).replace("\\\\", "\\"))
    return (f"{head}: {said[1]}" if said else head).replace('\\"', '"')[:300]


def exec_words(text: str) -> str:
    """The same for people, who asked for no websocket. A 5xx says that the API server does not reach the kubelet."""
    found = re.match(r"Handshake status (\d{3})[^:]*:? ?(.*)", handshake_words(text))
    if found is None:
        return text[:300]
    code, words = int(found[1]), found[2]
    if code >= 500:
        return f"its node does not answer the API server{f' ({words})' if words else ''}"
    return f"forbidden: {words}" if code == 403 else words or f"the API server refuses it (HTTP {code})"


def _decoded(data: bytes) -> Raw:
    try:
        found = json.loads(data)
    except ValueError:
        return {"message": data[:300].decode(errors="replace")}
    return found if isinstance(found, dict) else {}


def _outcome(status: str, output: str, errors: str) -> tuple[int | None, str, str]:
    """The exit code out of the Status that ends an exec."""
    said = _decoded(status.encode())
    if said.get("status") == "Success":
        return 0, output, errors
    for cause in (said.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode" and str(cause.get("message")).isdigit():
            return int(cause["message"]), output, errors
    return None, output, str(said.get("message") or errors or "the connection ended")[:300]


def _configuration(kubeconfig: Path | None, context: str | None) -> tuple[Any, str]:
    from kubernetes import client, config
    from yaml import YAMLError

    made = client.Configuration()
    made.retries = 0
    chosen = kubeconfig_of(kubeconfig, context, inside_first=True)
    try:
        if chosen is None:
            config.load_incluster_config(client_configuration=made)  # type: ignore[no-untyped-call]
            return made, _own_namespace()
        config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=chosen, context=context, client_configuration=made, persist_config=False
        )
        contexts, active = config.list_kube_config_contexts(config_file=chosen)  # type: ignore[no-untyped-call]
        for one in contexts if context is not None else ():
            if one.get("name") == context:
                active = one
        namespace = str(((active or {}).get("context") or {}).get("namespace") or "default")
    except (config.ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError, YAMLError) as error:
        raise NoCluster(f"the cluster's configuration cannot be used: {' '.join(str(error).split())}") from None
    return made, namespace


def _own_namespace() -> str:
    """That of the pod that this runs in."""
    try:
        return Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace").read_text().strip() or "default"
    except OSError:
        return "default"
