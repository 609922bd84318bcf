"""The effective pods: as JSON for programs, and as a tree to read.

The JSON has each Job as the Job API stores it: fields that Kubernetes leaves out are left out, volumes have their
core/v1 defaults (``k8s.io/kubernetes/pkg/apis/core/v1/defaults.go``). Origins are ``<object> <field>`` by JSON pointer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from webhook.model.finding import Origin
from webhook.model.pod import EMPTY, TRAINER, Checkpoint, DirectoryStatus, EffectiveJob, EffectiveSet, Raw
from webhook.model.printable import printable
from webhook.model.quantity import parse_quantity

JSONObject = dict[str, Any]
_BOLD, _DIM, _GREEN = "1", "2", "32"
_API: Final = Origin("Job", "", "the Job API's default")
"""What the Job API fills in by itself."""
_JOBSET: Final = Origin("JobSet", "", "JobSet's default")

_POINTERS: Final = frozenset(("csi", "azureDisk"))
"""Volume sources whose ``readOnly`` and ``fsType`` are pointers in Go: false and "" are kept."""
_DEFAULTS: Final[Mapping[str, Raw]] = {
    "secret": {"defaultMode": 0o644},
    "configMap": {"defaultMode": 0o644},
    "downwardAPI": {"defaultMode": 0o644},
    "projected": {"defaultMode": 0o644},
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {"cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": False},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}


def pods_result(kind: str, namespace: str | None, name: str, effective: EffectiveSet | None) -> JSONObject:
    """One entry of ``results``. ``jobs`` is empty where the pair makes no JobSet here; None: no runtime."""
    jobs = () if effective is None or effective.elsewhere else effective.jobs
    return {
        "kind": kind,
        "namespace": namespace,
        "name": name,
        "trainer": None if effective is None else effective.release.value,
        "failurePolicy": None if effective is None else stored_failure_policy(effective.failure_policy),
        "jobs": [_job(job) for job in jobs],
    }


def stored_failure_policy(policy: Raw | None) -> JSONObject | None:
    """``failurePolicy`` as the JobSet has it: a ``maxRestarts`` of 0 is left out, the restart strategy filled in."""
    if policy is None:
        return None
    stored = {field: value for field, value in policy.items() if value is not None}
    if not stored.get("maxRestarts"):
        stored.pop("maxRestarts", None)
    if not stored.get("rules"):
        stored.pop("rules", None)
    elif not all(rule.get("name") for rule in stored["rules"]):
        stored["rules"] = [
            {**rule, "name": rule.get("name") or f"failurePolicyRule{index}"}
            for index, rule in enumerate(stored["rules"])
        ]
    stored.setdefault("restartStrategy", "Recreate")
    return stored


def _job(job: EffectiveJob) -> JSONObject:
    pod = stored_pod(job)
    return {
        "name": job.name,
        "pods": pods_of_one(job),
        **({"replicas": job.replicas} if job.replicas != 1 else {}),
        "trains": job.trains,
        "backoffLimit": job.backoff_limit,
        "pod": pod,
        "origins": {pointer: str(origin) for pointer, origin in origins(job, pod).items()},
    }


def pods_of_one(job: EffectiveJob) -> int:
    """Pods of one of the Jobs that JobSet makes of a replicatedJob."""
    return job.pods // job.replicas if job.replicas else job.pods


def stored_pod(job: EffectiveJob) -> JSONObject:
    """The PodSpec as the Job API stores it. A new object; ``volumes`` and both lists of containers are always there."""
    raw = job.pod
    pod: JSONObject = {
        "volumes": [stored_volume(volume) for volume in (*(raw.get("volumes") or ()), *job.claim_volumes)],
        "initContainers": [stored_container(container) for container in raw.get("initContainers") or ()],
        "containers": [stored_container(container) for container in raw.get("containers") or ()],
        "restartPolicy": raw.get("restartPolicy"),
        "terminationGracePeriodSeconds": raw.get("terminationGracePeriodSeconds"),
    }
    for field, value in raw.items():
        if field not in pod and not _empty(value):
            pod[field] = _said(value) if field in ("affinity", "nodeSelector") else value
    return pod


def _said(value: Any) -> Any:
    """Without nulls and empty lists, which Kubernetes leaves out."""
    if isinstance(value, Mapping):
        return {key: _said(inner) for key, inner in value.items() if inner is not None and inner != []}
    return [_said(inner) for inner in value] if isinstance(value, list) else value


def stored_volume(volume: Raw) -> JSONObject:
    """A volume with the API's defaults; without a source it becomes an emptyDir."""
    out: JSONObject = {}
    for source, value in volume.items():
        if value is None or source[:1] == "$":
            continue
        if not isinstance(value, Mapping):
            out[source] = value
            continue
        kept = {
            field: inner
            for field, inner in value.items()
            if inner is not None
            and inner != []
            and not (inner == {} and field == "volumeAttributes")
            and not (inner is False and field == "readOnly" and source not in _POINTERS)
            and not (inner == "" and (field == "medium" or (field == "fsType" and source not in _POINTERS)))
        }
        out[source] = {**_DEFAULTS.get(source, EMPTY), **kept}
    if not any(isinstance(value, Mapping) for value in out.values()):
        out["emptyDir"] = {}
    if (out.get("emptyDir") or EMPTY).get("sizeLimit") is not None:
        out["emptyDir"]["sizeLimit"] = canonical_quantity(out["emptyDir"]["sizeLimit"])
    if isinstance((out.get("ephemeral") or EMPTY).get("volumeClaimTemplate"), Mapping):
        out["ephemeral"]["volumeClaimTemplate"] = _stored_claim(out["ephemeral"]["volumeClaimTemplate"])
    if isinstance((out.get("downwardAPI") or EMPTY).get("items"), list):
        out["downwardAPI"]["items"] = [_with_field_version(item) for item in out["downwardAPI"]["items"]]
    if isinstance((out.get("projected") or EMPTY).get("sources"), list):
        out["projected"]["sources"] = [_stored_projection(source) for source in out["projected"]["sources"]]
    if "image" in out and not out["image"].get("pullPolicy"):
        out["image"]["pullPolicy"] = _pull_policy(str(out["image"].get("reference") or ""))
    return out


