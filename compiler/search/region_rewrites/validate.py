"""Translation validation: every fact that the program that is returned rests on is proved again, at its real shapes.

A fact says that two programs over holes are equal whatever the holes hold, wherever it comes from. A rewrite replaces a value of a
graph by another one; it is proved by some fact about the two: what both have below them in common are holes, then less of it, then
what lies lower down. Facts are compared by the exact prover, with the numbers of this model for sizes and attributes. Where that does
not decide, the sides are compared on random inputs modulo 2^31 - 1, at the real sizes where that is quick.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from fractions import Fraction
from functools import partial
from itertools import chain
from math import isfinite
from typing import Literal, get_args

import numpy as np

from dslc.analysis.counts import known_flops
from dslc.deadline import FOREVER, Deadline
from dslc.interpret.instantiate import Rejected
from dslc.ir.constants import FillRef, fill
from dslc.ir.facts import Chain, Fact
from dslc.ir.graph import Constant, Graph, Input, Node, Opaque, Value, Values, nodes_of, with_args
from dslc.ir.holes import hole
from dslc.ir.scalar import Num, Number, Scalar, Sym, num, rebuild, scalars
from dslc.ir.sizes import with_sizes
from dslc.mutate.correct import Corrected
from dslc.prove.counterexample import text_of
from dslc.prove.exact import Equal, compare
from dslc.prove.field.prover import compare_values
from dslc.prove.sizes import at_sizes
from dslc.records import record
from dslc.search.candidates.candidate import Candidate, rewritings
from dslc.semantics.elaborate import expand
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules

#: what random inputs agree in: numbers modulo a prime, or only floats
Agreed = Literal["field", "floats"]
#: `exact`, `field`: shown again by that prover; `floats`: equal on random floats; `rule`: by nothing but the proof of the rule
How = Literal["exact", "field", "floats", "rule"]
_WORST: tuple[How, ...] = ("exact", "field", "floats", "rule")


FEW = 4  #: nodes of the replaced program that a rewrite may concern at first
NEAR = 16  #: the same where that does not suffice
FAR = 64  #: the same at the end
SMALL = 4096  #: elements up to which constants keep their contents
HELD = 1 << 20  #: the same for those of the last way, which only numbers are put into
LEVELS = 6  #: times that what is arbitrary moves down one node where it is related
DEEPER: tuple[int, ...] = (1, 2, 4)  #: nodes by which it then moves down each time everywhere
WHOLE = 400  #: values that a way reaches at most
SECONDS = 1.0  #: seconds of the exact prover for one way to look at a rewrite
MOST = 6.0  #: the same for all of them
OPERATIONS = 3e8  #: operations of a comparison modulo p at most
SIZE = 5  #: what symbolic dimensions are where sides are computed


@record
class Rewrite:
    """`old` of a graph is replaced by `new`, by `rule`."""

    rule: str
    graph: Graph
    old: Value
    new: Value


#: a fact, a rewrite that some fact must account for, or a rule's name where it is not known what it replaced
Claim = Fact | Rewrite | str


@record
class Validated:
    """Proofs of the rewrites of each rule; `failed` names a rule that changes what a program computes, and why.

    `unproved` names the rules that may be used only where their rewrites are proved here, and some of which are not.
    """

    how: Mapping[str, How]
    rewrites: int = 0
    failed: str = ""
    problem: str = ""
    unproved: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Return whether the candidate may be taken."""
        return not self.failed and not self.unproved


def claims_of(candidate: Candidate) -> Iterator[Claim]:
    """Claims of a candidate, in order: the facts of each step, or the rewrites that its graph tells of."""
    for step in candidate.path():
        if not step.parent:
            continue
        if step.facts:
            yield from step.facts
            continue
        made = rewritings(step.graph, step.parent.graph)
        if made is None:
            yield step.rule
            continue
        for one in reversed(list(made)):
            for old, new in one.new.items():
                if old != new:
                    yield Rewrite(step.rule, one.origin, old, new)


