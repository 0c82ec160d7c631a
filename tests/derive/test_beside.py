"""Derivations that are searched in a process beside this one: what it finds is what would have been found here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from multiprocessing import get_context

import numpy as np
import pytest

from dslc.deadline import Deadline, TimeUp
from dslc.derivation.programs import PricedProgram
from dslc.derivation.search import DerivationLimits, DerivationSearch
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, input_value, kernel_value
from dslc.ir.packed import packed, unpacked
from dslc.search.region_rewrites.background import BackgroundSearch, DerivedOperator
from dslc.search.region_rewrites.derivations import derivations_of
from dslc.search.region_rewrites.expressions import as_one, expanded
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules

SOON = Deadline.after(1e9)


def operator(std: Rules, size: int) -> Graph:
    """A transposed convolution of a small image."""
    inputs = tuple(
        input_value(name, TensorType(DType.F32, shape))
        for name, shape in (("h0", (1, 4, size, size)), ("h1", (4, 3, 2, 2)))
    )
    return Graph(inputs, apply(std, "std.conv_transpose", inputs, {"stride": (2, 2)}))


def searched(std: Rules, one: Graph) -> DerivedOperator:
    value = expanded(std, one)
    assert value is not None
    search = DerivationSearch(std, derivations_of(std), DerivationLimits(max_states=40))
    return DerivedOperator(search.run(as_one(value)).programs, "a rule")


@contextmanager
def beside(search: Callable[[Graph], DerivedOperator], *operators: Graph) -> Iterator[BackgroundSearch]:
    """A process that has begun with the first operator."""
    with closing(BackgroundSearch({("somebody", one): partial(search, one) for one in operators})) as found:
        while not found._begun[0]:
            time.sleep(0.01)
        yield found


def test_what_is_found_beside_is_what_is_found_here(std: Rules) -> None:
    one = operator(std, 5)
    here = searched(std, one)
    assert len(here.programs) > 2
    with beside(lambda each: searched(std, each), one) as other:
        # equal terms are one object, in whatever process they were made
        assert other.derived("somebody", one, SOON) == here


def test_values_are_the_same_objects_when_they_are_unpacked(std: Rules) -> None:
    values = tuple(one.value for one in searched(std, operator(std, 6)).programs)
    assert all(a is b or a.node is b.node for a, b in zip(unpacked(packed(values)), values, strict=True))
    assert unpacked(packed(values)) == values


def test_no_operator_is_searched_twice(std: Rules) -> None:
    first, second, third = (operator(std, size) for size in (5, 6, 7))
    go_on = get_context("fork").Event()

    def slow(one: Graph) -> DerivedOperator:
        if one is second:
            go_on.wait()
        return DerivedOperator((), str(one.inputs[0].type))

    with beside(slow, first, second, third) as other:
        found = other.derived("somebody", first, SOON)
        assert found is not None and "5" in found.skipped
        # whoever asks for what was not begun has it alone
        assert other.derived("somebody", third, SOON) is None
        while not other._begun[1]:
            time.sleep(0.01)
        go_on.set()
        assert other.derived("somebody", second, SOON) is not None
        assert other.derived("somebody", third, SOON) is None
        assert other.derived("somebody", operator(std, 8), SOON) is None


def test_who_has_no_time_does_not_wait(std: Rules) -> None:
    one = operator(std, 5)

    def endless(_: Graph) -> DerivedOperator:
        time.sleep(60)
        raise AssertionError

    with beside(endless, one) as other, pytest.raises(TimeUp):
        other.derived("somebody", one, Deadline.after(0.1))


def test_a_search_that_fails_is_done_by_whoever_asks(std: Rules, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = operator(std, 5), operator(std, 6)

    def fails(one: Graph) -> DerivedOperator:
        if one is first:
            raise ValueError(one)
        return searched(std, one)

    with beside(fails, first, second) as other:
        assert other.derived("somebody", first, SOON) is None
        while not other._begun[1]:
            time.sleep(0.01)
        assert other.derived("somebody", second, SOON) is not None
    assert capfd.readouterr().err == ""


def test_a_process_that_fails_is_no_loss(std: Rules) -> None:
    first, second = operator(std, 5), operator(std, 6)
    with beside(lambda one: searched(std, one) if one is first else os._exit(3), first, second) as other:
        assert other.derived("somebody", first, SOON) is not None
        deadline = time.monotonic() + 10
        while other._fork is not None and time.monotonic() < deadline:
            assert other.derived("somebody", second, SOON) is None
        assert other.derived("somebody", first, SOON) is not None


def test_where_no_process_can_be_made_whoever_asks_searches(std: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    one = operator(std, 5)
    with closing(BackgroundSearch({("somebody", one): partial(searched, std, one)})) as other, other.halted():
        assert other.derived("somebody", one, SOON) is None


def test_it_is_halted_while_something_is_measured(std: Rules) -> None:
    first, second = operator(std, 5), operator(std, 6)

    def quick(one: Graph) -> DerivedOperator:
        time.sleep(0.05)
        # more than a pipe holds
        return DerivedOperator(
            tuple(PricedProgram(one.outputs[0], (), (str(k).zfill(1000),), 1.0) for k in range(300)), None
        )

    with beside(quick, first, second) as other:
        with other.halted(), other.halted():
            before = other._begun.tobytes()
            time.sleep(0.3)
            assert other._begun.tobytes() == before
        found = other.derived("somebody", first, SOON)
        assert found is not None and len(found.programs) == 300


def test_numbers_are_part_of_a_message_and_kernels_are_not(std: Rules) -> None:
    held = array_value(np.array([1.0, 2.0], np.float32))
    assert unpacked(packed([held, held])) == (held, held)
    hole = input_value("h0", held.type)
    with pytest.raises(TypeError):
        packed(kernel_value(Graph((hole,), apply(std, "std.relu", (hole,), {})), (held,)))
