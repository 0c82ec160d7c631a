"""`dslc derive`: the programs that an expression can be computed by, and how each is derived."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dslc.derive.calls import Called
    from dslc.derive.programs import Program
    from dslc.derive.search import Derived
    from dslc.ir.dtype import TensorType
    from dslc.semantics.library import Rules


#: programs that are shown
MOST = 10
#: of the budget the share for searching, the rest being for proofs; seconds of one proof at most
SEARCHING, PROOF = 0.6, 5.0
#: seconds that proofs may take longer, where a search has taken all
OVER = 8.0
#: what lowerings run on
DEVICES = ("ort_cpu", "cpu", "cuda", "ort_cuda")


@click.command()
@click.argument("call")
@click.option("--rules", "libraries", multiple=True, metavar="LIB", help="A library or file with derivations, beside EinNet's.")
@click.option("--no-default-rules", "alone", is_flag=True, help="Without EinNet's derivations.")
@click.option("--target", "targets", multiple=True, metavar="OPERATOR", help="Only programs of this operator, or of this lowering.")
@click.option("--on", "devices", multiple=True, type=click.Choice(DEVICES), help="With the lowerings of expressions on this device.")
@click.option("--node", metavar="NAME", help="CALL is a model: the node (or the result) of this name.")
@click.option("--bind", "binds", multiple=True, metavar="NAME=N", help="The size of a symbolic dimension, or of an operator's type.")
@click.option("--max-depth", type=click.IntRange(0, 16), default=7, show_default=True, help="Derivations in a row.")
@click.option("--intensity", type=float, default=4.0, show_default=True, help="Operations per element of a generated operator.")
@click.option("--budget", type=click.FloatRange(min=0.1), default=35.0, show_default=True, metavar="S",
              help="Seconds for search and proofs.")  # fmt: skip
@click.option("--max-states", type=click.IntRange(min=1), metavar="N", help="Expressions to look at: no matter of time.")
@click.option("--all", "every", is_flag=True, help="Every program, not the ten best.")
@click.option("--output-format", type=click.Choice(["full", "json"]), default="full", show_default=True)
def command(
    call: str, libraries: tuple[str, ...], targets: tuple[str, ...], max_depth: int, intensity: float, budget: float, every: bool,
    output_format: str, node: str | None, binds: tuple[str, ...], max_states: int | None, devices: tuple[str, ...],
    alone: bool,
) -> None:  # fmt: skip
    """Derive programs for CALL, say "conv(X: f32[1, 512, 7, 7], K: f32[512, 512, 3, 3], pads=[1, 1, 1, 1])".

    CALL may also be FILE.rules::NAME, an operator at the types that it declares, or a model with --node NAME. A tensor is typed where
    it first occurs. Every program that is printed is proved equal to the call for all inputs; prices are estimates.
    """
    from math import inf

    from dslc.cli.options import binding
    from dslc.derive.kinds import kinds
    from dslc.derive.programs import unlike
    from dslc.derive.search import Limits, Search
    from dslc.derive.targets import targets_of
    from dslc.errors import error
    from dslc.prove.garbage import rare_collections
    from dslc.semantics.elaborate import expand

    began = time.monotonic()
    file, _, name = call.rpartition("::")
    own = [file] if file.endswith(".rules") else []
    rules, wanted, lowered = targeted(["std", *(() if alone else ("einnet",)), *libraries, *own], targets, devices)
    called = called_as(rules, call, node, binding(binds))
    derivations = list(rules.derivations.values())
    if not derivations:
        raise error("E0909", "these libraries have no derivations", hint="without --no-default-rules there are those of EinNet")
    _in_bounds(rules, called, name if own else "", call)
    (value,) = expand(rules, (called.value,))
    limits = Limits(max_depth=max_depth, seconds=SEARCHING * budget, intensity=intensity, max_states=max_states or inf)
    aims = targets_of(rules, [each.op for each in called.calls], [*wanted, *lowered])
    search = Search(rules, derivations, limits, aims)
    with rare_collections():
        derived = search.run(value)
    programs = [each for each in derived.programs if _is_other(each, called) and (not wanted or {*wanted} & {c.op for c in each.calls})]
    # of all those first that are no others with more to compute, in case that the time is over before all are proved
    different = list(kinds(rules, unlike(rules, programs, called.calls), called.calls))
    chosen = dict.fromkeys((*different, *programs)) if every else different
    shown, cut = _all_proved(rules, chosen, called, began + budget, None if every else MOST)
    records = [_record(rules, each, called, lowered) for each in shown]
    found = {call.op for each in programs for call in each.calls}
    missed = {name: str(search.missed(name)) for name in sorted({*wanted} - found)}
    notes = _mistakes(rules, libraries)
    if output_format == "json":
        facts = {
            "programs": records, "states": derived.states, "applications": derived.applications,
            "seconds": round(time.monotonic() - began, 3), "complete": derived.complete and not cut, "missed": missed,
            "notes": notes,
        }  # fmt: skip
        click.echo(json.dumps(facts, indent=2))
        return
    _print(records, len(programs), derived, missed, time.monotonic() - began)
    for note in notes:
        click.echo(f"note: {note}")


def _mistakes(rules: Rules, libraries: tuple[str, ...]) -> list[str]:
    """Mistakes in these libraries, in words: a derivation that has one does nothing, or nothing that it says."""
    from dslc.semantics.check import check
    from dslc.semantics.library import modules_of

    found = check(rules, modules_of(rules, libraries)) if libraries else []
    wrong = [f"{each.code} {each.message}" for each in found if each.severity == "error"]
    return [f"`dslc check` finds mistakes in these libraries: {'; '.join(wrong)}"] if wrong else []


def called_as(
    rules: Rules, call: str, node: str | None, binds: Mapping[str, int], known: Mapping[str, TensorType] | None = None,
    several: bool = False,
) -> Called:  # fmt: skip
    """A call as it is written, an operator of a file (`FILE.rules::NAME`), or a node of a model.

    `known`, `several`: as for `read_call`.
    """
    from dslc.derive.calls import call_of, read_call, region_of
    from dslc.errors import error
    from dslc.onnx.importer import import_model

    file, _, operator = call.rpartition("::")
    if file.endswith(".rules"):
        return call_of(rules, operator, binds)
    if node is None:
        return read_call(rules, call, known, several)
    imported = import_model(call, rules, binds)
    names = imported.context.names
    for value, origin in imported.context.origins.items():
        if node in {origin.proto.name, names.get(value)} and value in origin.outputs:
            return region_of(value, [each for each in origin.inputs if each is not None], names)
    for proto in imported.context.model.graph.node:
        if node and node in {proto.name, *proto.output}:
            why = f"no library has its {proto.op_type} as an operator, or it is folded away"
            hint = "`dslc show OPERATOR` prints the ONNX nodes that an operator stands for"
            raise error("E0911", f"the node `{node}` of {call} has no equation: {why}", hint=hint)
    raise error("E0909", f"{call} has no node that is named `{node}`", hint="the name of a node, or of its result")


def _in_bounds(rules: Rules, called: Called, operator: str, call: str) -> None:
    """Raises DslcError where an operator of the user's file may read outside its tensors, or one has more iterators than are taken."""
    from dslc.derive.steps import ITERATORS
    from dslc.errors import DslcError, SourceText, Span, error
    from dslc.inspection.bounds import check_operator

    found = [
        problem for name in sorted({call.op for call in called.calls}) if operator in {name, rules.operators[name].short}
        for problem in check_operator(rules, rules.operators[name]).diagnostics()
    ]  # fmt: skip
    if found:
        raise DslcError(found)
    rank = max(len(value.type.shape) for node in called.graph.nodes() for value in (*node.args, *node.values))
    if rank > ITERATORS:
        large = [name for name, value in zip(called.names, called.graph.inputs, strict=True) if len(value.type.shape) > ITERATORS]
        # a type of so many sizes is not shown: the place where it begins is
        start = max(0, call.find(large[0])) if large else 0
        message = f"a tensor has {rank} dimensions: derivations take {ITERATORS} iterators at most"
        raise error("E0911", message, Span(SourceText("call", call), start, start))