def validate(
    rules: Rules, claims: Iterable[Claim], until: Deadline = FOREVER, known: Known | None = None,
    needed: Callable[[str], bool] = lambda _: False,
) -> Validated:  # fmt: skip
    """Proves claims, wherever they come from; after `until` the rest rests on its rules.

    `known` keeps what was decided for the next claims of the same run. A rule that is `needed` to be proved here is not proved
    for every shape: it is used where the exact prover shows it at these shapes, types and attributes, and nowhere else.
    """
    prover = _Prover(rules, until, {} if known is None else known)
    how: dict[str, How] = {}
    count = 0
    for one in claims:
        if isinstance(one, str):
            how[one] = "rule"
            continue
        found = prover.of(one)
        count += 1
        if not isinstance(found, str):
            return Validated(how, count, one.rule, found.problem)
        before = how.get(one.rule, "exact")
        how[one.rule] = max(before, found, key=_WORST.index)
    return Validated(how, count, unproved=tuple(name for name, by in how.items() if by != "exact" and needed(name)))


@record
class _Failed:
    problem: str


Found = bool | Agreed | _Failed | None
#: results about two sides, by `exact` or by `field`: equal blocks of a model have equal rewrites
Known = dict[tuple[Literal["exact", "field"], Values, Values], Found]


class _Prover:
    def __init__(self, rules: Rules, until: Deadline, known: Known) -> None:
        self._rules, self._until, self._known = rules, until, known
        self._nodes: tuple[Graph, frozenset[Node]] | None = None

    def of(self, claim: Fact | Rewrite) -> How | _Failed:
        if isinstance(claim, Fact) and isinstance(claim.proof, Corrected) and not self._until.over:
            # by inclusion: where the mutant differs, the region is computed again
            shows = partial(claim.proof.shows, self._rules, claim)
            return "exact" if self._known_as("exact", claim.old.outputs, claim.new.outputs, shows) is True else "rule"
        if isinstance(claim, Fact) and isinstance(claim.proof, Chain) and not self._until.over:
            return self._chained(claim, claim.proof)
        attempts: list[ClaimSides] = []
        most = Deadline.after(MOST)
        for sides in self._ways(claim):
            if self._until.over:
                return "rule"
            attempts.append(sides)
            if self._known_as("exact", sides.old, sides.new, partial(self._equal, sides)) is True:
                return "exact"
            if most.over:
                break
        for sides in attempts:
            if self._until.over:
                return "rule"
            found = self._known_as("field", sides.old, sides.new, partial(self._computed, sides))
            if isinstance(found, _Failed):
                if sides.free:
                    return found
            elif found is not None and not isinstance(found, bool):
                return found
        return "rule"

    def _known_as(self, kind: Literal["exact", "field"], old: Values, new: Values, make: Callable[[], Found]) -> Found:
        """Return what is known about two sides, or find it."""
        key = kind, old, new
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def _chained(self, fact: Fact, proof: Chain) -> How | _Failed:
        """By the facts that lead from one program to the other, each of which is proved by itself."""
        if not proof.shows(fact):
            return "rule"
        found: How = "exact"
        for step in proof.steps:
            how = self.of(step)
            if isinstance(how, _Failed):
                return how
            found = max(found, how, key=_WORST.index)
        return found

    def _ways(self, claim: Fact | Rewrite) -> Iterator[ClaimSides]:
        """The facts any of which would do."""
        if isinstance(claim, Fact):
            # whatever the holes hold: there is no other way to look at it
            yield ClaimSides(claim.old.outputs, claim.new.outputs, True)
            return
        if self._nodes is None or self._nodes[0] is not claim.graph:
            self._nodes = claim.graph, frozenset(claim.graph.nodes())
        yield from _sides(claim, self._nodes[1])

    def _equal(self, sides: ClaimSides) -> bool:
        if sides.old == sides.new:
            return True
        try:
            old, new = expand(self._rules, sides.old), expand(self._rules, sides.new)
        except (Mismatch, EvalError):
            return False
        return isinstance(compare(_decimal(old), _decimal(new), seconds=SECONDS), Equal)

    def _computed(self, sides: ClaimSides) -> Agreed | _Failed | None:
        """Both sides on random inputs; None where they are too large, or have no value."""
        count = len(sides.old)
        try:
            values = expand(self._rules, (*sides.old, *sides.new))
        except (Mismatch, EvalError):
            return None
        inputs = [Value(node) for node in nodes_of(values) if isinstance(node, Input)]
        bound = at_sizes((*values, *inputs), _symbols(values))
        old, new, holes = bound[:count], bound[count : 2 * count], bound[2 * count :]
        operations = known_flops((*old, *new))
        known = operations is not None and operations <= OPERATIONS
        if not known or [value.type for value in old] != [value.type for value in new]:
            return None
        names = tuple(f"result{k or ''}" for k in range(count))
        try:
            outcome = compare_values(self._rules, old, new, names, holes, np.random.default_rng(0), {})
        except Rejected:
            return None
        if outcome.counterexample:
            return _Failed(text_of(outcome.counterexample))
        return next((way for way in get_args(Agreed) if way == outcome.how), None)


