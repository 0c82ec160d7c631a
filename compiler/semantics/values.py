"""Candidate values of a rule's sizes and attributes: the one table of every drawer and every enumeration.

What a rule says may change at the numbers that it names, and those that the operators which it reaches name: so values are these,
what lies between and beyond them, and small numbers of every sign.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import chain, combinations, pairwise, permutations
from typing import Any

from dslc.semantics.definitions import FunctionDef, Module, OperatorDef, SubstitutionDef
from dslc.semantics.walk import names_in, nodes
from dslc.syntax import tree as t

SIZES: tuple[int, ...] = (1, 2, 3, 4, 5, 8)  #: sizes that are drawn most
INTEGERS: tuple[int, ...] = (1, 2, 0, 3, -1)  #: integers that are tried first
LARGEST_SIZE = 1 << 12  #: number beyond which nothing is tried as a size
LARGEST = 1 << 24  #: number beyond which nothing is tried as an edge
MOST_EDGES = 5  #: numbers of a text that are tried as edges
PRIMES: tuple[int, ...] = (2, 3, 5, 7, 11, 13)  #: primes of which the first that does not divide a number is tried

#: a text that no operator speaks of
OTHER_TEXT = "another"
# what does not say what an operator computes
_SKIPPED = (t.Example, t.Tags, t.OnnxMap, t.Verify)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers that a rule names: `own` in its text, `reached` in that of operators and functions that it uses."""

    own: tuple[Fraction, ...] = ()
    reached: tuple[Fraction, ...] = ()

    @property
    def every(self) -> tuple[Fraction, ...]:
        """All of them, those of the rule first."""
        return (*self.own, *self.reached)

    @property
    def whole(self) -> tuple[int, ...]:
        """The integers among them, those of the rule first."""
        found = (int(value) for value in self.every if value.denominator == 1)
        return tuple(dict.fromkeys(value for value in found if abs(value) <= LARGEST))


@lru_cache(maxsize=256)
def numbers_of(sub: SubstitutionDef) -> Numbers:
    """The numbers in a rule and in all that it reaches, each once, in the order of the text."""
    own: dict[Fraction, None] = {}
    reached: dict[Fraction, None] = {}
    seen: set[int] = set()
    stack: list[tuple[Module, Any, dict[Fraction, None]]] = [(sub.module, sub.syntax, own)]
    while stack:
        module, syntax, found = stack.pop()
        if id(syntax) in seen:
            continue
        seen.add(id(syntax))
        parts = (
            tuple(s for s in syntax.statements if not isinstance(s, _SKIPPED))
            if isinstance(syntax, t.Operator)
            else syntax
        )
        found.update(dict.fromkeys(_literals(parts)))
        for node in t.walk(parts):
            called = module.called(node)
            if isinstance(called, OperatorDef | FunctionDef):
                stack.append((called.module, called.syntax, reached))
    return Numbers(tuple(own), tuple(value for value in reached if value not in own))


def _literals(root: Any) -> Iterator[Fraction]:
    """The numbers that are written, signs and fractions taken together: `-1/2` is one."""
    inside: set[int] = set()
    for node in t.walk(root):
        if id(node) in inside or not isinstance(node, t.Int | t.Float | t.Unary | t.Binary):
            continue
        value = _literal(node)
        if value is not None:
            inside.update(id(part) for part in t.walk(node))
            yield value


def _literal(expr: t.Node) -> Fraction | None:
    if isinstance(expr, t.Int):
        return Fraction(expr.value)
    if isinstance(expr, t.Float):
        return Fraction(expr.text) if math.isfinite(expr.value) else None
    if isinstance(expr, t.Unary) and expr.op == "-":
        value = _literal(expr.operand)
        return None if value is None else -value
    if isinstance(expr, t.Binary) and expr.op in {"+", "-", "*", "/"}:
        left, right = _literal(expr.left), _literal(expr.right)
        if left is None or right is None or (expr.op == "/" and right == 0):
            return None
        return {"+": left + right, "-": left - right, "*": left * right}[expr.op] if expr.op != "/" else left / right
    return None


# ---- the table ----------------------------------------------------------------------------------------------------------


