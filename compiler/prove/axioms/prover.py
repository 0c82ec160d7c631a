"""The axioms prover: whether the laws of a library entail a substitution (TASO, SOSP 2019, section 3).

As in TASO the operators are unknown functions, the laws quantified equations, and Z3 decides. Unlike there, types are not erased for
good: the rule is taken at unknown sizes (its symbolic instances), and what Z3 finds is only a list of instances of laws. Each of
them is checked to have types and to satisfy the law's guards for all those sizes, and the rule must follow from them alone, without
quantifiers (`solver`). So an ill-typed detour proves nothing, and a law whose guard the logic cannot express is used exactly
where the guard holds. What is trusted is the laws. `unknown` never refutes.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dslc.ir.graph import Value
from dslc.ir.scalar import Scalar
from dslc.prove.axioms.laws import InexpressibleLaw, Law, axioms_of, encoded_law
from dslc.prove.axioms.solver import Axiom, Head, Solver, Term, heads
from dslc.prove.axioms.terms import KnownConditions, PairOfPrograms, involutions
from dslc.prove.evidence.dependencies import CARRYING, basis
from dslc.prove.in_bounds import leaves_bounds
from dslc.prove.instances.exploration import instance_set
from dslc.prove.instances.instances import Uncovered
from dslc.prove.laws import law_substitutions
from dslc.prove.terms import term_operators
from dslc.prove.verdict import Status, Verdict, milliseconds_since
from dslc.semantics.definitions import OperatorDef, PropertyDef, SubstitutionDef
from dslc.semantics.library import Rules

MILLISECONDS = 3000  #: milliseconds that Z3 may take for one rule
ROUNDS = 8  #: rounds of putting laws into one another
KEPT = 64  #: sets of conditions that are remembered; with more, all are forgotten
THEORIES = 4  #: theories that are remembered

# what Z3 says where it has looked at all instances of the laws that it made
_REASONS = dict.fromkeys(("(incomplete quantifiers)", "a model", ""), "no proof from the laws is found")


@dataclass(eq=False)
class LawTheory:
    """The axioms of some laws, and of the traits of all operators.

    `skipped`: laws that are no equations between terms; `owners`: the law of which each equation is one.
    """

    rules: Rules
    laws: tuple[Law, ...]
    axioms: tuple[Axiom, ...]
    skipped: tuple[tuple[str, str], ...]
    owners: Mapping[str, PropertyDef]
    _known: dict[tuple[frozenset[Scalar], tuple[OperatorDef, ...]], Rules] = field(default_factory=dict)

    @functools.cached_property
    def solver(self) -> Solver:
        return Solver(self.axioms)

    @functools.cached_property
    def _occurring(self) -> list[tuple[set[Head], set[Head]]]:
        """The operators in the pattern of each axiom, and in the whole of it."""
        return [
            (
                set().union(*(heads(term, "output") for term in axiom.pattern)),
                heads(axiom.left, "output") | heads(axiom.right, "output"),
            )
            for axiom in self.axioms
        ]

    def relevant(self, operators: Iterable[Head], without: frozenset[str] = frozenset()) -> list[int]:
        """The positions of the axioms that can have an instance where only these operators occur at first."""
        known = set(operators)
        left = [k for k, axiom in enumerate(self.axioms) if axiom.name not in without]
        found: list[int] = []
        while ready := [k for k in left if self._occurring[k][0] <= known]:
            found += ready
            left = [k for k in left if k not in ready]
            known.update(*(self._occurring[k][1] for k in ready))
        return sorted(found)

    def seeds(self, program: PairOfPrograms, operators: set[Head]) -> Iterator[Term]:
        """`f(f(t))` for every subterm and every operator that is its own inverse: no pattern would make it.

        Some law has to relate the operator to the given ones.
        """
        found = operators.union(*(self._occurring[k][1] for k in self.relevant(operators)))
        for head, attrs in dict.fromkeys(involutions(self.laws)):
            if head in found or any(head in made and made & found - {head} for _, made in self._occurring):
                for term in program.subterms():
                    seed: Term = (head, *attrs, (head, *attrs, term))
                    if program.program(seed) is not None:
                        yield seed

    def assuming(self, conditions: Sequence[Scalar], terms: tuple[OperatorDef, ...]) -> Rules:
        """The rules, deciding from conditions that hold; kept, as applications are inferred once for each."""
        key = frozenset(conditions), terms
        if key not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            operators = {**self.rules.operators, **{op.name: op for op in terms}} if terms else self.rules.operators
            self._known[key] = replace(self.rules, operators=operators, assuming=KnownConditions(conditions))
        return self._known[key]


def law_theory(rules: Rules, laws: Sequence[PropertyDef] | None = None, traits: bool = True) -> LawTheory:
    """The axioms of a library: of the given laws (all of them by default), and of what `traits` say of its operators."""
    encoded: list[Law] = []
    skipped: list[tuple[str, str]] = []
    chosen = [law for law in rules.laws.values() if law.trait is None] if laws is None else list(laws)
    chosen += [law for law in rules.laws.values() if law.trait is not None and law not in chosen] if traits else []
    owners = {sub.name: (sub, law) for law in chosen for sub in law_substitutions(law)}
    for sub, _ in owners.values():
        try:
            encoded.append(encoded_law(rules, sub))
        except InexpressibleLaw as problem:
            skipped.append((sub.name, str(problem)))
    axioms = tuple(axiom for law in encoded for axiom in axioms_of(law))
    return LawTheory(rules, tuple(encoded), axioms, tuple(skipped), {name: law for name, (_, law) in owners.items()})


class AxiomProver:
    """Proves many rules.

    `laws` are the axioms, which the caller holds; by default all laws of the library at hand, of which only those count that are
    proved, bounded or trusted. `milliseconds`: the limit of a query.
    """

    def __init__(
        self, laws: Sequence[PropertyDef] | None = None, milliseconds: int = MILLISECONDS, traits: bool = True
    ) -> None:
        self._laws = None if laws is None else tuple(laws)
        self._traits = traits
        self._milliseconds = milliseconds
        #: instances of laws in proofs that had no types
        self.mistyped = 0
        self._theories: dict[tuple[int, int, int], LawTheory] = {}

    def verdict(self, rules: Rules, sub: SubstitutionDef) -> Verdict:
        """Return whether a rule follows from the laws. A law (as `law_substitutions` gives it) has to follow from the others."""
        began = time.perf_counter()
        if sub.syntax.partial:
            return Verdict("axioms", "skipped", 0.0, "partial: the sides may differ")
        try:
            found = self._proved(rules, sub)
        except Uncovered as problem:
            found = Verdict("axioms", "unknown", reason=str(problem))
        return replace(found, milliseconds=milliseconds_since(began))

    def _proved(self, rules: Rules, sub: SubstitutionDef) -> Verdict:
        covered = instance_set(rules, sub, "symbolic")
        held = {law.name for law in self._laws or ()}
        # the laws by the names of their equations, but for those that the caller holds
        owners = {name: law for name, law in self.theory(rules).owners.items() if law.name not in held}
        reason = "" if covered.instances else "no symbolic instance"
        without = frozenset({sub.name})
        used: set[str] = set()
        terms = tuple(term_operators(sub).values())
        for instance in covered.instances:
            left, right = instance.graphs
            laws = self.entails(rules, left, right, instance.conditions, without, terms)
            # laws that are not proved carry nothing
            while not isinstance(laws, str) and (
                idle := {name for name in laws if name in owners and basis(rules, owners[name]).status not in CARRYING}
            ):
                without |= idle
                laws = self.entails(rules, left, right, instance.conditions, without, terms)
            if isinstance(laws, str):
                reason = f"{laws} (at {instance.text})" if instance.text else laws
                break
            used.update(laws)
            place = leaves_bounds(instance.left, instance.right, sub.syntax.arrow == "<=>")
            if place is not None:
                # a law may bring in a tensor of which it reads nothing
                reason = f"data used as a position may be out of bounds: {place}"
                break
        if reason:
            return Verdict("axioms", "unknown", reason=reason)
        bases = {law.name: basis(rules, law) for name, law in owners.items() if name in used}
        bases = dict(sorted(bases.items()))
        weakest: Status = max((one.status for one in bases.values()), key=CARRYING.index, default="proved")
        bounds = [f"{one.reason} (`{name}`)" for name, one in bases.items() if one.status == "bounded" and one.reason]
        scope = "; ".join(filter(None, (covered.scope, *bounds)))
        reason = f"by {', '.join(sorted(used))}" if used else "the sides are the same program"
        return Verdict("axioms", "equal", reason=reason, scope=scope, rests=tuple(bases), weakest=weakest)

    def entails(
        self, rules: Rules, left: Sequence[Value], right: Sequence[Value], conditions: Sequence[Scalar] = (),
        without: frozenset[str] = frozenset(), terms: tuple[OperatorDef, ...] = (),
    ) -> tuple[str, ...] | str:  # fmt: skip
        """Return whether programs over common inputs are equal: the names of the laws from which it follows, or why it is unknown.

        Sizes may be unknown; `conditions` on them hold. The axioms named in `without` are not used. `terms` are operators besides
        those of the rules, of which no law says anything.
        """
        if any(a.type != b.type for a, b in zip(left, right, strict=True)):
            return "the types of the sides are not known to be the same"
        theory = self.theory(rules)
        program = PairOfPrograms(theory.assuming(conditions, terms), theory.laws, theory.axioms)
        goals = [(a, b) for a, b in zip(program.terms(left), program.terms(right), strict=True) if a != b]
        if not goals:
            return ()
        facts = tuple(program.facts)
        operators = set().union(*(heads(term, "output") for term in program.subterms()))
        seeds = list(theory.seeds(program, operators))
        axioms = theory.relevant(operators.union(*(heads(seed, "output") for seed in seeds)), without)
        solver = theory.solver
        found = solver.ask(goals, axioms, facts, seeds, self._milliseconds)
        for _ in range(ROUNDS):
            if found.used is not None or not (learned := program.learned(found.asked)):
                break
            found = solver.more(learned)
        while found.used is not None:
            wrong = [instance for instance in found.used if not program.holds(instance)]
            if not wrong:
                return tuple(dict.fromkeys(theory.axioms[position].name for position, _ in found.used))
            self.mistyped += len(wrong)
            found = solver.without(wrong)
        return _REASONS.get(found.reason, found.reason)

    def theory(self, rules: Rules) -> LawTheory:
        """The axioms for a library; rules that differ in their substitutions only share them."""
        key = (id(rules.operators), id(rules.laws), id(rules.traits))
        if key not in self._theories:
            if len(self._theories) >= THEORIES:
                del self._theories[next(iter(self._theories))]
            # a theory keeps the rules, so the numbers stay theirs
            self._theories[key] = law_theory(rules, self._laws, self._traits)
        return self._theories[key]


@functools.lru_cache(maxsize=4)
def kept_prover(milliseconds: int) -> AxiomProver:
    """A prover that is kept for the next rule."""
    return AxiomProver(milliseconds=milliseconds)
