"""``ckptguard fix``: the changes that settle findings, written into the files.

A fix is text to paste; this pastes it, asks all rules again, and keeps what settles its finding and brings no new one.
What the guard would fill in at admission is written too. What needs knowledge that is not there (a claim's name) is not
written, and the reason is said.
"""

from __future__ import annotations

import argparse
import copy
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from time import time
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from webhook.cli.flags import add_flags
from webhook.cli.inputs import Inputs, inputs_of, load_policy_file
from webhook.cli.output import complain
from webhook.cli.outputs import write_outputs
from webhook.cluster.documents import Document
from webhook.decision import default_object, review_object
from webhook.model.finding import Judged, Severity
from webhook.model.names import INJECTED, RUNTIME_KINDS
from webhook.model.policy import Policy
from webhook.model.printable import printable
from webhook.model.release import OVERRIDE_FIELDS
from webhook.model.request import Request
from webhook.model.script import BEHIND, Lines
from webhook.reports.review import Fault

INTERMIXED = True
_PLACEHOLDER: Final = re.compile(r"<[a-z][^<>\n]{0,60}>")
_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_LINE: Final = re.compile(r" line \d+$")
_OF_TRAINJOB: Final = frozenset(("trainer", "initializer", "runtimeRef", *OVERRIDE_FIELDS))
_PROGRAM: Final = frozenset(("command", "args"))
_MOST: Final = 200
"""Findings that are tried: each asks all rules again."""
FILLED_IN: Final = "filled-in"
"""Stands for a rule where the change is what the guard would fill in at admission."""

Objects = dict[int, dict[str, Any]]
"""id of a document -> its object as it is to be."""


