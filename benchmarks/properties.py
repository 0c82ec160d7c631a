"""Validation of the properties from which TASO's substitutions are proved (TASO, SOSP 2019, section 3).

    python -m benchmarks.properties [--seconds 600] [--workers 2] [--library taso]

Each property is proved for all sizes by the exact prover; independently of it, as identities of polynomials on every shape up to
2x2x2x2, and modulo 2^31 - 1 at random elements on the shapes up to 4x4x4x4 that the time allows (the rest is counted).
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.small_shapes import SmallShapes, Tally, check
from dslc.prove.laws import law_substitutions
from dslc.prove.run.provers import prover_verdict
from dslc.prove.verdict import Verdict
from dslc.semantics.definitions import PropertyDef, SubstitutionDef
from dslc.semantics.library import Rules, load

# so many choices of sizes and attributes are looked at in seconds
_FEW = 6000


@functools.cache
def _rules(library: str) -> Rules:
    return load(library)


def laws_of(rules: Rules, library: str) -> list[PropertyDef]:
    """The laws that a library itself has, not what it imports."""
    name = Path(library).stem
    return [law for full, law in rules.laws.items() if full.startswith(f"{name}.") and law.trait is None]


def _law(library: str, name: str) -> tuple[Rules, SubstitutionDef]:
    rules = _rules(library)
    return rules, next(sub for law in laws_of(rules, library) for sub in law_substitutions(law) if sub.name == name)


def _exact(library: str, name: str) -> Verdict:
    return prover_verdict(_rules(library), _law(library, name)[1], "exact")


def _polynomials(library: str, name: str) -> Tally:
    return check(*_law(library, name), 2, "polynomials")


def _field(library: str, name: str, seconds: float) -> Tally:
    return check(*_law(library, name), 4, "field", seconds)


def _choices(library: str, name: str) -> int:
    return len(SmallShapes(*_law(library, name), 4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="for the shapes up to 4x4x4x4, on each worker")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--library", default="taso")
    parser.add_argument("--no-exact", action="store_true", help="without the exact prover")
    options = parser.parse_args()
    rules = _rules(options.library)
    names = [sub.name for law in laws_of(rules, options.library) for sub in law_substitutions(law)]
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
        exact = list(pool.map(functools.partial(_exact, options.library), names)) if not options.no_exact else []
        small = list(pool.map(functools.partial(_polynomials, options.library), names))
        counts = list(pool.map(functools.partial(_choices, options.library), names))
        began = time.perf_counter()
        large: dict[int, Tally] = {}
        # the laws of few shapes first: what they leave of the time is for the others
        few = [k for k, count in enumerate(counts) if count <= _FEW]
        for chosen in (few, [k for k in range(len(names)) if k not in few]):
            share = max(1.0, (options.seconds - (time.perf_counter() - began)) * options.workers / max(1, len(chosen)))
            found = pool.map(functools.partial(_field, options.library, seconds=share), [names[k] for k in chosen])
            large |= dict(zip(chosen, found, strict=True))
        wall = time.perf_counter() - began
    _table(names, exact, small, [large[k] for k in range(len(names))])
    print(f"\nup to 4x4x4x4: {wall:.0f} s on {options.workers} workers")


def _table(names: list[str], exact: list[Verdict], small: list[Tally], large: list[Tally]) -> None:
    print("| property | exact, all sizes | up to 2x2x2x2 | up to 4x4x4x4 | error below |")
    print("|---|---|---|---|---|")
    # shown / obligations, and shown / choices tried / choices of sizes and attributes
    for k, name in enumerate(names):
        proof = f"{exact[k].answer} {exact[k].scope}".strip() if exact else "-"
        one, four = small[k], large[k]
        first = one.wrong or f"{one.shown} / {one.tried - one.excluded}"
        second = four.wrong or f"{four.shown} / {four.tried} / {four.choices}"
        bound = f"{four.error_bound:.1e}" if not four.undefined else "unknown functions"
        print(f"| {name.partition('.')[2]} | {proof} | {first} | {second} | {bound} |")
    wrong = [t for t in (*small, *large) if t.wrong]
    done, tried, choices = (sum(getattr(t, key) for t in large) for key in ("shown", "tried", "choices"))
    print(f"\nexact: {sum(v.answer == 'equal' for v in exact)} of {len(exact)} properties" if exact else "")
    obligations = sum(t.tried - t.excluded for t in small)
    print(
        f"up to 2x2x2x2: {sum(t.shown for t in small)} of {obligations} obligations shown as identities of polynomials"
    )
    print(
        f"up to 4x4x4x4: {done} obligations shown modulo 2^31 - 1; {tried} of {choices} choices of sizes and attributes were tried"
    )
    print(
        f"wrong: {len(wrong)}; probability of any error there, without unknown functions: {sum(t.error_bound for t in large):.1e}"
    )


if __name__ == "__main__":
    main()
