"""Whose word a verdict is: what this user's runs have proved is kept in the user's cache; a lock is only a file beside the rules."""

from __future__ import annotations

import functools
import hashlib
import platform
import site
import sysconfig
from importlib import resources
from importlib.metadata import version
from pathlib import Path

import dslc
from dslc.folders import cache_folder
from dslc.prove.known.lock import ProofCache
from dslc.semantics.installed import BUILTIN

# what provers consist of, and what they ask; evidence of others is no evidence of these
_PROVERS = (
    "analysis", "deadline.py", "derivation", "errors.py", "grammar", "inspection", "interpret", "ir", "processes", "prove", "semantics",
    "store.py", "syntax",
)  # fmt: skip
_ASKED = ("highspy", "islpy", "lark", "ml_dtypes", "numpy", "sympy", "z3-solver")


def own_evidence(folder: Path | None = None) -> ProofCache:
    """The verdicts, by digest, that these provers gave in this user's runs, or that are kept in a folder."""
    return ProofCache(cache_folder() / "evidence" if folder is None else folder, f"{stamp()}-")


@functools.cache
def stamp() -> str:
    """Of the provers' files and the versions of what they ask: after a change in one of them everything is proved again."""
    root = Path(dslc.__file__).parent
    total = hashlib.sha256(" ".join((platform.python_version(), *map(version, _ASKED))).encode())
    for stage in _PROVERS:
        for path in sorted([root / stage, *(root / stage).rglob("*")]):
            if path.suffix in {".py", ".lark"}:
                total.update(f"\0{path.relative_to(root)}\0".encode() + path.read_bytes())
    return total.hexdigest()[:16]


@functools.cache
def shipped(path: Path) -> bool:
    """Whether a lock is a part of dslc, as its provers are: who could write it could change these, too."""
    return path.resolve().parent in {Path(str(resources.files(package))).resolve() for package in BUILTIN.values()}


def installed(path: Path) -> bool:
    """Whether a file belongs to an installed package: what it says is the package's word, and nothing is written there."""
    folders = [
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        *site.getsitepackages(),
        site.getusersitepackages(),
    ]
    found = path.resolve()
    return any(found.is_relative_to(Path(folder).resolve()) for folder in folders if folder) or bool(
        {"site-packages", "dist-packages"} & set(found.parts)
    )
