"""Vendors' calls on a device: cuBLAS and cuBLASLt through nvmath-python, cuDNN through its frontend.

What a library prepares for a call (descriptors, an algorithm, an execution plan) is kept by what the call is, addresses aside. None of
this runs where there is no device.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from dslc.cuda.launch import CudaFailure, Invoked, Reason, Tensor, first_line
from dslc.ir.dtype import DType

#: cudaDataType_t by element type, cublasComputeType_t that keeps its precision, and cuDNN's names
_CUDA = {DType.F32: 0, DType.F64: 1, DType.F16: 2, DType.BF16: 14}
_COMPUTE = {DType.F32: "COMPUTE_32F", DType.F64: "COMPUTE_64F", DType.F16: "COMPUTE_32F", DType.BF16: "COMPUTE_32F"}
_CUDNN = {DType.F32: "FLOAT", DType.F64: "DOUBLE", DType.F16: "HALF", DType.BF16: "BFLOAT16"}
#: algorithms that are asked for
_ONE = 1
#: modules of libraries, and what statuses of cuBLAS mean
_MODULES = {"cublas": "nvmath.bindings.cublas", "cublasLt": "nvmath.bindings.cublasLt", "cudnn": "cudnn"}
_STATUSES = {3: Reason.MEMORY, 8: Reason.TOO_OLD}


class Vendors:
    """The libraries of one device.

    For each stream a handle of each is made when it is first wanted, as a handle's workspace is one stream's at a time.
    """

    def __init__(self) -> None:
        self._handles: dict[tuple[str, int], Any] = {}
        self._prepared: dict[Hashable, Any] = {}

    def call(self, invoked: Invoked, stream: int) -> None:
        """Starts a call on a stream, given by its address.

        Raises:
            CudaFailure: BINDING where a library is missing; LAUNCH where it refuses the call; NO_ENGINE where it refuses what follows a
                convolution, and the call without that may do.
        """
        own: dict[str, Callable[[Invoked, int], None]] = {
            "cublasGemmStridedBatchedEx": self._gemm, "cublasLtMatmul": self._lt, "cudnnConvolutionForward": self._convolution,
        }  # fmt: skip
        found = own.get(invoked.function)
        if found is None:
            raise CudaFailure(Reason.BINDING, "nothing calls this function", invoked.function, invoked.rule)
        try:
            found(invoked, stream)
        except CudaFailure as problem:
            raise problem.of(invoked.function, invoked.rule) from None
        except Exception as problem:  # bindings raise a class of their own each
            reason = _STATUSES.get(getattr(problem, "status", 0), Reason.LAUNCH)
            raise CudaFailure(reason, first_line(problem), invoked.function, invoked.rule) from None

    def close(self) -> None:
        """Gives the handles back."""
        while self._handles:
            (name, _), handle = self._handles.popitem()
            destroy = {"cudnn": "destroy_handle"}.get(name, "destroy")
            getattr(self._module(_MODULES[name]), destroy)(handle)
        self._prepared.clear()

    def _module(self, name: str) -> Any:
        try:
            return import_module(name)
        except Exception as problem:  # a missing library is an error of the binding's own
            raise CudaFailure(Reason.BINDING, f"{name}: {type(problem).__name__}") from None

    def _handle(
        self, name: str, stream: int, make: Callable[[], Any], use: Callable[[Any, int], Any] | None = None
    ) -> Any:
        """The handle of a library for a stream. Raises CudaFailure (BINDING) where the library itself cannot be loaded."""
        found = self._handles.get((name, stream))
        if found is None:
            try:
                found = make()
            except Exception as problem:
                # a library that is there has a status; one that is not has none
                raise CudaFailure(
                    _STATUSES.get(getattr(problem, "status", 0), Reason.BINDING), f"{name}: {first_line(problem)}"
                ) from None
            self._handles[name, stream] = found
            if use is not None:
                use(found, stream)
        return found

    def _ready(self, invoked: Invoked, stream: int, prepare: Callable[[], Any]) -> Any:
        """Prepare a call on a stream, once."""

        def what(value: Any) -> Any:
            return (
                (value.dtype, value.shape, value.strides, value.pointer % 256) if isinstance(value, Tensor) else value
            )

        arguments = tuple((name, what(value)) for name, value in sorted(invoked.arguments.items()))
        key = (invoked.function, invoked.workspace[1], arguments, stream)
        if key not in self._prepared:
            self._prepared[key] = prepare()
        return self._prepared[key]

    # ---- cuBLAS -------------------------------------------------------------------------------------------------------

    def _gemm(self, invoked: Invoked, stream: int) -> None:
        blas, given = self._module("nvmath.bindings.cublas"), invoked.arguments
        handle = self._handle("cublas", stream, blas.create, blas.set_stream)
        a, b, c = (_tensor(given[name]) for name in ("a", "b", "c"))
        alpha, beta = _scalars(given["alpha"], c.dtype)
        blas.gemm_strided_batched_ex(
            handle, int(blas.Operation[given["transa"]]), int(blas.Operation[given["transb"]]), given["m"], given["n"], given["k"],
            alpha.ctypes.data, a.pointer, _CUDA[a.dtype], given["lda"], given["stride_a"],
            b.pointer, _CUDA[b.dtype], given["ldb"], given["stride_b"],
            beta.ctypes.data, c.pointer, _CUDA[c.dtype], given["ldc"], given["stride_c"], given["batch_count"],
            int(blas.ComputeType[_COMPUTE[c.dtype]]), int(blas.GemmAlgo.DEFAULT),
        )  # fmt: skip

    # ---- cuBLASLt -----------------------------------------------------------------------------------------------------

    def _lt(self, invoked: Invoked, stream: int) -> None:
        lt, given = self._module("nvmath.bindings.cublasLt"), invoked.arguments
        handle = self._handle("cublasLt", stream, lt.create)
        desc, layouts, result = self._ready(invoked, stream, lambda: self._lt_prepared(lt, handle, invoked))
        if "bias" in given:
            _set(
                lt.matmul_desc_set_attribute,
                desc,
                lt.MatmulDescAttribute.BIAS_POINTER,
                np.int64(_tensor(given["bias"]).pointer),
            )
        a, b, d = (_tensor(given[name]) for name in ("a", "b", "d"))
        alpha, beta = _scalars(given["alpha"], d.dtype)
        workspace, size = invoked.workspace
        lt.matmul(
            handle, desc, alpha.ctypes.data, a.pointer, layouts[0], b.pointer, layouts[1], beta.ctypes.data,
            # the algorithm is the first field of the result
            d.pointer, layouts[2], d.pointer, layouts[2], result.ctypes.data, workspace, size, stream,
        )  # fmt: skip

    def _lt_prepared(self, lt: Any, handle: int, invoked: Invoked) -> tuple[int, list[int], Any]:
        blas, given = self._module("nvmath.bindings.cublas"), invoked.arguments
        m, n, k = (_whole(given[name]) for name in ("m", "n", "k"))
        tensors = {name: _tensor(given[name]) for name in ("a", "b", "d")}
        dtype = tensors["d"].dtype
        scale = _CUDA[DType.F64 if dtype is DType.F64 else DType.F32]
        desc = lt.matmul_desc_create(int(blas.ComputeType[_COMPUTE[dtype]]), scale)
        attribute = lt.MatmulDescAttribute
        for name in ("transa", "transb"):
            _set(
                lt.matmul_desc_set_attribute, desc, attribute[name.upper()], np.int32(int(blas.Operation[given[name]]))
            )
        _set(lt.matmul_desc_set_attribute, desc, attribute.EPILOGUE, np.uint32(int(lt.Epilogue[given["epilogue"]])))
        rows = {
            "a": (m, k) if given["transa"] == "N" else (k, m),
            "b": (k, n) if given["transb"] == "N" else (n, k),
            "d": (m, n),
        }
        layouts = []
        for name, tensor in tensors.items():
            layout = lt.matrix_layout_create(_CUDA[tensor.dtype], *rows[name], given[f"ld{name}"])
            stride = np.int64(_whole(given[f"stride_{name}"]))
            batch = {"BATCH_COUNT": np.int32(_whole(given["batch_count"])), "STRIDED_BATCH_OFFSET": stride}
            for word, value in batch.items():
                _set(lt.matrix_layout_set_attribute, layout, lt.MatrixLayoutAttribute[word], value)
            layouts.append(layout)
        preference = lt.matmul_preference_create()
        most = lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
        _set(lt.matmul_preference_set_attribute, preference, most, np.uint64(invoked.workspace[1]))
        # it takes them for multiples of 256 bytes where nothing is said
        for word, name in (("A", "a"), ("B", "b"), ("C", "d"), ("D", "d")):
            least = lt.MatmulPreferenceAttribute[f"MIN_ALIGNMENT_{word}_BYTES"]
            _set(lt.matmul_preference_set_attribute, preference, least, np.uint32(_aligned(tensors[name].pointer)))
        result = np.zeros(_ONE, lt.matmul_heuristic_result_dtype)
        count = np.zeros(1, np.int32)
        lt.matmul_algo_get_heuristic(
            handle, desc, *layouts[:2], layouts[2], layouts[2], preference, _ONE, result.ctypes.data, count.ctypes.data
        )
        lt.matmul_preference_destroy(preference)
        if not count[0]:
            raise CudaFailure(Reason.LAUNCH, "no algorithm computes it")
        return desc, layouts, result

    # ---- cuDNN --------------------------------------------------------------------------------------------------------

    def _convolution(self, invoked: Invoked, stream: int) -> None:
        cudnn, given = self._module("cudnn"), invoked.arguments
        handle = self._handle("cudnn", stream, cudnn.create_handle, cudnn.set_stream)
        graph, tensors = self._ready(invoked, stream, lambda: self._convolution_prepared(cudnn, handle, invoked))
        graph.execute({own: _tensor(given[name]).pointer for own, name in tensors}, invoked.workspace[0], handle=handle)

    def _convolution_prepared(self, cudnn: Any, handle: Any, invoked: Invoked) -> tuple[Any, list[tuple[Any, str]]]:
        """A graph that computes a call, with its tensors and the arguments that they are. Raises CudaFailure (NO_ENGINE)."""
        # its engines add another tensor before the bias
        after = [name for name in ("residual", "bias") if name in invoked.arguments]
        after += ["relu"] if invoked.arguments.get("activation") == "RELU" else []
        try:
            return _Convolution(cudnn, handle, invoked).graph(after)
        except Exception as problem:
            if not after:
                raise
            raise CudaFailure(Reason.NO_ENGINE, first_line(problem)) from None


class _Convolution:
    """Graphs of a convolution's call."""

    def __init__(self, cudnn: Any, handle: Any, invoked: Invoked) -> None:
        self.cudnn, self.handle, self.invoked = cudnn, handle, invoked
        self.y = _tensor(invoked.arguments["y"])

    def graph(self, after: Sequence[str]) -> tuple[Any, list[tuple[Any, str]]]:
        """A graph of the convolution and what follows it that is ready, and its tensors."""
        cudnn, given, y = self.cudnn, self.invoked.arguments, self.y
        compute = cudnn.data_type.DOUBLE if y.dtype is DType.F64 else cudnn.data_type.FLOAT
        stored = getattr(cudnn.data_type, _CUDNN[y.dtype])
        graph = cudnn.pygraph(
            io_data_type=stored, intermediate_data_type=compute, compute_data_type=compute, handle=self.handle
        )
        tensors: list[tuple[Any, str]] = []
        image, weight = (self._tensor(graph, name, tensors) for name in ("image", "weight"))
        words = ("pre_padding", "post_padding", "stride", "dilation")
        result = graph.conv_fprop(image=image, weight=weight, **{name: list(given[name]) for name in words})  # type: ignore[arg-type]
        for name in after:
            if name == "bias":
                result = graph.bias(input=result, bias=self._tensor(graph, name, tensors))
            elif name == "residual":
                result = graph.add(a=result, b=self._tensor(graph, name, tensors))
            else:
                result = graph.relu(input=result)
        result.set_output(True).set_dim(list(y.shape)).set_stride(list(y.strides))
        tensors.append((result, "y"))
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        if y.dtype is DType.F32:
            # tensor cores would take single precision for less
            graph.deselect_numeric_notes([cudnn.numerical_note.TENSOR_CORE, cudnn.numerical_note.DOWN_CONVERT_INPUTS])
        graph.deselect_workspace_greater_than(self.invoked.workspace[1])
        graph.check_support()
        graph.build_plans()
        return graph, tensors

    def _tensor(self, graph: Any, name: str, tensors: list[tuple[Any, str]]) -> Any:
        tensor = _tensor(self.invoked.arguments[name])
        shape, strides = list(tensor.shape), list(tensor.strides)
        if name == "bias":
            # one number for each channel, with as many axes as the result
            rest = [1] * (len(self.y.shape) - 2)
            shape, strides = [1, *shape, *rest], [shape[0], 1, *rest]
        kind = getattr(self.cudnn.data_type, _CUDNN[tensor.dtype])
        made = graph.tensor(name=name, dim=shape, stride=strides, data_type=kind)
        tensors.append((made, name))
        return made


def _tensor(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise CudaFailure(Reason.LAUNCH, "a number where a tensor is wanted")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise CudaFailure(Reason.LAUNCH, "no whole number where one is wanted")
    return value


def _scalars(alpha: Any, dtype: DType) -> tuple[Any, Any]:
    """The factors of a product, in the type in which it is computed."""
    kind = np.float64 if dtype is DType.F64 else np.float32
    return np.array([alpha], kind), np.zeros(1, kind)


def _aligned(pointer: int) -> int:
    """The largest power of two up to 256 that an address is a multiple of."""
    return min(pointer & -pointer, 256) if pointer else 256


def _set(function: Callable[..., Any], of: int, attribute: Any, value: Any) -> None:
    held = np.array([value])
    function(of, int(attribute), held.ctypes.data, held.nbytes)
