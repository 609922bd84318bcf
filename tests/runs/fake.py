"""An API server in memory: as much of it as the commands use."""

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

import jsonpatch

from webhook.cluster.access import Unreachable
from webhook.runs.api import JSON_PATCH, Answer

Object = dict[str, Any]
React = Callable[[str, str, Object], Answer | None]


class FakeApi:
    """`objects` by path. `react(method, path, body)` may answer a write in its stead; requests are kept in `asked`."""

    def __init__(self, objects: Mapping[str, Object] | None = None, react: React | None = None) -> None:
        self.objects: dict[str, Object] = dict(objects or {})
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.forbidden: set[str] = set()
        self.away = False
        self._react = react or (lambda method, path, body: None)

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Answer:
        self.asked.append((method, path, dict(params or {})))
        if self.away:
            raise Unreachable("the API server cannot be reached: gone")
        if any(re.fullmatch(pattern, path) for pattern in self.forbidden):
            return Answer(403, {"message": f'cannot {method.lower()} "{path}"'})
        if (answer := self._react(method, path, body)) is not None:
            return answer
        dry = (params or {}).get("dryRun") == "All"
        if method == "GET":
            return self._get(path, params or {})
        if method == "DELETE":
            return Answer(200) if self.objects.pop(path, None) is not None else Answer(404, {"message": "not found"})
        if method == "PATCH":
            assert content_type == JSON_PATCH
            try:
                patched = jsonpatch.apply_patch(self.objects[path], body)
            except jsonpatch.JsonPatchTestFailed as error:
                return Answer(422, {"message": f"test failed: {error}"})
            if not dry:
                self.objects[path] = patched
            return Answer(200, patched)
        return Answer(201, body)

    def _get(self, path: str, params: Mapping[str, str]) -> Answer:
        if path in self.objects:
            return Answer(200, copy.deepcopy(self.objects[path]))
        if "limit" in params or "labelSelector" in params:
            below = re.compile(re.escape(path) + "/[^/]+")
            everywhere = re.compile(re.sub(r"/([^/]+)$", r"(/namespaces/[^/]+)?/\1", path) + "/[^/]+")
            items = [one for key, one in self.objects.items() if below.fullmatch(key) or everywhere.fullmatch(key)]
            begin = int(params.get("continue") or 0)
            end = begin + int(params.get("limit") or 1000)
            metadata = {"continue": str(end)} if end < len(items) else {}
            return Answer(200, {"items": copy.deepcopy(items[begin:end]), "metadata": metadata})
        return Answer(404, {"message": f"{path} not found"})
