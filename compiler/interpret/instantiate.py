"""Random small instances of a substitution: sizes, attributes and operators for which its types and guards hold.

A name is drawn where evaluating the left side first needs it, from what its place says: a dimension, an attribute of a known
declared type, an entry of a list. Guards that compare a name with a number narrow its range beforehand, equations among the
guards bind names, and what still does not hold is drawn again.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dslc.errors import DslcError
from dslc.inspection.samples import sample
from dslc.interpret.draft import (
    Draft,
    NamePlace,
    entry_count,
    operator_hints,
    partly_bound,
    rule_text,
)
from dslc.interpret.draws import ORDINARY, InstanceDraws
from dslc.ir.constants import NUMPY, array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Input, Value, Values, input_value, nodes_of
from dslc.records import record
from dslc.semantics.definitions import OperatorDef, SubstitutionDef
from dslc.semantics.env import AttrSet, Env, EvalError, Mismatch, MismatchKind, OperatorRef, Unbound
from dslc.semantics.evaluate import evaluate, truth
from dslc.semantics.library import Rules, rules_cache
from dslc.semantics.linear import linear_at
from dslc.semantics.shape_free import is_pointwise
from dslc.semantics.types import solve
from dslc.semantics.values import texts, values
from dslc.semantics.walk import conditions_in, names_in, nodes, terms_in
from dslc.syntax import tree as t

DEFAULT = 0.45  #: how often an attribute has its default
DIVIDING = 0.3  #: how often a size divides one that is known, as channels do
DETERMINED = 0.9  #: how often an attribute is what the types of the operands say of it
MOST_ELEMENTS = 1 << 22  #: elements of a tensor of an instance: a guard may ask for more than memory holds


class Rejected(Exception):
    """This draw fits no instance; the next one may."""


def most_often(reasons: Sequence[str]) -> str:
    """The commonest reason for which no instance was found."""
    return f"most often: {max(sorted(set(reasons)), key=reasons.count) if reasons else 'no operator fits its terms'}"


@record
class Instance:
    """`left` and `right` are the values of the substitution's outputs; `drawn` says what its names stand for.

    Of a partial one, `corrected` has the outputs with a correction of the author's own, and `limit` is the largest share to correct.
    """

    inputs: Values
    left: Mapping[str, Value]
    right: Mapping[str, Value]
    drawn: Mapping[str, Any]
    corrected: Mapping[str, Value] = field(default_factory=dict)
    limit: float = 1.0

    @property
    def sides(self) -> tuple[Values, Values]:
        """The outputs on both sides, in one order."""
        return tuple(self.left.values()), tuple(self.right[name] for name in self.left)

    def __str__(self) -> str:
        return ", ".join(f"{name} = {show(value)}" for name, value in self.drawn.items())


def shown(sub: SubstitutionDef, instance: Instance) -> Iterator[tuple[str, str]]:
    """The values of the names of a rule, as text; names that occur in no type and no attribute are left out."""
    used = {name.partition(".")[0] for name in names_in(sub.syntax)}
    used |= {call.rest for call in nodes(t.Call, sub.syntax) if call.rest is not None}
    for name, value in instance.drawn.items():
        if name in used or isinstance(value, str):
            yield name, show(value)


def show(value: Any) -> str:
    """A drawn value as the language writes it."""
    if isinstance(value, tuple):
        return "[" + ", ".join(map(show, value)) + "]"
    if isinstance(value, AttrSet):
        return "{" + ", ".join(f"{name} = {show(item)}" for name, item in value.values.items()) + "}"
    if isinstance(value, OperatorRef):
        return value.name
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(kw_only=True)
class _Random(Draft):
    """Names by chance."""

    rng: np.random.Generator
    dtypes: tuple[DType, ...]
    #: what names of element types stand for, where that is not drawn
    types: Mapping[str, DType]
    draws: InstanceDraws
    #: by the number of a guard the name that it waits for; empty where it holds
    waits: dict[int, str] = field(default_factory=dict)
    #: what is known of calls; their tensors are kept, as they are told apart by identity
    calls: dict[tuple[Any, ...], tuple[Env, list[Value]]] = field(default_factory=dict)

    def bind(self, name: str, value: Any) -> None:
        super().bind(name, self.draws.fixed.get(name, value))

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def refused(self, reason: str) -> Exception:
        return Rejected(reason)

    def typed(self, name: str, type: t.TypeExpr) -> None:
        """Nothing is to be said of it yet."""

    def searched(self, name: str, domain: Any) -> Any:
        return self.pick(domain)

    def tensor(self, param: t.Param, type: TensorType) -> Value:
        _held(type)
        if param.name not in self.text.constants:
            return input_value(param.name, type)
        if type.dtype.is_float:
            # few digits, so that exact domains read what float32 holds; no zeros, which guards rarely allow in divisors
            drawn: Any = self.rng.choice((-1, 1), type.sizes) * self.rng.integers(1, 65, type.sizes) / 16
        else:
            drawn = self.rng.integers(0, 2 if type.dtype is DType.BOOL else 4, type.sizes)
        return array_value(drawn.astype(NUMPY[type.dtype]))

    def solve_conditions(self) -> None:
        """Binds what an equation among the guards determines. Raises Rejected where one cannot hold."""
        for number, condition in enumerate(self.text.conditions):
            # names keep their values: what held holds, and what waits for a name waits until that has one
            waits = self.waits.get(number)
            if waits == "" or (waits is not None and not self.env.has(waits) and waits not in self.env.ranks):
                continue
            try:
                solve((), (condition,), self.env)
            except Mismatch as problem:
                if problem.kind is not MismatchKind.UNBOUND:
                    raise Rejected(problem.reason) from None
                if problem.unknown and not condition.equated:
                    self.waits[number] = problem.unknown
            else:
                self.waits[number] = ""

    def dtype(self, name: str) -> DType:
        found: DType = self.types.get(name) or self.pick(self.dtypes)
        return found

    # ---- sizes ---------------------------------------------------------------------------------------------

    def size(self, name: str) -> int:
        options = self.within(self.draws.sizes, self.text.hints.get(name, ()))
        known = [
            value
            for value in self.drawn.values()
            if isinstance(value, int) and not isinstance(value, bool) and value > 0
        ]
        if known and self.chance(DIVIDING):
            whole = self.pick(known)
            # 1 divides everything, and tells little apart
            options = [k for k in range(2, whole + 1) if whole % k == 0 and k in options] or options
        return int(self.pick(options))

    def within(self, options: Sequence[int], hints: Sequence[tuple[str, int]]) -> Sequence[int]:
        """The numbers that guards allow; others where they allow none of these."""
        for relation, bound in hints:
            if relation in {">", ">="}:
                options = [k for k in options if k > bound or (k == bound and relation == ">=")] or [
                    bound + 1,
                    bound + 2,
                ]
            elif relation in {"<", "<="}:
                options = [k for k in options if k < bound or (k == bound and relation == "<=")] or [bound]
            elif relation == "==" and self.chance(0.9):
                options = [bound]
        return options

    def pack(self, name: str) -> tuple[int, ...]:
        rank = self.env.ranks.get(name)
        others = [
            value
            for value in self.drawn.values()
            if isinstance(value, tuple) and all(isinstance(v, int) for v in value)
        ]
        way = self.rng.random()
        if rank is None and others and way < 0.4:
            # a shape that broadcasts against one that is known
            base = self.pick(others)
            kept = base[int(self.rng.integers(len(base) + 1)) :]
            return tuple(1 if self.chance(0.3) else size for size in kept)
        if rank is None and others and way < 0.7:
            rank = len(self.pick(others))
        count = int(self.pick(self.draws.ranks)) if rank is None else rank
        return tuple(self.size(name) for _ in range(count))

    # ---- attributes ----------------------------------------------------------------------------------------

    def operand(self, name: str, op: OperatorDef, place: NamePlace) -> Any:
        return self.number([]) if self.chance(0.5) else self.pick(self.draws.numbers)

    def entry(self, name: str, op: OperatorDef, attr: t.Attr, args: list[Value], place: NamePlace) -> Any:
        hints = operator_hints(op).get(attr.name, ())
        if not place.starred:
            return self.number(args, hints)
        count = self.count(op, attr, args, self.inner(op, args), place)
        return tuple(self.number(args, hints) for _ in range(max(0, count - place.siblings)))

    def count(self, op: OperatorDef, attr: t.Attr, args: list[Value], inner: Env, place: NamePlace) -> int:
        """The number of entries of a list: that of its declaration, else about as many as the first tensor has axes."""
        known = entry_count(op, attr, args, inner, place.results)
        rank = args[0].type.rank if args else 0
        return known if known is not None else int(self.pick((rank, max(0, rank - 2), int(self.rng.integers(6)))))

    def number(self, args: list[Value], hints: Sequence[tuple[str, int]] = ()) -> int:
        sizes = [size for arg in args[:1] for size in arg.type.sizes]
        return int(self.pick(self.within((*self.draws.entries, *sizes), hints)))

    def attribute(self, name: str, op: OperatorDef, attr: t.Attr, args: list[Value], place: NamePlace) -> Any:
        kind, rank = attr.type.name, args[0].type.rank if args else 0
        inner = self.inner(op, args)
        if kind == "dtype" and name in self.types:
            return self.types[name]
        hints = (*operator_hints(op).get(attr.name, ()), *self.text.hints.get(name, ()))
        if inner.has(attr.name) and self.chance(DETERMINED):
            return inner.get(attr.name)
        if attr.default and self.chance(DEFAULT):
            try:
                return evaluate(attr.default, inner)
            except (Unbound, Mismatch, DslcError):
                pass
        if attr.type.dims is not None:
            uniform = self.number([], hints)
            count = self.count(op, attr, args, inner, place)
            entries = tuple(
                uniform if self.chance(0.4) else self.number(args if self.chance(0.3) else [], hints)
                for _ in range(count)
            )
            return tuple(self.pick(self.draws.numbers) for _ in entries) if kind == "float" else entries
        draws: dict[str, Any] = {
            "int": lambda: self.number(args if self.chance(0.3) else [], hints),
            "float": lambda: self.pick(self.draws.numbers),
            "dtype": lambda: self.pick((args[0].type.dtype if args else DType.F32, *self.draws.casts)),
            "ints": lambda: self.shape(args),
            "floats": lambda: tuple(self.pick(self.draws.numbers) for _ in range(int(self.pick(self.draws.ranks)))),
            "string": lambda: self.pick(texts(op, attr)),
        }
        if kind in draws:
            return draws[kind]()
        options = values(kind, rank)
        if not options:
            raise Rejected(f"`{attr.name}` names an axis of a tensor that has none")
        return self.pick(options)

    def inner(self, op: OperatorDef, args: list[Value]) -> Env:
        """Names of an operator that follow from a call's tensors: the same for each of its attributes."""
        key = (op.name, *map(id, args))
        if key not in self.calls:
            self.calls[key] = (_bound(op, args, self.env), args)
        return self.calls[key][0]

    def shape(self, args: list[Value]) -> tuple[int, ...]:
        """A list of sizes: often a shape of as many elements as the first tensor has, or one that it broadcasts to."""
        sizes = tuple(int(str(size)) for arg in args[:1] for size in arg.type.shape)
        way = int(self.pick((0, 1, 2, 3, 3, 3)))
        if way == 0:
            return sizes
        if way == 1:
            grown = tuple(int(self.pick(self.draws.sizes)) if size == 1 else size for size in sizes)
            return (*(int(self.pick(self.draws.sizes)) for _ in range(int(self.rng.integers(2)))), *grown)
        if way == 2:
            return tuple(int(self.pick(self.draws.entries)) for _ in range(int(self.pick(self.draws.ranks))))
        factors = _prime_factors(math.prod(sizes))
        # mostly a rank is as likely as any other; a list of no entries holds one element
        rank = max(int(self.pick(self.draws.ranks)) + int(self.rng.integers(2)), min(1, len(factors)))
        out = [1] * rank
        for factor in factors:
            out[int(self.rng.integers(rank))] *= factor
        return tuple(out)


