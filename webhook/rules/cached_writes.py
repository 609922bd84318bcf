"""What is written to the directory stays in a cache of the node for a while.

Symptom: after a node is lost the newest checkpoints are missing or torn, although the program had written them.
Fix: mount without write-back caching, so that a write that has returned is on the storage.
Bad:
    kind: StorageClass
    provisioner: csi.juicefs.com
    mountOptions: [writeback]
Good:
    kind: StorageClass
    provisioner: csi.juicefs.com
    mountOptions: [cache-size=100000]    # reads may be cached
Reads: mount options of the PersistentVolume; where the claim is not bound those of its class, and its parameters that
    hold mount options.
Silent when: none of them asks for write-back caching; the claim, its volume or its class is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from webhook.model.cluster import Claim, PersistentVolume, StorageClass
from webhook.model.finding import Finding, Severity
from webhook.model.rule import Rule
from webhook.model.sign import ODD_CLAIMS
from webhook.model.subject import Subject
from webhook.storage import Use, claim_uses, named_claim

# JuiceFS, FUSE in general, rclone and geesefs, and the mode "loose" of 9p.
_WRITES: Final = re.compile(
    r"^-{0,2}(?:writeback(?:[-_]cache)?(?:=(?:true|1|on))?|vfs[-_]cache[-_]mode=(?:writes|full)|cache=(?:loose|mmap))$"
)


def check(subject: Subject) -> Iterator[Finding]:
    for use in claim_uses(subject):
        claim = use.claim
        if use.checkpoint is None or not isinstance(claim, Claim):
            continue
        found = _option(use)
        if found is None:
            continue
        option, where = found
        yield Finding(
            at=use.origin(),
            problem=f'claim "{claim.name}" is mounted with "{option}" ({where}): writes stay in a cache of the node',
            fix=partial(_fix, subject, use, option, where),
            at_most=use.at_most,
            job=use.job,
            container=use.container,
            subject=claim.name,
        )


def _option(use: Use) -> tuple[str, str] | None:
    """The option that caches writes, and whose it is."""
    volume, found = use.storage.volume, use.storage.storage_class
    if isinstance(volume, PersistentVolume):
        return _first(volume.mount_options, "mountOptions of its volume")
    if not isinstance(found, StorageClass):
        return None
    given = [part for name, text in found.parameters.items() if "option" in name.lower() for part in text.split(",")]
    return _first((*found.mount_options, *given), f'class "{found.name}"')


def _first(options: tuple[str, ...], where: str) -> tuple[str, str] | None:
    return next(((option, where) for option in options if _WRITES.match(option.strip())), None)


def _fix(subject: Subject, use: Use, option: str, where: str) -> str:
    return (
        f"{named_claim(subject, use, '<claim>')}\n# <claim>: of a class without {option}\n"
        f"# to ask of whoever administers storage: one without {option} in mountOptions ({where} has it)"
    )


RULE = Rule(
    id="cached-writes",
    severity=Severity.WARN,
    why="a node that is lost takes what it had not uploaded along: the run resumes from an older or a torn checkpoint",
    check=check,
    on_runtime=Severity.WARN,
    when=ODD_CLAIMS,
)
