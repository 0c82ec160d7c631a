"""Operators from lowerings, whose calls have iterator tables too (EinNet, section 5.1).

A lowering's `expr` becomes the equation of an operator. Names of coefficients in indices are its attributes, and so are the extents of
iterators that stand alone nowhere; a factor before the sum is 1. The layout of buffers is asked where the call is emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from dslc.derivation.pieces import Unfit
from dslc.ir.graph import Call, Node, Value, Values, rebuild, with_args
from dslc.semantics.definitions import FunctionDef, LoweringDef, OperatorDef
from dslc.semantics.elaborate import expand_node
from dslc.semantics.library import Rules
from dslc.semantics.scopes import ranges_of_reads
from dslc.semantics.walk import nodes
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import CONSTANTS, FUNCTIONS_1

#: what a lowering may ask about memory
_MEMORY = frozenset({"stride", "regular", "dense", "size", "aligned", "bytes"})
#: functions of numbers that a lowering's expression may use
_KNOWN = FUNCTIONS_1 | {"min", "max"}


def with_lowerings(rules: Rules, names: Iterable[str]) -> tuple[Rules, tuple[str, ...]]:
    """The rules with some of their lowerings as operators of the same names, and which became one."""
    found = {name: operator_of(rules.lowerings[name]) for name in names if name not in rules.operators}
    made = {name: op for name, op in found.items() if op}
    return (replace(rules, operators={**rules.operators, **made}), tuple(made)) if made else (rules, ())


def lowerings_on(rules: Rules, devices: Collection[str]) -> tuple[str, ...]:
    """The lowerings of expressions on some devices, by name."""
    return tuple(name for name, one in rules.lowerings.items() if one.syntax.device in devices and one.syntax.expr)


def unlowered(rules: Rules, value: Value, names: Collection[str]) -> Value:
    """A program with what the lowerings of these names compute in the place of their calls."""

    def each(node: Node, args: Values) -> Values:
        return expand_node(rules, node, args) if isinstance(node, Call) and node.op in names else with_args(node, args)

    return rebuild((value,), each)[0]


def operator_of(lowering: LoweringDef, bare: bool = False) -> OperatorDef | None:
    """A lowering's equation as an operator; None where it has unknown terms, or numbers beside a factor of the sum.

    `bare`: numbers are attributes, wherever they stand, and nothing is asked of types and coefficients.
    """
    syntax, equation = lowering.syntax, lowering.syntax.expr
    if not equation or any(param.type is None or param.type.dims is None for param in syntax.params):
        return None
    decls = {param.name: param.type.dims or () for param in syntax.params if param.type}
    for node in t.walk(equation.value):
        function = node.function if isinstance(node, t.Call) and node.function not in _KNOWN else None
        if function is not None and not isinstance(lowering.module.lookup(function), FunctionDef):
            return None
    indices = {node.name: node.star for node in nodes(t.Binder, (equation.target.places, equation.value))}
    known = {*decls, *indices, *CONSTANTS}
    attrs: dict[str, t.TypeExpr] = {}
    for node in nodes(t.Subscript, equation.value):
        if isinstance(node.base, t.Name):
            for at, sub in enumerate(node.subs):
                for part in nodes(t.Name, sub):
                    if _is_number(part, known, lowering):
                        attrs.setdefault(part.id, _type(part, sub, decls.get(node.base.id, ()), at))
    value = equation.value
    if bare:
        for part in nodes(t.Name, value):
            if _is_number(part, {*known, *attrs}, lowering):
                attrs[part.id] = _int(part)
    else:
        taken = {*known, *attrs}
        try:
            value = _with_factors_of_one(
                value, lambda part: isinstance(part, t.Name) and _is_number(part, taken, lowering)
            )
        except Unfit:
            return None
    ranges = ranges_of_reads((equation,), decls)
    extents: dict[str, t.Expr] = {}
    for name, star in indices.items():
        if name not in ranges:
            extents[name] = t.Name(f"size_{name}", span=equation.span)
            packs = list(_packs_with(equation.value, name, decls)) if star else []
            if star and not packs:
                return None
            attrs[f"size_{name}"] = _ints(packs[0]) if star else _int(equation)
    places = tuple(_ranged(place, extents) for place in equation.target.places or ())
    made = replace(equation, target=replace(equation.target, places=places), value=_ranged_sums(value, extents))
    statements: tuple[t.OperatorStatement, ...] = (
        *(t.Attr(name, type, None, span=equation.span) for name, type in attrs.items()),
        *(() if bare else _conditions(syntax)),
        made,
    )
    results = (t.Param(False, equation.target.name, None, None, span=equation.span),)
    whole = t.Operator(syntax.name, syntax.params, results, syntax.doc, statements, span=syntax.span)
    return OperatorDef(lowering.name, whole, lowering.module)


def _is_number(node: t.Name, known: Collection[str], lowering: LoweringDef) -> bool:
    return node.id not in known and node.id[0].islower() and lowering.module.lookup(node.id) is None


def _type(part: t.Name, sub: t.Expr, dims: tuple[t.Expr, ...], at: int) -> t.TypeExpr:
    """A list of numbers where a coefficient stands in the dimensions of a pack."""
    declared = dims[at] if at < len(dims) else None
    if isinstance(sub, t.Pack) and isinstance(declared, t.Pack):
        return _ints(declared.value)
    return _int(part)


def _int(node: t.Node) -> t.TypeExpr:
    return t.TypeExpr("int", None, span=node.span)


def _ints(pack: t.Expr) -> t.TypeExpr:
    """As many numbers as a pack has dimensions."""
    rank = t.Call("rank", (pack,), (), None, span=pack.span)
    return t.TypeExpr("int", (rank,), span=pack.span)


def _packs_with(value: t.Expr, index: str, decls: dict[str, tuple[t.Expr, ...]]) -> Iterator[t.Expr]:
    """The packs of dimensions along which an index moves."""
    for node in nodes(t.Subscript, value):
        if isinstance(node.base, t.Name):
            for sub, dim in zip(node.subs, decls.get(node.base.id, ()), strict=False):
                inside = any(part.bare == index for part in t.walk(sub))
                if inside and isinstance(sub, t.Pack) and isinstance(dim, t.Pack):
                    yield dim.value


def _over_operands(value: t.Expr, each: Callable[[t.Expr], t.Expr]) -> t.Expr:
    """An arithmetic expression of other operands."""
    match value:
        case t.Binary():
            return replace(value, left=each(value.left), right=each(value.right))
        case t.Unary():
            return replace(value, operand=each(value.operand))
        case t.Call():
            return replace(value, args=tuple(map(each, value.args)))
    return value


def _with_factors_of_one(value: t.Expr, is_number: Callable[[t.Expr], bool]) -> t.Expr:
    """The expression without numbers of the caller's that are factors; raises Unfit where another number is."""
    if isinstance(value, t.Binary) and value.op == "*":
        kept = [part for part in (value.left, value.right) if not is_number(part)]
        if len(kept) == 1:
            return _with_factors_of_one(kept[0], is_number)
    if is_number(value):
        raise Unfit("a number beside a factor")
    return _over_operands(value, lambda part: _with_factors_of_one(part, is_number))


