"""Derivability from rules that were kept already: a term is rewritten by them, step by step, until its representative is reached.

All terms of an enumeration together are an e-graph whose classes are their values: an application is compared with a pattern through
every known way to write its arguments, as all smaller equations follow from the rules that were kept for them (they are looked at in
order of size). So one rule at the root of a term, and what is known of smaller terms, is one step; terms of the same size are steps
on the way, larger ones are not looked at.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from typing import Any

from dslc.errors import DslcError
from dslc.generate.general.rules import GeneralRule
from dslc.generate.general.text import choice, declared
from dslc.generate.terms.term import (
    Conjecture,
    Equation,
    Item,
    Term,
    Terms,
    input_term,
    inputs,
    outputs,
    rename,
    subterms,
)
from dslc.ir.dtype import DType
from dslc.processes.forked import mapped
from dslc.records import record
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules

# ---- Terms by value: every known way to write a value, and the shortest of them ------------------------------------


class Classes:
    """Union-find over terms whose parts are the representatives of their classes. Enter smaller equations first."""

    def __init__(self, rules: Rules, inputs: Sequence[Term]) -> None:
        self._rules = rules
        self._inputs = tuple(inputs)
        self._parent: dict[Term, Term] = {}
        self._value: dict[Term, Term] = {}
        self._members: dict[Term, list[Term]] = defaultdict(list)
        self.size = cache(_size)
        #: how many equations were entered
        self.entered = 0

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
        for renaming in product(*options):
            left, right = rename(equation.roots, {old: new for part in renaming for old, new in part.items()})
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
            if not part.item:
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
            assert above.item
            made = outputs(self._rules, above.item, tuple(done.get(arg, arg) for arg in above.args))[above.output]
            done[above] = made if above is term else self.find(made)
        return done[term]

    def normal(self, term: Term) -> Term:
        """The representative of any term."""
        return self.find(self.rebuilt(term))


def _size(term: Term) -> int:
    return term.size


def _root(parent: dict[Term, Term], term: Term) -> Term:
    while True:
        above = parent.get(term)
        if not above:
            return term
        over = parent.get(above)
        if over:
            parent[term] = over
        term = above


def family_inputs(types: Sequence[object]) -> Terms:
    """The inputs of a family as terms."""
    return tuple(input_term(k, type) for k, type in enumerate(types))  # type: ignore[arg-type]


# ---- Derivability from rules that were kept already: a term is rewritten by them, step by step, until its re--------

STEPS = 24  #: terms that are rewritten
LARGER = 2  #: operators that a term may have more than the one to begin with
FURTHER = 160  #: terms that are rewritten for what is left after that, and would have to be proved

#: inputs and attribute variables of a rule, with what they stand for; sizes that attributes are given by, as `Size`
Binding = dict[Any, Any]


@record
class RuleSize:
    """A size of a rule, or a sum of some, as the rule writes it."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class RulePattern:
    """One direction of a kept rule."""

    rule: GeneralRule
    sources: Terms
    targets: Terms


Rests = frozenset[GeneralRule]


class _Side:
    """The terms that a search from one term has reached, with the rules of the way there; and the ones left to rewrite."""

    def __init__(self, classes: Classes, term: Term) -> None:
        start = classes.rebuilt(term)
        self.seen: dict[Term, Rests] = {start: frozenset()}
        self.todo: list[tuple[int, int, Term]] = [(0, 0, start)]
        self.value, self.normal, self.parts = classes.value(start), classes.find(start), set(subterms((start,)))


