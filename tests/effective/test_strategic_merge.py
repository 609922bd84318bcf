from __future__ import annotations

from typing import Any

import pytest

from webhook.effective.strategic_merge import merge_list, merge_map, merge_pod


def names(items: Any) -> list[str]:
    return [item["name"] for item in items]


def merged(base: list[str], patch: list[str]) -> list[str]:
    return names(merge_list([{"name": name} for name in base], [{"name": name} for name in patch], "name", merge_map))


def test_new_items_stand_before_those_that_only_the_runtime_has() -> None:
    assert merged(["a", "b"], ["x", "y"]) == ["x", "y", "a", "b"]


def test_a_known_item_keeps_its_place_and_draws_new_ones_with_it() -> None:
    assert merged(["a", "b", "c"], ["b"]) == ["a", "b", "c"]
    assert merged(["a", "b", "c"], ["x", "b", "y"]) == ["x", "a", "b", "y", "c"]
    assert merged(["a", "b", "c"], ["b", "x"]) == ["a", "b", "x", "c"]


def test_an_override_can_reorder() -> None:
    assert merged(["a", "b", "c"], ["c", "a"]) == ["b", "c", "a"]


def test_a_list_that_was_not_there_is_taken_as_it_is() -> None:
    assert merged([], ["b", "a"]) == ["b", "a"]


def test_duplicates_in_the_runtime_move_together() -> None:
    base: list[dict[str, Any]] = [{"name": "a", "v": 1}, {"name": "b"}, {"name": "a", "v": 2}]
    assert merge_list(base, [{"name": "a", "w": 3}], "name", merge_map) == [
        {"name": "a", "v": 1, "w": 3},
        {"name": "a", "v": 2},
        {"name": "b"},
    ]


def test_a_volume_of_a_known_name_keeps_its_source_beside_the_new_one() -> None:
    pod = {"volumes": [{"name": "ckpt", "emptyDir": {"sizeLimit": "1Gi"}}]}
    patch = {"volumes": [{"name": "ckpt", "persistentVolumeClaim": {"claimName": "a"}}]}
    assert merge_pod(pod, patch)["volumes"] == [
        {"name": "ckpt", "emptyDir": {"sizeLimit": "1Gi"}, "persistentVolumeClaim": {"claimName": "a"}}
    ]


def test_the_same_source_merges_field_by_field() -> None:
    pod = {"volumes": [{"name": "c", "persistentVolumeClaim": {"claimName": "a", "readOnly": True}}]}
    patch = {"volumes": [{"name": "c", "persistentVolumeClaim": {"claimName": "b", "readOnly": False}}]}
    # A false readOnly is left out of Trainer's patch, so the runtime's true stands.
    assert merge_pod(pod, patch)["volumes"] == [
        {"name": "c", "persistentVolumeClaim": {"claimName": "b", "readOnly": True}}
    ]


def test_a_pointer_field_can_be_set_to_its_zero_value() -> None:
    pod = {"volumes": [{"name": "c", "csi": {"driver": "d", "readOnly": True}}]}
    patch = {"volumes": [{"name": "c", "csi": {"driver": "d", "readOnly": False}}]}
    assert merge_pod(pod, patch)["volumes"][0]["csi"]["readOnly"] is False


def test_mounts_merge_by_path_as_written() -> None:
    pod = {"containers": [{"name": "node", "volumeMounts": [{"name": "a", "mountPath": "/ckpt", "subPath": "x"}]}]}
    patch = {
        "containers": [
            {
                "name": "node",
                "volumeMounts": [{"name": "b", "mountPath": "/ckpt"}, {"name": "b", "mountPath": "/ckpt/"}],
            }
        ]
    }
    assert merge_pod(pod, patch)["containers"][0]["volumeMounts"] == [
        {"name": "b", "mountPath": "/ckpt", "subPath": "x"},
        {"name": "b", "mountPath": "/ckpt/"},
    ]


