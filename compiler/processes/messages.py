"""Messages on pipes: pickled values, each behind its length (eight bytes, the lowest first)."""

from __future__ import annotations

import os
import pickle
import select
import struct
from typing import Any

from dslc.deadline import FOREVER, Deadline

_LENGTH = struct.Struct("<Q")
#: seconds that one wait takes at most: the system counts milliseconds in 31 bits
LONGEST = 1e6


def send(pipe: int, message: object, until: Deadline = FOREVER) -> None:
    """Writes a message; `pipe` does not block where there is a moment until which it has to be written.

    Raises:
        TimeoutError: it was not read in time.
        OSError: no reader is left.
    """
    data = pickle.dumps(message, protocol=5)
    for part in (_LENGTH.pack(len(data)), data):
        left = memoryview(part)
        while left:
            _awaited(pipe, select.POLLOUT, until)
            left = left[os.write(pipe, left) :]


def receive(pipe: int, until: Deadline = FOREVER) -> Any:
    """Reads the next message.

    Raises:
        TimeoutError: it was not whole in time.
        EOFError: no writer is left.
    """
    (length,) = _LENGTH.unpack(_exactly(pipe, _LENGTH.size, until))
    return pickle.loads(_exactly(pipe, length, until))


def _exactly(pipe: int, count: int, until: Deadline) -> bytearray:
    data = bytearray(count)
    left = memoryview(data)
    while left:
        _awaited(pipe, select.POLLIN, until)
        got = os.readv(pipe, [left])
        if not got:
            raise EOFError
        left = left[got:]
    return data


def _awaited(pipe: int, what: int, until: Deadline) -> None:
    """Waits until a pipe can be written or read, which is looked at once where it is too late."""
    poll = select.poll()
    poll.register(pipe, what)
    while True:
        left = until.left()
        if poll.poll(max(0.0, min(left, LONGEST)) * 1e3):
            return
        if left <= 0:
            raise TimeoutError
