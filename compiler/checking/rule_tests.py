"""Running what a `.rules` file says of itself: examples, tests, and every law and substitution at random sizes.

In a test, `given A: f32[2, 3]` is an input of random normal numbers (integers from 0 to 3, booleans); `given A = e` is a constant.
In expressions of a test these generators stand for seeded constants, where the file has no operator of that name:

| generator                  | constant                                              |
|----------------------------|-------------------------------------------------------|
| `randn(sizes...)`          | f32, normal                                           |
| `rand(sizes...)`           | f32, uniform in [0, 1)                                |
| `randint(lo, hi, sizes...)`| int64, lo <= x < hi                                   |
| `zeros(sizes...)`          | f32                                                   |
| `ones(sizes...)`           | f32                                                   |
| `iota(sizes...)`           | int64, 0, 1, 2, ... in row-major order                |

`onnx.Name(tensors..., attribute=value)` is the operator of ONNX, run by ONNX Runtime at the newest opset that it supports; a
keyword may also name an input. A list where an operator takes a tensor is one of int64, f32 or bool. `==` compares exactly in
the declared element type, `~=` up to 1e-5 of the largest element.
"""

from __future__ import annotations

import functools
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from onnx import ModelProto, defs, helper

from dslc.checking.rule_application import derives, fires
from dslc.errors import Diagnostic, DslcError, Span, error
from dslc.interpret import Floats, InterpretError, Redraw, run
from dslc.interpret.check_rule import CaseOutcome, check_law, check_substitution, difference, draw
from dslc.interpret.domain import Array
from dslc.ir.constants import FROM_NUMPY, NUMPY, array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Value, input_value
from dslc.onnx import runtime
from dslc.onnx.microbenchmarks import empty_model
from dslc.records import record
from dslc.semantics.checks.substitutions import errors_of
from dslc.semantics.composites import spelled_out
from dslc.semantics.definitions import Module, OperatorDef, SubstitutionDef, TestDef
from dslc.semantics.env import Env, Mismatch, Outputs, Unbound
from dslc.semantics.evaluate import evaluate, truth
from dslc.semantics.library import Rules
from dslc.semantics.types import shape_of
from dslc.syntax import tree as t

CLOSE = 1e-5  #: share by which equal numbers differ

Generator = Callable[..., Array]


#: claims that `dslc test` and the plugin for pytest run
Kind = Literal["example", "property", "substitution", "test"]


@record
class StatedCase:
    """One thing that a file says of itself, and where it is written. Of an operator's examples `number` counts them, from 1."""

    name: str
    kind: Kind
    number: int
    span: Span
    check: Callable[[], CaseOutcome]

    def run(self) -> CaseOutcome:
        """Runs the check; what cannot be computed fails, and the others still run."""
        start = time.perf_counter()
        try:
            found = self.check()
        except DslcError as problem:
            found = _outcome(self.name, "failed", list(problem.diagnostics))
        except (ArithmeticError, RecursionError, MemoryError) as problem:
            found = _outcome(self.name, "failed", [Diagnostic("E0504", f"`{self.name}` cannot be computed: {problem}")])
        return replace(found, seconds=time.perf_counter() - start)


def run_tests(
    rules: Rules,
    only: Collection[str] | None = None,
    modules: Collection[Module] | None = None,
    seed: int = 0,
    trials: int = 3,
) -> list[CaseOutcome]:
    """Runs every example, test, law and substitution of some modules (all, where none are given), in the order of the files.

    The examples of one operator are one outcome.

    Args:
        only: names or patterns (`std.conv*`, `conv`) of what to run.
        trials: random instances of each law and substitution; 0 leaves them out.
    """
    out: list[CaseOutcome] = []
    for case in cases(rules, modules, seed, trials):
        parts = (case.name, case.name.rpartition(".")[2])
        if only is None or any(fnmatchcase(part, pattern) for pattern in only for part in parts):
            found = case.run()
            if case.number > 1:
                # of the examples of one operator the status is that of the first that failed
                first = out.pop()
                found = replace(
                    first, passed=first.passed and found.passed, status=found.status if first.passed else first.status,
                    diagnostics=(*first.diagnostics, *found.diagnostics), seconds=first.seconds + found.seconds,
                )  # fmt: skip
            out.append(found)
    return out


