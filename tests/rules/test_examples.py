"""Bad and Good of each rule's page: pasted into a whole job, Bad draws the rule and Good does not."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import indent
from typing import Any

import pytest

from tests import fast_yaml
from webhook.cluster.file_view import FileView
from webhook.cluster.files import load_text
from webhook.decision import review_object
from webhook.model.names import KINDS
from webhook.model.policy import Policy
from webhook.model.release import Release
from webhook.model.request import Request
from webhook.programs.rules import PROGRAM_RULES
from webhook.reports.catalogue import entries
from webhook.rules import RULES

PAGES = {entry.id: entry for entry in entries()}
AROUND = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: run, namespace: team}
spec:
  runtimeRef: {kind: TrainingRuntime, name: digits}
  trainer: {numNodes: 1}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: digits, namespace: team}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
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
                terminationGracePeriodSeconds: 60
                containers:
                - name: node
                  image: example.com/digits:1
                  env:
                  - {name: CKPT_DIR, value: /mnt/ckpt/run}
                  volumeMounts:
                  - {name: ckpt, mountPath: /mnt/ckpt}
                volumes:
                - {name: ckpt, persistentVolumeClaim: {claimName: train-ckpt}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: train-ckpt, namespace: team}
spec:
  storageClassName: shared-files
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 320Gi}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: shared-files}
provisioner: nfs.csi.k8s.io
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: block}
provisioner: ebs.csi.aws.com
---
apiVersion: v1
kind: PersistentVolumeList
items: []
"""
ZONED = """
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {kind}-zone-{zone}, namespace: team}}
spec: {{volumeName: {kind}-{zone}, accessModes: [ReadWriteMany], resources: {{requests: {{storage: 1Ti}}}}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {kind}-{zone}}}
spec:
  accessModes: [ReadWriteMany]
  csi: {{driver: disk.example, volumeHandle: one}}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{{key: topology.kubernetes.io/zone, operator: In, values: [{zone}]}}]
"""
PROGRAM = """\
import glob, os, shutil, time
import torch
import torch.distributed as dist
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint
from mytask import batches, loss_of, model, step_of

out, fast = os.environ["CKPT_DIR"], os.environ.get("CKPT_FAST_DIR")
dist.init_process_group()
rank = dist.get_rank()
optimizer = torch.optim.AdamW(model.parameters())
"""
SHARDED = """import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
"""
NEWEST = 'newest = max(glob.glob(out + "/step_*.pt"), key=step_of, default=None)\n'
READ = """\
if newest:
    state = torch.load(newest)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
"""
STATE = 'state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}\n'
LOOP = """\
for step, batch in enumerate(batches):
    loss = loss_of(model, batch)
    loss.backward()
    optimizer.step()
    if step % 500 == 0:
        path = f"{out}/step_{step:08d}.pt"
"""
SAVED = STATE + "if rank == 0: torch.save(state, path)"
TURN = """\
    loss_of(model, next(batches)).backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "step": step}, f"{out}/step_{step:08d}.pt")
"""
TRAINER = PROGRAM + "trainer = Trainer(model=model, args=TrainingArguments(output_dir=out))\n{}\n"
ARGUMENTS = PROGRAM + (
    "args = {}\ntrainer = Trainer(model=model, args=args)\n"
    "trainer.train(resume_from_checkpoint=get_last_checkpoint(out))\n"
)
ALONE = "import os\nfrom transformers import Trainer, TrainingArguments\n"


def loop(text: str) -> str:
    return LOOP + indent(text, " " * 8) + "\n"


def saving(text: str) -> str:
    return SHARDED + PROGRAM + NEWEST + READ + loop(STATE + text)


def saving_alone(text: str) -> str:
    return PROGRAM + NEWEST + READ + loop(STATE + text)


