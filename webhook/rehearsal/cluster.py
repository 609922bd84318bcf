"""The rehearsal in the cluster: the TrainJob under another name, interrupted once, and nothing of it left afterwards.

Through admission and through the run's queue, as the run itself would be. No kill in the middle of a save there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct, structs

from webhook.cluster.access import Unreachable
from webhook.model.names import REHEARSAL_OF, REHEARSAL_UNTIL
from webhook.model.pod import EMPTY, Raw
from webhook.rehearsal.folder import erase_command, make_command
from webhook.rehearsal.judge import Seen, judge
from webhook.rehearsal.model import CannotRehearse, Finding, Report, Save, Settings, Start
from webhook.rehearsal.plan import FOLDER, Plan, claims_of
from webhook.rehearsal.saves import key, reached
from webhook.rehearsal.texts import TEXTS
from webhook.rehearsal.trouble import known_trouble
from webhook.runs.api import Answer
from webhook.runs.clock import Waiting
from webhook.runs.helper import MOUNT, holding, run_helper
from webhook.runs.kube import APPEARS
from webhook.runs.layouts import Found, Saved
from webhook.runs.reader import NobodyToAsk, look
from webhook.runs.restart import Resumed, pending, resumed_words, start
from webhook.runs.run import JOBSETS, TRAINJOBS, CannotDo, Run, every_pod_of, has_ended, pods_of_job
from webhook.runs.session import POLL, Session
from webhook.runs.suspension import suspend
from webhook.runs.words import pods as pods_words

LEFT: Final = "left behind: "
"""How ``session.state`` begins where something of a rehearsal could not be removed."""
_KILLED: Final = 137
_SHELLS: Final = frozenset(("sh", "bash", "dash", "ash", "ksh", "zsh", "busybox"))
_RIGHTS: Final = (
    ("trainer.kubeflow.org", "trainingruntimes", "", ("create", "delete")),
    ("trainer.kubeflow.org", "trainjobs", "", ("create", "get", "patch", "delete")),
    ("", "pods", "", ("create", "get", "list", "delete")),
    ("", "pods", "log", ("get",)),
)


class Interrupted(Struct):
    """What SIGTERM led to. ``code``: the training container's exit code, None where nobody saw it."""

    code: int | None = None
    seconds: float = 0.0
    shell: str = ""
    """Process 1 of the container where that is a shell."""
    printed: str = ""
    before: tuple[Saved, ...] = ()
    after: Found = Found(())


_WAITS: Final = 8
"""How often a rehearsal waits in all, each time as long as its timeout at most."""


def rehearse(session: Session, plan: Plan, command: tuple[str, ...]) -> Report:
    """The report. What was made is removed whatever happens; ``session.state`` says what could not be.

    Raises CannotDo, CannotRehearse, Unreachable and KeyboardInterrupt, after that.
    """
    began = session.kube.clock.monotonic()
    check_rights(session, plan)
    clear_left(session, plan)
    _check_claim(session, plan)
    session.say(_costs(plan))
    scene = _Scene(session, plan)
    try:
        scene.build()
        report = _conduct(session, plan, command)
    finally:
        scene.clear()
    report.seconds = session.kube.clock.monotonic() - began
    return report


def check_rights(session: Session, plan: Plan) -> None:
    """Raises CannotDo with every right that is missing, before anything is made."""
    missing = []
    for group, resource, sub, verbs in _RIGHTS:
        for verb in verbs:
            asked = {"namespace": plan.namespace, "verb": verb, "group": group, "resource": resource}
            body = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": {**asked, **({"subresource": sub} if sub else {})}},
            }
            answer = session.kube.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", None, body)
            if answer.ok and not (answer.body.get("status") or EMPTY).get("allowed"):
                of = f" --subresource={sub}" if sub else ""
                missing.append(f"  kubectl auth can-i {verb} {resource}{of} -n {plan.namespace}")
    if missing:
        raise CannotDo(
            f"a rehearsal in namespace {plan.namespace} takes rights that are missing; nothing was made", *missing
        )


def _check_claim(session: Session, plan: Plan) -> None:
    answer = session.kube.request("GET", f"/api/v1/namespaces/{plan.namespace}/persistentvolumeclaims/{plan.claim}")
    if answer.code == 404:
        raise CannotDo(f'claim "{plan.claim}" does not exist in namespace {plan.namespace}: create it, or say --claim')
    modes = set((answer.body.get("spec") or EMPTY).get("accessModes") or ()) if answer.ok else set()
    if not modes or modes & {"ReadWriteMany"}:
        return
    if plan.pods > 1:
        raise CannotDo(
            f'claim "{plan.claim}" can be mounted on one node alone, and {plan.pods} pods would train: --nodes 1'
        )
    holders = holding(
        session.kube, _owner({"metadata": {"name": plan.name, "namespace": plan.namespace}}), plan.directory
    )
    if holders:
        pod = holders[0]
        raise CannotDo(
            f'claim "{plan.claim}" can be mounted on one node alone, and pod "{pod["metadata"]["name"]}" on node '
            f'"{(pod.get("spec") or EMPTY).get("nodeName")}" has it: stop that run, or give another claim with --claim'
        )


