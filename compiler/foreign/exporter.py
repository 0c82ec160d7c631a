"""Substitutions in operators of TASO, or the reason for which its format has no form of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from dslc.errors import Diagnostic, DslcError, Span
from dslc.foreign.counterparts import ACTIVATIONS, NORMS, OPEN, PLACES, POOLS, REDUCTIONS
from dslc.foreign.reverses import reverse_of, reversed_rule, reversed_syntax, untagged
from dslc.foreign.rule import KINDS, ForeignRule, Operator, Output, Parameter, RuleTensor
from dslc.foreign.shape_inference import UnknownOperator
from dslc.foreign.shapes import Clash
from dslc.foreign.translation import definition, translations
from dslc.prove.run.verify import verify_rule
from dslc.prove.verdict import RELIABLE
from dslc.semantics.definitions import OperatorDef, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.semantics.walk import tags_in
from dslc.syntax import tree as t

_BY_NAME = {f"{place.partition('.')[0]}.{name}": kind for kind, (place, name) in PLACES.items() if kind in KINDS}
_BY_NAME |= {"taso.fused_matmul": "matmul", "taso.transpose": "transpose"}
# the size that is written for a kernel of any size; TASO's loader does not read it
_ANY_KERNEL = 3


DRAWS = 4  #: draws of instances on which a reading is checked
MOST_INPUTS = 5  #: inputs; a rule with more is not compared with its reverse in every way

# the ranks of results that no operand tells
_RANKS = {
    **dict.fromkeys((*POOLS, "conv2d", "enlarge", "constant_iconv", "constant_pool", "merge_gconv", "batchnorm"), 4),
    **dict.fromkeys(("broadcast_add", "fuse_conv_batchnorm_alpha_var"), 4),
    "constant_imm": 2,
    "fuse_conv_batchnorm_bias": 1,
}


_MODES = {name or "none": number for number, name in ACTIVATIONS.items()}
# the epsilon of a reading where the file names none
_EPSILON = 1e-5


class InexpressibleCall(Exception):
    """A construct that the format has no place for, and where it stands."""

    def __init__(self, what: str, span: Span | None = None) -> None:
        super().__init__(what)
        self.span = span


def export_rule(
    rules: Rules,
    sub: SubstitutionDef,
    wider: list[str] | None = None,
) -> tuple[ForeignRule, ...]:
    """The rule, and its reverse where it holds both ways and is not the same rule up to names.

    The formats know no guards: what is written is read back, and has to be this rule again or be proved as it stands.

    Args:
        wider: gets the names of rules whose operators also fit kernels or groups for which they are wrong.

    Raises:
        DslcError: E1002 with what cannot be expressed.
    """
    syntax, reader = sub.syntax, _Reader(sub)
    try:
        if syntax.partial:
            raise InexpressibleCall("it is a partial substitution", syntax.span)
        rule = reader.rule(syntax.name)
        found = [(rule, reader.inputs)]
        kept = reverse_of(sub)
        if syntax.arrow == "<=>" and kept is not None:
            name, order = kept
            numbers = [reader.inputs[param.name] for param in syntax.params]
            renamed = {number: numbers[at] for number, at in zip(numbers, order, strict=True)}
            inputs = {param: renamed[number] for param, number in reader.inputs.items()}
            found.append((reversed_rule(rule, name, renamed), inputs))
        elif syntax.arrow == "<=>" and not is_own_reverse(rule):
            found.append((reversed_rule(rule, f"{syntax.name}_reversed"), reader.inputs))
        for at, (each, inputs) in enumerate(found):
            # tensors in the order in which a translation of the rule has them
            used = each.inputs()
            places = {name: used.index(number) if number in used else len(used) for name, number in inputs.items()}
            params = tuple(sorted(syntax.params, key=lambda param: places[param.name]))
            forward = replace(sub, syntax=replace(syntax, params=params, arrow="=>"))
            if _check(rules, reversed_syntax(sub, params) if at else forward, each) and wider is not None:
                wider.append(each.name)
    except InexpressibleCall as problem:
        message = f"`{sub.name}` cannot be exported: {problem}"
        raise DslcError([Diagnostic("E1002", message, problem.span or syntax.span)]) from None
    return tuple(each for each, _ in found)


def is_own_reverse(rule: ForeignRule) -> bool:
    """Return whether it says the same from right to left, up to the names of its inputs."""
    inputs = rule.inputs()
    orders = itertools.permutations(inputs) if len(inputs) <= MOST_INPUTS else iter([inputs])
    return any(reversed_rule(rule, rule.name, dict(zip(inputs, order, strict=True))) == rule for order in orders)


def _check(rules: Rules, own: SubstitutionDef, rule: ForeignRule) -> bool:
    """Return whether the rule is a narrow reading of what is written, whose widest reading is wrong.

    Raises:
        InexpressibleCall: no reading is the rule, or proved.
    """
    try:
        readings = [definition(rules, reading) for reading in translations(rule, own.syntax.name, "")]
    except (Clash, UnknownOperator) as problem:
        raise InexpressibleCall(f"no shape satisfies it in this format: {problem}") from None
    same = next((at for at, each in enumerate(readings) if untagged(each) == untagged(own)), None)
    if same is not None:
        # a few draws of sizes, as one may have a single group
        verdicts = (verify_rule(rules, readings[0], ("field",), seed=seed) for seed in range(DRAWS))
        return same > 0 and any(verdict.status == "refuted" for verdict in verdicts)
    if verify_rule(rules, readings[0]).status not in RELIABLE:
        raise InexpressibleCall("it is proved only with its guards and types, which the format cannot store")
    return False


@dataclass
class _Side:
    names: dict[str, RuleTensor]
    ranks: dict[RuleTensor, int]
    operators: dict[Operator, int] = field(default_factory=dict)

    def like(self, tensor: RuleTensor, other: RuleTensor) -> RuleTensor:
        """A tensor that has the rank of another one, where that is known."""
        if other in self.ranks:
            self.ranks[tensor] = self.ranks[other]
        return tensor


class _Reader:
    """Statements as operators with numbers."""

    def __init__(self, sub: SubstitutionDef) -> None:
        self._sub = sub
        self._left, self._right = sub.left, sub.right
        self.inputs: dict[str, int] = {}
        self._ranks: dict[RuleTensor, int] = {}
        self._given: dict[int, str] = {}
        tags = tags_in(sub.syntax.statements)
        kernels = next((tag[8:] for tag in tags if re.fullmatch(r"kernels(_\d+x\d+)+", tag)), "")
        self._kernels = [tuple(map(int, each.split("x"))) for each in kernels.split("_") if each]
        shuffles = next((tag[8:] for tag in tags if re.fullmatch(r"shuffle(_\d+)+", tag)), "")
        self._shuffles = [int(each) for each in shuffles.split("_") if each]

    def rule(self, name: str) -> ForeignRule:
        self._number_inputs()
        source, target = self._side(self._left), self._side(self._right)
        outputs = tuple(Output(source.names[o], target.names[o]) for o in self._sub.syntax.outputs)
        operators = self._with_kernels([*source.operators, *target.operators])
        at = len(source.operators)
        return ForeignRule(name, tuple(operators[:at]), tuple(operators[at:]), outputs, tuple(self._given.items()))

    def _number_inputs(self) -> None:
        taken: set[int] = set()
        for param in self._sub.params:
            if param.star or param.default:
                raise InexpressibleCall("the format has no lists of tensors, and no optional tensors", param.span)
            found = re.fullmatch(r"X(\d{1,6})", param.name)
            if found and int(found[1]) > 0 and -int(found[1]) not in taken:
                self.inputs[param.name] = -int(found[1])
                taken.add(-int(found[1]))
        for param in self._sub.params:
            if param.name not in self.inputs:
                number = min(taken, default=0) - 1
                taken.add(number)
                self.inputs[param.name] = number
                self._given[number] = param.name
            dims = param.type.dims if param.type else None
            if dims is not None and not any(isinstance(dim, t.Pack) for dim in dims):
                self._ranks[RuleTensor(self.inputs[param.name])] = len(dims)

    def _side(self, statements: tuple[t.GraphStatement, ...]) -> _Side:
        side = _Side({name: RuleTensor(at) for name, at in self.inputs.items()}, dict(self._ranks))
        for statement in statements:
            if isinstance(statement, t.Bind):
                first = self._expr(side, statement.value)
                for at, name in enumerate(statement.names):
                    side.names[name] = side.like(
                        replace(first, output=at) if len(statement.names) > 1 else first, first
                    )
            elif not isinstance(statement, t.Where | t.Tags | t.Verify):
                raise InexpressibleCall(
                    f"the format has no statement `{statement.span.text.split()[0]}`", statement.span
                )
        return side

    def _expr(self, side: _Side, expr: t.Expr) -> RuleTensor:
        if isinstance(expr, t.Name) and expr.id in side.names:
            return side.names[expr.id]
        if isinstance(expr, t.Field):
            call = self._expr(side, expr.call)
            assert isinstance(expr.call, t.Call)
            op = self._sub.module.lookup(expr.call.function)
            names = [param.name for param in op.outputs] if isinstance(op, OperatorDef) else []
            return side.like(replace(call, output=names.index(expr.name) if expr.name in names else 0), call)
        if not isinstance(expr, t.Call):
            raise InexpressibleCall("the format has only operators and tensors", expr.span)
        op = self._sub.module.lookup(expr.function)
        kind = _BY_NAME.get(op.name) if isinstance(op, OperatorDef) else None
        if kind is None or not isinstance(op, OperatorDef):
            raise InexpressibleCall(f"TASO has no operator `{expr.function}`", expr.span)
        inputs = tuple(self._expr(side, arg) for arg in expr.args)
        attrs = {k.name: k.value for k in expr.kwargs}
        rank = next((side.ranks[each] for each in inputs if each in side.ranks), None)
        found = Operator(kind, inputs, tuple(parameters(expr, kind, op.name, attrs, rank)))
        if kind == "transpose":
            shuffle = self._shuffles.pop(0) if self._shuffles else 0
            found = replace(found, parameters=(*found.parameters, ("outshuffle", shuffle)))
        result = RuleTensor(side.operators.setdefault(found, len(side.operators)))
        shape = attrs.get("shape")
        if kind in _RANKS:
            side.ranks[result] = _RANKS[kind]
        elif isinstance(shape, t.ListExpr) and not any(isinstance(e, t.Pack) for e in shape.elements):
            side.ranks[result] = len(shape.elements)
        elif kind not in ("squeeze", "unsqueeze", "reshape", *REDUCTIONS):
            alike = inputs[:1] if kind in ("mul", "prelu") else inputs
            side.like(result, next((each for each in alike if each in side.ranks), result))
        return result

    def _with_kernels(self, operators: list[Operator]) -> list[Operator]:
        """The kernel sizes that the rule's tags remember, where the rule leaves them open."""
        wanting = [op for op in operators if op.get("kernel_h") is not None]
        remembered = iter(self._kernels if len(self._kernels) == len(wanting) else [])
        out = []
        for op in operators:
            if op.get("kernel_h") is not None:
                sizes = next(remembered, (_ANY_KERNEL, _ANY_KERNEL))
                values = {"kernel_h": sizes[0], "kernel_w": sizes[1]}
                op = replace(
                    op, parameters=tuple((k, values[k] if k in values and v == -1 else v) for k, v in op.parameters)
                )
            out.append(op)
        return out


