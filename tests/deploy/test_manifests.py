"""What the manifests claim: the registration as the issue of it says, pods under restricted security, no more rights
than needed."""

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.deploy.generate import BASE
from tests.deploy.rendered import DEPLOY, Object, by_key, helm, kustomize, pod_templates
from tests.deploy.tools import find
from webhook.cluster.policy_file import check_policy
from webhook.model.names import INJECTED
from webhook.model.policy import Policy
from webhook.runs.guarded_modes import cel


@pytest.fixture(scope="module")
def self_signed() -> list[Object]:
    return kustomize(DEPLOY / "overlays" / "self-signed")


def hooks() -> dict[str, Object]:
    documents = yaml.safe_load_all(BASE.read_text())
    return {hook["name"].partition(".")[0]: hook for document in documents for hook in document["webhooks"]}


def test_registration_is_narrow() -> None:
    found = hooks()
    protect = found.pop("protect")
    for hook in found.values():
        assert hook["sideEffects"] == "None"
        assert hook["matchPolicy"] == "Equivalent"
        assert hook["timeoutSeconds"] <= 5
        assert hook["admissionReviewVersions"] == ["v1"]
        assert "caBundle" not in hook["clientConfig"]
        for rule in hook["rules"]:
            assert rule["apiGroups"] == ["trainer.kubeflow.org"]
            assert rule["apiVersions"] == ["v1alpha1"]
            assert set(rule["resources"]) <= {"trainjobs", "trainingruntimes", "clustertrainingruntimes"}
            assert set(rule["operations"]) <= {"CREATE", "UPDATE"}
        left_out: dict[str, set[str]] = {}
        for expression in hook["namespaceSelector"]["matchExpressions"]:
            assert expression["operator"] == "NotIn"
            left_out[expression["key"]] = set(expression["values"])
        assert left_out == {
            "kubernetes.io/metadata.name": {"kube-system", "checkpoint-guard"},
            "checkpoint-guard.io/mode": {"off"},
        }
    asked = {(rule["apiGroups"][0], name) for rule in protect["rules"] for name in rule["resources"]}
    assert asked == {
        ("", "persistentvolumeclaims"),
        ("", "configmaps"),
        ("trainer.kubeflow.org", "trainingruntimes"),
        ("trainer.kubeflow.org", "clustertrainingruntimes"),
    }
    assert {tuple(rule["operations"]) for rule in protect["rules"]} == {("DELETE",)}
    only = {"key": "checkpoint-guard.io/protect", "operator": "In", "values": ["true"]}
    assert only in protect["namespaceSelector"]["matchExpressions"]
    assert protect["matchConditions"][0]["name"] == "not-by-those-who-tidy-up"


def test_registration_fails_where_it_has_to() -> None:
    found = {name: (hook["rules"][0]["operations"], hook["failurePolicy"]) for name, hook in hooks().items()}

    assert found == {
        "mutate": (["CREATE", "UPDATE"], "Ignore"),
        "put-back-variables": (["UPDATE"], "Fail"),
        "put-back-volumes": (["UPDATE"], "Fail"),
        "put-back-runtimes": (["UPDATE"], "Fail"),
        "validate": (["CREATE"], "Ignore"),
        "validate-update": (["UPDATE"], "Ignore"),
        "protect": (["DELETE"], "Ignore"),
    }
    for name, hook in hooks().items():
        if name == "protect":
            continue
        conditions = " ".join(one["expression"] for one in hook.get("matchConditions") or ())
        assert ("deletionTimestamp" in conditions) == (name != "mutate")
        assert (INJECTED in conditions) == name.startswith("put-back")
        assert (hook.get("reinvocationPolicy") == "IfNeeded") == (hook["clientConfig"]["service"]["path"] == "/mutate")
        # Controllers are seen too: the guard puts back what they lose.
        assert "userInfo" not in conditions


def test_ours_sorts_before_trainers() -> None:
    for document in yaml.safe_load_all(BASE.read_text()):
        assert document["metadata"]["name"] < "defaulter.trainer.kubeflow.org"


@pytest.mark.parametrize("rendering", ["kustomize", "helm", "install-check"])
def test_every_pod_is_restricted(rendering: str) -> None:
    documents = helm(*_SCANS) if rendering == "helm" else kustomize(DEPLOY / _FOLDERS[rendering])
    pods = pod_templates(documents)
    assert pods
    for owner, pod in pods.items():
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True, owner
        assert security["runAsUser"] >= 1000
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert pod["enableServiceLinks"] is False
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            resources = container["resources"]
            assert set(resources["requests"]) == {"cpu", "memory"}
            assert set(resources["limits"]) == {"memory"}
        assert not any("hostPath" in volume for volume in pod.get("volumes") or ())


