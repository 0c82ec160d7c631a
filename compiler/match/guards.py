"""The second part of matching: sizes are solved, attributes that are expressions are compared, guards are evaluated."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from dslc.errors import DslcError
from dslc.ir.graph import Value
from dslc.match.describe import show
from dslc.match.pattern import Frame, Pattern, Quoted, Result, Variable
from dslc.match.rule import CompiledRule
from dslc.match.state import AttributeEquals, Complete, MatchState, NumberEquals
from dslc.match.types import equal
from dslc.semantics.apply import apply
from dslc.semantics.env import AttrSet, Closure, Env, Mismatch, Thunk, Unbound, unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.operator_env import operator_env
from dslc.semantics.types import solve
from dslc.syntax import tree as t

#: what a list may have of which it is enough to know the kinds
_FLAT = frozenset({int, bool, float, str})


def solved(rule: CompiledRule, state: MatchState) -> dict[str, Any]:
    """All names that a structural match determines: attributes, sizes, packs, element types, terms.

    Raises:
        Mismatch: types, attributes or guards that do not fit.
        DslcError: a guard without meaning.
    """
    env = environment(rule, state, state.names)
    _solve(rule, state, env)
    return {name: value for name, value in env.values.items() if not isinstance(value, Value | Thunk | Closure)}


def _number(value: Value) -> Any:
    from dslc.ir.constants import number_of

    number = number_of(value)
    return value if number is None else number


def freeze(value: Any) -> Any:
    """A hashable stand-in that keeps numbers of different types apart."""
    if isinstance(value, tuple):
        kinds = tuple(map(type, value))
        if _FLAT.issuperset(kinds):
            return (kinds, value)
        return (tuple, tuple([freeze(part) for part in value]))
    if isinstance(value, AttrSet):
        return tuple([(name, freeze(part)) for name, part in value.values.items()])
    return (type(value), value)


def environment(rule: CompiledRule, state: MatchState, names: Any) -> Env:
    """The names of a match: tensors, intermediates, attributes, sizes, `let`s and local functions."""
    env = Env(rule.definition.module, rule.rules)
    env.decls = {name: type.dims for name, type in rule.types.items() if type.dims is not None}
    for name, value in names.items():
        env.bind(name, exact(value))
        if isinstance(value, tuple):
            env.ranks.setdefault(name, len(value))
    for name, value in state.values.items():
        env.bind(name, value)
    for name, pattern in rule.left.names.items():
        found = result_of(pattern, state)
        if found:
            env.bind(name, found)
    bind_local(rule.functions.values(), rule.lets, env)
    return env


def bind_local(functions: Iterable[t.Function], lets: Iterable[t.Let | t.LetMany], env: Env) -> None:
    """Bind local functions and `let`s, each evaluated when it is first asked for."""
    for function in functions:
        env.bind(function.name, Closure(function, env))
    for let in lets:
        if isinstance(let, t.LetMany):
            for k, name in enumerate(let.names):
                env.bind(name, Thunk(lambda let=let, k=k: evaluate(let.value, env)[k]))  # type: ignore[misc]
        elif let.target.places is None:
            env.bind(let.target.name, Thunk(lambda let=let: evaluate(let.value, env)))  # type: ignore[misc]
        else:
            env.bind(let.target.name, Thunk(lambda let=let: scope_of(let.target, let.value, env)))  # type: ignore[misc]


def scope_of(target: t.Defined, value: t.Expr, env: Env) -> Value:
    """`let E[i: N] = ...`: a scope with a name."""
    from dslc.semantics.scopes import build_scope

    return build_scope(target.places or (), value, None, env, None)


def result_of(pattern: Pattern, state: MatchState) -> Value | None:
    """Return the tensor that a pattern stands for in a state, where it is known."""
    if isinstance(pattern, Variable):
        return state.values.get(pattern.name)
    if isinstance(pattern, Result):
        results = state.results.get(pattern.site)
        return None if results is None else results[pattern.output]
    return None


def exact(value: Any) -> Any:
    """Floats of attributes as the fractions that their shortest decimal form says, as operators see them."""
    import math

    if isinstance(value, float) and math.isfinite(value):
        fraction = Fraction(repr(value))
        return int(fraction) if fraction.denominator == 1 else fraction
    if isinstance(value, tuple):
        return tuple(exact(part) for part in value)
    if isinstance(value, AttrSet):
        return AttrSet({name: exact(part) for name, part in value.values.items()})
    return value


def _solve(rule: CompiledRule, state: MatchState, env: Env) -> None:
    later: list[AttributeEquals | NumberEquals] = []
    for item in state.pending:
        if isinstance(item, Complete):
            _check_complete(rule, item)
        elif not _check(rule, item, env):
            later.append(item)
    pairs = [(type, state.values[name].type) for name, type in rule.types.items() if name in state.values]
    solve(pairs, rule.conditions, env)
    for open_one in later:
        if not _check(rule, open_one, env):
            missing = min((name for name in open_one.quoted.needs if not env.has(name)), default="?")
            raise unbound(Unbound(missing), open_one.quoted.span)
    for frame in rule.left.spelled:
        try:
            _frame_env(frame, rule, env)
        except Unbound as unknown:
            raise unbound(unknown, rule.span) from None


def _check(rule: CompiledRule, item: AttributeEquals | NumberEquals, env: Env) -> bool:
    """False where a name is not known yet.

    Raises:
        Mismatch
    """
    try:
        expected = value_of(item.quoted, rule, env)
    except Unbound:
        return False
    if isinstance(item, NumberEquals):
        number = expected if not isinstance(expected, Value) else _number(expected)
        if not equal(number, item.number):
            raise Mismatch(f"the number {show(number)} is expected, {show(item.number)} is found", item.quoted.span)
        return True
    if equal(expected, item.actual) or _same_after_completion(rule, item, expected):
        return True
    raise Mismatch(f"attribute `{item.name}` is {show(item.actual)}, expected {show(expected)}", item.quoted.span)


def _check_complete(rule: CompiledRule, item: Complete) -> None:
    node = item.node
    named = {name: value for name, value in node.attrs if name in item.attrs}
    try:
        values = apply(rule.rules, node.op, list(node.args), named)
    except DslcError as problem:
        raise Mismatch(str(problem.diagnostics[0].message)) from None
    if values[0].node is node:
        return
    built = dict(values[0].node.attrs)  # type: ignore[attr-defined]
    for name, value in node.attrs:
        if not equal(built.get(name), value):
            raise Mismatch(f"attribute `{name}` is {show(value)}, expected its default {show(built.get(name))}")


def _same_after_completion(rule: CompiledRule, item: AttributeEquals, expected: Any) -> bool:
    """Return whether the operator takes the expected value for the one it has: axes count from the end, one number for many."""
    node = item.node
    attrs = dict(node.attrs)
    if item.at is not None:
        entries = list(attrs[item.name])  # type: ignore[arg-type]
        entries[item.at] = expected
        expected = tuple(entries)
    attrs[item.name] = expected
    try:
        return apply(rule.rules, node.op, list(node.args), attrs)[0].node is node
    except (Mismatch, DslcError):
        return False


def value_of(quoted: Quoted, rule: CompiledRule, env: Env) -> Any:
    """An expression's value with the names of the rule, or of the function that it was expanded from.

    Raises:
        Unbound, Mismatch, DslcError
    """
    return evaluate(quoted.expr, _frame_env(quoted.frame, rule, env))


def _frame_env(frame: Frame, rule: CompiledRule, env: Env) -> Env:
    if not frame.caller:
        # a default of an operator's parameter has a module of its own and no names
        return env if frame is rule.frame else Env(frame.module, rule.rules)
    caller = _frame_env(frame.caller, rule, env)
    if frame.operator:
        op = frame.operator
        given = {name: evaluate(argument, caller) for name, argument in frame.arguments.items()}
        tensors = [given[param.name] for param in op.params]
        return operator_env(rule.rules, op, tensors, {attr.name: given[attr.name] for attr in op.attrs})
    inner = Env(frame.module, rule.rules)
    for name, argument in frame.arguments.items():
        inner.bind(name, Thunk(lambda argument=argument: evaluate(argument, caller)))  # type: ignore[misc]
    return inner
