"""`dslc derive`: the programs that an expression can be computed by, and how each is derived."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dslc.cli.options import bind_option, budget_option, form_option, rules_option
from dslc.cli.outputs import writable
from dslc.deadline import Deadline
from dslc.reporting.data import Picture
from dslc.semantics.targets import RUNNING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dslc.derivation.calls import CallProgram
    from dslc.derivation.programs import PricedProgram
    from dslc.ir.dtype import TensorType
    from dslc.ir.graph import Graph
    from dslc.semantics.library import Rules


MOST = 10  #: programs that are shown
#: share of the budget for searching, by the clock; proofs have the rest of it at least, of this processor
SEARCHING = 0.6


@dataclass(frozen=True, slots=True)
class DerivedProgram:
    """A program that computes what a call does: `proved` for all inputs, or compared at random numbers, where no time was left.

    `target`: the operators of other names in it; `steps`: the derivations that lead to it; `cost_ms`: estimated milliseconds;
    `program`: its text as the definition of an operator; `calls`: its operators with attributes and shapes; `generated`: the
    equations of its generated operators; `bytes`: what these read and write, None where sizes are unknown.
    """

    target: str
    steps: tuple[str, ...]
    proved: bool
    cost_ms: float
    program: str
    calls: tuple[Mapping[str, Any], ...]
    generated: tuple[str, ...]
    bytes: int | None
    #: milliseconds as measured here, where that was asked for
    measured_ms: float | None = None
    #: how it is drawn
    picture: Picture = field(default_factory=Picture, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "picture"}

    @property
    def title(self) -> str:
        """`conv: 0.0512 ms estimated, proved, 1.20 MB through generated operators`."""
        moved = "" if self.bytes is None else f", {self.bytes / 1e6:.2f} MB through generated operators"
        known = "proved" if self.proved else "NOT PROVED in the time that there was (equal at random numbers)"
        price = (
            f"{self.cost_ms:.4f} ms estimated" if self.measured_ms is None else f"{self.measured_ms:.4f} ms measured"
        )
        return f"{self.target}: {price}, {known}{moved}"

    def __repr__(self) -> str:
        return f"<DerivedProgram {self.title}>"

    def __str__(self) -> str:
        lines = [" > ".join(self.steps) or "no derivation: matched as it is", *self.program.splitlines()[2:]]
        return "\n".join([self.title, *(f"   {line}" for line in lines)])


@dataclass(frozen=True, slots=True)
class DerivedPrograms:
    """What `dslc derive` finds.

    `programs`: the cheapest first, behind those that are proved some for whose proof no time was left; `found`: how many programs
    there were; `untried`: how many of these there was no time to prove; `undecided`: how many the prover gave up; `states`,
    `applications`: expressions that were looked at, and derivations that were applied; `complete`: whether nothing was cut;
    `missed`: why there is no program of a target; `notes`: what is wrong with the libraries.
    """

    programs: tuple[DerivedProgram, ...]
    found: int
    states: int
    applications: int
    seconds: float
    complete: bool
    #: whether the search itself was cut
    searched: bool
    missed: Mapping[str, str]
    notes: tuple[str, ...]
    untried: int = 0
    undecided: int = 0
    #: milliseconds of the call itself, where programs were measured
    call_ms: float | None = None

    @property
    def summary(self) -> str:
        cut = "" if self.searched else "; the search was cut"
        cut = f"; no time was left to prove {self.untried} programs{cut}" if self.untried else cut
        cut = cut if self.call_ms is None else f"; the call itself: {self.call_ms:.4f} ms measured{cut}"
        return f"{self.found} programs, {self.states} expressions, {self.applications} applications, {self.seconds:.1f} s{cut}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "programs": [one.to_dict() for one in self.programs], "found": self.found, "untried": self.untried,
            "undecided": self.undecided, "states": self.states, "applications": self.applications,
            "seconds": round(self.seconds, 3), "complete": self.complete, "missed": dict(self.missed), "notes": list(self.notes),
            "call_ms": self.call_ms,
        }  # fmt: skip

    def to_html(self, call: str = "") -> str:
        """A page of the programs, each with its graph; `call` is what they were derived of."""
        from dslc.reporting.others import page_of_programs

        return page_of_programs(call, self.to_dict(), [dataclasses.asdict(one.picture) for one in self.programs])

    def _repr_html_(self) -> str:
        from dslc.reporting.others import fragment_of_table

        rows = [(one.target, f"{one.cost_ms:.4g} ms", " > ".join(one.steps)) for one in self.programs]
        return fragment_of_table("Derived programs", ("operators", "estimated", "derived by"), rows, self.summary)

    def __repr__(self) -> str:
        return f"<DerivedPrograms: {self.summary}>"

    def __str__(self) -> str:
        lines = [f"No program of {name}: {why}." for name, why in self.missed.items()]
        lines += [] if self.programs or self.missed else ["No other program was found."]
        lines += [f"{number}. {each}" for number, each in enumerate(self.programs, 1)]
        return "\n".join([*lines, self.summary, *(f"note: {note}" for note in self.notes)])


@click.command()
@click.argument("call")
@rules_option("A library or file with derivations, beside EinNet's.")
@click.option("--no-default-rules", "alone", is_flag=True, help="Without EinNet's derivations.")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="OPERATOR",
    help="Only programs of this operator, or of this lowering.",
)
@click.option(
    "--on",
    "devices",
    multiple=True,
    type=click.Choice(RUNNING),
    help="With the lowerings of expressions on this device.",
)
@click.option("--node", metavar="NAME", help="CALL is a model: the node (or the result) of this name.")
@bind_option("The size of a symbolic dimension, or of an operator's type.")
@click.option("--max-depth", type=click.IntRange(0, 16), default=7, show_default=True, help="Derivations in a row.")
@click.option(
    "--intensity", type=float, default=4.0, show_default=True, help="Operations per element of a generated operator."
)
@budget_option("Time for search and proofs.", "35s", least=0.1)
@click.option(
    "--max-states", type=click.IntRange(min=1), metavar="N", help="Expressions to look at: no matter of time."
)
@click.option("--all", "every", is_flag=True, help="Every program, not the ten best.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.onnx",
              help="Write the first program, or that of --program, with its kernels.")  # fmt: skip
@click.option(
    "--program", "which", type=click.IntRange(min=1), default=1, show_default=True, help="The program that -o writes."
)
@click.option(
    "--measure", is_flag=True, help="Measure what is shown on this machine, and the call itself; the fastest first."
)
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Also write a page of the programs."
)
@form_option()
def command(
    call: str, libraries: tuple[str, ...], targets: tuple[str, ...], max_depth: int, intensity: float, budget: float, every: bool,
    output_format: str, node: str | None, binds: tuple[str, ...], max_states: int | None, devices: tuple[str, ...],
    alone: bool, html: Path | None, output: Path | None, which: int, measure: bool,
) -> None:  # fmt: skip
    """Derive programs for CALL, say "conv(X: f32[1, 512, 7, 7], K: f32[512, 512, 3, 3], pads=[1, 1, 1, 1])".

    CALL may also be FILE.rules::NAME, an operator at the types that it declares, or a model with --node NAME. A tensor is typed where
    it first occurs. Programs are proved equal to the call for all inputs; one that is not yet says so. Prices are estimates.
    """
    from dslc.cli.options import binding

    for other in (html, output):
        if other is not None:
            writable(other)
    found = derivations_of(
        call, libraries=libraries, alone=alone, targets=targets, devices=devices, node=node, bind=binding(binds), max_depth=max_depth,
        intensity=intensity, budget=budget, max_states=max_states, every=every, output=output, program=which, measure=measure,
    )  # fmt: skip
    if html is not None:
        from dslc.store import write_file

        write_file(html, found.to_html(call))
    if output_format == "json":
        from dslc.reporting.records import record_text

        click.echo(record_text("derive", found.to_dict()), nl=False)
        return
    titles = {f"{number}. {each.title}" for number, each in enumerate(found.programs, 1)}
    for line in str(found).splitlines():
        click.secho(line, bold=line in titles)


def derivations_of(
    call: str, *, libraries: Sequence[str] = (), alone: bool = False, targets: Sequence[str] = (), devices: Sequence[str] = (),
    node: str | None = None, bind: Mapping[str, int] | None = None, max_depth: int = 7, intensity: float = 4.0, budget: float = 35.0,
    max_states: int | None = None, every: bool = False, output: Path | None = None, program: int = 1, measure: bool = False,
) -> DerivedPrograms:  # fmt: skip
    """Derives programs for a call; `budget` in seconds, `alone` without EinNet's derivations, `every`: all programs, not the ten best.

    `measure`: prices are those of this machine; `output` gets the program of a number as a model, with its kernels.

    Raises:
        DslcError: for what is wrong with the call, the libraries or the targets; E0909 where there is no proved program to write.
    """
    from math import inf

    from dslc.derivation.kinds import kinds
    from dslc.derivation.lowerings import unlowered
    from dslc.derivation.programs import unlike
    from dslc.derivation.search import DerivationLimits, DerivationSearch
    from dslc.derivation.targets import targets_of
    from dslc.errors import error
    from dslc.ir.graph import Graph
    from dslc.prove.derived import judged
    from dslc.prove.garbage import rare_collections
    from dslc.semantics.elaborate import expand

    began, until = time.monotonic(), Deadline.after(budget)
    file, _, name = call.rpartition("::")
    own = [file] if file.endswith(".rules") else []
    rules, wanted, lowered = targeted(
        ["std", *(() if alone else ("einnet",)), *libraries, *own], tuple(targets), tuple(devices)
    )
    called = called_as(rules, call, node, bind or {})
    derivations = list(rules.derivations.values())
    if not derivations:
        raise error(
            "E0909", "these libraries have no derivations", hint="without --no-default-rules there are those of EinNet"
        )
    _in_bounds(rules, called, name if own else "", call)
    (value,) = expand(rules, (called.value,))
    limits = DerivationLimits(
        max_depth=max_depth, until=until.part(SEARCHING), intensity=intensity, max_states=max_states or inf
    )
    aims = targets_of(rules, [each.op for each in called.calls], [*wanted, *lowered])
    search = DerivationSearch(rules, derivations, limits, aims)
    with rare_collections():
        derived = search.run(value)
    programs = [
        each
        for each in derived.programs
        if _is_other(each, called) and (not wanted or {*wanted} & {c.op for c in each.calls})
    ]
    # of all those first that are no others with more to compute, in case that the time is over before all are proved
    different = list(kinds(rules, unlike(rules, programs, called.calls), called.calls))
    chosen = dict.fromkeys((*different, *programs)) if every else different
    left = max(until.left(), (1 - SEARCHING) * budget)
    known = judged(rules, chosen, called.graph, left, None if every else MOST)
    shown = [(each, True) for each in known.proved] + [(each, False) for each in known.waiting]
    # what a lowering runs is written as what it computes
    graphs = [Graph(called.graph.inputs, (unlowered(rules, each.value, lowered),)) for each, _ in shown]
    times: list[float | None] = [None] * len(shown)
    call_ms = _measured(rules, called.graph, called) if measure else None
    if measure:
        times = [_measured(rules, graph, called) for graph in graphs]
        spent = [inf if each is None else each for each in times]
        order = sorted(range(len(shown)), key=lambda k: (not shown[k][1], spent[k]))
        shown, graphs, times = [shown[k] for k in order], [graphs[k] for k in order], [times[k] for k in order]
    if output is not None:
        _write(
            rules, called, [graph for graph, (_, proved) in zip(graphs, shown, strict=True) if proved], program, output
        )
    found = {call.op for each in programs for call in each.calls}
    return DerivedPrograms(
        tuple(
            _program(rules, each, called, graph, proved, took)
            for (each, proved), graph, took in zip(shown, graphs, times, strict=True)
        ), len(programs), derived.states,
        derived.applications, time.monotonic() - began, derived.complete and not known.untried, derived.complete,
        {name: str(search.missed(name)) for name in sorted({*wanted} - found)}, tuple(_mistakes(rules, libraries)),
        known.untried, known.undecided, call_ms,
    )  # fmt: skip


def _measured(rules: Rules, graph: Graph, called: CallProgram) -> float | None:
    """Milliseconds of a program on this machine; None where its sizes are unknown or it does not run."""
    from dslc.cli.derive_model import milliseconds, model_of
    from dslc.errors import DslcError

    if not all(value.type.is_static for value in graph.inputs):
        return None
    try:
        return milliseconds(model_of(rules, graph, called.names), graph)
    except DslcError:
        return None


def _write(rules: Rules, called: CallProgram, graphs: Sequence[Graph], program: int, output: Path) -> None:
    from dslc.cli.derive_model import model_of
    from dslc.errors import error
    from dslc.onnx.save import save

    if len(graphs) < program:
        hint = "`--budget` gives more time, `--max-depth` and `--target` say what is looked for"
        raise error("E0909", f"there is no program {program} to write: {len(graphs)} were proved", hint=hint)
    save(model_of(rules, graphs[program - 1], called.names), output)


def _mistakes(rules: Rules, libraries: Sequence[str]) -> list[str]:
    """Mistakes in these libraries, in words: a derivation that has one does nothing, or nothing that it says."""
    from dslc.semantics.check import check
    from dslc.semantics.library import modules_of

    found = check(rules, modules_of(rules, libraries)) if libraries else []
    wrong = [f"{each.code} {each.message}" for each in found if each.severity == "error"]
    return [f"`dslc check` finds mistakes in these libraries: {'; '.join(wrong)}"] if wrong else []


def called_as(
    rules: Rules, call: str, node: str | None, binds: Mapping[str, int], known: Mapping[str, TensorType] | None = None,
    several: bool = False,
) -> CallProgram:  # fmt: skip
    """A call as it is written, an operator of a file (`FILE.rules::NAME`), or a node of a model.

    `known`, `several`: as for `read_call`.
    """
    from dslc.derivation.calls import call_of, read_call, region_of
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


def _in_bounds(rules: Rules, called: CallProgram, operator: str, call: str) -> None:
    """Raises DslcError where an operator of the user's file may read outside its tensors, or one has more iterators than are taken."""
    from dslc.derivation.steps import ITERATORS as STEPS_ITERATORS
    from dslc.errors import DslcError, SourceText, Span, error
    from dslc.inspection.bounds import check_operator

    found = [
        problem for name in sorted({call.op for call in called.calls}) if operator in {name, rules.operators[name].short}
        for problem in check_operator(rules, rules.operators[name]).diagnostics()
    ]  # fmt: skip
    if found:
        raise DslcError(found)
    rank = max(len(value.type.shape) for node in called.graph.nodes() for value in (*node.args, *node.values))
    if rank > STEPS_ITERATORS:
        large = [
            name
            for name, value in zip(called.names, called.graph.inputs, strict=True)
            if len(value.type.shape) > STEPS_ITERATORS
        ]
        # a type of so many sizes is not shown: the place where it begins is
        start = max(0, call.find(large[0])) if large else 0
        message = f"a tensor has {rank} dimensions: derivations take {STEPS_ITERATORS} iterators at most"
        raise error("E0911", message, Span(SourceText("call", call), start, start))


