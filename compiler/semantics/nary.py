"""Operators of any number of operands or results: all that sets them apart is said here.

An operator f of two tensors that `is associative` may be called with more: f(a, b, c) is f(f(a, b), c). One that `is inverse` of such
an operator lists the parts in an attribute declared `int[2]`, and gives as many results as a call's list has entries: with three, the
second of two parts is taken apart again.

    f(a, b, c)          f(f(a, b), c)
    g(x, [2, 3, 4])     g(x, [2, 7]) = p, rest    g(rest, [3, 4]) = q, r    ->    p, q, r
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from dslc.ir.graph import Call, Node
from dslc.semantics.definitions import OperatorDef, Traits
from dslc.semantics.library import Rules
from dslc.semantics.lists import fold
from dslc.syntax import tree as t

_T = TypeVar("_T")
_A = TypeVar("_A")


def takes_many(rules: Rules, op: OperatorDef, traits: Traits | None = None) -> bool:
    """Return whether an operator may be called with any number of tensors, one included.

    Args:
        traits: those that count; all that are declared by default.
    """
    return len(op.params) == 2 and (traits or rules.traits_of(op.name)).associative


def stands_for_pairs(rules: Rules, op: OperatorDef, count: int) -> bool:
    """Return whether a call with so many tensors is short for calls with two."""
    return count > 2 and takes_many(rules, op)


def in_pairs(args: Sequence[_T], pair: Callable[[_T, _T], _T]) -> _T:
    """f(a, b, c) as f(f(a, b), c): `pair` gives f of two."""
    return functools.reduce(pair, args)


def nested_in(outer: Call, inner: Node) -> bool:
    """Return whether a call may be taken apart where it is an operand of another: the same operator with the same attributes."""
    return isinstance(inner, Call) and inner.op == outer.op and inner.attrs == outer.attrs


def parts_attribute(op: OperatorDef, attrs: Mapping[str, Any]) -> str | None:
    """The attribute that lists the parts: the one declared `int[2]`."""
    for attr in op.attrs:
        if lists_parts(attr, 2):
            return attr.name if isinstance(attrs.get(attr.name), tuple) else None
    return None


def lists_parts(attr: t.Attr, count: int) -> bool:
    """Return whether an attribute is declared as a list of so many entries."""
    dims = attr.type.dims
    return dims is not None and len(dims) == 1 and isinstance(dims[0], t.Int) and dims[0].value == count


def other_parts(rules: Rules, op: OperatorDef, attrs: Mapping[str, Any]) -> str | None:
    """The attribute that lists the parts of an inverse's call, where these are not two; None for every other call."""
    name = parts_attribute(op, attrs) if rules.traits_of(op.name).inverse is not None else None
    return name if name is not None and len(attrs[name]) != 2 else None


def part_by_part(
    sizes: Sequence[Any], whole: Sequence[_A], split: Callable[[Sequence[_A], tuple[Any, Any]], tuple[_T, ...]]
) -> list[tuple[_T, ...]]:
    """A whole taken apart into n parts in n - 1 steps, each of which gives a part and the rest.

    Args:
        whole: the arguments of the first step; the rest is that of every other one.
        split: the two parts of some arguments with two sizes.
    """
    out: list[tuple[_T, ...]] = []
    rest: Any = whole
    for k in range(len(sizes) - 1):
        out.append(split(rest, (sizes[k], fold("sum", tuple(sizes[k + 1 :])))))
        rest = (out[-1][1],)
    return out