def _stored_claim(template: Raw) -> JSONObject:
    spec = {"resources": {}, "volumeMode": "Filesystem", **(template.get("spec") or EMPTY)}
    resources = {}
    for field, values in (spec["resources"] or EMPTY).items():
        if isinstance(values, Mapping):
            resources[field] = {name: canonical_quantity(value) for name, value in values.items()}
    return {"metadata": template.get("metadata") or {}, "spec": {**spec, "resources": resources}}


def _stored_projection(source: Raw) -> JSONObject:
    out = {field: value for field, value in source.items() if value is not None}
    token = out.get("serviceAccountToken")
    if isinstance(token, Mapping):
        out["serviceAccountToken"] = {"expirationSeconds": 3600, **token}
    items = (out.get("downwardAPI") or EMPTY).get("items")
    if isinstance(items, list):
        out["downwardAPI"] = {"items": [_with_field_version(item) for item in items]}
    return out


def _with_field_version(item: Raw) -> JSONObject:
    out = dict(item)
    if isinstance(out.get("fieldRef"), Mapping):
        out["fieldRef"] = {"apiVersion": "v1", **out["fieldRef"]}
    if isinstance(out.get("resourceFieldRef"), Mapping):
        out["resourceFieldRef"] = {"divisor": "0", **out["resourceFieldRef"]}
    return out


def _pull_policy(reference: str) -> str:
    """Always for the tag ``latest``, said or not; a text that is no reference has no tag."""
    if not reference or " " in reference:
        return "IfNotPresent"
    last = reference.rsplit("/", 1)[-1]
    if "@" in last:
        return "IfNotPresent"
    return "Always" if last.partition(":")[2] in ("", "latest") else "IfNotPresent"


