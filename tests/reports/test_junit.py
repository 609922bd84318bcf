"""JUnit as CI servers read it."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from tests.reports.reviews import REVIEW
from webhook.reports.junit import render
from webhook.reports.review import Fault, Review


def test_one_case_an_object_and_one_an_error() -> None:
    root = ElementTree.fromstring(render(REVIEW))
    assert root.tag == "testsuites"
    assert {name: root.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "4",
        "failures": "1",
        "errors": "2",
    }
    assert [suite.get("name") for suite in root] == ["jobs/a b.yaml", "-", "/abs/broken.yaml", "ckptguard"]
    cases = [case for suite in root for case in suite]
    assert [case.get("name") for case in cases[:2]] == ["TrainJob/bad in team", "ClusterTrainingRuntime/torch"]
    assert list(cases[1]) == []


def test_denial_is_a_failure_and_warnings_are_output() -> None:
    (case,) = next(iter(ElementTree.fromstring(render(REVIEW))))
    failure, output = case
    assert failure.tag == "failure"
    assert failure.get("message") == "1 denial: ephemeral-checkpoint"
    assert failure.text is not None
    assert "claimName: train-ckpt" in failure.text
    assert output.tag == "system-out"
    assert output.text is not None
    assert "[short-grace] (warning)" in output.text
    assert "/srv/secret" not in render(REVIEW)


@given(st.text())
def test_any_text_gives_well_formed_xml(text: str) -> None:
    root = ElementTree.fromstring(render(Review((), (Fault(text, text, 1, text),))).encode())
    assert root.get("errors") == "1"
