"""What a rule gains where it matches, or what keeps `dslc optimize` from using it: its status, the opset, a missing kernel."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from dslc.errors import DslcError

if TYPE_CHECKING:
    from dslc.ir.graph import Call, Graph, Value
    from dslc.match import CompiledRule, Match
    from dslc.mutate.partial import PartialRule
    from dslc.prove.verdict import RuleVerdict
    from dslc.semantics.library import Rules


PLACES = 2  #: places that are looked at
RUNS = 15  #: runs of either side that are timed
CLOSE = 1.03  #: ratio of two times of one thing, by chance


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a rule, to be timed; `kernels`: whether some operator of it is a kernel."""

    session: Any
    feeds: dict[str, Any]
    kernels: bool


def obstacles(rules: Rules, rule: CompiledRule, graph: Graph, opset: int, newest: int) -> list[str]:
    """A sentence for each thing that stands in the way, or the time that the rule gains, at the first places where it matches.

    Args:
        opset: the model's.
        newest: the newest opset that there is.
    """
    from dslc.match import GraphIndex, find_matches, replacements
    from dslc.match.recipe import Refused

    out: list[str] = []
    status = _status(rules, rule)
    if status:
        out.append(status)
    count = 0
    for match in find_matches(rule, GraphIndex(graph)):
        try:
            new = replacements(match)
        except Refused:
            continue
        where = "Elsewhere" if count else "Alone"
        out += _forms(rules, list(new.values()), graph, opset, newest) or _price(rules, match, new, opset, where)
        count += 1
        if count == PLACES:
            break
    return list(dict.fromkeys(out))


def partial_obstacles(rules: Rules, rule: CompiledRule, graph: Graph, opset: int) -> list[str]:
    """The same of one direction of a partial substitution, which `dslc optimize` uses whatever its status is, where it is corrected."""
    from dslc.fuse.groups import Neighbours
    from dslc.mutate.partial import compiled, sites

    every = [one for one in compiled(rules, [rule.definition]) if one.rule.reverse == rule.reverse]
    around = Neighbours(graph)
    out: list[str] = []
    for site in list(sites(every, graph))[:PLACES]:
        own = {site.node, *site.inner}
        inside = [value for node in site.inner for value in node.values]
        if not all(value.known and value.type.is_static for node in own for value in (*node.args, *node.values)):
            out.append("Not used: mutants need known sizes: --bind NAME=N --specialize.")
        elif any(
            value in around.final or any(user not in own for user in around.used.get(value, ())) for value in inside
        ):
            out.append("Not used: something else needs what is inside of its left side.")
        else:
            out += _corrected(rules, every, site.program, opset, "Elsewhere" if out else "Alone")
    return list(dict.fromkeys(out))


def _corrected(rules: Rules, every: Sequence[PartialRule], program: Graph, opset: int, where: str) -> list[str]:
    """What a partial substitution makes of a region, corrected: how much is computed again, and its time; or why it is left out."""
    from dslc.mutate.correct import corrections, differing, wrong_at
    from dslc.mutate.partial import applied
    from dslc.prove.partial.rules import percent

    (old,) = program.outputs
    out: list[str] = []
    for one in applied(rules, every, program):
        found = differing(rules, old, one.value)
        if found is None or not found.proved:
            out.append("Not used: where its sides differ is not proved.")
        elif found.share > one.limit:
            out.append(
                f"Not used: its sides differ in {percent(found.share)}, and {percent(one.limit)} may be computed again."
            )
        elif not (ways := corrections(rules, old, one.value, one.limit, one.own)):
            at = None if one.own is None else wrong_at(rules, old, one.own, found.boxes)
            out.append(f"Not used: its correction is wrong at {list(at or ())}.")
        else:
            how = (
                ""
                if one.own is None
                else " by its correction"
                if ways[0].own is not None
                else ", as its correction is not proved"
            )
            out.append(f"{percent(ways[0].share)} of the result is computed again{how}.")
            out += _times(rules, {old: _with_kernels(program, ways[-1].value(rules))}, program.inputs, opset, where)
    return out


def _with_kernels(region: Graph, value: Value) -> Value:
    """What may stand for a region, with its expressions as kernels."""
    from dslc.fuse.groups import Neighbours
    from dslc.fuse.kernels import folded
    from dslc.ir.graph import Graph, ScopeNode

    graph = Graph(region.inputs, (value,))
    around = Neighbours(graph)
    return folded(graph, [around.group([node]) for node in around.nodes if isinstance(node, ScopeNode)]).outputs[0]


