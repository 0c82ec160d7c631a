"""Programs at unknown sizes: derived at numbers that stand for them, and put back."""

from __future__ import annotations

import pytest

from dslc.derivation.search import DerivationLimits, DerivationSearch
from dslc.derivation.symbolic_sizes import NotSymbolic, SizeNumbers
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Scope, Value, scope_value
from dslc.ir.holes import hole
from dslc.ir.scalar import Scalar, apply, dimension, iterator, num, read
from dslc.prove.exact.answers import Equal
from dslc.prove.exact.compare import compare
from dslc.semantics.apply import apply as applied
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules
from tests.libraries import libraries

N, M = dimension("N"), dimension("M")


@pytest.fixture(scope="module")
def rules() -> Rules:
    return libraries("std", "einnet")


def f32(*shape: int | Scalar) -> TensorType:
    return TensorType(DType.F32, shape)


def times(*factors: int | Scalar) -> Scalar:
    return apply("*", *(num(each) if isinstance(each, int) else each for each in factors))


@pytest.mark.parametrize(
    "size",
    [
        N,
        M,
        times(81, N),
        times(N, M),
        times(196, N, M),
        times(N, N),
        apply("+", N, num(-1)),
        apply("+", times(2, M), times(3, N), num(7)),
    ],
    ids=str,
)
def test_a_size_is_what_its_number_says(size: Scalar) -> None:
    program = Graph((hole(0, f32(N, M)), hole(1, f32(size))), (hole(0, f32(N, M)), hole(1, f32(size))))
    generic = SizeNumbers.of(program)
    assert generic is not None
    at = generic.at(program)
    assert all(value.type.is_static for value in at.outputs)
    assert tuple(map(generic.back, at.outputs)) == program.outputs


def test_a_number_is_priced_by_the_sizes_at_which_is_measured() -> None:
    program = Graph((hole(0, f32(N, times(81, N))),), (hole(0, f32(N, times(81, N))),))
    generic = SizeNumbers.of(program)
    assert generic is not None
    _, large = generic.at(program).outputs[0].type.shape
    assert isinstance(large, int)
    at = generic.priced({"N": 16})
    assert (at(large), at(7)) == (81 * 16, 7)


def test_what_only_one_number_has_is_not_put_back() -> None:
    """Half of a size is no size for odd ones."""
    generic = SizeNumbers.of(Graph((hole(0, f32(N)),), (hole(0, f32(N)),)))
    assert generic is not None
    (number,) = generic.numbers.values()
    with pytest.raises(NotSymbolic):
        generic.back(hole(0, f32(number // 2)))


def test_large_numbers_of_the_program_stay() -> None:
    """-1e9 masks, and is no multiple of a size."""
    masked = scope_value(
        Scope((N,), apply("+", read(0, (iterator("i0"),)), num(-(10**9))), DType.F32), (hole(0, f32(N)),)
    )
    generic = SizeNumbers.of(Graph((hole(0, f32(N)),), (masked,)))
    assert generic is not None
    at = generic.at(Graph((hole(0, f32(N)),), (masked,)))
    assert generic.back(at.outputs[0]) == masked


def derived(
    rules: Rules, op: str, args: tuple[Value, ...], attrs: dict[str, object], depth: int
) -> tuple[tuple[Value, ...], list[Value]]:
    """An operator's expression, and the programs of it that were put back."""
    before = expand(rules, applied(rules, op, args, attrs))
    program = Graph(args, before)
    generic = SizeNumbers.of(program)
    assert generic is not None
    search = DerivationSearch(rules, list(rules.derivations.values()), DerivationLimits(depth, beam=12, max_states=150))
    found = []
    for each in search.run(generic.at(program).outputs[0]).programs:
        try:
            found.append(generic.back(each.value))
        except NotSymbolic:
            continue
    return before, found


@pytest.mark.parametrize(
    ("op", "args", "attrs", "depth"),
    [
        ("std.conv", (f32(N, 3, M, 7), f32(4, 3, 3, 3)), {"pads": (1, 1, 1, 1)}, 2),
        ("std.conv_transpose", (f32(N, 4, 3, 3), f32(4, 2, 4, 4)), {"stride": (2, 2), "pads": (1, 1, 1, 1)}, 3),
        ("std.matmul", (f32(N, M, 8), f32(8, 5)), {}, 1),
    ],
)
def test_programs_hold_at_all_sizes(
    op: str, args: tuple[TensorType, ...], attrs: dict[str, object], depth: int, rules: Rules
) -> None:
    before, found = derived(rules, op, tuple(hole(k, type) for k, type in enumerate(args)), attrs, depth)
    assert found
    for value in found[:4]:
        assert value.type == before[0].type
        assert isinstance(compare(before, expand(rules, (value,)), seconds=20.0), Equal)


def test_what_holds_by_chance_is_not_proved(rules: Rules) -> None:
    """The number that stands for a size has a rest by 4 that others do not have: the sides differ at these."""
    generic = SizeNumbers.of(Graph((hole(0, f32(N)),), (hole(0, f32(N)),)))
    assert generic is not None
    (number,) = generic.numbers.values()
    (at,) = generic.at(Graph((hole(0, f32(N)),), (hole(0, f32(N)),))).outputs
    element = read(0, (iterator("i0"),))
    by_chance = generic.back(scope_value(Scope((number,), apply("*", element, num(number % 4)), DType.F32), (at,)))
    meant = scope_value(Scope((N,), apply("*", element, apply("%", N, num(4))), DType.F32), (hole(0, f32(N)),))
    assert not isinstance(compare((meant,), (by_chance,), seconds=20.0), Equal)
