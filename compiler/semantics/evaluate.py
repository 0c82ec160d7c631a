"""Evaluating expressions of the language: integers and lists now, tensors to graph values, bodies of scopes to scalar expressions."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from dslc.ir.dtype import DTYPES, DType
from dslc.ir.element import element_type
from dslc.ir.graph import Value
from dslc.ir.scalar import Number, Scalar, apply, as_scalar, raw_apply, reduce, table
from dslc.semantics import lists
from dslc.semantics.assuming import decided
from dslc.semantics.definitions import FunctionDef, OperatorDef, UnknownFunction
from dslc.semantics.env import (
    AskedFunction,
    AttrSet,
    Closure,
    Env,
    Mismatch,
    OperatorRef,
    Outputs,
    Unbound,
    Undecided,
    fail,
    with_attributes,
)
from dslc.semantics.shape_free import is_pointwise
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import CONVERT, FUNCTIONS_1, INDEX_FUNCTIONS, PREDICATES, REDUCTIONS

_WORDS: dict[str, Number | DType] = {"true": True, "false": False, "pi": math.pi, "nan": math.nan, **DTYPES}

MAX_UNROLL = 1_000_000  #: entries of a list that is written out
MAX_EXPANSIONS = 50  #: how deep operators may call each other
MAX_WEIGHT = 200_000  #: nodes of an expression when it is written out


def truth(value: Any) -> Any:
    """A condition's value: a list holds where all its elements do. True, False or a condition on sizes."""
    if isinstance(value, tuple):
        return lists.fold("all", value)
    return value


def evaluate(expr: t.Expr, env: Env) -> Any:
    """The value of an expression.

    Returns:
        int, bool, Fraction, float, str, DType, a tuple (list), a Scalar (an integer over unknown sizes, or inside a scope the body),
        a graph `Value`, `Outputs`, `AttrSet`, or an `OperatorRef`.

    Raises:
        Unbound: a name has no value yet.
        Mismatch: types, sizes or guards that do not fit.
        EvalError: the expression has no meaning (unknown function, wrong kind of value).
    """
    meaning = _MEANINGS.get(type(expr))
    if meaning:
        return meaning(expr, env)
    if isinstance(expr, t.TupleExpr):
        raise fail("E0326", "a tuple stands only in a subscript or a type", expr)
    raise fail("E0327", "this has no value here", expr)


def elements(exprs: tuple[t.Expr, ...], env: Env) -> tuple[Any, ...]:
    """A list's elements, packs spliced."""
    out: list[Any] = []
    for element in exprs:
        if isinstance(element, t.Pack):
            out.extend(spliced(element, env))
            _bounded(out, element)
        else:
            out.append(evaluate(element, env))
    return tuple(out)


def spliced(pack: t.Pack, env: Env) -> tuple[Any, ...]:
    """The elements that a pack stands for."""
    value = evaluate(pack.value, env)
    if not isinstance(value, tuple):
        raise fail("E0326", "`*` splices a list, and this is none", pack)
    return value


def scalar(value: Any, env: Env, span: Any) -> Any:
    """A value as an operand of scalar arithmetic: a rank-0 tensor is read."""
    if not isinstance(value, Value) or not env.builder:
        return value
    if value.type.rank:
        raise fail("E0307", "a tensor stands without a subscript in an equation", span)
    return env.builder.read(value, ())


def operand(expr: t.Expr, env: Env) -> Any:
    """The value of an expression as an operand of scalar arithmetic."""
    return scalar(evaluate(expr, env), env, expr.span)


# ---- names ---------------------------------------------------------------------------------------------------


def _name(expr: t.Name, env: Env) -> Any:
    name = expr.id
    bound = env.found(name)
    if bound is not None:
        return bound[0]
    head, _, rest = name.partition(".")
    owner = env.found(head) if rest else None
    if owner is not None and isinstance(owner[0], AttrSet):
        if rest not in owner[0].values:
            raise Mismatch(f"`{head}` binds no attribute `{rest}`", expr.span)
        return owner[0].values[rest]
    if name in _WORDS:
        return _WORDS[name]
    found = env.module.lookup(name)
    if isinstance(found, OperatorDef):
        return OperatorRef(found.name)
    raise Unbound(name, expr.span)


