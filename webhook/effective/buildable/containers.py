"""Containers that the Job API refuses (kubernetes pkg/apis/core/validation, ``validateContainers``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from webhook.effective.buildable.contexts import faults_of_container
from webhook.effective.buildable.fields import fault_of_source
from webhook.effective.buildable.handlers import PROBES, faults_of_handlers
from webhook.effective.buildable.mounts import Paste, no_paste, refused_mounts
from webhook.effective.buildable.refusal import JOB_API, POD_API, Refusal
from webhook.effective.buildable.syntax import (
    is_dns_label,
    is_dns_subdomain,
    is_env_name,
    is_port_name,
    is_qualified_name,
    steps_back,
)
from webhook.effective.buildable.volumes import sources_of
from webhook.effective.trainer import RANK
from webhook.model.caches import cache, weight_of
from webhook.model.nearest import Names
from webhook.model.paste import below, shown_value, to_yaml
from webhook.model.pod import EMPTY, EffectiveJob, Raw
from webhook.model.quantity import BILLION, parse_quantity
from webhook.model.release import Release

_RARE: Final = frozenset(
    [
        "ports",
        "envFrom",
        "imagePullPolicy",
        "terminationMessagePolicy",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
        "restartPolicy",
        "restartPolicyRules",
        "volumeDevices",
        "resizePolicy",
    ]
)
_RIGHT: Final = cache("resources")
"""repr of a container's resources without claims -> whether they are right."""
_LONGEST: Final = 512
_PULL: Final = frozenset(("Always", "IfNotPresent", "Never"))
_NATIVE: Final = frozenset(("cpu", "memory", "ephemeral-storage"))
_RESTART: Final = frozenset(("Always", "OnFailure", "Never"))
_MESSAGE: Final = frozenset(("File", "FallbackToLogsOnError"))


def is_foreign(job: EffectiveJob, kind: str, container: Raw) -> bool:
    """Whether an override brought the container: the runtime has none of that name, and nobody gave it an image.

    An override cannot carry an image, so such a container is a target that does not exist.
    """
    if container.get("image"):
        return False
    return len(job.layers) > 1 and not job.layers[0].where(kind, container.get("name") or "")


def parts_of_containers(job: EffectiveJob) -> Iterator[tuple[int, bool]]:
    """Identities of the variables with a source, resources, security contexts and mounts that the runtime gives the
    job's containers, with whether they are right; of mounts as long as the pod has the runtime's own list of volumes.
    """
    volumes = _names_of_volumes(job, frozenset())
    for _, _, container in job.containers():
        for variable in container.get("env") or ():
            # A file stands in a volume, which an override may replace.
            if (source := variable.get("valueFrom")) is not None and "fileKeyRef" not in source:
                yield id(variable), next(_refused_variable(job, "", variable), None) is None
        if resources := container.get("resources"):
            yield id(resources), next(_refused_resources(job, "", resources), None) is None
        if context := container.get("securityContext"):
            yield id(context), next(_refused_context(job, "", context), None) is None
        if mounts := container.get("volumeMounts"):
            # An override may take the privilege away that some propagation needs.
            yield (
                id(mounts),
                not any("mountPropagation" in mount for mount in mounts)
                and next(refused_mounts(job, container, "", mounts, volumes, set(), no_paste), None) is None,
            )


