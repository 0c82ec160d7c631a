"""The place of a graph that is closest to a left side: matching that goes on beside and below what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from dslc.errors import DslcError, Span
from dslc.ir.graph import Call, Node, Value, Values
from dslc.match.describe import describe, show
from dslc.match.guards import environment
from dslc.match.index import GraphIndex
from dslc.match.pattern import Number, Pattern, Result, Site, Variable
from dslc.match.prefilter import number_at
from dslc.match.rule import CompiledRule
from dslc.match.state import MatchState, Missed
from dslc.match.structure import Structure, one_each
from dslc.semantics.env import Mismatch, Unbound
from dslc.semantics.types import solve

STEPS = 30_000  #: calls that are tried for one rule
REFUSED = 5_000  #: places where its structure fits


class Closest(Structure):
    """Finds the state with the most matched calls.

    Every call of the pattern is tried at every call of the graph that it, or one below it, may be. One that does not fit is `Missed`:
    its arguments are matched all the same, and so is what reads it. Only below two that are missed in a row nothing is looked for.
    """

    filtered = False

    def __init__(self, rule: CompiledRule, index: GraphIndex, names: Mapping[Value | Node, str]) -> None:
        super().__init__(rule, index)
        self._graph, self._names = index.graph, names
        #: how good the best one is: whether the whole left side matches, matched calls, and less for each that is missed
        self.rank: tuple[int, ...] = (-1,)
        self.state = MatchState()
        self._steps = 0
        # the call whose arguments are matched, with its node, and whether it is missed
        self._reader: tuple[int, Node | None] = (-1, None)
        self._lost = False
        self._why: Callable[[], str] = str

    # ---- places ------------------------------------------------------------------------------------------------

    def search(self) -> None:
        """Tries all places, the largest parts of the pattern first."""
        side = self._rule.left
        sizes = {site.id: len({one for one, _ in side.below(site.id) if isinstance(one, int)}) for site in self._sites}
        for number in sorted(sizes, key=lambda number: (number not in side.tops, -sizes[number])):
            rest = [top for top in side.tops if top != number]
            for node in self._places(self._sites[number]):
                if number not in side.tops and self.rank >= (0, sizes[number]):
                    return
                for state in self._at(number, node, MatchState()):
                    for found in self._tops_from(rest, state) if number in side.tops else [self._above(number, state)]:
                        self._keep(self._rank(found), found)

    def _places(self, site: Site) -> dict[Call, None]:
        """The calls of a site's operator, and those that read what may be its argument; none that computes only weights."""
        found = dict.fromkeys(self._calls(site.id))
        for arg in site.args:
            for node in self._calls(arg.site) if isinstance(arg, Result) else ():
                found |= {user: None for value in self._index.results(node) for user in self._index.users(value)}
        return {node: None for node in found if not node.constant}

    def _tops_from(self, open_tops: Sequence[int], state: MatchState) -> Iterator[MatchState]:
        found = [
            one for one in super()._tops_from(open_tops, state) if not open_tops or _matched(one) > _matched(state)
        ]
        # the calls that a part beside it should be
        values = [value for top in open_tops for value, _ in self._anchors(top, state)]
        yield from self._best(found) or [self._unread(self._sites[open_tops[0]], values, state)]

    def _above(self, number: int, state: MatchState) -> MatchState:
        """A part that matches, and nothing that reads it."""
        site, output = next(
            (site, arg.output)
            for site in self._sites
            for arg in site.args
            if isinstance(arg, Result) and arg.site == number
        )
        return self._unread(site, [state.results[number][output]], state)

    def _unread(self, site: Site, values: Sequence[Value], state: MatchState) -> MatchState:
        """A call that should read one of some values is missed."""

        def reason() -> str:
            for value in values:
                users = [self._say(node.values[0]) for node in self._graph.nodes() if value in node.args][:3]
                readers = " and ".join(users) or "the caller of the model"
                return f"`{site.label}` is expected to read {self._say(value)} like this, and it is read by {readers}"
            return f"another `{site.label}` is expected"

        users = [user for value in values for user in self._index.users(value) if user not in state.nodes.values()]
        return _missing(state, site.id, users[0] if users else None, reason)

    def _rank(self, state: MatchState) -> tuple[int, ...]:
        return 0, _matched(state), -len({item.site for item in state.missed})

    def refused(self, state: MatchState, reason: str, span: Span | None, guarded: bool = False) -> bool:
        """The structure fits, and a type, an attribute or a guard does not; the right side where `guarded`.

        Returns whether enough places were seen.
        """
        self._steps += 1
        # calls stand before those around them
        site = next((site.id for site in self._sites if span and span.starts_in(site.span)), -1)
        at = None if site >= 0 else span or self._rule.span
        self._keep((1, guarded, site < 0), _missing(state, site, state.nodes.get(site), lambda: reason, at))
        return self._steps > REFUSED

    def _keep(self, rank: tuple[int, ...], state: MatchState) -> None:
        if rank > self.rank:
            self.rank, self.state = rank, state

    # ---- matching ----------------------------------------------------------------------------------------------

    def _best(self, found: Sequence[MatchState]) -> Sequence[MatchState]:
        """The states in which nothing more is missed; the best one where there are none."""
        return [state for state in found if not state.missed] or ([max(found, key=self._rank)] if found else ())

    def _site(self, site: Site, node: Node, state: MatchState) -> Iterator[MatchState]:
        self._steps += 1
        self._why = lambda: self._other(site, node)
        if not isinstance(node, Call) or self._steps > STEPS:
            return iter(())
        found = list(super()._site(site, node, state))
        why = (lambda: f"another result of `{node.op}` is expected") if found else self._why
        if not found and not self._lost and len(node.args) >= len(site.args) and len(node.types) >= site.outputs:
            missed = _missing(state, site.id, node, why)
            tried = self._arguments(site, node, self._index.results(node), missed)
            found = [one for one in tried if _matched(one) > _matched(state)]
        self._why = why
        return iter(self._best(found))

    def _arguments(self, site: Site, node: Call, results: Values, state: MatchState) -> Iterator[MatchState]:
        outer = self._reader, self._lost
        lost = any(item.site == site.id for item in state.missed)
        self._reader, self._lost = (site.id, node), lost
        values = node.args[: len(site.args)]
        if lost or len(node.args) == len(site.args):
            # as they stand there: what is nested is not taken apart
            ways = self._assign(site, values, state)
            found = [one.with_site(site.id, node, results, one_each(chosen), values) for one, chosen in ways]
        else:
            found = list(super()._arguments(site, node, results, state))
        self._reader, self._lost = outer
        return iter(found)

    def _pattern(self, pattern: Pattern, value: Value, state: MatchState) -> Iterator[MatchState]:
        found = list(super()._pattern(pattern, value, state))
        if not isinstance(pattern, Result) or pattern.site in state.results:
            return iter(found or [_missing(state, *self._reader, lambda: self._unlike(pattern, value, state))])
        why = self._why
        if not self._lost and all(one.missed != state.missed for one in found):
            found += self._shifted(pattern, value, state)
        return iter(self._best(found) or [_missing(state, pattern.site, value.node, why)])

    def _shifted(self, pattern: Result, value: Value, state: MatchState) -> Iterator[MatchState]:
        """The same where the graph has a call that the pattern has not, or the other way round."""
        site, node = self._sites[pattern.site], value.node
        if not isinstance(node, Call) or node.op == site.operator:
            return
        between = f"{self._say(value)} stands between it and `{site.operator}`"
        for arg in node.args:
            if isinstance(arg.node, Call) and arg.node.op == site.operator:
                for found in super()._pattern(pattern, arg, state):
                    yield _missing(found, self._reader[0], node, lambda: between)
        for below in site.args:
            if isinstance(below, Result) and self._sites[below.site].operator == node.op:
                without = _missing(
                    state, site.id, node, lambda: f"`{site.label}` is missing: {self._say(value)} is read without it"
                )
                yield from super()._pattern(below, value, without)

    # ---- reasons -----------------------------------------------------------------------------------------------

    def _stop(self, reason: Callable[..., str], *about: object) -> bool:
        self._why = partial(reason, *about)
        return False

    def _other(self, site: Site, node: Node) -> str:
        none = ", and the model has none:" if site.operator and site.operator not in self._index.by_operator else ","
        return f"`{site.label}` is expected{none} {describe(node)} is found"

    def _unlike(self, pattern: Pattern, value: Value, state: MatchState) -> str:
        """The reason why a tensor is not what the pattern says."""
        said = self._say(value)
        if isinstance(pattern, Result):
            return f"{self._say(state.results[pattern.site][pattern.output])} is expected, {said} is found"
        if isinstance(pattern, Number):
            number = number_at(value, self._index)
            wanted = "a constant number" if number is None else f"the number {show(pattern.literal)}"
            return f"{wanted} is expected, {said if number is None else show(number)} is found"
        known = state.values.get(pattern.name)
        if known:
            return f"`{pattern.name}` is {self._say(known)} elsewhere, and {said} here"
        return self._mistyped(pattern, value, state) if value.known else f"the type of {said} is not known"

    def _mistyped(self, pattern: Variable, value: Value, state: MatchState) -> str:
        declared, reason = self._rule.types[pattern.name], ""
        try:
            solve([(declared, value.type)], (), environment(self._rule, state, state.names))
        except (Mismatch, Unbound, DslcError) as problem:
            reason = f": {problem}"
        return f"`{pattern.name}: {declared.span.text}` is expected, and {self._say(value)} is {value.type}{reason}"

    def _say(self, value: Value) -> str:
        name, what = self._names.get(value.node) or self._names.get(value), describe(value.node)
        return what if not name else f"{what} ({name})" if isinstance(value.node, Call) else f"`{name}`"


def fitting(state: MatchState) -> dict[int, Call]:
    """The calls that match, by site."""
    lost = {(item.site, item.node) for item in state.missed}
    return {site: node for site, node in state.nodes.items() if (site, node) not in lost}


def _matched(state: MatchState) -> int:
    return len(set(fitting(state).values()))


def _missing(
    state: MatchState, site: int, node: Node | None, reason: Callable[[], str], span: Span | None = None
) -> MatchState:
    return state._replace(missed=(*state.missed, Missed(site, node, reason, span)))
