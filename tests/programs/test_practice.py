"""Programs as guides to checkpoints teach them: each is judged as it deserves."""

from __future__ import annotations

from tests.programs.reading import LOOKS, python, remarks
from webhook.cluster.file_view import FileView
from webhook.cluster.files import load_text
from webhook.decision import review_object
from webhook.model.finding import Severity
from webhook.model.names import KINDS
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.model.script import Launch, Remark

LAUNCH = Launch(directories=("/data/keep",), fast=("/data/quick",), mounts=("/data",))

RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: tuner, namespace: team, labels: {trainer.kubeflow.org/framework: torch}}
spec:
  mlPolicy: {numNodes: 1, torch: {numProcPerNode: auto}}
  template:
    spec:
      failurePolicy: {maxRestarts: 3}
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            backoffLimit: 0
            template:
              spec:
                terminationGracePeriodSeconds: 120
                volumes:
                - {name: data, persistentVolumeClaim: {claimName: weights}}
                - {name: scratch, emptyDir: {}}
                containers:
                - name: node
                  image: registry.example/tune:1
                  env:
                  - {name: CKPT_DIR, value: /data/run}
                  - {name: EVERY, value: "200"}
                  volumeMounts:
                  - {name: data, mountPath: /data}
                  - {name: scratch, mountPath: /scratch}
                  command: [bash, -ec]
                  args:
                  - |
                    python - <<'PY'
                    import os
                    import signal
                    from pathlib import Path

                    from transformers import Trainer, TrainerCallback, TrainingArguments

                    folder = Path(os.environ["CKPT_DIR"])
                    found = sorted(folder.glob("checkpoint-*"), key=lambda one: int(one.name.split("-")[1]))


                    class SaveAndLeave(TrainerCallback):
                        asked = False

                        def on_step_end(self, args, state, control, **kwargs):
                            if SaveAndLeave.asked:
                                control.should_save = True
                                control.should_training_stop = True
                            return control


                    def leave(*_):
                        SaveAndLeave.asked = True


                    signal.signal(signal.SIGTERM, leave)
                    arguments = TrainingArguments(
                        output_dir=str(folder),
                        save_strategy="steps",
                        save_steps=int(os.environ["EVERY"]),
                        save_total_limit=3,
                    )
                    trainer = Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[SaveAndLeave()])
                    trainer.train(resume_from_checkpoint=str(found[-1]) if found else None)
                    PY
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: tune, namespace: team}
spec: {runtimeRef: {apiGroup: trainer.kubeflow.org, kind: TrainingRuntime, name: tuner}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: weights, namespace: team}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Ti}}, storageClassName: files}
"""

RESUME_BY_NUMBER = """
import os
import torch

ROOT = "/data/keep"

def number(name):
    return int(name.removeprefix("at_").removesuffix(".pt"))

names = sorted((name for name in os.listdir(ROOT) if name.startswith("at_")), key=number)
begin = 0
if names:
    state = torch.load(os.path.join(ROOT, names[-1]), map_location="cpu")
    net.load_state_dict(state["net"])
    adam.load_state_dict(state["adam"])
    begin = state["at"] + 1
"""
SAVE_BY_NUMBER = """
for at in range(begin, 100000):
    loss = one_step(net, next(rows))
    if at % 500 == 0:
        torch.save({"at": at, "net": net.state_dict(), "adam": adam.state_dict()}, f"{ROOT}/at_{at}.pt")
"""

TWO_TIERS = """
import glob
import os

def newest():
    quick = "/data/quick/last.pt"
    if os.path.isfile(quick):
        return quick
    kept = sorted(glob.glob("/data/keep/step_*.pt"))
    return kept[-1] if kept else None
"""

RESUME_AMONG_THE_ARGUMENTS = """
from transformers import Trainer, TrainingArguments

settings = TrainingArguments(
    output_dir="/data/keep",
    save_strategy="steps",
    save_steps=250,
    save_total_limit=2,
    resume_from_checkpoint=True,
)
tuner = Trainer(model=net, args=settings)
tuner.train()
"""

DEEPSPEED = """
import deepspeed

engine, *_ = deepspeed.initialize()
at = 1
engine.save_checkpoint("/data/keep", tag=f"at_{at}")
engine.load_checkpoint("/data/keep")
"""

DISTRIBUTED = """
import torch.distributed.checkpoint as dcp

dcp.save({"net": net, "adam": adam}, checkpoint_id=f"/data/keep/at_{at}")
dcp.load({"net": net, "adam": adam}, checkpoint_id=f"/data/keep/at_{at}")
"""


def judged(program: str, launch: Launch = LAUNCH) -> dict[str, list[Remark]]:
    """What the rules about programs say of a Python text that is the container's command."""
    script = python(program, launch=launch)
    assert script.unread == ()
    return remarks(script)


def test_a_runtime_that_does_it_all_draws_one_finding() -> None:
    """Its shell keeps SIGTERM to itself; everything else in it is right."""
    documents = load_text(RUNTIME.encode(), "runtime.yaml").documents
    judged = [document for document in documents if document.kind in KINDS]
    assert len(judged) == 2
    for document in judged:
        request = Request("CREATE", document.kind, document.namespace, document.name, document.object, None)
        decision = review_object(request, FileView(documents, Release.V2_1), Policy(), Release.V2_1)
        about = [finding for finding in decision.findings if finding.rule in LOOKS]
        assert [finding.rule for finding in about if finding.severity is not Severity.AUDIT] == [
            "sigterm-not-forwarded"
        ]
        assert about[0].at.field.endswith("args[0] line 1")
        assert about[0].fix == "exec python - <<'PY'"


def test_save_and_resume_by_number_is_right() -> None:
    found = judged(RESUME_BY_NUMBER + SAVE_BY_NUMBER).keys()
    assert found <= {"unlimited-checkpoints", "optimizer-not-restored", "torn-newest"}


def test_two_tiers_sort_as_text() -> None:
    found = judged(TWO_TIERS)
    assert list(found) == ["text-order-resume"]
    assert found["text-order-resume"][0].place.line == TWO_TIERS[: TWO_TIERS.index("return kept")].count("\n") + 1


def test_an_argument_for_resume_is_read_by_nobody() -> None:
    found = judged(RESUME_AMONG_THE_ARGUMENTS)
    assert "unused-resume-argument" in found
    assert "never-resumed" not in found
    before = RESUME_AMONG_THE_ARGUMENTS[: RESUME_AMONG_THE_ARGUMENTS.index("resume_from")]
    assert found["unused-resume-argument"][0].place.line == before.count("\n") + 1


def test_save_and_load_of_deepspeed_is_right() -> None:
    assert judged(DEEPSPEED) == {}


def test_distributed_save_and_load_is_right() -> None:
    assert judged(DISTRIBUTED) == {}
