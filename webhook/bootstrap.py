"""The composition root: the one place that builds adapters and puts them together.

``serve`` is what the command line calls. Libraries that only serving needs are imported here and below, and the
kubernetes client only where a cluster is looked at.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from webhook.audit import AuditLog, DescriptorSink, FileSink, Sink
from webhook.metrics import Metrics
from webhook.model.cluster import (
    Claim,
    ClusterView,
    ConfigMap,
    CsiDriver,
    Gap,
    Namespace,
    PersistentVolume,
    Run,
    RunDirectory,
    Runtime,
    StorageClass,
)
from webhook.model.policy import Policy
from webhook.model.release import NEWEST, Release, parse_release
from webhook.server.admission import HEAVY, Admission, FixedViews, Needs, Views
from webhook.server.app import Front, State
from webhook.server.gate import Gate
from webhook.server.judging import Default, Judge
from webhook.server.listener import Ceilings
from webhook.server.logs import log_to_stderr
from webhook.server.policy import PolicyFile, PolicyInForce, PolicyTable, kind_of, signature_of
from webhook.server.pool import Worker
from webhook.server.run import GuardServer, Job, build_server

if TYPE_CHECKING:
    from webhook.cluster.connection import Connection
    from webhook.cluster.registration import Get
    from webhook.cluster.tables import ServedTable, Tables
    from webhook.model.exceptions import Exceptions
    from webhook.server.tls import Callers, Certificate
    from webhook.settings import Settings

NO_CLUSTER: Final = "the server runs without a cluster"

_log = logging.getLogger("ckptguard")


class SettingsError(Exception):
    """Settings that cannot be used; the text has one line for each fault."""


class Cluster(Struct):
    """What serving needs of a cluster: views, what fills them before the server is ready, what keeps them filled."""

    views: Views
    prepare: Job | None = None
    background: Sequence[Job] = ()
    fault: Callable[[], str | None] = lambda: None
    """What of it hangs for good, for ``/healthz``."""
    get: Get | None = None
    """Reads a path of the API server; None without one."""
    needs: Needs | None = None
    """Who needs what is being deleted; None: nobody knows, and everything may go."""


class NothingKnown:
    """A ClusterView without a cluster: everything is unknown, so nothing is denied for what is not there."""

    def claim(self, namespace: str, name: str) -> Claim | Gap:
        return Gap.UNKNOWN

    def volume(self, name: str) -> PersistentVolume | Gap:
        return Gap.UNKNOWN

    def available_volumes(self, storage_class: str) -> Sequence[PersistentVolume] | Gap:
        return Gap.UNKNOWN

    def storage_class(self, name: str) -> StorageClass | Gap:
        return Gap.UNKNOWN

    def default_storage_class(self) -> StorageClass | Gap:
        return Gap.UNKNOWN

    def some_classes(self) -> Sequence[StorageClass] | Gap:
        return Gap.UNKNOWN

    def some_claims(self, namespace: str) -> Sequence[Claim] | Gap:
        return Gap.UNKNOWN

    def csi_driver(self, name: str) -> CsiDriver | Gap:
        return Gap.UNKNOWN

    def config_map(self, namespace: str, name: str) -> ConfigMap | Gap:
        return Gap.UNKNOWN

    def namespace(self, name: str) -> Namespace | Gap:
        return Gap.UNKNOWN

    def runtime(self, kind: str, namespace: str, name: str) -> Runtime | Gap:
        return Gap.UNKNOWN

    def snapshot(self, namespace: str, trainjob: str) -> Runtime | Gap:
        return Gap.UNKNOWN

    def runs_of_runtime(self, kind: str, namespace: str, name: str) -> Sequence[Run] | Gap:
        return Gap.UNKNOWN

    def excused_runs(self, namespace: str, besides: str) -> int | Gap:
        return Gap.UNKNOWN

    def directories(self, namespace: str, claim: str, path: str | None = None) -> Sequence[RunDirectory] | Gap:
        return Gap.UNKNOWN

    def exceptions(self, namespace: str) -> Exceptions | Gap:
        return Gap.ABSENT  # nobody can have written one

    def serves_kueue(self) -> bool | None:
        return None

    def release(self) -> Release | None:
        return None

    def why_unknown(self, kind: str) -> str:
        return NO_CLUSTER


def serve(arguments: object) -> int:
    """Serve until SIGTERM. ``arguments`` has the flags as attributes, None where one is not given.

    Exit code 2: settings that cannot be used; 1: the server could not start or had to give up.
    """
    try:
        settings = read_settings(vars(arguments))
        log_to_stderr(settings.log_level)
        server, close = assemble(settings)
    except SettingsError as error:
        sys.stderr.write("".join(f"error: {line}\n" for line in str(error).splitlines()))
        return 2
    try:
        server.run()
    except SystemExit:  # uvicorn's way to say that it cannot listen; it has logged why
        return 1
    finally:
        close()
    return 1 if server.failed or not server.started else 0


def read_settings(flags: Mapping[str, Any]) -> Settings:
    """Flags over environment over defaults. Raises SettingsError."""
    from pydantic import ValidationError

    from webhook.settings import Settings

    given = {name: value for name, value in flags.items() if value is not None and name in Settings.model_fields}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingsError("\n".join(_words(fault) for fault in error.errors())) from None


def assemble(settings: Settings, cluster: Cluster | None = None) -> tuple[GuardServer, Callable[[], None]]:
    """Settings -> a server that is ready to run, and what to call when it has stopped. Raises SettingsError.

    ``cluster`` takes the place of the one that the settings name.
    """
    from webhook.decision import default_object, review_object

    return assemble_with(settings, default_object, review_object, cluster, True)


def assemble_with(
    settings: Settings, default: Default, judge: Judge, cluster: Cluster | None = None, worker: bool = False
) -> tuple[GuardServer, Callable[[], None]]:
    """``assemble`` with the two functions of the engine given; ``worker``: what is heavy is judged in a process of its
    own, by the engine of the product."""
    from webhook.settings import parse_listen

    release = _release(settings)
    seen = None if settings.policy is None else signature_of(settings.policy)
    policy = build_policy(settings)
    metrics = Metrics()
    in_force = PolicyInForce(policy, metrics, settings.default_mode)
    gate = Gate(settings.in_flight, settings.waiting)
    state = State()
    heavy = Worker(metrics, release) if worker else None
    cluster = cluster or build_cluster(settings, in_force, metrics, heavy)
    state.fault = cluster.fault
    certificate = _certificate(settings, metrics, cluster)
    prepare = [cluster.prepare] if cluster.prepare is not None else []
    background = [*cluster.background]
    if settings.policy is not None:
        background.append(PolicyFile(in_force, settings.policy, seen).follow)
    if heavy is not None:
        background.append(heavy.run)
    if certificate is not None:
        state.unready = lambda: certificate.untrusted
        prepare.append(certificate.prepare)
        background.append(certificate.follow)
    audit = AuditLog(_sinks(settings), metrics, settings.audit_queue)
    admission = Admission(
        default=default,
        judge=judge,
        views=cluster.views,
        policy=in_force,
        audit=audit,
        metrics=metrics,
        gate=gate,
        release=release,
        lookup_seconds=settings.lookup_timeout,
        worker=heavy,
        needs=cluster.needs,
    )
    front = Front(
        admission=admission,
        gate=gate,
        state=state,
        metrics=metrics,
        docs=settings.docs,
        body_seconds=settings.body_timeout,
        head_seconds=settings.head_timeout,
    )
    if settings.tls_client_ca is not None:
        front.clients = tuple(name.strip() for name in settings.tls_client_names.split(",") if name.strip())
    host, port = parse_listen(settings.listen)
    server = build_server(
        front,
        host,
        port,
        certificate.context if certificate is not None else None,
        settings.pre_stop_delay,
        settings.drain_timeout,
        lambda: _one_by_one(prepare),
        background,
        Ceilings(settings.connections, settings.connections_per_peer, settings.handshake_timeout),
    )
    return server, audit.close


def build_policy(settings: Settings) -> Policy:
    """The policy file, or the built-in policy. Raises SettingsError."""
    mode = settings.default_mode
    if settings.policy is None and mode is None:
        return Policy()
    from webhook.cluster.policy_file import PolicyError, parse_policy, read_policy

    if settings.policy is None:
        return parse_policy(b"", "built-in", default_mode=mode)
    checked = read_policy(str(settings.policy), default_mode=mode)
    try:
        policy = checked.used()
    except PolicyError as error:
        raise SettingsError(str(error)) from None
    for warning in checked.warnings:
        _log.warning("%s", warning)
    if mode is not None and policy.modes.default != mode:
        _log.warning(
            "%s: modes.default: %s; CKPTGUARD_DEFAULT_MODE=%s is not used", settings.policy, policy.modes.default, mode
        )
    return policy


def build_cluster(
    settings: Settings, in_force: PolicyInForce, metrics: Metrics, worker: Worker | None = None
) -> Cluster:
    """Watches of the cluster that the settings name, and live reads beside them."""
    if settings.no_cluster:
        return Cluster(FixedViews(NothingKnown()))
    from time import monotonic

    from webhook.cluster.connection import Connection, configuration
    from webhook.cluster.kinds import TRAINJOB, VOLUME, WATCHED
    from webhook.cluster.live import LiveViews, directories_by, work_out_heavy
    from webhook.cluster.needs import Needs as ClusterNeeds
    from webhook.cluster.reader import Reader
    from webhook.cluster.served import follow_kueue
    from webhook.cluster.tables import Tables
    from webhook.cluster.watch import Watch, Watches

    connection = Connection(configuration(settings.kubeconfig, inside_first=True))
    tables = Tables()
    release = _release(settings)
    tables.runs.work_out_by(directories_by(tables, in_force, release, HEAVY if worker is not None else None))
    made: list[Watch] = []
    for kind in WATCHED:
        table = tables.by_kind[kind.name]
        watch = Watch(kind, connection, table)
        relists = metrics.cache(kind.name, partial(len, table), partial(lambda watch: monotonic() - watch.heard, watch))
        watch.relisted = relists.inc
        made.append(watch)
    background: list[Job] = []
    if settings.policy_configmap is not None:
        text = PolicyTable(in_force, settings.policy_configmap)
        made.append(Watch(kind_of(settings.policy_configmap), connection, text))
        background.append(text.follow)
    in_force.changed = partial(_directories_again, tables, connection)
    watches = Watches(made, connection.close)
    tables.served_changed = _Served(tables.served, release, metrics, watches.try_again)
    reader = Reader(
        connection,
        seconds=settings.lookup_timeout,
        at_once=settings.in_flight,
        told=lambda result: metrics.live_reads[result].inc(),
        tables=tables,
        volumes=watches.by_kind[VOLUME],
    )
    views = LiveViews(reader, tables, watches.by_kind, settings.lookup_timeout)
    background += [watches.run, partial(follow_kueue, connection.get, tables)]
    if worker is not None:
        elsewhere = partial(_directories, worker, in_force)
        background.append(partial(work_out_heavy, tables, elsewhere, release))
    needs = ClusterNeeds(tables, reader, watches.by_kind[TRAINJOB], release)
    return Cluster(
        views=views,
        prepare=watches.wait_synced,
        background=background,
        fault=watches.fault,
        get=connection.get,
        needs=needs,
    )


async def _directories(
    worker: Worker, in_force: PolicyInForce, trainjob: Mapping[str, Any], view: ClusterView
) -> Iterable[tuple[str, str]]:
    return await worker.directories(trainjob, view, in_force())


async def _directories_again(tables: Tables, connection: Connection, before: Policy, after: Policy) -> None:
    """Where another variable declares directories now, those of the runs that exist are worked out again."""
    from webhook.cluster.access import NoCluster, Refused, Unreachable
    from webhook.cluster.kinds import KINDS, TRAINJOB
    from webhook.cluster.watch import Watch

    if before.directory == after.directory:
        return
    tables.runs.redo()
    try:
        await Watch(KINDS[TRAINJOB], connection, tables.runs).list_once()
    except (NoCluster, Refused, Unreachable) as error:
        _log.warning("the directories of runs follow the new policy as they change: %s", error)


class _Served:
    """Called when Trainer's CRD changes: the metric says which release counts, one warning says that it is a guess."""

    def __init__(self, table: ServedTable, given: Release | None, metrics: Metrics, then: Callable[[], None]) -> None:
        self._table = table
        self._given = given
        self._metrics = metrics
        self._then = then
        self._told: tuple[str, ...] = ()

    def __call__(self) -> None:
        from webhook.cluster.served import told

        parts = self._table.unknown
        served = self._table.release
        self._metrics.use_trainer((self._given or served or NEWEST).value, served is not None and not parts)
        if parts and parts != self._told:
            _log.warning("%s", told(parts))
        self._told = parts
        self._then()


