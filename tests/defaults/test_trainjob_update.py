"""What an UPDATE of a TrainJob gets back."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest

from tests.defaults.world import (
    TRAINJOB_NAME,
    applied,
    claim,
    container,
    default,
    env,
    fill,
    injected,
    job,
    mounting,
    pods,
    request,
    runtime,
    trainjob,
    volume,
)
from webhook.cluster.file_view import FileView
from webhook.model.injected import read_added
from webhook.model.names import INJECTED, MANAGER
from webhook.model.policy import Policy
from webhook.model.release import OVERRIDE_FIELDS, Release
from webhook.model.verdict import Defaulted

Object = dict[str, Any]
ASKED = {"checkpoint-guard.io/claim": "mine"}
KUEUE = {"manager": "kueue.x-k8s.io/manager", "time": "2026-01-01T00:00:01Z", "trainingRuntimeSpec": {}}
USER = {"manager": "example.com/me", "time": "2026-01-01T00:00:00Z"}
WITH_NODE: Object = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"a": "b"}}}
WITH_NODE_2_0: Object = {"targetJobs": [{"name": "node"}], "nodeSelector": {"a": "b"}}
OLDER = (Release.V2_0, Release.V2_1)
NEWER = (Release.V2_2, Release.V2_3, Release.V2_4)


def stored(run: Object, release: Release, *, kueue: bool = False) -> Object:
    """The TrainJob as it is stored: with our defaults, Trainer's time, and Kueue's entry."""
    done = fill(run, runtime(), claim("mine"), volume(), release=release)
    assert done.patch
    obj: Object = copy.deepcopy(dict(done.object))
    if release in NEWER:
        for entry in obj["spec"]["runtimePatches"]:
            entry.setdefault("time", "2026-01-01T00:00:00Z")
        if kueue:
            obj["spec"]["runtimePatches"].append(KUEUE)
    obj["spec"].setdefault("suspend", False)
    return obj


def applied_again(run: Object, old: Object, **spec: Any) -> Object:
    """What client-side apply of the user's file sends: his lists whole, annotations of others kept."""
    new = copy.deepcopy(old)
    new["spec"] = copy.deepcopy({**run["spec"], "suspend": old["spec"]["suspend"], **spec})
    if "trainer" not in run["spec"] and "trainer" in old["spec"]:
        new["spec"]["trainer"] = copy.deepcopy(old["spec"]["trainer"])
    return new


def replaced(run: Object, old: Object) -> Object:
    """What ``kubectl replace`` of the user's file sends: nothing but what is in it."""
    new = copy.deepcopy(run)
    new["spec"]["suspend"] = old["spec"]["suspend"]
    return new


def back(new: Object, old: Object, release: Release, policy: Policy | None = None) -> Defaulted:
    """The answer to the UPDATE, which reads nothing but the request."""
    done = default(request(new, old), Nobody(), policy or Policy(), release)
    assert done.broken == ()
    assert applied(new, done.patch) == done.object
    again = default(request(dict(done.object), old), Nobody(), policy or Policy(), release)
    assert again.patch == ()
    return done


class Nobody(FileView):
    """A cluster that must not be asked."""

    def __init__(self) -> None:
        super().__init__([])

    def _asked(self, *_: Any) -> Any:
        raise AssertionError("the cluster was asked")

    claim = volume = namespace = runtime = snapshot = storage_class = _asked  # type: ignore[assignment]


def users(release: Release) -> list[Object]:
    """TrainJobs as users write them: bare, with variables, with an entry that ours is merged into or stands beside."""
    mine = {"name": "EPOCHS", "value": "3"}
    declared = {"env": [{"name": "CKPT_DIR", "value": "/mnt/ckpt/sft"}, mine]}
    jobs = [
        trainjob(annotations=ASKED),
        trainjob(annotations=ASKED, trainer={"env": [mine], "numNodes": 1}),
        trainjob(annotations=ASKED, trainer=declared),
        trainjob(annotations=ASKED, trainer=None),
    ]
    entry = {Release.V2_0: WITH_NODE_2_0, Release.V2_1: WITH_NODE}.get(release, USER)
    jobs.append(trainjob(annotations=ASKED, trainer=declared, **{release.override_field: [entry]}))
    return jobs


CASES = [pytest.param(release, number, id=f"{release.value}-{number}") for release in Release for number in range(5)]


