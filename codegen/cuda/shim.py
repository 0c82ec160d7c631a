"""The very text of CUDA kernels on the CPU: compiled by the system's C++ compiler with templates/cuda/host.h, under sanitizers."""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from enum import Enum
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from dslc.codegen.cuda.text import CudaText, PointerPlace, at
from dslc.codegen.host.compiler import BuildReason, NotBuilt, compiler, first_error, limited
from dslc.codegen.render import render
from dslc.ir.constants import NUMPY
from dslc.records import record

FLAGS = ("-std=c++17", "-O0", "-g1", "-w")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
#: exit codes of host.h; another one is a sanitizer's
_CODES = {40: "race", 41: "barrier", 42: "request"}
_ENVIRONMENT = {"ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0"}


class Fault(Enum):
    """Reason why kernels were stopped."""

    RACE = "race"
    BARRIER = "barrier"
    REQUEST = "request"
    MEMORY = "memory"


class Stopped(Exception):
    """A kernel did what it must not do on a GPU."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(f"{fault.value}: {detail}")
        self.fault, self.detail = fault, detail


@record
class Shim:
    """A program that runs the launches of some texts."""

    program: Path
    symbols: tuple[str, ...]

    def run(
        self,
        text: CudaText,
        arrays: Sequence[Any],
        *,
        reverse: bool = False,
        grid: int | None = None,
        seconds: float = 60.0,
    ) -> tuple[Any, ...]:
        """The outputs of a text for some arrays.

        `reverse`: threads in descending order. `grid`: blocks of every launch at most, as a launch may have any number.

        Raises:
            ValueError: the text was not made for the arrays.
            Stopped: a race, a barrier that not all threads reach, an access out of bounds, or undefined behaviour.
        """
        sizes = text.bind([array.shape for array in arrays])
        if sizes is None:
            raise ValueError("the text was not made for these shapes")
        shapes = [tuple(at(size, sizes) for size in type.shape) for type in text.outputs]
        dtypes = [np.dtype(NUMPY[type.dtype]) for type in text.outputs]
        counts = [prod(shape) * dtype.itemsize for shape, dtype in zip(shapes, dtypes, strict=True)]
        first = {
            PointerPlace.INPUT: 0,
            PointerPlace.OUTPUT: len(arrays),
            PointerPlace.SCRATCH: len(arrays) + len(counts),
        }
        packed = [_numbers(int(reverse), len(arrays) + len(counts) + len(text.scratch))]
        for array, type in zip(arrays, text.inputs, strict=True):
            data = np.ascontiguousarray(array, dtype=NUMPY[type.dtype]).tobytes()
            packed.extend((_numbers(len(data), 1), data))
        scratch = [at(size, sizes) for size in text.scratch]
        packed.extend(_numbers(size, 0) for size in (*counts, *scratch))
        launches = [
            (launch, blocks)
            for launch in text.launches
            if prod(blocks := [at(size, sizes) for size in launch.grid]) > 0
        ]
        packed.append(_numbers(len(launches)))
        for launch, blocks in launches:
            limited_to = [blocks[0] if grid is None else min(blocks[0], grid), *blocks[1:]]
            packed.append(
                _numbers(self.symbols.index(launch.symbol), int(launch.form != "points"), *limited_to, *launch.block)
            )
            packed.append(
                _numbers(len(launch.pointers), *(first[pointer.place] + pointer.number for pointer in launch.pointers))
            )
            packed.append(_numbers(len(text.sizes), *(sizes[sym] for sym in text.sizes)))
        out = self._call(b"".join(packed), seconds)
        where = sum(
            np.ascontiguousarray(a, dtype=NUMPY[t.dtype]).nbytes for a, t in zip(arrays, text.inputs, strict=True)
        )
        found = []
        for shape, dtype, count in zip(shapes, dtypes, counts, strict=True):
            found.append(np.frombuffer(out[where : where + count], dtype).reshape(shape).copy())
            where += count
        return tuple(found)

    def _call(self, request: bytes, seconds: float) -> bytes:
        environment = {**os.environ, **_ENVIRONMENT}
        done = subprocess.run([str(self.program)], input=request, capture_output=True, timeout=seconds, env=environment)
        if done.returncode == 0:
            return done.stdout
        said = done.stderr.decode(errors="replace")
        fault = Fault(_CODES.get(done.returncode, "memory"))
        own = [line for line in said.splitlines() if "==WARNING: ASan doesn't" not in line]
        lines = [line for line in own if "ERROR" in line or "error" in line] or own
        raise Stopped(fault, lines[0] if lines else f"exit code {done.returncode}")


def source(texts: Sequence[CudaText]) -> str:
    """The C++ of a program that runs some texts."""
    symbols = [launch.symbol for text in texts for launch in text.launches]
    return render("host.cpp.j2", "cuda", texts=texts, symbols=symbols)


def build(
    texts: Sequence[CudaText], folder: Path | None = None, *, sanitize: bool = True, seconds: float = 300.0
) -> Shim:
    """A program for some texts, in a folder (else a new temporary one, which stays).

    Raises:
        NotBuilt: there is no compiler, or it refuses the text.
    """
    home = folder or Path(tempfile.mkdtemp(prefix="dslc-cuda-"))
    home.mkdir(parents=True, exist_ok=True)
    file, program = home / "host.cpp", home / "host"
    file.write_text(source(texts), encoding="utf-8")
    command = (*compiler().command, *FLAGS, *(SANITIZERS if sanitize else ()), "-o", str(program), str(file))
    code, said = limited(command, home, seconds, 8 << 30)
    if code != 0:
        raise NotBuilt(BuildReason.ERROR, first_error(said))
    return Shim(program, tuple(launch.symbol for text in texts for launch in text.launches))


def _numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)