def targeted(
    libraries: list[str], targets: tuple[str, ...], devices: tuple[str, ...] = ()
) -> tuple[Rules, tuple[str, ...], tuple[str, ...]]:
    """Libraries with the lowerings of some devices, and those that a target names, as operators.

    Returns: the rules; the targets' qualified names; the lowerings.

    Raises:
        DslcError: E0909 for a name of none, and for a lowering that has no table.
    """
    from dslc.derive.lowered import lowerings_on, with_lowerings
    from dslc.errors import error
    from dslc.semantics.library import load_many

    rules = load_many(libraries)
    short = {name: {full for full, op in rules.operators.items() if name in {full, op.short}} for name in targets}
    if devices or not all(short.values()):
        # what an operator is called may also be how a lowering is
        rules = load_many([*libraries, "targets"])
    wanted: list[str] = []
    named: list[str] = []
    for name, found in short.items():
        calls = [full for full, one in rules.lowerings.items() if name in {full, one.syntax.name}]
        if not found and not calls:
            hint = "`--target matmul`, `--target conv`, `--target cublas_gemm`"
            raise error("E0909", f"no operator or lowering is named `{name}`", hint=hint)
        wanted.append(min(found) if found else calls[0])
        named += [] if found else calls[:1]
    on = {each for device in devices for each in {device, device.partition("_")[0]}}
    rules, lowered = with_lowerings(rules, dict.fromkeys((*named, *lowerings_on(rules, on))))
    for name in named:
        if name not in lowered:
            span = rules.lowerings[name].syntax.span
            raise error("E0909", f"the lowering `{name}` is not of one expression that a search could look for", span)
    return rules, tuple(dict.fromkeys(wanted)), lowered