def refused_containers(
    job: EffectiveJob, templates: frozenset[str], paste: Paste, sound: frozenset[int], release: Release
) -> Iterator[Refusal]:
    """Faults of every container. ``templates`` are the volumes that JobSet adds from ``volumeClaimPolicies``."""
    pod = job.pod
    listed = pod.get("volumes") or ()
    unchanged = id(listed) in sound
    volumes: Names | None = None
    untold: set[str] = set()
    if not pod.get("containers"):
        yield Refusal(
            JOB_API,
            job.pod_origin("containers"),
            f'job "{job.name}" has no container',
            "containers:\n- name: node\n  image: <image>",
            job=job.name,
            subject="containers",
        )
    seen: set[str] = set()
    ports: set[tuple[str, str, int]] = set()
    for kind in ("containers", "initContainers"):
        for container in pod.get(kind) or ():
            name = container.get("name") or ""
            image = container.get("image")
            if not image:
                if is_foreign(job, kind, container):
                    continue
                yield Refusal(
                    JOB_API,
                    job.container_origin(name),
                    f'container "{name}" of job "{job.name}" has no image',
                    "image: <image>",
                    job=job.name,
                    container=name,
                    subject="image",
                    mendable=name == "node",
                )
            elif image.strip() != image:
                yield Refusal(
                    POD_API,
                    job.container_field_origin(name, "image"),
                    f'image "{image}" of container "{name}" of job "{job.name}" begins or ends with a blank',
                    to_yaml({"image": image.strip() or "<image>"}),
                    job=job.name,
                    container=name,
                    subject="image",
                    mendable=name == "node",
                )
            if name in seen or not is_dns_label(name):
                yield _refused_name(job, kind, name, name in seen)
            seen.add(name)
            if env := container.get("env"):
                # Every container of every TrainJob comes by here: that all names are right is told of all at once.
                keys = [variable.get("name") or "" for variable in env]
                doubtful = "" in keys or not is_env_name("".join(keys))
                for variable in env if doubtful else [one for one in env if "valueFrom" in one]:
                    if doubtful or (variable["valueFrom"] is not RANK and id(variable) not in sound):
                        yield from _refused_variable(job, name, variable)
            if (mounts := container.get("volumeMounts")) and not (unchanged and id(mounts) in sound):
                volumes = _names_of_volumes(job, templates) if volumes is None else volumes
                yield from refused_mounts(job, container, name, mounts, volumes, untold, paste)
            resources = container.get("resources")
            if resources and id(resources) not in sound and not _are_right(job, resources):
                yield from _refused_resources(job, name, resources)
            if (context := container.get("securityContext")) and id(context) not in sound:
                yield from _refused_context(job, name, context)
            if not _RARE.isdisjoint(container):
                volumes = _names_of_volumes(job, templates) if volumes is None else volumes
                doubles = kind == "containers" or release.at_least(Release.V2_3)
                yield from _refused_rest(job, kind, container, name, volumes, ports, doubles)


def _names_of_volumes(job: EffectiveJob, templates: frozenset[str]) -> Names:
    names = {volume.get("name") or "" for volume in job.pod.get("volumes") or ()}
    return Names((names | templates) - {""})


def _refused_name(job: EffectiveJob, kind: str, name: str, twice: bool) -> Refusal:
    return Refusal(
        JOB_API,
        job.pod_origin(kind) if twice else job.container_origin(name),
        f'job "{job.name}" has two containers named "{name}"'
        if twice
        else f'container name "{name}" of job "{job.name}" is no DNS label',
        f"{kind}:\n- name: <another name>  # at most 63 of a-z, 0-9 and -",
        job=job.name,
        container=name,
        subject="name twice" if twice else "name",
    )


