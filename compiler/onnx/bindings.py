"""Fixing symbolic sizes in graphs."""

from __future__ import annotations

from collections.abc import Mapping

from dslc.ir.dtype import Dim
from dslc.ir.graph import Value
from dslc.ir.scalar import Scalar, Sym, dimension, num, substitute
from dslc.ir.sizes import with_sizes


def bind_values(outputs: tuple[Value, ...], bind: Mapping[str, int]) -> tuple[Value, ...]:
    """The same values with symbols replaced by sizes, in types, attributes and expressions."""
    table: dict[Scalar, Scalar] = {dimension(name): num(size) for name, size in bind.items()}
    return with_sizes(outputs, lambda item: substitute(item, table))


__all__ = ["Dim", "Sym", "bind_values"]
