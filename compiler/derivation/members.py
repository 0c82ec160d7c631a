"""Expressions of several products: each is derived by itself, and what was found for them is put together (EinNet, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Generic, TypeVar

from dslc.ir.graph import Graph, ScopeNode, Value, replace, topological
from dslc.ir.holes import abstracted, instantiated
from dslc.ir.scalar import Read
from dslc.ir.scopes import each_of

EACH = 12  #: programs of one member that are put together
TOGETHER = 96  #: programs of all members together that are put together
STATES = 12  #: states of one member that are looked at beside those of others
JOINED = 144  #: states of all members together that are looked at

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Member:
    """A product within an expression: the same over holes, and what these stand for."""

    value: Value
    alone: Graph
    args: tuple[Value, ...]

    def over(self, made: Value) -> Value:
        """What was derived of it over holes, in its place."""
        return instantiated(Graph(self.alone.inputs, (made,)), self.args)[0]


def members_of(whole: Value) -> tuple[Member, ...]:
    """The scopes of an expression that add products of several elements, users before what they use.

    None where there is one, and beside it nothing but changes of layout.
    """
    found, others = [], False
    for node in reversed(topological([whole.node])):
        if isinstance(node, ScopeNode):
            if is_product(node):
                alone, args = abstracted(node.values, tuple(dict.fromkeys(node.args)))
                found.append(Member(node.values[0], alone, args))
            elif not isinstance(node.scope.body, Read):
                others = True
    return tuple(found) if len(found) > 1 or (found and others) else ()


def is_product(node: ScopeNode) -> bool:
    """Whether a scope adds something that is read at two places at least."""
    return node.scope.body.binds and sum(1 for _ in each_of(Read, node.scope.body)) > 1


def put(whole: Value, members: Sequence[Member], made: Mapping[Value, Value]) -> Value:
    """An expression with what was derived of some of its members, over holes, by the members' values."""
    for member in members:
        if member.value in made:
            (whole,) = replace((whole,), {member.value: member.over(made[member.value])})
    return whole


@dataclass(frozen=True, slots=True)
class MemberChoice(Generic[T]):
    """Something for each member, and the price of all."""

    price: float
    each: tuple[T, ...]


def choices(found: Sequence[Sequence[tuple[float, T]]]) -> Iterator[MemberChoice[T]]:
    """One for each member of the programs that were found for it, which come with their prices: the cheapest together first."""
    few = [own[: EACH if len(found) < 4 else 3] for own in found]
    every = [
        MemberChoice(sum(price for price, _ in chosen), tuple(each for _, each in chosen))
        for chosen in islice(product(*few), 4096)
    ]
    yield from islice(sorted(every, key=lambda choice: choice.price), TOGETHER)


def ranks(states: Sequence[Sequence[T]]) -> Iterator[tuple[T, ...]]:
    """One of the states of each member: the first of all first."""
    few = [own[: STATES if len(states) < 3 else 4] for own in states]
    places = sorted(islice(product(*(range(len(own)) for own in few)), 4096), key=lambda place: (sum(place), place))
    for place in islice(places, JOINED):
        yield tuple(own[k] for own, k in zip(few, place, strict=True))