def stored_container(container: Raw) -> JSONObject:
    """A container without what Kubernetes leaves out."""
    out: JSONObject = {}
    for field, value in container.items():
        if _empty(value) or field[:1] == "$":
            continue
        if field == "env":
            out[field] = [_stored_variable(variable) for variable in value]
        elif field == "volumeMounts":
            out[field] = [{key: inner for key, inner in mount.items() if not _unsaid(key, inner)} for mount in value]
        elif field == "resources" and isinstance(value, Mapping):
            out[field] = {
                kind: {name: canonical_quantity(quantity) for name, quantity in values.items()}
                if isinstance(values, Mapping)
                else values
                for kind, values in value.items()
                if values is not None
            }
        else:
            out[field] = value
    return out


def _stored_variable(variable: Raw) -> JSONObject:
    out = {field: value for field, value in variable.items() if value is not None and not (value == "" != field)}
    if out.get("value") == "":
        del out["value"]
    if isinstance(out.get("valueFrom"), Mapping):
        out["valueFrom"] = _with_field_version(out["valueFrom"])
    return out


def _empty(value: Any) -> bool:
    return value is None or value == "" or value == [] or value == {}


def _unsaid(field: str, value: Any) -> bool:
    return value is None or (field == "readOnly" and value is False) or (field != "mountPropagation" and value == "")


def canonical_quantity(value: Any) -> Any:
    """A quantity as the API server writes it back: ``1024Mi`` is ``1Gi``, ``0.5`` is ``500m``, ``1e4`` is ``10e3``.

    No quantity stays. Source: apimachinery pkg/api/resource, ``Quantity.CanonicalizeBytes``; exponents seen on all
    four releases.
    """
    exact = parse_quantity(value)
    if exact is None:
        return value
    text = str(value)
    sign = "-" if exact < 0 else ""
    rest = abs(exact)
    if text[-1:] == "i" and rest >= 1024 * 10**9 and rest % 10**9 == 0:
        number, suffix = rest // 10**9, 0
        while number % 1024 == 0 and suffix < 6:
            number, suffix = number // 1024, suffix + 1
        return f"{sign}{number}{('', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei')[suffix]}"
    by_exponent = text[-1:].isdecimal() and "e" in text.lower()
    thousands = 0
    while rest and rest % 1000 == 0 and (by_exponent or thousands < 9):
        rest, thousands = rest // 1000, thousands + 1
    if not rest:
        return "0"
    if by_exponent:
        return f"{sign}{rest}e{3 * thousands - 9}" if thousands != 3 else f"{sign}{rest}"
    return f"{sign}{rest}{('n', 'u', 'm', '', 'k', 'M', 'G', 'T', 'P', 'E')[thousands]}"


def origins(job: EffectiveJob, pod: Raw) -> dict[str, Origin]:
    """Where each part of ``pod`` (as ``stored_pod`` gives it) was written, by JSON pointer into it."""
    found: dict[str, Origin] = {}
    volumes: dict[str, Origin] = {}
    for layer in job.layers:
        for index, volume in enumerate(layer.pod.get("volumes") or ()):
            name = volume.get("name") or ""
            volumes[name] = layer.at(f"volumes[{index}]", short=f"volume {name}")
    for index, volume in enumerate(pod["volumes"]):
        name = volume.get("name") or ""
        found[f"/volumes/{index}"] = volumes.get(name) or job.volume_origin(name)
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(pod[kind]):
            name = container.get("name") or ""
            at = f"/{kind}/{index}"
            found[at] = job.container_origin(name)
            env, mounts = _written_in(job, name)
            for field, value in container.items():
                if field == "env":
                    for place, variable in enumerate(value):
                        word = variable.get("name") or ""
                        found[f"{at}/env/{place}"] = env.get(word) or job.env_origin(name, word)
                elif field == "volumeMounts":
                    for place, mount in enumerate(value):
                        path = mount.get("mountPath") or ""
                        found[f"{at}/volumeMounts/{place}"] = mounts.get(path) or job.mount_origin(name, path)
                elif field != "name":
                    found[f"{at}/{_escaped(field)}"] = job.container_field_origin(name, field)
    for field in pod:
        if field not in ("volumes", "initContainers", "containers"):
            found[f"/{_escaped(field)}"] = field_origin(job, field)
    return found


