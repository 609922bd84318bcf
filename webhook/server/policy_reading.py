"""The text of a policy -> the policy, while requests are answered.

A short text is read in a thread. A long one takes seconds, in which a thread would take turns with the requests, and
keep them waiting as long as the machine keeps it waiting: a process of its own reads it, and hands it over in pieces
(``webhook.server.packed``). ``python -m webhook.server.policy_reading FD`` is that process.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from msgspec import Struct

from webhook.cluster.policy_file import check_policy, known_rules
from webhook.model.policy import Policy
from webhook.server.packed import Unpacking, packed

SHORT: Final = 16 * 1024
"""Bytes of text that a thread reads: some twenty milliseconds."""
SECONDS: Final = 60.0
"""For the process. It reads ten thousand exceptions in about two."""
SHOWN: Final = 20
"""Faults, and warnings, that go to the log; ``ckptguard policy check`` tells all."""
_SWITCH: Final = 0.0005
"""Seconds after which the thread lets requests go on."""
_LENGTH: Final = struct.Struct(">I")
_log = logging.getLogger("ckptguard.policy")


class Read(Struct, frozen=True):
    """What a text was: the policy with what the engine derives of it, or its faults; what to know of it beside."""

    policy: Policy | None
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class _Failed(Exception):  # noqa: N818
    """The process could not be started, or ended before it had said all."""


async def read(data: bytes, place: str, default_mode: str | None) -> Read:
    """The policy of a text, with all that the first request would wait for. Nobody waits longer than a millisecond."""
    if len(data) > SHORT:
        try:
            return await _apart(data, place, default_mode)
        except _Failed as failed:
            _log.warning("%s is read by the server itself: %s", place, failed)
    return await asyncio.to_thread(_beside, data, place, default_mode)


def _beside(data: bytes, place: str, default_mode: str | None) -> Read:
    """In a thread of its own: everything that costs time."""
    from webhook.decision import prepare

    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    # To look for cycles among all that is being made takes a tenth of a second, in which nobody is answered.
    collected = gc.isenabled()
    gc.disable()
    try:
        made = _checked(data, place, default_mode, None)
        if made.policy is not None:
            prepare(made.policy)
            packed(made.policy)
        return made
    finally:
        sys.setswitchinterval(before)
        if collected:
            gc.enable()


def _checked(data: bytes, place: str, default_mode: str | None, rule_ids: Collection[str] | None) -> Read:
    checked = check_policy(data, place, rule_ids, default_mode)
    told = (tuple([str(one) for one in some[:SHOWN]]) for some in (checked.faults, checked.warnings))
    return Read(checked.policy, *told)


async def _apart(data: bytes, place: str, default_mode: str | None) -> Read:
    """In a process of its own. Raises _Failed."""
    from webhook.decision import preparing

    ours: socket.socket | None = None
    try:
        ours, its = socket.socketpair()
        with its:
            ours.setblocking(False)
            child = subprocess.Popen(  # noqa: S603, ASYNC220 - fixed words; a fork and no wait
                [sys.executable, "-m", "webhook.server.policy_reading", str(its.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
            )
    except OSError as error:
        if ours is not None:
            ours.close()
        raise _Failed(f"no process can be started: {error.strerror or error}") from None
    try:
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            async with asyncio.timeout(SECONDS):
                for part in (pickle.dumps((place, default_mode, known_rules())), data):
                    writer.write(_LENGTH.pack(len(part)) + part)
                    await writer.drain()
                made = await _handed_over(reader)
        finally:
            writer.close()
        if made.policy is not None:
            for _ in preparing(made.policy):
                await asyncio.sleep(0)
        return made
    except TimeoutError:
        raise _Failed(f"the process that reads it was not done after {SECONDS:g} s") from None
    except (EOFError, OSError, ValueError) as error:
        raise _Failed(f"the process that reads it ended: {type(error).__name__}") from None
    finally:
        with suppress(OSError):
            child.kill()
        await asyncio.to_thread(child.wait)


async def _handed_over(reader: asyncio.StreamReader) -> Read:
    """What the process says: faults and warnings, then the pieces of the policy, then nothing."""
    faults, warnings = pickle.loads(await _part(reader))  # noqa: S301 - it is our own program
    if faults:
        return Read(None, faults, warnings)
    unpacking = Unpacking()
    while piece := await _part(reader):
        unpacking.take(piece)
        await asyncio.sleep(0)
    return Read(unpacking.policy(), (), warnings)


async def _part(reader: asyncio.StreamReader) -> bytes:
    (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(size)


def main() -> int:
    """Read one policy from the socket whose descriptor is the argument, and say there what it is."""
    os.nice(5)  # as the worker: answers come first
    gc.disable()  # it ends when it is done
    with socket.socket(fileno=int(sys.argv[1])) as sock, sock.makefile("rwb") as file:
        parts = []
        for _ in range(2):
            head = file.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                return 1
            parts.append(file.read(_LENGTH.unpack(head)[0]))
        made = _checked(parts[1], *pickle.loads(parts[0]))  # noqa: S301 - made by the server that started this process
        pieces = [] if made.policy is None else packed(made.policy)
        for part in (pickle.dumps((made.faults, made.warnings)), *pieces, b""):
            file.write(_LENGTH.pack(len(part)) + part)
    return 0


if __name__ == "__main__":
    sys.exit(main())
