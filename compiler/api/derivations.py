"""Programs that a call can be computed by, how each is derived, and the reason why one has no program of an operator."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from dslc.api.calls import called_as, file_of_call, plain_calls
from dslc.api.models import libraries_of, names_of, path_of, seconds_of, sizes_of, whole, wrong
from dslc.deadline import Deadline
from dslc.derivation.calls import CallProgram
from dslc.derivation.kinds import Kinds
from dslc.derivation.lowerings import lowerings_on, unlowered, with_lowerings
from dslc.derivation.programs import estimated, unlike
from dslc.derivation.search import DerivationLimits, DerivationSearch
from dslc.derivation.solver import Miss, MissReason, nearer
from dslc.derivation.steps import ITERATORS as STEPS_ITERATORS
from dslc.derivation.tables import patterns_of
from dslc.derivation.targets import missed, targets_of
from dslc.errors import DslcError, SourceText, Span, error
from dslc.fuse.groups import Neighbours
from dslc.fuse.kernels import Cyclic, folded
from dslc.inspection.bounds import check_operator
from dslc.inspection.names import axes_of
from dslc.interpret.draws import elements
from dslc.ir.graph import Graph, Scope, ScopeNode, nodes_of
from dslc.ir.scalar import Reduce, walk
from dslc.ir.text import program_text
from dslc.onnx.exporter import node_model
from dslc.onnx.save import save
from dslc.prove.derived_programs import Judged, judged
from dslc.prove.garbage import gc_paused
from dslc.records import record
from dslc.reporting.data import Picture
from dslc.reporting.pages import fragment_of_table, page_of_programs
from dslc.reporting.programs import picture_of
from dslc.search.candidates.export import as_kernels
from dslc.search.options.types import PathLike
from dslc.semantics.check import check
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules, load_many, modules_of
from dslc.semantics.targets import RUNNING
from dslc.sessions import session

if TYPE_CHECKING:
    from onnx import ModelProto

MOST = 10  #: programs that are shown
#: share of the budget for searching, by the clock; proofs have the rest of it at least, of this processor
SEARCHING = 0.6
OPSET = 21  #: of the models
RUNS = 15  #: timed runs of a program, after one that is not
SECONDS = 1.0  #: seconds after which no further run is begun
ASKED = 200  #: expressions that are asked why they are no call


@record
class DerivedProgram:
    """A program that computes what a call does: `proved` for all inputs, or compared at random numbers, where no time was left.

    `target`: the operators of other names in it; `steps`: the derivations that lead to it; `cost_ms`: estimated milliseconds;
    `program`: its text as the definition of an operator; `calls`: its operators with attributes and shapes; `generated`: the
    equations of its generated operators; `bytes`: read and written by these, None where sizes are unknown.
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
        found = asdict(self)
        del found["picture"]
        return found

    @property
    def title(self) -> str:
        """`conv: 0.0512 ms estimated, proved, 1.20 MB through generated operators`."""
        moved = "" if self.bytes is None else f", {self.bytes / 1e6:.2f} MB through generated operators"
        known = "proved" if self.proved else "NOT PROVED in the time that there was (equal at random numbers)"
        took, how = (self.cost_ms, "estimated") if self.measured_ms is None else (self.measured_ms, "measured")
        return f"{self.target}: {took:.4f} ms {how}, {known}{moved}"

    def __repr__(self) -> str:
        return f"<DerivedProgram {self.title}>"

    def __str__(self) -> str:
        lines = [" > ".join(self.steps) or "no derivation: matched as it is", *self.program.splitlines()[2:]]
        return "\n".join([self.title, *(f"   {line}" for line in lines)])


