"""Which of ONNX Runtime's fusions `dslc optimize` reaches from spellings that ONNX Runtime does not recognize itself.

    python -m benchmarks.fusions [NAME ...] [--budget 20] [--threads N] [--anew] [--cache FOLDER]

Each case is a small model as some exporter writes it. A fusion is found where the graph that ONNX Runtime makes of the result has the
node that it makes of the fusion's own spelling, and more of them than the graph that it makes of the original. A case that was
run before is not run again (``--anew``: it is); the table in ``benchmarks/results/fusions.json`` grows case by case. The search's
choice counts, so that a busy machine decides less; how much faster it is, is raced afterwards.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

import dslc
from benchmarks import machine
from benchmarks.real_models import RESULTS
from dslc.cost.clock import Clock
from dslc.cost.confidence_sequence import Interval
from dslc.cost.inputs import drawn_inputs
from dslc.cost.machine import this_machine
from dslc.cost.process import ModelFile
from dslc.cost.timing import raced
from dslc.version import __version__

STORE = Path(__file__).with_name("results") / "fusions.json"
HEADING = "## ONNX Runtime's fusions"
HEADER = ("fusion", "spelling", "found", "nodes before", "after", "ratio", "95 % of ratio", "predicted", "rules")
#: seconds for racing a result against its original
RACE = 4.0
#: IR version of a model by its opset
_IR = {17: 8, 20: 9, 23: 11}


@dataclass(frozen=True, slots=True)
class Case:
    """A small model: its nodes as ONNX's own text, one a line, and what ONNX Runtime should make of it (`Conv:Relu` is a
    convolution with that activation; any of several will do)."""

    name: str
    spelling: str
    wanted: tuple[str, ...]
    nodes: str
    inputs: Mapping[str, tuple[int, ...]]
    weights: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 17
    integers: frozenset[str] = frozenset()

    def model(self) -> ModelProto:
        nodes = [parser.parse_node(line.strip()) for line in self.nodes.strip().splitlines()]
        inputs = [
            helper.make_tensor_value_info(
                name, TensorProto.INT64 if name in self.integers else TensorProto.FLOAT, shape
            )
            for name, shape in self.inputs.items()
        ]
        read = {name for node in nodes for name in node.input}
        weights = [numpy_helper.from_array(_array(value), name) for name, value in self.weights.items() if name in read]
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph(nodes, self.name, inputs, [output], weights)
        opsets = [helper.make_opsetid("", self.opset)]
        model = onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=opsets, ir_version=_IR[self.opset])
        )
        onnx.checker.check_model(model)
        return model


@dataclass(frozen=True, slots=True)
class Row:
    """What came of a case."""

    name: str
    spelling: str
    found: bool
    before: str
    after: str
    ratio: float
    low: float
    high: float
    predicted: float
    rules: str

    def cells(self) -> tuple[str, ...]:
        measured = (f"{self.ratio:.2f}", f"[{self.low:.2f}, {self.high:.2f}]", f"{self.predicted:.2f}")
        return (
            self.name,
            self.spelling,
            "yes" if self.found else "no",
            self.before,
            self.after,
            *measured,
            self.rules or "-",
        )


def _array(value: Any) -> Any:
    array = np.asarray(value)
    return array.astype(np.int64 if array.dtype.kind == "i" else np.float32)


def _weights(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0]))


WIDE, ROWS = 512, 128
X = {"x": (1, ROWS, WIDE)}
TWO = {**X, "u": (1, ROWS, WIDE)}
IMAGE = {"x": (1, 16, 28, 28)}
NORM: dict[str, Any] = {
    "w": _weights(WIDE), "b": _weights(WIDE), "eps": 1e-5, "one": 1.0, "two": 2.0, "half": 0.5, "minus_half": -0.5,
}  # fmt: skip
GELU: dict[str, Any] = {
    "one": 1.0, "half": 0.5, "two": 2.0, "three": 3.0, "root": 2**0.5, "inverse": 0.5**0.5, "k": 0.044715,
    "scale": (2 / np.pi) ** 0.5, "b": _weights(WIDE), "quick": 1.702, "minus_quick": -1.702,
}  # fmt: skip
PRODUCT: dict[str, Any] = {
    "K": _weights(64, 256), "B": _weights(256), "half": 0.5, "zero": 0.0, "eighth": np.full(256, 0.125), "eight": 8.0,
}  # fmt: skip
CONV: dict[str, Any] = {
    "K": _weights(32, 16, 3, 3), "B": _weights(32), "C": _weights(32, 1, 1), "zero": 0.0, "six": 6.0, "one": 1.0, "tenth": 0.1,
    "sixth": 1 / 6, "half": 0.5, "three": 3.0,
}  # fmt: skip
HEADS = {"q": (1, 4, ROWS, 32), "k": (1, 4, ROWS, 32), "v": (1, 4, ROWS, 32)}

_CENTRED = """mu = ReduceMean<axes=[-1]>(x)
              d = Sub(x, mu)
              """
_SKIP = """z = Add(x, u)
           """
_CONV = "c = Conv<pads=[1,1,1,1]>(x, K, B)\n"
_ATTENTION = """t = Transpose<perm=[0,1,3,2]>(k)
                s = MatMul(q, t)
                """


def _rms(of: str, square: str, divide: str) -> str:
    return f"""p = {square}
               m = ReduceMean<axes=[-1]>(p)
               a = Add(m, eps)
               {divide.format(x=of)}
               y = Mul(n, w)"""


def _layer(centred: str, square: str, divide: str, weigh: str = "g = Mul(n, w)\ny = Add(g, b)") -> str:
    return f"""{centred}p = {square}
               v = ReduceMean<axes=[-1]>(p)
               a = Add(v, eps)
               {divide.format(x="d")}
               {weigh}"""


BY_RECIPROCAL = "s = Sqrt(a)\nr = Reciprocal(s)\nn = Mul({x}, r)"
BY_ROOT = "s = Sqrt(a)\nn = Div({x}, s)"
BY_POWER = "r = Pow(a, minus_half)\nn = Mul({x}, r)"
RMS, LAYER = ("SimplifiedLayerNormalization", "RMSNormalization"), ("LayerNormalization",)
SKIP = ("SkipLayerNormalization",)
POSITIONS = {"E": _weights(100, WIDE), "P": _weights(1, ROWS, WIDE)}

CASES = (
    Case("RMS norm", "x * reciprocal(sqrt)", RMS, _rms("x", "Pow(x, two)", BY_RECIPROCAL), X, NORM),
    Case("RMS norm", "mean(x * x)", RMS, _rms("x", "Mul(x, x)", BY_ROOT), X, NORM),
    Case("RMS norm", "mean(x * x), x * reciprocal(sqrt)", RMS, _rms("x", "Mul(x, x)", BY_RECIPROCAL), X, NORM),
    Case("RMS norm", "x * (...) ^ -0.5", RMS, _rms("x", "Pow(x, two)", BY_POWER), X, NORM),
    Case("RMS norm, opset 23", "mean(x * x), x * reciprocal(sqrt)", RMS,
         _rms("x", "Mul(x, x)", BY_RECIPROCAL).replace("<axes=[-1]>(p)", "(p, last)"), X, {**NORM, "last": [-1]}, 23),
    Case("layer norm", "d * d", LAYER, _layer(_CENTRED, "Mul(d, d)", BY_ROOT), X, NORM),
    Case("layer norm", "d * reciprocal(sqrt)", LAYER, _layer(_CENTRED, "Pow(d, two)", BY_RECIPROCAL), X, NORM),
    Case("layer norm", "d * (...) ^ -0.5", LAYER, _layer(_CENTRED, "Pow(d, two)", BY_POWER), X, NORM),
    Case("layer norm", "TensorFlow: x * g + (b - mean * g)", LAYER,
         _layer(_CENTRED, "Mul(d, d)", "s = Sqrt(a)\nr = Reciprocal(s)\ng = Mul(r, w)",
                "l = Mul(x, g)\nh = Mul(mu, g)\no = Sub(b, h)\ny = Add(l, o)"), X, NORM),
    Case("skip layer norm", "(x + u) + b", SKIP, _SKIP + "z2 = Add(z, b)\ny = LayerNormalization(z2, w, b)", TWO, NORM),
    Case("skip layer norm", "d * d", SKIP,
         _SKIP + _layer(_CENTRED.replace("(x", "(z"), "Mul(d, d)", BY_ROOT), TWO, NORM),
    Case("embedding", "positions, then a norm by d * d", SKIP,
         "e = Gather(E, x)\nz = Add(e, P)\n" + _layer(_CENTRED.replace("(x", "(z"), "Mul(d, d)", BY_ROOT), {"x": (1, ROWS)},
         {**NORM, **POSITIONS}, 17, frozenset("x")),
    Case("gelu", "erf(x * 0.7071)", ("Gelu",),
         "d = Mul(x, inverse)\ne = Erf(d)\na = Add(e, one)\nh = Mul(x, half)\ny = Mul(h, a)", X, GELU),
    Case("gelu", "x * (0.5 * (1 + erf))", ("Gelu",),
         "d = Div(x, root)\ne = Erf(d)\na = Add(e, one)\nh = Mul(a, half)\ny = Mul(x, h)", X, GELU),
    Case("gelu", "x / 2 + x / 2 * erf", ("Gelu",),
         "d = Div(x, root)\ne = Erf(d)\nh = Mul(x, half)\nt = Mul(h, e)\ny = Add(h, t)", X, GELU),
    Case("gelu", "x * (1 + erf) / 2", ("Gelu",),
         "d = Div(x, root)\ne = Erf(d)\na = Add(e, one)\nh = Mul(x, a)\ny = Div(h, two)", X, GELU),
    Case("bias gelu", "erf(x * 0.7071)", ("BiasGelu",),
         "z = Add(x, b)\nd = Mul(z, inverse)\ne = Erf(d)\na = Add(e, one)\nh = Mul(z, half)\ny = Mul(h, a)", X, GELU),
    Case("gelu by tanh, opset 20", "x ^ 3", ("Gelu",),
         "c = Pow(x, three)\nc2 = Mul(k, c)\ns = Add(x, c2)\nt = Mul(scale, s)\nh = Tanh(t)\na = Add(one, h)\nu = Mul(half, x)\n"
         "y = Mul(u, a)", X, GELU, 20),
    Case("gelu by tanh, opset 20", "x * scale * (1 + k * x * x)", ("Gelu",),
         "c = Mul(x, x)\nc2 = Mul(k, c)\nc3 = Add(c2, one)\ns = Mul(x, scale)\nt = Mul(s, c3)\nh = Tanh(t)\na = Add(one, h)\n"
         "u = Mul(x, a)\ny = Mul(half, u)", X, GELU, 20),
    Case("quick gelu", "x / (1 + exp(-1.702 x))", ("QuickGelu",),
         "m = Mul(x, minus_quick)\ne = Exp(m)\na = Add(e, one)\ny = Div(x, a)", X, GELU),
    Case("silu", "x / (1 + exp(-x))", ("QuickGelu",), "m = Neg(x)\ne = Exp(m)\na = Add(e, one)\ny = Div(x, a)", X, GELU),
    Case("silu", "x * reciprocal(1 + exp(-x))", ("QuickGelu",),
         "m = Neg(x)\ne = Exp(m)\na = Add(e, one)\nr = Reciprocal(a)\ny = Mul(x, r)", X, GELU),
    Case("bias into a product", "x K - b", ("Gemm",), "z = MatMul(x, K)\ny = Sub(z, B)", {"x": (128, 64)}, PRODUCT),
    Case("residual into a product", "u - x K", ("Gemm",), "z = MatMul(x, K)\ny = Sub(u, z)",
         {"x": (128, 64), "u": (128, 256)}, PRODUCT),
    Case("activation into a product", "maximum with 0", ("FusedGemm",), "z = MatMul(x, K)\na = Add(z, B)\ny = Max(a, zero)",
         {"x": (128, 64)}, PRODUCT),
    Case("scale of a product", "a vector of one number", ("FusedMatMul",), "z = MatMul(x, u)\ny = Mul(z, eighth)",
         {"x": (1, 128, 64), "u": (1, 64, 256)}, PRODUCT),
    Case("scale of a product", "negated", ("FusedMatMul",), "z = MatMul(x, u)\ny = Neg(z)",
         {"x": (1, 128, 64), "u": (1, 64, 256)}, PRODUCT),
    Case("attention, opset 23", "scores / 8", ("Attention",), _ATTENTION + "c = Div(s, eight)\np = Softmax<axis=-1>(c)\n"
         "y = MatMul(p, v)", HEADS, PRODUCT, 23),
    Case("attention, opset 23", "q * 0.125", ("Attention",), "l = Mul(q, half)\n" + _ATTENTION.replace("(q, t)", "(l, t)")
         + "p = Softmax<axis=-1>(s)\ny = MatMul(p, v)", HEADS, PRODUCT, 23),
    Case("bias into a convolution", "x * K - c", ("Conv+bias",), _CONV.replace(", B)", ")") + "y = Sub(c, C)", IMAGE, CONV),
    Case("scale into a convolution", "x * K / c", ("Conv+bias",), _CONV + "y = Div(c, C)", IMAGE, CONV),
    Case("convolution and relu", "maximum with 0", ("Conv:Relu",), _CONV + "y = Max(c, zero)", IMAGE, CONV),
    Case("convolution and relu", "where c > 0", ("Conv:Relu",), _CONV + "g = Greater(c, zero)\ny = Where(g, c, zero)", IMAGE, CONV),
    Case("convolution and clip", "minimum and maximum", ("Conv:Clip",), _CONV + "m = Max(c, zero)\ny = Min(m, six)", IMAGE, CONV),
    Case("convolution and leaky relu", "maximum with c / 10", ("Conv:LeakyRelu",), _CONV + "t = Mul(c, tenth)\ny = Max(c, t)",
         IMAGE, CONV),
    Case("convolution and hard sigmoid", "clip(c / 6 + 0.5)", ("Conv:HardSigmoid",),
         _CONV + "m = Mul(c, sixth)\na = Add(m, half)\ny = Clip(a, zero, one)", IMAGE, CONV),
    Case("convolution and hard sigmoid", "relu6(c + 3) / 6", ("Conv:HardSigmoid",),
         _CONV + "a = Add(c, three)\nm = Clip(a, zero, six)\ny = Div(m, six)", IMAGE, CONV),
)  # fmt: skip


def runtime_nodes(model: ModelProto) -> Counter[str]:
    """What ONNX Runtime runs after all its own optimizations, counted by kind."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return Counter(map(_kind, onnx.load(options.optimized_model_filepath).graph.node))