PROGRAMS: dict[str, Callable[[str], str]] = {
    # What the example of a rule about programs is put into; ``PROGRAM`` before it where nothing is told.
    "text-order-resume": lambda text: PROGRAM + text + "\nmodel.load_state_dict(torch.load(resume))\n",
    "resume-without-checkpoint": lambda text: TRAINER.format(text.replace("args.output_dir", "out")),
    "unused-resume-argument": PROGRAM.__add__,
    "fixed-resume-path": TRAINER.format,
    "never-resumed": ALONE.__add__,
    "never-saved": ARGUMENTS.format,
    "optimizer-not-restored": lambda text: (
        PROGRAM + NEWEST + "if newest:\n" + indent(text, "    ") + "\n" + loop(SAVED)
    ),
    "step-not-restored": lambda text: PROGRAM + NEWEST + text + "\n" + TURN,
    "scheduler-not-restored": lambda text: (
        PROGRAM
        + "scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)\n"
        + NEWEST
        + READ.replace('    optimizer.load_state_dict(state["optimizer"])\n', indent(text, "    "))
        + "\n"
        + loop(SAVED + "\nscheduler.step()")
    ),
    "rng-not-restored": lambda text: PROGRAM + NEWEST + "state = torch.load(newest)\n" + text + "\n" + loop(SAVED),
    "torn-newest": saving_alone,
    "data-repeated": ARGUMENTS.format,
    "weights-only-checkpoint": lambda text: PROGRAM + loop(text),
    "overwritten-checkpoint": lambda text: (
        PROGRAM + 'last = "/mnt/ckpt/run/latest.pt"\nif os.path.exists(last): state = torch.load(last)\n' + loop(text)
    ),
    "single-checkpoint-kept": ARGUMENTS.format,
    "unlimited-checkpoints": ARGUMENTS.format,
    "directory-not-used": lambda text: f"{ALONE}Trainer(model=model, args={text}).train()\n",
    "bucket-mount": saving,
    "each-node-writes": ARGUMENTS.format,
    "unguarded-rank-write": saving,
    "ranks-resume-apart": lambda text: (
        PROGRAM + text.replace("found =", "newest = found =") + "\n" + READ + loop(SAVED)
    ),
    "no-flush-on-sigterm": ARGUMENTS.format,
    "fast-only-checkpoint": saving,
    "gathered-shards": saving,
    "fixed-world-size": saving,
    "save-interval": ARGUMENTS.format,
}
SHELLS = {
    "exit-status-lost": "{}",
    "overwritten-output": "{}",
    "timestamped-directory": "{}\nexec torchrun train.py --output_dir $CKPT_DIR",
    "sigterm-not-forwarded": "{}",
    "resume-not-asked-for": "{}",
}
ON_TWO_NODES = (
    "claim-not-shared",
    "each-node-writes",
    "pods-retry-alone",
    "ranks-resume-apart",
    "unguarded-rank-write",
)
NOT_SEEN = ("claims-on-worker-cluster",)
"""What makes Good good is on another cluster."""


def pasted(into: Any, new: Any) -> Any:
    """``new`` in the place of ``into``: maps by key, named entries by name; variables are ordered, so all of them."""
    if isinstance(into, dict) and isinstance(new, dict):
        return {**into, **{key: new[key] if key == "env" else pasted(into.get(key), new[key]) for key in new}}
    if isinstance(into, list) and isinstance(new[0], dict):
        own = {one["name"]: one for one in into if "name" in one}
        return [*({**own, **{one["name"]: pasted(own.get(one["name"]), one) for one in new}}).values()]
    return new


