"""FlexFlow's (Unity's) JSON: TASO's schema with names instead of numbers, and operators that distribute tensors."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from dslc.foreign import rule as limits
from dslc.foreign.rule import ForeignRule, Operator, Output, RuleTensor, checked, damaged

#: what distributes a tensor
PARALLEL = frozenset({"replicate", "reduce", "partition", "combine", "pipeline", "fused_parallel"})


class _Wrong(Exception):
    """A part of the file that is not of its schema."""


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise _Wrong(f"{_short(value)} stands where a number should")
    if not -(1 << 31) <= value < 1 << 31:
        raise _Wrong(f"{value} does not fit 32 bits")
    return value


def _name(prefix: str | None, value: Any) -> str:
    """`OP_EW_ADD` as `ew_add`; a name of another form stays as it is."""
    if not isinstance(value, str):
        raise _Wrong(f"{_short(value)} stands where a name should")
    rest = value.removeprefix(prefix) if prefix is not None else ""
    return rest.lower() if rest and rest != value and rest.lower().upper() == rest else value


def _parts(kind: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _Wrong(f"{_short(value)} stands where a list should")
    most = limits.MOST_RULES if kind == "Rule" else limits.MOST_OPERATORS
    if len(value) > most:
        raise _Wrong(f"{len(value)} entries are more than the {most} that are read")
    return tuple(_part(kind, each) for each in value)


#: the entries of each object as arguments of what it is read as
_ENTRIES: dict[str, tuple[Callable[..., Any], dict[str, Callable[[Any], Any]]]] = {
    "RuleTensor": (RuleTensor, {"opId": _integer, "tsId": _integer}),
    "Parameter": (lambda key, value: (key, value), {"key": partial(_name, "PM_"), "value": _integer}),
    "Operator": (
        Operator,
        {"type": partial(_name, "OP_"), "input": partial(_parts, "RuleTensor"), "para": partial(_parts, "Parameter")},
    ),
    "MapOutput": (
        lambda *ends: Output(RuleTensor(*ends[:2]), RuleTensor(*ends[2:])),
        dict.fromkeys(("srcOpId", "srcTsId", "dstOpId", "dstTsId"), _integer),
    ),
    "Rule": (
        ForeignRule,
        {
            "name": partial(_name, None),
            **dict.fromkeys(("srcOp", "dstOp"), partial(_parts, "Operator")),
            "mappedOutput": partial(_parts, "MapOutput"),
        },
    ),
    "RuleCollection": (lambda *lists: lists, {"rule": partial(_parts, "Rule")}),
}


def _part(kind: str, value: Any) -> Any:
    make, entries = _ENTRIES[kind]
    if not isinstance(value, dict):
        raise _Wrong(f"{_short(value)} stands where a {kind} should")
    value = {"_t": kind, **({"name": ""} if kind == "Rule" else {}), **value}
    if value.pop("_t") != kind:
        raise _Wrong(f"something else stands where a {kind} should")
    if entries.keys() - value:
        raise _Wrong(f"a {kind} without `{min(entries.keys() - value)}`")
    if value.keys() - entries:
        raise _Wrong(f"a {kind} with the unknown entry `{min(value.keys() - entries)}`")
    return make(*(read(value[key]) for key, read in entries.items()))


def read(data: bytes, path: str = "") -> tuple[ForeignRule, ...]:
    """The rules of a FlexFlow file.

    Raises:
        DslcError: E1001 for text that is no JSON or not of this schema, and beyond the limits.
    """
    if len(data) > limits.MOST_BYTES:
        raise damaged(path, f"{len(data)} bytes are more than the {limits.MOST_BYTES} that are read")
    try:
        return checked(path, *_part("RuleCollection", json.loads(data)))
    except _Wrong as problem:
        raise damaged(path, f"not a file of FlexFlow's rules: {problem}") from None
    except json.JSONDecodeError as problem:
        raise damaged(path, f"not JSON: line {problem.lineno}, column {problem.colno}: {problem.msg}") from None
    except RecursionError:
        raise damaged(path, "not a file of FlexFlow's rules: its lists and objects are nested too deep") from None
    except ValueError as problem:
        raise damaged(path, f"not JSON: {problem}") from None
