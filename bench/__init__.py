"""Figures as ratios: Checkpoint Guard against a floor that was measured in the same run. ``python -m bench``."""
