"""The commands as they are called: flags, exit codes, and what is printed where there is no cluster."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.runs.fake import FakeApi
from tests.runs.test_heal import run, runtime
from tests.runs.test_install_check import guarded, installed
from webhook.cli import main


@pytest.fixture
def api() -> FakeApi:
    return FakeApi(installed(), guarded)


@pytest.fixture
def kubeconfig(api: FakeApi, tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig for the API server in memory, over real HTTP."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            path, _, query = self.path.partition("?")
            params = dict(pair.split("=", 1) for pair in query.split("&") if pair)
            params = {name: value.replace("%3D", "=").replace("%2C", ",") for name, value in params.items()}
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            answer = api.request(self.command, path, params, body, self.headers.get("Content-Type") or "")
            data = json.dumps(answer.body).encode()
            self.send_response(answer.code)
            self.send_header("Content-Length", str(len(data)))
            for warning in answer.warnings:
                self.send_header("Warning", f'299 - "{warning}"')
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    for method in ("GET", "POST", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler._answer)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    yield file
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "there is no kubeconfig at "),
        ("a: [", "the cluster's configuration cannot be used: while parsing"),
        ("a: {b: c: d}", "the cluster's configuration cannot be used: while parsing"),
        ("only a text", "the cluster's configuration cannot be used: "),
        ("", "the cluster's configuration cannot be used: "),
        ("contexts: [1]\ncurrent-context: x\nclusters: 5", "the cluster's configuration cannot be used: "),
    ],
)
@pytest.mark.parametrize("command", [["stop", "run"], ["init"], ["runtimes"]])
def test_a_kubeconfig_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], text: str | None, says: str
) -> None:
    file = tmp_path / "config"
    if text is not None:
        file.write_text(text)
    assert main([*command, "--kubeconfig", str(file)]) == 2
    first, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {says}")


@pytest.mark.parametrize("command", ["install-check", "runtimes", "uninstall"])
def test_without_a_cluster_there_is_one_line_and_two(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--kubeconfig", str(tmp_path / "none")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert len(said.err.splitlines()) == 1


def test_install_check_says_that_it_guards(kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install-check", "--timeout", "0", "--kubeconfig", str(kubeconfig)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "the guard guards"


def test_install_check_names_what_is_wrong(api: FakeApi, kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    api.objects = installed(slice={"endpoints": []}, validating=None)
    api._react = lambda method, path, body: None

    assert main(["install-check", "--timeout", "0", "--output", "json", "--kubeconfig", str(kubeconfig)]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is False
    assert [fault["part"] for fault in said["faults"]] == ["registration", "endpoints"]


def test_runtimes_are_listed_and_healed(api: FakeApi, kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    api.objects |= dict([runtime(), runtime("held"), run("busy", "held")])
    flags = ["--kubeconfig", str(kubeconfig)]

    assert main(["runtimes", *flags]) == 1
    listed = capsys.readouterr().out
    assert "TrainingRuntime/old in team: lacks" in listed
    assert '  spec.template.spec.failurePolicy: {"maxRestarts":3}' in listed
    assert "left out: " in listed

    assert main(["runtimes", "--heal", "--output", "json", *flags]) == 1
    results = {one["name"]: one for one in json.loads(capsys.readouterr().out)["results"]}
    assert results["old"]["outcome"] == "added"
    assert results["held"]["outcome"] == "added in part"
    assert results["held"]["heldBy"] == ["team/busy"]

    del api.objects[run("busy", "held")[0]]
    assert main(["runtimes", "--heal", *flags]) == 0
    assert main(["runtimes", *flags]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "every runtime has what the guard fills in"


def test_runtimes_need_to_know_the_release(api: FakeApi, kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    api.objects = installed(trainjobs=None)
    flags = ["--kubeconfig", str(kubeconfig)]

    assert main(["runtimes", *flags]) == 2
    assert "say --trainer" in capsys.readouterr().err
    assert main(["runtimes", "--trainer", "2.1", *flags]) == 0


def test_uninstall_says_what_is_gone(api: FakeApi, kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["uninstall", "--registration", "--kubeconfig", str(kubeconfig)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        'ValidatingWebhookConfiguration "checkpoint-guard": gone',
        'MutatingWebhookConfiguration "checkpoint-guard": gone',
    ]
    api.forbidden.add(".*leases.*")
    assert main(["uninstall", "--kubeconfig", str(kubeconfig)]) == 1
    assert 'Lease "checkpoint-guard-certs": cannot delete' in capsys.readouterr().out


@pytest.mark.parametrize("flags", [["--timeout", "soon"], ["--timeout", "-1"], ["--output", "xml"]])
def test_flags_that_make_no_sense(flags: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["install-check", *flags])
    assert left.value.code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        *([command, name] for command in ("checkpoints", "stop", "resume", "drill", "delete") for name in ("", "a/b")),
        ["delete", "run?x=1"],
        ["stop", "../run"],
        ["stop", "run", "-n", "team/x"],
        ["runtimes", "--namespace", ""],
        ["install-check", "--guard-namespace", "a b"],
        ["uninstall", "--namespace", "a/b"],
        ["convert", "-", "-n", "Team"],
    ],
)
def test_what_is_no_name_never_becomes_part_of_a_path(
    arguments: list[str], api: FakeApi, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = [] if arguments[0] == "convert" else ["--kubeconfig", str(kubeconfig)]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, *known])
    assert ended.value.code == 2
    assert "is no name" in capsys.readouterr().err
    assert api.asked == []