def parts_of(file: t.File, trials: int = 3) -> Iterator[tuple[t.Item | t.Example, Kind, str, int]]:
    """Claims of a file, before anything of it is understood: the piece of text, its kind, its short name and number."""
    for item in file.items:
        if isinstance(item, t.Operator):
            examples = [s for s in item.statements if isinstance(s, t.Example)]
            yield from ((example, "example", item.name, number) for number, example in enumerate(examples, 1))
        elif isinstance(item, t.Property | t.Substitution) and trials:
            yield item, "property" if isinstance(item, t.Property) else "substitution", item.name, 1
    yield from ((item, "test", item.name, 1) for item in file.items if isinstance(item, t.Test))


def cases(
    rules: Rules, modules: Collection[Module] | None = None, seed: int = 0, trials: int = 3
) -> Iterator[StatedCase]:
    """Claims of some modules (all, where none are given): as `parts_of`, ready to run; tests come after all others."""
    chosen = [module for module in rules.modules if modules is None or module in modules]
    for module in chosen:
        for item, kind, short, number in parts_of(module.file, trials):
            name = f"{module.library}.{short}"
            check: Callable[[], CaseOutcome]
            if isinstance(item, t.Example):
                check = functools.partial(_example, rules, module, name, item)
            elif kind == "property":
                check = functools.partial(check_law, rules, rules.laws[name], seed, trials)
            elif kind == "substitution":
                check = functools.partial(_substitution, rules, rules.substitutions[name], seed, trials)
            else:
                continue
            yield StatedCase(name, kind, number, item.span, check)
    for test in rules.tests:
        if test.module in chosen:
            yield StatedCase(test.name, "test", 1, test.span, functools.partial(_test, rules, test))


def _outcome(name: str, kind: str, findings: list[Diagnostic]) -> CaseOutcome:
    return CaseOutcome(name, not findings, kind, tuple(findings))


def _substitution(rules: Rules, sub: SubstitutionDef, seed: int, trials: int) -> CaseOutcome:
    """Findings of `dslc check` about a substitution; else its sides at random sizes."""
    wrong = errors_of(rules, sub)
    return _outcome(sub.name, "uninstantiated", wrong) if wrong else check_substitution(rules, sub, seed, trials)


def _example(rules: Rules, module: Module, name: str, example: t.Example) -> CaseOutcome:
    return _outcome(name, "example", _Expectation(rules, module, name).check(example.value, "E0503", "example"))


def _test(rules: Rules, test: TestDef) -> CaseOutcome:
    findings: list[Diagnostic] = []
    runner = _Expectation(rules, test.module, test.name)
    for statement in test.syntax.statements:
        try:
            if isinstance(statement, t.Given):
                runner.give(statement)
            elif isinstance(statement, t.Expect):
                findings.extend(runner.check(statement.value, "E0504", "expectation"))
            elif isinstance(statement, t.Fires):
                findings.extend(fires(rules, test, statement, _graph_of(rules, test, statement.binds, runner)))
            elif isinstance(statement, t.Derives):
                sides = (_graph_of(rules, test, side, runner) for side in (statement.left, statement.right))
                findings.extend(derives(rules, test, statement, *sides))
            else:
                for condition in statement.conditions:
                    findings.extend(runner.check(condition, "E0504", "condition"))
        except (Mismatch, Unbound, DslcError, InterpretError) as problem:
            findings.extend(_problem(problem, statement.span, "E0504"))
    return _outcome(test.name, "test", findings)


def _problem(problem: Exception, span: Span, code: str) -> list[Diagnostic]:
    """The reason why an expression has no value, as a finding at its place."""
    if isinstance(problem, DslcError) and problem.diagnostics:
        return [d if d.span else replace(d, span=span) for d in problem.diagnostics]
    if isinstance(problem, Mismatch):
        return [Diagnostic("E0306", problem.reason, problem.span or span, hint=problem.hint)]
    if isinstance(problem, Unbound):
        return [Diagnostic("E0201", f"nothing is named `{problem.name}` here", problem.span or span)]
    return [Diagnostic(code, str(problem), span)]


