"""Whether dslc finds the guards of the rules of a library again: each guard is left out, and asked for.

    python -m benchmarks.guards [--library std] [--seconds 10] [--minutes 15] [--seed 0]

A guard counts where the interpreter tells the sides apart without it; of those, the ones are counted for which some guard was
found under which no instance differs, and for which the exact prover then says that the rule holds.
"""

from __future__ import annotations

import argparse
import time

from benchmarks.edited import Edited, edited
from dslc.interpret.check_rule import check_substitution
from dslc.prove.guards import find_guards
from dslc.prove.run.provers import exact_verdict
from dslc.semantics.library import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="std")
    parser.add_argument("--seconds", type=float, default=10.0, help="of processor time for each guard")
    parser.add_argument("--minutes", type=float, default=15.0, help="after so long the rest is left out")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rules = load(options.library)
    own = [
        sub for sub in rules.substitutions.values() if sub.module.library == options.library and not sub.syntax.partial
    ]
    dropped = [wrong for sub in own for wrong in edited(rules, sub) if wrong.kind == "guard dropped"]
    ends = time.monotonic() + 60 * options.minutes
    needed: list[Edited] = []
    found = proved = looked = 0
    print("| rule | guard left out | guard found | exact |\n|---|---|---|---|")
    for wrong in dropped:
        if time.monotonic() > ends:
            break
        looked += 1
        outcome = check_substitution(rules, wrong.sub, options.seed, 12)
        if outcome.passed or outcome.status == "uninstantiated":
            continue
        needed.append(wrong)
        guards = find_guards(rules, wrong.sub, options.seed, exact_verdict, seconds=options.seconds)
        best = guards[0] if guards else None
        answer = "-" if best is None or best.verdict is None else best.verdict.answer
        found += best is not None
        proved += answer == "equal"
        cells = (wrong.sub.name.rstrip("'"), wrong.edit, "-" if best is None else best.text, answer)
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |", flush=True)
    print(
        f"\n{looked} of {len(dropped)} guards left out; without {len(needed)} of them a rule is wrong at a small shape;"
    )
    print(f"for {found} of these a guard was found, for {proved} the rule with it is proved")


if __name__ == "__main__":
    main()
