"""A volume of the pod from which something uploads what is written there, so that it does not go with the pod.

Read in opendatahub-io/kubeflow-sdk v0.4.1+rhaiv.0: for ``output_dir="s3://..."`` ``trainer/rhai/utils.py`` mounts an
emptyDir ``checkpoint-storage`` at ``/mnt/kubeflow-checkpoints``, and the code that ``trainer/rhai/transformers.py``
puts before the program has the address in its ``checkpoint_config``: each checkpoint is uploaded after its save, and
downloaded again at a start. For ``pvc://CLAIM/PATH`` it mounts the claim there itself.
"""

from __future__ import annotations

import re
from typing import Final

from webhook.model.pod import Raw, Storage, StorageKind

_VOLUME: Final = "checkpoint-storage"
_PATH: Final = "/mnt/kubeflow-checkpoints"
_MARK: Final = "cloud_remote_storage_uri"
_ADDRESS: Final = re.compile(r"""["']cloud_remote_storage_uri["']\s*:\s*["']([a-z0-9]{1,16}://[^"'\s]{1,1024})["']""")


def staged(container: Raw, mount: Raw | None, volume: Raw) -> Storage | None:
    """The object store behind a volume of the pod; None where the volume is not one that is uploaded from."""
    if volume.get("name") != _VOLUME or mount is None or mount.get("mountPath") != _PATH:
        return None
    if volume.get("emptyDir") is None and volume.get("ephemeral") is None:
        return None
    for field in ("command", "args"):
        for item in container.get(field) or ():
            at = item.find(_MARK) if isinstance(item, str) else -1
            while at > 0:
                found = _ADDRESS.match(item, at - 1)
                if found is not None:
                    return Storage(
                        StorageKind.OBJECT_STORE, f'volume "{_VOLUME}", from which the SDK uploads to "{found[1]}"'
                    )
                at = item.find(_MARK, at + 1)
    return None
