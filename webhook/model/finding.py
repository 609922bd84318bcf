"""What a rule reports: a place, a fact, a fix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from webhook.model.excuse import Excuse
from webhook.model.printable import printable


class Severity(Enum):
    """How much a finding counts. Policy may also turn a rule ``off``, which is no severity."""

    DENY = "deny"
    WARN = "warn"
    AUDIT = "audit"


class Origin(Struct, frozen=True):
    """Where the user wrote something: the object and the field to edit.

    ``object`` is ``<Kind>/<name>``; ``Trainer`` or ``JobSet`` alone mean that the controller adds the part by itself.
    ``field`` is a Kubernetes field path (``spec.trainer.env[0]``); ``short`` is the same place for a warning line
    (``runtimePatches[manager] job node volume ckpt``).
    """

    object: str
    field: str
    short: str

    def __str__(self) -> str:
        return f"{self.object} {self.field}".rstrip()


def place_of(at: Origin, own: str) -> str:
    """The bare field path within the object ``own`` (``<Kind>/<name>``), else with its object."""
    return printable(at.field if at.object == own and at.field else f"{at.object} {at.field}".rstrip())


class Measure(Struct, frozen=True):
    """The number that a finding compares with a limit of the policy: under ``floor`` or above ``ceiling`` it is one."""

    value: int
    unit: str
    floor: int | None = None
    ceiling: int | None = None

    @property
    def kept(self) -> bool:
        """Whether the number is within its limit."""
        return (self.floor is None or self.value >= self.floor) and (self.ceiling is None or self.value <= self.ceiling)


Fix = str | Callable[[], str]
"""Text to paste or a command, or what makes it: only the findings that an answer has room for need theirs.

What makes it looks nothing up in the cluster: the view has answered by then.
"""


class Made:
    """A text that is made when it is first asked for. Two are equal where their texts are."""

    __slots__ = ("_make", "_text")

    def __init__(self, make: Callable[[], str]) -> None:
        self._make = make
        self._text: str | None = None

    def __str__(self) -> str:
        if self._text is None:
            try:
                self._text = self._make()
            except Exception:
                # The verdict stands already: a fault in our text must not undo it.
                self._text = "report it with the object to whoever runs checkpoint-guard: the text of this fix failed"
        return self._text

    def __repr__(self) -> str:
        return repr(str(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str | Made) and str(self) == str(other)

    def __hash__(self) -> int:
        return 0  # that of the text would have to make it; findings differ in more than their fix


class Finding(Struct, frozen=True):
    """One fault found by one rule.

    ``problem`` is the fact with object and value, ``fix`` is text to paste or a command (may hold several lines).
    ``at_most`` lowers the rule's severity for this finding (never raises it). ``raised`` replaces it where a contract
    says that this very case weighs more than the rule's default.
    ``job``, ``container`` and ``subject`` are the finding's identity on UPDATE: the same rule, job, container and
    object in the old object means that nothing got worse.
    ``why`` replaces the rule's ``why`` where this case loses something else.
    ``counted`` is problem and fix for a caller who may be anybody: other objects as a number, and how to list them.
    ``private`` holds what the audit log may have and the user's message may not (PV paths, servers, nodes, zones).
    """

    at: Origin
    problem: str
    fix: Fix
    at_most: Severity | None = None
    raised: Severity | None = None
    job: str = ""
    container: str = ""
    subject: str = ""
    why: str | None = None
    private: str = ""
    counted: tuple[str, Fix] | None = None
    concealed: tuple[Origin, str] | None = None
    """The finding tells what stands in a ConfigMap: a place and a ``why`` for answers to who did not send that."""
    required: bool = False
    """The namespace demands what is missing here: a denial whatever severity policy gives the rule (``off`` apart)."""
    measure: Measure | None = None


class Weight(Struct, frozen=True):
    """How a finding came to its severity: enough to weigh it again by another policy.

    ``own`` is the severity without policy's word, ``enforced`` what counts in mode ``enforce``, after exceptions;
    ``most`` is the most that it may weigh whatever policy says, None for no such bound.
    """

    own: Severity
    enforced: Severity
    most: Severity | None = None
    required: bool = False
    excuse: Excuse | None = None
    """The exception that was taken for it."""
    measure: Measure | None = None


class Judged(Struct, frozen=True):
    """A finding with its rule's id and the severity that counts after policy, mode and UPDATE are applied."""

    rule: str
    severity: Severity
    at: Origin
    problem: str
    why: str
    text: str | Made
    job: str = ""
    container: str = ""
    subject: str = ""
    private: str = ""
    counted: tuple[str, str | Made] | None = None
    concealed: tuple[Origin, str] | None = None
    """A place and a ``why`` without anything that stands in a ConfigMap, where the finding tells such things."""
    lines: Any = None
    """The ``webhook.model.script.Lines`` that the fix is, where it is some: what a machine pastes."""
    weight: Weight | None = None
    """How it came to its severity; None where no rule found it."""

    @property
    def fix(self) -> str:
        """Text to paste or a command; made now where a rule left it for those who show it."""
        return str(self.text)


def broken_rule(label: str, short: str, problem: str, why: str, subject: str = "") -> Judged:
    """What is said where a part of ours failed on the object ``label``; ``short`` and ``subject`` name the part.

    ``problem`` may tell the exception's type; its text may hold what the user wrote.
    """
    fix = "report it with the object to whoever runs checkpoint-guard"
    return Judged("broken-rule", Severity.WARN, Origin(label, "", short), problem, why, fix, subject=subject)


def as_set(finding: Judged, rules: Mapping[str, str]) -> tuple[Judged, ...]:
    """A finding that no rule yields, as policy's ``rules`` have its id: nothing where it is off, never a denial."""
    setting = rules.get(finding.rule)
    if setting is None:
        return (finding,)
    if setting == "off":
        return ()
    return (replace(finding, severity=Severity.AUDIT if setting == "audit" else Severity.WARN),)