@record
class DerivedPrograms:
    """Programs that `dslc derive` finds.

    `programs`: the cheapest first, behind those that are proved some for whose proof no time was left; `found`: how many programs
    there were; `untried`: how many of these there was no time to prove; `undecided`: how many the prover left open; `states`,
    `applications`: expressions that were looked at, and derivations that were applied; `complete`: whether nothing was cut;
    `missed`: why there is no program of a target; `notes`: what is wrong with the libraries; `call_ms`: milliseconds of the call
    itself, where programs were measured; `searched`: whether the search itself was not cut.
    """

    programs: tuple[DerivedProgram, ...]
    found: int
    untried: int
    undecided: int
    states: int
    applications: int
    seconds: float
    complete: bool
    missed: Mapping[str, str]
    notes: tuple[str, ...]
    call_ms: float | None
    searched: bool
    #: milliseconds of the call itself by the estimate that its programs have
    call_cost_ms: float

    @property
    def summary(self) -> str:
        cut = "" if self.searched else "; the search was cut"
        cut = f"; no time was left to prove {self.untried} programs{cut}" if self.untried else cut
        cut = cut if self.call_ms is None else f"; the call itself: {self.call_ms:.4f} ms measured{cut}"
        return f"{self.found} programs, {self.states} expressions, {self.applications} applications, {self.seconds:.1f} s{cut}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        found = asdict(self) | {"programs": [one.to_dict() for one in self.programs], "seconds": round(self.seconds, 3)}
        del found["searched"]
        return found

    def to_html(self, call: str = "") -> str:
        """A page of the programs, each with its graph; `call` is what they were derived of."""
        return page_of_programs(call, self.to_dict(), [asdict(one.picture) for one in self.programs])

    def _repr_html_(self) -> str:
        rows = [(one.target, f"{one.cost_ms:.4g} ms", " > ".join(one.steps)) for one in self.programs]
        return fragment_of_table("Derived programs", ("operators", "estimated", "derived by"), rows, self.summary)

    def __repr__(self) -> str:
        return f"<DerivedPrograms: {self.summary}>"

    def __str__(self) -> str:
        lines = [f"No program of {name}: {why}." for name, why in self.missed.items()]
        lines += [] if self.programs or self.missed else ["No other program was found."]
        lines += [f"{number}. {each}" for number, each in enumerate(self.programs, 1)]
        return "\n".join([*lines, self.summary, *(f"note: {note}" for note in self.notes)])


def derive(
    call: str,
    *,
    rules: PathLike | Sequence[PathLike] = (),
    default_rules: bool = True,
    targets: str | Sequence[str] = (),
    on: str | Sequence[str] = (),
    node: str | None = None,
    bind: Mapping[str, int] | None = None,
    max_depth: int = 7,
    intensity: float = 4.0,
    budget: float | str = "35s",
    max_states: int | None = None,
    every: bool = False,
    output: PathLike | None = None,
    program: int = 1,
    measure: bool = False,
) -> DerivedPrograms:
    """Programs that a call can be computed by, each with its derivation and a proof that it is equal for all inputs.

    Args:
        call: `"conv(X: f32[1, 8, 7, 7], K: f32[8, 8, 3, 3])"`, `FILE.rules::NAME`, or a model with `node`.
        rules: libraries with derivations beside EinNet's.
        default_rules: whether EinNet's are used.
        targets: only programs of these operators, or lowerings.
        on: with the lowerings of expressions on these devices.
        node: where `call` is a model, the name of a node or its result.
        bind: sizes of symbolic dimensions by name.
        max_depth: derivations in a row.
        intensity: operations per element of a generated operator.
        budget: for search and proofs; seconds, or a text.
        max_states: expressions to look at, however long that takes.
        every: all programs, not the ten best.
        output: a file that the program of the number `program` is written to, as a model with its kernels.
        measure: whether programs and the call are measured on this machine; then the fastest come first.

    Returns:
        `.programs`, the cheapest first by estimated milliseconds; `.missed` says why a target has none.

    Raises:
        DslcError: E0909 for unknown names and for no program to write, E0911 and others for wrong calls.

    Example:
        >>> import dslc
        >>> found = dslc.derive("matmul(A: f32[4, 5], B: f32[5, 6])", budget=5, max_states=50, max_depth=2)
        >>> all(one.proved for one in found.programs)
        True
    """
    began, seconds, given, devices = time.monotonic(), seconds_of(budget), libraries_of(rules), names_of(on, "a device")
    until = Deadline.after(seconds)
    for one in devices:
        if one not in RUNNING:
            raise wrong(f"{one!r} is none of {', '.join(RUNNING)}")
    place = None if output is None else path_of(output, "an output")
    number = whole(program, "number of a program", 1)
    libraries = ["std", *(["einnet"] if default_rules else []), *given]
    known, wanted, lowered = targeted(libraries, call, names_of(targets, "a target"), devices)
    called = called_as(known, call, node, sizes_of(bind))
    if not known.derivations:
        hint = "without --no-default-rules there are those of EinNet"
        raise error("E0909", "these libraries have no derivations", hint=hint)
    _in_bounds(known, called, call)
    limits = DerivationLimits(
        max_depth=whole(max_depth, "depth"), until=until.part(SEARCHING), intensity=float(intensity),
        max_states=inf if max_states is None else whole(max_states, "number of expressions", 1),
    )  # fmt: skip
    aims = targets_of(known, [each.op for each in called.calls], [*wanted, *lowered])
    search = DerivationSearch(known, list(known.derivations.values()), limits, aims)
    with gc_paused():
        derived = search.run(*expand(known, (called.value,)))
    own = {(node.op, node.attrs, node.args) for node in called.calls}
    programs = [
        each for each in derived.programs
        if not {(made.op, made.attrs, made.args) for made in each.calls} <= own
        and (not wanted or {*wanted} & {made.op for made in each.calls})
    ]  # fmt: skip
    # of all those first that are no others with more to compute, in case that the time is over before all are proved
    different = list(Kinds(known, called.calls).first(unlike(known, programs, called.calls)))
    chosen = dict.fromkeys((*different, *programs)) if every else different
    left = max(until.left(), (1 - SEARCHING) * seconds)
    verdicts = judged(known, chosen, called.graph, left, None if every else MOST)
    shown, graphs = _described(known, called, verdicts, lowered, measure)
    if place:
        if len(graphs) < number:
            hint = "`--budget` gives more time, `--max-depth` and `--target` say what is looked for"
            raise error("E0909", f"there is no program {number} to write: {len(graphs)} were proved", hint=hint)
        save(model_of(known, graphs[number - 1], called.names), place)
    found = {made.op for each in programs for made in each.calls}
    return DerivedPrograms(
        shown, len(programs), verdicts.untried, verdicts.undecided, derived.states, derived.applications,
        time.monotonic() - began, derived.complete and not verdicts.untried,
        {name: str(search.missed(name)) for name in sorted({*wanted} - found)}, tuple(_mistakes(known, given)),
        _measured(known, called.graph, called) if measure else None, derived.complete,
        sum(map(estimated(known), called.graph.nodes())) * 1e3,
    )  # fmt: skip


