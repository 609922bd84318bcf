"""Where a program's text stands in a manifest, and what is taken from it."""

from __future__ import annotations

import pytest

from tests.programs.reading import LAUNCH, python, shell
from webhook.model.script import Place
from webhook.programs.program import Script
from webhook.programs.reading import read_script
from webhook.programs.values import Text, Unknown, head


def only(script: Script) -> str:
    (text,) = script.pythons
    return text.source.text


@pytest.mark.parametrize(
    "text",
    [
        "python - <<'PY'\nimport torch\nPY\n",
        "python3 -u - --lr 1 <<PY\nimport torch\nPY\n",
        "exec python <<-'PY'\n\timport torch\n\tPY\n",
        "cat <<'PY' | python -\nimport torch\nPY\n",
        "cat > train.py <<'PY'\nimport torch\nPY\ntorchrun --nproc_per_node=2 train.py\n",
        "cat <<'PY' > /app/train.py\nimport torch\nPY\ncd /app && python train.py\n",
        "tee train.py <<'PY' > /dev/null\nimport torch\nPY\npython train.py\n",
        "read -r -d '' SCRIPT << EOM\n\n    import torch\n\nEOM\nprintf '%s' \"$SCRIPT\" > t.py\ntorchrun t.py\n",
        'python -c "import torch"\n',
        "python -c 'import torch'",
        'X=$(cat <<PY\nimport torch\nPY\n)\npython -c "$X"\n',
        "echo 'import torch' > t.py\npython t.py\n",
        "cat > run.sh <<'S'\npython - <<'PY'\nimport torch\nPY\nS\nbash run.sh\n",
        "mpirun -np 4 bash -c \"python -c 'import torch'\"",
        "env A=1 nohup timeout 5 python -c 'import torch'",
    ],
)
def test_python_is_found(text: str) -> None:
    script = shell(text)
    assert only(script).strip() == "import torch"
    assert script.unread == ()
    assert script.first == "shell"


def test_python_without_a_shell() -> None:
    assert only(python("import torch")) == "import torch"
    words = ["torchrun", "--nproc_per_node", "2", "--no-python", "python3", "-c", "import torch"]
    script = read_script(words, [], {}, LAUNCH)
    assert only(script) == "import torch"
    assert script.processes == 2
    assert script.first == "program"
    assert read_script(["tini", "--", "bash", "-c", "python x.py"], [], {}, LAUNCH).first == "init"


def test_a_line_keeps_its_number() -> None:
    script = shell("set -e\npython - <<'PY'\n\nimport torch\ntorch.save(1, 'a')\nPY\n")
    (call,) = script.pythons[0].calls("torch.save")
    assert script.pythons[0].at(call) == Place("args", 0, 5)


def test_a_program_in_the_image_is_unseen() -> None:
    script = read_script(["python", "/app/train.py", "x.y=2", "--save", "/a", "--lr=1", "--bf16"], [], {}, LAUNCH)
    assert script.pythons == ()
    assert not script.whole
    (invocation,) = script.invocations
    assert {name: flag.value for name, flag in invocation.flags.items()} == {
        "save": "/a",
        "lr": "1",
        "bf16": True,
        "x.y": "2",
    }


def test_modules_are_launchers_too() -> None:
    script = shell("python -m torch.distributed.run --nproc-per-node 8 pretrain_gpt.py --load A --save B")
    (invocation,) = script.invocations
    assert invocation.launchers == ("torchrun",)
    assert invocation.processes == 8
    assert invocation.name == "pretrain_gpt.py"
    script = shell("python -m pip install x\nllamafactory-cli train c.yaml output_dir=/o")
    assert [one.name for one in script.invocations] == ["llamafactory-cli"]


def test_configuration_files() -> None:
    script = shell(
        'cat > ds.json <<\'E\'\n{"zero": {"stage": 3}}\nE\ncat > sft.yaml <<E\noutput_dir: $OUT\nsave: [1, 2]\nE\n',
        {"OUT": "/o"},
    )
    assert {config.file: config.values for config in script.configs} == {
        "ds.json": {"zero.stage": 3},
        "sft.yaml": {"output_dir": "/o", "save": (1, 2)},
    }
    config = script.config("/work/sft.yaml")
    assert config is not None
    assert config.at("output_dir") == Place("args", 0, 5)


def test_an_open_here_document_puts_variables_in() -> None:
    script = shell('python - <<PY\na = "$A/x"\nb = "$B/x"\nc = "\\$A"\nPY\n', {"A": "/a"})
    (text,) = script.pythons
    values = {name: text.value(found[0].value) for (_, name), found in text.source.bindings.items()}
    assert values["a"] == "/a/x"
    assert values["c"] == "$A"
    assert isinstance(values["b"], Text)


def test_shell_variables_reach_the_program() -> None:
    script = shell(
        'export OUT="$CKPT_DIR/$(date +%s)"\nN=1 python - <<PY\nimport os\na = os.environ["OUT"]\nPY\n',
        {"CKPT_DIR": "/c"},
    )
    value = script.pythons[0].env["OUT"]
    assert head(value) == "/c/"
    assert isinstance(value.parts[1], Unknown)
    assert value.parts[1].kind == "fresh"


def test_kubelet_references_are_put_in() -> None:
    script = read_script(["python", "x.py", "--save=$(OUT)/a", "$$(X)", "$(Y)"], [], {"OUT": "/o"}, LAUNCH)
    assert script.invocations[0].arguments == ("--save=/o/a", "$(X)", "$(Y)")


def test_what_surrounds_a_command() -> None:
    script = shell("if [ -f x ]; then python a.py; else python b.py & fi\npython c.py 2>&1 | tee l || true\n")
    around = {one.name: [what.kind for what in one.command.around] for one in script.invocations if one.command}
    assert around == {"a.py": ["if"], "b.py": ["if", "else", "&"], "c.py": ["||", "pipeline"]} or around["c.py"] == [
        "||",
        "pipeline",
    ]