def _refused_variable(job: EffectiveJob, container: str, variable: Raw) -> Iterator[Refusal]:
    name = variable.get("name") or ""
    fault = fix = ""
    no_source = False
    if not is_env_name(name):
        fault, fix = 'has no valid name: empty, or with "=" or outside printable ASCII', "name: <NAME>"
    elif (source := variable.get("valueFrom")) is not None:
        sources = [key for key, value in source.items() if value is not None]
        no_source = not sources and not variable.get("value") and container != "node"
        if variable.get("value"):
            if not sources:
                fault, fix = "has a value beside an empty valueFrom", f"- name: {name}\n  value: {_text(variable)}"
            else:
                fault = f"has both value and valueFrom.{sources[0]}"
                where = (
                    "spec.trainer.env replaces the runtime's variable whole"
                    if container == "node" and job.receives_trainer
                    else "an override cannot replace the runtime's valueFrom: set it there, or under another name"
                )
                fix = f"- name: {name}\n  value: {_text(variable)}  # {where}"
        elif len(sources) != 1:
            fault = f"has {len(sources) or 'no'} sources in valueFrom"
            fix = f"- name: {name}\n  valueFrom:\n    secretKeyRef: {{name: <secret>, key: <key>}}"
        else:
            fault, fix = fault_of_source(sources[0], source[sources[0]])
            if not fault and sources[0] == "fileKeyRef":
                volume = job.volume(source["fileKeyRef"].get("volumeName") or "")
                if volume is None or volume.get("emptyDir") is None:
                    fault, fix = (
                        "reads a file of a volume that is no emptyDir",
                        "fileKeyRef:\n  volumeName: <an emptyDir>",
                    )
            fix = below(fix, "valueFrom") if fault else fix
    if fault:
        yield Refusal(
            JOB_API,
            job.env_origin(container, name),
            f'variable "{name}" of container "{container}" {fault}',
            fix,
            job=job.name,
            container=container,
            subject=f"env {name}",
            mendable=no_source,  # an override brings one
        )


def _text(variable: Raw) -> str:
    return to_yaml(shown_value(str(variable.get("name")), variable.get("value")))


def _are_right(job: EffectiveJob, resources: Raw) -> bool:
    """Whether nothing is wrong with the resources, remembered by their text: the same few are asked for every day."""
    if "claims" in resources:
        return False  # it takes the pod to tell
    text = repr(resources)
    if len(text) > _LONGEST:
        return False
    right: bool | None = _RIGHT.get(text)
    if right is None:
        right = next(_refused_resources(job, "", resources), None) is None
        _RIGHT.put(text, right, weight_of(text))
    return right


def _refused_resources(job: EffectiveJob, owner: str, resources: Raw) -> Iterator[Refusal]:
    limits: Raw = resources.get("limits") or EMPTY
    requests: Raw = resources.get("requests") or EMPTY
    if claims := resources.get("claims"):
        there = {claim.get("name") for claim in job.pod.get("resourceClaims") or ()}
        for claim in claims:
            if claim.get("name") not in there:
                fault = f'uses resource claim "{claim.get("name")}", which the pod does not have'
                yield _resource(job, owner, "claims", fault, "claims: []")
    for name, text in requests.items():
        limit = limits.get(name)
        if text == limit:
            continue
        fault = ""
        fixed = name not in _NATIVE and _must_be_equal(name)
        if limit is None:
            if fixed:
                fault = f"requests {name} without a limit"
        else:
            amount, ceiling = parse_quantity(text), parse_quantity(limit)
            if amount is not None and ceiling is not None and (amount > ceiling or (fixed and amount != ceiling)):
                fault = f'requests {name} "{text}", and its limit is "{limit}"'
        if fault:
            yield _resource(job, owner, name, fault, f"limits:\n  {name}: {text}\nrequests:\n  {name}: {text}")
    for listed in (limits, requests):
        for name, text in listed.items():
            if name in _NATIVE:
                if text.__class__ is str and text[:1] == "-":
                    yield _resource(job, owner, name, f'has {name} "{text}"', f"{name}: <a quantity above 0>")
            elif (
                not is_qualified_name(name)
                or ("/" not in name and not name.startswith("hugepages-"))
                or (name.startswith("requests.") and "kubernetes.io/" not in name)
            ):
                known = f"<domain>/{name}: {text}  # e.g. nvidia.com/gpu: 1"
                yield _resource(job, owner, name, f'names resource "{name}"', known)
            else:
                amount = parse_quantity(text)
                if amount is None:
                    continue
                if amount < 0 or ("/" in name and "kubernetes.io/" not in name and amount % BILLION):
                    yield _resource(job, owner, name, f'has {name} "{text}"', f"{name}: <a whole number above 0>")
                elif name.startswith("hugepages-"):
                    size = parse_quantity(name.removeprefix("hugepages-"))
                    if not size or amount % size:
                        fault = f'has {name} "{text}", which is no multiple of the page size'
                        yield _resource(job, owner, name, fault, f"{name}: <a multiple>")
                    elif not any(basic in listed for listed in (limits, requests) for basic in ("cpu", "memory")):
                        fault = f"has {name} without cpu or memory"
                        yield _resource(job, owner, name, fault, f"limits:\n  {name}: {text}\n  memory: <size>")


