"""Programs that lie in a ConfigMap: found by the command's path, and what is said where they are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.files import write
from tests.cli.mounted import WHOLE, config_map, job, mounted
from tests.cli.test_review import Run, document, rules, run

__all__ = ["run"]

TORCHRUN = ["torchrun", "/scripts/train.py"]


def reviewed(run: Run, folder: Path, text: str, *flags: str) -> tuple[dict[str, Any], set[str]]:
    """``facts.program`` of the TrainJob, and the rules that said something of it."""
    _, answer = document(run, write(folder, "job.yaml", text), *flags)
    result = next(one for one in answer["results"] if one["kind"] == "TrainJob")
    assert answer["errors"] == []
    return result["facts"]["program"], rules(answer)


def test_a_mounted_program_is_read_and_its_lines_are_the_maps(run: Run, tmp_path: Path) -> None:
    text = config_map("code", {"train.py": WHOLE}) + "---\n" + job(TORCHRUN, **mounted())
    fact, found = reviewed(run, tmp_path, text)
    assert fact == {"state": "read", "path": "/scripts/train.py", "line": 1, "reason": None}
    assert found == {"never-resumed"}
    code, out, _ = run("review", str(tmp_path / "job.yaml"), "-o", "line")
    assert code == 0
    # Its data begins on line 5 of the file, and the save is its ninth.
    assert "job.yaml:14: warning: TrainJob/train in team: ConfigMap/code data[train.py] line 9:" in out
    _, out, _ = run("review", str(tmp_path / "job.yaml"))
    assert "\n  program: read /scripts/train.py\n" in out


def test_the_map_may_stand_in_state(run: Run, tmp_path: Path) -> None:
    state = write(tmp_path, "state.yaml", config_map("code", {"train.py": WHOLE}))
    fact, found = reviewed(run, tmp_path, job(TORCHRUN, **mounted()), "--state", state)
    assert (fact["state"], "never-resumed" in found) == ("read", True)


def test_without_the_map_nothing_is_said_of_the_program_but_that(run: Run, tmp_path: Path) -> None:
    fact, found = reviewed(run, tmp_path, job(TORCHRUN, **mounted()))
    assert (fact["state"], fact["path"]) == ("not-found", "/scripts/train.py")
    assert fact["reason"] == 'ConfigMap "code" is not read: no ConfigMap among the files'
    assert found == set()


def test_a_map_of_another_namespace_is_another(run: Run, tmp_path: Path) -> None:
    text = config_map("code", {"train.py": WHOLE}).replace("namespace: team", "namespace: other")
    fact, found = reviewed(run, tmp_path, text + "---\n" + job(TORCHRUN, **mounted()))
    assert (fact["state"], found) == ("not-found", set())


@pytest.mark.parametrize(
    ("command", "where", "source"),
    [
        (["python", "/app/main.py"], "/app", {"items": [{"key": "train.py", "path": "main.py"}]}),
        (["python", "/app/src/main.py"], "/app", {"items": [{"key": "train.py", "path": "src/main.py"}]}),
        (["python", "/app/main.py"], "/app/main.py", {"subPath": "train.py"}),
        (
            ["python", "/app/main.py"],
            "/app",
            {"items": [{"key": "train.py", "path": "src/main.py"}], "subPath": "src"},
        ),
        (["bash", "-c", "exec python /app/train.py"], "/app/", {}),
        (["bash", "-c", "cd /app && exec python train.py"], "/app", {}),
        (["bash", "-c", "cd /app\nexec python ./train.py"], "/app", {}),
        (["bash", "-c", "HERE=/app; exec torchrun $HERE/train.py"], "/app", {}),
        (["/app/train.py"], "/app", {"defaultMode": 0o755}),
    ],
)
def test_found_by_the_path_under_the_mount(
    run: Run, tmp_path: Path, command: list[str], where: str, source: dict[str, Any]
) -> None:
    text = config_map("code", {"train.py": "#!/usr/bin/env python\n" + WHOLE})
    fact, found = reviewed(run, tmp_path, f"{text}---\n{job(command, **mounted(path=where, **source))}")
    assert fact["state"] == "read", fact
    assert "never-resumed" in found


def test_a_working_directory_on_the_mount(run: Run, tmp_path: Path) -> None:
    text = config_map("code", {"train.py": WHOLE}) + "---\n"
    fact, found = reviewed(run, tmp_path, text + job(["python", "train.py"], working_dir="/scripts", **mounted()))
    assert (fact["path"], "never-resumed" in found) == ("train.py", True)
    fact, found = reviewed(run, tmp_path, text + job(["python", "train.py"], working_dir="/elsewhere", **mounted()))
    assert (fact["state"], fact["path"], found) == ("in-image", "train.py", set())


def test_a_shell_file_of_the_map_leads_to_its_program(run: Run, tmp_path: Path) -> None:
    script = 'cd "$(dirname "$0")"\nexec python train.py --lr "$LR"\n'
    data = {"run.sh": script, "train.py": WHOLE}
    text = config_map("code", data) + "---\n" + job(["bash", "/scripts/run.sh"], **mounted())
    fact, found = reviewed(run, tmp_path, text)
    assert (fact["state"], "never-resumed" in found) == ("read", True)
    data["run.sh"] = 'HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\nexec python "$HERE/train.py" | tee log\n'
    text = config_map("code", data) + "---\n" + job(["bash", "/scripts/run.sh"], **mounted())
    _, found = reviewed(run, tmp_path, text)
    assert {"never-resumed", "exit-status-lost"} <= found


def test_a_file_without_an_ending_is_known_by_its_first_line(run: Run, tmp_path: Path) -> None:
    text = config_map("code", {"start": "#!/bin/sh\nexec python3 /scripts/train.py\n", "train.py": WHOLE}) + "---\n"
    fact, found = reviewed(run, tmp_path, text + job(["/scripts/start"], **mounted(defaultMode=0o555)))
    assert (fact["state"], "never-resumed" in found) == ("read", True)


def test_a_mode_that_executes_nothing_is_said(run: Run, tmp_path: Path) -> None:
    text = config_map("code", {"run.sh": "exec python3 /scripts/train.py\n", "train.py": WHOLE}) + "---\n"
    fact, found = reviewed(run, tmp_path, text + job(["bash", "-c", "/scripts/run.sh"], **mounted()))
    assert fact["state"] == "partly-read"
    assert fact["reason"] == "/scripts/run.sh: its mode does not let it be executed: defaultMode: 0755"
    assert "never-resumed" in found
    fact, _ = reviewed(run, tmp_path, text + job(["bash", "-c", "/scripts/run.sh"], **mounted(defaultMode=0o744)))
    assert fact["state"] == "read"


def test_of_two_files_at_one_path_the_last_source_counts(run: Run, tmp_path: Path) -> None:
    maps = config_map("old", {"train.py": "print(1)\n"}) + "---\n" + config_map("new", {"train.py": WHOLE}) + "---\n"

    def volume(*names: str) -> dict[str, Any]:
        sources = [{"configMap": {"name": name}} for name in names]
        return {
            "volumes": [{"name": "code", "projected": {"sources": [{"secret": {"name": "x"}}, *sources]}}],
            "mounts": [{"name": "code", "mountPath": "/scripts"}],
        }

    fact, found = reviewed(run, tmp_path, maps + job(TORCHRUN, **volume("old", "new")))
    assert (fact["state"], "never-resumed" in found) == ("read", True)
    fact, found = reviewed(run, tmp_path, maps + job(TORCHRUN, **volume("new", "old")))
    assert (fact["state"], "never-resumed" in found) == ("read", False)


@pytest.mark.parametrize(
    ("maps", "source", "reason"),
    [
        (config_map("code", {"other.py": WHOLE}), {}, 'volume "code" has no file of that name'),
        (
            config_map("code", {"other.py": WHOLE}),
            {"items": [{"key": "train.py", "path": "train.py"}]},
            'ConfigMap "code" has no key "train.py"',
        ),
        (
            config_map("code", {}, binaryData={"train.py": "AAEC"}),
            {},
            'key "train.py" of ConfigMap "code" is binary',
        ),
        (config_map("code", {"train.py": WHOLE}), {"subPathExpr": "$(X)"}, "is not followed"),
        (config_map("other", {}), {"optional": True}, 'ConfigMap "code" is not read'),
    ],
)
def test_what_is_not_there_is_said(run: Run, tmp_path: Path, maps: str, source: dict[str, Any], reason: str) -> None:
    fact, found = reviewed(run, tmp_path, f"{maps}---\n{job(TORCHRUN, **mounted(**source))}")
    assert (fact["state"], fact["path"]) == ("not-found", "/scripts/train.py")
    assert reason in fact["reason"]
    assert found == set()


def test_a_map_of_a_mebibyte_is_not_parsed(run: Run, tmp_path: Path) -> None:
    text = config_map("code", {"train.py": "x = 1\n" * 170_000}) + "---\n" + job(TORCHRUN, **mounted())
    fact, found = reviewed(run, tmp_path, text)
    assert (fact["state"], fact["path"], fact["reason"]) == (
        "partly-read",
        "/scripts/train.py",
        "it is longer than 32 KiB",
    )
    assert found == {"program-not-read"}
    text = config_map("code", {"train.py": WHOLE, "data.csv": "1,2\n" * 250_000}) + "---\n" + job(TORCHRUN, **mounted())
    fact, found = reviewed(run, tmp_path, text)
    assert (fact["state"], "never-resumed" in found) == ("read", True)


def test_a_map_of_odd_types_is_an_error_that_names_the_field(run: Run, tmp_path: Path) -> None:
    for data, field in (("[1]", "data"), ("7", "data"), ("{train.py: 5}", "data[train.py]")):
        odd = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: code, namespace: team}}\ndata: {data}\n---\n"
        code, answer = document(run, write(tmp_path, "job.yaml", odd + job(TORCHRUN, **mounted())))
        assert (code, [one["field"] for one in answer["errors"]]) == (2, [field])


def test_no_more_than_four_maps_are_read(run: Run, tmp_path: Path) -> None:
    maps = "---\n".join(config_map(f"m{n}", {f"p{n}.py": WHOLE}) for n in range(6))
    volumes = [{"name": f"m{n}", "configMap": {"name": f"m{n}"}} for n in range(6)]
    mounts = [{"name": f"m{n}", "mountPath": f"/m{n}"} for n in range(6)]
    command = ["bash", "-c", "\n".join(f"python /m{n}/p{n}.py" for n in range(6))]
    fact, _ = reviewed(run, tmp_path, maps + "---\n" + job(command, volumes, mounts))
    assert fact["state"] == "partly-read"
    assert fact["reason"].startswith('/m4/p4.py: ConfigMap "m4" is not read: a review reads 4')


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["bash", "-c", "exec python - <<'PY'\nprint(1)\nPY"], ("read", None, 2)),
        (["python", "-c", "print(1)"], ("read", None, 1)),
        (["python", "/app/train.py"], ("in-image", "/app/train.py", None)),
        (["torchrun", "-m", "pkg.train"], ("in-image", "pkg.train", None)),
        (["/usr/local/bin/trainer"], ("in-image", "/usr/local/bin/trainer", None)),
        (["bash", "-c", "python - <<'PY'\nprint(1)\nPY\npython /app/eval.py"], ("partly-read", None, 2)),
        (["python", "/mnt/ckpt/train.py"], ("not-found", "/mnt/ckpt/train.py", None)),
        (["llamafactory-cli", "train", "output_dir=/mnt/ckpt/run"], ("read", None, None)),
        (["llamafactory-cli", "train", "/app/sft.yaml"], ("partly-read", None, None)),
    ],
)
def test_every_review_says_how_much_was_read(
    run: Run, tmp_path: Path, command: list[str], expected: tuple[str, str | None, int | None]
) -> None:
    fact, _ = reviewed(run, tmp_path, job(command))
    assert (fact["state"], fact["path"], fact["line"]) == expected


def test_the_fact_is_in_every_format(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "job.yaml", job(["python", "/app/train.py"]))
    for output in ("text", "junit", "sarif"):
        _, out, _ = run("review", file, "-o", output)
        assert "program: in the image, not read: /app/train.py" in out, output
