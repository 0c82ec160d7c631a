"""The command line: writes a network of the zoo to a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.zoo import NAMES, write


def main() -> int:
    """Exit code 2 for an unknown network."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.zoo", description="Write a network of the papers as an ONNX model."
    )
    parser.add_argument("name", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--small", action="store_true", help="few and narrow layers")
    parser.add_argument("--seed", type=int, default=0, help="of the random weights (default 0)")
    parser.add_argument(
        "--external", action=argparse.BooleanOptionalAction, help="weights in FILE.data (default: large ones)"
    )
    arguments = parser.parse_args()
    model = write(
        arguments.name, arguments.output, small=arguments.small, seed=arguments.seed, external=arguments.external
    )
    print(f"{arguments.output}: {len(model.graph.node)} nodes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
