"""Z3 in a process of its own: first-order logic with equality over terms, under a hard limit of wall time.

Terms are nested tuples `(symbol, *arguments)`; a variable of an axiom is a `str`. There are two sorts, tensors and parameters. The
process is killed and started again when a query overruns, so a query that Z3 cannot be talked out of costs its limit and no more.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dslc.deadline import Deadline
from dslc.processes.child import Child, Service, module
from dslc.processes.process import ProcessFailed, ProcessFailure

Term = tuple[Any, ...] | str
Sort = Literal["tensor", "parameter"]
#: the sorts of a symbol's arguments, and of its result
Symbols = Mapping[str, tuple[tuple[Sort, ...], Sort]]
Answer = Literal["proved", "unknown", "contradiction"]


@dataclass(frozen=True, slots=True)
class Axiom:
    """For all `variables`: where all `premises` hold (pairs of equal terms), left equals right. `patterns` say which terms
    lead to an instance (one of the tuples has to match as a whole)."""

    name: str
    variables: tuple[tuple[str, Sort], ...]
    premises: tuple[tuple[Term, Term], ...]
    left: Term
    right: Term
    patterns: tuple[tuple[Term, ...], ...]


@dataclass(frozen=True, slots=True)
class Theory:
    """Function symbols with the sorts of their arguments and of their result, and axioms."""

    symbols: Symbols
    axioms: tuple[Axiom, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """Whether the axioms at the positions `axioms` of the theory and the facts entail all `goals`, each a pair of equal terms.

    `symbols` are those that the theory does not have. `seeds` are terms that only start the matching. With `goals` empty the
    question is whether the axioms and facts contradict each other; `distinct` constants then differ.
    """

    symbols: Symbols
    goals: tuple[tuple[Term, Term], ...]
    axioms: tuple[int, ...]
    facts: tuple[tuple[Term, Term], ...] = ()
    seeds: tuple[Term, ...] = ()
    distinct: tuple[Term, ...] = ()


#: an instance of an axiom: its position in the theory, and the terms that stand for its variables
Instance = tuple[int, tuple[Term, ...]]


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What came of a query. `used`: the instances from which the goals follow without any quantifier. `asked`: parameters of
    terms, as sizes, that premises speak of. `seconds` of the query, `overrun` where it was killed."""

    answer: Answer
    used: tuple[Instance, ...] = ()
    asked: tuple[Term, ...] = ()
    instances: int = 0
    seconds: float = 0.0
    reason: str = ""


class SmtProcess:
    """The near end of the process `python -m dslc.prove.axioms.smt_solver`. Not for several threads."""

    #: seconds that a process may take to start and to read a theory, and to end a query that its own limit did not end
    _START, _GRACE = 60.0, 1.0

    def __init__(self, theory: Theory) -> None:
        self._theory = theory
        self._service = Service(self._started)
        #: processes that were started
        self.starts = 0

    def ask(self, query: Query, milliseconds: int) -> QueryResult:
        """A new query. Overruns give `unknown`."""
        return self._exchange(("query", query, milliseconds), milliseconds)

    def more(self, facts: Sequence[tuple[Term, Term]], symbols: Symbols, milliseconds: int) -> QueryResult:
        """The last query with further facts, and symbols that they use."""
        return self._exchange(("facts", tuple(facts), milliseconds, dict(symbols)), milliseconds)

    def without(self, instances: Sequence[Instance], milliseconds: int) -> QueryResult:
        """Whether the goals of the last query also follow from the instances found, without these."""
        return self._exchange(("without", tuple(instances), milliseconds), milliseconds)

    def close(self) -> None:
        """Ends the process."""
        self._service.close()

    def _exchange(self, message: tuple[Any, ...], milliseconds: int) -> QueryResult:
        began = time.monotonic()
        try:
            # starting one takes nothing of a query's time
            self._service.running()
            found: QueryResult = self._service.ask(message, Deadline.after(milliseconds / 1000 + self._GRACE))
        except ProcessFailed as problem:
            late = problem.failure is ProcessFailure.LATE
            reason = f"killed after {milliseconds} ms" if late else "the process of the solver ended"
            return QueryResult("unknown", seconds=time.monotonic() - began, reason=reason)
        return found

    def _started(self) -> Child:
        child = Child(module("dslc.prove.axioms.smt_solver"))
        self.starts += 1
        end = Deadline.after(self._START)
        child.send(self._theory, end)
        child.receive(end)
        return child

    def __enter__(self) -> SmtProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
