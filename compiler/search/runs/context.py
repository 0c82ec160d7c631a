"""Context of a search, which all generators of a run share: the original with its price, rules, prices, and the ends of their time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from dslc.codegen.host.background import BackgroundCompiler
from dslc.cost.model import CostModel
from dslc.deadline import Deadline
from dslc.match import CompiledRule
from dslc.search.region_rewrites.background import BackgroundSearch
from dslc.search.rewrites.candidate import Candidate, Front
from dslc.search.runs.progress import Run
from dslc.search.runs.stages import Referenced, Task


@dataclass(slots=True, eq=False)
class SearchContext:
    """What generators are given. The scheduler alone sets the ends of their time."""

    referenced: Referenced
    #: the original with its price, or what rules of `--apply` made of it
    start: Candidate
    costs: CostModel
    run: Run
    #: the rules that were not blamed
    rules: tuple[CompiledRule, ...] = ()
    #: what a search built
    front: Front = field(default_factory=Front)
    #: the best that rules made
    best: Candidate | None = None
    #: compiles kernels beside the search, and derives programs
    ahead: BackgroundCompiler | None = None
    beside: BackgroundSearch | None = None
    #: when exploring ends, the turn of the one who is asked, and what he may measure; None where nothing new is measured
    exploring: Deadline = field(default_factory=Deadline)
    turn: Deadline = field(default_factory=Deadline)
    measuring: Deadline | None = field(default_factory=Deadline)

    @property
    def task(self) -> Task:
        return self.referenced.task

    @property
    def reached(self) -> Candidate:
        """The best that rules made, the start where they made nothing."""
        return self.start if self.best is None else self.best

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Leaves the processors to what is measured or timed inside."""
        with ExitStack() as held:
            for one in (self.ahead, self.beside):
                if one is not None:
                    held.enter_context(one.halted())
            yield
