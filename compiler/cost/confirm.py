"""Measuring again, in the same rounds, what decides between graphs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from dslc.cost.confidence_sequence import median
from dslc.cost.groups import Group
from dslc.cost.layout import GroupPair, Info, deciding, medians
from dslc.deadline import TimeUp
from dslc.ir.graph import Graph

if TYPE_CHECKING:
    from dslc.cost.evaluation import Evaluation, Key
    from dslc.cost.model import CostModel
    from dslc.cost.samples import Small


TURNS = 5  #: rounds over what is measured, where that is little
FEW = 60  #: groups and pairs up to which that is little
TURNS_OF_MANY = 3  #: rounds over more than that
#: bytes; only a larger result is looked at together with what reads it: less is in the nearest cache anyway
PASSED = 1 << 15
PASSING = 4e10  #: bytes a second at which a result is passed on
PASSING_SHARE = 0.05  #: share of both groups' time that passing a result on must be to be looked at
SAVED = 0.7  #: share of what one group after the other takes that two groups as one save, at most


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Seconds of groups, corrections of pairs of them, and a run without nodes.

    `cut`: time was up before all rounds were complete.
    """

    infos: Mapping[Key, Info]
    together: Mapping[Hashable, float]
    overhead: float
    cut: bool = False


def confirmed(model: CostModel, graphs: Sequence[Graph]) -> Confirmed:
    """Measures the groups of graphs, and the pairs that they do not have in common, in turn and several times over.

    A machine has spells, of seconds, in which operators take a third longer, and some more than others: costs that were taken in
    different ones say nothing about which graph is faster. What is measured in the same rounds can be compared.
    """
    states = [model.evaluate(graph) for graph in graphs]
    groups = _differing(model, states)
    pairs = _deciding(model, [state.pairs() for state in states])
    groups |= {model.keys.of(group): group for pair in pairs.values() for group in (pair.first, pair.then)}
    texts = sorted(model.samples.text(model.samples.small(group)) for group in groups.values())
    texts += sorted(model.samples.text(_small(model, pair)) for pair in pairs.values())
    occasion = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
    runs: list[float] = []
    infos: dict[Key, list[Info]] = {key: [] for key in groups}
    more: dict[Hashable, list[float]] = {key: [] for key in pairs}
    turns = [f"{occasion}:{k}" for k in range(TURNS if len(groups) + len(pairs) <= FEW else TURNS_OF_MANY)]
    # one graph is compared with nothing yet: what was measured of it before is as good
    cut = False
    for turn in turns if len(graphs) > 1 else ["", *turns[: TURNS_OF_MANY - 1]]:
        try:
            run = model.measurer.run_alone(turn)
            now = {key: model.measure(group, turn) for key, group in groups.items()}
            passing: dict[Hashable, float] = {}
            for name, pair in pairs.items():
                parts = pair.sum(now[model.keys.of(pair.first)], now[model.keys.of(pair.then)])
                seconds = model.timer.alone(_small(model, pair), turn)[0].seconds
                passing[name] = max(seconds - parts, -SAVED * parts) if seconds < inf else 0.0
        except TimeUp:
            # a round that is not complete compares nothing
            cut = True
            break
        runs.append(run)
        for key, info in now.items():
            infos[key].append(info)
        for name, more_or_less in passing.items():
            more[name].append(more_or_less)
    if not runs:
        return Confirmed({}, {}, 0.0, True)
    return Confirmed(
        _bounded(model, groups, {key: medians(found) for key, found in infos.items()}),
        {name: median(values) for name, values in more.items()},
        median(runs),
        cut,
    )


def _differing(model: CostModel, states: Sequence[Evaluation]) -> dict[Key, Group]:
    """The groups that can be run, without those that all graphs have equally often where the rest is the original's own time."""
    groups: dict[Key, Group] = {}
    counts: list[Counter[Key]] = []
    for state in states:
        count: Counter[Key] = Counter()
        for group in state.groups:
            key = model.keys.of(group)
            groups[key] = group
            count[key] += 1
        counts.append(count)
    if model.start is not None:
        groups = {key: group for key, group in groups.items() if len({count[key] for count in counts}) > 1}
    return {key: group for key, group in groups.items() if model.infos([group])[0].body < inf}


def _deciding(model: CostModel, pairs: Sequence[Sequence[GroupPair]]) -> dict[Hashable, GroupPair]:
    """The pairs that the graphs do not have in common. Of one graph, none."""
    known: dict[Hashable, GroupPair] = {}
    counts: list[Counter[Hashable]] = []
    for own in pairs:
        count: Counter[Hashable] = Counter()
        for pair in own:
            if not (model.is_view(pair.first) or model.is_view(pair.then)):
                name = model.keys.pair(pair)
                known[name] = pair
                count[name] += 1
        counts.append(count)
    weights: dict[Hashable, float] = {}
    for name in dict.fromkeys(name for count in counts for name in count):
        pair = known[name]
        passed = sum(model.samples.bytes_of(value) for value in pair.first.nodes[-1].values)
        if passed > PASSED and len({count[name] for count in counts}) > 1:
            parts = pair.sum(*model.infos([pair.first, pair.then]))
            if parts < inf and passed > PASSING_SHARE * parts * PASSING:
                weights[name] = parts
    counts = [Counter({name: number for name, number in count.items() if name in weights}) for count in counts]
    return {name: known[name] for name in deciding(counts, weights.__getitem__)}


def _small(model: CostModel, pair: GroupPair) -> Small:
    return model.samples.small(pair.group, pair.first.nodes[-1].values if pair.shared else ())


def _bounded(model: CostModel, groups: Mapping[Key, Group], infos: Mapping[Key, Info]) -> dict[Key, Info]:
    """No group costs more than a longer one that begins with it."""
    longer: dict[Key, float] = {}
    for key, group in groups.items():
        model.bound(group, infos[key].alone, longer)
    return {key: info.at_most(longer.get(key, inf)) for key, info in infos.items()}