def _costs(plan: Plan) -> str:
    queue = f', through queue "{plan.queue}"' if plan.queue else ""
    return (
        f'rehearsal "{plan.name}" in namespace {plan.namespace}: {pods_words(plan.pods)} with what the run asks for'
        f'{queue}, in folder "{plan.folder}" of claim "{plan.claim}"; all of it is removed afterwards'
    )


def _owner(obj: Any) -> Run:
    return Run(obj, None, ())


class _Scene:
    """What is made for a rehearsal, and taken away again in the opposite order."""

    def __init__(self, session: Session, plan: Plan) -> None:
        self.session, self.plan = session, plan
        self.runtime: Any = None
        self.made: list[str] = []
        """What may be there, in order: ``runtime``, ``folder``, ``trainjob``."""
        self.answered: set[str] = set()
        """What is there for certain; a creation whose answer was not waited for may be carried out yet."""

    def _path(self, plural: str) -> str:
        return f"{TRAINJOBS}/namespaces/{self.plan.namespace}/{plural}"

    def build(self) -> None:
        """The runtime, the folder, the TrainJob: in this order, so that the kubelet makes no folder of another user."""
        plan = self.plan
        self.runtime = self._create("runtime", "trainingruntimes", with_end(self.session, plan.runtime))
        self.made.append("folder")
        text = self._on_claim(make_command(MOUNT, plan.folders))
        failed = next((line[7:] for line in text.splitlines() if line.startswith("FAILED ")), None)
        if failed == "FULL":
            raise CannotDo(f'claim "{plan.claim}" is full: ckptguard prune, or give another claim with --claim')
        if failed is not None:
            raise CannotDo(f'folder "{plan.folder}" cannot be made on claim "{plan.claim}": {failed}')
        self._create("trainjob", "trainjobs", plan.trainjob)

    def _on_claim(self, command: list[str]) -> str:
        """What a command prints in a helper pod that may write to the claim."""
        session = self.session
        return run_helper(
            session.kube,
            _owner(self.runtime),
            self.plan.directory,
            session.options.image,
            command,
            write=True,
            seconds=session.options.timeout,
        )

    def _create(self, what: str, plural: str, body: Raw) -> Raw:
        self.made.append(what)
        answer = self.session.kube.request("POST", self._path(plural), {"fieldManager": "ckptguard"}, body)
        for warning in answer.warnings:
            self.session.say(f"warning: {warning}")
        if not answer.ok:
            if answer.code < 500:
                self.made.remove(what)
            raise CannotDo(f"its {what} is refused, as the run itself would be: {answer.message}")
        self.answered.add(what)
        return {"kind": body["kind"], **answer.body}

    def _delete(self, what: str, path: str, params: dict[str, str] | None = None) -> Answer:
        kube = self.session.kube
        wait = Waiting(kube.clock, 0.0 if what in self.answered else APPEARS)
        while (answer := kube.request("DELETE", path, params)).code == 404 and not wait.over():
            wait.pause(0.2)
        return answer

    def clear(self) -> None:
        """Take it all away; ``session.state`` says what is left, with the command that removes it."""
        self._tell()
        if not self.made:
            return
        try:
            for what in reversed(list(self.made)):
                self.session.live(f"removing its {what}")
                if not {"runtime": self._no_runtime, "folder": self._no_folder, "trainjob": self._no_job}[what]():
                    break
                self.made.remove(what)
                self._tell()
        except (CannotDo, Unreachable) as error:
            self.session.say(f"warning: {error}")
        if self.made:
            self.session.say(self.session.state)

    def _tell(self) -> None:
        plan = self.plan
        words = {
            "trainjob": f"TrainJob {plan.name} and its pods (kubectl delete trainjob {plan.name} -n {plan.namespace})",
            "folder": f'folder "{plan.folder}" of claim "{plan.claim}"',
            "runtime": (
                f"TrainingRuntime {plan.name} (kubectl delete trainingruntime {plan.name} -n {plan.namespace})"
            ),
        }
        left = "; ".join(words[what] for what in reversed(self.made))
        self.session.state = f"{LEFT}{left}" if left else "nothing is left of the rehearsal; the run was not changed"

    def _no_job(self) -> bool:
        plan, kube = self.plan, self.session.kube
        path = f"{self._path('trainjobs')}/{plan.name}"
        self._delete("trainjob", path, {"propagationPolicy": "Background"})
        wait = self.session.waiting()
        asked: set[str] = set()
        while True:
            pods = every_pod_of(kube, plan.namespace, plan.name)
            jobset = kube.request("GET", f"{JOBSETS}/namespaces/{plan.namespace}/jobsets/{plan.name}")
            # A JobSet that may not be read is Trainer's to delete; its pods are seen all the same.
            if kube.request("GET", path).code == 404 and (jobset.code == 404 or jobset.code in (401, 403)) and not pods:
                return True
            for pod in pods:
                name = str(pod["metadata"]["name"])
                if name not in asked:  # nothing of it is worth its grace period
                    asked.add(name)
                    kube.request(
                        "DELETE", f"/api/v1/namespaces/{plan.namespace}/pods/{name}", {"gracePeriodSeconds": "1"}
                    )
            if wait.over():
                return False
            self.session.live(
                f"waiting until the rehearsal is gone: {pods_words(len(pods))} left ({wait.passed():.0f} s)"
            )
            wait.pause(POLL)

    def _no_folder(self) -> bool:
        plan = self.plan
        text = self._on_claim(erase_command(MOUNT, plan.folder))
        if "ERASED" in text.splitlines():
            return True
        raise CannotDo(f'folder "{plan.folder}" cannot be removed: {text.strip()[-200:]}')

    def _no_runtime(self) -> bool:
        path = f"{self._path('trainingruntimes')}/{self.plan.name}"
        answer = self._delete("runtime", path)
        if not answer.ok and answer.code != 404:
            raise CannotDo(f"its runtime cannot be deleted: {answer.message}")
        wait = self.session.waiting()
        while self.session.kube.request("GET", path).code != 404:  # up to Trainer 2.2 a finalizer holds it for a moment
            if wait.over():
                return False
            wait.pause(POLL)
        return True