def _described(
    rules: Rules, called: CallProgram, verdicts: Judged, lowered: Sequence[str], measure: bool
) -> tuple[tuple[DerivedProgram, ...], list[Graph]]:
    """The programs that are shown, the fastest first where they are measured, and the graphs of the proved ones."""
    shown = []
    axes = axes_of(rules, called.graph.outputs)
    for proved, program in [(True, one) for one in verdicts.proved] + [(False, one) for one in verdicts.waiting]:
        # what a lowering runs is written as what it computes
        graph = Graph(called.graph.inputs, (unlowered(rules, program.value, lowered),))
        along = axes_of(rules, graph.outputs) | axes
        along[graph.outputs[0]] = axes.get(called.value, ())
        moved = [
            value for node in program.generated for value in (*dict.fromkeys(node.args), *node.values)
        ]  # fmt: skip
        known = all(value.type.is_static for value in moved)
        one = DerivedProgram(
            ", ".join(name.partition(".")[2] for name in program.targets), tuple(str(step) for step in program.steps), proved,
            program.seconds * 1e3, program_text(graph, inputs=called.names, axes=along), plain_calls(program.calls),
            tuple(str(node.scope) for node in program.generated),
            sum(int(value.type.elements) * value.type.dtype.bytes for value in moved) if known else None,
            _measured(rules, graph, called) if measure else None, picture_of(program.value),
        )  # fmt: skip
        shown.append((one, graph))
    if measure:
        shown.sort(key=lambda each: (not each[0].proved, inf if each[0].measured_ms is None else each[0].measured_ms))
    return tuple(one for one, _ in shown), [graph for one, graph in shown if one.proved]


def _measured(rules: Rules, graph: Graph, called: CallProgram) -> float | None:
    """The median milliseconds of a program on this machine; None where its sizes are unknown or it does not run."""
    if not all(value.type.is_static for value in graph.inputs):
        return None
    drawn = np.random.default_rng(0)
    try:
        model = model_of(rules, graph, called.names)
        running = session(model)
        feeds = {
            name.name: elements(value.type, "positions", drawn, most=1)
            for name, value in zip(model.graph.input, graph.inputs, strict=True)
        }
        running.run(None, feeds)
    except DslcError:
        return None
    found: list[float] = []
    until = Deadline.after(SECONDS)
    while len(found) < RUNS and not (found and until.over):
        began = time.perf_counter()
        running.run(None, feeds)
        found.append(time.perf_counter() - began)
    return 1e3 * median(found)