def _kind(node: onnx.NodeProto) -> str:
    for attribute in node.attribute:
        if attribute.name == "activation" and attribute.s and node.op_type.endswith("Conv"):
            return f"Conv:{attribute.s.decode()}"
    return "Conv+bias" if node.op_type == "Conv" and len(node.input) > 2 else node.op_type


def run(case: Case, budget: float, threads: int | None, cache: str | None) -> Row:
    """Optimizes one case. Nodes that only change the layout are not counted."""
    model = case.model()
    before = runtime_nodes(model)
    result = dslc.optimize(model, budget=budget, threads=threads, cache=cache, timing=False)
    after = runtime_nodes(result.model)
    report = result.report
    ratio = Interval(1.0, 1.0, 1.0) if report.kept_original else raced_ratio(model, result.model, threads)

    def wanted(kinds: Counter[str]) -> int:
        return sum(kinds[kind] for kind in case.wanted)

    # where the wanted node is there from the start, the rest must be gone
    fewer = after.total() < before.total()
    found = fewer and wanted(after) > 0 and (wanted(after) > wanted(before) or wanted(after) == _worked(after))
    return Row(
        case.name, case.spelling, found, _shown(before), _shown(after), ratio.ratio, ratio.low, ratio.high,
        report.predicted_ratio or 1.0, ", ".join(dict.fromkeys(step.rule for step in report.steps)),
    )  # fmt: skip


