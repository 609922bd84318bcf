"""All Prometheus names in one place.

``METRICS`` is the catalogue that ``docs/metrics.md`` is generated from (``python -m webhook.metrics``). Labels are
bounded: paths and codes that we answer, our three kinds, the ids of our rules. Children are bound beforehand, so that
the hot path pays for no look-up by label.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from webhook import __version__
from webhook.defaults import RUNTIME_CREATE, RUNTIME_UPDATE, TRAINJOB_CREATE, TRAINJOB_UPDATE
from webhook.model.deletion import PROTECTED
from webhook.model.names import KINDS
from webhook.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from webhook.model.finding import Judged

MUTATE: Final = "/mutate"
VALIDATE: Final = "/validate"
CODES: Final = (200, 400, 403, 405, 408, 413, 415, 503)
PARTS: Final = (
    *("server", "effective", "script", "defaults", "record"),
    *dict.fromkeys(part.name for part in (*TRAINJOB_CREATE, *TRAINJOB_UPDATE, *RUNTIME_CREATE, *RUNTIME_UPDATE)),
    *(rule.id for rule in RULES),
)
"""What of ours may raise."""
BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 2.5)
"""Seconds. A decision takes a tenth of a millisecond; one with live reads at most the look-up budget of 2 s."""


class Metric(Struct, frozen=True):
    """One row of the catalogue."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


