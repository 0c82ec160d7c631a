"""Laws as axioms of first-order logic, without types: an operator is a function of its attributes and its tensors.

What a law computes from the shapes of its tensors (`sizes=[P, Q]`, `channels=C`) is an unknown function of them, named after the
law; its values are given as facts where a query needs them. What a law only says about types and guards does not reach the logic:
every instance that a proof uses is checked for both afterwards (`dslc.prove.axioms.terms`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dslc.ir.dtype import DTYPES, DType
from dslc.prove.axioms.smt_process import Axiom, Sort, Term
from dslc.semantics.definitions import FunctionDef, Module, OperatorDef, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.semantics.nary import in_pairs, stands_for_pairs
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t

Symbols = dict[str, tuple[tuple[Sort, ...], Sort]]


class InexpressibleLaw(Exception):
    """A law that is no equation between terms over operators."""


@dataclass(frozen=True, eq=False)
class Law:
    """One equation. `tensors` and `parameters` are its variables; `computed` are the expressions behind its unknown functions."""

    name: str
    rule: SubstitutionDef
    left: t.Expr
    right: t.Expr
    tensors: tuple[str, ...]
    parameters: tuple[str, ...]
    computed: Mapping[str, t.Expr]
    sides: tuple[Term, Term]
    premises: tuple[tuple[Term, Term], ...]

    @property
    def variables(self) -> tuple[tuple[str, Sort], ...]:
        return (*((name, "tensor") for name in self.tensors), *((name, "parameter") for name in self.parameters))


# ---- names of symbols -------------------------------------------------------------------------------------------


def output_symbol(op: str, index: int) -> str:
    return f"{op}#{index}"


def constant_symbol(value: Any) -> str:
    """The name of a parameter that is known: texts, numbers, element types."""
    if isinstance(value, DType):
        return f"={value}"
    if isinstance(value, str):
        return f"={value!r}"
    if isinstance(value, bool):
        return f"={str(value).lower()}"
    return f"={Fraction(value)}" if isinstance(value, int | Fraction) else f"={value!r}"


def list_symbol(count: int) -> str:
    return f"list/{count}"


REPEATED = "repeated"


def sorts(parameters: int, tensors: int) -> tuple[Sort, ...]:
    """The sorts of so many arguments, parameters first."""
    kinds: tuple[Sort, Sort] = ("parameter", "tensor")
    return kinds[:1] * parameters + kinds[1:] * tensors


def number_symbol(value: Any) -> str:
    return f"number:{Fraction(value) if isinstance(value, int | Fraction) else value!r}"


# ---- expressions as terms ---------------------------------------------------------------------------------------


@dataclass
class _Scope:
    """Names that stand for expressions (`let`s, parameters of functions), with the scope that those are read in."""

    module: Module
    names: Mapping[str, tuple[t.Expr, _Scope]] = field(default_factory=dict)


class _Encoder:
    """Collects the variables of an equation while its sides become terms."""

    def __init__(self, rules: Rules, rule: SubstitutionDef, symbols: Symbols, name: str) -> None:
        self.rules, self.rule, self.symbols, self.name = rules, rule, symbols, name
        self.params = {param.name for param in rule.syntax.params}
        self.typed = {node.id for p in rule.syntax.params for node in walk_expr(p.type) if isinstance(node, t.Name)}
        self.typed |= {p.type.name for p in rule.syntax.params if p.type is not None} - set(DTYPES)
        self.tensors: dict[str, None] = {}
        self.parameters: dict[str, None] = {}
        self.computed: dict[str, t.Expr] = {}
        lets = {s.target.name: s.value for s in rule.syntax.left if isinstance(s, t.Let) and s.target.places is None}
        self.outer = _Scope(rule.module)
        self.outer.names = {name: (value, self.outer) for name, value in lets.items()}
        self.functions = {s.name: s for s in rule.syntax.left if isinstance(s, t.Function)}

    # ---- tensors ------------------------------------------------------------------------------------------------

    def tensor(self, expr: t.Expr, scope: _Scope) -> Term:
        if isinstance(expr, t.Name):
            if expr.id in scope.names:
                return self.tensor(*scope.names[expr.id])
            if scope is self.outer and expr.id in self.params:
                self.tensors[expr.id] = None
                return expr.id
            raise InexpressibleLaw(f"`{expr.id}` is no tensor")
        if isinstance(expr, t.Int | t.Float):
            value = expr.value if isinstance(expr, t.Int) else Fraction(expr.text)
            return self._known((number_symbol(value),), "tensor")
        if isinstance(expr, t.Field) and isinstance(expr.call, t.Call):
            op = scope.module.lookup(expr.call.function)
            if isinstance(op, OperatorDef):
                names = [output.name for output in op.syntax.outputs]
                return self._operator(op, expr.call, scope, names.index(expr.name))
        if isinstance(expr, t.Call):
            return self._call(expr, scope)
        raise InexpressibleLaw(f"`{expr.span.text}` is no application of operators")

    def _call(self, expr: t.Call, scope: _Scope) -> Term:
        found = scope.module.lookup(expr.function)
        function = self.functions.get(expr.function) if scope is self.outer else None
        if function is not None or isinstance(found, FunctionDef):
            syntax = function
            if syntax is None:
                assert isinstance(found, FunctionDef)
                syntax = found.syntax
            if expr.kwargs or expr.rest or len(expr.args) != len(syntax.params):
                raise InexpressibleLaw(f"`{expr.span.text}`")
            names = {param: (arg, scope) for param, arg in zip(syntax.params, expr.args, strict=True)}
            if function is not None:
                return self.tensor(syntax.body, _Scope(scope.module, {**scope.names, **names}))
            assert isinstance(found, FunctionDef)
            return self.tensor(syntax.body, _Scope(found.module, names))
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
        params = op.syntax.params
        if stands_for_pairs(self.rules, op, len(args)):
            return in_pairs(args, lambda total, arg: self._apply(op, index, attrs, (total, arg)))
        for param in params[len(args) :]:
            if not isinstance(param.default, t.Int | t.Float):
                raise InexpressibleLaw(f"`{param.name}` of `{op.short}` is left out")
            args.append(self.tensor(param.default, _Scope(op.module)))
        return self._apply(op, index, attrs, tuple(args))

    def _apply(self, op: OperatorDef, index: int, attrs: list[Term], args: tuple[Term, ...]) -> Term:
        symbol = output_symbol(op.name, index)
        self.symbols[symbol] = (sorts(len(attrs), len(args)), "tensor")
        return (symbol, *attrs, *args)

    def _known(self, term: Term, sort: Sort) -> Term:
        self.symbols[term[0]] = (sorts(len(term) - 1, 0), sort)
        return term

    # ---- parameters ---------------------------------------------------------------------------------------------

    def parameter(self, expr: t.Expr, scope: _Scope, attr: t.Attr | None = None) -> Term:
        """An attribute's value: a variable, a known value, a list of those, or else an unknown function of the law's tensors."""
        plain = self._plain(expr, scope)
        if plain is not None:
            number = not isinstance(plain, str) and isinstance(expr, t.Int | t.Float)
            dims = attr.type.dims if attr is not None else None
            if number and dims is not None:
                count = dims[0].value if dims and isinstance(dims[0], t.Int) else None
                if count is None:
                    return self._known((REPEATED, plain), "parameter")
                return self._known((list_symbol(count), *[plain] * count), "parameter")
            return plain
        if scope is not self.outer:
            raise InexpressibleLaw(f"`{expr.span.text}`")
        for node in walk_expr(expr):
            if isinstance(node, t.Name) and node.id in scope.names:
                continue
            if isinstance(node, t.Name) and self._is_variable(node.id):
                self._variable(node.id)
        symbol = f".{self.name}:{expr.span.text}"
        self.computed[symbol] = expr
        return (symbol,)

    def _plain(self, expr: t.Expr, scope: _Scope) -> Term | None:
        if isinstance(expr, t.Unary) and expr.op == "-" and isinstance(expr.operand, t.Int):
            return self._known((constant_symbol(-expr.operand.value),), "parameter")
        if isinstance(expr, t.Int | t.Str):
            return self._known((constant_symbol(expr.value),), "parameter")
        if isinstance(expr, t.Float):
            return self._known((constant_symbol(Fraction(expr.text)),), "parameter")
        if isinstance(expr, t.Name):
            if expr.id in {"true", "false"}:
                return self._known((constant_symbol(expr.id == "true"),), "parameter")
            if expr.id in scope.names:
                return self._plain(*scope.names[expr.id])
            if scope is self.outer and self._is_variable(expr.id):
                return self._variable(expr.id)
            if expr.id in DTYPES and expr.id not in self.typed:
                return self._known((constant_symbol(DTYPES[expr.id]),), "parameter")
            return None
        if isinstance(expr, t.ListExpr):
            parts = [self._plain(element, scope) for element in expr.elements]
            if any(part is None for part in parts):
                return None
            return self._known((list_symbol(len(parts)), *parts), "parameter")
        return None

    def _is_variable(self, name: str) -> bool:
        return name not in self.typed and name not in self.params and name not in DTYPES

    def _variable(self, name: str) -> str:
        self.parameters[name] = None
        return name


def encoded_law(rules: Rules, rule: SubstitutionDef, symbols: Symbols) -> Law:
    """An equation (as `law_substitutions` gives it) over terms; the symbols that it uses are added to `symbols`.

    Raises:
        Inexpressible
    """
    binds = [s for s in rule.syntax.left if isinstance(s, t.Bind)]
    if any(isinstance(s, t.TermDecl | t.LetMany | t.Const) for s in rule.syntax.left) or len(binds) != 2:
        raise InexpressibleLaw("terms that stand for any operator")
    encoder = _Encoder(rules, rule, symbols, rule.name)
    left, right = binds[0].value, binds[1].value
    sides = encoder.tensor(left, encoder.outer), encoder.tensor(right, encoder.outer)
    premises = tuple(_premises(encoder, rule))
    names = (*encoder.parameters, *encoder.tensors)
    for symbol in encoder.computed:
        symbols[symbol] = (sorts(len(encoder.parameters), len(encoder.tensors)), "parameter")

    def full(term: Term) -> Term:
        if isinstance(term, str):
            return term
        return (term[0], *names) if term[0] in encoder.computed else (term[0], *(full(part) for part in term[1:]))

    return Law(
        rule.name, rule, left, right, tuple(encoder.tensors), tuple(encoder.parameters), dict(encoder.computed),
        (full(sides[0]), full(sides[1])), premises,
    )  # fmt: skip


def _premises(encoder: _Encoder, rule: SubstitutionDef) -> Iterator[tuple[Term, Term]]:
    """The guards `attribute == known value`: they keep instances away that would be dropped later."""
    for statement in rule.syntax.left:
        for condition in statement.conditions if isinstance(statement, t.Where) else ():
            if isinstance(condition, t.Compare) and condition.ops == ("==",):
                name, value = condition.operands
                if isinstance(name, t.Name) and name.id in encoder.parameters and isinstance(value, t.Int | t.Str):
                    yield name.id, encoder.parameter(value, encoder.outer)


def axioms_of(law: Law) -> Iterator[Axiom]:
    """An equation from left to right and from right to left, each as far as its pattern determines every variable.

    What the pattern's side computes from shapes is a variable of its own there, which a premise sets equal to it.
    """
    made = 0
    for pattern, other in (law.sides, law.sides[::-1]):
        fresh: dict[Term, str] = {}
        opened = _opened(pattern, law.computed, fresh)
        wanted = {name for name, _ in law.variables}
        if isinstance(opened, str) or not wanted <= set(_variables(opened)):
            continue
        made += 1
        variables = (*law.variables, *((name, "parameter") for name in fresh.values()))
        premises = (*law.premises, *((name, term) for term, name in fresh.items()))
        yield Axiom(law.name, variables, premises, opened, other, ((opened,),))
    if not made:
        both = tuple(side for side in law.sides if not isinstance(side, str))
        if both:
            yield Axiom(law.name, law.variables, law.premises, *law.sides, (both,))


def _opened(term: Term, computed: Mapping[str, t.Expr], fresh: dict[Term, str]) -> Term:
    if isinstance(term, str):
        return term
    if term[0] in computed:
        return fresh.setdefault(term, f"computed{len(fresh)}")
    return (term[0], *(_opened(part, computed, fresh) for part in term[1:]))


def _variables(term: Term) -> Iterator[str]:
    if isinstance(term, str):
        yield term
    else:
        for part in term[1:]:
            yield from _variables(part)
