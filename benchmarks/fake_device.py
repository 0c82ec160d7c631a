"""A device that is none: it records what it is asked, and computes it with the interpreter in memory of its own.

Fresh memory is poisoned and addresses are checked, so that a tensor that is read too late, written too early or beyond its end is seen.
What streams leave open is run in an order that is drawn: a plan whose steps do not wait for what they need gives other values.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dslc.cuda.launch import Code, CudaFailure, Invoked, Reason, Tensor
from dslc.interpret.floats import Floats
from dslc.interpret.run import InterpretError, run, run_scopes
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Scope, input_value, scope_value
from dslc.ir.scalar import Scalar, apply, as_scalar, iterator, num, read, reduce, traversal
from dslc.semantics.library import Rules

_POISON = 0xFF


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the device was asked: a kernel's name or a vendor's function, its arguments, and the stream."""

    name: str
    arguments: Any
    stream: int


@dataclass(slots=True)
class _Started:
    """What a stream has to do, once that before it on the stream and some events are done."""

    run: Callable[[], None] | None
    stream: int
    after: tuple[int, ...]
    done: bool = False


@dataclass(slots=True, eq=False)
class FakeDevice:
    """A `Launcher` without a device.

    Args:
        order: of what streams leave open: a seed; None: as it was started.
        memory: bytes that there are.
        broken: kernels and functions that fail, each with the reason.
        kernels: what computes a kernel of its text and arrays; None: the interpreter, of its program.
    """

    rules: Rules
    order: int | None = None
    capability: tuple[int, int] = (9, 0)
    memory: int = 1 << 32
    broken: Mapping[str, Reason] = field(default_factory=dict)
    kernels: Callable[[Any, Sequence[Any]], Sequence[Any]] | None = None
    name: str = "fake"
    delayed: bool = False
    interprets: bool = True
    recorded: list[Recorded] = field(default_factory=list)
    _blocks: dict[int, Any] = field(default_factory=dict)
    _next: int = 1 << 20
    _queue: list[_Started] = field(default_factory=list)
    _pending: dict[int, list[int]] = field(default_factory=dict)
    #: how many of what was started are done
    _past: int = 0

    # ---- memory -------------------------------------------------------------------------------------------------------

    def allocate(self, bytes: int) -> int:
        if sum(len(block) for block in self._blocks.values()) + bytes > self.memory:
            raise CudaFailure(Reason.MEMORY, f"{bytes} bytes")
        pointer = self._next
        self._blocks[pointer] = np.full(bytes, _POISON, np.uint8)
        # what lies behind a block belongs to nobody
        self._next += -(-bytes // 256) * 256 + 4096
        return pointer

    def free(self, pointer: int) -> None:
        del self._blocks[pointer]

    def upload(self, pointer: int, data: bytes) -> None:
        self._bytes(pointer, len(data))[: len(data)] = np.frombuffer(data, np.uint8)

    def download(self, pointer: int, bytes: int) -> bytes:
        self.synchronize()
        return self._bytes(pointer, bytes)[:bytes].tobytes() if bytes else b""

    def _bytes(self, pointer: int, count: int) -> Any:
        """The memory from an address to the end of its block."""
        for start, block in self._blocks.items():
            if start <= pointer and pointer + count <= start + len(block):
                return block[pointer - start :]
        raise CudaFailure(Reason.LAUNCH, f"an illegal address: {count} bytes at {pointer}")

    def _flat(self, tensor: Tensor, reach: int) -> Any:
        """The elements from a tensor's first one on, as many as are reached."""
        size = tensor.dtype.bytes
        return self._bytes(tensor.pointer, reach * size)[: reach * size].view(NUMPY[tensor.dtype])

    def _array(self, tensor: Tensor) -> Any:
        """A tensor as an array on the memory itself."""
        if 0 in tensor.shape:
            return np.zeros(tensor.shape, NUMPY[tensor.dtype])
        reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True))
        flat = self._flat(tensor, reach)
        strides = tuple(stride * tensor.dtype.bytes for stride in tensor.strides)
        return np.lib.stride_tricks.as_strided(flat, tensor.shape, strides)

    # ---- kernels and calls --------------------------------------------------------------------------------------------

    def load(self, code: Code) -> Any:
        reason = self.broken.get(code.name)
        if reason in {Reason.COMPILE, Reason.LOAD}:
            raise CudaFailure(reason, "as it was asked to")
        return code

    def kernel(
        self, loaded: Any, reads: Sequence[Tensor], writes: Sequence[Tensor], scratch: Sequence[int], stream: int
    ) -> None:
        code: Code = loaded
        self._refuse(code.name)
        self.recorded.append(Recorded(code.name, (tuple(reads), tuple(writes)), stream))

        def compute() -> None:
            arrays = [self._array(one).copy() for one in reads]
            results = self._interpreted(code, arrays) if self.kernels is None else self.kernels(code.text, arrays)
            for one, result in zip(writes, results, strict=True):
                self._array(one)[...] = result

        self._start(compute, stream)

    def _interpreted(self, code: Code, arrays: Sequence[Any]) -> Sequence[Any]:
        try:
            return run(self.rules, code.program.outputs, dict(zip(code.program.inputs, arrays, strict=True)), Floats())
        except InterpretError as problem:
            raise CudaFailure(Reason.LAUNCH, str(problem), code.name, code.rule) from None

    def call(self, invoked: Invoked, stream: int) -> None:
        self._refuse(invoked.function)
        self.recorded.append(Recorded(invoked.function, dict(invoked.arguments), stream))
        meaning = _MEANINGS.get(invoked.function)
        if meaning is None:
            raise CudaFailure(Reason.BINDING, invoked.function)
        pointer, size = invoked.workspace

        def compute() -> None:
            if size:
                # whatever is kept there is lost
                self._bytes(pointer, size)[:size] = 0xA5
            meaning(self, dict(invoked.arguments))

        self._start(compute, stream)

    def _refuse(self, name: str) -> None:
        reason = self.broken.get(name)
        if reason is not None and reason not in {Reason.COMPILE, Reason.LOAD}:
            raise CudaFailure(reason, "as it was asked to")

    # ---- streams ------------------------------------------------------------------------------------------------------

    def _start(self, compute: Callable[[], None] | None, stream: int) -> None:
        before = [k for k, one in enumerate(self._queue) if one.stream == stream][-1:]
        self._queue.append(_Started(compute, stream, (*before, *self._pending.pop(stream, ()))))

    def record(self, stream: int) -> Any:
        return max((self._past + k for k, one in enumerate(self._queue) if one.stream == stream), default=-1)

    def wait(self, stream: int, event: Any) -> None:
        if event >= self._past:
            self._pending.setdefault(stream, []).append(event - self._past)

    def begin(self) -> None: ...

    def end(self) -> Any | None:
        return None

    def replay(self, recorded: Any) -> None:
        raise CudaFailure(Reason.LAUNCH, "nothing is recorded")

    def synchronize(self) -> None:
        """Runs what was started, in an order that streams and events allow."""
        draw = None if self.order is None else random.Random(self.order)
        queue, self._queue, self._pending = self._queue, [], {}
        self._past += len(queue)
        left = list(range(len(queue)))
        while left:
            ready = [k for k in left if all(queue[one].done for one in queue[k].after)]
            # the one that was started last, more often than not: what should wait for something is seen not to
            chosen = ready[0] if draw is None else draw.choice([ready[-1], draw.choice(ready)])
            compute = queue[chosen].run
            if compute is not None:
                compute()
            queue[chosen].done = True
            left.remove(chosen)

    def close(self) -> None:
        self._blocks.clear()


