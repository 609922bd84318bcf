"""What the real JobSet and Job API of Kubernetes 1.36 refused, and what they took; all of it was tried on them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.effective.objects import job, override, pods, runtime, trainjob
from webhook.effective.buildable import find_refusals
from webhook.model.release import Release

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
EXEC = {"exec": {"command": ["true"]}}
FREE = {"containers": [{"name": "node", "image": "i:1"}]}


def _paste(job: str, pod: Any) -> str:
    return job


def faults(rt: Any, run: Any = None, release: Release = Release.V2_3) -> list[str]:
    cold = [refusal.problem for refusal in find_refusals(pods(rt, run or trainjob(), release), _paste)]
    # Twice, since what is right in the runtime is kept.
    for _ in range(2):
        found = find_refusals(pods(rt, run or trainjob(), release), _paste, rt.prepared)
        assert [refusal.problem for refusal in found] == cold
    return cold


def in_container(**fields: Any) -> Any:
    return runtime(job(pod={"containers": [{"name": "node", "image": "i:1", **fields}]}))


def in_pod(**fields: Any) -> Any:
    return runtime(job(pod={**FREE, **fields}))


def in_volume(source: Any) -> Any:
    return in_pod(volumes=[{"name": "v", **source}])


def in_job(**fields: Any) -> Any:
    return runtime(job(pod={**FREE, "restartPolicy": "Never"}, **fields))


def ephemeral(metadata: Any = None, **spec: Any) -> Any:
    template = {"spec": {**CLAIM, **spec}, **({"metadata": metadata} if metadata else {})}
    return {"ephemeral": {"volumeClaimTemplate": template}}


def projected(*sources: Any) -> Any:
    return {"projected": {"sources": list(sources)}}


def spread(**fields: Any) -> Any:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return in_pod(topologySpreadConstraints=[{**constraint, **fields}])


def near(**fields: Any) -> Any:
    term = {"topologyKey": "zone", **fields}
    return in_pod(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})


def on_node(kind: str, **expression: Any) -> Any:
    terms = {"nodeSelectorTerms": [{kind: [expression]}]}
    return in_pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})


def variable(**source: Any) -> Any:
    return in_container(env=[{"name": "V", "valueFrom": source}])


REFUSED = {
    "label key of a field": variable(fieldRef={"fieldPath": "metadata.labels['a/b/c']"}),
    "annotation key of a field": variable(fieldRef={"fieldPath": "metadata.annotations['a b']"}),
    "divisor of CPUs": variable(resourceFieldRef={"resource": "limits.cpu", "divisor": "2"}),
    "divisor of memory": variable(resourceFieldRef={"resource": "limits.memory", "divisor": "1m"}),
    "name of a secret": variable(secretKeyRef={"name": "S_1", "key": "k"}),
    "file of no emptyDir": variable(fileKeyRef={"volumeName": "v", "path": "f", "key": "K"}),
    "envFrom without a name": in_container(envFrom=[{"secretRef": {"name": ""}}]),
    "two ports without a name": in_container(ports=[{"containerPort": 80}, {"containerPort": 81}]),
    "two ports of one name": in_container(
        ports=[{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}]
    ),
    "one port by two protocols": in_container(
        ports=[{"containerPort": 53, "name": "a"}, {"containerPort": 53, "name": "b", "protocol": "UDP"}]
    ),
    "port of a probe": in_container(livenessProbe={"httpGet": {"port": 0}}),
    "port name of a probe": in_container(livenessProbe={"tcpSocket": {"port": "HTTP--"}}),
    "scheme of a probe": in_container(readinessProbe={"httpGet": {"port": 80, "scheme": "http"}}),
    "header of a probe": in_container(
        readinessProbe={"httpGet": {"port": 80, "httpHeaders": [{"name": "a b", "value": "1"}]}}
    ),
    "sleep as a probe": in_container(livenessProbe={"sleep": {"seconds": 1}}),
    "grace of a readiness probe": in_container(readinessProbe={**EXEC, "terminationGracePeriodSeconds": 5}),
    "grace 0 of a probe": in_container(livenessProbe={**EXEC, "terminationGracePeriodSeconds": 0}),
    "sleep beyond the grace": in_container(lifecycle={"preStop": {"sleep": {"seconds": 31}}}),
    "restartPolicy empty": in_container(restartPolicy=""),
    "action of a restart rule": in_container(
        restartPolicy="Never", restartPolicyRules=[{"action": "No", "exitCodes": {"operator": "In", "values": [1]}}]
    ),
    "resource of a resize policy": in_container(
        resizePolicy=[{"resourceName": "disk", "restartPolicy": "NotRequired"}]
    ),
    "procMount Unmasked": in_container(securityContext={"procMount": "Unmasked"}),
    "seccomp Localhost without a file": in_container(securityContext={"seccompProfile": {"type": "Localhost"}}),
    "AppArmor of no type": in_container(securityContext={"appArmorProfile": {"type": "Own"}}),
    "host process": in_container(securityContext={"windowsOptions": {"hostProcess": True}}),
    "huge pages alone": in_container(resources={"limits": {"hugepages-2Mi": "4Mi"}}),
    "half a huge page": in_container(resources={"limits": {"hugepages-2Mi": "3Mi", "memory": "1Gi"}}),
    "quota's name of a resource": in_container(resources={"limits": {"requests.nvidia.com/gpu": 1}}),
    "claim of a resource": in_container(resources={"claims": [{"name": "gpu"}]}),
    "propagation": in_container(volumeMounts=[{"name": "v", "mountPath": "/v", "mountPropagation": ""}]),
    "sizeLimit": in_volume({"emptyDir": {"sizeLimit": "-1"}}),
    "type of a hostPath": in_volume({"hostPath": {"path": "/v", "type": "Folder"}}),
    "mode of an item": in_volume({"secret": {"secretName": "s", "items": [{"key": "k", "path": "p", "mode": 512}]}}),
    "projected of nothing": in_volume({"projected": {}}),
    "two kinds in one source": in_volume(projected({"configMap": {"name": "c"}, "secret": {"name": "s"}})),
    "projected without a name": in_volume(projected({"configMap": {}})),
    "short token": in_volume(projected({"serviceAccountToken": {"path": "t", "expirationSeconds": 60}})),
    "two files at one path": in_volume(
        projected(*({kind: {"name": "c", "items": [{"key": "k", "path": "x"}]}} for kind in ("configMap", "secret")))
    ),
    "field of a file": in_volume(
        {"downwardAPI": {"items": [{"path": "f", "fieldRef": {"fieldPath": "status.podIP"}}]}}
    ),
    "resource of a file": in_volume(
        {"downwardAPI": {"items": [{"path": "f", "resourceFieldRef": {"resource": "limits.cpu"}}]}}
    ),
    "driver": in_volume({"csi": {"driver": "a_b"}}),
    "secret of a driver": in_volume({"csi": {"driver": "a.b", "nodePublishSecretRef": {}}}),
    "name of an ephemeral claim": in_volume(ephemeral({"name": "x"})),
    "label of an ephemeral claim": in_volume(ephemeral({"labels": {"a": "b c"}})),
    "class of an ephemeral claim": in_volume(ephemeral(storageClassName="A_b")),
    "source of an ephemeral claim": in_volume(ephemeral(dataSource={"kind": "PersistentVolumeClaim", "name": "x"})),
    "pullPolicy": in_volume({"image": {"reference": "i:1", "pullPolicy": "Sometimes"}}),
    "directory of a repository": in_volume({"gitRepo": {"repository": "r", "directory": "../x"}}),
    "iqn": in_volume({"iscsi": {"targetPortal": "p", "iqn": "disk", "lun": 0}}),
    "lun": in_volume({"fc": {"targetWWNs": ["a"]}}),
    "flocker of nothing": in_volume({"flocker": {}}),
    "partition": in_volume({"gcePersistentDisk": {"pdName": "d", "partition": 300}}),
    "diskURI": in_volume({"azureDisk": {"diskName": "d", "diskURI": "/subscriptions/x"}}),
    "secret of cinder": in_volume({"cinder": {"volumeID": "v", "secretRef": {}}}),
    "registry": in_volume({"quobyte": {"registry": "r", "volume": "v"}}),
    "reserved option": in_volume({"flexVolume": {"driver": "a/b", "options": {"kubernetes.io/x": "1"}}}),
    "nameserver": in_pod(dnsConfig={"nameservers": ["dns.example"]}),
    "dns option": in_pod(dnsConfig={"options": [{"value": "x"}]}),
    "nodeName": in_pod(nodeName="A_b"),
    "runtimeClassName empty": in_pod(runtimeClassName=""),
    "preemptionPolicy empty": in_pod(preemptionPolicy=""),
    "overhead": in_pod(overhead={"cpu": "-1"}),
    "os": in_pod(os={"name": "plan9"}),
    "readiness gate": in_pod(readinessGates=[{"conditionType": "a b"}]),
    "resource claim": in_pod(resourceClaims=[{"name": "x"}]),
    "host alias": in_pod(hostAliases=[{"ip": "01.1.1.1", "hostnames": ["a"]}]),
    "resources of a pod": in_pod(resources={"limits": {"nvidia.com/gpu": 1}}),
    "group": in_pod(securityContext={"supplementalGroups": [-1]}),
    "fsGroupChangePolicy": in_pod(securityContext={"fsGroupChangePolicy": "Never"}),
    "two sysctls": in_pod(securityContext={"sysctls": [{"name": "net.x", "value": "1"}] * 2}),
    "sysctl of the host's network": in_pod(
        hostNetwork=True, securityContext={"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}
    ),
    "seccomp with a file": in_pod(
        securityContext={"seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "x"}}
    ),
    "operator behind a gate": in_pod(tolerations=[{"key": "a", "operator": "Gt", "value": "5"}]),
    "value in an affinity": on_node("matchExpressions", key="a", operator="In", values=["x y"]),
    "field in an affinity": on_node("matchFields", key="metadata.uid", operator="In", values=["n"]),
    "two nodes in a field": on_node("matchFields", key="metadata.name", operator="In", values=["n", "m"]),
    "label in an affinity": near(labelSelector={"matchLabels": {"a": "b c"}}),
    "operator in an affinity": near(labelSelector={"matchExpressions": [{"key": "a", "operator": "Gt"}]}),
    "namespace in an affinity": near(namespaces=["A_"]),
    "keys without a selector": near(matchLabelKeys=["x"]),
    "minDomains": spread(minDomains=2, whenUnsatisfiable="ScheduleAnyway"),
    "nodeAffinityPolicy": spread(nodeAffinityPolicy="Maybe"),
    "spread without values": spread(labelSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
    "completionMode empty": in_job(completionMode=""),
    "podReplacementPolicy empty": in_job(podReplacementPolicy=""),
    "manualSelector": in_job(manualSelector=True),
    "selector": in_job(selector={"matchLabels": {"a": "b"}}),
    "managedBy": in_job(managedBy="me"),
    "no rule": in_job(podFailurePolicy={"rules": []}),
    "21 rules": in_job(
        podFailurePolicy={"rules": [{"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}}] * 21}
    ),
    "status of a condition": in_job(
        podFailurePolicy={"rules": [{"action": "Ignore", "onPodConditions": [{"type": "X", "status": "Yes"}]}]}
    ),
    "index beyond the pods": in_job(successPolicy={"rules": [{"succeededIndexes": "5"}]}),
    "indexes that go down": in_job(successPolicy={"rules": [{"succeededIndexes": "1-0"}]}),
    "group name": runtime({**job(), "groupName": "A_"}),
    "manager of a JobSet": runtime(job(), managedBy="me"),
    "coordinator's pod": runtime(job(), coordinator={"replicatedJob": "node", "podIndex": 1}),
    "coordinator's job": runtime(job(), coordinator={"replicatedJob": "node", "jobIndex": 1}),
    "coordinator without indexes": runtime(job(completionMode="NonIndexed"), coordinator={"replicatedJob": "node"}),
    "coordinator's address": runtime(job(), coordinator={"replicatedJob": "node"}, network={"subdomain": "s" * 60}),
    "job that begins with a hyphen": runtime(job(), job("-a", label=None)),
}

TAKEN = {
    "keys with capitals": variable(fieldRef={"fieldPath": "metadata.annotations['AbC/Def']"}),
    "divisor": variable(resourceFieldRef={"resource": "limits.memory", "divisor": "1Mi"}),
    "ports of different names": in_container(
        ports=[{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "b"}]
    ),
    "a port with and one without a name": in_container(
        ports=[{"containerPort": 80, "name": "a"}, {"containerPort": 81}]
    ),
    "host network leaves host ports open": runtime(
        job(
            pod={
                "hostNetwork": True,
                "containers": [
                    {"name": name, "image": "i:1", "ports": [{"containerPort": 80}]} for name in ("node", "log")
                ],
            }
        )
    ),
    "half of Kubernetes' own resource": in_container(resources={"limits": {"batch.kubernetes.io/x": "1.5"}}),
    "huge pages": in_container(resources={"limits": {"hugepages-2Mi": "4Mi", "memory": "1Gi"}}),
    "sleep as long as the grace": in_container(lifecycle={"preStop": {"sleep": {"seconds": 30}}}),
    "procMount Unmasked of its own users": runtime(
        job(
            pod={
                "hostUsers": False,
                "containers": [{"name": "node", "image": "i:1", "securityContext": {"procMount": "Unmasked"}}],
            }
        )
    ),
    "subdomain, which JobSet replaces": in_pod(subdomain="A.b"),
    "key of a file": in_volume({"configMap": {"name": "c", "items": [{"key": "a b", "path": "p"}]}}),
    "empty source": in_volume(projected({})),
    "driver with capitals": in_volume({"csi": {"driver": "X.Y"}}),
    "claim cloned through a group": in_volume(
        ephemeral(dataSource={"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"})
    ),
    "managed disk": in_volume({"azureDisk": {"diskName": "d", "diskURI": "/subscriptions/x", "kind": "Managed"}}),
    "lun 0": in_volume({"fc": {"targetWWNs": ["a"], "lun": 0}}),
    "dots and underscores": in_pod(dnsConfig={"searches": ["_a.b", "a."]}),
    "keys with a selector": near(matchLabelKeys=["x"], labelSelector={"matchLabels": {"a": "b"}}),
    "odd topologyKey": spread(topologyKey="a b"),
    "minDomains": spread(minDomains=2),
    "node by its name": on_node("matchFields", key="metadata.name", operator="In", values=["n"]),
    "managedBy": in_job(managedBy="kubernetes.io/job-controller"),
    "any condition": in_job(
        podFailurePolicy={"rules": [{"action": "Ignore", "onPodConditions": [{"type": "X", "status": "Unknown"}]}]}
    ),
    "indexes": in_job(successPolicy={"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}),
    "coordinator": runtime(job(), coordinator={"replicatedJob": "node"}),
    "job without a name": runtime(job(), job("", label=None)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_is_refused(case: str) -> None:
    assert faults(REFUSED[case])


@pytest.mark.parametrize("case", TAKEN)
def test_is_taken(case: str) -> None:
    assert faults(TAKEN[case]) == []


@pytest.mark.parametrize("of", ["labels", "annotations"])
@pytest.mark.parametrize("release", [Release.V2_1, Release.V2_2, Release.V2_3])
def test_metadata_of_an_override_is_judged(of: str, release: Release) -> None:
    for key, wrong in (("a b", True), ("example.com/a", False)):
        spec = override(release, {"nodeSelector": {"a": "b"}})
        (entry,) = spec[release.override_field]
        metadata = {of: {key: "c"}}
        if release is Release.V2_1:
            entry["metadata"] = metadata
            del entry["spec"]
        else:
            template = entry["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]
            template["spec"]["template"]["metadata"] = metadata
        assert bool(faults(runtime(job()), trainjob(**spec), release)) is wrong


def test_metadata_of_job_and_jobset_is_judged() -> None:
    rt = runtime(job())
    rt.raw["spec"]["template"]["metadata"] = {"labels": {"a": "b c"}}
    assert faults(rt) == ['JobSet label "a: b c" is no label']
    labelled = job()
    labelled["template"]["metadata"] = {"labels": {"a": "b c"}}
    assert faults(runtime(labelled)) == ['Job label "a: b c" is no label']
    own = job()
    own["template"]["spec"]["template"]["metadata"] = {"labels": {"job-name": "mine"}}
    assert len(faults(runtime(own))) == 1
    run = trainjob(labels={"a": "b c"})
    assert len(faults(runtime(job()), run, Release.V2_1)) == 1
    assert faults(runtime(job()), run, Release.V2_3) == []


def test_ports_of_init_containers_are_built_anew_in_2_3_alone() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 81}]
    rt = in_pod(initContainers=[{"name": "wait", "image": "i:1", "ports": ports}])
    assert faults(rt)
    assert faults(rt, release=Release.V2_2) == []


def test_an_operator_behind_a_gate_is_no_reason_to_deny() -> None:
    (refusal,) = find_refusals(pods(REFUSED["operator behind a gate"], trainjob()), _paste)
    assert refusal.unsure


def test_a_source_that_an_override_brings_mends_a_variable() -> None:
    pod = {
        "containers": [*FREE["containers"], {"name": "log", "image": "i:1", "env": [{"name": "A", "valueFrom": {}}]}]
    }
    rt = runtime(job(pod=pod))
    (alone,) = find_refusals(pods(rt, None), _paste)
    assert alone.mendable
    source = {"secretKeyRef": {"name": "s", "key": "k"}}
    mended = override(Release.V2_3, {"containers": [{"name": "log", "env": [{"name": "A", "valueFrom": source}]}]})
    assert faults(rt, trainjob(**mended)) == []


def test_sources_that_an_override_brings_mend_a_projected_volume() -> None:
    rt = in_volume({"projected": {"sources": None}})
    (alone,) = find_refusals(pods(rt, None), _paste)
    assert (alone.by, alone.mendable) == ("JobSet", True)
    volume = {"name": "v", **projected({"configMap": {"name": "c"}})}
    assert faults(rt, trainjob(**override(Release.V2_3, {"volumes": [volume]}))) == []


def test_templates_of_claims_are_named_as_volumes_are() -> None:
    mounted = {"containers": [{**FREE["containers"][0], "volumeMounts": [{"name": "a.b", "mountPath": "/x"}]}]}
    named = {"templates": [{"metadata": {"name": "a.b"}, "spec": CLAIM}]}
    assert any("a.b" in fault for fault in faults(runtime(job(pod=mounted), volumeClaimPolicies=[named])))
    assert len(faults(runtime(job(), volumeClaimPolicies=[{"templates": []}]))) == 1


def test_fewer_than_no_pods_are_told_and_a_policy_of_them_means_one() -> None:
    assert faults(runtime(job(), policy={}), trainjob({"numNodes": -1})) == ['-1 pods are asked for in job "node"']
    assert faults(runtime(job(), policy={"numNodes": -1}), trainjob({})) == []


def test_one_text_in_two_jobs_is_judged_in_each() -> None:
    mounts = [{"name": "data", "mountPath": "/data"}]  # an alias in YAML: one object, and only one job has the volume
    node = {"name": "node", "image": "i:1", "volumeMounts": mounts}
    side = {"name": "side", "image": "i:1", "volumeMounts": [{"name": "logs", "mountPath": "/logs"}]}
    right = job(pod={"containers": [node], "volumes": [{"name": "data", "emptyDir": {}}]})
    wrong = job("eval", {"containers": [side, node], "volumes": [{"name": "logs", "emptyDir": {}}]}, label=None)
    assert faults(runtime(right, wrong)) == ['container "node" mounts volume "data", and the pod has "logs"']


def test_an_image_with_blanks_around_is_refused_where_pods_are_made() -> None:
    # The Job API takes it in a template; it is what "image: >" leaves at its end.
    for image in ("i:1\n", " i:1", "i:1\u00a0"):
        (refusal,) = find_refusals(pods(in_container(image=image), trainjob(), Release.V2_3), _paste)
        assert (refusal.by, refusal.subject, refusal.mendable) == ("the Pod API", "image", True)
        assert (refusal.at.object.partition("/")[0], refusal.fix) == ("TrainingRuntime", 'image: "i:1"')
    run = trainjob(trainer={"image": "i:2\n"})
    (refusal,) = find_refusals(pods(in_container(), run, Release.V2_3), _paste)
    assert refusal.at.field == "spec.trainer.image"
    assert not faults(in_container(image="i:1\n"), trainjob(trainer={"image": "i:2"}))
