"""What stands in `deploy/` more than once: `python -m tests.deploy.generate` writes the copies, a test compares.

The webhook configurations are written from the CEL that the engine keeps (`webhook.defaults.registration`).
"""

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.exception_crd import build_crd
from webhook.defaults.registration import PROTECTED_NAMESPACES, PROTECTED_RULES, PROTECTED_WHEN, PUT_BACK

Object = dict[str, Any]

DEPLOY = Path(__file__).parents[2] / "deploy"
BASE = DEPLOY / "base" / "webhooks.yaml"
TEMPLATE = DEPLOY / "chart" / "templates" / "webhooks.yaml"
RESOURCES = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")

HEADER = """\
# Written by `python -m tests.deploy.generate`; a test compares.
#
# caBundle is left out on purpose: whoever makes the certificates keeps it, and an apply of this file does not touch it.
# The name sorts before Trainer's (defaulter.trainer.kubeflow.org), so that Trainer stamps the time into our entry.
# Only the three kinds and no subresources; DELETE of what runs need, in namespaces that ask for it.
# /mutate never refuses while nobody answers, but for an UPDATE that takes away what was added; /validate lets
# an UPDATE pass, so that nothing that runs is wedged. `validate` is Ignore until a pod can answer: then the keeper
# (`ckptguard certs run`) turns that one entry to Fail, and again where an apply of this file wrote it back.
"""
_SELECTOR = """\
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, checkpoint-guard]
    - key: checkpoint-guard.io/mode
      operator: NotIn
      values: ["off"]
"""
_NOT_DELETED = {"name": "not-being-deleted", "expression": "!has(object.metadata.deletionTimestamp)"}


def build_configurations() -> list[Object]:
    """Both configurations as kustomize has them."""
    mutating = [_hook("mutate", "/mutate", ["CREATE", "UPDATE"], "Ignore")]
    # After `mutate`, so that they are called only where that one, being down, put nothing back.
    mutating += [
        _hook(one.name, "/mutate", ["UPDATE"], "Fail", one.resources)
        | {"matchConditions": [dict(condition) for condition in one.conditions]}
        for one in PUT_BACK
    ]
    for hook in mutating:
        hook["reinvocationPolicy"] = "IfNeeded"
    validating = [
        _hook("validate", "/validate", ["CREATE"], "Ignore"),
        _hook("validate-update", "/validate", ["UPDATE"], "Ignore"),
    ]
    for hook in validating:
        hook["matchConditions"] = [dict(_NOT_DELETED)]
    protect = _hook("protect", "/validate", [], "Ignore")
    protect["rules"] = [dict(rule) for rule in PROTECTED_RULES]
    protect["namespaceSelector"]["matchExpressions"].append(dict(PROTECTED_NAMESPACES))
    protect["matchConditions"] = [dict(condition) for condition in PROTECTED_WHEN]
    validating.append(protect)
    return [_configuration("Mutating", mutating), _configuration("Validating", validating)]


def render_base() -> str:
    """The text of `deploy/base/webhooks.yaml`."""
    return HEADER + "---\n".join(_yaml(configuration) for configuration in build_configurations())


def render_template() -> str:
    """The text of the chart's template: the same, with the chart's values in their places."""
    text = "---\n".join(_chart_text(configuration) for configuration in build_configurations())
    text = text.replace("\nwebhooks:\n", "\n  " + _INJECT + "webhooks:\n")
    text = text.replace("timeoutSeconds: 5\n", "timeoutSeconds: {{ .Values.webhook.timeoutSeconds }}\n")
    more = "      {{- range .Values.webhook.excludedNamespaces }}\n      - {{ . | quote }}\n      {{- end }}\n"
    own = "      - kube-system\n      - {{ .Release.Namespace }}\n"
    return HEADER + text.replace(own, own + more)


_INJECT = """\
{{- if eq .Values.certificates.provider "cert-manager" }}
  annotations:
    cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/checkpoint-guard
  {{- end }}
"""


def render_copies() -> dict[Path, str]:
    """Files of the chart, and of kustomize, that say what another file says: path -> text."""
    monitoring = DEPLOY / "components" / "monitoring"
    rules = (monitoring / "rules.yaml").read_text()
    files, templates = DEPLOY / "chart" / "files", DEPLOY / "chart" / "templates"
    overlays = DEPLOY / "overlays"
    exceptions = DEPLOY / "components" / "exceptions"
    return {
        BASE: render_base(),
        TEMPLATE: render_template(),
        files / "rules.yaml": rules,
        files / "dashboard.json": (monitoring / "dashboard.json").read_text(),
        monitoring / "prometheusrule.yaml": _NOTE.format("rules.yaml") + _RULE + textwrap.indent(rules, "  "),
        overlays / "cert-manager" / "keeper.yaml": _keeper(overlays / "self-signed" / "certs.yaml"),
        templates / "keeper.yaml": _keeper(templates / "certs.yaml"),
        templates / "keeper-rbac.yaml": _template(
            "overlays/cert-manager/keeper-rbac.yaml", 'eq .Values.certificates.provider "cert-manager"'
        ),
        templates / "rbac.yaml": _template("base/rbac.yaml"),
        templates / "certs-rbac.yaml": _template(
            "overlays/self-signed/certs-rbac.yaml", 'eq .Values.certificates.provider "self-signed"'
        ),
        templates / "reports-rbac.yaml": _template("components/reports/rbac.yaml", ".Values.reports.enabled"),
        templates / "run-metrics-rbac.yaml": _template(
            "components/run-metrics/rbac.yaml", ".Values.runMetrics.enabled"
        ),
        exceptions / "crd.yaml": _CRD + _yaml(build_crd()),
        templates / "exceptions-crd.yaml": _template_of([build_crd()], "components/exceptions/crd.yaml", _EXCEPTIONS),
        templates / "exceptions-rbac.yaml": _template("components/exceptions/rbac.yaml", _EXCEPTIONS),
        templates / "exceptions-approval.yaml": _template("components/exceptions/approval.yaml", _EXCEPTIONS),
        templates / "policy-mode.yaml": _template("policies/mode.yaml", ".Values.policies.mode").replace(
            _SELF_SERVICE, _SELF_SERVICE_OF_VALUES
        ),
        templates / "policy-plain-storage.yaml": _template(
            "policies/plain-storage.yaml", ".Values.policies.plainStorage"
        ),
    }


