"""Random small instances of a substitution: sizes, attributes and operators for which its types and guards hold.

A name is drawn where evaluating the left side first needs it, from what its place says: a dimension, an attribute of a known
declared type, an entry of a list. Guards that compare a name with a number narrow its range beforehand, equations among the
guards bind names, and what still does not hold is drawn again.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from dslc.analysis.linearity import linear_at
from dslc.errors import DslcError
from dslc.interpret.facts import Hints, Place, facts_of, operator_hints
from dslc.ir.constants import NUMPY, array_value
from dslc.ir.dtype import DTYPES, DType, TensorType
from dslc.ir.graph import Call, Value, input_value, topological
from dslc.semantics.composites import modes_of
from dslc.semantics.definitions import OperatorDef, SubstitutionDef
from dslc.semantics.env import AttrSet, Closure, Env, Mismatch, OperatorRef, Thunk, Unbound
from dslc.semantics.evaluate import evaluate, truth
from dslc.semantics.library import Rules
from dslc.semantics.types import shape_of, solve
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t

_SIZES = (1, 2, 2, 3, 3, 4, 5, 8)
_ENTRIES = (0, 0, 1, 1, 1, 2, 2, 3)
_NUMBERS = (Fraction(1, 2), Fraction(2), Fraction(-3, 4), Fraction(5, 4), Fraction(3), Fraction(1, 8))
_DEFAULT = 0.45
# how often a size divides one that is known, as channels do
_DIVIDING = 0.3
# how often an attribute is what the types of the operands say of it
_DETERMINED = 0.9


class Rejected(Exception):
    """This draw fits no instance; the next one may."""


@dataclass(frozen=True, slots=True)
class Instance:
    """`left` and `right` are the values of the substitution's outputs; `drawn` says what its names stand for."""

    inputs: tuple[Value, ...]
    left: Mapping[str, Value]
    right: Mapping[str, Value]
    drawn: Mapping[str, Any]

    def __str__(self) -> str:
        return ", ".join(f"{name} = {show(value)}" for name, value in self.drawn.items())


