"""Judges training programs of other people as if each were submitted with a declared directory, and prints a table.

``python -m tests.precision.corpus LIST`` reads lines ``repository<TAB>file<TAB>path`` and prints what our rules about
programs say of each file, with the lines they point at. A fourth column ``as it stands`` leaves its directories alone.
Nothing of the programs is kept: tests/precision/*.csv have repository, file, rules, and whether they were right.

What a program is told on its command line decides where it saves. So that the rules have something to look at, its
``args.output_dir`` and the like stand for the declared directory here, and every path that it saves to or loads from
without one is put below that directory. A program that can run on several processes is judged with two pods of four
processes each.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from webhook.model.rule import Rule
from webhook.model.script import Launch, Remark
from webhook.programs.loads import loads
from webhook.programs.names import saves
from webhook.programs.program import Script
from webhook.programs.reading import read_script
from webhook.rules import RULES

OUT: Final = "/mnt/ckpt/run"
_PLACES: Final = re.compile(
    r"\b(?:self\.)?(?:args|cfg|config|conf|opt|opts|hparams|hps|params|FLAGS|training_args|train_args|options)"
    r"\.(?:output_dir|out_dir|outdir|save_dir|savedir|checkpoint_dir|ckpt_dir|checkpoint_path|ckpt_path|save_path|"
    r"model_dir|model_path|exp_dir|work_dir|log_dir|logdir|save_folder|save_root|checkpoints_dir|output|"
    r"output_path|results_dir|save|checkpoint_folder|snapshot_dir)\b(?!\s*=[^=]|\()"
)
_ROOT: Final = "CKPT_ROOT_"
_KEYWORDS: Final = frozenset(("output_dir", "dirpath", "default_root_dir", "ckpt_output_dir"))
_SPREAD: Final = ("torch.distributed", "accelerate", "deepspeed", "DistributedDataParallel", "horovod", "init_process")


def program_rules() -> tuple[Rule, ...]:
    """The rules that look at a program alone."""
    return tuple(rule for rule in RULES if rule.reads_program)


def script_of(name: str, text: str, as_it_stands: bool = False) -> Script:
    """One Python text as a container runs it."""
    directories = (OUT,)
    name = re.sub(r"[^\w.-]", "_", name)
    if name.endswith(".sh"):
        launch = Launch(directories=directories, mounts=("/mnt/ckpt",), grace=60, working_dir=OUT)
        return read_script(["bash", "-c"], [text], {"CKPT_DIR": OUT}, launch)
    if not as_it_stands:
        text = _PLACES.sub(_ROOT, text) + f'\n{_ROOT} = "{OUT}"\n'
    spread = any(word in text for word in _SPREAD)
    launch = Launch(
        pods=2 if spread else 1,
        processes=4 if spread else 1,
        directories=directories,
        mounts=("/mnt/ckpt",),
        grace=60,
        seconds_per_step=1.0,
        lost_work=1800,
    )
    starter = f"torchrun --nproc_per_node 4 {name}" if spread else f"python {name}"
    shell = f"cat > {name} <<'EOF_OF_IT'\n{text}\nEOF_OF_IT\nexec {starter}\n"
    return read_script(["bash", "-ec"], [shell], {"CKPT_DIR": OUT}, launch)


def moved(script: Script, text: str) -> str:
    """The text with every path that is saved to, or loaded from, below the declared directory."""
    spots: set[tuple[int, int, int]] = set()
    for python in script.pythons:
        wanted = [(save.path, save.call) for save in saves(script) if save.python is python]
        wanted += [(load.path, load.call) for load in loads(script) if load.python is python and load.path is not None]
        wanted += [
            (keyword.value, call)
            for call in python.source.calls
            for keyword in call.node.keywords
            if keyword.arg in _KEYWORDS
        ]
        for node, call in wanted:
            buffer = "BytesIO" in python.text(node) or python.class_of(node, call.around).endswith("IO")
            if node.lineno == node.end_lineno and not buffer and not script.on_volume(python.value(node, call.around)):
                spots.add((node.lineno, node.col_offset, node.end_col_offset or 0))
    lines = text.split("\n")
    for line, start, end in sorted(spots, reverse=True):
        here = lines[line - 1]
        if here.isascii():
            lines[line - 1] = f"{here[:start]}{_ROOT} + '/' + str({here[start:end]}){here[end:]}"
    return "\n".join(lines)


def judge(name: str, text: str, as_it_stands: bool = False) -> tuple[Script, list[tuple[str, Remark]], list[str]]:
    """The script, what every rule says of it, and its lines as they were judged."""
    script = script_of(name, text, as_it_stands)
    if script.pythons and not as_it_stands and not name.endswith(".sh"):
        text = moved(script, _PLACES.sub(_ROOT, text))
        script = script_of(name, text)
    remarks: list[tuple[str, Remark]] = []
    for rule in program_rules():
        look = importlib.import_module("webhook.rules." + rule.id.replace("-", "_")).look
        remarks += [(rule.id, remark) for remark in look(script)]
    return script, remarks, text.split("\n")


def rows(listing: Path) -> Iterator[tuple[str, str, Path, bool]]:
    for line in listing.read_text().splitlines():
        if line and not line.startswith("#"):
            repository, file, path, *rest = line.split("\t")
            yield repository, file, Path(path), rest == ["as it stands"]


def main() -> None:
    count = warned = 0
    for repository, file, path, as_it_stands in rows(Path(sys.argv[1])):
        text = path.read_text(errors="replace")
        script, remarks, lines = judge(path.name, text, as_it_stands)
        count += 1
        warned += bool(remarks)
        print(f"== {repository} {file} {'unread ' + str(script.unread) if script.unread else ''}")
        for rule, remark in remarks:
            at = remark.place.line - 1
            source = lines[at - 1].strip() if 0 < at <= len(lines) else ""
            print(f"   {rule}: {remark.problem}\n      line {at}: {source[:150]}")
    print(f"{count} programs, {warned} with remarks")


if __name__ == "__main__":
    main()