def raced_ratio(before: ModelProto, after: ModelProto, threads: int | None) -> Interval:
    """How many times as fast the second model is, by runs in turn."""
    feeds = drawn_inputs(before, {}, draws=1).feeds[0]
    files = [ModelFile(model.SerializeToString()) for model in (before, after)]
    return raced(files, ["before", "after"], feeds, this_machine(threads).threads, Clock(RACE))[1].ratio


def _worked(kinds: Counter[str]) -> int:
    return sum(count for kind, count in kinds.items() if not kind.startswith("Reorder"))


def _shown(kinds: Counter[str]) -> str:
    kept = [(kind, count) for kind, count in kinds.items() if not kind.startswith("Reorder")]
    return f"{sum(count for _, count in kept)}: " + " ".join(
        kind if count == 1 else f"{count}x{kind}" for kind, count in kept
    )


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table, and how many were found."""
    lines = [HEADER, tuple("---" for _ in HEADER), *(row.cells() for row in rows)]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"{text}\n\n{sum(row.found for row in rows)} of {len(rows)} found."


def _key(case: Case) -> str:
    return f"{case.name}: {case.spelling}"


def _stored() -> dict[str, Any]:
    return json.loads(STORE.read_text("utf-8")) if STORE.is_file() else {}


def _store(rows: Mapping[str, Any]) -> None:
    new = STORE.with_suffix(".new")
    new.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    new.replace(STORE)


def _write(text: str) -> None:
    """Puts the table into the results; what other benchmarks wrote stays."""
    page = RESULTS.read_text("utf-8")
    start = page.find(HEADING)
    if start < 0:
        page, start = page.rstrip() + "\n\n", len(page.rstrip()) + 2
    end = page.find("\n## ", start)
    RESULTS.write_text(page[:start] + text + (page[end:] if end >= 0 else ""), "utf-8")


def main() -> int:
    """The command line; exit code 1 where a fusion was not found."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.fusions", description=(__doc__ or "").splitlines()[0])
    options.add_argument("names", nargs="*", metavar="NAME", help="which fusions (default: all)")
    options.add_argument("--budget", type=float, default=20.0, help="seconds for each case (default 20)")
    options.add_argument("--threads", type=int)
    options.add_argument("--anew", action="store_true", help="also the cases that are in the table")
    options.add_argument("--cache", help="where times and proofs are kept")
    arguments = options.parse_args()
    chosen = [case for case in CASES if not arguments.names or any(name in _key(case) for name in arguments.names)]
    stored = _stored()
    for case in chosen:
        if not arguments.anew and stored.get(_key(case), {}).get("version") == __version__:
            continue
        row = run(case, arguments.budget, arguments.threads, arguments.cache)
        stored[_key(case)] = {**asdict(row), "version": __version__}
        _store(stored)
        print("| " + " | ".join(row.cells()) + " |", flush=True)
    rows = [
        Row(**{key: value for key, value in stored[_key(case)].items() if key != "version"})
        for case in (chosen if arguments.names else CASES)
        if _key(case) in stored
    ]
    text = table(rows)
    print(text)
    if not arguments.names:
        _write(f"{HEADING}\n{machine.describe(arguments.threads)}\n\n{text}\n")
    return 0 if all(row.found for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
