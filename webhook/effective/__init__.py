"""TrainJob + runtime -> the pods that Trainer and JobSet build, and the checkpoint directories in them."""

from webhook.effective.build import build_trainer_pods
from webhook.effective.checkpoint import UNJUDGED, find_checkpoints, infer, judge_checkpoints
from webhook.effective.kept import Built, build
from webhook.effective.launch import environment_of, launches_of

__all__ = [
    "UNJUDGED",
    "Built",
    "build",
    "build_trainer_pods",
    "environment_of",
    "find_checkpoints",
    "infer",
    "judge_checkpoints",
    "launches_of",
]
