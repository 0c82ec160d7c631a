"""Affine programs at given sizes: two that agree where all elements are 0, and where one of them is 1, agree everywhere.

This shows what normal forms do not, as weights that change with the position (a linear interpolation).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from dslc.interpret.domain import Redraw
from dslc.interpret.exact import Exact
from dslc.interpret.run import InterpretError, run_scopes
from dslc.ir.graph import Value
from dslc.prove.field.degree import degrees
from dslc.prove.partial.draws import inputs_of
from dslc.prove.strided import Box, mask_of

ELEMENTS = 2048  #: elements of all inputs together: so many times both programs are computed


def equal_on_a_basis(left: Value, right: Value, boxes: Sequence[Box], seconds: float) -> bool:
    """Whether two expanded programs of static shapes are affine in all elements equal outside of boxes; False after `seconds`."""
    if any(each is None or each.top > 1 or each.bottom for each in degrees((left, right))):
        return False
    inputs = inputs_of((left, right))
    sizes = [int(np.prod(value.type.sizes)) for value in inputs]
    if sum(sizes) > ELEMENTS:
        return False
    outside = ~mask_of(boxes, left.type.sizes)
    until = time.monotonic() + seconds
    for one in range(-1, sum(sizes)):
        elements = np.zeros(sum(sizes), dtype=np.int64)
        if one >= 0:
            elements[one] = 1
        parts = np.split(elements, np.cumsum(sizes)[:-1]) if sizes else []
        feeds = {value: part.reshape(value.type.sizes) for value, part in zip(inputs, parts, strict=True)}
        try:
            old, new = run_scopes((left, right), feeds, Exact())
        except (Redraw, InterpretError):
            return False
        if (old != new)[outside].any() or time.monotonic() > until:
            return False
    return True
