"""The reference interpreter: evaluates graphs over float64, integers modulo 2^31 - 1, or exact numbers."""

from dslc.interpret.domain import Domain, Redraw
from dslc.interpret.exact import Exact
from dslc.interpret.field import Field
from dslc.interpret.floats import Floats
from dslc.interpret.run import InterpretError, run, run_scopes

__all__ = ["Domain", "Exact", "Field", "Floats", "InterpretError", "Redraw", "run", "run_scopes"]