METRICS: Final = (
    Metric(
        "ckptguard_webhook_requests_total",
        "counter",
        ("webhook", "code"),
        "Admission requests answered, by path and HTTP code.",
    ),
    Metric(
        "ckptguard_webhook_requests_in_flight",
        "gauge",
        (),
        "Admission requests whose answer is not out yet.",
    ),
    Metric(
        "ckptguard_webhook_latency_seconds",
        "histogram",
        ("webhook",),
        "Time from the last byte of a request to its answer.",
    ),
    Metric(
        "ckptguard_decisions_total",
        "counter",
        ("kind", "operation", "verdict"),
        "Verdicts of /validate; dry-runs count too.",
    ),
    Metric(
        "ckptguard_deletions_total",
        "counter",
        ("kind", "verdict"),
        "Verdicts of /validate on DELETE of what runs need, where a namespace asks for protection.",
    ),
    Metric(
        "ckptguard_would_deny_total",
        "counter",
        ("kind", "operation", "mode"),
        "Requests that mode enforce refuses, by the mode that was in force; those in enforce were refused.",
    ),
    Metric(
        "ckptguard_findings_total",
        "counter",
        ("rule", "severity"),
        "Findings of /validate, by rule and by the severity that counted.",
    ),
    Metric(
        "ckptguard_patches_total",
        "counter",
        ("kind", "operation"),
        "Answers of /mutate that changed the object.",
    ),
    Metric(
        "ckptguard_broken_total",
        "counter",
        ("part",),
        "Rules and defaults of ours that raised; the object was let through with a warning. Alert on any.",
    ),
    Metric(
        "ckptguard_lookups_total",
        "counter",
        ("result",),
        "Live reads that a request waited for: answered, late (what was missing counted as unknown) or failed.",
    ),
    Metric(
        "ckptguard_live_reads_total",
        "counter",
        ("result",),
        "Single reads from the API server by result: found, absent, forbidden (a right is missing) or failed.",
    ),
    Metric(
        "ckptguard_connections",
        "gauge",
        (),
        "Connections that are open, those without a handshake too.",
    ),
    Metric(
        "ckptguard_connections_refused_total",
        "counter",
        ("why",),
        "Connections ended or not taken: full (the ceiling of all), peer (that of one peer), handshake (none in time).",
    ),
    Metric(
        "ckptguard_worker_jobs_waiting",
        "gauge",
        (),
        "Requests that wait for the worker process, which judges what is too large for the event loop.",
    ),
    Metric(
        "ckptguard_worker_resident_bytes",
        "gauge",
        (),
        "Resident memory of the worker process; 0 while there is none.",
    ),
    Metric(
        "ckptguard_worker_restarts_total",
        "counter",
        ("why",),
        "Worker processes that ended: died, late (one request took too long), grown (its memory was over the bound).",
    ),
    Metric(
        "ckptguard_cache_objects",
        "gauge",
        ("kind",),
        "Objects of the cluster that are known, by kind.",
    ),
    Metric(
        "ckptguard_cache_event_age_seconds",
        "gauge",
        ("kind",),
        "Time since the API server last said something of a kind; bookmarks come about every minute.",
    ),
    Metric(
        "ckptguard_cache_relists_total",
        "counter",
        ("kind",),
        "How often a kind had to be listed again after its first list.",
    ),
    Metric(
        "ckptguard_audit_lines_total",
        "counter",
        ("sink",),
        "Audit lines written.",
    ),
    Metric(
        "ckptguard_audit_lines_lost_total",
        "counter",
        ("sink",),
        "Audit lines lost because the sink was stalled or failed. Alert on any.",
    ),
    Metric(
        "ckptguard_audit_queue_length",
        "gauge",
        ("sink",),
        "Audit lines that wait for the sink.",
    ),
    Metric(
        "ckptguard_tls_reloads_total",
        "counter",
        ("result",),
        "Reloads of the serving certificate: loaded, or refused (the old pair stays in use).",
    ),
    Metric(
        "ckptguard_tls_expires_seconds",
        "gauge",
        (),
        "When the serving certificate expires, in Unix time; 0 without one, or with one that was never valid here.",
    ),
    Metric(
        "ckptguard_tls_stale",
        "gauge",
        (),
        "1 while the mounted pair is refused and an older one is served. Alert on 10 minutes.",
    ),
    Metric(
        "ckptguard_tls_trusted",
        "gauge",
        (),
        "0 while the webhook configuration's caBundle does not trust what is served. Alert on any.",
    ),
    Metric(
        "ckptguard_policy_info",
        "gauge",
        ("hash",),
        "1 for the policy in use.",
    ),
    Metric(
        "ckptguard_trainer_release",
        "gauge",
        ("release", "known"),
        "1 for the Trainer release that verdicts are those of; known is false where the CRD has fields of a newer one.",
    ),
    Metric(
        "ckptguard_policy_reloads_total",
        "counter",
        ("result",),
        "Versions of the policy's ConfigMap: loaded, or refused (the last good policy stays in force).",
    ),
    Metric(
        "ckptguard_policy_stale",
        "gauge",
        (),
        "1 while the policy's ConfigMap is refused or gone and an older policy is in force. Alert on 5 minutes.",
    ),
    Metric(
        "ckptguard_build_info",
        "gauge",
        ("version",),
        "1 for the version that runs.",
    ),
)
KEEPER: Final = (
    Metric("ckptguard_certs_leading", "gauge", (), "1 for the replica that holds the Lease."),
    Metric(
        "ckptguard_certs_failing",
        "gauge",
        (),
        "1 while turns fail; what stands stays in use. Alert on 10 minutes.",
    ),
    Metric("ckptguard_certs_failures_total", "counter", (), "Turns that failed."),
    Metric(
        "ckptguard_certs_writes_total",
        "counter",
        ("what",),
        "Writes: new authorities (ca), new pairs (leaf), caBundles (bundle), lists of authorities (order), "
        "failurePolicy (policy).",
    ),
    Metric(
        "ckptguard_certs_open",
        "gauge",
        (),
        "1 while a CREATE passes unjudged if nobody answers (failurePolicy: Ignore): before the first pod is ready.",
    ),
    Metric(
        "ckptguard_certs_expires_seconds",
        "gauge",
        ("what",),
        "When the pair (leaf) and the authority (ca) expire, in Unix time; of the replica that leads.",
    ),
)
"""What ``ckptguard certs run`` serves, listed here alone: it is a package of its own."""
SCAN: Final = (
    Metric(
        "ckptguard_runs",
        "gauge",
        ("namespace", "verdict"),
        "Unfinished TrainJobs by what enforce would say of them: allow, warn, deny, exempt, not-judged.",
    ),
    Metric("ckptguard_scan_seconds", "gauge", (), "How long the last scan took."),
    Metric(
        "ckptguard_scan_ended_seconds",
        "gauge",
        (),
        "When the last scan came to its end, in Unix time; 0 before the first.",
    ),
    Metric(
        "ckptguard_scan_failures_total",
        "counter",
        (),
        "Scans that did not come to an end; the figures before them stay.",
    ),
)
"""What ``ckptguard scan --metrics`` serves, listed here alone: it writes them without the library."""
_BY_NAME: Final = {metric.name: metric for metric in METRICS}