def _prime_factors(number: int) -> list[int]:
    out, factor = [], 2
    while number > 1:
        while number % factor == 0:
            out.append(factor)
            number //= factor
        factor = factor + 1 if factor * factor <= number else max(number, 2)
    return out


def _bound(op: OperatorDef, args: list[Value], outer: Env) -> Env:
    """As `partly_bound`, with what guards say of known sizes: attributes are among it (only where no size is unknown)."""
    env = partly_bound(op, args, outer)
    # what a later type says may have been missing in an earlier one
    types = [((param.type, arg.type),) for param, arg in zip(op.params, args, strict=False) if param.type]
    guards = conditions_in(op.statements)
    for pairs, conditions in (*((pair, ()) for pair in types), *(((), (guard,)) for guard in guards)):
        with contextlib.suppress(Mismatch, DslcError, Unbound):
            solve(pairs, conditions, env)
    return env


# ---- one instance ------------------------------------------------------------------------------------------------


def instantiate(
    rules: Rules,
    sub: SubstitutionDef,
    rng: np.random.Generator,
    terms: Mapping[str, OperatorDef] | None = None,
    dtypes: tuple[DType, ...] = (DType.F32,),
    types: Mapping[str, DType] | None = None,
    draws: InstanceDraws = ORDINARY,
) -> Instance:
    """One random instance, with element types that `types` does not give drawn from `dtypes`.

    Raises Rejected where the draw fits none.
    """
    syntax, facts = sub.syntax, rule_text(sub)
    env = Env(sub.module, rules)
    env.decls = dict(facts.decls)
    draft = _Random(env=env, text=facts, rng=rng, dtypes=dtypes, types=types or {}, draws=draws)
    side = "left"
    try:
        for name, op in (terms or {}).items():
            draft.bind(name, OperatorRef(op.name))
        draft.solve_conditions()
        inputs = tuple(value for value in draft.inputs(syntax).values() if isinstance(value.node, Input))
        left = draft.side(syntax.outputs, syntax.left, env)
        for condition in facts.conditions:
            held = draft.needing(env, condition)
            holds = (truth(held) if isinstance(condition, t.Compare) else held) is True
            if not holds or not _linear_uses(rules, condition, syntax, terms or {}, left):
                raise Rejected(f"`{condition.span.text}` does not hold")
        side = "right"
        right, inner = draft.right(syntax)
        corrected, limit = _corrections(draft, syntax.statements, inner)
        for node in nodes_of([*left.values(), *right.values()]):
            for value in node.values:
                _held(value.type)
    except (Mismatch, DslcError, ArithmeticError, IndexError) as problem:
        raise Rejected(f"{side} side: {problem.reason if isinstance(problem, Mismatch) else problem}") from problem
    except Unbound as unknown:
        raise Rejected(f"{side} side: `{unknown.name}` stays unknown") from None
    return Instance(inputs, left, right, dict(draft.drawn), corrected, limit)


