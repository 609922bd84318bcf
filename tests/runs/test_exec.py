"""Exec by websocket, as far as the official client stands between it and us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kubernetes.stream import ws_client
from websocket import WebSocketConnectionClosedException

from webhook.cluster.access import Unreachable
from webhook.runs.api import KubernetesApi


@pytest.fixture
def api(tmp_path: Path) -> KubernetesApi:
    file = tmp_path / "config"
    file.write_text(
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
    )
    return KubernetesApi(file)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_while_it_connects_is_no_lost_api_server(
    api: KubernetesApi, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    def connect(*_: Any, **__: Any) -> None:
        raise kind

    monkeypatch.setattr(ws_client, "create_websocket", connect)
    with pytest.raises(kind):
        api.execute("team", "pod", "node", ["true"])


def test_nobody_is_there(api: KubernetesApi) -> None:
    with pytest.raises(Unreachable, match="the API server cannot be reached"):
        api.execute("team", "pod", "node", ["true"])


@pytest.mark.parametrize("error", [WebSocketConnectionClosedException("gone"), ConnectionResetError("reset")])
def test_a_connection_that_ends_early(api: KubernetesApi, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    class Socket:
        def run_forever(self, timeout: float) -> None:
            raise error

        def close(self) -> None:
            raise error

    monkeypatch.setattr(ws_client, "WSClient", lambda *_, **__: Socket())
    assert api.execute("team", "pod", "node", ["true"]) == (None, "", "the connection to it ended early")


def test_ctrl_c_while_it_reads(api: KubernetesApi, monkeypatch: pytest.MonkeyPatch) -> None:
    class Socket:
        def run_forever(self, timeout: float) -> None:
            raise KeyboardInterrupt

        def close(self) -> None:
            pass

    monkeypatch.setattr(ws_client, "WSClient", lambda *_, **__: Socket())
    with pytest.raises(KeyboardInterrupt):
        api.execute("team", "pod", "node", ["true"])
