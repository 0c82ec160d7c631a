"""An operator at symbolic sizes: every choice of ranks, broadcasts, axes and flags, with its `where`s as assumptions.

`operator_env` starts from given arguments and checks the guards; here sizes and attributes are unknowns, and the guards are what is
known about them. What the language wants to be a number (a permutation, an axis) is enumerated.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, permutations, product
from typing import Any

from dslc.ir.dtype import DTYPES, DType
from dslc.ir.graph import input_value
from dslc.ir.scalar import Scalar, Sym, as_scalar, flat, sym
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.env import Env, EvalError, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate, truth
from dslc.semantics.library import Rules
from dslc.semantics.operator_env import bind_attributes, bind_statements, declare, entries
from dslc.semantics.types import bind_equal, shape_of
from dslc.semantics.values import values
from dslc.semantics.walk import conditions_in, dims_of, nodes, pack_name
from dslc.syntax import tree as t

#: what is tried in turn: everything unknown; attributes as numbers; single sizes too; everything a number
LEVELS = ("symbolic", "attributes", "sizes", "numbers")
_SAMPLES = {"symbolic": 400, "attributes": 30, "sizes": 30, "numbers": 30}


NUMBERS: tuple[int, ...] = (1, 2, 3)  #: what sizes and attributes are, in turn


@dataclass(frozen=True, eq=False)
class AssumedChoice:
    """One choice. `conditions` hold; the unknowns of `sizes` are at least 0; `text` says what was chosen."""

    env: Env
    conditions: tuple[Scalar, ...]
    sizes: tuple[Sym, ...]
    text: str


class Infeasible(Exception):
    """A guard that never holds for this choice."""


def conditions_of(op: OperatorDef) -> tuple[t.Expr, ...]:
    """The guards of an operator."""
    return conditions_in(op.statements)


def rank_choices(op: OperatorDef) -> list[dict[str, int]]:
    """Ranks for every pack of the parameters (and every list attribute that is broadcast with one): 0 to 3, or 2, or 1."""
    packs, _ = size_names(op)
    lists = _broadcast_packs(op)
    packs = [*packs, *(a.name for a in op.attrs if a.type.name == "ints" and a.name in lists)]
    most = {0: 0, 1: 3, 2: 2}.get(len(packs), 1)
    return [dict(zip(packs, ranks, strict=True)) for ranks in product(range(most + 1), repeat=len(packs))]


def assumed(rules: Rules, op: OperatorDef, ranks: dict[str, int], level: str) -> Iterator[AssumedChoice]:
    """Every choice at given ranks and a level, up to a limit; what the guards exclude is left out.

    Raises:
        Mismatch, EvalError, TypeError, ValueError: where something must be a number that is not at this level, or ranks do not fit.
    """
    _, names = size_names(op)
    count = 0
    for sizes in _size_choices(op, ranks, names, level):
        for env in _attribute_choices(rules, op, sizes, level):
            try:
                yield _finish(op, env, sizes)
            except Infeasible:
                continue
            count += 1
            if count >= _SAMPLES[level]:
                return


# ---- sizes -----------------------------------------------------------------------------------------------------


def size_names(op: OperatorDef) -> tuple[list[str], list[str]]:
    """The names of the packs, and of the single sizes, that the parameters' types bind."""
    dims = tuple(dims_of(param.type) for param in op.params)
    packs = dict.fromkeys(name for node in nodes(t.Pack, dims) if (name := pack_name(node)) is not None)
    names = dict.fromkeys(node.id for node in nodes(t.Name, dims) if node.id not in packs)
    return list(packs), list(names)


def _broadcast_packs(op: OperatorDef) -> set[str]:
    calls = nodes(t.Call, (op.params, op.outputs, op.statements))
    return {arg.id for call in calls if call.function == "broadcast" for arg in call.args if isinstance(arg, t.Name)}


def _size_choices(op: OperatorDef, ranks: dict[str, int], names: list[str], level: str) -> Iterator[dict[str, Any]]:
    seeded = random.Random(0)
    joined = [pack for pack in ranks if pack in _broadcast_packs(op)]
    width = max((ranks[pack] for pack in joined), default=0)
    # per axis from the right, which of the packs that broadcast have size 1 there
    patterns = list(product(*(product((False, True), repeat=len(joined)) for _ in range(width))))
    for pattern in patterns if joined else [()]:
        if any(all(ones) and len(ones) > 1 for ones in pattern):
            continue
        if any(pattern[at][k] for k, pack in enumerate(joined) for at in range(ranks[pack], width)):
            continue
        for _ in range(1 if level in {"symbolic", "attributes"} else 8):
            yield _assignment(ranks, names, joined, pattern, seeded, level)


def _assignment(
    ranks: dict[str, int],
    names: list[str],
    joined: list[str],
    pattern: tuple[tuple[bool, ...], ...],
    numbers: random.Random,
    level: str,
) -> dict[str, Any]:
    def drawn(name: str, options: tuple[int, ...], known: bool) -> Any:
        return numbers.choice(options) if known else sym(name)

    every = level == "numbers"
    out = {name: drawn(name, (1, 2, 3, 4), every or level == "sizes") for name in names}
    shared = [drawn(f"{joined[0]}{k}", (2, 3), every) for k in range(len(pattern))]
    for pack, rank in ranks.items():
        if pack in joined:
            column = joined.index(pack)
            out[pack] = tuple(1 if pattern[k][column] else shared[k] for k in reversed(range(rank)))
        else:
            out[pack] = tuple(drawn(f"{pack}{k}", (1, 2, 3, 4), every) for k in range(rank))
    return out