@pytest.mark.parametrize(("release", "number"), CASES)
def test_every_way_to_send_the_same_file_again_leaves_the_object_as_it_was(release: Release, number: int) -> None:
    run = users(release)[number]
    old = stored(run, release, kueue=True)
    for new in (applied_again(run, old), replaced(run, old)):
        done = back(new, old, release)
        assert done.object["spec"] == old["spec"]
        assert injected(done.object) == injected(old)
    suspended = applied_again(run, old, suspend=True)
    assert back(suspended, old, release).object["spec"] == {**old["spec"], "suspend": True}
    assert back(copy.deepcopy(old), old, release).patch == ()


@pytest.mark.parametrize("suspend", [False, True])
@pytest.mark.parametrize(("release", "number"), CASES)
def test_the_same_where_the_release_is_a_guess(release: Release, number: int, suspend: bool) -> None:
    """Where no CRD can be read the newest is assumed: what was put back is not looked for in another field then."""
    run = users(release)[number]
    old = stored(run, release)
    for new in (applied_again(run, old), replaced(run, old)):
        new["spec"]["suspend"] = suspend
        done = back(new, old, Release.V2_3)
        assert done.object["spec"] == {**old["spec"], "suspend": suspend}
        assert done.findings == ()


@pytest.mark.parametrize("release", list(Release))
def test_an_object_that_is_being_deleted(release: Release) -> None:
    run = trainjob(annotations=ASKED)
    old = stored(run, release)
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    new = applied_again(run, old)
    assert back(new, old, release).object["spec"] == old["spec"]
    stripped = copy.deepcopy(new)
    assert back(new, stripped, release).patch == (), "nothing is recovered"


@pytest.mark.parametrize("release", list(Release))
def test_a_trainjob_that_we_added_nothing_to(release: Release) -> None:
    run = trainjob(annotations=ASKED, suspend=True)
    new = copy.deepcopy(run)
    new["metadata"]["labels"] = {"team": "nlp"}
    assert back(new, run, release).patch == ()


@pytest.mark.parametrize("release", OLDER)
def test_the_users_own_changes_stay(release: Release) -> None:
    mine = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    run = trainjob(annotations=ASKED, trainer={"env": mine[:1]})
    old = stored(run, release)
    new = applied_again(run, old, trainer={"env": mine, "numNodes": 2})
    done = back(new, old, release)
    assert [variable["name"] for variable in env(done.object)] == ["A", "TRAINJOB_NAME", "CKPT_DIR", "B"]
    assert done.object["spec"]["trainer"]["numNodes"] == 2


@pytest.mark.parametrize("release", OLDER)
def test_a_directory_that_the_user_now_declares(release: Release) -> None:
    run = trainjob(annotations=ASKED)
    old = stored(run, release)
    theirs = {"name": "CKPT_DIR", "value": "/elsewhere"}
    done = back(applied_again(run, old, trainer={"env": [theirs]}), old, release)
    assert env(done.object) == [TRAINJOB_NAME, theirs]


@pytest.mark.parametrize("release", OLDER)
def test_an_entry_that_the_user_takes_away_or_changes(release: Release) -> None:
    entry = WITH_NODE_2_0 if release is Release.V2_0 else WITH_NODE
    overrides: Object = {release.override_field: [entry]}
    run = trainjob(annotations=ASKED, **overrides)
    old = stored(run, release)
    taken = back(applied_again(run, old, **{release.override_field: []}), old, release)
    assert pods(taken.object, release)["node"].keys() - {"targetJobs"} == {"volumes", "containers"}
    changed = copy.deepcopy(entry)
    (changed if release is Release.V2_0 else changed["spec"])["nodeSelector"] = {"c": "d"}
    done = back(applied_again(run, old, **{release.override_field: [changed]}), old, release)
    assert pods(done.object, release)["node"]["nodeSelector"] == {"c": "d"}
    assert pods(done.object, release)["node"]["volumes"] == pods(old, release)["node"]["volumes"]


@pytest.mark.parametrize("release", OLDER)
def test_something_else_at_the_same_path(release: Release) -> None:
    run = trainjob(annotations=ASKED)
    old = stored(run, release)
    pod = mounting("other", "/mnt/ckpt/")
    del pod["containers"][0]["image"]
    targets = {"targetJobs": [{"name": "node"}]}
    entry = {**targets, **pod} if release is Release.V2_0 else {**targets, "spec": pod}
    done = back(applied_again(run, old, suspend=True, **{release.override_field: [entry]}), old, release)
    assert done.object["spec"][release.override_field] == [entry]


