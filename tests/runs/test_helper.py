"""The helper pod: what Pod Security `restricted` asks for, whose user it is, and when there can be none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runs.fake_cluster import FakeCluster
from tests.runs.folders import hf
from webhook.runs.api import Answer, exec_words, handshake_words
from webhook.runs.helper import manifest
from webhook.runs.reader import look
from webhook.runs.run import CannotDo, find_directory, find_run


def looked(fake: FakeCluster, **options: Any) -> Any:
    session = fake.session([], **options)
    run = find_run(session.kube, "team", "run")
    directory = find_directory(session.kube, run, session.policy)
    return look(session.kube, run, directory, seconds=20.0)


def idle(tmp_path: Path) -> FakeCluster:
    hf(tmp_path / "run", 5)
    fake = FakeCluster(tmp_path)
    fake.pods = {}
    return fake


def is_restricted(pod: dict[str, Any]) -> bool:
    """The controls of the Pod Security Standard `restricted`."""
    spec = pod["spec"]
    context = spec["securityContext"]
    allowed = {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
    good = context.get("runAsNonRoot") is True and context.get("runAsUser") != 0
    good = good and context["seccompProfile"]["type"] in ("RuntimeDefault", "Localhost")
    good = good and not any(spec.get(field) for field in ("hostNetwork", "hostPID", "hostIPC"))
    good = good and all(set(volume) - {"name"} <= allowed for volume in spec["volumes"])
    for container in spec["containers"]:
        own = container["securityContext"]
        good = good and own["allowPrivilegeEscalation"] is False and not own.get("privileged")
        good = good and own["capabilities"] == {"drop": ["ALL"]}
    return bool(good)


@pytest.mark.parametrize(
    ("pod", "own", "user", "group"),
    [
        ({"runAsUser": 1000, "fsGroup": 2000, "runAsNonRoot": True}, {}, 1000, 2000),
        ({"runAsUser": 1000}, {"runAsUser": 7}, 7, None),
        ({"runAsNonRoot": True}, {}, 65532, None),
        ({}, {}, 0, None),
        ({"runAsUser": 0}, {}, 0, None),
    ],
)
def test_it_is_the_runs_own_user(tmp_path: Path, pod: Any, own: Any, user: int, group: int | None) -> None:
    fake = idle(tmp_path)
    spec = fake.jobsets["run"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    spec["securityContext"] = pod
    spec["containers"][0]["securityContext"] = own
    seen = looked(fake)
    assert seen.by == "helper pod"
    assert [saved.step for saved in seen.found.saved] == [5]
    (made,) = fake.helpers
    context = made["spec"]["securityContext"]
    assert (context["runAsUser"], context.get("fsGroup")) == (user, group)
    assert is_restricted(made) is (user != 0)
    (volume,) = made["spec"]["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "mine", "readOnly": True}
    assert fake.pods == {}, "it is gone afterwards"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-run"


def test_where_root_is_refused_it_is_somebody_else(tmp_path: Path) -> None:
    fake = idle(tmp_path)

    def refuse(method: str, path: str, body: Any) -> Answer | None:
        if method == "POST" and not is_restricted(body):
            return Answer(403, {"message": 'violates PodSecurity "restricted:latest": runAsNonRoot != true'})
        return None

    fake.refuse = refuse
    assert looked(fake).by == "helper pod"
    assert is_restricted(fake.helpers[0])


def test_it_passes_restricted_for_every_run_that_does(tmp_path: Path) -> None:
    fake = idle(tmp_path)
    session = fake.session([])
    run = find_run(session.kube, "team", "run")
    directory = find_directory(session.kube, run, session.policy)
    for write in (True, False):
        assert is_restricted(manifest(run, directory, "i", ["x"], write=write, node="n", root=False))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(403, {"message": 'pods is forbidden: User "x"'}), "no right to create pods"),
        (Answer(403, {"message": "exceeded quota: q"}), "does not fit into the namespace's quota"),
        (Answer(403, {"message": 'violates PodSecurity "restricted:latest"'}), "is refused by Pod Security"),
        (Answer(422, {"message": "no"}), "the helper pod is refused: no"),
    ],
)
def test_it_is_refused(tmp_path: Path, answer: Answer, words: str) -> None:
    fake = idle(tmp_path)
    fake.refuse = lambda method, path, body: answer if method == "POST" else None
    with pytest.raises(CannotDo, match=words):
        looked(fake)


def test_exec_goes_first_and_says_why_it_did_not(tmp_path: Path) -> None:
    hf(tmp_path / "run", 5)
    fake = FakeCluster(tmp_path)
    assert looked(fake).by == "exec in pod run-node-0-0-0"
    fake.exec_refused = "Handshake status 403 Forbidden"
    seen = looked(fake)
    assert seen.by == "helper pod"
    assert seen.notes == (
        "pod run-node-0-0-0 cannot be asked: "
        "no right to exec, which takes get and create (kubectl auth can-i get pods --subresource=exec -n team; "
        "kubectl auth can-i create pods --subresource=exec -n team)",
    )


def _claim(fake: FakeCluster, mode: str, **metadata: Any) -> None:
    fake.claims["mine"] = {
        "metadata": {"name": "mine", **metadata},
        "status": {"phase": "Bound", "accessModes": [mode]},
    }


def test_a_claim_that_one_node_has(tmp_path: Path) -> None:
    """The helper goes to the node where a pod of another run has it; nobody else can where one pod alone may."""
    hf(tmp_path / "run", 5)
    fake = FakeCluster(tmp_path)
    for pod in fake.pods.values():
        pod["metadata"]["labels"] = {"other": "run"}
    _claim(fake, "ReadWriteOnce")
    looked(fake)
    (term,) = fake.helpers[0]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchFields"][0]["values"] == ["node1"]
    _claim(fake, "ReadWriteOncePod")
    with pytest.raises(CannotDo, match='pod "run-node-0-0-0" on node "node1" has it'):
        looked(fake)


def test_claims_that_no_pod_can_mount(tmp_path: Path) -> None:
    fake = idle(tmp_path)
    _claim(fake, "ReadWriteMany", deletionTimestamp="now")
    with pytest.raises(CannotDo, match="is being deleted"):
        looked(fake)
    fake.claims.clear()
    with pytest.raises(CannotDo, match='claim "mine" does not exist'):
        looked(fake)


def test_a_directory_on_no_claim(tmp_path: Path) -> None:
    fake = idle(tmp_path)
    spec = fake.jobsets["run"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "v", "emptyDir": {}}]
    with pytest.raises(CannotDo, match=r"lies on volume v \(emptyDir\), which no other pod can look into"):
        looked(fake)


def test_no_directory_is_declared(tmp_path: Path) -> None:
    fake = idle(tmp_path)
    spec = fake.jobsets["run"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    spec["containers"][0]["env"] = []
    with pytest.raises(CannotDo, match="declares no checkpoint directory"):
        looked(fake)


def on(fake: FakeCluster, source: dict[str, Any]) -> FakeCluster:
    spec = fake.jobsets["run"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "v", **source}]
    return fake


@pytest.mark.parametrize(
    "source", [{"nfs": {"server": "s", "path": "/p"}}, {"csi": {"driver": "gcsfuse.csi.storage.gke.io"}}]
)
def test_a_volume_that_every_node_can_mount_is_mounted_without_a_claim(tmp_path: Path, source: dict[str, Any]) -> None:
    fake = on(idle(tmp_path), source)
    seen = looked(fake)
    assert [one.step for one in seen.found.saved] == [5]
    assert fake.helpers[0]["spec"]["volumes"] == [{"name": "claim", **source}]


@pytest.mark.parametrize(
    ("source", "left"),
    [
        ({"emptyDir": {}}, "nothing of it is left"),
        ({"csi": {"driver": "x.example.com"}}, "nothing of it is left"),
        ({"hostPath": {"path": "/x"}}, "look while a pod of the run runs"),
        ({"iscsi": {"targetPortal": "x", "iqn": "iqn.2020-01.a:b", "lun": 0}}, "look while a pod of the run runs"),
    ],
)
def test_what_no_other_pod_can_mount_and_what_is_left_of_it(tmp_path: Path, source: dict[str, Any], left: str) -> None:
    fake = on(idle(tmp_path), source)
    with pytest.raises(CannotDo, match=f"which no other pod can look into: {left}"):
        looked(fake)
    assert fake.helpers == []


def test_no_volume_is_called_none(tmp_path: Path) -> None:
    fake = idle(tmp_path)
    spec = fake.jobsets["run"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    spec["containers"][0]["volumeMounts"] = []
    with pytest.raises(CannotDo, match="lies on no volume, which no other pod can look into"):
        looked(fake)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("at", range(12))
def test_none_is_left_whenever_it_is_interrupted(tmp_path: Path, at: int, late: bool) -> None:
    """Ctrl-C in the n-th request: before it is carried out, or (``late``) after that and before the answer is read."""
    fake = idle(tmp_path)
    session = fake.session([])
    run = find_run(session.kube, "team", "run")
    directory = find_directory(session.kube, run, session.policy)
    began = len(fake.calls)
    carry_out = fake.request

    def request(*arguments: Any) -> Answer:
        now = len(fake.calls) - began == at
        if now and not late:
            fake.calls.append(("interrupted", ""))
            if arguments[0] == "POST":  # it is on its way, and is carried out when nobody waits for it any more
                fake.after(0.5, lambda: carry_out(*arguments))
            raise KeyboardInterrupt
        answer = carry_out(*arguments)
        if now:
            raise KeyboardInterrupt
        return answer

    fake.request = request  # type: ignore[assignment, method-assign]
    try:
        look(session.kube, run, directory, seconds=20.0)
    except KeyboardInterrupt:
        session.kube.clean()  # what every command does at its end
    assert fake.pods == {}


def test_a_refused_exec_is_said_without_its_headers() -> None:
    body = b'{"kind":"Status","message":"pod \\"run-0\\" does not have a host assigned","code":400}'
    text = f"Handshake status 400 Bad Request -+-+- {{'date': 'now'}} -+-+- {body!r}"
    assert handshake_words(text) == 'Handshake status 400 Bad Request: pod "run-0" does not have a host assigned'
    assert handshake_words("Handshake status 403 Forbidden -+-+- {} -+-+- None") == "Handshake status 403 Forbidden"
    assert handshake_words("Handshake status 403 Forbidden") == "Handshake status 403 Forbidden"


@pytest.mark.parametrize(
    ("code", "message", "said"),
    [
        ("500 Internal Server Error", "error dialing backend: dial tcp 10.210.0.2:10250: i/o timeout",
         "its node does not answer the API server (error dialing backend: dial tcp 10.210.0.2:10250: i/o timeout)"),
        ("502 Bad Gateway", "", "its node does not answer the API server"),
        ("403 Forbidden", 'pods "run-0" is forbidden: User "u" cannot get resource "pods/exec"',
         'forbidden: pods "run-0" is forbidden: User "u" cannot get resource "pods/exec"'),
        ("404 Not Found", 'pods "run-0" not found', 'pods "run-0" not found'),
        ("401 Unauthorized", "", "the API server refuses it (HTTP 401)"),
    ],
)  # fmt: skip
def test_nobody_is_shown_a_websocket(code: str, message: str, said: str) -> None:
    body = json.dumps({"kind": "Status", "message": message}).encode() if message else b"no"
    assert exec_words(f"Handshake status {code} -+-+- {{'date': 'now'}} -+-+- {body!r}") == said
