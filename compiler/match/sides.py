"""One side of a substitution, from its text to sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dslc.errors import DslcError, Span
from dslc.match.names import free_names
from dslc.match.pattern import (
    AttrPattern,
    Bound,
    Default,
    Entries,
    Equal,
    Frame,
    Literal,
    Number,
    Pattern,
    Quoted,
    Rest,
    Result,
    Side,
    Site,
    Variable,
)
from dslc.prove.evidence.dependencies import proved_traits, settle_traits
from dslc.semantics.composites import abbreviates, bodies_of
from dslc.semantics.definitions import NO_TRAITS, FunctionDef, OperatorDef, SubstitutionDef
from dslc.semantics.env import Env, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate, truth
from dslc.semantics.library import Rules
from dslc.semantics.nary import takes_many
from dslc.semantics.walk import pack_name, terms_in
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import (
    CONSTANTS,
    CONVERT,
    DTYPE_NAMES,
    FUNCTIONS_1,
    FUNCTIONS_N,
    INDEX_FUNCTIONS,
    PREDICATES,
    REDUCTIONS,
)

VOCABULARY = FUNCTIONS_1 | FUNCTIONS_N | {CONVERT} | INDEX_FUNCTIONS | PREDICATES | REDUCTIONS | CONSTANTS | DTYPE_NAMES
_SCALAR_FUNCTIONS = FUNCTIONS_1 | FUNCTIONS_N | INDEX_FUNCTIONS | REDUCTIONS


class Unusable(Exception):
    """This side cannot be looked for in a graph; the other direction of a rule may still be."""

    def __init__(self, reason: str, span: Span) -> None:
        super().__init__(reason)
        self.reason = reason
        self.span = span


class SideCompiler:
    """Turns the binds of one side into sites."""

    def __init__(
        self,
        rules: Rules,
        definition: SubstitutionDef,
        frame: Frame,
        statements: tuple[t.GraphStatement, ...],
        functions: Mapping[str, t.Function],
    ) -> None:
        self._rules = rules
        self._syntax = definition.syntax
        self._frame = frame
        self._functions = functions
        self._statements = statements
        self._params = {p.name for p in definition.syntax.params}
        self._terms = {sig.name for sig in terms_in(statements)}
        self._binds = {name: s for s in statements if isinstance(s, t.Bind) for name in s.names}
        self._lets = {s.target.name: s for s in statements if isinstance(s, t.Let) and s.target.places is None}
        self._sites: list[Site] = []
        self._names: dict[str, Pattern] = {}
        self._open: set[str] = set()
        self._bound: set[str] = set()
        self._used: set[int] = set()
        self._dissolved: set[int] = set()
        self._spelled: list[Frame] = []
        self._inner: dict[tuple[int, int], Pattern] = {}

    def run(self) -> Side:
        for statement in self._statements:
            if isinstance(statement, t.Const):
                reason = "a constant that is written as an expression is only built, not looked for"
                raise Unusable(reason, statement.span)
        roots: list[tuple[str, Result]] = []
        for name in self._syntax.outputs:
            bind = self._binds.get(name)
            pattern = self._named(name)
            if not isinstance(pattern, Result):
                raise Unusable(f"`{name}` is no operator's result there", (bind or self._syntax).span)
            roots.append((name, pattern))
        for name in self._binds:
            self._named(name)
        kept = [site for site in self._sites if site.id not in self._dissolved]
        number = {site.id: k for k, site in enumerate(kept)}
        reached = [*self._names.values(), *(arg for site in self._sites for arg in site.args)]

        def moved(pattern: Pattern) -> Pattern:
            return Result(number[pattern.site], pattern.output) if isinstance(pattern, Result) else pattern

        return Side(
            tuple(replace(site, id=number[site.id], args=tuple(map(moved, site.args))) for site in kept),
            {name: moved(pattern) for name, pattern in self._names.items()},
            tuple((name, Result(number[root.site], root.output)) for name, root in roots),
            tuple(number[site.id] for site in kept if site.id not in self._used),
            frozenset(self._params & {p.name for p in reached if isinstance(p, Variable)}),
            frozenset(self._bound),
            tuple(self._spelled),
        )

    def _named(self, name: str) -> Pattern:
        """The pattern of an intermediate or a result; binds may stand in any order, not in a circle."""
        found = self._names.get(name)
        if found:
            return found
        bind = self._binds.get(name)
        if not bind:
            raise Unusable(f"nothing on this side binds `{name}`", self._syntax.span)
        if name in self._open:
            raise Unusable(f"`{name}` is defined by itself", bind.span)
        self._open.update(bind.names)
        if len(bind.names) == 1:
            self._names[name] = self._tensor(bind.value, self._frame)
        else:
            site = self._call(bind.value, self._frame, len(bind.names)) if isinstance(bind.value, t.Call) else None
            if not isinstance(site, Result):
                raise Unusable("several names take the results of one call", bind.value.span)
            for k, output in enumerate(bind.names):
                self._names[output] = Result(site.site, k)
        self._open.difference_update(bind.names)
        return self._names[name]

    # ---- tensors ---------------------------------------------------------------------------------------------

    def _tensor(self, expr: t.Expr, frame: Frame) -> Pattern:
        if isinstance(expr, t.Name):
            if expr.id in frame.arguments and frame.caller:
                return self._tensor(frame.arguments[expr.id], frame.caller)
            if expr.id in frame.lets:
                return self._one_of(*frame.lets[expr.id], frame)
            if not frame.caller:
                if expr.id in self._params:
                    return Variable(expr.id)
                if expr.id in self._binds:
                    return self._use(self._named(expr.id))
                if expr.id in self._lets:
                    return self._tensor(self._lets[expr.id].value, frame)
                if expr.id not in VOCABULARY:
                    self._bound.add(expr.id)
                    return Number(self._quote(expr, frame), bare=expr.id)
            return Number(self._quote(expr, frame))
        if isinstance(expr, t.Call):
            return self._call(expr, frame, 1)
        if isinstance(expr, t.Conditional) and frame.operator:
            branch = chosen(self._rules, expr, frame)
            if not branch:
                raise Unusable(
                    f"`{expr.condition.span.text}` is not known: name the attribute of `{frame.operator.short}`",
                    expr.span,
                )
            return self._tensor(branch, frame)
        if isinstance(expr, t.Field):
            if not isinstance(expr.call, t.Call):
                raise Unusable("only a call has named results", expr.span)
            found = self._call(expr.call, frame, 0)
            if isinstance(found, Result):
                operator = self._sites[found.site].operator
                names = [o.name for o in self._rules.operators[operator].syntax.outputs] if operator else []
                if expr.name in names:
                    return Result(found.site, names.index(expr.name))
            raise Unusable(f"no result is named `{expr.name}`", expr.span)
        if isinstance(expr, t.Int | t.Float | t.Inf | t.Unary | t.Binary):
            return Number(self._quote(expr, frame), _literal(expr))
        raise Unusable("an expression is only built, not looked for", expr.span)

    def _use(self, pattern: Pattern) -> Pattern:
        if isinstance(pattern, Result):
            self._used.add(pattern.site)
        return pattern

    def _call(self, expr: t.Call, frame: Frame, outputs: int) -> Pattern:
        """The pattern of a call; `outputs` is how many results are named, 0 where one of them is chosen."""
        name = expr.function
        if not frame.caller and name in self._terms:
            self._bound.add(name)
            return self._site(expr, frame, None, outputs)
        function: t.Function | None = None
        inner = frame
        if not frame.caller and name in self._functions:
            function = self._functions[name]
        else:
            found = frame.module.lookup(name)
            if isinstance(found, OperatorDef):
                # `sqrt(2)` is a number, `sqrt(X)` a tensor
                if name in _SCALAR_FUNCTIONS and not self._has_tensor(expr.args, frame):
                    return Number(self._quote(expr, frame))
                if abbreviates(self._rules, found):
                    return self._inside(found, expr, frame, outputs)
                return self._site(expr, frame, found, outputs)
            if isinstance(found, FunctionDef):
                function = found.syntax
                inner = Frame(found.module)
        if not function:
            if name in VOCABULARY:
                return Number(self._quote(expr, frame))
            raise Unusable(f"no operator is named `{name}` here", expr.span)
        if len(function.params) != len(expr.args) or expr.kwargs or expr.rest:
            raise Unusable(f"`{name}` takes {len(function.params)} arguments", expr.span)
        arguments = dict(zip(function.params, expr.args, strict=True))
        body = Frame(inner.module, arguments, frame)
        if isinstance(function.body, t.Call):
            return self._call(function.body, body, outputs)
        return self._tensor(function.body, body)

    def _inside(self, op: OperatorDef, expr: t.Call, frame: Frame, outputs: int) -> Pattern:
        """Compile the body of an abbreviating operator; its types and guards are checked once the sizes are known."""
        body = inside(op, expr, frame)
        if isinstance(body, str):
            raise Unusable(body, expr.span)
        self._spelled.append(body)
        names = [output.name for output in op.outputs]
        found = self._one_of(*body.lets[names[0]], body)
        if len(names) > 1:
            values = {body.lets[name][0] for name in names}
            if len(values) > 1 or [body.lets[name][1] for name in names] != list(range(len(names))):
                raise Unusable(f"the results of `{op.short}` are not those of one call", expr.span)
            if isinstance(found, Result) and outputs > 1:
                self._sites[found.site] = replace(self._sites[found.site], outputs=outputs)
        return found

    def _one_of(self, expr: t.Expr, output: int, frame: Frame) -> Pattern:
        """One result of what a statement of an abbreviating operator names."""
        key = (id(expr), id(frame))
        if key not in self._inner:
            self._inner[key] = self._tensor(expr, frame)
        found = self._inner[key]
        return Result(found.site, output) if isinstance(found, Result) and output else found

    def _has_tensor(self, args: tuple[t.Expr, ...], frame: Frame) -> bool:
        """Return whether a tensor, an intermediate or a call of an operator stands in some arguments."""
        for node in t.walk(args):
            name = node.function if isinstance(node, t.Call) else node.bare or ""
            if not frame.caller:
                found = name in self._params or name in self._binds or name in self._terms
            elif name in frame.arguments:
                found = self._has_tensor((frame.arguments[name],), frame.caller)
            else:
                found = name in frame.lets and self._has_tensor((frame.lets[name][0],), frame)
            if found or (frame.module.called(node) and name not in _SCALAR_FUNCTIONS):
                return True
        return False

    def _site(self, expr: t.Call, frame: Frame, operator: OperatorDef | None, outputs: int) -> Pattern:
        if operator:
            # nothing is matched yet
            settle_traits(self._rules, operator.name)
        traits = proved_traits(self._rules, operator.name) if operator else NO_TRAITS
        many = operator is not None and takes_many(self._rules, operator, traits)
        args: list[Pattern] = []
        for arg in expr.args:
            if isinstance(arg, t.Pack):
                raise Unusable("a pack of tensors is only built, not looked for", arg.span)
            args.append(self._use(self._tensor(arg, frame)))
        keywords = list(expr.kwargs)
        if operator:
            keywords = self._tensor_keywords(operator, keywords, args, frame)
            self._defaults(operator, expr, args, associative=many)
        declared = [attr.name for attr in operator.attrs] if operator else []
        attrs: list[tuple[str, AttrPattern]] = []
        for keyword in keywords:
            if operator and keyword.name not in declared:
                raise Unusable(f"`{operator.short}` has no attribute `{keyword.name}`", keyword.span)
            attrs.append((keyword.name, self._attribute(keyword.value, frame)))
        if expr.rest is None and operator is not None:
            given = {name for name, _ in attrs}
            for attr in operator.attrs:
                if attr.name not in given:
                    if attr.default is None:
                        raise Unusable(f"`{operator.short}` needs its attribute `{attr.name}`", expr.span)
                    literal = _literal(attr.default)
                    plain = literal is not None and not _counted_from_end(literal)
                    attrs.append((attr.name, Literal(literal) if plain else Default()))
        if expr.rest is not None:
            self._bound.add(expr.rest)
        site = Site(
            len(self._sites),
            operator.name if operator else None,
            None if operator else expr.function,
            self._flattened(operator, args, attrs, expr) if operator and many else tuple(args),
            tuple(attrs),
            expr.rest,
            outputs,
            expr.span,
            commutative=traits.commutative,
            associative=many,
            inverse=traits.inverse,
        )
        self._sites.append(site)
        return Result(site.id, 0)

    def _flattened(
        self, operator: OperatorDef, args: list[Pattern], attrs: list[tuple[str, AttrPattern]], expr: t.Call
    ) -> tuple[Pattern, ...]:
        """Nested calls of one associative operator as one call: the graph's are taken apart in the same way."""
        out: list[Pattern] = []
        whole = (operator.name, tuple(attrs), expr.rest)
        for arg in args:
            below = self._sites[arg.site] if isinstance(arg, Result) and arg not in self._names.values() else None
            if below and (below.operator, below.attrs, below.rest) == whole:
                out.extend(below.args)
                self._dissolved.add(below.id)
            else:
                out.append(arg)
        return tuple(out)

    def _tensor_keywords(
        self, operator: OperatorDef, keywords: list[t.Keyword], args: list[Pattern], frame: Frame
    ) -> list[t.Keyword]:
        """Tensors that are passed by name move to their positions."""
        params = [p.name for p in operator.params]
        rest: list[t.Keyword] = []
        for keyword in keywords:
            if keyword.name in params and params.index(keyword.name) == len(args):
                args.append(self._use(self._tensor(keyword.value, frame)))
            else:
                rest.append(keyword)
        return rest

    def _defaults(self, operator: OperatorDef, expr: t.Call, args: list[Pattern], associative: bool) -> None:
        """A tensor with a default that is not named must have it."""
        params = operator.params
        if len(args) > len(params) and not associative and not any(p.star for p in params):
            raise Unusable(f"`{operator.short}` takes {len(params)} tensors, not {len(args)}", expr.span)
        for param in params[len(args) :]:
            if param.star:
                break
            if not param.default:
                raise Unusable(f"`{operator.short}` needs its argument `{param.name}`", expr.span)
            args.append(Number(Quoted(param.default, Frame(operator.module), frozenset()), _literal(param.default)))

    # ---- attributes --------------------------------------------------------------------------------------------

    def _attribute(self, expr: t.Expr, frame: Frame) -> AttrPattern:
        if isinstance(expr, t.Name) and expr.id in frame.arguments and frame.caller:
            return self._attribute(frame.arguments[expr.id], frame.caller)
        if isinstance(expr, t.Name) and not frame.caller and self._binds_here(expr.id):
            self._bound.add(expr.id)
            return Bound(expr.id)
        literal = _literal(expr)
        if literal is not None:
            return Literal(literal) if not _counted_from_end(literal) else Equal(self._quote(expr, frame))
        if isinstance(expr, t.ListExpr):
            packs = [pack_name(each) for each in expr.elements if isinstance(each, t.Pack)]
            if not packs or (len(packs) == 1 and not frame.caller and self._binds_here(packs[0])):
                elements: list[AttrPattern | Rest] = []
                for element in expr.elements:
                    name = pack_name(element)
                    if name is not None:
                        self._bound.add(name)
                    elements.append(self._attribute(element, frame) if name is None else Rest(name))
                return Entries(tuple(elements))
        return Equal(self._quote(expr, frame))

    def _binds_here(self, name: str | None) -> bool:
        taken = self._params.union(self._binds, self._lets, self._functions, CONSTANTS, DTYPE_NAMES)
        return name is not None and "." not in name and name not in taken

    def _quote(self, expr: t.Expr, frame: Frame) -> Quoted:
        return Quoted(expr, frame, self._needs(expr, frame))

    def _needs(self, expr: Any, frame: Frame) -> frozenset[str]:
        names = free_names(expr, None if frame.caller else self._functions)
        if not frame.caller:
            return frozenset(
                n for n in names if n not in VOCABULARY and n not in self._functions and not frame.module.lookup(n)
            )
        out: frozenset[str] = frozenset()
        # the sizes and `let`s of an operator follow from all of its arguments
        for name in frame.arguments if frame.operator else names & set(frame.arguments):
            out |= self._needs(frame.arguments[name], frame.caller)
        return out


