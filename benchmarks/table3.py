"""TASO's Table 3 beside ours: candidates, after the renaming of inputs, after common subgraphs.

`python -m benchmarks.table3 --operators 3` counts all graphs (not terms) as the paper does, over both families of operators. The paper
does not say how many inputs it has, of which shapes, and which constants are among them; ours are printed. Candidates are pairs of a
graph and the first one of its fingerprint. Pruning evaluates more general candidates one by one, which takes most of the time;
`--sample N` prunes a random sample of so many candidates of each family, and scales up what is left. With constants the graphs of four
operators are some hundreds of millions; `--no-constants` leaves them out. `--prove N` makes a random sample of so many of each family's
survivors general, as `dslc generate` does, and proves them.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from benchmarks.counted_graphs import count_graphs
from dslc.generate.general.dimensions import NotGeneral
from dslc.generate.general.rules import GeneralRule, generalise, less_general, narrowed
from dslc.generate.proofs import Proofs
from dslc.generate.pruning.generality import PrimeValues, key, reduced, without_renamed
from dslc.generate.terms.inputs import InputSizes, families
from dslc.generate.terms.term import Build, Conjecture, Term, inputs, outputs, subterms
from dslc.prove.verdict import RELIABLE, RuleVerdict
from dslc.semantics.library import Rules, load

TABLE_1 = "ewadd ewmul smul transpose matmul conv enlarge relu pool_avg pool_max concat split C_pool I_conv I_matmul I_ewmul".split()
PAPER = {"initial": 28744, "input tensor renaming": 17346, "common subgraph": 743}


@dataclass(slots=True)
class PruningResult:
    """The kept candidates, and for each of those the ones it stands for (pruned only because that one holds)."""

    kept: list[Conjecture] = field(default_factory=list)
    because: dict[Conjecture, list[Conjecture]] = field(default_factory=dict)


def without_common(candidates: Iterable[Conjecture], values: PrimeValues, build: Build) -> PruningResult:
    """Without candidates that have a common subgraph and are instances of a more general one that holds (Figures 4b and 4c).

    The more general ones are kept in their place, once each.
    """
    out = PruningResult()
    seen: dict[tuple[Term, ...], Conjecture] = {}
    for candidate in candidates:
        found = reduced(candidate, values, build)
        for one in found:
            first = seen.get(key(one))
            if first is None:
                first = seen[key(one)] = one
                out.kept.append(one)
            if found != (candidate,):
                out.because.setdefault(first, []).append(candidate)
    return out


def categories(candidates: list[Conjecture]) -> Counter[str]:
    """Candidates by what tells them from the paper's: constants, several outputs, attributes off their defaults."""
    found: Counter[str] = Counter()
    for candidate in candidates:
        roots = (*candidate.sources, *candidate.targets)
        found["with constants" if any(term.is_constant for term in subterms(roots)) else "without constants"] += 1
        found[f"{len(candidate.sources)} outputs"] += 1
    return found


def proved(rules: Rules, candidates: list[Conjecture], number: int, workers: int = 2) -> Counter[str]:
    """What becomes of a random sample of candidates: the provers' word on the most general form that they decide, or why there is
    none."""
    out: Counter[str] = Counter()
    todo: list[GeneralRule] = []
    for candidate in random.Random(0).sample(candidates, min(number, len(candidates))):
        left, right = set(inputs(candidate.sources)), set(inputs(candidate.targets))
        if not (left <= right or right <= left):
            out["neither side has all inputs: no rule"] += 1
            continue
        try:
            todo.append(generalise(rules, candidate))
        except NotGeneral:
            todo += _narrower(rules, candidate, out)
    tried = set()
    with Proofs(rules, workers) as proofs:
        while todo:
            verdicts: dict[GeneralRule, RuleVerdict] = {}
            proofs.of(todo, verdicts)
            todo = []
            for rule, verdict in verdicts.items():
                weaker = less_general(rules, rule)
                if verdict.status in RELIABLE:
                    out[verdict.status] += 1
                elif verdict.status == "refuted" and rule.candidate not in tried:
                    tried.add(rule.candidate)
                    todo += _narrower(rules, rule.candidate, out)
                elif weaker is not None:
                    todo.append(weaker)
                else:
                    out["not decided" if verdict.status == "tested" else verdict.status] += 1
    return out


def _narrower(rules: Rules, candidate: Conjecture, out: Counter[str]) -> list[GeneralRule]:
    try:
        return [narrowed(rules, candidate)]
    except NotGeneral:
        out["of these sizes only"] += 1
        return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", type=int, default=3)
    parser.add_argument("--inputs", type=int, default=2, help="inputs of each family's main type")
    parser.add_argument("--sample", type=int, default=0, help="prune a sample of so many candidates of a family")
    parser.add_argument("--no-constants", action="store_true", help="without C_pool, I_conv, I_matmul and I_ewmul")
    parser.add_argument("--family", choices=["matrix", "convolution", "both"], default="both")
    parser.add_argument(
        "--prove", type=int, default=0, help="make so many survivors of a family general, and prove them"
    )
    options = parser.parse_args()
    rules = load("taso")
    named = [rules.operators[f"taso.{name}"] for name in TABLE_1]
    if options.no_constants:
        named = [op for op in named if op.syntax.params]
    total: Counter[str] = Counter()
    chosen_families = {"matrix": slice(0, 1), "convolution": slice(1, 2), "both": slice(None)}[options.family]
    for family in families(rules, named, InputSizes(count=options.inputs))[chosen_families]:
        start = time.process_time()
        counted = count_graphs(rules, ("taso",), family, options.operators)
        print(f"{family.name}: inputs {', '.join(map(str, family.inputs))}; {len(family.constants)} constants")
        print(f"  graphs {', '.join(map(str, counted.graphs))} of 1, 2, ... operators; {counted.classes} fingerprints")
        print(
            f"  {counted.candidates} candidates: {counted.kinds(family)}; {time.process_time() - start:.1f} s of CPU",
            flush=True,
        )
        chosen = range(counted.candidates)
        if options.sample and options.sample < counted.candidates:
            chosen = sorted(random.Random(0).sample(chosen, options.sample))
            print(f"  pruned: a sample of {options.sample} of {counted.candidates} candidates")
        candidates = [counted.candidate(k) for k in chosen]
        renamed = without_renamed(candidates)
        common = without_common(renamed, PrimeValues(rules), partial(outputs, rules))
        found = {
            "initial": len(candidates),
            "input tensor renaming": len(renamed),
            "common subgraph": len(common.kept),
        }
        scale = counted.candidates / max(1, len(candidates))
        total.update({name: round(number * scale) for name, number in found.items()})
        print(
            f"  {found}; left by category: {dict(categories(common.kept))}; {time.process_time() - start:.1f} s of CPU"
        )
        if options.prove:
            words = proved(rules, common.kept, options.prove)
            print(
                f"  of {words.total()} of these: {dict(words)}; {time.process_time() - start:.1f} s of CPU here",
                flush=True,
            )
    print(
        f"\n| pruning | TASO (4 operators) | dslc ({options.operators} operators) | reduction, TASO | reduction, dslc |"
    )
    print("|---|---|---|---|---|")
    for name, paper in PAPER.items():
        ours = total[name]
        print(
            f"| {name} | {paper} | {ours} | {PAPER['initial'] / paper:.1f}x | {total['initial'] / max(1, ours):.1f}x |"
        )
    print(f"\npeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")


if __name__ == "__main__":
    main()
