"""The queries themselves, in Z3: instances by e-matching, then a second proof from those instances alone.

Settings as measured for TASO's properties: no model-based instantiation, no automatic configuration, both sides of an equation as
patterns. What follows is proved a second time without quantifiers, from the instances that the first proof made: only that second
proof counts, and its instances can be checked one by one (whether they have types, whether their guards hold).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import z3

from dslc.prove.smt_process import Axiom, Found, Instance, Query, Symbols, Term, Theory, receive, send

#: a predicate that only starts the matching, and the equality of premises, which Z3 may not use to eliminate variables
_MARK, _SAME = "seed", "same"


class Session:
    """Answers queries about one theory."""

    def __init__(self, theory: Theory) -> None:
        self._theory = theory
        self._sorts = {"tensor": z3.DeclareSort("tensor"), "parameter": z3.DeclareSort("parameter")}
        self._functions: dict[str, Any] = {}
        self._declare(theory.symbols)
        parameter = self._sorts["parameter"]
        self._mark = z3.Function(_MARK, self._sorts["tensor"], z3.BoolSort())
        self._same = z3.Function(_SAME, parameter, parameter, z3.BoolSort())
        p = z3.Const("p", parameter)
        self._reflexive = z3.ForAll([p], self._same(p, p), patterns=[self._same(p, p)], qid="same")
        self._quantified = [self._axiom(k, axiom) for k, axiom in enumerate(theory.axioms)]

    # ---- queries ------------------------------------------------------------------------------------------------

    def query(self, query: Query, milliseconds: int) -> Found:
        """A new question."""
        self._query = query
        self._terms: dict[Term, Any] = {}
        self._facts = list(query.facts)
        self._instances: dict[Instance, None] = {}
        self._declare(query.symbols)
        solver = z3.Solver()
        solver.set("smt.mbqi", False)
        solver.set("auto_config", False)
        solver.set("timeout", milliseconds)
        self._solver = solver
        self._watch = z3.OnClause(solver, self._on_clause)
        solver.add(self._reflexive)
        solver.add(*(self._quantified[position] for position in query.axioms))
        self._instances.update({(position, ()): None for position in query.axioms if not self._theory.axioms[position].variables})
        solver.add(*(self._mark(self._term(seed)) for seed in query.seeds))
        if len(query.distinct) > 1:
            solver.add(z3.Distinct(*(self._term(each) for each in query.distinct)))
        self._goal = z3.Or(*(self._term(a) != self._term(b) for a, b in query.goals)) if query.goals else z3.BoolVal(True)
        solver.add(self._goal)
        return self.facts(query.facts, milliseconds)

    def facts(self, facts: Sequence[tuple[Term, Term]], milliseconds: int, symbols: Symbols | None = None) -> Found:
        """The last question with further facts."""
        began = time.process_time()
        self._declare(symbols or {})
        self._facts.extend(facts)
        self._solver.set("timeout", milliseconds)
        self._solver.add(*(self._term(a) == self._term(b) for a, b in facts))
        result = self._solver.check()
        if result != z3.unsat:
            reason = self._solver.reason_unknown() if result == z3.unknown else "a model"
            return Found("unknown", (), self._asked(), len(self._instances), time.process_time() - began, reason)
        return self.without((), milliseconds, began)

    def without(self, dropped: Sequence[Instance], milliseconds: int, began: float | None = None) -> Found:
        """The second proof: from the instances alone, without those that were dropped."""
        began = time.process_time() if began is None else began
        for each in dropped:
            self._instances.pop(each, None)
        solver = z3.Solver()
        solver.set("timeout", milliseconds)
        solver.add(self._goal, *(self._term(a) == self._term(b) for a, b in self._facts))
        if len(self._query.distinct) > 1:
            solver.add(z3.Distinct(*(self._term(each) for each in self._query.distinct)))
        tracked: dict[str, Instance] = {}
        for n, instance in enumerate(self._instances):
            tracked[f"i{n}"] = instance
            solver.assert_and_track(self._ground(instance), f"i{n}")
        result = solver.check()
        spent = time.process_time() - began
        if result != z3.unsat:
            return Found("unknown", (), self._asked(), len(tracked), spent, "the proof does not follow from well-typed instances")
        used = tuple(tracked[str(name)] for name in solver.unsat_core())
        return Found("proved" if self._query.goals else "contradiction", used, (), len(tracked), spent)

    # ---- terms --------------------------------------------------------------------------------------------------

    def _declare(self, symbols: Symbols) -> None:
        for name, (arguments, result) in symbols.items():
            if name not in self._functions:
                sorts = [self._sorts[sort] for sort in arguments]
                self._functions[name] = z3.Function(name, *sorts, self._sorts[result])

    def _term(self, term: Term) -> Any:
        found = self._terms.get(term)
        if found is None:
            found = self._terms[term] = self._functions[term[0]](*(self._term(part) for part in term[1:]))
        return found

    def _build(self, term: Term, variables: Mapping[str, Any]) -> Any:
        if isinstance(term, str):
            return variables[term]
        return self._functions[term[0]](*(self._build(part, variables) for part in term[1:]))

    def _axiom(self, position: int, axiom: Axiom) -> Any:
        variables = {name: z3.Const(f"{name}?", self._sorts[sort]) for name, sort in axiom.variables}
        body = self._build(axiom.left, variables) == self._build(axiom.right, variables)
        if axiom.premises:
            premises = [self._same(self._build(a, variables), self._build(b, variables)) for a, b in axiom.premises]
            body = z3.Implies(z3.And(*premises), body)
        if not variables:
            return body
        patterns = [z3.MultiPattern(*(self._build(term, variables) for term in pattern)) for pattern in axiom.patterns]
        return z3.ForAll(list(variables.values()), body, patterns=patterns, qid=f"axiom:{position}")

    def _ground(self, instance: Instance) -> Any:
        position, terms = instance
        axiom = self._theory.axioms[position]
        variables = {name: self._term(term) for (name, _), term in zip(axiom.variables, terms, strict=True)}
        body = self._build(axiom.left, variables) == self._build(axiom.right, variables)
        premises = [self._build(a, variables) == self._build(b, variables) for a, b in axiom.premises]
        return z3.Implies(z3.And(*premises), body) if premises else body

    # ---- instances ----------------------------------------------------------------------------------------------

    def _on_clause(self, reason: Any, _: Any, clause: Any) -> None:
        if reason is None or reason.decl().name() != "inst":
            return
        parts = reason.children()
        name = parts[0].qid()
        if name.startswith("axiom:"):
            bound = next(part for part in parts[1:] if part.decl().name() == "bind")
            self._instances[int(name[6:]), tuple(_read(term) for term in bound.children())] = None

    def _asked(self) -> tuple[Term, ...]:
        """What the premises of the instances say about single tensors."""
        out: dict[Term, None] = {}
        for position, terms in self._instances:
            axiom = self._theory.axioms[position]
            variables = {name: term for (name, _), term in zip(axiom.variables, terms, strict=True)}
            for pair in axiom.premises:
                for side in pair:
                    _parameters(_put(side, variables), out)
            _parameters(_put(axiom.left, variables), out)
            _parameters(_put(axiom.right, variables), out)
        return tuple(out)


def _read(term: Any) -> Term:
    return (term.decl().name(), *(_read(part) for part in term.children()))


def _put(term: Term, variables: Mapping[str, Term]) -> Term:
    return variables[term] if isinstance(term, str) else (term[0], *(_put(part, variables) for part in term[1:]))


def _parameters(term: Term, out: dict[Term, None]) -> None:
    """The subterms that take a tensor and give a parameter (their symbols begin with a dot)."""
    if not isinstance(term, str):
        if term[0].startswith("."):
            out[term] = None
        for part in term[1:]:
            _parameters(part, out)


def main() -> None:
    """Reads a theory, then answers query after query, until the other end closes the stream."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    session = Session(receive(requests))
    send(answers, "ready")
    while True:
        try:
            kind, *arguments = receive(requests)
        except (EOFError, KeyboardInterrupt):
            return
        send(answers, getattr(session, kind)(*arguments))


if __name__ == "__main__":
    main()
