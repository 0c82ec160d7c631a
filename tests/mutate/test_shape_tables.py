"""What operators give at any sizes: worked out once, the same as asked of each."""

from __future__ import annotations

import random
from itertools import islice

import numpy as np
import pytest

from dslc.interpret.floats import Floats
from dslc.interpret.run import run
from dslc.ir.dtype import DType, TensorType
from dslc.ir.holes import hole, program
from dslc.mutate.cores import CoreNumbers, choices, instance
from dslc.mutate.problem import MutationProblem, problem_of, shape_of
from dslc.mutate.shapes import Shapes
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules, standard


@pytest.fixture(scope="module")
def rules() -> Rules:
    return standard()


def problem(rules: Rules, *shapes: tuple[int, ...], **attrs: object) -> MutationProblem:
    holes = tuple(hole(k, TensorType(DType.F32, shape)) for k, shape in enumerate(shapes))
    return problem_of(rules, program(holes, apply(rules, "std.conv", holes, attrs)))


@pytest.mark.parametrize(
    "name", ["conv", "conv_transpose", "matmul", "concat", "avg_pool", "reduce_sum", "depth_to_space"]
)
def test_what_is_looked_up_is_what_the_operator_gives(rules: Rules, name: str) -> None:
    numbers = CoreNumbers(problem(rules, (1, 4, 6, 6), (4, 2, 3, 3), stride=(2, 2), pads=(1, 1, 1, 1), groups=2))
    known, drawn, fitted, asked = Shapes(rules, DType.F32), random.Random(0), 0, 0
    rng = np.random.default_rng(0)
    for core in islice(choices(rules.operator(f"std.{name}"), numbers), 6):
        for _ in range(24):
            # sizes of one are common: what has one position has no iterator
            shapes = tuple(tuple(drawn.choice((1, 2, 4)) for _ in range(4)) for _ in range(core.count))
            made = instance(rules, core, known.holes(shapes))
            asked += 1
            assert known.of(core, shapes) == (None if made is None else shape_of(made)), (core, shapes)
            if made is not None:
                fitted += 1
                scope = known.scope(core, shapes)
                assert scope is not None
                feeds = {value: np.asarray(rng.random(shape_of(value))) for value in known.holes(shapes)}
                assert np.allclose(*run(rules, (scope, made), feeds, Floats()))
    assert fitted > 0 and known.asked < asked


def test_as_many_groups_as_channels_are_few_at_small_sizes(rules: Rules) -> None:
    assert problem(rules, (1, 96, 9, 9), (96, 1, 3, 3), groups=96).small_inputs == ((1, 2, 9, 9), (2, 1, 3, 3))
    assert problem(rules, (1, 60, 9, 9), (90, 4, 3, 3), groups=15).small_inputs == ((1, 12, 9, 9), (18, 4, 3, 3))