class Metrics:
    """The process's metrics on a registry of their own."""

    def __init__(self, process: bool = True) -> None:
        # They would be a second series for every counter, which nothing reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=False)
        if process:
            ProcessCollector(registry=self.registry)
            GCCollector(registry=self.registry)
        requests = self._counter("ckptguard_webhook_requests_total")
        latency = self._histogram("ckptguard_webhook_latency_seconds")
        self.requests = {
            (path, code): requests.labels(path, str(code)) for path in (MUTATE, VALIDATE) for code in CODES
        }
        self.latency = {path: latency.labels(path) for path in (MUTATE, VALIDATE)}
        self._in_flight = self._gauge("ckptguard_webhook_requests_in_flight")
        self._jobs_waiting = self._gauge("ckptguard_worker_jobs_waiting")
        self._worker_bytes = self._gauge("ckptguard_worker_resident_bytes")
        restarts = self._counter("ckptguard_worker_restarts_total")
        self.worker_restarts = {why: restarts.labels(why) for why in ("died", "late", "grown")}
        self._connections = self._gauge("ckptguard_connections")
        refused = self._counter("ckptguard_connections_refused_total")
        self._refused = {why: refused.labels(why) for why in ("full", "peer", "handshake")}
        decisions = self._counter("ckptguard_decisions_total")
        would_deny = self._counter("ckptguard_would_deny_total")
        patches = self._counter("ckptguard_patches_total")
        self.decisions = {
            (kind, operation, verdict): decisions.labels(kind, operation, verdict)
            for kind in KINDS
            for operation in ("CREATE", "UPDATE")
            for verdict in ("allow", "warn", "deny")
        }
        deletions = self._counter("ckptguard_deletions_total")
        self.deletions = {
            (key[2], verdict): deletions.labels(key[2], verdict)
            for key in PROTECTED
            for verdict in ("allow", "warn", "deny")
        }
        self.would_deny = {
            (kind, operation, mode): would_deny.labels(kind, operation, mode)
            for kind in KINDS
            for operation in ("CREATE", "UPDATE")
            for mode in ("enforce", "warn", "audit")
        }
        self.patches = {
            (kind, operation): patches.labels(kind, operation) for kind in KINDS for operation in ("CREATE", "UPDATE")
        }
        self._findings = self._counter("ckptguard_findings_total")
        self._finding: dict[tuple[str, str], Counter] = {}
        self._broken = self._counter("ckptguard_broken_total")
        for part in PARTS:  # ``increase`` sees nothing in a series that begins with its first count
            self._broken.labels(part)
        lookups = self._counter("ckptguard_lookups_total")
        self.lookups = {result: lookups.labels(result) for result in ("answered", "late", "failed")}
        reads = self._counter("ckptguard_live_reads_total")
        self.live_reads = {result: reads.labels(result) for result in ("found", "absent", "forbidden", "failed")}
        self._objects = self._gauge("ckptguard_cache_objects")
        self._age = self._gauge("ckptguard_cache_event_age_seconds")
        self._relists = self._counter("ckptguard_cache_relists_total")
        self._audit = self._counter("ckptguard_audit_lines_total")
        self._lost = self._counter("ckptguard_audit_lines_lost_total")
        self._waiting = self._gauge("ckptguard_audit_queue_length")
        reloads = self._counter("ckptguard_tls_reloads_total")
        self.tls_reloads = {result: reloads.labels(result) for result in ("loaded", "refused")}
        self.tls_expires = self._gauge("ckptguard_tls_expires_seconds")
        self.tls_stale = self._gauge("ckptguard_tls_stale")
        self.tls_trusted = self._gauge("ckptguard_tls_trusted")
        self.tls_trusted.set(1)
        self._trainer = self._gauge("ckptguard_trainer_release")
        self._policy = self._gauge("ckptguard_policy_info")
        policies = self._counter("ckptguard_policy_reloads_total")
        self.policy_reloads = {result: policies.labels(result) for result in ("loaded", "refused")}
        self.policy_stale = self._gauge("ckptguard_policy_stale")
        self._gauge("ckptguard_build_info").labels(__version__).set(1)

    def found(self, findings: Iterable[Judged]) -> None:
        """Count the findings of one verdict."""
        self.found_rules((finding.rule, finding.severity.value) for finding in findings)

    def found_rules(self, found: Iterable[tuple[str, str]]) -> None:
        """Count findings by rule and severity."""
        for key in found:
            child = self._finding.get(key)
            if child is None:
                child = self._finding[key] = self._findings.labels(*key)
            child.inc()

    def broke(self, parts: Iterable[str]) -> None:
        """Count rules and defaults that raised."""
        for part in parts:
            self._broken.labels(part).inc()

    def watch_in_flight(self, count: Callable[[], float]) -> None:
        """Read the number of requests in flight when scraped."""
        self._in_flight.set_function(count)

    def watch_connections(self, count: Callable[[], float]) -> None:
        """Read the number of open connections when scraped."""
        self._connections.set_function(count)

    def watch_worker(self, waiting: Callable[[], float], resident: Callable[[], float]) -> None:
        """Read the worker's queue and memory when scraped."""
        self._jobs_waiting.set_function(waiting)
        self._worker_bytes.set_function(resident)

    def refused_connection(self, why: str) -> None:
        """Count a connection that was ended or not taken."""
        self._refused[why].inc()

    def cache(self, kind: str, objects: Callable[[], float], age: Callable[[], float]) -> Counter:
        """Read a kind's number of objects and age when scraped; the counter of its relists."""
        self._objects.labels(kind).set_function(objects)
        self._age.labels(kind).set_function(age)
        return self._relists.labels(kind)

    def audit_sink(self, sink: str, waiting: Callable[[], float]) -> tuple[Counter, Counter]:
        """Counters of lines written and lines lost for one sink, whose queue is read when scraped."""
        self._waiting.labels(sink).set_function(waiting)
        return self._audit.labels(sink), self._lost.labels(sink)

    def use_policy(self, policy_hash: str) -> None:
        """Name the policy in use."""
        self._policy.clear()
        self._policy.labels(policy_hash).set(1)

    def use_trainer(self, release: str, known: bool) -> None:
        """Name the Trainer release in use, and whether it is the one that the cluster serves."""
        self._trainer.clear()
        self._trainer.labels(release, str(known).lower()).set(1)

    def _counter(self, name: str) -> Counter:
        metric = _BY_NAME[name]
        return Counter(name, metric.help, metric.labels, registry=self.registry)

    def _gauge(self, name: str) -> Gauge:
        metric = _BY_NAME[name]
        return Gauge(name, metric.help, metric.labels, registry=self.registry)

    def _histogram(self, name: str) -> Histogram:
        metric = _BY_NAME[name]
        return Histogram(name, metric.help, metric.labels, registry=self.registry, buckets=BUCKETS)


