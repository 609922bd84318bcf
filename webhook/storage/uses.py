"""Which claims, and which volumes that one node alone can mount, the pods that train use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from webhook.model.cluster import Claim, Gap, PersistentVolume
from webhook.model.finding import Origin, Severity
from webhook.model.pod import EMPTY, Checkpoint, DirectoryStatus, EffectiveJob, EffectiveSet, Raw, Storage, StorageKind
from webhook.model.sign import ODD_CLAIMS, RICH_VOLUMES
from webhook.model.subject import Subject
from webhook.storage.kinds import classify
from webhook.storage.reach import BUCKETS
from webhook.storage.sources import CLAIM, CSI, SOURCES, source_of


class Use(Struct, frozen=True):
    """One claim, or one inline volume with a disk behind it, and the training jobs whose pods have it.

    ``volumes`` are the pods' own volumes of it, each with its job. ``checkpoint`` is the directory that lies on it;
    None where it only stands beside. ``template`` says that JobSet makes the claim.
    """

    storage: Storage
    volume: Raw
    volumes: Sequence[tuple[EffectiveJob, Raw]]
    checkpoint: Checkpoint | None = None
    template: bool = False

    @property
    def jobs(self) -> Sequence[EffectiveJob]:
        """The training jobs that have it, each once."""
        if len(self.volumes) == 1:
            return (self.volumes[0][0],)
        return tuple({job.name: job for job, _ in self.volumes}.values())

    @property
    def mounted(self) -> bool:
        """Whether some container mounts it as a file system."""
        return next(self._mounts(), None) is not None

    @property
    def read_only(self) -> bool:
        """Whether all of the pods mount it read-only."""
        if all((volume.get(CLAIM) or EMPTY).get("readOnly") for _, volume in self.volumes):
            return True
        return self.mounted and all(mount.get("readOnly") for mount in self._mounts())

    def _mounts(self) -> Iterator[Raw]:
        for job, volume in self.volumes:
            yield from job.mounts_of(volume.get("name") or "")

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
        return self._first().name

    @property
    def container(self) -> str:
        return "" if self.checkpoint is None else self.checkpoint.container_name

    def origin(self) -> Origin:
        """Where the user wrote the volume (or, for a claim template, the mount)."""
        if self.checkpoint is not None:
            return self.checkpoint.mount_origin() if self.template else self.checkpoint.volume_origin()
        return self._first().volume_origin(self.name)

    def _first(self) -> EffectiveJob:
        return self.volumes[0][0] if self.checkpoint is None else self.checkpoint.job


def volume_uses(subject: Subject) -> Sequence[Use]:
    """Every claim and every one-node inline volume of the pods that train, each once: those under a directory, then
    the others, in the pods' own order.

    Empty where claims are elsewhere or where there is no namespace to look them up in; inline volumes stay.
    """
    uses: Sequence[Use] | None = subject.memo.get("uses")
    if uses is None:
        uses = subject.memo["uses"] = _collect(subject)
    return uses


def claim_uses(subject: Subject) -> Sequence[Use]:
    """``volume_uses`` without the inline volumes; empty where claims cannot be looked up at all."""
    uses: Sequence[Use] | None = subject.memo.get("claim uses")
    if uses is None:
        uses = ()
        if not subject.claims_elsewhere and subject.namespace:
            uses = [use for use in volume_uses(subject) if use.storage.claim_name is not None]
        subject.memo["claim uses"] = uses
    return uses


def claim_signs(subject: Subject) -> int:
    """``ODD_CLAIMS``, unless each claim is there, bound and in use, and every node may mount its file system; and
    ``RICH_VOLUMES``. Without building a ``Use``: most pods have nothing but such claims."""
    effective = subject.effective
    if effective is None:
        return 0
    known: tuple[int, tuple[str, ...]] | None = subject.kept.get("claim signs")
    if known is None:
        known = subject.kept["claim signs"] = _signs_of_pods(effective)
    signs, names = known
    if subject.claims_elsewhere or not subject.namespace:
        return signs | ODD_CLAIMS
    if not signs & ODD_CLAIMS:
        for name in names:
            if not _is_plain(subject.cluster.claim(subject.namespace, name), subject):
                return signs | ODD_CLAIMS
    return signs


def _signs_of_pods(effective: EffectiveSet) -> tuple[int, tuple[str, ...]]:
    """What can be told without looking claims up, and the names of those of the pods that train."""
    signs = ODD_CLAIMS if "volumeClaimPolicies" in effective.jobset_spec else 0
    names: list[str] = []
    for job in effective.jobs:
        for volume in job.pod.get("volumes") or ():
            if len(volume) > 2:
                signs |= RICH_VOLUMES | ODD_CLAIMS
            elif job.trains:
                source = volume.get(CLAIM)
                if source is not None:
                    names.append(source.get("claimName") or "")
                elif not _DISKS.isdisjoint(volume):
                    signs |= ODD_CLAIMS
    return signs, tuple(names)


_DISKS: Final = frozenset({CSI, *(source for source, kind in SOURCES.items() if kind is StorageKind.ONE_NODE)})
"""Sources of inline volumes that one node alone may be able to mount."""


def _is_plain(claim: Claim | Gap, subject: Subject) -> bool:
    if (
        not isinstance(claim, Claim)
        or not claim.volume_name
        or claim.phase != "Bound"
        or claim.terminating
        or claim.volume_mode != "Filesystem"
        or "ReadWriteMany" not in claim.access_modes
    ):
        return False
    volume = subject.cluster.volume(claim.volume_name)
    return (
        isinstance(volume, PersistentVolume)
        and not volume.node_affinity
        and not volume.zones
        and volume.driver not in BUCKETS
        and not any("cache" in option or "writeback" in option for option in volume.mount_options)
    )


def _collect(subject: Subject) -> Sequence[Use]:
    effective = subject.effective
    if effective is None:
        return ()
    groups: Sequence[_Group] | None = subject.kept.get("volumes")
    if groups is None:
        groups = subject.kept["volumes"] = _group(effective)
    # The checkpoint's own first: of a great many only the first are looked up, and told.
    return sorted((_use(subject, *group) for group in groups), key=_is_beside)


def _is_beside(use: Use) -> bool:
    return use.checkpoint is None


_Group = tuple[bool, Sequence[tuple[EffectiveJob, Raw]]]
"""Whether JobSet makes the claim; the volumes that are the same storage."""


def _group(effective: EffectiveSet) -> Sequence[_Group]:
    templates = bool(effective.jobset_spec.get("volumeClaimPolicies"))
    found: dict[str, list[tuple[EffectiveJob, Raw]]] = {}
    made: set[str] = set()
    for job in effective.jobs:
        if not job.trains:
            continue
        for volume in job.pod.get("volumes") or ():
            claim = volume.get(CLAIM)
            if claim is not None:
                key = "claim " + (claim.get("claimName") or "")
                if templates and effective.template(volume.get("name") or "") is not None:
                    made.add(key)
            elif SOURCES.get(source_of(volume)) is StorageKind.ONE_NODE or volume.get(CSI) is not None:
                # The same disk may have another name in another job.
                key = f"disk {_content(volume, 'name')}"
            else:
                continue
            found.setdefault(key, []).append((job, volume))
        if templates:
            known = {volume.get("name") for volume in job.pod.get("volumes") or ()}
            for name in _mounted_names(job):
                if name not in known and effective.template(name) is not None:
                    known.add(name)
                    made.add("template " + name)
                    found.setdefault("template " + name, []).append((job, {"name": name}))
    return [(key in made, entries) for key, entries in found.items()]


def _content(value: Any, without: str = "") -> Any:
    """What is equal for equal JSON values, in whatever order their keys were written."""
    if isinstance(value, Mapping):
        return sorted((key, _content(item)) for key, item in value.items() if key != without)
    return [_content(item) for item in value] if isinstance(value, list) else value


def _use(subject: Subject, made: bool, entries: Sequence[tuple[EffectiveJob, Raw]]) -> Use:
    checkpoint = _checkpoint_on(subject, entries)
    volume = entries[0][1]
    if checkpoint is not None:
        return Use(checkpoint.storage, checkpoint.volume or volume, entries, checkpoint, made)
    assert subject.effective is not None  # noqa: S101 - there are no jobs without it
    storage = classify(
        volume,
        None,
        subject.effective.template(str(volume.get("name") or "")) if made else None,
        subject.namespace,
        subject.cluster,
        subject.policy,
        subject.claims_elsewhere,
        subject.request.name,
    )
    return Use(storage, volume, entries, None, made)


def _checkpoint_on(subject: Subject, entries: Sequence[tuple[EffectiveJob, Raw]]) -> Checkpoint | None:
    """The directory on that volume; a declared one counts for more than a guessed one."""
    known: dict[tuple[str, str], Checkpoint] | None = subject.memo.get("checkpoints by volume")
    if known is None:
        known = subject.memo["checkpoints by volume"] = {}
        for checkpoint in sorted(subject.checkpoints, key=_is_guessed):
            if checkpoint.mount is not None and checkpoint.status is not DirectoryStatus.NONE:
                known.setdefault((checkpoint.job.name, checkpoint.mount_name), checkpoint)
    found = [known.get((job.name, volume.get("name") or "")) for job, volume in entries]
    return min((one for one in found if one is not None), key=_is_guessed, default=None)


def _is_guessed(checkpoint: Checkpoint) -> bool:
    return checkpoint.status is DirectoryStatus.INFERRED


def _mounted_names(job: EffectiveJob) -> list[str]:
    return [
        mount.get("name") or "" for _, _, container in job.containers() for mount in container.get("volumeMounts") or ()
    ]