def _must_be_equal(name: str) -> bool:
    """Whether the scheduler does not overcommit the resource: extended resources and huge pages."""
    return name.startswith("hugepages-") or ("/" in name and "kubernetes.io/" not in name)


def _resource(job: EffectiveJob, owner: str, name: str, fault: str, fix: str) -> Refusal:
    return Refusal(
        JOB_API,
        job.container_field_origin(owner, "resources"),
        f'container "{owner}" {fault}',
        fix,
        job=job.name,
        container=owner,
        subject=f"resources {name}",
        mendable=owner == "node",
    )


def _refused_rest(
    job: EffectiveJob,
    kind: str,
    container: Raw,
    owner: str,
    volumes: Names,
    ports: set[tuple[str, str, int]],
    doubles: bool,
) -> Iterator[Refusal]:
    def refusal(field: str, fault: str, fix: str) -> Refusal:
        return Refusal(
            JOB_API,
            job.container_field_origin(owner, field),
            f'container "{owner}" {fault}',
            fix,
            job=job.name,
            container=owner,
            subject=field,
            mendable=field == "lifecycle" and fault.startswith("sleeps"),  # by a longer grace period
        )

    yield from _refused_ports(container, job, ports if kind == "containers" else set(), refusal, doubles)
    for source in container.get("envFrom") or ():
        if (source.get("configMapRef") is None) == (source.get("secretRef") is None):
            yield refusal(
                "envFrom",
                "has an envFrom entry that is not one ConfigMap or one Secret",
                "- secretRef: {name: <secret>}",
            )
        elif not is_dns_subdomain(named := _name_of(source)):
            yield refusal("envFrom", f'has an envFrom entry of name "{named}"', "- secretRef: {name: <secret>}")
        elif not is_env_name(source.get("prefix") or "A"):
            yield refusal("envFrom", f'has prefix "{source.get("prefix")}"', "prefix: <PREFIX_>")
    if (policy := container.get("imagePullPolicy")) and policy not in _PULL:
        yield refusal("imagePullPolicy", f'has imagePullPolicy "{policy}"', "imagePullPolicy: IfNotPresent")
    if (policy := container.get("terminationMessagePolicy")) and policy not in _MESSAGE:
        yield refusal(
            "terminationMessagePolicy", f'has terminationMessagePolicy "{policy}"', "terminationMessagePolicy: File"
        )
    restart = container.get("restartPolicy")
    if restart is not None and restart not in _RESTART:
        yield refusal("restartPolicy", f'has restartPolicy "{restart}"', "restartPolicy: Always")
    if rules := container.get("restartPolicyRules"):
        if not restart:
            yield refusal("restartPolicyRules", "has restartPolicyRules without restartPolicy", "restartPolicy: Never")
        for rule in rules:
            action, operator = rule.get("action") or "", (rule.get("exitCodes") or EMPTY).get("operator") or ""
            if action not in ("Restart", "RestartAllContainers") or operator not in ("In", "NotIn"):
                yield refusal(
                    "restartPolicyRules",
                    f'has a restartPolicyRules entry with action "{action}" and operator "{operator}"',
                    "- action: Restart\n  exitCodes:\n    operator: In\n    values: [<code>]",
                )
    for policy in container.get("resizePolicy") or ():
        resource, word = policy.get("resourceName") or "", policy.get("restartPolicy") or ""
        if resource not in ("cpu", "memory") or word not in ("NotRequired", "RestartContainer"):
            yield refusal(
                "resizePolicy",
                f'has a resizePolicy of resource "{resource}" with restartPolicy "{word}"',
                "- resourceName: cpu\n  restartPolicy: NotRequired",
            )
    if kind == "initContainers" and restart != "Always":
        for field in (*PROBES, "lifecycle"):
            if container.get(field) is not None:
                yield refusal(
                    field,
                    f"is an init container with {field} and without restartPolicy Always",
                    "restartPolicy: Always  # makes it a native sidecar; or leave the field out",
                )
    else:
        grace = job.pod.get("terminationGracePeriodSeconds")
        for field, fault, fix in faults_of_handlers(container, 30 if grace is None else grace):
            yield refusal(field, fault, fix)
    mounted = {mount.get("mountPath") for mount in container.get("volumeMounts") or ()}
    as_files = {mount.get("name") for mount in container.get("volumeMounts") or ()}
    for device in container.get("volumeDevices") or ():
        volume = job.volume(device.get("name") or "")
        path = device.get("devicePath") or ""
        if not path or steps_back(path) or path in mounted:
            yield refusal("volumeDevices", f'has a device at "{path}"', "devicePath: <a path of its own without ..>")
        if device.get("name") not in volumes:
            yield refusal(
                "volumeDevices", f'uses device "{device.get("name")}", which is no volume of the pod', "name: <volume>"
            )
        elif volume is not None and not {"persistentVolumeClaim", "ephemeral"}.issuperset(sources_of(volume)):
            yield refusal(
                "volumeDevices", f'uses volume "{device.get("name")}" as a device, and it is no claim', "name: <volume>"
            )
        elif device.get("name") in as_files:
            yield refusal(
                "volumeDevices", f'uses volume "{device.get("name")}" as a device and mounts it', "name: <volume>"
            )


