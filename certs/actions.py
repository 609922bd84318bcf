"""The three actions of the command line: what its flags mean, and how it ends."""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Final

from certs.cluster import Away, Cluster, Conflict, KubernetesCluster, NoCluster, Refused
from certs.gate import Gate
from certs.health import serve_health
from certs.issue import service_names
from certs.loop import Clock, Keeper, Leadership, Status, run, run_once
from certs.rotation import Rotation, Settings

_OWN_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_LONGEST: Final = 36_525 * 86_400
_NAME: Final = re.compile(r"(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def perform(arguments: argparse.Namespace) -> int:
    """Check, once or run; the exit code, as ``certs.command`` has it."""
    try:
        settings = read_settings(arguments)
        kubeconfig = Path(arguments.kubeconfig) if arguments.kubeconfig else None
        cluster = KubernetesCluster(settings.namespace, kubeconfig)
        rotation = Rotation(cluster, settings)
        if arguments.action == "check":
            return _check(rotation)
        clock = _clock()
        if arguments.action == "run":
            return _run(rotation, cluster, settings, arguments, clock)
        run_once(rotation, clock, tell, arguments.renew)
    except (NoCluster, Refused, ValueError) as error:
        tell(f"error: {error}")
        return 2
    except (Away, Conflict) as error:
        tell(f"error: {error}")
        return 1
    for what in rotation.missing:
        tell(f"{what}, so there is no caBundle to write")
    if not rotation.missing:
        tell(_in_order(rotation))
    return 1 if rotation.missing else 0


def read_settings(arguments: argparse.Namespace) -> Settings:
    """What the flags say. Raises ValueError."""
    namespace = arguments.namespace or _own_namespace()
    settings = Settings(
        namespace=namespace,
        names=(*service_names(arguments.service, namespace), *arguments.name),
        configurations=tuple(arguments.configuration) or ("checkpoint-guard",),
        secret=arguments.secret,
        authority_secret=arguments.ca_secret,
    )
    for name in settings.names:
        _check_name(name)
    if settings.secret == settings.authority_secret:
        raise ValueError("--secret and --ca-secret are the same: pods would get the authority's key")
    if arguments.action == "check":
        return settings
    life, authority_life = parse_time(arguments.life), parse_time(arguments.ca_life)
    settle = parse_time(arguments.settle)
    if life < datetime.timedelta(seconds=10) or authority_life < life:
        raise ValueError("--life is at least 10s, and --ca-life at least --life")
    if settle > life / 3:
        raise ValueError("--settle is longer than a third of --life: a pair would expire while its successor waits")
    return settings._replace(leaf_life=life, authority_life=authority_life, settle=settle.total_seconds())


def _check_name(name: str) -> None:
    """Raises ValueError for what no certificate can be for: it would be found out at every turn."""
    if _NAME.fullmatch(name) is None or len(name) > 253:
        try:
            ipaddress.ip_address(name)
        except ValueError:
            raise ValueError(f'"{name}" is neither a DNS name nor an address') from None


def parse_time(text: str) -> datetime.timedelta:
    """``90d``, ``36h``, ``15m``, ``20s``. Raises ValueError."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not (number.isascii() and number.replace(".", "", 1).isdigit()):
        raise ValueError(f'"{text}" is no time: write 90d, 36h, 15m or 20s')
    seconds = float(number) * _UNITS[unit]
    if seconds > _LONGEST:
        raise ValueError(f'"{text}" is longer than 100 years, which no certificate is')
    return datetime.timedelta(seconds=seconds)


def ignore_after() -> float | None:
    """Seconds of ``CKPTGUARD_IGNORE_AFTER``; None where it is not set. Raises ValueError."""
    text = os.environ.get("CKPTGUARD_IGNORE_AFTER", "")
    if not text:
        return None
    try:
        seconds = parse_time(text).total_seconds()
    except ValueError as error:
        raise ValueError(f"CKPTGUARD_IGNORE_AFTER: {error}") from None
    if seconds < 10:
        raise ValueError(f'CKPTGUARD_IGNORE_AFTER: "{text}" is shorter than 10s: a roll-out would open the gate')
    return seconds


def log(line: str) -> None:
    """One line of what the keeper does, as JSON with level and time (UTC): ``kubectl logs`` is read by programs too."""
    level = "error" if line.startswith(("error:", "cannot go on")) else "info"
    time = _now().strftime("%Y-%m-%dT%H:%M:%SZ")
    text = json.dumps({"time": time, "level": level, "logger": "ckptguard.certs", "message": line})
    sys.stderr.write(text.replace("\x7f", "\\u007f") + "\n")
    sys.stderr.flush()


def tell(line: str) -> None:
    """One line for people, with the time, to standard error."""
    sys.stderr.write(f"{_now().strftime('%Y-%m-%dT%H:%M:%SZ')} {line}\n")
    sys.stderr.flush()


def _check(rotation: Rotation) -> int:
    try:
        faults = rotation.faults(_now())
    except Away as error:
        tell(f"error: cannot be checked: {error}")
        return 2
    sys.stdout.write("".join(f"{line}\n" for line in faults or (_in_order(rotation),)))
    return 1 if faults else 0


def _run(rotation: Rotation, cluster: Cluster, settings: Settings, arguments: argparse.Namespace, clock: Clock) -> int:
    interval = parse_time(arguments.interval).total_seconds()
    gate = Gate(cluster, arguments.service, settings.configurations, ignore_after())
    keeper = Keeper(None if arguments.without_certificates else rotation, gate)
    if not 0.1 <= interval <= 20:
        raise ValueError("--interval is from 0.1s to 20s: what is broken is mended within two of them")
    status = Status()
    if arguments.listen:
        try:
            serve_health(arguments.listen, status, keeper, clock, interval)
        except OSError as error:
            raise ValueError(f"--listen {arguments.listen}: {error.strerror or error}") from None
    me = f"{os.environ.get('POD_NAME') or socket.gethostname()}_{os.getpid()}"
    leadership = Leadership(cluster, settings._replace(lease=arguments.lease), me, clock)
    what = "" if keeper.rotation is None else f" and the certificates for {', '.join(settings.names)}"
    log(f"keeping the registration{what}")
    run(keeper, leadership, status, clock, log, interval)
    log("ended")
    return 0


def _clock() -> Clock:
    """The machine's clocks; SIGTERM and SIGINT end a pause, and every later one."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    return Clock(_now, time.monotonic, ended.wait)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _own_namespace() -> str:
    try:
        return os.environ.get("POD_NAMESPACE") or _OWN_NAMESPACE.read_text().strip() or "checkpoint-guard"
    except OSError:
        return "checkpoint-guard"


def _in_order(rotation: Rotation) -> str:
    ends = [f"{what} until {end:%Y-%m-%d %H:%M} UTC" for what, end in (
        ("pair", rotation.leaf_ends), ("authority", rotation.authority_ends)) if end is not None]  # fmt: skip
    return f"in order: {', '.join(ends)}"
