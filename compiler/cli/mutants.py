"""`dslc mutants`: programs that are almost an operator or a region, where they differ, and what corrects them (PET)."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dslc.derivation.calls import Called
    from dslc.ir.graph import Value
    from dslc.mutate.correct import Corrected
    from dslc.semantics.library import Rules


MOST = 10  #: mutants that are shown
SEARCHING = 0.6  #: share of the budget for searching, the rest being for comparing and proofs


@dataclass(frozen=True, slots=True)
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
        where = (
            "not compared"
            if self.share is None
            else "equal everywhere"
            if not self.share
            else f"{self.share:.1%} differ"
        )
        proof = "" if self.share is None else ", proved" if self.proved else ", not proved"
        costs = f"{self.cost_ms:.4g} ms estimated"
        costs += (
            ""
            if self.corrected_ms is None or not self.share
            else f", {self.corrected_ms:.4g} ms corrected by {self.correction}"
        )
        refused = f" ({self.correction})" if self.corrected_ms is None else ""
        shapes = "; ".join(
            f"{each['operator'].rpartition('.')[2]}({', '.join(map(str, each['shapes']))}{_written(each['attributes'])})"
            for each in self.calls
        )
        return f"{shapes}: {where}{proof}{refused}, {costs}"


@dataclass(frozen=True, slots=True)
class FoundMutants:
    """What `dslc mutants` finds: the cheapest corrected ones first, then those that are not corrected.

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
        return {**dataclasses.asdict(self), "mutants": [dataclasses.asdict(one) for one in self.mutants]}

    @property
    def summary(self) -> str:
        cut = "" if self.complete else "; the search was cut"
        count = f"{self.found} {'mutant' if self.found == 1 else 'mutants'}"
        return f"{count} of what takes {self.price_ms:.4g} ms by estimate, {self.seconds:.1f} s{cut}"

    def __str__(self) -> str:
        lines = [f"{number}. {each}" for number, each in enumerate(self.mutants, 1)] or ["No mutant was found."]
        return "\n".join([*lines, self.summary, *(f"note: {note}" for note in self.notes)])


@click.command()
@click.argument("call")
@click.option(
    "--rules", "libraries", multiple=True, metavar="LIB", help="Another library or .rules file, with its partial rules."
)
@click.option("--node", metavar="NAME", help="CALL is a model: the node (or the result) of this name.")
@click.option(
    "--bind",
    "binds",
    multiple=True,
    metavar="NAME=N",
    help="The size of a symbolic dimension, or of an operator's type.",
)
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Operators and changes of layout of a mutant.",
)
@click.option("--limit", type=click.FloatRange(0, 1), default=0.25, show_default=True, metavar="SHARE",
              help="Largest share of a result that may be computed again.")  # fmt: skip
@click.option("--budget", type=click.FloatRange(min=0.1), default=20.0, show_default=True, metavar="S",
              help="Seconds for search and proofs.")  # fmt: skip
@click.option("--all", "every", is_flag=True, help="Every mutant, not the ten best.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    call: str, libraries: tuple[str, ...], node: str | None, binds: tuple[str, ...], depth: int, limit: float, budget: float,
    every: bool, as_json: bool,
) -> None:  # fmt: skip
    """List mutants of CALL, say "conv(X: f32[1, 64, 33, 33], K: f32[64, 64, 3, 3], dilation=[4, 4], pads=[4, 4, 4, 4])".

    CALL may also be nested calls, FILE.rules::NAME, or a model with --node NAME. Each mutant is printed with the share of the result
    that differs, whether it is proved that nothing else does, how it is corrected, and estimated milliseconds.
    """
    from dslc.cli.options import binding

    found = mutants_of(
        call, libraries=libraries, node=node, bind=binding(binds), depth=depth, limit=limit, budget=budget, every=every
    )
    click.echo(json.dumps(found.to_dict(), indent=2) if as_json else str(found))


