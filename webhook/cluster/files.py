"""YAML and JSON files -> documents with their places, and a view of the cluster made of them.

``load_files`` never stops at a fault: what can be read is read, the rest is said in ``Loaded.errors``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, BinaryIO, Final

from webhook.cluster.documents import Document, FileError, Loaded, Notice
from webhook.cluster.folders import CHART, KUSTOMIZATIONS, Excluded, is_partial, is_patch, patches_of
from webhook.cluster.places import field_of, steps_of
from webhook.cluster.yaml_text import TEMPLATE, Piece, TextError, decode, parse, places, split
from webhook.model.names import API_VERSION, EXCEPTION, EXCEPTION_VERSION, KINDS
from webhook.model.printable import printable, shell_word
from webhook.model.request import MalformedObject
from webhook.model.shape import check_limits, check_shape

MAX_FILE: Final = 32 * 1024 * 1024
"""Bytes of one file. An object of the API is at most some 3 MiB; parsing this much takes about half a minute."""
SUFFIXES: Final = (".yaml", ".yml", ".json")
_NAMED: Final = 3
"""How many of a folder's files of which nothing is read are named."""

_API_VERSIONS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(KINDS, (API_VERSION,)),
    "PersistentVolumeClaim": ("v1",),
    "PersistentVolume": ("v1",),
    "StorageClass": ("storage.k8s.io/v1", "storage.k8s.io/v1beta1"),
    "CSIDriver": ("storage.k8s.io/v1", "storage.k8s.io/v1beta1"),
    "Namespace": ("v1",),
    "ConfigMap": ("v1",),
    EXCEPTION: (EXCEPTION_VERSION,),
}
STATE_KINDS: Final = tuple(_API_VERSIONS)
_OUR_GROUP: Final = API_VERSION.partition("/")[0] + "/"
_WORDS: Final = tuple((kind, kind.encode()) for kind in STATE_KINDS)
_WITHIN: Final = ((b"PersistentVolume", b"PersistentVolumeClaim"), (b"TrainingRuntime", b"ClusterTrainingRuntime"))
"""Names that stand in a longer one."""


def load_files(
    paths: Iterable[str],
    stdin: BinaryIO | None = None,
    seen: set[str] | None = None,
    settled: bool = True,
    exclude: Sequence[str] = (),
) -> Loaded:
    """Reads files, folders (recursively, ``*.yaml *.yml *.json``, nothing hidden) and ``-`` for standard input.

    A file that was read before (``seen``, shared between calls, gets the real paths) is not read again. An object of
    our kinds with a field of a wrong type, or one that stands twice, is an error and no document; what is no TrainJob
    may stand several times with the same content. With ``settled=False`` that is left to ``settle_namespaces``.
    ``exclude`` holds globs of files and folders to leave out. Patches and templates in a folder are passed over, said
    in a notice and counted in ``Loaded.skipped``.
    """
    loaded = Loaded()
    seen = set() if seen is None else seen
    excluded = Excluded(exclude)
    left_out = 0
    for path in paths:
        if path != "-" and not os.path.isdir(path) and excluded.leaves_out(path):  # noqa: PTH112
            left_out += 1
            continue
        if path == "-":
            if "-" not in seen:
                seen.add("-")
                _read_text("-", _read_limited(stdin or sys.stdin.buffer), loaded, True)
            continue
        if os.path.isdir(path):  # noqa: PTH112 - pathlib alone would be a tenth of the start-up time
            before = len(loaded.documents), len(loaded.errors)
            kustomized: dict[str, str] = {}
            charts: list[str] = []
            others: list[str] = []
            files = []
            for file in _walk(path, loaded, kustomized, charts):
                if excluded.leaves_out(file, path):
                    left_out += 1
                else:
                    files.append(file)
            patches = _patches(kustomized)
            for file in files:
                if patches and os.path.realpath(file) in patches:
                    loaded.patches.append(file)
                    continue
                found = loaded.found()
                new = _read_file(file, loaded, seen, False, charts)
                if new and found == loaded.found() and not file.endswith((*KUSTOMIZATIONS, CHART)):
                    others.append(file)
            for where, name in kustomized.items():
                below = os.path.join(where, "")  # noqa: PTH118
                if any(document.file.startswith(below) for document in loaded.documents[before[0] :]):
                    words = f"it is not built here: kubectl kustomize {shell_word(where)} | ckptguard review -"
                    loaded.notices.append(Notice(f"{below}{name}", words))
            if before == (len(loaded.documents), len(loaded.errors)) and not (loaded.templates or loaded.patches):
                loaded.notices.append(Notice(path, "no object that is read here stands in the files of this folder"))
            elif others:
                loaded.notices.append(Notice(path, f"nothing is read here of {_first_of(path, others)}"))
        else:
            _read_file(path, loaded, seen, True)
    _tell_aside(loaded)
    _tell_skipped(loaded, left_out, excluded)
    if settled:
        _refuse_duplicates(loaded)
    return loaded


