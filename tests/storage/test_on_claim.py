"""Where a directory lies on its claim: mount point off, subPath on, and nothing where a part is not known."""

from __future__ import annotations

import itertools
import posixpath
from typing import Any

import msgspec
import pytest

from webhook.model.finding import Origin
from webhook.model.path import components
from webhook.model.pod import Checkpoint, DirectoryStatus, EffectiveJob, Storage, StorageKind
from webhook.storage import path_on_claim


def _checkpoint(directory: str | None, mount: dict[str, Any] | None) -> Checkpoint:
    job = EffectiveJob("node", 1, True, 0, {}, {}, (), Origin("TrainingRuntime/r", "", ""))
    storage = Storage(StorageKind.MANY_NODES, "a claim")
    return Checkpoint(job, {}, DirectoryStatus.DECLARED, storage, directory, mount=mount)


@pytest.mark.parametrize(
    ("directory", "mount", "path"),
    [
        ("/ckpt/a", {"mountPath": "/ckpt"}, "/a"),
        ("/ckpt", {"mountPath": "/ckpt"}, "/"),
        ("/ckpt", {"mountPath": "/ckpt/"}, "/"),
        ("/ckpt/a", {"mountPath": "/"}, "/ckpt/a"),
        ("/ckpt/a", {"mountPath": "/ckpt", "subPath": "runs/"}, "/runs/a"),
        ("/ckpt", {"mountPath": "/ckpt", "subPath": "./runs//x"}, "/runs/x"),
        ("/ckpt/a", {"mountPath": "/ckpt", "subPathExpr": "fixed"}, "/fixed/a"),
        ("/ckpt/..a", {"mountPath": "/ckpt"}, "/..a"),
        ("/ckpt/a", {"mountPath": "/ckpt", "subPathExpr": "$(RUN)"}, None),
        ("/ckpt/<metadata.name>", {"mountPath": "/ckpt"}, None),
        ("/ckpt/$(RUN)", {"mountPath": "/ckpt"}, None),
        ("/ckpt2/a", {"mountPath": "/ckpt"}, None),
        (None, {"mountPath": "/ckpt"}, None),
        ("/ckpt/a", None, None),
    ],
)
def test_path(directory: str | None, mount: dict[str, Any] | None, path: str | None) -> None:
    assert path_on_claim(_checkpoint(directory, mount)) == path


def test_a_sub_path_that_the_kubelet_expands() -> None:
    checkpoint = _checkpoint("/ckpts/durable/x", {"mountPath": "/ckpts/durable", "subPathExpr": "$(TRAINJOB_NAME)"})
    assert path_on_claim(msgspec.structs.replace(checkpoint, sub_path="run")) == "/run/x"
    assert path_on_claim(msgspec.structs.replace(checkpoint, sub_path="<metadata.name>")) is None


def test_agrees_with_posixpath() -> None:
    for top, below, within in itertools.product(
        ("/", "/m", "/m/", "//m/./n", "/m/../n"), ("", "a", "a/b"), ("", "s", "s/t/", "./s")
    ):
        directory = "/" + "/".join([*components(top), *components(below)])
        mount = {"mountPath": top, "subPath": within}
        expected = posixpath.normpath(posixpath.join("/", within, below))
        assert path_on_claim(_checkpoint(directory, mount)) == expected, (top, below, within)
