"""Programs as terms, and terms as programs again: where types, sizes and guards meet the untyped axioms.

The axioms know nothing of shapes, so not every instance of a law is true: `concat` of tensors that do not fit together is no
tensor. Each instance that a proof rests on is therefore evaluated as the language evaluates a rule: its variables stand for the
values of a typed program, the types of the law's parameters and its guards have to hold for every size (from what is assumed of
the rule), and both sides have to be exactly the programs that the terms stand for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from dslc.analysis.prove import always
from dslc.errors import DslcError
from dslc.interpret.draft import bind_definitions, guards_in
from dslc.ir.constants import number_of
from dslc.ir.dtype import DType
from dslc.ir.graph import Call, Constant, ScopeNode, Value, topological
from dslc.ir.scalar import Scalar, apply
from dslc.prove.axioms.laws import (
    LIST,
    REPEATED,
    Law,
    applied,
    known,
    number,
)
from dslc.prove.axioms.solver import Axiom, Equation, Instance, Term, put
from dslc.prove.instances.cases import negated
from dslc.semantics import apply as applying
from dslc.semantics.env import AttrSet, Env, Mismatch, Unbound, Undecided
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.semantics.lists import plain
from dslc.semantics.types import solve

#: what makes a term no program: each is a reason to drop an instance, never an error
NO_PROGRAM = (
    Mismatch, Unbound, DslcError, TypeError, ValueError, ArithmeticError, IndexError, KeyError, AssertionError,
)  # fmt: skip


class KnownConditions:
    """Answers from conditions that hold, and from nothing else. Implements `dslc.semantics.assuming.Assuming`."""

    def __init__(self, conditions: Sequence[Scalar]) -> None:
        self._conditions = tuple(conditions)

    def require(self, condition: Scalar) -> bool:
        return condition in self._conditions or always(condition, self._conditions)

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


class PairOfPrograms:
    """The terms of a pair of programs, and what terms stand for.

    `rules` decide conditions on unknown sizes from what is known of them (`Rules.assuming`).
    """

    def __init__(self, rules: Rules, laws: Sequence[Law], axioms: Sequence[Axiom]) -> None:
        self.rules = rules
        self._laws = {law.rule.name: law for law in laws}
        self._axioms = axioms
        self._terms: dict[Value, Term] = {}
        self._values: dict[Term, Any] = {}
        self._environments: dict[tuple[str, tuple[Term, ...]], Env | None] = {}
        #: equations between parameters that follow from their values
        self.facts: dict[Equation, None] = {}

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
        args = [self._terms[arg] for arg in node.args]
        if isinstance(node, Call):
            op = self.rules.operator(node.op)
            if len(node.types) > len(op.syntax.outputs) == 2:
                return self._part(node, value.index, args[0])
            return applied(self.rules, op, value.index, [self.parameter(item) for _, item in node.attrs], args)
        if isinstance(node, ScopeNode):
            return (("scope", node.scope), *args)
        if isinstance(node, Constant) and value.type.rank == 0 and value.type.dtype is not DType.BOOL:
            single = number_of(value)
            if single is not None:
                return number(single)
        return (("tensor", value), *args)

    def _part(self, node: Call, index: int, total: Term) -> Term:
        """One of more than two results: the first of what is left after cutting off those before it."""
        op = self.rules.operator(node.op)
        given = dict(node.attrs)
        lists = {a.name: given[a.name] for a in op.attrs if isinstance(given[a.name], tuple)}
        name = next(name for name, each in lists.items() if len(each) == len(node.types))  # type: ignore[arg-type]
        steps = applying.inverse_steps(self.rules, op, node.args, given, name)
        for k, (step, *_) in enumerate(steps[: index + 1]):
            assert isinstance(step.node, Call)
            attrs = [self.parameter(value) for _, value in step.node.attrs]
            total = applied(self.rules, op, 0 if k == index else 1, attrs, [total])
        return total

    def parameter(self, value: Any) -> Term:
        """The term of an attribute's value."""
        value = plain(value)
        term = known(value)
        if isinstance(value, tuple):
            items = [self.parameter(item) for item in value]
            term = (LIST, *items)
            if items and all(item == items[0] for item in items):
                self.facts[term, (REPEATED, items[0])] = None
        self._values[term] = value
        return term

    # ---- terms as programs --------------------------------------------------------------------------------------

    def program(self, term: Term) -> Any:
        """The value, number or attribute that a term without variables stands for; None where it has no types."""
        if term not in self._values:
            self._values[term] = None
            with suppress(*NO_PROGRAM):
                self._values[term] = self._evaluated(term)
        return self._values[term]

    def _value(self, term: Term) -> Any:
        """The same; raises Mismatch where there is none."""
        found = self.program(term)
        if found is None:
            raise Mismatch("no program")
        return found

    def _evaluated(self, term: Term) -> Any:
        assert not isinstance(term, str)
        (kind, *about), parts = term[0], term[1:]
        match kind:
            case "computed":
                law = self._laws[about[0]]
                env = self._environment(law, parts)
                return None if env is None else plain(evaluate(law.computed[term[0]], env))
            case "known" | "number":
                return about[-1]
            case "repeated":
                return self._value(parts[0])
            case "scope" | "tensor":
                return None
        values = [self._value(part) for part in parts]
        if kind == "list":
            return tuple(values)
        op = self.rules.operator(about[0])
        count = len(op.attrs)
        attrs = {attr.name: value for attr, value in zip(op.attrs, values[:count], strict=True)}
        return applying.apply(self.rules, op, values[count:], attrs)[about[1]]

    def learned(self, asked: Sequence[Term]) -> tuple[Equation, ...]:
        """New facts: the values of what premises speak of, where it has one."""
        before = set(self.facts)
        for term in asked:
            found = self.program(term)
            if found is not None and (value := self.parameter(found)) != term:
                self.facts[term, value] = None
        return tuple(fact for fact in self.facts if fact not in before)

    # ---- instances of laws --------------------------------------------------------------------------------------

    def holds(self, instance: Instance) -> bool:
        """Return whether an instance of an axiom is a true equation between two programs."""
        axiom = self._axioms[instance[0]]
        law, by_name = self._laws[axiom.name], axiom.at(instance[1])
        env = self._environment(law, tuple(by_name[name] for name in law.variables))
        if env is None:
            return False
        try:
            sides = evaluate(law.left, env), evaluate(law.right, env)
        except NO_PROGRAM:
            return False
        if not all(isinstance(side, Value) for side in sides) or sides[0].type != sides[1].type:
            return False
        return set(sides) == {self.program(put(side, by_name)) for side in (axiom.left, axiom.right)}

    def _environment(self, law: Law, terms: tuple[Term, ...]) -> Env | None:
        """The names of a law at some terms (its parameters, then its tensors); None where its types or guards do not hold."""
        key = (law.rule.name, terms)
        if key not in self._environments:
            try:
                self._environments[key] = self._bound(law, terms)
            except NO_PROGRAM:
                self._environments[key] = None
        return self._environments[key]

    def _bound(self, law: Law, terms: tuple[Term, ...]) -> Env:
        env = Env(law.rule.module, self.rules)
        syntax = law.rule.syntax
        types = {param.name: param.type for param in syntax.params}
        sets: dict[str, dict[str, Any]] = {}
        pairs = []
        for name, term in zip(law.variables, terms, strict=True):
            value = self._value(term)
            owner, _, attr = name.partition(".")
            if attr:
                sets.setdefault(owner, {})[attr] = value
                continue
            env.bind(name, value)
            declared = types.get(name) if name in law.tensors else None
            if declared is not None:
                if not isinstance(value, Value):
                    raise Mismatch("a number")
                pairs.append((declared, value.type))
        for owner, values in sets.items():
            env.bind(owner, AttrSet(values))
        bind_definitions(syntax.left, env)
        solve(pairs, guards_in(syntax.left), env)
        return env


def involutions(laws: Sequence[Law]) -> Iterator[tuple[Any, tuple[Term, ...]]]:
    """The operators that some law calls their own inverse, `f(f(x)) == x`: the head, and its attributes."""
    for law in laws:
        for one, other in (law.sides, law.sides[::-1]):
            if law.parameters or not isinstance(other, str) or isinstance(one, str):
                continue
            inner = one[-1]
            if not isinstance(inner, str) and inner[:-1] == one[:-1] and inner[-1] == other:
                yield one[0], one[1:-1]
