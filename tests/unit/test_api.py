"""The Python interface: every command as a function with typed values."""

from __future__ import annotations

import inspect
import logging
import pkgutil
import sys
import typing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.parser import parse_model

import dslc
from dslc.onnx.pytorch import from_module
from dslc.search.options.option import options
from dslc.search.options.settings import Settings, strategy_options
from dslc.search.options.types import Options, SessionOptions, StrategyOptions

MODEL = '<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[2,3] y) { t = Identity(x) y = Relu(t) }'
FUNCTIONS = [name for name in dslc.__all__ if name[0].islower() and not name.startswith("__")]
RULES = """dslc 1
import std (add, relu)
operator twice(X: T[*S]) -> Y: T[*S] {
  Y[*i] = 2 * X[*i]
  example twice([1, 2]) == [2, 5]
}
substitution good(X: T[*S]) -> Y { Y = add(X, X) => Y = twice(X) verify numerics = nonfinite }
substitution bad(X: T[*S]) -> Y { Y = relu(X) => Y = X verify numerics = nonfinite }
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "mine.rules"
    path.write_text(RULES)
    return path


def model(text: str = MODEL) -> onnx.ModelProto:
    return parse_model(text)


def test_the_interface_is_what_dir_says_and_nothing_hides_behind_a_package() -> None:
    assert dir(dslc) == sorted(dslc.__all__)
    # a package of the same name would take the place of a function as soon as something imports it
    assert not {one.name for one in pkgutil.iter_modules(dslc.__path__)} & set(dslc.__all__)
    assert {
        "check",
        "test",
        "verify",
        "show",
        "why_not",
        "diff",
        "derive",
        "mutants",
        "build",
        "bench",
        "optimize",
    } <= set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_says_what_it_takes_and_returns(name: str) -> None:
    function = getattr(dslc, name)
    signature = inspect.signature(function)
    assert signature.return_annotation not in (inspect.Signature.empty, "Any")
    said = function.__doc__ or ""
    assert "Returns:" in said or name == "load"
    assert "Raises:" in said
    for parameter in signature.parameters.values():
        assert parameter.annotation not in (inspect.Parameter.empty, "Any"), parameter.name
        assert parameter.kind is not inspect.Parameter.VAR_KEYWORD or str(parameter.annotation).startswith("Unpack["), (
            name
        )


def test_the_types_of_options_have_all_options_and_no_other() -> None:
    named = {one.name for one, about in options(Settings) if about.python}
    strategies = set(strategy_options())
    assert set(StrategyOptions.__annotations__) == strategies
    assert set(typing.get_type_hints(Options)) == named | strategies
    signature = inspect.signature(dslc.optimize).parameters
    assert set(signature) - {"model", "args", "of_strategy"} == named
    own = {name: str(annotation) for name, annotation in inspect.get_annotations(Options).items()}
    for name in named:
        assert str(signature[name].annotation) in own[name], name


def test_options_of_sessions_are_attributes_of_the_runtime() -> None:
    import onnxruntime

    known = {name for name in dir(onnxruntime.SessionOptions) if not name.startswith("_")}
    assert set(SessionOptions.__annotations__) <= known


@pytest.mark.parametrize(
    "call",
    [
        'dslc.optimize("a", budjet=3)', 'dslc.optimize_file("a", "b", budjet=3)', 'dslc.session("a", thread=1)',
        'dslc.check("a", overlap=1)',
        'dslc.optimize("a", layouts="sometimes")', 'dslc.optimize("a", strategy="mcts", simulations="many")',
    ],
)  # fmt: skip
def test_a_mistyped_option_is_refused_where_no_type_checker_looks(call: str) -> None:
    with pytest.raises((TypeError, dslc.DslcError), match=r"budjet|thread|overlap|E0906"):
        eval(call, {"dslc": dslc})


def test_bytes_paths_and_protobufs_are_models(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    onnx.save(model(), file)
    for given in (model(), model().SerializeToString(), file, str(file)):
        result = dslc.optimize(given, budget=0)
        assert [node.op_type for node in result.model.graph.node] == ["Relu"]
        assert repr(result).startswith("<Optimized ") and "\n" not in repr(result)
        assert dslc.session(given).run(None, {"x": np.ones((2, 3), np.float32)})[0].shape == (2, 3)
    with pytest.raises(dslc.DslcError, match="E0801"):
        dslc.optimize(b"no model at all", budget=0)


@pytest.mark.parametrize("several", [False, True])
def test_arrays_are_inputs(several: bool) -> None:
    one: dict[str, Any] = {"x": np.ones((2, 3), np.float32)}
    result = dslc.optimize(
        model(), budget=5, steps=2, derive=False, mutate=False, inputs=[one, one] if several else one
    )
    assert result.report.ratio is not None


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({"x": np.ones((2, 3), np.float64)}, "E0810"), ({"x": np.ones((2, 4), np.float32)}, "E0810"), ({}, "E0906"),
        ({"x": np.ones((2, 3), np.float32), "z": np.ones(1)}, "E0810"), ({"x": object()}, "E0906"), (3, "E0906"), ([], "E0906"),
        ({1: np.ones(1)}, "E0906"), ({"x": [[1.0], [1.0, 2.0]]}, "E0906"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(inputs: Any, code: str) -> None:
    with pytest.raises(dslc.DslcError, match=code):
        dslc.optimize(model(), budget=5, inputs=inputs)


def test_check_and_test_tell_what_the_commands_tell(rules: Path) -> None:
    found = dslc.check(rules)
    assert found.ok and [path.name for path in found.files] == ["mine.rules"]
    tested = dslc.test(rules)
    assert not tested.ok
    assert [(one.name, one.passed) for one in tested.outcomes] == [
        ("mine.twice", False),
        ("mine.good", True),
        ("mine.bad", False),
    ]
    assert "E0503" in str(tested) and repr(tested).startswith("<Tested: 1 passed, 2 failed")
    assert dslc.test(rules, names="good").ok
    with pytest.raises(dslc.DslcError, match="E0909"):
        dslc.test(rules, names="nothing")
    broken = rules.parent / "broken.rules"
    broken.write_text("dslc 1\nimport std (ad)\n")
    wrong = dslc.check([broken])
    assert not wrong.ok and wrong.diagnostics[0].code == "E0202" and "did you mean" in str(wrong)


def test_verdicts_are_short(rules: Path) -> None:
    verdicts = dslc.verify(rules, names=["good", "bad"], workers=0)
    assert str(verdicts[0]) == "mine.good: proved"
    assert repr(verdicts[1]).startswith("<RuleVerdict mine.bad: refuted")
    assert repr(dslc.load(rules)).startswith("<Rules of ")


def test_an_operator_is_shown(rules: Path) -> None:
    shown = dslc.show("twice", rules=rules, shapes={"X": (4, 5)})
    assert shown.name == "mine.twice" and shown.facts["arguments"]["X"] == "f32[4, 5]"
    assert "Y[i0, i1] = 2 * X[i0, i1]" in str(shown) or "FLOPs" in str(shown)
    assert repr(shown) == "<Shown twice(X: T[*S]) -> Y: T[*S]>"
    for wrong in ({"shapes": {"Z": (1,)}}, {"dtypes": {"T": "f33"}}, {"shapes": {"X": (-1,)}}):
        with pytest.raises(dslc.DslcError, match="E0906"):
            dslc.show("twice", rules=rules, **wrong)  # type: ignore[arg-type]


def test_why_not_says_what_is_missing() -> None:
    (found,) = dslc.why_not("double_neg", model(), steps=0)
    assert not found.applies and found.explanation.reason and str(found).startswith("std.double_neg: Does not apply.")
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { t = Neg(x) y = Neg(t) }'
    assert dslc.why_not("double_neg", model(text).SerializeToString(), steps=0)[0].applies == 1
    for wrong in ({"steps": 3}, {"bind": {"N": [1, 2]}}, {"bind": {"N": "a"}}):
        with pytest.raises(dslc.DslcError, match="E0906"):
            dslc.why_not("double_neg", model(), **wrong)  # type: ignore[arg-type]


def test_two_programs_are_compared(rules: Path) -> None:
    same = dslc.diff("relu(X: f32[4])", "relu(relu(X))")
    assert same.equal and same.differences[0].proved and repr(same) == "<Compared: equal>"
    other = dslc.diff("relu(X: f32[4])", "neg(X)")
    assert not other.equal and "differs" in str(other)
    sized = dslc.diff(f"{rules}::good", shapes={"X": [2, 3]})
    assert sized.equal and sized.instance
    assert dslc.diff("relu(X: f32[N])", "relu(relu(X))").sets[0].proved
    with pytest.raises(dslc.DslcError, match="E0911"):
        dslc.diff("relu(X: f32[4])")


def test_programs_are_derived() -> None:
    found = dslc.derive("matmul(A: f32[4, 5], B: f32[5, 6])", budget=10, max_states=60, max_depth=2)
    assert found.states > 0 and found.programs and all(one.proved for one in found.programs)
    assert str(found.programs[0]).startswith(found.programs[0].target)
    with pytest.raises(dslc.DslcError, match="E0909"):
        dslc.derive("matmul(A: f32[4, 5], B: f32[5, 6])", targets="no_such")


def test_models_are_timed_and_kernels_built(tmp_path: Path) -> None:
    found = dslc.bench(model(), model().SerializeToString(), budget=0.3, inputs={"x": np.ones((2, 3), np.float32)})
    assert found.ratio.ratio > 0 and "times as fast" in str(found) and found.timings[0].typical > 0
    assert dslc.build(model()).names == ()
    with pytest.raises(dslc.DslcError, match="E0906"):
        dslc.bench(model(), model(), budget="soon")


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "model.onnx"])
def test_a_file_of_pytorch_gets_a_clear_word(tmp_path: Path, name: str) -> None:
    import zipfile

    file = tmp_path / name
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/data.pkl", b"\x80\x02}q\x00.")
    with pytest.raises(dslc.DslcError, match=r"is a PyTorch file, not an ONNX model \(torch.onnx.export"):
        dslc.optimize(file, budget=0)
    with pytest.raises(dslc.DslcError, match="is a PyTorch file"):
        dslc.why_not("double_neg", file)


def test_a_program_of_pytorch_needs_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(dslc.DslcError, match="E0902"):
        dslc.optimize(tmp_path / "none.pt2", budget=0)
    file = tmp_path / "model.pt2"
    file.write_bytes(b"PK")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(dslc.DslcError, match=r"E0907.*torch.*pip install torch onnxscript"):
        dslc.optimize(file, budget=0)
    with pytest.raises(dslc.DslcError, match="`args` is for modules"):
        dslc.optimize(model(), args=(1,))


@pytest.mark.parametrize("talks", [False, True])
def test_a_failed_export_of_pytorch_names_its_cause(
    talks: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """PyTorch wraps it in what to do next, and reports a hundred lines on the error output."""

    class Module:
        training = False

    def export(*_: object, **options: object) -> None:
        sys.stderr.write("[torch.onnx] a hundred lines\n")
        logging.getLogger("torch.fx").error("a hundred more")
        try:
            raise RuntimeError("\n The size of tensor a (256) must match the size of tensor b (3)\n\nFrom user code:\n")
        except RuntimeError as cause:
            text = "Failed to export the model. \x1b[96mThis is step 1/3\x1b[0m of exporting the model.\nNext steps:\n"
            raise ValueError(text) from cause

    torch = ModuleType("torch")
    torch.nn, torch.onnx = SimpleNamespace(Module=Module), SimpleNamespace(export=export)  # type: ignore[attr-defined]
    for name, one in (("torch", torch), ("torch.onnx", ModuleType("torch.onnx")), ("onnxscript", torch)):
        monkeypatch.setitem(sys.modules, name, one)
    monkeypatch.delenv("TORCH_LOGS", raising=False)
    if talks:
        monkeypatch.setenv("TORCH_LOGS", "+export")
    with pytest.raises(dslc.DslcError) as raised:
        from_module(Module(), ())
    (found,) = raised.value.diagnostics
    cause = "The size of tensor a (256) must match the size of tensor b (3)"
    assert (found.code, found.message) == ("E0801", f"PyTorch cannot export Module to ONNX: {cause}")
    assert found.hint == "TORCH_LOGS=+export shows all that PyTorch reports"
    assert ("a hundred lines" in capfd.readouterr().err) is talks


def test_modules_and_programs_of_pytorch_are_models(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Mish(), torch.nn.Dropout())
    x = torch.randn(4, 16)
    program = torch.export.export(module.eval(), (x,))
    torch.export.save(program, tmp_path / "m.pt2")
    module.train()
    for result in (
        dslc.optimize(module, args=(x,), budget=0), dslc.optimize(program, budget=0), dslc.optimize(tmp_path / "m.pt2", budget=0),
    ):  # fmt: skip
        (name,) = (value.name for value in result.model.graph.input)
        found = dslc.session(result.model).run(None, {name: x.numpy()})[0]
        assert np.allclose(found, module.eval()(x).detach().numpy(), atol=1e-5)
        module.train()
    assert module.training
    with pytest.raises(dslc.DslcError, match=r"E0906.*args=\(x,\)"):
        dslc.optimize(module)
    with pytest.raises(dslc.DslcError, match="E0906"):
        dslc.session(module)