def _name_of(source: Raw) -> str:
    return (source.get("configMapRef") or source.get("secretRef") or EMPTY).get("name") or ""


def _refused_context(job: EffectiveJob, owner: str, context: Raw) -> Iterator[Refusal]:
    for fault, fix in faults_of_container(
        context, job.pod.get("hostUsers") is not False, bool(job.pod.get("hostNetwork"))
    ):
        yield Refusal(
            JOB_API,
            job.container_field_origin(owner, "securityContext"),
            f'container "{owner}" {fault}',
            fix,
            job=job.name,
            container=owner,
            subject="securityContext",
        )


def _refused_ports(
    container: Raw,
    job: EffectiveJob,
    taken: set[tuple[str, str, int]],
    refusal: Callable[[str, str, str], Refusal],
    doubles: bool,
) -> Iterator[Refusal]:
    """``doubles``: Trainer builds the ports anew (``webhook.effective.ports``)."""
    names: set[str] = set()
    numbers: set[int] = set()
    host = bool(job.pod.get("hostNetwork"))
    for port in container.get("ports") or ():
        name, number, outside = port.get("name") or "", port.get("containerPort") or 0, port.get("hostPort") or 0
        key = (port.get("protocol") or "TCP", port.get("hostIP") or "", outside)
        if not 0 < number < 65536 or not 0 <= outside < 65536:
            yield refusal("ports", f"has port {number} with hostPort {outside}", "containerPort: <1..65535>")
        elif (name in names and (name or doubles)) or (number in numbers and doubles):
            what = f'named "{name}"' if name else "without a name"
            yield refusal(
                "ports",
                f"has two ports {what if name in names else f'of number {number}'}, of which Trainer makes one, twice",
                f"- name: <another name>\n  containerPort: {number}",
            )
        elif name and not is_port_name(name):
            yield refusal("ports", f'has port name "{name}"', "name: <at most 15 of a-z, 0-9, ->")
        elif key[0] not in ("TCP", "UDP", "SCTP"):
            yield refusal("ports", f'has protocol "{key[0]}"', "protocol: TCP")
        elif outside and key in taken:
            yield refusal("ports", f"uses hostPort {outside}, which is taken in the pod", "hostPort: <another port>")
        elif host and outside not in (0, number):
            yield refusal("ports", f"has hostPort {outside} for port {number} under hostNetwork", f"hostPort: {number}")
        names.add(name)
        numbers.add(number)
        taken.add(key)