def model_of(rules: Rules, program: Graph, names: Sequence[str]) -> ModelProto:
    """A program as a model: every connected group of its scopes is a kernel, a function that each runtime runs too.

    Args:
        names: of the inputs; the result is `Y`, or `Y_` where an input has that name.

    Raises:
        DslcError: E0814 for what has no ONNX form.
    """
    around = Neighbours(program)
    scopes = [node for node in around.nodes if isinstance(node, ScopeNode) and not node.constant]
    try:
        whole = folded(program, [around.group(part) for part in around.connected(scopes)])
    except Cyclic:
        # a group that needs what needs the group: each scope by itself
        whole = folded(program, [around.group([node]) for node in scopes])
    outputs = as_kernels(rules, whole.outputs, OPSET)
    model, own = node_model(outputs, rules, OPSET, inputs=program.inputs, scopes=True)
    result = "Y_" if "Y" in names else "Y"
    renamed = {**dict(zip(own, names, strict=True)), model.graph.output[0].name: result}
    for node in model.graph.node:
        for names_of_node in (node.input, node.output):
            names_of_node[:] = [
                renamed.get(name, f"v_{name}" if name in renamed.values() else name) for name in names_of_node
            ]
    for value in (*model.graph.input, *model.graph.output):
        value.name = renamed[value.name]
    for tensor in model.graph.initializer:
        tensor.name = f"v_{tensor.name}" if tensor.name in renamed.values() else tensor.name
    return model


def _mistakes(rules: Rules, libraries: Sequence[str]) -> list[str]:
    """Mistakes in these libraries, in words: a derivation that has one does nothing, or nothing that it says."""
    found = check(rules, modules_of(rules, libraries)) if libraries else []
    wrong = [f"{each.code} {each.message}" for each in found if each.severity == "error"]
    return [f"`dslc check` finds mistakes in these libraries: {'; '.join(wrong)}"] if wrong else []


def _in_bounds(rules: Rules, called: CallProgram, call: str) -> None:
    """Raises DslcError where an operator of the user's file may read outside its tensors, or one has more iterators than are taken."""
    file, _, operator = call.rpartition("::")
    found = [
        problem for name in sorted({call.op for call in called.calls}) if file and operator in {name, rules.operators[name].short}
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
    libraries: Sequence[str], call: str, targets: Sequence[str], devices: Sequence[str] = ()
) -> tuple[Rules, tuple[str, ...], tuple[str, ...]]:
    """Libraries, and the file of a call, with the lowerings of some devices, and those that a target names, as operators.

    Returns: the rules; the targets' qualified names; the lowerings.

    Raises:
        DslcError: E0909 for a name of none, and for a lowering that has no table.
    """
    libraries = [*libraries, *file_of_call(call)]
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


def misses(
    call: str, targets: Sequence[str], libraries: Sequence[str], sizes: Mapping[str, int], node: str | None, depth: int,
    budget: float,
) -> Iterator[str]:  # fmt: skip
    """The reason why a call is no program of each target, in lines; by the expression that came nearest.

    Raises:
        DslcError: an unknown name, or a call that cannot be read.
    """
    rules, wanted, _ = targeted(["std", "einnet", *libraries], call, targets)
    called = called_as(rules, call, node, sizes)
    for name in wanted:
        short = name.rpartition(".")[2]
        patterns = patterns_of(rules, name)
        if not patterns:
            yield f"{short}: {Miss(MissReason.NO_TABLE)}"
            continue
        limits = DerivationLimits(max_depth=depth, until=Deadline.after(budget))
        search = DerivationSearch(rules, list(rules.derivations.values()), limits, (name,))
        with gc_paused():
            derived = search.run(*expand(rules, (called.value,)))
        made = min(derived.programs, key=lambda each: len(each.steps), default=None)
        if made:
            how = f"after {' > '.join(map(str, made.steps))}" if made.steps else "as it stands"
            yield f"{short}: it is one {how}; `dslc derive --target {short}` prints the program"
            continue
        why, scope = _nearest(rules, search, name)
        cut = "" if derived.complete else ", and more is to be looked at: a larger --max-depth or --budget"
        yield f"{short}: {why}"
        if scope:
            yield f"  it computes: {max(patterns, key=lambda each: len(each.windows)).scope}"
            yield f"  of {derived.states} expressions this came nearest{cut}: {scope}"


def _nearest(rules: Rules, search: DerivationSearch, name: str) -> tuple[Miss, Scope | None]:
    """The expression that came nearest to a call of an operator: the reason why it is none, and its scope."""
    found: Miss | None = None
    scope: Scope | None = None
    scopes = [node for state in search.seen[:ASKED] for node in nodes_of([state]) if isinstance(node, ScopeNode)]
    sums = [node for node in scopes if any(isinstance(part, Reduce) for part in walk(node.scope.body))]
    for node in dict.fromkeys(sums or scopes):
        why = missed(rules, node.values[0], name) or Miss(MissReason.INTENSITY)
        if not found or nearer(found, why) is not found:
            found, scope = why, node.scope
    return found or Miss(MissReason.NO_PRODUCT), scope
