"""Other projects' rule files, imported whole: what becomes of each rule.

    python -m benchmarks.foreign                 # the three files of FlexFlow's source package
    python -m benchmarks.foreign graph_subst_3_v2.pb

The package is downloaded once from PyPI, its hash is compared, and the files are kept in dslc's cache. No code of it is run.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tarfile
import urllib.request
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from dslc.folders import cache_folder
from dslc.foreign import flexflow, taso
from dslc.foreign.formats import read_rules, written
from dslc.foreign.importing import OUTCOMES, Import, import_rules

PACKAGE = "flexflow-24.1.0.tar.gz"
ADDRESS = f"https://files.pythonhosted.org/packages/42/e8/9085f07ed12337ab3d76284aec455bcadabd3c880e075e655a64d32cb544/{PACKAGE}"
SHA256 = "41150c3ad409741f5068df6f85ebb22edf4cac38d9b91c1731667eac3eb33d5a"
FILES = ("graph_subst.json", "graph_subst_3_v2.json", "graph_subst_3_v2.pb", "test_subst.json")
_MOST = 1 << 27


def fetch(folder: Path | None = None) -> Path:
    """The folder with the rule files; downloads the package where it lacks them.

    Raises ``RuntimeError`` for a package of another hash and ``OSError`` where nothing can be downloaded.
    """
    folder = folder or cache_folder() / "foreign" / PACKAGE.removesuffix(".tar.gz")
    if all((folder / name).exists() for name in FILES):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as temporary:
        archive = Path(temporary) / PACKAGE
        with urllib.request.urlopen(ADDRESS, timeout=120) as answer:
            archive.write_bytes(answer.read(_MOST))
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != SHA256:
            raise RuntimeError(f"{ADDRESS} has the hash {found}, not {SHA256}")
        with tarfile.open(archive) as sources:
            for name in FILES:
                member = sources.extractfile(f"{PACKAGE.removesuffix('.tar.gz')}/substitutions/{name}")
                assert member is not None, f"{name} is a regular file"
                partial = Path(temporary) / name
                partial.write_bytes(member.read())
                partial.replace(folder / name)
    return folder


def _agreement(folder: Path) -> str:
    """Both forms of one rule set, and whether each is written back byte for byte."""
    data, text = (folder / "graph_subst_3_v2.pb").read_bytes(), (folder / "graph_subst_3_v2.json").read_bytes()
    binary, named = taso.read(data), flexflow.read(text)
    same = [replace(rule, name="") for rule in named] == list(binary)
    back = taso.write(binary) == data and taso.write(named) == data and flexflow.write(named) == text
    return (
        f"protobuf and JSON {'agree' if same else 'DIFFER'}; written back {'byte for byte' if back else 'DIFFERENTLY'}"
    )


def _row(name: str, found: Import, seconds: float) -> str:
    counts = found.counts()
    return (
        f"| {name} | {len(found.rules)} | {' | '.join(str(counts[outcome]) for outcome in OUTCOMES)} | {seconds:.0f} |"
    )


def _processor_seconds() -> float:
    """Of this process and of those that proved and have ended."""
    return sum(os.times()[:4])


def main() -> int:
    """The command line: a table, a row for each file."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.foreign", description="Import FlexFlow's published rule files."
    )
    parser.add_argument("names", nargs="*", metavar="FILE", help=f"which of {', '.join(FILES)}")
    parser.add_argument("--cache", type=Path, help="folder to keep them in (default: `foreign` in dslc's cache)")
    parser.add_argument("--workers", type=int, default=2, help="processes that prove (2)")
    arguments = parser.parse_args()
    try:
        folder = fetch(arguments.cache)
    except (OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(_agreement(folder), end="\n\n")
    print(f"| file | rules | {' | '.join(OUTCOMES)} | processor s |")
    print(f"|---|{'---:|' * (len(OUTCOMES) + 2)}")
    for name in arguments.names or FILES:
        path = folder / name
        rules = read_rules("flexflow", path)
        if name == FILES[0]:
            assert written("flexflow", rules) == path.read_bytes(), f"{name} is not written back as it was"
        with TemporaryDirectory() as out:
            started = _processor_seconds()
            found = import_rules(rules, "flexflow", Path(out) / "imported.rules", arguments.workers)
            print(_row(name, found, _processor_seconds() - started), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
