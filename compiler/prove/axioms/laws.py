"""Laws as axioms of first-order logic, without types: an operator is a function of its attributes and its tensors.

What a law computes from the shapes of its tensors (`sizes=[P, Q]`, `channels=C`) is an unknown function of them, named after the
law; its values are given as facts where a query needs them. What a law only says about types and guards does not reach the logic:
every instance that a proof uses is checked for both afterwards (`dslc.prove.axioms.terms`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dslc.interpret.draft import names_in
from dslc.ir.dtype import DTYPES
from dslc.prove.axioms.solver import Axiom, Equation, Head, Term, parts
from dslc.semantics.definitions import FunctionDef, Module, OperatorDef, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.semantics.nary import in_pairs, stands_for_pairs
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t


class InexpressibleLaw(Exception):
    """A law that is no equation between terms over operators."""


@dataclass(frozen=True, eq=False)
class Law:
    """One equation. `tensors` and `parameters` are its variables; `computed` are the expressions behind its unknown functions."""

    rule: SubstitutionDef
    left: t.Expr
    right: t.Expr
    tensors: tuple[str, ...]
    parameters: tuple[str, ...]
    computed: Mapping[Head, t.Expr]
    sides: Equation
    premises: tuple[Equation, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        return (*self.parameters, *self.tensors)


# ---- heads of terms: besides these, leaves of programs and what laws compute ----------------------------------------

LIST, REPEATED = ("list",), ("repeated",)


def known(value: Any) -> Term:
    """A parameter's value: a text, a number, an element type, an expression over sizes. Truth values are no numbers."""
    return (("known", isinstance(value, bool), value),)


def number(value: Any) -> Term:
    """A number that stands for a tensor."""
    return (("number", value),)


def applied(rules: Rules, op: OperatorDef, index: int, attrs: Sequence[Term], args: Sequence[Term]) -> Term:
    """An operator's output; of many operands by pairs, where that is the same."""
    head = ("output", op.name, index)
    if stands_for_pairs(rules, op, len(args)):
        return in_pairs(args, lambda total, arg: (head, *attrs, total, arg))
    return (head, *attrs, *args)


# ---- expressions as terms ---------------------------------------------------------------------------------------


@dataclass
class _Scope:
    """Names that stand for expressions (`let`s, parameters of functions), with the scope that those are read in."""

    module: Module
    names: Mapping[str, tuple[t.Expr, _Scope]] = field(default_factory=dict)


class _Encoder:
    """Collects the variables of an equation while its sides become terms."""

    def __init__(self, rules: Rules, rule: SubstitutionDef) -> None:
        self.rules, self.rule = rules, rule
        syntax = rule.syntax
        self.params = {param.name for param in syntax.params}
        #: sizes, element types, and tensors
        self.fixed = names_in(syntax.params)
        self.fixed |= {p.type.name for p in syntax.params if p.type is not None} - set(DTYPES)
        self.tensors: dict[str, None] = {}
        self.parameters: dict[str, None] = {}
        self.computed: dict[Head, t.Expr] = {}
        self.outer = _Scope(rule.module)
        lets = [s for s in syntax.left if isinstance(s, t.Let) and s.target.places is None]
        self.outer.names = {s.target.name: (s.value, self.outer) for s in lets}
        self.functions = {s.name: s for s in syntax.left if isinstance(s, t.Function)}

    def tensor(self, expr: t.Expr, scope: _Scope) -> Term:
        match expr:
            case t.Name() if expr.id in scope.names:
                return self.tensor(*scope.names[expr.id])
            case t.Name() if scope is self.outer and expr.id in self.params:
                self.tensors[expr.id] = None
                return expr.id
            case t.Int():
                return number(expr.value)
            case t.Float():
                return number(Fraction(expr.text))
            case t.Field(call=t.Call() as call) if isinstance(op := scope.module.lookup(call.function), OperatorDef):
                return self._operator(op, call, scope, [out.name for out in op.syntax.outputs].index(expr.name))
            case t.Call():
                return self._call(expr, scope)
        raise InexpressibleLaw(f"`{expr.span.text}` is no tensor and no application of operators")

    def _call(self, expr: t.Call, scope: _Scope) -> Term:
        found = scope.module.lookup(expr.function)
        own = self.functions.get(expr.function) if scope is self.outer else None
        function = own or (found.syntax if isinstance(found, FunctionDef) else None)
        if function is not None:
            if expr.kwargs or expr.rest or len(expr.args) != len(function.params):
                raise InexpressibleLaw(f"`{expr.span.text}`")
            names = {param: (arg, scope) for param, arg in zip(function.params, expr.args, strict=True)}
            if own is None and isinstance(found, FunctionDef):
                return self.tensor(function.body, _Scope(found.module, names))
            return self.tensor(function.body, _Scope(scope.module, {**scope.names, **names}))
        if isinstance(found, OperatorDef) and len(found.syntax.outputs) == 1:
            return self._operator(found, expr, scope, 0)
        raise InexpressibleLaw(f"`{expr.function}` is no operator with one result")

    def _operator(self, op: OperatorDef, expr: t.Call, scope: _Scope, index: int) -> Term:
        args = [self.tensor(arg, scope) for arg in expr.args]
        given = {keyword.name: keyword.value for keyword in expr.kwargs}
        attrs: list[Term] = []
        for attr in op.attrs:
            if attr.name in given:
                attrs.append(self.parameter(given[attr.name], scope, attr))
            elif expr.rest is not None and scope is self.outer:
                attrs.append(self._variable(f"{expr.rest}.{attr.name}"))
            elif attr.default is not None and expr.rest is None:
                attrs.append(self.parameter(attr.default, _Scope(op.module), attr))
            else:
                raise InexpressibleLaw(f"the attribute `{attr.name}` of `{op.short}`")
        if not stands_for_pairs(self.rules, op, len(args)):
            for param in op.syntax.params[len(args) :]:
                if not isinstance(param.default, t.Int | t.Float):
                    raise InexpressibleLaw(f"`{param.name}` of `{op.short}` is left out")
                args.append(self.tensor(param.default, _Scope(op.module)))
        return applied(self.rules, op, index, attrs, args)

    def parameter(self, expr: t.Expr, scope: _Scope, attr: t.Attr | None = None) -> Term:
        """An attribute's value: a variable, a known value, a list of those, or else an unknown function of the law's tensors."""
        plain = self._plain(expr, scope)
        if plain is not None:
            dims = attr.type.dims if attr is not None else None
            if dims is None or isinstance(plain, str) or not isinstance(expr, t.Int | t.Float):
                return plain
            count = dims[0].value if dims and isinstance(dims[0], t.Int) else None
            return (REPEATED, plain) if count is None else (LIST, *[plain] * count)
        if scope is not self.outer:
            raise InexpressibleLaw(f"`{expr.span.text}`")
        for node in walk_expr(expr):
            if isinstance(node, t.Name) and node.id not in scope.names and self._is_variable(node.id):
                self._variable(node.id)
        head = ("computed", self.rule.name, expr.span.text)
        self.computed[head] = expr
        return (head,)

    def _plain(self, expr: t.Expr, scope: _Scope) -> Term | None:
        match expr:
            case t.Unary(op="-", operand=t.Int() as operand):
                return known(-operand.value)
            case t.Int() | t.Str():
                return known(expr.value)
            case t.Float():
                return known(Fraction(expr.text))
            case t.Name(id="true" | "false"):
                return known(expr.id == "true")
            case t.Name() if expr.id in scope.names:
                return self._plain(*scope.names[expr.id])
            case t.Name() if scope is self.outer and self._is_variable(expr.id):
                return self._variable(expr.id)
            case t.Name() if expr.id in DTYPES and expr.id not in self.fixed:
                return known(DTYPES[expr.id])
            case t.ListExpr():
                elements = [self._plain(element, scope) for element in expr.elements]
                return None if None in elements else (LIST, *elements)
        return None

    def _is_variable(self, name: str) -> bool:
        return name not in self.fixed and name not in self.params and name not in DTYPES

    def _variable(self, name: str) -> str:
        self.parameters[name] = None
        return name