# ---- expectations ------------------------------------------------------------------------------------------------


class _Expectation:
    """The names of one test, and its expressions with generators, lists and ONNX's operators replaced by constants."""

    def __init__(self, rules: Rules, module: Module, name: str) -> None:
        self.rules = rules
        self.env = Env(module, rules)
        self.feeds: dict[Value, Any] = {}
        self.inputs: list[Value] = []
        self._rng = np.random.default_rng(zlib.crc32(name.encode()))
        self._count = 0
        self._wanted = 1

    def give(self, statement: t.Given) -> None:
        for item in statement.items:
            if item.type:
                value = input_value(item.name, shape_of(item.type, self.env))
                self.inputs.append(value)
                array = draw(value.type, Floats(), self._rng)
                self.feeds[value] = array.astype(np.float32) if value.type.dtype is DType.F32 else array
                self.env.bind(item.name, value)
            elif item.value:
                self.env.bind(item.name, self.value(item.value))

    def value(self, expr: t.Expr) -> Any:
        return evaluate(self._plain(expr), self.env)

    def arrays(self, values: list[Value]) -> list[Array]:
        return run(self.rules, values, self.feeds, Floats())

    def check(self, expr: t.Expr, code: str, what: str) -> list[Diagnostic]:
        """Findings where a condition does not hold."""
        try:
            if isinstance(expr, t.Compare) and len(expr.ops) == 1 and expr.ops[0] in {"==", "~="}:
                left = self.value(expr.operands[0])
                self._wanted = len(_parts(left))
                right = self.value(expr.operands[1])
                if isinstance(left, Value | Outputs) or isinstance(right, Value | Outputs):
                    found = self._compare(left, right, 0.0 if expr.ops[0] == "==" else CLOSE)
                else:
                    holds = _same(left, right, expr.ops[0] == "~=")
                    found = None if holds else f"{_text(left)} on the left, {_text(right)} on the right"
            else:
                value = self.value(expr)
                if isinstance(value, Value):
                    value = bool(self.arrays([value])[0].all())
                found = None if truth(value) is True else "it is false"
        except (Mismatch, Unbound, DslcError, InterpretError, Redraw) as problem:
            return _problem(problem, expr.span, code)
        if found is None:
            return []
        return [Diagnostic(code, f"this {what} does not hold", expr.span, counterexample=found)]

    def _compare(self, left: Any, right: Any, tolerance: float) -> str | None:
        lefts, rights = _parts(left), _parts(right)
        if len(lefts) != len(rights):
            return f"{len(lefts)} results on the left, {len(rights)} on the right"
        values = [part for part in (*lefts, *rights) if isinstance(part, Value)]
        known = dict(zip(values, self.arrays(values), strict=True))
        for a, b in zip(lefts, rights, strict=True):
            x = known[a] if isinstance(a, Value) else _literal(a, known.get(b))
            y = known[b] if isinstance(b, Value) else _literal(b, x)
            found = _difference(x, y, tolerance)
            if found is not None:
                small = ((value, array) for value, array in self.feeds.items() if array.size <= 16)
                lines = (f"{getattr(value.node, 'name', '')} = {_text(array)}" for value, array in small)
                return "\n".join([found, *lines])
        return None

    # ---- generators, lists, ONNX ---------------------------------------------------------------------------

    def _plain(self, node: Any) -> Any:
        """The expression with everything that only a test knows bound to fresh names."""
        if isinstance(node, tuple):
            return tuple(self._plain(part) for part in node)
        if not isinstance(node, t.Node):
            return node
        if isinstance(node, t.Call) and node.function.startswith("onnx."):
            return self._named(self._onnx(node), node.span)
        if isinstance(node, t.Call) and node.function in _GENERATORS and not self._defined(node.function):
            args = [int(evaluate(arg, self.env)) for arg in node.args]
            return self._named(array_value(_GENERATORS[node.function](self._rng, *args)), node.span)
        changed = {f.name: self._plain(getattr(node, f.name)) for f in fields(node) if f.name not in {"span", "source"}}
        if isinstance(node, t.Call) and self._defined(node.function):
            changed["args"] = tuple(
                self._named(array_value(_array(evaluate(arg, self.env))), arg.span)
                if isinstance(arg, t.ListExpr)
                else arg
                for arg in changed["args"]
            )
        return replace(node, **changed)

    def _defined(self, name: str) -> bool:
        return isinstance(self.env.module.lookup(name), OperatorDef)

    def _named(self, value: Any, span: Span) -> t.Name:
        self._count += 1
        name = f"given {self._count}"  # no name of the language has a space
        self.env.bind(name, value)
        return t.Name(name, span=span)

    def _onnx(self, call: t.Call) -> Value | Outputs:
        args = [self.value(arg) for arg in call.args]
        attrs = {keyword.name: _attribute(evaluate(keyword.value, self.env)) for keyword in call.kwargs}
        values = [arg for arg in args if isinstance(arg, Value)]
        known = dict(zip(values, self.arrays(values), strict=True))
        arrays = [known[arg] if isinstance(arg, Value) else _array(arg) for arg in args]
        results = onnx_results(call.function.removeprefix("onnx."), arrays, attrs, self._wanted, call.span)
        constants = tuple(array_value(result) for result in results)
        names = tuple(f"_{k}" for k in range(len(constants)))
        return constants[0] if len(constants) == 1 else Outputs(constants, names)