def show(value: Any) -> str:
    """A drawn value as the language writes it."""
    if isinstance(value, tuple):
        return "[" + ", ".join(show(item) for item in value) + "]"
    if isinstance(value, AttrSet):
        return "{" + ", ".join(f"{name} = {show(item)}" for name, item in value.values.items()) + "}"
    if isinstance(value, OperatorRef):
        return value.name
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass
class _Draft:
    rules: Rules
    syntax: t.Substitution
    env: Env
    rng: np.random.Generator
    terms: Mapping[str, OperatorDef]
    conditions: tuple[t.Expr, ...]
    places: Mapping[str, list[Place]]
    hints: Hints
    dtypes: tuple[DType, ...]
    drawn: dict[str, Any] = field(default_factory=dict)

    def bind(self, name: str, value: Any) -> None:
        self.env.bind(name, value)
        self.drawn[name] = value
        self.solve_conditions()

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def solve_conditions(self) -> None:
        """Binds what an equation among the guards determines. Raises Rejected where one cannot hold."""
        for condition in self.conditions:
            try:
                solve((), (condition,), self.env)
            except Mismatch as problem:
                if "stays unknown" not in problem.reason:
                    raise Rejected(problem.reason) from None

    # ---- sizes ---------------------------------------------------------------------------------------------

    def size(self, name: str) -> int:
        options = self.within(_SIZES, self.hints.get(name, ()))
        known = [value for value in self.drawn.values() if isinstance(value, int) and not isinstance(value, bool) and value > 0]
        if known and self.chance(_DIVIDING):
            whole = self.pick(known)
            # 1 divides everything, and tells little apart
            options = [k for k in range(2, whole + 1) if whole % k == 0 and k in options] or options
        return int(self.pick(options))

    def within(self, options: Sequence[int], hints: Sequence[tuple[str, int]]) -> Sequence[int]:
        """The numbers that guards allow; others where they allow none of these."""
        for relation, bound in hints:
            if relation in {">", ">="}:
                options = [k for k in options if k > bound or (k == bound and relation == ">=")] or [bound + 1, bound + 2]
            elif relation in {"<", "<="}:
                options = [k for k in options if k < bound or (k == bound and relation == "<=")] or [bound]
            elif relation == "==" and self.chance(0.9):
                options = [bound]
        return options

    def pack(self, name: str) -> tuple[int, ...]:
        rank = self.env.ranks.get(name)
        others = [value for value in self.drawn.values() if isinstance(value, tuple) and all(isinstance(v, int) for v in value)]
        way = self.rng.random()
        if rank is None and others and way < 0.4:
            # a shape that broadcasts against one that is known
            base = self.pick(others)
            kept = base[int(self.rng.integers(len(base) + 1)) :]
            return tuple(1 if self.chance(0.3) else size for size in kept)
        if rank is None and others and way < 0.7:
            rank = len(self.pick(others))
        count = int(self.rng.integers(4)) if rank is None else rank
        return tuple(self.size(name) for _ in range(count))

    def dims(self, type: t.TypeExpr) -> None:
        if type.name not in DTYPES and not self.env.has(type.name):
            self.bind(type.name, self.pick(self.dtypes))
        for element in type.dims or ():
            slots = element.slots if isinstance(element, t.TupleExpr) else (element,)
            for slot in slots:
                starred = isinstance(slot, t.Pack)
                inner = slot.value if isinstance(slot, t.Pack) else slot
                for node in walk_expr(inner):
                    if isinstance(node, t.Name) and not self.env.has(node.id) and "." not in node.id:
                        whole = starred and isinstance(inner, t.Name)
                        self.bind(node.id, self.pack(node.id) if whole else self.size(node.id))

    # ---- attributes ----------------------------------------------------------------------------------------

    def draw(self, name: str) -> None:
        """Binds a name that the left side needs, by the places where it stands. Raises Rejected."""
        name = name.partition(".")[0]
        for statement in self.syntax.left:
            if isinstance(statement, t.Let) and statement.target.name == name and statement.target.places is None:
                _needing(self, self.env, statement.value)
                return
        for condition in self.conditions:
            if self.draw_list(name, condition):
                return
        for place in self.places.get(name, ()):
            if self.operator(place.call) is None:
                continue
            try:
                value = self.placed(place)
            except Unbound:
                continue
            self.bind(name, value)
            return
        raise Rejected(f"nothing says what `{name}` may be")

    def draw_list(self, name: str, condition: t.Expr) -> bool:
        """`[N, b, C] == s`: unknown entries of a list are sizes."""
        if not isinstance(condition, t.Compare) or condition.ops != ("==",):
            return False
        for target, source in (condition.operands, condition.operands[::-1]):
            if not (isinstance(target, t.Name) and target.id == name and isinstance(source, t.ListExpr)):
                continue
            for element in source.elements:
                if isinstance(element, t.Name) and not self.env.has(element.id):
                    self.bind(element.id, self.size(element.id))
            if not self.env.has(name):
                self.bind(name, evaluate(source, self.env))
            return True
        return False

    def operator(self, call: t.Call) -> OperatorDef | None:
        if call.function in self.terms:
            return self.terms[call.function]
        found = self.env.module.lookup(call.function)
        return found if isinstance(found, OperatorDef) else None

    def placed(self, place: Place) -> Any:
        op = self.operator(place.call)
        assert op is not None
        if place.attr is None and not place.starred:
            return self.entry([]) if self.chance(0.5) else self.pick(_NUMBERS)
        args = [value for arg in place.call.args for value in _values(evaluate(arg, self.env))]
        inner = _bound(op, args, self.env)
        if place.attr is None:
            named = {keyword.name for keyword in place.call.kwargs}
            return AttrSet({attr.name: self.attribute(op, attr, args, inner) for attr in op.attrs if attr.name not in named})
        attr = next((attr for attr in op.attrs if attr.name == place.attr), None)
        if attr is None:
            raise Rejected(f"`{op.short}` has no attribute `{place.attr}`")
        if not place.entry:
            return self.attribute(op, attr, args, inner)
        count, hints = entry_count(attr, args, inner), operator_hints(op).get(attr.name, ())
        if not place.starred:
            return self.entry(args, hints)
        return tuple(self.entry(args, hints) for _ in range(max(0, count - place.siblings)))

    def entry(self, args: list[Value], hints: Sequence[tuple[str, int]] = ()) -> int:
        sizes = [int(str(size)) for arg in args[:1] for size in arg.type.shape]
        return int(self.pick(self.within((*_ENTRIES, *sizes), hints)))

    def attribute(self, op: OperatorDef, attr: t.Attr, args: list[Value], inner: Env) -> Any:
        kind, rank = attr.type.name, args[0].type.rank if args else 0
        hints = operator_hints(op).get(attr.name, ())
        if inner.has(attr.name) and self.chance(_DETERMINED):
            return inner.get(attr.name)
        if attr.default is not None and self.chance(_DEFAULT):
            try:
                return evaluate(attr.default, inner)
            except (Unbound, Mismatch, DslcError):
                pass
        if attr.type.dims is not None:
            uniform = self.entry([], hints)
            count = entry_count(attr, args, inner)
            entries = tuple(uniform if self.chance(0.4) else self.entry(args if self.chance(0.3) else [], hints) for _ in range(count))
            return tuple(self.pick(_NUMBERS) for _ in entries) if kind == "float" else entries
        draws: dict[str, Any] = {
            "bool": lambda: self.chance(0.5),
            "int": lambda: self.entry(args if self.chance(0.3) else [], hints),
            "float": lambda: self.pick(_NUMBERS),
            "axis": lambda: int(self.rng.integers(max(1, rank))),
            "axes": lambda: tuple(k for k in range(rank) if self.chance(0.5)) or tuple(range(min(1, rank))),
            "permutation": lambda: tuple(int(k) for k in self.rng.permutation(rank)),
            "dtype": lambda: self.pick((args[0].type.dtype if args else DType.F32, DType.F32, DType.I64)),
            "ints": lambda: self.shape(args),
            "floats": lambda: tuple(self.pick(_NUMBERS) for _ in range(rank)),
        }
        texts = _texts(attr, inner) if kind == "string" else ()
        if texts:
            return self.pick(texts)
        if kind not in draws:
            raise Rejected(f"`{attr.name}: {kind}` has no default")
        return draws[kind]()

    def shape(self, args: list[Value]) -> tuple[int, ...]:
        """A list of sizes: often a shape of as many elements as the first tensor has, or one that it broadcasts to."""
        sizes = tuple(int(str(size)) for arg in args[:1] for size in arg.type.shape)
        way = int(self.rng.integers(4))
        if way == 0:
            return sizes
        if way == 1:
            grown = tuple(int(self.pick(_SIZES)) if size == 1 else size for size in sizes)
            return (*(int(self.pick(_SIZES)) for _ in range(int(self.rng.integers(2)))), *grown)
        if way == 2:
            return tuple(int(self.pick(_ENTRIES)) for _ in range(int(self.rng.integers(4))))
        left = math.prod(sizes)
        out: list[int] = []
        while left > 1 and len(out) < 4:
            factor = int(self.pick([k for k in range(2, left + 1) if left % k == 0]))
            out.append(factor)
            left //= factor
        if left != 1:
            out.append(left)
        if self.chance(0.3):
            out.insert(int(self.rng.integers(len(out) + 1)), 1)
        return tuple(out)


