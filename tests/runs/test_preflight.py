"""Which runs a platform change would lose: against what the real controllers made of the same objects, and in words."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests import fast_yaml, golden
from webhook.cli import main
from webhook.model.cluster import Runtime
from webhook.model.release import Release, parse_release
from webhook.runs.api import Answer
from webhook.runs.dump import Dump
from webhook.runs.fleet import Fleet
from webhook.runs.preflight import Item, Report, for_deletion, for_kueue, for_runtime, for_trainer, hops_between

Object = dict[str, Any]
MPI = {"numNodes": 2, "mpi": {"mpiImplementation": "OpenMPI", "numProcPerNode": 1, "sshAuthMountPath": "/root/.ssh"}}
LABELS = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}


def job(name: str, labelled: bool = True, **container: Any) -> Object:
    pod = {"containers": [{"name": "node", "image": "registry.example/climate:1", **container}]}
    metadata = {"labels": LABELS} if labelled else {}
    return {"name": name, "template": {"metadata": metadata, "spec": {"template": {"spec": pod}}}}


def runtime(name: str = "climate", policy: Object | None = None, *jobs: Object) -> Object:
    spec = {
        "mlPolicy": policy or {"numNodes": 1, "torch": {}},
        "template": {"spec": {"replicatedJobs": list(jobs) or [job("node")]}},
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name},
        "spec": spec,
    }


MPI_RUNTIME = runtime("winds", MPI, job("launcher"), job("node", labelled=False))


def trainjob(name: str, used: str = "climate", queue: str = "", **spec: Any) -> Object:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": name,
            "namespace": "earth",
            "labels": {"kueue.x-k8s.io/queue-name": queue} if queue else {},
        },
        "spec": {"runtimeRef": {"name": used}, "trainer": {"numNodes": 1}, **spec},
    }


def jobset(name: str) -> Object:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "earth"},
        "spec": {},
    }


def copy_of(name: str, made_of: Object) -> Object:
    """Trainer's own copy of the runtime of a run."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-runtime-snapshot", "namespace": "earth"},
        "data": {"runtime": json.dumps(made_of)},
    }


def fleet(*objects: Object) -> Fleet:
    return Fleet(Dump(objects), None)


def verdicts(report: Report) -> dict[str, str]:
    return {item.name: item.verdict for item in report.items}


def only(report: Report) -> Item:
    (item,) = report.items
    return item


# --- an upgrade of Trainer


def _pods(pair: golden.Pair) -> Any:
    return [
        {"name": one["name"], "pods": one["pods"], "pod": _said(one["pod"])}
        for one in sorted(pair.expected["jobs"], key=lambda one: str(one["name"]))
    ]


