"""What the cluster has for a claim that is missing: one that would do, else the class and the size of a new one.

Each is looked for once a review, when a rule asks for the first time, and is for the text of a fix alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from webhook.model.cluster import Claim, Gap, Runtime, StorageClass
from webhook.model.names import CHECKPOINT_SIZE, MODEL_PARAMS
from webhook.model.policy import CheckpointSize
from webhook.model.size import format_at_least, parse_bytes, parse_count
from webhook.model.subject import Subject
from webhook.storage.binding import class_of, is_bound
from webhook.storage.claims import MANY, judge_claim
from webhook.storage.reach import provisioner_reach

DURABLE: Final = ("one-node", "many-nodes", "object-store", "unknown")
"""Kinds of storage that a claim may be of to be worth naming."""
_CLASS: Final = "<class>"
_SIZE: Final = "100Gi"
_ASK: Final = "ask whoever runs the cluster"
_WHOM: Final = f"see kubectl get storageclass, or {_ASK}"
_NAMED: Final = 4
_OFFERED: Final = 16
"""Claims that would do of which one is named."""


class NewClaim:
    """Class and size of a claim to create, and the remarks that go below it."""

    __slots__ = ("class_remark", "more", "size", "size_remark")

    def __init__(self, more: Mapping[str, Any], class_remark: str, size: str, size_remark: str) -> None:
        self.more = more
        self.class_remark = class_remark
        self.size = size
        self.size_remark = size_remark

    @property
    def remarks(self) -> str:
        return "".join(f"\n{remark}" for remark in (self.class_remark, self.size_remark) if remark)


def plan_claim(subject: Subject, mode: str, follows: bool = False) -> NewClaim:
    """What a new claim of that access mode should ask for: the class that there is, and the size that was said.

    ``follows``: its volume has to be made where the pod is, so the class is one of WaitForFirstConsumer.
    """
    key = f"new claim {mode}{' of the pod' * follows}"
    found: NewClaim | None = subject.memo.get(key)
    if found is None:
        size = needed_size(subject)
        found = subject.memo[key] = NewClaim(
            *_class_for(subject, mode, follows),
            format_at_least(2 * size) if size else _SIZE,
            "" if size else f"# {_SIZE} is a guess: take three times the size of one checkpoint",
        )
    return found


def _class_for(subject: Subject, mode: str, follows: bool) -> tuple[dict[str, str], str]:
    """The class that would do, and a remark: what is still to be seen, or else who may know of one."""
    which = f"serves {mode}" if mode == MANY else "every node can reach"
    if follows:
        which = f"{f'{which} and ' if mode == MANY else ''}is of volumeBindingMode WaitForFirstConsumer"
    classes: Sequence[StorageClass] | Gap = Gap.UNKNOWN if subject.claims_elsewhere else subject.cluster.some_classes()
    if isinstance(classes, Gap):
        return {"storageClassName": _CLASS}, f"# {_CLASS}: one that {which}; {_WHOM}"
    fitting = [found for found in classes if _serves(found, mode, subject) and (not follows or _follows(found))]
    if fitting and (len(classes) == 1 or fitting[0].default):
        found = fitting[0]
    else:
        # Of classes that nobody chose as usual only those count that a table knows.
        known = [found for found in fitting if provisioner_reach(found.provisioner, subject.policy) is not None]
        if len(known) != 1:
            names = " or ".join(sorted(found.name for found in known or fitting)[:_NAMED])
            if known:
                names += f"; {_ASK} which"
            elif fitting:
                names += f", whichever {which}; {_WHOM}"
            else:
                names = f"one that {which}, and none here is known for it: {_ASK}"
            return {"storageClassName": _CLASS}, f"# {_CLASS}: {names}"
        found = known[0]
    if mode == MANY and provisioner_reach(found.provisioner, subject.policy) is None:
        return {"storageClassName": found.name}, f"# {found.name}: see whether it serves {mode}; {_ASK}"
    return {"storageClassName": found.name}, ""


def _serves(found: StorageClass, mode: str, subject: Subject) -> bool:
    """Whether a new volume of the class would do, as far as is known; without a provisioner there is none."""
    reach = provisioner_reach(found.provisioner, subject.policy)
    if reach == "node-local" or found.provisioner == "kubernetes.io/no-provisioner" or "ro" in found.mount_options:
        return False
    return mode != MANY or reach != "one-node"


def _follows(found: StorageClass) -> bool:
    return found.binding_mode == "WaitForFirstConsumer"


def claim_offered(subject: Subject, mode: str, like: str = "") -> str | None:
    """The claim of the namespace that would do, of several the one whose name is nearest to ``like``."""
    names = offered_claims(subject, mode)
    if len(names) < 2 or not like:
        return names[0] if names else None
    from difflib import SequenceMatcher  # seldom needed, and slow to import

    return max(names, key=lambda name: SequenceMatcher(None, name, like).ratio())


def offered_claims(subject: Subject, mode: str) -> tuple[str, ...]:
    """Names of claims of the namespace that would do, in the order that the cluster gives them."""
    key = f"offered claims {mode}"
    found: tuple[str, ...] | None = subject.memo.get(key)
    if found is None:
        found = subject.memo[key] = _look(subject, mode)
    return found


def _look(subject: Subject, mode: str) -> tuple[str, ...]:
    if not subject.namespace or subject.claims_elsewhere:
        return ()
    claims = subject.cluster.some_claims(subject.namespace)
    names: list[str] = []
    for claim in () if isinstance(claims, Gap) else claims:
        if len(names) == _OFFERED:
            break
        if fits(claim, mode) and _is_durable(claim, mode, subject):
            names.append(claim.name)
    return tuple(names)


def fits(claim: Claim, mode: str) -> bool:
    """Whether pods can mount it in that access mode, by the claim's own words."""
    if claim.terminating or claim.phase == "Lost" or claim.volume_mode != "Filesystem":
        return False
    return bool({mode, MANY} & set(claim.access_modes))


