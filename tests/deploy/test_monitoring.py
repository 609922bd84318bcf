"""Alerts and the dashboard: readable by Prometheus, and about metrics that exist."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from certs.loop import Status
from tests.deploy.rendered import DEPLOY
from tests.deploy.tools import find
from webhook.metrics import METRICS, SCAN

MONITORING = DEPLOY / "components" / "monitoring"
NAME = re.compile(r"\b(?:ckptguard|process|python)_[a-z_]+")
USUAL = {"process_resident_memory_bytes"}


def known() -> dict[str, set[str]]:
    """Every metric that the server and the keeper of the certificates have, with its labels."""
    found: dict[str, set[str]] = {}
    for metric in METRICS:
        suffixes = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        for suffix in suffixes:
            found[metric.name + suffix] = {*metric.labels, *(("le",) if suffix == "_bucket" else ())}
    source = (DEPLOY.parent / "certs" / "health.py").read_text()
    for line in re.findall(r"# TYPE (ckptguard_certs_[a-z_]+) ", source):
        found[line] = {"what"}
    found |= {metric.name: set(metric.labels) for metric in SCAN}
    assert len(Status().writes) > 0
    return found


def expressions() -> list[str]:
    rules = yaml.safe_load((MONITORING / "rules.yaml").read_text())
    found = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        found += [target["expr"] for target in panel.get("targets") or ()]
    return found


def test_expressions_name_metrics_and_labels_that_exist() -> None:
    metrics = known()
    for expression in expressions():
        names = NAME.findall(expression)
        assert names, expression
        for name in names:
            assert name in metrics or name in USUAL, f"{name} in {expression}"
        labels = {label for name in names for label in metrics.get(name, ())} | {"pod", "job", "node"}
        for group in re.findall(r"\bby \(([^)]*)\)", expression):
            assert {label.strip() for label in group.split(",")} <= labels, expression
        for label in re.findall(r"[{,]\s*([a-z]+)=", expression):
            assert label in labels, expression


def test_dashboard_shows_every_metric_of_ours() -> None:
    shown = {name for expression in expressions() for name in NAME.findall(expression)}
    for metric in METRICS:
        assert any(name.startswith(metric.name) for name in shown), metric.name


def test_dashboard_panels_do_not_overlap() -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


@pytest.mark.full  # promtool takes minutes to build
def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    promtool = find("promtool")
    run = subprocess.run([promtool, "check", "rules", MONITORING / "rules.yaml"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.full  # promtool takes minutes to build
def test_alerts_fire(tmp_path: Path) -> None:
    promtool = find("promtool")
    (tmp_path / "rules.yaml").write_text((MONITORING / "rules.yaml").read_text())
    (tmp_path / "test.yaml").write_text(ALERTS)
    run = subprocess.run([promtool, "test", "rules", tmp_path / "test.yaml"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


ALERTS = """
rule_files: [rules.yaml]
evaluation_interval: 1m
tests:
  - name: all is well
    interval: 1m
    input_series:
      - {series: 'ckptguard_build_info{pod="a"}', values: '1+0x30'}
      - {series: 'ckptguard_build_info{pod="b"}', values: '1+0x30'}
      - {series: 'ckptguard_tls_trusted{pod="a"}', values: '1+0x30'}
      - {series: 'ckptguard_tls_expires_seconds{pod="a"}', values: '7776000+0x30'}
      - {series: 'ckptguard_broken_total{pod="a",part="short-grace"}', values: '0+0x30'}
    alert_rule_test:
      - {eval_time: 20m, alertname: CheckpointGuardDown, exp_alerts: []}
      - {eval_time: 20m, alertname: CheckpointGuardAlone, exp_alerts: []}
      - {eval_time: 20m, alertname: CheckpointGuardUntrusted, exp_alerts: []}
      - {eval_time: 20m, alertname: CheckpointGuardCertificateExpires, exp_alerts: []}
      - {eval_time: 20m, alertname: CheckpointGuardRuleBroken, exp_alerts: []}
  - name: nobody is there
    interval: 1m
    input_series:
      - {series: 'up', values: '1+0x30'}
    promql_expr_test:
      - expr: count(ALERTS{alertname="CheckpointGuardDown",alertstate="firing"})
        eval_time: 10m
        exp_samples: [{value: 1}]
  - name: much is wrong
    interval: 1m
    input_series:
      - {series: 'ckptguard_build_info{pod="a"}', values: '1+0x30'}
      - {series: 'ckptguard_tls_trusted{pod="a"}', values: '0+0x30'}
      - {series: 'ckptguard_tls_stale{pod="a"}', values: '1+0x30'}
      - {series: 'ckptguard_tls_expires_seconds{pod="a"}', values: '86400+0x30'}
      - {series: 'ckptguard_certs_failing{pod="c"}', values: '1+0x30'}
      - {series: 'ckptguard_certs_open{pod="c"}', values: '1+0x30'}
      - {series: 'ckptguard_broken_total{pod="a",part="short-grace"}', values: '0+1x30'}
      - {series: 'ckptguard_audit_lines_lost_total{pod="a",sink="stdout"}', values: '0+1x30'}
      - {series: 'ckptguard_live_reads_total{pod="a",result="forbidden"}', values: '0+1x30'}
      - {series: 'ckptguard_cache_event_age_seconds{pod="a",kind="Namespace"}', values: '900+60x30'}
      - {series: 'ckptguard_webhook_requests_total{pod="a",webhook="/validate",code="503"}', values: '0+9x30'}
      - {series: 'ckptguard_webhook_latency_seconds_bucket{pod="a",webhook="/validate",le="1.0"}', values: '0+0x30'}
      - {series: 'ckptguard_webhook_latency_seconds_bucket{pod="a",webhook="/validate",le="2.5"}', values: '0+9x30'}
      - {series: 'ckptguard_webhook_latency_seconds_bucket{pod="a",webhook="/validate",le="+Inf"}', values: '0+9x30'}
    promql_expr_test:
      - expr: count(ALERTS{alertstate="firing"})
        eval_time: 25m
        exp_samples: [{value: 12}]
"""