_SELF_SERVICE = "expression: '[''enforce'', ''warn'']'\n"
_SELF_SERVICE_OF_VALUES = 'expression: {{ include "checkpoint-guard.selfService" . }}\n'
_NOTE = "# Written from {} by `python -m tests.deploy.generate`; a test compares.\n"
_CRD = "# Written by `python -m tests.deploy.generate` from the rules that there are; a test compares.\n"
_EXCEPTIONS = ".Values.exceptions.enabled"
_RULE = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: checkpoint-guard
  namespace: checkpoint-guard
spec:
"""


def _keeper(source: Path) -> str:
    """What keeps the certificates, without its certificates: somebody else makes them."""
    text = source.read_text()
    for one, other in (
        ("checkpoint-guard-certs", "checkpoint-guard-keeper"),
        ("component: certs", "component: keeper"),
        ('selector" "certs"', 'selector" "keeper"'),
        ("container: certs", "container: keeper"),
        ("- name: certs\n", "- name: keeper\n"),
        ('provider "self-signed"', 'provider "cert-manager"'),
        ("a caBundle that somebody overwrites", "what an apply wrote back"),
    ):
        text = text.replace(one, other)
    lines = re.sub(r"            - --life=.*\n            - --ca-life=.*\n", "@", text)
    assert "@" in lines, "certs run takes other flags now"
    own = "            - --without-certificates\n            - --lease=checkpoint-guard-keeper\n"
    return _NOTE.format(f"deploy/{source.relative_to(DEPLOY)}") + lines.replace("@", own)


def _template(source: str, condition: str = "") -> str:
    """A template of the chart with the objects of a manifest, under a condition."""
    return _template_of(yaml.safe_load_all((DEPLOY / source).read_text()), source, condition)


def _template_of(documents: Iterable[Object], source: str, condition: str) -> str:
    text = _NOTE.format(f"deploy/{source}") + "---\n".join(_chart_text(document) for document in documents)
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text


def _chart_text(document: Object) -> str:
    """An object with the chart's labels and the release's namespace."""
    metadata = {**document["metadata"], "labels": "@labels@"}
    text = _yaml({**document, "metadata": metadata})
    assert "{{" not in text, text  # Helm would read it
    own = "".join(f"\n    {name}: {value!r}" for name, value in (document["metadata"].get("labels") or {}).items())
    text = text.replace("labels: '@labels@'", _LABELS + own)
    text = text.replace("namespace: checkpoint-guard\n", "namespace: {{ .Release.Namespace }}\n")
    return re.sub(
        r"^( *)- kube-system\n\1- checkpoint-guard\n",
        r"\1- kube-system\n\1- {{ .Release.Namespace }}\n",
        text,
        flags=re.MULTILINE,
    )


_LABELS = """\
labels:
    {{- include "checkpoint-guard.labels" . | nindent 4 }}"""


def _configuration(kind: str, hooks: list[Object]) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": "checkpoint-guard"},
        "webhooks": hooks,
    }


def _hook(name: str, path: str, operations: list[str], policy: str, resources: tuple[str, ...] = RESOURCES) -> Object:
    service = {"namespace": "checkpoint-guard", "name": "checkpoint-guard", "path": path, "port": 443}
    return {
        "name": f"{name}.checkpoint-guard.io",
        "clientConfig": {"service": service},
        "rules": [
            {
                "apiGroups": ["trainer.kubeflow.org"],
                "apiVersions": ["v1alpha1"],
                "operations": operations,
                "resources": list(resources),
                "scope": "*",
            }
        ],
        "failurePolicy": policy,
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "admissionReviewVersions": ["v1"],
        **yaml.safe_load(_SELECTOR),
    }


class _Dumper(yaml.SafeDumper):
    """Long expressions stay on one line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(configuration: Object) -> str:
    return yaml.dump(configuration, Dumper=_Dumper, sort_keys=False, width=100_000)


if __name__ == "__main__":
    for path, text in render_copies().items():
        path.write_text(text)
