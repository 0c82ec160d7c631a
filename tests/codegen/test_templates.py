"""Kernels that libraries wrote: templates of lowerings are variants of kernels where they are trusted, and right."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import dslc
from dslc.cli.main import run as cli
from dslc.codegen.custom import NotRendered, rendered
from dslc.codegen.host.compiler import NotBuilt
from dslc.deadline import FOREVER
from dslc.fuse.kernel_checks import wrong
from dslc.fuse.templates import Templates, Written
from dslc.ir.graph import Graph
from dslc.onnx.exporter import function_of
from dslc.semantics.library import load_many
from tests.caches import apart
from tests.codegen.groups import M, N, Room, group, needs_compiler
from tests.codegen.native import build
from tests.codegen.rendering import rendered_here
from tests.tuned import tuned

PAGE = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text("utf-8").split("## Kernels of your own")[1]
RELU = """
static int64_t tasks(const int64_t* sizes) { return ({{ X.elements }} + 7) / 8; }
static void run(const int64_t* sizes, const {{ X.type }}* X, {{ Y.type }}* Y, int64_t begin, int64_t end) {
    for (int64_t i = begin * 8; i < std::min<int64_t>(end * 8, {{ X.elements }}); ++i) Y[i] = X[i] < 0 ? 0 : X[i];
}
"""


@pytest.fixture(scope="module", autouse=True)
def once() -> Iterator[None]:
    """Templates are rendered in this process."""
    with rendered_here():
        yield


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache", kernels=True)))
    return tmp_path


def rules_with(
    folder: Path, template: str | None, call: str = "relu(X)", params: str = "X: f32[*S]", values: str = ""
) -> Path:
    """A library `mine` of one lowering, whose template has this text, or is not there."""
    body = f'  match Y = {call}\n  template "own.j2" {values}'
    text = f"dslc 1\nimport std (relu, concat)\nlowering own({params}) on cpu {{\n{body}\n}}\n"
    (folder / "mine.rules").write_text(text, "utf-8")
    if template is not None:
        (folder / "own.j2").write_text(template, "utf-8")
    return folder / "mine.rules"


def of_relu(room: Room) -> object:
    return room.op("relu", room.input(N, M))


def tried(
    path: Path, build_group: Callable[[Room], object], trust: tuple[str, ...] = ("mine",)
) -> tuple[list[Written], list[str]]:
    """What the templates of a library make of a group, as far as it is right, and what is said of the others."""
    rules = load_many(["std", path])
    program: Graph = group(build_group)  # type: ignore[arg-type]
    meant = function_of(rules, program, 17).group
    templates = Templates(rules, trust)
    good = []
    for one in templates.texts(meant):
        try:
            problem = wrong(rules, meant, one.text, build([one.text]), 2, 17, FOREVER)
        except NotBuilt as reason:
            problem = str(reason)
        if problem:
            templates.left_out(one.lowering, problem)
        else:
            good.append(one)
    return good, templates.notes


@needs_compiler
def test_the_example_of_the_documentation_runs(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the page's own files to a model whose kernel is the template's, and which any runtime runs without it."""
    tuned(monkeypatch, "cost.measure", longest=0.02, again=0.01, shortest=0.01)
    for kind, name in (("rules", "running.rules"), ("cpp", "running.cpp.j2")):
        found = re.search(rf"^```{kind}\n(.*?)^```$", PAGE, re.M | re.S)
        assert found is not None
        (cache / name).write_text(found[1], "utf-8")
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[N, 256] x) => (float[N, 256] y) <int64 one = {1}> { y = CumSum(x, one) }'
    model, fast = cache / "running.onnx", cache / "fast.onnx"
    onnx.save(onnx.parser.parse_model(text), model)
    options = [
        "--rules",
        str(cache / "running.rules"),
        "--bind",
        "N=512",
        "--no-derive",
        "--no-mutate",
        "--no-timing",
        "--steps",
        "0",
    ]
    assert cli(["optimize", str(model), *options, "--trust", "running", "--budget", "60s", "-v", "-o", str(fast)]) == 0
    assert "cumsum, by the template of running.running" in capsys.readouterr().out
    x = np.random.default_rng(0).standard_normal((37, 256)).astype(np.float32)
    for session in (dslc.session(fast), dslc.session(fast, build=False), dslc.session(model)):
        assert np.allclose(session.run(None, {"x": x})[0], np.cumsum(x, 1), atol=1e-4)
    assert "template" not in "".join(entry.value for entry in onnx.load(fast).metadata_props)