def mutants_of(
    call: str, *, libraries: Sequence[str] = (), node: str | None = None, bind: Mapping[str, int] | None = None, depth: int = 4,
    limit: float = 0.25, budget: float = 20.0, every: bool = False,
) -> FoundMutants:  # fmt: skip
    """Looks for mutants of a call; `budget` in seconds, `limit` the share that may be computed again, `every`: all, not the ten best.

    Raises:
        DslcError: for what is wrong with the call or the libraries, and where the region is not linear or its sizes are unknown.
    """
    from dslc.cli.derive import called_as
    from dslc.derivation.programs import estimated
    from dslc.ir.graph import topological
    from dslc.semantics.library import load_many

    began = time.monotonic()
    own = [call.rpartition("::")[0]] if ".rules::" in call else []
    rules = load_many(["std", *libraries, *own])
    called = called_as(rules, call, node, bind or {})
    node_price = estimated(rules)

    def price(value: Value) -> float:
        return sum(map(node_price, topological([value.node])))

    shown: dict[Value, FoundMutant] = {}
    complete = True
    for value, share, correction, whole_search in _candidates(rules, called, depth, limit, SEARCHING * budget):
        complete = whole_search
        if time.monotonic() - began > budget:
            complete = False
            break
        shown.setdefault(value, _row(rules, called, value, share if share is not None else limit, correction, price))
    last = max(1.0, *(each.cost_ms for each in shown.values())) if shown else 1.0
    order = sorted(
        shown.values(), key=lambda each: last + each.cost_ms if each.corrected_ms is None else each.corrected_ms - last
    )
    (region,) = called.graph.outputs
    return FoundMutants(
        tuple(order if every else order[:MOST]), len(order), 1e3 * price(region), time.monotonic() - began, complete
    )


def _candidates(
    rules: Rules, called: Called, depth: int, limit: float, seconds: float
) -> Iterator[tuple[Value, float | None, Value | None, bool]]:
    """Mutants, the limits and corrections that their rules state, and whether the search for them was complete."""
    from dslc.errors import error
    from dslc.mutate.batch_tiling import overlapping, sheets
    from dslc.mutate.mutant import MutantOptions, made
    from dslc.mutate.partial import applied, compiled
    from dslc.mutate.problem import is_linear_region, problem_of
    from dslc.mutate.search import search

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
    rules: Rules, called: Called, value: Value, limit: float, own: Value | None, price: Callable[[Value], float]
) -> FoundMutant:
    from dslc.ir.graph import Call, Graph, topological
    from dslc.ir.text import program_text
    from dslc.mutate.correct import corrections, differing

    (old,) = called.graph.outputs
    found = differing(rules, old, value)
    ways = corrections(rules, old, value, limit, own) if found is not None and found.proved else []
    best = min(ways, key=lambda one: _corrected(rules, one, price), default=None)
    if best is not None:
        words = _way(best)
    elif found is None:
        words = "where it differs is not known"
    elif not found.proved:
        words = "it is not proved that nothing else differs"
    elif found.share > limit:
        words = f"more than the limit of {limit:.1%}"
    else:
        words = "no correction is proved"
    calls = tuple(node for node in topological([value.node]) if isinstance(node, Call))
    return FoundMutant(
        tuple(node.op for node in calls),
        tuple(
            {"operator": node.op, "attributes": {name: _plain(each) for name, each in node.attrs},
             "shapes": [[int(str(size)) for size in arg.type.shape] for arg in node.args]}
            for node in calls
        ),
        None if found is None else found.share, () if found is None else tuple(map(str, found.boxes)),
        found is not None and found.proved, words, 1e3 * price(value),
        None if best is None else 1e3 * _corrected(rules, best, price), program_text(Graph(called.graph.inputs, (value,))),
    )  # fmt: skip


def _corrected(rules: Rules, one: Corrected, price: Callable[[Value], float]) -> float:
    """Estimated seconds of a corrected mutant; a guard computes its part of the region."""
    if not one.boxes:
        return price(one.mutant)
    if one.pieces:
        return price(one.value(rules))
    return price(one.mutant) + one.share * price(one.own if one.own is not None else one.old)


def _way(one: Corrected) -> str:
    if not one.boxes:
        return "none needed"
    if one.own is not None:
        return "its author's own"
    if not one.pieces:
        return "a guard"
    return "one operator" if one.is_fused else "pieces"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _written(attributes: Mapping[str, Any]) -> str:
    return "".join(f", {name}={value}" for name, value in attributes.items())