def _decimal(values: Values) -> Values:
    """Expanded values in which a 32-bit float is the shortest decimal that stands for it: 0.1, and not a number of many digits."""
    memo: dict[Scalar, Scalar] = {}

    def leaf(node: Scalar) -> Scalar | None:
        return num(_shortest(node.value)) if isinstance(node, Num) else None

    return with_sizes(values, lambda item: rebuild(item, leaf, memo))


def _shortest(number: Number) -> Number:
    if not isinstance(number, float | Fraction) or not isfinite(number):
        return number
    with np.errstate(over="ignore"):
        single = np.float32(float(number))
    # a number of a rule, 1/3, is that and no float
    given = number in (Fraction(repr(float(single))), float(single))
    return Fraction(str(single)) if given and np.isfinite(single) else number


def _symbols(values: Iterable[Value]) -> dict[str, int]:
    nodes = nodes_of(values)
    sizes = [dim for node in nodes if node.types[0] for dim in node.types[0].shape]
    return {each.name: SIZE for dim in sizes if isinstance(dim, Scalar) for each in scalars(Sym, dim)}


# ---- what a rewrite is about --------------------------------------------------------------------------------------


@record
class ClaimSides:
    """A fact without its name; `free` where each of its holes can be any tensor, whatever the others are.

    Where they are not free (one is a `Sigmoid`, which is positive) a difference of the sides says nothing.
    """

    old: Values
    new: Values
    free: bool


def _sides(rewrite: Rewrite, nodes: Set[Node]) -> Iterator[ClaimSides]:
    """A rewrite in several ways: each next one knows more of what lies below.

    First everything that the new value takes from the graph is arbitrary but numbers (a 0 that is a threshold may be one that the
    graph had before); then numbers too; then what is taken and lies beside the old value (the same operands joined for a neighbour)
    is what it is; then small constants are; then of what is taken only that is arbitrary of which no other part is taken. Then what
    is arbitrary moves down: first where two arbitrary values depend on common ones (`Sub(Neg(x), x)`), then everywhere (a `Sigmoid`
    has positive values only). The last one reaches down to the graph's inputs where these are near: of all ways only that one may
    show that a rewrite is wrong.
    """
    taken = _taken(rewrite.new, nodes)
    # the values near below the old one where walks from the new one come upon them
    inside = _near(rewrite.old, set(), NEAR)[0]
    common = _near(rewrite.new, inside, FAR)[0] & inside
    seen: set[tuple[Value, Value]] = set()
    lowest = {value for value in taken if taken.isdisjoint(_near(value, set(), FAR)[0] - {value})}
    few, near = FEW, NEAR
    ways = (_unknown(taken, 1), few), (taken, few), (taken, near), (common, near), (_unknown(taken), near)
    cuts: list[set[Value]] = []
    for stop, limit in (*ways, (_unknown(lowest), FAR)):
        cut = stop | _near(rewrite.old, stop, limit)[1]
        cuts.append(cut | _near(rewrite.new, cut, limit)[1])
    for lower in chain(cuts, _lowered(rewrite, _met(rewrite, cuts[-1]))):
        # the sides over arbitrary values in the place of a cut, where the types of these are known
        names: dict[Value, Value] = {}
        old, new = _over(rewrite.old, lower, names), _over(rewrite.new, lower, names)
        if old and new and (old, new) not in seen:
            seen.add((old, new))
            # an input of the graph can be any tensor of its type, whatever the others are
            yield ClaimSides((old,), (new,), all(isinstance(value.node, Input) for value in names))


def _lowered(rewrite: Rewrite, cut: set[Value]) -> Iterator[set[Value]]:
    """Cuts below a cut, each of which is nearer to the inputs of the graph."""
    for _ in range(LEVELS):
        related = _related(cut)
        if not related:
            break
        cut = _met(rewrite, _opened(cut, related))
        yield cut
    for levels in DEEPER:
        for _ in range(levels):
            cut = _met(rewrite, _opened(cut, cut))
        if len(_inside(rewrite, cut)) > WHOLE:
            return
        yield cut
    inside = _inside(rewrite, set())
    if len(inside) <= WHOLE:
        yield {value for value in inside if not _can_open(value)}


