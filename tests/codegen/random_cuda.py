"""Random groups as CUDA kernels, without a device: their very text on the CPU in both orders of threads and under sanitizers, compiled
by NVRTC for old and new devices (`--nvcc`: by nvcc too), against the interpreter.

    python -m tests.codegen.random_cuda [--first 0] [--groups 300] [--at-once 20] [--wide] [--nvcc]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dslc.codegen.cuda import nvrtc
from dslc.codegen.cuda.choose import candidates
from dslc.codegen.cuda.generate import generate
from dslc.codegen.cuda.shim import Shim, Stopped, build
from dslc.codegen.cuda.text import CudaText, CudaVariant, Tile
from dslc.codegen.text import NotGenerated, Reason
from dslc.interpret.floats import Floats
from dslc.interpret.run import run
from dslc.semantics.library import standard
from tests.codegen.groups import Case, different, drawn, group
from tests.codegen.random_groups import drawn_group

#: one run of a text; small as it is, it ends in less, or not at all
_SECONDS = 100.0
ARCHITECTURES = ("sm_80", "sm_90")
#: variants that are drawn beside the one that is taken where nothing is said; small tiles, so that small groups have several
VARIANTS = (
    *candidates(products=True, rows=True), *candidates(products=False, rows=False), CudaVariant(tile=Tile(16, 16, 8, 2, 4)),
    CudaVariant(block=32, pieces=4), CudaVariant(width=1), CudaVariant(turn=False),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Attempt:
    """A text for some sizes of a group (several where sizes are unknown in it)."""

    case: Case
    variant: CudaVariant
    sizes: tuple[Mapping[str, int], ...]
    text: CudaText


def attempts(seed: int, wide: bool = False) -> tuple[list[Attempt], list[Reason]]:
    """A group's text by the usual variant and by one that is drawn, with unknown sizes and with known ones; and why there is none."""
    case = drawn_group(seed, wide)
    rng = np.random.default_rng([seed, 16])
    found, refused = [], []
    for variant in (CudaVariant(), VARIANTS[int(rng.integers(len(VARIANTS)))]):
        known = case.sizes[int(rng.integers(len(case.sizes)))]
        try:
            if len(case.sizes) > 1:
                found.append(Attempt(case, variant, case.sizes, generate(standard(), group(case.build), variant)))
            found.append(Attempt(case, variant, (known,), generate(standard(), group(case.build, known), variant)))
        except NotGenerated as problem:
            refused.append(problem.reason)
    return found, refused


def arrays_of(case: Case, sizes: Mapping[str, int]) -> tuple[list[Any], tuple[Any, ...]]:
    """Inputs, and what the equations say."""
    known = group(case.build, sizes)
    rng = np.random.default_rng(0)
    arrays = [drawn(rng, value.type, (case.draw or {}).get(k)) for k, value in enumerate(known.inputs)]
    return arrays, tuple(run(standard(), known.outputs, dict(zip(known.inputs, arrays, strict=True)), Floats()))


def problems(found: Sequence[Attempt], folder: Path) -> Iterator[str]:
    """What is wrong with some texts; nothing where all is right."""
    if not found:
        return
    shim = build(list({one.text.name: one.text for one in found}.values()), folder, seconds=900)
    for one in found:
        for sizes in one.sizes:
            for wrong in _run(one, sizes, shim):
                yield f"{one.case.name} at {dict(sizes)} by {one.variant}: {wrong}"
    if nvrtc.available():
        for text in {one.text.name: one.text for one in found}.values():
            yield from _compiled(text)


def _run(one: Attempt, sizes: Mapping[str, int], shim: Shim) -> Iterator[str]:
    arrays, expected = arrays_of(one.case, sizes)
    for reverse, grid in ((False, None), (True, 2)):
        try:
            found = shim.run(one.text, arrays, reverse=reverse, grid=grid, seconds=_SECONDS)
        except (Stopped, ValueError, subprocess.TimeoutExpired) as problem:
            yield f"{type(problem).__name__}: {str(problem)[:200]}"
            continue
        yield from different(found, expected, one.case.tolerance)


def _compiled(text: CudaText) -> Iterator[str]:
    for architecture in ARCHITECTURES:
        try:
            binary = nvrtc.compile(text.text, architecture)
        except nvrtc.NotCompiled as problem:
            yield f"{text.name} for {architecture}: {problem}"
            continue
        yield from (
            f"{usage.symbol} for {architecture} spills {usage.spills} bytes" for usage in binary.kernels if usage.spills
        )


def compiled_by_nvcc(texts: Sequence[CudaText], folder: Path) -> Iterator[str]:
    """What nvcc says of texts in one file, for old and new devices; nothing where all compile and spill nothing."""
    (folder / "all.cu").write_text("\n".join(text.text for text in texts), "utf-8")
    targets = [
        word for one in ARCHITECTURES for word in ("-gencode", f"arch={one.replace('sm', 'compute')},code={one}")
    ]
    command = ["nvcc", "-std=c++17", *targets, "-fatbin", "-Xptxas", "-v", "-o", "all.fatbin", "all.cu"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        yield f"nvcc: {done.stderr[:500]}"
        return
    told = [line for line in done.stderr.splitlines() if "spill stores" in line]
    if len(told) != len(ARCHITECTURES) * sum(len(text.launches) for text in texts):
        yield f"nvcc tells of {len(told)} kernels"
    yield from (f"nvcc: {line.strip()}" for line in told if " 0 bytes spill stores, 0 bytes spill loads" not in line)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.codegen.random_cuda")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--groups", type=int, default=300)
    parser.add_argument(
        "--wide", action="store_true", help="long axes, of primes and of what warps and tiles have one more or less of"
    )
    parser.add_argument("--nvcc", action="store_true", help="compile by nvcc as well")
    parser.add_argument("--at-once", type=int, default=20, help="groups in one program")
    options = parser.parse_args(arguments)
    forms: Counter[str] = Counter()
    why: Counter[str] = Counter()
    wrong = texts = 0
    for first in range(options.first, options.first + options.groups, options.at_once):
        found = []
        for seed in range(first, min(first + options.at_once, options.first + options.groups)):
            own, refused = attempts(seed, options.wide)
            found.extend(own)
            why.update(reason.value for reason in refused)
        texts += len(found)
        forms.update(launch.form for one in found for launch in one.text.launches)
        with tempfile.TemporaryDirectory() as folder:
            for problem in problems(found, Path(folder)):
                wrong += 1
                print(problem, flush=True)
            every = list({one.text.name: one.text for one in found}.values()) if options.nvcc else []
            for problem in compiled_by_nvcc(every, Path(folder)) if every else ():
                wrong += 1
                print(problem, flush=True)
        print(f"up to {first + options.at_once}: {texts} texts, {wrong} problems", flush=True)
    print(", ".join(f"{count} {form}" for form, count in forms.most_common()))
    print("no kernel: " + (", ".join(f"{count} {reason}" for reason, count in why.most_common()) or "none"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