def _said(value: Any) -> Any:
    """Without what is absent in one recording and empty or the API's default in another."""
    if isinstance(value, dict):
        return {key: said for key, inner in value.items() if (said := _said(inner)) not in (None, [], {}, "")}
    return [_said(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("old", "new"), [("2.0", "2.1"), ("2.1", "2.2"), ("2.2", "2.3"), ("2.3", "2.4")])
def test_a_difference_is_told_where_the_recorded_pods_differ(old: str, new: str) -> None:
    before, after = golden.TRAINERS[old], golden.TRAINERS[new]
    known = {pair.name: pair for pair in golden.pairs(after)}
    wrong: dict[str, Any] = {}
    held: set[str] = set()
    compared = lost = 0
    for pair in golden.pairs(before):
        other = known.get(pair.name)
        if other is None or not (pair.expected["accepted"] and other.expected["accepted"]):
            continue
        if pair.update is not None or other.update is not None or len(pair.outcomes) + len(other.outcomes) > 2:
            continue
        if not all(one["source"] == "Job" for recorded in (pair, other) for one in recorded.expected["jobs"]):
            continue
        documents = list(fast_yaml.safe_load_all(pair.input))
        if documents != list(fast_yaml.safe_load_all(other.input)):
            continue
        (run,) = [one for one in documents if one["kind"] == "TrainJob"]
        if run["metadata"].get("name") is None or run["spec"].get("managedBy"):
            continue
        made = {"kind": "JobSet", "metadata": {"name": run["metadata"]["name"], "namespace": _space(run)}}
        read = Fleet(Dump([*map(_placed, documents), made]), None)
        item = only(for_trainer(read, parse_release(old), parse_release(new)))
        compared += 1
        differs = _pods(pair) != _pods(other)
        lost += differs
        if item.difference and item.difference[0].startswith("volumeClaimPolicies without retentionPolicy"):
            held.add(pair.name)
            continue
        if (item.verdict == "lost") != differs:
            wrong[pair.name] = (item.verdict, item.difference, differs)
    assert not wrong, (len(wrong), compared, lost)
    # Whatever is installed, JobSet refuses each suspend and resume of these, of the shipped torchtune runtimes too.
    assert {name for name in held if "-up-" not in name} == (
        {"g-173-vcp-suspended"} if old in ("2.2", "2.3") else set()
    )
    # Of 264 pairs 30 differ: 10 from 2.0 to 2.1, 20 from 2.2 to 2.3.
    assert (compared, lost) == {"2.1": (43, 10), "2.2": (23, 0), "2.3": (108, 20), "2.4": (90, 0)}[new]


def _space(run: Object) -> str:
    return str(run["metadata"].get("namespace") or "default")


def _placed(one: Object) -> Object:
    if one["kind"] in ("TrainJob", "TrainingRuntime"):
        return {**one, "metadata": {"namespace": "default", **one["metadata"]}}
    return one


def test_an_mpi_run_is_lost_from_2_2_to_2_3_and_a_torch_run_is_not() -> None:
    read = fleet(
        MPI_RUNTIME,
        runtime(),
        trainjob("gusts", "winds", suspend=True),
        jobset("gusts"),
        trainjob("rain"),
        jobset("rain"),
        trainjob("snow", "winds", suspend=True),
    )
    report = for_trainer(read, Release.V2_2, Release.V2_3)
    assert report.fails
    assert [(item.name, item.state, item.verdict) for item in report.items] == [
        ("gusts", "Suspended", "lost"),
        ("rain", "Running", "safe"),
        ("snow", "Suspended", "safe"),
    ]
    assert report.items[0].difference == ("2.3: launcher: volumes", "2.3: node: volumes")
    assert report.items[0].rescue == "ckptguard rescue gusts -n earth"
    assert report.items[2].difference == ("it has no JobSet yet, so the first one is made after the change",)
    assert report.steps == ("install Trainer 2.3", "  ckptguard rescue gusts -n earth")


def test_a_run_that_jobset_never_lets_go_on_is_lost_and_has_no_rescue() -> None:
    made = runtime("claims")
    template = {"metadata": {"name": "ckpt"}, "spec": {"accessModes": ["ReadWriteMany"]}}
    policy: Object = {"templates": [template]}
    made["spec"]["template"]["spec"]["volumeClaimPolicies"] = [policy]
    objects = (made, trainjob("held", "claims"), jobset("held"))
    report = for_trainer(fleet(*objects), Release.V2_2, Release.V2_3)
    item = only(report)
    assert (item.verdict, item.rescue) == ("lost", None)
    assert item.difference[0].startswith("volumeClaimPolicies without retentionPolicy: JobSet refuses each suspend")
    assert report.steps[0].endswith("and their runtime retentionPolicy: {whenDeleted: Retain}")
    policy["retentionPolicy"] = {}
    assert only(for_trainer(fleet(*objects), Release.V2_2, Release.V2_3)).verdict == "safe"


def test_what_a_start_of_the_controller_decides_is_unknown() -> None:
    boosted = runtime("boosted", {"numNodes": 2, "xgboost": {}})
    own = trainjob("own", "boosted", trainer={"numNodes": 2, "env": [{"name": "SEED", "value": "1"}]})
    item = only(for_trainer(fleet(boosted, own, jobset("own")), Release.V2_2, Release.V2_3))
    assert (item.verdict, item.rescue) == ("unknown", None)
    assert "one of two orders, and JobSet refuses the other" in item.difference[0]
    plain = fleet(boosted, trainjob("plain", "boosted"), jobset("plain"))
    assert only(for_trainer(plain, Release.V2_2, Release.V2_3)).verdict == "safe"
    assert only(for_trainer(fleet(boosted, own), Release.V2_2, Release.V2_3)).verdict == "unknown"  # no JobSets


def test_2_3_is_passed_through_on_the_way_to_2_4() -> None:
    assert hops_between(Release.V2_1, Release.V2_4) == (Release.V2_3, Release.V2_4)
    assert hops_between(Release.V2_0, Release.V2_2) == (Release.V2_2,)
    assert hops_between(Release.V2_3, Release.V2_4) == (Release.V2_4,)
    assert hops_between(Release.V2_3, Release.V2_3) == ()
    read = fleet(MPI_RUNTIME, trainjob("gusts", "winds"), jobset("gusts"), trainjob("calm", "winds", suspend=True))
    report = for_trainer(read, Release.V2_2, Release.V2_4)
    assert report.items[0].difference == (
        "2.3: launcher: volumes",
        "2.3: node: volumes",
        "2.4: launcher: env of node",
    )
    assert list(report.steps) == [
        "before: let the running one finish, or run on: whichever is suspended after it needs its rescue first",
        "Trainer 2.2 to 2.4 goes by 2.3, and stays there until this is done:",
        "install Trainer 2.3",
        "  each of the running ones, once it has been suspended: ckptguard rescue NAME -n NAMESPACE",
        "install Trainer 2.4",
        "  each of the running ones, once it has been suspended: ckptguard rescue NAME -n NAMESPACE",
    ]
    # It is said where nothing is lost, too.
    assert report.notes == ()
    safe = for_trainer(fleet(runtime(), trainjob("rain"), jobset("rain")), Release.V2_2, Release.V2_4)
    assert (safe.fails, safe.notes) == (
        False,
        ("Trainer 2.2 to 2.4 goes by 2.3: install that first, and let it run",),
    )


def test_an_override_that_the_next_crd_drops_is_written_anew_and_not_rescued() -> None:
    override = {"targetJobs": [{"name": "node"}], "spec": {"serviceAccountName": "writer"}}
    objects = (runtime(), trainjob("rain", podTemplateOverrides=[override]), jobset("rain"))
    report = for_trainer(fleet(*objects), Release.V2_1, Release.V2_2)
    item = only(report)
    assert item.difference == (
        "2.2: podTemplateOverrides is dropped, since this release calls it otherwise",
        "2.2: node: serviceAccountName",
    )
    assert (item.verdict, item.rescue) == ("lost", None)
    assert report.steps == (
        "before: keep a copy (kubectl get trainjobs -A -o yaml > trainjobs.yaml): podTemplateOverrides is "
        "spec.runtimePatches in Trainer 2.2, and nothing shows the old one then",
        "install Trainer 2.2",
        "  while it is suspended, write spec.runtimePatches of the one whose podTemplateOverrides was dropped "
        "(kubectl edit trainjob), before anything else: without it the run would mount none of its volumes",
    )
    # Nothing is dropped between releases that call it the same.
    patch = {"manager": "example.com/me", "trainingRuntimeSpec": {}}
    same = fleet(runtime(), trainjob("rain", runtimePatches=[patch]), jobset("rain"))
    assert only(for_trainer(same, Release.V2_2, Release.V2_3)).verdict == "safe"


def test_an_override_that_is_dropped_beside_another_difference_takes_a_rescue_too() -> None:
    override = {"targetJobs": [{"name": "node"}], "spec": {"serviceAccountName": "writer"}}
    two = runtime("climate", {"numNodes": 1, "torch": {"numProcPerNode": 2}})
    read = fleet(two, trainjob("rain", podTemplateOverrides=[override], suspend=True), jobset("rain"))
    report = for_trainer(read, Release.V2_1, Release.V2_2)
    assert only(report).rescue == "ckptguard rescue rain -n earth"
    assert [step.split()[0] for step in report.steps] == ["before:", "install", "while", "ckptguard"]


def test_the_copy_that_trainer_made_counts_and_not_the_runtime_as_it_is_now() -> None:
    run, made = trainjob("gusts", "winds"), jobset("gusts")
    read = fleet(runtime("winds"), run, made, copy_of("gusts", MPI_RUNTIME))
    assert only(for_trainer(read, Release.V2_3, Release.V2_4)).verdict == "lost"
    # 2.2 knows no copies, and goes by the runtime.
    assert only(for_trainer(read, Release.V2_2, Release.V2_3)).verdict == "safe"
    assert only(for_trainer(fleet(runtime("winds"), run, made), Release.V2_3, Release.V2_4)).verdict == "safe"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({}, "Trainer's copy of its runtime has another shape"),
        ({"runtime": "a: [1"}, "Trainer's copy of its runtime is no YAML: "),
        ({"runtime": "a: 1\n---\nb: 2\n"}, "Trainer's copy of its runtime has another shape"),
        ({"runtime": "kind: TrainingRuntime\nspec: 7\n"}, "Trainer's copy of its runtime has fields of another type"),
    ],
)
def test_a_copy_of_another_shape_makes_it_unknown(data: Object, why: str) -> None:
    odd = {**copy_of("rain", {}), "data": data}
    item = only(for_trainer(fleet(runtime(), trainjob("rain"), jobset("rain"), odd), Release.V2_3, Release.V2_4))
    assert item.verdict == "unknown"
    assert item.difference[0].startswith(why)


