"""Rewrites of scopes per second on one core: `python -m benchmarks.scopes`.

Every scope is a fresh one (other sizes, other constants), as in a search: nothing is found in a cache that a search would not have.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import time
from collections.abc import Callable, Iterator

from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Scope, Value, input_value, scope_value
from dslc.ir.normal import Normalizer
from dslc.ir.scalar import apply, iterator, num, read, reduce
from dslc.ir.scopes import inline, renumber, restrict, split_iterator, substitute

I0, I1, I2, I3 = (iterator(f"i{k}") for k in range(4))
R0, R1, R2 = (iterator(f"r{k}") for k in range(3))


def product(rows: int, inner: int, columns: int, name: str = "A") -> Value:
    """A matrix product with a constant of its own, so that no two are one object."""
    a = input_value(name, TensorType(DType.F32, (rows, inner)))
    b = input_value("B", TensorType(DType.F32, (inner, columns)))
    body = reduce("sum", (R0,), (num(inner),), apply("*", read(0, (I0, R0)), read(1, (R0, I1))))
    return scope_value(Scope((rows, columns), body, DType.F32), (a, b))


def convolution(channels: int, size: int) -> Value:
    """A 3x3 convolution of one image with a border."""
    x = input_value("X", TensorType(DType.F32, (channels, size, size)))
    k = input_value("K", TensorType(DType.F32, (channels, channels, 3, 3)))
    at = (R0, apply("+", I1, R1, num(-1)), apply("+", I2, R2, num(-1)))
    term = apply("*", read(0, at, num(0)), read(1, (I0, R0, R1, R2)))
    body = reduce("sum", (R0, R1, R2), (num(channels), num(3), num(3)), term)
    return scope_value(Scope((channels, size, size), body, DType.F32), (x, k))


def fresh(kind: str) -> Iterator[Value]:
    """Scopes that were never seen."""
    for number in itertools.count(1):
        if kind == "product":
            yield product(4 * number, 8, 16)
        elif kind == "convolution":
            yield convolution(4 * number, 16)
        else:
            producer = product(4 * number, 8, 16)
            body = apply("+", read(0, (I0, I1)), apply("*", num(number), read(1, (I1,))))
            yield scope_value(
                Scope((4 * number, 16), body, DType.F32), (producer, input_value("C", TensorType(DType.F32, (16,))))
            )


#: batches of which the fastest counts: other programs on the machine only make some of them slower
_BATCHES = 10


def rate(rewrite: Callable[[Value], object], scopes: list[Value]) -> float:
    """Rewrites per second of processor time."""
    best, size, kept = 0.0, max(1, len(scopes) // _BATCHES), []
    gc.collect()
    for at in range(0, len(scopes), size):
        batch = scopes[at : at + size]
        start = time.process_time()
        kept += [rewrite(each) for each in batch]
        best = max(best, len(batch) / max(1e-9, time.process_time() - start))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="scopes of each kind")
    parser.add_argument("--profile", help="profile one rewrite, by its name")
    count = parser.parse_args()
    rewrites: dict[str, tuple[str, Callable[[Value], object]]] = {
        "split, outside": ("product", lambda v: split_iterator(v, I0, 2)),
        "split, of a sum": ("convolution", lambda v: split_iterator(v, R0, 2)),
        "substitute": (
            "convolution",
            lambda v: substitute(v.node.scope.body, {I1: apply("+", I2, num(v.type.elements)), I2: I1}),
        ),  # type: ignore[attr-defined]
        "inline": ("fused", lambda v: inline(v, 0)),
        "renumber": ("convolution", renumber),
        "restrict": ("convolution", lambda v: restrict(v, {1: (2, 4)})),
        "normal, product": ("product", lambda v: Normalizer().value(v)),
        "normal, convolution": ("convolution", lambda v: Normalizer().value(v)),
    }
    for name, (kind, rewrite) in rewrites.items():
        if count.profile and count.profile != name:
            continue
        scopes = list(itertools.islice(fresh(kind), count.count))
        if count.profile:
            import cProfile

            cProfile.runctx("rate(rewrite, scopes)", globals(), locals(), sort="tottime")
            continue
        print(f"{name:22} {rate(rewrite, scopes):10,.0f} per second ({kind})")


if __name__ == "__main__":
    main()
