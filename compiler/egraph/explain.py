"""Facts that a program rests on: they make it equal to the one that an e-graph began with.

Unions are a forest over the numbers of results. That two numbers are one class follows from the path between them; what an edge itself
needs to hold (that matched e-nodes were where the rule found them, that arguments are equal) follows from earlier edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dslc.egraph.extract.program import ChosenNodes
from dslc.egraph.extract.table import Extraction
from dslc.egraph.graph import EGraph, Union
from dslc.egraph.rewrite import AppliedMatch, Built, Stated
from dslc.ir.constants import number_of
from dslc.ir.facts import Fact, fact_of
from dslc.ir.graph import Call, Constant, Input, Value, Values, nodes_of, replace, with_args
from dslc.match.associative import build, unwrap
from dslc.match.pattern import Result
from dslc.semantics.nary import nested_in


def used(egraph: EGraph, extraction: Extraction) -> tuple[AppliedMatch | Stated, ...]:
    """Collect the facts that make an extraction equal to the e-graph's graph, in the order in which they were applied."""
    proof = _Proof(egraph)
    chosen = ChosenNodes(egraph, extraction)
    seen: set[int] = set()
    stack = list(egraph.roots)
    while stack:
        wanted = stack.pop()
        if wanted in seen:
            continue
        seen.add(wanted)
        number = egraph.find(wanted)
        out = next(out for out in egraph.memo[chosen.of(number)].outs if egraph.find(out) == number)
        proof.equal(wanted, out)
        stack += proof.reads(out)
    return proof.applied()