@pytest.mark.parametrize("release", NEWER)
def test_our_entry_keeps_its_place_and_time(release: Release) -> None:
    run = trainjob(annotations=ASKED, runtimePatches=[USER])
    old = stored(run, release, kueue=True)
    done = back(applied_again(run, old), old, release)
    assert done.patch[0]["path"] == "/spec/runtimePatches/-"
    assert done.object["spec"]["runtimePatches"] == old["spec"]["runtimePatches"]
    without = applied_again(run, old)
    without["spec"]["runtimePatches"] = [KUEUE]
    managers = [entry["manager"] for entry in back(without, old, release).object["spec"]["runtimePatches"]]
    assert managers == [KUEUE["manager"], MANAGER]


@pytest.mark.parametrize("release", NEWER)
def test_our_entry_emptied_is_restored_and_ours_with_more_is_left(release: Release) -> None:
    old = stored(trainjob(annotations=ASKED), release)
    emptied = copy.deepcopy(old)
    emptied["spec"]["runtimePatches"][0]["trainingRuntimeSpec"] = {}
    assert back(emptied, old, release).object["spec"] == old["spec"]
    more = copy.deepcopy(old)
    more["spec"]["runtimePatches"][0]["time"] = "2027-01-01T00:00:00Z"
    assert back(more, old, release).patch == ()


def test_our_entry_without_a_record() -> None:
    """The record may have been lost while nobody answered; the manager's name says enough."""
    run = trainjob(annotations=ASKED)
    old = stored(run, Release.V2_3)
    del old["metadata"]["annotations"][INJECTED]
    new = replaced(run, old)
    new["spec"]["trainer"] = copy.deepcopy(old["spec"]["trainer"])
    assert back(new, old, Release.V2_3).object["spec"] == old["spec"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"env": [{}]}', '{"env": 3}', '{"mounts": [{"name": "x"}]}', "\ud800", '{"env": [null]}'],
)
@pytest.mark.parametrize("release", list(Release))
def test_a_record_that_says_nothing(text: str, release: Release) -> None:
    old = trainjob(annotations={INJECTED: text}, trainer={"env": [{"name": "A", "value": "1"}]}, suspend=True)
    new = trainjob(annotations={INJECTED: text}, suspend=True)
    assert back(new, old, release).patch == ()


def test_kueues_entry_on_its_own() -> None:
    old = trainjob(runtimePatches=[USER, KUEUE])
    new = trainjob(runtimePatches=[USER])
    done = back(new, old, Release.V2_3)
    assert done.object["spec"] == old["spec"]
    assert done.applied == ("restore_managers",)
    assert back(new, old, Release.V2_3, Policy(restore_managers=())).patch == ()


