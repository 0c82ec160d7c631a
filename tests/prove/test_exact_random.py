"""Random small programs: what the exact prover says of two of them is what the interpreter sees over a finite field."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dslc.interpret.field import Field
from dslc.interpret.run import run
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Value, input_value
from dslc.prove.exact import Differs, Equal, compare
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.library import standard

STD = standard()
SQUARE = TensorType(DType.F32, (2, 2))
INPUTS = tuple(input_value(name, SQUARE) for name in "ABC")


def op(name: str, *args: Value, **attrs: object) -> tuple[Value, ...]:
    return apply(STD, f"std.{name}", args, attrs)


def halves(x: Value, y: Value, axis: int, k: int) -> Value:
    """Two tensors joined, and the middle of that: a slice through both."""
    joined = op("concat", x, y, axis=axis)[0]
    first, rest = op("split", joined, axis=axis, sizes=(k, 4 - k))
    return op("split", rest, axis=axis, sizes=(2, 2 - k))[0] if k < 2 else first if axis else rest


def programs(depth: int) -> st.SearchStrategy[Value]:
    """Square matrices from the inputs: sums, products, permutations, slices through joins, elementwise products, scaling."""
    leaf = st.sampled_from(INPUTS)
    if depth == 0:
        return leaf
    below = programs(depth - 1)
    return st.one_of(
        leaf,
        st.builds(lambda a, b: op("add", a, b)[0], below, below),
        st.builds(lambda a, b: op("sub", a, b)[0], below, below),
        st.builds(lambda a, b: op("matmul", a, b)[0], below, below),
        st.builds(lambda a, b: op("mul", a, b)[0], below, below),
        st.builds(lambda a: op("transpose", a, perm=(1, 0))[0], below),
        st.builds(halves, below, below, st.sampled_from((0, 1)), st.sampled_from((0, 1, 2))),
        st.builds(lambda a: op("reverse", a, axis=0)[0], below),
    )


def agree(left: Value, right: Value) -> bool:
    """Whether both are equal at three random points modulo 2^31 - 1."""
    for seed in range(3):
        domain, rng = Field(seed), np.random.default_rng(seed)
        feeds = {value: domain.draw((2, 2), rng) for value in INPUTS}
        a, b = run(STD, (left, right), feeds, domain)
        if not np.array_equal(a, b):
            return False
    return True


@settings(max_examples=60, deadline=None)
@given(programs(2), programs(2))
def test_two_programs(left: Value, right: Value) -> None:
    answer = compare(expand(STD, (left,)), expand(STD, (right,)))
    assert isinstance(answer, Equal | Differs)
    assert isinstance(answer, Equal) == agree(left, right)


@settings(max_examples=40, deadline=None)
@given(programs(2), programs(1), programs(1))
def test_distributivity_holds_for_all_programs(a: Value, b: Value, c: Value) -> None:
    """Equal by construction, so that equal pairs are not rare; and with one sign changed equal only where that part is zero."""
    left = op("matmul", a, op("add", b, c)[0])[0]
    right = op("add", op("matmul", a, b)[0], op("matmul", a, c)[0])[0]
    wrong = op("sub", op("matmul", a, b)[0], op("matmul", a, c)[0])[0]
    (one, two, three) = expand(STD, (left, right, wrong))
    assert compare((one,), (two,)) == Equal()
    answer = compare((one,), (three,))
    assert isinstance(answer, Equal) == agree(left, wrong)
