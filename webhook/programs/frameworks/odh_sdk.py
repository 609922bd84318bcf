"""The SDK of Open Data Hub and OpenShift AI (``TransformersTrainer``).

Read in opendatahub-io/kubeflow-sdk v0.4.1+rhaiv.0, ``trainer/rhai/transformers.py`` and
``instrumentation/transformers_checkpoint.py``: the code that it puts before the program holds ``checkpoint_config`` and
patches the Hugging Face Trainer: ``output_dir`` (``pvc://CLAIM/PATH`` is mounted at ``/mnt/kubeflow-checkpoints``,
``s3://`` is uploaded to from there), ``save_strategy``, ``save_steps``, ``save_total_limit``; ``train()`` resumes from
the newest complete checkpoint by itself, and SIGTERM saves (``enable_jit``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.programs import UNKNOWN, Call, Python, Script, Value
from webhook.programs.frameworks.framework import Framework, Setting, Use
from webhook.programs.values import is_true

MARK: Final = "_create_checkpoint_instrumentation"


def is_patched(python: Python) -> bool:
    """Whether the SDK has put its code before the program: the Trainer then resumes by itself."""
    return any(True for _ in python.calls(MARK))


def uses(script: Script) -> Iterator[Use]:
    for python in script.pythons:
        for call in python.calls(MARK):
            yield _use(python, call)


def _use(python: Python, call: Call) -> Use:
    node = call.node.args[0] if call.node.args else None
    config = python.value(node, call.around) if node is not None else UNKNOWN
    known = config if isinstance(config, dict) else None

    def setting(name: str, default: Value) -> Setting:
        value = UNKNOWN if known is None else known.get(name, default)
        return Setting(name, value, python.at(call), given=known is not None and name in known)

    jit = setting("enable_jit", False)
    flushes = is_true(jit.value)
    store = setting("cloud_remote_storage_uri", None)
    directory = store if isinstance(store.value, str) else setting("output_dir", UNKNOWN)
    return Use(
        FRAMEWORK,
        python.at(call),
        python,
        call,
        partial=known is None,
        directory=directory,
        resume=Setting("train", UNKNOWN, python.at(call), given=False),
        keep=setting("save_total_limit", UNKNOWN),
        every=setting("save_steps", UNKNOWN),
        flushes=Setting("enable_jit", UNKNOWN if flushes is None else flushes, python.at(call)),
    )


FRAMEWORK = Framework(
    id="odh-sdk",
    title="Open Data Hub SDK",
    release="kubeflow-sdk v0.4.1+rhaiv.0",
    recognised="the checkpoint code that TransformersTrainer puts before the program",
    saves="output_dir=pvc://CLAIM/PATH or s3://BUCKET/PATH, every save_steps",
    resumes="by itself",
    keeps="PeriodicCheckpointConfig(save_total_limit=...)",
    sigterm="saves (enable_jit_checkpoint)",
    ranks="the first process writes",
    uses=uses,
    remote=("s3", "pvc"),
    resumes_if_any=True,
    resumes_by_itself=True,
    flushes=True,
    keep_fix="save_total_limit=3",
    every_fix="save_steps=500",
)