def targeted(
    libraries: list[str], targets: tuple[str, ...], devices: tuple[str, ...] = ()
) -> tuple[Rules, tuple[str, ...], tuple[str, ...]]:
    """Libraries with the lowerings of some devices, and those that a target names, as operators.

    Returns: the rules; the targets' qualified names; the lowerings.

    Raises:
        DslcError: E0909 for a name of none, and for a lowering that has no table.
    """
    from dslc.derivation.lowerings import lowerings_on, with_lowerings
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


def _is_other(program: PricedProgram, called: CallProgram) -> bool:
    """Whether a program is another one than the call itself."""
    return not {(made.op, made.attrs, made.args) for made in program.calls} <= {
        (own.op, own.attrs, own.args) for own in called.calls
    }


def _program(
    rules: Rules, program: PricedProgram, called: CallProgram, graph: Graph, proved: bool, spent: float | None
) -> DerivedProgram:
    from dslc.ir.text import program_text
    from dslc.reporting.programs import picture_of

    calls = tuple(
        {
            "operator": node.op,
            "attributes": {name: _plain(value) for name, value in node.attrs},
            "shapes": [
                [str(size) if not isinstance(size, int) else size for size in arg.type.shape] for arg in node.args
            ],
        }
        for node in program.calls
    )
    return DerivedProgram(
        ", ".join(name.partition(".")[2] for name in program.targets), tuple(str(step) for step in program.steps), proved,
        program.seconds * 1e3, program_text(graph), calls, tuple(str(node.scope) for node in program.generated), _bytes(program),
        spent, picture_of(program.value),
    )  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, bool | int | float | str) else str(value)


def _bytes(program: PricedProgram) -> int | None:
    """Bytes that the generated operators read and write."""
    total = 0
    for node in program.generated:
        for value in (*dict.fromkeys(node.args), *node.values):
            if not value.type.is_static:
                return None
            total += int(value.type.elements) * value.type.dtype.bytes
    return total
