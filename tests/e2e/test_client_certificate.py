"""The API server shows the guard a client certificate where an AdmissionConfiguration says so; others are told ids."""

from __future__ import annotations

import datetime
import json
import ssl
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.certs.cluster import authority
from tests.e2e.controlplane.controlplane import ControlPlane
from tests.e2e.controlplane.guard import Guard
from tests.e2e.controlplane.releases import NEWEST, RELEASES
from tests.e2e.objects import runtime
from tests.server.serving import review

pytestmark = pytest.mark.full
PLUGINS = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")


def admission_configuration(directory: Path) -> tuple[Path, Path]:
    """What docs/operations.md tells an administrator to write -> the configuration and the authority."""
    signer = authority(datetime.datetime.now(datetime.UTC))
    certificate, key, kubeconfig = directory / "client.crt", directory / "client.key", directory / "webhooks.yaml"
    certificate.write_bytes(signer.cert)
    key.write_bytes(signer.key)
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    # On a cluster: name: checkpoint-guard.checkpoint-guard.svc, the name that the API server calls the Service by.
    kubeconfig.write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]})
    )
    config = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [
            {
                "name": name,
                "configuration": {
                    "apiVersion": "apiserver.config.k8s.io/v1",
                    "kind": "WebhookAdmissionConfiguration",
                    "kubeConfigFile": str(kubeconfig),
                },
            }
            for name in PLUGINS
        ],
    }
    path = directory / "admission.yaml"
    path.write_text(yaml.safe_dump(config))
    return path, certificate


def test_the_api_server_is_told_all_and_a_stranger_ids(tmp_path: Path) -> None:
    config, client_ca = admission_configuration(tmp_path)
    plane = ControlPlane(RELEASES[NEWEST], api_flags=(f"--admission-control-config-file={config}",))
    with plane:
        guard = Guard(plane, arguments=("--client-ca", str(client_ca)))
        guard.start()
        try:
            guard.register()
            plane.apply(runtime("default"))
            bad = {
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainJob",
                "metadata": {"name": "bad", "namespace": "default"},
                "spec": {
                    "runtimeRef": {"name": runtime("default")["metadata"]["name"], "kind": "TrainingRuntime"},
                    "trainer": {"env": [{"name": "CKPT_DIR", "value": "/tmp/nowhere"}]},
                },
            }
            told = plane.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(bad), check=False).stderr
            assert "ephemeral-checkpoint" in told
            assert "/tmp/nowhere" in told
            context = ssl.create_default_context(cadata=guard.ca_pem)
            body = json.dumps(review(bad, namespace="default", name="bad")).encode()
            asked = urllib.request.Request(f"{guard.url}/validate", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(asked, context=context, timeout=10) as answer:
                response = json.load(answer)["response"]
            assert response["allowed"] is False
            assert set(response) == {"uid", "allowed", "status"}
            assert "ephemeral-checkpoint" in response["status"]["message"]
            assert "/tmp/nowhere" not in response["status"]["message"]
        finally:
            guard.stop()
