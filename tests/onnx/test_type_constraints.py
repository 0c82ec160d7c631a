"""The element types that std's operators take, beside those of ONNX's own schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx.defs
import pytest

from dslc.ir.dtype import DTYPES, DType, class_of
from dslc.prove.element_types import _check, _Refused
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.library import Rules, load_many
from dslc.semantics.walk import conditions_in
from dslc.syntax import tree as t

NAMES = {f"tensor({dtype})": dtype for dtype in DType} | {
    "tensor(float16)": DType.F16,
    "tensor(bfloat16)": DType.BF16,
    "tensor(float)": DType.F32,
    "tensor(double)": DType.F64,
}
#: what stays an opaque node, as the equation is not what a runtime computes: real functions of integers, bits of 64, scales of 16 bits
OPAQUE = {
    "Erf", "Shrink", "ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "Attention", "Resize", "BitShift",
    "BitwiseAnd", "BitwiseOr", "BitwiseXor", "DequantizeLinear", "QuantizeLinear",
}  # fmt: skip


@pytest.fixture(scope="module")
def rules() -> Rules:
    return load_many(["std"])


def schemas(clause: t.OnnxMap) -> Iterator[onnx.defs.OpSchema]:
    """The versions of an ONNX operator for which a clause holds."""
    found = sorted(
        (one for one in onnx.defs.get_all_schemas_with_history() if one.name == clause.op and one.domain == ""),
        key=lambda one: int(one.since_version),
    )
    ends = [*(one.since_version for one in found[1:]), None]
    for schema, end in zip(found, ends, strict=True):
        if (end is None or end > clause.since) and (clause.until is None or schema.since_version < clause.until):
            yield schema


def constraints(op: OperatorDef) -> Iterator[tuple[str, str, set[DType]]]:
    """For each type variable of an operator the ONNX operators that it is written as, and what these take in its place."""
    types = {param.name: param.type.name for param in op.syntax.params if param.type is not None}
    for clause in op.syntax.statements:
        if not isinstance(clause, t.OnnxMap) or "." in clause.op:
            continue
        for schema in schemas(clause):
            allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
            for param, formal in zip(clause.inputs, schema.inputs, strict=False):
                variable = types.get(param.name) if isinstance(param, t.Param) else None
                if variable is not None and variable not in DTYPES:
                    texts = allowed.get(formal.type_str, [formal.type_str])
                    yield clause.op, variable, {NAMES[text] for text in texts if text in NAMES}


def taken(rules: Rules) -> dict[tuple[str, str], tuple[set[str], set[DType], set[DType]]]:
    """For each operator and type variable: its ONNX operators, the types that ONNX takes, and those that dslc takes."""
    out: dict[tuple[str, str], tuple[set[str], set[DType], set[DType]]] = {}
    for op in rules.operators.values():
        for written, variable, dtypes in constraints(op):
            own = {dtype for dtype in DType if operator_admits(rules, op, {variable: dtype})}
            names, theirs, _ = out.setdefault((op.short, variable), (set(), set(), own))
            names.add(written)
            theirs |= dtypes
    assert len(out) > 80
    return out


def operator_admits(rules: Rules, op: OperatorDef, types: Mapping[str, DType]) -> bool:
    """Whether the guards of an operator admit element types for the type variables of its declaration."""
    params = [param for param in op.syntax.params if param.type is not None and param.type.name in types]
    try:
        _check(
            rules,
            op.module,
            conditions_in(op.syntax.statements),
            {**types, **{param.name: types[param.type.name] for param in params if param.type}},
        )
    except _Refused:
        return False
    return True


def test_what_onnx_takes_is_taken(rules: Rules) -> None:
    """One ONNX operator may be several of dslc, as Div is: together they take what it takes."""
    found = taken(rules)
    for (op, variable), (names, theirs, own) in found.items():
        others = set().union(*(more for _, (also, _, more) in found.items() if also & names))
        refused = theirs - own - others
        assert not refused or names <= OPAQUE, (op, variable, sorted(map(str, refused)))


def test_what_is_taken_is_taken_by_onnx(rules: Rules) -> None:
    """A class of types for which ONNX has nothing is refused: no rule has to hold for it."""
    for (op, variable), (_, theirs, own) in taken(rules).items():
        extra = {class_of(dtype) for dtype in own} - {class_of(dtype) for dtype in theirs}
        assert not extra, (op, variable, sorted(map(str, extra)))