def _written_in(job: EffectiveJob, container: str) -> tuple[dict[str, Origin], dict[str, Origin]]:
    """Variables and mounts of a container with the places where they were written last, in one pass over the texts."""
    env: dict[str, Origin] = {}
    mounts: dict[str, Origin] = {}
    for layer in job.layers:
        for kind in ("containers", "initContainers"):
            for index, raw in enumerate(layer.pod.get(kind) or ()):
                if raw.get("name") != container:
                    continue
                at = "" if layer.is_trainer else f"{kind}[{index}]."
                for place, variable in enumerate(raw.get("env") or ()):
                    name = variable.get("name") or ""
                    env[name] = layer.at(f"{at}env[{place}]", short=f"env {name}")
                for place, mount in enumerate(raw.get("volumeMounts") or ()):
                    path = mount.get("mountPath") or ""
                    short = f"container {container} mount {path}"
                    mounts[path] = layer.at(f"{at}volumeMounts[{place}]", short=short)
    return env, mounts


def field_origin(job: EffectiveJob, field: str) -> Origin:
    """Where a field of the PodSpec was written; JobSet or the Job API where nobody wrote it."""
    if any(layer.pod.get(field) is not None for layer in job.layers):
        return job.pod_origin(field)
    return _JOBSET if field == "restartPolicy" else _API


def _escaped(field: str) -> str:
    return field.replace("~", "~0").replace("/", "~1")


def render_pods(
    title: str, effective: EffectiveSet, checkpoints: Sequence[Checkpoint] = (), colour: bool = False
) -> Iterator[str]:
    """The same as a tree: jobs, their containers, the checkpoint directory, volumes and claims, each with its origin.

    ``title`` is ``TrainJob team-a/sft``. ``colour`` uses the terminal's sixteen colours.
    """
    runtime = "" if effective.trainjob is None else f", runtime {effective.runtime_label}"
    yield _paint(printable(title), _BOLD, colour) + _paint(
        printable(f"  (Trainer {effective.release.value}{runtime})"), _DIM, colour
    )
    if effective.elsewhere:
        yield "  no JobSet is made in this cluster: managedBy names another controller"
        return
    if not effective.jobs:
        why = "" if effective.stopped is None else f": {effective.stopped.problem}"
        yield printable(f"  no JobSet is made of it{why}")
        return
    rows: list[tuple[int, str, Origin | None]] = []
    policy = effective.failure_policy
    template = Origin(effective.runtime_label, "spec.template.spec.failurePolicy", "failurePolicy")
    restarts = 0 if policy is None else policy.get("maxRestarts") or 0
    rows.append((1, f"maxRestarts {restarts}", None if policy is None else template))
    for job in effective.jobs:
        rows.extend(_job_rows(job, [checkpoint for checkpoint in checkpoints if checkpoint.job.name == job.name]))
    width = min(60, max(2 * depth + len(text) for depth, text, _ in rows))
    own = "" if effective.trainjob is None else f"TrainJob/{effective.trainjob or effective.generate_name}"
    for depth, text, origin in rows:
        line = "  " * depth + printable(text)
        if text.startswith(("job ", "directory ")):
            line = _paint(line, _BOLD if text.startswith("job ") else _GREEN, colour)
        if origin is not None:
            gap = " " * max(2, width - 2 * depth - len(printable(text)) + 2)
            line += gap + _paint(f"<- {printable(_place(origin, own))}", _DIM, colour)
        yield line


def _place(origin: Origin, own: str) -> str:
    """The short place; with its object where that is not the TrainJob itself."""
    if origin.object == TRAINER:
        return TRAINER
    place = origin.short or origin.field
    return place if origin.object in (own, _JOBSET.object, _API.object) else f"{origin.object} {place}".rstrip()


