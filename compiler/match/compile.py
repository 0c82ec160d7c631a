"""From a substitution's text to compiled rules, one for each direction that can be matched."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from dslc.errors import Diagnostic, DslcError, error
from dslc.match.names import free_names
from dslc.match.pattern import (
    Frame,
)
from dslc.match.rule import CompiledRule, TermGuard
from dslc.match.sides import VOCABULARY, SideCompiler, Unusable
from dslc.match.symmetry import symmetries
from dslc.match.types import quick_type
from dslc.semantics.composites import with_modes_chosen
from dslc.semantics.definitions import LoweringDef, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.semantics.walk import conditions_in, named_by, terms_in
from dslc.syntax import tree as t


def compile_rule(rules: Rules, definition: SubstitutionDef, *, reverse: bool = False) -> CompiledRule:
    """One direction of a substitution.

    Raises:
        DslcError: E0323 where that side binds too little to be looked for.
    """
    try:
        return _compile(rules, definition, reverse)
    except Unusable as problem:
        side = "right" if reverse else "left"
        raise error(
            "E0323", f"the {side} side of `{definition.name}` cannot be matched: {problem.reason}", problem.span
        ) from None


def compile_directions(rules: Rules, definition: SubstitutionDef) -> tuple[CompiledRule, ...]:
    """A rule, and the reverse of a two-way rule where that binds every variable; once for each mode that it leaves open."""
    out: list[CompiledRule] = []
    for chosen in with_modes_chosen(rules, definition):
        out.append(compile_rule(rules, chosen))
        if definition.syntax.arrow == "<=>":
            with contextlib.suppress(Unusable):
                out.append(_compile(rules, chosen, True))
    return tuple(out)


def compile_lowering(rules: Rules, definition: LoweringDef) -> tuple[CompiledRule, ...]:
    """Compile a lowering's `match` as a rule without a right side; once for each mode that it leaves open.

    None for a lowering of an expression.

    Raises:
        DslcError: E0323 where it binds too little to be looked for.
    """
    if not definition.syntax.match:
        return ()
    return tuple(_as_they_stand(compile_rule(rules, one)) for one in with_modes_chosen(rules, pattern_of(definition)))


def pattern_of(definition: LoweringDef, right: tuple[t.GraphStatement, ...] = ()) -> SubstitutionDef:
    """Turn a lowering's `match` into the left side of a rule; its right one is empty, unless it is given."""
    syntax = definition.syntax
    guards = tuple(s for s in syntax.statements if isinstance(s, t.Where | t.Let | t.LetMany | t.Function))
    # the last one is what comes out; the others only have names
    outputs, left = syntax.match[-1].names, (*syntax.match, *guards)
    whole = t.Substitution(False, syntax.name, syntax.params, outputs, syntax.doc, left, "=>", right, span=syntax.span)
    return SubstitutionDef(definition.name, whole, definition.module)


def _as_they_stand(rule: CompiledRule) -> CompiledRule:
    """A rule that takes no chain of an associative operator apart unless its pattern is one: a target runs nodes as they stand."""
    sites = tuple(replace(site, associative=site.associative and len(site.args) > 2) for site in rule.left.sites)
    return replace(rule, left=replace(rule.left, sites=sites))


def compile_all(rules: Rules) -> tuple[CompiledRule, ...]:
    """Every direction of every complete substitution (partial ones need a correction first), in the order of the files.

    Raises:
        DslcError: every rule whose left side cannot be matched.
    """
    out: list[CompiledRule] = []
    findings: list[Diagnostic] = []
    for definition in rules.substitutions.values():
        if definition.syntax.partial:
            continue
        try:
            out.extend(compile_directions(rules, definition))
        except DslcError as problem:
            findings.extend(problem.diagnostics)
    if findings:
        raise DslcError(findings)
    return tuple(out)


