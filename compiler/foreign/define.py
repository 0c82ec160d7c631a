"""Translated rules as definitions, as the loader would give them."""

from __future__ import annotations

import functools

from dslc.errors import SourceText, error
from dslc.foreign.translate import Translation
from dslc.semantics.definitions import Module, SubstitutionDef
from dslc.semantics.library import Rules, load_many
from dslc.syntax import tree as t
from dslc.syntax.parser import parse

#: the library whose operators imported rules are written over
LIBRARY = "taso"


@functools.cache
def operators() -> Rules:
    """The definitions that imported rules may use."""
    return load_many([LIBRARY, "std"])


def definition(rules: Rules, found: Translation, library: str = "imported") -> SubstitutionDef:
    """A translated rule.

    Raises:
        DslcError: where its text does not parse or names an operator that is not loaded.
    """
    file = parse(SourceText(f"{library}.rules", f"dslc 1\n{found.text}\n"))
    (item,) = file.items
    assert isinstance(item, t.Substitution)
    module = Module(f"{library}.{library}", library, file)
    for place, name in found.operators:
        full = f"{place.partition('.')[0]}.{name}"
        if full not in rules.operators:
            raise error("E0201", f"no operator is named `{full}`")
        if place.startswith("std."):
            short = place.removeprefix("std.")
            module.aliases.setdefault(short, Module(place, "std", module.file)).names[name] = rules.operators[full]
        else:
            module.names[name] = rules.operators[full]
    return SubstitutionDef(f"{library}.{found.name}", item, module)