def _held(type: TensorType) -> None:
    """Raises Rejected for a tensor of too many elements."""
    if type.elements > MOST_ELEMENTS:
        raise Rejected(f"a tensor has {type.elements} elements, and instances have {MOST_ELEMENTS} at most")


def _linear_uses(
    rules: Rules, condition: t.Expr, syntax: t.Substitution, terms: Mapping[str, OperatorDef], left: Mapping[str, Value]
) -> bool:
    """Return whether each use of a term on the left side is linear where the condition is `linear(f)`."""
    if not isinstance(condition, t.Call) or condition.function != "linear" or not isinstance(condition.args[0], t.Name):
        return True
    name = condition.args[0].id
    declared = (s for s in terms_in(syntax.left) if s.name == name)
    count = next((len(s.params) for s in declared), 0)
    uses = [n for n in nodes_of(left.values()) if isinstance(n, Call) and name in terms and n.op == terms[name].name]
    return all(linear_at(rules, n, count) for n in uses)


def _corrections(draft: _Random, statements: tuple[t.GraphStatement, ...], env: Env) -> tuple[dict[str, Value], float]:
    """The outputs that `correct Y = ...` gives, over the names of both sides, and the share that may be corrected."""
    out: dict[str, Value] = {}
    limit = 1.0
    for statement in statements:
        if isinstance(statement, t.Correct):
            if statement.limit:
                limit = float(draft.needing(env, statement.limit))
            if isinstance(statement.what, t.Bind):
                out.update(draft.results(statement.what, env))
    if not all(isinstance(part, Value) for part in out.values()):
        raise Rejected("a correction is no tensor")
    return out, limit


