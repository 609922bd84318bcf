"""TrainJob + runtime -> the pods that Trainer and JobSet build, and the checkpoint directories in them."""

from webhook.effective.build import build_trainer_pods
from webhook.effective.checkpoint import UNJUDGED, infer, judge_checkpoints, locate_checkpoints
from webhook.effective.kept import Built, build
from webhook.effective.launch import launches_of
from webhook.effective.mounted import InReach, Maps, Mounted, mounted_files

__all__ = [
    "UNJUDGED",
    "Built",
    "InReach",
    "Maps",
    "Mounted",
    "build",
    "build_trainer_pods",
    "infer",
    "judge_checkpoints",
    "launches_of",
    "locate_checkpoints",
    "mounted_files",
]
