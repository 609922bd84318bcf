"""The merge of runtime and overrides gives one volume two sources, and the Job API takes one alone.

Symptom: the TrainJob is accepted and no pod ever comes; the Job was refused because of "may not specify more than 1
    volume type".
Fix: give the override's volume a name that the runtime does not use, and mount it in the runtime's place.
Bad:
    # runtime
    volumes:
    - {name: ckpt, emptyDir: {}}
    # TrainJob, merged by name: both sources stay
    volumes:
    - {name: ckpt, persistentVolumeClaim: {claimName: train-ckpt}}
Good:
    # TrainJob
    volumes:
    - {name: ckpt-claim, persistentVolumeClaim: {claimName: train-ckpt}}
    containers:
    - name: node
      volumeMounts:
      - {name: ckpt-claim, mountPath: /mnt/ckpt}
Reads: the sources of every volume of every job as built, and which object wrote each of them.
Silent when: each volume has one source; a volume has none (it becomes an emptyDir).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from webhook.effective.buildable import sources_of
from webhook.model.finding import Finding, Severity
from webhook.model.override import override_yaml
from webhook.model.paste import to_yaml
from webhook.model.pod import EffectiveJob, Raw
from webhook.model.rule import Rule
from webhook.model.sign import RICH_VOLUMES
from webhook.model.subject import Subject

_CLAIM: Final = "persistentVolumeClaim"
_GONE_WITH_POD: Final = ("emptyDir", "ephemeral")
"""Under a claim's name they would be mounted in its place, which loses what the claim is for."""


def check(subject: Subject) -> Iterator[Finding]:
    if subject.effective is None:
        return
    for job in subject.effective.jobs:
        told: set[object] = set()  # a name that stands twice is refused, and each text of it is looked at once
        for volume in job.pod.get("volumes") or ():
            name = volume.get("name")
            if len(volume) > 2 and name not in told and len(sources := sources_of(volume)) > 1:
                told.add(name)
                yield _finding(subject, job, volume, sources)


def _finding(subject: Subject, job: EffectiveJob, volume: Raw, sources: list[str]) -> Finding:
    name = str(volume.get("name") or "")
    written = {source: owner for owner, own, _ in job.written_volumes(name) for source in sources_of(own)}
    told = " and ".join(f"{source} ({_owner(written.get(source))})" for source in sources)
    last = next((source for source in reversed(sources) if written.get(source) == subject.label), sources[-1])
    keep = _CLAIM if _CLAIM in sources else last
    beside = subject.is_trainjob and len(set(written.values())) > 1
    if beside and not (keep == _CLAIM and last in _GONE_WITH_POD):
        renamed = _renamed(job, name, last, volume[last])
        fix = f'# instead of volume "{name}"\n{override_yaml(subject.release, subject.spec, job.name, renamed)}'
    else:
        text = to_yaml([{"name": name, keep: volume[keep]}])
        fix = f"{text}\n# and without {', '.join(source for source in sources if source != keep)}"
        if beside:
            fix += f", which needs a volume of another name: the claim is from {written.get(keep, 'Trainer')}"
    return Finding(
        job.volume_origin(name),
        f'volume "{name}" of job "{job.name}" has {len(sources)} sources: {told}',
        fix,
        job=job.name,
        subject=f"volume {name}",
    )


def _owner(written: str | None) -> str:
    return "Trainer" if written is None else "TrainJob" if written.startswith("TrainJob/") else "runtime"


def _renamed(job: EffectiveJob, name: str, source: str, value: Any) -> Raw:
    """The override's volume under a name of its own, and the mounts that put it where the clashing one was mounted."""
    other = f"{name[:55]}-durable" if source == "persistentVolumeClaim" else f"{name[:55]}-own"
    pod: dict[str, Any] = {"volumes": [{"name": other, source: value}]}
    for kind, _, container in job.containers():
        mounts = [
            {**mount, "name": other} for mount in container.get("volumeMounts") or () if mount.get("name") == name
        ]
        if mounts:
            pod.setdefault(kind, []).append({"name": container.get("name"), "volumeMounts": mounts[:1]})
    return pod


RULE = Rule(
    id="volume-source-clash",
    severity=Severity.DENY,
    why="the Job API refuses the pods after admission and the TrainJob shows nothing, so the run never starts",
    check=check,
    on_runtime=Severity.DENY,
    when=RICH_VOLUMES,
    reads_pods_only=True,
)
