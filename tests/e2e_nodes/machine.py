"""A cluster whose nodes run pods.

`Given` is the one that `E2E_KUBECONFIG` names. `Lab` is two nodes made on this machine by the scripts of `lab/` (Linux,
root, Go): nothing is pulled. Both have Kubeflow Trainer.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.controlplane import build, releases
from tests.e2e.controlplane.cluster import when_trainer_knows

Object = dict[str, Any]

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "lab"
TRAINERS = tuple((os.environ.get("E2E_TRAINER") or f"{releases.NEWEST},2.1.0").split(","))
"""The Trainer releases that runs are tried on; the lab starts with the first."""
REPOSITORY = "ghcr.io/checkpoint-guard/checkpoint-guard"


class NoNodesError(RuntimeError):
    """There is no cluster with nodes; the text says why."""


def log(line: str) -> None:
    """A line for whoever waits."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


class Nodes:
    """kubectl on a cluster, and the images that its nodes have."""

    def __init__(self, kubeconfig: Path, kubectl: str, image: str, previous: str | None) -> None:
        self.kubeconfig = kubeconfig
        self.image = image
        """Of this clone."""
        self.previous = previous
        """Of the version before; None where the cluster has none."""
        self.kubectl = (kubectl,)
        """For commands that are watched while they run."""

    @property
    def environment(self) -> dict[str, str]:
        """For programs that are to talk to this cluster."""
        return os.environ | {"KUBECONFIG": str(self.kubeconfig)}

    def run(self, *arguments: str, text: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`kubectl ...`, again while Trainer is late; with `check`, a failure is an error with what it printed."""
        done = when_trainer_knows(
            lambda: subprocess.run(
                [*self.kubectl, *arguments],
                input=text,
                env=self.environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=600,
            )
        )
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """An object; None where there is none."""
        where = ("-n", namespace) if namespace else ()
        done = self.run("get", kind, name, *where, "-o", "json", "--ignore-not-found")
        found: Object | None = json.loads(done.stdout) if done.stdout.strip() else None
        return found

    def objects(self, kind: str, namespace: str | None = None, selector: str = "") -> list[Object]:
        """Objects of a kind, in a namespace or in all."""
        where = ("-n", namespace) if namespace else ("-A",)
        chosen = ("-l", selector) if selector else ()
        items: list[Object] = json.loads(self.run("get", kind, *where, *chosen, "-o", "json").stdout)["items"]
        return items

    def apply(self, documents: list[Object]) -> str:
        """Client-side apply, as `kubectl apply -k` does it; what kubectl printed on standard error."""
        text = yaml.safe_dump_all(documents)
        return self.run("apply", "-f", "-", text=text).stderr

    def pods(self, component: str, namespace: str = "checkpoint-guard") -> list[Object]:
        """Our pods of a component that are not on their way out."""
        labels = f"app.kubernetes.io/name=checkpoint-guard,app.kubernetes.io/component={component}"
        return [pod for pod in self.objects("pods", namespace, labels) if not pod["metadata"].get("deletionTimestamp")]

    def rolled_out(self, name: str = "checkpoint-guard", namespace: str = "checkpoint-guard") -> None:
        """Wait until a Deployment is as it was asked for."""
        self.run("rollout", "status", f"deployment/{name}", "-n", namespace, "--timeout=180s")

    def python(self, pod: str, code: str, namespace: str = "checkpoint-guard") -> str:
        """What Python prints in a pod of ours."""
        return self.run("exec", "-n", namespace, pod, "--", "python", "-c", code).stdout.strip()

    def trainer(self) -> str:
        """The minor release of Trainer, told by what its CRD serves."""
        crd = self.run("get", "crd", "trainjobs.trainer.kubeflow.org", "-o", "json").stdout
        return "2.3" if "runtimePatches" in crd else "2.1" if "podTemplateOverrides" in crd else "2.0"

    def stop(self) -> None:
        """Give back what was taken."""


class Given(Nodes):
    """The cluster of `E2E_KUBECONFIG`. Its nodes have `E2E_IMAGE` (for kind: `kind load docker-image`), and, to try an
    upgrade, `E2E_IMAGE_PREVIOUS`."""

    def __init__(self, kubeconfig: Path) -> None:
        image = os.environ.get("E2E_IMAGE")
        kubectl = shutil.which("kubectl")
        if image is None or kubectl is None:
            raise NoNodesError("E2E_KUBECONFIG also takes E2E_IMAGE, an image that its nodes have, and kubectl")
        super().__init__(kubeconfig, kubectl, image, os.environ.get("E2E_IMAGE_PREVIOUS"))
        if self.get("crd", "trainjobs.trainer.kubeflow.org") is None:
            raise NoNodesError("the cluster of E2E_KUBECONFIG has no Kubeflow Trainer")


class Lab(Nodes):
    """Two nodes on this machine. What runs already is used and left running; else it ends with `stop`."""

    def __init__(self) -> None:
        if why := missing():
            raise NoNodesError(why)
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        self._home = Path(os.environ.get("LAB_HOME") or f"{base}/checkpoint-guard/lab")
        self._state = Path(os.environ.get("L") or self._home / "run")
        self._storage = Path(os.environ.get("STOR") or self._home / "stor")
        self._proxy: subprocess.Popen[bytes] | None = None
        self._trainer = ""
        super().__init__(
            self._state / "kubeconfig", str(self._home / "bin" / "kubectl"), f"{REPOSITORY}:e2e", f"{REPOSITORY}:before"
        )
        self._ours = not self._answers()

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self._home / 'bin'}:{os.environ['PATH']}"
        return {**super().environment, "PATH": path, "LAB_HOME": str(self._home), "PYTHON": sys.executable}

    def start(self) -> None:
        """The cluster and Trainer."""
        self._take_programs()
        self._script("up.sh")
        self.use_trainer(TRAINERS[0])
        self._give_the_api_server_services()

    def use_trainer(self, release: str) -> None:
        """Another release of Trainer, with its JobSet, in the place of the one that is there."""
        if release != self._trainer:
            programs = releases.RELEASES[release]
            trainer, jobset = build.trainer(programs), build.jobset(programs)
            self._script(
                *("trainer.sh", "up", release),
                JOBSET=programs.jobset,
                TRAINER_CRDS=str(trainer.manifest("crds")),
                TRAINER_WEBHOOK=str(trainer.manifest("webhook")),
                JOBSET_CRDS=str(jobset.manifest("crds")),
                JOBSET_WEBHOOK=str(jobset.manifest("webhook")),
            )
            self._trainer = release

    def lose_api_server(self) -> None:
        """It is gone at once; etcd, the controllers and the nodes stay."""
        os.kill(int((self._state / "apiserver.pid").read_text()), signal.SIGKILL)

    def bring_api_server(self) -> None:
        """Up again, with all that it knew."""
        self._script("up.sh")

    def power_cut(self, node: str) -> None:
        """Everything on the node is gone at once, and nothing answers for it."""
        # Its network namespace outlives it and would say that the port is closed, so its cable goes first.
        for verb in ("cut", "kill"):
            self._script("node.sh", verb, node.removeprefix("node"))

    def power_on(self, node: str) -> None:
        """With the disk that it had."""
        for verb in ("join", "up"):
            self._script("node.sh", verb, node.removeprefix("node"))

    def kueue(self, what: str) -> None:
        """The real Kueue beside the control plane: `up` or `down`."""
        component = build.kueue()
        self._take({"kueue": (component, "kueue")})
        crds, webhook = str(component.manifest("crds")), str(component.manifest("webhook"))
        self._script("kueue.sh", what, KUEUE_CRDS=crds, KUEUE_WEBHOOK=webhook)

    def network_cut(self, node: str) -> None:
        """The cable is out: its pods go on running, and nobody hears of them."""
        self._script("node.sh", "cut", node.removeprefix("node"))

    def network_join(self, node: str) -> None:
        """The cable is in again."""
        self._script("node.sh", "join", node.removeprefix("node"))

    def stop(self) -> None:
        if self._proxy is not None:
            self._proxy.send_signal(signal.SIGTERM)
            self._proxy.wait(20)
        if self._ours and not os.environ.get("E2E_KEEP"):
            for name, verb in (("kueue.sh", "stop"), ("trainer.sh", "down")):
                with contextlib.suppress(AssertionError):
                    self._script(name, verb)
            self._script("down.sh", KEEP="")
            # buildah leaves its storage mounted on itself.
            subprocess.run(["umount", self._storage / "root" / "overlay"], capture_output=True, check=False)

    def _take_programs(self) -> None:
        """Built where they are not yet; what `make e2e` has built is taken from there."""
        parts = (build.kubernetes(), build.kubernetes_nodes(), build.etcd(), build.coredns())
        wanted = {name: (component, name) for component in parts for name in component.programs}
        for release in (releases.RELEASES[name] for name in TRAINERS):
            wanted[f"trainer-{release.trainer}"] = (build.trainer(release), "trainer-controller-manager")
            wanted[f"jobset-{release.jobset}"] = (build.jobset(release), "jobset")
        self._take(wanted)

    def _take(self, wanted: dict[str, tuple[build.Component, str]]) -> None:
        programs = self._home / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        build.ensure_all({component.id: component for component, _ in wanted.values()}.values(), log)
        for name, (component, program) in wanted.items():
            (programs / name).unlink(missing_ok=True)
            (programs / name).symlink_to(component.program(program))

    def _answers(self) -> bool:
        try:
            return self.run("get", "--raw", "/readyz", check=False).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False

    def _give_the_api_server_services(self) -> None:
        """kube-proxy beside the API server, as on the nodes of a control plane: webhooks are called by ClusterIP."""
        network = os.environ.get("NET", "10.210")
        host = f"/run/netns/{os.environ.get('PREFIX', 'kl')}0"
        inside = ["nsenter", f"--net={host}", "--"]
        # Some route is needed for a packet to get as far as kube-proxy's rules.
        subprocess.run([*inside, "ip", "route", "replace", f"{network}.255.0/24", "dev", "br0"], check=True)
        flags = [
            *("--kubeconfig", str(self._state / "proxy.kc"), "--hostname-override", "node1"),
            *("--cluster-cidr", f"{network}.0.0/16", "--proxy-mode", "iptables", "--conntrack-max-per-core", "0"),
            *("--conntrack-min", "0", "--conntrack-tcp-timeout-established", "0"),
            *("--conntrack-tcp-timeout-close-wait", "0"),
            *("--healthz-bind-address", "127.0.0.1:10356", "--metrics-bind-address", "127.0.0.1:10349"),
        ]
        with (self._state / "control-plane-proxy.log").open("ab") as output:
            self._proxy = subprocess.Popen(
                [*inside, str(self._home / "bin" / "kube-proxy"), *flags], stdout=output, stderr=output
            )
        wait_until(lambda: "KUBE-SVC" in subprocess.run(
            [*inside, "iptables-save", "-t", "nat"], capture_output=True, text=True, check=False).stdout,
            60, "kube-proxy beside the API server writes its rules")  # fmt: skip

    def build_images(self, before: bool) -> None:
        """The clone's Dockerfile, built and on the nodes; ``before`` also under the number of a version before."""
        if not before:
            self.previous = None
        if os.environ.get("E2E_BUILT"):  # for whoever tries one test again and again, with E2E_KEEP
            return
        context = self._state / "context"
        shutil.rmtree(context, ignore_errors=True)
        context.mkdir(parents=True)
        tracked = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        for name in filter(None, tracked.stdout.split("\0")):
            source = ROOT / name
            if source.is_file() and not name.startswith("tests/"):
                target = context / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        version = context / "webhook" / "__init__.py"
        written = version.read_text()
        self._build(context, self.image)
        if self.previous is not None:
            head, _, rest = written.partition('__version__ = "')
            version.write_text(f'{head}__version__ = "0.0.9{rest[rest.index(chr(34)) :]}')
            self._build(context, self.previous)
        shutil.rmtree(context)

    def _build(self, context: Path, tag: str) -> None:
        began = time.monotonic()
        self._script("build.sh", str(context), tag)
        storage = self._storage
        archive = self._state / "image.tar"
        archive.unlink(missing_ok=True)
        driver = os.environ.get("DRIVER", "overlay")
        subprocess.run(
            [
                *("buildah", "--root", storage / "root", "--runroot", storage / "run", "--storage-driver", driver),
                *("push", "-q", tag, f"docker-archive:{archive}:{tag}"),
            ],
            check=True,
            capture_output=True,
        )
        self._script("load.sh", str(archive))
        log(f"image {tag}: {archive.stat().st_size / 1e6:.0f} MB, on the nodes after {time.monotonic() - began:.0f} s")
        archive.unlink()

    def _script(self, name: str, *arguments: str, **variables: str) -> None:
        began = time.monotonic()
        done = subprocess.run(
            [SCRIPTS / name, *arguments],
            env=self.environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode == os.EX_TEMPFAIL:
            raise NoNodesError(f"what nodes of our own take cannot be had: {done.stdout[-3000:]}")
        if done.returncode != 0:
            raise AssertionError(f"{name} {' '.join(arguments)}: {done.stdout[-3000:]}")
        if time.monotonic() - began > 5:
            log(f"{name} {' '.join(arguments)}: {time.monotonic() - began:.0f} s")


def missing() -> str | None:
    """Why there can be no lab on this machine; None where there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "E2E_KUBECONFIG is not set, and nodes of our own take root on Linux"
    if shutil.which("go") is None:
        return "E2E_KUBECONFIG is not set, and nodes of our own take Go"
    return None


def wait_until(met: Callable[[], bool], seconds: float, what: str, pause: float = 0.5) -> float:
    """The seconds until it is so. AssertionError where it is not in time."""
    began = time.monotonic()
    while not met():
        if time.monotonic() - began > seconds:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(pause)
    return time.monotonic() - began
