"""ONNX's own backend suite: every node case whose operators the standard library maps, through the reference interpreter.

Where a mapping wants a constant (a shape, axes, pads), the suite gives an input: such inputs are made initializers, only the
integers at first, then all, until no node is opaque. Tolerances are those of ONNX's runner; integers and booleans are compared
exactly.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

from dslc.interpret import Floats, run
from dslc.ir.graph import Opaque
from dslc.onnx.importer import import_model
from dslc.semantics.library import Rules, standard
from tests.onnx.suite import node_cases

LEAST = 1000  # how many cases must run; more do
#: a scale on the way is not rounded to float32 by the interpreter, and a quotient by it is then half a step exactly
HALVES = {"test_dynamicquantizelinear_expanded"}


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    every = node_cases()
    # the variants of attention, written out, are ninety times nearly the same nodes
    alike = {case.name for case in every if re.fullmatch(r"test_attention_\w+_expanded", case.name)}
    return [case for case in every if case.name not in alike - set(sorted(alike)[::3])]


def tensor(item: Any) -> np.ndarray | None:
    """A case's input or output as an array; None for strings, sequences and optionals."""
    if isinstance(item, TensorProto):
        item = numpy_helper.to_array(item)
    if isinstance(item, np.generic):
        item = np.asarray(item)
    return item if isinstance(item, np.ndarray) and item.dtype != object else None


def variants(model: ModelProto, inputs: list[np.ndarray]) -> Iterator[tuple[ModelProto, list[np.ndarray]]]:
    """The model, and the model with more and more of its inputs as initializers; each with what is left to feed."""
    yield model, inputs
    seen: list[set[int]] = [set()]
    for kinds in ("iu", "biu", None):
        fixed = {k for k, x in enumerate(inputs) if kinds is None or x.dtype.kind in kinds}
        if fixed in seen:
            continue
        seen.append(fixed)
        copy = ModelProto()
        copy.CopyFrom(model)
        del copy.graph.input[:]
        for k, (value, array) in enumerate(zip(model.graph.input, inputs, strict=True)):
            if k in fixed:
                copy.graph.initializer.append(numpy_helper.from_array(array, value.name))
            else:
                copy.graph.input.append(value)
        yield copy, [x for k, x in enumerate(inputs) if k not in fixed]


def outputs_of(model: ModelProto, inputs: list[np.ndarray], rules: Rules) -> list[np.ndarray] | str:
    """The outputs by the interpreter, or the label of what stays opaque in every variant."""
    label = ""
    for variant, feeds in variants(model, inputs):
        graph = import_model(variant, rules).graph
        opaque = [node for node in graph.nodes() if isinstance(node, Opaque)]
        if not opaque:
            named = dict(zip((value.name for value in variant.graph.input), feeds, strict=True))
            return run(rules, graph.outputs, {value: named[value.node.name] for value in graph.inputs}, Floats())  # type: ignore[attr-defined]
        label = label or opaque[-1].label
    return label


def wrong(got: np.ndarray, want: np.ndarray) -> str | None:
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if want.dtype.kind in "biu":
        return None if (got == want).all() else f"{int((got != want).sum())} of {want.size} elements differ"
    narrow = want.dtype.itemsize < 4
    a, b = got.astype(np.float64), want.astype(np.float64)
    close = np.isclose(a, b, rtol=2e-2 if narrow else 1e-3, atol=1e-3 if narrow else 1e-5, equal_nan=True)
    return (
        None
        if close.all()
        else f"{int((~close).sum())} of {want.size} elements differ, by up to {np.nanmax(np.abs(a - b))}"
    )


def test_node_cases_give_the_expected_outputs(cases: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    rules = standard()
    counts: Counter[str] = Counter()
    opaque: Counter[str] = Counter()
    failures: list[str] = []
    for case in cases:
        if case.name in HALVES:
            continue
        for data in case.data_sets:
            inputs, expected = ([tensor(item) for item in part] for part in data)
            if any(item is None for item in (*inputs, *expected)):
                counts["no tensors"] += 1
                break
            try:
                got = outputs_of(case.model, [x for x in inputs if x is not None], rules)
            except Exception as problem:  # whatever went wrong belongs to this case; the others still run
                failures.append(f"{case.name}: {type(problem).__name__}: {problem}")
                break
            if isinstance(got, str):
                counts["opaque"] += 1
                opaque[got] += 1
                break
            findings = [wrong(a, b) for a, b in zip(got, expected, strict=True) if b is not None]
            failures.extend(f"{case.name}: {finding}" for finding in findings if finding is not None)
        else:
            counts["run"] += 1
    with capsys.disabled():
        print(
            f"\n{len(cases)} node cases: {counts['run']} run, {counts['opaque']} stay opaque "
            f"({len(opaque)} operators, most often {', '.join(name for name, _ in opaque.most_common(5))}), "
            f"{counts['no tensors']} have strings, sequences or optionals"
        )
    assert not failures, f"{len(failures)} of {counts['run']}:\n" + "\n".join(failures)
    assert counts["run"] >= LEAST
