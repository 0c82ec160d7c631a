"""Sessions with kernels: found where they were built, built where they can be, and plain ONNX Runtime where not."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from onnx import helper

import dslc
from dslc import kernels
from dslc.cli.main import run as cli
from dslc.codegen.host.compiler import NAMES
from dslc.codegen.host.library import kept, library_folder
from dslc.codegen.text import KernelText
from dslc.cost.process import ModelFile, Worker
from dslc.errors import DslcError
from dslc.ir.graph import Kernel
from dslc.kernels import WhyMissing, known, note, prepared, said
from dslc.onnx.exporter import function_of
from dslc.onnx.importer import import_model
from dslc.onnx.metadata import KEY, THREADS, VARIANT, set_metadata
from dslc.semantics.library import Rules
from tests.caches import apart
from tests.codegen.files import by_hand, feeds, mish, ran
from tests.codegen.kernels import broken, halves
from tests.codegen.native import build

compiles = pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="there is no C++ compiler")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own, and the generator that knows one kernel."""
    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache", kernels=True)))
    monkeypatch.setattr(kernels, "_own", by_hand)
    return tmp_path / "cache"


@pytest.fixture
def file(std: Rules, tmp_path: Path) -> Path:
    path = tmp_path / "fast.onnx"
    onnx.save(mish(std)[1], path)
    return path


def by_kernel(session: Any, rows: int = 3) -> bool:
    """Whether the kernel ran: its results are 1000 times as large."""
    plain = ran(onnx.load(_path(session)), feeds(rows))
    found = session.run(None, feeds(rows))
    for factor in (1, 1000):
        if all(np.allclose(a * factor, b, rtol=1e-4) for a, b in zip(plain, found, strict=True)):
            return factor == 1000
    raise AssertionError("neither the kernel's results nor the function's")


def _path(session: Any) -> str:
    return str(session._model_path)


def change(file: Path, how: Callable[[onnx.ModelProto], None]) -> None:
    model = onnx.load(file)
    how(model)
    onnx.save(model, file)


@compiles
def test_a_session_runs_the_kernels(cache: Path, file: Path) -> None:
    session = dslc.session(file)
    assert by_kernel(session) and by_kernel(session, 1) and by_kernel(session, 700)
    # the second one finds the library, without a compiler
    count = kept()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert by_kernel(dslc.session(file)) and kept() == count