def _sized(make: Callable[[np.random.Generator, tuple[int, ...]], Array]) -> Generator:
    return lambda rng, *sizes: make(rng, sizes)


_GENERATORS: dict[str, Generator] = {
    "randn": _sized(lambda rng, sizes: rng.standard_normal(sizes).astype(np.float32)),
    "rand": _sized(lambda rng, sizes: rng.random(sizes).astype(np.float32)),
    "randint": lambda rng, low, high, *sizes: rng.integers(low, high, sizes),
    "zeros": _sized(lambda rng, sizes: np.zeros(sizes, np.float32)),
    "ones": _sized(lambda rng, sizes: np.ones(sizes, np.float32)),
    "iota": _sized(lambda rng, sizes: np.arange(int(np.prod(sizes))).reshape(sizes)),
}


def _parts(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Outputs) else (value,)


def _numbers(value: Any) -> Any:
    """Nested tuples of numbers as nested lists that numpy takes."""
    if isinstance(value, tuple):
        return [_numbers(item) for item in value]
    return float(value) if isinstance(value, Fraction) else value


def _numeric(value: Any, dtype: type[np.float64] | None = None) -> Array:
    """A number or a list of lists of them.

    Raises:
        Mismatch: rows of different lengths, text, or integers of more than 64 bits.
    """
    try:
        array = np.asarray(_numbers(value), dtype=dtype)
    except (ValueError, TypeError):
        raise Mismatch("rows of different lengths are no tensor") from None
    if array.dtype.kind not in "bif":
        raise Mismatch("an integer does not fit 64 bits" if array.dtype.kind in "Ou" else "text is no tensor")
    return array


def _array(value: Any) -> Array:
    """A list of the language as a tensor: bool, int64 or f32."""
    array = _numeric(value)
    with np.errstate(over="ignore"):
        return array.astype(np.float32) if array.dtype.kind == "f" else array


def _literal(value: Any, like: Array | None) -> Array:
    array = _numeric(value)
    with np.errstate(over="ignore"):
        return array if like is None else array.astype(like.dtype)


def _same(left: Any, right: Any, close: bool) -> bool:
    if not close:
        return bool(left == right)
    a, b = _numeric(left, np.float64), _numeric(right, np.float64)
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=CLOSE))


def _difference(a: Array, b: Array, tolerance: float) -> str | None:
    if a.dtype != b.dtype:
        return f"the element types {a.dtype} and {b.dtype} differ"
    exact = a.shape == b.shape and tolerance == 0 and a.dtype.kind in "fV"
    return difference(TensorType(FROM_NUMPY[a.dtype], a.shape), a, b, _Exactly() if exact else Floats(), tolerance)


