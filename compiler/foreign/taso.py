"""TASO's `graph_subst.pb`: messages of protocol buffers (package GraphSubst, every scalar an int32).

FlexFlow writes the same schema with other numbers behind TASO's constants: 26 is TASO's squeeze and FlexFlow's OP_PARTITION. A file
does not say whose they are. FlexFlow's parallel operators tell it: one input, and the parameters 15 and 16 alone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from dslc.errors import error
from dslc.foreign import rule as limits
from dslc.foreign.rule import KEYS, KINDS, ForeignRule, Operator, Output, Parameter, RuleTensor, checked, damaged

#: whose numbers a file has
Numbering = Literal["taso", "flexflow"]

#: the fields of each message in the order of their numbers; those with a type are lists of messages
SCHEMA = {
    "Parameter": ("key", "value"),
    "Tensor": ("opId", "tsId"),
    "Operator": ("type", "input Tensor", "para Parameter"),
    "MapOutput": ("srcOpId", "dstOpId", "srcTsId", "dstTsId"),
    "Rule": ("srcOp Operator", "dstOp Operator", "mappedOutput MapOutput"),
    "RuleCollection": ("rule Rule",),
}
# FlexFlow's generator has TASO's numbers up to here, and its own behind (its tools/protobuf_to_json/protobuf_to_json.cc)
COMMON_KINDS, COMMON_KEYS = 26, 15
FLEXFLOW_KINDS = [*KINDS[:COMMON_KINDS], *"partition combine replicate reduce embedding".split()]
FLEXFLOW_KEYS = [*KEYS[:COMMON_KEYS], *"parallel_dim parallel_degree".split()]


@functools.cache
def _messages() -> Any:
    """The class of `RuleCollection`."""
    fields = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="rules.proto", package="GraphSubst", syntax="proto2")
    for name, entries in SCHEMA.items():
        message = file.message_type.add(name=name)
        for number, entry in enumerate(entries, 1):
            field, _, part = entry.partition(" ")
            added = message.field.add(name=field, number=number, label=fields.LABEL_OPTIONAL, type=fields.TYPE_INT32)
            if part:
                added.label, added.type, added.type_name = (
                    fields.LABEL_REPEATED,
                    fields.TYPE_MESSAGE,
                    f".GraphSubst.{part}",
                )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("GraphSubst.RuleCollection"))


def _name(names: Sequence[str], number: int) -> str:
    return names[number] if 0 <= number < len(names) else f"#{number}"


def _is_flexflow(collection: Any) -> bool:
    """Return whether each operator behind TASO's constants is one of FlexFlow's parallel operators."""
    behind = [op for rule in collection.rule for op in (*rule.srcOp, *rule.dstOp) if op.type >= COMMON_KINDS]
    return bool(behind) and all(
        op.type < COMMON_KINDS + 4
        and len(op.input) == 1
        and {each.key for each in op.para} == {COMMON_KEYS, COMMON_KEYS + 1}
        for op in behind
    )


def read(data: bytes, path: str = "", numbering: Numbering | None = None) -> tuple[ForeignRule, ...]:
    """The rules of a `graph_subst.pb`. `numbering`: whose numbers they are; None: as the operators tell.

    Raises:
        DslcError: E1001 for bytes that are not of this schema, cut off, or beyond the limits.
    """
    if len(data) > limits.MOST_BYTES:
        raise damaged(path, f"{len(data)} bytes are more than the {limits.MOST_BYTES} that are read")
    try:
        found = _messages().FromString(data)
    except DecodeError:
        raise damaged(path, "not a file of TASO's rules, or one that is damaged or cut off") from None
    # what belongs to no field is kept apart by the library, and was not read
    found.DiscardUnknownFields()
    if found.ByteSize() != len(data):
        raise damaged(path, "not a file of TASO's rules: it has fields that are none of theirs")
    if len(found.rule) > limits.MOST_RULES:
        raise damaged(path, f"more than {limits.MOST_RULES} rules")
    flexflow = numbering == "flexflow" if numbering else _is_flexflow(found)
    kinds, keys = (FLEXFLOW_KINDS, FLEXFLOW_KEYS) if flexflow else (KINDS, KEYS)

    def side(operators: Any) -> tuple[Operator, ...]:
        if max(len(operators), *(max(len(op.input), len(op.para)) for op in operators), 0) > limits.MOST_OPERATORS:
            raise damaged(
                path, f"more than {limits.MOST_OPERATORS} operators of a side, or inputs or parameters of one"
            )
        return tuple(
            Operator(
                _name(kinds, op.type),
                tuple(RuleTensor(each.opId, each.tsId) for each in op.input),
                tuple((_name(keys, each.key), each.value) for each in op.para),
            )
            for op in operators
        )

    rules = []
    for each in found.rule:
        if len(each.mappedOutput) > limits.MOST_OPERATORS:
            raise damaged(path, f"more than {limits.MOST_OPERATORS} mapped outputs")
        outputs = tuple(
            Output(RuleTensor(o.srcOpId, o.srcTsId), RuleTensor(o.dstOpId, o.dstTsId)) for o in each.mappedOutput
        )
        rules.append(ForeignRule("", side(each.srcOp), side(each.dstOp), outputs))
    return checked(path, rules)


def _number(names: Sequence[str], name: str, what: str) -> int:
    if name.startswith("#") and name[1:].lstrip("-").isdigit():
        return int(name[1:])
    if name not in names:
        raise error("E1002", f"this protobuf has no number for the {what} `{name}`")
    return names.index(name)


def _value(value: Parameter) -> int:
    if isinstance(value, str):
        raise error("E1002", f"TASO's format has no parameter `{value}`", hint="parameters are numbers there")
    if not -(1 << 31) <= value < 1 << 31:
        raise error("E1002", f"{value} does not fit TASO's 32 bits")
    return value


def write(rules: Iterable[ForeignRule]) -> bytes:
    """The bytes of a file; names of rules and inputs have no place in it.

    Raises:
        DslcError: E1002 for an operator or a parameter that TASO lacks.
    """
    collection = _messages()()
    for rule in rules:
        message = collection.rule.add()
        for side, target in ((rule.source, message.srcOp), (rule.target, message.dstOp)):
            for op in side:
                out = target.add(type=_number(KINDS, op.kind, "operator"))
                for tensor in op.inputs:
                    out.input.add(opId=tensor.operator, tsId=tensor.output)
                for key, value in op.parameters:
                    out.para.add(key=_number(KEYS, key, "parameter"), value=_value(value))
        for each in rule.outputs:
            source, to = each.source, each.target
            message.mappedOutput.add(
                srcOpId=source.operator, dstOpId=to.operator, srcTsId=source.output, dstTsId=to.output
            )
    data: bytes = collection.SerializeToString()
    return data
