"""Substitutions out: what a rule of the language says in operators of TASO, or why the other formats cannot say it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from dslc.errors import Diagnostic, DslcError, Span
from dslc.foreign.define import definition
from dslc.foreign.rule import ForeignRule, Operator, Output, Parameter, Tensor
from dslc.foreign.shapes import Clash
from dslc.foreign.translate import translations
from dslc.foreign.typing import ACTIVATIONS, CONSTANTS, POINTWISE, POOLS, Unknown
from dslc.prove.verdict import RELIABLE
from dslc.prove.verify import verify_rule
from dslc.semantics.checks.duplicates import canonical
from dslc.semantics.definitions import OperatorDef, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.syntax import tree as t

_MODES = {name or "none": number for number, name in ACTIVATIONS.items()}
_BY_NAME = {f"{place.partition('.')[0]}.{name}": kind for kind, (place, name) in POINTWISE.items()}
_BY_NAME |= {f"taso.{name}": kind for kind, name in (CONSTANTS | POOLS).items()}
_BY_NAME |= {
    "taso.smul": "mul", "taso.matmul": "matmul", "taso.fused_matmul": "matmul", "taso.dense": "linear",
    "taso.transpose": "transpose", "std.transpose": "transpose", "taso.conv": "conv2d", "taso.enlarge": "enlarge",
    "taso.concat": "concat", "taso.split": "split",
}  # fmt: skip
# the size that is written for a kernel of any size; TASO's loader does not read it
_ANY_KERNEL = 3


class Inexpressible(Exception):
    """What the other formats cannot say, and where it stands."""

    def __init__(self, what: str, span: Span | None = None) -> None:
        super().__init__(what)
        self.span = span


def export_rule(rules: Rules, sub: SubstitutionDef) -> tuple[ForeignRule, ...]:
    """The rule, and its reverse where it holds both ways.

    The formats know no guards: what is written is read back, and has to be this rule again or be proved as it stands.

    Raises:
        DslcError: E1002 with what cannot be expressed.
    """
    syntax = sub.syntax
    try:
        if syntax.partial:
            raise Inexpressible("a partial substitution", syntax.span)
        found = [_Reader(sub, syntax.left, syntax.right).rule(sub.syntax.name)]
        if syntax.arrow == "<=>":
            found.append(_Reader(sub, syntax.right, syntax.left).rule(f"{sub.syntax.name}_reversed"))
        for at, rule in enumerate(found):
            _check(rules, sub, rule, at == 1)
    except Inexpressible as problem:
        message = f"`{sub.name}` is not written: {problem}"
        raise DslcError([Diagnostic("E1002", message, problem.span or syntax.span)]) from None
    return tuple(found)


def _check(rules: Rules, sub: SubstitutionDef, rule: ForeignRule, reverse: bool) -> None:
    try:
        readings = [definition(rules, reading) for reading in translations(rule, sub.syntax.name, "")]
    except (Clash, Unknown) as problem:
        raise Inexpressible(f"no sizes fit it there: {problem}") from None
    syntax = sub.syntax
    own = replace(sub, syntax=replace(syntax, left=syntax.right, right=syntax.left) if reverse else syntax)
    own = replace(own, syntax=replace(own.syntax, arrow="=>"))
    if any(canonical(each) == canonical(own) for each in readings):
        return
    if verify_rule(rules, readings[0]).status not in RELIABLE:
        raise Inexpressible("it is not proved without its guards and types, which the format has no place for")


@dataclass
class _Side:
    operators: list[Operator] = field(default_factory=list)
    known: dict[Operator, int] = field(default_factory=dict)
    names: dict[str, Tensor] = field(default_factory=dict)


class _Reader:
    """Statements as operators with numbers."""

    def __init__(self, sub: SubstitutionDef, left: tuple[t.GraphStatement, ...], right: tuple[t.GraphStatement, ...]) -> None:
        self._sub = sub
        self._left, self._right = left, right
        self._inputs: dict[str, int] = {}
        self._ranks: dict[tuple[int, Tensor], int] = {}
        self._given: dict[int, str] = {}
        tags = [name for s in (*left, *right) if isinstance(s, t.Tags) for name in s.names]
        kernels = next((tag[8:] for tag in tags if re.fullmatch(r"kernels(_\d+x\d+)+", tag)), "")
        self._kernels = [tuple(int(n) for n in each.split("x")) for each in kernels.split("_") if each]
        shuffles = next((tag[8:] for tag in tags if re.fullmatch(r"shuffle(_\d+)+", tag)), "")
        self._shuffles = [int(each) for each in shuffles.split("_") if each]

    def rule(self, name: str) -> ForeignRule:
        self._number_inputs()
        source, target = self._side(0, self._left), self._side(1, self._right)
        outputs = tuple(Output(source.names[o], target.names[o]) for o in self._sub.syntax.outputs)
        operators = self._with_kernels([*source.operators, *target.operators])
        at = len(source.operators)
        return ForeignRule(name, tuple(operators[:at]), tuple(operators[at:]), outputs, tuple(self._given.items()))

    def _number_inputs(self) -> None:
        taken: set[int] = set()
        for param in self._sub.syntax.params:
            if param.star or param.default is not None:
                raise Inexpressible("a list of tensors, or a tensor that may be left out", param.span)
            found = re.fullmatch(r"X(\d{1,6})", param.name)
            if found is not None and int(found[1]) > 0 and -int(found[1]) not in taken:
                self._inputs[param.name] = -int(found[1])
                taken.add(-int(found[1]))
        for param in self._sub.syntax.params:
            if param.name not in self._inputs:
                number = min(taken, default=0) - 1
                taken.add(number)
                self._inputs[param.name] = number
                self._given[number] = param.name
            dims = param.type.dims if param.type is not None else None
            if dims is not None and not any(isinstance(dim, t.Pack) for dim in dims):
                for side in (0, 1):
                    self._ranks[side, Tensor(self._inputs[param.name])] = len(dims)

    def _side(self, number: int, statements: tuple[t.GraphStatement, ...]) -> _Side:
        side = _Side(names={name: Tensor(at) for name, at in self._inputs.items()})
        for statement in statements:
            if isinstance(statement, t.Bind):
                value = statement.value
                first = self._expr(number, side, value)
                for at, name in enumerate(statement.names):
                    side.names[name] = replace(first, output=at) if len(statement.names) > 1 else first
                    if (number, first) in self._ranks:
                        self._ranks[number, side.names[name]] = self._ranks[number, first]
            elif not isinstance(statement, t.Where | t.Tags | t.Verify):
                raise Inexpressible(f"a statement of the kind `{statement.span.text.split()[0]}`", statement.span)
        return side

    def _expr(self, number: int, side: _Side, expr: t.Expr) -> Tensor:
        if isinstance(expr, t.Name) and expr.id in side.names:
            return side.names[expr.id]
        if isinstance(expr, t.Field):
            call = self._expr(number, side, expr.call)
            assert isinstance(expr.call, t.Call)
            op = self._sub.module.lookup(expr.call.function)
            names = [param.name for param in op.syntax.outputs] if isinstance(op, OperatorDef) else []
            tensor = replace(call, output=names.index(expr.name) if expr.name in names else 0)
            if (number, call) in self._ranks:
                self._ranks[number, tensor] = self._ranks[number, call]
            return tensor
        if not isinstance(expr, t.Call) or expr.rest is not None:
            raise Inexpressible("something else than operators and tensors", expr.span)
        op = self._sub.module.lookup(expr.function)
        kind = _BY_NAME.get(op.name) if isinstance(op, OperatorDef) else None
        if kind is None or not isinstance(op, OperatorDef):
            raise Inexpressible(f"the operator `{expr.function}`", expr.span)
        inputs = tuple(self._expr(number, side, arg) for arg in expr.args)
        attrs = {k.name: k.value for k in expr.kwargs}
        found = Operator(kind, inputs, tuple(self._parameters(number, kind, op, attrs, inputs, expr)))
        at = side.known.get(found)
        if at is None:
            at = side.known[found] = len(side.operators)
            side.operators.append(found)
        self._rank(number, found, Tensor(at), attrs)
        return Tensor(at)

    def _rank(self, number: int, op: Operator, tensor: Tensor, attrs: dict[str, t.Expr]) -> None:
        fixed = {"conv2d": 4, "enlarge": 4, "constant_iconv": 4, "constant_pool": 4, "constant_imm": 2, **dict.fromkeys(POOLS, 4)}
        shape = attrs.get("shape")
        if op.kind in fixed:
            self._ranks[number, tensor] = fixed[op.kind]
        elif isinstance(shape, t.ListExpr) and not any(isinstance(e, t.Pack) for e in shape.elements):
            self._ranks[number, tensor] = len(shape.elements)
        else:
            known = [self._ranks[number, each] for each in op.inputs if (number, each) in self._ranks]
            if known:
                self._ranks[number, tensor] = known[0]

    def _parameters(
        self, number: int, kind: str, op: OperatorDef, attrs: dict[str, t.Expr], inputs: tuple[Tensor, ...], call: t.Call
    ) -> Iterator[tuple[str, Parameter]]:
        """In the order in which TASO's generator writes them. Kernel sizes follow when all operators are known."""
        if kind in POOLS:
            yield "op_type", 6 if kind == "pool2d_max" else 7
        if kind in {"conv2d", "enlarge", "constant_iconv", "constant_pool", *POOLS}:
            sizes = attrs.get("kernel", attrs.get("size"))
            elements: tuple[t.Expr | None, ...] = sizes.elements if isinstance(sizes, t.ListExpr) else (None, None)
            for key, size in zip(("kernel_h", "kernel_w"), elements, strict=False):
                yield key, size.value if isinstance(size, t.Int) else -1
        if kind in {"conv2d", *POOLS}:
            stride = _integers(attrs.get("stride"), 2, 1, call)
            yield "stride_h", stride[0]
            yield "stride_w", stride[1]
            yield "pad", {"same": 0, "valid": 1}[_word(attrs.get("padding"), ("same", "valid"), "same", call)]
        if kind in {"conv2d", "matmul", "linear", *POOLS}:
            yield "acti", _MODES[_word(attrs.get("activation"), tuple(_MODES), "none", call)]
        if kind in {"concat", "transpose"}:
            rank = next((self._ranks[number, each] for each in inputs if (number, each) in self._ranks), None)
            if op.name == "taso.transpose":
                rank = 2
            if kind == "concat":
                yield "num_inputs", len(inputs)
                yield "axis", _integers(attrs.get("axis"), 1, None, call)[0]
            if rank is None:
                raise Inexpressible("a tensor of any rank: the format wants the rank that an axis belongs to", call.span)
            yield "numdim", rank
            if kind == "transpose":
                order = [1, 0] if op.name == "taso.transpose" else _integers(attrs.get("perm"), rank, None, call)
                value = 0
                for axis in order:
                    value = value * rank + axis
                yield "perm", value
                yield "outshuffle", self._shuffles.pop(0) if self._shuffles else 0
        if kind == "split":
            sizes = attrs.get("sizes")
            yield "num_outputs", len(sizes.elements) if isinstance(sizes, t.ListExpr) else 2
            yield "axis", _integers(attrs.get("axis"), 1, None, call)[0]

    def _with_kernels(self, operators: list[Operator]) -> list[Operator]:
        """The kernel sizes that the rule's tags remember, where the rule leaves them open."""
        wanting = [op for op in operators if op.get("kernel_h") is not None]
        remembered = iter(self._kernels if len(self._kernels) == len(wanting) else [])
        out = []
        for op in operators:
            if op.get("kernel_h") is not None:
                sizes = next(remembered, (_ANY_KERNEL, _ANY_KERNEL))
                values = {"kernel_h": sizes[0], "kernel_w": sizes[1]}
                op = replace(op, parameters=tuple((k, values[k] if k in values and v == -1 else v) for k, v in op.parameters))
            out.append(op)
        return out


def _integers(expr: t.Expr | None, count: int, default: int | None, call: t.Call) -> list[int]:
    if expr is None and default is not None:
        return [default] * count
    values = expr.elements if isinstance(expr, t.ListExpr) else (expr,) * count
    if len(values) != count or not all(isinstance(value, t.Int) for value in values):
        raise Inexpressible("an attribute that is no number", expr.span if expr is not None else call.span)
    return [value.value for value in values if isinstance(value, t.Int)]


def _word(expr: t.Expr | None, words: tuple[str, ...], default: str, call: t.Call) -> str:
    if expr is None:
        return default
    if not isinstance(expr, t.Str) or expr.value not in words:
        raise Inexpressible("an attribute that is no constant", expr.span)
    return expr.value
