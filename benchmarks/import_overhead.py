"""Import, search and export of light_densenet121 (1,746 nodes as shipped) without any measuring.

python -m benchmarks.import_overhead [NAME]
"""

from __future__ import annotations

import argparse
import sys
import time

import onnx

import dslc
from benchmarks import models

TARGET = 10.0


def main() -> int:
    """The command line; prints seconds and exits with 1 above the target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.import_overhead", description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", default="light-densenet121")
    name = parser.parse_args().name
    path = models.shipped(name) if models.find(name).light else models.fetch(name)
    started, worked = time.perf_counter(), time.process_time()
    result = dslc.optimize(path, budget=0, bind=models.find(name).bind)
    seconds, worked = time.perf_counter() - started, time.process_time() - worked
    before, after = len(onnx.load(path).graph.node), len(result.model.graph.node)
    print(
        f"{name}: {before} nodes -> {after}, {seconds:.2f} s, {worked:.2f} s of processor time (target < {TARGET:.0f} s)"
    )
    return 0 if seconds < TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