def _patches(kustomized: Mapping[str, str]) -> set[str]:
    """The files that the kustomizations of these folders (folder -> file name) take as patches."""
    found: set[str] = set()
    for folder, name in kustomized.items():
        try:
            with open(os.path.join(folder, name), "rb") as stream:  # noqa: PTH118, PTH123
                pieces = split(decode(_read_limited(stream)))
            for _, value in (one for piece in pieces for one in parse(piece)):
                found |= patches_of(folder, value)
        except (OSError, ValueError, TextError):
            continue
    return found


def _tell_skipped(loaded: Loaded, left_out: int, excluded: Excluded) -> None:
    """One notice for each kind of what was passed over, and their number."""
    if loaded.patches:
        files = list(dict.fromkeys(loaded.patches))
        more = f", as are {len(files) - 1} more of the files" if len(files) > 1 else ""
        loaded.notices.append(Notice(files[0], f"this is a patch for kustomize, which is not reviewed by itself{more}"))
        loaded.skipped += len(files)
    for where, files in loaded.templates.items():
        what = f"{len(files)} templates are" if len(files) > 1 else "a template is"
        words = f"{what} not rendered here: helm template {shell_word(where)} | ckptguard review -"
        loaded.notices.append(Notice(files[0], words))
        loaded.skipped += len(files)
    if left_out:
        loaded.notices.append(Notice("--exclude", f"{left_out} file{'s' if left_out > 1 else ''} left out"))
        loaded.skipped += left_out
    for glob in excluded.unused():
        loaded.notices.append(Notice("--exclude", f'"{glob}" leaves nothing out'))


def _first_of(folder: str, files: Sequence[str]) -> str:
    below = len(os.path.join(folder, ""))  # noqa: PTH118
    names = [file[below:] for file in files[:_NAMED]]
    more = len(files) - len(names)
    return ", ".join(names) + (f" and {more} more of its files" if more else "")


_CONVERTIBLE: Final = ("PyTorchJob", "MPIJob")
"""Kinds of the Training Operator (kubeflow.org) that ``ckptguard convert`` takes."""
_CONVERTED: Final = re.compile(rb"\bkind[\"']?:\s*[\"']?(PyTorchJob|MPIJob)\b")


def _tell_aside(loaded: Loaded) -> None:
    """One notice for all files beside whose objects the same was left aside."""
    for names, files in loaded.aside.items():
        also = f", nor in {len(files) - 1} more of the files" if len(files) > 1 else ""
        loaded.notices.append(Notice(files[0], f"not read here: {names}{also}"))
    for file, kind in islice(loaded.convertible.items(), 1):
        more = f", so it does of {len(loaded.convertible) - 1} more files" if len(loaded.convertible) > 1 else ""
        words = f"a {kind} becomes a TrainJob by: ckptguard convert {shell_word(file)}{more}"
        loaded.notices.append(Notice(file, words))


def load_text(text: bytes, file: str) -> Loaded:
    """The same for a text that was read already; ``file`` is what errors call it."""
    loaded = Loaded()
    _read_text(file, text, loaded, True)
    _tell_aside(loaded)
    _tell_skipped(loaded, 0, Excluded(()))
    _refuse_duplicates(loaded)
    return loaded


def settle_namespaces(namespace: str | None, *loaded: Loaded) -> None:
    """Objects that name no namespace get theirs: ``namespace``, else the only one that occurs, else ``default``."""
    if namespace is None:
        named = {one.namespace for some in loaded for one in some.documents if one.placed and one.namespace}
        namespace = named.pop() if len(named) == 1 else "default"
    for some in loaded:
        for document in some.documents:
            if not document.placed:
                document.namespace = namespace
        _refuse_duplicates(some)


def give_way(first: Loaded, second: Loaded) -> None:
    """Takes out of ``second`` (state) what stands in ``first`` (what is about to be applied) too.

    A dump of a cluster holds the objects that are about to be changed, and after the change it holds these.
    """
    known = {document.key for document in first.documents if document.name}
    second.documents = [document for document in second.documents if document.key not in known]