def _literal(expr: t.Expr) -> Any:
    """A number, string, bool or a list of such; None for anything else."""
    match expr:
        case t.Int(value) | t.Str(value):
            return value
        case t.Float(text):
            return Fraction(text)
        case t.Inf():
            return float("inf")
        case t.Name("true" | "false" as word):
            return word == "true"
        case t.Unary("-", operand):
            inner = _literal(operand)
            return -inner if isinstance(inner, int | float | Fraction) and not isinstance(inner, bool) else None
        case t.ListExpr(elements):
            parts = tuple(map(_literal, elements))
            return None if None in parts else parts
    return None


def _counted_from_end(literal: Any) -> bool:
    """Return whether a literal has negative whole numbers, which axis attributes count from the end."""
    if isinstance(literal, tuple):
        return any(_counted_from_end(part) for part in literal)
    return isinstance(literal, int) and not isinstance(literal, bool) and literal < 0


def inside(op: OperatorDef, expr: t.Call, caller: Frame) -> Frame | str:
    """The frame of an abbreviating operator's statements for one call, or why the call is no pattern."""
    params = op.params
    if len(expr.args) > len(params) or expr.rest is not None or any(isinstance(arg, t.Pack) for arg in expr.args):
        return f"`{op.short}` is spelled out, which takes {len(params)} tensors and every attribute by its name"
    arguments: dict[str, t.Expr] = {p.name: p.default for p in params if p.default}
    arguments |= {attr.name: attr.default for attr in op.attrs if attr.default}
    arguments |= {p.name: arg for p, arg in zip(params, expr.args, strict=False)}
    names = {*(p.name for p in params), *(attr.name for attr in op.attrs)}
    for keyword in expr.kwargs:
        if keyword.name not in names:
            return f"`{op.short}` has no attribute `{keyword.name}`"
        arguments[keyword.name] = keyword.value
    missing = sorted(names - set(arguments))
    if missing:
        return f"`{op.short}` needs `{missing[0]}`"
    return Frame(op.module, arguments, caller, op, bodies_of(op))


def chosen(rules: Rules, expr: t.Conditional, frame: Frame) -> t.Expr | None:
    """The branch that the attributes of the call choose, None where they don't say."""
    env = Env(frame.module, rules)
    for name, argument in frame.arguments.items():
        value = _constant(rules, argument, frame.caller)
        if value is not None:
            env.bind(name, value)
    try:
        held = truth(evaluate(expr.condition, env))
    except (Unbound, Mismatch, DslcError):
        return None
    return expr.then if held is True else expr.otherwise if held is False else None


def _constant(rules: Rules, expr: t.Expr, frame: Frame | None) -> object:
    """The value of an argument that no match changes."""
    while isinstance(expr, t.Name) and frame is not None and frame.caller is not None and expr.id in frame.arguments:
        expr, frame = frame.arguments[expr.id], frame.caller
    if isinstance(expr, t.Str | t.Int) or (expr.bare in {"true", "false"}):
        return evaluate(expr, Env(frame.module, rules)) if frame else None
    return None