def _job_rows(job: EffectiveJob, checkpoints: list[Checkpoint]) -> Iterator[tuple[int, str, Origin | None]]:
    one = pods_of_one(job)
    times = f"{job.replicas} x " if job.replicas > 1 else ""
    pods = f"{times}{one} pod{'' if one == 1 else 's'}"
    yield (
        1,
        f"job {job.name}: {pods}{' that train' if job.trains and one != 1 else ' that trains' if job.trains else ''}",
        None,
    )
    limit = (
        Origin(job.job_origin.object, f"{job.job_origin.field}.backoffLimit", f"job {job.name} backoffLimit")
        if job.explicit_backoff_limit
        else _API
    )
    yield 2, f"backoffLimit {job.backoff_limit}", limit
    yield 2, f"restartPolicy {job.pod.get('restartPolicy')}", field_origin(job, "restartPolicy")
    grace = f"terminationGracePeriodSeconds {job.pod.get('terminationGracePeriodSeconds')}"
    yield 2, grace, field_origin(job, "terminationGracePeriodSeconds")
    for kind, _, container in job.containers():
        name = container.get("name") or ""
        sort = "container"
        if kind == "initContainers":
            sort = "sidecar" if container.get("restartPolicy") == "Always" else "init container"
        yield 2, f"{sort} {name}: {container.get('image') or 'no image'}", job.container_field_origin(name, "image")
        for field in ("command", "args"):
            if container.get(field):
                yield 3, f"{field} {_shortened(container[field])}", job.container_field_origin(name, field)
        for checkpoint in checkpoints:
            if checkpoint.container_name == name:
                yield from _checkpoint_rows(checkpoint)
        for mount in container.get("volumeMounts") or ():
            path = mount.get("mountPath") or ""
            ways = [f"{field} {mount[field]}" for field in ("subPath", "subPathExpr") if mount.get(field)]
            if mount.get("readOnly"):
                ways.append("read-only")
            text = f"mount {path}: volume {mount.get('name')}{''.join(', ' + way for way in ways)}"
            yield 3, text, job.mount_origin(name, path)
    for volume in (*(job.pod.get("volumes") or ()), *job.claim_volumes):
        yield 2, f"volume {volume.get('name')}: {_source(volume)}", job.volume_origin(volume.get("name") or "")


def _checkpoint_rows(checkpoint: Checkpoint) -> Iterator[tuple[int, str, Origin | None]]:
    status = checkpoint.status
    named = checkpoint.variable or checkpoint.flag or ""
    if status is DirectoryStatus.NONE:
        yield 3, "no checkpoint directory", None
        return
    if status is DirectoryStatus.UNRESOLVED:
        yield (
            3,
            f"directory not known before the pod runs{f' ({named})' if named else ''}",
            checkpoint.directory_origin(),
        )
        return
    ways = [named] if named else []
    if status is DirectoryStatus.INFERRED:
        ways.append("inferred")
    ways += [f"$({name}) stays as it is" for name in checkpoint.missing]
    ways += [f"changes with {field}" for field in checkpoint.per_pod]
    directory = checkpoint.directory if checkpoint.directory is not None else checkpoint.written
    yield 3, f"directory {directory} ({', '.join(ways)})", checkpoint.directory_origin()
    if checkpoint.mount is not None:
        claim = checkpoint.storage.claim_name
        under = f"on volume {checkpoint.mount.get('name')}"
        if claim is not None:
            under += f', claim "{claim}"'
        yield 4, f"{under}: {checkpoint.storage.kind.value}", checkpoint.volume_origin()
    elif checkpoint.directory is not None and "://" not in checkpoint.directory:
        yield 4, "on no volume: the container's own file system", None


def _source(volume: Raw) -> str:
    """A volume's sources in words."""
    found: list[str] = []
    for source, value in volume.items():
        if isinstance(value, Mapping):
            claim = value.get("claimName")
            own = value.get("driver") or value.get("path") or value.get("name") or value.get("secretName") or ""
            word = f'claim "{claim}"' if claim is not None else f"{source} {own}".rstrip()
            found.append(word + (", read-only" if value.get("readOnly") else ""))
    return " and ".join(found) or "emptyDir"


def _shortened(words: Sequence[Any]) -> str:
    text = " ".join(str(word) for word in words).split("\n", 1)[0]
    return text if len(text) <= 48 else text[:45] + "..."


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text