def _walk(folder: str, loaded: Loaded, kustomized: dict[str, str], charts: list[str]) -> Iterator[str]:
    """Files of a folder in a fixed order. Links to folders are not followed: they may lead around in circles.

    ``kustomized`` gets the folders that are for kustomize to build, with the file that says so, ``charts`` those that
    Helm renders.
    """

    def unreadable(error: OSError) -> None:
        loaded.errors.append(FileError(str(error.filename or folder), None, None, _reason(error)))
        loaded.damaged.update(STATE_KINDS)

    for where, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if (found := next((one for one in KUSTOMIZATIONS if one in files), None)) is not None:
            kustomized[where] = found
        if CHART in files:
            charts.append(where)
        for name in sorted(files):
            if not name.startswith(".") and name.lower().endswith(SUFFIXES):
                path = os.path.join(where, name)  # noqa: PTH118 - keeps the path as the user began it
                # A pipe would be waited for. A link that leads nowhere is an error of its own.
                if os.path.isfile(path) or not os.path.exists(path):  # noqa: PTH110, PTH113
                    yield path


def _read_file(path: str, loaded: Loaded, seen: set[str], named: bool, charts: Sequence[str] = ()) -> bool:
    """Whether the file was not read before. ``charts`` are the folders of Helm charts around it."""
    try:
        real = os.path.realpath(path)
        if real in seen:
            return False
        seen.add(real)
        with open(path, "rb") as stream:  # noqa: PTH123
            data = _read_limited(stream)
    except (OSError, ValueError) as error:
        loaded.errors.append(FileError(path, None, None, _reason(error)))
        loaded.damaged.update(STATE_KINDS)
        return True
    _read_text(path, data, loaded, named, charts)
    return True


def _reason(error: OSError | ValueError) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return "no such file or folder" if isinstance(error, FileNotFoundError) else text[:1].lower() + text[1:]


def _read_limited(stream: BinaryIO) -> bytes:
    return stream.read(MAX_FILE + 1)


def _read_text(file: str, data: bytes, loaded: Loaded, named: bool, charts: Sequence[str] = ()) -> None:
    """One text. ``named``: the user named this file, so that what is wrong in it counts whatever stands there."""
    documents = len(loaded.documents)
    errors = len(loaded.errors)
    if len(data) > MAX_FILE:
        loaded.errors.append(
            FileError(file, None, None, f"the file is larger than {MAX_FILE // 2**20} MiB: split it into several files")
        )
        loaded.damaged.update(STATE_KINDS)
        return
    try:
        data = decode(data)
    except TextError as error:
        # Among the files of a folder that are none of ours a broken one is no concern of ours.
        if named or _kinds_in(data):
            loaded.errors.append(FileError(file, error.line, error.field, error.message))
            loaded.damaged.update(_kinds_in(data) or STATE_KINDS)
        return
    if not named and not _kinds_in(data) and not _CONVERTED.search(data):
        return
    chart = next((one for one in charts if file.startswith(os.path.join(one, "templates", ""))), None)  # noqa: PTH118
    if chart is not None and b"{{" in data:
        loaded.templates.setdefault(chart, []).append(file)
        loaded.damaged.update(_kinds_in(data))
        return
    others: dict[str, bool] = {}
    empty = True
    for piece in split(data):
        index = 0
        try:
            for line, value in parse(piece):
                if value is not None:
                    empty = False
                    _take(file, piece, index, line, value, loaded, others, named)
                index += 1
        except TextError as error:
            empty = False
            kinds = _kinds_in(piece.data)
            if not named and error.message == TEMPLATE:
                if kinds:
                    loaded.templates.setdefault("CHART", []).append(file)
                    loaded.damaged.update(kinds)
            elif named or kinds:
                # What comes of "cat job.yaml runtime.yaml | ckptguard review -".
                joined = error.field in ("apiVersion", "kind", "metadata", "spec") and "stands twice" in error.message
                hint = ': a line "---" is missing between two objects' if joined else ""
                loaded.errors.append(FileError(file, error.line, error.field, error.message + hint))
                loaded.damaged.update(kinds)
            continue
    if len(loaded.documents) > documents or len(loaded.errors) > errors:
        if names := ", ".join(name for name, told in others.items() if not told):
            loaded.aside.setdefault(names, []).append(file)
        return
    if not named:
        return  # load_files tells of all such files of a folder at once
    if empty:
        loaded.notices.append(Notice(file, "the file is empty"))
    else:
        names = ", ".join(others) or "no Kubernetes object"
        loaded.notices.append(Notice(file, f"nothing in it is read here: {names}"))


