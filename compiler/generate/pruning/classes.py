"""Terms by value: every known way to write a value, and the shortest of them.

An enumeration keeps one of all renamings of an equation; here all of them are entered, so that a part of a term is found whatever its
inputs are called. Terms of one value and different split trees are different classes, as a cut tells them apart, with one value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import permutations, product

from dslc.generate.terms.term import Equation, Term, Terms, input_term, inputs, rename, size, subterms
from dslc.generate.terms.trees import outputs
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules


class Classes:
    """Union-find over terms whose parts are the representatives of their classes. Enter smaller equations first."""

    def __init__(self, rules: Rules, inputs: Sequence[Term]) -> None:
        self._rules = rules
        self._inputs = tuple(inputs)
        self._parent: dict[Term, Term] = {}
        self._value: dict[Term, Term] = {}
        self._members: dict[Term, list[Term]] = defaultdict(list)
        self._sizes: dict[Term, int] = {}
        #: how many equations were entered
        self.entered = 0

    def size(self, term: Term) -> int:
        found = self._sizes.get(term)
        if found is None:
            found = self._sizes[term] = size((term,))
        return found

    def add(self, equation: Equation) -> None:
        """Enters an equation under all names of its inputs."""
        self.entered += 1
        for a, b in self._renamed(equation):
            a, b = self.rebuilt(a), self.rebuilt(b)
            if a.type == b.type:
                self._union(self._parent, a, b, True)
            self._union(self._value, self.find(a), self.find(b), False)

    def _renamed(self, equation: Equation) -> Iterator[tuple[Term, Term]]:
        used = inputs(equation.roots)
        options = []
        for type in dict.fromkeys(term.type for term in used):
            mine, every = ([term.index for term in terms if term.type == type] for terms in (used, self._inputs))
            options.append([dict(zip(mine, chosen, strict=True)) for chosen in permutations(every, len(mine))])
        for choice in product(*options):
            left, right = rename(equation.roots, {old: new for part in choice for old, new in part.items()})
            yield left, right

    def _union(self, parent: dict[Term, Term], a: Term, b: Term, members: bool) -> None:
        a, b = _root(parent, a), _root(parent, b)
        if a is b:
            return
        if self._order(b) < self._order(a):
            a, b = b, a
        parent[b] = a
        if members:
            self._members[a] += [b, *self._members.pop(b, [])]

    def _order(self, term: Term) -> tuple[int, int, str]:
        """Small for what represents a class: few operators, then few constants."""
        return self.size(term), sum(part.is_constant for part in subterms((term,))), str(term)

    def find(self, term: Term) -> Term:
        """The representative of a term whose parts are representatives."""
        return _root(self._parent, term)

    def value(self, term: Term) -> Term:
        """Equal for terms of equal values, whatever their split trees are."""
        return _root(self._value, self.find(term))

    def ways(self, term: Term) -> list[Term]:
        """A representative and all other terms of its class."""
        return [term, *self._members.get(term, ())]

    def rebuilt(self, term: Term) -> Term:
        """A term with the representatives of its parts."""
        if self._parent.keys().isdisjoint(term.below):
            return term
        done: dict[Term, Term] = {}
        for part in subterms((term,)):
            if part.item is None:
                done[part] = part
                continue
            args = tuple(done[arg] for arg in part.args)
            new = part
            if args != part.args:
                try:
                    new = outputs(self._rules, part.item, args)[part.output]
                except Mismatch:
                    new = part
            done[part] = new if part is term else self.find(new)
        return done[term]

    def replaced(self, term: Term, part: Term, new: Term) -> Term:
        """`rebuilt` of a term whose parts are representatives, with one of its proper parts replaced.

        Raises:
            Mismatch: what a part was applied to does not take the new one.
        """
        done = {part: self.find(new)}
        for above in (*term.below, term):
            if above is part or done.keys().isdisjoint(above.args):
                continue
            assert above.item is not None
            made = outputs(self._rules, above.item, tuple(done.get(arg, arg) for arg in above.args))[above.output]
            done[above] = made if above is term else self.find(made)
        return done[term]

    def normal(self, term: Term) -> Term:
        """The representative of any term."""
        return self.find(self.rebuilt(term))


def _root(parent: dict[Term, Term], term: Term) -> Term:
    while True:
        above = parent.get(term)
        if above is None:
            return term
        over = parent.get(above)
        if over is not None:
            parent[term] = over
        term = above


def family_inputs(types: Sequence[object]) -> Terms:
    """The inputs of a family as terms."""
    return tuple(input_term(k, type) for k, type in enumerate(types))  # type: ignore[arg-type]
