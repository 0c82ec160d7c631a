"""Operators that are not tried because sizes are open: mutants and partial rules are of operators whose sizes are known."""

from __future__ import annotations

from math import isfinite

from dslc.cost.model import CostModel
from dslc.ir.graph import Call, Graph, Value
from dslc.ir.holes import abstracted, leaves_of
from dslc.ir.scalar import Scalar, Sym, scalars
from dslc.search.candidates.candidate import Candidate
from dslc.search.generators.protocol import SearchContext
from dslc.search.region_rewrites.expressions import reductions
from dslc.search.region_rewrites.hot_operators import SHARE as DERIVATIONS_SHARE
from dslc.search.region_rewrites.region_log import TOLD as LOOKING_TOLD
from dslc.semantics.library import Rules


def note_open_sizes(context: SearchContext) -> None:
    """A note with the part of the original's time that reductions of open sizes take, and how these sizes are fixed."""
    task = context.task
    share, names = _open_share(task.rules, context.start, context.costs)
    if share < DERIVATIONS_SHARE or not names:
        return
    said = ", ".join(names[:LOOKING_TOLD]) + (" and others" if len(names) > LOOKING_TOLD else "")
    binds = " ".join(f"--bind {name}={context.costs.samples.size(name)}" for name in names)
    context.run.note(
        f"mutants and partial rules need known sizes: operators with symbolic {said} ({share:.0%} of the time) were skipped; "
        f"`{binds} --specialize` tries them at the sizes that were measured"
    )


def _open_share(rules: Rules, start: Candidate, costs: CostModel) -> tuple[float, list[str]]:
    """The share of a candidate's time in reductions with open sizes, and the names of these."""
    asked: dict[Graph, bool] = {}
    names: dict[str, None] = {}
    seconds = 0.0
    for node in start.graph.nodes():
        if not isinstance(node, Call) or node.constant or not all(value.known for value in (*node.args, *node.values)):
            continue
        found = _names([*node.args, *node.values])
        if not found:
            continue
        program, _ = abstracted(node.values, leaves_of((node,)))
        if program not in asked:
            asked[program] = bool(reductions(rules, program))
        price = costs.cost(node) if asked[program] else 0.0
        if price and isfinite(price):
            seconds += price
            names.update(dict.fromkeys(found))
    # operators alone take longer than all of them as a runtime fuses them
    return min(1.0, seconds / start.cost) if start.cost else 0.0, list(names)


def _names(values: list[Value]) -> list[str]:
    sizes = [size for value in values for size in value.type.shape if isinstance(size, Scalar)]
    return [node.name for size in sizes for node in scalars(Sym, size)]
