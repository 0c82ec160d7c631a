"""Groups by themselves: measured as graphs of their own, their changes of layout set apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, log2

from dslc.cost.layout import Info
from dslc.cost.machine import farthest_cache
from dslc.cost.measure import LEAST as MEASURE_LEAST
from dslc.cost.measure import Measured, Measurer, Sample
from dslc.cost.samples import Samples, Small, bytes_in
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Values

#: builds the serialized model that computes outputs from inputs (all types static); None where ONNX cannot say it
Build = Callable[[Values, Values], "bytes | None"]


TINY = 1 << 16  #: bytes; what touches no more is measured several times at once: a run's own time would drown it
TINY_COPIES = 8  #: how often it is measured at once then
#: bytes; larger weights that are read fast are measured as they are in the model: out of the farther caches,
#: because other weights come between two uses. What lies beyond the farthest cache is not imitated (see
#: `dslc.cost.evaluation`)
WEIGHTS = 1 << 15
STREAMED = 4e9  #: bytes a second from which on weights are read fast
MOST_COPIES = 16  #: copies of such a group that are measured in one model, at most
OWN_SHARE = 0.1  #: share of a group with its changes of layout that it takes for itself, at least


@dataclass
class GroupTimer:
    """Measures groups. `footprint` is how many bytes of weights the original has."""

    measurer: Measurer
    samples: Samples
    build: Build
    footprint: int = 0

    def info(self, small: Small, turn: str = "") -> Info:
        """Return the cost of a group, from the cache or measured; each `turn` is another measurement."""
        found, copies = self.alone(small, turn)
        return self._info(small, found, copies, turn)

    def says(self, small: Small) -> bool:
        """Return whether ONNX can say a group at the model's opset."""
        return self.build((*small.inputs, *small.weights), small.outputs) is not None

    def alone(self, small: Small, turn: str) -> tuple[Measured, int]:
        """Time a group as a graph of its own; also the number of copies measured at once."""
        touched = sum(map(bytes_in, (*small.inputs, *small.weights, *small.outputs)))
        copies = TINY_COPIES if touched <= TINY else 1
        # the first measurement decides how it is measured at every turn
        first = self._measured(small, copies, "")
        once, weights = copies, sum(map(bytes_in, small.weights))
        if weights >= WEIGHTS and weights > STREAMED * first.seconds:
            # powers of two, so that models of other sizes find it in the cache; the nearest one: more weights than the model has
            # lie farther away than its own
            times = max(1.0, min(self.footprint, farthest_cache()) / weights)
            copies = max(copies, min(MOST_COPIES, 1 << round(log2(times))))
        return first if copies == once and not turn else self._measured(small, copies, turn), copies

    def _measured(self, small: Small, copies: int, turn: str, blocked: Sequence[int] = ()) -> Measured:
        """Time a group with some of its inputs, by position, coming in blocks, their producers included."""
        weights = [f"x{len(small.inputs) + k}" for k in range(len(small.weights))]

        def build() -> bytes | None:
            model = self.build((*small.inputs, *small.weights), small.outputs)
            if model is None or not blocked:
                return model
            from dslc.onnx.microbenchmarks import with_blocked

            return with_blocked(model, [f"x{k}" for k in blocked])

        text = self.samples.text(small)
        text = text if not blocked else f"in blocks: {', '.join(f'x{k}' for k in blocked)}\n{text}"
        text = text if copies == 1 else f"{copies} times\n{text}"
        return self.measurer.measured(Sample(text, build, copies, tuple(weights)), turn)

    def _info(self, small: Small, found: Measured, copies: int, turn: str) -> Info:
        """Time a group, its changes of layout set apart."""
        if not found.entering and not found.leaving and not found.blocked:
            return Info(found.seconds)
        types = [value.type for value in small.inputs]
        result = small.outputs[0].type
        enters = tuple(self._reorder(type, True, turn) if k in found.entering else 0.0 for k, type in enumerate(types))
        leave = self._reorder(result, False, turn) if found.leaving else 0.0

        def rest(seconds: float, changes: float) -> float:
            # noise must not leave nothing of a group
            return max(MEASURE_LEAST, seconds - changes, OWN_SHARE * seconds)

        body = rest(found.seconds, sum(enters) + leave)
        if not found.blocked:
            return Info(body, enters, leave)
        leaves = self._reorder(result, False, turn)
        others = [k for k in range(len(types)) if k not in found.entering]
        if not found.entering:
            return Info(body, (), leave, body, leaves)
        joined = self._measured(small, copies, turn, others).seconds
        before = sum(self._pooled(types[k], turn) - self._reorder(types[k], False, turn) for k in others)
        return Info(body, enters, leave, rest(joined, before + sum(enters) + leaves), leaves)

    def _reorder(self, type: TensorType, into: bool, turn: str) -> float:
        """Seconds for bringing a tensor into blocks or out of them."""
        from dslc.onnx.microbenchmarks import reorder_model

        text = f"{'into' if into else 'out of'} blocks"
        seconds = self._by_itself(text, type, lambda shape: reorder_model(shape, into), turn)
        return seconds if seconds < inf else MEASURE_LEAST

    def _pooled(self, type: TensorType, turn: str) -> float:
        """Seconds for what brings inputs into blocks, from plain to plain."""
        from dslc.onnx.microbenchmarks import pooling_model

        return self._by_itself("pooled", type, pooling_model, turn)

    def _by_itself(self, text: str, type: TensorType, build: Callable[[tuple[int, ...]], bytes], turn: str) -> float:
        """Seconds of what no rule speaks of, from one tensor to one of its size."""
        shape = tuple(size for size in type.shape if isinstance(size, int))
        copies = TINY_COPIES if 2 * type.bytes <= TINY else 1
        return self.measurer.measured(Sample(f"{text}: {type}", lambda: build(shape), copies), turn).seconds
