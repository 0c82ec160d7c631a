"""Programs at numbers for their unknown sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dslc.ir.graph import Value, Values
from dslc.ir.scalar import Scalar, Sym, num, rebuild
from dslc.ir.sizes import with_sizes


def at_sizes(values: Sequence[Value], sizes: Mapping[str, int]) -> Values:
    """Expanded values with numbers for unknown sizes; a size that is not given is its least."""
    memo: dict[Scalar, Scalar] = {}

    def leaf(node: Scalar) -> Scalar | None:
        return num(sizes.get(node.name, max(1, node.least or 1))) if isinstance(node, Sym) else None

    return with_sizes(values, lambda item: rebuild(item, leaf, memo))
