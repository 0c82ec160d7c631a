"""Several operators as one program: whoever finds them says which, and what may stand for all of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from dslc.deadline import TimeUp
from dslc.fuse.groups import Neighbours
from dslc.ir.facts import Fact
from dslc.ir.graph import Call, Kernel, Node, Value
from dslc.ir.holes import instantiated
from dslc.search.candidates.candidate import Candidate, imaged
from dslc.search.finders.derivations import WHOLE as DERIVATIONS_WHOLE
from dslc.search.finders.derivations import Derivations
from dslc.search.finders.fusions import fact_of_kernel
from dslc.search.finders.looking import Rival, Tale


@dataclass(frozen=True, slots=True, eq=False)
class Several:
    """What operators give together, with what is computed element by element behind them, over these leaves.

    `nodes` belong to them then and to nobody else; `facts` say what may stand for them, the cheapest by estimate first.
    """

    old: tuple[Value, ...]
    leaves: tuple[Value, ...]
    nodes: tuple[Node, ...]
    facts: tuple[Fact, ...] = ()


@dataclass(slots=True)
class _Looked:
    """How far somebody came who looks at several operators of one candidate at once."""

    searched: int = 0
    found: int = 0
    measured: list[Rival] = field(default_factory=list)
    taken: list[tuple[Rival, Several]] = field(default_factory=list)
    #: those that are one kernel
    wholes: list[tuple[Rival, Several]] = field(default_factory=list)
    owned: set[Node] = field(default_factory=set)

    def tale(self, late: bool = False) -> Tale:
        taken, wholes = (tuple(one for one, _ in each) for each in (self.taken, self.wholes))
        return Tale(self.searched, self.found, tuple(self.measured), taken, late, (), wholes)


@dataclass(slots=True)
class Together(Derivations):
    """Where several nodes at once are looked at; see `Derivations`."""

    def proposals(self, base: Candidate) -> Iterator[tuple[Sequence[Candidate], Tale]]:
        """As those of `Derivations`: after each program that was built and measured something else may have its turn."""
        looked, around = _Looked(), Neighbours(base.graph)
        sets: list[tuple[Call, ...]] | None = None
        while sets is None:
            try:
                self.builder.begin()
                sets = list(self._sets(base, around))
            except TimeUp:
                yield (), looked.tale(late=True)
        for calls in sets:
            if not looked.owned & {*calls}:
                yield from self._together(base, calls, around, looked)

    def _sets(self, base: Candidate, around: Neighbours) -> Iterator[tuple[Call, ...]]:
        """Operators that are looked at together, the dearest first. Raises TimeUp."""
        raise NotImplementedError

    def _several(
        self, base: Candidate, calls: tuple[Call, ...], around: Neighbours, owned: set[Node]
    ) -> Several | None:
        """What may stand for some operators; None where they are not worth it. Raises TimeUp."""
        raise NotImplementedError

    def _together(
        self, base: Candidate, calls: tuple[Call, ...], around: Neighbours, looked: _Looked
    ) -> Iterator[tuple[Sequence[Candidate], Tale]]:
        several: Several | None = None
        best: Rival | None = None
        whole: Rival | None = None
        waiting: list[Fact] | None = None
        before = best, whole
        while waiting is None or waiting:
            late = False
            try:
                if waiting is None:
                    several = self._several(base, calls, around, looked.owned)
                    waiting = [] if several is None else [*several.facts]
                    looked.searched, looked.found = looked.searched + (several is not None), looked.found + len(waiting)
                if waiting:
                    one, alone = self._proved(waiting[0]), None
                    if one is not None and one.ratio >= DERIVATIONS_WHOLE:
                        # what was measured is not lost where there is no time for this
                        with suppress(TimeUp):
                            alone = self._as_one(waiting[0])
                    waiting.pop(0)
                    looked.measured += [each for each in (one, alone) if each is not None]
                    best, whole = self._better(best, one), self._better(whole, alone)
            except TimeUp:
                late = True
            if waiting and not late and best is not None and best.leans and not self.leaning:
                # another one may stand without its library
                continue
            made: list[Candidate] = []
            for taken, found, known in ((looked.taken, best, before[0]), (looked.wholes, whole, before[1])):
                if several is not None and found is not None and found is not known:
                    taken[:] = [*(each for each in taken if each[1] is not several), (found, several)]
                    looked.owned.update(several.nodes)
                    made.append(_with_taken(base, taken, self.costs.share))
            before = best, whole
            yield made, looked.tale(late)


def _with_taken(base: Candidate, taken: list[tuple[Rival, Several]], share: float) -> Candidate:
    """A candidate with programs in the place of the values that they compute, over these leaves; one step for each.

    `share` is what they save of the whole for what they save by themselves.
    """
    at = base
    now: dict[Value, Value] = {value: value for node in base.graph.nodes() for value in node.values}
    for one, several in taken:
        made = instantiated(one.program, [now[leaf] for leaf in several.leaves])
        texts = {**at.kernels, **{each.name: each.text for each in one.kernels}}
        groups = dict.fromkeys(node.group for node in one.program.nodes() if isinstance(node, Kernel))
        cost = max(at.cost - share * (one.before - one.after), 0.05 * at.cost)
        graph, images = imaged(at.graph, dict(zip((now[value] for value in several.old), made, strict=True)))
        now = {value: images.get(image, image) for value, image in now.items()}
        at = Candidate(graph, cost, at, one.fact.rule, 1, (one.fact, *map(fact_of_kernel, groups)), texts)
    return at
