"""Deep recursion: expressions nest as far as a rule's operators follow one another, and what walks them calls itself as often."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


DEPTH = 100_000  #: calls that may be open at once
#: bytes of stack for them: some call through C, which takes up to two kilobytes of it each; memory that is not
#: touched is not taken
STACK = 512 << 20

_here = threading.local()


def deeply(function: Callable[[], _Result]) -> _Result:
    """Call a function that may call itself far deeper than Python lets it: in a thread with a larger stack."""
    if getattr(_here, "deep", False):
        return function()
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        _here.deep = True
        sys.setrecursionlimit(max(depth, DEPTH))
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    depth, size = sys.getrecursionlimit(), threading.stack_size(STACK)
    # of a caller that is interrupted it keeps no process alive
    thread = threading.Thread(target=run, daemon=True)
    try:
        try:
            thread.start()
        except RuntimeError:  # there is no memory for such a stack
            return function()
        finally:
            threading.stack_size(size)
        thread.join()
    finally:
        sys.setrecursionlimit(depth)
    if errors:
        raise errors[0]
    return results[0]
