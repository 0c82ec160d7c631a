"""PET's case studies (OSDI 2021, Table 3, Figure 10 and section 8.3): mutants that are found from the operators alone.

    python -m benchmarks.pet [--seconds 10] [--only dilated] [--batch 1,16] [--shown 3]

One table: for each case the mutant that the paper names, after how many seconds it was found, the share that differs at the real sizes,
whether that is proved and may be corrected, and operations and an estimate of the price, its correction included, as multiples of the
operator's. Below the first case stand tiles that overlap, which need no correction. Seconds are those of the process. Nothing is
measured; `benchmarks.pet_models` does that.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.pet_branches import joined
from dslc.analysis.counts import known_flops
from dslc.derivation.programs import estimated
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Graph, Value, topological
from dslc.ir.holes import hole, program
from dslc.mutate.batch_tiling import overlapping
from dslc.mutate.correct import SHARE as CORRECT_SHARE
from dslc.mutate.correct import corrections, differing
from dslc.mutate.mutant import MutantOptions, made
from dslc.mutate.problem import problem_of, shape_of
from dslc.mutate.search import search
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules, standard

#: a program's one operator, with its attributes, and the shapes that it takes
Named = Callable[[Mapping[str, Any], list[tuple[int, ...]]], bool]


@dataclass(frozen=True)
class Case:
    """An operator at the paper's sizes; the first size of the first tensor is the batch.

    `named`: mutants that the paper speaks of, by what they do.
    """

    op: str
    shapes: tuple[tuple[int, ...], ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    named: Mapping[str, Named] = field(default_factory=dict)

    def region(self, rules: Rules, batch: int) -> Graph:
        first = (batch, *self.shapes[0][1:]) if self.op != "matmul" or len(self.shapes[0]) > 2 else self.shapes[0]
        holes = tuple(hole(k, TensorType(DType.F32, shape)) for k, shape in enumerate((first, *self.shapes[1:])))
        return program(holes, apply(rules, f"std.{self.op}", holes, dict(self.attrs)))


def dense(attrs: Mapping[str, Any], shapes: list[tuple[int, ...]]) -> bool:
    return set(attrs.get("dilation", (1,))) == {1} and attrs.get("groups", 1) == 1 and len(shapes) == 2


def stepless(attrs: Mapping[str, Any], shapes: list[tuple[int, ...]]) -> bool:
    return "stride" in attrs and set(attrs["stride"]) == {1}


def depth(attrs: Mapping[str, Any], shapes: list[tuple[int, ...]]) -> bool:
    return stepless(attrs, shapes) and len(shapes) == 2 and shapes[1][-1] < 3


SAME = (1, 1, 1, 1)
IMAGE = ((1, 64, 28, 28), (128, 64, 3, 3))
CASES = {
    "conv": Case(
        "conv", ((1, 48, 38, 38), (64, 48, 5, 5)), {"pads": (2, 2, 2, 2)},
        {"sixteen tiles of 10x10": lambda attrs, shapes: shapes[0][2:] == (10, 10) and shapes[0][0] % 16 == 0},
    ),
    "dilated": Case(
        "conv", ((1, 512, 14, 14), (256, 512, 3, 3)), {"pads": (2, 2, 2, 2), "dilation": (2, 2)}, {"dense": dense},
    ),
    "dilated 11x13": Case(
        "conv", ((1, 512, 11, 13), (256, 512, 3, 3)), {"pads": (2, 2, 2, 2), "dilation": (2, 2)},
        {"dense, padded": lambda attrs, shapes: dense(attrs, shapes) and shapes[0][2:] == (6, 7) and attrs["pads"] == SAME,
         "dense, cut": lambda attrs, shapes: dense(attrs, shapes) and shapes[0][2:] in {(5, 6), (6, 6), (5, 7)}},
    ),
    "pointwise": Case(
        "conv", ((1, 768, 18, 18), (192, 768, 1, 1)), {}, {"parts as images": lambda attrs, shapes: shapes[0][0] % 4 == 0},
    ),
    "batchmatmul": Case(
        "matmul", ((1, 512, 768), (768, 768)), {}, {"one product": lambda attrs, shapes: len(shapes[0]) == 2},
    ),
    "stride": Case(
        "conv", IMAGE, {"pads": SAME, "stride": (2, 2)},
        {"stride 1, positions as channels": depth, "stride 1, every second": lambda a, s: stepless(a, s) and not depth(a, s)},
    ),
    "stride 1x1": Case("conv", (IMAGE[0], (128, 64, 1, 1)), {"stride": (2, 2)}, {"stride 1": stepless}),
    "group": Case("conv", ((1, 64, 14, 14), (64, 32, 3, 3)), {"pads": SAME, "groups": 2}, {"dense": dense}),
    "depthwise": Case("conv", ((1, 96, 14, 14), (96, 1, 3, 3)), {"pads": SAME, "groups": 96}, {"dense": dense}),
    "images": Case(
        "conv", ((1, 32, 14, 14), (32, 32, 3, 3)), {"pads": SAME},
        {"groups": lambda attrs, shapes: attrs.get("groups", 1) > 1},
    ),
    "pool": Case(
        "avg_pool", ((1, 64, 14, 14),), {"kernel": (2, 2), "stride": (2, 2)},
        {"groups": lambda attrs, shapes: len(shapes) == 2 and attrs.get("groups", 1) > 1, "dense": dense},
    ),
}  # fmt: skip
#: of the mutants that the paper names so many of the cheapest are compared
CHEAP = 3
COLUMNS = "operator, batch, kept, mutant, found after, what it takes, differs, boxes, set, correction, operations, price".split(
    ", "
)


def price(rules: Rules, *values: Value) -> float:
    """Seconds by estimate."""
    each = estimated(rules)
    return sum(each(node) for node in topological(value.node for value in values))


def row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def only(value: Value) -> Call | None:
    """The one operator of a program."""
    calls = [node for node in topological([value.node]) if isinstance(node, Call) and not node.constant]
    return calls[0] if len(calls) == 1 else None


def compared(rules: Rules, old: Value, value: Value) -> tuple[str, ...]:
    """What differs, in how many boxes, whether that is proved, how it is corrected, operations and price with that."""
    where = differing(rules, old, value)
    if where is None:
        return ("?", "", "not compared", "", "", "")
    ways = [one.value(rules) for one in corrections(rules, old, value, 1.0)]
    cheapest = min((price(rules, way) for way in ways), default=price(rules, value)) / price(rules, old)
    times = (known_flops(expand(rules, (value,))) or 0.0) / (known_flops(expand(rules, (old,))) or 1.0)
    verdict = "none" if not where.boxes else "fused" if where.share <= CORRECT_SHARE else "refused"
    proved = "proved" if where.proved else "not proved"
    differs = f"{where.share:.1%}" if where.boxes else "nowhere"
    return differs, str(len(where.boxes)), proved, verdict, f"{times:.2f}", f"{cheapest:.2f}"


def wrong(rules: Rules, old: Value, value: Value) -> float:
    """The share that differs; more than all of it where that is not known."""
    where = differing(rules, old, value)
    return 2.0 if where is None else where.share if where.boxes else 0.0


def shapes_of(node: Call) -> list[tuple[int, ...]]:
    return [shape_of(arg) for arg in node.args]


def table(rules: Rules, name: str, batch: int, seconds: float, shown: int) -> None:
    case = CASES[name]
    region = case.region(rules, batch)
    (old,) = region.outputs
    problem = problem_of(rules, region)
    found = search(rules, problem, MutantOptions(seconds=seconds, best=64, processor=True))
    every: list[tuple[Value, Call, float]] = []
    for mutant, after in zip(found.mutants, found.after, strict=True):
        for value in list(made(rules, mutant, problem.small, problem.region))[:3]:
            node = only(value)
            if node is not None:
                every.append((value, node, after))
    kept = f"{len(found.mutants)} of {found.computed}"
    for what, wanted in case.named.items():
        named = [each for each in every if wanted(dict(each[1].attrs), shapes_of(each[1]))]
        if not named:
            row(name, batch, kept, what, f"not in {found.seconds:.1f} s", *[""] * 7)
            continue
        # of those that are cheap the one that is wrong least
        named.sort(key=lambda each: price(rules, each[0]))
        value, node, after = min(named[:CHEAP], key=lambda each: wrong(rules, old, each[0]))
        row(name, batch, kept, what, f"{after:.1f} s", shapes_of(node)[0], *compared(rules, old, value))
    for value, node, after in every[:shown]:
        row(
            name,
            batch,
            kept,
            node.op.removeprefix("std."),
            f"{after:.1f} s",
            shapes_of(node)[0],
            *compared(rules, old, value),
        )
    began = time.process_time()
    tiles = sorted(overlapping(rules, old), key=lambda value: price(rules, value)) if name == "conv" else []
    taken = time.process_time() - began
    for value in [each for each in tiles if (node := only(each)) is not None and shapes_of(node)[0][2:] == (14, 14)][
        :1
    ]:
        node = only(value)
        assert node is not None
        row(
            name,
            batch,
            len(tiles),
            "sixteen that overlap",
            f"{taken:.1f} s",
            shapes_of(node)[0],
            *compared(rules, old, value),
        )


def branches(rules: Rules, batch: int) -> None:
    """Figure 10 at Table 3's sizes: two convolutions with 192 and two with 160 filters of one image, and of an image each."""
    for images in (1, 4):
        data = [hole(k, TensorType(DType.F32, (batch, 768, 18, 18))) for k in range(images)]
        kernels = [
            hole(k + images, TensorType(DType.F32, (filters, 768, 1, 1)))
            for k, filters in enumerate((192, 192, 160, 160))
        ]
        calls = [apply(rules, "std.conv", [data[k % images], kernel])[0] for k, kernel in enumerate(kernels)]
        region = program((*data, *kernels), calls)
        before = price(rules, *calls)
        began = time.process_time()
        ways = list(joined(rules, problem_of(rules, region)))
        seconds = f"{time.process_time() - began:.1f} s"
        seen = set()
        for one in ways:
            values = one.made(rules, region)
            groups = dict(one.core.attrs).get("groups", 1)
            if values is None or groups in seen:
                continue
            seen.add(groups)
            node = next(each for each in topological([values[0].node]) if isinstance(each, Call))
            what = f"{'(b) one image' if images == 1 else '(a) an image each'}, groups {groups}"
            times = f"{price(rules, *values) / before:.2f}"
            row(
                "four branches",
                batch,
                len(ways),
                what,
                seconds,
                shapes_of(node)[0],
                "nowhere",
                0,
                "",
                "none",
                "",
                times,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", choices=tuple(CASES))
    parser.add_argument("--batch", default="1,16")
    parser.add_argument("--shown", type=int, default=0, help="the best of each case beside those that the paper names")
    args = parser.parse_args()
    rules = standard()
    row(*COLUMNS)
    row(*["---"] * len(COLUMNS))
    for name in [args.only] if args.only else CASES:
        for batch in map(int, args.batch.split(",")):
            table(rules, name, batch, args.seconds, args.shown)
    for batch in [] if args.only else map(int, args.batch.split(",")):
        branches(rules, batch)


if __name__ == "__main__":
    main()
