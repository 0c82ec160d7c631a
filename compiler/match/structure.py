"""The structural part of matching: operators, arguments and attributes; nothing is evaluated here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

from dslc.ir.dtype import TensorType
from dslc.ir.graph import Call, Value, Values
from dslc.match.associative import MOST_OPERANDS, build, compositions, groups, operand_lists
from dslc.match.attributes import fits, misfit, same_set
from dslc.match.describe import show
from dslc.match.guards import result_of
from dslc.match.index import Fitting, Index, in_order
from dslc.match.joins import Joins
from dslc.match.pattern import Default, Number, Pattern, Result, Site, Variable
from dslc.match.prefilter import attributes, number_at, satisfies
from dslc.match.rule import CompiledRule, PatternPart, Placed
from dslc.match.state import Complete, MatchState, NumberEquals, Pending, Places, Wrap
from dslc.match.substitutions import LazySubstitutions, PartSubstitution
from dslc.match.types import Bindings, bound, equal
from dslc.semantics.env import AttrSet, OperatorRef

COUNTED = "`{}` has {} {}, not {}".format

# a tensor of a part that is matched already, and the sites on the way from it up to the top
Anchor: TypeAlias = tuple[Value, tuple[int, ...]]


def ways_of(rule: CompiledRule, index: Index) -> tuple[tuple[Placed, ...], Iterator[tuple[PartSubstitution, ...]]]:
    """The parts of a rule in some order, and all ways in which they match together, lazily and in a deterministic order."""
    structure, changed = Structure(rule, index), index.memory.changed
    if not all(rule.prefilters[top].fitting(index).calls for top in rule.left.tops):
        return (), iter(())
    if changed is not None or (index.memory.few and len(rule.left.tops) > 1):
        whole = rule.whole
        states = structure.states() if changed is None else structure.states_at(changed)
        return (whole,), ((PartSubstitution(whole.part, index, state),) for state in states)
    parts = rule.parts
    if len(parts) == 1:
        return parts, ((way,) for way in _ways(parts[0].part, index))
    joins = Joins(
        rule, index, sorted(parts, key=lambda part: structure.frequency(part.top)), lambda part: _ways(part, index)
    )
    return joins.order, joins.ways()


def _ways(part: PatternPart, index: Index) -> LazySubstitutions:
    """Find the substitutions of a part, once for each index."""
    known = index.memory.ways
    found: LazySubstitutions | None = known.get(part)
    if not found or found.broken:
        states = Structure(part.rule, index).part(part.top)
        found = known[part] = LazySubstitutions(PartSubstitution(part, index, state) for state in states)
    return found


class Structure:
    """Finds the states in which the left side of a rule fits a graph, types and guards aside."""

    #: whether prefilters tell which calls a site can be
    filtered = True

    def __init__(self, rule: CompiledRule, index: Index) -> None:
        self._rule = rule
        self._rules = rule.rules
        self._index = index
        self._sites = rule.left.sites
        self._prefilters = rule.prefilters
        self._types: dict[tuple[str, TensorType], Bindings | None] = {}
        self._tops = frozenset(rule.left.tops)
        self._root_sites = [pattern.site for _, pattern in rule.left.roots]

    def part(self, top: int) -> Iterator[MatchState]:
        """All states of the part under a top, in a deterministic order."""
        for node in self._fitting(top).calls:
            yield from self._at(top, node, MatchState())

    def states(self) -> Iterator[MatchState]:
        """All states of all parts together, one part after the other."""
        return self._tops_from(sorted(self._rule.left.tops, key=self.frequency), MatchState())

    def states_at(self, calls: Mapping[Call, None]) -> Iterator[MatchState]:
        """The states in which a top is one of some calls: each as often as one is."""
        tops = self._rule.left.tops
        for top in tops:
            members = self._fitting(top).members
            rest = sorted((other for other in tops if other != top), key=self.frequency)
            for node in calls:
                if node in members:
                    for state in self._at(top, node, MatchState()):
                        yield from self._tops_from(rest, state)

    def _at(self, top: int, node: Call, state: MatchState) -> Iterator[MatchState]:
        """States with a call as a top, its results in order with those of the others."""
        return filter(self._in_order, self._site(self._sites[top], node, state))

    def _fitting(self, site: int) -> Fitting:
        return self._prefilters[site].fitting(self._index)

    def frequency(self, top: int) -> tuple[int, int]:
        """Less for a part that fewer calls can be."""
        sites = (leaf for leaf, _ in self._rule.left.paths[top] if isinstance(leaf, int))
        return (min(len(self._calls(site)) for site in sites), top)

    def _calls(self, site: int) -> Sequence[Call]:
        operator = self._sites[site].operator
        return self._index.calls if operator is None else self._index.by_operator.get(operator, ())

    def _in_order(self, state: MatchState) -> bool:
        """One order of exchangeable results, and never one value as two results."""
        roots = self._rule.left.roots
        if len(roots) < 2:
            return True
        found = [state.results[root.site][root.output] for _, root in roots if root.site in state.results]
        if len(found) > 1 and len(set(found)) < len(found):
            return False
        for i, j in self._rule.ordered:
            a, b = state.nodes.get(self._root_sites[i]), state.nodes.get(self._root_sites[j])
            if a and b and self._index.rank[a] > self._index.rank[b]:
                return False
        return True

    def _tops_from(self, open_tops: Sequence[int], state: MatchState) -> Iterator[MatchState]:
        if not open_tops:
            yield state
            return
        # a top that shares something with what is matched goes first: only users of that are tried
        anchored = ((one, anchors) for one in open_tops if (anchors := self._anchors(one, state)))
        top, anchors = next(anchored, (open_tops[0], []))
        rest = [other for other in open_tops if other != top]
        candidates = self._candidates(top, anchors)
        if self.filtered:
            fitting = self._fitting(top)
            candidates = [node for node in candidates if node in fitting.members] if anchors else fitting.calls
        for node in candidates:
            for found in self._at(top, node, state):
                yield from self._tops_from(rest, found)

    # ---- where to look -----------------------------------------------------------------------------------------

    def _anchors(self, top: int, state: MatchState) -> list[Anchor]:
        known = (
            (result_of(leaf, state), path) for leaf, path in self._rule.left.paths[top] if not isinstance(leaf, int)
        )
        return [(value, path) for value, path in known if value]

    def _candidates(self, top: int, anchors: list[Anchor]) -> Sequence[Call]:
        if anchors:
            value, path = min(anchors, key=lambda a: len(self._index.users(a[0])))
            if self._index.users(value) or value.node in self._index.position:
                return self._climb([value], path)
        return self._calls(top)

    def _climb(self, values: list[Value], path: Sequence[int]) -> list[Call]:
        found: list[Call] = []
        for at in path:
            site = self._sites[at]
            found = [
                user
                for value in values
                for user in self._index.users(value)
                if site.operator is None or user.op == site.operator
            ]
            if site.associative:
                found = self._longer(found, site)
            # what changed is looked at one call at a time, in an order of its own
            found = in_order(found, self._index) if self._index.memory.changed is None else list(dict.fromkeys(found))
            values = [value for node in found for value in self._index.results(node)]
        return found

    def _longer(self, nodes: Sequence[Call], site: Site) -> list[Call]:
        """Calls of the same associative operator above some nodes: an operand of theirs is an operand of these."""
        out = dict.fromkeys(nodes)
        level = nodes
        for _ in range(MOST_OPERANDS):
            level = [
                user
                for node in level
                for value in self._index.results(node)
                for user in self._index.users(value)
                if user.op == site.operator and user not in out
            ]
            out.update(dict.fromkeys(level))
        return list(out)

    # ---- sites -------------------------------------------------------------------------------------------------

    def _site(self, site: Site, node: Any, state: MatchState) -> Iterator[MatchState]:
        if self.filtered and node not in self._fitting(site.id).members:
            return
        names = dict(state.names)
        if (site.term is not None or not self.filtered) and not self._operator(site, node, names):
            return
        for results, attrs in self._outputs(site, node, state):
            trial, pending = dict(names), list(state.pending)
            if self._attributes(site, node, attrs, trial, pending):
                yield from self._arguments(site, node, results, state.with_names(trial, tuple(pending)))

    def _operator(self, site: Site, node: Call, names: dict[str, Any]) -> bool:
        if site.operator is not None:
            return node.op == site.operator
        assert site.term is not None
        known = names.get(site.term)
        extra = node.args[len(site.args) :]
        if known is not None:
            if known != OperatorRef(node.op, extra):
                return self._stop("`{}` is `{}`, and `{}` is found".format, site.term, known.name, node.op)
            return self._kept(site, node)
        definition = self._rules.operators.get(node.op)
        if not definition or len(node.args) < len(site.args):
            return False
        params = definition.syntax.params
        # operands behind those that the term names are carried along where that needs no more than their value
        carried = all(p.default is not None for p in params[len(site.args) :]) and all(
            v.known and not v.type.rank for v in extra
        )
        if len(node.args) > len(params) or not carried:
            return self._stop(COUNTED, node.op, len(node.args), "tensor inputs", len(site.args))
        if not self._kept(site, node):
            return False
        names[site.term] = OperatorRef(node.op, extra)
        return True

    def _kept(self, site: Site, node: Call) -> bool:
        """Return whether one use of a term's operator is what the guards want of it."""
        for guard in self._rule.term_guards:
            if guard.term == site.term and not satisfies(guard.predicate, node, len(site.args), self._rules):
                return self._stop("`{}` is not {} here".format, node.op, guard.predicate)
        return True

    def _outputs(self, site: Site, node: Call, state: MatchState) -> Iterator[tuple[Values, dict[str, Any]]]:
        """Results by position, and the attributes that go with them; longer inverses are also taken in groups."""
        if site.outputs in (0, len(node.types)):
            yield self._index.results(node), attributes(node, self._index)
        elif site.inverse is not None and 2 <= site.outputs < len(node.types):
            single = frozenset(p.output for _, p in self._rule.left.roots if p.site == site.id)
            yield from groups(self._rules, site, node, self._index.results(node), single, self._index)
        else:
            self._stop(COUNTED, node.op, len(node.types), "results", site.outputs)

    # ---- attributes --------------------------------------------------------------------------------------------

    def _attributes(
        self,
        site: Site,
        node: Call,
        attrs: dict[str, Any],
        names: dict[str, Any],
        pending: list[Pending],
    ) -> bool:
        # literals are part of the prefilter
        tested = self.filtered and site.inverse is None
        for name, pattern in site.open_attrs if tested else site.attrs:
            if name not in attrs:
                return self._stop("`{}` has no attribute `{}`".format, node.op, name)
            if not isinstance(pattern, Default) and not fits(pattern, attrs[name], node, name, None, names, pending):
                return self._stop(misfit, name, attrs[name], pattern, names)
        if site.rest is not None:
            rest = self._rest(site, node, attrs)
            known = names.setdefault(site.rest, rest)
            if not same_set(known, rest):
                return self._stop("`**{}` is {}, and here {}".format, site.rest, show(known), show(rest))
        if site.takes_defaults:
            pending.append(Complete(node, site.given))
        return True

    def _rest(self, site: Site, node: Call, attrs: dict[str, Any]) -> AttrSet:
        """The attributes that a pattern does not name: one object for all calls that have the same."""
        found = AttrSet({name: value for name, value in attrs.items() if name not in site.given})
        # those of a group are its own
        if site.inverse is not None:
            return found
        return self._index.memory.rests.setdefault((node.head, site.given), found)

    # ---- arguments ---------------------------------------------------------------------------------------------

    def _arguments(self, site: Site, node: Call, results: Values, state: MatchState) -> Iterator[MatchState]:
        size = len(site.args)
        if not site.associative:
            if site.operator is not None and len(node.args) != size:
                self._stop(COUNTED, node.op, len(node.args), "tensor inputs", size)
                return
            for found, chosen in self._assign(site, node.args[:size], state):
                yield found.with_site(site.id, node, results, one_each(chosen))
            return
        searched = size > len(node.args) or any(isinstance(arg, Result | Number) for arg in site.args)
        top = site.id in self._tops and site.id in self._root_sites
        for operands in operand_lists(node, self._index) if searched else [node.args]:
            if len(operands) == size:
                for found, chosen in self._assign(site, operands, state):
                    yield found.with_site(site.id, node, results, one_each(chosen), operands)
                continue
            if len(operands) > size and top:
                for found, chosen in self._assign(site, operands, state):
                    part = self._built(node, tuple(operands[k] for k in chosen))
                    if part:
                        yield found.with_site(
                            site.id, node, (part,), one_each(chosen), operands, Wrap(node, operands, chosen)
                        )
            if len(operands) > size:
                for found, places in self._cover(site, operands, state, node):
                    yield found.with_site(site.id, node, results, places, operands)

    def _assign(self, site: Site, operands: Values, state: MatchState) -> Iterator[tuple[MatchState, tuple[int, ...]]]:
        """Ways to give one operand to each of the pattern's arguments, and the operands that were given."""
        if site.commutative:
            pairs = [(i, j) for at, i, j in self._rule.fixed if at == site.id]
            yield from self._choose(site.args, operands, state, pairs)
            return
        for start in range(len(operands) - len(site.args) + 1):
            window = tuple(range(start, start + len(site.args)))
            for found in self._all(site.args, tuple(operands[k] for k in window), state):
                yield found, window

    def _all(self, patterns: Sequence[Pattern], values: Sequence[Value], state: MatchState) -> Iterator[MatchState]:
        if not patterns:
            yield state
            return
        for found in self._pattern(patterns[0], values[0], state):
            yield from self._all(patterns[1:], values[1:], found)

    def _choose(
        self,
        args: Sequence[Pattern],
        operands: Values,
        state: MatchState,
        pairs: Sequence[tuple[int, int]] = (),
    ) -> Iterator[tuple[MatchState, tuple[int, ...]]]:
        """Commutative: any operand for any argument, the selective arguments first; `pairs` of them may be exchanged."""
        order = sorted(range(len(args)), key=lambda k: (self._openness(args[k]), k))

        def go(k: int, taken: dict[int, int], state: MatchState) -> Iterator[tuple[MatchState, tuple[int, ...]]]:
            if k == len(order):
                yield state, tuple([taken[a] for a in range(len(args))])
                return
            seen: set[Value] = set()
            at = order[k]
            for position, operand in enumerate(operands):
                if position in taken.values() or operand in seen:
                    continue
                now = {**taken, at: position}
                # exchangeable arguments have operands in the graph's order
                if any(now[i] >= now[j] for i, j in pairs if i in now and j in now):
                    continue
                seen.add(operand)
                for found in self._pattern(args[at], operand, state):
                    yield from go(k + 1, now, found)

        yield from go(0, {}, state)

    def _openness(self, pattern: Pattern) -> int:
        """Rank a pattern by the values that it accepts: calls and numbers least, then constants."""
        if not isinstance(pattern, Variable):
            return 0
        return 1 if pattern.name in self._rule.constants else 2

    def _cover(
        self, site: Site, operands: Values, state: MatchState, node: Call
    ) -> Iterator[tuple[MatchState, Places]]:
        """No operand is left out: consecutive runs, or (commutative) single ones and all others for the last variable."""
        if not site.commutative:
            for parts in compositions(len(operands), len(site.args)):
                values = self._runs(site, operands, parts, node)
                if values is not None:
                    places = tuple(
                        tuple(range(end - width, end)) for width, end in zip(parts, accumulate(parts), strict=True)
                    )
                    for found in self._all(site.args, values, state):
                        yield found, places
            return
        variables = [k for k, arg in enumerate(site.args) if isinstance(arg, Variable)]
        if not variables:
            return
        last = variables[-1]
        others = [arg for k, arg in enumerate(site.args) if k != last]
        for found, chosen in self._choose(others, operands, state):
            rest = tuple(k for k in range(len(operands)) if k not in chosen)
            whole = self._built(node, [operands[k] for k in rest])
            if whole:
                single = one_each(chosen)
                for each in self._pattern(site.args[last], whole, found):
                    yield each, (*single[:last], rest, *single[last:])

    def _runs(self, site: Site, operands: Values, parts: tuple[int, ...], node: Call) -> Values | None:
        """Consecutive operands joined for each argument; only a variable, or a part of an inverse, takes several."""
        values: list[Value] = []
        for width, end, arg in zip(parts, accumulate(parts), site.args, strict=True):
            run = operands[end - width : end]
            # a result of the operator's inverse may stand for several of a longer one's
            parted = isinstance(arg, Result) and self._sites[arg.site].inverse == site.operator
            if width > 1 and not parted and not isinstance(arg, Variable):
                return None
            joined = self._built(node, run)
            if not joined:
                return None
            values.append(joined)
        return tuple(values)

    def _built(self, node: Call, operands: Sequence[Value]) -> Value | None:
        """Some operands of a call joined: what the index has for them, where it has the call."""
        built, key = self._index.memory.built, (node.head, len(node.args) > 2, *operands)
        if key in built:
            value = built[key]
        else:
            value = built[key] = build(self._rules, node, operands)
        if not value or not isinstance(value.node, Call):
            return value
        known = self._index.results(value.node)
        return known[value.index] if known else value

    # ---- values ------------------------------------------------------------------------------------------------

    def _pattern(self, pattern: Pattern, value: Value, state: MatchState) -> Iterator[MatchState]:
        known = result_of(pattern, state)
        if known:
            if known == value:
                yield state
        elif isinstance(pattern, Variable):
            if pattern.name in self._rule.constants and not value.constant and self.filtered:
                return
            names = dict(state.names)
            bindings = self._bindings(pattern.name, value)
            if bindings is not None and bound(bindings, names):
                yield MatchState({**state.values, pattern.name: value}, names, *state[2:])
        elif isinstance(pattern, Result):
            site = self._sites[pattern.site]
            nodes = self._index.nodes(value)
            if self.filtered and len(nodes) > 1:
                members = self._fitting(pattern.site).members
                nodes = [node for node in nodes if node in members]
            for node in nodes:
                for found in self._site(site, node, state):
                    if found.results[site.id][pattern.output] == value:
                        yield found
        else:
            yield from self._number(pattern, value, state)

    def _bindings(self, name: str, value: Value) -> Bindings | None:
        """Bind the names in a variable's declared type; None where the value cannot have it."""
        type, quick = value.type_or_none, self._rule.quick.get(name)
        if not type or not quick:
            return () if type else None
        if (name, type) not in self._types:
            self._types[name, type] = quick.bindings(type)
        return self._types[name, type]

    def _number(self, pattern: Number, value: Value, state: MatchState) -> Iterator[MatchState]:
        number = number_at(value, self._index)
        if number is None:
            return
        if pattern.literal is not None:
            if equal(pattern.literal, number):
                yield state
        elif pattern.bare is not None and pattern.bare not in state.names:
            yield state._replace(names={**state.names, pattern.bare: number})
        else:
            yield state._replace(pending=(*state.pending, NumberEquals(value, number, pattern.quoted)))

    def _stop(self, reason: Callable[..., str], *about: object) -> bool:
        """Hook: a call does not fit. Returns false."""
        return False


def one_each(chosen: Sequence[int]) -> Places:
    """The places of arguments that are one operand each."""
    return tuple([(k,) for k in chosen])
