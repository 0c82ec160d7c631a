"""Kernels that libraries wrote for devices: on a CPU, and by the compiler that is here; against the interpreter, and wrong ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import dslc
from benchmarks.fake_device import FakeDevice
from dslc.cli.main import run as cli
from dslc.codegen.cuda import compiled
from dslc.codegen.cuda.choose import seconds
from dslc.codegen.cuda.generate import generate, variants
from dslc.codegen.cuda.shim import Shim, build
from dslc.codegen.cuda.text import CudaText
from dslc.codegen.host.compiler import BuildReason, NotBuilt
from dslc.cuda import Session
from dslc.cuda import code as code_of_plans
from dslc.cuda.code import CudaTemplates, TakenTemplate, hardware, shrunk, templates_of, texts
from dslc.cuda.devices import device_named
from dslc.cuda.plan import plan_of
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType
from dslc.ir.graph import Graph
from dslc.onnx.metadata import PLAN, metadata
from dslc.semantics.library import Rules, load_many, standard
from tests.codegen.groups import group, needs_compiler
from tests.codegen.rendering import rendered_here
from tests.tuned import tuned

H200 = device_named("h200")
RELU = """static __device__ void run(const int64_t* sizes, const {{ X.type }}* X, {{ Y.type }}* Y) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < {{ X.elements }}) k_store_one(Y + i, k_at(X, i) < 0 ? 0 : k_at(X, i));
}
"""


@pytest.fixture(scope="module", autouse=True)
def once() -> Iterator[None]:
    """Templates are rendered in this process."""
    with rendered_here():
        yield


def rules_with(folder: Path, template: str | None, values: str = "", device: str = "cuda", rest: str = "") -> Path:
    """A library `mine` of one lowering, whose template has this text, or is not there."""
    body = f'  """By hand."""\n  match Y = relu(X)\n  template "own.cu.j2" {values}\n{rest}'
    (folder / "mine.rules").write_text(
        f"dslc 1\nimport std (relu)\nlowering own(X: f32[R, N]) on {device} {{\n{body}}}\n", "utf-8"
    )
    if template is not None:
        (folder / "own.cu.j2").write_text(template, "utf-8")
    return folder / "mine.rules"


def library(folder: Path, templates: Mapping[str, str], rest: str = "") -> Path:
    """A library with a lowering of `relu` for each template, by their names; the library's name is the folder's."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "dslc 1\nimport std (relu)\n"
    for name, template in templates.items():
        (folder / f"{name}.cu.j2").write_text(template, "utf-8")
        text += f'lowering {name}(X: f32[R, N]) on cuda {{\n  match Y = relu(X)\n  template "{name}.cu.j2"\n{rest}}}\n'
    path = folder / f"{folder.name}.rules"
    path.write_text(text, "utf-8")
    return path


def relu(*shape: int) -> Graph:
    return group(lambda room: room.op("relu", room.input(*shape)))


def cumsum(*shape: int, axis: int = -1, dtype: DType = DType.F32) -> Graph:
    return group(lambda room: room.op("cumsum", room.input(*shape, dtype=dtype), axis=axis % len(shape)))


class Together:
    """Kernels of many templates that are tried one after the other, in one program: what runs them is most of what is compiled."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._texts = folder, dict[str, CudaText]()
        self._shim: Shim | None = None

    def collect(self, rules: Rules, trust: tuple[str, ...], program: Graph) -> None:
        """Take note of what is tried for a program, and try nothing."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(code_of_plans, "build", self._noted)
            patch.setattr(code_of_plans, "available", lambda: False)
            written(rules, program, trust)

    def _noted(self, texts: Sequence[CudaText], folder: Path) -> Shim:
        self._texts.update({text.name: text for text in texts})
        raise NotBuilt(BuildReason.ERROR, "later")

    def build(self, texts: Sequence[CudaText], folder: Path) -> Shim:
        """As `dslc.codegen.cuda.shim.build`, of texts that were noted."""
        assert {text.name for text in texts} <= set(self._texts)
        if self._shim is None:
            self._shim = build(list(self._texts.values()), self._folder)
        return self._shim


def written(rules: Path | Rules, program: Graph, trust: tuple[str, ...] = ("mine",)) -> tuple[str, list[str]]:
    """Whose template a program's kernel is on an H200, if generated ones take forever, and what is said."""
    templates = CudaTemplates(load_many(["std", rules]) if isinstance(rules, Path) else rules, trust)
    found = templates.best(program, None, hardware(H200, program))
    return "" if found is None else found.lowering, [*templates.notes, *templates.said[program]]


