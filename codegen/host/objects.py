"""Kernels as object files, each compiled by itself: beside others on other processors, once, and without holding up the others.

What was compiled is kept under a digest of its text and of how it was compiled.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from dslc.codegen.host.compiler import BuildReason, Compiler, NotBuilt
from dslc.processes.process import Job
from dslc.store import Store

KEPT = 2000  #: object files that are kept; the oldest go first
LOOK = 0.004  #: seconds between looks at compilers that run


def objects(
    used: Compiler,
    texts: Mapping[str, str],
    key: Callable[[str], str],
    kept: Path,
    folder: Path,
    seconds: float,
    memory: int,
) -> tuple[dict[str, Path], dict[str, NotBuilt]]:
    """An object file of each C++ text that compiles, in a folder, and why there is none of the others; by their names.

    Args:
        key: of a text, the digest under which its object is kept.
        kept: the folder of caches in which those of earlier times are.
        seconds, memory: what all of them may take together, and each alone, in seconds and bytes.

    Raises:
        NotBuilt: there is no compiler.
        OSError: a folder cannot be written.
    """
    store, made = Store(kept / "objects", KEPT), dict[str, Path]()
    failed: dict[str, NotBuilt] = {}
    end = time.monotonic() + seconds
    # the shorter ones first: where there is no time for all, most kernels are there
    left = deque(sorted(texts, key=lambda name: len(texts[name])))
    running: dict[str, Job] = {}
    try:
        while left or running:
            while left and len(running) < _processors():
                name = left.popleft()
                target = folder / f"{name}.o"
                content = store.get(f"{key(texts[name])}.o")
                if content is not None:
                    target.write_bytes(content)
                    made[name] = target
                elif (remains := end - time.monotonic()) > 0 or not (made or failed or running):
                    code = folder / f"{name}.cpp"
                    code.write_text(texts[name], encoding="utf-8")
                    running[name] = used.start(code, target, "-c", seconds=remains, memory=memory)
                else:
                    failed[name] = NotBuilt(BuildReason.TIMEOUT, "there was no time to compile it")
            for name in [name for name, one in running.items() if one.ended]:
                with running.pop(name) as one:
                    try:
                        used.check(one, folder / f"{name}.o")
                    except NotBuilt as problem:
                        failed[name] = problem
                    else:
                        made[name] = folder / f"{name}.o"
                        store.put(f"{key(texts[name])}.o", made[name].read_bytes())
            if running:
                time.sleep(LOOK)
    finally:
        for one in running.values():
            one.end()
    return made, failed


def _processors() -> int:
    """Number of compilers that run at the same time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
