"""Vendors' libraries on the machine of `bindings`: cuBLAS, cuBLASLt and cuDNN, as their bindings declare them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from enum import IntEnum
from types import ModuleType
from typing import Any

import numpy as np

from dslc.cuda.launch import Invoked, Tensor
from dslc.ir.dtype import DType
from tests.codegen.bindings import Core, Driver, Illegal, Pycuda, World, call
from tests.codegen.declared import DECLARED, ENUMS

# ---- cuBLAS --------------------------------------------------------------------------------------------------------------------

_DTYPES = {0: DType.F32, 1: DType.F64, 2: DType.F16, 14: DType.BF16}


def _enum(name: str) -> Any:
    return IntEnum(name.rpartition(".")[2], DECLARED[name])


def _factor(address: int, compute: int) -> float:
    kind = (
        ctypes.c_double if compute == DECLARED["nvmath.bindings.cublas.ComputeType"]["COMPUTE_64F"] else ctypes.c_float
    )
    return float(kind.from_address(address).value)


def _flat(pointer: int, dtype: DType) -> Tensor:
    return Tensor(pointer, dtype, (), ())


class Blas:
    """`nvmath.bindings.cublas`: single precision stays single, and no factor of the old result."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.handles: dict[int, int] = {}
        self.Operation, self.ComputeType, self.GemmAlgo = (
            _enum(f"nvmath.bindings.cublas.{name}") for name in ENUMS["nvmath.bindings.cublas"]
        )

    @call("nvmath.bindings.cublas", "create")
    def create(self) -> int:
        self.handles[0x700 + len(self.handles)] = -1
        return max(self.handles)

    @call("nvmath.bindings.cublas", "destroy")
    def destroy(self, handle: int) -> None:
        del self.handles[handle]

    @call("nvmath.bindings.cublas", "set_stream")
    def set_stream(self, handle: int, stream_id: int) -> None:
        self.handles[handle] = stream_id - 0x5000

    @call("nvmath.bindings.cublas", "gemm_strided_batched_ex")
    def gemm_strided_batched_ex(self, **g: Any) -> None:
        a, b, c = (_DTYPES[g[f"{name}type"]] for name in "abc")
        wide = DType.F64 in (a, b, c)
        assert g["compute_type"] == self.ComputeType["COMPUTE_64F" if wide else "COMPUTE_32F"]
        assert _factor(g["beta"], g["compute_type"]) == 0
        arguments = {
            name: g[name]
            for name in ("m", "n", "k", "lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c", "batch_count")
        }
        arguments |= {name: self.Operation(g[name]).name for name in ("transa", "transb")}
        arguments |= {"a": _flat(g["a"], a), "b": _flat(g["b"], b), "c": _flat(g["c"], c)}
        arguments["alpha"] = _factor(g["alpha"], g["compute_type"])
        invoked = Invoked("cublasGemmStridedBatchedEx", "", arguments)
        stream = self.handles[g["handle"]]
        assert stream >= 0
        self.world.do(stream, lambda: self.world.device.call(invoked, stream))