def encoded_law(rules: Rules, rule: SubstitutionDef) -> Law:
    """An equation (as `law_substitutions` gives it) over terms; raises InexpressibleLaw."""
    binds = [s for s in rule.syntax.left if isinstance(s, t.Bind)]
    if any(isinstance(s, t.TermDecl | t.LetMany | t.Const) for s in rule.syntax.left) or len(binds) != 2:
        raise InexpressibleLaw("terms that stand for any operator")
    encoder = _Encoder(rules, rule)
    left, right = binds[0].value, binds[1].value
    sides = encoder.tensor(left, encoder.outer), encoder.tensor(right, encoder.outer)
    premises = tuple(_premises(encoder, rule))
    names = (*encoder.parameters, *encoder.tensors)

    def full(term: Term) -> Term:
        if isinstance(term, str):
            return term
        return (term[0], *(names if term[0] in encoder.computed else map(full, term[1:])))

    tensors, parameters = tuple(encoder.tensors), tuple(encoder.parameters)
    return Law(rule, left, right, tensors, parameters, encoder.computed, (full(sides[0]), full(sides[1])), premises)


def _premises(encoder: _Encoder, rule: SubstitutionDef) -> Iterator[Equation]:
    """The guards `attribute == known value`: they keep instances away that would be dropped later."""
    for statement in rule.syntax.left:
        for condition in statement.conditions if isinstance(statement, t.Where) else ():
            match condition:
                case t.Compare(ops=("==",), operands=(t.Name() as name, t.Int() | t.Str() as value)):
                    if name.id in encoder.parameters:
                        yield name.id, encoder.parameter(value, encoder.outer)


def axioms_of(law: Law) -> Iterator[Axiom]:
    """An equation from left to right and from right to left, each as far as its pattern determines every variable.

    What the pattern's side computes from shapes is a variable of its own there, which a premise sets equal to it.
    """
    name, made = law.rule.name, False
    for pattern, other in (law.sides, law.sides[::-1]):
        fresh: dict[Term, str] = {}
        opened = _opened(pattern, fresh)
        if not isinstance(opened, str) and set(law.variables) <= set(parts(opened)):
            made = True
            premises = (*law.premises, *((variable, term) for term, variable in fresh.items()))
            yield Axiom(name, (*law.variables, *fresh.values()), premises, opened, other, (opened,))
    both = tuple(side for side in law.sides if not isinstance(side, str))
    if not made and both:
        yield Axiom(name, law.variables, law.premises, *law.sides, both)


def _opened(term: Term, fresh: dict[Term, str]) -> Term:
    if isinstance(term, str):
        return term
    if term[0][0] == "computed":
        return fresh.setdefault(term, f"computed{len(fresh)}")
    return (term[0], *(_opened(part, fresh) for part in term[1:]))
