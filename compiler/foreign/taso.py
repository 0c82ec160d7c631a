"""TASO's `graph_subst.pb`: protobuf's wire format for one fixed schema (package GraphSubst, every scalar an int32).

RuleCollection{rule=1*}, Rule{srcOp=1*, dstOp=2*, mappedOutput=3*}, Operator{type=1, input=2*, para=3*}, Tensor{opId=1, tsId=2},
Parameter{key=1, value=2}, MapOutput{srcOpId=1, dstOpId=2, srcTsId=3, dstTsId=4}.

FlexFlow writes the same schema with other numbers behind TASO's constants: 26 is TASO's squeeze and FlexFlow's OP_PARTITION. A file
does not say whose they are. FlexFlow's parallel operators tell it: one input, and the parameters 15 and 16 alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from dslc.errors import error
from dslc.foreign.rule import (
    COMMON_KEYS,
    COMMON_KINDS,
    FLEXFLOW_KEYS,
    FLEXFLOW_KINDS,
    KEYS,
    KINDS,
    ForeignRule,
    Operator,
    Output,
    Parameter,
    RuleTensor,
    checked,
    damaged,
)
from dslc.foreign.rule import (
    MOST_BYTES as RULE_MOST_BYTES,
)
from dslc.foreign.rule import (
    MOST_OPERATORS as RULE_MOST_OPERATORS,
)
from dslc.foreign.rule import (
    MOST_RULES as RULE_MOST_RULES,
)

#: whose numbers a file has
Numbering = Literal["taso", "flexflow"]

_KIND_NUMBERS = {name: number for number, name in enumerate(KINDS)}
_KEY_NUMBERS = {name: number for number, name in enumerate(KEYS)}
_FLEXFLOW_KIND_NUMBERS = {name: number for number, name in enumerate(FLEXFLOW_KINDS)}
_FLEXFLOW_KEY_NUMBERS = {name: number for number, name in enumerate(FLEXFLOW_KEYS)}
_PARALLEL_KEYS = {KEYS[COMMON_KEYS], KEYS[COMMON_KEYS + 1]}
_VARINT, _BYTES = 0, 2  #: wire types of protocol buffers


class _Wrong(Exception):
    """What is wrong with the bytes at hand."""


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise _Wrong(f"a number of more than 10 bytes ends at byte {at}")
    raise _Wrong("it ends within a number")


def _int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _numbers(data: bytes, count: int, what: str) -> list[int]:
    """The int32 fields 1 to `count` of a message that holds nothing else; absent ones are 0, the last of several counts."""
    out = [0] * count
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at, end)
        if tag & 7 != _VARINT or not 1 <= tag >> 3 <= count:
            raise _Wrong(f"field {tag >> 3} of wire type {tag & 7} is no field of a {what}")
        value, at = _varint(data, at, end)
        out[(tag >> 3) - 1] = _int32(value)
    return out


def _parts(data: bytes, fields: int, what: str) -> Iterator[tuple[int, bytes]]:
    """The embedded messages of a message. A length is compared with what is left before the bytes are taken."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at, end)
        if tag & 7 != _BYTES or not 1 <= tag >> 3 <= fields:
            raise _Wrong(f"field {tag >> 3} of wire type {tag & 7} is no field of a {what}")
        length, at = _varint(data, at, end)
        if length > end - at:
            raise _Wrong(f"a part of {length} bytes is announced where {end - at} are left")
        yield tag >> 3, data[at : at + length]
        at += length


class _Reader:
    """Operators and outputs are read once for each different text of theirs: a file of many rules has few."""

    def __init__(self) -> None:
        self._operators: dict[bytes, Operator] = {}
        self._outputs: dict[bytes, Output] = {}

    def operator(self, data: bytes) -> Operator:
        found = self._operators.get(data)
        if found is None:
            found = self._operators[data] = self._read_operator(data)
        return found

    def _read_operator(self, data: bytes) -> Operator:
        kind, inputs, parameters = 0, [], []
        at, end = 0, len(data)
        while at < end:
            tag, at = _varint(data, at, end)
            number, at = _varint(data, at, end)
            if tag == 1 << 3 | _VARINT:
                kind = _int32(number)
                continue
            if tag not in (2 << 3 | _BYTES, 3 << 3 | _BYTES):
                raise _Wrong(f"field {tag >> 3} of wire type {tag & 7} is no field of an operator")
            if number > end - at:
                raise _Wrong(f"a part of {number} bytes is announced where {end - at} are left")
            part = data[at : at + number]
            at += number
            if tag >> 3 == 2:
                inputs.append(RuleTensor(*_numbers(part, 2, "tensor")))
            else:
                key, value = _numbers(part, 2, "parameter")
                parameters.append((_name(KEYS, key), value))
            if len(inputs) > RULE_MOST_OPERATORS or len(parameters) > RULE_MOST_OPERATORS:
                raise _Wrong(f"an operator with more than {RULE_MOST_OPERATORS} inputs or parameters")
        return Operator(_name(KINDS, kind), tuple(inputs), tuple(parameters))

    def output(self, data: bytes) -> Output:
        found = self._outputs.get(data)
        if found is None:
            source, target, source_output, target_output = _numbers(data, 4, "mapped output")
            found = self._outputs[data] = Output(RuleTensor(source, source_output), RuleTensor(target, target_output))
        return found

    def rule(self, data: bytes) -> ForeignRule:
        sides: tuple[list[Operator], list[Operator]] = ([], [])
        outputs: list[Output] = []
        for number, part in _parts(data, 3, "rule"):
            if number == 3:
                outputs.append(self.output(part))
            else:
                sides[number - 1].append(self.operator(part))
            if max(len(sides[0]), len(sides[1]), len(outputs)) > RULE_MOST_OPERATORS:
                raise _Wrong(f"a side of more than {RULE_MOST_OPERATORS} operators")
        return ForeignRule("", tuple(sides[0]), tuple(sides[1]), tuple(outputs))


