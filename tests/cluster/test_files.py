"""Files, folders and standard input: what is read, what is refused, and where it says so."""

from __future__ import annotations

import io
import json
import os
import tempfile
from pathlib import Path

import pytest

from webhook.cluster import files, yaml_text
from webhook.cluster.documents import Document, Loaded
from webhook.cluster.files import give_way, load_files, load_text

CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {name}
spec:
  accessModes: [ReadWriteMany]
"""
JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: {name}
spec:
  runtimeRef: {{name: torch}}
  trainer:
    numNodes: {nodes}
"""


def load(text: str | bytes) -> Loaded:
    return load_text(text.encode() if isinstance(text, str) else text, "f.yaml")


def labels(loaded: Loaded) -> list[str]:
    return [document.label for document in loaded.documents]


def only(loaded: Loaded) -> Document:
    (document,) = loaded.documents
    return document


def test_documents_know_their_place() -> None:
    loaded = load(f"# first\n{CLAIM.format(name='a')}---\n{JOB.format(name='b', nodes=2)}")
    assert not loaded.errors
    assert not loaded.notices
    claim, job = loaded.documents
    assert (claim.label, claim.namespace, claim.line) == ("PersistentVolumeClaim/a", "default", 2)
    assert (job.kind, job.name, job.line, job.line_of("spec.trainer.numNodes")) == ("TrainJob", "b", 9, 16)


def test_windows_line_ends_change_nothing() -> None:
    text = f"{CLAIM.format(name='a')}---\n{JOB.format(name='b', nodes=-1)}".replace("\n", "\r\n")
    loaded = load(text)
    assert labels(loaded) == ["PersistentVolumeClaim/a"]
    assert [(error.line, error.field) for error in loaded.errors] == [(15, "spec.trainer.numNodes")]


def test_lists_are_taken_apart_and_errors_name_the_item() -> None:
    text = (
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: PersistentVolumeClaim\n  metadata: {name: a}\n"
        "- apiVersion: v1\n  kind: PersistentVolumeClaim\n  metadata: {name: b}\n"
        "  spec:\n    accessModes: ReadWriteOnce\n- 5\n"
    )
    loaded = load(text)
    assert [(document.label, document.line) for document in loaded.documents] == [("PersistentVolumeClaim/a", 4)]
    assert [(error.line, error.field) for error in loaded.errors] == [
        (11, "items[1].spec.accessModes"),
        (12, "items[2]"),
    ]


def test_typed_lists_leave_the_kind_to_the_list() -> None:
    text = '{"apiVersion": "v1", "kind": "PersistentVolumeClaimList", "items": [{"metadata": {"name": "a"}}]}'
    document = only(load(text))
    assert document.object["kind"] == "PersistentVolumeClaim"
    assert load('{"kind": "List", "items": {}}').errors[0].field == "items"
    assert load('{"kind": "List", "items": null}').errors == []


def test_output_of_kubectl_get_is_read() -> None:
    made = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": "a",
            "namespace": "team",
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:x": {}}}}],
            "creationTimestamp": "2025-01-01T00:00:00Z",
        },
        "spec": {"runtimeRef": {"name": "r"}},
        "status": {
            "conditions": [{"type": "Complete", "status": "True"}],
            "jobsStatus": [{"name": "node", "ready": 0}],
        },
    }
    document = only(load(json.dumps({"apiVersion": "v1", "kind": "List", "items": [made]}, indent=2)))
    assert document.key == ("TrainJob", "team", "a")
    assert document.line_of("status.conditions[0].type") > 20