class Item(Struct):
    """One finding, and what became of it."""

    file: str
    rule: str
    at: str
    applied: bool
    reason: str


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of ``fix``."""
    add_flags(parser, ("text", "json"))
    parser.add_argument("--policy", metavar="FILE", help="the policy file")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--diff", action="store_true", help="print the changes and write nothing (default)")
    which.add_argument("--write", action="store_true", help="write the changes into the files")
    parser.add_argument("--unsafe", action="store_true", help="change lines of programs too, not only fields")
    parser.epilog = "exit code: 0 all applied, 1 something was not applied, 2 failed"


def run(arguments: argparse.Namespace) -> int:
    """0 nothing is left to do, 1 something was not applied, 2 could not be done."""
    try:
        import ruamel.yaml  # noqa: F401
    except ModuleNotFoundError:
        complain(["error: fix needs the library ruamel.yaml: pip install 'checkpoint-guard[fix]'"])
        return 2
    faults: list[Fault] = []
    policy = load_policy_file(arguments.policy, faults)
    inputs = inputs_of(arguments, policy) if policy is not None else None
    if policy is None or inputs is None:
        complain([f"error: {printable(fault.message)}" for fault in faults])
        return 2
    nothing = inputs.nothing()
    faults.extend(inputs.faults if nothing is None else (nothing,))
    if faults:
        complain([f"error: {printable(_told(fault))}" for fault in faults])
        return 2
    if arguments.write and any(document.file in ("-", "<stdin>") for document in (*inputs.documents, *inputs.maps)):
        complain(["error: --write: standard input cannot be written to; leave it out to see the changes"])
        return 2
    pasting = Pasting(inputs, policy, arguments.unsafe)
    pasting.paste()
    inputs.close()
    changes, failed = _texts(pasting)
    if arguments.write and not failed:
        failed = _write(pasting, changes)
    elif arguments.write:
        failed |= _write(pasting, {file: change for file, change in changes.items() if file not in failed})
    write = partial(_render, pasting, changes, arguments.write)
    if not write_outputs(arguments.output, write):
        return 2
    return 1 if failed or any(not item.applied for item in pasting.items) else 0


def _told(fault: Fault) -> str:
    where = f"{fault.file}: " if fault.file else ""
    return f"{where}{fault.message}"


class Pasting:
    """The objects of FILE, changed one finding at a time."""

    def __init__(self, inputs: Inputs, policy: Policy, unsafe: bool) -> None:
        self.inputs, self.policy, self.unsafe = inputs, policy, unsafe
        self.documents: list[Document] = inputs.documents
        self.everything: list[Document] = [*inputs.documents, *inputs.maps]
        """What may be changed: ConfigMaps are not judged themselves, a program may stand in one."""
        self.before: Objects = {id(one): copy.deepcopy(one.object) for one in self.everything}
        self.objects: Objects = dict(self.before)
        self.items: list[Item] = []
        self._kept_by: dict[int, list[Item]] = {}
        self.unread: dict[str, str] = {}
        """Object -> why its program, or a part of it, was not looked at; empty where there is nothing to say."""
        self.assumed: dict[str, list[str]] = {}
        """Runtimes that are assumed as Trainer ships them -> rules that warn of them: not the reader's to change."""

    def paste(self) -> None:
        found = self.judge(self.objects)
        for document in self.documents:
            self._fill_in(document)
        found = self.judge(self.objects)
        tried: set[tuple[str, str, str, str]] = set()
        while len(tried) < _MOST:
            left = [(d, f) for d, f in found if _key(d, f) not in tried]
            # Where a fault is written comes before whatever else shows it.
            entry = next((one for one in left if one[1].at.object == one[0].label), left[0] if left else None)
            if entry is None:
                break
            document, finding = entry
            tried.add(_key(document, finding))
            target, reason, candidates = self._candidates(document, finding)
            if target is None and finding.severity is not Severity.DENY and finding.at.object in self.assumed:
                self.assumed[finding.at.object].append(finding.rule)
                continue
            done = False
            for changed in candidates:
                reason = self._refused(found, document, finding, changed)
                if not reason:
                    self.objects, found, done = changed, self.judge(changed), True
                    break
            place = f"{finding.at.object} {finding.at.field}".strip() if target is not document else finding.at.field
            item = Item((target or document).file, finding.rule, place, done, "" if done else reason)
            self.items.append(item)
            if done and target is not None:
                self._kept_by.setdefault(id(target), []).append(item)

    def undo(self, document: Document, reason: str) -> None:
        """The document's text could not be changed."""
        self.objects[id(document)] = self.before[id(document)]
        for item in self._kept_by.get(id(document), ()):
            item.applied, item.reason = False, reason

    def judge(self, objects: Objects) -> list[tuple[Document, Judged]]:
        """The findings on all objects as they would be, each with the document that it is told of."""
        inputs, policy = self.inputs, self.policy
        for document in self.everything:
            document.object = objects[id(document)]
            if document.kind in RUNTIME_KINDS:
                inputs.put_runtime(document, document.stored)
            elif document.kind == "ConfigMap":
                inputs.view.store.put(document.kind, document.stored)
        inputs.settled = ""
        for document in self.documents:
            if document.kind in RUNTIME_KINDS:
                request = _request(document)
                done = inputs.asked(partial(default_object, request, inputs.view, policy, inputs.release(document)))
                if done.patch:
                    inputs.put_runtime(document, done.object)
        found: list[tuple[Document, Judged]] = []
        for document in self.documents:
            inputs.settle_for(document)
            release = inputs.release(document)
            if inputs.assume_for(document, release) and inputs.view.assumed is not None:
                self.assumed.setdefault(inputs.view.assumed.label, [])
            request = _request(document)
            filled = inputs.asked(partial(default_object, request, inputs.view, policy, release))
            stored = replace(request, object=filled.object)
            decision = inputs.asked(partial(review_object, stored, inputs.view, policy, release))
            fact = decision.facts.program
            self.unread[f"{document.namespace}/{document.label}"] = (
                f"{document.file} {document.label} program {fact.words()}" if fact is not None and fact.reason else ""
            )
            found += [(document, one) for one in decision.findings if one.severity is not Severity.AUDIT]
        return found

    def _fill_in(self, document: Document) -> None:
        """What the guard would add, without its record."""
        from jsonpatch import JsonPatch

        release = self.inputs.release(document)
        self.inputs.assume_for(document, release)
        done = self.inputs.asked(partial(default_object, _request(document), self.inputs.view, self.policy, release))
        if not done.patch:
            return
        after = JsonPatch([dict(one) for one in done.patch]).apply(self.objects[id(document)])
        metadata = after.get("metadata") or {}
        annotations = metadata.get("annotations") or {}
        annotations.pop(INJECTED, None)
        if not annotations and "annotations" not in (self.before[id(document)].get("metadata") or {}):
            metadata.pop("annotations", None)
        changed = {**self.objects, id(document): after}
        before, now = self.judge(self.objects), self.judge(changed)
        worse = _new(before, now)
        fields = ", ".join(
            dict.fromkeys(_field(str(one["path"])) for one in done.patch if "annotations" not in str(one["path"]))
        )
        item = Item(document.file, FILLED_IN, fields, not worse, worse)
        self.items.append(item)
        if not worse:
            self.objects = changed
            self._kept_by.setdefault(id(document), []).append(item)

    def _refused(
        self, found: list[tuple[Document, Judged]], document: Document, finding: Judged, changed: Objects
    ) -> str:
        """Why a change is not kept; ``""`` where it settles the finding and brings no new one."""
        now = self.judge(changed)
        if any(_key(one, other) == _key(document, finding) for one, other in now):
            return "the text of the fix does not settle it by itself"
        return _new(found, now)

    def _candidates(self, document: Document, finding: Judged) -> tuple[Document | None, str, Iterator[Objects]]:
        """The object that would be changed, why nothing can be tried, and what can."""
        target = self._owner(document, finding)
        none: Iterator[Objects] = iter(())
        if target is None:
            return None, self._elsewhere(document, finding.at.object), none
        if finding.lines is not None:
            if not self.unsafe:
                return target, "it changes a line of the program: --unsafe writes it", none
            return target, "the line is not found", self._program(target, finding, finding.lines)
        if _LINE.search(finding.at.field):
            return target, "no line of the program settles it: see its fix", none
        text = finding.fix
        plain = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("#"))
        if placeholder := _PLACEHOLDER.search(text):
            return target, f"it needs what nobody has told: {placeholder.group()}", none
        try:
            parts = [one for one in _yaml(plain) if one is not None]
        except ValueError:
            parts = []
        if len(parts) > 1 or (parts and "apiVersion" in parts[0]):
            return target, f"it needs another object: {_named(parts[0])}", none
        if not parts:
            return target, "its fix is advice or a command: see review", none
        if not _PROGRAM.isdisjoint(parts[0]):
            return target, *self._started(target, finding, parts[0])
        if document.kind == "TrainJob" and not _OF_TRAINJOB.isdisjoint(parts[0].get("spec") or ()):
            target = document
        if target.kind == "ConfigMap":
            return target, "its fix is advice: see review", none
        return target, "", self._merged(target, finding, parts[0])

    def _owner(self, document: Document, finding: Judged) -> Document | None:
        found = self.inputs.standing(document, finding.at.object)
        return found if any(found is one for one in self.everything) else None

    def _elsewhere(self, document: Document, label: str) -> str:
        """Why an object cannot be written to that is none of FILE."""
        known = self.inputs.standing(document, label)
        if known is not None:
            return f"it is in {label}, which stands in {known.file}:{known.line} (--state) and is not among FILE"
        where = ", which is in the cluster and" if self.inputs.live else ", which"
        return f"it is in {label}{where} is not among FILE"

    def _program(self, target: Document, finding: Judged, lines: Lines) -> Iterator[Objects]:
        changed = copy.deepcopy(self.objects[id(target)])
        field = _LINE.sub("", finding.at.field)
        steps = _steps(field) if target.kind != "ConfigMap" else ["data", field.removeprefix("data[").removesuffix("]")]
        parent, item = _reach(changed, steps[:-1]), steps[-1] if steps else None
        own = parent[item] if _within(parent, item) else None
        if isinstance(own, str):
            parent[item] = lines.paste(own)
            yield {**self.objects, id(target): changed}

    def _started(self, target: Document, finding: Judged, part: dict[str, Any]) -> tuple[str, Iterator[Objects]]:
        """Items before those of ``command``; what would take the program's own items away is never written."""
        none: Iterator[Objects] = iter(())
        steps, first = _steps(finding.at.field), part.get("command")
        if part.keys() != {"command"} or steps[-2:] != ["command", 0] or not finding.fix.endswith(BEHIND):
            return "its fix is an example: the program has to stay what it is", none
        if not self.unsafe:
            return "it changes how the program is started: --unsafe writes it", none
        changed = copy.deepcopy(self.objects[id(target)])
        own = _reach(changed, steps[:-1])
        if not isinstance(own, list) or not isinstance(first, list):
            return "the command is not found", none
        own[:0] = first
        return "", iter(({**self.objects, id(target): changed},))

    def _merged(self, target: Document, finding: Judged, part: dict[str, Any]) -> Iterator[Objects]:
        """The fix at each place where it may be meant: the object's top, the field that is pointed at, around it."""
        steps = _steps(finding.at.field)
        places: list[tuple[str | int, ...]] = []
        if part.keys() <= {"metadata", "spec"}:
            places.append(())
        elif finding.rule == "unknown-field" and len(part) == 1:
            renamed = copy.deepcopy(self.objects[id(target)])
            if _rename(_reach(renamed, steps[:-1]), steps[-1], next(iter(part))):
                yield {**self.objects, id(target): renamed}
            return
        else:
            own = [tuple(steps[:at]) for at in range(len(steps), -1, -1)]
            places += [one for at, one in enumerate(own) if at and str(steps[len(one)]) in part] + own[:2]
        for place in dict.fromkeys(places):
            changed = copy.deepcopy(self.objects[id(target)])
            node = _reach(changed, place)
            if isinstance(node, dict):
                _merge(node, part)
                yield {**self.objects, id(target): changed}