def test_an_empty_value_leaves_the_runtimes_standing() -> None:
    pod = {"containers": [{"name": "sync", "env": [{"name": "A", "value": "1"}]}]}
    patch = {"containers": [{"name": "sync", "env": [{"name": "A", "value": ""}]}]}
    assert merge_pod(pod, patch)["containers"][0]["env"] == [{"name": "A", "value": "1"}]


def test_a_volumes_source_has_what_the_crd_fills_in() -> None:
    def of(base: Any, patch: Any) -> Any:
        (volume,) = merge_pod({"volumes": [{"name": "v", **base}]}, {"volumes": [{"name": "v", **patch}]})["volumes"]
        return volume

    rbd = {"monitors": ["m"], "image": "i"}
    assert of({"rbd": {**rbd, "pool": "mine"}}, {"rbd": rbd})["rbd"]["pool"] == "rbd"
    assert of({"rbd": {**rbd, "pool": "mine"}}, {"rbd": {**rbd, "pool": "yours"}})["rbd"]["pool"] == "yours"
    items = [{"key": "k", "path": "p"}]
    assert of({"configMap": {"name": "c", "items": items}}, {"configMap": {"name": "d", "items": []}}) == {
        "name": "v",
        "configMap": {"name": "d", "items": items},
    }
    disk = {"pdName": "d", "partition": 2}
    assert of({"gcePersistentDisk": disk}, {"gcePersistentDisk": {"pdName": "d", "partition": 0}}) == {
        "name": "v",
        "gcePersistentDisk": disk,
    }
    claim = {"persistentVolumeClaim": {"claimName": "a"}}
    assert of(claim, {"persistentVolumeClaim": {"claimName": ""}})["persistentVolumeClaim"] == {"claimName": ""}


@pytest.mark.parametrize(
    ("source", "base", "patch", "merged"),
    [
        ("persistentVolumeClaim", {"claimName": "a"}, {"readOnly": True}, {"claimName": "", "readOnly": True}),
        ("persistentVolumeClaim", {"claimName": "a"}, {"claimName": None}, {"claimName": ""}),
        ("persistentVolumeClaim", {"claimName": "a"}, {}, {"claimName": ""}),
        ("nfs", {"server": "s", "path": "/p"}, {"server": "t"}, {"server": "t", "path": ""}),
        ("azureFile", {"secretName": "s", "shareName": "h"}, {"secretName": ""}, {"secretName": "", "shareName": ""}),
        ("glusterfs", {"endpoints": "e", "path": "p"}, {"path": "q"}, {"endpoints": "", "path": "q"}),
        (
            "projected",
            {"sources": [{"secret": {"name": "s"}}]},
            {"defaultMode": 256},
            {"sources": [], "defaultMode": 256},
        ),
        # These are pointers or omitted where they are empty, so the runtime's stand.
        ("secret", {"secretName": "s"}, {"optional": True}, {"secretName": "s", "optional": True}),
        ("configMap", {"name": "c"}, {"optional": True}, {"name": "c", "optional": True}),
        ("emptyDir", {"medium": "Memory"}, {"sizeLimit": "1Gi"}, {"medium": "Memory", "sizeLimit": "1Gi"}),
        ("image", {"reference": "r"}, {"pullPolicy": "Always"}, {"reference": "r", "pullPolicy": "Always"}),
    ],
)
def test_a_source_without_its_required_field_takes_the_runtimes_away(
    source: str, base: dict[str, Any], patch: dict[str, Any], merged: dict[str, Any]
) -> None:
    pod = {"volumes": [{"name": "v", source: base}]}
    assert merge_pod(pod, {"volumes": [{"name": "v", source: patch}]})["volumes"] == [{"name": "v", source: merged}]
    # A source that the runtime does not have is as the override says it.
    assert merge_pod({}, {"volumes": [{"name": "v", source: patch}]})["volumes"] == [{"name": "v", source: patch}]


