"""A model with 2 GiB of weights in external data, through import and export: is it ever held twice?

    python -m benchmarks.large_model [--gib 2]

Prints the peak memory of ``dslc.optimize(budget=0)`` over the size of the weights (target: below 1.3), and whether the
weights' file was left alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, save

WIDTH = 4096
BYTES = WIDTH * WIDTH * 4
TARGET = 1.3

# Runs in a process of its own, so that the peak is that of the optimizer alone.
_CHILD = """
import resource, sys, dslc
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
dslc.optimize_file(sys.argv[1], sys.argv[2], budget=0)
print(start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def build(folder: Path, layers: int) -> Path:
    """A chain of ``layers`` products with relu between; each weight is float32[WIDTH, WIDTH] in ``weights.bin``."""
    generator = np.random.default_rng(0)
    nodes, weights = [], []
    value = "x"
    with (folder / "weights.bin").open("wb") as data:
        for k in range(layers):
            offset = data.tell()
            # One block of random numbers repeated is enough: nothing here looks at the values.
            block = generator.standard_normal((64, WIDTH), np.float32) * np.float32((2 / WIDTH) ** 0.5)
            for _ in range(WIDTH // 64):
                block.tofile(data)
            weight = TensorProto(name=f"w{k}", data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH])
            weight.data_location = TensorProto.EXTERNAL
            for key, text in (("location", "weights.bin"), ("offset", str(offset)), ("length", str(BYTES))):
                weight.external_data.add(key=key, value=text)
            weights.append(weight)
            nodes.append(helper.make_node("MatMul", [value, f"w{k}"], [f"p{k}"]))
            nodes.append(helper.make_node("Relu", [f"p{k}"], [f"y{k}"]))
            value = f"y{k}"
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, WIDTH])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, [1, WIDTH])],
        weights,
    )
    path = folder / "large.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def main() -> int:
    """The command line; exit code 1 where the target is missed or the weights were written again."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_model", description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=2.0, help="size of the weights (default 2)")
    layers = max(1, round(parser.parse_args().gib * 2**30 / BYTES))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, data = build(folder, layers), folder / "weights.bin"
        before = os.stat(data)
        out = folder / "fast.onnx"
        child = subprocess.run(
            [sys.executable, "-c", _CHILD, str(model), str(out)],
            capture_output=True, text=True, check=False, env={**os.environ, "ORT_DISABLE_TELEMETRY": "1"},
        )
        if child.returncode:
            print(child.stderr, file=sys.stderr)
            return 1
        start, peak = (int(kib) * 1024 for kib in child.stdout.split())
        after = os.stat(data)
        untouched = (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)
        others = {p.name: p.stat().st_size for p in folder.iterdir() if p not in (model, data)}
    size = layers * BYTES
    print(f"weights {size / 2**30:.2f} GiB in {layers} tensors; written besides: {others}")
    print(f"peak memory {peak / 2**30:.2f} GiB = {peak / size:.2f} x weights (target < {TARGET}); "
          f"{start / 2**20:.0f} MiB after importing dslc")
    print(f"weights file untouched: {untouched}; written again: {sum(others.values()) > size // 2}")
    return 0 if peak < TARGET * size and untouched and sum(others.values()) < size // 2 else 1


if __name__ == "__main__":
    sys.exit(main())
