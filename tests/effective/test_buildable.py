"""What is cached of a runtime changes no answer, and names are judged as Kubernetes judges them."""

from __future__ import annotations

from pathlib import Path

from tests.rules.cases import FOLDER, documents_of
from tests.together import together
from webhook.effective import build_trainer_pods
from webhook.effective.buildable import find_refusals
from webhook.effective.buildable.syntax import (
    is_config_key,
    is_dns_1035_label,
    is_dns_label,
    is_dns_subdomain,
    is_env_name,
    is_label_value,
    is_port_name,
    is_qualified_name,
    steps_back,
)
from webhook.model.cluster import Runtime
from webhook.model.release import Release

CASES = sorted((FOLDER / "unbuildable-pod").glob("*.yaml"))


@together([(path, release) for release in Release for path in CASES], lambda case: case[1].value)
def test_a_warm_runtime_gives_the_same_answer(case: tuple[Path, Release]) -> None:
    path, release = case
    documents = documents_of(path)
    trainjobs = [document.object for document in documents if document.kind == "TrainJob"]
    for document in documents:
        if document.kind.endswith("TrainingRuntime"):
            runtime = Runtime(document.kind, document.namespace, document.name, document.object, {})
            for trainjob in (*trainjobs, {"metadata": {"name": "other"}, "spec": {}}, *trainjobs):
                effective = build_trainer_pods(trainjob, runtime, release)
                cold = list(find_refusals(effective, lambda job, pod: job))
                assert list(find_refusals(effective, lambda job, pod: job, runtime.prepared)) == cold


def test_names() -> None:
    assert is_dns_label("a-1")
    assert is_dns_label("1a")
    assert is_dns_label("a" * 63)
    assert not any(map(is_dns_label, ("", "-a", "a-", "A", "a.b", "a_b", "a" * 64, "é")))
    assert is_dns_1035_label("a1")
    assert not is_dns_1035_label("1a")
    assert is_dns_subdomain("a.b-c.1")
    assert not any(map(is_dns_subdomain, ("", "a..b", ".a", "A", "a" * 254)))
    assert is_label_value("")
    assert is_label_value("A_b.c-1")
    assert not any(map(is_label_value, ("-a", "a-", "a b", "a" * 64)))
    assert is_qualified_name("example.com/a_B")
    assert is_qualified_name("gpu")
    assert not any(map(is_qualified_name, ("", "/a", "a/", "A/a", "a/b/c")))
    assert is_env_name("A")
    assert is_env_name("a.b-c 1")
    assert not any(map(is_env_name, ("", "A=B", "é", "\t")))
    assert is_port_name("http-1")
    assert not any(map(is_port_name, ("", "1", "a--b", "a" * 16, "HTTP")))
    assert is_config_key("a.b_C-1")
    assert not any(map(is_config_key, ("", ".", "..", "..a", "a/b")))
    assert steps_back("../a")
    assert steps_back("a/..")
    assert not steps_back("..a/b..")