def _request(document: Document) -> Request:
    return Request("CREATE", document.kind, document.namespace, document.name, document.object, at=time())


def _key(document: Document, finding: Judged) -> tuple[str, str, str, str]:
    """One fault: told of a runtime and of each of its runs, it is one."""
    namespace = "" if finding.at.object.startswith("ClusterTrainingRuntime/") else document.namespace
    return (
        finding.rule,
        f"{namespace}/{finding.at.object}",
        _LINE.sub("", finding.at.field),
        finding.subject or finding.problem,
    )


def _new(before: list[tuple[Document, Judged]], now: list[tuple[Document, Judged]]) -> str:
    def name(document: Document, finding: Judged) -> tuple[str, str, str, str, str]:
        return document.label, finding.rule, finding.job, finding.container, finding.subject

    known = {name(*one) for one in before}
    new = [finding.rule for document, finding in now if name(document, finding) not in known]
    return f"it would bring a new finding: {new[0]}" if new else ""


def _yaml(text: str) -> list[Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        parts = list(yaml.load_all(text, Loader=loader))
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if any(one is not None and not isinstance(one, dict) for one in parts):
        raise ValueError("no fields")
    return parts


def _named(obj: Mapping[str, Any]) -> str:
    metadata = obj.get("metadata")
    return f"{obj.get('kind')}/{metadata.get('name') if isinstance(metadata, dict) else ''}"


def _steps(field: str) -> list[str | int]:
    return [int(number) if number else name for name, number in _STEP.findall(field)]


def _field(pointer: str) -> str:
    out = ""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        out += f"[{name}]" if name.isdecimal() or name == "-" else f".{name}" if out else name
    return out


def _reach(node: Any, steps: Sequence[str | int]) -> Any:
    """What lies at a path; None where nothing does."""
    for step in steps:
        if isinstance(node, list):
            node = dict(enumerate(node))
        if not isinstance(node, dict) or step not in node:
            return None
        node = node[step]
    return node


def _within(node: Any, step: str | int | None) -> bool:
    if isinstance(node, list):
        return isinstance(step, int) and step < len(node)
    return isinstance(node, dict) and step in node


def _rename(node: Any, old: str | int, new: str) -> bool:
    if not isinstance(node, dict) or old not in node or new in node:
        return False
    items = list(node.items())
    node.clear()
    node.update((new if key == old else key, value) for key, value in items)
    return True


def _merge(node: dict[str, Any], part: Mapping[str, Any]) -> None:
    """As ``kubectl apply`` merges: maps by key, lists of named entries by name; variables in the order of the fix."""
    for key, value in part.items():
        own = node.get(key)
        if isinstance(own, dict) and isinstance(value, dict):
            _merge(own, value)
        elif isinstance(own, list) and isinstance(value, list) and (mark := _mark(value)):
            _merge_lists(own, value, mark, ordered=key == "env")
        else:
            node[key] = value


def _mark(entries: list[Any]) -> str:
    for mark in ("name", "manager", "mountPath"):
        if entries and all(isinstance(one, dict) and mark in one for one in entries):
            return mark
    return ""


def _merge_lists(own: list[Any], entries: list[Any], mark: str, ordered: bool) -> None:
    places: list[int] = []
    for entry in entries:
        at = next((at for at, one in enumerate(own) if isinstance(one, dict) and one.get(mark) == entry[mark]), None)
        if at is None:
            own.append(entry)
            at = len(own) - 1
        elif ordered:
            own[at] = entry
        else:
            _merge(own[at], entry)
        places.append(at)
    if ordered and places != sorted(places):
        moved = [own[at] for at in places]
        for at, one in zip(sorted(places), moved, strict=True):
            own[at] = one


class Change(Struct):
    """A file as it was read, and as it is to be."""

    before: str
    after: str


def _texts(pasting: Pasting) -> tuple[dict[str, Change], set[str]]:
    """The changed texts; and the files of which something could not be changed."""
    from webhook.cluster.yaml_edit import Edited, NotWritten

    changes: dict[str, Change] = {}
    failed: set[str] = set()
    for file in dict.fromkeys(document.file for document in pasting.everything):
        mine = [one for one in pasting.everything if one.file == file]
        if all(pasting.objects[id(one)] == pasting.before[id(one)] for one in mine):
            continue
        edited: Edited | None = None
        text = ""
        for document in mine:
            after = pasting.objects[id(document)]
            if after == pasting.before[id(document)]:
                continue
            try:
                if edited is None:
                    text = _read(file)
                    edited = Edited(text)
                edited.change(pasting.before[id(document)], after)
            except (NotWritten, OSError, UnicodeDecodeError) as reason:
                pasting.undo(document, str(reason) if isinstance(reason, NotWritten) else "the file cannot be read")
                failed.add(file)
        if edited is not None and edited.text() != text:
            changes[file] = Change(text, edited.text())
    return changes, failed


def _read(file: str) -> str:
    from pathlib import Path

    from webhook.cluster.yaml_edit import NotWritten

    if file in ("-", "<stdin>"):
        raise NotWritten("standard input was read already: give a file")
    return Path(file).read_bytes().decode()


def _write(pasting: Pasting, changes: Mapping[str, Change]) -> set[str]:
    """Writes each file at once, by a new one in its place; the files that could not be written."""
    failed: set[str] = set()
    for file, change in changes.items():
        reason = _replace(file, change)
        if reason:
            failed.add(file)
            for document in pasting.everything:
                if document.file == file:
                    pasting.undo(document, reason)
    return failed


def _replace(file: str, change: Change) -> str:
    import os
    import tempfile
    from pathlib import Path

    target = Path(file).resolve()  # a link stays a link, what it leads to is written
    try:
        if not target.stat().st_mode & 0o222:
            return "the file is read-only"
        if target.read_bytes() != change.before.encode():
            return "the file has changed since it was read"
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(change.after.encode())
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).chmod(target.stat().st_mode & 0o7777)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        return f"the file cannot be written: {error.strerror or error}"
    return ""