def values(kind: str, rank: int = 0, near: Numbers = Numbers(), hints: Sequence[tuple[str, int]] = ()) -> Sequence[Any]:
    """Candidates for an attribute, or one entry of a list, of a kind; the most telling numbers first.

    `rank`: that of the first tensor; `near`: the numbers that the rule names; `hints`: what guards say of the number, as relations
    and bounds. Texts and element types are not among it: see `texts`, and the classes of types.
    """
    if kind == "bool":
        return (False, True)
    if kind == "axis":
        return tuple(range(rank))
    if kind == "axes":
        return tuple(chain.from_iterable(combinations(range(rank), n) for n in range(rank + 1)))
    if kind == "permutation":
        return tuple(permutations(range(rank)))
    if kind in {"float", "floats"}:
        return reals(near)
    if kind in {"int", "ints"}:
        return integers(near, hints)
    if kind == "size":
        return within((*SIZES, *far_sizes(near)), hints)
    raise ValueError(f"no values of the kind {kind}")


@lru_cache(maxsize=256)
def reals(near: Numbers) -> tuple[Fraction, ...]:
    """Numbers of every sign: the edges that the rule names, and one number in each of the intervals that they make."""
    named = [value for value in (*near.own, *near.reached[:MOST_EDGES]) if abs(value) <= LARGEST]
    edges = sorted({Fraction(-1), Fraction(0), Fraction(1), *named[: 2 * MOST_EDGES]})
    between = [(a + b) / 2 for a, b in pairwise(edges)]
    beyond = [edges[-1] + 1, edges[0] - 1]
    own = [value for value in near.own if value in edges]
    inside = [value for value in between if any(abs(value - edge) <= 1 for edge in (Fraction(0), *own))]
    first = [Fraction(1, 2), Fraction(2), Fraction(-3, 4)]
    return tuple(dict.fromkeys((*own, Fraction(0), *inside, *beyond, *edges, *first, *between)))


@lru_cache(maxsize=256)
def integers(near: Numbers, hints: Sequence[tuple[str, int]] = ()) -> tuple[int, ...]:
    """Small integers of every sign, and those at and on both sides of what the rule names, as far as guards allow them."""
    edges = [value for value in near.whole if value not in INTEGERS][:MOST_EDGES]
    around = [value + k for value in edges for k in (0, 1, -1)]
    return tuple(dict.fromkeys(within((*INTEGERS, *around), hints)))


@lru_cache(maxsize=256)
def far_sizes(near: Numbers, least: int = 4) -> tuple[int, ...]:
    """For each number from `least` on that the rule names: a small prime that does not divide it, and its neighbours."""
    found: dict[int, None] = {}
    for value in [value for value in near.whole if value >= least][:MOST_EDGES]:
        beside = [value + 1, value, value - 1] if value <= LARGEST_SIZE else []
        found.update(dict.fromkeys([prime for prime in PRIMES if value % prime][:1] + beside))
    return tuple(found)


def within(options: Sequence[int], hints: Sequence[tuple[str, int]]) -> Sequence[int]:
    """The numbers that guards allow; others at their edge where they allow none of these."""
    for relation, bound in hints:
        if relation in {">", ">="}:
            least = bound + (relation == ">")
            options = [k for k in options if k >= least] or [least, least + 1, least + 2]
        elif relation in {"<", "<="}:
            most = bound - (relation == "<")
            options = [k for k in options if k <= most] or [most, most - 1]
        elif relation == "==":
            options = [bound]
    return tuple(options)


def texts(op: OperatorDef, attr: t.Attr) -> tuple[str, ...]:
    """The texts that an operator, and what it hands the attribute to, compares it with; its default; one that is none of these."""
    found: dict[str, None] = {}
    if isinstance(attr.default, t.Str):
        found[attr.default.value] = None
    elif attr.default:
        found.update((part.value, None) for part in nodes(t.Str, attr.default))
    statements = tuple(s for s in op.statements if not isinstance(s, (*_SKIPPED, t.Attr)))
    _compared(op.module, statements, attr.name, found, set())
    found[OTHER_TEXT] = None
    return tuple(found)


def _compared(module: Module, root: Any, name: str, found: dict[str, None], seen: set[tuple[int, str]]) -> None:
    """Collects the texts that what is called `name` is compared with, also where it goes by another name."""
    if (id(root), name) in seen:
        return
    seen.add((id(root), name))
    for node in t.walk(root):
        if isinstance(node, t.Compare) and name in names_in(node):
            found.update((part.value, None) for part in nodes(t.Str, node))
        called = module.called(node)
        if isinstance(node, t.Call) and isinstance(called, FunctionDef):
            for param, arg in zip(called.syntax.params, node.args, strict=False):
                if arg.bare == name:
                    _compared(called.module, called.syntax.body, param, found, seen)
        elif isinstance(node, t.Call) and isinstance(called, OperatorDef):
            for keyword in node.kwargs:
                if keyword.value.bare == name:
                    _compared(called.module, called.statements, keyword.name, found, seen)
