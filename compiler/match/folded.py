"""Constants that a rewrite computes: none overflows or vanishes where what it is made of does neither."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import ml_dtypes
import numpy as np

from dslc.errors import DslcError
from dslc.interpret.domain import Redraw
from dslc.interpret.floats import Floats, Narrow
from dslc.interpret.run import InterpretError, run_scopes
from dslc.ir.constants import NUMPY
from dslc.ir.graph import Constant, Node, ScopeNode, Value, topological
from dslc.ir.scalar import Read
from dslc.semantics.elaborate import expand
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules

ELEMENTS = 1 << 23  #: of weights that are computed with: of larger ones the comparison of outputs tells
#: nodes that were looked at; a model that is gone takes them along
_KNOWN: WeakKeyDictionary[Node, bool] = WeakKeyDictionary()


def spoiled(rules: Rules, value: Value) -> bool:
    """True where a weights-only value holds an infinity or NaN, or only numbers too small for its type, made of ordinary ones."""
    node = value.node
    if not (node.constant and node.args and value.known and value.type.dtype.is_float and value.type.is_static):
        return False
    found = _KNOWN.get(node)
    if found is None:
        try:
            found = _computed(rules, value)
        except (
            InterpretError,
            Redraw,
            Mismatch,
            DslcError,
            ArithmeticError,
            LookupError,
            MemoryError,
            ValueError,
            OSError,
        ):
            found = False
        _KNOWN[node] = found
    return found


def _computed(rules: Rules, value: Value) -> bool:
    scopes = expand(rules, (value,))
    nodes = topological([scopes[0].node])
    if all(isinstance(one.scope.body, Read) for one in nodes if isinstance(one, ScopeNode)):
        return False  # elements are moved
    leaves = [Value(one) for one in nodes if isinstance(one, Constant) and Value(one).type.dtype.is_float]
    if sum(one.type.elements for one in leaves) > ELEMENTS:
        return False
    arrays = [np.abs(one.node.data.load().astype(np.float64)) for one in leaves]  # type: ignore[attr-defined]
    if not all(np.isfinite(array).all() for array in arrays):
        return False
    widest = max((one.type.dtype for one in (value, *leaves)), key=lambda dtype: dtype.bytes)
    with np.errstate(all="ignore"):
        found = np.abs(run_scopes(scopes, {}, Narrow(widest))[0].astype(np.float64))
        if not np.isfinite(found).all():
            return True
        least = float(ml_dtypes.finfo(NUMPY[value.type.dtype]).smallest_normal)  # type: ignore[no-untyped-call]
        if found.max(initial=0.0) >= least or any(0 < array.max(initial=0.0) < least for array in arrays):
            return False
        return bool(np.any(run_scopes(scopes, {}, Floats(rounded=False))[0]))
