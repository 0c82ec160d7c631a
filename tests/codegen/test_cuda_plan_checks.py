"""Plans are looked at by others than those who make them; and what is wrong with one on purpose is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dslc.cuda.devices import device_named
from dslc.cuda.plan import BufferPlace, Plan
from dslc.cuda.planning import NotPlanned, Wants, planned
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Value, input_value
from dslc.semantics.apply import apply
from dslc.semantics.library import standard
from tests.codegen.plan_checks import faults

H100 = device_named("h100")


def op(name: str, *args: Value, **attrs: object) -> Value:
    return apply(standard(), f"std.{name}", args, attrs)[0]


def network(seed: int, steps: int = 14) -> Graph:
    """Square matrices: products, sums, norms and transposes of any that came before, so that lives cross and streams part."""
    rng = np.random.default_rng(seed)
    inputs = tuple(input_value(f"x{k}", TensorType(DType.F32, (6, 6))) for k in range(3))
    pool = list(inputs)
    for _ in range(steps):
        x, y = (pool[int(rng.integers(len(pool)))] for _ in range(2))
        kind = rng.choice(["matmul", "matmul", "add", "softmax", "transpose", "relu", "pair", "slice"])
        if kind == "pair":
            pool.append(
                op(
                    "concat",
                    op("slice", x, start=(0, 0), size=(3, 6)),
                    op("slice", y, start=(3, 0), size=(3, 6)),
                    axis=0,
                )
            )
        elif kind == "slice":
            pool.append(
                op("matmul", op("slice", x, start=(0, 1), size=(6, 4)), op("slice", y, start=(2, 0), size=(4, 6)))
            )
        elif kind == "transpose":
            pool.append(op("transpose", x, perm=(1, 0)))
        elif kind == "softmax":
            pool.append(op("softmax", x, axis=int(rng.integers(2))))
        else:
            pool.append(op(str(kind), x, y) if kind in {"matmul", "add"} else op(str(kind), x))
    return Graph(inputs, tuple(dict.fromkeys([pool[-1], pool[len(pool) // 2], pool[-3]])))


def plan_of(seed: int) -> Plan:
    return planned(standard(), network(seed), H100).plan


@pytest.mark.parametrize("seed", range(12))
def test_plans_of_random_networks_have_no_faults(seed: int) -> None:
    assert faults(plan_of(seed)) == []


def test_plans_with_a_scratch_buffer_for_each_kernel_have_no_faults() -> None:
    """Scratch memory lives as long as its step."""
    for seed in range(4):
        assert faults(planned(standard(), network(seed), H100, generable=lambda _: Wants((1000, 40))).plan) == []


@pytest.fixture(scope="module")
def wide() -> Plan:
    """A plan with several streams and shared memory."""
    return next(plan for plan in map(plan_of, range(40)) if plan.streams > 2 and any(step.waits for step in plan.steps))


def test_a_step_that_does_not_wait_is_found(wide: Plan) -> None:
    for k, step in enumerate(wide.steps):
        if step.waits:
            steps = (*wide.steps[:k], replace(step, waits=()), *wide.steps[k + 1 :])
            assert faults(replace(wide, steps=steps)), k


def test_tensors_that_lie_upon_each_other_are_found(wide: Plan) -> None:
    """Every pair of buffers that are alive at once, put into one place."""
    shared = [k for k, buffer in enumerate(wide.buffers) if buffer.place is BufferPlace.SHARED and buffer.first >= 0]
    moved = 0
    for a in shared:
        for b in shared:
            one, other = wide.buffers[a], wide.buffers[b]
            if a != b and one.first <= other.first < one.last and one.offset != other.offset:
                buffers = tuple(
                    replace(buffer, offset=one.offset) if k == b else buffer for k, buffer in enumerate(wide.buffers)
                )
                assert faults(replace(wide, buffers=buffers)), (a, b)
                moved += 1
    assert moved > 3


def test_steps_in_another_order_are_found(wide: Plan) -> None:
    """The last step first."""
    moved = replace(
        wide, steps=(replace(wide.steps[-1], waits=()), *(replace(one, waits=()) for one in wide.steps[:-1]))
    )
    assert faults(moved)


def test_there_is_no_plan_of_nothing() -> None:
    with pytest.raises(NotPlanned):
        planned(standard(), Graph((), ()), H100)