# ---- arithmetic ----------------------------------------------------------------------------------------------


def _unary(expr: t.Unary, env: Env) -> Any:
    if expr.op == "-":
        return lists.negate(_number_or_list(expr.operand, env))
    value = _condition(expr.operand, env)
    return (not value) if isinstance(value, bool) else lists.plain(apply("not", as_scalar(value)))


def _number_or_list(expr: t.Expr, env: Env) -> Any:
    return _plain_operand(operand(expr, env), expr, "number")


def _condition(expr: t.Expr, env: Env) -> Any:
    """Evaluate a condition; a list holds where all its elements do."""
    return truth(_plain_operand(operand(expr, env), expr, "condition"))


#: kinds of operands; a union of them would be made anew each time
_NUMBERS = (int, Scalar, float, Fraction)


def _plain_operand(value: Any, expr: t.Expr, wanted: str) -> Any:
    for item in value if isinstance(value, tuple) else (value,):
        if isinstance(item, tuple):
            _plain_operand(item, expr, wanted)
        elif not isinstance(item, _NUMBERS):
            kind = "a tensor" if isinstance(item, Value) else f"`{expr.span.text}`"
            hint = "between tensors, call the operators by name" if isinstance(item, Value) else ""
            raise fail("E0326", f"{kind} is no {wanted}", expr, hint=hint)
    return value


def _binary(expr: t.Binary, env: Env) -> Any:
    if expr.op in {"and", "or"}:
        left = _condition(expr.left, env)
        if left is (expr.op == "or"):
            return left
        right = _condition(expr.right, env)
        return lists.conjunction([left, right]) if expr.op == "and" else lists.disjunction([left, right])
    left, right = _number_or_list(expr.left, env), _number_or_list(expr.right, env)
    if expr.op in {"|", "&", "@"}:
        raise fail("E0327", f"`{expr.op}` is for the sets of derivations", expr)
    if expr.op == "/" and _of_integers(left, right, env):
        # cut towards zero: no factor may be taken out of it
        return apply("trunc", raw_apply("/", as_scalar(left), as_scalar(right)))
    try:
        return _bounded(lists.arithmetic(expr.op, left, right), expr)
    except Mismatch as problem:
        raise problem.again(expr.span) from None


def _bounded(value: Any, expr: t.Expr) -> Any:
    """A value that is neither too long a list nor too large an expression."""
    if isinstance(value, Scalar) and value.weight > MAX_WEIGHT:
        raise fail("E0327", "this expression has too many parts when it is written out", expr)
    if isinstance(value, tuple | list):
        _countable(len(value), expr)
    return value


def _countable(count: int, expr: t.Node) -> None:
    if count > MAX_UNROLL:
        raise fail("E0327", "this list has too many elements", expr)


def _of_integers(left: Any, right: Any, env: Env) -> bool:
    """Return whether what is computed from two values is an integer of a type, as elements of integer tensors are among them."""
    if not env.builder or not any(isinstance(one, Scalar) and one.reads for one in (left, right)):
        return False
    operands = tuple(operand.type.dtype for operand in env.builder.operands)
    found = element_type(raw_apply("+", as_scalar(left), as_scalar(right)), operands)
    return found is not None and found.is_integer


def _compare(expr: t.Compare, env: Env) -> Any:
    values = [operand(each, env) for each in expr.operands]
    parts = []
    for k, op in enumerate(expr.ops):
        if op == "~=":
            raise fail("E0327", "`~=` stands only in tests", expr)
        if op == "in" and not isinstance(values[k + 1], tuple):
            raise fail("E0326", "`in` looks in a list, and this is none", expr.operands[k + 1])
        if op not in {"==", "!=", "in"}:
            for at in (k, k + 1):
                _plain_operand(values[at], expr.operands[at], "number")
        parts.append(lists.compare(op, values[k], values[k + 1]))
    return functools.reduce(_both, parts)


