"""Whether a set of laws is consistent, and whether one of them follows from the others (TASO, section 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dslc.prove.axioms.laws import Law
from dslc.prove.axioms.prover import AxiomProver, LawTheory
from dslc.prove.axioms.solver import Answer, Axiom, Solver, Term, parts, put
from dslc.prove.laws import law_substitutions
from dslc.semantics.definitions import PropertyDef
from dslc.semantics.library import Rules

_TENSORS = 4


def _any(number: int) -> Term:
    return (("tensor", number % _TENSORS),)


def collapse(theory: LawTheory, milliseconds: int) -> Answer:
    """Whether axioms force two tensors of which nothing is known to be equal: then they hold of nothing worth calculating.

    Equations never contradict each other outright (all hold where there is one tensor only), so this is what inconsistent means.
    Both sides of every axiom at the same few tensors start the matching. `unknown` is no proof of consistency: that is the
    model in which all laws are true, the interpreter's.
    """
    laws = {law.rule.name: law for law in theory.laws}
    seeds: dict[Term, None] = {}
    for axiom in theory.axioms:
        for shift in range(2):
            seeds.update({_at(side, axiom, laws[axiom.name], shift): None for side in (axiom.left, axiom.right)})
    return Solver(theory.axioms).ask([(_any(0), _any(1))], range(len(theory.axioms)), (), seeds, milliseconds)


def _at(term: Term, axiom: Axiom, law: Law, shift: int) -> Term:
    tensors: dict[str, Term] = {name: _any(k + shift) for k, name in enumerate(law.tensors)}
    return put(term, {name: tensors.get(name, (("known", False, "any"),)) for name in axiom.variables})


def redundant(prover: AxiomProver, rules: Rules, laws: Sequence[PropertyDef]) -> Iterator[tuple[str, str]]:
    """The laws that follow from the prover's other axioms, each with those that it follows from."""
    for law in laws:
        for sub in law_substitutions(law):
            verdict = prover.verdict(rules, sub)
            if verdict.answer == "equal":
                yield sub.name, verdict.reason


def without_positions(theory: LawTheory, operator: str, position: int) -> list[Axiom]:
    """The axioms with one argument of an operator left out, as an encoding that knows less would have them."""

    def erased(term: Term) -> Term:
        if isinstance(term, str):
            return term
        args = tuple(erased(part) for part in term[1:])
        left_out = term[0][:2] == ("output", operator)
        return (term[0], *args[:position], *args[position + 1 :]) if left_out else (term[0], *args)

    axioms = []
    for axiom in theory.axioms:
        left, right = erased(axiom.left), erased(axiom.right)
        used = {part for term in (left, right) for part in parts(term) if isinstance(part, str)}
        premises = tuple(pair for pair in axiom.premises if pair[0] in used)
        used |= {part for pair in premises for term in pair for part in parts(term) if isinstance(part, str)}
        variables = tuple(name for name in axiom.variables if name in used)
        pattern = tuple(map(erased, axiom.pattern))
        axioms.append(replace(axiom, variables=variables, premises=premises, left=left, right=right, pattern=pattern))
    return axioms
