"""Models with kernels: found, built, measured, checked; the same outputs, and faster."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.kernel_models import Case, Writer, mish, prelu, weights
from benchmarks.kernels import sizes_of, with_kernels
from dslc.codegen.generate import generate
from dslc.codegen.host.compiler import NAMES, BuildReason, NotBuilt
from dslc.codegen.text import KernelText, NotGenerated, Reason
from dslc.cost.cache import CostCache
from dslc.cost.machine import this_machine
from dslc.cost.measure import Measurer
from dslc.cost.process import ModelFile, Worker
from dslc.deadline import Deadline
from dslc.fuse import autotune
from dslc.fuse.autotune import Dropped, WhyUnused
from dslc.fuse.fusion import Fused, FusingStory
from dslc.fuse.groups import proposals
from dslc.fuse.kernels import fold_of, kernels
from dslc.fuse.profile import WorkSizes
from dslc.fuse.timings import Subject
from dslc.interpret import Floats, run
from dslc.ir.graph import Call, Graph, Kernel
from dslc.ir.graph import replace as graph_replace
from dslc.ir.holes import hole, program
from dslc.onnx.importer import import_model
from dslc.search.region_rewrites.fusions import unbuilt
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules, standard
from dslc.sessions import session
from tests.caches import apart
from tests.codegen.native import build as built
from tests.search.test_match_random import BASES, STEPS, Step, build, unary
from tests.tuned import tuned

compiles = pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="there is no C++ compiler")
pytestmark = compiles


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Caches of its own: nothing that was measured elsewhere decides."""
    folder = str(apart(tmp_path_factory.mktemp("cache"), kernels=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSLC_CACHE", folder)
        # no test rests on the best of many kernels
        tuned(patch, "fuse.autotune", variants=2)
        yield folder


@dataclass(frozen=True)
class Made:
    """A model, the same with kernels, and how that came."""

    before: onnx.ModelProto
    after: onnx.ModelProto
    story: FusingStory
    feeds: Mapping[str, Any]

    def error(self) -> float:
        """The largest difference of outputs, relative to the largest element; by a session of dslc's and a plain one."""
        old = session(self.before).run(None, dict(self.feeds))
        new = session(self.after).run(None, dict(self.feeds))
        return max(float(np.max(np.abs(a - b))) / float(np.max(np.abs(a))) for a, b in zip(old, new, strict=True))

    @property
    def programs(self) -> list[str]:
        """The operators of each kernel of the written file."""
        from dslc.semantics.library import standard

        graph = import_model(self.after, standard(), {}).graph
        return [words(program) for program in kernels(graph)]


def words(program: Graph) -> str:
    return " ".join(node.op.removeprefix("std.") for node in program.nodes() if isinstance(node, Call))


def made(case: Case, symbolic: bool = False, seconds: float = 60.0) -> Made:
    # one thread: its own time leaves out what other processes take
    model, shapes = case.model(symbolic)
    after, _, story = with_kernels(model, sizes_of(model, shapes), 1, seconds)
    return Made(model, after, story, case.feeds())


def least(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> float:
    """Seconds of a run on one thread."""
    with Worker(1) as worker:
        worker.load(ModelFile(model.SerializeToString()))
        worker.ask({"do": "bind", "feeds": dict(feeds)})
        return float(worker.ask({"do": "alone", "seconds": 0.3})["seconds"])


# functions that no runtime has vectors for: on every processor a kernel is far faster
def bent(w: Writer, names: tuple[str, ...], n: int) -> onnx.ModelProto:
    x, y, z = (w.input(each, n, symbolic=names) for each in "xyz")
    return w.model(w.op("Mul", w.op("Softplus", w.op("Add", w.op("Mul", x, y), z)), w.op("Tanh", z)))


def two_results(w: Writer, names: tuple[str, ...], n: int) -> onnx.ModelProto:
    x, y = (w.input(each, n, symbolic=names) for each in "xy")
    kept = w.op("Softplus", w.op("Add", x, y))
    return w.model(w.op("Mul", kept, w.op("Tanh", y)), kept)


# ---- whole models ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("symbolic", [False, True])
def test_mish_is_one_kernel_and_faster(symbolic: bool) -> None:
    found = made(Case("mish", mish, (100_000,), ("n",), 19.0), symbolic)
    assert found.programs == ["softplus tanh mul"]
    assert found.error() < 1e-5
    assert least(found.before, found.feeds) > 2 * least(found.after, found.feeds)


def test_a_kernel_may_have_several_results() -> None:
    found = made(Case("two results", two_results, (40_000,), ("n",), 4.0))
    (kept,) = found.story.kept
    assert len(kept.tried.program.outputs) == 2
    assert found.error() < 1e-5


def test_a_weight_is_an_argument() -> None:
    found = made(Case("slopes", prelu, (32, 32), ("h", "w"), 10.0))
    assert found.programs == ["prelu"]
    assert found.error() < 1e-6


def test_equal_blocks_share_a_kernel() -> None:
    w = Writer()
    value = w.input("x", 256, 256)
    for _ in range(3):
        value = w.op("MatMul", value, w.weight(weights(256, 256) / 16))
        value = w.op("Mul", value, w.op("Tanh", w.op("Softplus", value)))
    model = w.model(value)
    after, _, story = with_kernels(model, {}, 1, 60.0)
    assert [kept.places for kept in story.kept] == [3]
    assert len(after.functions) == 1
    assert [node.op_type for node in after.graph.node if node.domain != "dslc"] == ["MatMul"] * 3


def test_a_size_that_is_an_expression_is_read_off_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "VARIANTS", 1)
    w = Writer()
    pooled = w.op("MaxPool", w.input("x", 1, 8, 65, 64, symbolic=("", "", "n")), kernel_shape=[2, 2], strides=[2, 2])
    model = w.model(w.op("Mul", pooled, w.op("Tanh", w.op("Softplus", pooled))))
    after, _, story = with_kernels(model, {"n": 65}, 1, 60.0)
    assert story.kept, story.dropped
    for size in (65, 2, 130):
        array = np.random.default_rng(size).standard_normal((1, 8, size, 64)).astype(np.float32)
        expected, found = (session(each).run(None, {"x": array})[0] for each in (model, after))
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_where_nothing_pays_the_model_stays_as_it_is() -> None:
    w = Writer()
    model = w.model(w.op("MatMul", w.input("x", 64, 64), w.weight(weights(64, 64))))
    after, library, story = with_kernels(model, {}, 1, 30.0)
    assert after is model
    assert library is None
    assert story.kept == ()


# ---- what is dropped, and why ------------------------------------------------------------------------------------

SMALL = Case("bent", bent, (40_000,), ("n",), 4.0)


def dropped(case: Case = SMALL, seconds: float = 60.0) -> list[tuple[str, WhyUnused]]:
    found = made(case, seconds=seconds)
    return [(words(one.program), one.why) for one in found.story.dropped]


def test_what_has_no_kernel_is_tried_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    def choosy(rules: Rules, group: Graph, variant: Any = None) -> KernelText:
        if len([node for node in group.nodes() if isinstance(node, Call)]) > 3:
            raise NotGenerated(Reason.TOO_LARGE)
        return generate(rules, group, variant)

    monkeypatch.setattr(autotune, "generate", choosy)
    found = made(SMALL)
    dropped = [(words(one.program), one.why) for one in found.story.dropped]
    assert ("mul add softplus tanh mul", WhyUnused.NOT_GENERATED) in dropped
    assert all(len(program.split()) > 3 for program, why in dropped if why is WhyUnused.NOT_GENERATED)
    assert found.story.kept
    assert found.error() < 1e-5


def test_a_generator_that_fails_costs_its_kernel_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(rules: Rules, group: Graph, variant: Any = None) -> KernelText:
        raise IndexError("a bug")

    monkeypatch.setattr(autotune, "generate", broken)
    assert ("mul add softplus tanh mul", WhyUnused.FAULT) in dropped()


def test_a_kernel_with_other_numbers_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(rules: Rules, group: Graph, variant: Any = None) -> KernelText:
        text = generate(rules, group, variant)
        code, count = re.subn(r"= k_tanh\((\w+)\);", r"= k_exp(\1);", text.text)
        assert count or "tanh" not in words(group)
        # another name: what was measured of the right one says nothing of this one
        name = f"k_{text.name[2:][::-1]}"
        return replace(text, name=name, text=code.replace(text.name, name))

    # any variant, and the one that is tried again without contraction
    monkeypatch.setattr(autotune, "VARIANTS", 1)
    monkeypatch.setattr(autotune, "generate", wrong)
    monkeypatch.setattr(autotune, "generated", wrong)
    assert ("mul add softplus tanh mul", WhyUnused.DIFFERS) in dropped()


def edited(monkeypatch: pytest.MonkeyPatch, pattern: str, by: str) -> None:
    """Kernels in which something else is written."""

    def wrong(rules: Rules, group: Graph, variant: Any = None) -> KernelText:
        text = generate(rules, group, variant)
        code, count = re.subn(pattern, by, text.text)
        assert count
        name = f"k_{text.name[2:][::-1]}"
        return replace(text, name=name, text=code.replace(text.name, name))

    monkeypatch.setattr(autotune, "generate", wrong)
    monkeypatch.setattr(autotune, "generated", wrong)
    ways = autotune.ways
    monkeypatch.setattr(autotune, "ways", lambda *args: ways(*args)[:1])


def test_a_kernel_that_is_wrong_at_other_sizes_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is measured at 64 rows: an odd number of them is another thing."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 50] x) => (float[N, 50] y) { a = Abs(x)  b = Tanh(a)  y = Sqrt(b) }"""
    assert isinstance(tried(text, monkeypatch), autotune.TunedKernel)
    edited(monkeypatch, r"= k_tanh\((\w+)\);", r"= s0 % 2 ? k_exp(\1) : k_tanh(\1);")
    found = tried(text, monkeypatch)
    assert isinstance(found, autotune.Dropped) and found.why is WhyUnused.DIFFERS and "[3, 50]" in found.detail, found


def test_a_kernel_that_loses_denormal_numbers_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a product with a reciprocal, which is infinite."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[64, 40] x) => (float[64, 40] y) {
      e = Exp(x)  k = Constant<value_ints=[1]>()  s = ReduceSum(e, k)  y = Div(e, s) }"""
    assert isinstance(tried(text, monkeypatch), autotune.TunedKernel)
    edited(monkeypatch, r"\((\w+) / (\w+)\);", r"(\1 * (1.0f / \2));")
    found = tried(text, monkeypatch)
    assert isinstance(found, autotune.Dropped) and found.why is WhyUnused.DIFFERS and "infinities" in found.detail, (
        found
    )


def tried(text: str, monkeypatch: pytest.MonkeyPatch) -> autotune.TunedKernel | autotune.Dropped:
    """What becomes of a model as one kernel, however fast that is."""
    monkeypatch.setattr(autotune, "MARGIN", 0.0)
    monkeypatch.setattr(autotune, "VARIANTS", 1)
    rules = standard()
    graph = import_model(onnx.parser.parse_model(text), rules).graph
    holes = tuple(hole(k, value.type) for k, value in enumerate(graph.inputs))
    whole = program(holes, graph_replace(graph.outputs, dict(zip(graph.inputs, holes, strict=True))))
    with CostCache(None) as costs:
        measurer = Measurer(this_machine(1), costs)
        try:
            subject = Subject(whole, (False,) * len(holes))
            (found,) = autotune.Autotuner(rules, measurer, WorkSizes({"N": 64}), 17).tried([subject]).values()
        finally:
            measurer.close()
    return found


def test_what_differs_by_contracted_products_alone_is_rounded_as_the_nodes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sign of a difference that is nothing but rounding."""
    found = tried(
        """<ir_version: 8, opset_import: ["": 17]> g (float[64, 50] x) => (float[64, 50] y) {
          a = Abs(x)  p = Mul(x, x)  q = Mul(a, a)  d = Sub(p, q)  y = Sign(d)
        }""",
        monkeypatch,
    )
    assert isinstance(found, autotune.TunedKernel) and not found.variant.contract, found


@pytest.mark.parametrize("size", [5, 40])
def test_numbers_that_are_none_are_as_the_runtime_has_them(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime's largest of a window is no NaN where the window has one, that of a kernel is: its nodes are kept."""
    found = tried(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[1, 1, {size}, {size}] x) => (float[1, 1, {size - 1}, {size - 1}] y) {{
          y = MaxPool<kernel_shape=[2, 2]>(x)
        }}""",
        monkeypatch,
    )
    assert isinstance(found, autotune.Dropped) and found.why is WhyUnused.DIFFERS, found


def test_without_a_compiler_nothing_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any, **__: Any) -> Any:
        raise NotBuilt(BuildReason.NO_COMPILER)

    monkeypatch.setattr(autotune, "build", none)
    assert ("mul add softplus tanh mul", WhyUnused.NOT_BUILT) in dropped()


def test_time_that_is_up_ends_it() -> None:
    found = made(replace(SMALL, sizes=(40_001,)), seconds=0.0)
    assert found.story.late
    assert found.after is found.before


def test_variants_that_there_is_no_time_for_do_not_cost_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further variants would take all of the time: what was measured before is checked and kept."""
    left = [100.0]
    built = autotune.build

    def slow(*args: Any, **options: Any) -> Any:
        found = built(*args, **options)
        # so long took the first variants, and so long the others
        left[0] = 40.0 if left[0] == 100.0 else 15.0
        return found

    class Hurried(autotune.Autotuner):
        def __post_init__(self) -> None:
            self.until = Deadline(0.0, lambda: -left[0])

        def _kernel(self, *args: Any) -> float:
            # measuring takes long
            left[0] -= 10.0 if left[0] <= 15.0 else 0.0
            return super()._kernel(*args)

    monkeypatch.setattr(autotune, "build", slow)
    monkeypatch.setattr("dslc.fuse.fusion.Autotuner", Hurried)
    assert made(replace(SMALL, sizes=(40_003,))).programs


# ---- any graph ---------------------------------------------------------------------------------------------------


def reduced(op: str, keep: bool) -> Step:
    return lambda rules, a, b, n: apply(rules, op, [a], {"axes": (n % max(1, a.type.rank),), "keepdims": keep})


MORE: tuple[Step, ...] = (
    *STEPS,
    unary("std.tanh"),
    unary("std.sigmoid"),
    lambda rules, a, b, n: apply(rules, "std.softmax", [a], {"axis": n % max(1, a.type.rank)}),
    reduced("std.reduce_mean", keep=True),
    reduced("std.reduce_max", keep=False),
)


def test_kernels_of_random_graphs_give_what_the_interpreter_gives(std: Rules) -> None:
    texts: dict[str, tuple[Kernel, KernelText]] = {}

    @settings(max_examples=4)
    @given(
        base=st.integers(0, len(BASES) - 1),
        steps=st.lists(
            st.tuples(st.integers(0, len(MORE) - 1), st.integers(0, 3), st.integers(0, 3), st.integers(0, 5)),
            min_size=6,
            max_size=16,
        ),
    )
    def drawn(base: int, steps: list[tuple[int, int, int, int]]) -> None:
        for group in proposals(build(std, base, steps, MORE), std):
            kernel = fold_of(group).kernel
            try:
                text = generate(std, kernel.group)
            except NotGenerated:
                continue
            texts[text.name] = kernel, text

    drawn()
    # those of all graphs are one library
    library = built([text for _, text in texts.values()])
    assert texts and not library.failed
    random = np.random.default_rng(0)
    for kernel, text in texts.values():
        feeds = {hole: random.standard_normal([int(str(s)) for s in hole.type.shape]) for hole in kernel.group.inputs}
        expected = run(std, kernel.group.outputs, feeds, Floats())
        arrays = [np.ascontiguousarray(array, np.float32) for array in feeds.values()]
        for found, right in zip(library.run(text.name, arrays), expected, strict=True):
            largest = np.max(np.abs(right), initial=0)
            np.testing.assert_allclose(found, np.asarray(right, np.float64), rtol=1e-4, atol=1e-4 * (1 + largest))


def test_a_compiler_that_makes_nothing_is_told() -> None:
    """Where it made something that was not faster, there is nothing to tell."""
    nothing = Graph((), ())
    broken = Dropped(nothing, WhyUnused.NOT_BUILT, "the compiler crashed")
    slow = Dropped(nothing, WhyUnused.SLOWER, "2 ms, its nodes 1 ms")
    assert unbuilt(Fused((), None, FusingStory(1, 1, (), (broken,)))) == "no kernels: the compiler crashed"
    assert (
        unbuilt(Fused((), None, FusingStory(2, 2, (), (broken, slow))))
        == unbuilt(Fused((), None, FusingStory(0, 0)))
        == ""
    )
