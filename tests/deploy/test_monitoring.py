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


@pytest.mark.full  # promtool takes minutes to build
def test_each_alert_fires_and_is_silent_where_it_has_to(tmp_path: Path) -> None:
    rules = (MONITORING / "rules.yaml").read_text()
    names = re.findall(r"alert: (\w+)", rules)
    assert sorted(names) == sorted(EACH)
    tests = []
    for name, (wrong, right) in EACH.items():
        for series, samples in ((wrong, [{"value": 1}]), (right, [])):
            expression = f'count(ALERTS{{alertname="{name}",alertstate="firing"}})'
            tests.append(
                {
                    "name": f"{name} {'fires' if samples else 'is silent'}",
                    "interval": "1m",
                    "input_series": [{"series": one, "values": values} for one, values in series.items()],
                    "promql_expr_test": [{"expr": expression, "eval_time": "45m", "exp_samples": samples}],
                }
            )
    (tmp_path / "rules.yaml").write_text(rules)
    asked = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(asked))
    run = subprocess.run([find("promtool"), "test", "rules", tmp_path / "test.yaml"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def _flat(value: int) -> str:
    return f"{value}+0x60"


_NOBODY = {"up": _flat(1)}
_TWO = {'ckptguard_build_info{pod="a",node="one"}': _flat(1), 'ckptguard_build_info{pod="b",node="two"}': _flat(1)}
_LATENCY = 'ckptguard_webhook_latency_seconds_bucket{webhook="/validate",le="%s"}'
EACH: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "CheckpointGuardDown": (_NOBODY, _TWO),
    "CheckpointGuardAlone": ({'ckptguard_build_info{pod="a"}': _flat(1)}, _TWO),
    "CheckpointGuardOneNode": (
        {f'ckptguard_build_info{{pod="{pod}",node="one"}}': _flat(1) for pod in "ab"},
        # Where Prometheus tells no node there is nothing to say.
        {f'ckptguard_build_info{{pod="{pod}"}}': _flat(1) for pod in "ab"},
    ),
    "CheckpointGuardWorkerEnds": (
        {'ckptguard_worker_restarts_total{why="died"}': "0+1x60"},
        {
            'ckptguard_worker_restarts_total{why="grown"}': "0+9x60",
            'ckptguard_worker_restarts_total{why="died"}': "1x60",
        },
    ),
    "CheckpointGuardFlooded": (
        {'ckptguard_connections_refused_total{why="peer"}': "0+20x60"},
        {'ckptguard_connections_refused_total{why="peer"}': "0+1x60"},
    ),
    "CheckpointGuardUntrusted": (
        {'ckptguard_tls_trusted{pod="a"}': _flat(0), 'ckptguard_tls_trusted{pod="b"}': _flat(1)},
        {'ckptguard_tls_trusted{pod="a"}': _flat(1)},
    ),
    "CheckpointGuardPairRefused": (
        {'ckptguard_tls_stale{pod="a"}': _flat(1)},
        {'ckptguard_tls_stale{pod="a"}': "0x40 1x5 0x15"},  # taken at the next try
    ),
    "CheckpointGuardPolicyRefused": (
        {'ckptguard_policy_stale{pod="a"}': _flat(1), 'ckptguard_policy_stale{pod="b"}': _flat(0)},
        {'ckptguard_policy_stale{pod="a"}': "0x42 1x20"},  # mended within five minutes
    ),
    "CheckpointGuardPoliciesDiffer": (
        {'ckptguard_policy_info{pod="a",hash="x"}': _flat(1), 'ckptguard_policy_info{pod="b",hash="y"}': _flat(1)},
        {'ckptguard_policy_info{pod="a",hash="x"}': _flat(1), 'ckptguard_policy_info{pod="b",hash="x"}': _flat(1)},
    ),
    "CheckpointGuardCertificateExpires": (
        {'ckptguard_tls_expires_seconds{pod="a"}': _flat(86_400)},
        # 0: served without TLS.
        {
            'ckptguard_tls_expires_seconds{pod="a"}': _flat(86_400 * 30),
            'ckptguard_tls_expires_seconds{pod="b"}': _flat(0),
        },
    ),
    "CheckpointGuardCertificatesFail": (
        {'ckptguard_certs_failing{pod="c"}': _flat(1)},
        {'ckptguard_certs_failing{pod="c"}': _flat(0)},
    ),
    "CheckpointGuardOpen": (
        {'ckptguard_certs_open{pod="c"}': _flat(1), 'ckptguard_certs_open{pod="d"}': _flat(0)},
        {'ckptguard_certs_open{pod="c"}': "1x8 0x52"},  # an install that takes its time
    ),
    "CheckpointGuardRuleBroken": (
        {'ckptguard_broken_total{part="short-grace"}': "0+1x60"},
        {'ckptguard_broken_total{part="short-grace"}': _flat(3)},
    ),
    "CheckpointGuardAuditLost": (
        {'ckptguard_audit_lines_lost_total{sink="stdout"}': "0+1x60"},
        {'ckptguard_audit_lines_lost_total{sink="stdout"}': _flat(3)},
    ),
    "CheckpointGuardForbidden": (
        {'ckptguard_live_reads_total{result="forbidden"}': "0+1x60"},
        {'ckptguard_live_reads_total{result="found"}': "0+9x60"},
    ),
    "CheckpointGuardCacheOld": (
        {'ckptguard_cache_event_age_seconds{kind="Namespace"}': "0+60x60"},
        {'ckptguard_cache_event_age_seconds{kind="Namespace"}': _flat(60)},
    ),
    "CheckpointGuardSlow": (
        {_LATENCY % "1.0": _flat(0), _LATENCY % "2.5": "0+9x60", _LATENCY % "+Inf": "0+9x60"},
        {_LATENCY % "1.0": "0+9x60", _LATENCY % "2.5": "0+9x60", _LATENCY % "+Inf": "0+9x60"},
    ),
    "CheckpointGuardTurnsAway": (
        {'ckptguard_webhook_requests_total{code="503"}': "0+9x60"},
        {'ckptguard_webhook_requests_total{code="200"}': "0+9x60"},
    ),
}
"""Alert -> series that make it fire, and series for which it has to be silent; 45 minutes on."""

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