# ---- what is shipped ---------------------------------------------------------------------------------------------------


@needs_compiler
def test_running_sums_of_rows_are_those_of_the_interpreter(tmp_path: Path) -> None:
    """By a warp for short rows and a block for long ones, in pieces where a row has more than these take at once."""
    shapes = [(DType.F32, shape) for shape in ((3, 32), (2, 3, 131), (2, 512), (2, 513), (3, 1030), (1, 2500), (40,))]
    shapes += [(DType.F64, shape) for shape in ((2, 3, 131), (2, 513), (1, 1030))]
    made = [next(templates_of(standard()).texts(cumsum(*shape, dtype=dtype))).text for dtype, shape in shapes]
    for dtype in (DType.F32, DType.F64):
        assert {text.launches[0].block[0] for text in made if text.inputs[0].dtype is dtype} == {32, 256}
    shim = build(made, tmp_path)
    rng = np.random.default_rng(0)
    for text in made:
        dtype = text.inputs[0].dtype
        x = rng.standard_normal(text.inputs[0].shape).astype(NUMPY[dtype])
        for reverse in (False, True):
            (found,) = shim.run(text, [x], reverse=reverse)
            np.testing.assert_allclose(found, np.cumsum(x, -1), atol=1e-4 if dtype is DType.F32 else 1e-10)


def test_a_running_sum_is_not_taken_where_it_is_another_one() -> None:
    templates = templates_of(standard())
    assert (
        templates.fits(cumsum(4, 64))
        and not templates.fits(cumsum(64, 4))
        and not templates.fits(cumsum(64, 40, axis=0))
    )
    assert not templates.fits(group(lambda room: room.op("cumsum", room.input(4, 64), axis=1, reverse=True)))
    assert not templates.fits(group(lambda room: room.op("cumsum", room.input(4, 64, dtype=DType.I64), axis=1)))


def test_what_is_shipped_earns_its_place() -> None:
    """An equation adds up every prefix anew: the template takes a hundredth for rows of 4096. It is taken where it is faster only."""
    program, short = cumsum(512, 4096), cumsum(5, 300)
    own = hardware(H200, program)
    (template,) = templates_of(standard()).texts(program)
    generated = generate(standard(), program, variants(standard(), program, own)[0])
    assert 100 * seconds(template.text, own) < seconds(generated, own)
    text = texts(standard(), H200, templates_of(standard()))
    assert text(program).launches[0].form == "own" and text(short).launches[0].form != "own"


@pytest.mark.skipif(not compiled.available(), reason="neither NVRTC nor nvcc is installed")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_what_is_shipped_compiles_and_spills_nothing(arch: str) -> None:
    programs = (cumsum(3, 40), cumsum(3, 4096), cumsum(3, 4096, dtype=DType.F64))
    made = [one.text for program in programs for one in templates_of(standard()).texts(program)]
    # together: what they all begin with is most of a text
    found = compiled.compile("\n".join(text.text for text in made), arch).kernels
    assert {(usage.symbol, usage.spills) for usage in found} == {(text.launches[0].symbol, 0) for text in made}


