"""A rule: an id, a severity, a reason, and a pure check."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from webhook.model.finding import Finding, Severity
from webhook.model.script import Look
from webhook.model.subject import Subject


class Rule(Struct, frozen=True):
    """One bad pattern.

    ``id`` is the name of the file, the fixture folder and the metric label. ``why`` says what is lost at resume.
    ``check`` yields nothing for an object that is right. ``on_runtime`` is the most that a finding on a runtime alone
    may weigh; None means that the rule does not look at a runtime alone. ``reads_program`` says that all it has to say
    are its remarks on ``subject.programs``: where it had none on the same programs before, it is not asked again.
    """

    id: str
    severity: Severity
    why: str
    check: Callable[[Subject], Iterator[Finding]]
    on_runtime: Severity | None = None
    reads_program: bool = False
    when: int = 0
    """The sign (``webhook.model.sign``) without which the rule has nothing to say; 0: it is always asked."""
    reads_pods_only: bool = False
    """It looks at nothing but the spec, the runtime, the release and the pods that come of them (not at the cluster,
    the policy, the rest of the request): where it was silent on the same ones before, it is not asked again."""


class ProgramRule(Struct, frozen=True):
    """One bad pattern in a training program, as its file has it.

    ``look`` gets one program and yields remarks; it knows no object, cluster or policy. The other fields are as in
    ``Rule``.
    """

    id: str
    severity: Severity
    why: str
    look: Look
    on_runtime: Severity