# ---- attributes ------------------------------------------------------------------------------------------------


def _attribute_choices(rules: Rules, op: OperatorDef, sizes: dict[str, Any], level: str) -> Iterator[Env]:
    for dtypes in dtype_choices(rules, op)[:1]:
        known = _solved(rules, op, {**sizes, **dtypes})
        first = op.params[0].type if op.params else None
        rank = len(shape_of(first, known).shape) if first else 0
        open_attrs = [attr for attr in op.attrs if not known.has(attr.name)]
        yield from _with_attributes(op, sizes | dtypes, open_attrs, known, rank, level)


def dtype_choices(rules: Rules, op: OperatorDef) -> list[dict[str, DType]]:
    """Element types for the type variables of the parameters, those first that are most common; guards on types hold."""
    types = [p.type.name for p in op.params if p.type and p.type.name not in DTYPES]
    variables = list(dict.fromkeys(types))
    out = []
    for chosen in product((DType.F32, DType.I64, DType.BOOL, DType.U8), repeat=len(variables)):
        env = Env(op.module, rules)
        for name, dtype in zip(variables, chosen, strict=True):
            env.bind(name, dtype)
        if all(_may_hold(condition, env) for condition in conditions_of(op)):
            out.append(dict(zip(variables, chosen, strict=True)))
    return out


def _may_hold(condition: t.Expr, env: Env) -> bool:
    try:
        return truth(evaluate(condition, env)) is not False
    except (Unbound, Mismatch, EvalError):
        return True


def _solved(rules: Rules, op: OperatorDef, bound: dict[str, Any]) -> Env:
    """Sizes bound, and what follows from them by the equations among the guards (`groups` from G == groups)."""
    env = Env(op.module, rules)
    for name, value in bound.items():
        env.bind(name, value)
    bind_equalities(op, env)
    return env


def bind_equalities(op: OperatorDef, env: Env) -> None:
    """Binds what the equations among the guards determine, as `groups` from G == groups where G is bound."""
    for name, value in env.values.items():
        if isinstance(value, tuple):
            env.ranks[name] = len(value)
    grew = True
    while grew:
        grew = False
        for condition in conditions_of(op):
            if condition.equated:
                left, right = condition.equated
                try:
                    grew = bind_equal(left, right, env) or bind_equal(right, left, env) or grew
                except (Unbound, EvalError, Mismatch):
                    continue


def _with_attributes(
    op: OperatorDef, bound: dict[str, Any], open_attrs: list[t.Attr], known: Env, rank: int, level: str
) -> Iterator[Env]:
    if open_attrs:
        attr, *rest = open_attrs
        for value in _values(attr, known, rank, level):
            chosen = {**bound, attr.name: value}
            yield from _with_attributes(op, chosen, rest, _solved(known.rules, op, chosen), rank, level)
        return
    names = {attr.name for attr in op.attrs}
    attrs = {name: known.get(name) for name in names if known.has(name)}
    params = []
    for k, param in enumerate(op.params):
        assert param.type
        params.append(input_value(f"p{k}", shape_of(param.type, known)))
    env = Env(op.module, known.rules)
    env.ranks.update(known.ranks)
    declare(op, env)
    bind_attributes(op, attrs, params, env)
    bind_statements(op, env)
    for param, value in zip(op.params, params, strict=True):
        env.bind(param.name, value)
    for name, value in known.values.items():
        if name not in names:
            env.bind(name, value)
    yield env


def _values(attr: t.Attr, env: Env, rank: int, level: str) -> list[Any]:
    """The values of an attribute that are tried."""
    kind, name = attr.type.name, attr.name
    if kind in {"bool", "axis", "axes", "permutation"}:
        return list(values(kind, rank))
    if kind == "dtype":
        return [DType.F32]
    if kind == "float":
        return [Fraction(1, 2)]
    if kind == "floats":
        return [(Fraction(1, 2),) * n for n in range(3)]
    if kind == "string":
        return [attr.default.value if isinstance(attr.default, t.Str) else ""]
    if attr.type.dims is not None:
        count = entries(attr.type, env)
        if level == "symbolic":
            return [tuple(sym(f"{name}{k}") for k in range(count))]
        return [tuple(NUMBERS[(n + k) % 3] for k in range(count)) for n in range(3)]
    if kind == "ints":
        if level == "symbolic":
            return [tuple(sym(f"{name}{k}") for k in range(n)) for n in range(4)]
        return list(chain.from_iterable(permutations(range(n + 1), n) for n in range(3)))
    return [sym(name)] if level == "symbolic" else [0, *NUMBERS]


# ---- guards ------------------------------------------------------------------------------------------------------


def _finish(op: OperatorDef, env: Env, sizes: dict[str, Any]) -> AssumedChoice:
    conditions: list[Scalar] = []
    for condition in conditions_of(op):
        held = truth(evaluate(condition, env))
        if held is False:
            raise Infeasible(condition.span.text)
        if held is not True:
            conditions.append(as_scalar(held))
    free = dict.fromkeys(one for one in flat(tuple(sizes.values())) if isinstance(one, Sym))
    shown = ", ".join(f"{name}={_text(value)}" for name, value in sizes.items())
    return AssumedChoice(env, tuple(conditions), tuple(free), shown)


def _text(value: Any) -> str:
    return "[" + ", ".join(str(v) for v in value) + "]" if isinstance(value, tuple) else str(value)
