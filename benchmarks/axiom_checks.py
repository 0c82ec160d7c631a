"""Whether a set of laws is consistent, and whether one of them follows from the others (TASO, section 3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dslc.prove.axioms.laws import Symbols
from dslc.prove.axioms.prover import AxiomProver, LawTheory
from dslc.prove.axioms.smt_process import Query, QueryResult, SmtProcess, Sort, Term, Theory
from dslc.prove.laws import law_substitutions
from dslc.semantics.definitions import PropertyDef
from dslc.semantics.library import Rules

_TENSORS = 4


def collapse(theory: Theory, milliseconds: int) -> QueryResult:
    """Whether axioms force two tensors of which nothing is known to be equal: then they hold of nothing worth calculating.

    Equations never contradict each other outright (all hold where there is one tensor only), so this is what inconsistent means.
    Both sides of every axiom at the same few tensors start the matching. `unknown` is no proof of consistency: that is the
    model in which all laws are true, the interpreter's.
    """
    symbols: Symbols = {f"any:{k}": ((), "tensor") for k in range(_TENSORS)}
    symbols["any parameter"] = ((), "parameter")
    seeds: dict[Term, None] = {}
    for axiom in theory.axioms:
        for shift in range(2):
            names = _names(axiom.variables, shift)
            seeds.update({_put(side, names): None for side in (axiom.left, axiom.right)})
    query = Query(symbols, ((("any:0",), ("any:1",)),), tuple(range(len(theory.axioms))), (), tuple(seeds))
    with SmtProcess(theory) as process:
        return process.ask(query, milliseconds)


def _names(variables: Sequence[tuple[str, Sort]], shift: int) -> Mapping[str, Term]:
    tensors = [name for name, sort in variables if sort == "tensor"]
    found: dict[str, Term] = {name: ("any parameter",) for name, sort in variables if sort == "parameter"}
    return found | {name: (f"any:{(k + shift) % _TENSORS}",) for k, name in enumerate(tensors)}


def _put(term: Term, variables: Mapping[str, Term]) -> Term:
    return variables[term] if isinstance(term, str) else (term[0], *(_put(part, variables) for part in term[1:]))


def redundant(prover: AxiomProver, rules: Rules, laws: Sequence[PropertyDef]) -> Iterator[tuple[str, str]]:
    """The laws that follow from the prover's other axioms, each with those that it follows from."""
    for law in laws:
        for sub in law_substitutions(rules, law):
            verdict = prover.verdict(rules, sub)
            if verdict.answer == "equal":
                yield sub.name, verdict.reason


def without_positions(theory: LawTheory, symbol: str, position: int) -> Theory:
    """The axioms with one argument of an operator left out, as an encoding that knows less would have them."""

    def erased(term: Term) -> Term:
        if isinstance(term, str):
            return term
        parts = tuple(erased(part) for part in term[1:])
        return (term[0], *parts[:position], *parts[position + 1 :]) if term[0].startswith(symbol) else (term[0], *parts)

    axioms = []
    for axiom in theory.axioms:
        left, right = erased(axiom.left), erased(axiom.right)
        patterns = tuple(tuple(erased(term) for term in pattern) for pattern in axiom.patterns)
        used = {name for term in (left, right) for name in _variables(term)}
        premises = tuple(pair for pair in axiom.premises if pair[0] in used)
        variables = tuple(
            each
            for each in axiom.variables
            if each[0] in used | {v for p in premises for t in p for v in _variables(t)}
        )
        axioms.append(type(axiom)(axiom.name, variables, premises, left, right, patterns))
    symbols = {
        name: ((*sorts[:position], *sorts[position + 1 :]) if name.startswith(symbol) else sorts, result)
        for name, (sorts, result) in theory.symbols.items()
    }
    return Theory(symbols, tuple(axioms))


def _variables(term: Term) -> Iterator[str]:
    if isinstance(term, str):
        yield term
    else:
        for part in term[1:]:
            yield from _variables(part)
