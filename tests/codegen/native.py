"""Libraries of kernels that run in this process: what a kernel gives for arrays, without a runtime around it."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from dslc.codegen.host import library
from dslc.codegen.host.library import Failure, checked
from dslc.codegen.text import KernelText
from dslc.ir.constants import NUMPY


class NotRun(Exception):
    """Arrays that a kernel was not made for, or no such kernel."""


class Library:
    """As `dslc.codegen.host.library.Library`, with kernels that can be called."""

    def __init__(
        self, path: Path, kernels: Mapping[str, KernelText], failed: tuple[Failure, ...] = (), fresh: bool = False
    ) -> None:
        self.path, self.kernels, self.failed, self.fresh = path, dict(kernels), failed, fresh
        self._loaded: ctypes.CDLL | None = None

    def run(self, name: str, arrays: Sequence[Any], threads: int = 1) -> tuple[Any, ...]:
        """The outputs of a kernel, by its operator's name; arrays must have its element types, and are used where they lie.

        Raises NotRun where their types or sizes are not those that it was made for.
        """
        text = self.kernels.get(name)
        if text is None:
            raise NotRun(f"no kernel is named {name}")
        if len(arrays) != len(text.inputs):
            raise NotRun(f"{len(arrays)} arrays for {len(text.inputs)} inputs")
        for array, type in zip(arrays, text.inputs, strict=True):
            if array.dtype != NUMPY[type.dtype] or array.ndim != type.rank or not array.flags.c_contiguous:
                raise NotRun(f"an array of {array.dtype} with shape {list(array.shape)} for {type}")
        return self._run(text, arrays, threads)

    def _run(self, text: KernelText, arrays: Sequence[Any], threads: int) -> tuple[Any, ...]:
        part = self._function(text.name)
        dims = [(ctypes.c_int64 * max(1, array.ndim))(*array.shape) for array in arrays]
        listed = (ctypes.POINTER(ctypes.c_int64) * max(1, len(dims)))(*dims)
        sizes = (ctypes.c_int64 * max(1, len(text.sizes)))()
        fits = part("sizes", ctypes.c_int)(listed, sizes)
        if not fits:
            raise NotRun(
                f"shapes {[list(array.shape) for array in arrays]} do not fit {', '.join(map(str, text.inputs))}"
            )
        outputs = []
        for k, type in enumerate(text.outputs):
            shape = (ctypes.c_int64 * max(1, type.rank))()
            part("shape", None)(sizes, k, shape)
            outputs.append(self._empty(tuple(shape)[: type.rank], np.dtype(NUMPY[type.dtype])))
        if all(array.size == 0 for array in outputs):
            return tuple(outputs)
        if fits == 2:
            raise NotRun("a size is 0, at which there is something to compute that the kernel was not made for")
        scratch = self._empty((max(0, part("scratch", ctypes.c_int64)(sizes)),), np.dtype(np.uint8))
        memory = ctypes.c_void_p(scratch.ctypes.data)
        given = (ctypes.c_void_p * max(1, len(arrays)))(*[array.ctypes.data for array in arrays])
        made = (ctypes.c_void_p * len(outputs))(*[array.ctypes.data for array in outputs])
        for stage in range(part("stages", ctypes.c_int)()):
            tasks = part("tasks", ctypes.c_int64)(sizes, stage)
            if tasks <= 0:
                continue
            run = part("run", ctypes.c_int)

            def share(k: int, tasks: int = tasks, stage: int = stage, run: Any = run) -> int:
                bounds = ctypes.c_int64(tasks * k // threads), ctypes.c_int64(tasks * (k + 1) // threads)
                return int(run(sizes, given, made, memory, stage, *bounds))

            with ThreadPoolExecutor(threads) if threads > 1 else contextlib.nullcontext() as pool:
                failed = max((pool.map if pool else map)(share, range(threads)))
            if failed:
                raise NotRun("not enough memory" if failed > 1 else "a position is outside of a tensor")
        return tuple(outputs)

    def _empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array that begins at a multiple of 64 bytes."""
        bytes = math.prod(shape) * dtype.itemsize
        room = np.empty(bytes + 64, np.uint8)
        first = -room.ctypes.data % 64
        return room[first : first + bytes].view(dtype).reshape(shape)

    def _function(self, name: str) -> Any:
        if self._loaded is None:
            with checked(self.path) as place:
                self._loaded = ctypes.CDLL(place)
        loaded = self._loaded

        def part(which: str, result: Any) -> Any:
            found = loaded[f"{name}_{which}"]
            found.restype = result
            return found

        return part


def build(*args: Any, **options: Any) -> Library:
    """As `dslc.codegen.host.library.build`."""
    made = library.build(*args, **options)
    return Library(made.path, made.kernels, made.failed, made.fresh)
