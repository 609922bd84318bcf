"""Which claims, and which volumes that one node alone can mount, the pods that train use."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from webhook.model.cluster import Claim, Gap
from webhook.model.finding import Origin, Severity
from webhook.model.pod import Checkpoint, DirectoryStatus, EffectiveJob, Raw, Storage, StorageKind
from webhook.model.subject import Subject
from webhook.storage.kinds import classify
from webhook.storage.sources import CLAIM, SOURCES, source_of


class Use(Struct, frozen=True):
    """One claim, or one inline volume with a disk behind it, and the training jobs whose pods have it.

    ``checkpoint`` is the directory that lies on it; None where it only stands beside. ``read_only``: all of the pods
    mount it read-only. ``mounted``: some container mounts it as a file system.
    """

    storage: Storage
    volume: Raw
    jobs: tuple[EffectiveJob, ...]
    checkpoint: Checkpoint | None = None
    read_only: bool = False
    mounted: bool = False
    template: bool = False

    @property
    def pods(self) -> int:
        """How many training pods have it."""
        return sum(job.pods for job in self.jobs)

    @property
    def name(self) -> str:
        """The volume's name in the pod."""
        return str(self.volume.get("name") or "")

    @property
    def claim(self) -> Claim | Gap | None:
        return self.storage.claim

    @property
    def at_most(self) -> Severity | None:
        """The most that a finding may weigh: claims beside the declared directory are only warned about."""
        return Severity.WARN if self.checkpoint is None else self.checkpoint.at_most

    @property
    def job(self) -> str:
        return self.jobs[0].name

    @property
    def container(self) -> str:
        return "" if self.checkpoint is None else self.checkpoint.container_name

    def origin(self) -> Origin:
        """Where the user wrote the volume (or, for a claim template, the mount)."""
        if self.checkpoint is not None:
            return self.checkpoint.mount_origin() if self.template else self.checkpoint.volume_origin()
        return self.jobs[0].volume_origin(self.name)


def volume_uses(subject: Subject) -> Sequence[Use]:
    """Every claim and every one-node inline volume of the pods that train, each once, in the pods' own order.

    Empty where claims are elsewhere or where there is no namespace to look them up in; inline volumes stay.
    """
    uses: Sequence[Use] | None = subject.memo.get("uses")
    if uses is None:
        uses = subject.memo["uses"] = _collect(subject)
    return uses


def claim_uses(subject: Subject) -> Sequence[Use]:
    """``volume_uses`` without the inline volumes; empty where claims cannot be looked up at all."""
    if subject.claims_elsewhere or not subject.namespace:
        return ()
    return [use for use in volume_uses(subject) if use.storage.claim_name is not None]


def _collect(subject: Subject) -> Sequence[Use]:
    effective = subject.effective
    if effective is None:
        return ()
    found: dict[str, list[tuple[EffectiveJob, Raw, bool]]] = {}
    inline: list[Raw] = []
    for job in effective.jobs:
        if not job.trains:
            continue
        seen: set[str] = set()
        for volume in job.pod.get("volumes") or ():
            seen.add(volume.get("name") or "")
            claim = volume.get(CLAIM)
            if claim is not None:
                made = effective.template(volume.get("name") or "") is not None
                key = "claim " + str(claim.get("claimName") or "")
                found.setdefault(key, []).append((job, volume, made))
            elif SOURCES.get(source_of(volume)) is StorageKind.ONE_NODE or volume.get("csi") is not None:
                same = {key: value for key, value in volume.items() if key != "name"}
                if same not in inline:
                    inline.append(same)
                found.setdefault(f"inline {inline.index(same)}", []).append((job, volume, False))
        if effective.jobset_spec.get("volumeClaimPolicies"):
            for name in _mounted_names(job):
                if name not in seen and effective.template(name) is not None:
                    seen.add(name)
                    found.setdefault("template " + name, []).append((job, {"name": name}, True))
    return [_use(subject, key, entries) for key, entries in found.items()]


def _use(subject: Subject, key: str, entries: list[tuple[EffectiveJob, Raw, bool]]) -> Use:
    checkpoint = _checkpoint_on(subject, entries)
    job, volume, made = entries[0]
    if checkpoint is not None:
        storage = checkpoint.storage
        volume = checkpoint.volume if checkpoint.volume is not None else volume
        job = checkpoint.job
    else:
        assert subject.effective is not None  # noqa: S101 - there are no jobs without it
        template = subject.effective.template(str(volume.get("name") or "")) if made else None
        elsewhere = subject.claims_elsewhere
        storage = classify(
            volume, None, template, subject.namespace, subject.cluster, subject.policy, elsewhere, subject.request.name
        )
    jobs: dict[str, EffectiveJob] = {job.name: job}
    for other, _, _ in entries:
        jobs.setdefault(other.name, other)
    mounts = [mount for other, raw, _ in entries for mount in _mounts(other, str(raw.get("name") or ""))]
    source_read_only = all((raw.get(CLAIM) or {}).get("readOnly") for _, raw, _ in entries)
    return Use(
        storage,
        volume,
        tuple(jobs.values()),
        checkpoint,
        source_read_only or (bool(mounts) and all(mount.get("readOnly") for mount in mounts)),
        bool(mounts),
        made,
    )


def _checkpoint_on(subject: Subject, entries: list[tuple[EffectiveJob, Raw, bool]]) -> Checkpoint | None:
    """The directory on that volume; a declared one counts for more than a guessed one."""
    best: Checkpoint | None = None
    for checkpoint in subject.checkpoints:
        if checkpoint.mount is None or checkpoint.status is DirectoryStatus.NONE:
            continue
        name = checkpoint.mount.get("name")
        for job, volume, _ in entries:
            if job.name == checkpoint.job.name and volume.get("name") == name:
                if checkpoint.at_most is None:
                    return checkpoint
                best = best or checkpoint
    return best


def _mounts(job: EffectiveJob, volume: str) -> list[Raw]:
    return [
        mount
        for _, _, container in job.containers()
        for mount in container.get("volumeMounts") or ()
        if mount.get("name") == volume
    ]


def _mounted_names(job: EffectiveJob) -> list[str]:
    return [
        mount.get("name") or "" for _, _, container in job.containers() for mount in container.get("volumeMounts") or ()
    ]