def _name(names: Sequence[str], number: int) -> str:
    return names[number] if 0 <= number < len(names) else f"#{number}"


def _numbering(rules: Iterable[ForeignRule]) -> Numbering:
    """FlexFlow's where each operator behind TASO's constants is one of its parallel operators."""
    behind = {
        op for rule in rules for op in (*rule.source, *rule.target) if _KIND_NUMBERS.get(op.kind, -1) >= COMMON_KINDS
    }
    parallel = KINDS[COMMON_KINDS : COMMON_KINDS + 4]
    fits = all(
        op.kind in parallel and len(op.inputs) == 1 and {k for k, _ in op.parameters} == _PARALLEL_KEYS for op in behind
    )
    return "flexflow" if behind and fits else "taso"


def _as_flexflow(op: Operator) -> Operator:
    """An operator whose numbers were read as TASO's."""
    kind = _name(FLEXFLOW_KINDS, _number(_KIND_NUMBERS, op.kind, "operator"))
    keys = ((_name(FLEXFLOW_KEYS, _number(_KEY_NUMBERS, key, "parameter")), value) for key, value in op.parameters)
    return replace(op, kind=kind, parameters=tuple(keys))


def read(data: bytes, path: str = "", numbering: Numbering | None = None) -> tuple[ForeignRule, ...]:
    """The rules of a `graph_subst.pb`. `numbering`: whose numbers they are; None: as the operators tell.

    Raises:
        DslcError: E1001 for bytes that are not of this schema, cut off, or beyond the limits.
    """
    if len(data) > RULE_MOST_BYTES:
        raise damaged(path, f"{len(data)} bytes are more than the {RULE_MOST_BYTES} that are read")
    reader = _Reader()
    rules: list[ForeignRule] = []
    try:
        for _, part in _parts(data, 1, "collection of rules"):
            rules.append(reader.rule(part))
            if len(rules) > RULE_MOST_RULES:
                raise _Wrong(f"more than {RULE_MOST_RULES} rules")
    except _Wrong as problem:
        raise damaged(path, f"not a file of TASO's rules: after {len(rules)} rules, {problem}") from None
    if (numbering or _numbering(rules)) == "flexflow":
        named: dict[Operator, Operator] = {}

        def renamed(side: tuple[Operator, ...]) -> tuple[Operator, ...]:
            return tuple(named.get(op) or named.setdefault(op, _as_flexflow(op)) for op in side)

        rules = [replace(rule, source=renamed(rule.source), target=renamed(rule.target)) for rule in rules]
    return checked(path, rules)


# ---- writing ---------------------------------------------------------------------------------------------------


def _encode(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF  # negative numbers take ten bytes
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _message(numbers: Iterable[int]) -> bytes:
    return b"".join(_encode(field << 3 | _VARINT) + _encode(value) for field, value in enumerate(numbers, 1))


def _part(field: int, data: bytes) -> bytes:
    return _encode(field << 3 | _BYTES) + _encode(len(data)) + data


def _number(numbers: dict[str, int], name: str, what: str) -> int:
    if name.startswith("#") and name[1:].lstrip("-").isdigit():
        return int(name[1:])
    if name not in numbers:
        raise error("E1002", f"this protobuf has no number for the {what} `{name}`")
    return numbers[name]


def _value(value: Parameter) -> int:
    if isinstance(value, str):
        raise error("E1002", f"TASO's format has no parameter `{value}`", hint="parameters are numbers there")
    if not -(1 << 31) <= value < 1 << 31:
        raise error("E1002", f"{value} does not fit TASO's 32 bits")
    return value


def _operator(op: Operator, numbering: Numbering) -> bytes:
    flexflow = numbering == "flexflow"
    kinds, keys = (_FLEXFLOW_KIND_NUMBERS, _FLEXFLOW_KEY_NUMBERS) if flexflow else (_KIND_NUMBERS, _KEY_NUMBERS)
    out = _encode(1 << 3 | _VARINT) + _encode(_number(kinds, op.kind, "operator"))
    for tensor in op.inputs:
        out += _part(2, _message((tensor.operator, tensor.output)))
    for key, value in op.parameters:
        out += _part(3, _message((_number(keys, key, "parameter"), _value(value))))
    return out


def rule_bytes(rule: ForeignRule, numbering: Numbering = "taso") -> bytes:
    """One rule as a message.

    Raises:
        DslcError: E1002 for an operator or a parameter that TASO lacks.
    """
    out = b"".join(_part(1, _operator(op, numbering)) for op in rule.source)
    out += b"".join(_part(2, _operator(op, numbering)) for op in rule.target)
    for each in rule.outputs:
        numbers = (each.source.operator, each.target.operator, each.source.output, each.target.output)
        out += _part(3, _message(numbers))
    return out


def write(rules: Iterable[ForeignRule], numbering: Numbering | None = None) -> bytes:
    """The bytes of a file; names of rules and inputs have no place in it. `numbering`: None: FlexFlow's where its operators occur.

    Raises:
        DslcError: E1002 for an operator or a parameter that has no number.
    """
    rules = tuple(rules)
    if numbering is None:
        own = {*FLEXFLOW_KINDS[COMMON_KINDS:]}
        numbering = "flexflow" if any(kind in own for rule in rules for kind in rule.kinds()) else "taso"
    return b"".join(_part(1, rule_bytes(rule, numbering)) for rule in rules)
