"""Checkpoint Guard: judges and completes Kubeflow TrainJobs so that they come back from where they stopped.

Start reading at ``decision/__init__.py``.
"""

__version__ = "0.1.0"
