"""Addresses of object stores and distributed file systems, which a program may write to without a volume."""

from __future__ import annotations

from typing import Final

OBJECT_STORES: Final = frozenset(
    (
        "s3",
        "s3a",
        "s3n",
        "gs",
        "gcs",
        "abfs",
        "abfss",
        "adl",
        "az",
        "azure",
        "wasb",
        "wasbs",
        "hdfs",
        "viewfs",
        "oci",
        "oss",
        "obs",
        "cos",
        "cosn",
        "r2",
        "msc",
    )
)
"""Schemes by which programs write to them: fsspec's and Hadoop's names, and NVIDIA's multi-storage client (``msc``)."""

ADDRESSES: Final = OBJECT_STORES | {"pvc"}
"""Those that a program may be given for its directory; ``pvc://`` means something to the Open Data Hub SDK alone, which
mounts the claim before the program starts."""


def scheme_of(text: str) -> str:
    """``s3`` of ``s3://bucket/run``, in small letters; empty where the text is a path."""
    scheme, mark, _ = text[:32].partition("://")
    return scheme.lower() if mark and scheme.isalnum() else ""


def as_path(text: str) -> str:
    """What an address is for a program that takes it for a path: ``s3:/bucket/run``, below the working directory."""
    scheme, _, rest = text.partition("://")
    return f"{scheme}:/{rest.lstrip('/')}"
