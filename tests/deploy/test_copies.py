"""What stands in `deploy/` more than once says the same everywhere."""

import copy
from pathlib import Path

import pytest
import yaml

import webhook
from tests.deploy.generate import DEPLOY, build_configurations, render_copies
from tests.deploy.rendered import Object, by_key, helm, is_hook, kustomize
from tests.e2e.controlplane import registration
from webhook.defaults.registration import PUT_BACK

_IMAGES = (
    "overlays/self-signed",
    "overlays/cert-manager",
    "install-check",
    "components/reports",
    "components/run-metrics",
)
VOLATILE_LABELS = ("app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart")
VOLATILE_ANNOTATIONS = ("checksum/policy",)


@pytest.mark.parametrize("path", render_copies(), ids=lambda path: str(path.relative_to(DEPLOY)))
def test_copies_are_current(path: Path) -> None:
    assert path.read_text() == render_copies()[path], "run python -m tests.deploy.generate and read the diff"


def test_versions_are_those_of_the_package() -> None:
    chart = yaml.safe_load((DEPLOY / "chart" / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == webhook.__version__
    for folder in _IMAGES:
        images = yaml.safe_load((DEPLOY / folder / "kustomization.yaml").read_text())["images"]
        assert [image["newTag"] for image in images] == [webhook.__version__]


@pytest.mark.parametrize(
    ("overlay", "values"),
    [("self-signed", ()), ("cert-manager", ("certificates.provider=cert-manager",))],
)
def test_chart_and_kustomize_make_the_same(overlay: str, values: tuple[str, ...]) -> None:
    made = [one for one in kustomize(DEPLOY / "overlays" / overlay) if one["kind"] != "Namespace"]
    charted = [one for one in helm(*values) if not is_hook(one)]

    assert plain(charted) == plain(made)


def test_chart_and_kustomize_start_in_warn_alike(tmp_path: Path) -> None:
    folder = overlay(tmp_path, "start-in-warn")
    made = [one for one in kustomize(folder) if one["kind"] != "Namespace"]
    charted = [one for one in helm("mode=warn") if not is_hook(one)]

    assert plain(charted) == plain(made)
    webhook = by_key(made)["Deployment", "checkpoint-guard", "checkpoint-guard"]["spec"]["template"]["spec"]
    assert {"name": "CKPTGUARD_DEFAULT_MODE", "value": "warn"} in webhook["containers"][0]["env"]


def test_start_in_warn_leaves_a_policy_of_ones_own_alone(tmp_path: Path) -> None:
    folder = overlay(tmp_path, "start-in-warn")
    (folder / "policy.yaml").write_text(
        "apiVersion: checkpoint-guard.io/v1\nkind: Policy\nrules: {short-grace: deny}\n"
    )
    text = yaml.safe_load((folder / "kustomization.yaml").read_text())
    own = {"name": "checkpoint-guard-policy", "namespace": "checkpoint-guard", "files": ["policy.yaml"]}
    text["configMapGenerator"] = [{**own, "behavior": "replace"}]
    text["generatorOptions"] = {"disableNameSuffixHash": True}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(text))

    made = by_key(kustomize(folder))
    policy = made["ConfigMap", "checkpoint-guard", "checkpoint-guard-policy"]["data"]["policy.yaml"]
    assert yaml.safe_load(policy)["rules"] == {"short-grace": "deny"}


def test_chart_and_kustomize_monitor_alike(tmp_path: Path) -> None:
    made = [one for one in kustomize(overlay(tmp_path, "monitoring")) if one["kind"] != "Namespace"]
    charted = [one for one in helm("monitoring.enabled=true") if not is_hook(one)]

    assert plain(charted) == plain(made)


@pytest.mark.parametrize(
    ("component", "value"),
    [
        ("reports", "reports.enabled=true"),
        ("run-metrics", "runMetrics.enabled=true"),
        ("exceptions", "exceptions.enabled=true"),
    ],
)
def test_chart_and_kustomize_make_each_component_alike(tmp_path: Path, component: str, value: str) -> None:
    made = [one for one in kustomize(overlay(tmp_path, component)) if one["kind"] != "Namespace"]
    charted = [one for one in helm(value) if not is_hook(one)]

    assert plain(charted) == plain(made)
    assert len(by_key(made)) > len(by_key(kustomize(DEPLOY / "overlays" / "self-signed"))) + 2


def test_install_check_of_the_chart_is_that_of_kustomize() -> None:
    def check(documents: list[Object]) -> dict[tuple[str, str, str], Object]:
        return plain([one for one in documents if "install-check" in one["metadata"]["name"]])

    charted = check(helm())
    for one in charted.values():
        one["metadata"].pop("annotations", None)

    assert charted == check(kustomize(DEPLOY / "install-check"))


def test_put_back_is_what_the_engine_says() -> None:
    mutating, _ = build_configurations()
    registered = [hook for hook in mutating["webhooks"] if hook["failurePolicy"] == "Fail"]

    assert [hook["name"] for hook in registered] == [f"{one.name}.checkpoint-guard.io" for one in PUT_BACK]
    for hook, one in zip(registered, PUT_BACK, strict=True):
        assert hook["matchConditions"] == list(one.conditions)


def test_end_to_end_tests_register_what_is_deployed() -> None:
    def told(configuration: Object) -> Object:
        hooks = copy.deepcopy(configuration["webhooks"])
        for hook in hooks:
            # There the guard is a process beside the API server, and every namespace is asked about.
            for field in ("clientConfig", "namespaceSelector"):
                hook.pop(field, None)
            if hook["name"].startswith("validate"):
                hook.pop("matchConditions", None)
            if hook["name"].startswith("validate."):
                hook.pop("failurePolicy")  # there it is as the keeper leaves it
        return {**configuration, "webhooks": hooks}

    registered = registration.build_configurations("https://127.0.0.1:1", "PEM")

    assert [told(one) for one in registered] == [told(one) for one in build_configurations()]


def overlay(folder: Path, component: str) -> Path:
    """An overlay as an administrator writes one: ours, and one line for a component."""
    # kustomize takes relative paths only, and resolves links first.
    deploy = Path("../" * (len(folder.resolve().parts) - 1)) / DEPLOY.resolve().relative_to("/")
    (folder / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {
                "resources": [str(deploy / "overlays" / "self-signed")],
                "components": [str(deploy / "components" / component)],
            }
        )
    )
    return folder


def plain(documents: list[Object]) -> dict[tuple[str, str, str], Object]:
    """Objects without what Helm adds to say that they are its own, and without the form of a text."""
    found = copy.deepcopy(by_key(documents))
    for one in found.values():
        holders = [one["metadata"]]
        spec = one.get("spec") or {}
        template = ((spec.get("jobTemplate") or {}).get("spec") or spec).get("template")
        if isinstance(template, dict) and "metadata" in template:
            holders.append(template["metadata"])
        for metadata in holders:
            for field, names in (("labels", VOLATILE_LABELS), ("annotations", VOLATILE_ANNOTATIONS)):
                kept = {name: value for name, value in (metadata.pop(field, None) or {}).items() if name not in names}
                if kept:
                    metadata[field] = kept
        for name, text in (one.get("data") or {}).items():
            one["data"][name] = yaml.safe_load(text)
    return found
