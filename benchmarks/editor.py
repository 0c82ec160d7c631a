"""The editor's diagnostics after random edits: what they take, and whether they are those of `dslc check` of the same text.

`python -m benchmarks.editor [NAME...] [--edits N] [--seed N] [--compare]`, each NAME a file of the standard library (the largest one of
rules by default). A keystroke is timed from the edit to the first look (what an editor shows at once) and to the last one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from shutil import copytree

import dslc
from dslc.checking.files import check_files
from dslc.checking.incremental import Edited, Look
from dslc.prove.garbage import rare_collections
from tests.checking.test_incremental import edits, shown

STD = Path(dslc.__file__).parent.parent / "rules" / "std"


def quantile(values: list[float], share: float) -> float:
    """A quantile in milliseconds."""
    return 1000 * sorted(values)[min(int(len(values) * share), len(values) - 1)]


def keys(text: str, count: int, seed: int) -> list[str]:
    """Texts with one key typed somewhere, or one character gone."""
    import random

    drawn, out = random.Random(seed), []
    for number in range(count):
        at = drawn.randrange(len(text))
        out.append(text[:at] + drawn.choice("ax1 (") + text[at:] if number % 2 else text[:at] + text[at + 1 :])
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["conv_rules"])
    parser.add_argument("--edits", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compare", action="store_true", help="random edits of all kinds, compared with a check from scratch")
    given = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, rare_collections():
        std = Path(copytree(STD, Path(folder).resolve() / "std"))
        for name in given.names:
            path = std / f"{name}.rules"
            text = path.read_text("utf-8")
            files = Edited()
            files.edit(path, text)
            files.findings(path)
            first, last = [], []
            for edited in (edits if given.compare else keys)(text, given.edits, given.seed):
                begin = time.perf_counter()
                files.edit(path, edited)
                looks = files.looks(path)
                look: Look = next(looks)
                first.append(time.perf_counter() - begin)
                for look in looks:  # noqa: B007
                    pass
                last.append(time.perf_counter() - begin)
                if given.compare:
                    path.write_text(edited, encoding="utf-8")
                    if [shown(one) for one in look.findings] != [shown(one) for one in check_files([path])]:
                        wrong += 1
                        Path(f"{name}.differs.{wrong}.rules").write_text(edited, encoding="utf-8")
            path.write_text(text, encoding="utf-8")
            for kind, found in (("first", first), ("last", last)):
                at = ", ".join(f"{100 * share:g} % {quantile(found, share):.0f}" for share in (0.5, 0.9, 0.95, 0.99, 1))
                print(f"{name}: {kind} look after {len(found)} edits, ms: {at} (mean {1000 * statistics.mean(found):.0f})")
    if given.compare:
        print(f"{wrong} of them differ from `dslc check`")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
