"""Security contexts that the Job API refuses (``ValidatePodSecurityContext``, ``ValidateSecurityContext``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.effective.buildable.syntax import is_dns_subdomain, steps_back
from webhook.model.pod import EMPTY, Raw

_LARGEST_ID: Final = 2**31 - 1
_PROFILES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
_OF_IPC: Final = ("kernel.sem", "kernel.shm", "kernel.msg", "fs.mqueue.")
_WORDS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("fsGroupChangePolicy", ("OnRootMismatch", "Always")),
    ("supplementalGroupsPolicy", ("Merge", "Strict")),
    ("seLinuxChangePolicy", ("Recursive", "MountOption")),
)


def faults_of_pod(context: Raw, pod: Raw) -> Iterator[tuple[str, str]]:
    """Problem and fix for each fault of the security context of ``pod``."""
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        if not 0 <= (context.get(field) or 0) <= _LARGEST_ID:
            yield f"{field} is {context[field]}", f"{field}: 1000"
    for group in context.get("supplementalGroups") or ():
        if not 0 <= group <= _LARGEST_ID:
            yield f"a supplemental group is {group}", "supplementalGroups: [1000]"
    for field, words in _WORDS:
        word = context.get(field)
        if word is not None and word not in words:
            yield f'{field} is "{word}"', f"{field}: {words[0]}"
    seen: set[str] = set()
    for sysctl in context.get("sysctls") or ():
        name = sysctl.get("name") or ""
        if name in seen or not _is_sysctl(name):
            yield f'sysctl "{name}" is there twice or is no name', "sysctls:\n- {name: <name>, value: <value>}"
        elif pod.get("hostNetwork") and name.replace("/", ".").startswith("net."):
            yield f'sysctl "{name}" stands beside hostNetwork', "hostNetwork: false"
        elif pod.get("hostIPC") and name.replace("/", ".").startswith(_OF_IPC):
            yield f'sysctl "{name}" stands beside hostIPC', "hostIPC: false"
        seen.add(name)
    yield from _faults_of_profiles(context)


def faults_of_container(context: Raw, shares_users: bool, on_host: bool) -> Iterator[tuple[str, str]]:
    """Problem and fix for each fault of a container's.

    ``shares_users``: the pod has no user namespace of its own; ``on_host``: it is in the host's network.
    """
    if not on_host and (context.get("windowsOptions") or EMPTY).get("hostProcess"):
        yield "has hostProcess without hostNetwork", "windowsOptions: {}"
    if context.get("allowPrivilegeEscalation") is False and (
        context.get("privileged") or "CAP_SYS_ADMIN" in ((context.get("capabilities") or EMPTY).get("add") or ())
    ):
        yield (
            "has allowPrivilegeEscalation false beside privileged or CAP_SYS_ADMIN",
            "allowPrivilegeEscalation: true",
        )
    for field in ("runAsUser", "runAsGroup"):
        if not 0 <= (context.get(field) or 0) <= _LARGEST_ID:
            yield f"has {field} {context[field]}", f"{field}: 1000"
    mount = context.get("procMount")
    if mount is not None and (mount not in ("Default", "Unmasked") or (mount == "Unmasked" and shares_users)):
        yield f'has procMount "{mount}" without hostUsers false', "procMount: Default"
    for problem, fix in _faults_of_profiles(context):
        yield f"has a security context where {problem}", fix


def _faults_of_profiles(context: Raw) -> Iterator[tuple[str, str]]:
    for field in ("seccompProfile", "appArmorProfile"):
        profile = context.get(field)
        if profile is None:
            continue
        kind, path = profile.get("type") or "", profile.get("localhostProfile")
        if kind not in _PROFILES:
            yield f'{field} has type "{kind}"', f"{field}:\n  type: RuntimeDefault"
        elif kind == "Localhost" and not path:
            yield f"{field} has type Localhost without localhostProfile", f"{field}:\n  type: RuntimeDefault"
        elif kind != "Localhost" and path is not None:
            yield f'{field} has localhostProfile beside type "{kind}"', f"{field}:\n  type: {kind}"
        elif field == "seccompProfile" and path and (path[0] == "/" or steps_back(path)):
            yield (
                f'{field} has localhostProfile "{path}", which is absolute or holds ".."',
                f"{field}:\n  localhostProfile: <a relative path without ..>",
            )
    credential = (context.get("windowsOptions") or EMPTY).get("gmsaCredentialSpecName")
    if credential is not None and not is_dns_subdomain(credential):
        yield f'gmsaCredentialSpecName "{credential}" is no object name', "windowsOptions: {}"


def _is_sysctl(name: str) -> bool:
    """Parts of a-z, 0-9, ``-`` and ``_`` with alphanumeric ends, joined by dots or slashes; at most 253 characters."""
    return len(name) <= 253 and all(
        part.replace("-", "a").replace("_", "a").isalnum()
        and part.isascii()
        and part == part.lower()
        and part[0].isalnum()
        and part[-1].isalnum()
        for part in name.replace("/", ".").split(".")
    )