def _release(settings: Settings) -> Release | None:
    if settings.trainer is None:
        return None
    try:
        return parse_release(settings.trainer)
    except ValueError as error:
        raise SettingsError(str(error)) from None


async def _one_by_one(jobs: Sequence[Job]) -> None:
    for job in jobs:
        await job()


def _certificate(settings: Settings, metrics: Metrics, cluster: Cluster) -> Certificate | None:
    cert, key, get = settings.tls_cert, settings.tls_key, cluster.get
    if cert is None or key is None:
        return None
    from webhook.server.tls import Certificate, PairRefused, Told

    callers: Callers | None = None
    if get is not None and settings.check_ca_bundle:
        from webhook.cluster.registration import load_callers

        callers = partial(load_callers, get)
    told = Told(
        reloaded=lambda well: metrics.tls_reloads["loaded" if well else "refused"].inc(),
        expires=metrics.tls_expires.set,
        stale=lambda stale: metrics.tls_stale.set(stale),
        trusted=lambda trusted: metrics.tls_trusted.set(trusted),
    )
    try:
        return Certificate(cert, key, settings.tls_client_ca, callers, told)
    except PairRefused as refused:
        raise SettingsError(f"nothing can be served with {cert} and {key}: {refused}") from None


def _sinks(settings: Settings) -> list[Sink]:
    sinks: list[Sink] = []
    if settings.audit_stdout:
        sinks.append(DescriptorSink(1, "stdout"))
    if settings.audit_file is not None:
        try:
            sinks.append(FileSink(settings.audit_file, settings.audit_file_bytes, settings.audit_file_keep))
        except OSError as error:
            raise SettingsError(f"{settings.audit_file}: {error.strerror}") from None
    return sinks


def _words(fault: Any) -> str:
    place = ".".join(f"CKPTGUARD_{part}".upper() for part in fault["loc"])
    message = str(fault["msg"]).removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
