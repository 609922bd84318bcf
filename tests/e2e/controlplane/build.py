"""Builds the programs of a control plane from their Go modules, once per version.

In: `modules/<name>-<version>/go.mod`, which pins everything. Out: a directory per component outside the clone,
`<cache>/<name>-<version>/` with `bin/<program>` and `manifests/<folder>`, the latter as the module ships them.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .releases import COREDNS, ETCD, KUBERNETES, KUEUE, RELEASES, Release

MODULES = Path(__file__).parent / "modules"
STRIPPED = "-s -w"


class GoMissingError(RuntimeError):
    """A program has to be built and there is no Go to build it with."""


class BuildError(RuntimeError):
    """`go build` failed; the text is what it printed."""


@dataclass(frozen=True)
class Component:
    """One Go module, the programs built from it, and the folders of it that are kept beside them."""

    name: str
    version: str
    module: str
    programs: Mapping[str, str]
    ldflags: str = STRIPPED
    manifests: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """`<name>-<version>`: the folder under `modules/` and in the cache."""
        return f"{self.name}-{self.version}"

    @property
    def home(self) -> Path:
        """Where this component is, or will be, in the cache."""
        return cache_directory() / self.id

    def program(self, name: str) -> Path:
        """The path of a built program."""
        return self.home / "bin" / name

    def manifest(self, name: str) -> Path:
        """The path of a folder that was kept from the module."""
        return self.home / "manifests" / name


def kubernetes() -> Component:
    """kube-apiserver, kube-controller-manager, kube-scheduler and kubectl."""
    return _of_kubernetes("kubernetes", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")


def kubernetes_nodes() -> Component:
    """kubelet and kube-proxy, for nodes that run pods."""
    return _of_kubernetes("kubernetes-nodes", "kubelet", "kube-proxy")


def _of_kubernetes(name: str, *programs: str) -> Component:
    major, minor, _ = KUBERNETES.split(".")
    stamp = "-X k8s.io/component-base/version."
    return Component(
        name=name,
        version=KUBERNETES,
        module="k8s.io/kubernetes",
        programs={program: f"k8s.io/kubernetes/cmd/{program}" for program in programs},
        # Without these, the API server calls itself v0.0.0 and clients choose the wrong behaviour.
        ldflags=f"{STRIPPED} {stamp}gitVersion=v{KUBERNETES} {stamp}gitMajor={major} {stamp}gitMinor={minor}",
    )


def etcd() -> Component:
    """The etcd server."""
    module = "go.etcd.io/etcd/server/v3"
    return Component(name="etcd", version=ETCD, module=module, programs={"etcd": module})


def trainer(release: Release) -> Component:
    """The Trainer controller manager of a release."""
    module = "github.com/kubeflow/trainer/v2"
    return Component(
        name="trainer",
        version=release.trainer,
        module=module,
        programs={"trainer-controller-manager": f"{module}/cmd/trainer-controller-manager"},
        manifests={folder: f"manifests/base/{folder}" for folder in ("crds", "webhook", "runtimes")},
    )


def jobset(release: Release) -> Component:
    """The JobSet controller that a Trainer release pins."""
    module = "sigs.k8s.io/jobset"
    return Component(
        name="jobset",
        version=release.jobset,
        module=module,
        programs={"jobset": module},
        manifests={"crds": "config/components/crd", "webhook": "config/components/webhook"},
    )


def kueue() -> Component:
    """Kueue, for the releases that it works with."""
    module = "sigs.k8s.io/kueue"
    return Component(
        name="kueue",
        version=KUEUE,
        module=module,
        programs={"kueue": f"{module}/cmd/kueue"},
        manifests={"crds": "config/components/crd", "webhook": "config/components/webhook"},
    )


def coredns() -> Component:
    """The names of Services, for nodes that run pods."""
    module = "github.com/coredns/coredns"
    return Component(name="coredns", version=COREDNS, module=module, programs={"coredns": module})


def components(only: Iterable[str] = ()) -> list[Component]:
    """All of a control plane, or those that `only` names: `etcd`, `trainer-2.3.0`; `2.3.0` is a release's two.

    Those of nodes, `kubernetes-nodes` and `coredns`, are built where they are named.
    """
    every = [kubernetes(), etcd()]
    for release in RELEASES.values():
        every += [trainer(release), jobset(release)]
    every.append(kueue())
    wanted = list(only)
    if not wanted:
        return every
    chosen: list[Component] = []
    every += [kubernetes_nodes(), coredns()]
    for name in wanted:
        if name in RELEASES:
            matches = [trainer(RELEASES[name]), jobset(RELEASES[name])]
        else:
            matches = [component for component in every if name in (component.id, component.name)]
        if not matches:
            known = ", ".join([*RELEASES, *(component.id for component in every)])
            raise ValueError(f'no component "{name}"; there are {known}')
        chosen += [component for component in matches if component not in chosen]
    return chosen


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME/checkpoint-guard/controlplane`, outside the clone so that a fresh clone finds it filled."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "checkpoint-guard" / "controlplane"


def ensure(component: Component, report: Callable[[str], None] = lambda line: None) -> None:
    """Builds a component unless it is in the cache already; several processes may ask at once.

    Raises GoMissingError or BuildError.
    """
    if _is_current(component):
        report(f"{component.id}: cached")
        return
    with _locked(component):
        if _is_current(component):  # another process built it while this one waited
            report(f"{component.id}: cached")
            return
        started = time.monotonic()
        _build(component)
        report(f"{component.id}: built in {time.monotonic() - started:.0f} s")


def ensure_all(wanted: Iterable[Component], report: Callable[[str], None] = lambda line: None) -> None:
    """Builds several components. Raises what the first failed one raised, after the others have ended."""
    # The compiler keeps all cores busy, the linker keeps one: two builds at a time fill the gaps of each other.
    with ThreadPoolExecutor(max_workers=2) as pool:
        for outcome in [pool.submit(ensure, component, report) for component in wanted]:
            outcome.result()


def _recipe(component: Component) -> str:
    """A digest of everything that decides what is built, so that a changed recipe is built anew."""
    digest = hashlib.sha256()
    for file in ("go.mod", "go.sum"):
        digest.update((MODULES / component.id / file).read_bytes())
    digest.update(
        json.dumps([component.ldflags, dict(component.programs), dict(component.manifests)], sort_keys=True).encode()
    )
    return digest.hexdigest()


def _is_current(component: Component) -> bool:
    stamp = component.home / "recipe"
    return stamp.is_file() and stamp.read_text() == _recipe(component)


@contextmanager
def _locked(component: Component) -> Iterator[None]:
    cache_directory().mkdir(parents=True, exist_ok=True)
    with (cache_directory() / f".{component.id}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(component: Component) -> None:
    if shutil.which("go") is None:
        raise GoMissingError(f"{component.id} is not in {cache_directory()} and there is no Go to build it with")
    fresh = Path(tempfile.mkdtemp(prefix=f".{component.id}.", dir=cache_directory()))
    try:
        binaries = fresh / "bin"
        binaries.mkdir()
        # One program gets its name here (a module's root package is called after its folder); several keep theirs.
        target = str(binaries / next(iter(component.programs))) if len(component.programs) == 1 else f"{binaries}/"
        _go(component, "build", "-buildvcs=false", "-trimpath", "-ldflags", component.ldflags, "-o", target,
            *component.programs.values())  # fmt: skip
        source = Path(_go(component, "list", "-m", "-f", "{{.Dir}}", component.module).strip())
        for name, folder in component.manifests.items():
            # The module cache is read-only; copies that were, too, could not be replaced later.
            shutil.copytree(source / folder, fresh / "manifests" / name, copy_function=shutil.copyfile)
        for path in fresh.rglob("*"):
            if path.is_dir():
                path.chmod(0o755)
        (fresh / "recipe").write_text(_recipe(component))
        fresh.chmod(0o755)
        if component.home.exists():
            outdated = Path(tempfile.mkdtemp(prefix=f".{component.id}.old.", dir=cache_directory()))
            component.home.rename(outdated / "home")
            shutil.rmtree(outdated)
        fresh.rename(component.home)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def _go(component: Component, *arguments: str) -> str:
    # A workspace file or a vendor setting of the machine must not change what go.mod pins.
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly"}
    run = subprocess.run(
        ["go", *arguments], cwd=MODULES / component.id, env=environment, capture_output=True, text=True, check=False
    )
    if run.returncode != 0:
        raise BuildError(f"go {arguments[0]} of {component.id}: {run.stderr.strip()}")
    return run.stdout
