"""The queries themselves, in Z3: instances by e-matching, then a second proof from those instances alone.

Settings as measured for TASO's properties: no model-based instantiation, no automatic configuration, both sides of an equation as
patterns. What follows is proved a second time without quantifiers, from the instances that the first proof made: only that second
proof counts, and its instances can be checked one by one (whether they have types, whether their guards hold).

Run as `python -m dslc.prove.axioms.smt_solver`, the far end of `smt_process`. Terms are made and read by Z3's C functions: z3's Python
classes take ten times as long as the proofs.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dslc.processes.child import Asker
from dslc.prove.axioms.smt_process import Axiom, Instance, Query, QueryResult, Symbols, Term, Theory, put

# z3's Python interface is only partly typed
z3: Any = importlib.import_module("z3")

#: a predicate that only starts the matching, and the equality of premises, which Z3 may not use to eliminate variables
_MARK, _SAME = "seed", "same"


class _Terms:
    """Terms as Z3's, and back."""

    def __init__(self) -> None:
        self.context = z3.main_ctx()
        self._c = z3
        self._ref = self.context.ref()
        self.sorts = {"tensor": z3.DeclareSort("tensor"), "parameter": z3.DeclareSort("parameter")}
        self.functions: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._made: dict[Term, Any] = {}
        self._read: dict[int, Term] = {}

    def declare(self, symbols: Symbols) -> None:
        for name, (arguments, result) in symbols.items():
            if name not in self.functions:
                found = z3.Function(name, *(self.sorts[sort] for sort in arguments), self.sorts[result])
                self.functions[name] = found
                self._names[self._c.Z3_get_ast_id(self._ref, found.as_ast())] = name

    def forget(self) -> None:
        """Frees the terms of the last query."""
        self._made.clear()
        self._read.clear()

    def term(self, term: Term) -> Any:
        """A term without variables."""
        found = self._made.get(term)
        if found is None:
            found = self._made[term] = self._apply(term[0], [self.term(part) for part in term[1:]])
        return found

    def build(self, term: Term, variables: Mapping[str, Any]) -> Any:
        """A term with variables."""
        if isinstance(term, str):
            return variables[term]
        return self._apply(term[0], [self.build(part, variables) for part in term[1:]])

    def _apply(self, symbol: str, args: list[Any]) -> Any:
        array = (z3.Ast * len(args))(*(arg.as_ast() for arg in args))
        made = self._c.Z3_mk_app(self._ref, self.functions[symbol].ast, len(args), array)
        return z3.ExprRef(made, self.context)

    def equal(self, left: Any, right: Any) -> Any:
        return z3.BoolRef(self._c.Z3_mk_eq(self._ref, left.as_ast(), right.as_ast()), self.context)

    def read(self, term: Any) -> Term:
        """The term behind one of Z3's. Those that were made here are kept, so their numbers are not used again meanwhile."""
        return self._read_ast(term.as_ast())

    def _read_ast(self, ast: Any) -> Term:
        number = self._c.Z3_get_ast_id(self._ref, ast)
        found = self._read.get(number)
        if found is None:
            app = self._c.Z3_to_app(self._ref, ast)
            name = self._names[self._c.Z3_get_ast_id(self._ref, self._c.Z3_get_app_decl(self._ref, app))]
            count = self._c.Z3_get_app_num_args(self._ref, app)
            found = (name, *(self._read_ast(self._c.Z3_get_app_arg(self._ref, app, k)) for k in range(count)))
            self.term(found)  # the same object in Z3, now referenced
            self._read[number] = found
        return found


