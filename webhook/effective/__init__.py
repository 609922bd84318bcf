"""TrainJob + runtime -> the pods that Trainer and JobSet build, and the checkpoint directories in them."""

from webhook.effective.build import build_trainer_pods
from webhook.effective.checkpoint import find_checkpoints

__all__ = ["build_trainer_pods", "find_checkpoints"]