def _is_durable(claim: Claim, mode: str, subject: Subject) -> bool:
    """By its volume, or while it has none by its class: the volumes that may bind it are not gone through."""
    if is_bound(claim, subject.cluster):
        return judge_claim(claim, subject.cluster, subject.policy).kind.value in DURABLE
    found = None if claim.volume_name else class_of(claim, subject.cluster)
    return found is Gap.UNKNOWN or (isinstance(found, StorageClass) and _serves(found, mode, subject))


def needed_size(subject: Subject) -> int | None:
    """Bytes of one checkpoint by annotation and the policy's table; None where nothing says it."""
    written = size_annotation(subject)
    if written is None:
        return None
    _, key, text = written
    size = parse_bytes(text) if key == CHECKPOINT_SIZE else size_of_params(text, subject.policy.checkpoint_sizes)
    return size if size is not None and size > 0 else None


def size_annotation(subject: Subject) -> tuple[str, str, str] | None:
    """The owner, key and text of the annotation that counts: the object's own before its runtime's."""
    if (found := _annotation(subject.request.object)) is not None:
        return subject.label, *found
    runtime = subject.runtime
    if isinstance(runtime, Runtime) and subject.is_trainjob and (found := _annotation(runtime.raw)) is not None:
        return runtime.label, *found
    return None


def _annotation(raw: Mapping[str, Any]) -> tuple[str, str] | None:
    annotations = (raw.get("metadata") or {}).get("annotations") or {}
    for key in (CHECKPOINT_SIZE, MODEL_PARAMS):
        if annotations.get(key):
            return key, str(annotations[key])
    return None


def size_of_params(text: str, table: tuple[CheckpointSize, ...]) -> int | None:
    """The first row that is large enough; beyond the table in proportion, since optimizer state grows so."""
    params = parse_count(text)
    rows = sorted(
        (up_to, size) for row in table if (up_to := parse_count(row.up_to_params)) and (size := parse_bytes(row.size))
    )
    if params is None or params <= 0 or not rows:
        return None
    for up_to, size in rows:
        if params <= up_to:
            return size
    up_to, size = rows[-1]
    return size * params // up_to
