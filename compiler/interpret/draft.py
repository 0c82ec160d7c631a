"""The names of a rule as they are found one after the other, whatever their values are taken from: chance, paths of choices, a table.

A name is drawn where evaluating the left side first needs it, from what its place says: a dimension, an attribute of a known declared
type, an entry of a list. Equations among the guards bind names; a `let` is computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from dslc.errors import DslcError
from dslc.ir.dtype import DTYPES, DType, TensorType
from dslc.ir.graph import Value
from dslc.records import record
from dslc.semantics.definitions import OperatorDef, SubstitutionDef
from dslc.semantics.env import AttrSet, Closure, Env, Mismatch, OperatorRef, Thunk, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.scopes import build_scope
from dslc.semantics.types import shape_of, solve
from dslc.semantics.walk import conditions_in, names_in, nodes
from dslc.syntax import tree as t

MOST_NAMES = 64  #: names that one expression may ask for


@record
class NamePlace:
    """Place of a name in a call: an attribute, an entry of one (`starred`: several), `**name`, or an operand.

    `results`: how many names the results of the call get; None where it stands inside an expression.
    """

    call: t.Call
    results: int | None
    attr: str | None = None
    entry: bool = False
    starred: bool = False
    siblings: int = 0


def _find_places(statements: tuple[t.GraphStatement, ...]) -> dict[str, list[NamePlace]]:
    out: dict[str, list[NamePlace]] = {}
    for statement in statements:
        if isinstance(statement, t.Bind | t.Let | t.LetMany):
            count = None if isinstance(statement, t.Let) else len(statement.names)
            for call in nodes(t.Call, statement.value):
                for name, place in _places_of(call, count if call is statement.value else None):
                    out.setdefault(name, []).append(place)
    return out


def _places_of(call: t.Call, results: int | None) -> Iterator[tuple[str, NamePlace]]:
    if call.rest is not None:
        yield call.rest, NamePlace(call, results, starred=True)
    for keyword in call.kwargs:
        elements = keyword.value.elements if isinstance(keyword.value, t.ListExpr) else ()
        single = sum(not isinstance(element, t.Pack) for element in elements)
        if isinstance(keyword.value, t.Name):
            yield keyword.value.id, NamePlace(call, results, keyword.name)
        for element in elements:
            starred = isinstance(element, t.Pack)
            name = element.value if isinstance(element, t.Pack) else element
            if isinstance(name, t.Name):
                yield name.id, NamePlace(call, results, keyword.name, True, starred, single if starred else 0)
    for arg in call.args:
        if isinstance(arg, t.Name):
            yield arg.id, NamePlace(call, results)


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}
Hints = Mapping[str, list[tuple[str, int]]]


def _find_hints(conditions: tuple[t.Expr, ...]) -> Hints:
    """`N >= 512`, `all(R == 1)`, `all(a.stride == 1)`: ranges of names, of every entry for a list."""
    out: dict[str, list[tuple[str, int]]] = {}
    for condition in conditions:
        if isinstance(condition, t.Call) and condition.function == "all" and len(condition.args) == 1:
            condition = condition.args[0]
        if isinstance(condition, t.Compare) and len(condition.ops) == 1 and (op := condition.ops[0]) in _MIRRORED:
            left, right = condition.operands
            for name, number, relation in ((left, right, op), (right, left, _MIRRORED[op])):
                if isinstance(name, t.Field) and isinstance(name.call, t.Name):
                    name = t.Name(f"{name.call.id}.{name.name}", span=name.span)
                if isinstance(number, t.Int) and isinstance(name, t.Name):
                    out.setdefault(name.id, []).append((relation, number.value))
    return out


@record
class RuleText:
    """`places` of every name, `hints` that compare a name with a number, and the parameters that must be `constants`."""

    conditions: tuple[t.Expr, ...]
    decls: Mapping[str, tuple[t.Expr, ...]]
    lets: tuple[t.Let, ...]
    places: Mapping[str, list[NamePlace]]
    hints: Hints
    constants: frozenset[str]


@lru_cache(maxsize=256)
def operator_hints(op: OperatorDef) -> Hints:
    """Ranges that the guards of an operator give its sizes and attributes."""
    return _find_hints(conditions_in(op.statements))


@lru_cache(maxsize=64)
def rule_text(sub: SubstitutionDef) -> RuleText:
    """The statements of a rule's text that hold for all its instances."""
    syntax = sub.syntax
    conditions = conditions_in(syntax.left)
    constants = {
        arg.id
        for node in nodes(t.Call, conditions)
        if node.function == "constant"
        for arg in node.args
        if isinstance(arg, t.Name)
    }
    return RuleText(
        conditions,
        {p.name: p.type.dims for p in syntax.params if p.type is not None and p.type.dims is not None},
        tuple(s for s in syntax.left if isinstance(s, t.Let)),
        _find_places(syntax.left),
        _find_hints(conditions),
        frozenset(constants),
    )


