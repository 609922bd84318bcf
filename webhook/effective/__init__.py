"""TrainJob + runtime -> the pods that Trainer and JobSet build, and the checkpoint directories in them."""

from webhook.effective.build import build_trainer_pods
from webhook.effective.checkpoint import find_checkpoints
from webhook.effective.launch import environment_of, launches_of

__all__ = ["build_trainer_pods", "environment_of", "find_checkpoints", "launches_of"]
