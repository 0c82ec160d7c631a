"""The terms of a rule (`term f(X)`) as operators: unknown functions of elements where every pointwise operator is meant."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from dslc.errors import SourceText
from dslc.semantics.definitions import Module, OperatorDef, SubstitutionDef, UnknownFunction
from dslc.semantics.env import with_attributes
from dslc.semantics.walk import conditions_in, named_by, nodes, terms_in
from dslc.syntax import tree as t
from dslc.syntax.parser import parse


def unknown_operators(sub: SubstitutionDef) -> Mapping[str, OperatorDef] | None:
    """An operator for every term, each an unknown function of elements; None where a term is not said to be pointwise.

    The function stands for every pointwise operator without attributes of its own; with those that `**a` hands on it is another one
    (`with_attributes`). Where an operator gives another element type, its values are still a function of the elements.
    """
    named = named_by("pointwise", conditions_in(sub.left))
    found = terms_in(sub.left)
    if any(signature.name not in named for signature in found):
        return None
    return {signature.name: unknown_operator(signature.name, len(signature.params)) for signature in found}


def term_operators(sub: SubstitutionDef) -> Mapping[str, OperatorDef]:
    """The operators of `unknown_operators`, and of each of them with each set of attributes that the rule names, by qualified name."""
    sets = {node.rest for node in nodes(t.Call, sub.syntax) if node.rest is not None}
    found = terms_in(sub.left) if unknown_operators(sub) is not None else ()
    made = [unknown_operator(s.name, len(s.params), name) for s in found for name in ("", *sorted(sets))]
    return {op.name: op for op in made}


@functools.cache
def unknown_operator(name: str, count: int, attributes: str = "") -> OperatorDef:
    """`Y[*i] = f(p0[*i], p1[*i], ...)` with operands that broadcast, f unknown, and another one for each set of attributes."""
    packs = [f"S{k}" for k in range(count)]
    params = ", ".join(f"p{k}: T{k}[*{pack}]" for k, pack in enumerate(packs))
    shape = f"broadcast({', '.join(packs)})" if count > 1 else packs[0]
    reads = ", ".join(f"p{k}[*{f'fit(i, {pack})' if count > 1 else 'i'}]" for k, pack in enumerate(packs))
    text = f"dslc 1\noperator term_{name}({params}) -> Y: T0[*{shape}] {{\n  Y[*i] = function({reads})\n}}\n"
    file = parse(SourceText(f"term {name}", text))
    module = Module(f"term {name}", "", file)
    module.names["function"] = UnknownFunction(with_attributes(f"unknown:{name}", attributes), module)
    (syntax,) = (item for item in file.items if isinstance(item, t.Operator))
    # a solver that knows several rules keeps terms of one name apart by their number of operands
    op = OperatorDef(with_attributes(f"term.{name}.{count}", attributes), syntax, module)
    module.names[syntax.name] = op
    return op
