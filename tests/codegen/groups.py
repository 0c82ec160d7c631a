"""Groups of operators for tests of generated kernels: written down once, built at any sizes, compared with the interpreter."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.codegen.cuda.text import at
from dslc.codegen.generate import generate
from dslc.codegen.host.compiler import NAMES
from dslc.codegen.text import KernelText, Variant
from dslc.interpret.floats import Floats
from dslc.interpret.run import run
from dslc.ir.constants import NUMPY, fill
from dslc.ir.dtype import Dim, DType, TensorType
from dslc.ir.graph import Graph, Value, input_value
from dslc.ir.scalar import dimension
from dslc.semantics.apply import apply
from dslc.semantics.library import standard
from tests.codegen.native import build

needs_compiler = pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="there is no C++ compiler")
N, M = dimension("N"), dimension("M")
#: sizes for N and M that hit whole vectors, rests, and single elements
SIZES = ({"N": 1, "M": 1}, {"N": 3, "M": 16}, {"N": 7, "M": 37}, {"N": 2, "M": 130})


class Room:
    """A group that is being written: inputs are made on the way, sizes are numbers or unknown."""

    def __init__(self, sizes: Mapping[str, int] | None = None) -> None:
        self._sizes = sizes
        self.inputs: list[Value] = []

    def size(self, dim: Dim) -> Dim:
        if isinstance(dim, int) or self._sizes is None:
            return dim
        return at(dim, {dimension(name): size for name, size in self._sizes.items()})

    def input(self, *shape: Dim, dtype: DType = DType.F32) -> Value:
        found = input_value(f"h{len(self.inputs)}", TensorType(dtype, tuple(self.size(dim) for dim in shape)))
        self.inputs.append(found)
        return found

    def number(self, value: float, dtype: DType = DType.F32) -> Value:
        return fill(value, TensorType(dtype, ()))

    def op(self, name: str, *args: Value, **attrs: Any) -> Value:
        return self.ops(name, *args, **attrs)[0]

    def ops(self, name: str, *args: Value, **attrs: Any) -> tuple[Value, ...]:
        return apply(standard(), f"std.{name}", args, attrs)


#: what a group computes, from inputs that it asks for
Build = Callable[[Room], Value | Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Case:
    """A group with the sizes at which it is run. `draw` makes an array other than random numbers, by the input's position."""

    name: str
    build: Build
    sizes: tuple[Mapping[str, int], ...] = SIZES
    draw: Mapping[int, Callable[[np.random.Generator, tuple[int, ...]], Any]] | None = None
    tolerance: float = 2e-5


def group(build: Build, sizes: Mapping[str, int] | None = None) -> Graph:
    room = Room(sizes)
    outputs = build(room)
    return Graph(tuple(room.inputs), (outputs,) if isinstance(outputs, Value) else tuple(outputs))


def compare(cases: Iterable[Case], variants: Sequence[Variant], folder: Path | None = None, known: bool = True) -> None:
    """Every case by every variant against the interpreter: with unknown sizes at each of its sizes, and (`known`) with one of these
    known, which is another from case to case."""
    wanted: list[tuple[Case, Mapping[str, int], KernelText]] = []
    for k, case in enumerate(cases):
        for variant in variants:
            unknown = generate(standard(), group(case.build), variant)
            wanted.extend((case, sizes, unknown) for sizes in case.sizes)
            if known:
                sizes = case.sizes[k % len(case.sizes)]
                wanted.append((case, sizes, generate(standard(), group(case.build, sizes), variant)))
    library = build(list({text.name: text for _, _, text in wanted}.values()), folder, seconds=300)
    assert library.failed == ()
    rng = np.random.default_rng(0)
    problems = []
    for case, sizes, text in wanted:
        static = group(case.build, sizes)
        arrays = [drawn(rng, value.type, (case.draw or {}).get(k)) for k, value in enumerate(static.inputs)]
        expected = run(standard(), static.outputs, dict(zip(static.inputs, arrays, strict=True)), Floats())
        for threads in (1, 2):
            found = library.run(text.name, arrays, threads)
            problems.extend(
                f"{case.name} at {dict(sizes)}, {[str(type) for type in text.inputs]}, {threads} threads: {problem}"
                for problem in different(found, expected, case.tolerance)
            )
    assert not problems, "\n".join(problems)


def drawn(
    rng: np.random.Generator,
    type: TensorType,
    draw: Callable[[np.random.Generator, tuple[int, ...]], Any] | None = None,
) -> Any:
    """Random elements of a type: small numbers, so that integers stay in range."""
    shape = tuple(int(str(size)) for size in type.shape)
    if draw is not None:
        return np.asarray(draw(rng, shape)).astype(NUMPY[type.dtype])
    if type.dtype.is_float:
        return rng.standard_normal(shape).astype(NUMPY[type.dtype])
    if type.dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0 if str(type.dtype).startswith("u") else -5, 6, shape).astype(NUMPY[type.dtype])


def different(found: Sequence[Any], expected: Sequence[Any], tolerance: float) -> Iterable[str]:
    """What is wrong with some outputs."""
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            yield f"output {k} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        elif a.dtype.kind in "biu":
            if not np.array_equal(a, b):
                yield f"output {k} differs in {int((a != b).sum())} of {a.size} elements"
        else:
            x, y = a.astype(np.float64), b.astype(np.float64)
            finite = np.abs(y[np.isfinite(y)])
            scale = max(1.0, float(finite.max())) if finite.size else 1.0
            if not np.allclose(x, y, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
                at = np.unravel_index(np.nanargmax(np.abs(x - y)), x.shape)
                yield f"output {k} is {x[at]} at {[int(p) for p in at]}, not {y[at]}"
