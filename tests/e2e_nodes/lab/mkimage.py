"""A folder as an image of one layer: `mkimage.py ROOT OUT.tar NAME[,NAME...] [--cmd JSON] [--entrypoint JSON]`.

OUT is a docker archive, as `ctr images import` and buildah read it.
"""

import argparse
import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("out", type=Path)
    parser.add_argument("names")
    parser.add_argument("--cmd", type=json.loads)
    parser.add_argument("--entrypoint", type=json.loads)
    parser.add_argument("--env", action="append", default=[])
    given = parser.parse_args()
    config = {"Env": ["PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", *given.env]}
    if given.cmd:
        config["Cmd"] = given.cmd
    if given.entrypoint:
        config["Entrypoint"] = given.entrypoint
    with tempfile.TemporaryDirectory(dir=given.out.parent) as folder:
        layer = Path(folder, "layer.tar")
        order = ["--numeric-owner", "--xattrs", "--sort=name", "--mtime=@0"]
        subprocess.run(["tar", *order, "-C", given.root, "-cf", layer, "."], check=True)
        with layer.open("rb") as data:
            digest = hashlib.file_digest(data, "sha256").hexdigest()
        image = {
            "created": "1970-01-01T00:00:00Z",
            "architecture": subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip(),
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "mkimage.py"}],
        }
        described = json.dumps(image).encode()
        name = f"{hashlib.sha256(described).hexdigest()}.json"
        manifest = [{"Config": name, "RepoTags": given.names.split(","), "Layers": [f"{digest}/layer.tar"]}]
        with tarfile.open(given.out, "w") as archive:
            for path, text in ((name, described), ("manifest.json", json.dumps(manifest).encode())):
                entry = tarfile.TarInfo(path)
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text))
            archive.add(layer, f"{digest}/layer.tar")


if __name__ == "__main__":
    main()