# ---- what vendors' functions compute, as they are documented, on flat memory -----------------------------------------------


def _column_major(rows: Scalar, columns: Scalar, leading: int) -> Scalar:
    return apply("+", rows, apply("*", columns, as_scalar(leading)))


def _product(
    device: FakeDevice, given: dict[str, Any], result: str, finish: Callable[[Scalar], Scalar], bias: Tensor | None
) -> None:
    """`C[m, n, b] = finish(alpha * sum[k] op(A)[m, k, b] * op(B)[k, n, b])`, column by column."""
    m, n, k, batch = (int(given[name]) for name in ("m", "n", "k", "batch_count"))
    a, b, c = given["a"], given["b"], given[result]
    lda, ldb, ldc = int(given["lda"]), int(given["ldb"]), int(given[f"ld{result}"])
    plain_a, plain_b = given["transa"] == "N", given["transb"] == "N"
    if lda < max(1, m if plain_a else k) or ldb < max(1, k if plain_b else n) or ldc < max(1, m):
        raise CudaFailure(Reason.LAUNCH, "a leading dimension that is less than the rows")
    steps = {name: int(given[f"stride_{name}"]) for name in ("a", "b", result)}
    reach_a = 1 + (batch - 1) * steps["a"] + ((m - 1) + (k - 1) * lda if plain_a else (k - 1) + (m - 1) * lda)
    reach_b = 1 + (batch - 1) * steps["b"] + ((k - 1) + (n - 1) * ldb if plain_b else (n - 1) + (k - 1) * ldb)
    at, column, row, inner = traversal(0), traversal(1), traversal(2), iterator("r0")

    def moved(place: Scalar, step: int) -> tuple[Scalar, ...]:
        return (apply("+", apply("*", at, as_scalar(step)), place),)

    first = read(0, moved(_column_major(row, inner, lda) if plain_a else _column_major(inner, row, lda), steps["a"]))
    second = read(
        1, moved(_column_major(inner, column, ldb) if plain_b else _column_major(column, inner, ldb), steps["b"])
    )
    total = reduce("sum", (inner,), (as_scalar(k),), apply("*", first, second))
    total = apply("*", as_scalar(given.get("alpha", 1)), total)
    operands = [device._flat(a, reach_a), device._flat(b, reach_b)]
    if bias is not None:
        total = apply("+", total, read(2, (row,)))
        operands.append(device._flat(bias, m))
    found = _evaluated(Scope((batch, n, m), finish(total), c.dtype), operands, c.dtype)
    device._array(Tensor(c.pointer, c.dtype, (batch, n, m), (steps[result], ldc, 1)))[...] = found