def test_a_plan_has_the_kernel_beside_generated_ones_and_calls(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[8, 4096] x) => (float[8, 4096] y) { a = Constant<value_int=1>() '
    model = onnx.parser.parse_model(text + "b = Relu(x) c = CumSum(b, a) y = Exp(c) }")
    done = dslc.optimize(
        model, on="cuda", device="h200", budget=20, steps=1, mutate=False, derive=False, cache=tmp_path
    )
    rules = [step.rule for step in plan_of(metadata(done.model)[PLAN]).steps]
    assert rules == ["kernel: relu", "kernel: cumsum, by the template of targets.running_sum_cuda", "kernel: exp"]
    x = np.random.default_rng(0).standard_normal((8, 4096)).astype(np.float32)
    session = Session(done.model, launcher=FakeDevice(standard()))
    found = session.run(None, {"x": x / 100})[0]
    np.testing.assert_allclose(found, np.exp(np.cumsum(np.maximum(x / 100, 0), 1)), rtol=1e-3)
    assert session.notes == []


# ---- those of a user's --------------------------------------------------------------------------------------------------


#: templates that are wrong, and what is said of them
WRONG: dict[str, tuple[str, str]] = {
    "other_numbers": (RELU.replace("< 0 ? 0", "< 1 ? 0"), "gives other numbers than its nodes on f32[5, 7]"),
    "out_of_bounds": (RELU.replace("if (i < {{ X.elements }})", ""), "its kernel fails on f32[5, 7]: memory"),
    "race": (RELU.replace("Y + i, k_at(X, i) < 0", "Y, k_at(X, i) < 0"), "its kernel fails on f32[5, 7]: race"),
    "unknown_name": (RELU.replace("X.elements", "X.size"), "line 3: 'dict object' has no attribute 'size'"),
    "no_end": (
        RELU.replace("const int64_t i", "for (volatile int k = 0; k < 1; ) {}\n    const int64_t i"),
        "does not end in",
    ),
}
NO_CPP = RELU.replace("const int64_t i =", "const int64_t i")


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, list[str]]]:
    """Whose template is the kernel, and what is said: of the wrong ones beside a right one (""), of one without an end, and of a right
    one for a program that is too large to be run on the CPU."""
    folder = tmp_path_factory.mktemp("tried")
    several = {name: template for name, (template, _) in WRONG.items() if name != "no_end"}
    jobs = {
        "": (several | {"own": RELU}, relu(5, 7)),
        "no_end": ({"no_end": WRONG["no_end"][0]}, relu(5, 7)),
        "large": ({"own": RELU}, relu(4096, 4096)),
    }
    rules = {what: load_many(["std", library(folder / what / "mine", own)]) for what, (own, _) in jobs.items()}
    together, found = Together(folder), dict[str, tuple[str, list[str]]]()
    with pytest.MonkeyPatch.context() as patch:
        # fewer threads than it takes by itself
        patch.setattr(code_of_plans, "SIZES", (50, 37))
        # what refuses a text that is no C++ has a test of its own
        patch.setattr(code_of_plans, "available", lambda: False)
        for what, (_, program) in jobs.items():
            together.collect(rules[what], ("mine",), program)
        patch.setattr(code_of_plans, "build", together.build)
        for what, (_, program) in jobs.items():
            tuned(patch, "cuda.code", seconds=0.3 if what == "no_end" else 20.0)
            found[what] = written(rules[what], program)
    return found


@needs_compiler
def test_a_template_that_is_right_is_a_kernel(tried: dict[str, tuple[str, list[str]]]) -> None:
    """A program that is too large to be run on the CPU is tried at smaller sizes; the command line has a small one, below."""
    assert tried["large"] == ("mine.own", [])


@needs_compiler
@pytest.mark.parametrize("what", WRONG)
def test_a_template_that_is_wrong_is_left_out_and_said(what: str, tried: dict[str, tuple[str, list[str]]]) -> None:
    lowering, notes = tried["no_end" if what == "no_end" else ""]
    assert lowering == ("" if what == "no_end" else "mine.own") and len(notes) == (1 if what == "no_end" else 4)
    (said,) = [note for note in notes if note.startswith(f"W0015: the template of mine.{what} is left out: ")]
    assert WRONG[what][1] in said


@needs_compiler
def test_a_template_that_is_no_cpp_is_left_out_and_said(tmp_path: Path) -> None:
    lowering, (note,) = written(rules_with(tmp_path, NO_CPP), relu(5, 7))
    assert lowering == "" and note.startswith("W0015: the template of mine.own is left out: ") and "own.cu.j2" in note


@pytest.mark.parametrize(("values", "says"), [
    ("{ block = 100 }", "`block` is 100: no multiple of 32 up to 1024"), ("{ block = 2048 }", "`block` is 2048"),
    ("{ block = 0 }", "`block` is 0"), ("{ grid = -1 }", "`grid` is -1: no number of blocks"), ('{ grid = "all" }', "`grid` is all"),
    ("{ shared = -4 }", "`shared` is -4: no number of bytes"),
])  # fmt: skip
def test_a_kernel_that_cannot_be_launched_is_left_out(values: str, says: str, tmp_path: Path) -> None:
    lowering, notes = written(rules_with(tmp_path, RELU, values=values), relu(5, 7))
    assert lowering == "" and says in notes[0]


def test_without_trust_nothing_is_rendered(tmp_path: Path) -> None:
    lowering, notes = written(rules_with(tmp_path, RELU), relu(5, 7), ())
    assert lowering == "" and notes[0].startswith("W0014: the templates of `mine` are not used")


def test_what_is_slower_by_the_data_sheet_is_not_used_and_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CudaTemplates, "problem", lambda *_: pytest.fail("it is not tried"))
    templates = CudaTemplates(
        load_many(["std", rules_with(tmp_path, RELU, rest="  cost bytes = 1000000000\n")]), ("mine",)
    )
    program = relu(64, 64)
    own = hardware(H200, program)
    text = generate(standard(), program)
    found = templates.best(program, TakenTemplate(text, seconds(text, own)), own)
    assert found is not None and found.lowering == ""
    assert templates.said[program][0].startswith("the template of mine.own is not used: its kernel takes ")


