"""The newest checkpoint of each of many runs, asked of their own pods by exec, some at a time; no helper pods."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Final

from msgspec.structs import replace

from webhook.cluster.access import Unreachable
from webhook.runs.kube import Kube
from webhook.runs.overview import Item
from webhook.runs.reader import NobodyToAsk, look
from webhook.runs.run import CannotDo

_AT_ONCE: Final = 8
_SECONDS: Final = 10.0


def with_steps(kube: Kube, items: Sequence[Item], asked: Sequence[Item]) -> tuple[list[Item], list[str]]:
    """``items``, those of ``asked`` with step and time of their newest complete checkpoint, and what was in the way.

    It is the newest that may be complete where nobody can tell. A namespace that allows no exec is asked once.
    """
    waiting: SimpleQueue[Item] = SimpleQueue()
    done: SimpleQueue[tuple[Item, Item | None, str]] = SimpleQueue()
    refused: set[str] = set()
    for item in asked:
        waiting.put(item)

    def work() -> None:
        while True:
            try:
                item = waiting.get_nowait()
            except Empty:
                return
            done.put(_asked(kube, item, refused))

    # Threads of their own that nobody waits for: a Ctrl-C ends the command at once.
    for _ in range(min(_AT_ONCE, len(asked))):
        threading.Thread(target=work, daemon=True).start()
    known: dict[tuple[str, str], Item] = {}
    notes: list[str] = []
    for _ in asked:
        item, read, note = done.get()
        if read is not None:
            known[item.run.namespace, item.run.name] = read
        if note and note not in notes:
            notes.append(note)
    return [known.get((item.run.namespace, item.run.name), item) for item in items], sorted(notes)


def _asked(kube: Kube, item: Item, refused: set[str]) -> tuple[Item, Item | None, str]:
    run, directory = item.run, item.directory
    if directory is None or run.namespace in refused:
        return item, None, ""
    try:
        seen = look(kube, run, directory, helper=False, seconds=_SECONDS)
    except (CannotDo, Unreachable) as error:
        if isinstance(error, NobodyToAsk) and "no right to exec" in str(error):
            refused.add(run.namespace)
            return item, None, f'steps in namespace "{run.namespace}" cannot be read: {_right(str(error))}'
        return item, None, f'the step of "{run.namespace}/{run.name}" cannot be read: {error}'
    except Exception as error:  # one run's trouble is not the listing's end
        return item, None, f'the step of "{run.namespace}/{run.name}" cannot be read: {type(error).__name__}: {error}'
    newest = seen.found.newest_complete()
    if newest is None:
        return item, None, ""
    return item, replace(item, step=newest.step, saved=newest.mtime), ""


def _right(text: str) -> str:
    return text[text.index("no right to exec") :].split(";")[0]
