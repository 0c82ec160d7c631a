"""Selection of vendor calls and their layouts for a kernel's program: the lowerings `on cuda`, tried at views of memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from math import prod

from dslc.cuda.arguments import CallPattern, FoundCall, patterns_of
from dslc.cuda.devices import Device
from dslc.cuda.patterns import Leaves, found, leaves_of, summed_of
from dslc.cuda.programs import lifted, one_scope
from dslc.cuda.views import StridedView, plain, row_major
from dslc.ir.graph import Kernel
from dslc.semantics.library import Rules, load, rules_cache
from dslc.syntax import tree as t

#: the library with the lowerings of all targets, and the device of this one there
_LIBRARY, _ON = "targets", "cuda"


LAYOUTS = 2  #: weights of which several layouts are tried

#: the buffer of a result in a call that has none yet; the argument k has `RESULT - 1 - k`
RESULT = -1


@dataclass(frozen=True, slots=True, eq=False)
class TakenCall:
    """A kernel as a vendor's call, whatever its buffers are.

    Views of its arguments, those of weights in the layout that the call wants, and of the result. `whole`: the
    arguments are those of `lifted`. `algorithm`: what the price counts on, for people.
    """

    whole: bool
    found: FoundCall
    operands: tuple[StridedView, ...]
    result: StridedView
    seconds: float
    algorithm: str = ""


def patterns(rules: Rules) -> tuple[CallPattern, ...]:
    """The lowerings of expressions with calls on CUDA, of the library of targets and of `rules`."""
    known: dict[str, tuple[CallPattern, ...]] = rules_cache(rules, "calls on cuda")
    if _ON not in known:
        made: dict[str, tuple[CallPattern, ...]] = {}
        for library in (load(_LIBRARY), rules):
            for name, lowering in library.lowerings.items():
                syntax = lowering.syntax
                if syntax.device != _ON or not syntax.expr or name in made:
                    continue
                if any(isinstance(one, t.CallVendor) for one in syntax.statements):
                    made[name] = patterns_of(library, lowering)
        known[_ON] = tuple(chain.from_iterable(made.values()))
    return known[_ON]


class Calls:
    """The calls of one device."""

    def __init__(self, rules: Rules, device: Device) -> None:
        self.rules, self.device = rules, device
        self.patterns = patterns(rules)
        #: equal kernels of equal layouts are looked at once
        self._known: dict[object, TakenCall | None] = rules_cache(rules, f"calls taken on {device.name}")

    def best(self, kernel: Kernel, views: Sequence[StridedView], turnable: bool) -> TakenCall | None:
        """The fastest call of the first layouts that some call takes.

        Args:
            views: of the kernel's arguments; those of weights are not looked at, since a weight may lie in any layout.
            turnable: whether the result may lie in another order than row-major.
        """
        whole = lifted(kernel)
        for one in (whole, kernel) if whole is not kernel else (kernel,):
            given = tuple(
                plain(RESULT - 1 - k, arg.type.dtype, arg.type.sizes)
                if arg.constant
                else replace(views[k], buffer=RESULT - 1 - k)
                for k, arg in enumerate(one.args)
            )
            key = (one.group, tuple(arg.constant for arg in one.args), given, turnable, one is whole)
            if key not in self._known:
                self._known[key] = self._best(one, given, turnable, one is whole)
            taken = self._known[key]
            if taken:
                return taken
        return None

    def _best(self, kernel: Kernel, views: Sequence[StridedView], turnable: bool, whole: bool) -> TakenCall | None:
        scope = one_scope(self.rules, kernel.group)
        if scope is None:
            return None
        value, order = scope
        fitting: list[tuple[CallPattern, list[Leaves]]] | None = None
        for operands, result in self._layouts(kernel, views, turnable):
            by_hole = dict(zip(kernel.group.inputs, operands, strict=True))
            target = summed_of(value, [by_hole[one] for one in order], result)
            if not target:
                return None
            if fitting is None:
                # what is computed is the same wherever everything lies
                fitting = [(pattern, own) for pattern in self.patterns if (own := leaves_of(pattern, target))]
            if not fitting:
                return None
            best: TakenCall | None = None
            for pattern, own in fitting:
                for one in found(pattern, target, own):
                    seconds = self._seconds(one)
                    if not best or seconds < best.seconds:
                        best = TakenCall(
                            whole, one, operands, result, seconds, self.device.algorithm(result.dtype, one.window)
                        )
            if best:
                return best
        return None

    def _layouts(
        self, kernel: Kernel, views: Sequence[StridedView], turnable: bool
    ) -> Iterator[tuple[tuple[StridedView, ...], StridedView]]:
        """Layouts of weights, and of a result that may: first row-major, then with another axis the fastest."""
        (type,) = kernel.types
        assert type
        result = plain(RESULT, type.dtype, type.sizes)
        weights = [k for k, arg in enumerate(kernel.args) if arg.constant][:LAYOUTS]
        choices = [_turned(result) if turnable else [result], *(_turned(views[k]) for k in weights)]
        for chosen in sorted(product(*(range(len(one)) for one in choices)), key=sum):
            operands = list(views)
            for k, own, place in zip(weights, choices[1:], chosen[1:], strict=True):
                operands[k] = own[place]
            yield tuple(operands), choices[0][chosen[0]]

    def _seconds(self, one: FoundCall) -> float:
        views = [value for _, value in one.arguments if isinstance(value, StridedView)]
        calls = len(one.moves)
        moved = sum(_touched(view) * view.dtype.bytes for view in views)
        return calls * self.device.call(one.flops / calls, moved, views[0].dtype, one.sizes, one.window)


def _turned(view: StridedView) -> list[StridedView]:
    """A view in row-major order, and as it would lie with each axis the fastest."""
    found = [view]
    for axis in range(len(view.shape) - 1):
        order = [k for k in range(len(view.shape)) if k != axis] + [axis]
        steps = row_major([view.shape[k] for k in order])
        found.append(
            StridedView(view.buffer, view.dtype, view.shape, tuple(steps[order.index(k)] for k in range(len(order))))
        )
    return found


def _touched(view: StridedView) -> int:
    """Elements that are read once: what is repeated at a stride of 0 is not read again."""
    return prod(size for size, stride in zip(view.shape, view.strides, strict=True) if stride)
