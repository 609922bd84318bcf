"""The volumes of one pod are in zones, or pinned to nodes, that have no node in common.

Symptom: the pod stays Pending: "node(s) had volume node affinity conflict".
Fix: use claims whose volumes are in one zone, or a class that is not bound to a zone.
Bad:
    volumes:
    - name: data
      persistentVolumeClaim: {claimName: data-zone-a}
    - name: ckpt
      persistentVolumeClaim: {claimName: ckpt-zone-b}
Good:
    volumes:
    - name: data
      persistentVolumeClaim: {claimName: data-zone-a}
    - name: ckpt
      persistentVolumeClaim: {claimName: ckpt-zone-a}
Reads: zones and hostname affinity of the volumes under the training pods' claims; zones that a class allows.
Silent when: fewer than two claims of a pod say where they are, or what they say overlaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from webhook.model.cluster import Claim, PersistentVolume, StorageClass
from webhook.model.finding import Finding, Severity
from webhook.model.paste import to_yaml
from webhook.model.rule import Rule
from webhook.model.sign import ODD_CLAIMS
from webhook.model.subject import Subject
from webhook.storage import Use, claim_uses, hostnames, modes_needed, named_claim, new_claim, plan_claim, size_of

_MANY = "ReadWriteMany"


def check(subject: Subject) -> Iterator[Finding]:
    uses = claim_uses(subject)
    if subject.effective is None or len(uses) < 2:
        return
    uses = [use for use in uses if _zones(use) or _nodes(use)]
    if len(uses) < 2:
        return
    by_job: dict[str, list[Use]] = {}
    for use in uses:
        for mounts in use.jobs:
            by_job.setdefault(mounts.name, []).append(use)
    for job in subject.effective.jobs:
        mine = by_job.get(job.name, [])
        for places, where, word in ((_zones, "in", "zones"), (_nodes, "on", "nodes")):
            apart = _apart(mine, places)
            if apart is None:
                continue
            one, other = apart
            first, second = one.storage.claim_name, other.storage.claim_name
            at = one if one.checkpoint is not None else other
            yield Finding(
                at=at.origin(),
                problem=f'claims "{first}" and "{second}" of one pod are {where} different {word}',
                fix=partial(_fix, subject, at),
                job=job.name,
                subject=f"{first} {second}",
                private=f"{word}: {first} {' '.join(sorted(places(one)))}; {second} {' '.join(sorted(places(other)))}",
            )
            break


def _fix(subject: Subject, use: Use) -> str:
    """A claim that is made where the pod is, since one that exists cannot move."""
    claim = use.claim
    modes = (claim.access_modes if isinstance(claim, Claim) else ()) or [modes_needed(subject)]
    plan = plan_claim(subject, _MANY if _MANY in modes else "ReadWriteOnce", follows=True)
    remark = plan.class_remark and f"\n{plan.class_remark}"
    if use.template or not isinstance(claim, Claim):
        return f"{to_yaml(plan.more)}{remark}"
    name = f"{claim.name}-new"
    create = new_claim(subject.namespace, name, modes, size_of(claim), plan.more)
    empty = f"# it is empty: what is on {claim.name} stays there"
    return f"{create}{remark}\n---\n{named_claim(subject, use, name)}\n{empty}"


_DIFFERENT = 64
"""Sets of places of one pod that are compared with each other; beyond, only what all have in common."""


def _apart(uses: list[Use], places: Callable[[Use], frozenset[str]]) -> tuple[Use, Use] | None:
    """Two volumes without a place in common; where only all together have none, the first and the last."""
    placed = [(use, found) for use in uses if (found := places(use))]
    common: frozenset[str] | None = None
    seen: dict[frozenset[str], Use] = {}
    for use, found in placed:
        if found not in seen:
            for others, other in seen.items():
                if not found & others:
                    return other, use
            if len(seen) < _DIFFERENT:
                seen[found] = use
        common = found if common is None else common & found
    if common is not None and not common:
        return placed[0][0], placed[-1][0]
    return None


def _zones(use: Use) -> frozenset[str]:
    volume, found = use.storage.volume, use.storage.storage_class
    if isinstance(volume, PersistentVolume):
        return volume.zones
    return found.zones if isinstance(found, StorageClass) else frozenset()


def _nodes(use: Use) -> frozenset[str]:
    volume = use.storage.volume
    return hostnames(volume) if isinstance(volume, PersistentVolume) else frozenset()


RULE = Rule(
    id="zone-split",
    severity=Severity.WARN,
    why="no node can mount all of them, so the pod waits for ever and the run never comes back",
    check=check,
    on_runtime=Severity.WARN,
    when=ODD_CLAIMS,
)