def whole(rule: str, text: str) -> list[dict[str, Any]]:
    """The documents with the example in them, where a reader would put it."""
    zones = "".join(ZONED.format(kind=kind, zone=zone) for kind, zone in (("data", "a"), ("ckpt", "a"), ("ckpt", "b")))
    job, runtime, claim, *rest = fast_yaml.safe_load_all(AROUND + zones)
    jobset = runtime["spec"]["template"]["spec"]
    (work,) = jobset["replicatedJobs"]
    template = work["template"]["spec"]
    pod = template["template"]["spec"]
    (node,) = pod["containers"]
    trainer = job["spec"]["trainer"]
    example = fast_yaml.safe_load(text.partition("# TrainJob, merged")[0])
    if rule in ON_TWO_NODES:
        trainer["numNodes"] = 2
    if rule == "bucket-mount":
        source = {"csi": {"driver": "s3.csi.aws.com", "volumeHandle": "runs"}, "accessModes": ["ReadWriteMany"]}
        rest.append({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "bucket"}, "spec": source})
        claim["spec"] |= {"volumeName": "bucket", "storageClassName": ""}
        claim["status"] = {"phase": "Bound"}
    if rule == "bucket-annotation-missing":
        driver = {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": {"bucketName": "runs"}}
        pod["volumes"] = [{"name": "ckpt", "csi": driver}]
    if rule == "shared-directory":
        rest.append({**job, "metadata": {"name": "other", "namespace": "team"}})
    if rule == "unwritable-claim":
        claim["spec"]["storageClassName"] = "block"
        claim["spec"]["accessModes"] = ["ReadWriteOnce"]
    if rule == "lost-by-kueue":
        job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpu"}
    if rule == "no-restart-budget":
        del jobset["failurePolicy"]
    if rule == "missing-trainer-label":
        del work["template"]["metadata"]
    if rule == "unbuildable-pod":
        del pod["volumes"]
    if rule == "undeclared-checkpoint":
        del node["env"]
    if rule == "claim-deleted-with-job" and "volumeClaimPolicies" in example:
        del pod["volumes"]
    if rule == "zone-split":
        node["volumeMounts"].append({"name": "data", "mountPath": "/data"})
    if rule == "claim-too-small" and "100Gi" in text:
        claim["spec"]["resources"]["requests"]["storage"] = "100Gi"
    if rule in ("ranks-resume-apart", "fast-only-checkpoint"):
        node["env"].append({"name": "CKPT_FAST_DIR", "value": "/fast/run"})
        node["volumeMounts"].append({"name": "fast", "mountPath": "/fast"})
        pod["volumes"].append({"name": "fast", "emptyDir": {}})
    if rule == "no-flush-on-sigterm":
        job["metadata"]["annotations"] = {"checkpoint-guard.io/seconds-per-step": "2"}
    if rule == "judged-in-part" and "20,000 more" in text:
        example["volumes"] += [{"name": f"v{at}", "emptyDir": {}} for at in range(20_000)]
    if rule == "program-not-read" and "args" in example:
        example["args"][1] = "pass\n" * 8192
        trainer["command"] = ["python"]
    if rule in SHELLS and "args" in example:
        trainer["command"], trainer["args"] = ["bash", "-c"], [SHELLS[rule].format(example.pop("args")[0])]
    elif (rule in PROGRAMS or rule in PROGRAM_RULES) and rule != "program-not-read" and "args" in example:
        around = PROGRAMS.get(rule, PROGRAM.__add__)
        trainer["command"], trainer["args"] = ["python", "-c"], [around(example.pop("args")[0].rstrip("\n"))]
    for key, value in example.items():
        if key in ("volumes", "securityContext", "containers"):
            if "# TrainJob" in text:
                patch(job, key, value)
            else:
                pod[key] = pasted(pod[key], value) if key == "containers" else value
        elif key in ("volumeMounts", "env"):
            node[key] = value
        elif key == "runtimeRef":
            job["spec"][key] = value
        elif key == "kind" and value == "StorageClass":
            rest[0].update(example)
            break
        elif key == "kind":
            claim["spec"] = pasted(claim["spec"], example["spec"])
            break
        elif key in ("command", "args"):
            trainer[key] = value
        elif key in ("failurePolicy", "volumeClaimPolicies"):
            jobset[key] = pasted(jobset.get(key), value)
        elif key == "replicatedJobs" and rule == "unknown-override-target":
            job["spec"]["runtimePatches"] = [
                {"manager": "a.example/b", "trainingRuntimeSpec": {"template": {"spec": {key: value}}}}
            ]
        elif key == "replicatedJobs":
            jobset[key] = pasted(jobset[key], value)
        elif key == "template" and rule == "pods-retry-alone":
            template.update(value["spec"])
        elif key == "template" and rule == "bucket-annotation-missing":
            template["template"].update(value)
        elif key == "template":
            jobset.update({field: part for field, part in value["spec"].items() if part})
        elif key == "metadata":
            job[key] = pasted(job[key], value)
        elif key == "spec" and rule == "short-grace":
            pod.update(value)
        elif key == "spec":
            job[key] = pasted(job[key], value)
        else:
            job["spec"] = pasted(job["spec"], {key: value})
    if "# and 20,000 more" in text:
        pod["volumes"] = [*example["volumes"], *({"name": f"v{index}", "emptyDir": {}} for index in range(20_000))]
    if "# TrainJob, merged" in text:
        (volume,) = fast_yaml.safe_load(text.partition("# TrainJob, merged")[2].partition("\n")[2])["volumes"]
        pod["volumes"] = example["volumes"]
        patch(job, "volumes", [volume])
    return [job, runtime, claim, *rest]


def patch(job: dict[str, Any], key: str, value: Any) -> None:
    """``value`` in the TrainJob's override of the pod."""
    entry = {"manager": "a.example/b", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": []}}}}
    patches = job["spec"].setdefault("runtimePatches", [entry])
    jobs = patches[0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    if not jobs:
        jobs.append({"name": "node", "template": {"spec": {"template": {"spec": {}}}}})
    jobs[0]["template"]["spec"]["template"]["spec"][key] = value


def drawn(rule: str, text: str) -> set[str]:
    """The rules that are drawn by the objects with the example in them."""
    served = Release.V2_1 if rule == "env-in-override" else Release.V2_3
    documents = load_text(fast_yaml.safe_dump_all(whole(rule, text)).encode(), "example").documents
    old: dict[str, Any] | None = None
    if rule == "wedging-update" and "trainer" in fast_yaml.safe_load(text):
        old = next(document.object for document in documents if document.kind == "TrainJob")
        old = {**old, "spec": {**old["spec"], "suspend": True, "trainer": {"env": [{"name": "LR", "value": "0.2"}]}}}
        for document in documents:
            if document.kind == "TrainJob":
                document.object["spec"]["suspend"] = True
    found: set[str] = set()
    for document in documents:
        if document.kind in KINDS:
            namespace, name, now = document.namespace, document.name, document.object
            before = old if document.kind == "TrainJob" else None
            request = Request("UPDATE" if before else "CREATE", document.kind, namespace, name, now, before)
            policy = Policy(rules={rule: "warn"}) if rule == "not-rehearsed" else Policy()
            decision = review_object(request, FileView(documents, served), policy, served)
            assert decision.broken == ()
            found |= {finding.rule for finding in decision.findings}
    return found


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_bad_draws_the_rule_and_good_does_not(rule: str) -> None:
    page = PAGES[rule]
    assert rule in drawn(rule, page.bad)
    assert rule in NOT_SEEN or rule not in drawn(rule, page.good)