def term_options(rules: Rules, sub: SubstitutionDef) -> dict[str, list[OperatorDef]]:
    """For each term of a rule the operators that have as many tensors and are what the guards want."""
    options: dict[str, list[OperatorDef]] = {}
    for signature in terms_in(sub.left):
        wanted = {c.function for c in _conditions(sub) if _names(c) == [signature.name]}
        options[signature.name] = [
            op
            for op in rules.operators.values()
            if len(op.params) == len(signature.params)
            and len(op.outputs) == 1
            and ("pointwise" not in wanted or is_pointwise(op, rules))
            and ("linear" not in wanted or _may_be_linear(rules, op))
        ]
    return options


def term_choices(
    rules: Rules, sub: SubstitutionDef, rng: np.random.Generator, count: int
) -> Iterator[Mapping[str, OperatorDef]]:
    """Operators for the terms of a rule: some of those that fit, by turns those that tell more apart, and any."""
    options = term_options(rules, sub)
    linear = {name for c in _conditions(sub) if c.function == "linear" for name in _names(c)}
    drawn = []
    for name, fitting in options.items():
        order = [fitting[int(k)] for k in rng.permutation(len(fitting))]
        telling = [op for op in order if _tells(op, name in linear)]
        turns = [op for pair in itertools.zip_longest(telling, order) for op in pair if op is not None]
        drawn.append(list(dict.fromkeys(turns))[:count])
    for choice in itertools.islice(itertools.product(*drawn), count):
        yield dict(zip(options, choice, strict=True))


