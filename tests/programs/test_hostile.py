"""Bad input costs little, raises nothing, and is silent or one audit line."""

from __future__ import annotations

import time

import pytest

from tests.programs.reading import LAUNCH, remarks
from webhook.model.script import Launch, Remark
from webhook.programs import cache
from webhook.programs.reading import read_script

MARK = "\x00"


def bash(text: str) -> tuple[list[str], list[str]]:
    return ["bash", "-ec"], [text]


def heredoc(text: str) -> tuple[list[str], list[str]]:
    return bash(f"python - <<'PY'\n{text}\nPY\n")


CHAIN = "x0 = 'aaaaaaaa'\n" + "\n".join(f"x{i} = x{i - 1} + x{i - 1}" for i in range(1, 60))
SAVES = (
    "import os\nimport torch\nos.remove('a')\nwhole = torch.load(os.environ['NEWEST'])\n"
    "m.load_state_dict(whole['model'])\no.load_state_dict(whole['optimizer'])\n"
    "for step in range(whole['step'], 9):\n    loss.backward()\n"
    "    whole = {'model': m.state_dict(), 'optimizer': o.state_dict(), 'step': step}\n"
    "    torch.save(whole, f'/mnt/ckpt/run/{step}.pt')\n"
)
CASES = {
    "1 MiB": bash("a" * 2**20),
    "1 MiB of Python": (["python", "-c", "a;" * 2**19], []),
    "1 MiB of a list": (["python", "train.py"], ["x" * 2**20, "[" * 2**20]),
    "brackets": heredoc("(" * 10_000),
    "closed brackets": heredoc("[" * 10_000 + "]" * 10_000),
    "brackets of the shell": bash(")" * 30_000),
    "both brackets of the shell": bash("()" * 15_000),
    "braces": bash("{ " * 8_000),
    "pipes": bash("a|" * 16_000),
    "backticks": bash("`a" * 16_000),
    "quotes": bash('"$("' * 8_000),
    "redirections": bash("<<A " * 8_000),
    "control characters": bash(MARK * 30_000),
    "ifs": bash("if a; then " * 2_500),
    "never closed": bash("python - <<'PY'\nimport torch\n"),
    "CRLF": bash("python - <<'PY'\r\nimport torch\r\nif 1:\r\n\tprint(1)\r\nPY\r\n"),
    "tabs and spaces": heredoc("if 1:\n\tx = 1\n        y = 2"),
    "Python 2": heredoc("print 'a'"),
    "magics": heredoc("!pip install x\n%cd /a\nimport torch"),
    "template holes": heredoc("x = {{ .Values.x }}\n{% if x %}\ny\n{% endif %}"),
    "template holes in shell": bash("python train.py --lr {{ .Values.lr }} {{- if .x }} --a {{ end }}"),
    "binary": bash("\x01\ud800\xff" * 500),
    "surrogates": heredoc("x = '\ud800'"),
    "zsh": (["zsh", "-c"], ["for f (*.py) python $f"]),
    "PowerShell": (["pwsh", "-c"], ["Get-ChildItem | % { $_ }"]),
    "PowerShell in bash": bash("$x = @{a=1}; if ($x -eq 1) { Write-Host 'a' }"),
    "100 here-documents": bash("".join(f"cat > f{i}.py <<'E{i}'\nimport os\nE{i}\n" for i in range(100))),
    "nothing known": heredoc("import this\nx = 1"),
    "attributes": heredoc("a" + ".b" * 10_000),
    "calls": heredoc("a" + "()" * 8_000),
    "signs": heredoc("-" * 15_000 + "1"),
    "sums": heredoc("1" + "+1" * 8_000),
    "a number of 400 digits": heredoc(
        "from transformers import Trainer, TrainingArguments\n"
        "a = TrainingArguments('/mnt/ckpt/run', save_steps={0}, max_steps={0}, save_total_limit={0})\n"
        "Trainer(None, a).train(resume_from_checkpoint=True)".format("9" * 400)
    ),
    "a number that is none": heredoc(
        "from transformers import Trainer, TrainingArguments\n"
        "a = TrainingArguments('/mnt/ckpt/run', save_steps={0}, max_steps={0}, save_total_limit={0})\n"
        "Trainer(None, a).train(resume_from_checkpoint=True)".format("float('nan')")
    ),
    "digits that int() does not take": heredoc(
        "import torch\ntorch.save(1, 'x_{²}'.format(1)); torch.save(1, '%0²d' % 1)"
    ),
    "more digits than int() takes": (["torchrun", "--nproc_per_node", "9" * 5000, "a.py"], []),
    "statements": heredoc("a;" * 15_000),
    "one word in a line": heredoc(f"{SAVES}s = '" + "optim" * 5_000 + "'\nt = '" + "sched" * 1_000 + "'"),
    "imports of elsewhere": heredoc(
        f"{SAVES}from there import " + ", ".join(f"n{i}" for i in range(1_400)) + "\nn1(1)" * 1_400
    ),
    "a setting made of itself": heredoc(f"{SAVES}" + "args.a = join(args.a)\n" * 1_300),
    "itself": heredoc("import torch\nx = x\ny = z\nz = y\ntorch.save({'a': y}, x)\ns = {'s': s}\ntorch.save(s, 'a')"),
    "classes of each other": heredoc(
        "from transformers import Trainer\nclass A(B): pass\nclass B(A): pass\nA().train()"
    ),
    "functions of each other": heredoc(
        "import glob\ndef f(): return g()\ndef g(): return f()\nx = f()[-1]\nglob.glob('a')"
    ),
    "f-strings": heredoc("x = f'{a!r:{b}}{c:>{d}}'\ny = f\"{x['a']}\"\nz = f'{{}}{x=}'"),
    "doubling": heredoc(f"{CHAIN}\nimport torch\ntorch.save(1, x59)"),
    "powers": heredoc("import torch\nx = 9**9**9\ntorch.save(1, f'{x}')\ntorch.save(1, '%1000000000d' % 1)"),
    "loads in a function and calls of it": heredoc(
        "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--resume')\nargs = p.parse_args()\n"
        "def f():\n" + " torch.load('a')\n" * 700 + "if args.resume:\n" + " f()\n" * 4000 + "f()\n"
    ),
    "a bomb in YAML": bash(
        "cat > a.yaml <<E\na: &a [x,x,x,x,x,x,x,x]\n"
        + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 8)}]\n" for i in range(12))
        + "E\nllamafactory-cli train a.yaml"
    ),
    "depth in YAML": bash("cat > a.yaml <<E\n" + "[" * 8_000 + "\nE\nllamafactory-cli train a.yaml"),
    "depth in JSON": bash("cat > a.json <<E\n" + "[" * 30_000 + "\nE\ndeepspeed x.py"),
    "a shell in itself": bash("cat > r.sh <<E\nbash r.sh\nE\nbash r.sh"),
    "many flags": bash("python x.py " + "--a b " * 5_000),
    "many picks": heredoc(
        "import glob\nx = sorted(glob.glob('a*'))\n" + "\n".join(f"y{i} = x[-1]" for i in range(2_000))
    ),
    "calls in all directions": heredoc(
        "".join(f"def f{i}():\n" + f" f{i + 1}()\n" * 8 for i in range(40))
        + "def f40():\n torch.save(1, '/a')\nimport torch\ntorch.load('/a')\nf0()"
    ),
    "doubling in the shell": bash("a=x\n" + "a=$a$a\n" * 200 + "python train.py --save $a"),
    "doubling of what is not known": bash("a=$(date)\n" + "a=$a/$a\n" * 200 + "python train.py --save $a"),
    "doubling by adding": bash("a=$(date)\n" + "a+=$a\n" * 200 + "python train.py --save $a"),
    "doubling arrays": bash("a=(x y)\n" + 'a=("${a[@]}" "${a[@]}")\n' * 60 + 'python train.py "${a[@]}"'),
    "growing arrays": bash("a=(x y)\n" + 'a+=("${a[@]}")\n' * 60 + 'python train.py "${a[@]}"'),
    "words out of a variable": bash("a='" + "x " * 8_000 + "'\npython train.py " + "$a " * 5_000),
    "words out of a variable, again and again": bash("a='" + "x " * 4_000 + "'\n" + "python train.py $a\n" * 1_500),
    "a here-document out of a variable": bash(
        "a='" + "x = 1; " * 1_000 + "'\npython - <<EOF\n" + "$a\n" * 5_000 + "EOF\n"
    ),
    "here-documents out of a variable": bash(
        'a="' + "x = f(1)\n" * 500 + '"\n' + "".join(f"python - <<E{i}\n$a\n$a\n{i}\nE{i}\n" for i in range(60))
    ),
    "variables of the container": bash("$(A) " * 6_000),
    "many shells": bash("bash -c 'echo a; python a.py'\n" * 900),
    "many programs": bash("".join(f"export A{i}=b\npython t{i}.py\n" for i in range(900))),
    "many arguments": (["python", "train.py"], ["--a=b"] * 100_000),
    "merged maps in YAML": bash(
        "cat > a.yaml <<'E'\na: &a {x: 1}\n"
        + "".join(f"{chr(98 + i)}: &{chr(98 + i)} {{<<: [{','.join(['*' + chr(97 + i)] * 9)}]}}\n" for i in range(12))
        + "E\nllamafactory-cli train a.yaml"
    ),
    "empty maps in YAML": bash(
        "cat > a.yaml <<'E'\na: &a {}\n"
        + "".join(
            f"{chr(98 + i)}: &{chr(98 + i)} {{{','.join(f'k{j}: *{chr(97 + i)}' for j in range(9))}}}\n"
            for i in range(18)
        )
        + "E\nllamafactory-cli train a.yaml"
    ),
    "eval out of a variable": bash("a='" + "x " * 8_000 + "'\n" + 'eval "$a"\n' * 1_500),
    "eval in itself": bash("eval " * 6_000 + "python train.py"),
    "eval of eval": bash("a='eval $a'\neval $a\neval '$a $a'\neval '`eval $a`'"),
    "callers of callers": heredoc(
        "import torch\ndef f0():\n torch.save({'o': optimizer}, '/a')\n torch.load('/a')\n"
        + "".join(f"def f{i}():\n" + f" f{i - 1}()\n" * 250 for i in range(1, 6))
        + "for x in y:\n f5()"
    ),
    "many questions": heredoc(
        "import os, torch\n"
        + "".join(
            f"if os.path.exists('/fast/{i}.pt'): torch.load('/fast/{i}.pt')\ntorch.save(m, '/fast/{i}.pt')\n"
            for i in range(270)
        )
    ),
    "many fields": (
        [
            "python",
            "-c",
            "from transformers import HfArgumentParser\n(a,) = HfArgumentParser(X).parse_args_into_dataclasses()\n"
            + "import torch\n"
            + "".join(f"torch.save(m, a.f{i})\n" for i in range(1_000)),
        ],
        [f"--f{i % 1000}" if i % 2 == 0 else "/x/y" for i in range(4_000)],
    ),
    "many arguments and many flags": (
        [
            "python",
            "-c",
            "import argparse, torch\np = argparse.ArgumentParser()\n"
            + "".join(f"p.add_argument('--f{i}')\n" for i in range(500))
            + "a = p.parse_args()\n"
            + "".join(f"torch.save(m, a.f{i % 500})\n" for i in range(700)),
        ],
        ["--z", "y"] * 2_000,
    ),
    "dictionaries of arguments": heredoc(
        "from transformers import TrainingArguments, Trainer\nd = {'output_dir': '/a', 'save_total_limit': 3}\n"
        + "".join(f"TrainingArguments(**d)\nd{i}['a'] = 1\n" for i in range(700))
        + "Trainer(m, d).train()"
    ),
    "no text": bash(""),
    "no argument": (["bash", "-c"], []),
    "nothing at all": ([], []),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name: str) -> None:
    said = _said(name, LAUNCH)
    assert len(said.get("program-not-read", [])) <= 1
    wrong = said.keys() - {"program-not-read", "directory-not-used", "sigterm-not-forwarded", "exit-status-lost"}
    assert name in ("itself", "powers", "doubling") or name.startswith("a number") or not wrong
    for remark in said.get("program-not-read", []):
        assert len(remark.problem) < 120


@pytest.mark.parametrize("name", ["callers of callers", "many questions", "many fields", "calls in all directions"])
def test_bad_input_on_several_pods(name: str) -> None:
    assert "program-not-read" not in _said(
        name, Launch(pods=2, processes=4, directories=("/mnt/ckpt",), fast=("/fast",))
    )


def _said(name: str, launch: Launch) -> dict[str, list[Remark]]:
    command, args = CASES[name]
    cache.clear()
    start = time.process_time()
    script = read_script(command, args, {"A": "b" * 30_000 if "container" in name else "b"}, launch)
    said = remarks(script)
    assert time.process_time() - start < 2
    return said


def test_without_the_grammar_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from webhook.programs import shell

    monkeypatch.setattr(shell, "_language", False)
    command, args = heredoc("import torch")
    (remark,) = remarks(read_script(command, args, {}, LAUNCH))["program-not-read"]
    assert "pip install tree-sitter" in remark.fix
