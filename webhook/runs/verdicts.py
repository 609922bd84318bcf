"""What the first lines of a new pod say: resumed, and from where, or started afresh.

The patterns are the frameworks' own lines (read in their sources), the guide's and RunWhere's.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct


class LogVerdict(Struct, frozen=True):
    """``resumed`` with the step where a line names it, or not resumed; ``line`` is the line that says so."""

    resumed: bool
    step: int | None
    line: str


_STEP: Final = r"(?P<step>\d+)"
_RESUMED: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # Hugging Face Trainer (logs the step by itself), LLaMA-Factory, axolotl and TRL on top of it.
        rf"continuing training from global step {_STEP}",
        # Megatron-LM.
        rf"successfully loaded checkpoint from .* at iteration {_STEP}",
        # Plain programs: RunWhere's own line, and its relatives.
        rf"resum\w* (?:training )?(?:from|at) (?:global )?(?:step|iteration|iter)[ :=#]*{_STEP}",
        rf"(?:resum|restor)\w* .*(?:(?:step|iter|iteration|checkpoint|ckpt)[-_=:/ ]*|model[-_])0*{_STEP}(?:[^\db]|$)",
        # An epoch or a round is no step to compare with.
        r"resum\w* (?:training )?(?:from|at) (?:epoch|round)[ :=#]*\d+",
        rf"\bload\w* .*(?:(?:step|iter|iteration)[-_=]?|(?:checkpoint|ckpt)[-_])0*{_STEP}(?:\D|$)",
        # The guide's line; the step is the last number of the path.
        r"resum\w* (?:training )?from (?:checkpoint )?(?!none\b|null\b|false\b|scratch\b)(?P<path>\S*[/\d]\S*)",
        # Lightning, Accelerate, DeepSpeed, Orbax: a path.
        r"restor(?:ing|ed) (?:all )?states from (?:the )?checkpoint (?:path )?(?:at )?(?P<path>\S+)",
        r"loading states from (?P<path>\S+)",
        r"restoring (?:checkpoint|item) from (?P<path>\S+)",
        r"\bloading checkpoint (?:shards )?from (?P<path>/\S+)",
    )
)
_AFRESH: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"no (?:prior |previous |valid |existing )?checkpoints? (?:was |were )?(?:found|exist|to resume)",
        r"no (?:prior |previous |valid |existing )?checkpoint\b[,;:]",
        r"could not find (?:the )?(?:metadata|checkpoint)",
        r"(?:start|train|begin)\w* (?:\w+ )?(?:fresh|afresh|anew|from scratch)\b",
        r"(?:start|begin|resum)\w* (?:training )?(?:from|at) (?:step|iteration|epoch) 0(?:\D|$)",
        r"will not load any checkpoints and will start from random",
    )
)
_LOADED: Final = re.compile(r"\bload\w* ", re.IGNORECASE)
_PATH: Final = re.compile(r"(?<![\w.:/])/[^\s'\",;]+")
_NO_WORD: Final = re.compile(
    # An attempt that came to nothing, as far as the line tells.
    r"\b(?:could ?n[o']t|cannot|can't|unable|not (?:found|exist|available)|corrupt\w*|truncated|skipp\w*)\b"
    r"|\bfailed (?:to|loading|restoring|resuming|with)\b|(?:load|restor|resum)\w*(?: \S+){0,3} failed"
    # A tracker goes on with its own record of the run, whatever the program does.
    r"|^\W*wandb\b|\bhttps?://"
    # What a start from nothing loads, too.
    r"|\bload\w* (?:the )?(?:data\w*|base|pre-?trained|tokenizer|extension)\b",
    re.IGNORECASE,
)
_LONGEST: Final = 400


def read_log(text: str, directory: str | None = None) -> LogVerdict | None:
    """The first line that settles it; None where none does.

    ``directory`` is the run's own: what is loaded from a path elsewhere, such as the model to start from, settles
    nothing.
    """
    for line in text.splitlines():
        line = line.strip()
        if not line or len(line) > 4000:
            continue
        if any(pattern.search(line) for pattern in _AFRESH):
            return LogVerdict(False, None, line[:_LONGEST])
        if _NO_WORD.search(line) or (directory is not None and _is_elsewhere(line, directory)):
            continue
        for pattern in _RESUMED:
            match = pattern.search(line)
            if match is not None:
                return LogVerdict(True, _step(match), line[:_LONGEST])
    return None


def _is_elsewhere(line: str, directory: str) -> bool:
    paths = _PATH.findall(line) if _LOADED.search(line) else []
    return bool(paths) and not any(path.startswith(directory) for path in paths)


def _step(match: re.Match[str]) -> int | None:
    groups = match.groupdict()
    if groups.get("step") is not None:
        return int(groups["step"])
    name = (groups.get("path") or "").rstrip("/.,:;)'\"").rpartition("/")[2]
    numbers = re.findall(r"\d+", name)
    return int(numbers[-1]) if numbers and len(numbers[-1]) < 15 else None
