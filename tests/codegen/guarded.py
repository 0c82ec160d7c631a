"""Kernels on memory of just its size: pages that nobody may touch lie around each array, the scratch memory and every row.

Reading or writing there ends the process, so that it is another one, which says first which group it is at.

    python -m tests.codegen.guarded --first 0 --groups 20 [--seconds 60]
"""

from __future__ import annotations

import argparse
import ctypes
import math
import mmap
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dslc.codegen.generate import generate, variants
from dslc.codegen.text import KernelText, NotGenerated
from dslc.interpret.floats import Floats
from dslc.interpret.run import run
from dslc.ir.dtype import Dim, DType
from dslc.ir.graph import Scope, Value, scope_value
from dslc.ir.scalar import apply, as_scalar, iterator, num, raw_apply, read, reduce
from dslc.ir.scopes import substitute
from dslc.semantics.library import standard
from tests.codegen.groups import Case, M, N, Room, different, drawn, group
from tests.codegen.native import Library, build
from tests.codegen.random_groups import drawn_group

_PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)
#: memory of one task: it ends where a page ends
_ROOM = """
extern "C" { void* mmap(void*, size_t, int, int, int, long); int munmap(void*, size_t); int mprotect(void*, size_t, int); }
struct k_room {
  int64_t whole; char *from, *all;
  explicit k_room(int64_t bytes) : whole((bytes + PAGE - 1) / PAGE * PAGE), from((char*)mmap(0, whole + PAGE, 3, 34, -1, 0)) {
    mprotect(from + whole, PAGE, 0);
    all = from + whole - (bytes + 15) / 16 * 16;
  }
  ~k_room() { munmap(from, whole + PAGE); }
};
""".replace("PAGE", str(_PAGE))
#: what a few elements are in a second run, which is not compared
_EDGES = (0.0, -0.0, 1e-40, -1e-45, 3.4e38, -3.4e38, float("inf"), float("-inf"), float("nan"), 65504.0)
#: long enough for pieces of long sums, and not divided by them
_ROWS = ({"N": 65, "M": 7}, {"N": 100, "M": 3}, {"N": 700, "M": 17}, {"N": 1, "M": 1})


def _pieces(results: int) -> Case:
    """Sums of all rows for few columns, which pieces of them share an operand with."""

    def build(r: Room) -> Value:
        scaled = r.op("mul", r.input(N, results), r.input(results))
        return r.op(
            "reduce_sum",
            r.op("mul", r.op("tanh", r.op("add", scaled, r.input(results))), scaled),
            axes=(0,),
            keepdims=False,
        )

    return Case(f"sums of rows of {results}", build, _ROWS, tolerance=2e-4)


def _ragged(kind: str) -> Case:
    """A sum that is longer for each row, or for each step of a sum around it, as a user's operator may have it."""

    def build(r: Room) -> Value:
        columns = M if kind == "rows" else 3
        x, w = r.input(N, columns), r.input(columns)
        i, j, k, first = map(iterator, ("i0", "i1", "k", "first"))
        if kind == "rows":
            extents: tuple[Dim, ...] = (r.size(N), r.size(M))
            body = reduce("sum", (k,), (apply("+", i, num(1)),), raw_apply("*", read(0, (k, j)), read(1, (j,))))
        else:
            extents = (3,)
            both = (as_scalar(r.size(N)), apply("+", first, num(1)))
            body = reduce("sum", (first, k), both, raw_apply("*", read(0, (k, i)), read(1, (i,))))
        return scope_value(Scope(extents, substitute(body, {}), DType.F32), (x, w))

    return Case(f"ragged {kind}", build, _ROWS, tolerance=2e-4)


CASES = (_pieces(3), _pieces(8), _ragged("rows"), _ragged("steps"))