def test_without_jobsets_nothing_is_known() -> None:
    report = for_trainer(fleet(runtime(), trainjob("rain")), Release.V2_2, Release.V2_3)
    assert (only(report).verdict, only(report).difference) == ("unknown", ("whether it has a JobSet is not known",))
    assert not report.fails
    assert report.notes == ("jobsets cannot be listed, so whether a run has one is not known: none is among the files",)


def test_without_its_runtime_it_is_unknown() -> None:
    item = only(for_trainer(fleet(trainjob("rain"), jobset("rain")), Release.V2_2, Release.V2_3))
    assert (item.verdict, item.difference) == (
        "unknown",
        ('ClusterTrainingRuntime "climate" is not there, or cannot be read',),
    )


def test_a_malformed_trainjob_is_unknown() -> None:
    item = only(for_trainer(fleet(trainjob("rain", trainer=7), jobset("rain")), Release.V2_2, Release.V2_3))
    assert item.verdict == "unknown"
    assert item.difference[0].startswith("spec.trainer: ")


def test_finished_runs_and_runs_elsewhere_are_no_matter() -> None:
    done = trainjob("done", "winds")
    done["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    away = trainjob("away", "winds", managedBy="kueue.x-k8s.io/multikueue")
    report = for_trainer(fleet(MPI_RUNTIME, done, away, jobset("away")), Release.V2_3, Release.V2_4)
    assert (only(report).name, only(report).verdict) == ("away", "safe")


def test_a_long_name_of_a_job_is_told_before_2_4() -> None:
    long = runtime("climate", None, job("ensemble-of-forecasts"))
    read = fleet(long, trainjob("rain"), jobset("rain"), copy_of("rain", long))
    assert (
        'job name "ensemble-of-forecasts" has 21 characters' in for_trainer(read, Release.V2_3, Release.V2_4).notes[0]
    )
    assert for_trainer(read, Release.V2_2, Release.V2_3).notes == ()


# --- a runtime that is edited


def edited(**container: Any) -> Runtime:
    return Runtime("ClusterTrainingRuntime", "", "climate", runtime("climate", None, job("node", **container)))


def test_an_edit_reaches_the_jobsets_up_to_2_2() -> None:
    read = fleet(
        runtime(),
        trainjob("rain", suspend=True),
        jobset("rain"),
        trainjob("own", trainer={"image": "mine:1"}),
        jobset("own"),
        trainjob("new", suspend=True),
        trainjob("wind", "winds"),
        jobset("wind"),
    )
    report = for_runtime(read, Release.V2_2, [edited(image="registry.example/climate:2")])
    # A run with an image of its own does not see the runtime's.
    assert verdicts(report) == {"rain": "lost", "own": "safe", "new": "safe"}
    assert report.items[0].difference == ("node: image of node",)
    assert "give the change to a new runtime instead, and let new runs use that one" in report.steps


def test_a_retry_limit_is_an_edit_too() -> None:
    changed = runtime()
    changed["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 0
    read = fleet(runtime(), trainjob("rain"), jobset("rain"))
    new = Runtime("ClusterTrainingRuntime", "", "climate", changed)
    assert only(for_runtime(read, Release.V2_1, [new])).difference == ("node: backoffLimit",)
    changed = runtime()
    changed["spec"]["template"]["spec"]["failurePolicy"] = {"maxRestarts": 3}
    assert only(for_runtime(read, Release.V2_1, [Runtime(new.kind, "", new.name, changed)])).verdict == "safe"


def test_from_2_3_on_kueue_stops_the_queued_runs_whose_containers_change() -> None:
    read = fleet(
        runtime(),
        *(one for name in ("rain", "snow", "hail", "own") for one in (jobset(name), copy_of(name, runtime()))),
        trainjob("rain", queue="gpu"),
        trainjob("snow", queue="gpu", suspend=True),
        trainjob("hail"),
        trainjob("own", queue="gpu", trainer={"image": "mine:1"}),
    )
    report = for_runtime(read, Release.V2_3, [edited(image="registry.example/climate:2")])
    assert verdicts(report) == {"rain": "stops", "snow": "safe", "hail": "safe", "own": "safe"}
    assert report.items[0].difference == ("node: image of node",)
    assert next(item for item in report.items if item.name == "snow").difference == (
        "its Workload is made anew after the edit: node: image of node",
    )
    assert report.fails
    grace = runtime()
    pod = grace["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = 300
    report = for_runtime(read, Release.V2_3, [Runtime("ClusterTrainingRuntime", "", "climate", grace)])
    assert set(verdicts(report).values()) == {"safe"}


def test_without_a_copy_yet_an_edit_reaches_the_jobset_on_2_3_too() -> None:
    read = fleet(runtime(), trainjob("rain"), jobset("rain"))
    assert only(for_runtime(read, Release.V2_3, [edited(image="x:2")])).verdict == "lost"


def test_a_runtime_that_nobody_uses_is_said() -> None:
    report = for_runtime(fleet(trainjob("rain", "winds"), jobset("rain")), Release.V2_3, [edited()])
    assert report.items == ()
    assert 'no unfinished run uses ClusterTrainingRuntime "climate"' in report.notes


# --- a runtime that is deleted, and Kueue


def test_an_edit_of_a_runtime_that_jobset_holds_already_is_told_so() -> None:
    made = runtime("claims")
    template = {"metadata": {"name": "ckpt"}, "spec": {"accessModes": ["ReadWriteMany"]}}
    made["spec"]["template"]["spec"]["volumeClaimPolicies"] = [{"templates": [template]}]
    objects = (made, trainjob("held", "claims"), jobset("held"))
    for now, more in ((Release.V2_2, ()), (Release.V2_3, (copy_of("held", made),))):
        report = for_runtime(fleet(*objects, *more), now, [Runtime("ClusterTrainingRuntime", "", "claims", made)])
        item = only(report)
        assert (item.verdict, item.rescue) == ("lost", None)
        assert item.difference[0].endswith("JobSet refuses each suspend and resume, before this change too")
        assert len(report.steps) == 1
        assert report.steps[0].startswith("the runs with volumeClaimPolicies")
    assert (
        only(
            for_runtime(fleet(*objects), Release.V2_1, [Runtime("ClusterTrainingRuntime", "", "claims", made)])
        ).verdict
        == "safe"
    )  # pruned there


def test_a_deleted_runtime_loses_its_runs_from_2_3_on() -> None:
    read = fleet(
        runtime(), trainjob("rain", suspend=True), trainjob("snow"), trainjob("gusts", "winds"), jobset("rain")
    )
    report = for_deletion(read, Release.V2_3, "ClusterTrainingRuntime", "", "climate")
    assert verdicts(report) == {"rain": "lost", "snow": "lost"}
    assert [item.difference[0].rpartition(": ")[2] for item in report.items] == [
        "it can neither resume nor be labelled",
        "it can no longer be suspended",
    ]
    assert "create ClusterTrainingRuntime/climate again" in report.steps[1]
    report = for_deletion(read, Release.V2_2, "ClusterTrainingRuntime", "", "climate")
    assert (set(verdicts(report).values()), report.fails) == ({"safe"}, False)


def graceful(name: str, queue: str) -> Object:
    pod = {"template": {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 300}}}}}
    patch = {"template": {"spec": {"replicatedJobs": [{"name": "node", **pod}]}}}
    return trainjob(name, queue=queue, runtimePatches=[{"manager": "example.com/me", "trainingRuntimeSpec": patch}])