class KnownRules:
    """The classes of an enumeration's terms, and the rules that were kept."""

    def __init__(self, rules: Rules, classes: Classes) -> None:
        self._rules = rules
        self.classes = classes
        self._patterns: dict[tuple[str, int], list[RulePattern]] = defaultdict(list)
        self._joint: dict[tuple[str, int], list[RulePattern]] = defaultdict(list)
        #: the steps of terms that are parts of others, of so many patterns; as long as the classes have the same number
        self._parts: dict[Term, tuple[list[tuple[Term, GeneralRule]], int]] = {}
        self._entered = 0
        self._constants = cache(_constants)
        #: the ways to write terms by operator and output; as long as the classes have the same number
        self._ways: dict[Term, dict[tuple[str, int], list[Term]]] = {}

    def keep(self, rule: GeneralRule) -> None:
        """From now on the rule, in each direction that binds all it needs, may be used."""
        candidate = rule.candidate
        for one in (candidate, candidate.turned):
            # attributes of one side may not follow from the other: then an instance has no value, and none is made
            first = one.sources[0]
            if first.item and one.binds:
                table = self._patterns if len(one.sources) == 1 else self._joint
                table[(first.item.op, first.output)].append(RulePattern(rule, one.sources, one.targets))

    @property
    def rules(self) -> list[GeneralRule]:
        """All that are kept."""
        tables = (self._patterns, self._joint)
        return list(
            dict.fromkeys(pattern.rule for table in tables for patterns in table.values() for pattern in patterns)
        )

    def drop(self, rule: GeneralRule) -> None:
        """Undoes `keep`."""
        self._parts.clear()
        for table in (self._patterns, self._joint):
            for patterns in table.values():
                patterns[:] = [pattern for pattern in patterns if pattern.rule is not rule]

    # ---- one result ----------------------------------------------------------------------------------------------

    def derivable(self, term: Term, target: Term) -> Rests | None:
        """The rules by which rewriting leads from a term to another one of the same value; None where it does not.

        Every part of a term is rewritten; terms have at most a few operators more than the two, those first that have most in common
        with the target.
        """
        side, other = _Side(self.classes, term), _Side(self.classes, target)
        other.seen, other.todo = {other.normal: frozenset()}, []
        return self._meeting((side, other), max(map(self.classes.size, (term, target))), STEPS)

    def follows(self, term: Term, target: Term, steps: int = FURTHER) -> Rests | None:
        """As `derivable`, from both terms at once until the terms that are reached meet."""
        sides = _Side(self.classes, term), _Side(self.classes, target)
        for side in sides:
            side.seen[side.normal] = frozenset()
        return self._meeting(sides, max(map(self.classes.size, (term, target))), steps)

    def _meeting(self, sides: tuple[_Side, _Side], most: int, steps: int) -> Rests | None:
        """The search of both sides in turn; one that has nothing to rewrite is left out."""
        if sides[0].seen.keys() & sides[1].seen.keys():
            return frozenset()
        for k in range(steps):
            mine, other = sides[k % 2], sides[(k + 1) % 2]
            if not mine.todo:
                mine, other = other, mine
            if not mine.todo:
                break
            _, _, here = heapq.heappop(mine.todo)
            for there, rule in self._anywhere(here):
                if there in mine.seen:
                    continue
                rests = mine.seen[here] | {rule}
                if there in other.seen:
                    return rests | other.seen[there]
                size = self.classes.size(there)
                if size < most and self.classes.value(there) is other.value:
                    return rests
                if size <= most + LARGER:
                    mine.seen[there] = rests
                    apart = sum(part not in other.parts for part in subterms((there,)))
                    heapq.heappush(mine.todo, (apart, len(mine.seen), there))
        return None

    def _anywhere(self, term: Term) -> Iterator[tuple[Term, GeneralRule]]:
        """One step at the root, then at each part, and the rule of the step."""
        yield from self._steps(term)
        for part in subterms((term,)):
            if part is term or not part.item:
                continue
            for new, rule in self._steps_of_part(part):
                try:
                    yield self.classes.replaced(term, part, new), rule
                except (Mismatch, DslcError):
                    continue

    def _steps(self, term: Term) -> Iterator[tuple[Term, GeneralRule]]:
        if term.item:
            yield from self._steps_by(term, self._patterns.get((term.item.op, term.output), ()))

    def _steps_of_part(self, term: Term) -> list[tuple[Term, GeneralRule]]:
        """The same, kept: terms have far fewer parts than there are terms."""
        assert term.item
        self._look()
        patterns = self._patterns.get((term.item.op, term.output), ())
        found, count = self._parts.get(term, ([], 0))
        if count < len(patterns):
            found = [*found, *self._steps_by(term, patterns[count:])]
            self._parts[term] = found, len(patterns)
        return found

    def _look(self) -> None:
        """Forgets what was kept of other classes."""
        if self._entered != self.classes.entered:
            self._parts.clear()
            self._ways.clear()
            self._entered = self.classes.entered

    def _steps_by(self, term: Term, patterns: Sequence[RulePattern]) -> Iterator[tuple[Term, GeneralRule]]:
        for pattern in patterns:
            for binding in self._node(pattern.rule, pattern.sources[0], term, {}):
                made = self._made(pattern, pattern.targets, binding)
                if made is not None and made[0].type.tensor == term.type.tensor:
                    yield self.classes.rebuilt(made[0]), pattern.rule

    # ---- several results ------------------------------------------------------------------------------------------

    def derivable_joint(self, candidate: Conjecture) -> Rests | None:
        """The kept rules that lead from the sources to the targets; None for none.

        One has several results, others follow below the application whose results the targets are.
        """
        goals = tuple(map(self.classes.rebuilt, candidate.targets))
        for way in self.classes.ways(candidate.sources[0]):
            for pattern in self._joint.get((way.item.op, way.output), ()) if way.item else ():
                if len(pattern.sources) != len(candidate.sources):
                    continue
                for binding in self._each(pattern.rule, pattern.sources, candidate.sources, {}):
                    made = self._made(pattern, pattern.targets, binding)
                    rests = None if made is None else self._alike(tuple(map(self.classes.rebuilt, made)), goals)
                    if rests is not None:
                        return rests | {pattern.rule}
        return None

    def _alike(self, made: Terms, goals: Terms) -> Rests | None:
        """The rules by which the results of one application become those of another of the same item; empty if they are those."""
        if made == goals:
            return frozenset()
        one, other = made[0], goals[0]
        for a, b in zip(made, goals, strict=True):
            if not a.item or a.item != b.item or a.output != b.output or a.args != one.args or b.args != other.args:
                return None
        rests: Rests = frozenset()
        for a, b in zip(one.args, other.args, strict=True):
            found = self.derivable(a, b)
            if found is None:
                return None
            rests |= found
        return rests

    # ---- matching -------------------------------------------------------------------------------------------------

    def _class(self, rule: GeneralRule, pattern: Term, term: Term, binding: Binding) -> Iterator[Binding]:
        if not pattern.item:
            bound = binding.get(pattern)
            if bound is None:
                if len(pattern.type.dims) == len(term.type.dims) or (rule.form.pack and pattern.type.dims):
                    yield {**binding, pattern: term}
            elif bound is term:
                yield binding
            return
        for way in self._written(term).get((pattern.item.op, pattern.output), ()):
            yield from self._node(rule, pattern, way, binding)

    def _written(self, term: Term) -> dict[tuple[str, int], list[Term]]:
        """The ways to write a term by operator and output, without constants that it has not.

        Rewriting by rules does not find the identity in a tensor.
        """
        self._look()
        found = self._ways.get(term)
        if found is None:
            found = self._ways[term] = {}
            for way in self.classes.ways(term):
                if way.item and (way is term or self._constants(way) <= self._constants(term)):
                    found.setdefault((way.item.op, way.output), []).append(way)
        return found

    def _node(self, rule: GeneralRule, pattern: Term, term: Term, binding: Binding) -> Iterator[Binding]:
        """The bindings of a pattern with a term that has its operator and output."""
        assert term.item
        more = self._attributes(rule, pattern, term.item, binding)
        if more is not None:
            yield from self._each(rule, pattern.args, term.args, more)

    def _each(self, rule: GeneralRule, patterns: Terms, terms: Terms, binding: Binding) -> Iterator[Binding]:
        if not patterns:
            yield binding
            return
        for more in self._class(rule, patterns[0], terms[0], binding):
            yield from self._each(rule, patterns[1:], terms[1:], more)

    def _attributes(self, rule: GeneralRule, pattern: Term, item: Item, binding: Binding) -> Binding | None:
        assert pattern.item
        out = dict(binding)
        values = dict(item.attrs)
        for name, wanted in pattern.item.attrs:
            value = values[name]
            if name in pattern.item.sized:
                for text, number in sizes_in(rule, rule.typed.sized[pattern.node][name], value):
                    if out.setdefault(RuleSize(text), number) != number:
                        return None
                continue
            variable = None if isinstance(wanted, DType) else self._variable(rule, pattern.item, name, wanted)
            if variable is None:
                if value != wanted:
                    return None
            elif out.setdefault(variable, value) != value:
                return None
        return out

    def _variable(self, rule: GeneralRule, item: Item, name: str, value: Any) -> Any:
        hole = rule.form.holes.get(choice(self._rules, item, name, value))
        if hole is None and rule.form.pack == "axis" and declared(self._rules, item, name).type.name == "axis":
            return "a"
        return hole

    # ---- building -------------------------------------------------------------------------------------------------

    def _made(self, pattern: RulePattern, roots: Terms, binding: Binding) -> Terms | None:
        """The roots with a binding's inputs and attributes; None where they have no type, or the sizes don't fit the rule."""
        given = {size.text: value for size, value in binding.items() if isinstance(size, RuleSize)}
        sizes = fitting(pattern.rule, {term: value for term, value in binding.items() if isinstance(term, Term)}, given)
        if sizes is None:
            return None
        done: dict[Term, Term] = {}
        try:
            for term in subterms(roots):
                if not term.item:
                    if term not in binding:
                        return None
                    done[term] = binding[term]
                    continue
                item = self._item(pattern.rule, term, binding, sizes)
                if not item:
                    return None
                done[term] = outputs(self._rules, item, tuple(done[arg] for arg in term.args))[term.output]
        except (Mismatch, DslcError):
            return None
        return tuple(done[root] for root in roots)

    def _item(self, rule: GeneralRule, term: Term, binding: Binding, sizes: Mapping[str, Any]) -> Item | None:
        item = term.item
        assert item
        attrs: list[tuple[str, Any]] = []
        axis: Any = item.axis
        for name, value in item.attrs:
            if name in item.sized:
                found = sized_value(rule.typed.sized[term.node][name], isinstance(value, tuple), rule, sizes)
                if found is None:
                    return None
                attrs.append((name, found))
                continue
            variable = None if isinstance(value, DType) else self._variable(rule, item, name, value)
            if variable is not None and variable not in binding:
                return None
            new = value if variable is None else binding[variable]
            if axis is not None and declared(self._rules, item, name).type.name == "axis":
                axis = new
            attrs.append((name, new))
        return Item(item.op, tuple(attrs), item.cut, axis, item.sized)


