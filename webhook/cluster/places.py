"""Where in a text a value stands, and the steps that lead to it."""

from __future__ import annotations

from msgspec import Struct

Step = str | int


class Place(Struct):
    """The line of a value (of its key, where it stands under one), and the places of what it holds.

    ``text`` is the line of the file on which a block scalar's first line stands, 0 for any other value.
    """

    line: int
    children: dict[Step, Place] = {}
    text: int = 0

    def find(self, steps: list[Step], line: int = 0) -> int:
        """The line of the value at ``steps``, or of the nearest value around it that was written.

        With ``line`` that line of the value's own text, counted from 1, where the text stands in the file as it is.
        """
        place = self
        for step in steps:
            child = place.children.get(step)
            if child is None:
                break
            place = child
        else:
            if line and place.text:
                return place.text + line - 1
        return place.line


def steps_of(field: str) -> list[Step]:
    """``spec.env[0].name`` -> ``["spec", "env", 0, "name"]``; ``labels[a.b/c]`` and ``labels.a`` both name a key."""
    steps: list[Step] = []
    rest = field
    while rest:
        if rest[0] == "[":
            inside, _, rest = rest[1:].partition("]")
            steps.append(int(inside) if inside.isascii() and inside.isdigit() else inside.strip("\"'"))
            rest = rest.removeprefix(".")
            continue
        ends = [at for at in (rest.find("."), rest.find("[")) if at >= 0]
        end = min(ends, default=len(rest))
        if end:
            steps.append(rest[:end])
        rest = rest[end:].removeprefix(".")
    return steps


def field_of(steps: list[Step]) -> str:
    """The reverse of ``steps_of``, as Kubernetes writes a field path."""
    field = ""
    for step in steps:
        if isinstance(step, int) or not step or not all(c.isalnum() or c in "-_" for c in step) or step.isdigit():
            field += f"[{step}]"
        else:
            field += f".{step}" if field else step
    return field
