"""What the packages that launchers call declare, as `bindings.json` has it: `python -m tests.codegen.declared` prints it where they are
installed. Names, order, types, defaults, numbers of enumerations, sizes of attributes."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

SNAPSHOT = Path(__file__).with_name("bindings.json")
DECLARED: dict[str, Any] = json.loads(SNAPSHOT.read_text("utf-8")) if SNAPSHOT.exists() else {}

#: what is called, by module; PyCUDA's driver does not load without a device: its declarations are those of its sources (2026.1)
CALLED = {
    "cuda.core": (
        "Device.set_current", "Device.create_stream", "Device.allocate", "Buffer.close", "Stream.record", "Stream.wait", "Stream.sync",
        "Stream.create_graph_builder", "graph.GraphBuilder.begin_building", "graph.GraphBuilder.end_building",
        "graph.GraphBuilder.complete", "graph.Graph.launch", "ObjectCode.from_cubin", "ObjectCode.get_kernel", "launch",
    ),
    "cuda.bindings.driver": ("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync"),
    "nvmath.bindings.cublas": ("create", "destroy", "set_stream", "gemm_strided_batched_ex"),
    "nvmath.bindings.cublasLt": (
        "create", "destroy", "matmul", "matmul_desc_create", "matmul_desc_set_attribute", "matrix_layout_create",
        "matrix_layout_set_attribute", "matmul_preference_create", "matmul_preference_set_attribute", "matmul_preference_destroy",
        "matmul_algo_get_heuristic",
    ),
    "cudnn": (
        "create_handle", "destroy_handle", "set_stream", "pygraph.__init__", "pygraph.tensor", "pygraph.conv_fprop", "pygraph.bias",
        "pygraph.add", "pygraph.relu", "pygraph.validate", "pygraph.build_operation_graph", "pygraph.create_execution_plans",
        "pygraph.deselect_workspace_greater_than", "pygraph.deselect_numeric_notes", "pygraph.check_support", "pygraph.build_plans",
        "pygraph.execute", "tensor.set_output", "tensor.set_dim", "tensor.set_stride", "tensor.set_data_type",
    ),
}  # fmt: skip
PYCUDA = {
    "init": ["flags?"], "Device": ["ordinal"], "Device.retain_primary_context": ["self"], "Device.compute_capability": ["self"],
    "Context.push": ["self"], "Context.pop": [], "Stream": ["flags?"], "Stream.synchronize": ["self"],
    "Stream.wait_for_event": ["self", "evt"], "Event": ["flags?"], "Event.record": ["self", "stream?"], "mem_alloc": ["bytes"],
    "DeviceAllocation.free": ["self"], "memcpy_htod": ["dest", "src"], "memcpy_dtoh": ["dest", "src"],
    "module_from_buffer": ["buffer", "options?", "message_handler?"], "Module.get_function": ["self", "name"],
    "Function": ["self", "+args", "*grid?", "*stream?", "*block?", "*shared?", "*texrefs?", "*time_kernel?"],
}  # fmt: skip
ENUMS = {
    "nvmath.bindings.cublas": ("Operation", "ComputeType", "GemmAlgo"),
    "nvmath.bindings.cublasLt": (
        "Epilogue",
        "MatmulDescAttribute",
        "MatrixLayoutAttribute",
        "MatmulPreferenceAttribute",
    ),
    "cudnn": ("data_type", "heur_mode", "numerical_note"),
}


def declared(module: str) -> dict[str, list[list[str]]]:
    """The overloads of each function that is called: `name: type`, `?` behind what may be left out, `*` before what needs its name."""
    owner = importlib.import_module(module)
    plain = module.startswith("cuda.")
    return {name: list(_overloads("" if plain else name, _member(owner, name))) for name in CALLED[module]}


def _member(owner: Any, path: str) -> Any:
    for part in path.split("."):
        owner = getattr(owner, part)
    return owner


def _overloads(name: str, found: Any) -> Iterator[list[str]]:
    # some say it in their documentation only, with types; no name: not there
    last = name.rpartition(".")[2] or "-"
    lines = [line.strip() for line in str(found.__doc__ or "").splitlines()]
    heads = [m[1] for line in lines if (m := re.match(rf"(?:\d+\. )?{re.escape(last)}\((.*)\)(?: ->.*)?$", line))]
    heads = [head for head in heads if not head.startswith("*args")]
    typed = [head for head in heads if ":" in head or not head or re.match(r"\w+ \w+|long long", head)]
    if typed:
        yield from ([_parameter(part) for part in _parts(head)] for head in typed)
        return
    parameters = inspect.signature(found).parameters.values()
    marks = {inspect.Parameter.KEYWORD_ONLY: "*", inspect.Parameter.VAR_POSITIONAL: "+"}
    yield [
        marks.get(one.kind, "") + one.name + ("?" if one.default is not inspect.Parameter.empty else "")
        for one in parameters
    ]


def _parts(head: str) -> Iterator[str]:
    depth, part = 0, ""
    for letter in f"{head},":
        depth += (letter in "[(<{") - (letter in "])>}")
        if letter == "," and depth == 0:
            if part.strip():
                yield part.strip()
            part = ""
        else:
            part += letter


def _parameter(text: str) -> str:
    name, colon, rest = text.partition(":")
    if colon:
        return name.strip() + ("?" if "=" in rest else "")
    kind, _, name = text.rpartition(" ")
    return f"{name}: {kind}"


def snapshot() -> dict[str, Any]:
    """All that the installed packages declare. Raises ImportError where one is missing."""
    found: dict[str, Any] = {module: declared(module) for module in CALLED}
    for module, names in ENUMS.items():
        owner = importlib.import_module(module)
        for name in names:
            found[f"{module}.{name}"] = {key: int(value) for key, value in getattr(owner, name).__members__.items()}
    core = importlib.import_module("cuda.core")
    found["cuda.core"]["LaunchConfig"] = [
        [f"*{name}?" for name in sorted(dir(core.LaunchConfig)) if not name.startswith("_")]
    ]
    lt = importlib.import_module("nvmath.bindings.cublasLt")
    dtypes = {
        "MatmulDescAttribute": lt.get_matmul_desc_attribute_dtype, "MatrixLayoutAttribute": lt.get_matrix_layout_attribute_dtype,
        "MatmulPreferenceAttribute": lt.get_matmul_preference_attribute_dtype,
    }  # fmt: skip
    wanted = re.compile(
        r"TRANS[AB]|EPILOGUE|BIAS_POINTER|BATCH_COUNT|STRIDED_BATCH_OFFSET|MAX_WORKSPACE_BYTES|MIN_ALIGNMENT_\w+"
    )
    for name, dtype in dtypes.items():
        members = getattr(lt, name).__members__.items()
        found[f"sizes of {name}"] = {
            key: np.dtype(dtype(int(v))).itemsize for key, v in members if wanted.fullmatch(key)
        }
    found["size of a heuristic's result"] = int(lt.matmul_heuristic_result_dtype.itemsize)
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(snapshot(), indent=1, sort_keys=True) + "\n")
