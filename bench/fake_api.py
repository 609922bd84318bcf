"""An API server that costs next to nothing: pages of claims and volumes made as they are asked for.

``python -m bench.fake_api --claims N [--delay MS]`` prints its port. ``GET /bench/churn?rate=R&seconds=S`` sends so
many changes of claims a second to whoever watches them. Single GETs take ``delay`` milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import uuid
from time import monotonic
from typing import Any

from aiohttp import web

from bench.objects import RUNTIME
from webhook.cluster.kinds import CLAIM, CLASS, CRD, KINDS, NAMESPACE, TRAINJOB_CRD, VOLUME
from webhook.cluster.kinds import RUNTIME as RUNTIMES

HIDDEN = "hidden"
"""A claim that no list has: only a live read finds it."""


def claim(name: str, namespace: str, volume: str, version: int) -> dict[str, Any]:
    """A bound claim with what an API server sends of it, managed fields included."""
    annotations = {
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
        "volume.kubernetes.io/storage-provisioner": "efs.csi.aws.com",
        "kubectl.kubernetes.io/last-applied-configuration": "x" * 400,
    }
    fields = {"f:spec": {"f:accessModes": {}, "f:resources": {"f:requests": {".": {}, "f:storage": {}}}}}
    managed = [
        {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
         "fieldsType": "FieldsV1", "fieldsV1": fields}
        for manager in ("kubectl-client-side-apply", "kube-controller-manager", "kube-controller-manager")
    ]  # fmt: skip
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": volume.removeprefix("pvc-"),
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app.kubernetes.io/instance": name, "team": namespace},
            "annotations": annotations,
            "finalizers": ["kubernetes.io/pvc-protection"],
            "managedFields": managed,
        },
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "100Gi"}},
            "storageClassName": "shared",
            "volumeMode": "Filesystem",
            "volumeName": volume,
        },
        "status": {"phase": "Bound", "accessModes": ["ReadWriteMany"], "capacity": {"storage": "100Gi"}},
    }


def volume(name: str, claim_name: str, namespace: str, version: int) -> dict[str, Any]:
    """Its volume."""
    metadata = claim(name, "", "pvc-0", version)["metadata"]
    del metadata["namespace"], metadata["labels"]
    return {
        "metadata": metadata,
        "spec": {
            "capacity": {"storage": "100Gi"},
            "csi": {
                "driver": "efs.csi.aws.com",
                "volumeHandle": f"fs-0123::{name}",
                "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": "1700-8081-efs.csi.aws.com"},
            },
            "accessModes": ["ReadWriteMany"],
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim_name, "uid": name},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "shared",
            "volumeMode": "Filesystem",
        },
        "status": {"phase": "Bound"},
    }


class Api:
    """Objects by number, and those of the job that is judged."""

    def __init__(self, claims: int, delay: float) -> None:
        self.claims = claims
        self.delay = delay
        self.version = 1_000_000
        self.watches: list[asyncio.Queue[bytes]] = []
        self._claim = self._template(claim("@NAME@", "@SPACE@", "@VOLUME@", 424242))
        self._volume = self._template(volume("@VOLUME@", "@NAME@", "@SPACE@", 424242))
        shared = {"metadata": {"name": "shared", "resourceVersion": "1"}, "provisioner": "efs.csi.aws.com"}
        schema = {"properties": {"spec": {"properties": {"runtimePatches": {"terminationGracePeriodSeconds": {}}}}}}
        crd = {"versions": [{"name": "v1alpha1", "served": True, "schema": {"openAPIV3Schema": schema}}]}
        self.few: dict[str, list[dict[str, Any]]] = {
            KINDS[CLASS].collection: [shared],
            KINDS[NAMESPACE].collection: [{"metadata": {"name": "vision", "resourceVersion": "1"}}],
            KINDS[RUNTIMES].collection: [RUNTIME],
            KINDS[CRD].collection: [{"metadata": {"name": TRAINJOB_CRD, "resourceVersion": "1"}, "spec": crd}],
        }

    @staticmethod
    def _template(obj: dict[str, Any]) -> str:
        return json.dumps(obj, separators=(",", ":"))

    def _names(self, number: int) -> tuple[str, str, str]:
        if number < 2:
            return ("images", "run-state")[number], "vision", f"pvc-vision-{number}"
        return f"data-trainer-{number}", f"team-{number % 200}", f"pvc-{uuid.UUID(int=number * 2**64 + number)}"

    def item(self, template: str, number: int) -> str:
        name, space, its_volume = self._names(number)
        return template.replace("@NAME@", name).replace("@SPACE@", space).replace("@VOLUME@", its_volume)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        path, query = request.path, request.query
        if path == "/bench/churn":
            task = asyncio.create_task(self.churn(float(query["rate"]), float(query["seconds"])))
            await task
            return web.Response()
        if query.get("watch"):
            return await self.watch(request)
        if path in (KINDS[CLAIM].collection, KINDS[VOLUME].collection):
            template = self._claim if path == KINDS[CLAIM].collection else self._volume
            start = int(query.get("continue") or 0)
            end = min(start + int(query.get("limit") or self.claims), self.claims)
            more = f',"continue":"{end}"' if end < self.claims else ""
            items = ",".join(self.item(template, number) for number in range(start, end))
            body = f'{{"kind":"List","metadata":{{"resourceVersion":"{self.version}"{more}}},"items":[{items}]}}'
            return web.Response(text=body, content_type="application/json")
        if path in self.few or path in {kind.collection for kind in KINDS.values()}:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": self.few.get(path, [])})
        await asyncio.sleep(self.delay)
        name = path.rsplit("/", 1)[1]
        if "persistentvolumeclaims" in path and name.startswith(HIDDEN):
            return web.json_response(claim(name, "vision", "pvc-vision-1", 1))
        return web.json_response({"code": 404}, status=404)

    async def watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        if request.path == KINDS[CLAIM].collection:
            self.watches.append(queue)
        try:
            while True:
                await response.write(await queue.get())
        except ConnectionError:
            return response
        finally:
            if queue in self.watches:
                self.watches.remove(queue)

    async def churn(self, rate: float, seconds: float) -> None:
        started = monotonic()
        sent = 0
        while (spent := monotonic() - started) < seconds:
            due = int(spent * rate) - sent
            lines = []
            for _ in range(due):
                self.version += 1
                sent += 1
                made = self.item(self._claim, 2 + sent % max(self.claims - 2, 1)).replace("424242", str(self.version))
                made = made.replace("100Gi", f"{sent % 50 + 1}Gi")
                lines.append(f'{{"type":"MODIFIED","object":{made}}}\n')
            if lines:
                data = "".join(lines).encode()
                for queue in self.watches:
                    queue.put_nowait(data)
            await asyncio.sleep(0.005)


async def main(claims: int, delay: float) -> None:
    app = web.Application()
    app.router.add_get("/{path:.*}", Api(claims, delay).serve)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--claims", type=int, default=100)
    parser.add_argument("--delay", type=float, default=0)
    chosen = parser.parse_args()
    asyncio.run(main(chosen.claims, chosen.delay / 1000))
