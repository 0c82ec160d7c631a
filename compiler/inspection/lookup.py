"""Operators by the names that users know them by: their own, or ONNX's; and which operators a text names."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeVar

from dslc.errors import DslcError, did_you_mean, error
from dslc.semantics.definitions import Module, OnnxClause, OperatorDef, SubstitutionDef
from dslc.semantics.installed import library_of
from dslc.semantics.library import Rules
from dslc.semantics.walk import nodes
from dslc.syntax import tree as t
from dslc.syntax.printer import show

_T = TypeVar("_T")


def operator_named(rules: Rules, name: str) -> OperatorDef:
    """The operator of a name: its own, qualified or short, or that of the ONNX node that it is (`MaxPool`).

    Of several operators that an ONNX node may be, the one with the fewest outputs and parameters.

    Raises:
        DslcError: E0201 where there is none, with the name that was likely meant, or more than one.
    """
    try:
        return rules.operator(name)
    except DslcError as unknown:
        own = onnx_operators(rules, name)
        if own:
            return min(own, key=lambda op: (len(op.syntax.outputs), len(op.syntax.params)))
        if any(op.short == name for op in rules.operators.values()):
            raise
        read = [clause for clause in rules.onnx.get(name, ()) if clause.value]
        if read:
            # such a node is no operator, but an expression of some
            raise error("E0201", f"no operator is ONNX's `{name}`", hint=_read_as(read[-1])) from None
        hint = likely(rules, name)
        raise (error("E0201", f"no operator is named `{name}`", hint=hint) if hint else unknown) from None


def find_rule(rules: Rules, name: str) -> SubstitutionDef:
    """A substitution by its qualified name, or by a short name that only one library uses.

    Raises:
        DslcError: E0909 where there is none or more than one.
    """
    return definition_named(rules.substitutions, name, "rule", "`--rules LIB` loads the library that has it")


def definition_named(known: Mapping[str, _T], name: str, what: str, otherwise: str) -> _T:
    """The definition of a qualified name, or of a short one that only one library uses; `otherwise`: the hint where no name is close.

    Raises:
        DslcError: E0909 where there is none or more than one.
    """
    if name in known:
        return known[name]
    found = [full for full in known if full.rpartition(".")[2] == name]
    if len(found) == 1:
        return known[found[0]]
    if found:
        hint = "say one of " + ", ".join(found)
        raise error("E0909", f"several libraries have a {what} `{name}`", hint=hint)
    names = [*known, *(full.rpartition(".")[2] for full in known)]
    hint = did_you_mean(name, names if "." in name else names[len(known) :], otherwise)
    raise error("E0909", f"no {what} is named `{name}`", hint=hint)


def onnx_operators(rules: Rules, onnx: str) -> tuple[OperatorDef, ...]:
    """The operators that are written as an ONNX node of that name, in the order of their clauses."""
    return tuple(dict.fromkeys(clause.operator for clause in rules.onnx.get(onnx, ()) if clause.operator))


def onnx_names(rules: Rules) -> dict[str, dict[str, None]]:
    """For every operator, by its qualified name, the ONNX nodes that it is written as or that are read as a use of it."""
    found: dict[str, dict[str, None]] = {}
    for onnx, clauses in rules.onnx.items():
        for clause in clauses:
            for name in _of_clause(clause):
                found.setdefault(name, {})[onnx] = None
    return found


def called(module: Module, node: t.Node) -> dict[str, int]:
    """The qualified names of the operators that a text calls, as its file names them, and how often it writes each."""
    found = (module.lookup(one.function) for one in nodes(t.Call, node))
    return Counter(one.name for one in found if isinstance(one, OperatorDef))


def likely(rules: Rules, name: str) -> str:
    """A hint at the operator that was meant; empty where nothing is near."""
    if library_of(name) and library_of(name) not in {module.library for module in rules.modules}:
        return f"`--rules {library_of(name)}` loads the library of that name"
    spelled = {onnx.rpartition(".")[2].lower(): onnx for onnx in rules.onnx}
    for written in (name.lower(), name.replace("_", "").lower()):
        if written in spelled:
            onnx = spelled[written]
            if onnx_operators(rules, onnx):
                return f"did you mean `{operator_named(rules, onnx).short}`, which ONNX calls {onnx}?"
            return f"did you mean ONNX's {onnx}? {_read_as(rules.onnx[onnx][-1])}"
    shorts = sorted({op.short for op in rules.operators.values()})
    begins = [short for short in shorts if name and short.startswith(name.lower())]
    close = (
        difflib.get_close_matches(name, shorts, n=1)
        or begins[:1]
        or difflib.get_close_matches(name, list(rules.onnx), n=1)
    )
    return f"did you mean `{close[0]}`?" if close else ""


def _read_as(clause: OnnxClause) -> str:
    assert clause.value
    names = ", ".join(f"`dslc show {name}`" for name in _of_clause(clause))
    return f"such a node is read as `{show(clause.value)}`" + (f": see {names}" if names else "")


def _of_clause(clause: OnnxClause) -> Iterator[str]:
    if clause.operator:
        yield clause.operator.name
    elif clause.value:
        yield from called(clause.module, clause.value)