def _both(one: Any, other: Any) -> Any:
    """Two conditions as one, elementwise where one is a list."""
    if isinstance(one, tuple) or isinstance(other, tuple):
        return tuple(map(lists.conjunction, lists.paired(one, other)))
    return lists.conjunction((one, other))


def _conditional(expr: t.Conditional, env: Env) -> Any:
    condition = _plain_operand(operand(expr.condition, env), expr.condition, "condition")
    if isinstance(condition, int):
        return evaluate(expr.then if condition else expr.otherwise, env)
    then = operand(expr.then, env)
    otherwise = operand(expr.otherwise, env)
    if isinstance(then, Value) or isinstance(otherwise, Value):
        chosen = decided(condition, env.rules.assuming)
        if not isinstance(chosen, bool):
            raise Undecided(f"`{expr.condition.span.text}` is not decided", expr.condition.span)
        return then if chosen else otherwise
    return lists.choose(condition, then, otherwise)


# ---- reductions ----------------------------------------------------------------------------------------------


def range_of(binder: t.Binder, env: Env) -> Any:
    """The range of an iterator: given, or by the place that it stands in (language.md, semantics 4)."""
    name = binder.name
    source = binder.range or env.ranges.get(name)
    if not source:
        raise fail("E0316", f"nothing says what `{name}` ranges over", binder, hint=f"write `{name}: N`")
    value = evaluate(source, env)
    if binder.star and not isinstance(value, tuple):
        raise fail("E0326", f"`*{name}` ranges over a list of sizes", binder)
    if not binder.star and isinstance(value, tuple):
        message = f"`{name}` ranges over one size, and this is a list"
        raise fail("E0326", message, binder, hint=f"write `*{name}`")
    for size in value if binder.star else (value,):
        if isinstance(size, bool) or (isinstance(size, float | Fraction) and not float(size).is_integer()):
            raise fail("E0326", f"`{source.span.text}` is no size", source)
        _plain_operand(size, source, "size")
    return value


def bind_iterators(binder: t.Binder, env: Env, fresh: Callable[[Any], Any]) -> list[Any]:
    """Binds an iterator, or one for each size of a pack, that `fresh` makes of its size; returns the sizes."""
    found = range_of(binder, env)
    sizes = list(found) if binder.star else [found]
    iters = tuple(fresh(size) for size in sizes)
    env.bind(binder.name, iters if binder.star else iters[0])
    return sizes


def _reduction(expr: t.Reduction, env: Env) -> Any:
    if not env.builder:
        return _unrolled(expr, env)
    inner = env.child()
    iters: list[Any] = []
    extents: list[Scalar] = []

    def fresh(size: Any) -> Any:
        iters.append(inner.fresh_iterator(size))
        return iters[-1]

    for binder in expr.binders:
        extents += map(as_scalar, bind_iterators(binder, inner, fresh))
    where = as_scalar(truth(operand(expr.where, inner))) if expr.where else None
    body = as_scalar(number(operand(expr.body, inner), expr.body))
    return lists.plain(reduce(expr.kind, tuple(iters), tuple(extents), body, where))


def number(value: Any, expr: t.Expr) -> Any:
    """A value as one number of scalar arithmetic."""
    if isinstance(value, tuple):
        raise fail("E0326", "a list where one value is expected", expr)
    return _plain_operand(value, expr, "number")


def _unrolled(expr: t.Reduction, env: Env) -> Any:
    values: list[Any] = []
    for inner in _points(expr.binders, env):
        if not expr.where or decided(truth(evaluate(expr.where, inner)), env.rules.assuming) is True:
            values.append(_plain_operand(evaluate(expr.body, inner), expr.body, _folded(expr.kind)))
            _countable(len(values), expr)
    return lists.fold(expr.kind, tuple(values))


def _folded(kind: str) -> str:
    """Describe the body of a reduction, in words."""
    return "condition" if kind in {"all", "any"} else "number"


def _points(binders: tuple[t.Binder, ...], env: Env) -> Any:
    if not binders:
        yield env.child()
        return
    first, *rest = binders
    size = range_of(first, env)
    if any(isinstance(one, Scalar) for one in (size if first.star else (size,))):
        raise Undecided(f"`{first.name}` ranges over an unknown size", first.span)
    if not first.star:
        _countable(int(size), first)
    for position in itertools.product(*(range(int(one)) for one in size)) if first.star else range(int(size)):
        inner = env.child()
        inner.bind(first.name, position)
        yield from _points(tuple(rest), inner)