@needs_compiler
def test_a_template_is_a_kernel_at_any_sizes(cache: Path) -> None:
    good, notes = tried(rules_with(cache, RELU), of_relu)
    assert [one.lowering for one in good] == ["mine.own"] and notes == []
    library = build([good[0].text])
    for shape in ((3, 11), (1, 1), (0, 11), (4, 0)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        (found,) = library.run(good[0].text.name, [x], threads=2)
        assert found.shape == shape and np.array_equal(found, np.maximum(x, 0))


@needs_compiler
def test_names_attributes_and_values_reach_the_template(cache: Path) -> None:
    """Sizes that are unknown are expressions of C++, attributes are numbers; a tensor that is used twice is one input."""
    template = """
    static int64_t tasks(const int64_t* sizes) { return {{ X.shape[0] }}; }
    static void run(const int64_t* sizes, const {{ X.type }}* X, const {{ Z.type }}* Z, {{ Y.type }}* Y, int64_t begin, int64_t end) {
        static_assert({{ axis }} == 1 && {{ twice }} == 2 && {{ X.rank }} == 2, "{{ X.dtype }}");
        const int64_t a = {{ X.shape[1] }}, b = {{ Z.shape[1] }};
        for (int64_t r = begin; r < end; ++r) {
            for (int64_t k = 0; k < a; ++k) Y[r * (a + b) + k] = X[r * a + k];
            for (int64_t k = 0; k < b; ++k) Y[r * (a + b) + a + k] = Z[r * b + k];
        }
    }
    """
    path = rules_with(cache, template, "concat(X, Z, axis=axis)", "X: f32[R, P], Z: f32[R, Q]", "{ twice = 2 * axis }")

    def two(room: Room) -> object:
        return room.op("concat", room.input(N, M), room.input(N, 5), axis=1)

    def one(room: Room) -> object:
        x = room.input(N, M)
        return room.op("concat", x, x, axis=1)

    for build_group in (two, one):
        good, notes = tried(path, build_group)
        assert len(good) == 1 and notes == []


@needs_compiler
def test_the_expression_decides_and_not_the_operator(cache: Path) -> None:
    """A lowering with `expr` takes whatever computes it, its tensors in any order; one with unknowns is told."""
    product = """
    static int64_t tasks(const int64_t* sizes) { return {{ P }}; }
    static void run(const int64_t* sizes, const float* C, const float* A, float* Y, int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p)
            for (int64_t q = 0; q < {{ Q }}; ++q) {
                Y[p * {{ Q }} + q] = 0;
                for (int64_t k = 0; k < {{ K }}; ++k) Y[p * {{ Q }} + q] += A[p * {{ K }} + k] * C[k * {{ Q }} + q];
            }
    }
    """
    path = rules_with(cache, product)

    def lowered(equation: str) -> tuple[list[Written], list[str]]:
        path.write_text(
            f'dslc 1\nlowering own(C: f32[K, Q], A: f32[P, K]) on cpu {{ expr {equation} template "own.j2" }}\n',
            "utf-8",
        )
        return tried(path, lambda room: room.op("matmul", room.input(N, M), room.input(M, 5)))

    good, notes = lowered("Y[p, q] = sum[k] A[p, k] * C[k, q]")
    assert len(good) == 1 and notes == []
    assert lowered("Y[p, q] = max[k] A[p, k] * C[k, q]") == ([], [])
    assert "may have no coefficients" in lowered("Y[p, q] = alpha * (sum[k] A[p, k] * C[k, q])")[1][0]
    assert cli(["check", str(path)]) == 0


def test_a_stranger_runs_nothing(cache: Path) -> None:
    """Not by the name of a library of dslc's either: trust goes by the place of the file."""
    for name in ("mine", "std_", "targets"):
        path = rules_with(cache, RELU).rename(cache / f"{name}.rules")
        templates = Templates(load_many(["std", path]), ("another",))
        assert not templates
        assert [note.split(":")[0] for note in templates.notes] == ["W0014"] and f"--trust {name}" in templates.notes[0]
        assert Templates(load_many(["std", path]), (str(path),))
        path.unlink()


@needs_compiler
@pytest.mark.parametrize(
    ("template", "says"),
    [
        (None, "there is no file `own.j2`"),
        ("{% for %}", "line 1"),
        ("{{ nothing }}", "'nothing' is undefined"),
        ("{{ X.__class__ }}", "unsafe"),
        (RELU.replace("tasks", "jobs"), "refused the text"),
        (RELU.replace("+ 7) / 8", ") / 8"), "gives other numbers than its nodes on f32[1, 3]"),
        (RELU.replace("Y[i] =", "*(volatile int*)0 ="), "fails on f32[1, 3]: the process that runs models died"),
    ],
)
def test_what_is_wrong_with_a_template_is_said_and_the_nodes_remain(
    cache: Path, template: str | None, says: str
) -> None:
    good, notes = tried(rules_with(cache, template), of_relu)
    assert good == []
    assert len(notes) == 1 and notes[0].startswith("W0015: the template of mine.own is left out: ") and says in notes[0]


@pytest.mark.parametrize("name", ["../own.j2", "/etc/hostname", "link.j2", "sub/../../own.j2", "", "folder"])
def test_templates_are_in_the_folder_of_their_library(
    cache: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    home = cache / "library"
    (home / "folder").mkdir(parents=True)
    (cache / "own.j2").write_text(RELU, "utf-8")
    (home / "link.j2").symlink_to(cache / "own.j2")
    path = rules_with(home, None)
    path.write_text(path.read_text("utf-8").replace("own.j2", name), "utf-8")
    templates = Templates(load_many(["std", path]), ("mine",))
    assert not templates and "W0015" in templates.notes[0]
    assert cli(["check", "--output-format", "concise", str(path)]) == 0 and "W0015" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{% for i in range(99999) %}{% for k in range(99999) %}{% endfor %}{% endfor %}", "it does not end in 1 s"),
        (
            "{% set n = namespace(x='aa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
            "too much memory",
        ),
        ("{% for i in range(99999) %}{{ 'a' * 99 }}{% endfor %}", "more than 1048576 characters"),
        ("{% include '/etc/hostname' %}", "no loader"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
    ],
)
def test_rendering_is_limited(template: str, says: str) -> None:
    with pytest.raises(NotRendered, match=re.escape(says)):
        rendered(template, {}, seconds=0.6 if "not end" in says else 10.0)


def test_a_process_of_its_own_renders() -> None:
    assert rendered("{{ X.rank }}{{ twice * 2 }}", {"X": {"rank": 1}, "twice": 3}) == "16"


def test_trust_names_a_library(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = cache / "m.onnx"
    onnx.save(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
        ),
        model,
    )
    assert cli(["optimize", str(model), "--trust", "nobody", "--dry-run", "--budget", "0"]) == 2
    assert "E0909" in capsys.readouterr().err