def test_so_does_a_variables_source_a_mount_a_profile_and_an_affinity() -> None:
    side = {
        "name": "side",
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "volumeMounts": [{"name": "v", "mountPath": "/x"}],
        "securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "p"}},
    }
    patch = {
        "name": "side",
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "t"}}}],
        "volumeMounts": [{"mountPath": "/x", "readOnly": True}],
        "securityContext": {"seccompProfile": {"localhostProfile": "q"}},
    }
    assert merge_pod({"containers": [side]}, {"containers": [patch]})["containers"] == [
        {
            "name": "side",
            "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "t", "key": ""}}}],
            "volumeMounts": [{"name": "", "mountPath": "/x", "readOnly": True}],
            "securityContext": {"seccompProfile": {"type": "", "localhostProfile": "q"}},
        }
    ]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms: dict[str, Any] = {"nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": []}]}}}
    assert merge_pod({"affinity": terms}, {"affinity": {"nodeAffinity": {required: {}}}})["affinity"] == {
        "nodeAffinity": {required: {"nodeSelectorTerms": []}}
    }


def test_a_value_over_a_source_keeps_both() -> None:
    source = {"secretKeyRef": {"name": "s", "key": "k"}}
    pod = {"containers": [{"name": "sync", "env": [{"name": "A", "valueFrom": source}]}]}
    patch = {"containers": [{"name": "sync", "env": [{"name": "A", "value": "1"}]}]}
    assert merge_pod(pod, patch)["containers"][0]["env"] == [{"name": "A", "valueFrom": source, "value": "1"}]


def test_tolerations_are_replaced_and_selectors_merge() -> None:
    pod = {"tolerations": [{"key": "a"}], "nodeSelector": {"a": "1", "b": "1"}}
    patch = {"tolerations": [{"key": "b"}], "nodeSelector": {"b": "2", "c": "2"}}
    assert merge_pod(pod, patch) == {
        "tolerations": [{"key": "b"}],
        "nodeSelector": {"a": "1", "b": "2", "c": "2"},
    }


def test_directives_and_nulls_are_pruned_before_the_merge() -> None:
    pod = {"volumes": [{"name": "c", "emptyDir": {"medium": "Memory"}}]}
    for directive in ({"$patch": "delete"}, {"$retainKeys": ["name"]}, {"emptyDir": None}):
        assert merge_pod(pod, {"volumes": [{"name": "c", **directive}]}) == pod


@pytest.mark.parametrize(
    ("base", "patch", "merged"),
    [
        ({"a": "1", "b": "1"}, {"$patch": "replace", "b": "2"}, {"b": "2"}),
        ({"a": "1"}, {"$patch": "delete", "b": "2"}, None),
        ({"a": "1"}, {"b": "2"}, {"a": "1", "b": "2"}),
        (None, {"$patch": "replace", "b": "2"}, None),
        (None, {"b": "2"}, {"b": "2"}),
    ],
)
def test_a_directive_counts_where_keys_may_be_anything(base: Any, patch: Any, merged: Any) -> None:
    # As the four releases did it; `$patch` is the one field that their CRDs do not prune there.
    def driver(attributes: Any) -> dict[str, Any]:
        return {"driver": "d"} | ({} if attributes is None else {"volumeAttributes": attributes})

    pod = {"volumes": [{"name": "v", "csi": driver(base)}], "nodeSelector": base}
    out = merge_pod(pod, {"volumes": [{"name": "v", "csi": driver(patch)}], "nodeSelector": patch})
    assert out["volumes"][0]["csi"].get("volumeAttributes") == merged
    assert out["nodeSelector"] == (merged or {})
    if base is None:
        new = merge_pod({}, {"volumes": [{"name": "v", "csi": driver(patch)}]})
        assert new["volumes"][0]["csi"].get("volumeAttributes") == merged


def test_neither_side_changes_and_what_did_not_change_is_shared() -> None:
    pod = {"volumes": [{"name": "a", "emptyDir": {}}], "containers": [{"name": "node", "env": [{"name": "A"}]}]}
    before = repr(pod)
    out = merge_pod(pod, {"volumes": [{"name": "b", "emptyDir": {}}]})
    assert repr(pod) == before
    assert out["containers"] is pod["containers"]
