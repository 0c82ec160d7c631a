"""Other projects' rule files, imported whole: what becomes of each rule.

    python -m benchmarks.foreign                 # the files of FlexFlow's source package
    python -m benchmarks.foreign graph_subst_3_v2.pb
    python -m benchmarks.foreign tensat/single_rules.txt    # a file of yours: .txt is TENSAT's, .pb TASO's, .json FlexFlow's

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

from dslc.errors import DslcError
from dslc.folders import cache_folder
from dslc.foreign import flexflow, taso
from dslc.foreign.decisions import MEANING, Import
from dslc.foreign.importer import import_rules, read_rules
from dslc.foreign.rule import ForeignRule

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
    """Whether both forms of one rule set agree."""
    data, text = (folder / "graph_subst_3_v2.pb").read_bytes(), (folder / "graph_subst_3_v2.json").read_bytes()
    binary, named = taso.read(data), flexflow.read(text)
    same = [replace(rule, name="") for rule in named] == list(binary)
    return f"protobuf and JSON {'agree' if same else 'DIFFER'}"


def _row(name: str, found: Import, seconds: float) -> str:
    counts = found.counts()
    return (
        f"| {name} | {len(found.rules)} | {' | '.join(str(counts[outcome]) for outcome in MEANING)} | {seconds:.0f} |"
    )


def _processor_seconds() -> float:
    """Of this process and of those that proved and have ended."""
    return sum(os.times()[:4])


def _rules(name: str, cache: Path | None) -> tuple[str, tuple[ForeignRule, ...]]:
    """The format of a file and its rules. TASO's rules are written back as they were, or there is an AssertionError."""
    own = Path(name)
    form = "flexflow" if name in FILES else {".txt": "tensat", ".pb": "taso"}.get(own.suffix, "flexflow")
    path = fetch(cache) / name if name in FILES else own
    rules = read_rules(form, path)
    if form == "taso":
        assert taso.write(rules) == path.read_bytes(), f"{name} is not written back as it was"
    return form, rules


def main() -> int:
    """The command line: a table, a row for each file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.foreign", description="Import published rule files.")
    parser.add_argument("names", nargs="*", metavar="FILE", help=f"a path, or which of {', '.join(FILES)}")
    parser.add_argument("--cache", type=Path, help="folder to keep them in (default: `foreign` in dslc's cache)")
    parser.add_argument("--workers", type=int, default=2, help="processes that prove (2)")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for one prover and rule (30)")
    arguments = parser.parse_args()
    names = arguments.names or FILES
    try:
        if not arguments.names:
            print(_agreement(fetch(arguments.cache)), end="\n\n")
        files = {name: _rules(name, arguments.cache) for name in names}
    except (DslcError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"| file | rules | {' | '.join(MEANING)} | processor s |")
    print(f"|---|{'---:|' * (len(MEANING) + 2)}")
    for name, (form, rules) in files.items():
        with TemporaryDirectory() as out:
            started = _processor_seconds()
            found = import_rules(rules, form, Path(out) / "imported.rules", arguments.workers, arguments.limit)
            print(_row(Path(name).name, found, _processor_seconds() - started), flush=True)
            for rule in found.rules:
                if rule.wider is not None:
                    print(f"  {rule.name} is wrong for kernels or groups that its types leave out", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
