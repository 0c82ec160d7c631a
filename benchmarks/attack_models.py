"""Models with what may go wrong, through every mode: the same names, outputs and metadata as ONNX Runtime without optimizations.

    python -m benchmarks.attack_models --seconds 600 --seed 0
    python -m benchmarks.attack_models --only 'test_slice.*' --mode apply

Small models of many kinds, drawn from a seed, and the node cases that come with the onnx package, in turn. Each is optimized in one
process by the Python API in a mode that is drawn too; the result runs at several sizes and on special numbers. A line for each failure
says what reproduces it; the exit code is 1 where there was one.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper

import dslc
from dslc.cost.compare import difference

SEARCH = {"budget": 30, "timing": False, "library_only": True, "threads": 1}
MODES: Mapping[str, dict[str, Any]] = {
    "canonical": {"budget": 0},
    "apply": {"budget": 0, "apply": True},
    "strict": {"budget": 0, "apply": True, "strict_floats": True},
    "search": {**SEARCH, "steps": 20},
    "saturate": {**SEARCH, "strategy": "saturate", "steps": 2},
    "mcts": {**SEARCH, "strategy": "mcts", "steps": 20},
}
#: results of these depend on drawn numbers, on the runtime's version, or on nothing that two models share
RANDOM = re.compile("bernoulli|dropout.*mask|training_dropout|random|multinomial")
TOLERANCE = {"float64": 1e-8, "float16": 1e-2, "bfloat16": 5e-2}
OPSET = [helper.make_opsetid("", 17)]
LONG = 2**63 - 1
node = helper.make_node


@dataclass(frozen=True)
class Attack:
    """A model, and inputs to run it on."""

    name: str
    model: ModelProto
    feeds: tuple[dict[str, Any], ...]


def built(
    nodes: list[Any], open_shape: list[Any], constants: Mapping[str, Any], rng: np.random.Generator
) -> ModelProto:
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("X", open_shape), ("Y", None))
    ]
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "attack", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=OPSET, ir_version=8, doc_string="kept")
    helper.set_model_props(model, {"author": f"nobody {rng.integers(9)}"})
    return model


# ---- builders: nodes from X to Y, each with what it needs ----------------------------------------------------------

Step = tuple[str, list[Any], dict[str, Any]]


def slice_(rng: np.random.Generator) -> Step:
    step = int(rng.choice([1, 1, 2, -1]))
    start, end = (int(rng.choice([0, 1, -2])), int(rng.choice([LONG, -1, 2]))) if step > 0 else (-1, -LONG)
    return "Slice", [[start], [end], [int(rng.integers(-2, 2))], [step]], {}


def pad(rng: np.random.Generator) -> Step:
    return "Pad", [[int(n) for n in rng.integers(0, 2, 4)]], {"mode": str(rng.choice(["constant", "edge"]))}


def clip(rng: np.random.Generator) -> Step:
    return (
        "Clip",
        [[np.float32(0)], [np.float32(-1), np.float32(1)], [np.float32(1), np.float32(-1)]][rng.integers(3)],
        {},
    )


def with_number(rng: np.random.Generator) -> Step:
    number = np.float32(rng.choice([0, 1, -1, 0.5, 2, 3e38, 1e-40, -0.0, np.inf, np.nan]))
    return str(rng.choice(["Add", "Mul", "Sub", "Div", "Max", "Min", "Pow"])), [number], {}


def along(rng: np.random.Generator) -> Step:
    op = str(rng.choice(["Softmax", "LogSoftmax", "CumSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp"]))
    axis = int(rng.integers(-2, 2))
    if op == "CumSum":
        return op, [np.int64(axis)], {"reverse": int(rng.integers(2)), "exclusive": int(rng.integers(2))}
    return op, [], {"axes": [axis]} if op.startswith("Reduce") else {"axis": axis}


def plain(rng: np.random.Generator) -> Step:
    ops = [
        "Relu",
        "Abs",
        "Neg",
        "Sqrt",
        "Exp",
        "Log",
        "Sigmoid",
        "Tanh",
        "Erf",
        "Floor",
        "Round",
        "Sign",
        "Reciprocal",
        "Softplus",
    ]
    return str(rng.choice(ops)), [], {}


def moved(rng: np.random.Generator) -> Step:
    steps: list[Step] = [
        ("Transpose", [], {"perm": [1, 0]}),
        ("Identity", [], {}),
        ("Tile", [[int(n) for n in rng.integers(1, 3, 2)]], {}),
        ("Expand", [[1, 1]], {}),
        ("Reshape", [[0, -1]], {}),
        ("Unsqueeze Squeeze", [[int(rng.integers(0, 3))]], {}),
        ("Cast Cast", [], {}),
        ("Trilu", [], {"upper": int(rng.integers(2))}),
    ]
    return steps[rng.integers(len(steps))]


STEPS: tuple[Callable[[np.random.Generator], Step], ...]
STEPS = (slice_, slice_, pad, clip, with_number, with_number, along, plain, plain, moved)


def chain(seed: int) -> Attack:
    """Some steps after each other; at times two of them meet in a sum, a product or a concatenation."""
    rng = np.random.default_rng([seed, 0xA77])
    nodes: list[Any] = []
    constants: dict[str, Any] = {}
    at = ["X"]
    for k in range(int(rng.integers(2, 7))):
        op, operands, attributes = STEPS[rng.integers(len(STEPS))](rng)
        names = []
        for value in operands:
            names.append(f"c{len(constants)}")
            constants[names[-1]] = value if isinstance(value, np.generic) else np.array(value, np.int64)
        source = at[-1] if rng.random() < 0.8 else at[rng.integers(len(at))]
        for part, single in enumerate(op.split()):
            more = {"to": [TensorProto.DOUBLE, TensorProto.FLOAT][part]} if single == "Cast" else attributes
            at.append(f"t{k}.{part}")
            nodes.append(node(single, [source, *names], [at[-1]], **more))
            source = at[-1]
        if " " in op:
            del at[-2]
    if rng.random() < 0.4:
        join = ["Add", "Mul", "Concat", "Max"][rng.integers(4)]
        nodes.append(
            node(join, [at[-1], at[rng.integers(len(at))]], ["Y"], **({"axis": 0} if join == "Concat" else {}))
        )
    else:
        nodes.append(node(["Relu", "Identity", "Neg"][rng.integers(3)], [at[-1]], ["Y"]))
    shape: list[Any] = ["n", "m"] if rng.random() < 0.6 else [3, 5]
    sizes = [(3, 5), (1, 1), (4, 7), (17, 2), (0, 3)] if isinstance(shape[0], str) else [(3, 5)]
    feeds = [{"X": rng.standard_normal(size).astype(np.float32)} for size in sizes]
    edges = np.array([0, -0.0, 1, -1, 1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan, 0.5, 2, -2, 88, -104], np.float32)
    feeds += [{"X": edges.reshape(3, 5)}, {"X": np.zeros((3, 5), np.float32)}]
    return Attack(f"chain:{seed}", built(nodes, shape, constants, rng), tuple(feeds))


# ---- ONNX's node cases ---------------------------------------------------------------------------------------------


def cases() -> dict[str, Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        return {one.name: one for one in load_model_tests(kind="node") if not RANDOM.search(one.name)}


def case(one: Any) -> Attack:
    """A node case with its first inputs, and with special numbers in its floats."""
    inputs = [numpy_helper.to_array(item) if isinstance(item, TensorProto) else item for item in one.data_sets[0][0]]
    names = [value.name for value in one.model.graph.input]
    feeds = dict(zip(names, inputs, strict=False))
    return Attack(one.name, one.model, (feeds,))


# ---- running -------------------------------------------------------------------------------------------------------


def run(model: ModelProto, feeds: Mapping[str, Any]) -> list[Any] | str:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found: list[Any] = session.run(None, dict(feeds))
    except Exception as problem:  # ONNX Runtime raises many kinds, none of them documented
        return str(problem).splitlines()[0]
    return found


def wrong(attack: Attack, mode: str) -> str:
    """What differs after a run in a mode; empty where nothing does, or where the runtime refuses the original."""
    reference = [run(attack.model, feeds) for feeds in attack.feeds]
    if all(isinstance(one, str) for one in reference):
        return ""
    try:
        found = dslc.optimize(attack.model, **MODES[mode]).model
    except dslc.DslcError as problem:
        return f"refused: {problem.diagnostics[0].code} {problem.diagnostics[0].message}"[:200]
    for ends in ("input", "output"):
        old, new = ([value.name for value in getattr(one.graph, ends)] for one in (attack.model, found))
        if old != new:
            return f"{ends}s are {new} instead of {old}"
    kept = {entry.key: entry.value for entry in found.metadata_props}
    if (
        any(kept.get(entry.key) != entry.value for entry in attack.model.metadata_props)
        or found.doc_string != attack.model.doc_string
    ):
        return "metadata is lost"
    for feeds, want in zip(attack.feeds, reference, strict=True):
        if isinstance(want, str):
            continue
        got = run(found, feeds)
        said = got if isinstance(got, str) else next(filter(None, map(_different, want, got)), "")
        if said:
            ops = [one.op_type for one in found.graph.node]
            return f"{said} on { ({name: np.shape(value) for name, value in feeds.items()}) }; written: {ops}"[:400]
    return ""


def _different(want: Any, got: Any) -> str:
    with np.errstate(all="ignore"):
        error, problem = difference(want, got)
    limit = TOLERANCE.get(str(getattr(want, "dtype", "")), 1e-4)
    return problem or (f"off by {error:.2g} of its largest value" if error > limit else "")


def attacks(seed: int, only: str) -> Iterator[Attack]:
    """Chains and node cases in turn, without an end."""
    known, wanted = cases() if only != "chain" else {}, re.compile(only)
    names = [name for name in known if wanted.fullmatch(name)]
    order = list(np.random.default_rng(seed).permutation(names))
    turn = 0
    while True:
        if order and (turn % 2 or not wanted.match("chain")):
            yield case(known[order[turn // 2 % len(order)]])
        else:
            yield chain(seed * 1_000_000 + turn)
        turn += 1


def attacked(seed: int, seconds: float, only: str = ".*", mode: str = "", most: int = 1 << 60) -> Iterator[str]:
    """A line for each failure."""
    until = time.monotonic() + seconds
    modes = [mode] if mode else list(MODES)
    for turn, attack in enumerate(attacks(seed, only)):
        if turn >= most or time.monotonic() > until:
            return
        chosen = modes[(turn // 2 if not mode else turn) % len(modes)]
        if said := wrong(attack, chosen):
            yield f"{attack.name} --mode {chosen}: {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=".*", help="names of node cases, or `chain`")
    parser.add_argument("--chain", type=int, help="the seed of one chain, as a failure names it")
    parser.add_argument("--mode", choices=MODES, default="")
    given = parser.parse_args()
    if given.chain is not None:
        found = [said for mode in ([given.mode] if given.mode else MODES) if (said := wrong(chain(given.chain), mode))]
    else:
        found = []
        for line in attacked(given.seed, given.seconds, given.only, given.mode):
            print(line, flush=True)
            found.append(line)
    print(f"{len(found)} failures" if given.chain is None else "\n".join(found) or "right")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
