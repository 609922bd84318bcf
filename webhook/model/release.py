"""The releases of Kubeflow Trainer v2 whose behaviour is known, and which override field each serves."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Release(Enum):
    """A minor release of Kubeflow Trainer; the value is what ``--trainer`` takes."""

    V2_0 = "2.0"
    V2_1 = "2.1"
    V2_2 = "2.2"
    V2_3 = "2.3"
    V2_4 = "2.4"

    __hash__ = object.__hash__  # Enum's is Python code, and whatever is kept is found by the release

    @property
    def override_field(self) -> str:
        """The field under ``spec`` of a TrainJob that changes pods in this release."""
        return _OVERRIDE_FIELD[self._value_]  # half the price of .value, and every rule asks

    def at_least(self, other: Release) -> bool:
        """Whether this release is ``other`` or newer."""
        return self._value_ >= other._value_


_OVERRIDE_FIELD: Final = {
    "2.0": "podSpecOverrides",
    "2.1": "podTemplateOverrides",
    "2.2": "runtimePatches",
    "2.3": "runtimePatches",
    "2.4": "runtimePatches",
}
OVERRIDE_FIELDS: Final = ("podSpecOverrides", "podTemplateOverrides", "runtimePatches")
NEWEST: Final = Release.V2_4


def parse_release(text: str) -> Release:
    """``2.3``, ``2.3.0`` or ``v2.3.0`` -> Release. Raises ValueError, which names the known releases."""
    number = text.strip().removeprefix("v")
    parts = number.split(".")
    if 2 <= len(parts) <= 3 and all(part.isdecimal() for part in parts):
        for release in Release:
            if release.value == ".".join(parts[:2]):
                return release
    raise ValueError(f'unknown Trainer release "{text}": known are {", ".join(r.value for r in Release)}')


def infer_release(spec: object) -> Release:
    """The release whose override field a TrainJob's ``spec`` uses; the newest where it uses none."""
    if isinstance(spec, dict) and "runtimePatches" not in spec:
        if "podTemplateOverrides" in spec:
            return Release.V2_1
        if "podSpecOverrides" in spec:
            return Release.V2_0
    return NEWEST
