"""Programs as terms, and terms as programs again: where types, sizes and guards meet the untyped axioms.

The axioms know nothing of shapes, so not every instance of a law is true: `concat` of tensors that do not fit together is no
tensor. Each instance that a proof rests on is therefore evaluated as the language evaluates a rule: its variables stand for the
values of a typed program, the types of the law's parameters and its guards have to hold for every size (from what is assumed of
the rule), and both sides have to be exactly the programs that the terms stand for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from dslc.analysis.conditions import TRUE, Case, both, cases
from dslc.analysis.poly import Poly, polynomial
from dslc.analysis.prove import nonnegative
from dslc.errors import DslcError
from dslc.interpret.draft import bind_definitions
from dslc.ir.constants import number_of
from dslc.ir.dtype import DType
from dslc.ir.graph import Call, Constant, ScopeNode, Value, topological
from dslc.ir.scalar import Apply, Num, Scalar, Sym, apply, num, walk
from dslc.prove.axioms.laws import (
    REPEATED,
    Law,
    Symbols,
    constant_symbol,
    list_symbol,
    number_symbol,
    output_symbol,
    sorts,
)
from dslc.prove.axioms.smt_process import Axiom, Instance, Term, put
from dslc.prove.instances.cases import negated
from dslc.semantics import apply as applying
from dslc.semantics.env import AttrSet, Env, Mismatch, Unbound, Undecided
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.semantics.lists import plain
from dslc.semantics.nary import in_pairs, stands_for_pairs
from dslc.semantics.types import solve
from dslc.syntax import tree as t

#: what makes a term no program: each is a reason to drop an instance, never an error
NO_PROGRAM = (
    Mismatch,
    Unbound,
    DslcError,
    TypeError,
    ValueError,
    ArithmeticError,
    IndexError,
    KeyError,
    AssertionError,
)


class KnownConditions:
    """Answers from conditions that hold, and from nothing else. Implements `dslc.semantics.assuming.Assuming`."""

    def __init__(self, conditions: Sequence[Scalar]) -> None:
        self.conditions = frozenset(conditions)
        self._cases = both(*(cases(condition) for condition in conditions)) if conditions else TRUE
        self._decided: dict[Scalar, bool] = {}

    def require(self, condition: Scalar) -> bool:
        found = self._decided.get(condition)
        if found is None:
            found = self._decided[condition] = self._implied(condition)
        return found

    def decide(self, condition: Scalar) -> bool:
        if self.require(condition):
            return True
        if self.require(negated(condition)):
            return False
        raise Undecided(f"{condition} is not decided")

    def one_of(self, conditions: Sequence[Scalar]) -> int:
        for k, condition in enumerate(conditions):
            if self.require(condition):
                return k
        raise Mismatch("sizes that are not known to go together")

    def quotient(self, size: Scalar, divisor: Scalar) -> Scalar:
        whole = apply("//", size, divisor)
        if not self.require(apply("==", size, apply("*", divisor, whole))):
            raise Mismatch(f"{size} is not known to be a multiple of {divisor}")
        return whole

    def dtype_of(self, number: Scalar) -> DType:
        raise Undecided(f"the element type of {number}")

    def _implied(self, condition: Scalar) -> bool:
        if isinstance(condition, Num):
            return bool(condition.value)
        if condition in self.conditions:
            return True
        if isinstance(condition, Apply) and condition.name == "and":
            return all(self.require(arg) for arg in condition.args)
        if isinstance(condition, Apply) and condition.name == "or":
            return any(self.require(arg) for arg in condition.args)
        wanted = cases(condition)
        if wanted == TRUE or len(wanted) != 1:
            return False
        goals = [*wanted[0].nonneg, *wanted[0].zero, *(-poly for poly in wanted[0].zero)]
        return all(self._nonnegative(goal) for goal in goals)

    def _nonnegative(self, goal: Poly) -> bool:
        total: Scalar = num(0)
        for monomial, coefficient in goal.terms:
            total = apply("+", total, apply("*", num(coefficient), *monomial))
        syms = {node for root in (total, *self.conditions) for node in walk(root) if isinstance(node, Sym)}
        least = tuple(
            polynomial(node) - node.least for node in sorted(syms, key=lambda s: s.name) if node.least is not None
        )
        return all(nonnegative(total, (), case & Case(least)) for case in self._cases)


class PairOfPrograms:
    """The terms of a pair of programs, and what terms stand for.

    `rules` decide conditions on unknown sizes from what is known of them (`Rules.assuming`).
    """

    def __init__(self, rules: Rules, laws: Sequence[Law], axioms: Sequence[Axiom]) -> None:
        self.rules = rules
        self.symbols: Symbols = {}
        self._laws = {law.name: law for law in laws}
        self._computed = {symbol: law for law in laws for symbol in law.computed}
        self._axioms = axioms
        self._leaves: dict[str, Any] = {}
        self._names: dict[Any, str] = {}
        self._terms: dict[Value, Term] = {}
        self._values: dict[Term, Any] = {}
        self._environments: dict[tuple[str, tuple[Term, ...]], Env | None] = {}
        #: equations between parameters that follow from their values
        self.facts: dict[tuple[Term, Term], None] = {}

    # ---- programs as terms --------------------------------------------------------------------------------------

    def terms(self, outputs: Sequence[Value]) -> tuple[Term, ...]:
        """The terms of some values."""
        for node in topological(value.node for value in outputs):
            for value in node.values:
                if value not in self._terms:
                    self._terms[value] = self._term(value)
                    self._values[self._terms[value]] = value
        return tuple(self._terms[value] for value in outputs)

    def subterms(self) -> tuple[Term, ...]:
        """The terms of all values so far."""
        return tuple(dict.fromkeys(self._terms.values()))

    def _term(self, value: Value) -> Term:
        node = value.node
        if isinstance(node, Call):
            return self._call(node, value.index)
        if isinstance(node, ScopeNode):
            return self._leaf("scope", node.scope, tuple(self._terms[arg] for arg in node.args))
        number = number_of(value) if isinstance(node, Constant) and value.type.rank == 0 else None
        if number is not None and value.type.dtype is not DType.BOOL:
            symbol = number_symbol(number)
            self.symbols[symbol] = ((), "tensor")
            return (symbol,)
        return self._leaf("tensor", value, tuple(self._terms[arg] for arg in node.args))

    def _leaf(self, kind: str, key: Any, args: tuple[Term, ...]) -> Term:
        name = self._names.setdefault((kind, key), f"{kind}:{len(self._names)}")
        self.symbols[name] = (sorts(0, len(args)), "tensor")
        return (name, *args)

    def _call(self, node: Call, index: int) -> Term:
        op = self.rules.operator(node.op)
        args = [self._terms[arg] for arg in node.args]
        attrs = [self.parameter(value) for _, value in node.attrs]
        if stands_for_pairs(self.rules, op, len(args)):
            return in_pairs(args, lambda total, arg: self._applied(op.name, 0, attrs, (total, arg)))
        if len(node.types) > len(op.syntax.outputs) == 2:
            return self._part(node, index, args)
        return self._applied(op.name, index, attrs, tuple(args))

    def _part(self, node: Call, index: int, args: list[Term]) -> Term:
        """One of more than two results: the first of what is left after cutting off those before it."""
        op = self.rules.operator(node.op)
        given = dict(node.attrs)
        parts = next(
            a.name for a in op.attrs if isinstance(given[a.name], tuple) and len(given[a.name]) == len(node.types)
        )  # type: ignore[arg-type]
        steps = applying.inverse_steps(self.rules, op, node.args, given, parts)
        total = args[0]
        for k in range(min(index + 1, len(steps))):
            step = steps[k][0].node
            assert isinstance(step, Call)
            attrs = [self.parameter(value) for _, value in step.attrs]
            last = k == index
            total = self._applied(op.name, 0 if last else 1, attrs, (total,))
        return total

    def _applied(self, op: str, index: int, attrs: list[Term], args: tuple[Term, ...]) -> Term:
        symbol = output_symbol(op, index)
        self.symbols[symbol] = (sorts(len(attrs), len(args)), "tensor")
        return (symbol, *attrs, *args)

    def parameter(self, value: Any) -> Term:
        """The term of an attribute's value."""
        value = plain(value)
        if isinstance(value, tuple):
            parts = [self.parameter(item) for item in value]
            term: Term = (list_symbol(len(parts)), *parts)
            self.symbols[list_symbol(len(parts))] = (sorts(len(parts), 0), "parameter")
            if parts and all(part == parts[0] for part in parts):
                self.symbols[REPEATED] = (("parameter",), "parameter")
                self.facts[term, (REPEATED, parts[0])] = None
        elif isinstance(value, Scalar):
            name = self._names.setdefault(("scalar", value), f"=({value}):{len(self._names)}")
            self.symbols[name] = ((), "parameter")
            term = (name,)
        else:
            term = (constant_symbol(value),)
            self.symbols[constant_symbol(value)] = ((), "parameter")
        self._values[term] = value
        return term

    # ---- terms as programs --------------------------------------------------------------------------------------

    def value(self, term: Term) -> Any:
        """What a term without variables stands for: a value, a number, or an attribute.

        Raises one of NO_PROGRAM.
        """
        if term in self._values:
            found = self._values[term]
            if found is None:
                raise Mismatch("no program")
            return found
        self._values[term] = None
        found = self._values[term] = self._evaluated(term)
        return found

    def _evaluated(self, term: Term) -> Any:
        symbol, parts = str(term[0]), term[1:]
        if symbol in self._computed:
            law = self._computed[symbol]
            env = self._environment(law, tuple(term[1:]))
            if env is None:
                raise Mismatch("the law does not apply")
            return plain(evaluate(law.computed[symbol], env))
        if symbol.startswith("list/"):
            return tuple(self.value(part) for part in parts)
        if symbol == REPEATED:
            return self.value(parts[0])
        if symbol.startswith("="):
            return _constant(symbol)
        if symbol.startswith("number:"):
            return Fraction(symbol[7:]) if "/" in symbol else int(symbol[7:])
        name, _, index = symbol.rpartition("#")
        op = self.rules.operator(name)
        attrs = {attr.name: self.value(part) for attr, part in zip(op.attrs, parts, strict=False)}
        args = [self.value(part) for part in parts[len(op.attrs) :]]
        return applying.apply(self.rules, op, args, attrs)[int(index)]

    def learned(self, asked: Sequence[Term]) -> tuple[tuple[Term, Term], ...]:
        """New facts: the values of what premises speak of, where it has one."""
        before = set(self.facts)
        for term in asked:
            try:
                found = self.value(term)
            except NO_PROGRAM:
                continue
            known = self.parameter(found)
            if known != term:
                self.facts[term, known] = None
                self._values[term] = found
        return tuple(fact for fact in self.facts if fact not in before)

    # ---- instances of laws --------------------------------------------------------------------------------------

    def holds(self, instance: Instance) -> bool:
        """Whether an instance of an axiom is a true equation between two programs."""
        position, terms = instance
        axiom = self._axioms[position]
        law = self._laws[axiom.name]
        by_name = {name: term for (name, _), term in zip(axiom.variables, terms, strict=True)}
        env = self._environment(law, tuple(by_name[name] for name in (*law.parameters, *law.tensors)))
        if env is None:
            return False
        try:
            sides = evaluate(law.left, env), evaluate(law.right, env)
            wanted = [self.value(put(side, by_name)) for side in (axiom.left, axiom.right)]
        except NO_PROGRAM:
            return False
        if not all(isinstance(side, Value) for side in sides) or sides[0].type != sides[1].type:
            return False
        return set(sides) == set(wanted)

    def _environment(self, law: Law, terms: tuple[Term, ...]) -> Env | None:
        """The names of a law at some terms (its parameters, then its tensors); None where its types or guards do not hold."""
        key = (law.name, terms)
        if key not in self._environments:
            try:
                self._environments[key] = self._bound(law, terms)
            except NO_PROGRAM:
                self._environments[key] = None
        return self._environments[key]

    def _bound(self, law: Law, terms: tuple[Term, ...]) -> Env:
        env = Env(law.rule.module, self.rules)
        syntax = law.rule.syntax
        sets: dict[str, dict[str, Any]] = {}
        for name, term in zip(law.parameters, terms, strict=False):
            owner, _, attr = name.partition(".")
            if attr:
                sets.setdefault(owner, {})[attr] = self.value(term)
            else:
                env.bind(name, self.value(term))
        for owner, values in sets.items():
            env.bind(owner, AttrSet(values))
        pairs = []
        for name, term in zip(law.tensors, terms[len(law.parameters) :], strict=True):
            value = self.value(term)
            env.bind(name, value)
            param = next(param for param in syntax.params if param.name == name)
            if param.type is not None:
                if not isinstance(value, Value):
                    raise Mismatch("a number")
                pairs.append((param.type, value.type))
        bind_definitions(syntax.left, env)
        solve(pairs, [c for s in syntax.left if isinstance(s, t.Where) for c in s.conditions], env)
        return env


def _constant(symbol: str) -> Any:
    text = symbol[1:]
    if text in {"true", "false"}:
        return text == "true"
    if text.startswith("'"):
        return text[1:-1]
    if text in {str(dtype) for dtype in DType}:
        return next(dtype for dtype in DType if str(dtype) == text)
    number = Fraction(text)
    return int(number) if number.denominator == 1 else number


def involutions(laws: Sequence[Law]) -> Iterator[tuple[str, tuple[Term, ...]]]:
    """The operators that some law calls their own inverse, `f(f(x)) == x`: the symbol, and its attributes."""
    for law in laws:
        for one, other in (law.sides, law.sides[::-1]):
            if law.parameters or not isinstance(other, str) or isinstance(one, str):
                continue
            inner = one[-1]
            if not isinstance(inner, str) and inner[:-1] == one[:-1] and inner[-1] == other:
                yield one[0], one[1:-1]
