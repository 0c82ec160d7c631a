"""FlexFlow's (Unity's) JSON: TASO's schema with names instead of numbers, and operators that distribute tensors."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from typing import Any

from dslc.errors import error
from dslc.foreign.rule import (
    MOST_BYTES as RULE_MOST_BYTES,
)
from dslc.foreign.rule import (
    MOST_OPERATORS as RULE_MOST_OPERATORS,
)
from dslc.foreign.rule import (
    MOST_RULES as RULE_MOST_RULES,
)
from dslc.foreign.rule import ForeignRule, Operator, Output, Parameter, RuleTensor, checked, damaged

#: what distributes a tensor
PARALLEL = frozenset({"replicate", "reduce", "partition", "combine", "pipeline", "fused_parallel"})


class _Wrong(Exception):
    """What is wrong with a part of the file."""


def _object(value: Any, kind: str, keys: frozenset[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Wrong(f"{_short(value)} stands where a {kind} should")
    if len(value) == len(keys) + 1 and value.get("_t") == kind and keys <= value.keys():
        return value  # as all of a right file are
    if value.get("_t", kind) != kind:
        raise _Wrong(f"`_t` is {_short(value['_t'])} where {kind} should stand")
    for key in keys:
        if key not in value:
            raise _Wrong(f"a {kind} without `{key}`")
    more = value.keys() - keys - {"_t"}
    if more:
        raise _Wrong(f"a {kind} with the unknown entry `{min(more)}`")
    return value


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _integer(value: Any) -> int:
    if type(value) is int and -(1 << 31) <= value < 1 << 31:
        return value
    if type(value) is not int:
        raise _Wrong(f"{_short(value)} stands where a number should")
    raise _Wrong(f"{value} does not fit 32 bits")


def _list(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list):
        raise _Wrong(f"{_short(value)} stands where a list should")
    if len(value) > most:
        raise _Wrong(f"{len(value)} entries are more than the {most} that are read")
    return value


def _lower(value: Any, prefix: str) -> str:
    """`OP_EW_ADD` as `ew_add`; a name of another form stays as it is (and is written back so)."""
    if not isinstance(value, str):
        raise _Wrong(f"{_short(value)} stands where a name should")
    return _without_prefix(value, prefix)


@functools.lru_cache(maxsize=1024)
def _without_prefix(value: str, prefix: str) -> str:
    rest = value.removeprefix(prefix)
    return rest.lower() if value.startswith(prefix) and rest and rest.lower().upper() == rest else value


def _upper(name: str, prefix: str) -> str:
    return prefix + name.upper() if name.lower() == name else name


_TENSOR = frozenset({"opId", "tsId"})
_PARAMETER = frozenset({"key", "value"})
_OPERATOR = frozenset({"type", "input", "para"})
_MAP = frozenset({"srcOpId", "srcTsId", "dstOpId", "dstTsId"})
_RULE = frozenset({"srcOp", "dstOp", "mappedOutput"})


def _tensor(value: Any) -> RuleTensor:
    part = _object(value, "RuleTensor", _TENSOR)
    return RuleTensor(_integer(part["opId"]), _integer(part["tsId"]))


def _parameter(value: Any) -> tuple[str, Parameter]:
    part = _object(value, "Parameter", _PARAMETER)
    return _lower(part["key"], "PM_"), _integer(part["value"])


def _operator(value: Any) -> Operator:
    part = _object(value, "Operator", _OPERATOR)
    inputs = tuple(_tensor(each) for each in _list(part["input"], RULE_MOST_OPERATORS))
    return Operator(
        _lower(part["type"], "OP_"),
        inputs,
        tuple(_parameter(each) for each in _list(part["para"], RULE_MOST_OPERATORS)),
    )


def _output(value: Any) -> Output:
    part = _object(value, "MapOutput", _MAP)
    source, source_output, target, target_output = (
        _integer(part[key]) for key in ("srcOpId", "srcTsId", "dstOpId", "dstTsId")
    )
    return Output(RuleTensor(source, source_output), RuleTensor(target, target_output))


def _rule(value: Any) -> ForeignRule:
    if isinstance(value, dict):
        value = {"name": "", **value}
    part = _object(value, "Rule", _RULE | {"name"})
    if not isinstance(part["name"], str):
        raise _Wrong(f"{_short(part['name'])} stands where a name should")
    source, target = (
        tuple(_operator(op) for op in _list(part[key], RULE_MOST_OPERATORS)) for key in ("srcOp", "dstOp")
    )
    return ForeignRule(
        part["name"], source, target, tuple(_output(o) for o in _list(part["mappedOutput"], RULE_MOST_OPERATORS))
    )


def read(data: bytes, path: str = "") -> tuple[ForeignRule, ...]:
    """The rules of a FlexFlow file.

    Raises:
        DslcError: E1001 for text that is no JSON or not of this schema, and beyond the limits.
    """
    if len(data) > RULE_MOST_BYTES:
        raise damaged(path, f"{len(data)} bytes are more than the {RULE_MOST_BYTES} that are read")
    rules: list[ForeignRule] = []
    try:
        tree = json.loads(data)
        for value in _list(_object(tree, "RuleCollection", frozenset({"rule"}))["rule"], RULE_MOST_RULES):
            rules.append(_rule(value))
    except _Wrong as problem:
        raise damaged(path, f"not a file of FlexFlow's rules: after {len(rules)} rules, {problem}") from None
    except json.JSONDecodeError as problem:
        raise damaged(path, f"not JSON: line {problem.lineno}, column {problem.colno}: {problem.msg}") from None
    except RecursionError:
        raise damaged(path, "not a file of FlexFlow's rules: its lists and objects are nested too deep") from None
    except (UnicodeDecodeError, ValueError) as problem:
        raise damaged(path, f"not JSON: {problem}") from None
    return checked(path, rules)


def _numeric(value: Parameter) -> int:
    if isinstance(value, str):
        raise error("E1002", f"FlexFlow's format has no parameter `{value}`", hint="parameters are numbers there")
    return value


def _written(op: Operator) -> dict[str, Any]:
    return {
        "_t": "Operator",
        "type": _upper(op.kind, "OP_"),
        "input": [{"_t": "RuleTensor", "opId": t.operator, "tsId": t.output} for t in op.inputs],
        "para": [{"_t": "Parameter", "key": _upper(k, "PM_"), "value": _numeric(v)} for k, v in op.parameters],
    }


def write(rules: Iterable[ForeignRule]) -> bytes:
    """The text of a file, indented by two and in the order of entries of FlexFlow's own.

    Raises:
        DslcError: E1002 for a parameter that is no number.
    """
    out = [
        {
            "_t": "Rule",
            "name": rule.name or f"rule_{at}",
            "srcOp": [_written(op) for op in rule.source],
            "dstOp": [_written(op) for op in rule.target],
            "mappedOutput": [
                {
                    "_t": "MapOutput",
                    "srcOpId": o.source.operator,
                    "srcTsId": o.source.output,
                    "dstOpId": o.target.operator,
                    "dstTsId": o.target.output,
                }
                for o in rule.outputs
            ],
        }
        for at, rule in enumerate(rules)
    ]
    return (json.dumps({"_t": "RuleCollection", "rule": out}, indent=2, sort_keys=True) + "\n").encode()
