"""Generators of candidates as a protocol: what they are given, and what they return. The loop alone writes the state of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf

from dslc.codegen.host.background import BackgroundCompiler
from dslc.cost.model import CostModel
from dslc.deadline import Deadline
from dslc.ir.graph import Node
from dslc.match import CompiledRule
from dslc.records import record
from dslc.search.candidates.candidate import Candidate, Front, Limits
from dslc.search.region_rewrites.background import BackgroundSearch
from dslc.search.region_rewrites.region_log import MeasuredRewrite
from dslc.search.runs.stages import Referenced, Task
from dslc.search.runs.state import RunState

PATIENCE = 0.25  #: share of the budget without a gain after which a search ends


@dataclass(slots=True, eq=False)
class SearchContext:
    """State of the loop that generators read: the original with its price, rules, prices, and the ends of their time."""

    referenced: Referenced
    #: the original with its price, or the result of rules of `--apply`
    start: Candidate
    costs: CostModel
    run: RunState
    #: the rules that were not blamed
    rules: tuple[CompiledRule, ...]
    #: compiles kernels beside the search, and derives programs
    ahead: BackgroundCompiler
    #: when measuring ends
    measuring: Deadline
    #: when exploring ends, and the turn of the generator that is asked
    exploring: Deadline = field(default_factory=Deadline)
    turn: Deadline = field(default_factory=Deadline)
    beside: BackgroundSearch | None = None
    #: graphs that a search built, and the best that rules made
    front: Front = field(default_factory=Front)
    best: Candidate | None = None

    @property
    def task(self) -> Task:
        return self.referenced.task

    @property
    def reached(self) -> Candidate:
        """The best that rules made, the start where they made nothing."""
        return self.best or self.start

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Leave the processors to what is measured or timed inside."""
        with ExitStack() as held:
            held.enter_context(self.ahead.halted())
            if self.beside:
                held.enter_context(self.beside.halted())
            yield

    def limits(self, who: str, most: int | None, brief: float = inf) -> Limits:
        """Return the limits of one more search of a run: so many steps at most, until the turn is over, or nothing was gained for long.

        Where `brief` is finite it is a share of the budget after which the search may give way.
        """
        settings, run = self.task.settings, self.run
        journal = run.journal
        limits = Limits(
            journal.next(who, most),
            # what is repeated is in the cache, also what it was timed with
            self.exploring if journal.repeats else self.turn,
            on_step=run.progress.step,
            on_tried=run.ran,
        )
        if not journal.repeats and settings.steps is None:
            limits.patience = PATIENCE * settings.budget if settings.patience is None else settings.patience
            limits.brief = brief * settings.budget
        journal.begun.append((who, limits))
        return limits

    def improved(self, found: Candidate, steps: int) -> None:
        """Keep a candidate that is better than those before: an interruption goes by it."""
        self.run.best = found
        self.run.progress.best(self.start.cost / max(found.cost, 1e-12), steps)


@record
class Proposal:
    """Candidates that a unit of work made, often none, and what else it found for the loop and its log."""

    candidates: Sequence[Candidate] = ()
    #: the best by rules: it is checked at once, and the search goes on without rules that are to blame
    best: Candidate | None = None
    #: steps that mutants or derivations made
    costly: Sequence[Candidate] = ()
    #: lines of the report about the kernels of candidates, and about findings that were not taken, by their origin
    kernels: Mapping[Candidate, list[str]] = field(default_factory=dict)
    untaken: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: facts that were measured to be faster, and seconds of the kernel around a node by itself
    findings: Sequence[MeasuredRewrite] = ()
    kernel_seconds: Mapping[Node, float] = field(default_factory=dict)


#: the proposals about one candidate, one for each unit of work; asked again it goes on, and where its time was over it tries again
Proposer = Callable[[Candidate], Iterator[Proposal]]


@dataclass(frozen=True, kw_only=True)
class Generator:
    """A proposer of candidates beside others.

    Its fields are its tuning; adding one is a line in `dslc.search.generators.scheduler`.

    Attributes:
        name: the name in reports.
        phase: the phase of the run that its seconds belong to.
        gain: before a run knows, the share of what it promises that it mostly keeps, after about so many `seconds`.
        share: the part of the time that is left that a turn takes, and `most` seconds.
        reported_if_skipped: something is missing if there was no time for it.
        asks_own_results: it is asked about its own proposals.
        uses_findings: it goes by what others found, and is asked again when that is more.
    """

    name: str
    gain: float
    seconds: float
    share: float = 1.0
    most: float = inf
    phase: str = "searching"
    reported_if_skipped: bool = False
    asks_own_results: bool = False
    uses_findings: bool = False

    def promise(self, context: SearchContext, base: Candidate) -> float:
        """Return the share of a candidate's time that it might save at most; 0 where it is not to be asked. Raises TimeUp."""
        raise NotImplementedError

    def begin(self, context: SearchContext) -> Proposer:
        """Begin a run."""
        return partial(self.propose, context)

    def propose(self, context: SearchContext, base: Candidate) -> Iterator[Proposal]:
        """Make proposals about a candidate."""
        raise NotImplementedError