class _Exactly(Floats):
    def close(self, a: Array, b: Array, tolerance: float) -> Array:
        return np.asarray((a == b) | ((a != a) & (b != b)))


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return np.array2string(value, separator=", ", threshold=20)
    return str(_numbers(value))


# ---- ONNX's own operators ----------------------------------------------------------------------------------------


def _attribute(value: Any) -> Any:
    """An attribute of an ONNX node as the onnx package takes it."""
    value = _numbers(value)
    if isinstance(value, DType):
        return int(helper.np_dtype_to_tensor_dtype(NUMPY[value]))
    return int(value) if isinstance(value, bool) else value


@functools.cache
def newest_opset() -> int:
    """The newest opset that both the onnx package and ONNX Runtime support."""
    model = ModelProto.FromString(empty_model())
    for opset in range(defs.onnx_opset_version(), 7, -1):
        model.opset_import[0].version = opset
        try:
            runtime.session(model, threads=1)
        except DslcError:
            continue
        return opset
    return 7


def onnx_results(op: str, inputs: list[Array], attrs: dict[str, Any], wanted: int, span: Span) -> list[Array]:
    """The outputs of one ONNX node, computed by ONNX Runtime: `wanted` ones, as far as the operator may have so many.

    Raises:
        DslcError: where there is no such operator or it does not take these inputs.
    """
    opset, attrs = newest_opset(), dict(attrs)
    domain, _, name = op.rpartition(".")
    schema: Any = None
    try:
        schema = defs.get_schema(name, opset, domain)  # other domains have none here
        least, most = max(1, schema.min_output), max(1, schema.max_output)
    except defs.SchemaError:
        if not domain:
            raise error("E0201", f"ONNX has no operator `{name}` in opset {opset}", span) from None
        least, most = 1, wanted
    given: list[Array | None] = list(inputs)
    for position, formal in enumerate(schema.inputs if schema is not None else ()):
        if formal.name in attrs and formal.name not in schema.attributes:
            given.extend([None] * (position + 1 - len(given)))
            given[position] = _array(attrs.pop(formal.name))
    names = [f"x{k}" if array is not None else "" for k, array in enumerate(given)]
    feeds = {name: array for name, array in zip(names, given, strict=True) if array is not None}
    results = [f"y{k}" for k in range(min(max(wanted, least), most))]
    node = helper.make_node(name, names, results, domain=domain, **attrs)
    graph = helper.make_graph(
        [node],
        "test",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()],
        [helper.make_empty_tensor_value_info(n) for n in results],
    )
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return runtime.run(helper.make_model(graph, opset_imports=imports, ir_version=10), feeds, results)


# ---- fires and silent --------------------------------------------------------------------------------------------


def fired_graphs(rules: Rules, test: TestDef) -> Iterator[Graph]:
    """The graphs that a test says its substitution fires on; those that have no value are left out."""
    runner = _Expectation(rules, test.module, test.name)
    for statement in test.syntax.statements:
        try:
            if isinstance(statement, t.Given):
                runner.give(statement)
            elif isinstance(statement, t.Fires) and not statement.silent:
                yield _graph_of(rules, test, statement.binds, runner)
        except (Mismatch, Unbound, DslcError, InterpretError):
            continue


def _graph_of(rules: Rules, test: TestDef, binds: Sequence[t.Bind], runner: _Expectation) -> Graph:
    """The graph of a `fires` or `silent`, or a side of a `derives`. Raises DslcError where its names are too many or too few."""
    inner = _Expectation(rules, test.module, test.name)
    inner.feeds, inner.env = dict(runner.feeds), runner.env.child()
    values: list[Value] = []
    for bind in binds:
        parts = _parts(inner.value(bind.value))
        if len(parts) != len(bind.names):
            raise error("E0325", f"{len(bind.names)} names for {len(parts)} results", bind.span)
        for name, part in zip(bind.names, parts, strict=True):
            inner.env.bind(name, part)
            if isinstance(part, Value):
                values.append(part)
    # patterns see through operators that only abbreviate, and no model holds them
    return Graph(tuple(runner.inputs), spelled_out(rules, tuple(values)))