@pytest.mark.parametrize(
    ("text", "line", "field", "words"),
    [
        ("just words", 1, None, "plain text, not a Kubernetes object"),
        ("- a\n- b\n", 1, None, "a list, not a Kubernetes object"),
        ("5", 1, None, "a single value"),
        ("kind: TrainJob\nmetadata: {name: a}\n", 1, "apiVersion", 'TrainJob has apiVersion "trainer'),
        (JOB.format(name="a", nodes="many"), 8, "spec.trainer.numNodes", "an integer belongs"),
        (JOB.format(name="a", nodes=99999999999), 8, "spec.trainer.numNodes", "is more than"),
        (JOB.format(name="a", nodes=-2), 8, "spec.trainer.numNodes", "is less than"),
        (JOB.format(name="a" * 64, nodes=1), 4, "metadata.name", "at most 63"),
        (JOB.format(name="'{{ .Release.Name }}'", nodes=1), 4, "metadata.name", "helm template"),
        (JOB.format(name="{{ .Release.Name }}", nodes=1), 4, "metadata.name", "helm template"),
        (JOB.format(name="7", nodes=1), 4, "metadata.name", 'quote it, "7"'),
        (CLAIM.format(name="a") + "  accessModes: [x]\n", 7, "spec.accessModes", "stands twice"),
        (CLAIM.format(name="a") * 2, 7, "apiVersion", 'a line "---" is missing between two objects'),
        (b"\x7fELF\0\0", 1, None, "binary"),
        (b"\xff\xd8\xff\xe0", 1, None, "not UTF-8"),
    ],
)
def test_bad_input_is_an_error_with_its_place(text: str | bytes, line: int, field: str | None, words: str) -> None:
    loaded = load(text)
    assert loaded.documents == []
    (error,) = loaded.errors
    assert (error.file, error.line, error.field) == ("f.yaml", line, field)
    assert words in error.message


def test_a_fault_leaves_the_other_documents_alone() -> None:
    loaded = load("a: [\n---\n" + CLAIM.format(name="a") + "---\nx: {{ y }}\n---\n" + CLAIM.format(name="b"))
    assert labels(loaded) == ["PersistentVolumeClaim/a", "PersistentVolumeClaim/b"]
    assert [error.line for error in loaded.errors] == [1, 10]


def test_what_is_damaged_is_known_by_kind() -> None:
    assert load(CLAIM.format(name="a") + "---\n" + CLAIM.format(name="b") + "\t x").damaged == {"PersistentVolumeClaim"}
    assert load("a: [").damaged == set()


def test_other_kinds_are_left_aside_with_a_notice_beside_ours() -> None:
    other = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: 5\n"
    loaded = load(other + "---\n" + CLAIM.format(name="a") + "---\nno: kind\n")
    assert labels(loaded) == ["PersistentVolumeClaim/a"]
    assert loaded.errors == []
    assert [notice.message for notice in loaded.notices] == ["not read here: Deployment, an object without kind"]
    assert load(other).notices[0].message == "nothing in it is read here: Deployment"
    assert load("").notices[0].message == "the file is empty"
    assert load("# only a comment\n---\n").notices[0].message == "the file is empty"
    newer = load("apiVersion: trainer.kubeflow.org/v2\nkind: TrainJob\nmetadata: {name: a}\n")
    assert "is not read" in newer.notices[0].message
    assert newer.errors == []


def test_a_misspelt_kind_of_ours_is_named_with_the_nearest() -> None:
    misspelt = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: {kind}\nmetadata: {{name: a}}\n---\n" + CLAIM.format(
        name="a"
    )
    for kind, meant in (("trainjob", "TrainJob"), ("ClusterTrainRuntime", "ClusterTrainingRuntime")):
        loaded = load(misspelt.format(kind=kind))
        words = f'"{kind}" is no kind of trainer.kubeflow.org/v1alpha1 and is not read, the nearest is "{meant}"'
        assert [notice.message for notice in loaded.notices] == [words]
        assert (labels(loaded), loaded.errors) == (["PersistentVolumeClaim/a"], [])


def test_what_stands_beside_ours_is_named_once_for_all_files(tmp_path: Path) -> None:
    files = []
    for name in ("a", "b", "c"):
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text(CLAIM.format(name=name) + "---\napiVersion: v1\nkind: Service\nmetadata: {name: x}\n")
    loaded = load_files([str(file) for file in files])
    words = "not read here: Service, nor in 2 more of the files"
    assert [(notice.file, notice.message) for notice in loaded.notices] == [(str(files[0]), words)]
    assert [notice.message for notice in load_files([str(tmp_path)]).notices] == [words]


def test_what_is_not_read_of_a_folder_is_named_once(tmp_path: Path) -> None:
    others = {"b.yaml": "", "c.yaml": "a: b: c\n", "d.yaml": "\0", "e.json": "{}", "f.yaml": "kind: trainjob"}
    for name, text in {"a.yaml": CLAIM.format(name="a"), **others}.items():
        (tmp_path / name).write_text(text)
    loaded = load_files([str(tmp_path)])
    words = "nothing is read here of b.yaml, c.yaml, d.yaml and 2 more of its files"
    assert [(notice.file, notice.message) for notice in loaded.notices] == [(str(tmp_path), words)]
    assert (labels(loaded), loaded.errors) == (["PersistentVolumeClaim/a"], [])
    for name in ("d.yaml", "e.json", "f.yaml"):
        (tmp_path / name).unlink()
    assert load_files([str(tmp_path)]).notices[0].message == "nothing is read here of b.yaml, c.yaml"