def parameters(
    call: t.Call, kind: str, name: str, attrs: Mapping[str, t.Expr], rank: int | None
) -> Iterator[tuple[str, Parameter]]:
    """In the order in which TASO's generator writes them; kernels of any size are -1.

    Args:
        name: the operator's full name in the language.
        rank: of the first operand whose rank is known.

    Raises:
        InexpressibleCall: an attribute has no place in the format, or no number that could stand there.
    """
    if kind == "conv2d" and (call.rest or all(isinstance(attrs.get(key), t.Name) for key in ("stride", "padding"))):
        raise InexpressibleCall("stride and padding are free variables, which only FlexFlow's format allows", call.span)
    if call.rest is not None and (attrs.keys() - {"activation"} or not (kind == "leakyrelu" or kind in OPEN)):
        raise InexpressibleCall("its attributes are free variables, which the format cannot store", call.span)
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
        yield from _of_rank(call, kind, name, attrs, rank)
    elif kind == "split":
        sizes = attrs.get("sizes")
        yield "num_outputs", len(sizes.elements) if isinstance(sizes, t.ListExpr) else 2
        yield "axis", _integers(attrs.get("axis"), 1, None, call)[0]
    elif kind == "merge_gconv":
        yield "merge_gconv_count", _integers(attrs.get("count"), 1, None, call)[0]
    elif kind in ("squeeze", "unsqueeze") or kind in REDUCTIONS:
        yield from _along(call, kind, attrs)
    elif kind == "reshape":
        shape = attrs.get("shape")
        if isinstance(shape, t.ListExpr) and shape.elements and all(isinstance(each, t.Int) for each in shape.elements):
            yield "shape", "_".join(each.span.text for each in shape.elements)
    elif kind in NORMS:
        epsilon = attrs.get("epsilon")
        if not isinstance(epsilon, t.Name | None) and not (isinstance(epsilon, t.Float) and epsilon.value == _EPSILON):
            raise InexpressibleCall("the format has no epsilon", epsilon.span)


