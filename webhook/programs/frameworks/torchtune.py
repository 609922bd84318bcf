"""torchtune.

Read in torchtune 0.6.1: ``recipes/*.py`` (checkpoints are written at the end of an epoch; ``resume_from_checkpoint`` is
false in every configuration that is shipped), ``training/checkpointing/_utils.py`` (resuming reads ``recipe_state.pt``
under ``output_dir`` and raises where there is none) and ``_checkpoint_client.py``. ``tune run [torchrun's flags] RECIPE
--config NAME|FILE key=value``. Nothing is deleted and no setting limits the copies.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.programs import UNKNOWN, Invocation, Script
from webhook.programs.arguments import hides_flags
from webhook.programs.corrected import looked_for
from webhook.programs.frameworks.framework import Framework, Setting, Use, options, turned
from webhook.programs.pasted import quoted
from webhook.programs.values import is_true, tail


def uses(script: Script) -> Iterator[Use]:
    for invocation in script.invocations:
        if invocation.tool == "tune" and invocation.arguments[:1] == ("run",):
            yield _use(script, invocation)


def _use(script: Script, invocation: Invocation) -> Use:
    given = options(script, invocation, "config")
    config = invocation.flag("config")
    if config is not None and given.whole_file is None and not tail(config.value).endswith((".yaml", ".yml")):
        # One of those that come with it: its own keys are known.
        given.partial = hides_flags(invocation.arguments)
    resume = given.setting("resume_from_checkpoint", default=False)
    truth = is_true(resume.value)
    directory = given.setting("output_dir", default=UNKNOWN)
    adapters = given.setting("save_adapter_weights_only", default=False)
    return Use(
        FRAMEWORK,
        invocation.place,
        invocation=invocation,
        partial=given.partial,
        directory=directory,
        resume_fix=_asked(script, invocation, directory),
        resume=turned(resume, UNKNOWN if truth is None else True if truth else None),
        full=turned(adapters, UNKNOWN),
    )


def _asked(script: Script, invocation: Invocation, directory: Setting) -> str:
    """It fails where there is nothing to resume from, so the shell looks first."""
    if not isinstance(directory.value, str) or not directory.value:
        return ""
    state = quoted(f"{directory.value.rstrip('/')}/recipe_state")
    before = f"resume=False\nif [ -d {state} ]; then resume=True; fi"
    return looked_for(script, invocation, before, "resume_from_checkpoint=$resume")


FRAMEWORK = Framework(
    id="torchtune",
    title="torchtune",
    release="torchtune 0.6.1",
    recognised="tune run RECIPE --config ...",
    saves="output_dir, at the end of every epoch",
    resumes="resume_from_checkpoint=True; fails where there is none",
    keeps="all",
    sigterm="not heard",
    ranks="the first process writes; all with enable_async_checkpointing",
    uses=uses,
    loads_directory=True,
    resume_fix="resume_from_checkpoint=True",
)
