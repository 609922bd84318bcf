"""``rehearse --write FILE``: the verdict as an annotation of the TrainJob in its file."""

from __future__ import annotations

import copy
import datetime
from pathlib import Path

from msgspec import Struct

from webhook.cluster.documents import Document
from webhook.cluster.file_view import FileView
from webhook.cluster.files import load_files, settle_namespaces
from webhook.cluster.yaml_edit import Edited, NotWritten
from webhook.decision import build_subject
from webhook.effective.rehearsed import fingerprint, to_annotation
from webhook.model.names import REHEARSED
from webhook.model.policy import Policy
from webhook.model.release import infer_release
from webhook.model.request import Request


class CannotNote(Exception):  # noqa: N818 - what happened, not an error of ours
    """The verdict cannot be written into the file; the message is the reason."""


class Target(Struct):
    """The TrainJob of a file, and the fingerprint of what it runs."""

    file: Path
    text: str
    document: Document
    fingerprint: str


def find_target(file: str) -> Target:
    """The one TrainJob in a file, with its runtime beside it. Raises CannotNote before anything is run."""
    try:
        import ruamel.yaml  # noqa: F401
    except ImportError:
        raise CannotNote("needs the library ruamel.yaml: pip install 'checkpoint-guard[fix]'") from None
    loaded = load_files([file])
    if loaded.errors:
        raise CannotNote(str(loaded.errors[0]))
    settle_namespaces(None, loaded)
    jobs = [document for document in loaded.documents if document.kind == "TrainJob"]
    if len(jobs) != 1:
        raise CannotNote(f"{file}: {len(jobs)} TrainJobs in it; --write takes a file with one")
    job = jobs[0]
    release = infer_release(job.object.get("spec"))
    view = FileView(loaded.documents, release)
    policy = Policy()
    request = Request("CREATE", job.kind, job.namespace, job.name, job.object)
    effective = build_subject(request, view, policy, release).effective
    if effective is None:
        raise CannotNote(f"{file}: its runtime is not in it: add it to the file, so that what is run is known")
    found = fingerprint(effective, policy.directory.variables)
    if found is None:
        raise CannotNote(f"{file}: it is not known which of its containers trains")
    try:
        text = Path(job.file).read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotNote(f"{file}: cannot be read: {error}") from None
    return Target(Path(job.file), text, job, found)


def note(target: Target, verdict: str, today: datetime.date) -> None:
    """Write the annotation; everything else in the file stays. Raises CannotNote."""
    after = copy.deepcopy(dict(target.document.object))
    annotations = after.setdefault("metadata", {}).setdefault("annotations", {})
    annotations[REHEARSED] = to_annotation(target.fingerprint, verdict, today.isoformat())
    try:
        edited = Edited(target.text)
        edited.change(target.document.object, after)
        if target.file.read_bytes().decode() != target.text:
            raise CannotNote(f"{target.file}: it has changed since it was read")
        beside = target.file.with_name(f".{target.file.name}.rehearsed")
        beside.write_bytes(edited.text().encode())
        beside.chmod(target.file.stat().st_mode & 0o7777)
        beside.replace(target.file.resolve())
    except NotWritten as error:
        raise CannotNote(f"{target.file}: {error}") from None
    except OSError as error:
        raise CannotNote(f"{target.file}: cannot be written: {error.strerror}") from None