def _of_rank(
    call: t.Call, kind: str, name: str, attrs: Mapping[str, t.Expr], rank: int | None
) -> Iterator[tuple[str, Parameter]]:
    if name == "taso.transpose":
        rank = 2
    if kind == "concat":
        yield "num_inputs", len(call.args)
        yield "axis", _integers(attrs.get("axis"), 1, None, call)[0]
    if rank is None:
        raise InexpressibleCall("a tensor has any rank; the format needs the rank that an axis belongs to", call.span)
    yield "numdim", rank
    if kind == "transpose":
        order = [1, 0] if name == "taso.transpose" else _integers(attrs.get("perm"), rank, None, call)
        value = 0
        for axis in order:
            value = value * rank + axis
        yield "perm", value


def _along(call: t.Call, kind: str, attrs: Mapping[str, t.Expr]) -> Iterator[tuple[str, Parameter]]:
    if "last" in attrs:
        raise InexpressibleCall("the format has no attribute `last`", call.span)
    axes = attrs.get("axes", attrs.get("axis"))
    numbers = _integers(axes, len(axes.elements) if isinstance(axes, t.ListExpr) else 1, None, call)
    yield "axes", numbers[0] if len(numbers) == 1 else "_".join(map(str, numbers))
    if kind in REDUCTIONS:
        keep = attrs.get("keepdims")
        if keep and not (isinstance(keep, t.Name) and keep.id in ("true", "false")):
            raise InexpressibleCall("an attribute is not a constant", keep.span)
        yield "keep_dims", int(not (isinstance(keep, t.Name) and keep.id == "false"))


def _integers(expr: t.Expr | None, count: int, default: int | None, call: t.Call) -> list[int]:
    if expr is None and default is not None:
        return [default] * count
    values = expr.elements if isinstance(expr, t.ListExpr) else (expr,) * count
    if len(values) != count or not all(isinstance(value, t.Int) for value in values):
        raise InexpressibleCall("an attribute is not a number", expr.span if expr else call.span)
    return [value.value for value in values if isinstance(value, t.Int)]


def _word(expr: t.Expr | None, words: tuple[str, ...], default: str, call: t.Call) -> str:
    if not expr:
        return default
    if not isinstance(expr, t.Str) or expr.value not in words:
        raise InexpressibleCall("an attribute is not a constant", expr.span)
    return expr.value
