"""TASO's prunings (section 4): renamed inputs, and common subgraphs in both forms.

A substitution is pruned only where one that is more general holds too. That is tested by evaluating both sides on random inputs
modulo a prime.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from dslc.errors import DslcError
from dslc.generate.terms.term import (
    Build,
    Conjecture,
    Term,
    Terms,
    TermType,
    applied,
    in_order,
    input_term,
    inputs,
    size,
    substitute,
    subterms,
    values,
)
from dslc.interpret.field import Field
from dslc.interpret.run import InterpretError, run
from dslc.ir.graph import input_value
from dslc.records import record
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules

PLACES = 8  #: places of an input that are told apart, at most


@record
class PrimeValues:
    """Values of terms modulo a prime, for one random tensor per input."""

    rules: Rules
    seed: int = 0

    def equal(self, lefts: Sequence[Term], rights: Sequence[Term]) -> bool:
        """Return whether the terms agree one by one: same shapes, same values modulo a prime."""
        roots = (*lefts, *rights)
        feeds = {term: input_value(f"x{term.index}", term.type.tensor) for term in inputs(roots)}
        if [term.type.tensor for term in lefts] != [term.type.tensor for term in rights]:
            return False
        try:
            graphs = values(self.rules, roots, feeds)
            found = run(self.rules, graphs, {feeds[term]: self._drawn(term) for term in feeds}, Field(self.seed))
        except (Mismatch, DslcError, InterpretError, ArithmeticError):
            return False
        return all(map(np.array_equal, found, found[len(lefts) :]))

    def _drawn(self, term: Term) -> Any:
        rng = np.random.default_rng([self.seed, term.index, *term.type.shape])
        floats = term.type.dtype.is_float
        return Field().draw(term.type.shape, rng) if floats else rng.integers(0, 2, term.type.shape)


def key(candidate: Conjecture) -> Terms:
    """Equal for candidates that are equal up to the names of inputs and the direction."""
    return min(in_order(candidate.roots), in_order(candidate.turned.roots), key=_text)


def _text(roots: Sequence[Term]) -> str:
    return " ; ".join(f"{root} : {root.type}" for root in roots)


def ordered(candidate: Conjecture) -> Conjecture:
    """With inputs numbered by first occurrence."""
    count = len(candidate.sources)
    roots = in_order(candidate.roots)
    return Conjecture(roots[:count], roots[count:])


# ---- renamed inputs ----------------------------------------------------------------------------------------------


def without_renamed(candidates: Iterable[Conjecture]) -> list[Conjecture]:
    """Of candidates that are equal up to the names of their inputs only the most general (Figure 4a).

    One is more general than another where that one results from it by giving inputs the same name.
    """
    groups: dict[tuple[Any, ...], dict[tuple[int, ...], Conjecture]] = defaultdict(dict)
    for candidate in candidates:
        # without the names of inputs, in the direction that comes first
        forms = [(tuple(map(_bare, one.roots)), _occurrences(one)) for one in (candidate, candidate.turned)]
        shape, _ = min(forms, key=lambda form: str(form[0]))
        groups[shape].setdefault(min(names for other, names in forms if other == shape), candidate)
    kept: list[Conjecture] = []
    for group in groups.values():
        general: list[tuple[int, ...]] = []
        for names, candidate in sorted(group.items(), key=lambda item: -len(set(item[0]))):
            if not any(_instance(names, other) for other in general):
                general.append(names)
                kept.append(candidate)
    return kept


def _bare(term: Term) -> Any:
    return (str(term.item), term.output, *(_bare(arg) for arg in term.args)) if term.item else str(term.type)


def _occurrences(candidate: Conjecture) -> tuple[int, ...]:
    """The inputs in the order in which they are written, numbered by first occurrence."""
    numbers: dict[Term, int] = {}
    return tuple(numbers.setdefault(term, len(numbers)) for root in candidate.roots for term in _leaves(root))


def _leaves(term: Term) -> Iterator[Term]:
    if not term.item:
        yield term
    for arg in term.args:
        yield from _leaves(arg)


def _instance(names: Sequence[int], general: Sequence[int]) -> bool:
    """Return whether `names` results from `general` by giving inputs the same name."""
    seen: dict[int, int] = {}
    return all(seen.setdefault(wide, narrow) == narrow for narrow, wide in zip(names, general, strict=True))


def most_general(candidate: Conjecture, residues: PrimeValues) -> Conjecture:
    """The candidate with inputs told apart wherever both sides stay equal (for inputs that no enumeration had)."""
    for one in inputs(candidate.roots):
        places = sum(leaf is one for root in candidate.roots for leaf in _leaves(root))
        if not 2 <= places <= PLACES:
            continue
        fresh = input_term(_unused(candidate), one.type)
        # the first place keeps its name
        for marks in product((False, True), repeat=places - 1):
            if not any(marks):
                continue
            parted = _parted(candidate, one, fresh, (False, *marks))
            both = set(inputs(parted.sources)) & set(inputs(parted.targets))
            if {fresh, one} <= both and residues.equal(parted.sources, parted.targets):
                return most_general(parted, residues)
    return candidate


def _parted(candidate: Conjecture, one: Term, fresh: Term, marks: Sequence[bool]) -> Conjecture:
    todo = iter(marks)

    def visit(term: Term) -> Term:
        if term is one:
            return fresh if next(todo) else one
        if not term.item or not term.args:
            return term
        return applied(term.item, tuple(map(visit, term.args)), term.output, term.type)

    return Conjecture(tuple(map(visit, candidate.sources)), tuple(map(visit, candidate.targets)))


def _unused(candidate: Conjecture) -> int:
    return max((term.index for term in inputs(candidate.roots)), default=-1) + 1


# ---- common subgraphs --------------------------------------------------------------------------------------------


def reduced(candidate: Conjecture, residues: PrimeValues, build: Build) -> tuple[Conjecture, ...]:
    """The more general candidates from which one follows: itself where nothing can be taken away."""
    todo, out = [candidate], []
    while todo:
        one = without_same(todo.pop())
        below = below_common_roots(one, residues)
        if below is not None:
            todo.extend(reversed(below))
            continue
        above = above_common_subterms(one, residues, build)
        if not above:
            out.append(ordered(one) if one is not candidate else one)
        else:
            todo.append(above)
    return tuple(dict.fromkeys(out))


def without_same(candidate: Conjecture) -> Conjecture:
    """Without the results that are one term on both sides: they say nothing, and the others hold without them."""
    pairs = [pair for pair in zip(candidate.sources, candidate.targets, strict=True) if pair[0] is not pair[1]]
    if not pairs or len(pairs) == len(candidate.sources):
        return candidate
    return Conjecture(tuple(left for left, _ in pairs), tuple(right for _, right in pairs))


def above_common_subterms(candidate: Conjecture, residues: PrimeValues, build: Build) -> Conjecture | None:
    """A subterm of both sides becomes an input (Figure 4b); None where no such candidate holds."""
    shared = set(subterms(candidate.sources)) & set(subterms(candidate.targets))
    common = [term for term in subterms(candidate.sources) if term in shared and term.item]
    for term in sorted(common, key=lambda term: -size((term,))):
        fresh = input_term(_unused(candidate), TermType(term.type.dtype, term.type.shape))
        roots = candidate.roots
        if all(root is term for root in roots):
            continue
        try:
            new = substitute(roots, {term: fresh}, build)
        except (Mismatch, DslcError, ValueError):
            continue
        count = len(candidate.sources)
        trial = Conjecture(new[:count], new[count:])
        if residues.equal(trial.sources, trial.targets):
            return trial
    return None


def below_common_roots(candidate: Conjecture, residues: PrimeValues) -> tuple[Conjecture, ...] | None:
    """The same operator above all outputs is taken away (Figure 4c): what it was applied to, each for itself where they are apart."""
    pairs: list[tuple[Term, Term]] = []
    for left, right in zip(candidate.sources, candidate.targets, strict=True):
        if not left.item or not right.item or left.item != right.item or left.output != right.output or not left.args:
            return None
        pairs += [pair for pair in zip(left.args, right.args, strict=True) if pair[0] is not pair[1]]
    pairs = list(dict.fromkeys(pairs))
    if not pairs or not residues.equal([a for a, _ in pairs], [b for _, b in pairs]):
        return None
    return tuple(Conjecture((a,), (b,)) for a, b in pairs)
