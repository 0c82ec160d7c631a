"""From equations to scopes: iterators by position, operands collected, element types inferred."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dslc.ir.dtype import DType
from dslc.ir.element import scalar_dtype
from dslc.ir.graph import Scope, Value, scope_value
from dslc.ir.scalar import Scalar, as_scalar, traversal
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.env import Closure, Env, Mismatch, ScopeBuilder, Thunk, fail
from dslc.semantics.evaluate import MAX_EXPANSIONS, bind_iterators, elements, evaluate, number, operand, spliced
from dslc.semantics.lists import ravel
from dslc.semantics.types import dim
from dslc.semantics.walk import binders_of, dims_of, nodes, pack_name
from dslc.syntax import tree as t

Ranges = dict[str, t.Expr]


# ---- ranges --------------------------------------------------------------------------------------------------


def ranges_of_places(places: tuple[t.Place, ...], declared: tuple[t.Expr, ...] | None) -> Ranges:
    """Ranges of the iterators on the left of an equation: given, or the declared dimension in that place."""
    out: Ranges = {}
    dims = declared if declared is not None and len(declared) == len(places) else (None,) * len(places)
    for place, dimension in zip(places, dims, strict=True):
        binders = binders_of((place,))
        slots: tuple[t.Expr | None, ...] = (dimension,)
        if isinstance(place, t.TuplePlace):
            merged = isinstance(dimension, t.TupleExpr) and len(dimension.slots) == len(binders)
            slots = dimension.slots if merged and isinstance(dimension, t.TupleExpr) else (None,) * len(binders)
        for binder, slot in zip(binders, slots, strict=True):
            _put(out, binder, slot)
    return out


def _put(out: Ranges, binder: t.Binder, dimension: t.Expr | None) -> None:
    if binder.range:
        out[binder.name] = binder.range
    elif binder.star and isinstance(dimension, t.Pack):
        out[binder.name] = dimension.value
    elif not binder.star and dimension and not isinstance(dimension, t.Pack | t.TupleExpr):
        out[binder.name] = dimension


def ranges_of_reads(root: Any, decls: Mapping[str, tuple[t.Expr, ...]]) -> Ranges:
    """Indices that stand alone in a declared dimension of a tensor that is read, or that are given a range somewhere."""
    out: Ranges = {}
    for read in nodes(t.Subscript, root):
        if isinstance(read.base, t.Name) and read.base.id in decls:
            _zip_subs(out, read.subs, decls[read.base.id])
    for binder in nodes(t.Binder, root):
        if binder.range:
            out.setdefault(binder.name, binder.range)
    return out


def _zip_subs(out: Ranges, subs: tuple[t.Expr, ...], dims: tuple[t.Expr, ...]) -> None:
    if len(subs) != len(dims):
        return
    for sub, dimension in zip(subs, dims, strict=True):
        if isinstance(sub, t.Name) and not isinstance(dimension, t.Pack | t.TupleExpr):
            out.setdefault(sub.id, dimension)
        elif isinstance(sub, t.Pack) and isinstance(sub.value, t.Name) and isinstance(dimension, t.Pack):
            out.setdefault(sub.value.id, dimension.value)
        elif isinstance(sub, t.TupleExpr) and isinstance(dimension, t.TupleExpr):
            _zip_subs(out, sub.slots, dimension.slots)


def declared_by_places(places: tuple[t.Place, ...], ranges: Mapping[str, t.Expr]) -> tuple[t.Expr, ...] | None:
    """The dimensions of a `let` scope, so that its readers may leave ranges out."""
    out: list[t.Expr] = []
    for place in places:
        slots = tuple(found for binder in binders_of((place,)) if (found := _slot(binder, ranges)))
        if len(slots) < len(binders_of((place,))):
            return None
        out.append(t.TupleExpr(slots, span=place.span) if isinstance(place, t.TuplePlace) else slots[0])
    return tuple(out)


def _slot(binder: t.Binder, ranges: Mapping[str, t.Expr]) -> t.Expr | None:
    found = binder.range or ranges.get(binder.name)
    if not found:
        return None
    return t.Pack(found, span=found.span) if binder.star else found


# ---- building ------------------------------------------------------------------------------------------------


def build_scope(
    places: tuple[t.Place, ...],
    body: t.Expr,
    where: t.Expr | None,
    env: Env,
    dtype: DType | None,
    declared: tuple[t.Expr, ...] | None = None,
) -> Value:
    """The value of `{[places] body}`: a scope over the tensors that the body reads.

    Raises:
        Unbound, Mismatch, EvalError
    """
    if where:
        raise fail("E0327", "`where` on a traversal has a meaning only in a derivation", where)
    inner = env.child()
    inner.builder = builder = ScopeBuilder()
    inner.depth = 0
    inner.ranges = {**env.ranges, **ranges_of_reads(body, env.decls), **ranges_of_places(places, declared)}
    extents: list[Any] = []
    groups: list[int] = []

    def fresh(size: Any) -> Any:
        here = traversal(len(extents))
        extents.append(size)
        builder.extents[here] = size
        return here

    for place in places:
        counts = [len(bind_iterators(binder, inner, fresh)) for binder in binders_of((place,))]
        groups.extend([sum(counts)] if isinstance(place, t.TuplePlace) else [1] * counts[0])
    value = operand(body, inner)
    if isinstance(value, tuple):
        raise fail("E0326", "a list where one value is expected", body)
    if isinstance(value, str | DType):
        raise fail("E0326", "this is no number", body)
    expression = as_scalar(value)
    operands = tuple(builder.operands)
    if dtype is None:
        dtype = scalar_dtype(expression, tuple(operand.type.dtype for operand in operands))
    merged = None if all(count == 1 for count in groups) else tuple(groups)
    scope = Scope(tuple(dim(extent) for extent in extents), expression, dtype, merged)
    return scope_value(scope, operands)


# ---- reading ---------------------------------------------------------------------------------------------------


def tensor_read(
    value: Value, name: str | None, subs: tuple[t.Expr, ...], other: t.Expr | None, env: Env, expr: t.Expr
) -> Any:
    """An element of a tensor in the body of a scope; `name` is what the tensor is declared by."""
    if not env.builder:
        hint = "a tensor has its places on the left, where there are none too: `let s[] = ...`"
        raise fail("E0327", "an element is read outside an equation", expr, hint=hint)
    index = _index_of(subs, env.decls.get(name or ""), env)
    if len(index) != value.type.rank:
        raise Mismatch(f"{len(index)} subscripts on a tensor of rank {value.type.rank}", expr.span)
    outside = as_scalar(number(operand(other, env), other)) if other else None
    return env.builder.read(value, tuple(as_scalar(i) for i in index), outside)


def _index_of(subs: tuple[t.Expr, ...], declared: tuple[t.Expr, ...] | None, env: Env) -> tuple[Any, ...]:
    """Subscripts as one integer expression per dimension; tuples are ravelled with their radices."""
    out: list[Any] = []
    paired = declared if declared is not None and len(declared) == len(subs) else (None,) * len(subs)
    for sub, place in zip(subs, paired, strict=True):
        if isinstance(sub, t.Pack):
            out.extend(spliced(sub, env))
        elif isinstance(sub, t.TupleExpr):
            out.append(ravel(elements(sub.slots, env), _radices(sub, place, env)))
        else:
            value = operand(sub, env)
            if isinstance(value, tuple):
                raise fail("E0326", "a list where one index is expected", sub, hint="splice it with `*`")
            out.append(value)
    return tuple(out)


def _radices(sub: t.TupleExpr, place: t.Expr | None, env: Env) -> tuple[Any, ...]:
    if isinstance(place, t.TupleExpr):
        return elements(place.slots, env)
    radices: list[Any] = []
    for slot in sub.slots:
        value = evaluate(slot.value if isinstance(slot, t.Pack) else slot, env)
        radices += [_extent_of(one, slot, env) for one in (value if isinstance(value, tuple) else (value,))]
    return tuple(radices)


def _extent_of(index: Any, slot: t.Expr, env: Env) -> Any:
    """The range of an index inside a tuple that is read into an unmerged dimension: its own, or that of `h % P`."""
    builder = env.builder
    if builder and isinstance(index, Scalar) and index in builder.extents:
        return builder.extents[index]
    if isinstance(slot, t.Binary) and slot.op == "%":
        return evaluate(slot.right, env)
    if isinstance(slot, t.Name) and slot.id in env.ranges:
        return evaluate(env.ranges[slot.id], env)
    raise fail("E0316", "nothing says what this index of a merged dimension ranges over", slot)


# ---- operators called on values --------------------------------------------------------------------------------


def inline_operator(op: OperatorDef, args: tuple[Any, ...], env: Env, expr: t.Call) -> Any:
    """A pointwise operator inside an equation: its own equation on the given values.

    Raises:
        EvalError: E0326 where the operator is not pointwise.
    """
    problem = fail("E0326", f"`{op.short}` is not pointwise, so it can't be called on values", expr)
    params = op.params
    outputs = op.outputs
    if len(args) > len(params) or len(outputs) != 1:
        raise problem
    inner = Env(op.module, env.rules)
    inner.builder, inner.depth, inner.calls = env.builder, env.depth, env.calls + 1
    if inner.calls > MAX_EXPANSIONS:
        raise fail("E0317", f"`{op.short}` is expanded without end", expr)
    for k, param in enumerate(params):
        if k < len(args):
            inner.bind(param.name, args[k])
        elif param.default:
            inner.bind(param.name, evaluate(param.default, env))
        else:
            raise problem
        for dimension in dims_of(param.type):
            name = pack_name(dimension)
            if name is None:
                raise problem
            inner.bind(name, ())
    equation: t.Equation | None = None
    for statement in op.statements:
        if isinstance(statement, t.Attr) and statement.default:
            inner.bind(statement.name, _later(statement.default, inner))
        elif isinstance(statement, t.Function):
            inner.bind(statement.name, Closure(statement, inner))
        elif isinstance(statement, t.Let) and statement.target.places is None:
            inner.bind(statement.target.name, _later(statement.value, inner))
        elif isinstance(statement, t.Equation) and statement.target.name == outputs[0].name:
            equation = statement
    if equation is None or equation.target.places is None:
        raise problem
    for place in equation.target.places:
        if not (isinstance(place, t.Binder) and place.star):
            raise problem
        inner.bind(place.name, ())
    return evaluate(equation.value, inner)


def _later(expr: t.Expr, env: Env) -> Thunk:
    return Thunk(lambda: evaluate(expr, env))
