"""Kernels written by hand, in the form of generated ones: what is around kernels is tested without the generator."""

from __future__ import annotations

from dslc.codegen.text import KernelText
from dslc.ir.dtype import DType, TensorType
from dslc.ir.scalar import Sym, dimension

ROWS = dimension("n")


def kernel(
    name: str,
    run: str,
    *,
    inputs: tuple[TensorType, ...],
    outputs: tuple[TensorType, ...],
    bind: str = "return 1;",
    shape: str = "",
    tasks: str = "1",
    scratch: str = "0",
    stages: int = 1,
    sizes: tuple[Sym, ...] = (),
) -> KernelText:
    """A kernel from the bodies of its functions, in C++."""
    text = f"""
extern "C" int {name}_sizes(const int64_t* const* dims, int64_t* sizes) {{ (void)dims; (void)sizes; {bind} }}
extern "C" void {name}_shape(const int64_t* sizes, int output, int64_t* dims) {{ (void)sizes; (void)output; (void)dims; {shape} }}
extern "C" int64_t {name}_scratch(const int64_t* sizes) {{ (void)sizes; return {scratch}; }}
extern "C" int {name}_stages(void) {{ return {stages}; }}
extern "C" uint64_t {name}_kept(int) {{ return 0; }}
extern "C" int64_t {name}_tasks(const int64_t* sizes, int stage) {{ (void)sizes; (void)stage; return {tasks}; }}
extern "C" int {name}_run(const int64_t* sizes, const void* const* in, void* const* out, void* scratch, int stage,
                           int64_t begin, int64_t end) {{
    (void)sizes; (void)in; (void)out; (void)scratch; (void)stage; {run}
    return 0;
}}
"""
    return KernelText(name, inputs, outputs, sizes, text)


def f32(*shape: int | Sym) -> TensorType:
    return TensorType(DType.F32, shape)


def halves(name: str = "k_halves") -> KernelText:
    """`x: f32[n, 4] -> x / 2, and the sum of each row`: two outputs, an unknown size, a task for each row."""
    return kernel(
        name,
        """
    const float* x = (const float*)in[0];
    float* half = (float*)out[0];
    float* sum = (float*)out[1];
    for (int64_t i = begin; i < end; i++) {
        float total = 0;
        for (int64_t j = 0; j < 4; j++) { half[4 * i + j] = x[4 * i + j] / 2; total += x[4 * i + j]; }
        sum[i] = total;
    }""",
        inputs=(f32(ROWS, 4),),
        outputs=(f32(ROWS, 4), f32(ROWS)),
        bind="sizes[0] = dims[0][0]; return dims[0][1] == 4;",
        shape="dims[0] = sizes[0]; if (output == 0) dims[1] = 4;",
        tasks="sizes[0]",
        sizes=(ROWS,),
    )


def total(name: str = "k_total") -> KernelText:
    """`x: f32[n] -> the sum of its squares`, a number: squares into scratch memory, then their sum."""
    return kernel(
        name,
        """
    const float* x = (const float*)in[0];
    float* square = (float*)scratch;
    if (stage == 0) { for (int64_t i = begin; i < end; i++) square[i] = x[i] * x[i]; return 0; }
    float sum = 0;
    for (int64_t i = 0; i < sizes[0]; i++) sum += square[i];
    *(float*)out[0] = sum;""",
        inputs=(f32(ROWS),),
        outputs=(f32(),),
        bind="sizes[0] = dims[0][0]; return 1;",
        tasks="stage == 0 ? sizes[0] : 1",
        scratch="4 * sizes[0]",
        stages=2,
        sizes=(ROWS,),
    )


def broken(name: str = "k_broken") -> KernelText:
    """A kernel that is no C++."""
    return kernel(name, "this is not C++;", inputs=(f32(2),), outputs=(f32(2),), shape="dims[0] = 2;")


def endless(name: str = "k_endless") -> KernelText:
    """A kernel whose compilation takes very long."""
    text = kernel(name, "", inputs=(f32(2),), outputs=(f32(2),), shape="dims[0] = 2;")
    slow = """
template <int N, int M> struct Slow { static constexpr long v = Slow<N - 1, M>::v + Slow<N - 1, M + (1 << N)>::v; };
template <int M> struct Slow<0, M> { static constexpr long v = M; };
static const long slow = Slow<26, 0>::v;
"""
    return KernelText(text.name, text.inputs, text.outputs, text.sizes, slow + text.text)
