"""Every cache weighs bytes, and all of them together have a ceiling."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import webhook
from tests.work.shapes import CLAIM, ask, container, job, runtime, trainjob
from webhook.model import caches
from webhook.model.bounded import Bounded
from webhook.model.caches import ALL, CEILINGS, MIB
from webhook.programs import cache

KNOWN = ("model/caches.py", "decision/asked.py", "model/fields.py", "rules/unknown_field.py", "cluster/policy_check.py")
"""What keeps nothing that a user wrote may keep it without a weight."""
HOUSE = Path(webhook.__file__).parent


def test_the_ceilings_together_are_the_contracts() -> None:
    assert ALL == 64 * MIB
    assert sum(CEILINGS.values()) <= ALL
    assert caches.bytes_of_texts() <= CEILINGS["texts"]


def test_no_cache_is_beside_the_table() -> None:
    named: set[str] = set()
    for path in HOUSE.rglob("*.py"):
        text = path.read_text()
        inside = path.relative_to(HOUSE).as_posix()
        named.update(re.findall(r"= cache\(\"([a-z ]+)\"\)", text))
        if inside not in ("model/caches.py", "model/bounded.py"):
            assert "Bounded(" not in text, inside
        if not inside.startswith(("cli/", "runs/")) and inside not in KNOWN:
            assert "lru_cache" not in text, inside
    assert named | {"texts", "rules"} == CEILINGS.keys()


def test_the_table_stands_in_the_documentation() -> None:
    text = (HOUSE.parent / "docs" / "operations.md").read_text()
    for name, ceiling in CEILINGS.items():
        assert f"| {name} | {ceiling // MIB} MiB |" in text


@pytest.mark.parametrize("large", [100_000, 1_000_000])
def test_a_large_variable_is_not_held_by_what_it_was_read_for(large: int) -> None:
    cache.clear()
    for number in range(3):
        value = f"{number}" + "x" * large
        node = container(command=["python", "train.py", "--name=$(NAME)"], env=[{"name": "NAME", "value": value}])
        mounts = [{"name": "state", "mountPath": f"/m{number}/" + "y" * large}]
        ask(
            [runtime([job(containers=[{**node, "volumeMounts": [*node["volumeMounts"], *mounts]}])]), CLAIM, trainjob()]
        )
    for store in (cache._REMARKS, cache._DIRECTORIES, cache._READ):
        assert isinstance(store, Bounded)
        assert all(len(repr(key)) < 20_000 for key in store._items)
