"""Wrong types are named by field; everything that the API server takes is let through."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import golden
from webhook.cluster.files import load_text
from webhook.model.request import MalformedObject
from webhook.model.shape import check_limits, check_shape

TRAINJOB: dict[str, Any] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "a", "namespace": "b", "labels": {"x": "y"}, "annotations": None},
    "spec": {
        "runtimeRef": {"name": "torch"},
        "suspend": False,
        "trainer": {
            "numNodes": 2,
            "args": ["x"],
            "env": [{"name": "CKPT_DIR", "value": "/x"}, {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "y"}}}],
            "resourcesPerNode": {"limits": {"cpu": 2, "memory": "1Gi"}},
            "numProcPerNode": "auto",
        },
        "runtimePatches": [
            {
                "manager": "example.com/me",
                "trainingRuntimeSpec": {
                    "template": {
                        "spec": {
                            "replicatedJobs": [
                                {
                                    "name": "node",
                                    "template": {
                                        "spec": {
                                            "template": {
                                                "spec": {
                                                    "volumes": [
                                                        {"name": "v", "persistentVolumeClaim": {"claimName": "c"}},
                                                        {"name": "only"},
                                                    ],
                                                    "containers": [
                                                        {
                                                            "name": "node",
                                                            "volumeMounts": [{"name": "v", "mountPath": "/x"}],
                                                        }
                                                    ],
                                                }
                                            }
                                        }
                                    },
                                }
                            ]
                        }
                    }
                },
            }
        ],
    },
}
POD = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec"


def changed(field: list[str | int], value: object) -> dict[str, Any]:
    made: Any = copy.deepcopy(TRAINJOB)
    here = made
    for step in field[:-1]:
        here = here[step]
    here[field[-1]] = value
    return made  # type: ignore[no-any-return]


IN_POD: list[str | int] = [
    "spec", "runtimePatches", 0, "trainingRuntimeSpec", "template", "spec", "replicatedJobs", 0, "template", "spec",
    "template", "spec",
]  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "value", "field", "words"),
    [
        (["spec"], "x", "spec", 'the string "x" stands where a mapping belongs'),
        (["spec"], [], "spec", "a list stands where a mapping belongs"),
        (["metadata"], 5, "metadata", "the number 5"),
        (["metadata", "name"], 5, "metadata.name", 'quote it, "5"'),
        (["metadata", "labels"], {"a.b/c": True}, "metadata.labels[a.b/c]", 'quote it, "true"'),
        (["metadata", "ownerReferences"], {}, "metadata.ownerReferences", "a list belongs"),
        (["metadata", "ownerReferences"], [{"uid": 5}], "metadata.ownerReferences[0].uid", 'quote it, "5"'),
        (["spec", "suspend"], "false", "spec.suspend", "true or false belongs"),
        (["spec", "trainer", "numNodes"], -(2**31) - 1, "spec.trainer.numNodes", "-2147483649 is less than"),
        (["spec", "trainer", "numNodes"], 2**31, "spec.trainer.numNodes", "2147483648 is more than"),
        (["spec", "trainer", "numNodes"], 10**30, "spec.trainer.numNodes", "is more than"),
        (["spec", "trainer", "numNodes"], 1.5, "spec.trainer.numNodes", "1.5 is no whole number"),
        (["spec", "trainer", "numNodes"], True, "spec.trainer.numNodes", "true stands where an integer belongs"),
        (["spec", "trainer", "numNodes"], "2", "spec.trainer.numNodes", "an integer belongs"),
        (["spec", "trainer", "args"], "x", "spec.trainer.args", "a list belongs"),
        (["spec", "trainer", "args"], ["x", 5], "spec.trainer.args[1]", "a string belongs"),
        (["spec", "trainer", "env"], {"A": "b"}, "spec.trainer.env", "a mapping stands where a list belongs"),
        (["spec", "trainer", "env"], [None], "spec.trainer.env[0]", "null stands where a mapping belongs"),
        (["spec", "trainer", "env"], [{"name": "A", "value": 1}], "spec.trainer.env[0].value", 'quote it, "1"'),
        (["spec", "trainer", "env"], [{"value": "1"}], "spec.trainer.env[0].name", "absent"),
        (
            ["spec", "trainer", "resourcesPerNode", "limits"],
            {"cpu": []},
            "spec.trainer.resourcesPerNode.limits[cpu]",
            "a list",
        ),
        (["spec", "runtimePatches"], {}, "spec.runtimePatches", "a list belongs"),
        (
            ["spec", "podSpecOverrides"],
            [{"targetJobs": "node"}],
            "spec.podSpecOverrides[0].targetJobs",
            "a list belongs",
        ),
        (["spec", "podTemplateOverrides"], ["x"], "spec.podTemplateOverrides[0]", "a mapping belongs"),
        (
            [*IN_POD, "volumes", 0, "persistentVolumeClaim"],
            "c",
            f"{POD}.volumes[0].persistentVolumeClaim",
            "a mapping belongs",
        ),
        ([*IN_POD, "volumes", 0, "emptyDir"], [], f"{POD}.volumes[0].emptyDir", "a mapping belongs"),
        ([*IN_POD, "volumes", 0, "downwardAPI"], 1, f"{POD}.volumes[0].downwardAPI", "a mapping belongs"),
        ([*IN_POD, "volumes", 0, "name"], None, f"{POD}.volumes[0].name", "null stands where a string belongs"),
        ([*IN_POD, "hostPID"], "yes", f"{POD}.hostPID", "true or false belongs"),
        ([*IN_POD, "hostAliases"], ["x"], f"{POD}.hostAliases[0]", "a mapping belongs"),
        (
            [*IN_POD, "containers", 0, "livenessProbe"],
            {"tcpSocket": {"port": [1]}},
            f"{POD}.containers[0].livenessProbe.tcpSocket.port",
            "a list stands where",
        ),
        (
            [*IN_POD, "containers", 0, "readinessProbe"],
            {"grpc": {"port": "50051"}},
            f"{POD}.containers[0].readinessProbe.grpc.port",
            "an integer belongs",
        ),
        (
            [*IN_POD, "containers", 0, "lifecycle"],
            {"preStop": {"sleep": {"seconds": "5"}}},
            f"{POD}.containers[0].lifecycle.preStop.sleep.seconds",
            "an integer belongs",
        ),
        (
            [*IN_POD, "containers", 0, "restartPolicyRules"],
            [{"exitCodes": {"values": ["1"]}}],
            f"{POD}.containers[0].restartPolicyRules[0].exitCodes.values[0]",
            "an integer belongs",
        ),
        (
            [*IN_POD, "containers", 0, "env"],
            [{"name": "A", "valueFrom": {"fileKeyRef": {"optional": "yes"}}}],
            f"{POD}.containers[0].env[0].valueFrom.fileKeyRef.optional",
            "true or false belongs",
        ),
        (
            [*IN_POD, "affinity"],
            {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": "a"}]}},
            f"{POD}.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector",
            "a mapping belongs",
        ),
        ([*IN_POD, "containers"], [["x"]], f"{POD}.containers[0]", "a mapping belongs"),
        ([*IN_POD, "securityContext"], {"fsGroup": "1"}, f"{POD}.securityContext.fsGroup", "an integer belongs"),
    ],
)
def test_a_wrong_type_is_named_by_its_field(steps: list[str | int], value: object, field: str, words: str) -> None:
    with pytest.raises(MalformedObject) as caught:
        check_shape("TrainJob", changed(steps, value))
    assert caught.value.field == field
    assert words in caught.value.problem


@pytest.mark.parametrize(
    ("steps", "value"),
    [
        (["spec"], None),
        (["spec", "trainer"], None),
        (["spec", "trainer", "env"], None),
        (["spec", "trainer", "numNodes"], 0),
        (["spec", "trainer", "numNodes"], -1),  # the Job API refuses it, and unbuildable-pod says so
        (["spec", "trainer", "numNodes"], None),
        (["spec", "trainer", "unknownField"], {"x": [1]}),
        (["metadata", "labels"], {"a": None}),
        (["spec", "trainer", "numProcPerNode"], 4),
        ([*IN_POD, "volumes", 0, "emptyDir"], {"sizeLimit": 5}),
        (["status"], {"conditions": []}),
    ],
)
def test_absent_null_and_unknown_are_right(steps: list[str | int], value: object) -> None:
    check_shape("TrainJob", changed(steps, value))


def test_runtimes_are_checked_to_their_depth() -> None:
    def runtime(pod: object, **job: object) -> dict[str, Any]:
        spec = {"template": {"spec": pod}, **job}
        replicated = [{"name": "node", "template": {"spec": spec}}]
        return {"spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": replicated}}}}

    check_shape("TrainingRuntime", runtime({"containers": [{"name": "node"}]}, backoffLimit=0))
    for bad, field in (
        (runtime("x"), "spec.template.spec.replicatedJobs[0].template.spec.template.spec"),
        (runtime({}, backoffLimit="0"), "spec.template.spec.replicatedJobs[0].template.spec.backoffLimit"),
        (
            runtime({}, podFailurePolicy={"rules": [{"onExitCodes": {"values": ["1"]}}]}),
            "spec.template.spec.replicatedJobs[0].template.spec.podFailurePolicy.rules[0].onExitCodes.values[0]",
        ),
        ({"spec": {"mlPolicy": {"numNodes": "3"}}}, "spec.mlPolicy.numNodes"),
        (
            {"spec": {"template": {"spec": {"failurePolicy": {"maxRestarts": "3"}}}}},
            "spec.template.spec.failurePolicy.maxRestarts",
        ),
        (
            {"spec": {"template": {"spec": {"volumeClaimPolicies": [{"templates": {}}]}}}},
            "spec.template.spec.volumeClaimPolicies[0].templates",
        ),
    ):
        for kind in ("TrainingRuntime", "ClusterTrainingRuntime"):
            with pytest.raises(MalformedObject) as caught:
                check_shape(kind, bad)
            assert caught.value.field == field


def test_names_have_limits() -> None:
    def limits(kind: str, **metadata: str) -> list[tuple[str, str]]:
        return list(check_limits(kind, {"metadata": metadata, "spec": {"runtimeRef": {"name": "r" * 300}}}))

    assert [field for field, _ in limits("TrainJob", name="a" * 64)] == ["metadata.name", "spec.runtimeRef.name"]
    assert "64 characters, at most 63" in limits("TrainJob", name="a" * 64)[0][1]
    assert limits("PersistentVolumeClaim", name="a" * 253) == []
    assert limits("PersistentVolumeClaim", name="a" * 254)[0][0] == "metadata.name"
    assert limits("PersistentVolumeClaim", name="a", namespace="b" * 64)[0][0] == "metadata.namespace"
    assert limits("PersistentVolumeClaim", generateName="a" * 90) == []
    assert limits("PersistentVolumeClaim")[0] == ("metadata.name", "absent: an object needs a name")
    assert "helm template" in limits("PersistentVolumeClaim", name="{{ .Release.Name }}-c")[0][1]
    # A field of another kind may hold anything: it is dropped.
    assert list(check_limits("TrainJob", {"metadata": {"name": "a"}, "spec": {"mlPolicy": {"numNodes": "x"}}})) == []
    assert (
        list(check_limits("TrainingRuntime", {"metadata": {"name": "a"}, "spec": {"trainer": {"numNodes": []}}})) == []
    )


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
NAMES = st.sampled_from(
    ["spec", "metadata", "name", "labels", "trainer", "env", "template", "replicatedJobs", "volumes", "containers"]
) | st.text(max_size=4)
OBJECTS = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5), max_leaves=30
)
KINDS = ["TrainJob", "TrainingRuntime", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "Namespace", "X"]


@given(st.sampled_from(KINDS), st.dictionaries(NAMES, OBJECTS, max_size=5))
def test_any_object_is_right_or_malformed(kind: str, obj: dict[str, Any]) -> None:
    with contextlib.suppress(MalformedObject):
        check_shape(kind, obj)


@given(st.data(), OBJECTS)
def test_one_wrong_value_anywhere_is_right_or_malformed(data: st.DataObject, value: object) -> None:
    made: Any = copy.deepcopy(TRAINJOB)
    here = made
    while True:
        key = data.draw(st.sampled_from(sorted(here) if isinstance(here, dict) else range(len(here))))
        if not here[key] or not isinstance(here[key], dict | list) or data.draw(st.booleans()):
            break
        here = here[key]
    here[key] = value
    with contextlib.suppress(MalformedObject):
        check_shape("TrainJob", made)
        list(check_limits("TrainJob", made))


@pytest.mark.parametrize("release", golden.RELEASES)
def test_nothing_that_real_controllers_took_is_malformed(release: str) -> None:
    count = 0
    for pair in golden.pairs(release):
        loaded = load_text(pair.input, pair.name)
        assert loaded.errors == [], pair
        count += len(loaded.documents)
    assert count > 300