def _may_be_linear(rules: Rules, op: OperatorDef) -> bool:
    """Return whether an operator is linear in some use; whether it is in an instance is asked of that."""
    cache = rules_cache(rules, "linear in a sample")
    if op.name not in cache:
        try:
            node = sample(rules, op)[0].node
        except (Mismatch, EvalError, Unbound):
            node = None
        cache[op.name] = isinstance(node, Call) and linear_at(rules, node, len(node.args))
    return bool(cache[op.name])


def _tells(op: OperatorDef, linear: bool) -> bool:
    """Return whether an operator has attributes, which a rule may mix up, or (`linear`) computes more than it moves."""
    if not linear:
        return bool(op.attrs)
    return not all(_moves(s.value) for s in op.statements if isinstance(s, t.Equation))


def _moves(value: t.Expr) -> bool:
    """Return whether an element of the result is an element of a tensor, or a number."""
    if isinstance(value, t.Conditional):
        return _moves(value.then) and _moves(value.otherwise)
    return isinstance(value, t.Subscript | t.Name | t.Int | t.Float)


def _conditions(sub: SubstitutionDef) -> list[t.Call]:
    """The guards that are calls."""
    return [c for c in conditions_in(sub.left) if isinstance(c, t.Call)]


def _names(call: t.Call) -> list[str]:
    return [arg.bare for arg in call.args if arg.bare]
