"""Names by which a command is known: shells, wrappers, launchers, tools."""

from __future__ import annotations

from typing import Final

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
