"""Programs that are almost an operator or a region, where they differ, and what corrects them (PET)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from math import inf
from typing import Any

from dslc.api.calls import called_as, file_of_call, plain_calls
from dslc.api.models import libraries_of, seconds_of, sizes_of, whole
from dslc.derivation.calls import CallProgram
from dslc.derivation.programs import estimated
from dslc.errors import error
from dslc.ir.graph import Call, Graph, Value, nodes_of
from dslc.ir.text import program_text
from dslc.mutate.batch_tiling import overlapping, sheets
from dslc.mutate.correct import Corrected, corrections, differing
from dslc.mutate.mutant import MutantOptions, made
from dslc.mutate.partial import applied, compiled
from dslc.mutate.problem import is_linear_region, problem_of
from dslc.mutate.search import search
from dslc.records import record
from dslc.search.options.types import PathLike
from dslc.semantics.library import Rules, load_many

MOST = 10  #: mutants that are shown
SEARCHING = 0.6  #: share of the budget for searching, the rest being for comparing and proofs


@record
class FoundMutant:
    """A program of a region's shapes that is almost equal to it.

    `operators`: its operators in their order, `calls` the same with attributes and shapes; `share`: of the result that differs, None
    where that is not known; `proved`: whether nothing else differs for any input; `correction`: how it is corrected (`none needed`,
    `guard`, `pieces`, `one operator`), or why it is not; `cost_ms`, `corrected_ms`: estimated milliseconds; `program`: the mutant.
    """

    operators: tuple[str, ...]
    calls: tuple[Mapping[str, Any], ...]
    share: float | None
    boxes: tuple[str, ...]
    proved: bool
    correction: str
    cost_ms: float
    corrected_ms: float | None
    program: str

    def __str__(self) -> str:
        where, costs, refused = "not compared", f"{self.cost_ms:.4g} ms estimated", ""
        if self.share is not None:
            where = f"{self.share:.1%} differ" if self.share else "equal everywhere"
            where += ", proved" if self.proved else ", not proved"
        if self.corrected_ms is None:
            refused = f" ({self.correction})"
        elif self.share:
            costs += f", {self.corrected_ms:.4g} ms corrected by {self.correction}"
        shapes = "; ".join(
            f"{each['operator'].rpartition('.')[2]}({', '.join(map(str, each['shapes']))}"
            + "".join(f", {name}={value}" for name, value in each["attributes"].items())
            + ")"
            for each in self.calls
        )
        return f"{shapes}: {where}{refused}, {costs}"


@record
class FoundMutants:
    """Mutants that `dslc mutants` finds: the cheapest corrected ones first, then those that are not corrected.

    `found`: how many there are; `price_ms`: what the region takes by estimate; `complete`: whether all within the depth were tried.
    """

    mutants: tuple[FoundMutant, ...]
    found: int
    price_ms: float
    seconds: float
    complete: bool
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @property
    def summary(self) -> str:
        ended = "" if self.complete else " before the budget ended"
        count = f"{self.found} {'mutant' if self.found == 1 else 'mutants'}"
        faster = any((each.corrected_ms or inf) < self.price_ms for each in self.mutants)
        none = "" if faster or not self.found else "; none is faster"
        return f"{count} found{ended} ({self.seconds:.1f} s); the original takes about {self.price_ms:.4g} ms{none}"

    def __str__(self) -> str:
        lines = [f"{number}. {each}" for number, each in enumerate(self.mutants, 1)] or ["No mutant was found."]
        return "\n".join([*lines, self.summary, *(f"note: {note}" for note in self.notes)])


def mutants(
    call: str,
    *,
    rules: PathLike | Sequence[PathLike] = (),
    node: str | None = None,
    bind: Mapping[str, int] | None = None,
    depth: int = 4,
    limit: float = 0.25,
    budget: float | str = "20s",
    every: bool = False,
) -> FoundMutants:
    """Programs that compute almost what a call does, where they differ, and how they are corrected.

    Args:
        call: `"conv(X: f32[1, 8, 8, 8], K: f32[8, 8, 3, 3])"`, `FILE.rules::NAME`, or a model with `node`.
        rules: libraries with partial substitutions.
        node: where `call` is a model, the name of a node or its result.
        bind: sizes of symbolic dimensions by name.
        depth: operators and changes of layout of a mutant.
        limit: the share of the result that may be computed again.
        budget: for search and proofs; seconds, or a text.
        every: all mutants, not the ten best.

    Returns:
        `.mutants`, the cheapest corrected ones first by estimated milliseconds, then those that are not corrected.

    Raises:
        DslcError: E0911 and others for wrong calls, regions that are not linear, and unknown sizes.

    Example:
        >>> import dslc
        >>> found = dslc.mutants("conv(X: f32[1, 2, 4, 4], K: f32[2, 2, 3, 3], dilation=[2, 2], pads=[2, 2, 2, 2])", budget=8)
        >>> found.mutants[0].share
        0.0
    """
    began, share, seconds = time.monotonic(), float(limit), seconds_of(budget)
    known = load_many(["std", *libraries_of(rules), *file_of_call(call)])
    called = called_as(known, call, node, sizes_of(bind))
    node_price = estimated(known)

    def price(value: Value) -> float:
        return sum(map(node_price, nodes_of([value])))

    shown: dict[Value, FoundMutant] = {}
    complete = True
    for value, own_limit, correction, whole_search in _candidates(
        known, called, whole(depth, "depth", 1), SEARCHING * seconds
    ):
        complete = whole_search
        if time.monotonic() - began > seconds:
            complete = False
            break
        shown.setdefault(
            value, _row(known, called, value, share if own_limit is None else own_limit, correction, price)
        )
    last = max(1.0, *(each.cost_ms for each in shown.values())) if shown else 1.0
    order = sorted(
        shown.values(), key=lambda each: last + each.cost_ms if each.corrected_ms is None else each.corrected_ms - last
    )
    found, spent = tuple(order if every else order[:MOST]), time.monotonic() - began
    return FoundMutants(found, len(order), 1e3 * price(*called.graph.outputs), spent, complete)


def _candidates(
    rules: Rules, called: CallProgram, depth: int, seconds: float
) -> Iterator[tuple[Value, float | None, Value | None, bool]]:
    """Mutants, the limits and corrections that their rules state, and whether the search for them was complete."""
    graph = called.graph
    values = [value for node in graph.nodes() for value in (*node.args, *node.values)]
    if not all(value.known and value.type.is_static for value in values):
        raise error(
            "E0911", "mutants are looked for at known sizes", hint="--bind NAME=N gives a symbolic dimension a size"
        )
    partial = compiled(rules, [one for one in rules.substitutions.values() if one.syntax.partial])
    asked = list(applied(rules, partial, graph))
    linear = len(graph.outputs) == 1 and is_linear_region(rules, graph)
    if not linear and not asked:
        raise error(
            "E0911",
            "this is not linear in its tensors, and has no mutants",
            hint="a region ends where it is not linear",
        )
    for one in asked:
        yield one.value, one.limit, one.own, True
    if linear:
        problem = problem_of(rules, graph)
        found = search(rules, problem, MutantOptions(depth, seconds=seconds))
        for mutant in found.mutants:
            for value in made(rules, mutant, problem.small, problem.region):
                yield value, None, None, found.complete
        for value in (*sheets(rules, graph.outputs[0]), *overlapping(rules, graph.outputs[0])):
            yield value, None, None, found.complete


def _row(
    rules: Rules, called: CallProgram, value: Value, limit: float, own: Value | None, price: Callable[[Value], float]
) -> FoundMutant:

    (old,) = called.graph.outputs
    found = differing(rules, old, value)
    ways = corrections(rules, old, value, limit, own) if found and found.proved else []
    best = min(ways, key=lambda one: _corrected(rules, one, price), default=None)
    if best:
        words = (
            "none needed" if not best.boxes else "its author's own" if best.own is not None else "a guard" if not best.pieces
            else "one operator" if best.is_fused else "pieces"
        )  # fmt: skip
    elif not found:
        words = "where it differs is not known"
    elif not found.proved:
        words = "it is not proved that nothing else differs"
    elif found.share > limit:
        words = f"more than the limit of {limit:.1%}"
    else:
        words = "no correction is proved"
    calls = tuple(node for node in nodes_of([value]) if isinstance(node, Call))
    return FoundMutant(
        tuple(node.op for node in calls),
        plain_calls(calls),
        found.share if found else None, tuple(map(str, found.boxes)) if found else (),
        found is not None and found.proved, words, 1e3 * price(value),
        1e3 * _corrected(rules, best, price) if best else None, program_text(Graph(called.graph.inputs, (value,))),
    )  # fmt: skip


def _corrected(rules: Rules, one: Corrected, price: Callable[[Value], float]) -> float:
    """Estimated seconds of a corrected mutant; a guard computes its part of the region."""
    if not one.boxes:
        return price(one.mutant)
    if one.pieces:
        return price(one.value(rules))
    return price(one.mutant) + one.share * price(one.own or one.old)
