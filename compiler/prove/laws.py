"""The laws of a `property` as rules, one for each of its equations; and the files of a library that hold them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from dslc.errors import error
from dslc.interpret.check_rule import as_substitution
from dslc.semantics.definitions import PropertyDef, SubstitutionDef
from dslc.semantics.installed import find_library
from dslc.semantics.library import Rules, load_many
from dslc.syntax import tree as t


def law_substitutions(law: PropertyDef) -> tuple[SubstitutionDef, ...]:
    """`left == right` as the rule `left => right`, for every equation of a law; several are numbered from 1.

    Raises:
        DslcError: E0321 where a law is no equation.
    """
    out = []
    for k, equation in enumerate(law.syntax.laws):
        if not (isinstance(equation, t.Compare) and equation.ops == ("==",)):
            raise error("E0321", "a law is an equation of two tensors", equation.span)
        name = law.name if len(law.syntax.laws) == 1 else f"{law.name}.{k + 1}"
        out.append(replace(as_substitution(law, equation), name=name))
    return tuple(out)


_PROPERTY = re.compile(r"^property\s", re.M)


def load_with_laws(names: Iterable[str | Path]) -> Rules:
    """Libraries and files as `load_many`, with the laws of the libraries from which they import operators.

    A library may keep its laws in files of their own, which no file imports; the axioms prover reasons from them.
    """
    names = tuple(names)
    rules = load_many(names)
    loaded = {Path(module.file.source.path).resolve() for module in rules.modules}
    folders = {folder for module in rules.modules if (folder := find_library(module.library)[0]) is not None}
    more = [
        file
        for folder in sorted(folders)
        if any(path.is_relative_to(folder.resolve()) for path in loaded)
        for file in sorted(folder.rglob("*.rules"))
        if file.resolve() not in loaded and _PROPERTY.search(file.read_text("utf-8", errors="replace"))
    ]
    return load_many((*names, *more), (*rules.folders, *folders)) if more else rules