def _render(pasting: Pasting, changes: Mapping[str, Change], written: bool, output: str, colour: bool) -> str:
    items = pasting.items
    others = {label: list(dict.fromkeys(rules)) for label, rules in pasting.assumed.items() if rules}
    if output == "json":
        import json

        unread = [told for told in pasting.unread.values() if told]
        rows = [{name: getattr(item, name) for name in Item.__struct_fields__} for item in items]
        return json.dumps({"schema": 1, "results": rows, "administrator": others, "unread": unread}, indent=2) + "\n"
    lines: list[str] = []
    for file, change in changes.items():
        before, after = change.before.splitlines(), change.after.splitlines()
        if not written:
            shown = difflib.unified_diff(before, after, f"{file} as it is", f"{file} fixed", lineterm="")
            lines += [printable(line) for line in shown]
            lines.append("")
    for item in items:
        word = ("written" if written else "to write") if item.applied else "not applied"
        why = f": {item.reason}" if item.reason else ""
        lines.append(printable(f"{word}: {item.file} {item.at} [{item.rule}]{why}"))
    lines += [printable(f"for whoever administers {label}: {', '.join(rules)}") for label, rules in others.items()]
    lines += [printable(f"not looked at: {told}") for told in pasting.unread.values() if told]
    done = sum(item.applied for item in items)
    what = "written" if written else "to write with --write"
    lines.append(f"{done} {what}, {len(items) - done} not applied" if items else "nothing to fix")
    return "\n".join(lines) + "\n"


__all__ = ["configure", "run"]