def test_a_start_of_kueue() -> None:
    old = runtime("climate", None, job("node", image="registry.example/climate:0"))
    read = fleet(
        runtime(),
        graceful("rain", "gpu"),
        graceful("snow", ""),
        trainjob("hail", queue="gpu"),
        copy_of("hail", old),
        trainjob("fog", queue="gpu"),
        copy_of("fog", runtime()),
        jobset("rain"),
    )
    report = for_kueue(read, Release.V2_3, "0.19")
    assert verdicts(report) == {"rain": "lost", "hail": "stops", "snow": "safe", "fog": "safe"}
    assert report.items[0].difference == ("terminationGracePeriodSeconds of job node in runtimePatches",)
    assert verdicts(for_kueue(read, Release.V2_3, "0.20"))["rain"] == "safe"
    empty = fleet(runtime(), trainjob("rain", queue="gpu", trainer={"env": [{"name": "A", "value": ""}]}))
    assert only(for_kueue(empty, Release.V2_2, "0.17")).difference == ("spec.trainer.env[0].value: ''",)
    assert only(for_kueue(empty, Release.V2_1, "0.17")).verdict == "lost"


# --- the command


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    objects = [MPI_RUNTIME, trainjob("gusts", "winds", suspend=True), jobset("gusts"), trainjob("calm", "winds")]
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    return path