def test_an_object_of_our_group_needs_its_kind() -> None:
    headless = "apiVersion: trainer.kubeflow.org/v1alpha1\n{}metadata: {{name: a}}\n"
    for kind, line, said in (("", 1, "absent"), ("kind: [TrainJob]\n", 2, "no string")):
        (error,) = load(headless.format(kind)).errors
        assert (error.line, error.field) == (line, "kind")
        assert error.message.startswith(f"{said}: trainer.kubeflow.org/v1alpha1 has TrainJob")
    (error,) = load("apiVersion: v1\nkind: List\nitems:\n- kind: TrainJob\n  metadata: {name: a}\n").errors
    assert (error.line, error.field) == (4, "items[0].apiVersion")


def test_an_object_may_stand_once() -> None:
    other = CLAIM.format(name="a").replace("metadata:", "metadata:\n  labels: {a: b}", 1)
    for first, second in (
        (CLAIM.format(name="a"), other),
        (JOB.format(name="a", nodes=1), JOB.format(name="a", nodes=1)),
    ):
        loaded = load(first + "---\n" + second)
        assert len(loaded.documents) == 1
        assert loaded.errors[0].line == first.count("\n") + 2
        assert "stands twice: also in f.yaml:1" in loaded.errors[0].message
    generated = JOB.replace("name: {name}", "generateName: run-").format(nodes=1)
    assert labels(load(generated + "---\n" + generated)) == ["TrainJob/run-", "TrainJob/run-"]


def test_what_several_files_share_may_be_repeated() -> None:
    loaded = load(CLAIM.format(name="a") + "---\n" + CLAIM.format(name="a"))
    assert (labels(loaded), loaded.errors) == (["PersistentVolumeClaim/a"], [])


def test_state_gives_way_to_what_is_reviewed() -> None:
    first = load(CLAIM.format(name="a") + "---\n" + JOB.format(name="j", nodes=1))
    state = load(CLAIM.format(name="a") + "---\n" + JOB.format(name="j", nodes=2) + "---\n" + CLAIM.format(name="b"))
    give_way(first, state)
    assert labels(state) == ["PersistentVolumeClaim/b"]


def test_folders_are_read_to_their_depth(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    for name, text in {
        "b.yaml": CLAIM.format(name="b"),
        "a.YML": CLAIM.format(name="a"),
        "deep/er/c.json": '{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "c"}}',
        "deep/notes.txt": CLAIM.format(name="no"),
        ".hidden/x.yaml": CLAIM.format(name="no"),
        ".x.yaml": CLAIM.format(name="no"),
        # a chart's template of other kinds, and a list that is no object, are no concern of ours
        "template.yaml": "kind: Deployment\n{{- if .Values.x }}\n",
        "playbook.yaml": "- hosts: all\n",
        "broken.yaml": "kind: TrainJob\n{{- if .Values.x }}\n",
    }.items():
        (tmp_path / name).write_text(text)
    loaded = load_files([str(tmp_path)])
    assert labels(loaded) == ["PersistentVolumeClaim/a", "PersistentVolumeClaim/b", "Namespace/c"]
    assert loaded.errors == []
    assert loaded.skipped == 1, "broken.yaml, a template"
    assert "TrainJob" in loaded.damaged
    # a second mention of a file changes nothing
    assert len(load_files([str(tmp_path), str(tmp_path / "b.yaml")]).documents) == 3
    (tmp_path / "empty").mkdir()
    assert "no object" in load_files([str(tmp_path / "empty")]).notices[0].message


def test_what_a_closed_folder_holds_is_not_known() -> None:
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        top.chmod(0o755)
        (top / "a.yaml").write_text(CLAIM.format(name="a"))
        (top / "closed").mkdir(mode=0)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)  # whom a closed folder keeps out
        try:
            loaded = load_files([folder])
        finally:
            if root:
                os.seteuid(0)
    assert labels(loaded) == ["PersistentVolumeClaim/a"]
    assert [str(error) for error in loaded.errors] == [f"{folder}/closed: permission denied"]
    assert "PersistentVolumeClaim" in loaded.damaged


def test_pipes_in_a_folder_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "a.yaml").write_text(CLAIM.format(name="a"))
    (tmp_path / "gone.yaml").symlink_to("nowhere")
    loaded = load_files([str(tmp_path)])
    assert labels(loaded) == ["PersistentVolumeClaim/a"]
    assert [error.message for error in loaded.errors] == ["no such file or folder"]


