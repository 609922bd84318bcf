"""What the rotation needs of a cluster, and how the official client gives it.

Objects come and go as the API's own JSON, so that fields which a client of another version does not know survive a
write. The client is imported when a connection is made: it costs half a second.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

Raw = dict[str, Any]

_SECONDS: Final = (5.0, 20.0)
"""To connect, and between two bytes of an answer."""
MUTATING: Final = "MutatingWebhookConfiguration"
VALIDATING: Final = "ValidatingWebhookConfiguration"


class Conflict(Exception):  # noqa: N818 - not an error: somebody else was faster
    """The object changed since it was read, or was made or deleted meanwhile: read again, decide again."""


class Away(Exception):  # noqa: N818
    """The API server did not answer, or cannot now: the same again later."""


class Refused(Exception):  # noqa: N818
    """The API server answered and will not do it: a missing right, an object it does not take."""


class Cluster(Protocol):
    """Reads give None for what does not exist. Everything may raise Away or Refused, writes Conflict too."""

    def secret(self, name: str) -> Raw | None: ...

    def write_secret(self, secret: Raw) -> None:
        """Create, or replace where the object carries a resourceVersion."""
        ...

    def configuration(self, kind: str, name: str) -> Raw | None: ...

    def patch_configuration(self, kind: str, name: str, patch: Raw) -> None: ...

    def endpoint_slices(self, service: str) -> list[Raw]:
        """The EndpointSlices of a Service of our namespace."""
        ...

    def lease(self, name: str) -> Raw | None: ...

    def write_lease(self, lease: Raw) -> None: ...


class NoCluster(Exception):  # noqa: N818
    """There is no usable configuration; the text says why."""


class KubernetesCluster:
    """A cluster through the official client; Secrets and the Lease are those of one namespace."""

    def __init__(self, namespace: str, kubeconfig: Path | None = None) -> None:
        from kubernetes import client

        self._namespace = namespace
        made = _configuration(kubeconfig)
        if not made.verify_ssl:
            # The kubeconfig says insecure-skip-tls-verify, and its owner knows: urllib3 warns at each request.
            import urllib3

            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        api = client.ApiClient(made)
        self._core = client.CoreV1Api(api)
        self._registration = client.AdmissionregistrationV1Api(api)
        self._coordination = client.CoordinationV1Api(api)
        self._discovery = client.DiscoveryV1Api(api)

    def secret(self, name: str) -> Raw | None:
        return _read(self._core.read_namespaced_secret, name, self._namespace)

    def write_secret(self, secret: Raw) -> None:
        if "resourceVersion" in secret["metadata"]:
            _call(self._core.replace_namespaced_secret, secret["metadata"]["name"], self._namespace, secret)
        else:
            _call(self._core.create_namespaced_secret, self._namespace, secret)

    def configuration(self, kind: str, name: str) -> Raw | None:
        api = self._registration
        if kind == MUTATING:
            return _read(api.read_mutating_webhook_configuration, name)
        return _read(api.read_validating_webhook_configuration, name)

    def patch_configuration(self, kind: str, name: str, patch: Raw) -> None:
        api = self._registration
        # Without a content type the client would choose a JSON patch.
        content = {"_content_type": "application/strategic-merge-patch+json", "field_manager": "checkpoint-guard-certs"}
        if kind == MUTATING:
            _call(api.patch_mutating_webhook_configuration, name, patch, **content)
        else:
            _call(api.patch_validating_webhook_configuration, name, patch, **content)

    def endpoint_slices(self, service: str) -> list[Raw]:
        selector = f"kubernetes.io/service-name={service}"
        listed = _call(self._discovery.list_namespaced_endpoint_slice, self._namespace, label_selector=selector)
        return list(listed.get("items") or ())

    def lease(self, name: str) -> Raw | None:
        return _read(self._coordination.read_namespaced_lease, name, self._namespace)

    def write_lease(self, lease: Raw) -> None:
        if "resourceVersion" in lease["metadata"]:
            _call(self._coordination.replace_namespaced_lease, lease["metadata"]["name"], self._namespace, lease)
        else:
            _call(self._coordination.create_namespaced_lease, self._namespace, lease)


def _configuration(kubeconfig: Path | None) -> Any:
    import os

    from kubernetes import client, config
    from yaml import YAMLError

    made = client.Configuration()
    made.retries = 0  # the rotation has its own patience, and says what is wrong meanwhile
    try:
        if kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST") and not os.environ.get("KUBECONFIG"):
            config.load_incluster_config(client_configuration=made)  # type: ignore[no-untyped-call]
        else:
            chosen = str(kubeconfig) if kubeconfig is not None else None
            config.load_kube_config(config_file=chosen, client_configuration=made, persist_config=False)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError, YAMLError) as error:
        raise NoCluster(f"the cluster's configuration cannot be used: {' '.join(str(error).split())}") from None
    return made


def _read(call: Callable[..., Any], *arguments: Any) -> Raw | None:
    found: Raw | None = _call(call, *arguments, absent=None)
    return found


def _call(call: Callable[..., Any], *arguments: Any, absent: Any = Conflict, **options: Any) -> Any:
    """The answer as JSON. A 404 on a write is a conflict: it was there when we read it."""
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    try:
        answer = call(*arguments, _preload_content=False, _request_timeout=_SECONDS, **options)
        return json.loads(answer.data)
    except ApiException as error:
        message = _message(error)
        if error.status == 404 and absent is None:
            return None
        if error.status in (404, 409):
            raise Conflict(message) from None
        if not error.status or error.status in (429, 500, 502, 503, 504):
            raise Away(message) from None
        raise Refused(message) from None
    except (HTTPError, OSError, ValueError) as error:
        raise Away(" ".join(f"{type(error).__name__}: {error}".split())[:300]) from None


def _message(error: Any) -> str:
    try:
        text = str(json.loads(error.body)["message"])
    except (ValueError, TypeError, KeyError):
        text = str(error.reason or "no answer")
    return f"{error.status}: {' '.join(text.split())[:400]}"
