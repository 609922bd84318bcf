"""``ckptguard completion``: what a shell really offers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from webhook.cli import COMMANDS, main
from webhook.cli.completion import SHELLS, commands

CASES = [
    ("ckptguard re", {"rehearse", "rescue", "review", "resume"}),
    ("ckptguard review --fail-o", {"--fail-on"}),
    ("ckptguard review --fail-on ", {"deny", "warn", "not-judged"}),
    ("ckptguard review -o s", {"sarif"}),
    ("ckptguard rules ephem", {"ephemeral-checkpoint"}),
    ("ckptguard completion ", set(SHELLS)),
    ("ckptguard certs ", {"run", "once", "check"}),
    ("ckptguard certs run --leas", {"--lease"}),
    ("ckptguard help dri", {"drill"}),
    ("ckptguard init --framework xg", {"xgboost"}),
    ("ckptguard review --trainer 2.1", {"2.1"}),
    ("ckptguard nonsense ", set()),
]


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_every_command_and_every_flag_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    texts = {shell: script(shell, capsys) for shell in SHELLS}
    made = list(commands())
    assert {one.path[0] for one in made} >= set(COMMANDS)
    for one in made:
        for flag in one.flags:
            for name in flag.names:
                assert name in texts["bash"]
                assert name in texts["zsh"]
                assert (f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}") in texts["fish"]


def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    lines = [script("bash", capsys)]
    for typed, _ in CASES:
        words = " ".join(f"'{word}'" for word in typed.split(" "))
        lines += [f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))", "COMPREPLY=(); _ckptguard"]
        lines.append('echo "${COMPREPLY[*]}"')
    (tmp_path / "out.json").touch()
    # bash takes = for a word of its own.
    lines += ["COMP_WORDS=(ckptguard review -o json = out); COMP_CWORD=5; COMPREPLY=(); _ckptguard"]
    lines += ['echo "${COMPREPLY[*]}"']
    done = subprocess.run([bash, "-c", "\n".join(lines)], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    answers = done.stdout.splitlines()
    assert [set(answer.split()) for answer in answers[:-1]] == [offered for _, offered in CASES], done.stderr
    assert answers[-1] == "out.json"


def test_fish_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("no fish here")
    lines = [script("fish", capsys)]
    for typed, _ in CASES:
        lines.append(f"echo -- (complete -C '{typed}' | string split -f1 \\t)")
    home = {"HOME": str(tmp_path), "PATH": str(Path(fish).parent)}
    done = subprocess.run(
        [fish, "--no-config", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=home,
        timeout=60,
    )
    assert [set(answer.split()) - {"--"} for answer in done.stdout.splitlines()] == [offered for _, offered in CASES]


def test_zsh_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("no zsh here")
    file = tmp_path / "_ckptguard"
    file.write_text(script("zsh", capsys))
    use = f"autoload -Uz compinit; compinit -u -d {tmp_path}/dump; source {file}; print $_comps[ckptguard]"
    done = subprocess.run([zsh, "-f", "-c", use], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("_ckptguard\n", "")


def test_a_shell_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["completion", "tcsh"])
    assert left.value.code == 2
    assert "bash" in capsys.readouterr().err


def test_the_reader_may_leave(tmp_path: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m webhook completion bash | head -1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
