"""Files to review, as small as they can be and still be judged."""

from __future__ import annotations

from pathlib import Path

CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: train-ckpt
spec:
  accessModes: [ReadWriteMany]
  storageClassName: shared
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: shared
provisioner: nfs.csi.k8s.io
"""
RUNTIME = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata:
  name: plain
spec:
  mlPolicy:
    numNodes: 1
  template:
    spec:
      failurePolicy:
        maxRestarts: 3
      replicatedJobs:
      - name: node
        template:
          metadata:
            labels:
              trainer.kubeflow.org/trainjob-ancestor-step: trainer
          spec:
            backoffLimit: 0
            template:
              spec:
                terminationGracePeriodSeconds: 60
                containers:
                - name: node
                  image: registry.example/train:1
                  env:
                  - name: CKPT_DIR
                    value: /mnt/ckpt/run
                  volumeMounts:
                  - name: ckpt
                    mountPath: /mnt/ckpt
                volumes:
                - name: ckpt
                  persistentVolumeClaim:
                    claimName: train-ckpt
"""
JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: digits
spec:
  runtimeRef:
    kind: TrainingRuntime
    name: plain
  trainer:
    numNodes: 1
"""
GOOD = "---\n".join((CLAIM, RUNTIME, JOB))
BAD = GOOD.replace("persistentVolumeClaim:\n                    claimName: train-ckpt", "emptyDir: {}")


def write(folder: Path, name: str, text: str | bytes) -> str:
    """A file with this text; the path as the command line takes it."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)