# --- what one that was killed has left


def with_end(session: Session, runtime: Raw) -> Raw:
    """A runtime that says until when its rehearsal may go on."""
    until = session.kube.clock.now() + _WAITS * session.options.timeout + 600
    metadata = runtime["metadata"]
    text = datetime.fromtimestamp(until, UTC).isoformat(timespec="seconds")
    return {**runtime, "metadata": {**metadata, "annotations": {**metadata["annotations"], REHEARSAL_UNTIL: text}}}


def clear_left(session: Session, plan: Plan) -> None:
    """Remove what rehearsals have left in this namespace that were killed; name those that may still go on.

    The runtime is made first and removed last: where there is none, there is nothing. Whatever fails here is said.
    """
    kube = session.kube
    answer = kube.request("GET", f"{TRAINJOBS}/namespaces/{plan.namespace}/trainingruntimes", {"limit": "500"})
    for runtime in answer.body.get("items") or () if answer.ok else ():
        metadata = runtime.get("metadata") or EMPTY
        notes, name = metadata.get("annotations") or EMPTY, str(metadata.get("name"))
        if REHEARSAL_OF not in notes or "-rehearsal-" not in name:
            continue
        until = _time(notes.get(REHEARSAL_UNTIL))
        job = kube.request("GET", f"{TRAINJOBS}/namespaces/{plan.namespace}/trainjobs/{name}")
        theirs = not job.ok or REHEARSAL_OF in ((job.body.get("metadata") or EMPTY).get("annotations") or EMPTY)
        if until is None or kube.clock.now() < until or not theirs:
            when = "" if until is None else f" after {datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M} UTC"
            session.say(
                f'note: rehearsal "{name}" is there, too: it goes on, or was killed. The next one removes it{when}, or '
                f"kubectl delete trainjob,trainingruntime {name} -n {plan.namespace}"
            )
            continue
        session.say(f'removing rehearsal "{name}", which was killed')
        left = structs.replace(plan, name=name, folder=f"{FOLDER}/{name}")
        scene = _Scene(session, left)
        scene.runtime = {"kind": "TrainingRuntime", **runtime}
        scene.made = ["runtime", "folder", "trainjob"]
        if plan.claim not in claims_of(runtime, job.body if job.ok else {}):
            scene.made.remove("folder")
            session.say(f'note: folder "{left.folder}" of its claim is left: it is another claim than "{plan.claim}"')
        scene.answered = set(scene.made)
        scene.clear()
    session.state = "nothing was made; the run was not changed"


