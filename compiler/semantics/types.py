"""Solving types: from the types of arguments to sizes, packs and element types (language.md, semantics 1 and 15)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from dslc.ir.dtype import DTYPES, Dim, DType, TensorType
from dslc.ir.graph import product
from dslc.ir.scalar import Num, Scalar, as_scalar
from dslc.semantics.assuming import holds
from dslc.semantics.env import Env, EvalError, Mismatch, MismatchKind, Unbound, unbound
from dslc.semantics.evaluate import evaluate, spliced, truth
from dslc.semantics.lists import arithmetic, plain, same
from dslc.semantics.walk import pack_name
from dslc.syntax import tree as t

Pair = tuple[t.TypeExpr, TensorType]


def dim(value: Any) -> Dim:
    """A value as a size.

    Raises:
        Mismatch: where it is negative or no integer.
    """
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int | Scalar):
        raise Mismatch(f"{value} is no size")
    if isinstance(value, int) and value < 0:
        raise Mismatch(f"a size of {value}")
    return value


def solve(pairs: Sequence[Pair], conditions: Sequence[t.Expr], env: Env) -> None:
    """Binds what the types and the equations among the conditions determine, then checks that everything fits.

    Raises:
        Mismatch: types, sizes or conditions that do not fit, or names that stay unknown.
    """
    for pattern, actual in pairs:
        _bind_dtype(pattern.name, actual.dtype, env)
    open_pairs = list(pairs)
    open_conditions = list(conditions)
    progress = True
    while progress and (open_pairs or open_conditions):
        known = len(env.values)
        progress = False
        for pair in list(open_pairs):
            if _match_dims(pair[0].dims or (), pair[1].shape, env):
                open_pairs.remove(pair)
                progress = True
        for condition in list(open_conditions):
            state = _try_condition(condition, env)
            if state:
                progress = True
            if state == "done":
                open_conditions.remove(condition)
        # a type that is not solved yet may have bound some of its sizes
        progress = progress or len(env.values) > known
    for pattern, actual in open_pairs:
        raise Mismatch(f"the sizes of {actual} do not determine {pattern.span.text}", pattern.span)
    for condition in open_conditions:
        try:
            evaluate(condition, env)
        except Unbound as unknown:
            raise unbound(unknown, condition.span) from None


def _bind_dtype(name: str, dtype: DType, env: Env) -> None:
    if name in DTYPES:
        if DTYPES[name] is not dtype:
            raise Mismatch(f"{dtype} where {name} is expected")
    elif not env.has(name):
        env.bind(name, dtype)
    elif env.get(name) is not dtype:
        raise Mismatch(f"{dtype} and {env.get(name)} where both are `{name}`")


def _known(expr: t.Expr, env: Env) -> Any:
    """The value of an expression, or None where a name in it is not bound yet."""
    try:
        return evaluate(expr, env)
    except Unbound:
        return None


def _width(element: t.Expr, env: Env) -> int | None:
    if not isinstance(element, t.Pack):
        return 1
    value = _known(element.value, env)
    if value is not None:
        return len(value)
    name = pack_name(element)
    return env.ranks.get(name) if name is not None else None


def _match_dims(dims: tuple[t.Expr, ...], shape: tuple[Dim, ...], env: Env) -> bool:
    """Matches declared dimensions with actual sizes; False where too little is known yet."""
    found = [_width(element, env) for element in dims]
    known = sum(width or 0 for width in found)
    if None in found:
        if known > len(shape):
            raise Mismatch(f"rank {len(shape)} is too small")
        if found.count(None) > 1:
            return False
    elif known != len(shape):
        raise Mismatch(f"rank {len(shape)} where {known} is expected")
    done, rest = True, iter(shape)
    for element, width in zip(dims, found, strict=True):
        part = tuple(islice(rest, len(shape) - known if width is None else width))
        if isinstance(element, t.Pack):
            name = pack_name(element)
            if name is not None and not env.has(name):
                env.bind(name, part)
                env.ranks.setdefault(name, len(part))
            else:
                value = _known(element.value, env)
                if value is None:
                    done = False
                elif not holds(same(value, part), env.rules.assuming):
                    raise Mismatch(f"sizes {_sizes(part)} where {_sizes(value)} are expected")
        elif not _match_dim(element, part[0], env):
            done = False
    return done


def _sizes(values: Any) -> str:
    return "[" + ", ".join(str(v) for v in values) + "]"


def _match_dim(element: t.Expr, size: Dim, env: Env) -> bool:
    if isinstance(element, t.Name) and not env.has(element.id):
        env.bind(element.id, size)
        return True
    if isinstance(element, t.TupleExpr):
        return _match_tuple(element, size, env)
    value = _known(element, env)
    if value is None:
        return _solve_linear(element, size, env)
    _require(value, size, env)
    return True


def _require(value: Any, size: Dim, env: Env) -> None:
    if not holds(same(value, size), env.rules.assuming):
        raise Mismatch(f"size {size} where {value} is expected")


def _match_tuple(element: t.TupleExpr, size: Dim, env: Env) -> bool:
    open_slots: list[t.Expr] = []
    known: list[Dim] = []
    for slot in element.slots:
        inner = slot.value if isinstance(slot, t.Pack) else slot
        value = _known(inner, env)
        if value is None:
            open_slots.append(slot)
        elif isinstance(value, tuple):
            known.extend(value)
        else:
            known.append(dim(value))
    total = product(known)
    if not open_slots:
        _require(total, size, env)
        return True
    slot = open_slots[0]
    if len(open_slots) > 1 or not isinstance(slot, t.Name):
        return False
    quotient: Any
    if isinstance(size, int) and isinstance(total, int):
        if total == 0 or size % total:
            raise Mismatch(f"size {size} is no multiple of {total}")
        quotient = size // total
    elif total == 1:
        quotient = size
    elif env.rules.assuming:
        quotient = plain(env.rules.assuming.quotient(as_scalar(size), as_scalar(total)))
    else:
        quotient = arithmetic("//", size, total)
        if same(arithmetic("*", quotient, total), size) is not True:
            raise Mismatch(f"size {size} is not known to be a multiple of {total}")
    env.bind(slot.id, quotient)
    return True


def _names(expr: t.Expr) -> set[str]:
    if isinstance(expr, t.Name):
        return {expr.id}
    if isinstance(expr, t.Binary):
        return _names(expr.left) | _names(expr.right)
    if isinstance(expr, t.Unary):
        return _names(expr.operand)
    return set()


def _solve_linear(element: t.Expr, size: Dim, env: Env) -> bool:
    """`2 * W + 1` against a size: one unknown, by two evaluations."""
    unknown = [name for name in sorted(_names(element)) if not env.has(name)]
    if len(unknown) != 1:
        return False
    trials = []
    for number in (0, 1):
        trial = env.child()
        trial.bind(unknown[0], number)
        trials.append(_known(element, trial))
    base, step = trials
    if base is None or step is None:
        return False
    slope = plain(arithmetic("-", step, base))
    rest = arithmetic("-", size, base)
    if not isinstance(slope, int) or slope == 0:
        return False
    if isinstance(rest, Scalar) and abs(slope) != 1 and env.rules.assuming:
        env.bind(unknown[0], plain(env.rules.assuming.quotient(rest, as_scalar(slope))))
        return True
    value = arithmetic("//", rest, slope)
    if same(arithmetic("*", value, slope), rest) is not True or (isinstance(value, int) and value < 0):
        raise Mismatch(f"size {size} does not fit {element.span.text}")
    env.bind(unknown[0], value)
    return True


def _try_condition(condition: t.Expr, env: Env) -> str:
    """'done' where the condition holds, 'bound' where it bound a name, '' where too little is known."""
    if condition.equated:
        left, right = condition.equated
        if bind_equal(left, right, env) or bind_equal(right, left, env):
            return "bound"
    try:
        value = truth(evaluate(condition, env))
    except Unbound:
        return ""
    if not holds(value, env.rules.assuming):
        raise Mismatch(f"`{condition.span.text}` does not hold", condition.span, MismatchKind.GUARD)
    return "done"


def bind_equal(target: t.Expr, source: t.Expr, env: Env) -> bool:
    """Binds `name`, `rank(pack)` or `[name, ...]` to the value of an expression; False where that is not possible (yet)."""
    if isinstance(target, t.Name) and "." not in target.id and not env.has(target.id):
        value = _known(source, env)
        if value is None or (isinstance(value, Num)):
            return False
        env.bind(target.id, value)
        if isinstance(value, tuple):
            env.ranks.setdefault(target.id, len(value))
        return True
    if isinstance(target, t.Call) and target.function in {"rank", "len"} and len(target.args) == 1:
        inner = target.args[0]
        if isinstance(inner, t.Name) and not env.has(inner.id) and inner.id not in env.ranks:
            value = _known(source, env)
            if not isinstance(value, int):
                return False
            if value < 0:
                raise Mismatch(f"a rank of {value}")
            env.ranks[inner.id] = value
            return True
    if isinstance(target, t.ListExpr) and any(isinstance(e, t.Name) and not env.has(e.id) for e in target.elements):
        value = _known(source, env)
        if not isinstance(value, tuple):
            return False
        if len(value) != len(target.elements):
            raise Mismatch(f"a list of {len(value)} where {len(target.elements)} are expected", target.span)
        for element, part in zip(target.elements, value, strict=True):
            if isinstance(element, t.Name) and not env.has(element.id):
                env.bind(element.id, part)
        return True
    return False


def shape_of(type: t.TypeExpr, env: Env) -> TensorType:
    """The tensor type that a declared type stands for, once its names are bound.

    Raises:
        Unbound, Mismatch
    """
    dtype = DTYPES[type.name] if type.name in DTYPES else env.get(type.name, type.span)
    if not isinstance(dtype, DType):
        raise EvalError([])
    return TensorType(dtype, shape_from(type.dims or (), env))


def shape_from(dims: tuple[t.Expr, ...], env: Env) -> tuple[Dim, ...]:
    """The sizes that declared dimensions stand for, packs spliced."""
    out: list[Dim] = []
    for element in dims:
        if isinstance(element, t.Pack):
            out.extend(dim(value) for value in spliced(element, env))
        elif isinstance(element, t.TupleExpr):
            out.append(product(shape_from(element.slots, env)))
        else:
            out.append(dim(evaluate(element, env)))
    return tuple(out)