@dataclass(kw_only=True)
class Draft(ABC):
    """One evaluation of a rule: its names so far. What they may be is said by the abstract methods: the source of values."""

    env: Env
    text: RuleText
    drawn: dict[str, Any] = field(default_factory=dict)

    # ---- the source ------------------------------------------------------------------------------------------

    @abstractmethod
    def dtype(self, name: str) -> DType:
        """The element type that a type variable stands for."""

    @abstractmethod
    def size(self, name: str) -> Any:
        """A size."""

    @abstractmethod
    def pack(self, name: str) -> tuple[Any, ...]:
        """The sizes of a pack."""

    @abstractmethod
    def operand(self, name: str, op: OperatorDef, place: NamePlace) -> Any:
        """A number where a tensor is expected."""

    @abstractmethod
    def attribute(self, name: str, op: OperatorDef, attr: t.Attr, args: list[Value], place: NamePlace) -> Any:
        """A whole attribute; `name` is `a.stride` where `**a` stands for it."""

    @abstractmethod
    def entry(self, name: str, op: OperatorDef, attr: t.Attr, args: list[Value], place: NamePlace) -> Any:
        """One entry of a list attribute, or (where the place is starred) several."""

    @abstractmethod
    def tensor(self, param: t.Param, type: TensorType) -> Value:
        """The tensor of a parameter."""

    @abstractmethod
    def typed(self, name: str, type: t.TypeExpr) -> None:
        """Note a parameter whose sizes are known, before those of all are."""

    @abstractmethod
    def searched(self, name: str, domain: Any) -> Any:
        """The value of a name that the right side searches."""

    @abstractmethod
    def refused(self, reason: str) -> Exception:
        """The exception where nothing says the value of a name."""

    @abstractmethod
    def solve_conditions(self) -> None:
        """Binds what an equation among the guards determines."""

    # ---- names -----------------------------------------------------------------------------------------------

    def bind(self, name: str, value: Any) -> None:
        self.env.bind(name, value)
        self.drawn[name] = value
        self.solve_conditions()

    def dims(self, type: t.TypeExpr) -> None:
        """Binds the names of a declared type."""
        if type.name not in DTYPES and not self.env.has(type.name):
            self.bind(type.name, self.dtype(type.name))
        for element in type.dims or ():
            slots = element.slots if isinstance(element, t.TupleExpr) else (element,)
            for slot in slots:
                inner = slot.value if isinstance(slot, t.Pack) else slot
                for node in nodes(t.Name, inner):
                    if not self.env.has(node.id) and "." not in node.id:
                        whole = isinstance(slot, t.Pack) and isinstance(inner, t.Name)
                        self.bind(node.id, self.pack(node.id) if whole else self.size(node.id))

    def inputs(self, syntax: t.Substitution) -> dict[str, Value]:
        """Tensors for the parameters; those whose sizes a `let` computes (from attributes, perhaps) come last."""
        lets = {let.target.name for let in self.text.lets}
        computed: list[t.Param] = []
        for param in syntax.params:
            if not param.type or param.star:
                raise self.refused(f"`{param.name}` has no type, or is any number of tensors")
            if lets & names_in(param.type):
                computed.append(param)
            else:
                self.dims(param.type)
                if not lets:
                    self.typed(param.name, param.type)
        bind_definitions(syntax.left, self.env)
        out = {}
        for param in (*(p for p in syntax.params if p not in computed), *computed):
            assert param.type
            if param in computed:
                for name in lets:
                    self.needing(self.env, t.Name(name, span=param.span))
                self.dims(param.type)
            out[param.name] = self.tensor(param, shape_of(param.type, self.env))
            self.env.bind(param.name, out[param.name])
        return out

    def side(self, outputs: tuple[str, ...], statements: tuple[t.GraphStatement, ...], env: Env) -> dict[str, Value]:
        """The values of the rule's outputs, from a side's statements in order."""
        bind_definitions(statements, env)
        for statement in statements:
            if isinstance(statement, t.LetMany | t.Bind):
                for name, value in self.results(statement, env).items():
                    env.bind(name, value)
        out = {name: env.get(name) for name in outputs}
        for name, value in out.items():
            if not isinstance(value, Value):
                raise Mismatch(f"`{name}` is no tensor")
        return out

    def results(self, statement: t.LetMany | t.Bind, env: Env) -> dict[str, Any]:
        """The values that a statement gives its names."""
        value = self.needing(env, statement.value)
        values = (value,) if len(statement.names) == 1 else value
        if not isinstance(values, tuple) or len(values) != len(statement.names):
            raise Mismatch(f"`{statement.span.text}` names {len(statement.names)} results")
        return dict(zip(statement.names, values, strict=True))

    def right(self, syntax: t.Substitution) -> tuple[dict[str, Value], Env]:
        """The values of the outputs on the right side, and its names."""
        inner = self.env.child()
        inner.decls = self.env.decls
        for statement in syntax.right:
            if isinstance(statement, t.Search):
                self.drawn[statement.name] = self.searched(statement.name, evaluate(statement.domain, inner))
                inner.bind(statement.name, self.drawn[statement.name])
        return self.side(syntax.outputs, syntax.right, inner), inner

    def needing(self, env: Env, expr: t.Expr) -> Any:
        """The value of an expression; names without a value are drawn."""
        for _ in range(MOST_NAMES):
            try:
                return evaluate(expr, env)
            except Unbound as unknown:
                self.draw(unknown.name)
        raise self.refused("too many names")

    def draw(self, name: str) -> None:
        """Binds a name that the left side needs, by the places where it stands."""
        name = name.partition(".")[0]
        for statement in self.text.lets:
            if statement.target.name == name and statement.target.places is None:
                self.needing(self.env, statement.value)
                return
        for condition in self.text.conditions:
            if self._draw_list(name, condition):
                return
        for place in self.text.places.get(name, ()):
            if not self.operator(place.call):
                continue
            try:
                value = self._placed(name, place)
            except Unbound:
                continue
            self.bind(name, value)
            return
        raise self.refused(f"nothing says what `{name}` may be")

    def operator(self, call: t.Call) -> OperatorDef | None:
        """The operator that a call is of; a term's is bound to its name."""
        if self.env.has(call.function):
            target = self.env.get(call.function)
            return self.env.rules.operators[target.name] if isinstance(target, OperatorRef) else None
        found = self.env.module.lookup(call.function)
        return found if isinstance(found, OperatorDef) else None

    def _draw_list(self, name: str, condition: t.Expr) -> bool:
        """`[N, b, C] == s`: unknown entries of a list are sizes."""
        if not condition.equated:
            return False
        for target, source in (condition.equated, condition.equated[::-1]):
            if not (target.bare == name and isinstance(source, t.ListExpr)):
                continue
            for element in source.elements:
                if isinstance(element, t.Name) and not self.env.has(element.id):
                    self.bind(element.id, self.size(element.id))
            if not self.env.has(name):
                self.bind(name, self.needing(self.env, source))
            return True
        return False

    def _placed(self, name: str, place: NamePlace) -> Any:
        op = self.operator(place.call)
        assert op
        if place.attr is None and not place.starred:
            return self.operand(name, op, place)
        args = [value for arg in place.call.args for value in tensors_in(evaluate(arg, self.env))]
        if place.attr is None:
            named = {keyword.name for keyword in place.call.kwargs}
            return AttrSet({
                attr.name: self.attribute(f"{name}.{attr.name}", op, attr, args, place) for attr in op.attrs if attr.name not in named
            })  # fmt: skip
        attr = next((attr for attr in op.attrs if attr.name == place.attr), None)
        if attr is None:
            raise Mismatch(f"`{op.short}` has no attribute `{place.attr}`")
        return (self.entry if place.entry else self.attribute)(name, op, attr, args, place)


