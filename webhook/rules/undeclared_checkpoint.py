"""No checkpoint directory is declared.

Symptom: nobody knows where the run saves, or whether it does.
Fix: say where the checkpoints go, on a mount of a claim.
Bad:
    trainer:
      command: [torchrun, train.py]
Good:
    trainer:
      command: [torchrun, train.py]
      env:
      - name: CKPT_DIR
        value: /mnt/ckpt/digits
Reads: the directories found in the containers that train, in all of them where it is open which those are; the
    namespace's label checkpoint-guard.io/require.
    A TrainJob that asks for layout tiered itself is refused where that was not made and whether its claim exists is
    known: it would run, and lose all.
Silent when: one is declared, or a framework's flag names one; there is no runtime to look at. Never more than noted
    where a container declares one of which it is open whether it trains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from webhook.effective.checkpoint import declaring
from webhook.effective.flags import find_flag
from webhook.model.cluster import Gap
from webhook.model.finding import Finding, Origin, Severity
from webhook.model.names import ANCESTOR_LABEL, CLAIM, DEFAULT_CLAIM, LAYOUT, TIERED, TRAINER_STEP
from webhook.model.paste import to_yaml
from webhook.model.pod import DirectoryStatus, EffectiveJob, Raw
from webhook.model.policy import NO_VARIABLE
from webhook.model.printable import shell_word
from webhook.model.rule import Rule
from webhook.model.sign import NOT_PLAIN
from webhook.model.subject import Subject
from webhook.storage import claim_instead, claim_offered, modes_needed, new_claim, plan_claim


def check(subject: Subject) -> Iterator[Finding]:
    effective = subject.effective
    if effective is None or any(found.status is not DirectoryStatus.NONE for found in subject.checkpoints):
        return
    training = [job for job in effective.jobs if job.trains]
    for job in training:
        if containers := job.training_containers():
            yield _finding(subject, job, containers[0])
            return
    if effective.jobs:
        yield _not_known(subject, training or list(effective.jobs), bool(training))


def _finding(subject: Subject, job: EffectiveJob, container: Raw) -> Finding:
    name = str(container.get("name") or "")
    if (tiered := _tiered(subject, job, name)) is not None:
        return tiered
    return Finding(
        at=_where(subject, job, name),
        problem=f'container "{name}" of job "{job.name}" has no {_wanted(subject)}',
        fix=_fix(subject, job, container),
        required=subject.require,
        job=job.name,
        container=name,
        subject="directory",
    )


def _tiered(subject: Subject, job: EffectiveJob, container: str) -> Finding | None:
    """Its own annotation asks for the tiered layout, and nothing was made of it; None where the claim is not known."""
    own = (subject.request.object.get("metadata") or {}).get("annotations") or {}
    if not subject.is_trainjob or own.get(LAYOUT) != TIERED or subject.claims_elsewhere:
        return None
    claim = own.get(CLAIM)
    if not claim:
        namespace = subject.cluster.namespace(subject.namespace)
        if isinstance(namespace, Gap):
            return None
        claim = namespace.annotations.get(DEFAULT_CLAIM) or subject.policy.defaults.claim_name
    known = subject.cluster.claim(subject.namespace, claim) if claim else Gap.ABSENT
    if known is Gap.UNKNOWN:
        return None
    fix = f"{CLAIM}: <a claim that every training pod can write>"
    why_not = ": admission alone makes it" if subject.request.as_written else ""
    if known is Gap.ABSENT and claim and not subject.request.as_written:
        why_not = f': claim "{claim}" does not exist in namespace "{subject.namespace}"'
        mode = modes_needed(subject)
        there, plan = claim_offered(subject, mode, claim), plan_claim(subject, mode)
        create = new_claim(subject.namespace, claim, [mode], plan.size, plan.more)
        others = f"kubectl get pvc -n {shell_word(subject.namespace)}"
        fix = f"{create}{plan.remarks}\n# or name another in annotation {CLAIM}: {others}"
        if there is not None:
            fix = f'metadata:\n  annotations:\n    {CLAIM}: {there}\n# or create "{claim}": accessModes [{mode}]'
    return Finding(
        at=Origin(subject.label, f'metadata.annotations["{LAYOUT}"]', f"annotation {LAYOUT}"),
        problem=f'layout "{TIERED}" was not made{why_not}',
        fix=fix,
        raised=Severity.DENY,
        # What stands beside it in the same apply does not exist yet either.
        at_most=Severity.WARN if subject.request.dry_run else None,
        required=subject.require,
        job=job.name,
        container=container,
        subject="directory",
        why="without the durable directory the run starts again at step 0",
    )


def _not_known(subject: Subject, jobs: list[EffectiveJob], trains: bool) -> Finding:
    """Nothing tells which job trains, or which container of the one that does; some of them may declare a directory."""
    job = jobs[0]
    variables = subject.policy.directory.variables
    declared = any(_declares(container, variables) for job in jobs for _, _, container in job.containers())
    if trains:
        at = job.pod_origin("containers")
        open_ = f'which container of job "{job.name}" trains is not known'
        fix = "containers:\n- name: node  # the one that trains"
    else:
        at = job.job_origin
        open_ = "which job trains is unknown"
        fix = to_yaml({"metadata": {"labels": {ANCESTOR_LABEL: TRAINER_STEP}}})
        fix += f"\n# in spec.template.spec.replicatedJobs[].template of {job.job_origin.object}, of the one that trains"
    return Finding(
        at=at,
        problem=open_ if declared else f"no container has {_wanted(subject)}: {open_}",
        fix=fix,
        at_most=Severity.AUDIT if declared else None,
        required=subject.require,
        job=job.name,
        subject="directory",
    )


def _declares(container: Raw, variables: Sequence[str]) -> bool:
    return declaring(container, variables) is not None or any(
        find_flag(container.get(field) or ()) is not None for field in ("command", "args")
    )


def _wanted(subject: Subject) -> str:
    demanded = f', required in namespace "{subject.namespace}"' if subject.require else ""
    return (" or ".join(subject.policy.directory.variables) or "flag that names its directory") + demanded


def _where(subject: Subject, job: EffectiveJob, container: str) -> Origin:
    """Where the directory belongs, so that the place is one that the user has, whatever the defaults have added."""
    if subject.is_trainjob and job.receives_trainer:
        return Origin(subject.label, "spec.trainer.env", "spec.trainer.env")
    return job.container_origin(container)


def _fix(subject: Subject, job: EffectiveJob, container: Raw) -> str:
    """A directory below a claim: the one that is mounted, else one that is asked for in the same breath."""
    if not subject.policy.directory.variables:
        return NO_VARIABLE
    mounted = _claim_path(job, container)
    path = subject.policy.defaults.path if mounted is None else mounted
    run = (subject.request.object.get("metadata") or {}).get("name") if subject.is_trainjob else None
    variable = subject.policy.directory.variables[0]
    env = [{"name": variable, "value": f"{path.rstrip('/')}/{run or '<run>'}"}]
    reads = any(
        isinstance(word, str) and variable in word
        for word in (*(container.get("command") or ()), *(container.get("args") or ()))
    )
    if not reads:
        # A variable that nobody reads moves no checkpoint.
        return f"{_declared(subject, job, container, env, mounted)}\n{_READ.format(variable)}"
    return _declared(subject, job, container, env, mounted)


def _declared(
    subject: Subject, job: EffectiveJob, container: Raw, env: list[dict[str, str]], mounted: str | None
) -> str:
    if not job.receives_trainer:
        return to_yaml({"env": env}) + f'\n# in container "{container.get("name")}" of job "{job.name}" of the runtime'
    declared = {"spec": {"trainer": {"env": env}}}
    if mounted is not None or not subject.is_trainjob or subject.request.operation != "CREATE":
        return to_yaml(declared)
    if subject.request.as_written and (put := _put_by_hand(subject, job, container, declared)):
        return put
    text = to_yaml({"metadata": {"annotations": {CLAIM: "<claim>"}}, **declared})
    see = f"kubectl get pvc -n {shell_word(subject.namespace or 'default')}"
    return f"{text}\n# <claim>: is mounted there by admission; one that every training pod can write, see {see}"


def _put_by_hand(subject: Subject, job: EffectiveJob, container: Raw, declared: Raw) -> str:
    """The same with the claim mounted by the TrainJob itself, where no admission acts on an annotation."""
    name = container.get("name")
    own = next((one for one in subject.checkpoints if one.job is job and one.container_name == name), None)
    if own is None:
        return ""
    fix = claim_instead(subject, own)
    text = fix if isinstance(fix, str) else fix()
    before, spec, after = f"\n{text}".rpartition("\nspec:\n")
    if not spec:
        return ""
    return f"{before}\n{to_yaml(declared)}\n{after}".lstrip("\n")


_READ: Final = '# and have the program save there: os.environ["{0}"] in Python, "${0}" in a shell'


def _claim_path(job: EffectiveJob, container: Raw) -> str | None:
    """Where the container mounts a claim that it can write."""
    for mount in container.get("volumeMounts") or ():
        source = (job.volume(mount.get("name") or "") or {}).get("persistentVolumeClaim")
        if source is not None and not source.get("readOnly") and not mount.get("readOnly"):
            return str(mount.get("mountPath") or "/")
    return None


RULE = Rule(
    id="undeclared-checkpoint",
    severity=Severity.AUDIT,
    why="nothing says where checkpoints go, so whether the run can resume is not known",
    check=check,
    when=NOT_PLAIN,
)
