"""The frameworks, in the order of the table: an explicit tuple, so that one is in it or it is nowhere.

One module = one framework: a ``FRAMEWORK`` (its row, and ``uses`` that finds it in a script). Facts come from the
released source that its docstring names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.model.addresses import ADDRESSES, as_path, scheme_of
from webhook.model.script import Place, Written
from webhook.programs import Script
from webhook.programs.flow import in_loop
from webhook.programs.frameworks.accelerate import FRAMEWORK as ACCELERATE
from webhook.programs.frameworks.axolotl import FRAMEWORK as AXOLOTL
from webhook.programs.frameworks.composer import FRAMEWORK as COMPOSER
from webhook.programs.frameworks.dcp import FRAMEWORK as DCP
from webhook.programs.frameworks.deepspeed import FRAMEWORK as DEEPSPEED
from webhook.programs.frameworks.dlrover import FRAMEWORK as DLROVER
from webhook.programs.frameworks.easylm import FRAMEWORK as EASYLM
from webhook.programs.frameworks.framework import Framework, Setting, Use, mended, told
from webhook.programs.frameworks.hf_trainer import FRAMEWORK as HF_TRAINER
from webhook.programs.frameworks.keras import FRAMEWORK as KERAS
from webhook.programs.frameworks.lightgbm import FRAMEWORK as LIGHTGBM
from webhook.programs.frameworks.lightning import FRAMEWORK as LIGHTNING
from webhook.programs.frameworks.litgpt import FRAMEWORK as LITGPT
from webhook.programs.frameworks.llamafactory import FRAMEWORK as LLAMAFACTORY
from webhook.programs.frameworks.megatron import FRAMEWORK as MEGATRON
from webhook.programs.frameworks.nemo import FRAMEWORK as NEMO
from webhook.programs.frameworks.nvrx import FRAMEWORK as NVRX
from webhook.programs.frameworks.odh_sdk import FRAMEWORK as ODH_SDK
from webhook.programs.frameworks.open_clip import FRAMEWORK as OPEN_CLIP
from webhook.programs.frameworks.openrlhf import FRAMEWORK as OPENRLHF
from webhook.programs.frameworks.orbax import FRAMEWORK as ORBAX
from webhook.programs.frameworks.pytorch import FRAMEWORK as PYTORCH
from webhook.programs.frameworks.ray_train import FRAMEWORK as RAY_TRAIN
from webhook.programs.frameworks.sb3 import FRAMEWORK as SB3
from webhook.programs.frameworks.torchft import FRAMEWORK as TORCHFT
from webhook.programs.frameworks.torchtune import FRAMEWORK as TORCHTUNE
from webhook.programs.frameworks.training_hub import FRAMEWORK as TRAINING_HUB
from webhook.programs.frameworks.verl import FRAMEWORK as VERL
from webhook.programs.frameworks.xgboost import FRAMEWORK as XGBOOST
from webhook.programs.line import Flag
from webhook.programs.names import LOCAL, saves
from webhook.programs.values import head

FRAMEWORKS: Final[tuple[Framework, ...]] = (
    HF_TRAINER,
    LLAMAFACTORY,
    TRAINING_HUB,
    MEGATRON,
    DEEPSPEED,
    DCP,
    PYTORCH,
    LIGHTNING,
    ACCELERATE,
    TORCHTUNE,
    AXOLOTL,
    VERL,
    ORBAX,
    XGBOOST,
    LITGPT,
    COMPOSER,
    NEMO,
    RAY_TRAIN,
    OPENRLHF,
    OPEN_CLIP,
    EASYLM,
    SB3,
    KERAS,
    LIGHTGBM,
    TORCHFT,
    NVRX,
    DLROVER,
    ODH_SDK,
)

__all__ = [
    "FRAMEWORKS",
    "Framework",
    "Setting",
    "Use",
    "directory_of",
    "find_calls",
    "find_uses",
    "mended",
    "told",
    "unseen_directories",
]


_DIRECTORY_FLAGS: Final = ("output_dir", "save_dir", "checkpoint_dir", "ckpt_dir", "default_root_dir")
"""Flags by which programs that train call the directory of their checkpoints, whatever framework they use."""


def directory_of(script: Script) -> Written | None:
    """The directory that the program writes its checkpoints to, where its text names one whole, or an address."""
    for use in find_uses(script):
        setting = use.directory
        if setting is None or not setting.given or (use.saves is not None and use.saves.value is False):
            continue
        if not isinstance(setting.value, str):
            continue
        if scheme_of(setting.value) in ADDRESSES:
            writes = use.framework.writes_to(setting.value)
            return _address(
                script,
                setting.value,
                setting.name,
                setting.place,
                "" if writes else use.framework.title.partition(",")[0],
            )
        value = script.placed(setting.value)
        if isinstance(value, str) and (value.startswith("/") or _is_in_container(script, value)):
            return Written(value, setting.name, setting.place)
    for flag in unseen_directories(script):
        value = script.placed(flag.value)
        if isinstance(value, str) and value.startswith("/"):
            return Written(value, flag.name, flag.place)
    for save in saves(script):
        directory = head(script.placed(save.value)).rpartition("/")[0]
        if not save.numbered or not in_loop(save.python, save.call):
            continue
        if directory.startswith("/"):
            return Written(directory, save.function, save.python.at(save.call))
        if scheme_of(directory) in ADDRESSES and save.function in LOCAL:
            local = save.function if save.opener in ("", "open", "io.open") else ""
            return _address(script, directory, save.function, save.python.at(save.call), local)
    return None


def _address(script: Script, address: str, name: str, place: Place, local: str) -> Written:
    """An address as it is, or the directory of the pod that it is for ``local``, where that is known."""
    path = script.placed(as_path(address)) if local else address
    known = isinstance(path, str) and path.startswith("/")
    return Written(path if known else address, name, place, local)


def unseen_directories(script: Script) -> Iterator[Flag]:
    """What flags of programs whose text is not seen call their directory, as every parser of a trainer has them."""
    for invocation in script.invocations:
        if invocation.python is None and not invocation.tool:
            found = invocation.flag(*_DIRECTORY_FLAGS)
            if found is not None and isinstance(found.value, str):
                yield found


def _is_in_container(script: Script, path: str) -> bool:
    """Whether a relative directory lies in the container wherever its image starts: nothing is mounted there."""
    relative = bool(path) and not path.startswith(("~", "/", "../")) and "://" not in path
    return relative and not script.launch.mounts and not script.launch.alone and not script.launch.working_dir


def find_uses(script: Script) -> tuple[Use, ...]:
    """Every use of a framework with settings of its own in the script, in the order of the table; found once."""
    return _find(script)[0]


def find_calls(script: Script) -> tuple[Use, ...]:
    """The same for those that a loop of the program's own calls: plain PyTorch, DeepSpeed and the like."""
    return _find(script)[1]


def _find(script: Script) -> tuple[tuple[Use, ...], tuple[Use, ...]]:
    found: tuple[tuple[Use, ...], tuple[Use, ...]] | None = script.memo.get("uses")
    if found is None:
        every = [use for framework in FRAMEWORKS for use in framework.uses(script)]
        found = (
            tuple(use for use in every if not use.framework.by_hand),
            tuple(use for use in every if use.framework.by_hand),
        )
        script.memo["uses"] = found
    return found