def as_proved(rules: Rules, rule: CompiledRule) -> CompiledRule:
    """A rule for the element types for which `dslc optimize` uses it; as it is where it uses it for none."""
    from dslc.prove.verdict import RELIABLE
    from dslc.search.runs.selection import usable

    used, _ = usable([rule], {rule.definition.name: _known(rules, rule)}, tuple(RELIABLE))
    return used[0] if used else rule


def _known(rules: Rules, rule: CompiledRule) -> RuleVerdict:
    from dslc.folders import cache_folder
    from dslc.search.runs.selection import statuses

    return statuses(rules, [rule.definition], cache_folder())[rule.definition.name]


def _status(rules: Rules, rule: CompiledRule) -> str:
    """The status of a rule that is not used unless allowed, as `dslc optimize` knows it."""
    from dslc.prove.verdict import RELIABLE

    known = _known(rules, rule)
    if known.usable(RELIABLE) != ():
        return ""
    allowed = f" (--allow {known.status} uses it)" if known.status != "refuted" else ""
    return f"Not used: its status is {known.status}{allowed}."


def _forms(rules: Rules, values: Sequence[Value], graph: Graph, opset: int, newest: int) -> list[str]:
    """Operators of a replacement without an ONNX form at the model's opset, and without a kernel."""
    from dslc.ir.graph import Call, topological
    from dslc.onnx.exporter import exportable

    old = set(graph.nodes())
    out = []
    for node in topological(value.node for value in values):
        if not isinstance(node, Call) or node in old or node.constant or exportable(node, rules, opset):
            continue
        if _generated(rules, node, opset):
            continue
        later = next((k for k in range(opset + 1, newest + 1) if exportable(node, rules, k)), None)
        if later is None:
            out.append(f"Not used: ONNX has no node for `{node.op}`, and there is no kernel.")
        else:
            out.append(f"Not used: `{node.op}` needs opset {later}, the model has {opset}.")
    return out


def _generated(rules: Rules, node: Call, opset: int) -> bool:
    """Whether a call can run as a kernel here."""
    from dslc.ir.graph import Kernel
    from dslc.search.candidates.export import as_kernels, no_compiler, texts_of

    outputs = as_kernels(rules, node.values, opset)
    return not no_compiler() and isinstance(outputs[0].node, Kernel) and bool(texts_of(rules, outputs, opset))


def _price(rules: Rules, match: Match, new: dict[Value, Value], opset: int, where: str) -> list[str]:
    """The times of both sides alone, or why ONNX Runtime does not run the new one."""
    inputs = [value for value in dict.fromkeys(match.variables.values()) if not value.constant]
    return _times(rules, new, inputs, opset, where)


def _times(rules: Rules, new: Mapping[Value, Value], inputs: Sequence[Value], opset: int, where: str) -> list[str]:
    """The times of some values and of what may stand for them, over these inputs."""
    if not inputs or not all(value.known and value.type.is_static for value in (*inputs, *new, *new.values())):
        return ["Its price depends on sizes: --bind NAME=N."]
    try:
        sides = [_prepared(rules, list(side), inputs, opset) for side in (new.keys(), new.values())]
    except DslcError as problem:
        return [f"Not used: ONNX Runtime cannot run the result: {problem.diagnostics[0].message}."]
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(RUNS):
        for side, found in zip(sides, times, strict=True):
            began = time.perf_counter()
            side.session.run(None, side.feeds)
            found.append(time.perf_counter() - began)
    before, after = (1e3 * median(found) for found in times)
    how = ", with a generated kernel" if any(one.kernels for one in sides) else ""
    slower = ", slower" if after > before * CLOSE else ""
    return [f"{where}{how}: {before:.3g} -> {after:.3g} ms ({before / after:.2g}x{slower})."]


def _prepared(rules: Rules, outputs: list[Value], inputs: Sequence[Value], opset: int) -> _Side:
    import numpy as np

    from dslc.interpret.draws import elements
    from dslc.onnx.exporter import node_model
    from dslc.search.candidates.export import as_kernels
    from dslc.sessions import session

    model, names = node_model(as_kernels(rules, outputs, opset), rules, opset, inputs=inputs)
    rng = np.random.default_rng(0)
    feeds = {name: elements(value.type, "positions", rng, most=1) for name, value in zip(names, inputs, strict=True)}
    return _Side(session(model), feeds, bool(model.functions))