def catalogue() -> str:
    """``docs/metrics.md``."""
    lines = [
        "# Metrics",
        "",
        "<!-- Generated by `python -m webhook.metrics > docs/metrics.md`; a test compares. -->",
        "",
        "`GET /metrics` in Prometheus' text format, on the port of the webhook. Beside these there are the usual",
        "`process_*` and `python_gc_*`. Every label is bounded: paths and codes that the server answers, our three",
        "kinds, the ids of our rules. No label holds a namespace, a user or a name.",
        "",
        "| name | type | labels | meaning |",
        "|---|---|---|---|",
    ]
    lines += _rows(METRICS)
    lines += [
        "",
        "`ckptguard certs run --listen ADDR:PORT`, the keeper of the certificates, serves these over plain HTTP:",
    ]
    lines += ["", "| name | type | labels | meaning |", "|---|---|---|---|", *_rows(KEEPER)]
    lines += [
        "",
        "`ckptguard scan --metrics ADDR:PORT` (component `run-metrics`) serves these over plain HTTP; here",
        "`namespace` is a label:",
    ]
    lines += ["", "| name | type | labels | meaning |", "|---|---|---|---|", *_rows(SCAN)]
    return "\n".join(lines) + "\n"


def _rows(metrics: Iterable[Metric]) -> Iterator[str]:
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


if __name__ == "__main__":
    print(catalogue(), end="")  # noqa: T201
