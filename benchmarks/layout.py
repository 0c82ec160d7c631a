"""Joint search over substitutions and layouts against three other ways (TASO, section 7.5 and Figure 12).

Each case is searched with substitutions only, layouts only, layouts after substitutions, and both jointly, with the same costs, all
measured on this machine. Printed: the predicted time of each, and (with `--time`) how many times as fast the pipeline's result is.

    python -m benchmarks.layout [--threads N] [--steps N] [--time] [CASE...]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from dslc.cost.cache import CostCache
from dslc.cost.machine import this_machine
from dslc.cost.measure import Measurer
from dslc.cost.model import CostModel
from dslc.deadline import Deadline
from dslc.errors import DslcError
from dslc.onnx.exporter import node_model
from dslc.onnx.importer import import_model
from dslc.search.candidates.candidate import Candidate, Limits
from dslc.search.rewrites.layouts import layouts_of, without_layouts
from dslc.search.runs.contenders import serialized
from dslc.search.runs.selection import chosen_rules
from dslc.search.strategies.backtrack import backtrack
from dslc.search.strategies.space import Space
from dslc.semantics.library import standard

#: a case that takes longer is stopped there, in seconds
LONGEST = 120.0


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[-1]))


def model(
    nodes: list[NodeProto],
    inputs: dict[str, list[int]],
    outputs: dict[str, list[int]],
    constants: dict[str, np.ndarray],
) -> onnx.ModelProto:
    def info(names: dict[str, list[int]]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in names.items()]

    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "case", info(inputs), info(outputs), tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def bert_product() -> onnx.ModelProto:
    """TASO's example: 64x1024 by 1024x4096, the weights on the right."""
    return model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": [64, 1024]},
        {"y": [64, 4096]},
        {"w": weights(1024, 4096)},
    )


def left_operand() -> onnx.ModelProto:
    """The same product with the weights on the left, where ONNX Runtime packs nothing, for one column."""
    nodes = [helper.make_node("MatMul", ["w", "x"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])]
    return model(nodes, {"x": [1024, 1]}, {"y": [1024, 1]}, {"w": weights(1024, 1024)})


def left_operands() -> onnx.ModelProto:
    """A gated layer: two products with weights on the left that share their input."""
    nodes = [
        helper.make_node("MatMul", ["w", "x"], ["a"]),
        helper.make_node("MatMul", ["v", "x"], ["b"]),
        helper.make_node("Tanh", ["a"], ["c"]),
        helper.make_node("Sigmoid", ["b"], ["d"]),
        helper.make_node("Mul", ["c", "d"], ["y"]),
    ]
    constants = {"w": weights(512, 512), "v": weights(512, 512, seed=1)}
    return model(nodes, {"x": [512, 4]}, {"y": [512, 4]}, constants)


def channels_last() -> onnx.ModelProto:
    """1x1 convolutions on a small image, activations, and a transposed convolution whose blocks do not overlap."""
    nodes = [
        helper.make_node("Conv", ["x", "k0"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "k1"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("ConvTranspose", ["d", "k2"], ["y"], strides=[2, 2]),
    ]
    constants = {"k0": weights(448, 228, 1, 1), "k1": weights(448, 448, 1, 1), "k2": weights(448, 256, 2, 2)}
    return model(nodes, {"x": [1, 228, 2, 2]}, {"y": [1, 256, 4, 4]}, constants)


CASES: dict[str, Callable[[], onnx.ModelProto]] = {
    "bert_product": bert_product,
    "left_operand": left_operand,
    "left_operands": left_operands,
    "channels_last": channels_last,
}


def four_ways(source: onnx.ModelProto, measurer: Measurer, steps: int) -> tuple[float, dict[str, Candidate]]:
    """The predicted seconds of a model, and what each way makes of it."""
    rules = standard()
    imported = import_model(source, rules, {})
    context = imported.context

    def build(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> bytes | None:
        try:
            return serialized(node_model(outputs, rules, context.opset, context.ir_version, inputs=inputs)[0])
        except DslcError:
            return None

    costs = CostModel(rules, measurer, build, context.opset, {})
    costs.excuse(imported.graph)
    start = Candidate(imported.graph, costs.graph_cost(imported.graph))
    chosen = chosen_rules(rules, ["std.default"])
    layouts, substitutions = layouts_of(chosen), without_layouts(chosen)

    def limits() -> Limits:
        return Limits(steps, Deadline.after(LONGEST))

    alone = backtrack(Space(start, (), costs, limits()), substitutions)
    return start.cost, {
        "substitutions": alone,
        "layouts": backtrack(Space(start, (), costs, limits()), [], layouts),
        "one after the other": backtrack(Space(alone, (), costs, limits()), [], layouts),
        "joint": backtrack(Space(start, (), costs, limits()), substitutions, layouts),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--time", action="store_true", help="time what the whole pipeline makes of each case")
    options = parser.parse_args()
    found = this_machine(options.threads)
    print(found)
    print(
        f"{'case':16}{'original':>12}{'substitutions':>16}{'layouts':>12}{'one after other':>18}{'joint':>12}   predicted ms"
    )
    with CostCache(None, print) as cache:
        measurer = Measurer(found, cache)
        try:
            for name in options.cases or CASES:
                before, ways = four_ways(CASES[name](), measurer, options.steps)
                times = [ways[way].cost for way in ("substitutions", "layouts", "one after the other", "joint")]
                cells = [f"{seconds * 1e3:.4f}" for seconds in times]
                print(f"{name:16}{before * 1e3:12.4f}{cells[0]:>16}{cells[1]:>12}{cells[2]:>18}{cells[3]:>12}")
                print(f"{'':16}joint: {', '.join(ways['joint'].rules()) or 'nothing'}")
                if options.time:
                    timed(name, options.threads)
        finally:
            measurer.close()


def timed(name: str, threads: int) -> None:
    """What the whole pipeline gains, timed against the original."""
    import dslc

    report = dslc.optimize(CASES[name](), threads=threads, budget=30).report
    print(
        f"{'':16}measured: {report.ratio} times as fast (95 %: {report.ratio_low} to {report.ratio_high}) {report.reason}"
    )


if __name__ == "__main__":
    main()