@pytest.mark.parametrize("release", [Release.V2_3, Release.V2_4])
def test_kueues_entry_whatever_it_holds(release: Release) -> None:
    """0.17.0 and 0.19.2 write other labels and annotations into it."""
    labels = {f"kueue.x-k8s.io/{name}": "gpu" for name in ("cluster-queue-name", "local-queue-name", "podset")}
    metadata = {"labels": labels, "annotations": {"kueue.x-k8s.io/workload": "trainjob-run-1a2b3"}}
    job = {"name": "node", "template": {"spec": {"template": {"metadata": metadata}}}}
    newer = {**KUEUE, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}
    old = trainjob(runtimePatches=[USER, newer])
    assert back(trainjob(runtimePatches=[USER]), old, release).object["spec"] == old["spec"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_entries_come_back_in_their_old_order(order: tuple[int, ...]) -> None:
    run = trainjob(annotations=ASKED, runtimePatches=[USER])
    old = stored(run, Release.V2_3, kueue=True)
    old["spec"]["runtimePatches"] = [old["spec"]["runtimePatches"][at] for at in order]
    done = back(replaced(run, old), old, Release.V2_3)
    assert done.object["spec"] == old["spec"]
    assert back(dict(done.object), old, Release.V2_3).patch == ()


@pytest.mark.parametrize("release", OLDER)
@pytest.mark.parametrize("entries", [1, 2, 3])
@pytest.mark.parametrize("empty", [False, True])
def test_ours_returns_to_the_very_entry_it_was_merged_into(release: Release, entries: int, empty: bool) -> None:
    """2.1 merges into the last entry for the same jobs; an entry of the user may say nothing but the container."""
    if release is Release.V2_0 and entries > 1:
        return  # Trainer refuses a second entry for one job
    pod: Object = {"containers": [{"name": "node"}]} if empty else {"tolerations": [{"key": "a"}]}
    entry: Object = {"targetJobs": [{"name": "node"}], **(pod if release is Release.V2_0 else {"spec": pod})}
    overrides: Object = {release.override_field: [copy.deepcopy(entry) for _ in range(entries)]}
    run = trainjob(annotations=ASKED, **overrides)
    old = stored(run, release)
    assert len(old["spec"][release.override_field]) == entries
    for new in (applied_again(run, old), replaced(run, old)):
        assert back(new, old, release).object["spec"] == old["spec"]


class TestRecordOfWhatIsNotThere:
    """A TrainJob that was written out of a cluster, changed by hand, and created anew."""

    def created(self, release: Release, keep: str = "") -> Defaulted:
        old = stored(trainjob(annotations=ASKED), release)
        spec: Object = {} if keep != "env" else {"trainer": old["spec"]["trainer"]}
        if keep == "volumes":
            spec = {field: old["spec"][field] for field in OVERRIDE_FIELDS if field in old["spec"]}
        new = trainjob(annotations={INJECTED: old["metadata"]["annotations"][INJECTED]}, suspend=True, **spec)
        own = container(
            env=[{"name": "CKPT_DIR", "value": "/own"}], volumeMounts=[{"name": "own", "mountPath": "/own"}]
        )
        pod = {"containers": [own], "volumes": [{"name": "own", "persistentVolumeClaim": {"claimName": "mine"}}]}
        return fill(new, runtime(job(pod=pod)), claim("mine"), volume(), release=release)

    @pytest.mark.parametrize("release", list(Release))
    def test_it_is_forgotten(self, release: Release) -> None:
        done = self.created(release)
        assert [edit["path"] for edit in done.patch] == ["/metadata/annotations/checkpoint-guard.io~1injected"]
        assert done.object["metadata"]["annotations"][INJECTED] == "{}"
        new = copy.deepcopy(dict(done.object))
        new["metadata"]["labels"] = {"a": "b"}
        assert back(new, dict(done.object), release).patch == ()

    @pytest.mark.parametrize("release", list(Release))
    def test_what_is_there_is_kept(self, release: Release) -> None:
        variables = read_added(self.created(release, "env").object)
        assert variables is not None
        assert [one["name"] for one in variables.env] == ["TRAINJOB_NAME", "CKPT_DIR"]
        assert variables.volumes == ()
        volumes = read_added(self.created(release, "volumes").object)
        assert volumes is not None
        assert (volumes.env, len(volumes.volumes), len(volumes.mounts), list(volumes.targets)) == ((), 1, 1, ["node"])

    @pytest.mark.parametrize("release", list(Release))
    def test_what_is_all_there_stays_as_it_is(self, release: Release) -> None:
        old = stored(trainjob(annotations=ASKED), release)
        again = fill(old, runtime(), claim("mine"), volume(), release=release)
        assert again.patch == ()

    @pytest.mark.parametrize("release", list(Release))
    def test_what_is_filled_in_again_joins_it(self, release: Release) -> None:
        old = stored(trainjob(annotations=ASKED), release)
        new = copy.deepcopy(old)
        new["spec"]["trainer"] = {}
        done = fill(new, runtime(), claim("mine"), volume(), release=release)
        assert done.applied == ("checkpoint_variables",)
        assert done.object["metadata"] == old["metadata"]


class TestRecovery:
    """What was lost while nobody answered."""

    def stripped(self, release: Release, *, suspend: bool, trainer: Any = {}) -> tuple[Object, Object]:  # noqa: B006
        """The object as it was with ours, and as it is stored now: the record is all that is left of it."""
        run = trainjob(annotations=ASKED, trainer=trainer)
        before = stored(run, release)
        lost = applied_again(run, before, suspend=suspend)
        if trainer is None:
            lost["spec"].pop("trainer", None)
        lost["status"] = {"jobsStatus": [{"name": "node", "active": 0 if suspend else 1}]}
        return before, lost

    @pytest.mark.parametrize("release", OLDER)
    def test_variables_where_the_field_is_mutable(self, release: Release) -> None:
        run = trainjob()
        before = dict(fill(run, runtime(job(pod=mounting())), claim("mine"), volume(), release=release).object)
        lost = copy.deepcopy(before)
        lost["spec"]["trainer"] = {}
        done = back(copy.deepcopy(lost), lost, release)
        assert done.object["spec"] == before["spec"]
        assert done.applied == ("recover",)

    @pytest.mark.parametrize("release", OLDER)
    def test_no_variables_without_the_volume_that_they_name(self, release: Release) -> None:
        """The directory would be new to the run and on no volume, and so be denied."""
        _, lost = self.stripped(release, suspend=False)
        done = back(copy.deepcopy(lost), lost, release)
        assert done.patch == ()
        (finding,) = done.findings
        assert (finding.rule, finding.severity.value) == ("wedging-update", "warn")
        assert '{"spec":{"suspend":true}}' in finding.fix

    @pytest.mark.parametrize("release", OLDER)
    def test_all_where_the_run_is_suspended(self, release: Release) -> None:
        before, lost = self.stripped(release, suspend=True)
        done = back(copy.deepcopy(lost), lost, release)
        assert done.object["spec"] == {**before["spec"], "suspend": True}

    @pytest.mark.parametrize("release", NEWER)
    def test_the_entry_alone_from_2_2(self, release: Release) -> None:
        before, lost = self.stripped(release, suspend=True)
        done = back(copy.deepcopy(lost), lost, release)
        entry = {key: value for key, value in before["spec"]["runtimePatches"][0].items() if key != "time"}
        assert done.object["spec"]["runtimePatches"] == [entry]
        assert done.object["spec"]["trainer"] == {}

    @pytest.mark.parametrize("release", NEWER)
    def test_the_entry_at_the_moment_of_unsuspending(self, release: Release) -> None:
        _, lost = self.stripped(release, suspend=True)
        new = copy.deepcopy(lost)
        new["spec"]["suspend"] = False
        assert pods(back(new, lost, release).object)["node"]["volumes"]

    @pytest.mark.parametrize("release", OLDER)
    def test_not_at_the_moment_of_unsuspending_before_2_2(self, release: Release) -> None:
        _, lost = self.stripped(release, suspend=True)
        new = copy.deepcopy(lost)
        new["spec"]["suspend"] = False
        assert back(new, lost, release).patch == ()

    @pytest.mark.parametrize("release", NEWER)
    def test_a_whole_trainer_that_we_made(self, release: Release) -> None:
        before, lost = self.stripped(release, suspend=True, trainer=None)
        assert "trainer" not in lost["spec"]
        assert back(copy.deepcopy(lost), lost, release).object["spec"]["trainer"] == before["spec"]["trainer"]

    @pytest.mark.parametrize("release", list(Release))
    def test_not_while_pods_are_active(self, release: Release) -> None:
        _, lost = self.stripped(release, suspend=True)
        lost["status"]["jobsStatus"][0]["active"] = 1
        assert release.override_field not in back(copy.deepcopy(lost), lost, release).object["spec"]

    @pytest.mark.parametrize("release", list(Release))
    def test_not_over_what_the_user_wrote_instead(self, release: Release) -> None:
        before, lost = self.stripped(release, suspend=True)
        pod = mounting("other", "/mnt/ckpt")
        del pod["containers"][0]["image"]
        targets = {"targetJobs": [{"name": "node"}]}
        entry: Object = {**targets, "spec": pod}
        if release is Release.V2_0:
            entry = {**targets, **pod}
        elif release in NEWER:
            patched = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
            entry = {**USER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [patched]}}}}
        lost["spec"][release.override_field] = [entry]
        lost["spec"]["trainer"] = {"env": [{"name": "CKPT_DIR", "value": "/x"}]}
        done = back(copy.deepcopy(lost), lost, release)
        assert done.object["spec"][release.override_field] == [entry]
        assert env(done.object)[-1] == {"name": "CKPT_DIR", "value": "/x"}
        assert before

    def test_a_variable_comes_before_those_that_use_it(self) -> None:
        before, _ = self.stripped(Release.V2_1, suspend=False)
        lost = copy.deepcopy(before)
        lost["spec"]["trainer"]["env"] = lost["spec"]["trainer"]["env"][1:]
        done = back(copy.deepcopy(lost), lost, Release.V2_1)
        assert [variable["name"] for variable in env(done.object)] == ["TRAINJOB_NAME", "CKPT_DIR"]


def test_the_record_is_the_same_text_for_the_same_additions() -> None:
    texts = {stored(trainjob(annotations=ASKED), Release.V2_3)["metadata"]["annotations"][INJECTED] for _ in range(3)}
    (text,) = texts
    assert text == json.dumps(json.loads(text), separators=(",", ":"), sort_keys=True)


def test_an_update_of_a_runtime_less_trainjob_adds_nothing() -> None:
    old = trainjob()
    new = copy.deepcopy(old)
    new["metadata"]["annotations"] = ASKED
    assert back(new, old, Release.V2_3).patch == ()