@compiles
def test_what_was_built_is_found_without_a_compiler(cache: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dslc.session(file)
    monkeypatch.setenv("CXX", "/no/compiler")
    assert by_kernel(dslc.session(file))


@compiles
def test_other_weights_take_the_same_library(cache: Path, file: Path) -> None:
    """What is around the kernels does not matter."""
    dslc.session(file)
    change(file, lambda model: setattr(model.graph.node[-1], "op_type", "Abs"))
    found = known(file)
    assert found is not None and found.library is not None


def test_without_a_compiler_the_functions_run(cache: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/no/compiler")
    with pytest.warns(UserWarning, match="1 of 1 kernels of the model run as plain nodes.*no C\\+\\+ compiler"):
        session = dslc.session(file)
    assert not by_kernel(session)
    # nothing is kept: a compiler may be installed
    assert known(file) is None


@compiles
def test_sessions_of_ones_own(cache: Path, file: Path) -> None:
    options = onnxruntime.SessionOptions()
    assert len(dslc.register(options, file)) == 1
    assert by_kernel(onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"]))
    plain = helper.make_model(helper.make_graph([], "g", [], []))
    assert dslc.register(options, plain) == ()


@compiles
def test_options_and_threads(cache: Path, file: Path) -> None:
    """A session takes the threads that the file was timed with, unless others are asked for, or a processor would drown in them."""
    change(file, lambda model: set_metadata(model, THREADS, "1"))
    assert dslc.session(file).get_session_options().intra_op_num_threads == 1
    assert dslc.session(file, threads=2).get_session_options().intra_op_num_threads == 2
    assert dslc.session(file, threads=0).get_session_options().intra_op_num_threads == 0
    assert dslc.session(file, logid="mine").get_session_options().logid == "mine"
    with pytest.raises(TypeError, match="no_such_option"):
        dslc.session(file, no_such_option=1)
    for wrong in ("0", "-3", "many", "1e3", "\u0661", "4096", "999999999999999999999"):
        change(file, lambda model, wrong=wrong: set_metadata(model, THREADS, wrong))  # type: ignore[misc]
        assert said(file).threads is None


@compiles
def test_weights_beside_the_file(cache: Path, file: Path, tmp_path: Path) -> None:
    """A model with external data: the kernels are found without reading it, from wherever the model is loaded."""
    model = onnx.load(file)
    weight = np.array([1, -2, 3, 0.5], np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    del model.graph.input[1]
    x = feeds()["x"]
    wanted = 1000 * ran(model, {"x": x})[0]
    place = tmp_path / "elsewhere"
    place.mkdir()
    onnx.save(model, place / "large.onnx", save_as_external_data=True, location="large.data", size_threshold=0)
    bare = onnx.load(place / "large.onnx", load_external_data=False)
    assert bare.graph.initializer[0].data_location == onnx.TensorProto.EXTERNAL
    session = dslc.session(place / "large.onnx", threads=2)
    assert np.allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4)
    options = onnxruntime.SessionOptions()
    assert len(dslc.register(options, place / "large.onnx")) == 1
    with Worker(2) as worker:
        worker.load(ModelFile(bare.SerializeToString(), str(place)))
        (found, _) = worker.ask({"do": "run", "feeds": {"x": x}})["arrays"]
        assert np.allclose(found, wanted, rtol=1e-4)
        # as in a runtime that has no library
        worker.load(ModelFile(bare.SerializeToString(), str(place), kernels=False))
        (found, _) = worker.ask({"do": "run", "feeds": {"x": x}})["arrays"]
        assert np.allclose(1000 * found, wanted, rtol=1e-4)


@compiles
def test_the_variant_of_the_file_is_built(cache: Path, file: Path) -> None:
    name = onnx.load(file).functions[0].name
    first = prepared(file)
    change(file, lambda model: set_metadata(model, VARIANT + name, "wide"))
    second = prepared(file)
    assert first.library != second.library and first.names == second.names


@compiles
def test_the_fastest_kernel_is_noted(
    cache: Path, file: Path, std: Rules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has measured kernels writes down which it was; another machine generates the same from the function."""
    model = onnx.load(file)
    name = model.functions[0].name
    (group,) = [node.group for node in import_model(model, std).graph.nodes() if isinstance(node, Kernel)]
    text = by_hand(std, function_of(std, group, 17).group, "wide")
    note(model, {name: text, "k_other": halves()}, 3)
    assert said(model).threads == 3 and {entry.key for entry in model.metadata_props if "k_other" in entry.key} == set()
    here = prepared(model, texts={name: text})
    monkeypatch.setattr("dslc.kernels._own", lambda rules, group, wanted, _: by_hand(rules, group, wanted[10:]))
    elsewhere = prepared(model, tmp_path / "elsewhere")
    assert here.library is not None and elsewhere.library is not None and here.library.name == elsewhere.library.name


@compiles
def test_one_kernel_serves_several_operators(cache: Path) -> None:
    """The same computation in two models, written in other nodes: compiled once."""
    library = build({"k_one": halves(), "k_two": halves()})
    x = np.ones((2, 4), np.float32)
    assert all(np.array_equal(library.run(name, [x])[0], x / 2) for name in ("k_one", "k_two"))


@compiles
def test_workers_run_the_kernels(cache: Path, file: Path) -> None:
    """What is measured is what `dslc.session` runs, from files and from memory, also several copies at once."""
    with Worker(1) as worker:
        for model in (str(file), file.read_bytes()):
            worker.load(ModelFile(model))
            found = worker.ask({"do": "run", "feeds": feeds()})["arrays"]
            assert np.allclose(found[0], 1000 * ran(onnx.load(file), feeds())[0], rtol=1e-4)
        fixed = onnx.load(file)
        for value in fixed.graph.input:
            if value.name == "x":
                value.type.tensor_type.shape.dim[0].dim_value = 3
        assert worker.measure(fixed.SerializeToString(), 0.05, copies=2)["seconds"] > 0


# ---- files that are not what they seem ----------------------------------------------------------------------------


def rename(model: onnx.ModelProto) -> None:
    """The function of a kernel under the name of another."""
    model.functions[0].name = "k_000000000000"
    for node in model.graph.node:
        if node.domain == "dslc":
            node.op_type = "k_000000000000"
    model.metadata_props[0].key = KEY + "k_000000000000"


def other_body(model: onnx.ModelProto) -> None:
    """Another function than that of the name."""
    next(node for node in model.functions[0].node if node.op_type == "Tanh").op_type = "Sigmoid"


def other_types(model: onnx.ModelProto) -> None:
    entry = model.metadata_props[0]
    entry.value = entry.value.replace("f32[4]", "f32[s0]")


def more_inputs(model: onnx.ModelProto) -> None:
    model.functions[0].input.append("more")


def no_metadata(model: onnx.ModelProto) -> None:
    del model.metadata_props[:]


def garbage(model: onnx.ModelProto) -> None:
    model.metadata_props[0].value = '#include <cstdlib>\nint k = system("touch /tmp/hostile");'


def injection(model: onnx.ModelProto) -> None:
    """A name that would be C++."""
    evil = 'k_"; system("true"); //'
    model.functions[0].name = evil
    for node in model.graph.node:
        if node.domain == "dslc":
            node.op_type = evil
    model.metadata_props[0].key = KEY + evil


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (rename, WhyMissing.NAME), (other_body, WhyMissing.NAME), (other_types, WhyMissing.NAME), (more_inputs, WhyMissing.DEFINITION),
        (no_metadata, WhyMissing.DEFINITION), (garbage, WhyMissing.DEFINITION), (injection, WhyMissing.NAME),
    ],
)  # fmt: skip
def test_a_file_that_was_tampered_with_has_no_kernels(
    cache: Path, file: Path, how: Callable[[onnx.ModelProto], None], why: WhyMissing
) -> None:
    """No kernel is built for what it was not made for; the functions run as they are, or the runtime says what is wrong."""
    change(file, how)
    found = prepared(file)
    assert found.library is None and [one.why for one in found.missing] == [why]
    if how is not more_inputs:
        with pytest.warns(UserWarning, match="plain nodes"):
            assert not by_kernel(dslc.session(file))


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 64, b"no model at all", b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"]
)
def test_what_is_no_model(cache: Path, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "no.onnx"
    path.write_bytes(content)
    assert not said(path).functions and not said(content).functions
    with pytest.raises(DslcError) as problem:
        dslc.session(path)
    assert problem.value.diagnostics[0].code == "E0811"


def test_a_file_that_is_cut_off(cache: Path, file: Path) -> None:
    whole = file.read_bytes()
    for length in range(0, len(whole), 37):
        file.write_bytes(whole[:length])
        said(file)
        said(whole[:length])


def test_a_generator_that_fails(cache: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of other types than the function, and those that cannot be generated."""
    monkeypatch.setattr(kernels, "_own", lambda rules, group, variant, processor=None: halves())
    assert [one.why for one in prepared(file).missing] == [WhyMissing.TYPES]

    def mistaken(rules: Rules, group: Any, variant: str, processor: Any = None) -> KernelText:
        raise IndexError("a mistake in the generator")

    monkeypatch.setattr(kernels, "_own", mistaken)
    change(file, lambda model: set_metadata(model, VARIANT + model.functions[0].name, "k_other"))
    with pytest.warns(UserWarning, match="a mistake in the generator"):
        assert not by_kernel(dslc.session(file))
    change(file, lambda model: model.metadata_props.pop())
    # what lasts is kept, and not tried again
    monkeypatch.setattr(kernels, "_own", by_hand)
    assert [one.why for one in prepared(file).missing] == [WhyMissing.TYPES]


@compiles
def test_a_text_that_does_not_compile(cache: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_code(rules: Rules, group: Any, variant: str, processor: Any = None) -> KernelText:
        good = by_hand(rules, group, variant)
        return KernelText(good.name, good.inputs, good.outputs, good.sizes, broken(good.name).text)

    monkeypatch.setattr(kernels, "_own", no_code)
    with pytest.warns(UserWarning, match="plain nodes"):
        assert not by_kernel(dslc.session(file))


@compiles
@pytest.mark.parametrize("damage", ["cut", "gone", "index"])
def test_a_cache_that_was_damaged(cache: Path, file: Path, damage: str) -> None:
    """Half a library is never loaded: it would end the process."""
    dslc.session(file)
    (library,) = library_folder().glob("*.so")
    (index,) = library_folder().glob("*.json")
    if damage == "cut":
        half = library.read_bytes()[:3000]
        library.unlink()  # it is in use
        library.write_bytes(half)
    elif damage == "gone":
        library.unlink()
    else:
        index.write_text('{"library": "../../etc/passwd", "names": ["k"], "missing": []}')
    assert known(file) is None
    assert by_kernel(dslc.session(file))


@compiles
def test_sessions_from_several_threads_and_processes(cache: Path, file: Path) -> None:
    """Sessions are made and run at the same time."""
    wrong: list[BaseException] = []

    def work() -> None:
        try:
            session = dslc.session(file, threads=2)
            for rows in (3, 50, 20_000):
                assert by_kernel(session, rows)
        except BaseException as problem:
            wrong.append(problem)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    code = "import sys, dslc; print(dslc.session(sys.argv[1]).get_outputs()[0].name)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code, str(file)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "y\n"), done.stderr


# ---- the command line --------------------------------------------------------------------------------------------


@compiles
def test_build(cache: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`dslc build` makes what `dslc.session` finds; `-o` writes a library for others' sessions, `--emit` the C++."""
    library, folder = tmp_path / "kernels.so", tmp_path / "cpp"
    assert cli(["build", str(file), "-o", str(library), "--emit", str(folder)]) == 0
    text = capsys.readouterr().out
    assert onnx.load(file).functions[0].name in text and "RegisterCustomOps" in (folder / "kernels.cpp").read_text()
    shutil.rmtree(cache)
    options = onnxruntime.SessionOptions()
    assert dslc.register(options, file, library=library) == (onnx.load(file).functions[0].name,)
    assert by_kernel(onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"]))
    subprocess.run(["sh", "build.sh"], cwd=folder, check=True)
    assert (folder / "kernels.so").exists()
    shorter = library.read_bytes()[:-5]
    library.unlink()  # it is in use
    library.write_bytes(shorter)
    with pytest.warns(UserWarning, match="no library of kernels for this machine"):
        assert dslc.register(onnxruntime.SessionOptions(), file, library=library) == ()


@pytest.mark.parametrize("case", ["no file", "no model", "no compiler", "the model itself", "a folder"])
def test_wrong_input_of_build(
    cache: Path,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    case: str,
) -> None:
    """One coded error."""
    arguments, code = [str(file)], ""
    if case == "no file":
        arguments, code = [str(tmp_path / "nothing.onnx")], "E0902"
    elif case == "no model":
        file.write_bytes(b"no model")
        code = "E0801"
    elif case == "no compiler":
        monkeypatch.setenv("CXX", "/no/compiler")
        code = "E0815"
    elif case == "the model itself":
        arguments, code = [str(file), "-o", str(file)], "E0908"
    else:
        if not any(map(shutil.which, NAMES)):
            pytest.skip("there is no C++ compiler")
        arguments, code = [str(file), "-o", str(tmp_path)], "E0903"
    assert cli(["build", *arguments]) == (1 if case in {"no model", "no compiler"} else 2)
    assert f"error[{code}]" in capsys.readouterr().err or code in capsys.readouterr().err


def test_a_model_without_kernels(cache: Path, std: Rules, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(mish(std)[0], tmp_path / "plain.onnx")
    assert cli(["build", str(tmp_path / "plain.onnx")]) == 0
    assert "no generated kernels" in capsys.readouterr().out


@compiles
def test_doctor_shows_and_clears(cache: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dslc.session(file)
    cli(["doctor"])
    assert "C++ compiler" in (text := capsys.readouterr().out) and "1 library" in text
    cli(["doctor", "--clear-kernels"])
    assert "deleted 1 library" in (text := capsys.readouterr().out) and "0 libraries" in text
    assert known(file) is None


def test_help_names_the_command() -> None:
    from dslc.cli.main import cli as group

    assert "build" in CliRunner().invoke(group, ["--help"]).output
