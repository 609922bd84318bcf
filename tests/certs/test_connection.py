"""How the rotation connects to a cluster."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import yaml
from urllib3.exceptions import InsecureRequestWarning

from certs.cluster import KubernetesCluster


@pytest.mark.parametrize("insecure", [True, False])
def test_an_owner_who_skips_verification_is_not_warned_at_each_request(tmp_path: Path, insecure: bool) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": insecure}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(config))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InsecureRequestWarning)
        KubernetesCluster("team", file)
        warnings.warn("once more", InsecureRequestWarning, stacklevel=1)
    assert (caught == []) is insecure