def _related(cut: set[Value]) -> set[Value]:
    """The values of a cut that depend on what another one of them depends on too, or is."""
    below = {value: {one for one in _near(value, set(), NEAR)[0] if not one.constant} for value in cut}
    return {
        value
        for value, own in below.items()
        if _can_open(value) and any(own & others for one, others in below.items() if one != value)
    }


def _opened(cut: set[Value], which: set[Value]) -> set[Value]:
    """A cut with some of its values replaced by what these are computed from."""
    opened = {value for value in which if _can_open(value)}
    return (cut - opened) | {arg for value in opened for arg in value.node.args}


def _can_open(value: Value) -> bool:
    node = value.node
    if isinstance(node, Input | Opaque):
        return False
    return _small(value, HELD) if isinstance(node, Constant) else all(arg.known for arg in node.args)


def _met(rewrite: Rewrite, cut: set[Value]) -> set[Value]:
    """The values of a cut at which a walk down from either side ends, and what else it ends at."""
    inside = _inside(rewrite, cut)
    return {value for value in inside if (value in cut and not _small(value)) or not _can_open(value)}


def _inside(rewrite: Rewrite, cut: set[Value]) -> set[Value]:
    """Values of a walk down from either side, the cut included; no more than is looked at."""
    found: set[Value] = set()
    stack = [rewrite.old, rewrite.new]
    while stack and len(found) <= 2 * WHOLE:
        value = stack.pop()
        if value not in found:
            found.add(value)
            if value not in cut and _can_open(value):
                stack.extend(value.node.args)
    return found


def _taken(new: Value, nodes: Set[Node]) -> set[Value]:
    """The values of the graph that a replacement is built on."""
    found: set[Value] = set()
    seen: set[Value] = set()
    stack = [new]
    while stack:
        value = stack.pop()
        if value.node in nodes:
            found.add(value)
        elif value not in seen:
            seen.add(value)
            stack.extend(value.node.args)
    return found


def _unknown(values: set[Value], most: int = SMALL) -> set[Value]:
    """Without the constants of up to so many elements, whose contents are at hand."""
    return {value for value in values if not _small(value, most)}


def _small(value: Value, most: int = SMALL) -> bool:
    type = value.type_or_none
    return isinstance(value.node, Constant) and type is not None and type.is_static and type.elements <= most


def _near(root: Value, stop: set[Value], limit: int) -> tuple[set[Value], set[Value]]:
    """The values within `limit` nodes, breadth first, and those at which the walk ended for another reason than `stop`."""
    inside: set[Value] = set()
    ended: set[Value] = set()
    queue = deque([root])
    opened: set[Node] = set()
    while queue:
        value = queue.popleft()
        node = value.node
        known = value in inside or value in stop or node in opened
        inside.add(value)
        if known or (isinstance(node, Constant) and _small(value)):
            continue
        if (
            len(opened) >= limit
            or isinstance(node, Input | Constant | Opaque)
            or any(not arg.known for arg in node.args)
        ):
            ended.add(value)
            continue
        opened.add(node)
        queue.extend(node.args)
    return inside, ended


def _over(root: Value, arbitrary: set[Value], names: dict[Value, Value]) -> Value | None:
    """A value as a program over holes in place of the arbitrary values, numbered in the order in which they are met.

    `ir.rebuild` wants to know before it starts what stands for which value: the order would take a walk of its own.
    """
    done: dict[Value, Value] = {}
    stack = [root]
    while stack:
        value = stack[-1]
        if value in done:
            stack.pop()
            continue
        if value in arbitrary:
            if not value.known:
                return None
            done[value] = names.setdefault(value, hole(len(names), value.type))
            continue
        if isinstance(value.node, Constant) and isinstance(value.node.data, FillRef):
            done[value] = fill(_shortest(value.node.data.value), value.type)
            continue
        pending = [arg for arg in value.node.args if arg not in done]
        if pending:
            stack.extend(reversed(pending))
            continue
        args = tuple(done[arg] for arg in value.node.args)
        done.update(zip(value.node.values, with_args(value.node, args), strict=True))
    return done[root]
