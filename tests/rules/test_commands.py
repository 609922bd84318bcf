"""A command in a fix, or in a remark of one, is pasted into a shell: names in it are words there and nothing else."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.rules.cases import case_files, each_case, run_documents
from webhook.cluster.files import load_text

EVIL = ";touch x"
NAMED = re.compile(r"\b(namespace|claimName|volumeName|storageClassName): ([a-z0-9][a-z0-9.-]*)(?=[\s,}])")
COMMAND = re.compile(r"\b(kubectl|ckptguard) [a-z].*")
CASES = [path for path in case_files() if not path.name.startswith("allow")]


def with_evil_names(text: str) -> str:
    """The case with names that a shell would act on: of namespaces, claims, volumes, classes and TrainJobs."""
    names = {name for _, name in NAMED.findall(text)}
    names |= set(re.findall(r"kind: TrainJob\nmetadata:\n  name: ([a-z0-9.-]+)", text))
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(: |/){re.escape(name)}(?=[\s,}}])", rf'\g<1>"{name}{EVIL}"', text)
    return text.replace('/"', "/")


@each_case(CASES)
def test_a_name_in_a_command_is_one_word(path: Path) -> None:
    loaded = load_text(with_evil_names(path.read_text()).encode(), "case")
    found, _ = run_documents(path, loaded.documents, every=True)
    for _, finding in found:
        for line in (*finding.fix.split("\n"), *(str(finding.counted[1]).split("\n") if finding.counted else ())):
            for command in COMMAND.finditer(line):
                if EVIL in command[0]:
                    bare = re.sub(r"'[^']*'", "", command[0])
                    assert EVIL not in bare, (finding.rule, line)
                    assert any(EVIL in word for word in shlex.split(command[0], comments=True)), line
