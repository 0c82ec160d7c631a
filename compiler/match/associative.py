"""Associative calls of any length, and their inverses: taking them apart, and building parts of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from dslc.errors import DslcError
from dslc.ir.graph import Call, Value, Values, called
from dslc.match.index import Index
from dslc.match.pattern import Site
from dslc.match.state import Wrap
from dslc.semantics.apply import apply
from dslc.semantics.env import Env, Mismatch, Unbound
from dslc.semantics.library import Rules
from dslc.semantics.nary import in_pairs, lists_parts, nested_in
from dslc.semantics.types import solve
from dslc.semantics.walk import conditions_in

MOST_OPERANDS = 8  #: operands of a chain
MOST_VARIANTS = 16  #: ways in which it is taken apart


def operand_lists(node: Call, index: Index) -> list[Values]:
    """The operands of a call, with nested calls of the same operator and attributes taken apart or left whole; shortest first."""
    out = [node.args]
    for operands in out:
        for at, operand in enumerate(operands):
            for below in nested(node, operand, index):
                longer = (*operands[:at], *below.args, *operands[at + 1 :])
                if len(longer) <= MOST_OPERANDS and longer not in out and len(out) < MOST_VARIANTS:
                    out.append(longer)
    return sorted(out, key=len)


def operands_within(node: Call, index: Index) -> set[Value]:
    """Every value that stands in one of the `operand_lists`, at least."""
    out = set(node.args)
    level: Sequence[Value] = node.args
    for _ in range(MOST_OPERANDS - len(node.args)):
        level = [
            arg for operand in level for below in nested(node, operand, index) for arg in below.args if arg not in out
        ]
        out.update(level)
    return out


def nested(node: Call, operand: Value, index: Index) -> Iterator[Call]:
    """The calls of the same operator with the same attributes that an operand of a call comes from.

    Where x and x * 1 are one class, x * 1 is not taken for x: that would go on for ever.
    """
    for below in index.nodes(operand):
        if isinstance(below, Call) and nested_in(node, below) and operand not in below.args:
            yield below


def build(rules: Rules, like: Call, values: Sequence[Value]) -> Value | None:
    """The call of `like`'s operator on some operands; a chain of pairs where `like` has two. None where they do not fit."""
    if len(values) == 1:
        return values[0]
    try:
        if len(like.args) > 2:
            return apply(rules, like.op, list(values), dict(like.attrs))[0]
        return in_pairs(values, lambda total, value: _pair(rules, like, total, value))
    except (Mismatch, Unbound, DslcError):
        return None


def _pair(rules: Rules, like: Call, total: Value, value: Value) -> Value:
    first, second = like.args
    alike = total.type_or_none == first.type_or_none
    if alike and value.type_or_none == second.type_or_none:
        # types and attributes follow from the types of the operands, which are those of the call
        return called(like.head, (total, value))[0]
    return apply(rules, like.op, [total, value], dict(like.attrs))[0]


def unwrap(rules: Rules, wrap: Wrap, new: Value) -> Value | None:
    """The longer call with the chosen operands replaced by one."""
    first = min(wrap.chosen)
    operands = [
        new if k == first else value for k, value in enumerate(wrap.operands) if k == first or k not in wrap.chosen
    ]
    return build(rules, wrap.node, operands)


#: results of an inverse in groups, and the attributes that go with them
Grouped: TypeAlias = tuple[Values, dict[str, Any]]


def groups(
    rules: Rules, site: Site, node: Call, values: Values, single: frozenset[int], index: Index
) -> Sequence[Grouped]:
    """An inverse with more results than the pattern names: neighbours are joined again, and the attributes follow.

    `values` are the call's results, `single` those that the rule replaces, which must stay one each. Found once for each call.
    """
    known = index.memory.grouped
    key = (node.head, site.inverse, site.outputs, single, values)
    found = known.get(key)
    if found is None:
        found = known[key] = tuple(_groups(rules, site, node, values, single))
    return found


def _groups(rules: Rules, site: Site, node: Call, values: Sequence[Value], single: frozenset[int]) -> Iterator[Grouped]:
    assert site.inverse is not None
    known = {attr.name for attr in rules.operators[site.inverse].attrs}
    shared = {name: value for name, value in node.attrs if name in known}
    for parts in compositions(len(node.types), site.outputs):
        if any(parts[k] > 1 for k in single):
            continue
        results: list[Value] = []
        at = 0
        try:
            for width in parts:
                run = list(values[at : at + width])
                at += width
                results.append(run[0] if width == 1 else apply(rules, site.inverse, run, shared)[0])
            attrs = _attributes(rules, node, results)
        except (Mismatch, Unbound, DslcError):
            continue
        if attrs is not None:
            yield tuple(results), attrs


def _attributes(rules: Rules, node: Call, results: Sequence[Value]) -> dict[str, Any] | None:
    """The attributes with which the operator would give these results: its own types and conditions solved for them."""
    definition = rules.operators[node.op]
    syntax = definition.syntax
    env = Env(definition.module, rules)
    lists = {attr.name for attr in definition.attrs if lists_parts(attr, len(syntax.outputs))}
    for name, value in node.attrs:
        if name not in lists:
            env.bind(name, value)
    pairs = [(p.type, value.type) for p, value in zip(syntax.params, node.args, strict=True) if p.type]
    pairs += [(p.type, value.type) for p, value in zip(syntax.outputs, results, strict=True) if p.type]
    solve(pairs, conditions_in(syntax.statements), env)
    return {name: env.get(name) for name, _ in node.attrs}


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Ways to write a number as an ordered sum of positive parts."""
    if parts == 1:
        yield (total,)
        return
    for first in range(1, total - parts + 2):
        for rest in compositions(total - first, parts - 1):
            yield (first, *rest)
