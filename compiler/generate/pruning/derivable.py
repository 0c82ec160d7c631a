"""What follows from rules that were kept already: a term is rewritten by them, one step at a time, until its representative is reached.

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
from typing import Any

from dslc.errors import DslcError
from dslc.generate.general.rules import GeneralRule
from dslc.generate.general.text import choice, declared
from dslc.generate.pruning.classes import Classes
from dslc.generate.terms.term import Conjecture, Item, Term, inputs, subterms
from dslc.generate.terms.trees import outputs
from dslc.ir.dtype import DType
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules

STEPS = 24  #: terms that are rewritten
LARGER = 2  #: operators that a term may have more than the one to begin with
FURTHER = 160  #: terms that are rewritten for what is left after that, and would have to be proved

#: inputs and attribute variables of a rule, with what they stand for; sizes that attributes are given by, as `Size`
Binding = dict[Any, Any]


@dataclass(frozen=True, slots=True)
class RuleSize:
    """A size of a rule, or a sum of some, as the rule writes it."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class RulePattern:
    """One direction of a kept rule."""

    rule: GeneralRule
    sources: tuple[Term, ...]
    targets: tuple[Term, ...]


class _Side:
    """What a search from one term has reached, with the rules of the way there; and what is left to rewrite."""

    def __init__(self, classes: Classes, term: Term) -> None:
        start = classes.rebuilt(term)
        self.seen: dict[Term, frozenset[GeneralRule]] = {start: frozenset(), classes.find(start): frozenset()}
        self.todo: list[tuple[int, int, Term]] = [(0, 0, start)]
        self.value, self.parts = classes.value(start), set(subterms((start,)))


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
        #: the constants of terms
        self._constants: dict[Term, frozenset[Term]] = {}
        #: the ways to write terms by operator and output; as long as the classes have the same number
        self._ways: dict[Term, dict[tuple[str, int], list[Term]]] = {}

    def keep(self, rule: GeneralRule) -> None:
        """From now on the rule, in each direction that binds all it needs, may be used."""
        candidate = rule.candidate
        for sources, targets in ((candidate.sources, candidate.targets), (candidate.targets, candidate.sources)):
            # attributes of one side may not follow from the other: then an instance has no value, and none is made
            if any(term.is_leaf for term in sources) or not set(inputs(targets)) <= set(inputs(sources)):
                continue
            assert sources[0].item is not None
            table = self._patterns if len(sources) == 1 else self._joint
            table[(sources[0].item.op, sources[0].output)].append(RulePattern(rule, sources, targets))

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

    def derivable(
        self, term: Term, target: Term, steps: int = STEPS, more: int = LARGER
    ) -> frozenset[GeneralRule] | None:
        """The rules by which rewriting leads from a term to another one of the same value; None where it does not.

        Every part of a term is rewritten; at most `steps` terms are rewritten so, of at most `more` operators more than the two have,
        those first that have most in common with the target.
        """
        classes = self.classes
        most = max(classes.size(term), classes.size(target))
        rebuilt = classes.rebuilt(target)
        goal, known = classes.value(rebuilt), classes.normal(target)
        start = classes.rebuilt(term)
        if start is known:
            return frozenset()
        wanted = set(subterms((rebuilt,)))
        seen = {start: frozenset[GeneralRule]()}
        todo: list[tuple[int, int, Term]] = [(0, 0, start)]
        for _ in range(steps):
            if not todo:
                break
            _, _, here = heapq.heappop(todo)
            for there, rule in self._anywhere(here):
                if there in seen:
                    continue
                size = classes.size(there)
                if there is known or (size < most and classes.value(there) is goal):
                    return seen[here] | {rule}
                if size <= most + more:
                    seen[there] = seen[here] | {rule}
                    apart = sum(part not in wanted for part in subterms((there,)))
                    heapq.heappush(todo, (apart, len(seen), there))
        return None

    def follows(
        self, term: Term, target: Term, steps: int = FURTHER, more: int = LARGER
    ) -> frozenset[GeneralRule] | None:
        """As `derivable`, from both terms at once until the terms that are reached meet; `steps` terms are rewritten in all."""
        classes = self.classes
        most = max(classes.size(term), classes.size(target))
        sides = [_Side(classes, one) for one in (term, target)]
        if sides[0].seen.keys() & sides[1].seen.keys():
            return frozenset()
        for k in range(steps):
            mine, other = sides[k % 2], sides[(k + 1) % 2]
            if not mine.todo:
                mine, other = other, mine
            if not mine.todo:
                break
            _, _, here = heapq.heappop(mine.todo)
            rests = mine.seen[here]
            for there, rule in self._anywhere(here):
                if there in mine.seen:
                    continue
                if there in other.seen:
                    return rests | other.seen[there] | {rule}
                size = classes.size(there)
                if size < most and classes.value(there) is other.value:
                    return rests | {rule}
                if size <= most + more:
                    mine.seen[there] = rests | {rule}
                    apart = sum(part not in other.parts for part in subterms((there,)))
                    heapq.heappush(mine.todo, (apart, len(mine.seen), there))
        return None

    def _anywhere(self, term: Term) -> Iterator[tuple[Term, GeneralRule]]:
        """One step at the root, then at each part, and the rule of the step."""
        yield from self._steps(term)
        for part in subterms((term,)):
            if part is term or part.item is None:
                continue
            for new, rule in self._steps_of_part(part):
                try:
                    yield self.classes.replaced(term, part, new), rule
                except (Mismatch, DslcError):
                    continue

    def _steps(self, term: Term) -> Iterator[tuple[Term, GeneralRule]]:
        if term.item is not None:
            yield from self._steps_by(term, self._patterns.get((term.item.op, term.output), ()))

    def _steps_of_part(self, term: Term) -> list[tuple[Term, GeneralRule]]:
        """The same, kept: terms have far fewer parts than there are terms."""
        assert term.item is not None
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

    def derivable_joint(self, candidate: Conjecture) -> frozenset[GeneralRule] | None:
        """The kept rules that lead from the sources to the targets: one with several results, then others below the application
        whose results the targets are; None for none."""
        goals = tuple(self.classes.rebuilt(term) for term in candidate.targets)
        first = candidate.sources[0]
        ways = [m for m in self.classes.ways(first) if m.item is not None]
        for way in ways:
            assert way.item is not None
            for pattern in self._joint.get((way.item.op, way.output), ()):
                if len(pattern.sources) != len(candidate.sources):
                    continue
                for binding in self._all(pattern, candidate.sources):
                    made = self._made(pattern, pattern.targets, binding)
                    rests = (
                        None if made is None else self._alike(tuple(self.classes.rebuilt(term) for term in made), goals)
                    )
                    if rests is not None:
                        return rests | {pattern.rule}
        return None

    def _alike(self, made: tuple[Term, ...], goals: tuple[Term, ...]) -> frozenset[GeneralRule] | None:
        """The rules by which the results of one application become those of another of the same item; empty if they are those."""
        if made == goals:
            return frozenset()
        one, other = made[0], goals[0]
        for a, b in zip(made, goals, strict=True):
            if a.item is None or a.item != b.item or a.output != b.output or a.args != one.args or b.args != other.args:
                return None
        rests: frozenset[GeneralRule] = frozenset()
        for a, b in zip(one.args, other.args, strict=True):
            found = self.derivable(a, b)
            if found is None:
                return None
            rests |= found
        return rests

    def _all(
        self, pattern: RulePattern, terms: tuple[Term, ...], at: int = 0, binding: Binding | None = None
    ) -> Iterator[Binding]:
        if at == len(terms):
            yield binding or {}
            return
        for more in self._class(pattern.rule, pattern.sources[at], terms[at], binding or {}):
            yield from self._all(pattern, terms, at + 1, more)

    # ---- matching -------------------------------------------------------------------------------------------------

    def _class(self, rule: GeneralRule, pattern: Term, term: Term, binding: Binding) -> Iterator[Binding]:
        if pattern.item is None:
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
        """The ways to write a term by operator and output."""
        self._look()
        found = self._ways.get(term)
        if found is None:
            found = self._ways[term] = {}
            for way in self.classes.ways(term):
                if way.item is not None and (way is term or not self._brings(way, term)):
                    found.setdefault((way.item.op, way.output), []).append(way)
        return found

    def _brings(self, way: Term, term: Term) -> bool:
        """Whether a way to write a term has constants that the term has not: whoever rewrites by rules does not find the identity in a
        tensor."""
        known = self._constants
        for one in (way, term):
            if one not in known:
                known[one] = frozenset(part for part in subterms((one,)) if part.is_constant)
        return not known[way] <= known[term]

    def _node(self, rule: GeneralRule, pattern: Term, term: Term, binding: Binding) -> Iterator[Binding]:
        if (
            pattern.item is None
            or term.item is None
            or pattern.item.op != term.item.op
            or pattern.output != term.output
        ):
            return
        more = self._attributes(rule, pattern, term.item, binding)
        if more is not None:
            yield from self._args(rule, pattern.args, term.args, more)

    def _args(
        self, rule: GeneralRule, patterns: tuple[Term, ...], terms: tuple[Term, ...], binding: Binding
    ) -> Iterator[Binding]:
        if not patterns:
            yield binding
            return
        for more in self._class(rule, patterns[0], terms[0], binding):
            yield from self._args(rule, patterns[1:], terms[1:], more)

    def _attributes(self, rule: GeneralRule, pattern: Term, item: Item, binding: Binding) -> Binding | None:
        assert pattern.item is not None
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

    def _made(self, pattern: RulePattern, roots: tuple[Term, ...], binding: Binding) -> tuple[Term, ...] | None:
        """The roots with a binding's inputs and attributes; None where they have no type, or the sizes don't fit the rule."""
        given = {size.text: value for size, value in binding.items() if isinstance(size, RuleSize)}
        sizes = fitting(pattern.rule, {term: value for term, value in binding.items() if isinstance(term, Term)}, given)
        if sizes is None:
            return None
        done: dict[Term, Term] = {}
        try:
            for term in subterms(roots):
                if term.item is None:
                    if term not in binding:
                        return None
                    done[term] = binding[term]
                    continue
                item = self._item(pattern.rule, term, binding, sizes)
                if item is None:
                    return None
                done[term] = outputs(self._rules, item, tuple(done[arg] for arg in term.args))[term.output]
        except (Mismatch, DslcError):
            return None
        return tuple(done[root] for root in roots)

    def _item(self, rule: GeneralRule, term: Term, binding: Binding, sizes: Mapping[str, Any]) -> Item | None:
        item = term.item
        assert item is not None
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
        lists: list[tuple[str, tuple[int, ...]]] = []
        singles = list(zip(dims, shape, strict=False))
        if dims and rule.form.pack == "all":
            lists, singles = [("S", shape)], []
        elif dims and rule.form.pack == "batch":
            cut = len(shape) - len(dims)
            if cut < 0:
                return None
            lists, singles = [("L", shape[:cut])], list(zip(dims, shape[cut:], strict=True))
        elif dims and rule.form.pack == "axis":
            lists, singles = [("rank", (len(shape),))], []
        elif len(dims) != len(shape):
            return None
        for name, value in lists:
            if sizes.setdefault(name, value) != value:
                return None
        for dim, number in singles:
            if dim in rule.typed.sizes:
                if sizes.setdefault(dim, number) != number:
                    return None
            else:
                sums.append((dim, number))
    for dim, number in sums:
        parts = dim.split(" + ")
        known = all(part in sizes or part.isdigit() for part in parts)
        if known and sum(sizes[part] if part in sizes else int(part) for part in parts) != number:
            return None
    return sizes


def sized_value(text: str, several: bool, rule: GeneralRule, sizes: Mapping[str, Any]) -> Any:
    """The value of an attribute that is given by sizes; None where they are not known."""
    if several and (rule.form.pack == "all" or not text.startswith("[")):
        return sizes.get("S" if rule.form.pack == "all" else text)
    out = []
    for part in text.strip("[]").split(", "):
        words = part.split(" + ")
        if not all(word in sizes or word.isdigit() for word in words):
            return None
        out.append(sum(sizes[word] if word in sizes else int(word) for word in words))
    return tuple(out) if several else out[0]
