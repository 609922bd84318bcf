"""What the process needs to know, from the environment (``CKPTGUARD_...``) and from flags, which win.

Everything about verdicts is in the policy file instead.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

_CONFIGMAP = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
Seconds = Annotated[float, Field(ge=0, le=3600)]


class Settings(BaseSettings):
    """Settings of ``ckptguard serve``; each is the variable ``CKPTGUARD_<NAME>``. Times are seconds."""

    model_config = SettingsConfigDict(env_prefix="CKPTGUARD_", frozen=True, extra="forbid", env_ignore_empty=True)

    listen: str = "0.0.0.0:8443"
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    """Authorities of client certificates, PEM. Where set, who shows none is told verdict and rule ids alone."""
    tls_client_names: str = ""
    """Common names of client certificates that are taken, with commas; empty for any of those authorities."""
    check_ca_bundle: bool = True
    """Be ready only while the webhook configuration's caBundle trusts what is served. Not without a cluster."""
    insecure_http: bool = False
    no_cluster: bool = False
    kubeconfig: Path | None = None
    policy: Path | None = None
    policy_configmap: str | None = None
    """``NAMESPACE/NAME`` of a ConfigMap whose key ``policy.yaml`` is watched; the file serves until it answers."""
    default_mode: Literal["enforce", "warn", "audit", "off"] | None = None
    """The mode where neither the namespace nor the policy file names one."""
    trainer: str | None = None
    """The Trainer release, where it is not to be read from the cluster's CRDs."""
    audit_stdout: bool = True
    audit_file: Path | None = None
    audit_file_bytes: Annotated[int, Field(ge=0)] = 0
    """Above so many bytes the file is rotated (FILE.1, FILE.2, ...); 0: never, or by somebody else."""
    audit_file_keep: Annotated[int, Field(ge=0, le=1000)] = 5
    """Rotated files that stay."""
    audit_queue: Annotated[int, Field(ge=1, le=1_000_000)] = 8192
    """Lines that may wait for each sink."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    docs: bool = False
    """Serve FastAPI's ``/docs``."""
    in_flight: Annotated[int, Field(ge=1, le=10_000)] = 256
    """Requests that may wait for the cluster at a time."""
    waiting: Annotated[int, Field(ge=0, le=100_000)] = 256
    """Requests beyond that before further ones get 503."""
    lookup_timeout: Seconds = 2.0
    body_timeout: Seconds = 5.0
    """For a body; half of one of known length in half of the time."""
    head_timeout: Seconds = 5.0
    handshake_timeout: Seconds = 5.0
    connections: Annotated[int, Field(ge=1, le=100_000)] = 1024
    """Connections at a time; fewer where the process may not open so many descriptors."""
    connections_per_peer: Annotated[int, Field(ge=1, le=100_000)] = 512
    """Of one address. An API server keeps 25 idle ones and opens more in bursts."""
    pre_stop_delay: Seconds = 5.0
    """After SIGTERM: how long requests are still taken while endpoints are updated."""
    drain_timeout: Seconds = 20.0
    """After that: how long what is in flight may take."""

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        parse_listen(self.listen)
        pair = (self.tls_cert is not None, self.tls_key is not None)
        if self.insecure_http and any(pair):
            raise ValueError("--insecure-http excludes --tls-cert and --tls-key")
        if not self.insecure_http and not all(pair):
            raise ValueError("--tls-cert and --tls-key are needed, or --insecure-http")
        if self.tls_client_ca is not None and self.insecure_http:
            raise ValueError("client certificates need TLS, not --insecure-http")
        if self.tls_client_names and self.tls_client_ca is None:
            raise ValueError("CKPTGUARD_TLS_CLIENT_NAMES says nothing without CKPTGUARD_TLS_CLIENT_CA")
        if self.policy_configmap is not None and not _CONFIGMAP.fullmatch(self.policy_configmap):
            raise ValueError(f'--policy-configmap: "{self.policy_configmap}" is not of the form NAMESPACE/NAME')
        return self


def parse_listen(text: str) -> tuple[str, int]:
    """``ADDR:PORT``, ``[ADDR]:PORT`` or ``:PORT`` -> host and port. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f'"{text}" is not ADDR:PORT')
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f'"{text}" is not ADDR:PORT; an IPv6 address goes into brackets')
    return host or "0.0.0.0", int(port)  # noqa: S104 - what an empty address means
