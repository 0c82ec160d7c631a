"""Text of a generated C++ kernel, and what a caller needs to build and run it."""

from __future__ import annotations

from enum import Enum

from dslc.ir.dtype import TensorType
from dslc.ir.scalar import Sym
from dslc.records import record


@record
class Variant:
    """Schedule of a loop nest.

    width: elements of a vector (1: no vectors). unroll: accumulators of a reduction over lanes. vectors: vectors at a time where a
    reduction runs inside the lanes' loop; block: positions of another outer loop that are computed with it. lane: the loop that is
    spread over lanes, by rank of its estimate (None: the best). fuse: whether parts share stages. read_outputs: whether what
    needs an output reads it. contract: whether a product may go into a sum without being rounded, which may give other numbers
    where a difference is next to nothing. panels: whether a factor of a product that many positions share is brought into panels of
    `vectors` vectors first. windows: whether a sum over windows of products is a product of matrices first.
    padded: whether what products read beyond the ends of an operand is written out. filtered: whether products between transforms are
    computed with these, some rows at a time. keep: whether what is computed and read many times is kept. form: by which substitution
    the group was written in another way before, and its choice.
    """

    width: int = 16
    unroll: int = 4
    vectors: int = 2
    block: int = 4
    lane: int | None = None
    fuse: bool = True
    read_outputs: bool = False
    contract: bool = True
    panels: bool = False
    windows: bool = False
    padded: bool = False
    filtered: bool = False
    apart: bool = False
    keep: bool = False
    form: str = ""

    @property
    def panel(self) -> int:
        """Elements of a row of a panel."""
        return self.width * self.vectors


@record
class KernelText:
    """The C++ of one kernel: a part of a translation unit, after the preamble of the library template.

    `text` defines, with C linkage and NAME = `name`:

        int     NAME_sizes(const int64_t* const* dims, int64_t* sizes);   // the inputs' dimensions -> the unknown sizes
        void    NAME_shape(const int64_t* sizes, int output, int64_t* dims);
        int64_t NAME_scratch(const int64_t* sizes);                       // bytes
        int     NAME_stages(void);                                        // parallel stages, one after the other
        uint64_t NAME_kept(int stage);                                    // see below
        int64_t NAME_tasks(const int64_t* sizes, int stage);              // independent tasks of a stage
        int     NAME_run(const int64_t* sizes, const void* const* in, void* const* out, void* scratch,
                         int stage, int64_t begin, int64_t end);          // tasks begin to end - 1 of a stage

    `NAME_run` gives 0 where all is well, 1 where a position was outside of a tensor, 2 where there was not enough memory.

    `NAME_kept` has a bit for each input that a stage depends on, where what it leaves at the beginning of the scratch memory stays as
    long as these inputs do, whatever the sizes are; 0 for all other stages.

    `NAME_sizes` gives 0 where the dimensions are not those that the kernel was made for; nothing may be run then. 2 where a size is 0
    at which nothing may be run either, and all is well if all outputs are empty.
    """

    #: a C identifier by content: `k_` and 12 hexadecimal digits of what it computes and of the variant
    name: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    #: the unknown sizes, in the order of the C array `sizes`
    sizes: tuple[Sym, ...]
    #: C++17; includes all that it needs but <stddef.h> and <stdint.h>, all helpers are static
    text: str
    #: the substitution that made the group it was written of, and its choice, where there is one
    form: str = ""


class Reason(Enum):
    """Reason why there is no kernel for a group; decisions depend on it, never on the words of a message."""

    OPAQUE = "a node has no definition in the language"
    WEIGHT = "a weight with more than one number is inside the group"
    SIZE = "a size of the result is not known from the inputs' shapes"
    MEANING = "an operator has no meaning at these types"
    TYPE = "an element type that this target does not compute"
    FUNCTION = "a scalar function that this target does not have"
    FORM = "an expression of a form that is not generated yet"
    TOO_LARGE = "the group is too large to be one kernel"


class NotGenerated(Exception):
    """A group that has no kernel."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason = reason
