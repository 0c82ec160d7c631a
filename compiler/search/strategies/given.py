"""Values that a user gives in Python, as what a run takes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from dslc.cost.inputs import Given
from dslc.search.strategies.option import told


def read_inputs(given: Any) -> Given:
    """Inputs as a user gives them, their arrays as NumPy's: of PyTorch's tensors, of numbers, of whatever becomes an array; a list of
    arrays is a sequence.

    Raises ValueError for what is neither a path nor arrays by the names of inputs.
    """
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    sets = [given] if isinstance(given, Mapping) else given
    if not isinstance(sets, Sequence) or not sets or not all(isinstance(one, Mapping) and one for one in sets):
        raise ValueError(f"{told(given)} is neither a path nor arrays by the names of inputs")
    return tuple({_name(name): _array(name, value) for name, value in one.items()} for one in sets)


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise ValueError(f"{told(name)} is no name of an input")
    return name


def _array(name: str, value: Any) -> Any:
    import numpy as np

    if isinstance(value, dict):
        return value  # a map is no array
    if (isinstance(value, list | tuple) and not value) or (
        isinstance(value, list | tuple) and hasattr(value[0], "shape")
    ):
        return [_array(f"{name}[{k}]", one) for k, one in enumerate(value)]
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as problem:
        raise ValueError(f"the input {name} is no array: {problem}") from None
    if array.dtype.kind in "OMm":
        raise ValueError(f"the input {name} is no array of numbers: {told(value)}")
    return array