def test_the_command_answers_in_words(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", "--trainer", "2.3", "--from", "2.2", "--state", str(dump)]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert out == (
        "NAMESPACE  NAME   STATE      VERDICT  DIFFERENCE\n"
        "earth      gusts  Suspended  lost     2.3: launcher: volumes; 2.3: node: volumes\n"
        "earth      calm   Running    safe     it has no JobSet yet, so the first one is made after the change\n"
        "2 unfinished runs: 1 lost, 1 safe\n"
        "\n"
        "in this order:\n"
        "  install Trainer 2.3\n"
        "    ckptguard rescue gusts -n earth\n"
    )
    assert main(["preflight", "--trainer", "2.2", "--from", "2.1", "--state", str(dump)]) == 0


def test_the_command_answers_in_json(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", "--trainer", "2.3.0", "--from", "2.2", "--state", str(dump), "-o", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    assert document["results"][0] == {
        "namespace": "earth",
        "name": "gusts",
        "state": "Suspended",
        "verdict": "lost",
        "difference": ["2.3: launcher: volumes", "2.3: node: volumes"],
        "rescue": "ckptguard rescue gusts -n earth",
    }
    assert document["errors"] == []


def test_the_crd_in_the_dump_tells_the_release(dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crd = tmp_path / "crd.yaml"
    crd.write_bytes(golden.crd("2.2.1", "trainjobs"))
    assert main(["preflight", "--trainer", "2.3", "--state", str(dump), "--state", str(crd)]) == 1
    assert main(["preflight", "--trainer", "2.3", "--state", str(dump)]) == 2
    assert "which Trainer runs now is not known: say --from RELEASE" in capsys.readouterr().err


def test_runtimes_come_from_a_file(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    new = runtime("winds", MPI, job("launcher"), job("node", labelled=False, image="registry.example/climate:2"))
    file = tmp_path / "runtime.json"
    file.write_text(json.dumps(new))
    assert main(["preflight", "--runtime", str(file), "--from", "2.2", "--state", str(dump)]) == 1
    assert "node: image of node" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(MPI_RUNTIME).encode())))
    assert main(["preflight", "--runtime", "-", "--from", "2.2", "--state", str(dump)]) == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--runtime", "{}/odd.yaml"], "spec.mlPolicy"),
        (["--runtime", "{}/none.yaml"], "there is no TrainingRuntime or ClusterTrainingRuntime in it"),
        (["--runtime", "{}/absent.yaml"], "absent.yaml"),
        (["--delete-runtime", "wind"], 'there is no runtime "wind"; nearest: winds'),
        (["--delete-runtime", "pod/winds"], '"pod" is no kind of a runtime'),
        (["--trainer", "2.3", "--live"], "--live looks at the cluster"),
    ],
)
def test_what_cannot_be_done(
    dump: Path, tmp_path: Path, flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd.yaml").write_text(json.dumps({**runtime(), "spec": {"mlPolicy": 7}}))
    (tmp_path / "none.yaml").write_text("kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n")
    given = [flag.format(tmp_path) for flag in flags]
    assert main(["preflight", *given, "--from", "2.3", "--state", str(dump)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags", [[], ["--trainer", "3.0"], ["--kueue", "0.5"], ["--trainer", "2.3", "--kueue", "0.19"]]
)
def test_flags_that_make_no_sense_end_with_2(flags: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["preflight", *flags])
    assert ended.value.code == 2


def test_a_runtime_to_delete_is_found_by_its_kind(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("winds", "ClusterTrainingRuntime/winds", "clustertrainingruntimes/winds"):
        assert main(["preflight", "--delete-runtime", name, "--from", "2.3", "--state", str(dump)]) == 1
    assert "Trainer refuses every UPDATE of it" in capsys.readouterr().out


def test_names_of_others_reach_no_terminal_raw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"kind": "List", "items": [trainjob("a\x1b[2J", "winds"), jobset("b")]}))
    assert main(["preflight", "--trainer", "2.3", "--from", "2.2", "--state", str(path)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_copies_that_may_not_be_read_are_said() -> None:
    class Forbidding(Dump):
        def request(self, method: str, path: str, *rest: Any, **more: Any) -> Answer:
            if "configmaps" in path:
                return Answer(403, {"message": "configmaps is forbidden"})
            return super().request(method, path, *rest, **more)

    read = Fleet(Forbidding([MPI_RUNTIME, trainjob("gusts", "winds"), jobset("gusts")]), None)
    report = for_trainer(read, Release.V2_3, Release.V2_4)
    assert only(report).verdict == "lost"
    assert report.notes == (
        "copies of runtimes cannot be read, runtimes are taken as they are now: configmaps is forbidden",
    )
