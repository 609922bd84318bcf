"""Where on its claim a checkpoint directory lies, so that two runs' directories can be compared."""

from __future__ import annotations

from webhook.model.path import components
from webhook.model.pod import Checkpoint


def path_on_claim(checkpoint: Checkpoint) -> str | None:
    """The directory's path from the claim's root, the mount's subPath included: ``/runs/a``. ``/`` is the root.

    None where there is no directory or no mount, or where only the running pod knows a part (``subPathExpr`` with
    variables that it alone has, ``<metadata.name>``, a literal ``$(VAR)``): two such paths may be the same or not.
    """
    mount, directory = checkpoint.mount, checkpoint.directory
    if mount is None or directory is None:
        return None
    top: str = mount.get("mountPath") or "/"
    within: str = mount.get("subPath") or checkpoint.sub_path or mount.get("subPathExpr") or ""
    if not within and directory.startswith(top) and directory[len(top) : len(top) + 1] in ("", "/"):
        # As nearly always: a directory is normalised, so what is left of it is.
        path = directory[len(top) :] or "/"
    else:
        root, inside = components(top), components(directory)
        if inside[: len(root)] != root:
            return None
        path = "/" + "/".join([*components(within), *inside[len(root) :]])
    return None if "$(" in path or "<" in path else path