def _kinds_in(data: bytes) -> list[str]:
    """Kinds that we read and whose name stands somewhere in the text."""
    found = [kind for kind, word in _WORDS if word in data]
    for short, long in _WITHIN:
        if long.decode() in found and data.count(short) == data.count(long):
            found.remove(short.decode())
    return found


def _take(
    file: str,
    piece: Piece,
    index: int,
    line: int,
    value: Any,
    loaded: Loaded,
    others: dict[str, bool],
    named: bool,
) -> None:
    """A document: a list is taken apart, what is not ours is left aside.

    ``others`` gets the names of what is left aside, and whether a notice of its own says so.
    """
    if not isinstance(value, dict):
        if not named and _is_json_patch(value):
            loaded.patches.append(file)
            return
        what = "a list" if isinstance(value, list) else "plain text" if isinstance(value, str) else "a single value"
        loaded.errors.append(FileError(file, line, None, f"this is {what}, not a Kubernetes object"))
        return
    kind = value.get("kind")
    items = value.get("items")
    if isinstance(kind, str) and kind.endswith("List") and "items" in value:
        if items is not None and not isinstance(items, list):
            loaded.errors.append(_at(piece, index, file, "items", "this is no list"))
            return
        of_list = {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List")}
        for number, item in enumerate(items or ()):
            if not isinstance(item, dict):
                loaded.errors.append(_at(piece, index, file, f"items[{number}]", "this is not a Kubernetes object"))
                continue
            if kind != "List" and "kind" not in item:
                item = {**of_list, **item}
            _take_object(file, piece, index, line, number, item, loaded, others, named)
        return
    _take_object(file, piece, index, line, None, value, loaded, others, named)


def _is_json_patch(value: object) -> bool:
    """Whether this is a list of RFC 6902 edits, as kustomize takes it."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(edit, dict) and "op" in edit and "path" in edit for edit in value)
    )


def _at(piece: Piece, index: int, file: str, field: str, message: str) -> FileError:
    found = places(piece)
    line = found[index].find(steps_of(field)) if index < len(found) else piece.line
    return FileError(file, line, field, message)


def _take_object(
    file: str,
    piece: Piece,
    index: int,
    line: int,
    item: int | None,
    obj: dict[str, Any],
    loaded: Loaded,
    others: dict[str, bool],
    named: bool,
) -> None:
    if is_patch(obj):
        loaded.patches.append(file)
        return
    kind = obj.get("kind")
    versions = _API_VERSIONS.get(kind) if isinstance(kind, str) else None
    version = obj.get("apiVersion")
    base = "" if item is None else f"items[{item}]."
    if versions is None or not isinstance(kind, str):
        ours = isinstance(version, str) and version.startswith(_OUR_GROUP)
        named = isinstance(kind, str) and bool(kind)
        others[str(kind) if named else "an object without kind"] = ours
        if kind in _CONVERTIBLE and str(version).startswith("kubeflow.org/"):
            loaded.convertible.setdefault(file, str(kind))
        if ours and not named:
            words = f"{'absent' if not kind else 'no string'}: {API_VERSION} has {', '.join(KINDS)}"
            loaded.errors.append(_at(piece, index, file, f"{base}kind", words))
        elif ours:
            from webhook.model.nearest import near

            meant = near(str(kind), KINDS)
            hint = f', the nearest is "{meant}"' if meant else ""
            notice = f'"{kind}" is no kind of {API_VERSION} and is not read{hint}'
            loaded.notices.append(Notice(file, notice))
        return
    if version not in versions:
        others[f"{kind} of apiVersion {version}"] = kind in KINDS
        if kind in KINDS:
            if not version:
                words = f'absent: {kind} has apiVersion "{versions[0]}"'
                loaded.errors.append(_at(piece, index, file, f"{base}apiVersion", words))
            else:
                words = f'{kind} of apiVersion "{version}" is not read: "{versions[0]}" is'
                loaded.notices.append(Notice(file, words))
        return
    document = Document(file=file, piece=piece, index=index, line=line, item=item, obj=obj)
    if kind in KINDS and not document.name:
        if not named:
            loaded.patches.append(file)
            return
        words = "absent, and no generateName: a patch is reviewed as kubectl kustomize applies it"
        if not isinstance(obj.get("metadata"), dict | None) or (obj.get("metadata") or {}).get("name"):
            words = ""  # of a wrong type, as is said below
        if words:
            loaded.errors.append(_at(piece, index, file, f"{base}metadata.name", words))
            loaded.damaged.add(kind)
            return
    faults = list(_faults(document))
    for field, problem in faults:
        steps = steps_of(field)
        where = field_of(["items", item, *steps]) if item is not None else field
        loaded.errors.append(FileError(file, document.line_of(field), where, problem))
    if faults:
        loaded.damaged.add(kind)
    else:
        loaded.documents.append(document)


def _faults(document: Document) -> Iterator[tuple[str, str]]:
    metadata = document.object.get("metadata")
    for field in ("name", "generateName", "namespace"):
        text = metadata.get(field) if isinstance(metadata, dict) else None
        if isinstance(text, str) and not text.isprintable():
            yield f"metadata.{field}", f'"{printable(text)}" holds a character that no name may hold'
            return
    if document.kind == EXCEPTION:
        from webhook.cluster.policy_file import exception_faults

        for steps, problem in exception_faults(document.object):
            yield field_of([*steps]), problem
        return
    try:
        check_shape(document.kind, document.object)
    except MalformedObject as error:
        yield error.field, error.problem
        return
    yield from check_limits(document.kind, document.object)


def _refuse_duplicates(loaded: Loaded) -> None:
    """One object that stands in several files.

    Nothing is said of copies, a part of it is a patch, and what differs from folder to folder counts in its folder.
    What differs within a folder or a file is an error; two TrainJobs in two files are both reviewed.
    """
    known: dict[tuple[str, str, str], list[Document]] = {}
    gone: set[int] = set()
    parts: list[Document] = []
    copies: list[Document] = []
    differing: list[Document] = []
    for document in loaded.documents:
        metadata = document.object.get("metadata")
        if not isinstance(metadata, dict) or not metadata.get("name"):
            continue
        others = known.setdefault(document.key, [])
        same_file = next((one for one in others if one.file == document.file), None)
        if not others:
            others.append(document)
        # Files that are complete in themselves repeat the claim and the runtime that they share.
        elif any(one.object == document.object for one in others) and (
            same_file is None or document.kind != "TrainJob"
        ):
            gone.add(id(document))
            if document.kind == "TrainJob":
                copies.append(document)
        elif same_file is None and is_partial(document.object) and not is_partial(others[0].object):
            parts.append(document)
        elif same_file is None and is_partial(others[0].object) and not is_partial(document.object):
            parts += others
            others[:] = [document]
        elif same_file is None and (document.kind == "TrainJob" or all(_apart(document, one) for one in others)):
            others.append(document)
            differing.append(document)
        else:
            loaded.errors.append(_twice(document, same_file or others[0]))
            gone.add(id(document))
    gone.update(map(id, parts))
    loaded.documents = [document for document in loaded.documents if id(document) not in gone]
    loaded.several = {key: them for key, them in known.items() if len(them) > 1 and key[0] != "TrainJob"}
    loaded.skipped += len(parts)
    for found, words in (
        (copies, "as a copy, which is reviewed once"),
        (parts, "in part and is taken for a patch, which is not reviewed by itself"),
        (differing, "and, otherwise, elsewhere: each counts in its own folder"),
    ):
        if found:
            first = found[0]
            more = f"; so do {len(found) - 1} more" if len(found) > 1 else ""
            where = known[first.key][0]
            words = f'{first.kind} "{first.name}" stands here {words}: also in {where.file}:{where.line}{more}'
            loaded.notices.append(Notice(first.file, words))


def _apart(one: Document, other: Document) -> bool:
    return os.path.dirname(one.file) != os.path.dirname(other.file)  # noqa: PTH120


def _twice(document: Document, other: Document) -> FileError:
    where = f' in namespace "{document.namespace}"' if document.namespace else ""
    return FileError(
        document.file,
        document.line,
        "metadata.name",
        f'{document.kind} "{document.name}"{where} stands twice: also in {other.file}:{other.line}',
    )


def nearest_to(file: str, among: Sequence[Document]) -> Document:
    """Of documents in several folders the one that counts for what stands in ``file``: with most of the path shared."""
    own = file.split("/")[:-1]

    def shared(document: Document) -> int:
        count = 0
        for one, other in zip(own, document.file.split("/")[:-1], strict=False):
            if one != other:
                break
            count += 1
        return count

    return max(among, key=shared)
