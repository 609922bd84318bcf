"""ConfigMaps that a container mounts and that its command leads into: their texts, by path in the container.

As the kubelet lays them out (pkg/volume/configmap and pkg/volume/projected of Kubernetes 1.34): without ``items`` each
key is a file of its name, with them only those that they name; of several sources of a projected volume the last one to
write a path wins; ``subPath`` mounts one file or folder of the volume.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from webhook.model.budget import MAPS, marks_in
from webhook.model.cluster import ConfigMap, Gap
from webhook.model.files import LONGEST, File, Lost, Source
from webhook.model.finding import Origin
from webhook.model.path import components
from webhook.model.pod import EMPTY, EffectiveJob, Raw

_MODE: Final = 0o644
"""``defaultMode`` where nobody writes one (core/v1)."""
_ANY_EXECUTE: Final = 0o111
_MOST: Final = 96 * 1024
"""Characters of mounted texts that the budget of a review is charged for: no container's program reads more."""
_SHORT: Final = 4096
_MOUNTS: Final = 16
"""Mounts of ConfigMaps in one container that a command is looked through for."""


class Maps:
    """The ConfigMaps of one review, each looked up once, at most ``MAPS`` of them."""

    def __init__(self, look_up: Callable[[str], ConfigMap | Gap], why_unknown: Callable[[], str]) -> None:
        self._look_up = look_up
        self._why_unknown = why_unknown
        self._known: dict[str, ConfigMap | Lost] = {}
        self._asked = 0

    def get(self, name: str) -> ConfigMap | Lost:
        """The ConfigMap of that name, or why there is none."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._read(name)
        return found

    def _read(self, name: str) -> ConfigMap | Lost:
        self._asked += 1
        if self._asked > MAPS:
            return Lost(f'ConfigMap "{name}" is not read: a review reads {MAPS} of them at most', unknown=True)
        found = self._look_up(name)
        if found is Gap.ABSENT:
            return Lost(f'there is no ConfigMap "{name}"')
        if found is Gap.UNKNOWN:
            return Lost(f'ConfigMap "{name}" is not read: {self._why_unknown()}', unknown=True)
        return found if found.version else replace(found, version=_digest(found))


def _digest(found: ConfigMap) -> str:
    """Stands for a version that a file does not have."""
    from hashlib import blake2b

    known = blake2b(digest_size=16)
    for key, text in found.data.items():
        known.update(f"{key}\0{len(text)}\0{text}".encode("utf-8", "surrogatepass"))
    return f"{known.hexdigest()}/{','.join(sorted(found.binary))}"


class _Entry(Struct, frozen=True):
    """One file of a volume: in which ConfigMap, under which key, with which mode."""

    map: ConfigMap
    key: str
    mode: int


class _Mount(Struct, frozen=True):
    """One mount of a container. ``files`` are those of its volume by path in it; None where it is no ConfigMap's."""

    path: tuple[str, ...]
    sub_path: tuple[str, ...]
    volume: str
    files: Mapping[str, _Entry] | None = None
    lost: tuple[Lost, ...] = ()


class Mounted:
    """The mounted files of one container (``webhook.model.files.Files``)."""

    checkout = False

    def __init__(self, mounts: Sequence[_Mount], key: Hashable, size: tuple[int, int]) -> None:
        self._mounts = {mount.path: mount for mount in mounts}
        """By path; of two at one path the later, which covers it."""
        self.key = key
        self.size = size

    def begins(self, path: str) -> bool:
        """Whether an absolute path lies on one of the ConfigMaps."""
        if not path.startswith("/"):
            return False
        mount = self._under(tuple(components(path)))
        return mount is not None and mount.files is not None

    def find(self, path: str) -> File | Lost | None:
        """The file at an absolute path. A relative one is the image's: where it starts nobody says."""
        if not path.startswith("/"):
            return None
        parts = tuple(components(path))
        mount = self._under(parts)
        if mount is None:
            return None
        if mount.files is None:
            return Lost(f'volume "{mount.volume}" is not read', unknown=True)
        inside = "/".join((*mount.sub_path, *parts[len(mount.path) :]))
        entry = mount.files.get(inside)
        if entry is None:
            return mount.lost[0] if mount.lost else Lost(f'volume "{mount.volume}" has no file of that name')
        field = f"data[{entry.key}]"
        if entry.key in entry.map.binary:
            return Lost(f'key "{entry.key}" of ConfigMap "{entry.map.name}" is binary')
        text = entry.map.data[entry.key]
        origin = Origin(f"ConfigMap/{entry.map.name}", field, field)
        return File("/" + "/".join(parts), text, origin, bool(entry.mode & _ANY_EXECUTE))

    def beside(self, path: str) -> File | None:
        """The file at that path, where there is one."""
        found = self.find(path)
        return found if isinstance(found, File) else None

    def _under(self, parts: tuple[str, ...]) -> _Mount | None:
        for size in range(len(parts), 0, -1):
            mount = self._mounts.get(parts[:size])
            if mount is not None:
                return mount
        return None