def _is_other(program: Program, called: Called) -> bool:
    """Whether a program is another one than the call itself."""
    return not {(made.op, made.attrs, made.args) for made in program.calls} <= {(own.op, own.attrs, own.args) for own in called.calls}


def _record(rules: Rules, program: Program, called: Called, lowered: tuple[str, ...]) -> dict[str, Any]:
    from dslc.derive.lowered import unlowered
    from dslc.ir.graph import Graph
    from dslc.ir.text import program_text

    # what a lowering runs is written as what it computes
    graph = Graph(called.graph.inputs, (unlowered(rules, program.value, lowered),))
    return {
        "target": ", ".join(name.partition(".")[2] for name in program.targets),
        "steps": [str(step) for step in program.steps],
        "proved": True,
        "cost_ms": program.seconds * 1e3,
        "program": program_text(graph),
        "calls": [
            {
                "operator": node.op,
                "attributes": {name: _plain(value) for name, value in node.attrs},
                "shapes": [[str(size) if not isinstance(size, int) else size for size in arg.type.shape] for arg in node.args],
            }
            for node in program.calls
        ],
        "generated": [str(node.scope) for node in program.generated],
        "bytes": _bytes(program),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, bool | int | float | str) else str(value)


def _bytes(program: Program) -> int | None:
    """Bytes that the generated operators read and write."""
    total = 0
    for node in program.generated:
        for value in (*dict.fromkeys(node.args), *node.values):
            if not value.type.is_static:
                return None
            total += int(value.type.elements) * value.type.dtype.bytes
    return total


def _all_proved(
    rules: Rules, programs: Iterable[Program], called: Called, until: float, most: int | None
) -> tuple[list[Program], bool]:
    """The first programs that are proved, the cheapest first, and whether time was over before: what is not proved is not shown."""
    found: list[Program] = []
    cut = False
    for each in programs:
        left = until - time.monotonic()
        if len(found) == most or left <= -OVER:
            cut = len(found) != most
            break
        if _proved(rules, each, called, min(PROOF, max(3.0, left))):
            found.append(each)
    return sorted(found, key=lambda each: (each.seconds, len(each.steps))), cut


def _proved(rules: Rules, program: Program, called: Called, seconds: float) -> bool:
    """Whether the exact prover shows that the program equals the call for all inputs."""
    from dslc.prove.exact.answers import Equal
    from dslc.prove.exact.compare import compare
    from dslc.semantics.elaborate import expand

    left, right = expand(rules, (called.value,)), expand(rules, (program.value,))
    return isinstance(compare(rules, left, right, seconds=seconds), Equal)


def _print(records: list[dict[str, Any]], count: int, derived: Derived, missed: dict[str, str], seconds: float) -> None:
    for name, why in missed.items():
        click.echo(f"No program of {name}: {why}.")
    if not records and not missed:
        click.echo("No other program was found.")
    for number, each in enumerate(records, 1):
        status = "proved" if each["proved"] else "not proved"
        moved = "" if each["bytes"] is None else f", {each['bytes'] / 1e6:.2f} MB through generated operators"
        click.secho(f"{number}. {each['target']}: {each['cost_ms']:.4f} ms estimated, {status}{moved}", bold=True)
        click.echo("   " + (" > ".join(each["steps"]) or "no derivation: matched as it is"))
        for line in each["program"].splitlines()[2:]:
            click.echo("   " + line)
    cut = "" if derived.complete else "; the search was cut"
    click.echo(
        f"{count} programs, {derived.states} expressions, {derived.applications} applications, {seconds:.1f} s{cut}"
    )
