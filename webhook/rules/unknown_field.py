"""A field that the CRD does not have: the API server drops it, and what it was to do is not done.

Symptom: kubectl apply says ``unknown field`` once, or nothing where validation is off, and the run has the default.
Fix: the name that was meant, or the place where the field is one.
Bad:
    trainer:
      numNode: 4
Good:
    trainer:
      numNodes: 4
Reads: the object as written against the fields of the release's CRDs, pod templates and overrides included.
Silent when: the object comes from an API server, which has dropped them before it asks; a field is another release's
    override, which unserved-override names; the CRD takes any field there.
Source: the CRDs as released, and ``kubectl apply --validate=strict``, which refuses the same fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from webhook.model.fields import nodes_of_crds, root_of
from webhook.model.finding import Finding, Origin, Severity
from webhook.model.names import RUNTIME_KINDS
from webhook.model.nearest import distance
from webhook.model.override import override_yaml
from webhook.model.paste import below, shown_value, to_yaml
from webhook.model.release import OVERRIDE_FIELDS
from webhook.model.rule import Rule
from webhook.model.sign import FROM_FILE
from webhook.model.subject import Subject

_MOST: Final = 16
"""Fields that are told one by one."""


def check(subject: Subject) -> Iterator[Finding]:
    kind = subject.request.kind
    unknown = subject.unknown_fields()
    for path, name, known, value in islice(unknown, _MOST):
        yield _finding(subject, path, name, known, value)
    more = sum(1 for _ in unknown)
    if more:
        yield Finding(
            Origin(subject.label, "", subject.label),
            f"and {more} more fields that a {kind} does not have",
            f"kubectl apply --dry-run=server --validate=strict -f <file>    # names all {more + _MOST}",
            subject="more",
        )


def _finding(subject: Subject, path: str, name: str, known: tuple[str, ...], value: Any) -> Finding:
    kind, release = subject.request.kind, subject.release.value
    near = _near(name, known)
    where = f"{path}.{name}" if path else name
    shown = repr(name[:64])[1:-1]
    if near:
        hint, fix = f'; "{near}" is one', _pasted(near, value)
    elif elsewhere := _elsewhere(release, kind, name):
        owner, place = elsewhere
        short = place if len(place) <= 40 else f"...{place[-37:]}"
        there = f"{short} of the runtime" if owner != kind else short
        hint, fix = f"; it belongs into {there}", _moved(subject, owner, place, name, value)
    else:
        hint, fix = "", f"# without {shown}"
    return Finding(
        Origin(subject.label, where, where if len(where) <= 60 else "..." + where[-57:]),
        f'"{shown}" is no field here{hint}',
        fix,
        subject=where,
    )


def _moved(subject: Subject, owner: str, place: str, name: str, value: Any) -> str:
    """The field where it belongs: what a pod or a container has goes into an override of the job that trains."""
    job = next((job for job in subject.effective.jobs if job.trains), None) if subject.effective is not None else None
    override = place.startswith(tuple(f"spec.{field}" for field in OVERRIDE_FIELDS))
    if owner == subject.request.kind == "TrainJob" and override and job is not None and _is_plain(name, value):
        container = next((str(one.get("name")) for one in job.training_containers()), "node")
        pod = (
            {"containers": [{"name": container, name: value}]}
            if place.endswith(f"containers[].{name}")
            else {name: value}
        )
        return override_yaml(subject.release, subject.spec, job.name, pod)
    remark = "" if owner == subject.request.kind else f"\n# in the {owner}"
    return _below(place, name, value) + remark


def _pasted(name: str, value: Any) -> str:
    """The field under its right name, with its value where that is short and can be no secret."""
    return to_yaml({name: value if _is_plain(name, value) else "<as it is>"})


def _is_plain(name: str, value: Any, depth: int = 0) -> bool:
    if isinstance(value, dict):
        return len(value) < 8 and depth < 6 and all(_is_plain(str(key), one, depth + 1) for key, one in value.items())
    if isinstance(value, list):
        return len(value) < 8 and depth < 6 and all(_is_plain(name, one, depth + 1) for one in value)
    if not isinstance(value, str):
        return True
    return name != "value" and len(value) <= 40 and shown_value(name, value) == value


def _below(place: str, name: str, value: Any) -> str:
    fields = [part for part in place.split(".") if part]
    return below(_pasted(name, value), *fields[:-1])


def _near(name: str, known: tuple[str, ...]) -> str:
    """The field that was meant: spelled almost so, or otherwise in capitals and dashes."""
    if len(name) > 64:
        return ""
    bare = name.replace("_", "").replace("-", "").lower()
    found = [(distance(name, other), other) for other in known if abs(len(other) - len(name)) < 4]
    found += [(0, other) for other in known if other.lower() == bare]
    most = 1 if len(name) < 5 else 2 if len(name) < 12 else 3
    best = min(found, default=(9, ""))
    return best[1] if best[0] <= most else ""


def _elsewhere(release: str, kind: str, name: str) -> tuple[str, str] | None:
    """The kind and the place nearest to the root where a field is called so: of the kind itself, else of a runtime."""
    for owner in (kind, *RUNTIME_KINDS):
        place = _places(release, owner).get(name)
        if place is not None:
            return owner, place
    return None


@lru_cache(maxsize=16)
def _places(release: str, kind: str) -> dict[str, str]:
    """Each field's name and the shortest path to one of that name, breadth first; ``[]`` marks a list."""
    nodes = nodes_of_crds()
    found: dict[str, str] = {}
    level: list[tuple[int, str]] = [(root_of(release, kind), "")]
    seen: set[int] = set()
    while level:
        deeper: list[tuple[int, str]] = []
        for number, path in level:
            shape = nodes[number]
            if isinstance(shape, list):
                deeper.append((shape[0], f"{path}[]" if len(shape) == 1 else path))
            elif isinstance(shape, dict) and number not in seen:
                seen.add(number)
                for key, one in shape.items():
                    where = f"{path}.{key}" if path else key
                    if not where.startswith("status"):
                        found.setdefault(key, where)
                        deeper.append((one, where))
        level = [entry for entry in deeper if entry[0]]
    return found


RULE = Rule(
    id="unknown-field",
    severity=Severity.WARN,
    why="the API server drops it without asking, so the run is not what its file says",
    check=check,
    on_runtime=Severity.WARN,
    when=FROM_FILE,
)
