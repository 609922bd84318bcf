"""``rehearse job.yaml`` as it is called: exit codes, JSON, the note in the file, and what is left however it ends."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rehearsal.test_in_cluster import Cluster, runtime, trainjob
from webhook.cli import main, run_flags
from webhook.cli.rehearsed import find_target
from webhook.effective.rehearsed import read_annotation
from webhook.model.names import API_VERSION
from webhook.runs.api import Answer
from webhook.runs.clock import Clock

NAME = "digits-rehearsal-abc"
Asked = Callable[[str, str], Answer | None]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster that the command finds; its clock is the command's."""
    folder = tmp_path / "claim"
    folder.mkdir()
    made = Cluster(folder)
    made.namespace = "team"  # type: ignore[attr-defined]
    monkeypatch.setattr(run_flags, "connect", lambda *_: made)
    clock = Clock(lambda: made.time, made.sleep, lambda: made.time)
    monkeypatch.setattr("webhook.runs.clock.Clock", lambda *_: clock)
    monkeypatch.setattr("webhook.cli.rehearse_cluster.secrets", argparse.Namespace(token_hex=lambda _: "abc"))
    return made


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A TrainJob with its runtime."""
    made = {**runtime(terminationGracePeriodSeconds=30).raw, "kind": "TrainingRuntime"}
    made["metadata"] = {"name": "rt", "namespace": "team"}
    objects = [{"apiVersion": API_VERSION, **made}, {"apiVersion": API_VERSION, "kind": "TrainJob", **trainjob()}]
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump_all(objects, sort_keys=False))
    return str(path)


def noted(file: str) -> str | None:
    (job,) = (one for one in yaml.safe_load_all(Path(file).read_text()) if one["kind"] == "TrainJob")
    found = (job["metadata"].get("annotations") or {}).get("checkpoint-guard.io/rehearsed")
    return None if found is None else str(found)


def answering(cluster: Cluster, asked: Asked) -> None:
    """``asked`` answers in the cluster's stead where it has an answer."""
    request = cluster.request
    cluster.request = lambda method, path, *rest: asked(method, path) or request(method, path, *rest)  # type: ignore[method-assign]


def test_json_and_the_note_in_the_file(cluster: Cluster, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rehearse", file, "-o", "json", "--write", file]) == 0
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert (found["schema"], found["verdict"], found["findings"]) == (1, "resumed", [])
    assert [one["signal"] for one in found["starts"]] == ["SIGTERM", None]
    assert (found["starts"][0]["savedOnSigterm"], found["starts"][1]["from"]) == (True, 14)
    assert not any("left behind" in note for note in found["notes"])
    assert "[interrupt] saved on SIGTERM" in told.err
    assert cluster.left() == []
    note = read_annotation(noted(file) or "")
    assert (note.fingerprint, note.verdict) == (find_target(file).fingerprint, "resumed")


def test_one_that_starts_afresh(cluster: Cluster, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.resumes = False
    assert main(["rehearse", file, "--write", file]) == 1
    told = capsys.readouterr().out
    assert "[never-resumed]" in told
    assert "\nNOT RESUMED" in told
    assert ";verdict=not-resumed;" in (noted(file) or "")


@pytest.mark.parametrize("kind", ["runtime", "trainjob"])
def test_what_was_refused_is_no_verdict(
    cluster: Cluster, file: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = Answer(403, {"message": "denied by a webhook\x1b[2J"})
    answering(cluster, lambda method, path: refused if method == "POST" and path.lower().endswith(f"{kind}s") else None)
    assert main(["rehearse", file, "-o", "json", "--write", file]) == 2
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert found["verdict"] == "not-rehearsable"
    assert found["why"][0].startswith(f"its {kind} is refused, as the run itself would be: denied by a webhook")
    assert "\x1b" not in told.out + told.err
    assert noted(file) is None
    assert cluster.left() == []


def test_what_could_not_be_removed_is_in_the_report(
    cluster: Cluster, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = Answer(403, {"message": "no"})
    answering(cluster, lambda method, path: refused if method == "DELETE" and "/trainjobs/" in path else None)
    assert main(["rehearse", file, "-o", "json"]) == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert f"left behind: TrainJob {NAME} and its pods (kubectl delete trainjob {NAME} -n team)" in notes[-1]


def test_interrupted(cluster: Cluster, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.interrupt_at = 24
    assert main(["rehearse", file]) == 130
    assert "interrupted: nothing is left of the rehearsal; the run was not changed" in capsys.readouterr().err
    assert cluster.left() == []


def test_the_cluster_is_gone_amid_it(cluster: Cluster, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.on_pod_end = lambda: setattr(cluster, "down_until", 1e9)
    assert main(["rehearse", file]) == 2
    told = capsys.readouterr().err
    assert "left behind: TrainJob" in told
    assert f"kubectl delete trainjob {NAME} -n team" in told


def test_files_that_it_does_not_take(
    cluster: Cluster, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rehearse", file, "-n", "other"]) == 2
    assert 'says namespace "team"' in capsys.readouterr().err
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    assert main(["rehearse", str(empty)]) == 2
    assert "0 TrainJobs in it" in capsys.readouterr().err
    assert main(["rehearse", str(tmp_path / "absent.yaml")]) == 2
    assert cluster.calls == []


@pytest.mark.parametrize("when", ["unread", "on its way"])
@pytest.mark.parametrize("kind", ["trainingruntimes", "trainjobs", "pods"])
def test_ctrl_c_between_a_creation_and_its_answer(cluster: Cluster, file: str, kind: str, when: str) -> None:
    """What was asked for is carried out all the same: at once, or when somebody has looked whether it is there."""
    request = cluster.request
    asked: list[str] = []

    def late(method: str, path: str, *rest: Any) -> Answer:
        if method != "POST" or not path.endswith(f"/{kind}") or asked:
            return request(method, path, *rest)
        asked.append(path)
        if when == "unread":
            request(method, path, *rest)
        elif kind != "trainjobs":
            cluster.after(0.5, lambda: (request(method, path, *rest), None)[1])
        else:  # a TrainJob whose runtime has gone meanwhile is refused
            cluster.after(0.5, lambda: (cluster.runtimes and request(method, path, *rest), None)[1])
        raise KeyboardInterrupt

    cluster.request = late  # type: ignore[assignment]
    cluster.flush = False
    assert main(["rehearse", file]) == 130
    assert asked
    cluster.sleep(5.0)
    assert cluster.left() == []
