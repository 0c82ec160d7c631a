"""The cost model: what a graph takes is the sum of what its groups of operators were measured to take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from math import inf

from dslc.cost import kinds
from dslc.cost.evaluation import Caches, Evaluation, Start
from dslc.cost.fused_groups import Arguments, Lowered, Lowerings
from dslc.cost.groups import Group, GuessedWork, Key, groups_of
from dslc.cost.keys import Keys
from dslc.cost.layout import Info
from dslc.cost.measure import LEAST as MEASURE_LEAST
from dslc.cost.measure import Measurer
from dslc.cost.process import WorkerFailed
from dslc.cost.samples import Samples, bytes_in
from dslc.cost.targets import Target, target_named
from dslc.cost.timer import Build, GroupTimer
from dslc.deadline import TimeUp
from dslc.ir.graph import Call, Constant, Graph, Kernel, Node, Value, nodes_of
from dslc.semantics.library import Rules

SIZE = 2e-6  #: seconds of a node that computes a size
SLACK = 4.0  #: how many times what a guess says a group may take
LEAST_LEFT = 0.02  #: share of the original that a graph costs at least


class CostModel:
    """Costs of nodes and graphs in seconds on one target.

    What depends on weights only costs nothing, and so do opaque nodes, which never change. What ONNX cannot say at the model's
    opset costs infinitely much, unless the original graph already had it (`excuse`, `begin`). `bind` gives the sizes at which a
    graph with symbolic dimensions is measured, `computed` the nodes that are written for the sizes of one.
    """

    def __init__(
        self,
        rules: Rules,
        measurer: Measurer,
        build: Build,
        opset: int,
        bind: Mapping[str, int] | None = None,
        other: int = 1,
        lowerings: Lowerings | None = None,
        target: Target | None = None,
        computed: Callable[[Node], Collection[Node]] = lambda _: (),
    ) -> None:
        self.rules, self._computed = rules, computed
        self.target = target or target_named()
        #: what the target runs as one
        self.lowerings = self.target.lowerings(rules) if lowerings is None else lowerings
        self.measurer = measurer
        #: groups on their own, their names, and their timer
        self.samples = Samples(rules, opset, bind, other)
        self.keys = Keys(self.samples)
        self.timer = GroupTimer(measurer, self.samples, build)
        #: what caches hold of weights
        self.caches = Caches()
        self._infos: dict[Key, Info] = {}
        self._longer: dict[Key, float] = {}
        self._excused: set[Key] = set()
        #: what others have measured, which cannot be measured here
        self._told: dict[Key, Info] = {}
        #: what other graphs are compared with, where that is known as a whole
        self.start: Start | None = None
        self._alone: float | None = None
        self._view: dict[int, bool] = {}
        self._work = GuessedWork(
            lambda node: kinds.flops(rules, self.samples.static(node)), self.keys.number, self.samples.bytes_of
        )
        self._whole_work = 0.0

    @property
    def measured(self) -> int:
        """Number of groups that were measured, not found in the cache."""
        return self.measurer.count

    def cost(self, node: Node) -> float:
        """The cost of one node on its own, in seconds."""
        if node.constant or not node.args:
            return 0.0
        (info,) = self.infos([Group((node,), (node.args,))])
        return info.alone

    def evaluate(self, graph: Graph) -> Evaluation:
        """The cost of a graph, ready to be compared with rewritten ones."""
        if self.start and graph is self.start.evaluation.graph:
            self.start.evaluation.refresh()
            return self.start.evaluation
        return Evaluation(self, graph)

    def graph_cost(self, graph: Graph) -> float:
        """The cost of a graph in seconds; infinite where something in it cannot be run."""
        return self.evaluate(graph).cost

    def excuse(self, graph: Graph) -> None:
        """Takes the original graph.

        What it has and cannot be measured counts as nothing, instead of infinitely much; and its weights are what the
        processor's caches hold while it runs.
        """
        self._weigh(graph)
        found = self.evaluate(graph)
        for group, info in zip(found.groups, found.infos, strict=True):
            if info and info.body == inf:
                self._excused.add(self.keys.of(group))

    def begin(self, graph: Graph, seconds: float) -> None:
        """Takes the original graph, which takes so many seconds as a whole.

        From now on only those groups are measured that other graphs have more or fewer of, or that a rewrite is tried
        on.
        """
        self._weigh(graph)
        self._start(graph, seconds)
        assert self.start
        self.caches = replace(self.caches, read=self.start.evaluation.weights)

    def _start(self, graph: Graph, seconds: float) -> None:
        self._whole_work = 0.0
        found = Evaluation(self, graph, seconds)
        keys = Counter(self.keys.of(group) for group in found.groups)
        self.start = Start(seconds, found, keys, {self.keys.of(group): group for group in found.groups})
        if self.target.measured:
            self.caches = replace(self.caches, start=self.start)

    def within(self, graph: Graph) -> CostModel:
        """The same costs for a part of the original as a graph of its own, whose seconds are what is known or guessed of its groups."""
        if not self.start:
            return self
        found = copy(self)
        groups = Evaluation(self, graph, 0.0).groups
        known = [self.known(self.keys.of(group)) for group in groups]
        seconds = sum(info.alone if info else self.guess(group) for group, info in zip(groups, known, strict=True))
        found._start(graph, seconds)
        return found

    def part(self) -> float:
        """Seconds of those groups of the original that were measured, each by itself: at times more than the whole takes."""
        return self.start.part(self._infos, self._excused) if self.start else 0.0

    @property
    def share(self) -> float:
        """Ratio of the original's time to the sum of its groups' times."""
        return self.start.share(self.part(), self._run_alone) if self.start else 1.0

    def believed(self, seconds: float) -> float:
        """Scale the sum of a graph's groups to the time of a whole graph.

        A gain counts as far as groups take less by it than they do in the original.
        """
        if not self.start or seconds == inf:
            return seconds
        whole = self.start.seconds
        # noise must not leave nothing of a graph
        return max(whole + self.share * (seconds - whole), LEAST_LEFT * whole)

    def _run_alone(self) -> float:
        """Seconds of a run without nodes, where that is known."""
        if self._alone is None:
            try:
                self._alone = self.measurer.overhead
            except (WorkerFailed, TimeUp):
                self._alone = 0.0
        return self._alone

    def most(self, group: Group) -> float:
        """More seconds than a group takes: what was measured, or several times its part of the original by operations and bytes."""
        info = self.known(self.keys.of(group))
        if info or not self.start:
            return info.alone if info else inf
        return SLACK * self.guess(group)

    def guess(self, group: Group) -> float:
        """A group's part of what the original takes, by operations and bytes, in seconds; 0 where that is not known."""
        if not self.start:
            return 0.0
        if not self._whole_work:
            self._whole_work = sum(map(self._work.of, self.start.evaluation.groups))
        return self.start.seconds * self._work.of(group) / max(self._whole_work, 1e-30)

    def known(self, key: Key) -> Info | None:
        """Return the cost of a group where it was asked for before."""
        return Info(0.0) if key in self._excused else self._infos.get(key)

    def _weigh(self, graph: Graph) -> None:
        below = nodes_of(graph.outputs)
        self.timer.footprint = sum(bytes_in(node.values[0]) for node in below if isinstance(node, Constant))

    def weight(self, value: Value, node: Node) -> float:
        """Seconds that it may add at most that nodes like one read a weight; see `Caches`."""
        return self.caches.weight(value, node, self.samples.bytes_of(value))

    def groups(
        self,
        nodes: Sequence[Node],
        args_of: Arguments,
        uses: Callable[[Value], int],
        among: Collection[Node] | None = None,
        known: Sequence[Lowered] = (),
    ) -> list[Group]:
        """Partition nodes, producers first, into groups that are measured together.

        Fused groups are looked for among some of the nodes only, where the rest is known.
        """
        looked = nodes if among is None else [node for node in nodes if node in among]
        return groups_of(
            nodes, args_of, uses, self.keys.pointwise, [*known, *self.lowerings.fused(looked, args_of, uses)]
        )

    def infos(self, groups: Sequence[Group]) -> list[Info]:
        """Return the costs of groups; new ones are measured."""
        out = []
        for group in groups:
            key = self.keys.of(group)
            found = self._infos.get(key)
            if not found:
                self._note(group, self.measure(group))
                found = self._infos[key]
                if found.body == inf and self.start and key in self.start.keys:
                    self._excused.add(key)
            out.append(Info(0.0) if key in self._excused else found)
        return out

    # ---- keys ------------------------------------------------------------------------------------------------

    def _note(self, group: Group, info: Info) -> None:
        """Keeps what a group costs, which is no more than any longer group that begins with it.

        More work does not take less time: where it seems to, the shorter group was measured at a bad moment. What a search has
        already asked for stays as it is, so that the costs of two graphs can be compared.
        """
        key = self.keys.of(group)
        self._infos[key] = info.at_most(self._longer.get(key, inf))
        for count in range(group.fused, len(group.nodes)):
            part = self.keys.of(Group(group.nodes[:count], group.args[:count], group.fused))
            self._longer[part] = min(info.alone, self._longer.get(part, inf))

    def tell(self, group: Group, seconds: float) -> None:
        """Record the time of a group that was built and measured elsewhere, unless one is known."""
        key = self.keys.of(group)
        self._told.setdefault(key, Info(seconds))
        self._infos.setdefault(key, self._told[key])

    def can_price(self, graph: Graph) -> bool:
        """Return whether all kernels of a graph are known, which cannot be measured here."""
        return all(
            self.keys.of(Group((node,), (node.args,))) in self._told
            for node in graph.nodes()
            if isinstance(node, Kernel)
        )

    # ---- measuring -------------------------------------------------------------------------------------------

    def measure(self, group: Group, turn: str = "") -> Info:
        """Measure a group on the target; each `turn` is another measurement."""
        told = self._told.get(self.keys.of(group)) if self._told else None
        found = told or self.target.price(self, group, turn)
        if not self.start or self.keys.of(group) in self.start.keys:
            return found  # sizes of the original are among its own nodes
        sizes = {one for node in group.nodes for one in self._computed(node)}
        return replace(found, body=found.body + SIZE * len(sizes)) if sizes else found

    def timed(self, group: Group, turn: str = "") -> Info:
        """Return the cost of a group, from the cache or measured."""
        if self.is_view(group):
            return Info(MEASURE_LEAST)
        return self.timer.info(self.samples.small(group), turn)

    def is_view(self, group: Group) -> bool:
        """Return whether the runtime only passes memory on: a lowering says that it costs nothing."""
        first = group.nodes[0]
        if len(group.nodes) > 1 or not isinstance(first, Call):
            return False
        local = self.keys.number(first)
        if local not in self._view:
            self._view[local] = self.lowerings.passes_on(first)
        return self._view[local]
