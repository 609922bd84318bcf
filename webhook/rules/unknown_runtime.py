"""The TrainJob's runtime cannot be found, so nothing else can be said about its pods.

Symptom: Trainer refuses the TrainJob, naming the runtime.
Fix: name a runtime that exists; a TrainingRuntime has to be in the TrainJob's namespace and needs its kind.
Bad:
    runtimeRef:
      name: digits    # a TrainingRuntime; the kind defaults to ClusterTrainingRuntime
Good:
    runtimeRef:
      kind: TrainingRuntime
      name: digits
Reads: whether the runtime that `spec.runtimeRef` names is known, and whether the other kind has one of that name.
Silent when: the runtime is there; the object is a runtime itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.model.cluster import Gap, Runtime
from webhook.model.finding import Finding, Origin, Severity
from webhook.model.printable import shell_word
from webhook.model.rule import Rule
from webhook.model.sign import NO_RUNTIME
from webhook.model.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    if not isinstance(subject.runtime, Gap):
        return
    ref = subject.spec.get("runtimeRef") or {}
    kind, name = ref.get("kind") or "ClusterTrainingRuntime", ref.get("name") or ""
    scope = f" -n {shell_word(subject.namespace)}" if kind == "TrainingRuntime" else ""
    here = f' in namespace "{subject.namespace}"' if kind == "TrainingRuntime" else ""
    at_most = None
    if not name:
        at_most = Severity.AUDIT
        problem = "no runtime is named: spec.runtimeRef.name is absent"
        fix = (
            "spec:\n  runtimeRef:\n    name: torch-distributed\n"
            "# or another one of kubectl get clustertrainingruntimes; a patch is reviewed as kubectl kustomize applies "
            "it"
        )
    elif subject.runtime is Gap.UNKNOWN:
        at_most = Severity.AUDIT
        problem = f'{kind} "{name}"{here} is not known: {subject.cluster.why_unknown(kind)}'
        fix = (
            f"kubectl get {shell_word(kind.lower())} {shell_word(name)}{scope} -o yaml > runtime.yaml\n"
            "ckptguard review FILE --state runtime.yaml    # or --live"
        )
    else:
        problem = f'{kind} "{name}" does not exist{here}'
        other = "TrainingRuntime" if kind == "ClusterTrainingRuntime" else "ClusterTrainingRuntime"
        if isinstance(subject.cluster.runtime(other, subject.namespace, name), Runtime):
            fix = f"runtimeRef:\n  apiGroup: trainer.kubeflow.org\n  kind: {other}\n  name: {name}"
        else:
            fix = f"kubectl get {shell_word(kind.lower())}s{scope}  # and one of these names in spec.runtimeRef.name"
    yield Finding(
        Origin(subject.label, "spec.runtimeRef", "runtimeRef"), problem, fix, at_most, subject=f"{kind}/{name}"
    )


RULE = Rule(
    id="unknown-runtime",
    severity=Severity.AUDIT,
    why="the pods cannot be worked out, so nobody checked whether the run finds its checkpoints again",
    check=check,
    when=NO_RUNTIME,
)
