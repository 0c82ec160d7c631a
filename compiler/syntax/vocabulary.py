"""The words of the language that are not defined in `.rules` files. `grammar/vocabulary.md` says what each means (a test compares)."""

from __future__ import annotations

#: scalar functions of one value
FUNCTIONS_1 = frozenset(
    "abs exp log sqrt tanh erf sin cos tan asin acos atan sinh cosh asinh acosh atanh floor ceil round trunc sign isnan isinf".split()
)
#: scalar functions of two or more values, or of a list
FUNCTIONS_N = frozenset({"min", "max"})
#: `convert(x, dtype)`
CONVERT = "convert"
#: functions of lists and sizes
INDEX_FUNCTIONS = frozenset(
    "rank len shape range reversed take drop broadcast fit permute unpermute ravel unravel without only merge ceildiv".split()
)
#: questions about types, tensors and operators, for guards
PREDICATES = frozenset("dtype floating integer constant pointwise linear".split())
REDUCTIONS = frozenset({"sum", "prod", "max", "min", "any", "all"})
CONSTANTS = frozenset({"true", "false", "pi", "inf", "nan"})
DTYPE_NAMES = frozenset("f16 bf16 f32 f64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split())
#: what other languages call element types
DTYPE_SPELLINGS: dict[str, str] = {
    "float16": "f16", "half": "f16", "fp16": "f16", "bfloat16": "bf16", "float": "f32", "float32": "f32", "fp32": "f32",
    "float64": "f64", "double": "f64", "fp64": "f64", "i8": "int8", "i16": "int16", "i32": "int32", "int": "int64", "i64": "int64",
    "long": "int64", "u8": "uint8", "byte": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "boolean": "bool",
}  # fmt: skip
ATTRIBUTE_TYPES = frozenset("int float bool string dtype ints floats axis axes permutation".split())
TRAITS = frozenset(
    "associative commutative idempotent involution identity absorbing zero inverse stand_in operand_of placed_by".split()
)
#: what a rule may say of floating-point numbers in `verify numerics`, and what that means
NUMERICS: dict[str, str] = {
    "exact": "no rounding changes",
    "reassociates": "sums and products are rounded in another order",
    "cancels": "large terms cancel, which loses digits",
    "nonfinite": "infinities, NaN, the sign of zero, numbers so large that they overflow and divisors of 0 may give something else",
}
KEYWORDS = frozenset(
    """dslc library requires import as export operator attr where let onnx since until example tags verify property is holds
    trusted partial substitution const correct limit term search in derivation index map set tensor expr restrict other lowering
    on match cost call template test given expect fires silent derives ruleset include exclude always if else and or not forall
    inf""".split()
)