def _compile(rules: Rules, definition: SubstitutionDef, reverse: bool) -> CompiledRule:
    syntax = definition.syntax
    source, target = (syntax.right, syntax.left) if reverse else (syntax.left, syntax.right)
    shared = tuple(s for s in syntax.left if isinstance(s, t.TermDecl | t.Where | t.Let | t.LetMany | t.Function))
    statements = (*shared, *source) if reverse else source
    frame = Frame(definition.module)
    functions = {s.name: s for s in statements if isinstance(s, t.Function)}
    lets = tuple(s for s in statements if isinstance(s, t.Let | t.LetMany))
    types = {p.name: p.type for p in syntax.params if p.type}
    side = SideCompiler(rules, definition, frame, statements, functions).run()
    conditions, guards = _guards(statements)
    if reverse:
        # what the left side of a two-way rule binds and the right side does not cannot be asked for in this direction
        known = _solved_names(types, conditions).union(side.binds, side.variables, side.names)
        for condition in conditions:
            missing = sorted(_unknown(condition, known, definition, functions, lets))
            if missing:
                raise Unusable(f"nothing binds `{missing[0]}`", condition.span)
    ordered, fixed = symmetries(side, types, conditions, lets)
    compiled = CompiledRule(
        name=f"{definition.name}^-1" if reverse else definition.name,
        rules=rules,
        definition=definition,
        reverse=reverse,
        frame=frame,
        left=side,
        right=tuple(s for s in target if not isinstance(s, t.TermDecl)),
        types=types,
        quick={name: quick for name, type in types.items() if (quick := quick_type(type))},
        conditions=conditions,
        term_guards=guards,
        lets=lets,
        functions=functions,
        ordered=ordered,
        fixed=fixed,
        constants=named_by("constant", conditions) & side.variables,
    )
    _check_closed(compiled)
    return compiled


def _guards(statements: tuple[t.GraphStatement, ...]) -> tuple[tuple[t.Expr, ...], tuple[TermGuard, ...]]:
    conditions: list[t.Expr] = []
    guards: list[TermGuard] = []
    terms = {sig.name for sig in terms_in(statements)}
    for condition in conditions_in(statements):
        match condition:
            case t.Call("pointwise" | "linear" as predicate, (t.Name(name),)) if name in terms:
                guards.append(TermGuard(predicate, name, condition.span))
            case _:
                conditions.append(condition)
    return tuple(conditions), tuple(guards)


def _solved_names(types: Mapping[str, t.TypeExpr], conditions: tuple[t.Expr, ...]) -> set[str]:
    out = set(free_names(tuple(types.values())))
    for condition in conditions:
        for side in condition.equated:
            parts = side.elements if isinstance(side, t.ListExpr) else (side,)
            out |= {part.id for part in parts if isinstance(part, t.Name)}
    return out


def _unknown(
    node: Any,
    known: Collection[str],
    definition: SubstitutionDef,
    functions: Mapping[str, t.Function],
    lets: tuple[t.Let | t.LetMany, ...],
) -> set[str]:
    declared = {n for s in lets for n in ((s.target.name,) if isinstance(s, t.Let) else s.names)}
    names = free_names(node, functions) - set(known) - VOCABULARY - declared - set(functions)
    return {name for name in names if not definition.module.lookup(name) and name not in definition.module.aliases}


def _check_closed(rule: CompiledRule) -> None:
    """Every parameter and every name that the other side uses must be bound by this side."""
    syntax = rule.definition.syntax
    for param in syntax.params:
        if param.name not in rule.left.variables:
            raise Unusable(f"it does not mention `{param.name}`", param.span)
    left = rule.left
    known = _solved_names(rule.types, rule.conditions).union(left.binds, left.variables, left.names)
    known |= {s.name for s in rule.right if isinstance(s, t.Search)}
    functions = {**rule.functions, **{s.name: s for s in rule.right if isinstance(s, t.Function)}}
    lets = (*rule.lets, *(s for s in rule.right if isinstance(s, t.Let | t.LetMany)))
    for statement in rule.right:
        if isinstance(statement, t.Bind | t.Let | t.LetMany):
            used: Any = statement.value
        elif isinstance(statement, t.Const):
            scope = t.Traversal(statement.target.places or (), None, statement.value, span=statement.span)
            used = (statement.type, t.Nested(scope, None, None, span=statement.span))
        elif isinstance(statement, t.Where):
            used = statement.conditions
        else:
            used = statement.domain if isinstance(statement, t.Search) else ()
        missing = sorted(_unknown(used, known, rule.definition, functions, lets))
        if missing:
            raise Unusable(f"nothing binds `{missing[0]}`", statement.span)
        if isinstance(statement, t.Bind):
            known |= set(statement.names)
        elif isinstance(statement, t.Const):
            known.add(statement.target.name)
