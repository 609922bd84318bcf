"""The policy file: what is wrong is named by line and field, with what to write."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import fields, replace

from webhook.cluster.policy_check import INTERNAL
from webhook.cluster.policy_file import PolicyError, load_policy, parse_policy
from webhook.model.policy import Policy
from webhook.reports.catalogue import entries

HEAD = "apiVersion: checkpoint-guard.io/v1\nkind: Policy\n"
RULES = ("short-grace", "missing-claim")


def policy(text: str) -> Policy:
    return parse_policy((HEAD + text).encode(), "p.yaml", RULES)


def test_everything_that_the_engine_reads_can_be_set() -> None:
    found = policy(
        """
directory: {variables: [OUT]}
rules: {short-grace: "off", missing-claim: warn}
limits: {maxRestarts: 5, terminationGracePeriodSeconds: 30, lostWork: 2h}
defaults: {claimName: c, path: /x, maxRestarts: 1, backoffLimit: 2, terminationGracePeriodSeconds: 9, runtimes: []}
storage: {provisioners: {"*.example.com": one-node}, inlineDrivers: {d.example.com: many-nodes}}
checkpointSizes: [{upToParams: 350M, size: 1Gi}]
programs: {configMaps: "off"}
restoreManagers: []
modes: {default: warn, selfService: [warn]}
tiers: {fast: {sizeLimit: 5Gi, storageClassName: fast}}
exempt: {namespaces: [a], users: [b], groups: [c], runtimes: [ClusterTrainingRuntime/d]}
"""
    )
    assert found.directory.variables == ("OUT",)
    assert found.rules == {"short-grace": "off", "missing-claim": "warn"}
    assert found.storage.provisioners == {"*.example.com": "one-node"}
    assert found.programs.config_maps == "off"
    assert found.modes.default == "warn"
    assert found.tiers.fast.storage_class_name == "fast"


@pytest.mark.parametrize("choice", ["multi-node", "keep", 0])
def test_who_gets_no_retries_is_a_choice(choice: object) -> None:
    assert policy(f"defaults: {{backoffLimit: {choice}}}\n").defaults.backoff_limit == choice


def test_the_hash_follows_what_is_said_and_not_how() -> None:
    first = policy("rules: {short-grace: warn, missing-claim: audit}\n")
    second = policy("# the same\nlimits: {}\nrules:\n  missing-claim: audit\n  short-grace: warn\n")
    assert first.hash == second.hash
    assert len(first.hash) == 12
    assert first.hash != policy("").hash
    assert parse_policy(b"", "p.yaml", RULES).hash == policy("").hash


@pytest.mark.parametrize(
    ("text", "line", "field", "words"),
    [
        ("rules:\n  short-grce: warn\n", 4, "rules.short-grce", 'the nearest is "short-grace"'),
        ("rules: {short-grace: off}\n", 3, "rules.short-grace", 'write "off"'),
        ("rules: {short-grace: denied}\n", 3, "rules.short-grace", "none of deny, warn, audit, off"),
        ("rules: [short-grace]\n", 3, "rules", "a list stands where a mapping belongs"),
        ("defaults: {backoffLimit: multi}\n", 3, "defaults.backoffLimit", "none of 0, multi-node, keep"),
        ("defaults: {backoffLimit: multi-nodes}\n", 3, "defaults.backoffLimit", 'the nearest is "multi-node"'),
        ("defaults: {backoffLimit: [0]}\n", 3, "defaults.backoffLimit", "a list is none of 0, multi-node, keep"),
        ("defaults: {backoffLimit: 1.5}\n", 3, "defaults.backoffLimit", "is none of 0, multi-node, keep"),
        ("defaults: {backoffLimit: null}\n", 3, "defaults.backoffLimit", "null is none of 0, multi-node, keep"),
        ('defaults: {backoffLimit: "0"}\n', 3, "defaults.backoffLimit", '"0" is none of 0, multi-node, keep'),
        ("defaults: {backoffLimit: -1}\n", 3, "defaults.backoffLimit", "-1 is not within 0 and"),
        ("defaults: {backoffLimit: off}\n", 3, "defaults.backoffLimit", "false stands here"),
        ("programs: {configMaps: off}\n", 3, "programs.configMaps", 'write "off"'),
        ("programs: {configMaps: never}\n", 3, "programs.configMaps", "none of read, off"),
        ("limits:\n  maxRestart: 3\n", 4, "limits.maxRestart", 'the nearest is "maxRestarts"'),
        ('limits: {maxRestarts: "3"}\n', 3, "limits.maxRestarts", "an integer belongs"),
        ("limits: {maxRestarts: -1}\n", 3, "limits.maxRestarts", "not within 0"),
        ("limits: {lostWork: soon}\n", 3, "limits.lostWork", "write 90s, 30m or 2h"),
        ("directory: {variables: OUT}\n", 3, "directory.variables", "a list belongs"),
        ("directory: {variables: [A B]}\n", 3, "directory.variables[0]", "no name of a variable"),
        ("defaults: {path: ckpt}\n", 3, "defaults.path", "does not begin with /"),
        ("defaults: {runtimes: [TrainJob]}\n", 3, "defaults.runtimes[0]", "none of TrainingRuntime"),
        ("storage:\n  provisioners:\n    a.b/c: nodelocal\n", 5, "storage.provisioners[a.b/c]", "node-local"),
        ("storage: {provisioners: {a*b: one-node}}\n", 3, "storage.provisioners[a*b]", "*.suffix"),
        ("checkpointSizes: [{size: 1Gi}]\n", 3, "checkpointSizes[0].upToParams", "absent"),
        ("checkpointSizes: [{size: big, upToParams: 7B}]\n", 3, "checkpointSizes[0].size", "write 80Gi"),
        ("modes: {default: on}\n", 3, "modes.default", 'write "on"'),
        ("defaults: {path: /a/../b}\n", 3, "defaults.path", "no place for a volume"),
        ("defaults: {path: /}\n", 3, "defaults.path", "no place for a volume"),
        ("defaults: {claimName: Train_Ckpt}\n", 3, "defaults.claimName", "no name of a claim"),
        ("exceptions: short-grace\n", 3, "exceptions", "a list belongs"),
        ("namespaces: [team-a]\n", 3, "namespaces[0]", "a mapping belongs"),
        ("exempts: {}\n", 3, "exempts", 'the nearest is "exempt"'),
        ("hash: abc\n", 3, "hash", "unknown field"),
        ("a: [\n", 3, None, "not YAML"),
        ("---\na: b\n", 3, None, "more than one document"),
    ],
)
def test_faults_name_line_field_and_fix(text: str, line: int, field: str | None, words: str) -> None:
    with pytest.raises(PolicyError) as caught:
        policy(text)
    (error,) = caught.value.errors
    assert (error.file, error.line, error.field) == ("p.yaml", line, field)
    assert words in error.message


def test_it_says_what_it_is() -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(b"kind: Polic\n", "p.yaml", RULES)
    assert [error.field for error in caught.value.errors] == ["apiVersion", "kind"]
    with pytest.raises(PolicyError, match="no mapping"):
        parse_policy(b"- a\n", "p.yaml", RULES)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no such file"):
        load_policy(str(tmp_path / "none.yaml"), RULES)
    (tmp_path / "p.yaml").write_text(HEAD)
    assert load_policy(str(tmp_path / "p.yaml"), RULES).limits == Policy().limits


def test_every_id_of_the_catalogue_can_be_set() -> None:
    ids = [entry.id for entry in entries()]
    text = HEAD + "rules:\n" + "".join(f"  {rule}: audit\n" for rule in ids)
    assert list(parse_policy(text.encode(), "p.yaml").rules) == ids


def test_the_namespace_of_the_system_stays_exempt() -> None:
    assert policy("exempt: {namespaces: [a]}\n").exempt.namespaces == ("a", "kube-system")
    assert policy("exempt: {namespaces: [kube-system, a]}\n").exempt.namespaces == ("kube-system", "a")


def test_the_page_shows_the_built_in_policy() -> None:
    page = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()
    text = page.split("```yaml\n")[1].split("```")[0]
    assert replace(parse_policy(text.encode(), "docs/policy.md"), hash="") == replace(Policy(), hash="")
    for field in fields(Policy):
        assert f"\n{field.encode_name}:" in f"\n{text}" or field.name in INTERNAL


def test_a_default_mode_from_outside_fills_in_and_never_overrides() -> None:
    """The component start-in-warn must not replace a policy of one's own, nor what it says."""
    head = b"apiVersion: checkpoint-guard.io/v1\nkind: Policy\n"
    assert parse_policy(b"", "p", default_mode="warn").modes.default == "warn"
    own = parse_policy(head + b"rules: {short-grace: deny}\nmodes: {selfService: [warn]}\n", "p", default_mode="warn")
    assert (own.modes.default, own.modes.self_service, own.rules) == ("warn", ("warn",), {"short-grace": "deny"})
    written = parse_policy(head + b"modes: {default: audit}\n", "p", default_mode="warn")
    assert written.modes.default == "audit"
    assert own.hash != parse_policy(head + b"rules: {short-grace: deny}\nmodes: {selfService: [warn]}\n", "p").hash
