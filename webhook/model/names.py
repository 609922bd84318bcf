"""Names that are fixed by contract: API groups, labels, annotations, field names."""

from __future__ import annotations

from typing import Final

GROUP: Final = "trainer.kubeflow.org"
API_VERSION: Final = "trainer.kubeflow.org/v1alpha1"
KINDS: Final = ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime")
RUNTIME_KINDS: Final = ("TrainingRuntime", "ClusterTrainingRuntime")
PROBE: Final = "checkpoint-guard-install-check"
"""The name of what install-check creates by dry-run. To it alone an answer adds who asks, as far as TLS tells."""
CERTIFICATE: Final = "client certificate: "
"""What that warning begins with."""
SYSTEM_NAMESPACE: Final = "kube-system"
"""Never judged, whatever policy exempts beside it."""
WITHOUT_A_RULE: Final = ("immutable-default", "malformed-object", "broken-rule", "expired-exception", "void-exception")
"""Ids that findings carry and that no rule file stands behind; policy weighs them like the others."""

ANCESTOR_LABEL: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
TRAINER_STEP: Final = "trainer"
JOBSET_NAME_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"

PREFIX: Final = "checkpoint-guard.io/"
CLAIM: Final = PREFIX + "claim"
DEFAULT_CLAIM: Final = PREFIX + "default-claim"
PATH: Final = PREFIX + "path"
LAYOUT: Final = PREFIX + "layout"
TIERED: Final = "tiered"
"""The one layout that there is."""
INJECTED: Final = PREFIX + "injected"
MODE: Final = PREFIX + "mode"
REQUIRE: Final = PREFIX + "require"
PROTECT: Final = PREFIX + "protect"
"""Label of a namespace whose unfinished runs keep what they need from being deleted."""
ALLOW_DELETE: Final = PREFIX + "allow-delete"
"""Annotation of an object that may be deleted all the same."""
ALLOW: Final = PREFIX + "allow"
REPORT_HASH: Final = PREFIX + "report-hash"
"""Annotation of a report that ``ckptguard scan`` wrote: what it says, as a digest."""
TIER: Final = PREFIX + "tier"
"""Label of a namespace that policy may select by: ``deploy/policies`` keeps its own users from setting it."""
REHEARSED: Final = PREFIX + "rehearsed"
"""Annotation of a TrainJob: ``<fingerprint>;verdict=<verdict>;at=<day>`` of its last rehearsal."""
CHECKPOINT_SIZE: Final = PREFIX + "checkpoint-size"
MODEL_PARAMS: Final = PREFIX + "model-params"
SECONDS_PER_STEP: Final = PREFIX + "seconds-per-step"
MANAGER: Final = PREFIX + "webhook"
"""The manager of our own ``spec.runtimePatches`` entry (Trainer 2.2 and later)."""
