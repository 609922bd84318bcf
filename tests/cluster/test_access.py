"""Which kubeconfig is taken, or the pod's own account: the same for every command and the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from webhook.cluster.access import NoCluster, Refused, kubeconfig_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return tmp_path


def write(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return str(path)


def test_what_is_given_comes_before_the_variable_and_that_before_the_file_at_home(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = write(home / ".kube" / "config")
    assert kubeconfig_of(None, None, False) == own
    monkeypatch.setenv("KUBECONFIG", f"{home / 'none'}:{write(home / 'other')}")
    assert kubeconfig_of(None, None, True) == f"{home / 'none'}:{home / 'other'}"
    given = write(home / "given")
    assert kubeconfig_of(Path(given), "a-context", True) == given


def test_in_a_pod_the_own_account_stands_in_or_comes_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert kubeconfig_of(None, None, False) is None
    own = write(home / ".kube" / "config")
    assert kubeconfig_of(None, None, False) == own
    assert kubeconfig_of(None, None, True) is None
    assert kubeconfig_of(None, "a-context", True) == own


@pytest.mark.parametrize("inside", [False, True])
def test_a_context_is_one_of_a_kubeconfig(home: Path, monkeypatch: pytest.MonkeyPatch, inside: bool) -> None:
    if inside:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(NoCluster, match=r"there is no kubeconfig at ~/.kube/config"):
        kubeconfig_of(None, "a-context", True)


def test_a_file_that_is_given_has_to_be_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(NoCluster, match=r"there is no kubeconfig at .*none$"):
        kubeconfig_of(home / "none", None, True)


def test_a_refusal_names_its_path_where_it_has_one() -> None:
    assert str(Refused(403, "may not", path="/api/v1/pods")) == "/api/v1/pods: may not"
    assert (str(Refused(404, "")), Refused(404, "").message) == ("HTTP 404", "")
