"""Regions in which programs differ, at numbers for their sizes."""

from __future__ import annotations

from collections.abc import Mapping

import islpy

from dslc.analysis.numeric import value
from dslc.ir.scalar import Scalar, Sym, walk
from dslc.prove.exact.regions import DifferenceRegion


def points_of(region: DifferenceRegion, sizes: Mapping[str, int]) -> tuple[frozenset[tuple[int, ...]], ...]:
    """The positions of each output at given sizes."""
    kinds = islpy.dim_type
    known: dict[Scalar, int] = {
        part: sizes[part.name] for each in region.parameters for part in walk(each) if isinstance(part, Sym)
    }
    out = []
    for where, variables, position in zip(region.sets, region.variables, region.positions, strict=True):
        for k, each in enumerate(region.parameters):
            where = where.fix_val(kinds.param, k, islpy.Val.int_from_si(where.get_ctx(), int(value(each, known))))
        points: list[dict[Scalar, int]] = []
        where.foreach_point(
            lambda point, variables=variables, points=points: points.append(
                {it: point.get_coordinate_val(kinds.set, k).to_python() for k, it in enumerate(variables)}
            )
        )
        out.append(frozenset(tuple(int(value(axis, {**known, **at})) for axis in position) for at in points))
    return tuple(out)