def _time(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


# --- what is done with it


def _conduct(session: Session, plan: Plan, command: tuple[str, ...]) -> Report:
    found = _first_save(session, plan)
    newest = found.newest_complete()
    session.say(f"[checkpoint] {newest.path if newest is not None else '?'}")
    told = _interrupt(session, plan, found)
    session.say(f"[interrupt] {_ended(told, plan)}")
    run = session.find()
    result = start(session, run, told.after)
    session.say(f"[resume] {resumed_words(result)}")
    return report_of(plan, command, found, told, result)


def _first_save(session: Session, plan: Plan) -> Found:
    wait = session.waiting()
    while True:
        run = session.find()
        every = every_pod_of(session.kube, plan.namespace, plan.name)
        _raise_if_failed(session, plan, run, every)
        why = pending(session, run, run.pods)
        try:
            seen = look(session.kube, run, plan.directory, helper=False)
            if seen.found.newest_complete() is not None:
                return seen.found
            why = f"{len(seen.found.saved)} checkpoints, none complete" if seen.found.saved else "no checkpoint yet"
        except NobodyToAsk as error:
            if any("no right" in line or "no shell" in line for line in error.lines):
                seen = look(session.kube, run, plan.directory, image=session.options.image, seconds=wait.seconds)
                if seen.found.newest_complete() is not None:
                    return seen.found
        if wait.over():
            raise CannotDo(
                f"no complete checkpoint after {session.options.timeout:.0f} s: {why}",
                "save more often, or wait longer: --timeout",
            )
        session.live(f"waiting for a first checkpoint ({wait.passed():.0f} s): {why}")
        wait.pause(1.0)


def _raise_if_failed(session: Session, plan: Plan, run: Run, every: Sequence[Raw]) -> None:
    """A container that ended before it saved anything: there is no verdict, and its last lines say why."""
    for pod in pods_of_job(every, plan.directory.job):
        for status in (pod.get("status") or EMPTY).get("containerStatuses") or ():
            if status.get("name") != plan.directory.container:
                continue
            ended = _terminated(status)
            if ended is None:
                continue
            lines = _last_lines(session, plan, pod, not (status.get("state") or EMPTY).get("terminated"))
            if known := known_trouble(lines, f'claim "{plan.claim}" is full: prune it, or say --claim'):
                raise CannotRehearse(*known)
            if ended.get("reason") == "OOMKilled":
                raise CannotRehearse("its memory was used up (OOMKilled): --resources", *lines)
            raise CannotRehearse(f"it ended with exit code {ended.get('exitCode')} before it saved anything", *lines)
    if run.over is not None:
        raise CannotRehearse(f"it {run.state()} before it saved anything")


def _terminated(status: Raw) -> Raw | None:
    for name in ("state", "lastState"):
        if (ended := (status.get(name) or EMPTY).get("terminated")) is not None:
            return ended  # type: ignore[no-any-return]
    return None


def _last_lines(session: Session, plan: Plan, pod: Raw, previous: bool = False) -> list[str]:
    path = f"/api/v1/namespaces/{plan.namespace}/pods/{pod['metadata']['name']}/log"
    asked = {"container": plan.directory.container, "tailLines": "40", **({"previous": "true"} if previous else {})}
    code, text = session.kube.text(path, asked)
    return [line.strip()[:400] for line in text.splitlines() if line.strip()][-5:] if code == 200 else []


def _interrupt(session: Session, plan: Plan, found: Found) -> Interrupted:
    """Suspend it, and see how its containers end and what they leave."""
    kube = session.kube
    run = session.find()
    told = Interrupted(before=found.saved)
    pods = pods_of_job(run.pods, plan.directory.job)
    told.shell = _first_process(session, plan, pods)
    suspend(session, run, True, session.state)
    began = kube.clock.monotonic()
    wait = session.waiting()
    while True:
        every = pods_of_job(every_pod_of(kube, plan.namespace, plan.name), plan.directory.job)
        for pod in every:
            for status in (pod.get("status") or EMPTY).get("containerStatuses") or ():
                if status.get("name") == plan.directory.container:
                    ended = (status.get("state") or EMPTY).get("terminated")
                    told.code = int(ended.get("exitCode") or 0) if ended is not None else told.code
        if every and (printed := "\n".join(_last_lines(session, plan, every[0]))):
            told.printed = printed
        if all(has_ended(pod) for pod in every) and not session.find().pods:
            break
        told.seconds = kube.clock.monotonic() - began
        if wait.over():
            raise CannotDo(f"{pods_words(len(every))} did not end within {session.options.timeout:.0f} s")
        session.live(f"waiting for {pods_words(len(every))} to end ({told.seconds:.0f} s of {plan.grace:g} s)")
        wait.pause(POLL)
    seen = look(kube, session.find(), plan.directory, image=session.options.image, seconds=session.options.timeout)
    told.after = seen.found
    return told


def _first_process(session: Session, plan: Plan, pods: Sequence[Raw]) -> str:
    """The shell that is process 1 of the container; empty where it is none, or nobody may look."""
    if not pods:
        return ""
    name = str(pods[0]["metadata"]["name"])
    try:
        code, text, _ = session.kube.execute(
            plan.namespace, name, plan.directory.container, ["cat", "/proc/1/comm"], 10.0
        )
    except Unreachable:
        return ""
    comm = text.strip()
    return comm if code == 0 and comm in _SHELLS else ""


# --- what comes of it (pure)


def _heard(told: Interrupted, plan: Plan) -> bool | None:
    """Whether SIGTERM led to a save. One that is killed when its grace period is over heard nothing, whatever it saved
    until then; None where its end was not seen and what it left may be read either way."""
    if told.code == _KILLED:
        return False
    known = {key(one) for one in told.before}
    flushed = any(key(one) not in known and one.complete is not False and not one.temporary for one in told.after.saved)
    if told.code is not None:
        return flushed
    # It may have saved for SIGTERM and ended late, or been killed amid its usual saves.
    late = told.seconds >= plan.grace > 0
    return None if late == flushed else flushed


def _ended(told: Interrupted, plan: Plan) -> str:
    how = "" if told.code is None else f" with exit code {told.code}"
    heard = {True: "saved on SIGTERM", False: "SIGTERM led to no save", None: "whether it saved is not known"}
    return f"{heard[_heard(told, plan)]}; ended{how} after {told.seconds:.0f} s"


def report_of(plan: Plan, command: tuple[str, ...], found: Found, told: Interrupted, result: Resumed) -> Report:
    """What was seen becomes a report. Pure."""
    killed = _heard(told, plan) is False and told.code in (_KILLED, None)
    known = {key(one) for one in found.saved}
    first = Start(
        1,
        saves=[Save(one, one.step) for one in (*found.saved, *told.after.saved) if not one.temporary],
        signal="SIGTERM",
        heard=_heard(told, plan),
        ended="killed" if killed else "exited",
        code=told.code,
        reads_seen=False,
        seconds=told.seconds,
        reached=reached(told.printed),
    )
    seen_paths: dict[str, Save] = {}
    for save in first.saves:
        if save.path not in seen_paths or key(save.saved) not in known:
            seen_paths[save.path] = save
    first.saves = list(seen_paths.values())
    newest = told.after.newest_complete()
    second = Start(
        2,
        told.after.saved,
        Save(newest, newest.step) if newest is not None else None,
        head=result.line,
        reads_seen=False,
        seconds=result.seconds,
    )
    settings = Settings(command, grace=plan.grace)
    report = judge(Seen(settings, [first, second]))
    report.findings = list(_findings(told, plan, result, killed))
    report.verdict = "resumed" if result.good else "not-resumed"
    report.lost = _lost(first, result)
    report.notes = [
        f'in the cluster: TrainJob "{plan.name}" in namespace {plan.namespace}, folder "{plan.folder}" of claim '
        f'"{plan.claim}"; no kill in the middle of a save was tried'
    ]
    return report


def _lost(first: Start, result: Resumed) -> int | None:
    done = max([step for step in (first.reached, *first.steps()) if step is not None], default=None)
    if done is None or (result.good and result.step is None):
        return None
    return max(done - (result.step or 0 if result.good else 0), 0)


def _findings(told: Interrupted, plan: Plan, result: Resumed, killed: bool) -> Iterator[Finding]:
    if not result.good:
        rule = "never-resumed" if result.result == "afresh" else "restart-failed"
        why, fix = TEXTS[rule]
        yield Finding(rule, "warn", resumed_words(result), why, fix)
    heard = _heard(told, plan)
    if heard is False and killed and told.shell:
        why, fix = TEXTS["sigterm-not-forwarded"]
        yield Finding(
            "sigterm-not-forwarded",
            "audit",
            f"process 1 of the container is {told.shell}, which keeps SIGTERM to itself: what the program would save "
            f"on it is lost, and it was killed after {plan.grace:g} s",
            why,
            fix,
        )
    elif heard is False:
        why, fix = TEXTS["no-flush-on-sigterm"]
        how = f"it was killed after {plan.grace:g} s" if killed else "it ended on SIGTERM"
        yield Finding("no-flush-on-sigterm", "audit", f"{how} and saved nothing for it", why, fix)