def test_what_kustomize_has_to_build_first_is_said(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "base" / "kustomization.yaml").write_text("resources: [claim.yaml]\n")
    (tmp_path / "base" / "claim.yaml").write_text(CLAIM.format(name="a"))
    (tmp_path / "other" / "kustomization.yaml").write_text("resources: [deployment.yaml]\n")
    (notice,) = load_files([str(tmp_path)]).notices
    assert notice.file == str(tmp_path / "base" / "kustomization.yaml")
    assert f"kubectl kustomize {tmp_path / 'base'}" in notice.message


def test_what_cannot_be_opened_is_an_error_and_the_rest_is_read(tmp_path: Path) -> None:
    good = tmp_path / "a.yaml"
    good.write_text(CLAIM.format(name="a"))
    loaded = load_files([str(tmp_path / "none.yaml"), str(good), "a\0b"])
    assert labels(loaded) == ["PersistentVolumeClaim/a"]
    assert loaded.errors[0].message == "no such file or folder"
    assert len(loaded.errors) == 2


def test_standard_input_is_a_dash_and_read_once() -> None:
    loaded = load_files(["-", "-"], stdin=io.BytesIO(CLAIM.format(name="a").encode()))
    assert only(loaded).file == "-"


def test_a_file_may_not_be_huge(tmp_path: Path) -> None:
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as stream:
        stream.truncate(files.MAX_FILE + 1)
    loaded = load_files([str(huge)])
    assert "larger than 32 MiB" in loaded.errors[0].message
    assert loaded.damaged == set(files.STATE_KINDS)


@pytest.mark.parametrize(
    ("args", "line"),
    [
        pytest.param("  - |\n    import os\n    os.getpid()\n", 10, id="literal"),
        pytest.param("  - |-  # a comment\n    import os\n    os.getpid()\n", 10, id="literal, chomped"),
        pytest.param("  - &a |+\n    import os\n    os.getpid()\n", 10, id="literal with an anchor"),
        pytest.param("  - >\n    import os\n\n    os.getpid()\n", 8, id="folded lines are no lines of the file"),
        pytest.param('  - "import os\\nos.getpid()"\n', 8, id="quoted"),
    ],
)
def test_a_line_of_a_program_is_the_line_of_the_file(args: str, line: int) -> None:
    text = (
        "# one\n---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: a}\n"
        f"spec: {{runtimeRef: {{name: r}}}}\nargs:\n{args}"
    )
    (found,) = load_text(text.encode(), "f.yaml").documents
    assert found.line_of("args[0] line 2") == line
    assert found.line_of("args[0]") == 8


def test_places_of_a_list_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    events = yaml_text._events

    def counted(data: bytes) -> object:
        parsed.append(data)
        return events(data)

    monkeypatch.setattr(yaml_text, "_events", counted)
    items = "".join(f"- {{apiVersion: v1, kind: Namespace, metadata: {{name: n{i}}}}}\n" for i in range(20))
    loaded = load("apiVersion: v1\nkind: List\nitems:\n" + items)
    assert [document.line for document in loaded.documents] == list(range(4, 24))
    assert len(parsed) == 2


def test_a_job_of_the_training_operator_is_sent_to_convert() -> None:
    for kind, version in (("PyTorchJob", "v1"), ("MPIJob", "v2beta1")):
        text = f"apiVersion: kubeflow.org/{version}\nkind: {kind}\nmetadata: {{name: old}}\n"
        words = [notice.message for notice in load(text).notices]
        assert f"a {kind} becomes a TrainJob by: ckptguard convert f.yaml" in words
        beside = [notice.message for notice in load(JOB.format(name="a", nodes=1) + "---\n" + text).notices]
        assert f"a {kind} becomes a TrainJob by: ckptguard convert f.yaml" in beside
    other = load("apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: old}\n")
    assert not any("convert" in notice.message for notice in other.notices)


def test_many_jobs_of_the_training_operator_are_one_notice(tmp_path: Path) -> None:
    for name in ("a b", "c", "d"):
        (tmp_path / f"{name}.yaml").write_text("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: old}\n")
    told = [one.message for one in load_files([str(tmp_path)]).notices if "convert" in one.message]
    assert len(told) == 1
    assert f"ckptguard convert '{tmp_path}/a b.yaml', so it does of 2 more files" in told[0]
