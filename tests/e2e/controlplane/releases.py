"""The versions that the end-to-end tests run against: which JobSet belongs to which Trainer."""

import os
from dataclasses import dataclass

KUBERNETES = "1.36.3"
ETCD = "3.7.3"
KUEUE = os.environ.get("E2E_KUEUE") or "0.17.0"
"""`0.19.2` is the other one that is pinned: `make e2e-full` tries it too."""
COREDNS = "1.15.0"


@dataclass(frozen=True)
class Release:
    """One Trainer release with the JobSet that its go.mod names."""

    trainer: str
    jobset: str
    runs_with_kueue: bool

    @property
    def minor(self) -> str:
        """`2.3` of `2.3.0`."""
        return self.trainer.rpartition(".")[0]


# Kueue writes whole typed objects of Trainer 2.2: on 2.0 and 2.1 its own entry is pruned and no run ever starts.
RELEASES: dict[str, Release] = {
    release.trainer: release
    for release in (
        Release("2.3.0", "0.12.0", runs_with_kueue=True),
        Release("2.2.1", "0.11.1", runs_with_kueue=True),
        Release("2.1.0", "0.10.1", runs_with_kueue=False),
        Release("2.0.1", "0.8.2", runs_with_kueue=False),
    )
}
NEWEST = "2.3.0"
