"""A substitution as TASO, TENSAT and FlexFlow write it: two small graphs of operators with integer parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from dslc.errors import Diagnostic, DslcError
from dslc.records import record

#: a number, or the text of a parameter that is no number (TENSAT: `?pad`, `1_0`)
Parameter = int | str


@record
class RuleTensor:
    """`operator` below 0: a free input of the rule; else an operator of the same side, by position, and which output of it."""

    operator: int
    output: int = 0


@record
class Operator:
    """`kind` and the keys of parameters are TASO's names in lower case (`conv2d`, `stride_h`), `#77` for an unknown number."""

    kind: str
    inputs: tuple[RuleTensor, ...]
    parameters: tuple[tuple[str, Parameter], ...] = ()

    def get(self, key: str) -> Parameter | None:
        return next((value for name, value in self.parameters if name == key), None)


#: one side of a rule, each operator behind those that it reads
Operators: TypeAlias = tuple[Operator, ...]


@record
class Output:
    """A tensor of the source that a tensor of the target replaces."""

    source: RuleTensor
    target: RuleTensor


@record
class ForeignRule:
    """One substitution; nothing that a file says is lost. `names` are those of free inputs, where the format has names."""

    name: str
    source: Operators
    target: Operators
    outputs: tuple[Output, ...]
    names: tuple[tuple[int, str], ...] = ()

    @property
    def sides(self) -> tuple[Operators, Operators]:
        return self.source, self.target

    @property
    def operators(self) -> Operators:
        return *self.source, *self.target

    def problem(self) -> str | None:
        """The reason for which this is no substitution; None where it is one: tensors exist, operators come after what they read."""
        for text, side in (("source", self.source), ("target", self.target)):
            for at, op in enumerate(side):
                for tensor in op.inputs:
                    if tensor.operator >= at:
                        return f"operator {at} of the {text} reads operator {tensor.operator}, which does not come before it"
                    if not 0 <= tensor.output < MOST_OUTPUTS:
                        return f"operator {at} of the {text} reads output {tensor.output}"
        if not self.outputs:
            return "no output is mapped"
        for output in self.outputs:
            for text, side, tensor in (("source", self.source, output.source), ("target", self.target, output.target)):
                if tensor.operator >= len(side) or not 0 <= tensor.output < MOST_OUTPUTS:
                    return f"the mapped output {tensor.operator}:{tensor.output} of the {text} does not exist"
        return None

    def inputs(self) -> tuple[int, ...]:
        """The free inputs, in the order of their first use."""
        tensors = [tensor for op in self.operators for tensor in op.inputs]
        tensors += [tensor for output in self.outputs for tensor in (output.source, output.target)]
        return tuple(dict.fromkeys(tensor.operator for tensor in tensors if tensor.operator < 0))

    def kinds(self) -> Iterator[str]:
        return (op.kind for op in self.operators)


MOST_BYTES = 1 << 28  #: bytes of a file
MOST_RULES = 1 << 20  #: rules of a file
MOST_OPERATORS = 256  #: operators of a side
MOST_OUTPUTS = 64  #: results of an operator

# the order is TASO's enumeration: the position is the number
KINDS = (
    "input weight any conv2d dropout linear pool2d_max pool2d_avg relu sigmoid tanh batchnorm concat split reshape transpose "
    "ew_add ew_mul matmul mul enlarge merge_gconv constant_imm constant_iconv constant_one constant_pool squeeze unsqueeze "
    "ew_sub ew_div ew_equal ew_greater ew_less ew_max ew_min reduce_argmax reduce_argmin reduce_max reduce_mean reduce_min "
    "reduce_prod reduce_sum pad shape size topk where ceil cast exp round log logical_not sqrt leakyrelu slice resize prelu "
    "fuse_conv_batchnorm fuse_conv_batchnorm_alpha_var fuse_conv_batchnorm_bias broadcast_add"
).split()
KEYS = (
    "op_type num_inputs num_outputs group kernel_h kernel_w stride_h stride_w pad acti numdim axis perm outshuffle "
    "merge_gconv_count axes keep_dims epsilon"
).split()


def damaged(path: str, what: str) -> DslcError:
    """E1001 about a file."""
    return DslcError([Diagnostic("E1001", what, path=path)])


def checked(path: str, rules: Sequence[ForeignRule]) -> tuple[ForeignRule, ...]:
    """The rules of a file, each with tensors that exist.

    Raises:
        DslcError: E1001 about the first rule that is no substitution.
    """
    for at, rule in enumerate(rules):
        problem = rule.problem()
        if problem is not None:
            raise damaged(path, f"rule {at} (`{rule.name}`): {problem}" if rule.name else f"rule {at}: {problem}")
    return tuple(rules)