def test_a_program_at_smaller_sizes_keeps_equal_sizes_equal() -> None:
    rules = standard()
    product = group(lambda room: room.op("matmul", room.input(2000, 3000), room.input(3000, 2000)))
    found = shrunk(rules, product, 100)
    assert found is not None and [value.type.shape for value in (*found.inputs, *found.outputs)] == [
        (100, 101),
        (101, 100),
        (100, 100),
    ]
    turned = group(lambda room: room.op("reshape", room.input(2000, 3000), shape=(3000, 2000)))
    assert shrunk(rules, turned, 100) is None


@needs_compiler
def test_the_command_line_uses_a_trusted_template(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And neither a wrong one that is trusted nor a right one that nobody trusts, which would be cheaper."""
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[64, 64] x) => (float[64, 64] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    path, wrong, theirs = (
        library(tmp_path / name, {"own": template}, f"  cost flops = 0, bytes = {bytes}\n")
        for name, template, bytes in (
            ("mine", RELU, 3),
            ("wrong", RELU.replace("< 0", "< 1"), 1),
            ("theirs", RELU, 2),
        )
    )
    together = Together(tmp_path / "together")
    together.collect(load_many(["std", wrong, path]), ("wrong", "mine"), relu(64, 64))
    monkeypatch.setattr(code_of_plans, "build", together.build)
    options = ["--on", "cuda", "--budget", "15s", "--steps", "0", "--no-derive", "--no-mutate"]
    options += ["--cache", str(tmp_path / "cache"), "--trust", "wrong", "--trust", "mine"]
    for rules in (path, wrong, theirs):
        options += ["--rules", str(rules)]
    assert cli(["optimize", str(tmp_path / "m.onnx"), *options, "-v", "-o", str(tmp_path / "a.onnx")]) == 0
    said, warned = capsys.readouterr()
    assert "W0015: the template of wrong.own is left out: its kernel gives other numbers" in warned
    assert "W0014: the templates of `theirs` are not used" in warned
    assert "kernel: relu, by the template of mine.own" in said and said.count("by the template of") == 1
    _ran_with(path, tmp_path / "a.onnx")
    assert cli(["build", str(tmp_path / "a.onnx"), "--on", "cuda"]) == 0
    assert "the plan in the file is another one" in capsys.readouterr().out


def _ran_with(path: Path, model: Path) -> None:
    """A session has the kernels of trusted templates, and says where a file's plan has others."""
    rules, x = load_many(["std", path]), np.linspace(-1, 1, 4096, dtype=np.float32).reshape(64, 64)
    for trust, told in ((("mine",), False), ((), True)):
        session = Session(str(model), launcher=FakeDevice(rules), rules=rules, trust=trust)
        assert np.array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))
        assert any("the plan in the file is not used" in note for note in session.notes) is told


# ---- dslc check ---------------------------------------------------------------------------------------------------------


def checked(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    code = cli(["check", "--output-format", "concise", str(path)])
    found = capsys.readouterr()
    assert code == 0
    return found.out


CHECKED: dict[str, tuple[str | None, str, str]] = {
    "missing": (None, "mine.rules:6:3: W0015", "there is no file `own.cu.j2`"),
    "no template": ("{% if %}", "mine.rules:6:3: W0015", "is none of Jinja's: line 1"),
    "an unknown name": ("\n{{ X.size }}", "own.cu.j2:2:1: W0015", "'dict object' has no attribute 'size'"),
    "no C++": (NO_CPP, "own.cu.j2:2:5: W0015", "own.cu.j2"),
    "no function": ("static int x;", "mine.rules:6:3: W0015", "run"),
}


@needs_compiler
@pytest.mark.parametrize("what", CHECKED)
def test_check_says_where_a_template_is_wrong(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template, place, says = CHECKED[what]
    found = checked(rules_with(tmp_path, template), capsys)
    assert place in found and says in found and len(found.splitlines()) == 1


@needs_compiler
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_check_says_the_same_of_templates_on_the_processor(
    device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = checked(rules_with(tmp_path, "\n\n{{ X.nothing }}", device=device), capsys)
    assert "own.cu.j2:3:1: W0015" in found


@needs_compiler
def test_check_has_nothing_to_say_of_a_right_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(rules_with(tmp_path, RELU), capsys) == ""


def test_a_template_where_nobody_renders_one_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = checked(rules_with(tmp_path, RELU, device="ort_cpu"), capsys)
    assert "a template on `ort_cpu` is nobody's kernel: those are on cpu or cuda" in found