def bind_definitions(statements: tuple[t.GraphStatement, ...], env: Env) -> None:
    """Bind functions, `let`s and constants of a side, each computed on first use."""
    for statement in statements:
        if isinstance(statement, t.Function):
            env.bind(statement.name, Closure(statement, env))
        elif isinstance(statement, t.Let | t.Const):
            env.bind(statement.target.name, Thunk(partial(_defined, statement, env)))


def _defined(statement: t.Let | t.Const, env: Env) -> Any:
    places, dtype, dims = statement.target.places, None, None
    if places is None:
        return evaluate(statement.value, env)
    if isinstance(statement, t.Const):
        dtype = shape_of(t.TypeExpr(statement.type.name, (), span=statement.type.span), env).dtype
        dims = statement.type.dims
    return build_scope(places, statement.value, None, env, dtype, dims)


def tensors_in(value: Any) -> Iterator[Value]:
    """The tensors of an evaluated argument."""
    if isinstance(value, Value):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from tensors_in(item)


def partly_bound(op: OperatorDef, args: Sequence[Value], outer: Env) -> Env:
    """An environment with what the types of the arguments alone say about an operator's sizes."""
    env = Env(op.module, outer.rules)
    for param, arg in zip(op.params, args, strict=False):
        env.bind(param.name, arg)
        if param.type:
            try:
                solve(((param.type, arg.type),), (), env)
            except (Mismatch, DslcError):
                continue
    return env


def entry_count(
    op: OperatorDef, attr: t.Attr, args: Sequence[Value], inner: Env, results: int | None = None
) -> int | None:
    """The number of entries of a list attribute; None where it may have any number, or its declaration cannot say yet.

    `results`: how many results of the operator are named. With more of them than are declared, lists of a fixed length have as many
    entries more; where nothing says how many there are, they may have any number.
    """
    if attr.type.name in {"axes", "permutation"}:
        return args[0].type.rank if args else 0
    if not attr.type.dims:
        return None
    outputs = len(op.outputs)
    if isinstance(attr.type.dims[0], t.Int) and outputs > 1:
        return None if results is None else max(0, attr.type.dims[0].value + results - outputs)
    try:
        return int(evaluate(attr.type.dims[0], inner))
    except (Unbound, Mismatch, DslcError, TypeError):
        return None
