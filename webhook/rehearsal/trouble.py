"""Lines by which a program says that it cannot run here at all: that is no verdict on it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_GPU: Final = re.compile(
    r"no cuda gpus are available|not compiled with cuda|found no nvidia driver|no hip gpus|libcuda\.so"
    r"|cuda(?: driver)? (?:error|initialization|is not available|unavailable|not available)"
    r"|torch\.cuda\.is_available\(\) is false|nvidia-smi.*(?:not found|failed)"
    r"|no (?:gpu|accelerator|cuda device)s?\b.*(?:found|available|detected|visible)"
    r"|(?:requires?|needs?) (?:a |at least one )?(?:cuda|gpu)|unable to initialize backend 'cuda'"
    r"|(?:nccl|cudnn)\b.*(?:not|no) (?:found|available|gpu)",
    re.IGNORECASE,
)
_FULL: Final = re.compile(r"no space left on device|disk quota exceeded|errno 28\b|errno 122\b", re.IGNORECASE)


def known_trouble(
    lines: Sequence[str], full: str = "the disk is full: set TMPDIR to a place with more room"
) -> tuple[str, ...]:
    """What the last of such lines means, and the line; nothing where there is none. ``full``: what to say of a disk."""
    for line in reversed(lines):
        if _GPU.search(line):
            return "it needs a GPU, and there is none: rehearse it in the cluster, where there are some", line
        if _FULL.search(line):
            return full, line
    return ()
