"""First-order logic with equality over terms, in Z3: instances by e-matching, then a second proof from those instances alone.

Terms are nested tuples `(head, *arguments)`, where a head is a tuple that says what the function is; a variable of an axiom is a `str`.
Settings as measured for TASO's properties: no model-based instantiation, no automatic configuration, both sides of an equation as
patterns. What follows is proved a second time without quantifiers, from the instances that the first proof made: only that second
proof counts, and its instances can be checked one by one (whether they have types, whether their guards hold).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# z3's Python interface is only partly typed
z3: Any = importlib.import_module("z3")

Head = tuple[Any, ...]
Term = tuple[Any, ...] | str
Equation = tuple[Term, Term]
#: an instance of an axiom: its position, and the terms that stand for its variables
Instance = tuple[int, tuple[Term, ...]]


def put(term: Term, variables: Mapping[str, Term]) -> Term:
    """A term with others in the place of its variables."""
    return variables[term] if isinstance(term, str) else (term[0], *(put(part, variables) for part in term[1:]))


def parts(term: Term) -> Iterator[Term]:
    """A term and all terms in it."""
    yield term
    if not isinstance(term, str):
        for part in term[1:]:
            yield from parts(part)


def heads(term: Term, kind: str) -> set[Head]:
    """The heads of one kind in a term."""
    return {part[0] for part in parts(term) if not isinstance(part, str) and part[0][0] == kind}


@dataclass(frozen=True, slots=True)
class Axiom:
    """For all `variables`: where all `premises` hold, left equals right. An instance is made where all of `pattern` matches."""

    name: str
    variables: tuple[str, ...]
    premises: tuple[Equation, ...]
    left: Term
    right: Term
    pattern: tuple[Term, ...]

    def at(self, terms: Sequence[Term]) -> dict[str, Term]:
        """The variables by name, where they stand for some terms."""
        return dict(zip(self.variables, terms, strict=True))


@dataclass(frozen=True, slots=True)
class Answer:
    """Return whether goals follow, as the instances `used` from which they do without any quantifier; None where that is unknown.

    `asked`: parameters of terms, as sizes, that premises speak of; `instances`: how many were made.
    """

    used: tuple[Instance, ...] | None
    reason: str = ""
    asked: tuple[Term, ...] = ()
    instances: int = 0


class Solver:
    """Answers one question after the other about some axioms.

    Its terms are made and read by Z3's C functions: z3's Python classes take ten times as long as the proofs.
    """

    def __init__(self, axioms: Sequence[Axiom]) -> None:
        self._axioms = axioms
        self._context, self._sort = z3.main_ctx(), z3.DeclareSort("term")
        self._ref = self._context.ref()
        self._functions: dict[tuple[Head, int], Any] = {}
        self._heads: dict[int, Head] = {}
        self._made: dict[Term, Any] = {}
        self._read: dict[int, Term] = {}
        # a predicate that only starts the matching, and the equality of premises, which Z3 may not use to eliminate variables
        self._mark = z3.Function("seed", self._sort, z3.BoolSort())
        self._same = z3.Function("same", self._sort, self._sort, z3.BoolSort())
        p = z3.Const("p", self._sort)
        reflexive = z3.ForAll([p], self._same(p, p), patterns=[self._same(p, p)], qid="same")
        self._quantified = [self._axiom(k, axiom) for k, axiom in enumerate(axioms)]
        self._quantified.append(reflexive)
        self._own = dict(self._functions), dict(self._heads)

    def ask(
        self, goals: Iterable[Equation], axioms: Iterable[int], facts: Iterable[Equation], seeds: Iterable[Term],
        milliseconds: int,
    ) -> Answer:  # fmt: skip
        """Return whether some axioms and facts entail all goals. `seeds` are terms that only start the matching."""
        self._functions, self._heads = (dict(own) for own in self._own)
        self._made.clear()
        self._read.clear()
        chosen = [*axioms, -1]
        self._instances: dict[Instance, None] = {(k, ()): None for k in chosen[:-1] if not self._axioms[k].variables}
        self._ground: list[Any] = [z3.Or(*(z3.Not(self._equal(goal)) for goal in goals))]
        self._milliseconds = milliseconds
        self._solver = z3.Solver()
        self._solver.set("smt.mbqi", False)
        self._solver.set("auto_config", False)
        self._solver.set("timeout", milliseconds)
        self._watch = z3.OnClause(self._solver, self._on_clause)
        self._solver.add(*(self._quantified[k] for k in chosen), *(self._mark(self._term(seed)) for seed in seeds))
        self._solver.add(*self._ground)
        return self.more(facts)

    def more(self, facts: Iterable[Equation]) -> Answer:
        """The answer to the last question with further facts."""
        new = [self._equal(fact) for fact in facts]
        self._ground += new
        self._solver.add(*new)
        result = self._solver.check()
        if result == z3.unsat:
            return self.without(())
        return self._unknown(self._solver.reason_unknown() if result == z3.unknown else "a model")

    def without(self, dropped: Iterable[Instance]) -> Answer:
        """The answer from the instances alone, without some of them: the second proof."""
        for each in dropped:
            self._instances.pop(each, None)
        solver = z3.Solver()
        solver.set("timeout", self._milliseconds)
        solver.add(*self._ground)
        tracked = {f"i{n}": instance for n, instance in enumerate(self._instances)}
        for name, (position, terms) in tracked.items():
            axiom = self._axioms[position]
            variables = {each: self._term(term) for each, term in axiom.at(terms).items()}
            body = self._equal((axiom.left, axiom.right), variables)
            premises = [self._equal(pair, variables) for pair in axiom.premises]
            solver.assert_and_track(z3.Implies(z3.And(*premises), body) if premises else body, name)
        if solver.check() != z3.unsat:
            return self._unknown("the proof does not follow from well-typed instances")
        return Answer(tuple(tracked[str(name)] for name in solver.unsat_core()), instances=len(tracked))

    def _unknown(self, reason: str) -> Answer:
        asked: dict[Term, None] = {}
        for position, terms in self._instances:
            axiom = self._axioms[position]
            for side in (axiom.left, axiom.right, *(side for pair in axiom.premises for side in pair)):
                computed = (each for each in parts(side) if not isinstance(each, str) and each[0][0] == "computed")
                asked.update((put(each, axiom.at(terms)), None) for each in computed)
        return Answer(None, reason, tuple(asked), len(self._instances))

    def _axiom(self, position: int, axiom: Axiom) -> Any:
        variables = {name: z3.Const(f"{name}?", self._sort) for name in axiom.variables}
        body = self._equal((axiom.left, axiom.right), variables)
        if axiom.premises:
            pairs = [[self._term(side, variables) for side in pair] for pair in axiom.premises]
            body = z3.Implies(z3.And(*(self._same(*pair) for pair in pairs)), body)
        if not variables:
            return body
        pattern = z3.MultiPattern(*(self._term(term, variables) for term in axiom.pattern))
        return z3.ForAll(list(variables.values()), body, patterns=[pattern], qid=f"axiom:{position}")

    def _on_clause(self, reason: Any, _: Any, clause: Any) -> None:
        """Collects instances: Z3 tells every clause that it makes, with the reason `inst(quantifier, body, bind(terms), ...)`."""
        if reason is not None and reason.decl().name() == "inst" and (name := reason.arg(0).qid()).startswith("axiom:"):
            bound = next(part for part in reason.children()[1:] if part.decl().name() == "bind")
            self._instances[int(name[6:]), tuple(self._known(term.as_ast()) for term in bound.children())] = None

    # ---- terms as Z3's, and back ------------------------------------------------------------------------------------

    def _term(self, term: Term, variables: Mapping[str, Any] | None = None) -> Any:
        if isinstance(term, str):
            assert variables is not None
            return variables[term]
        found = self._made.get(term)
        if found is None:
            args = [self._term(part, variables) for part in term[1:]]
            array = (z3.Ast * len(args))(*(arg.as_ast() for arg in args))
            made = z3.Z3_mk_app(self._ref, self._function(term[0], len(args)).ast, len(args), array)
            found = z3.ExprRef(made, self._context)
            if variables is None:
                self._made[term] = found
        return found

    def _function(self, head: Head, arity: int) -> Any:
        found = self._functions.get((head, arity))
        if found is None:
            found = z3.Function(f"f{len(self._heads)}", *[self._sort] * (arity + 1))
            self._functions[head, arity] = found
            self._heads[z3.Z3_get_ast_id(self._ref, found.as_ast())] = head
        return found

    def _equal(self, pair: Equation, variables: Mapping[str, Any] | None = None) -> Any:
        left, right = [self._term(side, variables) for side in pair]
        return z3.BoolRef(z3.Z3_mk_eq(self._ref, left.as_ast(), right.as_ast()), self._context)

    def _known(self, ast: Any) -> Term:
        """The term behind one of Z3's. Those that were made here are kept, so their numbers are not used again meanwhile."""
        number = z3.Z3_get_ast_id(self._ref, ast)
        found = self._read.get(number)
        if found is None:
            app = z3.Z3_to_app(self._ref, ast)
            head = self._heads[z3.Z3_get_ast_id(self._ref, z3.Z3_get_app_decl(self._ref, app))]
            count = z3.Z3_get_app_num_args(self._ref, app)
            found = (head, *(self._known(z3.Z3_get_app_arg(self._ref, app, k)) for k in range(count)))
            self._term(found)  # the same object in Z3, now referenced
            self._read[number] = found
        return found