def _constants(term: Term) -> frozenset[Term]:
    return frozenset(part for part in subterms((term,)) if part.is_constant)


def sizes_in(rule: GeneralRule, text: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The sizes, as texts, that an attribute of this text is given by, for its value; a name alone may be all of a list."""
    if isinstance(value, tuple) and rule.form.pack == "all":
        yield "S", value
    elif isinstance(value, tuple) and text.startswith("["):
        yield from zip(text.strip("[]").split(", "), value, strict=True)
    else:
        yield text, value


def fitting(
    rule: GeneralRule, binding: Mapping[Term, Term], given: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """The sizes of a rule for given inputs; None where their shapes are no instance of its types. `S`, `L`, `R` are shapes.

    Args:
        given: sizes, and sums of them, that attributes say.
    """
    sizes: dict[str, Any] = {}
    sums: list[tuple[str, int]] = []
    for text, value in (given or {}).items():
        if " + " in text or text.isdigit():
            sums.append((text, value))
        else:
            sizes[text] = value
    for term, dims in rule.typed.tensors.items():
        if term not in binding:
            continue
        shape = binding[term].type.shape
        pack, cut = rule.form.pack if dims else "", len(shape) - len(dims)
        # of lists of sizes only the whole is known, or the rank
        name, value, single = {
            "all": ("S", shape, ()),
            "batch": ("L", shape[: max(cut, 0)], shape[max(cut, 0) :]),
            "axis": ("rank", len(shape), ()),
        }.get(pack, ("", (), shape))
        if (cut < 0 if pack == "batch" else cut and not pack) or sizes.setdefault(name, value) != value:
            return None
        for dim, number in zip(dims, single, strict=False):
            if dim in rule.typed.sizes:
                if sizes.setdefault(dim, number) != number:
                    return None
            else:
                sums.append((dim, number))
    for dim, number in sums:
        if _sum(dim, sizes) not in {None, number}:
            return None
    return sizes


def _sum(text: str, sizes: Mapping[str, Any]) -> int | None:
    """The value of a sum of sizes; None where one is not known."""
    parts = text.split(" + ")
    if not all(part in sizes or part.isdigit() for part in parts):
        return None
    return sum(sizes[part] if part in sizes else int(part) for part in parts)


def sized_value(text: str, several: bool, rule: GeneralRule, sizes: Mapping[str, Any]) -> Any:
    """The value of an attribute that is given by sizes; None where they are not known."""
    if several and (rule.form.pack == "all" or not text.startswith("[")):
        return sizes.get("S" if rule.form.pack == "all" else text)
    out = [_sum(part, sizes) for part in text.strip("[]").split(", ")]
    return None if None in out else tuple(out) if several else out[0]


# ---- many candidates at once -----------------------------------------------------------------------------------------

FEW = 400  #: pairs; fewer are not worth new processes
CHUNK = 32  #: pairs that a process takes at once

Pair = tuple[Term, Term]


def derivable_pairs(known: KnownRules, pairs: Sequence[Pair], workers: int) -> dict[Pair, Rests]:
    """The pairs (term, target) that follow from the rules kept so far, and from which; empty where few are asked for.

    Forks find them, which share the rules and classes with this process and answer with the rules' numbers.
    """
    if workers <= 1 or len(pairs) < FEW:
        return {}
    rules = known.rules
    found = mapped(_numbered, (known, {rule: k for k, rule in enumerate(rules)}), pairs, workers, CHUNK)
    return {
        pair: frozenset(rules[k] for k in numbers)
        for pair, numbers in zip(pairs, found, strict=True)
        if numbers is not None
    }


def _numbered(shared: tuple[KnownRules, dict[GeneralRule, int]], pair: Pair) -> list[int] | None:
    known, numbers = shared
    rests = known.derivable(*pair)
    return None if rests is None else [numbers[rule] for rule in rests]
