"""Who asks, as far as TLS tells, and so how much an answer says."""

from __future__ import annotations

from enum import Enum


class Caller(Enum):
    """By the client certificate of the connection."""

    ANYBODY = "anybody"
    """No certificate is asked for: whoever reaches the port. Objects of others are counted and not named."""
    KNOWN = "known"
    """The API server's certificate was shown: the answer says all."""
    STRANGER = "stranger"
    """A certificate is asked for and none, or another one, was shown: verdict and rule ids alone."""