def _texts(attr: t.Attr, inner: Env) -> tuple[str, ...]:
    """What an operator's guards allow a text attribute to be."""
    for op in inner.module.names.values():
        if isinstance(op, OperatorDef) and attr in op.attrs:
            return tuple(value.value for value in modes_of(op).get(attr.name, ()) if isinstance(value, t.Str))
    return ()


def _values(value: Any) -> Iterator[Value]:
    if isinstance(value, Value):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _values(item)


def partly_bound(op: OperatorDef, args: list[Value], outer: Env) -> Env:
    """An environment with what the types of the arguments alone say about an operator's sizes."""
    env = Env(op.module, outer.rules)
    for param, arg in zip(op.syntax.params, args, strict=False):
        env.bind(param.name, arg)
        if param.type is not None:
            try:
                solve(((param.type, arg.type),), (), env)
            except (Mismatch, DslcError):
                continue
    return env


def _bound(op: OperatorDef, args: list[Value], outer: Env) -> Env:
    """As `partly_bound`, with what guards say of known sizes: attributes are among it (only where no size is unknown)."""
    env = partly_bound(op, args, outer)
    # what a later type says may have been missing in an earlier one
    types = [((param.type, arg.type),) for param, arg in zip(op.syntax.params, args, strict=False) if param.type is not None]
    guards = [c for s in op.syntax.statements if isinstance(s, t.Where) for c in s.conditions]
    for pairs, conditions in (*((pair, ()) for pair in types), *(((), (guard,)) for guard in guards)):
        with contextlib.suppress(Mismatch, DslcError, Unbound):
            solve(pairs, conditions, env)
    return env