class _Proof:
    """Collects the unions that equalities rest on."""

    def __init__(self, egraph: EGraph) -> None:
        self._egraph = egraph
        self._edges = egraph.unions
        near: dict[int, list[tuple[int, int]]] = {}
        for k, edge in enumerate(egraph.unions):
            near.setdefault(edge.one, []).append((edge.other, k))
            near.setdefault(edge.other, []).append((edge.one, k))
        # towards the root of its tree: the next number, the edge, and how far the root is
        self._up: dict[int, tuple[int, int, int]] = {}
        for root in near:
            if root in self._up:
                continue
            self._up[root] = (root, -1, 0)
            stack = [root]
            while stack:
                at = stack.pop()
                for other, k in near[at]:
                    if other not in self._up:
                        self._up[other] = (at, k, self._up[at][2] + 1)
                        stack.append(other)
        self._needed: set[int] = set()

    def applied(self) -> tuple[AppliedMatch | Stated, ...]:
        found = [self._edges[k].reason for k in sorted(self._needed)]
        return tuple(dict.fromkeys([reason for reason in found if isinstance(reason, AppliedMatch | Stated)]))

    def reads(self, out: int) -> list[int]:
        """The numbers that the node read from which a number came."""
        made = self._egraph.made[out]
        return [] if made is None else [self._egraph.number(arg) for arg in made[0].args]

    def equal(self, one: int, other: int) -> None:
        stack = [(one, other)]
        while stack:
            for k in self._path(*stack.pop()):
                if k not in self._needed:
                    self._needed.add(k)
                    stack += self._below(self._edges[k])

    def _path(self, a: int, b: int) -> Iterator[int]:
        up = self._up
        while a != b:
            if up[a][2] < up[b][2]:
                a, b = b, a
            a, k, _ = up[a]
            yield k

    def _below(self, edge: Union) -> Iterator[tuple[int, int]]:
        """The values that had to be equal for a union to be made."""
        reason = edge.reason
        if isinstance(reason, AppliedMatch):
            yield from self._of_applied(reason)
            return
        if isinstance(reason, Stated):
            yield from self._of_built(reason.built)
            return
        # congruence; what became a constant has no node of its own, and is what it was
        if self._egraph.made[edge.one] is not None and self._egraph.made[edge.other] is not None:
            yield from zip(self.reads(edge.one), self.reads(edge.other), strict=True)

    def _of_applied(self, reason: AppliedMatch) -> Iterator[tuple[int, int]]:
        egraph = self._egraph
        number, find = egraph.number, egraph.find
        read = [number(value) for value in reason.roots]
        for node, outs in reason.outs.items():
            args = [number(arg) for arg in node.args]
            read += args
            yield from zip(self.reads(outs[0]), args, strict=True)
        read = list(dict.fromkeys(read))
        for outs in reason.outs.values():
            for out in outs:
                yield from ((value, out) for value in read if find(value) == find(out))
        for site, operands in reason.state.taken.items():
            yield from self._within(reason.state.nodes[site], [number(value) for value in operands if _is_class(value)])
        yield from self._of_built(reason.built)

    def _of_built(self, built: Sequence[Built]) -> Iterator[tuple[int, int]]:
        """Return the term of an added node over the arguments that it has there."""
        number = self._egraph.number
        for args, outs, values in built:
            yield from zip(outs, map(number, values), strict=True)
            for mine, arg in zip(self.reads(outs[0]), args, strict=True):
                if _is_class(arg):
                    yield mine, number(arg)

    def _within(self, node: Call, operands: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Operands of a call that was taken apart: calls of the operator are in the classes of its arguments, over these operands.

        Which of them were taken is not kept: all that are there count.
        """
        egraph = self._egraph
        ends = {egraph.find(number): number for number in operands}
        seen: set[int] = set()
        stack = [egraph.number(arg) for arg in node.args]
        while stack:
            read = stack.pop()
            if read in seen:
                continue
            seen.add(read)
            at = egraph.find(read)
            if at in ends:
                yield read, ends[at]
            for inner in egraph.members[at]:
                if not nested_in(node, inner):
                    continue
                for out in egraph.memo[inner].outs:
                    if egraph.find(out) == at:
                        yield read, out
                        stack += self.reads(out)


def _is_class(value: Value) -> bool:
    return isinstance(value.node, Input | Constant)


# ---- as facts --------------------------------------------------------------------------------------------------


def fact(applied: AppliedMatch | Stated) -> tuple[Fact, Values]:
    """Return an application as two programs over holes, and the values of the holes."""
    if isinstance(applied, Stated):
        return applied.fact, applied.leaves
    left = _left(applied)
    old: list[Value] = []
    new: list[Value] = []
    recipe = applied.case.recipes[applied.number]
    assert not isinstance(recipe, str), "it was applied"
    for (_, pattern), made in zip(applied.rule.left.roots, recipe.over(applied.leaves, with_args), strict=True):
        wrap = applied.state.wraps.get(pattern.site)
        whole = unwrap(applied.rule.rules, wrap, made) if wrap else made
        assert whole, "it was applied"
        old.append(left(pattern.site)[pattern.output])
        new.append(whole)
    leaves = [
        value
        for node in nodes_of((*old, *new))
        if not node.args
        for value in node.values
        # a call of no arguments stands for itself
        if isinstance(node, Input) or (isinstance(node, Constant) and number_of(value) is None)
    ]
    return fact_of(applied.rule.name, old, new, leaves)


def _left(applied: AppliedMatch) -> Callable[[int], Values]:
    """The results of each site of a left side, as terms over what its variables stand for."""
    state, rules = applied.state, applied.rule.rules
    known: dict[int, Values] = {}

    def results(number: int) -> Values:
        if number in known:
            return known[number]
        site, node = applied.rule.left.sites[number], state.nodes[number]
        operands = list(state.taken.get(number, node.args))
        joined: set[int] = set()
        places = state.places.get(number)
        for k, arg in enumerate(site.args):
            if isinstance(arg, Result):
                first, *others = (k,) if places is None else places[k]
                operands[first] = results(arg.site)[arg.output]
                joined.update(others)
        operands = [value for k, value in enumerate(operands) if k not in joined]
        if number in state.taken or joined:
            whole = build(rules, node, operands)
            assert whole, "it was matched"
            known[number] = (whole,)
        else:
            own = with_args(node, tuple(operands))
            given = dict(zip(_values(applied, node), own, strict=True))
            known[number] = tuple([given.get(value) or replace((value,), given)[0] for value in state.results[number]])
        return known[number]

    return results


def _values(applied: AppliedMatch, node: Call) -> Values:
    """The values of the results of a matched call."""
    for number, found in applied.state.results.items():
        if applied.state.nodes[number] is node and len(found) == len(node.types):
            return found
    return node.values
