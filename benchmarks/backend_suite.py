"""ONNX's own backend suite: what ONNX Runtime alone passes, and what passes through dslc.

    python -m benchmarks.backend_suite [PATTERN]

Every case (node, simple, converted, light models) runs twice: as it is, and through import, canonical form and export.
The two sets of cases that pass should be equal; the difference is listed. Exit code 1 where it is not empty.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

from benchmarks.backend import DslcBackend, RuntimeBackend, run_suite


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backend_suite", description=__doc__.splitlines()[0])
    parser.add_argument("pattern", nargs="?", default="", help="only cases whose name it matches")
    pattern = parser.parse_args().pattern
    with tempfile.TemporaryDirectory() as models:
        # Where the suite keeps the light models' data; its default is a folder in the user's home.
        os.environ["ONNX_MODELS"] = models
        alone, unable = run_suite(RuntimeBackend, pattern=pattern)
        through, failed = run_suite(DslcBackend, pattern=pattern)
    total = len(alone) + len(unable)
    print(f"{total} cases; ONNX Runtime alone passes {len(alone)}, through dslc {len(through)}")
    for name in sorted(alone - through):
        print(f"  lost   {name}: {failed.get(name, 'not run')}")
    for name in sorted(through - alone):
        print(f"  gained {name}: {unable.get(name, 'not run')}")
    return 0 if through == alone else 1


if __name__ == "__main__":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    # Many cases are generated at an opset that is still open; the runtime runs them only when it is told to.
    os.environ.setdefault("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")
    sys.exit(main())