def entry_count(attr: t.Attr, args: list[Value], inner: Env) -> int:
    """How many entries a list attribute has; the rank of the first tensor where its declaration does not say."""
    rank = args[0].type.rank if args else 0
    if not attr.type.dims:
        return rank
    try:
        return int(evaluate(attr.type.dims[0], inner))
    except (Unbound, Mismatch, DslcError, TypeError):
        return max(0, rank - 2)


# ---- one instance ------------------------------------------------------------------------------------------------


def instantiate(
    rules: Rules,
    sub: SubstitutionDef,
    rng: np.random.Generator,
    terms: Mapping[str, OperatorDef] | None = None,
    dtypes: tuple[DType, ...] = (DType.F32,),
) -> Instance:
    """One random instance, with element types that are free drawn from `dtypes`. Raises Rejected where the draw fits none."""
    syntax, facts = sub.syntax, facts_of(sub)
    conditions = facts.conditions
    env = Env(sub.module, rules)
    env.decls = dict(facts.decls)
    draft = _Draft(rules, syntax, env, rng, terms or {}, conditions, facts.places, facts.hints, dtypes)
    try:
        for name, op in (terms or {}).items():
            draft.bind(name, OperatorRef(op.name))
        draft.solve_conditions()
        inputs = _inputs(draft, facts.constants)
        left = _side(draft, syntax.left, env)
        for condition in conditions:
            if _needing(draft, env, condition) is not True or not _linear_uses(rules, condition, syntax, terms or {}, left):
                raise Rejected(f"`{condition.span.text}` does not hold")
    except (Mismatch, DslcError, ArithmeticError, IndexError) as problem:
        raise Rejected(f"left side: {_reason(problem)}") from None
    except Unbound as unknown:
        raise Rejected(f"left side: `{unknown.name}` stays unknown") from None
    try:
        inner = env.child()
        inner.decls = env.decls
        for statement in syntax.right:
            if isinstance(statement, t.Search):
                draft.drawn[statement.name] = draft.pick(evaluate(statement.domain, inner))
                inner.bind(statement.name, draft.drawn[statement.name])
        right = _side(draft, syntax.right, inner)
    except (Mismatch, DslcError, ArithmeticError, IndexError) as problem:
        raise Rejected(f"right side: {_reason(problem)}") from None
    except Unbound as unknown:
        raise Rejected(f"right side: `{unknown.name}` stays unknown") from None
    return Instance(inputs, left, right, dict(draft.drawn))


def _linear_uses(
    rules: Rules, condition: t.Expr, syntax: t.Substitution, terms: Mapping[str, OperatorDef], left: Mapping[str, Value]
) -> bool:
    """Whether each use of a term on the left side is linear where the condition is `linear(f)`."""
    if not isinstance(condition, t.Call) or condition.function != "linear" or not isinstance(condition.args[0], t.Name):
        return True
    name = condition.args[0].id
    declared = (s for part in syntax.left if isinstance(part, t.TermDecl) for s in part.signatures if s.name == name)
    count = next((len(s.params) for s in declared), 0)
    uses = [n for n in topological(v.node for v in left.values()) if isinstance(n, Call) and name in terms and n.op == terms[name].name]
    return all(linear_at(rules, n, count) for n in uses)


def _reason(problem: Exception) -> str:
    return problem.reason if isinstance(problem, Mismatch) else str(problem)


