"""Kernels on trial: generated in their variants, built in one library, and measured against the nodes that they replace."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf
from pathlib import Path

import onnx

from dslc.codegen.generate import generate, variants
from dslc.codegen.host.background import BackgroundCompiler
from dslc.codegen.host.compiler import BuildReason, NotBuilt, first_error
from dslc.codegen.host.library import Library, build
from dslc.codegen.limits import TooLong, within
from dslc.codegen.text import KernelText, NotGenerated, Variant
from dslc.cost.compare import Comparison, Feeds, Reference, compare, meaning, ran, steady
from dslc.cost.inputs import special_inputs
from dslc.cost.process import ModelFile, WorkerFailed
from dslc.deadline import FOREVER, Deadline, TimeUp
from dslc.errors import DslcError
from dslc.fuse.kernel_checks import at_other_sizes, edges, strange, wrong
from dslc.fuse.templates import Templates, Written
from dslc.fuse.timings import ProgramTimer, Subject
from dslc.ir.graph import Graph, Input
from dslc.match.forms import generated, stated_error, tells_nonfinite, ways
from dslc.onnx.context import bind_graph
from dslc.onnx.functions import Function
from dslc.onnx.inputs import draw, input_specs
from dslc.records import record
from dslc.semantics.env import EvalError, Mismatch

VARIANTS = 8  #: variants of a kernel that are built, at most
HOPELESS = 3.0  #: a kernel that is so many times slower than its nodes in its first variant gets no second one
LOST = 6.0  #: a kernel that is so many times slower than its nodes in its first run is run once
MEASURED_ONCE = 2.0  #: a kernel that is so many times faster than its nodes is measured once
MARGIN = 1.05  #: how many times as fast as its nodes a kernel must be
COMPILING = 0.6  #: seconds without which no compiler is called
GENERATING = 0.25  #: share of the time left that generating one kernel may take
GENERATING_SECONDS = 20.0  #: seconds that generating one kernel may take, at most
CHECKED = 0.5  #: share of the time left after the first variants that is kept for checking them while others are tried
WRITING = 0.3  #: share of the time left that the texts of many kernels may take
BUILDING = 0.5  #: share of the time left that compiling many kernels may take
KEPT_FOR_BUILDING = 2.0  #: so many times what the compiler took for each of some kernels is kept for all that are used
BATCH = 4  #: texts that are compiled together: what takes too long is lost together
EDGE = 2.0**-4  #: part of the largest element by which results may be off where arguments are at the ends of their type
#: elements of an argument up to which a kernel is compared at a size other than that at which it was measured
ELEMENTS = 1 << 22


class WhyUnused(Enum):
    """Reasons for not using a kernel; what is decided depends on this, never on the words of a message."""

    NOT_GENERATED = "no kernel is generated for it"
    NOT_WRITTEN = "ONNX has no words for its nodes"
    FAULT = "the generator failed"
    NOT_BUILT = "its kernel does not compile"
    NOT_RUN = "its kernel, or its nodes, could not be run"
    DIFFERS = "its kernel gives other numbers than its nodes"
    SLOWER = "its kernel is no faster than its nodes"
    LATE = "there was no time to try it"


@record
class Dropped:
    """A program without a kernel, with the reason and its details.

    `nodes` are the seconds of its nodes by themselves, where they are known.
    """

    program: Graph
    why: WhyUnused
    detail: str = ""
    nodes: float = inf


@record
class Generated:
    """A variant of a kernel, and its text; or the text that the template of a lowering made."""

    variant: Variant | None
    text: KernelText
    lowering: str = ""


@record
class TunedKernel:
    """A kernel that was built and measured.

    `name` is that of its operator, `variant` the best one; `nodes` and `kernel` are seconds of each by itself; `lowering` is the one
    whose template wrote it, where there is no variant.
    """

    program: Graph
    name: str
    variant: Variant | None
    text: KernelText
    nodes: float
    kernel: float
    variants: int
    lowering: str = ""
    #: how far its results were from those of its nodes, relative to the largest element
    error: float = 0.0

    @property
    def ratio(self) -> float:
        return self.nodes / self.kernel


#: what became of programs
Tried = dict[Graph, TunedKernel | Dropped]
#: some texts of each of several kernels
Texts = Mapping[Subject, Sequence[Generated]]


@dataclass(slots=True)
class Autotuner(ProgramTimer):
    """Tries programs on one target.

    Args:
        folder: of dslc's caches.
        until: when building and measuring ends.
        templates: of lowerings, whose kernels are tried beside those that are generated.
        strict: whether infinities and NaN must be where the nodes have them.
    """

    folder: str | Path | None = None
    until: Deadline = FOREVER
    templates: Templates | None = None
    strict: bool = False
    #: seconds that the compiler took for a kernel, where one was compiled
    _pace: float = 0.0
    #: kernels that were faster than their nodes so far
    _faster: set[Subject] = field(default_factory=set)
    #: kernels whose first variant is known, and no other one
    _waiting: dict[Subject, TunedKernel] = field(default_factory=dict)
    #: texts of their other variants, as far as these are compiled ahead
    _further: dict[Subject, list[Generated]] = field(default_factory=dict)
    #: what was built, by the text
    _libraries: dict[KernelText, Library] = field(default_factory=dict)

    def tried(self, subjects: Iterable[Subject], brief: bool = False) -> Tried:
        """Build and measure each program.

        Programs that were not tried for want of time are dropped as LATE; `brief`: in its first variant only, which says whether there
        is anything to gain.
        """
        out: Tried = {}
        left, first = list(subjects), dict[Subject, TunedKernel]()
        while left:
            # what was measured is checked before anything else is compiled: it is there, whatever the others take
            batch, left = (left[:BATCH], left[BATCH:]) if brief else (left, [])
            first = self._measured(self._all_texts(batch, slice(0, 1), out), out)
            self._waiting.update((subject, found) for subject, found in first.items() if found.ratio > 1 / HOPELESS)
            if brief:
                out |= self._all_concluded(first)
        return out if brief else out | self._all_concluded({**first, **self._better()})

    def others(self) -> Tried:
        """Measure further variants of programs that were tried in their first one only; those that are faster."""
        return self._all_concluded(self._better())

    def _all_concluded(self, found: Mapping[Subject, TunedKernel]) -> Tried:
        return {subject.program: self._concluded(subject, one) for subject, one in found.items()}

    def prepare(self, ahead: BackgroundCompiler) -> None:
        """Compile in the background what `others` will try."""
        self._further = self._other_texts(self._waiting)
        ahead.add(one.text for own in self._further.values() for one in own)

    def _other_texts(self, subjects: Iterable[Subject]) -> dict[Subject, list[Generated]]:
        found = self._all_texts(subjects, slice(1, VARIANTS), {})
        return {subject: own for subject, own in found.items() if own}

    def _better(self) -> dict[Subject, TunedKernel]:
        """Faster variants than those that are known, where others are still to be tried and there is time for it."""
        if not self._waiting or self.until.left() * (1 - CHECKED) <= COMPILING:
            return {}
        best, self._waiting = self._waiting, {}
        known, self._further = self._further, {}
        more = known | self._other_texts([subject for subject in best if subject not in known])
        # what is known so far is still to be checked
        found = self._measured(more, {}, CHECKED * self.until.left()) if more else {}
        return {subject: one for subject, one in found.items() if one.kernel < best[subject].kernel}

    def _concluded(self, subject: Subject, found: TunedKernel) -> TunedKernel | Dropped:
        """A variant that is faster than its nodes and gives the same, or why there is no kernel."""
        if found.ratio < MARGIN:
            detail = f"{found.kernel * 1e3:.4g} ms, its nodes {found.nodes * 1e3:.4g} ms"
            return Dropped(subject.program, WhyUnused.SLOWER, detail, found.nodes)
        checked = self._checked(subject, found)
        if isinstance(checked, Dropped) and checked.why is WhyUnused.DIFFERS:
            return self._rounded(subject, found) or checked
        return checked

    def best(self, subjects: Iterable[Subject]) -> dict[Subject, TunedKernel]:
        """The fastest variant of each kernel, whatever its nodes take; without those that are not generated, built or run."""
        return self._measured(self._all_texts(subjects, slice(0, VARIANTS), {}), {})

    def _rounded(self, subject: Subject, found: TunedKernel) -> TunedKernel | None:
        """The variant in which every product is rounded, as the runtime's operators do; None where that is no better."""
        if not found.variant:
            return None
        variant = replace(found.variant, contract=False)
        try:
            text = self._in_time(
                lambda group: [Generated(variant, self._text(subject, group, variant))], subject.program
            )
        except _Out:
            return None
        best = self._measured({subject: text}, {}).get(subject)
        if not best or best.ratio < MARGIN:
            return None
        checked = self._checked(subject, best)
        return checked if isinstance(checked, TunedKernel) else None

    def compiled_in(self, seconds: float) -> int:
        """Estimate how many kernels compile in a time, one at least."""
        return max(1, int(seconds / self._pace)) if self._pace and seconds < inf else sys.maxsize

    def needed(self) -> float:
        """Seconds for one library of what was faster so far, as far as is known what the compiler takes."""
        return KEPT_FOR_BUILDING * self._pace * len(self._faster)

    def library(self, found: Iterable[TunedKernel], seconds: float = inf) -> Library | None:
        """The kernels in one library, by the names of their operators; None where it is not built in that time."""
        try:
            return self._build({one.name: one.text for one in found}, seconds)
        except NotBuilt:
            return None

    def _build(self, texts: Sequence[KernelText] | Mapping[str, KernelText], seconds: float) -> Library:
        """Some kernels in one library. Raises NotBuilt."""
        return build(texts, self.folder, seconds=min(60.0, max(COMPILING, seconds)), processor=self.processor)

    def _all_texts(self, subjects: Iterable[Subject], which: slice, out: Tried) -> dict[Subject, list[Generated]]:
        """Some variants of each; what has none is noted as dropped, as is what there is no time for."""
        found: dict[Subject, list[Generated]] = {}
        writing = self.until.part(WRITING)
        for subject in subjects:
            try:
                if writing.over:
                    raise _Out(WhyUnused.LATE)
                found[subject] = self._texts(subject, which)
            except _Out as reason:
                reason.note(out, [subject])
        return found

    def _texts(self, subject: Subject, which: slice) -> list[Generated]:
        """Some variants of a kernel, the most promising first."""
        written = self._written(subject) if not which.start else []
        try:
            found = self._in_time(lambda group: self._generated(subject, group, which), subject.program)
        except _Out as reason:
            if not written or reason.why is WhyUnused.LATE:
                raise
            found = []
        return list({one.text.name: one for one in reversed([*found, *written])}.values())[::-1]

    def _written(self, subject: Subject) -> list[Generated]:
        """The kernels that templates write, as far as they compile and give what the program means."""
        if not self.templates:
            return []
        try:
            function = self.function(subject.program)
        except DslcError:
            return []
        return [
            Generated(None, one.text, one.lowering)
            for one in self.templates.texts(function.group)
            if self._sound(subject, one, function)
        ]

    def _sound(self, subject: Subject, one: Written[KernelText], function: Function) -> bool:
        """Return whether a kernel that a library wrote computes its program; a note says why not."""
        assert self.templates is not None
        try:
            library = self._build([one.text], self.until.left())
            problem = wrong(
                self.rules, function.group, one.text, library, self.measurer.target.threads, self.opset, self.until
            )
        except NotBuilt as reason:
            detail = first_error(reason.detail)
            problem = f"{reason.reason.value}: {detail}" if detail else reason.reason.value
        except TimeUp:
            return False
        if not problem:
            whole = self._checked(
                subject, TunedKernel(subject.program, function.name, None, one.text, inf, inf, 1, one.lowering)
            )
            if isinstance(whole, TunedKernel):
                return True
            if whole.why is WhyUnused.LATE:
                return False
            problem = f"{whole.why.value}: {whole.detail}"
        self.templates.left_out(one.lowering, problem)
        return False

    def _in_time(self, generated: Callable[[Graph], list[Generated]], program: Graph) -> list[Generated]:
        """Generate kernels of a program's group within the time."""
        try:
            group = self.function(program).group
        except DslcError as problem:
            raise _Out(WhyUnused.NOT_WRITTEN, str(problem)) from None
        try:
            return within(min(GENERATING_SECONDS, GENERATING * self.until.left()), lambda: generated(group))
        except TooLong as problem:
            raise _Out(WhyUnused.LATE, str(problem)) from None
        except NotGenerated as problem:
            raise _Out(WhyUnused.NOT_GENERATED, str(problem)) from None
        except Exception as problem:
            # whatever it is, the nodes are there
            raise _Out(WhyUnused.FAULT, f"{type(problem).__name__}: {problem}") from problem

    def _generated(self, subject: Subject, group: Graph, which: slice) -> list[Generated]:
        if not subject.form:
            every = ways(self.rules, group, self.strict, self.processor)
        else:
            form = subject.form.over(group)
            every = [(form, replace(one, form=subject.form.name)) for one in variants(self.rules, form, self.processor)]
        return [Generated(variant, generate(self.rules, graph, variant)) for graph, variant in every[which]]

    def _text(self, subject: Subject, group: Graph, variant: Variant) -> KernelText:
        form = subject.form
        return generate(self.rules, form.over(group), variant) if form else generated(self.rules, group, variant)

    def _measured(self, texts: Texts, out: Tried, keep: float = 0.0) -> dict[Subject, TunedKernel]:
        """The best of some variants of each; what does not get that far, until so many seconds are left, is noted as dropped."""
        found: dict[Subject, TunedKernel] = {}
        batch: dict[Subject, Sequence[Generated]] = {}
        for subject, own in texts.items():
            batch[subject] = own
            if sum(map(len, batch.values())) >= BATCH:
                found.update(self._batch(batch, out, keep))
                batch = {}
        return {**found, **(self._batch(batch, out, keep) if batch else {})}

    def _batch(self, texts: Texts, out: Tried, keep: float) -> dict[Subject, TunedKernel]:
        """The same for those that are compiled together."""
        found: dict[Subject, TunedKernel] = {}
        try:
            seconds = min(60.0, BUILDING * (self.until.left() - (keep if keep < inf else 0.0)))
            if seconds <= COMPILING:
                raise _Out(WhyUnused.LATE)
            texts = self._fitting(texts, seconds, out)
            began, some = time.monotonic(), [one.text for own in texts.values() for one in own]
            library = self._build(some, seconds)
            if library.fresh:
                self._pace = (time.monotonic() - began) / len(some)
            self._libraries.update(dict.fromkeys(library.kernels.values(), library))
        except NotBuilt as problem:
            late = problem.reason is BuildReason.TIMEOUT and seconds < 60
            _Out(WhyUnused.LATE if late else WhyUnused.NOT_BUILT, str(problem)).note(out, texts)
            return found
        except _Out as reason:
            reason.note(out, texts)
            return found
        broken = {failure.op: failure for failure in library.failed}
        for subject, own in texts.items():
            built = [one for one in own if one.text.name in library.kernels]
            try:
                if self.until.left() <= keep < inf:
                    raise TimeUp
                if not built:
                    failure = broken[own[0].text.name]
                    late = failure.reason is BuildReason.TIMEOUT
                    raise _Out(WhyUnused.LATE if late else WhyUnused.NOT_BUILT, failure.detail)
                found[subject] = self._best(subject, built, library)
                if found[subject].ratio >= MARGIN:
                    self._faster.add(subject)
            except TimeUp:
                _Out(WhyUnused.LATE).note(out, [subject])
            except _Out as reason:
                reason.note(out, [subject])
        return found

    def _fitting(self, texts: Texts, seconds: float, out: Tried) -> Texts:
        """As many of some texts as compile in a time, as far as is known: fewer variants of each, else fewer kernels."""
        room = self.compiled_in(seconds / KEPT_FOR_BUILDING)
        if sum(map(len, texts.values())) <= room:
            return texts
        kept = list(texts)[:room]
        _Out(WhyUnused.LATE).note(out, [subject for subject in texts if subject not in kept])
        return {subject: texts[subject][: room // len(kept)] for subject in kept}

    def _best(self, subject: Subject, built: Sequence[Generated], library: Library) -> TunedKernel:
        """The fastest of some variants, measured in turn with the nodes. Raises TimeUp, _Out."""
        nodes = self._nodes(subject, "")
        times: list[float] = []
        for one in built:
            # what is far from the best so far is run once
            lost = min(LOST * nodes, HOPELESS * min(times, default=inf))
            times.append(self._kernel(subject, one.text, library, "", lost))
        fastest = min(range(len(built)), key=times.__getitem__)
        for one, seconds in zip(built, times, strict=True):
            if one.lowering and self.templates is not None and not built[fastest].lowering:
                self.templates.slower(one.lowering, seconds, times[fastest])
        kernel = times[fastest]
        # what is clear is not measured again
        if kernel / HOPELESS < nodes < MEASURED_ONCE * kernel:
            kernel = min(kernel, self._kernel(subject, built[fastest].text, library, "again"))
            nodes = min(nodes, self._nodes(subject, "again"))
        if kernel == inf or nodes == inf:
            raise _Out(WhyUnused.NOT_RUN, "the kernel" if kernel == inf else "the nodes")
        name = self.function(subject.program).name
        best = built[fastest]
        return TunedKernel(subject.program, name, best.variant, best.text, nodes, kernel, len(built), best.lowering)

    def _checked(self, subject: Subject, found: TunedKernel) -> TunedKernel | Dropped:
        """Compare a measured kernel with its nodes.

        On NaN, infinities and numbers at the ends of their types, too, and at other sizes than those at which it was measured.
        """
        error = 0.0
        for k, own in enumerate(self._at_sizes(subject.program)):
            try:
                answer = own._compared(subject, found, only_drawn=bool(k))
            except TimeUp:
                return Dropped(subject.program, WhyUnused.LATE, "", found.nodes)
            except WorkerFailed as problem:
                # what the nodes or the kernel refuse runs without a kernel
                if k and not problem.late and not problem.died:
                    continue
                return Dropped(
                    subject.program, WhyUnused.LATE if problem.late else WhyUnused.NOT_RUN, str(problem), found.nodes
                )
            except (NotBuilt, _Out) as problem:
                if k:
                    continue
                return Dropped(subject.program, WhyUnused.NOT_BUILT, str(problem), found.nodes)
            if not answer.same:
                at = f" on {', '.join(map(str, own._types(subject.program.inputs)))}" if k else ""
                return Dropped(subject.program, WhyUnused.DIFFERS, answer.problem + at, found.nodes)
            error = max(error, answer.max_rel_error)
        return replace(found, error=error)

    def _at_sizes(self, program: Graph) -> Iterator[Autotuner]:
        """These trials, then the same at other sizes, as far as sizes are unknown and memory and time are no question."""
        yield self
        for sizes in at_other_sizes(program, self.sizes):
            if all(sizes.elements(value.type) <= ELEMENTS for value in (*program.inputs, *program.outputs)):
                yield replace(self, sizes=sizes)

    def _compared(self, subject: Subject, found: TunedKernel, only_drawn: bool) -> Comparison:
        """Compare a kernel with its nodes at the sizes of the trials. Raises TimeUp, WorkerFailed, NotBuilt, _Out."""
        nodes = self._nodes_model(subject)
        if self.until.over:
            raise TimeUp
        if nodes is None:
            raise _Out(WhyUnused.NOT_WRITTEN)
        model = onnx.ModelProto.FromString(nodes)
        form = found.variant.form if found.variant else ""
        stated = stated_error(self.rules, form) if form else None
        feeds: list[Feeds] = [draw(input_specs(model, {})[0], 1)]
        at_edges: list[Feeds] = []
        if not only_drawn and not subject.form and tells_nonfinite(self.rules, form):
            at_edges = [*edges(feeds[0]), *(one.feeds for one in special_inputs(model, {}) if one.tolerance is None)]
            feeds += strange(feeds[0])
        count = len(feeds) + len(at_edges)
        words = f"checked {hashlib.sha256(nodes).hexdigest()} {self._code(found.text)} {count} {stated}"
        kept = self.measurer.verdict(words)
        if kept is not None:
            return Comparison(kept["error"], kept["problem"])
        library = self._libraries.get(found.text)
        if not library:
            library = self._build([found.text], self.until.left())
        worker = self.measurer.worker
        names = worker.load(ModelFile(nodes))
        before, edge = ran(worker, names, feeds), ran(worker, names, at_edges)
        worker.load(ModelFile(self._kernel_model(subject, found.text)), library=str(library.path))
        after, other = ran(worker, names, feeds), ran(worker, names, at_edges)
        answer = compare(before, after, stated)
        for k, one in enumerate(at_edges):
            if not answer.same:
                break
            differs = compare(edge.only(k), other.only(k), EDGE)
            if not differs.same and self._tells(subject, nodes, model, one, edge.only(k)):
                answer = differs
        self.measurer.put_verdict(words, {"error": answer.max_rel_error, "problem": answer.problem})
        return answer

    def _tells(
        self, subject: Subject, nodes: bytes, model: onnx.ModelProto, feeds: Feeds, reference: Reference
    ) -> bool:
        """Return whether arguments at the ends of their types tell a right kernel from a wrong one.

        They do not where the nodes themselves give something else for neighbours of them, or not what they mean.
        """
        worker, program = self.measurer.worker, subject.program

        def run(feeds: Feeds, plain: bool) -> Reference:
            return ran(worker, worker.load(ModelFile(nodes), plain), [feeds])

        try:
            bound = bind_graph(program, self._named(program))
        except (DslcError, EvalError, Mismatch, ValueError):
            return steady(run, feeds, reference, {}, EDGE)
        named = {value.node.name: feeds[each.name] for value, each in zip(bound.inputs, model.graph.input, strict=True)
                 if isinstance(value.node, Input)}  # fmt: skip
        said = meaning(self.rules, bound, reference.names)
        return steady(run, feeds, reference, {}, EDGE, lambda given: said(named) if given is feeds else None)


class _Out(Exception):
    """A program that is not tried any further, and why."""

    def __init__(self, why: WhyUnused, detail: str = "") -> None:
        super().__init__(detail)
        self.why, self.detail = why, detail

    def note(self, out: Tried, subjects: Iterable[Subject]) -> None:
        """Note that some programs are dropped for it."""
        out.update((one.program, Dropped(one.program, self.why, self.detail)) for one in subjects)
