"""One rule under attack: random instances at every element type that it admits, read as they stand and matched on graphs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dslc.analysis.counts import known_flops
from dslc.errors import DslcError
from dslc.interpret.adversary import smaller_elements, smallest
from dslc.interpret.differ import Difference, PairOfLists, Way, feeds_of, pair_of
from dslc.interpret.draws import MANNERS, Manner, adversarial
from dslc.interpret.floats import Floats
from dslc.interpret.instantiate import Instance, Rejected, instantiate, show, term_options
from dslc.interpret.run import InterpretError
from dslc.ir.dtype import DTYPES, DType
from dslc.ir.graph import Call, Graph, Node, Value, rebuild, with_args
from dslc.match import CompiledRule, GraphIndex, apply_match, compile_directions, find_matches
from dslc.prove.counterexample import trace
from dslc.semantics.apply import apply
from dslc.semantics.composites import spelled_out
from dslc.semantics.definitions import NO_TRAITS, OperatorDef, SubstitutionDef
from dslc.semantics.env import Mismatch, OperatorRef
from dslc.semantics.library import Rules
from dslc.semantics.values import numbers_of

# what one instance may take: elements of its tensors
_ELEMENTS = 20_000
_OPERATIONS = 3e6
# draws of names for one instance
_ATTEMPTS = 40
# manners of inputs for one instance
_MANNERS = 4
_MATCHES = 2
# so many instances of the same ranks are welcome
_SEEN = 4
_NARROW = frozenset({DType.F16, DType.BF16, DType.F32})

Claimed = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True, eq=False)
class Found:
    """A difference between `left` and `right` over `inputs`; `drawn`: what the names of the rule stand for."""

    drawn: Mapping[str, Any]
    inputs: tuple[Value, ...]
    left: tuple[Value, ...]
    right: tuple[Value, ...]
    difference: Difference
    matched: bool = False
    #: of the rule as it is read
    instance: Instance | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """How a rule breaks, and a small counterexample as text."""

    way: Way
    text: str


class Attack:
    """The attack on one substitution; `instances`, `comparisons` and `types` say how far it came."""

    def __init__(
        self, rules: Rules, sub: SubstitutionDef, seed: int = 0, claimed: Claimed = lambda names: True
    ) -> None:
        """`claimed`: whether the rule is said to hold where its names are these, element types among them."""
        self._claimed = claimed
        self.rules, self.sub = rules, sub
        self.rng = np.random.default_rng(seed)
        self.near = numbers_of(sub)
        self.named = self.near.every
        self.instances = self.comparisons = 0
        self.types: Counter[DType] = Counter()
        self._refused: Counter[DType] = Counter()
        self._forms: Counter[tuple[int, ...]] = Counter()
        self._options = term_options(rules, sub)
        self._variables = tuple(
            dict.fromkeys(p.type.name for p in sub.syntax.params if p.type is not None and p.type.name not in DTYPES)
        )
        self._compiled: tuple[CompiledRule, ...] | None = None

    def run(self, trials: int, seconds: float, own: bool = True) -> Broken | None:
        """Tries to break the rule by `trials` instances, for at most `seconds`; then makes the counterexample small.

        `own`: also on the graphs of the rule's tests.
        """
        if self.sub.syntax.partial or not all(self._options.values()):
            return None
        ends = time.monotonic() + seconds
        found = None
        while found is None and self.instances < trials and time.monotonic() < ends:
            found = self._trial(ends)
        found = found or (next(self._own_graphs(), None) if own else None)
        return None if found is None else self._broken(self._small(found))

    # ---- instances -----------------------------------------------------------------------------------------

    def instance(self, ends: float) -> tuple[Instance, Mapping[str, OperatorDef]] | None:
        """An instance at element types that the rule admits, none of them rarely."""
        for _ in range(_ATTEMPTS):
            if time.monotonic() > ends:
                return None
            first = self._type()
            same = self.rng.random() < 0.6
            fixed = {name: first if same or k == 0 else self._type() for k, name in enumerate(self._variables)}
            terms = {name: options[int(self.rng.integers(len(options)))] for name, options in self._options.items()}
            draws = replace(adversarial(self.near, self.rng), fixed=fixed)
            try:
                instance = instantiate(self.rules, self.sub, self.rng, terms, (first,), draws=draws)
            except (Rejected, ArithmeticError):
                self._refused.update(set(fixed.values()))
                continue
            if not self._claimed(instance.drawn):
                self._refused.update(set(fixed.values()))
                continue
            if _elements((*instance.inputs, *instance.left.values(), *instance.right.values())) > _ELEMENTS:
                continue
            # ranks and lengths that were seen often are taken less often
            form = tuple(len(value) if isinstance(value, tuple) else 0 for value in instance.drawn.values())
            if self.rng.random() * (1 + self._forms[form]) < _SEEN:
                self._forms[form] += 1
                return instance, terms
        return None

    def _type(self) -> DType:
        """A type at random: rarely one that the rule never took."""
        types = tuple(DType)
        weights = np.array([(self.types[one] + 2) / (self.types[one] + self._refused[one] + 2) for one in types])
        return types[int(self.rng.choice(len(types), p=weights / weights.sum()))]

    def _trial(self, ends: float) -> Found | None:
        drawn = self.instance(ends)
        if drawn is None:
            return None
        instance, _ = drawn
        self.instances += 1
        self.types.update(
            {value for name in self._variables if isinstance(value := instance.drawn.get(name), DType)}
            or {value.type.dtype for value in instance.inputs}
        )
        found = self._compared(instance)
        if found is None and self.rng.random() < 0.5:
            found = self._matched(instance)
            if found is not None and found.difference.way == "undefined" and self._vanishes(instance, found.difference):
                return None
        return found

    def _compared(self, instance: Instance, manners: int = _MANNERS) -> Found | None:
        """The rule as it is read."""
        names = tuple(instance.left)
        left, right = (tuple(side[name] for name in names) for side in (instance.left, instance.right))
        found = self._differs(instance.drawn, instance.inputs, left, right, manners)
        if found is None or self._vanishes(instance, found.difference):
            return None
        return replace(found, instance=instance)

    def _vanishes(self, instance: Instance, one: Difference) -> bool:
        """Whether the same numbers differ in narrow floats only: there an epsilon is rounded, and what was positive is 0."""
        narrow = {name for name, value in instance.drawn.items() if isinstance(value, DType) and value in _NARROW}
        if one.way == "types" or not narrow:
            return False
        names = {name: DType.F64 if name in narrow else value for name, value in instance.drawn.items()}
        terms = {
            name: self.rules.operators[value.name] for name, value in names.items() if isinstance(value, OperatorRef)
        }
        try:
            draws = replace(adversarial(self.near, self.rng), fixed=names)
            wide = instantiate(self.rules, self.sub, self.rng, terms, (DType.F64,), draws=draws)
        except (Rejected, ArithmeticError, TypeError):
            return False
        sides = tuple(wide.left.values()), tuple(wide.right[name] for name in wide.left)
        pair = pair_of(self.rules, wide.inputs, *sides)
        if pair is None or [value.type.shape for value in wide.inputs] != [
            value.type.shape for value in instance.inputs
        ]:
            return False
        feeds = {new: one.feeds[old] for new, old in zip(wide.inputs, instance.inputs, strict=True) if old in one.feeds}
        return len(feeds) == len(wide.inputs) and pair.difference(feeds) is None

    def _of(self, instance: Instance, difference: Difference) -> Found:
        left, right = tuple(instance.left.values()), tuple(instance.right[name] for name in instance.left)
        return Found(instance.drawn, instance.inputs, left, right, difference, instance=instance)

    def _differs(
        self, drawn: Mapping[str, Any], inputs: tuple[Value, ...], left: tuple[Value, ...], right: tuple[Value, ...],
        manners: int = _MANNERS, matched: bool = False,
    ) -> Found | None:  # fmt: skip
        for k, (a, b) in enumerate(zip(left, right, strict=True)):
            if a.type != b.type:
                return Found(
                    drawn, inputs, left, right, Difference("types", k, (), str(a.type), str(b.type), {}), matched
                )
        pair = pair_of(self.rules, inputs, left, right)
        if pair is None or pair.left == pair.right or (known_flops((*pair.left, *pair.right)) or 0) > _OPERATIONS:
            return None
        for manner in self._manners(manners):
            feeds = feeds_of(pair, manner, self.rng, self.named, mixed=self.rng.random() < 0.2)
            self.comparisons += 1
            difference = pair.difference(feeds)
            if difference is not None:
                return Found(drawn, inputs, left, right, difference, matched)
        return None

    def _manners(self, count: int) -> Sequence[Manner]:
        """Small numbers and extremes always, the others in turn."""
        rest = MANNERS[2:]
        start = int(self.rng.integers(len(rest)))
        return (*MANNERS[:2], *(rest[(start + k) % len(rest)] for k in range(max(0, count - 2))))[: max(count, 1)]

    # ---- graphs --------------------------------------------------------------------------------------------

    def _matched(self, instance: Instance) -> Found | None:
        """The rule as `dslc optimize` uses it: on its left side, where operands of commutative operators change places."""
        return self._rewritten(instance.drawn, instance.inputs, tuple(instance.left.values()))

    def _rewritten(
        self, drawn: Mapping[str, Any], inputs: tuple[Value, ...], outputs: tuple[Value, ...]
    ) -> Found | None:
        if self._compiled is None:
            try:
                self._compiled = compile_directions(self.rules, self.sub)
            except DslcError:
                self._compiled = ()
        try:
            graph = Graph(inputs, self._exchanged(spelled_out(self.rules, outputs)))
        except (Mismatch, DslcError):
            return None  # an operator inside another one's definition does not take these types
        index = GraphIndex(graph)
        for rule in self._compiled:
            for match in find_matches(rule, index, limit=_MATCHES, constants=True):
                result = apply_match(match, graph) if self._claimed(match.names) else None
                if result is None:
                    continue
                found = self._differs(drawn, inputs, graph.outputs, result.outputs, 2, matched=True)
                if found is not None:
                    return found
        return None

    def _exchanged(self, outputs: tuple[Value, ...]) -> tuple[Value, ...]:
        """The same values, as far as the rules say, with operands of commutative operators in another order."""

        def step(node: Node, args: tuple[Value, ...]) -> tuple[Value, ...]:
            commutes = isinstance(node, Call) and self.rules.traits.get(node.op, NO_TRAITS).commutative
            if commutes and len(args) == 2 and self.rng.random() < 0.5:
                args = args[::-1]
            if args == node.args:
                return node.values
            try:
                built = with_args(node, args) if not commutes else self._applied(node, args)
            except DslcError:
                return node.values
            return built if tuple(v.type for v in built) == node.types else node.values

        return rebuild(outputs, step)

    def _applied(self, node: Any, args: tuple[Value, ...]) -> tuple[Value, ...]:
        try:
            return apply(self.rules, node.op, list(args), dict(node.attrs))
        except Mismatch:
            return tuple(node.values)

    def _own_graphs(self) -> Iterator[Found]:
        """What the rule does to the graphs that its tests say it fires on."""
        from dslc.checking.rule_tests import fired_graphs

        for test in self.rules.tests:
            if test.name != self.sub.name:
                continue
            for graph in fired_graphs(self.rules, test):
                for _ in range(3):
                    self.instances += 1
                    found = self._rewritten({}, graph.inputs, graph.outputs)
                    if found is not None:
                        yield found

    # ---- small ---------------------------------------------------------------------------------------------

    def _small(self, found: Found) -> Found:
        """The same kind of difference with small names, then with small elements."""
        if found.instance is not None:
            small = smallest(self.rules, self.sub, found.instance, found.difference.way)
            if small is not None:
                return self._of(small.instance, small.difference)
        if found.difference.way == "types":
            return found
        pair = pair_of(self.rules, found.inputs, found.left, found.right)
        assert pair is not None
        feeds = smaller_elements(found.difference.feeds, lambda feeds: self._same(pair, feeds, found.difference.way))
        return replace(found, difference=pair.difference(feeds) or found.difference)

    def _same(self, pair: PairOfLists, feeds: Mapping[Value, Any], way: Way) -> bool:
        difference = pair.difference(feeds)
        return difference is not None and difference.way == way

    def _broken(self, found: Found) -> Broken:
        one = found.difference
        lines = [", ".join(f"{name} = {show(value)}" for name, value in found.drawn.items())] if found.drawn else []
        if one.way != "types":
            names = tuple(f"result{k}" if len(found.left) > 1 else "result" for k in range(len(found.left)))
            try:
                lines.append(trace(self.rules, found.left, found.right, names, one.feeds, Floats(rounded=False)))
            except InterpretError:
                lines += [
                    f"{getattr(value.node, 'name', '?')}: {value.type} = {array.tolist()}"
                    for value, array in one.feeds.items()
                ]
        place = f"element {list(one.position)} of result {one.output}"
        lines.append(f"{place}: {one.left} on the left, {one.right} on the right" + " (as matched)" * found.matched)
        return Broken(one.way, "\n".join(lines))


def _elements(values: Sequence[Value]) -> int:
    return sum(int(str(value.type.elements)) for value in values)