class InReach:
    """The mounted files of a container before those of its image, which a checkout has."""

    checkout = True

    def __init__(self, mounted: Mounted | None, source: Source, working_dir: str) -> None:
        self._mounted = mounted
        self._source = source
        self._working_dir = working_dir
        self.key: Hashable = (source.key, working_dir, None if mounted is None else mounted.key)
        self.size = (0, 0) if mounted is None else mounted.size

    def find(self, path: str) -> File | Lost | None:
        """The file at a path; one that lies on a volume which is not read is looked for in the checkout too."""
        found = None if self._mounted is None else self._mounted.find(path)
        if isinstance(found, File) or (found is not None and not found.unknown):
            return found
        own = self._source.find(path, self._working_dir)
        return own if isinstance(own, File) or found is None else found

    def beside(self, path: str) -> File | None:
        """The file at that very path."""
        found = None if self._mounted is None else self._mounted.beside(path)
        return found or self._source.beside(path)

    def begins(self, path: str) -> bool:
        """Whether a path lies on a ConfigMap, or has a file of the checkout for sure."""
        if self._mounted is not None and self._mounted.begins(path):
            return True
        return "/" in path and isinstance(self._source.find(path, self._working_dir), File)


def mounted_files(
    job: EffectiveJob, container: Raw, command: Sequence[Any], args: Sequence[Any], maps: Maps
) -> Mounted | None:
    """The files of the ConfigMaps that the command may lead into; None where it leads into none.

    Looked up are only those whose mount is named in ``command``, ``args``, ``workingDir`` or a variable.
    """
    mounts = container.get("volumeMounts") or ()
    if not mounts:
        return None
    texts = _texts(container, command, args)
    found: list[_Mount] = []
    versions: list[Hashable] = []
    length = nodes = 0
    looked = named = 0
    for mount in mounts:
        path = str(mount.get("mountPath") or "")
        parts = tuple(components(path))
        name = str(mount.get("name") or "")
        source = _sources(job, mount) if looked < _MOUNTS else ()
        looked += bool(source)
        where = "/" + "/".join(parts)
        if not source or not parts or not any(where in text for text in texts):
            found.append(_Mount(parts, (), name))
            continue
        named += 1
        made = _made(mount, parts, name, source, maps)
        found.append(made)
        known = {id(entry.map): entry.map for entry in (made.files or {}).values()}
        for one in known.values():
            usable = [text for text in one.data.values() if len(text) <= LONGEST]
            length += sum(map(len, usable))
            nodes += sum(marks_in(text) if len(text) > _SHORT else len(text) // 4 for text in usable)
        versions.append((path, made.sub_path, _layout(made), made.lost))
    if not named:
        return None
    share = min(1.0, _MOST / length) if length else 0.0
    return Mounted(found, tuple(versions), (min(length, _MOST), int(nodes * share)))


def _layout(mount: _Mount) -> Hashable:
    """What the files of a mount are known by: their paths, and their ConfigMaps' versions."""
    return tuple(
        (
            path,
            entry.mode & _ANY_EXECUTE,
            entry.key,
            entry.map.version,
        )
        for path, entry in (mount.files or {}).items()
    )


def _texts(container: Raw, command: Sequence[Any], args: Sequence[Any]) -> list[str]:
    texts = [item for item in (*command, *args) if isinstance(item, str) and len(item) <= LONGEST]
    texts.append(str(container.get("workingDir") or "") + "/")
    for variable in container.get("env") or ():
        value = variable.get("value")
        if isinstance(value, str) and value.startswith("/") and len(value) <= LONGEST:
            texts.append(value)
    return texts


def _sources(job: EffectiveJob, mount: Raw) -> list[Raw]:
    """The ``configMap`` sources of the volume under a mount, in their order; none for any other volume."""
    volume = job.volume(str(mount.get("name") or ""))
    if volume is None:
        return []
    if isinstance(volume.get("configMap"), dict):
        return [{**volume["configMap"], "mode": volume["configMap"].get("defaultMode")}]
    projected = volume.get("projected")
    if not isinstance(projected, dict):
        return []
    mode = projected.get("defaultMode")
    return [
        {**source["configMap"], "mode": mode}
        for source in projected.get("sources") or ()
        if isinstance(source, dict) and isinstance(source.get("configMap"), dict)
    ]


def _made(mount: Raw, parts: tuple[str, ...], volume: str, sources: Sequence[Raw], maps: Maps) -> _Mount:
    files: dict[str, _Entry] = {}
    lost: list[Lost] = []
    if mount.get("subPathExpr"):
        lost.append(Lost(f'the subPathExpr of volume "{volume}" is not followed', unknown=True))
        return _Mount(parts, (), volume, files, tuple(lost))
    for source in sources:
        found = maps.get(str(source.get("name") or ""))
        if isinstance(found, Lost):
            lost.append(found)
            continue
        mode = source.get("mode")
        mode = mode if isinstance(mode, int) else _MODE
        items = source.get("items")
        if not items:
            files.update((name, _Entry(found, name, mode)) for name in (*found.data, *found.binary))
            continue
        for item in items if isinstance(items, list) else ():
            item = item if isinstance(item, dict) else EMPTY
            key, named, own = item.get("key"), item.get("path"), item.get("mode")
            if not isinstance(key, str) or not isinstance(named, str):
                continue
            if key in found.data or key in found.binary:
                files["/".join(components(named))] = _Entry(found, key, own if isinstance(own, int) else mode)
            else:
                lost.append(Lost(f'ConfigMap "{found.name}" has no key "{key}"'))
    sub_path = mount.get("subPath")
    inside = tuple(components(sub_path)) if isinstance(sub_path, str) else ()
    return _Mount(parts, inside, volume, files, tuple(lost))
