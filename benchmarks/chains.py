"""Random pairs of programs of two to four operators each, the second with other attributes, layouts or operators of equal shapes."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import islice, permutations
from math import prod

# elements of a tensor at most: both programs are computed many times
_MOST = 3000

Shape = Sequence[int]


def chain(seed: int) -> tuple[str, str]:
    """Two calls over common tensors, as `dslc diff` takes them; mostly of equal types."""
    rnd = random.Random(seed)
    rank = rnd.choice((1, 2, 2, 3, 3, 4, 4, 4, 5))
    shape: Shape = [rnd.randint(1, 4) for _ in range(rank)]
    if rank >= 3:
        shape = [rnd.randint(1, 3), rnd.choice((1, 2, 4)), *[rnd.randint(3, 7) for _ in range(rank - 2)]]
    steps = _Steps(rnd)
    tensors = steps.tensors
    tensors["X"] = shape
    one = other = "X"
    changed = False
    for _ in range(rnd.randint(2, 4)):
        ways, shape = steps.step(shape)
        if prod(shape) > _MOST:
            break
        chosen = rnd.choice(ways) if not changed or rnd.random() < 0.3 else ways[0]
        changed |= chosen != ways[0]
        one, other = ways[0].replace("{}", one), chosen.replace("{}", other)
    dtype = rnd.choice(("f32", "f32", "f64"))
    sides = []
    for side in (one, other):
        text = side
        for name, sizes in list(tensors.items()):
            if re.search(rf"\b{name}\b", text):
                text = re.sub(rf"\b{name}\b", f"{name}: {dtype}{list(sizes)}", text, count=1)
                del tensors[name]
        sides.append(text)
    return sides[0], sides[1]


class _Steps:
    """Operators on one tensor, `{}`, of a shape; tensors beside it are named as they come."""

    def __init__(self, rnd: random.Random) -> None:
        self._rnd = rnd
        self.tensors: dict[str, Shape] = {}

    def step(self, shape: Shape) -> tuple[list[str], Shape]:
        """Ways to write an operator, all of one result's shape, and that shape."""
        kinds = [self._function, self._reshape]
        if shape:
            kinds += [self._along, self._pad, self._slice, self._concat, self._beside]
        if len(shape) >= 2:
            kinds += [self._transpose, self._transpose, self._reduce, self._matmul]
        if len(shape) >= 3 and all(2 <= size <= 9 for size in shape[2:]):
            kinds += [self._conv, self._conv, self._pool]
        return self._rnd.choice(kinds)(shape)

    def _fresh(self, shape: Shape) -> str:
        name = f"V{len(self.tensors)}"
        self.tensors[name] = shape
        return name

    def _function(self, shape: Shape) -> tuple[list[str], Shape]:
        return [
            f"{name}({{}})" for name in self._rnd.sample(["relu", "neg", "abs", "sigmoid", "exp", "tanh"], 3)
        ], shape

    def _reshape(self, shape: Shape) -> tuple[list[str], Shape]:
        rest, sizes = prod(shape), []
        for _ in range(self._rnd.randint(0, 3)):
            sizes.append(self._rnd.choice([size for size in range(1, rest + 1) if rest % size == 0]))
            rest //= sizes[-1]
        sizes.append(rest)
        self._rnd.shuffle(sizes)
        return [f"reshape({{}}, shape={sizes})"], sizes

    def _along(self, shape: Shape) -> tuple[list[str], Shape]:
        name = self._rnd.choice(("reverse", "cumsum", "softmax"))
        return [f"{name}({{}}, axis={axis})" for axis in range(len(shape))] + ["{}"] * (name == "reverse"), shape

    def _pad(self, shape: Shape) -> tuple[list[str], Shape]:
        before, after = ([self._rnd.randint(0, 2) for _ in shape] for _ in range(2))
        names = ["pad", "pad_edge", "pad_reflect", "pad_wrap"] if min(shape) > 2 else ["pad"]
        ways = [f"{name}({{}}, before={before}, after={after})" for name in names]
        sizes = [a + size + b for a, size, b in zip(before, shape, after, strict=True)]
        return [*ways, f"pad({{}}, before={after}, after={before})"], sizes

    def _slice(self, shape: Shape) -> tuple[list[str], Shape]:
        sizes = [self._rnd.randint(max(1, size // 2), size) for size in shape]
        starts = [
            [self._rnd.randint(0, size - part) for size, part in zip(shape, sizes, strict=True)] for _ in range(3)
        ]
        steps = [
            2 if 2 * (part - 1) < size and self._rnd.random() < 0.5 else 1
            for size, part in zip(shape, sizes, strict=True)
        ]
        ways = [f"slice({{}}, start={start}, size={sizes})" for start in starts]
        return [*ways, f"slice({{}}, start={[0] * len(shape)}, size={sizes}, step={steps})"], sizes

    def _concat(self, shape: Shape) -> tuple[list[str], Shape]:
        axis, other = self._rnd.randrange(len(shape)), self._fresh(shape)
        sizes = [2 * size if k == axis else size for k, size in enumerate(shape)]
        return [f"concat({a}, {b}, axis={axis})" for a, b in (("{}", other), (other, "{}"), ("{}", "{}"))], sizes

    def _beside(self, shape: Shape) -> tuple[list[str], Shape]:
        cut = self._rnd.randint(0, len(shape))
        other = self._fresh([size if self._rnd.random() < 0.7 else 1 for size in shape[cut:]])
        name = self._rnd.choice(("add", "mul", "sub", "maximum"))
        return [f"{name}({{}}, {other})", f"{name}({other}, {{}})", f"{name}({{}}, {{}})"], shape

    def _transpose(self, shape: Shape) -> tuple[list[str], Shape]:
        perm = self._rnd.sample(range(len(shape)), len(shape))
        sizes = [shape[k] for k in perm]
        others = [
            list(each) for each in islice(permutations(range(len(shape))), 120) if [shape[k] for k in each] == sizes
        ]
        return [
            f"transpose({{}}, perm={each})" for each in (perm, *self._rnd.sample(others, min(2, len(others))))
        ], sizes

    def _reduce(self, shape: Shape) -> tuple[list[str], Shape]:
        axis, keep = self._rnd.randrange(len(shape)), self._rnd.random() < 0.5
        sizes = [1 if k == axis else size for k, size in enumerate(shape) if keep or k != axis]
        names = self._rnd.sample(["sum", "max", "mean", "min"], 2)
        return [f"reduce_{name}({{}}, axes=[{axis}], keepdims={str(keep).lower()})" for name in names], sizes

    def _matmul(self, shape: Shape) -> tuple[list[str], Shape]:
        width = self._rnd.randint(1, 4)
        one, other = self._fresh([shape[-1], width]), self._fresh([width, shape[-1]])
        ways = [
            f"matmul({{}}, {one})",
            f"matmul({{}}, transpose({other}, perm=[1, 0]))",
            f"matmul({{}}, reverse({one}, axis=0))",
        ]
        return ways, [*shape[:-1], width]

    def _conv(self, shape: Shape) -> tuple[list[str], Shape]:
        rnd = self._rnd
        groups = rnd.choice([each for each in range(1, shape[1] + 1) if shape[1] % each == 0])
        filters, window = groups * rnd.randint(1, 2), [rnd.randint(1, min(3, size)) for size in shape[2:]]
        dilation = [rnd.choice((1, 1, 2, 3)) if size > 1 else 1 for size in window]
        stride = [rnd.choice((1, 1, 2)) for _ in window]
        spans = [(size - 1) * step for size, step in zip(window, dilation, strict=True)]
        margins = [max(0, span + rnd.choice((0, -1, 1))) for span in spans]
        sizes = [
            (size + all_ - span - 1) // step + 1
            for size, all_, span, step in zip(shape[2:], margins, spans, stride, strict=True)
        ]
        if min(sizes) < 1:
            return self.step(shape)
        kernel = self._fresh([filters, shape[1] // groups, *window])
        ways = []
        for each in (kernel, kernel, f"reverse({kernel}, axis=2)"):
            before = [rnd.randint(0, all_) for all_ in margins]
            pads = before + [all_ - part for all_, part in zip(margins, before, strict=True)]
            ways.append(f"conv({{}}, {each}, pads={pads}, dilation={dilation}, stride={stride}, groups={groups})")
        return ways, [shape[0], filters, *sizes]

    def _pool(self, shape: Shape) -> tuple[list[str], Shape]:
        rnd = self._rnd
        window = [rnd.randint(1, min(3, size)) for size in shape[2:]]
        stride = [rnd.choice((1, 2)) for _ in window]
        before, after = ([rnd.randint(0, size - 1) for size in window] for _ in range(2))
        every = zip(shape[2:], before, after, window, stride, strict=True)
        sizes = [(size + a + b - span) // step + 1 for size, a, b, span, step in every]
        if min(sizes) < 1:
            return self.step(shape)
        names = rnd.sample(["avg_pool", "avg_pool_valid", "max_pool"], 2)
        return [f"{name}({{}}, kernel={window}, stride={stride}, pads={before + after})" for name in names], [
            *shape[:2],
            *sizes,
        ]


__all__ = ["chain"]
