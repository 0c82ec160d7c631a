"""Both sides of rules at NaN, infinities, zeros of both signs, and numbers that overflow or vanish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dslc.errors import Diagnostic
from dslc.interpret.differ import PairOfLists, pair_of
from dslc.interpret.domain import Array, Redraw
from dslc.interpret.draws import ORDINARY, elements
from dslc.interpret.floats import Narrow
from dslc.interpret.instantiate import Rejected, instantiate, term_choices
from dslc.interpret.run import InterpretError, run_scopes
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.library import Rules
from dslc.semantics.numerics import keeps_nonfinite

#: elements beside ordinary ones: of few kinds at a time, as one NaN hides all else
SPECIAL: tuple[tuple[float, ...], ...] = (
    (np.nan,),
    (np.inf,),
    (-np.inf,),
    (np.inf, -np.inf),
    (0.0, -0.0),
    (-0.0,),
    (3e38,),
    (-3e38,),
    (3e38, -3e38),
    (3e38, -3e38),
    (1e-45, -1e-45),
    (1e-30, 3e38),
    (1e-30, 1e30),
    (-0.0, np.inf, 3e38, -3e38),
)
SPECIAL_ORDINARY: tuple[float, ...] = (-2.5, -1.0, 0.5, 1.0, 3.0)  #: elements that nothing overflows with
SIZES: tuple[int, ...] = (2, 2, 2, 3, 3, 4, 1)  #: of axes; a sum of one number shows little
ELEMENTS = 4  #: of the largest input, at least; fewer show little and do not count
INSTANCES = 2  #: instances of a rule, for each choice of operators where it has terms
COMPARED = 4  #: instances with fewer elements among them
ATTEMPTS = 60  #: draws of names for one instance
OPERATORS = 2  #: choices of operators
DRAWS = 14  #: draws of elements for an instance
LARGE = 40_000  #: elements of inputs, beyond which there are fewer draws
SHARED = 0.7  #: how often an input has special elements of the same kinds as others
SHARES: tuple[float, ...] = (0.2, 0.5, 1.0)  #: shares of special elements


def unlabelled(rules: Rules, sub: SubstitutionDef, seed: int = 0) -> tuple[Diagnostic, ...]:
    """E0508 where a rule changes special numbers on some instance, and does not say `nonfinite`."""
    if sub.syntax.partial or not keeps_nonfinite(sub.syntax):
        return ()
    rng = np.random.default_rng(seed)
    for terms in term_choices(rules, sub, rng, OPERATORS):
        found = compared = 0
        for _ in range(ATTEMPTS):
            try:
                instance = instantiate(rules, sub, rng, terms, draws=replace(ORDINARY, sizes=SIZES))
            except Rejected:
                continue
            pair = pair_of(rules, instance.inputs, *instance.sides)
            if not pair:
                continue
            changed = change(pair, rng)
            if changed is not None:
                return (finding(sub, f"{instance}\n{changed}"),)
            compared += 1
            found += max((value.type.elements for value in pair.inputs), default=0) >= ELEMENTS
            if found == INSTANCES or compared == COMPARED:
                break
    return ()


def changed_by(rules: Rules, sub: SubstitutionDef, before: Graph, after: Graph) -> tuple[Diagnostic, ...]:
    """E0508 where a rule that does not say `nonfinite` changes special numbers of a graph."""
    pair = pair_of(rules, before.inputs, before.outputs, after.outputs) if keeps_nonfinite(sub.syntax) else None
    changed = change(pair, np.random.default_rng(1)) if pair else None
    return (finding(sub, changed),) if changed else ()


def finding(sub: SubstitutionDef, example: str) -> Diagnostic:
    """E0508 with the inputs that show it."""
    message = f"`{sub.name}` changes infinities, NaN, the sign of zero or what overflows, and does not say so"
    return Diagnostic("E0508", message, sub.span, counterexample=example, hint="say `verify numerics = nonfinite`")


def change(pair: PairOfLists, rng: np.random.Generator) -> str | None:
    """The inputs and the first element of another kind on the right: NaN, an infinity, a zero, or any other number."""
    size = sum(value.type.elements for value in pair.inputs)
    for _ in range(max(1, min(DRAWS, DRAWS * LARGE // max(1, size)))):
        pool = _pool(rng)
        feeds = {value: _drawn(value.type, pool if rng.random() < SHARED else _pool(rng), rng) for value in pair.inputs}
        try:
            results = run_scopes((*pair.left, *pair.right), feeds, Narrow(DType.F32))
        except (Redraw, InterpretError, ArithmeticError):
            continue
        for value, a, b in zip(pair.left, results, results[len(pair.left) :], strict=False):
            places = np.argwhere(_differ(value.type, a, b))
            if len(places):
                at = tuple(map(int, places[0]))
                return f"{_shown(feeds)}{list(at)} is {a[at]} on the left, {b[at]} on the right"
    return None


def _differ(type: TensorType, a: Array, b: Array) -> Array:
    """Elements of which one is NaN or infinite and the other is not, or both are zeros of other signs; rounding does not count."""
    if not type.dtype.is_float:
        return np.asarray(a != b)
    x, y = a.astype(np.float64), b.astype(np.float64)
    other = (np.isnan(x) != np.isnan(y)) | ((np.isinf(x) | np.isinf(y)) & (x != y) & ~np.isnan(x))
    return np.asarray(other | ((x == 0) & (y == 0) & (np.signbit(x) != np.signbit(y))))


def _pool(rng: np.random.Generator) -> tuple[float, ...]:
    return SPECIAL[int(rng.integers(len(SPECIAL)))]


def _drawn(type: TensorType, pool: tuple[float, ...], rng: np.random.Generator) -> Array:
    """Numbers of which some, or all, are special."""
    if not type.dtype.is_float:
        return np.asarray(elements(type, "positions", rng))
    mixed = rng.random(type.sizes) < rng.choice(SHARES)
    return np.where(mixed, rng.choice(pool, type.sizes), rng.choice(SPECIAL_ORDINARY, type.sizes)).astype(np.float32)


def _shown(feeds: Mapping[Any, Array]) -> str:
    return "".join(
        f"{getattr(value.node, 'name', '?')} = {array.tolist()}\n" for value, array in feeds.items() if array.size <= 16
    )
