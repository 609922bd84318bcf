"""The catalogue of metrics: what it says is what is served."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from certs.gate import Gate
from certs.health import metrics_text
from certs.loop import Keeper, Status
from certs.rotation import Rotation
from tests.server.serving import DENIED
from webhook.metrics import KEEPER, METRICS, Metrics, catalogue

ROOT = Path(__file__).parents[1]


def served(metrics: Metrics) -> dict[str, str]:
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {family.name: family.type for family in families}


def test_catalogue_is_current() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    assert text == catalogue(), "run: python -m webhook.metrics > docs/metrics.md"


def test_served_as_listed() -> None:
    listed = {metric.name.removesuffix("_total"): metric.kind for metric in METRICS}
    assert served(Metrics(process=False)) == listed
    assert {"process_resident_memory_bytes", "python_gc_collections"} <= set(served(Metrics()))


def test_the_keeper_serves_what_is_listed() -> None:
    now = datetime.datetime.now(datetime.UTC)
    rotation = cast(Rotation, SimpleNamespace(leaf_ends=now, authority_ends=now))
    gate = cast(Gate, SimpleNamespace(open=True))
    families = text_string_to_metric_families(metrics_text(Status(), Keeper(rotation, gate)))
    found = {(family.name, family.type, frozenset(family.samples[0].labels)) for family in families}
    assert found == {(one.name.removesuffix("_total"), one.kind, frozenset(one.labels)) for one in KEEPER}


def test_named_as_prometheus_has_it() -> None:
    for metric in METRICS:
        assert metric.name.startswith("ckptguard_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.help.endswith(".")
        if metric.kind == "histogram":
            assert metric.name.endswith("_seconds")


def test_what_is_alerted_on_counts_from_nothing() -> None:
    """A counter that begins with 1 has no increase in Prometheus, so its alert would miss the first time."""
    metrics = Metrics(process=False)
    metrics.audit_sink("stdout", lambda: 0)
    texts = [path.read_text() for path in (ROOT / "deploy").rglob("rules.yaml")]
    alerted = set(re.findall(r"(?:increase|rate)\((ckptguard_(?!certs_)\w+)", "\n".join(texts)))
    assert {"ckptguard_broken_total", "ckptguard_audit_lines_lost_total"} <= alerted
    there = {sample.name for family in metrics.registry.collect() for sample in family.samples}
    assert alerted <= there
    assert metrics.registry.get_sample_value("ckptguard_broken_total", {"part": "ephemeral-checkpoint"}) == 0


def test_counts() -> None:
    metrics = Metrics(process=False)
    metrics.found([DENIED, DENIED])
    metrics.broke(["shared-directory"])
    metrics.use_policy("one")
    metrics.use_policy("two")
    read = metrics.registry.get_sample_value
    assert read("ckptguard_findings_total", {"rule": "ephemeral-checkpoint", "severity": "deny"}) == 2
    assert read("ckptguard_broken_total", {"part": "shared-directory"}) == 1
    assert read("ckptguard_policy_info", {"hash": "one"}) is None
    assert read("ckptguard_policy_info", {"hash": "two"}) == 1