class Guarded(Library):
    """A library whose arrays have no room: where they begin or where they end, memory does."""

    behind = True

    def _empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        bytes = math.prod(shape) * dtype.itemsize
        whole = -(-bytes // _PAGE) * _PAGE
        room = mmap.mmap(-1, whole + 2 * _PAGE)
        memory = np.frombuffer(room, np.uint8)
        for page in (0, whole + _PAGE):
            if _LIBC.mprotect(ctypes.c_void_p(memory.ctypes.data + page), ctypes.c_size_t(_PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        first = _PAGE + (whole - bytes if self.behind else 0)
        return memory[first : first + bytes].view(dtype).reshape(shape)

    def given(self, array: Any) -> Any:
        """A copy of an array."""
        out = self._empty(array.shape, array.dtype)
        out[...] = array
        return out


def guarded(texts: Sequence[KernelText]) -> Guarded:
    """The kernels, with rows in memory of their own."""
    room = re.compile(r"struct k_room \{.*?^\};\n", re.DOTALL | re.MULTILINE)
    named = {text.name: replace(text, text=room.sub(lambda _: _ROOM, text.text, count=1)) for text in texts}
    made = build(named, seconds=300)
    assert made.failed == ()
    return Guarded(made.path, made.kernels)


def attempts(case: Case, seed: int) -> list[tuple[Mapping[str, int], KernelText]]:
    """A group's texts at sizes: by the best variant and another one, with unknown sizes and with known ones."""
    rng = np.random.default_rng([seed, 18])
    found: list[tuple[Mapping[str, int], KernelText]] = []
    known = case.sizes[int(rng.integers(len(case.sizes)))]
    for sizes in (None, known):
        try:
            some = variants(standard(), group(case.build, sizes))
            variant = some[0] if sizes is None else some[int(rng.integers(len(some)))]
            text = generate(standard(), group(case.build, sizes), variant)
        except NotGenerated:
            continue
        found.extend((each, text) for each in (case.sizes if sizes is None else (known,)))
    return found


def check(cases: Sequence[tuple[int, Case]]) -> list[str]:
    """What is wrong with some groups; ends the process where a kernel leaves its memory."""
    wanted = [(seed, case, sizes, text) for seed, case in cases for sizes, text in attempts(case, seed)]
    if not wanted:
        return []
    library = guarded(list({text.name: text for _, _, _, text in wanted}.values()))
    problems = []
    for seed, case, sizes, text in wanted:
        print(f"at {case.name}, {dict(sizes)}, {text.name}", flush=True)
        static = group(case.build, sizes)
        rng = np.random.default_rng(seed)
        arrays = [drawn(rng, value.type, (case.draw or {}).get(k)) for k, value in enumerate(static.inputs)]
        expected = run(standard(), static.outputs, dict(zip(static.inputs, arrays, strict=True)), Floats())
        for library.behind in (True, False):
            found = library.run(text.name, [library.given(array) for array in arrays])
            problems += [
                f"{case.name} at {dict(sizes)}, {text.name}: {one}"
                for one in different(found, expected, case.tolerance)
            ]
        library.run(text.name, [library.given(_edged(rng, array)) for array in arrays])
    return problems


def _edged(rng: np.random.Generator, array: Any) -> Any:
    if array.dtype.kind in "biu" or not array.size:
        return array
    with np.errstate(over="ignore"):
        return np.where(rng.random(array.shape) < 0.1, rng.choice(_EDGES, array.shape), array).astype(array.dtype)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--groups", type=int, default=20, help="random groups at a time")
    parser.add_argument("--seconds", type=float, default=0, help="goes on with further groups for so long")
    parser.add_argument("--one", action="store_true", help="in this process")
    given = parser.parse_args(arguments)
    if given.one:
        random = [(seed, drawn_group(seed)) for seed in range(given.first, given.first + given.groups)]
        problems = check([*(enumerate(CASES) if given.first == 0 else ()), *random])
        print(*problems, sep="\n", file=sys.stderr, end="")
        return bool(problems)
    end, first, wrong = time.monotonic() + given.seconds, given.first, 0
    while True:
        command = [sys.executable, "-m", __spec__.name, "--one", "--first", str(first), "--groups", str(given.groups)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            wrong += 1
            last = done.stdout.splitlines()[-1:]
            print(
                f"seeds {first} to {first + given.groups - 1}, ends with {done.returncode} {last}\n{done.stderr[-3000:]}",
                flush=True,
            )
        first += given.groups
        if time.monotonic() >= end:
            print(f"{first - given.first} groups, {wrong} runs with faults")
            return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
