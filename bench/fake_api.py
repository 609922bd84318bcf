"""An API server that costs next to nothing: pages of claims and volumes made as they are asked for.

``python -m bench.fake_api --claims N [--delay MS]`` prints its port. ``GET /bench/churn?rate=R&seconds=S`` sends so
many changes of claims a second to whoever watches them; ``/bench/turnover`` has objects of all kinds come, change and
go, each under a name of its own, and answers with the number of events. Single GETs take ``delay`` milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import uuid
from collections.abc import Iterator
from time import monotonic
from typing import Any

from aiohttp import web

from bench.objects import RUNTIME, SPEC
from webhook.cluster.kinds import CLAIM, CLASS, CRD, KINDS, NAMESPACE, TRAINJOB, TRAINJOB_CRD, VOLUME
from webhook.cluster.kinds import RUNTIME as RUNTIMES

HIDDEN = "hidden"
"""A claim that no list has: only a live read finds it."""
LIVES = 500
"""So many objects stand at a time of those that come and go."""


def claim(name: str, namespace: str, volume: str, version: int) -> dict[str, Any]:
    """A bound claim with what an API server sends of it, managed fields included."""
    annotations = {
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
        "volume.kubernetes.io/storage-provisioner": "efs.csi.aws.com",
        "kubectl.kubernetes.io/last-applied-configuration": "x" * 400,
    }
    asked: dict[str, Any] = {"f:requests": {".": {}, "f:storage": {}}}
    fields = {"f:spec": {"f:accessModes": {}, "f:resources": asked}}
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
        self.watches: dict[str, list[asyncio.Queue[bytes]]] = {}
        self._claim = self._template(claim("@NAME@", "@SPACE@", "@VOLUME@", 424242))
        self._volume = self._template(volume("@VOLUME@", "@NAME@", "@SPACE@", 424242))
        shared = {"metadata": {"name": "shared", "resourceVersion": "1"}, "provisioner": "efs.csi.aws.com"}
        patches: dict[str, Any] = {"runtimePatches": {"terminationGracePeriodSeconds": {}}}
        schema = {"properties": {"spec": {"properties": patches}}}
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
            await self.churn(float(query["rate"]), float(query["seconds"]))
            return web.Response()
        if path == "/bench/turnover":
            return web.Response(text=str(await self.turnover(float(query["rate"]), float(query["seconds"]))))
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
        queues = self.watches.setdefault(request.path, [])
        queues.append(queue)
        try:
            while True:
                await response.write(await queue.get())
        except ConnectionError:
            return response
        finally:
            queues.remove(queue)

    def tell(self, kind: str, lines: list[str]) -> None:
        """Events of a kind, as one piece."""
        data = "".join(lines).encode()
        for queue in self.watches.get(KINDS[kind].collection, ()):
            queue.put_nowait(data)

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
                self.tell(CLAIM, lines)
            await asyncio.sleep(0.005)

    async def turnover(self, rate: float, seconds: float) -> int:
        """Every object lives for ``LIVES`` others, then it goes; no two are alike in their sizes."""
        started = monotonic()
        sent = 0
        made = 0
        while (spent := monotonic() - started) < seconds:
            lines: dict[str, list[str]] = {}
            while sent < int(spent * rate):
                for kind, event in self.life(made):
                    lines.setdefault(kind, []).append(event)
                    sent += 1
                made += 1
            for kind, events in lines.items():
                self.tell(kind, events)
            await asyncio.sleep(0.005)
        return sent

    def life(self, number: int) -> Iterator[tuple[str, str]]:
        """What happens when the object of a number comes: to it, and to the one that is old by then."""
        size = f"{number % 7919 + 1}Gi"
        name, space, its_volume = f"run-{number}", f"short-{number // 20}", f"pvc-{uuid.UUID(int=number + 2**100)}"
        new_claim, new_volume = claim(name, space, its_volume, 0), volume(its_volume, name, space, 0)
        for obj in (new_claim, new_volume):
            obj["spec"]["storageClassName"] = f"class-{number % 50}"
        new_claim["spec"]["resources"]["requests"]["storage"] = new_volume["spec"]["capacity"]["storage"] = size
        job = {"metadata": {"name": name, "namespace": space, "uid": name, "generation": 1}, "spec": SPEC}
        if number % 20 == 0:
            yield self.event(NAMESPACE, "ADDED", {"metadata": {"name": space, "labels": {"team": space}}})
        yield self.event(VOLUME, "ADDED", new_volume | {"status": {"phase": "Available"}})
        unbound = new_claim | {"spec": {**new_claim["spec"], "volumeName": ""}, "status": {"phase": "Pending"}}
        yield self.event(CLAIM, "ADDED", unbound)
        yield self.event(TRAINJOB, "ADDED", job)
        yield self.event(VOLUME, "MODIFIED", new_volume)
        yield self.event(CLAIM, "MODIFIED", new_claim)
        complete = {"conditions": [{"type": "Complete", "status": "True"}]}
        yield self.event(TRAINJOB, "MODIFIED", job | {"status": complete})
        if number >= LIVES:
            old = number - LIVES
            name, space, its_volume = f"run-{old}", f"short-{old // 20}", f"pvc-{uuid.UUID(int=old + 2**100)}"
            yield self.event(CLAIM, "DELETED", {"metadata": {"name": name, "namespace": space}})
            yield self.event(VOLUME, "DELETED", {"metadata": {"name": its_volume}})
            yield self.event(TRAINJOB, "DELETED", {"metadata": {"name": name, "namespace": space}})
            if old % 20 == 19:
                yield self.event(NAMESPACE, "DELETED", {"metadata": {"name": space}})

    def event(self, kind: str, what: str, obj: dict[str, Any]) -> tuple[str, str]:
        """The line of a watch."""
        self.version += 1
        obj = obj | {"metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        return kind, json.dumps({"type": what, "object": obj}, separators=(",", ":")) + "\n"


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