def _inputs(draft: _Draft, constants: set[str]) -> tuple[Value, ...]:
    """Tensors for the parameters; those whose sizes a `let` computes (from attributes, perhaps) come last."""
    lets = {s.target.name for s in draft.syntax.left if isinstance(s, t.Let)}
    computed: list[t.Param] = []
    for param in draft.syntax.params:
        if param.type is None:
            raise Rejected(f"`{param.name}` has no type")
        if lets & {node.id for node in walk_expr(param.type) if isinstance(node, t.Name)}:
            computed.append(param)
        else:
            draft.dims(param.type)
    bind_definitions(draft.syntax.left, draft.env)
    inputs = []
    for param in (*(p for p in draft.syntax.params if p not in computed), *computed):
        assert param.type is not None
        if param in computed:
            for name in lets:
                _needing(draft, draft.env, t.Name(name, span=param.span))
            draft.dims(param.type)
        type = shape_of(param.type, draft.env)
        if param.name in constants:
            shape = tuple(int(str(size)) for size in type.shape)
            draft.env.bind(param.name, array_value(_random(type, shape, draft.rng)))
        else:
            value = input_value(param.name, type)
            draft.env.bind(param.name, value)
            inputs.append(value)
    return tuple(inputs)


def _random(type: TensorType, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    dtype = NUMPY[type.dtype]
    if type.dtype.is_float:
        # few digits, so that exact domains read what float32 holds; no zeros, which guards rarely allow in divisors
        return (rng.choice((-1, 1), shape) * rng.integers(1, 65, shape) / 16).astype(dtype)
    return rng.integers(0, 2 if type.dtype is DType.BOOL else 4, shape).astype(dtype)


def _side(draft: _Draft, statements: tuple[t.GraphStatement, ...], env: Env) -> dict[str, Value]:
    """Evaluates a side's statements in order; gives the substitution's outputs."""
    bind_definitions(statements, env)
    for statement in statements:
        if isinstance(statement, t.LetMany | t.Bind):
            value = _needing(draft, env, statement.value)
            if len(statement.names) == 1:
                env.bind(statement.names[0], value)
                continue
            if not isinstance(value, tuple) or len(value) != len(statement.names):
                raise Rejected(f"`{statement.span.text}` names {len(statement.names)} results")
            for name, part in zip(statement.names, value, strict=True):
                env.bind(name, part)
    out = {name: env.get(name) for name in draft.syntax.outputs}
    for name, value in out.items():
        if not isinstance(value, Value):
            raise Rejected(f"`{name}` is no tensor")
    return out


def bind_definitions(statements: tuple[t.GraphStatement, ...], env: Env) -> None:
    """Functions, `let`s and constants of a side, each computed on first use."""
    for statement in statements:
        if isinstance(statement, t.Function):
            env.bind(statement.name, Closure(statement, env))
        elif isinstance(statement, t.Let):
            env.bind(statement.target.name, _let(statement, env))
        elif isinstance(statement, t.Const):
            env.bind(statement.target.name, _const(statement, env))


def _needing(draft: _Draft, env: Env, expr: t.Expr) -> Any:
    """The value of an expression; names without a value are drawn."""
    for _ in range(64):
        try:
            value = evaluate(expr, env)
        except Unbound as unknown:
            draft.draw(unknown.name)
            continue
        return truth(value) if isinstance(expr, t.Compare) else value
    raise Rejected("too many names")


def _let(statement: t.Let, env: Env) -> Thunk:
    from dslc.semantics.scopes import build_scope

    def compute() -> Any:
        if statement.target.places is None:
            return evaluate(statement.value, env)
        return build_scope(statement.target.places, statement.value, None, env, None)

    return Thunk(compute)


def _const(statement: t.Const, env: Env) -> Thunk:
    from dslc.semantics.scopes import build_scope

    def compute() -> Any:
        if statement.target.places is None:
            return evaluate(statement.value, env)
        dtype = shape_of(t.TypeExpr(statement.type.name, (), span=statement.type.span), env).dtype
        return build_scope(statement.target.places, statement.value, None, env, dtype, statement.type.dims)

    return Thunk(compute)
