"""Lowerings that name nodes which no runtime has: ONNX's own, and those that the ONNX Runtime at hand adds to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from dslc.errors import Diagnostic
from dslc.semantics.definitions import LoweringDef, Module
from dslc.semantics.library import Rules
from dslc.syntax import tree as t


def unknown_nodes(rules: Rules, modules: Iterable[Module]) -> list[Diagnostic]:
    """E0707 for every node, attribute or number of inputs in a lowering that its operator does not have.

    Domains that neither ONNX nor ONNX Runtime knows are not checked.
    """
    chosen = frozenset(modules)
    return [found for rule in rules.lowerings.values() if rule.module in chosen for found in _of(rule)]


def _of(rule: LoweringDef) -> Iterator[Diagnostic]:
    for statement in rule.syntax.statements:
        if isinstance(statement, t.OnnxMap):
            domain, _, name = statement.op.rpartition(".")
            versions = _known().get(domain)
            if versions is None:
                continue
            schemas = versions.get(name)
            if schemas is None:
                where = f"the domain {domain}" if domain else "ONNX"
                yield Diagnostic("E0707", f"{where} has no operator `{name}`", statement.span)
                continue
            attributes = {one for schema in schemas for one in schema.attributes}
            for entry in statement.attrs:
                if entry.name not in attributes:
                    yield Diagnostic("E0707", f"`{statement.op}` has no attribute `{entry.name}`", entry.span)
            # what a lowering passes on may be part of an attribute, so that there may be fewer
            most, count = max(schema.max_input for schema in schemas), len(statement.inputs)
            if count > most:
                yield Diagnostic("E0707", f"`{statement.op}` has {most} inputs at most, not {count}", statement.span)


@cache
def _known() -> Mapping[str, Mapping[str, list[Any]]]:
    """All versions of each operator, by domain and name."""
    import onnx
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    found: dict[str, dict[str, list[Any]]] = {}
    for schema in (*onnx.defs.get_all_schemas_with_history(), *get_all_operator_schema()):
        found.setdefault(schema.domain, {}).setdefault(schema.name, []).append(schema)
    return MappingProxyType(found)
