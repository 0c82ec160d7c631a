"""CUDA kernels without a GPU: their very text on the CPU under sanitizers, against the interpreter, and mistakes that are planted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.codegen.cuda.generate import generate
from dslc.codegen.cuda.shim import Fault, Shim, Stopped, build
from dslc.codegen.cuda.text import CudaText, CudaVariant, Tile
from dslc.interpret.floats import Floats
from dslc.interpret.run import run
from dslc.ir.dtype import DType
from dslc.ir.graph import Value
from dslc.semantics.library import standard
from tests.codegen.groups import Case, M, N, Room, different, drawn, group, needs_compiler
from tests.codegen.test_generate import layer_norm, norm_over_channels, rotary

pytestmark = needs_compiler

#: sizes for N and M: ragged and single ones
RAGGED: tuple[Mapping[str, int], ...] = ({"N": 5, "M": 37}, {"N": 1, "M": 1})
SQUARE: tuple[Mapping[str, int], ...] = ({"N": 35, "M": 40}, {"N": 1, "M": 70})
SMALL = Tile(16, 16, 8, 2, 4)


def product(r: Room) -> Value:
    a, b = r.input(2, N, 21), r.input(2, M, 21)
    return r.op("relu", r.op("add", r.op("matmul", a, r.op("transpose", b, perm=(0, 2, 1))), r.input(M)))


def convolution(r: Room) -> Value:
    return r.op("conv", r.input(1, 4, 7, M), r.input(32, 2, 3, 3), pads=(1, 1, 1, 1), stride=(2, 1), groups=2)


def attention(r: Room) -> Value:
    return r.op("attention", r.input(1, 2, N, 16), r.input(1, 2, M, 16), r.input(1, 2, M, 16))


def mirrored(r: Room) -> Value:
    """Every thread reads what others have written."""
    row = r.op("softmax", r.input(N, 70), axis=1)
    return r.op("mul", row, r.op("reverse", row, axis=1))


def halves(r: Room) -> Value:
    x, y = r.input(N, M, dtype=DType.F16), r.input(M, dtype=DType.F16)
    return r.op("cast", r.op("mul", r.op("add", x, y), x), to=DType.BF16)


#: groups by the forms of their launches, with a variant where the best one would be large
CASES: list[tuple[Case, tuple[str, ...], CudaVariant]] = [
    (Case("mish", lambda r: r.op("mish", r.op("add", r.input(N, M), r.input(M))), RAGGED), ("points",), CudaVariant()),
    (Case("halves", halves, RAGGED, tolerance=2e-2), ("points",), CudaVariant()),
    (Case("rotary", rotary, RAGGED[:1]), ("points",), CudaVariant()),
    (Case("pad", lambda r: r.op("pad", r.op("relu", r.input(N, M)), r.number(2.0), before=(1, 2), after=(0, 3)), RAGGED), ("points",),
     CudaVariant()),
    (Case("softmax", lambda r: r.op("softmax", r.input(N, M), axis=1), RAGGED), ("rows",), CudaVariant(block=32, team=32)),
    (Case("softmax of known rows", lambda r: r.op("softmax", r.input(N, 70), axis=1), RAGGED), ("rows",), CudaVariant(block=64)),
    (Case("row that is turned", mirrored, RAGGED), ("rows",), CudaVariant(block=64)),
    (Case("layer norm", layer_norm, RAGGED), ("rows",), CudaVariant(team=64)),
    (Case("norm over channels", norm_over_channels, RAGGED), ("points",), CudaVariant(block=64)),
    (Case("sum of a column", lambda r: r.op("reduce_sum", r.input(N, M), axes=(0,)), RAGGED), ("points",), CudaVariant(block=32)),
    (Case("largest and its place", lambda r: (r.op("argmax", x := r.input(N, M), axis=1), r.op("reduce_max", x, axes=(1,))), RAGGED),
     ("rows",), CudaVariant(team=64)),
    (Case("running sum", lambda r: r.op("cumsum", r.input(3, M), axis=1), RAGGED, tolerance=1e-4), ("points",), CudaVariant(block=64)),
    (Case("gather", lambda r: r.op("gather", r.input(10, M), r.input(N, dtype=DType.I64), axis=0), RAGGED,
          {1: lambda rng, shape: rng.integers(0, 10, shape)}), ("points",), CudaVariant(block=64)),
    (Case("counts", lambda r: r.op("reduce_sum", r.input(N, M, dtype=DType.I32), axes=(1,)), RAGGED), ("rows",), CudaVariant(team=32)),
    (Case("long sum", lambda r: r.op("reduce_sum", r.input(N, M), axes=(0, 1)), RAGGED, tolerance=1e-4), ("rows", "rows"),
     CudaVariant(team=32, block=32, pieces=9)),
    (Case("transpose", lambda r: r.op("exp", r.op("transpose", r.input(2, N, M), perm=(0, 2, 1))), SQUARE), ("turned",), CudaVariant()),
    (Case("product", product, SQUARE), ("products",), CudaVariant(tile=SMALL)),
    (Case("convolution", convolution, ({"M": 9},)), ("products",), CudaVariant(tile=SMALL)),
    (Case("convolution that enlarges", lambda r: r.op("conv_transpose", r.input(1, 3, 2, M), r.input(3, 16, 3, 3), stride=(2, 2)),
          ({"M": 4},)), ("products",), CudaVariant(tile=SMALL)),
    (Case("product at edges", lambda r: r.op("matmul", r.op("pad_edge", r.input(1, 4, 5, 7), before=(0, 0, 0, 2), after=(0, 0, 0, 2)),
                                             r.input(1, 1, 11, M)), SQUARE[:1]), ("products",), CudaVariant(tile=SMALL)),
    (Case("attention", attention, ({"N": 17, "M": 18},), tolerance=1e-4), ("products", "rows", "products"),
     CudaVariant(tile=SMALL, team=32, block=32)),
]  # fmt: skip
NAMES = [case.name for case, _, _ in CASES]


@pytest.fixture(scope="module")
def texts() -> dict[str, CudaText]:
    """Every case with unknown sizes."""
    return {case.name: generate(standard(), group(case.build), variant) for case, _, variant in CASES}


@pytest.fixture(scope="module")
def shim(texts: dict[str, CudaText], mistaken: dict[str, CudaText], tmp_path_factory: pytest.TempPathFactory) -> Shim:
    return build([*texts.values(), *mistaken.values()], tmp_path_factory.mktemp("shim"))


def arrays_and_values(case: Case, sizes: Mapping[str, int]) -> tuple[list[Any], tuple[Any, ...]]:
    """Inputs, and what the equations say."""
    known = group(case.build, sizes)
    rng = np.random.default_rng(0)
    arrays = [drawn(rng, value.type, (case.draw or {}).get(k)) for k, value in enumerate(known.inputs)]
    return arrays, tuple(run(standard(), known.outputs, dict(zip(known.inputs, arrays, strict=True)), Floats()))


@pytest.mark.parametrize("case, forms, variant", CASES, ids=NAMES)
def test_kernels_compute_what_their_equations_say(
    case: Case, forms: tuple[str, ...], variant: CudaVariant, texts: dict[str, CudaText], shim: Shim
) -> None:
    """With threads in both orders, and with fewer blocks than there is work for."""
    text = texts[case.name]
    assert tuple(launch.form for launch in text.launches) == forms
    for sizes in case.sizes:
        arrays, expected = arrays_and_values(case, sizes)
        for found in (shim.run(text, arrays), shim.run(text, arrays, reverse=True, grid=2)):
            assert list(different(found, expected, case.tolerance)) == []


def test_nothing_is_launched_for_nothing(texts: dict[str, CudaText]) -> None:
    """Sizes of 0 are below what a text relies on; a caller sees that before it launches."""
    text = texts["mish"]
    assert text.bind([(0, 3), (3,)]) is None
    assert text.bind([(2, 3), (4,)]) is None
    assert {str(sym): size for sym, size in (text.bind([(2, 3), (3,)]) or {}).items()} == {"N": 2, "M": 3}


# ---- planted mistakes ------------------------------------------------------------------------------------------------------

#: what is wrong, in which text, by what words it is planted, at which sizes it shows
MISTAKES: dict[str, tuple[str, Callable[[str], str], Fault]] = {
    "no barrier before a tile is read": ("transpose", lambda text: text.replace("k_meet<256>();", "", 1), Fault.RACE),
    "no barrier before a tile is written again": ("product", lambda text: "".join(text.rsplit("k_meet<32>();", 1)), Fault.RACE),
    "no barrier before a row is read": ("row that is turned", lambda text: text.replace("k_meet<32>();", "", 2), Fault.RACE),
    "a barrier for some threads only": (
        "softmax of known rows", lambda text: text.replace("k_meet<32>();", "if (k_rank < 20) k_meet<32>();", 1), Fault.BARRIER,
    ),
    "every thread writes the result of a team": (
        "counts", lambda text: text.replace("k_store_once(k_rank, ", "k_store_once(0, "), Fault.RACE,
    ),
    "blocks that do the same rows": (
        "largest and its place", lambda text: text.replace("k_task = (int64_t)blockIdx.x", "k_task = (int64_t)0"), Fault.RACE,
    ),
    "the last vector is taken for a whole one": ("mish", lambda text: text.replace(" + 4 <= ", " <= "), Fault.MEMORY),
    "a tile that is too small": ("transpose", lambda text: text.replace("_all, 1056)", "_all, 1000)"), Fault.MEMORY),
}  # fmt: skip


def planted(text: CudaText, change: Callable[[str], str], name: str) -> CudaText:
    """A text with a mistake, under a name of its own. What all kernels stand on stays as it is."""
    start = text.text.rindex("#endif")
    changed = change(text.text[start:])
    assert changed != text.text[start:], "the words are no longer in the text"
    launches = tuple(replace(launch, symbol=launch.symbol.replace(text.name, name)) for launch in text.launches)
    return replace(text, name=name, launches=launches, text=(text.text[:start] + changed).replace(text.name, name))


@pytest.fixture(scope="module")
def mistaken(texts: dict[str, CudaText]) -> dict[str, CudaText]:
    return {
        what: planted(texts[case], change, f"wrong{k}") for k, (what, (case, change, _)) in enumerate(MISTAKES.items())
    }


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_are_caught(what: str, mistaken: dict[str, CudaText], shim: Shim) -> None:
    name, _, fault = MISTAKES[what]
    case = next(case for case, _, _ in CASES if case.name == name)
    arrays, _ = arrays_and_values(case, case.sizes[0])
    with pytest.raises(Stopped) as stopped:
        shim.run(mistaken[what], arrays)
    assert stopped.value.fault is fault


def test_a_text_that_is_no_program_is_named(texts: dict[str, CudaText], tmp_path: Path) -> None:
    from dslc.codegen.host.compiler import BuildReason, NotBuilt

    text = texts["mish"]
    with pytest.raises(NotBuilt) as problem:
        build([replace(text, text=text.text + "this is not C++;")], tmp_path)
    assert problem.value.reason is BuildReason.ERROR
