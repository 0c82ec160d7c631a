"""The command line: writes a network of the zoo to a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import onnx

from benchmarks.zoo import NAMES, build


def main() -> int:
    """Exit code 2 for an unknown network."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description="Write TASO's and EinNet's networks as ONNX models.")
    parser.add_argument("name", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--small", action="store_true", help="few and narrow layers")
    parser.add_argument("--seed", type=int, default=0, help="of the random weights (default 0)")
    arguments = parser.parse_args()
    model = build(arguments.name, small=arguments.small, seed=arguments.seed)
    onnx.save(model, arguments.output)
    print(f"{arguments.output}: {len(model.graph.node)} nodes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
