"""How time and memory of an enumeration grow with the number of operators, and with workers.

    python -m benchmarks.generate_growth --operators 4 --workers 1 2
    python -m benchmarks.generate_growth --family small --operators 5 --count 2 --workers 1 2

From five operators on several workers are a local Dask cluster, each with at most `--memory` bytes, as in `dslc generate`. Each line
is measured in a process of its own: terms, value classes, equations, processor seconds of all processes, wall-clock seconds, and the
peak memory of the main process and of its largest worker. The families are those of TASO's operators and constants; `small` is the
family of matrices without constants, factors and joins.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from typing import Any

MATRIX = "ewadd ewmul smul transpose matmul relu concat split I_matmul I_ewmul"
IMAGE = "ewadd ewmul smul conv enlarge relu pool_avg pool_max concat split C_pool I_conv I_ewmul"
SMALL = "ewadd ewmul transpose matmul relu"
FAMILIES = {"matrix": MATRIX, "convolution": IMAGE, "small": SMALL}


def measure(name: str, operators: int, count: int, workers: int, memory: int, send: Any) -> None:
    from dslc.generate.enumeration.levels import Enumerator
    from dslc.generate.enumeration.mappers import mapper_for
    from dslc.generate.settings import GenerationSettings
    from dslc.generate.terms.inputs import InputSizes, families
    from dslc.semantics.library import load_many

    start = time.perf_counter()
    rules = load_many(["taso"])
    names = [rules.operator(f"taso.{operator}") for operator in FAMILIES[name].split()]
    family = families(rules, names, InputSizes(count=count))[0]
    with mapper_for(GenerationSettings(workers=workers, max_operators=operators, memory=memory)) as mapper:
        found = Enumerator(rules, ("taso",), family, operators, mapper=mapper).run()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    unit = 1 if sys.platform == "darwin" else 1024
    send.send(
        {
            "family": name,
            "inputs": [str(type) for type in family.inputs],
            "operators": operators,
            "workers": workers,
            "terms": [level.terms for level in found.levels],
            "classes": [level.classes for level in found.levels],
            "equations": [level.equations for level in found.levels],
            "kept": [level.kept for level in found.levels],
            "fell on floats": len(found.fallen),
            "cpu seconds": round(sum(u.ru_utime + u.ru_stime for u in used), 1),
            "seconds": round(time.perf_counter() - start, 1),
            "peak MB": round(used[0].ru_maxrss * unit / 1e6),
            "largest worker MB": round(used[1].ru_maxrss * unit / 1e6),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", type=int, default=4, help="the largest number of operators (default 4)")
    parser.add_argument("--workers", type=int, nargs="*", default=[1], help="numbers of processes (default 1)")
    parser.add_argument("--count", type=int, default=3, help="inputs of the first type (default 3)")
    parser.add_argument("--family", choices=[*FAMILIES, "both"], default="both")
    parser.add_argument("--memory", type=int, default=1 << 30, help="bytes of one worker of a cluster (default 1 GiB)")
    parser.add_argument("--fewest", type=int, default=1, help="the smallest number of operators (default 1)")
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    for name in ["matrix", "convolution"] if options.family == "both" else [options.family]:
        for workers in options.workers:
            for operators in range(options.fewest, options.operators + 1):
                receive, send = spawn.Pipe(duplex=False)
                process = spawn.Process(
                    target=measure, args=(name, operators, options.count, workers, options.memory, send)
                )
                process.start()
                send.close()
                try:
                    print(json.dumps(receive.recv()), flush=True)
                except EOFError:
                    print(f"{name}, {operators} operators, {workers} workers: the process died", file=sys.stderr)
                process.join()


if __name__ == "__main__":
    main()
