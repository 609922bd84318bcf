"""Names by which a command is known: shells, wrappers, launchers, tools."""

from __future__ import annotations

import re
from typing import Final

from webhook.model.caches import kept_texts

LONGEST: Final = 32768
"""Characters of one item of command or args that is read."""
SHELLS: Final = frozenset(("bash", "sh", "dash", "ash", "zsh", "ksh"))
WRAPPERS: Final = frozenset(
    ("exec", "nohup", "time", "env", "nice", "ionice", "stdbuf", "timeout", "numactl", "sudo", "command", "setsid")
)
INITS: Final = frozenset(("tini", "dumb-init", "catatonit", "tini-static", "s6-svscan", "supervisord"))
LAUNCHERS: Final = frozenset(
    ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "horovodrun", "msrun")
)
TOOLS: Final = frozenset(
    (
        "llamafactory-cli",
        "llamafactory",
        "tune",
        "trl",
        "axolotl",
        "litgpt",
        "swift",
        "megatron",
        "xtuner",
        "composer",
        "lightning",
        "fabric",
        "autotrain",
        "oumi",
        "nemo",
        "fairseq-train",
        "fairseq-hydra-train",
        "onmt_train",
        "sockeye-train",
        "nnUNetv2_train",
    )
)
"""Commands that train by themselves, by name."""


_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@kept_texts(128)
def words_in(name: str) -> tuple[str, ...]:
    """The words of a name, in small letters: ``load_state_dict``, ``DataLoader``, ``train-v2.py``."""
    return tuple(word.lower() for word in _WORD.findall(name[:256]))


NO_RUN: Final = frozenset(
    (
        *(
            "data",
            "dataset",
            "datasets",
            "dataloader",
            "dataloaders",
            "loader",
            "loaders",
            "sampler",
            "batch",
            "batches",
        ),
        *(
            "image",
            "images",
            "img",
            "audio",
            "video",
            "text",
            "texts",
            "corpus",
            "csv",
            "json",
            "jsonl",
            "yaml",
            "toml",
        ),
        *("tokenizer", "vocab", "vocabulary", "processor", "config", "configs", "cfg", "dotenv", "env", "metric"),
        *("metrics", "label", "labels", "prompt", "prompts", "example", "examples", "transform", "transforms"),
        *("feature", "features", "split", "splits", "rows", "table", "parquet", "args", "arguments", "lang"),
    )
)
"""Words of what is read or made by a name that says nothing of a checkpoint: ``load_data``, ``TrainDataset``."""
