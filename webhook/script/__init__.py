"""The text of the training program, read as facts. It is parsed and never run.

``find_programs`` gives the legible programs of an ``EffectiveSet``; ``program_findings`` turns what a rule says of them
into findings, cached. ``Script`` is what a rule and a framework see.
"""

from webhook.script.cache import find_directory, find_programs, program_findings
from webhook.script.program import Invocation, Script
from webhook.script.python import Call, Python
from webhook.script.values import UNKNOWN, Text, Unknown, Value

__all__ = [
    "UNKNOWN",
    "Call",
    "Invocation",
    "Python",
    "Script",
    "Text",
    "Unknown",
    "Value",
    "find_directory",
    "find_programs",
    "program_findings",
]