class SolverSession:
    """Answers queries about one theory."""

    def __init__(self, theory: Theory) -> None:
        self._theory = theory
        self._terms = _Terms()
        self._terms.declare(theory.symbols)
        parameter = self._terms.sorts["parameter"]
        self._mark = z3.Function(_MARK, self._terms.sorts["tensor"], z3.BoolSort())
        self._same = z3.Function(_SAME, parameter, parameter, z3.BoolSort())
        p = z3.Const("p", parameter)
        self._reflexive = z3.ForAll([p], self._same(p, p), patterns=[self._same(p, p)], qid="same")
        self._quantified = [self._axiom(k, axiom) for k, axiom in enumerate(theory.axioms)]

    # ---- queries ------------------------------------------------------------------------------------------------

    def query(self, query: Query, milliseconds: int) -> QueryResult:
        """A new question."""
        began = time.process_time()
        self._query = query
        self._terms.forget()
        self._facts = list[tuple[Term, Term]]()
        self._instances: dict[Instance, None] = {}
        self._terms.declare(query.symbols)
        solver = z3.Solver()
        solver.set("smt.mbqi", False)
        solver.set("auto_config", False)
        self._solver = solver
        self._watch = z3.OnClause(solver, self._on_clause)
        solver.add(self._reflexive)
        solver.add(*(self._quantified[position] for position in query.axioms))
        self._instances.update(
            {(position, ()): None for position in query.axioms if not self._theory.axioms[position].variables}
        )
        term = self._terms.term
        solver.add(*(self._mark(term(seed)) for seed in query.seeds))
        if len(query.distinct) > 1:
            solver.add(z3.Distinct(*(term(each) for each in query.distinct)))
        differ = [z3.Not(self._terms.equal(term(a), term(b))) for a, b in query.goals]
        self._goal = z3.Or(*differ) if differ else z3.BoolVal(True)
        solver.add(self._goal)
        return self.facts(query.facts, milliseconds, began=began)

    def facts(
        self,
        facts: Sequence[tuple[Term, Term]],
        milliseconds: int,
        symbols: Symbols | None = None,
        began: float | None = None,
    ) -> QueryResult:
        """The last question with further facts."""
        began = time.process_time() if began is None else began
        self._terms.declare(symbols or {})
        self._facts.extend(facts)
        self._solver.set("timeout", milliseconds)
        self._solver.add(*(self._equal(a, b) for a, b in facts))
        result = self._solver.check()
        if result != z3.unsat:
            reason = self._solver.reason_unknown() if result == z3.unknown else "a model"
            return QueryResult("unknown", (), self._asked(), len(self._instances), time.process_time() - began, reason)
        return self.without((), milliseconds, began)

    def without(self, dropped: Sequence[Instance], milliseconds: int, began: float | None = None) -> QueryResult:
        """The second proof: from the instances alone, without those that were dropped."""
        began = time.process_time() if began is None else began
        for each in dropped:
            self._instances.pop(each, None)
        solver = z3.Solver()
        solver.set("timeout", milliseconds)
        solver.add(self._goal, *(self._equal(a, b) for a, b in self._facts))
        if len(self._query.distinct) > 1:
            solver.add(z3.Distinct(*(self._terms.term(each) for each in self._query.distinct)))
        tracked: dict[str, Instance] = {}
        for n, instance in enumerate(self._instances):
            tracked[f"i{n}"] = instance
            solver.assert_and_track(self._ground(instance), f"i{n}")
        result = solver.check()
        if result != z3.unsat:
            spent = time.process_time() - began
            return QueryResult(
                "unknown", (), self._asked(), len(tracked), spent, "the proof does not follow from well-typed instances"
            )
        used = tuple(tracked[str(name)] for name in solver.unsat_core())
        spent = time.process_time() - began
        return QueryResult("proved" if self._query.goals else "contradiction", used, (), len(tracked), spent)

    # ---- formulas -----------------------------------------------------------------------------------------------

    def _equal(self, left: Term, right: Term) -> Any:
        return self._terms.equal(self._terms.term(left), self._terms.term(right))

    def _axiom(self, position: int, axiom: Axiom) -> Any:
        variables = {name: z3.Const(f"{name}?", self._terms.sorts[sort]) for name, sort in axiom.variables}

        def build(term: Term) -> Any:
            return self._terms.build(term, variables)

        body = self._terms.equal(build(axiom.left), build(axiom.right))
        if axiom.premises:
            body = z3.Implies(z3.And(*(self._same(build(a), build(b)) for a, b in axiom.premises)), body)
        if not variables:
            return body
        patterns = [z3.MultiPattern(*(build(term) for term in pattern)) for pattern in axiom.patterns]
        return z3.ForAll(list(variables.values()), body, patterns=patterns, qid=f"axiom:{position}")

    def _ground(self, instance: Instance) -> Any:
        axiom, variables = self._bound(instance)
        body = self._equal(put(axiom.left, variables), put(axiom.right, variables))
        premises = [self._equal(put(a, variables), put(b, variables)) for a, b in axiom.premises]
        return z3.Implies(z3.And(*premises), body) if premises else body

    def _bound(self, instance: Instance) -> tuple[Axiom, Mapping[str, Term]]:
        position, terms = instance
        axiom = self._theory.axioms[position]
        return axiom, {name: term for (name, _), term in zip(axiom.variables, terms, strict=True)}

    # ---- instances ----------------------------------------------------------------------------------------------

    def _on_clause(self, reason: Any, _: Any, clause: Any) -> None:
        """Z3 tells every clause that it makes; `inst(quantifier, body, bind(terms), ...)` is the reason of an instance."""
        if reason is None or reason.decl().name() != "inst":
            return
        name = reason.arg(0).qid()
        if name.startswith("axiom:"):
            bound = next(part for part in reason.children()[1:] if part.decl().name() == "bind")
            self._instances[int(name[6:]), tuple(self._terms.read(term) for term in bound.children())] = None

    def _asked(self) -> tuple[Term, ...]:
        """What the instances say about the shapes of single tensors."""
        out: dict[Term, None] = {}
        for instance in self._instances:
            axiom, variables = self._bound(instance)
            for term in (axiom.left, axiom.right, *(side for pair in axiom.premises for side in pair)):
                _computed(term, variables, out)
        return tuple(out)


def _computed(term: Term, variables: Mapping[str, Term], out: dict[Term, None]) -> None:
    """The subterms that stand for what a law computes from shapes (their symbols begin with a dot)."""
    if not isinstance(term, str):
        if term[0].startswith("."):
            out[put(term, variables)] = None
        for part in term[1:]:
            _computed(part, variables, out)


def main() -> None:
    """Reads a theory, then answers query after query, until the other end closes the stream."""
    asker = Asker()
    messages = iter(asker)
    session = SolverSession(next(messages, Theory({}, ())))
    asker.answer("ready")
    for kind, *arguments in messages:
        asker.answer(getattr(session, kind)(*arguments))


if __name__ == "__main__":
    main()
