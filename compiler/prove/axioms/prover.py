"""The axioms prover: whether the laws of a library entail a substitution (TASO, SOSP 2019, section 3).

As in TASO the operators are unknown functions, the laws quantified equations, and Z3 decides. Unlike there, types are not erased for
good: the rule is taken at unknown sizes (its symbolic instances), and what Z3 finds is only a list of instances of laws. Each of
them is checked to have types and to satisfy the law's guards for all those sizes, and the rule must follow from them alone, without
quantifiers (`smt_solver`). So an ill-typed detour proves nothing, and a law whose guard the logic cannot express is used exactly
where the guard holds. What is trusted is the laws. `unknown` never refutes.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dslc.ir.graph import Value
from dslc.ir.scalar import Scalar
from dslc.prove.axioms.laws import InexpressibleLaw, Law, Symbols, axioms_of, encoded_law
from dslc.prove.axioms.smt_process import Axiom, Query, QueryResult, SmtProcess, Term, Theory
from dslc.prove.axioms.terms import NO_PROGRAM, KnownConditions, PairOfPrograms, involutions
from dslc.prove.in_bounds import leaves_bounds
from dslc.prove.instances.exploration import instance_set
from dslc.prove.instances.instances import Uncovered
from dslc.prove.known.resting import CARRYING, basis
from dslc.prove.laws import law_substitutions
from dslc.prove.terms import term_operators
from dslc.prove.verdict import Status, Verdict
from dslc.semantics.definitions import OperatorDef, PropertyDef, SubstitutionDef
from dslc.semantics.library import Rules

MILLISECONDS = 3000  #: milliseconds that Z3 may take for one rule
ROUNDS = 8  #: rounds of putting laws into one another
KEPT = 64  #: theories that are remembered; with more, all are forgotten
PROCESSES = 4  #: processes with Z3 that are open at once

# what Z3 says where it has looked at all instances of the laws that it made
_REASONS = dict.fromkeys(("(incomplete quantifiers)", "a model", ""), "no proof from the laws is found")


@dataclass
class Counters:
    """Sums over the queries of a prover: exchanges with the solver, its seconds, instances of laws, ill-typed ones among those used."""

    queries: int = 0
    rounds: int = 0
    solver_seconds: float = 0.0
    instances: int = 0
    mistyped: int = 0


@dataclass(eq=False)
class LawTheory:
    """The axioms of some laws, and of the traits of all operators. `skipped`: laws that are no equations between terms."""

    rules: Rules
    laws: tuple[Law, ...]
    axioms: tuple[Axiom, ...]
    symbols: Symbols
    skipped: tuple[tuple[str, str], ...]
    #: the law of which each equation is one
    owners: Mapping[str, PropertyDef] = field(default_factory=dict)

    @property
    def theory(self) -> Theory:
        return Theory(self.symbols, self.axioms)

    @functools.cached_property
    def _occurring(self) -> tuple[tuple[frozenset[str], frozenset[str]], ...]:
        """The operators in the pattern of each axiom, and in the whole of it."""
        return tuple(
            (
                frozenset(s for term in axiom.patterns[0] for s in _symbols(term)),
                frozenset((*_symbols(axiom.left), *_symbols(axiom.right))),
            )
            for axiom in self.axioms
        )

    def relevant(self, symbols: Iterable[str], without: frozenset[str] = frozenset()) -> tuple[int, ...]:
        """The positions of the axioms that can have an instance where only these symbols occur at first."""
        known = set(symbols)
        open_axioms = [k for k, axiom in enumerate(self.axioms) if axiom.name not in without]
        found: list[int] = []
        grew = True
        while grew:
            grew = False
            for k in list(open_axioms):
                needed, made = self._occurring[k]
                if needed <= known:
                    found.append(k)
                    open_axioms.remove(k)
                    grew = grew or not made <= known
                    known |= made
        return tuple(sorted(found))

    def involutions(self, symbols: Iterable[str]) -> Iterator[tuple[str, tuple[Term, ...]]]:
        """The operators that are their own inverse, with their attributes, and that some law relates to these symbols."""
        found = set(symbols)
        for k in self.relevant(found):
            found |= self._occurring[k][1]
        for symbol, attrs in dict.fromkeys(involutions(self.laws)):
            if symbol in found or any(symbol in made and made & found - {symbol} for _, made in self._occurring):
                yield symbol, attrs


def law_theory(rules: Rules, laws: Sequence[PropertyDef] | None = None, traits: bool = True) -> LawTheory:
    """The axioms of a library: of the given laws (all of them by default), and of what `traits` say of its operators."""
    symbols: Symbols = {}
    encoded: list[Law] = []
    skipped: list[tuple[str, str]] = []
    chosen = [law for law in rules.laws.values() if law.trait is None] if laws is None else list(laws)
    chosen += [law for law in rules.laws.values() if law.trait is not None and law not in chosen] if traits else []
    owners = {sub.name: law for law in chosen for sub in law_substitutions(rules, law)}
    for sub in [sub for law in chosen for sub in law_substitutions(rules, law)]:
        trial: Symbols = {}
        try:
            encoded.append(encoded_law(rules, sub, trial))
        except InexpressibleLaw as problem:
            skipped.append((sub.name, str(problem)))
            continue
        symbols.update(trial)
    axioms = tuple(axiom for law in encoded for axiom in axioms_of(law))
    return LawTheory(rules, tuple(encoded), axioms, symbols, tuple(skipped), owners)


def _symbols(term: Term) -> Iterator[str]:
    """The operators and their outputs in a term (constants need not occur literally)."""
    if not isinstance(term, str):
        if "#" in term[0]:
            yield term[0]
        for part in term[1:]:
            yield from _symbols(part)


class AxiomProver:
    """Proves many rules; one process of the solver for each library. Close it, or use it as a context manager.

    `laws` are the axioms, which the caller holds; by default all laws of the library at hand, of which only those count that are
    proved, bounded or trusted. `milliseconds`: the limit of a query.
    """

    def __init__(
        self, laws: Sequence[PropertyDef] | None = None, milliseconds: int = MILLISECONDS, traits: bool = True
    ) -> None:
        self._laws = None if laws is None else tuple(laws)
        self._traits = traits
        self.milliseconds = milliseconds
        self.counters = Counters()
        self._known: dict[tuple[int, frozenset[Scalar], tuple[OperatorDef, ...]], tuple[LawTheory, Rules]] = {}
        self._open: dict[tuple[int, int, int], tuple[LawTheory, SmtProcess]] = {}

    def verdict(self, rules: Rules, sub: SubstitutionDef) -> Verdict:
        """Whether a rule follows from the laws. A law (as `law_substitutions` gives it) has to follow from the others."""
        began = time.perf_counter()

        def said(answer: bool, reason: str, scope: str = "") -> Verdict:
            spent = round((time.perf_counter() - began) * 1e3, 3)
            return Verdict("axioms", "equal" if answer else "unknown", spent, reason, scope)

        if sub.syntax.partial:
            return Verdict("axioms", "skipped", 0.0, "partial: the sides may differ")
        try:
            covered = instance_set(rules, sub, "symbolic")
        except Uncovered as problem:
            return said(False, str(problem))
        if not covered.instances:
            return said(False, "no symbolic instance")
        without = frozenset(law.name for law in self.theory(rules).laws if law.name == sub.name)
        used: dict[str, None] = {}
        terms = tuple(term_operators(sub).values())
        for instance in covered.instances:
            left, right = instance.graphs
            laws = self.entails(rules, left, right, instance.conditions, without, terms)
            while not isinstance(laws, str) and (idle := self._idle(rules, laws)):
                without |= idle
                laws = self.entails(rules, left, right, instance.conditions, without, terms)
            if isinstance(laws, str):
                return said(False, f"{laws} (at {instance.text})" if instance.text else laws)
            used.update(dict.fromkeys(laws))
            place = leaves_bounds(instance.left, instance.right, sub.syntax.arrow == "<=>")
            if place is not None:
                # a law may bring in a tensor of which it reads nothing
                return said(False, f"data used as a position may be out of bounds: {place}")
        found = said(True, f"by {', '.join(sorted(used))}" if used else "the sides are the same program", covered.scope)
        return self._resting(rules, found, used)

    def _resting(self, rules: Rules, verdict: Verdict, used: Iterable[str]) -> Verdict:
        """The verdict with the laws on which it rests, and their bounds."""
        owners = {law.name: law for law in map(self._asked_about(rules).get, used) if law is not None}
        bases = {name: basis(rules, law) for name, law in sorted(owners.items())}
        weakest: Status = max((one.status for one in bases.values()), key=CARRYING.index, default="proved")
        bounds = [f"{one.reason} (`{name}`)" for name, one in bases.items() if one.status == "bounded" and one.reason]
        scope = "; ".join(part for part in (verdict.scope, *bounds) if part)
        return replace(verdict, scope=scope, rests=tuple(bases), weakest=weakest)

    def _idle(self, rules: Rules, used: Iterable[str]) -> frozenset[str]:
        """Laws among those used that carry nothing, as they are not proved."""
        asked = self._asked_about(rules)
        return frozenset(name for name in used if name in asked and not basis(rules, asked[name]).carries)

    def _asked_about(self, rules: Rules) -> Mapping[str, PropertyDef]:
        """The laws by the names of their equations, but for those that the caller holds."""
        held = frozenset(law.name for law in self._laws or ())
        return {name: law for name, law in self.theory(rules).owners.items() if law.name not in held}

    def entails(
        self,
        rules: Rules,
        left: Sequence[Value],
        right: Sequence[Value],
        conditions: Sequence[Scalar] = (),
        without: frozenset[str] = frozenset(),
        terms: tuple[OperatorDef, ...] = (),
    ) -> tuple[str, ...] | str:
        """Whether programs over common inputs are equal: the names of the laws from which it follows, or why it is unknown.

        Sizes may be unknown; `conditions` on them hold. The axioms named in `without` are not used. `terms` are operators besides
        those of the rules, of which no law says anything.
        """
        if any(a.type != b.type for a, b in zip(left, right, strict=True)):
            return "the types of the sides are not known to be the same"
        theory, process = self._opened(rules)
        program = PairOfPrograms(self._assuming(rules, conditions, terms), theory.laws, theory.axioms)
        goals = tuple(zip(program.terms(left), program.terms(right), strict=True))
        goals = tuple((a, b) for a, b in goals if a != b)
        if not goals:
            return ()
        program_facts = tuple(program.facts)
        seeds = tuple(_seeds(program, theory))
        symbols = {*program.symbols, *(name for seed in seeds for name in _symbols(seed))}
        query = Query(program.symbols, goals, theory.relevant(symbols, without), program_facts, seeds)
        self.counters.queries += 1
        found = self._count(process.ask(query, self.milliseconds))
        for _ in range(ROUNDS):
            if found.answer == "proved" or not found.asked:
                break
            facts = program.learned(found.asked)
            if not facts:
                break
            found = self._count(process.more(facts, program.symbols, self.milliseconds))
        while found.answer == "proved":
            wrong = [instance for instance in found.used if not program.holds(instance)]
            if not wrong:
                return tuple(dict.fromkeys(theory.axioms[position].name for position, _ in found.used))
            self.counters.mistyped += len(wrong)
            found = self._count(process.without(wrong, self.milliseconds))
        return _REASONS.get(found.reason, found.reason)

    def _count(self, found: QueryResult) -> QueryResult:
        self.counters.rounds += 1
        self.counters.solver_seconds += found.seconds
        self.counters.instances += found.instances
        return found

    def theory(self, rules: Rules) -> LawTheory:
        """The axioms for a library."""
        return self._opened(rules)[0]

    def _opened(self, rules: Rules) -> tuple[LawTheory, SmtProcess]:
        """The axioms and the process for a library; rules that differ in their substitutions only share both."""
        key = (id(rules.operators), id(rules.laws), id(rules.traits))
        found = self._open.get(key)
        if found is None:
            if len(self._open) >= PROCESSES:
                oldest = next(iter(self._open))
                self._open.pop(oldest)[1].close()
            theory = law_theory(rules, self._laws, self._traits)
            # the theory keeps the rules, so the numbers stay theirs
            found = self._open[key] = (theory, SmtProcess(theory.theory))
        return found

    def _assuming(self, rules: Rules, conditions: Sequence[Scalar], terms: tuple[OperatorDef, ...]) -> Rules:
        """The rules, deciding from conditions that hold; kept, as applications are inferred once for each."""
        theory = self.theory(rules)
        key = (id(theory), frozenset(conditions), terms)
        found = self._known.get(key)
        if found is None or found[0] is not theory:
            if len(self._known) >= KEPT:
                self._known.clear()
            operators = {**theory.rules.operators, **{op.name: op for op in terms}} if terms else theory.rules.operators
            found = self._known[key] = (
                theory,
                replace(theory.rules, operators=operators, assuming=KnownConditions(conditions)),
            )
        return found[1]

    def close(self) -> None:
        """Ends the processes of the solver."""
        for _, process in self._open.values():
            process.close()
        self._open.clear()
        self._known.clear()

    def __enter__(self) -> AxiomProver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _seeds(program: PairOfPrograms, theory: LawTheory) -> Iterator[Term]:
    """`f(f(t))` for every subterm and every operator that is its own inverse: no pattern would make it."""
    subterms = program.subterms()
    for symbol, attrs in theory.involutions(program.symbols):
        for term in subterms:
            seed: Term = (symbol, *attrs, (symbol, *attrs, term))
            try:
                program.value(seed)
            except NO_PROGRAM:
                continue
            yield seed


def axioms_verdict(
    rules: Rules,
    sub: SubstitutionDef,
    laws: Sequence[PropertyDef] | None = None,
    milliseconds: int = MILLISECONDS,
) -> Verdict:
    """As `AxiomProver.verdict`, with a prover that is kept for the next rule."""
    return kept_prover(laws, milliseconds).verdict(rules, sub)


def kept_prover(laws: Sequence[PropertyDef] | None = None, milliseconds: int = MILLISECONDS) -> AxiomProver:
    """A prover that is kept for the next rule."""
    prover = _prover(None if laws is None else tuple(laws))
    prover.milliseconds = milliseconds
    return prover


@functools.lru_cache(maxsize=4)
def _prover(laws: tuple[PropertyDef, ...] | None) -> AxiomProver:
    return AxiomProver(laws)
