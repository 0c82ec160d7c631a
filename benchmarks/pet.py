"""PET's case studies (OSDI 2021, Table 3 and section 8.3): mutants that are found from the operators alone.

    python -m benchmarks.pet [--seconds 60] [--only dilated] [--batch 1,16]

Prints for each case what was tried, and of the best mutants the share that differs at the real sizes, whether that is proved, and
operations and an estimate of the price as multiples of the operator's. Nothing is measured.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dslc.analysis.counts import known_flops
from dslc.derive.programs import estimated
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Value, topological
from dslc.ir.holes import hole, program
from dslc.mutate.correct import LIMIT, differing
from dslc.mutate.joined import joined
from dslc.mutate.problem import problem_of
from dslc.mutate.search import Options, made, search
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules, standard


@dataclass(frozen=True)
class Case:
    """An operator at the paper's sizes; the first size of the first tensor is the batch."""

    op: str
    shapes: tuple[tuple[int, ...], ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def region(self, rules: Rules, batch: int) -> Graph:
        first = (batch, *self.shapes[0][1:]) if self.op != "matmul" or len(self.shapes[0]) > 2 else self.shapes[0]
        holes = tuple(hole(k, TensorType(DType.F32, shape)) for k, shape in enumerate((first, *self.shapes[1:])))
        return program(holes, apply(rules, f"std.{self.op}", holes, dict(self.attrs)))


SAME = (1, 1, 1, 1)
CASES = {
    "conv": Case("conv", ((1, 48, 38, 38), (64, 48, 5, 5)), {"pads": (2, 2, 2, 2)}),
    "dilated": Case("conv", ((1, 512, 14, 14), (256, 512, 3, 3)), {"pads": (2, 2, 2, 2), "dilation": (2, 2)}),
    "dilated 11x13": Case("conv", ((1, 512, 11, 13), (256, 512, 3, 3)), {"pads": (2, 2, 2, 2), "dilation": (2, 2)}),
    "pointwise": Case("conv", ((1, 768, 18, 18), (192, 768, 1, 1))),
    "batchmatmul": Case("matmul", ((1, 512, 768), (768, 768))),
    "stride": Case("conv", ((1, 64, 28, 28), (128, 64, 3, 3)), {"pads": SAME, "stride": (2, 2)}),
    "stride 1x1": Case("conv", ((1, 64, 28, 28), (128, 64, 1, 1)), {"stride": (2, 2)}),
    "group": Case("conv", ((1, 8, 14, 14), (8, 4, 3, 3)), {"pads": SAME, "groups": 2}),
    "pool": Case("avg_pool", ((1, 8, 14, 14),), {"kernel": (2, 2), "stride": (2, 2)}),
}


def price(rules: Rules, *values: Value) -> float:
    """Seconds by estimate."""
    each = estimated(rules)
    return sum(each(node) for node in topological(value.node for value in values))


def table(rules: Rules, name: str, batch: int, seconds: float, shown: int) -> None:
    region = CASES[name].region(rules, batch)
    (old,) = region.outputs
    problem = problem_of(rules, region)
    found = search(rules, problem, Options(seconds=seconds))
    every = "all of them" if found.complete else "cut by time"
    print(f"\n{name}, batch {batch}: {len(found.mutants)} kept of {found.computed} computed in {found.seconds:.1f} s ({every})")
    operations = known_flops(expand(rules, (old,))) or 1.0
    for mutant in found.mutants[:shown]:
        for value in list(made(rules, mutant, problem.small, problem.region))[:2]:
            began = time.perf_counter()
            where = differing(rules, old, value)
            took = time.perf_counter() - began
            if where is None:
                print(f"  {mutant.core}: not compared")
                continue
            verdict = "equal" if not where.boxes else "corrected" if where.share <= LIMIT else "refused"
            times = (known_flops(expand(rules, (value,))) or 0.0) / operations
            priced = price(rules, value) / price(rules, old)
            print(
                f"  {mutant.core}: {where.share:6.1%} differ in {len(where.boxes)} boxes, {'proved' if where.proved else 'not proved'}"
                f" ({took:.1f} s), {verdict}; operations x {times:.2f}, price x {priced:.2f}; back {mutant.back}"
            )


def branches(rules: Rules, batch: int) -> None:
    """Figure 10 at Table 3's sizes: two convolutions with 192 and two with 160 filters of one image."""
    image = hole(0, TensorType(DType.F32, (batch, 768, 18, 18)))
    kernels = [hole(k + 1, TensorType(DType.F32, (filters, 768, 1, 1))) for k, filters in enumerate((192, 192, 160, 160))]
    made_of = [apply(rules, "std.conv", [image, kernel])[0] for kernel in kernels]
    region = program((image, *kernels), made_of)
    before = price(rules, *made_of)
    began = time.perf_counter()
    ways = list(joined(rules, problem_of(rules, region)))
    print(f"\nfour branches, batch {batch}: {len(ways)} ways in {time.perf_counter() - began:.1f} s")
    for one in ways[:6]:
        made_one = one.made(rules, region)
        if made_one is not None:
            times = price(rules, *made_one) / before
            print(f"  {one.core}, operands along {one.axes}, results along {one.axis}: price x {times:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", choices=tuple(CASES))
    parser.add_argument("--batch", default="1,16")
    parser.add_argument("--shown", type=int, default=6)
    args = parser.parse_args()
    rules = standard()
    for name in [args.only] if args.only else CASES:
        for batch in map(int, args.batch.split(",")):
            table(rules, name, batch, args.seconds, args.shown)
    if not args.only:
        for batch in map(int, args.batch.split(",")):
            branches(rules, batch)


if __name__ == "__main__":
    main()