_SCANS = ("reports.enabled=true", "runMetrics.enabled=true")
_FOLDERS = {"kustomize": "overlays/self-signed", "install-check": "install-check"}


def test_the_webhook_survives_a_node(self_signed: list[Object]) -> None:
    found = by_key(self_signed)
    deployment = found["Deployment", "checkpoint-guard", "checkpoint-guard"]["spec"]
    pod = deployment["template"]["spec"]
    assert deployment["replicas"] >= 2
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    hosts = [one for one in pod["topologySpreadConstraints"] if one["topologyKey"] == "kubernetes.io/hostname"]
    assert [one["whenUnsatisfiable"] for one in hosts] == ["DoNotSchedule"]
    assert pod["priorityClassName"] == found["PriorityClass", "", "checkpoint-guard"]["metadata"]["name"]
    container = pod["containers"][0]
    paths = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
    assert paths == {"startupProbe": "/healthz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"}
    budget = found["PodDisruptionBudget", "checkpoint-guard", "checkpoint-guard"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    assert budget["maxUnavailable"] < deployment["replicas"]


def test_a_graceful_stop_has_the_time_it_takes(self_signed: list[Object]) -> None:
    from webhook.settings import Settings

    pod = pod_templates(self_signed)["Deployment", "checkpoint-guard", "checkpoint-guard"]
    delays = (Settings.model_fields["pre_stop_delay"].default, Settings.model_fields["drain_timeout"].default)
    assert pod["terminationGracePeriodSeconds"] > sum(delays)


def test_only_the_keeper_of_the_certificates_writes(self_signed: list[Object]) -> None:
    writers = set()
    for document in self_signed:
        if document["kind"] in ("Role", "ClusterRole"):
            verbs = {verb for rule in document.get("rules") or () for verb in rule["verbs"]}
            if verbs - {"get", "list", "watch"}:
                writers.add(document["metadata"]["name"])
            assert "*" not in verbs
            assert not any("*" in rule["resources"] for rule in document["rules"])
    # The right "lower" writes nothing, and is bound to nobody.
    assert writers == {"checkpoint-guard-certs", "checkpoint-guard-mode-admin"}


def test_a_scan_reads_and_writes_reports_alone() -> None:
    found = by_key(helm(*_SCANS))
    writes = {
        (name, group, resource)
        for name in ("reports", "run-metrics")
        for rule in found["ClusterRole", "", f"checkpoint-guard-{name}"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if set(rule["verbs"]) - {"get", "list"}
    }
    assert writes == {
        ("reports", "openreports.io", "reports"),
        ("reports", "wgpolicyk8s.io", "policyreports"),
    }


def test_what_a_service_selects_is_there(self_signed: list[Object]) -> None:
    found = by_key(self_signed)
    labels = found["Deployment", "checkpoint-guard", "checkpoint-guard"]["spec"]["template"]["metadata"]["labels"]
    assert found["Service", "checkpoint-guard", "checkpoint-guard"]["spec"]["selector"].items() <= labels.items()
    for document in self_signed:
        if document["kind"] == "NetworkPolicy":
            assert document["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/name"] == "checkpoint-guard"


def test_helm_lints() -> None:
    run = subprocess.run(
        [find("helm"), "lint", "--strict", DEPLOY / "chart"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("replicas=0", "replicas"),
        ("mode=off", "mode"),
        ("certificates.provider=none", "provider"),
        ("webhook.timeoutSeconds=30", "timeoutSeconds"),
        ("image.digest=sha256:short", "digest"),
        ("env.LOG_LEVEL=debug", "LOG_LEVEL"),
        ("replicaCount=3", "replicaCount"),
        ("certificates.issuerRef.kind=ClusterIssuer", "name"),
        ("certificates.life=..d", "life"),
        ("podDisruptionBudget.maxUnavailable=x", "maxUnavailable"),
        ("monitoring.interval=30", "interval"),
        ("reports.schedule=daily", "schedule"),
        ("runMetrics.every=often", "every"),
        ("keeper.ignoreAfter=soon", "ignoreAfter"),
        ("policy.ruls.short-grace=warn", "ruls"),
        ("policy.rules.short-grace=never", "short-grace"),
    ],
)
def test_values_are_checked(value: str, said: str) -> None:
    run = subprocess.run(
        [find("helm"), "template", DEPLOY / "chart", "--set", value],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode != 0
    assert said in run.stderr


def test_the_schema_knows_the_fields_of_a_policy() -> None:
    schema = json.loads((DEPLOY / "chart" / "values.schema.json").read_text())
    fields = {field.encode_name for field in msgspec.structs.fields(Policy)} - {"hash", "derived"}
    assert set(schema["properties"]["policy"]["properties"]) == fields


def test_a_cluster_that_is_too_old_is_refused() -> None:
    """By what it serves: without a cluster, some builds of Helm take it for 1.20."""
    run = subprocess.run(
        [find("helm"), "template", DEPLOY / "chart", "--kube-version", "1.29.0", "--api-versions", "v1/Pod"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode != 0
    assert "Kubernetes 1.30 or newer is needed; this is v1.29.0" in run.stderr


def test_values_reach_the_manifests() -> None:
    found = by_key(
        helm(
            "replicas=3",
            "image.digest=sha256:" + "0" * 64,
            "env.CKPTGUARD_LOG_LEVEL=debug",
            'webhook.excludedNamespaces=["scratch"]',
            'policy={"rules":{"short-grace":"off"}}',
            "networkPolicy.apiServerPorts=[8443]",
            'certificates={"provider":"cert-manager","issuerRef":{"kind":"ClusterIssuer","name":"internal"}}',
            "policies.plainStorage=true",
            namespace="guard",
        )
    )
    deployment: Any = found["Deployment", "guard", "checkpoint-guard"]["spec"]
    container = deployment["template"]["spec"]["containers"][0]
    assert deployment["replicas"] == 3
    assert container["image"].endswith("@sha256:" + "0" * 64)
    assert container["env"] == [{"name": "CKPTGUARD_LOG_LEVEL", "value": "debug"}]
    hook = found["ValidatingWebhookConfiguration", "", "checkpoint-guard"]["webhooks"][0]
    assert hook["namespaceSelector"]["matchExpressions"][0]["values"] == ["kube-system", "guard", "scratch"]
    assert hook["clientConfig"]["service"]["namespace"] == "guard"
    policy = yaml.safe_load(found["ConfigMap", "guard", "checkpoint-guard-policy"]["data"]["policy.yaml"])
    assert policy["rules"] == {"short-grace": "off"}
    certificate = found["Certificate", "guard", "checkpoint-guard"]["spec"]
    assert certificate["issuerRef"] == {"group": "cert-manager.io", "kind": "ClusterIssuer", "name": "internal"}
    assert "checkpoint-guard.guard.svc" in certificate["dnsNames"]
    assert ("Deployment", "guard", "checkpoint-guard-certs") not in found
    assert ("ValidatingAdmissionPolicy", "", "checkpoint-guard-plain-storage") in found


def test_policy_files_of_the_manifests_can_be_read(tmp_path: Path, self_signed: list[Object]) -> None:
    from webhook.cluster.policy_file import load_policy

    config = by_key(self_signed)["ConfigMap", "checkpoint-guard", "checkpoint-guard-policy"]
    file = tmp_path / "policy.yaml"
    file.write_text(config["data"]["policy.yaml"])
    assert load_policy(str(file)).modes.default == "enforce"


@pytest.mark.parametrize(
    ("values", "expression"),
    [
        ("policy={}", "['enforce', 'warn']"),
        ('policy={"modes":{"default":"warn"}}', "['enforce', 'warn']"),
        ('policy={"modes":{"selfService":["warn"]}}', "['warn']"),
        ('policy={"modes":{"selfService":["enforce","warn","audit"]}}', "['enforce', 'warn', 'audit']"),
        ('policy={"modes":{"selfService":[]}}', "['']"),
    ],
)
def test_what_users_may_set_is_what_the_policy_says(values: str, expression: str) -> None:
    documents = by_key(helm("policies.mode=true", values))
    found = documents["ValidatingAdmissionPolicy", "", "checkpoint-guard-mode"]
    assert {"name": "selfService", "expression": expression} in found["spec"]["variables"]
    text = documents["ConfigMap", "checkpoint-guard", "checkpoint-guard-policy"]["data"]["policy.yaml"]
    assert cel(check_policy(text.encode(), "p").used().modes.self_service) == expression
