"""Probes and lifecycle hooks that the Job API refuses (``validateHandler``, ``validateProbe``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from webhook.effective.buildable.syntax import is_header_name, is_port_name
from webhook.model.paste import below
from webhook.model.pod import Raw

PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_OF_PROBES: Final = ("exec", "httpGet", "tcpSocket", "grpc")
_OF_HOOKS: Final = ("exec", "httpGet", "tcpSocket", "sleep")
_NEVER_NEGATIVE: Final = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "failureThreshold")


def faults_of_handlers(container: Raw, grace: int) -> Iterator[tuple[str, str, str]]:
    """Field of the container, problem and fix for each fault. ``grace`` is the pod's, in seconds."""
    for field in PROBES:
        if (probe := container.get(field)) is not None:
            for problem, fix in _faults_of_probe(field, probe):
                yield field, problem, fix
    lifecycle = container.get("lifecycle") or {}
    for hook in ("postStart", "preStop"):
        if (handler := lifecycle.get(hook)) is not None:
            for problem, fix in _faults_of_action(f"lifecycle.{hook}", handler, _OF_HOOKS):
                yield "lifecycle", problem, below(fix, hook)
            seconds = (handler.get("sleep") or {}).get("seconds") or 0
            if not 0 <= seconds <= grace:
                yield (
                    "lifecycle",
                    f"sleeps {seconds} s in {hook}, and terminationGracePeriodSeconds is {grace}",
                    below(f"seconds: <at most {grace}>", hook, "sleep"),
                )


def _faults_of_probe(field: str, probe: Raw) -> Iterator[tuple[str, str]]:
    yield from _faults_of_action(field, probe, _OF_PROBES)
    if field != "readinessProbe" and (probe.get("successThreshold") or 1) != 1:
        yield f"has successThreshold {probe['successThreshold']} in {field}", "successThreshold: 1"
    for number in _NEVER_NEGATIVE:
        if (probe.get(number) or 0) < 0:
            yield f"has {number} {probe[number]} in {field}", f"{number}: 10"
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and (grace < 1 or field == "readinessProbe"):
        yield f"has terminationGracePeriodSeconds {grace} in {field}", "# no terminationGracePeriodSeconds there"


def _faults_of_action(field: str, handler: Raw, known: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    kinds = [kind for kind in known if handler.get(kind) is not None]
    if len(kinds) != 1:
        yield f"has {len(kinds) or 'no'} handlers in {field}", "exec:\n  command: [<command>]"
        return
    kind = kinds[0]
    action = handler[kind]
    if kind == "exec":
        if not action.get("command"):
            yield f"has an empty command in {field}.exec", below("command: [<command>]", kind)
    elif kind != "sleep":
        port = action.get("port")
        if not _is_port(port):
            fix = below("port: <1..65535, or a port's name>", kind)
            yield f'has port "{"" if port is None else port}" in {field}.{kind}', fix
        scheme = action.get("scheme") or "HTTP"
        if kind == "httpGet" and scheme not in ("HTTP", "HTTPS"):
            yield f'has scheme "{scheme}" in {field}.{kind}', below("scheme: HTTP", kind)
        for header in (action.get("httpHeaders") or ()) if kind == "httpGet" else ():
            if not is_header_name(header.get("name") or ""):
                yield f'has header "{header.get("name")}" in {field}.{kind}', below("httpHeaders: []", kind)


def _is_port(port: Any) -> bool:
    return is_port_name(port) if type(port) is str else 0 < (port or 0) < 65536