# ---- subscripts ----------------------------------------------------------------------------------------------


def _subscript(expr: t.Subscript, env: Env) -> Any:
    from dslc.semantics.scopes import tensor_read

    base = evaluate(expr.base, env)
    if isinstance(base, Value):
        name = expr.base.bare
        return tensor_read(base, name, expr.subs, expr.other, env, expr)
    if isinstance(base, tuple) and not isinstance(base, Outputs):
        return _list_read(base, elements(expr.subs, env), expr)
    if isinstance(base, Scalar | int | float | Fraction):
        if elements(expr.subs, env):
            raise Mismatch("a number has no subscript", expr.span)
        return base  # a pointwise operator called on values: its parameter is one value
    raise fail("E0326", "only a tensor or a list has subscripts", expr)


def _list_read(values: tuple[Any, ...], index: tuple[Any, ...], expr: t.Expr) -> Any:
    found: Any = values
    for k, raw in enumerate(index):
        position = lists.plain(raw)
        if isinstance(position, tuple):
            return tuple(_list_read(found, (one, *index[k + 1 :]), expr) for one in position)
        if isinstance(position, Scalar):
            return _table_read(found, index[k:], expr)
        if not isinstance(found, tuple) or not -len(found) <= position < len(found):
            raise Mismatch(f"position {position} is outside the list", expr.span)
        found = found[position]
    return found