def _ranged(place: t.Place, extents: dict[str, t.Expr]) -> t.Place:
    if isinstance(place, t.TuplePlace):
        return replace(place, places=tuple(_with_range(binder, extents) for binder in place.places))
    return _with_range(place, extents)


def _with_range(binder: t.Binder, extents: dict[str, t.Expr]) -> t.Binder:
    return replace(binder, range=extents[binder.name]) if not binder.range and binder.name in extents else binder


def _ranged_sums(value: t.Expr, extents: dict[str, t.Expr]) -> t.Expr:
    if isinstance(value, t.Reduction):
        return replace(value, binders=tuple(_with_range(binder, extents) for binder in value.binders))
    return _over_operands(value, lambda part: _ranged_sums(part, extents))


def _conditions(syntax: t.Lowering) -> Iterator[t.Where]:
    """Conditions on types, ranks and coefficients."""
    computed = {s.target.name for s in syntax.statements if isinstance(s, t.Let)}
    for statement in syntax.statements:
        if isinstance(statement, t.Where):
            kept = tuple(
                condition for condition in statement.conditions
                if not any((isinstance(node, t.Call) and node.function in _MEMORY) or (node.bare in computed)
                           for node in t.walk(condition))
            )  # fmt: skip
            if kept:
                yield replace(statement, conditions=kept)