class BlasLt:
    """`nvmath.bindings.cublasLt`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.objects: dict[int, dict[str, Any]] = {}
        self.Epilogue, self.MatmulDescAttribute, self.MatrixLayoutAttribute, self.MatmulPreferenceAttribute = (
            _enum(f"nvmath.bindings.cublasLt.{name}") for name in ENUMS["nvmath.bindings.cublasLt"]
        )
        self.matmul_heuristic_result_dtype = np.dtype([("data", "u1", (DECLARED["size of a heuristic's result"],))])

    def _make(self, **given: Any) -> int:
        key = 0x900 + 16 * len(self.objects)
        self.objects[key] = given
        return key

    def _set(self, kind: str, of: int, attr: int, buf: int, size: int) -> None:
        name = getattr(self, kind)(attr).name
        assert size == DECLARED[f"sizes of {kind}"][name], name
        self.objects[of][name] = int.from_bytes(ctypes.string_at(buf, size), "little", signed=True)

    @call("nvmath.bindings.cublasLt", "create")
    def create(self) -> int:
        return self._make()

    @call("nvmath.bindings.cublasLt", "destroy")
    def destroy(self, light_handle: int) -> None: ...

    @call("nvmath.bindings.cublasLt", "matmul_desc_create")
    def matmul_desc_create(self, compute_type: int, scale_type: int) -> int:
        return self._make(compute=compute_type, scale=scale_type)

    @call("nvmath.bindings.cublasLt", "matmul_desc_set_attribute")
    def matmul_desc_set_attribute(self, matmul_desc: int, attr: int, buf: int, size_in_bytes: int) -> None:
        self._set("MatmulDescAttribute", matmul_desc, attr, buf, size_in_bytes)

    @call("nvmath.bindings.cublasLt", "matrix_layout_create")
    def matrix_layout_create(self, type: int, rows: int, cols: int, ld: int) -> int:
        assert ld >= rows
        return self._make(dtype=_DTYPES[type], rows=rows, cols=cols, ld=ld)

    @call("nvmath.bindings.cublasLt", "matrix_layout_set_attribute")
    def matrix_layout_set_attribute(self, mat_layout: int, attr: int, buf: int, size_in_bytes: int) -> None:
        self._set("MatrixLayoutAttribute", mat_layout, attr, buf, size_in_bytes)

    @call("nvmath.bindings.cublasLt", "matmul_preference_create")
    def matmul_preference_create(self) -> int:
        return self._make()

    @call("nvmath.bindings.cublasLt", "matmul_preference_set_attribute")
    def matmul_preference_set_attribute(self, pref: int, attr: int, buf: int, size_in_bytes: int) -> None:
        self._set("MatmulPreferenceAttribute", pref, attr, buf, size_in_bytes)

    @call("nvmath.bindings.cublasLt", "matmul_preference_destroy")
    def matmul_preference_destroy(self, pref: int) -> None: ...

    @call("nvmath.bindings.cublasLt", "matmul_algo_get_heuristic")
    def matmul_algo_get_heuristic(self, **g: Any) -> None:
        assert g["requested_algo_count"] == 1
        least = self.objects[g["preference"]]
        # an algorithm is for addresses of such an alignment, and for so much memory
        for k, name in enumerate("ABCD"):
            assert least[f"MIN_ALIGNMENT_{name}_BYTES"] in (1, 2, 4, 8, 16, 32, 64, 128, 256)
            ctypes.memmove(
                g["heuristic_results_array"] + 2 * k, np.uint16(least[f"MIN_ALIGNMENT_{name}_BYTES"]).tobytes(), 2
            )
        ctypes.memmove(g["heuristic_results_array"] + 8, np.int64(least["MAX_WORKSPACE_BYTES"]).tobytes(), 8)
        ctypes.memmove(g["return_algo_count"], np.int32(1).tobytes(), 4)

    @call("nvmath.bindings.cublasLt", "matmul")
    def matmul(self, **g: Any) -> None:
        desc, a, b, d = (self.objects[g[name]] for name in ("compute_desc", "adesc", "bdesc", "ddesc"))
        assert g["c"] == g["d"] and g["cdesc"] == g["ddesc"]
        assert _factor(g["beta"], desc["compute"]) == 0
        for k, name in enumerate("abcd"):
            assert g[name] % int(np.frombuffer(ctypes.string_at(g["algo"] + 2 * k, 2), np.uint16)[0]) == 0
        assert g["workspace_size_in_bytes"] >= int(np.frombuffer(ctypes.string_at(g["algo"] + 8, 8), np.int64)[0])
        operation = DECLARED["nvmath.bindings.cublas.Operation"]
        names = {value: key for key, value in operation.items()}
        trans = {"transa": names[desc["TRANSA"]], "transb": names[desc["TRANSB"]]}
        k = a["cols"] if trans["transa"] == "N" else a["rows"]
        sides = ((a, trans["transa"], d["rows"], k), (b, trans["transb"], k, d["cols"]))
        for layout, turned, rows, columns in sides:
            assert (layout["rows"], layout["cols"]) == ((rows, columns) if turned == "N" else (columns, rows))
        epilogue = self.Epilogue(desc["EPILOGUE"]).name
        arguments: dict[str, Any] = {
            **trans, "m": d["rows"], "n": d["cols"], "k": k, "alpha": _factor(g["alpha"], desc["compute"]), "epilogue": epilogue,
            "batch_count": d["BATCH_COUNT"],
        }  # fmt: skip
        for name, layout in (("a", a), ("b", b), ("d", d)):
            assert layout["BATCH_COUNT"] == d["BATCH_COUNT"]
            arguments |= {name: _flat(g[name], layout["dtype"]), f"ld{name}": layout["ld"]}
            arguments[f"stride_{name}"] = layout["STRIDED_BATCH_OFFSET"]
        if epilogue.endswith("BIAS"):
            arguments["bias"] = _flat(desc["BIAS_POINTER"], d["dtype"])
        invoked = Invoked("cublasLtMatmul", "", arguments, (g["workspace"], g["workspace_size_in_bytes"]))
        stream = g["stream"] - 0x5000
        self.world.do(stream, lambda: self.world.device.call(invoked, stream))


# ---- cuDNN ---------------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Symbol:
    """A tensor of a graph."""

    world: World
    dim: list[int] = field(default_factory=list)
    stride: list[int] = field(default_factory=list)
    output: bool = False

    @call("cudnn", "tensor.set_output")
    def set_output(self, arg0: bool) -> Symbol:
        self.output = arg0
        return self

    @call("cudnn", "tensor.set_dim")
    def set_dim(self, arg0: list[int]) -> Symbol:
        self.dim = arg0
        return self

    @call("cudnn", "tensor.set_stride")
    def set_stride(self, arg0: list[int]) -> Symbol:
        self.stride = arg0
        return self

    @call("cudnn", "tensor.set_data_type")
    def set_data_type(self, data_type: Any) -> Symbol:
        return self


class Pygraph:
    """A graph of operations: a convolution, and what is computed of it."""

    def __init__(self, world: World, handles: dict[int, int], **given: Any) -> None:
        self.world, self.handles, self.given = world, handles, given
        self.names: dict[Symbol, str] = {}
        self.steps: list[str] = []
        self.arguments: dict[str, Any] = {}
        self.most = 0

    @call("cudnn", "pygraph.tensor")
    def tensor(self, **g: Any) -> Symbol:
        assert type(g["dim"]) is type(g["stride"]) is list and len(g["dim"]) == len(g["stride"])
        made = Symbol(self.world, g["dim"], g["stride"])
        self.names[made] = g["name"]
        return made

    @call("cudnn", "pygraph.conv_fprop")
    def conv_fprop(self, **g: Any) -> Symbol:
        assert not g.get("padding")
        self.arguments = {name: tuple(g[name]) for name in ("pre_padding", "post_padding", "stride", "dilation")}
        assert (self.names[g["image"]], self.names[g["weight"]]) == ("image", "weight")
        return Symbol(self.world)

    @call("cudnn", "pygraph.bias")
    def bias(self, **g: Any) -> Symbol:
        # the bias has the axes of the result, of which only the channels are many
        assert g["bias"].dim[0] == 1 and set(g["bias"].dim[2:]) == {1}
        self.steps.append("bias")
        return Symbol(self.world)

    @call("cudnn", "pygraph.add")
    def add(self, **g: Any) -> Symbol:
        self.steps.append("residual")
        return Symbol(self.world)

    @call("cudnn", "pygraph.relu")
    def relu(self, **g: Any) -> Symbol:
        assert not any(g[name] for name in ("negative_slope", "lower_clip", "upper_clip"))
        self.steps.append("relu")
        return Symbol(self.world)

    @call("cudnn", "pygraph.validate")
    def validate(self) -> None: ...

    @call("cudnn", "pygraph.build_operation_graph")
    def build_operation_graph(self) -> None: ...

    @call("cudnn", "pygraph.create_execution_plans")
    def create_execution_plans(self, arg0: Any) -> None: ...

    @call("cudnn", "pygraph.deselect_workspace_greater_than")
    def deselect_workspace_greater_than(self, arg0: int) -> None:
        self.most = arg0

    @call("cudnn", "pygraph.deselect_numeric_notes")
    def deselect_numeric_notes(self, arg0: Any) -> None:
        assert [one.name for one in arg0] == ["TENSOR_CORE", "DOWN_CONVERT_INPUTS"]

    @call("cudnn", "pygraph.check_support")
    def check_support(self) -> None:
        if self.steps and not self.world.fused:
            raise Illegal("No engine supports it")

    @call("cudnn", "pygraph.build_plans")
    def build_plans(self, policy: Any) -> None: ...

    @call("cudnn", "pygraph.execute")
    def execute(self, **g: Any) -> None:
        io = _enum("cudnn.data_type")(self.given["io_data_type"]).name
        dtype = {"FLOAT": DType.F32, "DOUBLE": DType.F64, "HALF": DType.F16, "BFLOAT16": DType.BF16}[io]
        arguments = dict(self.arguments)
        for symbol, pointer in g["tensor_to_device_buffer"].items():
            # an engine may move 16 bytes at a time
            assert type(pointer) is int and pointer % 16 == 0
            name = self.names.get(symbol, "y")
            assert symbol.output == (symbol not in self.names)
            arguments[name] = Tensor(pointer, dtype, tuple(symbol.dim), tuple(symbol.stride))
        assert self.steps == [one for one in ("residual", "bias", "relu") if one in self.steps]
        assert {"bias", "residual"} & set(self.steps) == {"bias", "residual"} & set(arguments)
        if "bias" in arguments:
            bias = arguments["bias"]
            arguments["bias"] = Tensor(bias.pointer, bias.dtype, (bias.shape[1],), (bias.strides[1],))
        if self.steps:
            arguments["activation"] = "RELU" if "relu" in self.steps else "IDENTITY"
        invoked = Invoked("cudnnConvolutionForward", "", arguments, (g["workspace"], self.most))
        stream = self.handles[g["handle"]]
        self.world.do(stream, lambda: self.world.device.call(invoked, stream))


class Cudnn:
    """`cudnn`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.handles: dict[int, int] = {}
        self.data_type, self.heur_mode, self.numerical_note = (_enum(f"cudnn.{name}") for name in ENUMS["cudnn"])

    @call("cudnn", "create_handle")
    def create_handle(self) -> int:
        self.handles[0xB00 + len(self.handles)] = -1
        return max(self.handles)

    @call("cudnn", "destroy_handle")
    def destroy_handle(self, arg0: int) -> None:
        del self.handles[arg0]

    @call("cudnn", "set_stream")
    def set_stream(self, handle: int, stream: int) -> None:
        self.handles[handle] = stream - 0x5000

    @call("cudnn", "pygraph.__init__")
    def pygraph(self, **given: Any) -> Pygraph:
        assert given["handle"] in self.handles
        return Pygraph(self.world, self.handles, **given)


def modules(world: World, pycuda: bool = False) -> dict[str, Any]:
    """What `sys.modules` has of a machine with a device; PyCUDA, where it is wanted, else cuda.core."""
    names = ("cuda", "cuda.bindings", "nvmath", "nvmath.bindings", "pycuda")
    found: dict[str, Any] = {name: ModuleType(name) for name in names}
    found |= {
        "cuda.core": Core(world), "cuda.bindings.driver": Driver(world), "nvmath.bindings.cublas": Blas(world),
        "nvmath.bindings.cublasLt": BlasLt(world), "cudnn": Cudnn(world), "pycuda.driver": Pycuda(world),
    }  # fmt: skip
    for name, module in found.items():
        above, _, last = name.rpartition(".")
        if above in found:
            setattr(found[above], last, module)
    missing = ("cuda.core", "cuda") if pycuda else ("pycuda.driver", "pycuda")
    return {**found, **dict.fromkeys(missing)}
