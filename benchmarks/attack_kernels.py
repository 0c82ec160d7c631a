"""Random kernels on memory of just its size, for as long as asked: pages that nobody may touch lie around each array, scratch and row.

    python -m benchmarks.attack_kernels --first 1000 --seconds 3600

Numbers are compared with the interpreter's; numbers at the edge (infinities, NaN, denormals, 3.4e38) are run beside them. What is
found is printed with its seeds, the sizes and the kernel's name; `--first SEED --groups 1` runs it again.
"""

from __future__ import annotations

import sys

from tests.codegen.guarded import main

if __name__ == "__main__":
    sys.exit(main())