def _evaluated(scope: Scope, operands: Sequence[Any], dtype: DType) -> Any:
    holes = [input_value(f"m{k}", TensorType(dtype, one.shape)) for k, one in enumerate(operands)]
    feeds = {hole: np.array(one) for hole, one in zip(holes, operands, strict=True)}
    try:
        (found,) = run_scopes([scope_value(scope, tuple(holes))], feeds, Floats())
    except InterpretError as problem:
        raise CudaFailure(Reason.LAUNCH, str(problem)) from None
    return found


def _gemm(device: FakeDevice, given: dict[str, Any]) -> None:
    _product(device, given, "c", lambda total: total, None)


def _relu(x: Scalar) -> Scalar:
    return apply("max", x, num(0))


def _gelu(x: Scalar) -> Scalar:
    cube = apply("*", as_scalar(0.044715), apply("^", x, num(3)))
    inner = apply("*", as_scalar((2 / np.pi) ** 0.5), apply("+", x, cube))
    return apply("*", apply("*", as_scalar(0.5), x), apply("+", num(1), apply("tanh", inner)))


def _lt(device: FakeDevice, given: dict[str, Any]) -> None:
    epilogue = str(given["epilogue"])
    finish = _relu if epilogue.startswith("RELU") else _gelu if epilogue.startswith("GELU") else lambda total: total
    _product(device, given, "d", finish, given["bias"] if epilogue.endswith("BIAS") else None)


def _convolution(device: FakeDevice, given: dict[str, Any]) -> None:
    """Cross-correlation: `Y[n, f, o] = sum[c, r] X[n, (f // F) * C + c, o * stride + r * dilation - before] * K[f, c, r]`, and to it
    a bias and another tensor, cut at 0."""
    image, weight, y = given["image"], given["weight"], given["y"]
    rank = len(image.shape) - 2
    channels, each = image.shape[1], weight.shape[1]
    groups = channels // each
    sizes = [given[name] for name in ("stride", "dilation", "pre_padding", "post_padding")]
    for k in range(rank):
        stride, dilation, before, after = (one[k] for one in sizes)
        window = (weight.shape[2 + k] - 1) * dilation + 1
        if (image.shape[2 + k] + before + after - window) // stride + 1 != y.shape[2 + k]:
            raise CudaFailure(Reason.LAUNCH, "the result has another shape")
    iters = [traversal(k) for k in range(len(y.shape))]
    inner = [iterator(f"r{k}") for k in range(1 + rank)]
    group = apply("//", iters[1], as_scalar(weight.shape[0] // groups))
    index = [iters[0], apply("+", apply("*", group, as_scalar(each)), inner[0])]
    for k in range(rank):
        place = apply(
            "+", apply("*", iters[2 + k], as_scalar(sizes[0][k])), apply("*", inner[1 + k], as_scalar(sizes[1][k]))
        )
        index.append(apply("+", place, as_scalar(-sizes[2][k])))
    body = apply("*", read(0, tuple(index), num(0)), read(1, (iters[1], *inner)))
    total = reduce("sum", tuple(inner), tuple(as_scalar(size) for size in weight.shape[1:]), body)
    operands = [device._array(image), device._array(weight)]
    for name, spot in (("bias", (iters[1],)), ("residual", tuple(iters))):
        if name in given:
            total = apply("+", total, read(len(operands), spot))
            operands.append(device._array(given[name]))
    if given.get("activation") == "RELU":
        total = _relu(total)
    found = _evaluated(Scope(tuple(y.shape), total, y.dtype), operands, y.dtype)
    device._array(y)[...] = found


_MEANINGS: Mapping[str, Callable[[FakeDevice, dict[str, Any]], None]] = {
    "cublasGemmStridedBatchedEx": _gemm, "cublasLtMatmul": _lt, "cudnnConvolutionForward": _convolution,
}  # fmt: skip


__all__ = ["FakeDevice", "Recorded"]
