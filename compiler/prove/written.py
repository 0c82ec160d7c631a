"""Rules that are in no file: a substitution as text, with the operators that its names stand for."""

from __future__ import annotations

from collections.abc import Mapping

from dslc.errors import SourceText
from dslc.semantics.definitions import Module, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.syntax import tree as t
from dslc.syntax.parser import parse


def written(rules: Rules, text: str, operators: Mapping[str, str], library: str = "generated") -> SubstitutionDef:
    """A substitution as the loader would give it.

    Args:
        text: one substitution of the language, without the line `dslc 1`.
        operators: qualified names, each with the name that the text has for it.

    Raises:
        DslcError: where the text does not parse.
    """
    file = parse(SourceText(f"{library}.rules", "dslc 1\n" + text))
    module = Module(f"{library}.{library}", library, file)
    for op, short in operators.items():
        module.names[short] = rules.operators[op]
    (item,) = file.items
    assert isinstance(item, t.Substitution)
    return SubstitutionDef(f"{library}.{item.name}", item, module)
