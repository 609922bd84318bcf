"""docs/operations.md names what exists: rules, commands, alerts, webhooks, files, metrics and settings."""

import re

import yaml

from tests.deploy.generate import DEPLOY, build_configurations
from webhook.cli import COMMANDS
from webhook.metrics import KEEPER, METRICS, SCAN
from webhook.rules import RULES
from webhook.settings import Settings

TEXT = (DEPLOY.parent / "docs" / "operations.md").read_text()
WORDS = set(re.findall(r"`([^`\n]+)`", TEXT))
# Findings that no rule of its own makes, and names of other things that look like one.
KEEPERS = {"CKPTGUARD_IGNORE_AFTER"}
"""Settings of `ckptguard certs run`."""
OTHERS = {"immutable-default", "malformed-object", "broken-rule", "program-not-read", "expired-exception"}


def test_symptoms_lead_to_rules_that_exist() -> None:
    table = TEXT.partition("Of a training run.")[2]
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", table))
    assert len(named) > 20
    assert named <= {rule.id for rule in RULES} | OTHERS


def test_every_refusal_has_a_symptom() -> None:
    table = TEXT.partition("Of a training run.")[2]
    for rule in RULES:
        if rule.severity.value == "deny" and not rule.id.startswith("text-"):
            assert f"`{rule.id}`" in table, rule.id


def test_commands_exist() -> None:
    used = set(re.findall(r"\bckptguard ([a-z][a-z-]+)", TEXT))
    assert used <= {*COMMANDS, "certs"}


def test_alerts_are_told_and_exist() -> None:
    rules = yaml.safe_load((DEPLOY / "components" / "monitoring" / "rules.yaml").read_text())
    known = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    assert {word for word in WORDS if word.startswith("CheckpointGuard")} == known


def test_webhooks_are_told() -> None:
    registered = {
        hook["name"].removesuffix(".checkpoint-guard.io") for one in build_configurations() for hook in one["webhooks"]
    }
    table = TEXT.partition("Seven webhooks are registered:")[2].partition("No subresource")[0]
    assert set(re.findall(r"`([a-z]+(?:-[a-z]+)*)`", table)) == registered
    assert len(registered) == 7


def test_files_exist() -> None:
    for path in re.findall(r"(?<![\w/])deploy/[\w./-]+[\w]", TEXT):
        if not path.startswith(("deploy/checkpoint-guard",)):
            assert (DEPLOY.parent / path).exists(), path


def test_metrics_and_settings_exist() -> None:
    known = {metric.name for metric in (*METRICS, *KEEPER, *SCAN)}
    for word in WORDS:
        if re.fullmatch(r"ckptguard_[a-z_]+", word):
            assert word in known, word
        if re.fullmatch(r"CKPTGUARD_[A-Z_]+", word):
            assert word in KEEPERS or word.removeprefix("CKPTGUARD_").lower() in Settings.model_fields, word


def test_links_within_lead_somewhere() -> None:
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in TEXT.splitlines()
        if line.startswith("#")
    }
    for anchor in re.findall(r"\]\(#([a-z0-9-]+)\)", TEXT):
        assert anchor in headings, anchor