def _table_read(values: Any, index: tuple[Any, ...], expr: t.Expr) -> Any:
    def numbers(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(numbers(x) for x in value)
        if isinstance(value, Scalar):
            raise Undecided("a list of unknown sizes is read at an unknown position", expr.span)
        return value

    return lists.plain(table(numbers(values), tuple(as_scalar(i) for i in index)))


# ---- scopes --------------------------------------------------------------------------------------------------


def _nested(expr: t.Nested, env: Env) -> Any:
    inner = expr.scope
    if isinstance(inner, t.Traversal):
        if _is_list(inner, env):
            values = _list_scope(inner, env)
            return values if expr.subs is None else _list_read(values, elements(expr.subs, env), expr)
        from dslc.semantics.scopes import build_scope, tensor_read

        value = build_scope(inner.places, inner.body, inner.where, env, None)
        if expr.subs is None:
            return value
        return tensor_read(value, None, expr.subs, expr.other or expr.subs_other, env, expr)
    if expr.subs is None and expr.other is None:
        return evaluate(inner, env)
    raise fail("E0327", "this scope has a meaning only in a derivation", expr)


def _is_list(scope: t.Traversal, env: Env) -> bool:
    """A 1-D scope that reads no tensor is a list (language.md, semantics 11)."""
    match scope.places:
        case (t.Binder(star=False),):
            return not reads_tensor(scope.body, env)
    return False


def reads_tensor(expr: t.Expr, env: Env) -> bool:
    """Return whether an element of a tensor occurs in an expression: read with a subscript, or a tensor of rank 0 by its name."""
    for node in t.walk(expr):
        match node:
            case t.Subscript(base):
                value = env.found(base.bare or "")
                if (value and isinstance(value[0], Value)) or isinstance(env.module.called(base), OperatorDef):
                    return True
            case t.Name(name):
                value = env.found(name)
                if value and isinstance(value[0], Value) and value[0].known and value[0].type.rank == 0:
                    return True
    return False


def _list_scope(scope: t.Traversal, env: Env) -> tuple[Any, ...]:
    binder = scope.places[0]
    assert isinstance(binder, t.Binder)
    out: list[Any] = []
    for inner in _points((binder,), env):
        if scope.where:
            holds = decided(truth(evaluate(scope.where, inner)), env.rules.assuming)
            if not isinstance(holds, bool):
                raise Undecided(f"`{scope.where.span.text}` is not decided", scope.where.span)
            if not holds:
                continue
        out.append(evaluate(scope.body, inner))
    return tuple(out)


# ---- calls ---------------------------------------------------------------------------------------------------


def _call(expr: t.Call, env: Env) -> Any:
    from dslc.semantics.apply import operator_call

    name = expr.function
    if env.has(name):
        target = env.get(name)
        if isinstance(target, Closure):
            return _expand(target.syntax, expr, env, target.env)
        if isinstance(target, AskedFunction):
            return target.answer(expr, env)
        if isinstance(target, OperatorRef):
            given = (*elements(expr.args, env), *target.extra)
            op = env.rules.operators[target.name]
            if expr.rest is not None:
                # of an unknown operator each set of attributes makes another one
                op = env.rules.operators.get(with_attributes(target.name, expr.rest), op)
            return operator_call(op, expr, env, given)
    found = env.module.lookup(name)
    if isinstance(found, UnknownFunction):
        return raw_apply(found.name, *(as_scalar(scalar(arg, env, expr.span)) for arg in elements(expr.args, env)))
    if isinstance(found, FunctionDef):
        outer = Env(found.module, env.rules)
        return _expand(found.syntax, expr, env, outer)
    if name in PREDICATES:
        return _predicate(expr, env)
    if name in {"rank", "shape"} and not found:
        return _shape_question(expr, env)
    args = elements(expr.args, env)
    tensors = any(isinstance(arg, Value | Outputs) for arg in args)
    if isinstance(found, OperatorDef):
        in_scope = env.builder is not None and not any(isinstance(a, Value) and a.known and a.type.rank for a in args)
        if in_scope and (name in FUNCTIONS_1 or name in {"min", "max"}):
            return _scalar_call(expr, args, env)
        if in_scope and not expr.kwargs and args:
            from dslc.semantics.scopes import inline_operator

            return inline_operator(found, tuple(scalar(arg, env, expr.span) for arg in args), env, expr)
        if tensors or name not in FUNCTIONS_1 | INDEX_FUNCTIONS | REDUCTIONS:
            return operator_call(found, expr, env, args)
    return _scalar_call(expr, args, env)


def _scalar_call(expr: t.Call, raw: tuple[Any, ...], env: Env) -> Any:
    name = expr.function
    if expr.kwargs or expr.rest:
        keyword = expr.kwargs[0].name if expr.kwargs else expr.rest
        raise fail("E0302", f"`{name}` has no attribute `{keyword}`", expr)
    if name in INDEX_FUNCTIONS:
        return _index_call(expr, raw, env)
    args = tuple(scalar(arg, env, expr.span) for arg in raw)
    if name in REDUCTIONS:
        for arg, place in zip(args, expr.args if len(expr.args) == len(args) else (expr,) * len(args), strict=True):
            _plain_operand(arg, place, _folded(name))
        if len(args) == 1 and isinstance(args[0], tuple):
            return lists.fold(name, args[0])
        if name in {"min", "max"} and len(args) >= 2:
            return functools.reduce(functools.partial(lists.arithmetic, name), args)
        if len(args) == 1 and name in {"all", "any"}:
            return args[0]
        raise fail("E0301", f"`{name}` takes a list, or for min and max several values", expr)
    if name in FUNCTIONS_1:
        if len(args) != 1:
            raise fail("E0301", f"`{name}` takes one argument, not {len(args)}", expr)
        return lists.scalar_function(name, _plain_operand(args[0], expr.args[0], "number"))
    if name == CONVERT:
        if len(args) != 2 or not isinstance(args[1], DType):
            raise fail("E0301", "`convert` takes a value and an element type", expr)
        return apply(f"convert:{args[1]}", as_scalar(number(args[0], expr.args[0])))
    raise fail("E0201", f"nothing is named `{name}` here", expr)


def _index_call(expr: t.Call, args: tuple[Any, ...], env: Env) -> Any:
    name = expr.function
    if any(isinstance(arg, str) for arg in args):
        # Python would take text for a list of its characters
        raise fail("E0301", f"`{name}` does not take text", expr)
    if name == "range" and len(args) == 1 and isinstance(args[0], int):
        _countable(args[0], expr)
    try:
        if name == "fit":
            return lists.fit(args[0], args[1], env.builder)
        if name == "broadcast":
            return lists.broadcast(*args, assuming=env.rules.assuming)
        return lists.FUNCTIONS[name](*args)
    except Mismatch as problem:
        raise problem.again(expr.span) from None
    except (TypeError, IndexError, AttributeError, ValueError, OverflowError):
        raise fail("E0301", f"`{name}` does not take these arguments", expr) from None


def _only(expr: t.Call) -> t.Expr:
    if len(expr.args) != 1:
        raise fail("E0301", f"`{expr.function}` takes one argument", expr)
    return expr.args[0]


def _shape_question(expr: t.Call, env: Env) -> Any:
    """`rank(L)`, `shape(X)`; the rank of a pack may be known before its sizes are."""
    inner, rank = _only(expr), expr.function == "rank"
    if rank and isinstance(inner, t.Name) and not env.has(inner.id) and inner.id in env.ranks:
        return env.ranks[inner.id]
    value = evaluate(inner, env)
    if isinstance(value, Value):
        return value.type.rank if rank else value.type.shape
    if isinstance(value, tuple) and rank:
        return len(value)
    if isinstance(value, int | Fraction | float | Scalar) and not isinstance(value, bool):
        return 0 if rank else ()
    raise fail("E0301", f"`{expr.function}` takes a tensor or a pack", expr)


def _predicate(expr: t.Call, env: Env) -> Any:
    value = evaluate(_only(expr), env)
    if expr.function == "constant":
        return value.constant if isinstance(value, Value) else True
    if expr.function in {"pointwise", "linear"}:
        if not isinstance(value, OperatorRef):
            raise fail("E0301", f"`{expr.function}` takes a term", expr)
        # what an operator is linear in depends on its attributes: that is asked where it is used
        return expr.function == "linear" or is_pointwise(env.rules.operators[value.name], env.rules)
    dtype = value.type.dtype if isinstance(value, Value) else value
    if not isinstance(dtype, DType):
        raise fail("E0301", f"`{expr.function}` takes a tensor or an element type", expr)
    return {"dtype": dtype, "floating": dtype.is_float}.get(expr.function, dtype.is_integer)


def _expand(function: t.Function, expr: t.Call, env: Env, outer: Env) -> Any:
    if len(expr.args) != len(function.params) or expr.kwargs or expr.rest:
        raise fail("E0301", f"`{function.name}` takes {len(function.params)} arguments", expr)
    inner = outer.child()
    inner.builder, inner.depth, inner.ranges, inner.decls = env.builder, env.depth, env.ranges, env.decls
    for param, arg in zip(function.params, expr.args, strict=True):
        inner.bind(param, evaluate(arg, env))
    inner.calls = env.calls + 1
    if inner.calls > MAX_EXPANSIONS:
        hint = "`let` functions are never recursive"
        raise fail("E0317", f"`{function.name}` is expanded without end", expr, hint=hint)
    return _bounded(evaluate(function.body, inner), expr)


def _field(expr: t.Field, env: Env) -> Any:
    value = evaluate(expr.call, env)
    if isinstance(value, Outputs):
        if expr.name in value.names:
            return value[value.names.index(expr.name)]
        raise fail("E0324", f"no output is named `{expr.name}`", expr, hint="outputs: " + ", ".join(value.names))
    if isinstance(value, Value) and isinstance(expr.call, t.Call):
        return value
    raise fail("E0324", "this call has no named outputs", expr)


_MEANINGS: Mapping[type[t.Expr], Callable[[Any, Env], Any]] = {
    t.Name: _name,
    t.Int: lambda expr, env: expr.value,
    t.Str: lambda expr, env: expr.value,
    t.Float: lambda expr, env: Fraction(expr.text),
    t.Inf: lambda expr, env: math.inf,
    t.Unary: _unary,
    t.Binary: _binary,
    t.Compare: _compare,
    t.Conditional: _conditional,
    t.Call: _call,
    t.Subscript: _subscript,
    t.ListExpr: lambda expr, env: elements(expr.elements, env),
    t.Reduction: _reduction,
    t.Nested: _nested,
    t.Field: _field,
}
