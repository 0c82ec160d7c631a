"""Laws on small shapes: every choice of sizes and attributes up to a bound, as TASO validates its properties (section 3).

An obligation is one choice for which the law's types and guards hold. It is shown as an identity of polynomials, or modulo 2^31 - 1
at random elements, where an error has a known bound.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, Literal

import numpy as np

from benchmarks.polynomials import Polynomials
from dslc.errors import DslcError
from dslc.interpret.domain import Redraw
from dslc.interpret.draft import NamePlace, bind_definitions, rule_text
from dslc.interpret.field import Field, P
from dslc.interpret.instantiate import show
from dslc.interpret.run import InterpretError, run_scopes
from dslc.ir.dtype import DTYPES, DType
from dslc.ir.graph import Value, input_value
from dslc.prove.field.degree import difference_degree
from dslc.semantics.definitions import OperatorDef, SubstitutionDef
from dslc.semantics.elaborate import expand
from dslc.semantics.env import AttrSet, Env, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.semantics.types import shape_of, solve
from dslc.semantics.values import texts
from dslc.semantics.values import values as table
from dslc.syntax import tree as t

Way = Literal["polynomials", "field"]
_RANK = 4
_REDRAWS = 8
_REFUSALS = (Mismatch, Unbound, DslcError, TypeError, ValueError, ArithmeticError, IndexError)


@dataclass
class Tally:
    """What became of the choices for one law. `choices` in all, of which `tried`; the guards or types exclude `excluded` of those,
    and `shown` obligations hold. `wrong`: the first that does not. `error_bound`: the probability that the field hides a
    difference in any of the obligations shown (union bound), without the `undefined` ones, in which unknown functions occur."""

    name: str
    way: Way
    choices: int = 0
    tried: int = 0
    excluded: int = 0
    shown: int = 0
    seconds: float = 0.0
    error_bound: float = 0.0
    wrong: str = ""
    undefined: int = 0


class SmallShapes:
    """All choices of sizes and attributes of a law up to a bound: axes of at most `most`, ranks of at most 4."""

    def __init__(self, rules: Rules, sub: SubstitutionDef, most: int) -> None:
        self._rules, self._sub, self._most = rules, sub, most
        self._facts = rule_text(sub)
        self._known: dict[tuple[int, ...], Mapping[str, list[Any]]] = {}
        self._sizes = list(self._assignments())
        self._attributes = [self._values(sizes) for sizes in self._sizes]
        counts = [math.prod(len(values) for values in found.values()) for found in self._attributes]
        self._ends = np.cumsum(counts) if counts else np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def choice(self, number: int) -> Mapping[str, Any]:
        """The names of the law in choice `number`."""
        at = int(np.searchsorted(self._ends, number, side="right"))
        rest = number - (int(self._ends[at - 1]) if at else 0)
        out = dict(self._sizes[at])
        for name, values in self._attributes[at].items():
            rest, k = divmod(rest, len(values))
            out[name] = values[k]
        sets: dict[str, dict[str, Any]] = {}
        for name in [name for name in out if "." in name]:
            owner, _, attr = name.partition(".")
            sets.setdefault(owner, {})[attr] = out.pop(name)
        return {**out, **{owner: AttrSet(values) for owner, values in sets.items()}}

    # ---- sizes --------------------------------------------------------------------------------------------------

    def _assignments(self) -> Iterator[dict[str, Any]]:
        types = [param.type for param in self._sub.syntax.params if param.type is not None]
        dtypes: dict[str, Any] = {each.name: DType.F32 for each in types if each.name not in DTYPES}
        found: list[dict[str, Any]] = [dtypes]
        for type in types:
            found = [new for bound in found for new in self._shapes(type, bound)]
        yield from found

    def _shapes(self, type: t.TypeExpr, bound: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """What else the names of one type may be."""
        slots = [s for e in type.dims or () for s in (e.slots if isinstance(e, t.TupleExpr) else (e,))]
        packs = [
            s.value.id
            for s in slots
            if isinstance(s, t.Pack) and isinstance(s.value, t.Name) and s.value.id not in bound
        ]
        names = [s.id for s in slots if isinstance(s, t.Name) and s.id not in bound]
        one = range(1, self._most + 1)
        shapes = [shape for rank in range(_RANK + 1) for shape in product(one, repeat=rank)]
        for chosen in product(*(shapes for _ in dict.fromkeys(packs))):
            new = {**bound, **dict(zip(dict.fromkeys(packs), chosen, strict=True))}
            if sum(self._width(element, new) for element in type.dims or ()) > _RANK:
                continue
            for values in product(one, repeat=len(dict.fromkeys(names))):
                both = {**new, **dict(zip(dict.fromkeys(names), values, strict=True))}
                if all(self._fits(element, both) for element in type.dims or ()):
                    yield both

    def _width(self, element: t.Expr, bound: Mapping[str, Any]) -> int:
        return len(bound[element.value.id]) if isinstance(element, t.Pack) and isinstance(element.value, t.Name) else 1

    def _fits(self, element: t.Expr, bound: Mapping[str, Any]) -> bool:
        if not isinstance(element, t.TupleExpr):
            return True
        sizes: list[int] = [bound[slot.id] for slot in element.slots if isinstance(slot, t.Name)]
        return math.prod(sizes) <= self._most

    # ---- attributes ---------------------------------------------------------------------------------------------

    def _values(self, sizes: Mapping[str, Any]) -> Mapping[str, list[Any]]:
        """The attributes that the law leaves open, with what they may be; those that a guard determines are left out."""
        ranks = tuple(len(value) for value in sizes.values() if isinstance(value, tuple))
        if ranks not in self._known:
            env = self._environment(sizes)
            for condition in self._facts.conditions:
                try:
                    solve((), (condition,), env)
                except _REFUSALS:
                    continue
            values: dict[str, list[Any]] = {}
            params = {param.name for param in self._sub.syntax.params}
            for name, places in self._facts.places.items():
                if not env.has(name) and name not in params and name not in DTYPES:
                    values.update(self._open(name, places[0]))
            self._known[ranks] = values
        return self._known[ranks]

    def _open(self, name: str, place: NamePlace) -> Iterator[tuple[str, list[Any]]]:
        op = self._sub.module.lookup(place.call.function)
        if not isinstance(op, OperatorDef):
            return
        if place.attr is None:
            named = {keyword.name for keyword in place.call.kwargs}
            for attr in op.attrs:
                if attr.name not in named:
                    yield f"{name}.{attr.name}", self._candidates(op, attr)
        else:
            yield name, next(self._candidates(op, attr) for attr in op.attrs if attr.name == place.attr)

    def _candidates(self, op: OperatorDef, attr: t.Attr) -> list[Any]:
        kind, dims = attr.type.name, attr.type.dims
        one = list(range(1, self._most + 1))
        if kind == "string":
            return list(texts(op, attr))
        if kind in {"bool", "axis"}:
            return list(table(kind, _RANK))
        if kind == "int" and dims is not None and dims and isinstance(dims[0], t.Int):
            return list(product(one, repeat=dims[0].value))
        if kind == "int" and dims is None:
            return list(one)
        raise Mismatch(f"`{attr.name}` of `{op.short}` is not enumerated")

    # ---- one choice ---------------------------------------------------------------------------------------------

    def _environment(self, chosen: Mapping[str, Any]) -> Env:
        env = Env(self._sub.module, self._rules)
        for name, value in chosen.items():
            env.bind(name, value)
            if isinstance(value, tuple):
                env.ranks[name] = len(value)
        return env

    def sides(self, chosen: Mapping[str, Any]) -> tuple[tuple[Value, ...], tuple[Value, Value]] | None:
        """The inputs and both sides without calls; None where types or guards exclude the choice."""
        env = self._environment(chosen)
        try:
            inputs = []
            for param in self._sub.syntax.params:
                assert param.type is not None
                inputs.append(input_value(param.name, shape_of(param.type, env)))
                env.bind(param.name, inputs[-1])
            bind_definitions(self._sub.syntax.left, env)
            solve((), self._facts.conditions, env)
            binds = [s for s in self._sub.syntax.left if isinstance(s, t.Bind)]
            found = tuple(evaluate(bind.value, env) for bind in binds)
            if not all(isinstance(value, Value) for value in found):
                return None
            left, right = expand(self._rules, found)
        except _REFUSALS:
            return None
        return tuple(inputs), (left, right)


def check(
    rules: Rules,
    sub: SubstitutionDef,
    most: int,
    way: Way,
    seconds: float = math.inf,
    seed: int = 0,
    enough: float = math.inf,
) -> Tally:
    """A law (as `law_substitutions` gives it) on all shapes up to `most`; with a limit of time, or where so many shapes are `enough`,
    in random order, until that is reached."""
    tally = Tally(sub.name, way)
    shapes = SmallShapes(rules, sub, most)
    rng = np.random.default_rng(seed)
    tally.choices = len(shapes)
    began = time.process_time()
    for number in _scattered(len(shapes), rng) if math.isfinite(min(seconds, enough)) else range(len(shapes)):
        if tally.shown >= enough or time.process_time() - began > seconds:
            break
        chosen = shapes.choice(number)
        tally.tried += 1
        found = shapes.sides(chosen)
        if found is None:
            tally.excluded += 1
            continue
        inputs, (left, right) = found
        wrong = _types(left, right) or (_polynomials if way == "polynomials" else _field)(
            inputs, left, right, rng, tally
        )
        if wrong:
            shown = ", ".join(
                f"{name} = {show(value)}" for name, value in chosen.items() if not isinstance(value, DType)
            )
            tally.wrong = f"{wrong} at {shown}"
            break
        tally.shown += 1
    tally.seconds = time.process_time() - began
    return tally


def _scattered(count: int, rng: np.random.Generator) -> Iterator[int]:
    """Every number below `count` once, far apart."""
    step = int(count * rng.uniform(0.3, 0.7)) | 1
    while math.gcd(step, count) > 1:
        step += 1
    start = int(rng.integers(max(1, count)))
    for k in range(count):
        yield (start + k * step) % count


def _types(left: Value, right: Value) -> str:
    return "" if left.type == right.type else f"{left.type} and {right.type}"


def _polynomials(inputs: Sequence[Value], left: Value, right: Value, rng: np.random.Generator, tally: Tally) -> str:
    domain = Polynomials()
    feeds = {value: domain.symbols(str(k), _shape(value)) for k, value in enumerate(inputs)}
    a, b = run_scopes((left, right), feeds, domain)
    differ = np.argwhere(~domain.close(a, b, 0.0))
    return f"other polynomials at {[int(k) for k in differ[0]]}" if len(differ) else ""


def _field(inputs: Sequence[Value], left: Value, right: Value, rng: np.random.Generator, tally: Tally) -> str:
    domain = Field(int(rng.integers(1 << 20)))
    for _ in range(_REDRAWS):
        feeds = {value: domain.draw(_shape(value), rng) for value in inputs}
        try:
            a, b = run_scopes((left, right), feeds, domain)
        except (Redraw, InterpretError):
            continue
        differ = np.argwhere(a != b)
        if len(differ):
            return f"other values modulo {P} at {[int(k) for k in differ[0]]}"
        degree = difference_degree((left,), (right,))
        tally.error_bound += float(Fraction(degree, P)) if degree is not None else 0.0
        tally.undefined += degree is None
        return ""
    return "no inputs for which both sides are defined"


def _shape(value: Value) -> tuple[int, ...]:
    return tuple(int(str(size)) for size in value.type.shape)
