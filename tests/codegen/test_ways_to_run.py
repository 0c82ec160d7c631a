"""Sessions with kernels answer what the runtime answers, in whatever way they are run."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import dslc
from dslc.onnx.exporter import function_of
from dslc.onnx.importer import import_model
from dslc.semantics.library import standard
from dslc.sessions import REFUSED
from tests.caches import apart

needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
ort: Any = onnxruntime


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mean of rows as a kernel; of no columns it has no meaning for a kernel."""
    plain = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[N,K] x) => (float[N] y) { y = ReduceMean<axes=[1], keepdims=0>(x) }'
    )
    made = function_of(standard(), import_model(plain, standard()).graph, 17)
    graph = helper.make_graph(
        [helper.make_node(made.name, ["x"], ["y"], domain="dslc")], "g", plain.graph.input, plain.graph.output
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("dslc", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[made.proto], ir_version=8)
    model.metadata_props.add(key=f"dslc.kernel.{made.name}", value=made.definition)
    path = tmp_path_factory.mktemp("ways") / "mean.onnx"
    onnx.save(model, path)
    return path


def by_run(session: Any, x: Any) -> Any:
    return session.run(None, {"x": x})[0]


def by_values(session: Any, x: Any) -> Any:
    return session.run_with_ort_values(["y"], {"x": ort.OrtValue.ortvalue_from_numpy(x)})[0].numpy()


def by_vectors(session: Any, x: Any) -> Any:
    from onnxruntime.capi import _pybind_state as c

    fed, made = c.OrtValueVector(), c.OrtValueVector()
    fed.push_back(ort.OrtValue.ortvalue_from_numpy(x)._ortvalue)
    cpu = c.OrtDevice(c.OrtDevice.cpu(), c.OrtDevice.default_memory(), 0)
    session.run_with_ortvaluevector(ort.RunOptions(), ["x"], fed, ["y"], made, [cpu])
    return made[0].numpy()


def by_binding(session: Any, x: Any) -> Any:
    bound = session.io_binding()
    bound.bind_cpu_input("x", x)
    bound.bind_output("y", "cpu")
    session.run_with_iobinding(bound)
    return bound.copy_outputs_to_cpu()[0]


def by_memory(session: Any, x: Any) -> Any:
    bound, out = session.io_binding(), np.full(len(x), 7, np.float32)
    bound.bind_cpu_input("x", x)
    bound.bind_output("y", "cpu", 0, np.float32, out.shape, out.ctypes.data)
    session.run_with_iobinding(bound)
    return out


def by_callback(session: Any, x: Any) -> Any:
    over, found = threading.Event(), list[Any]()
    session.run_async(None, {"x": x}, lambda *given: (found.extend(given), over.set()), "mine")
    assert over.wait(60)
    results, data, problem = found
    if problem:
        raise RuntimeError(problem)
    assert data == "mine"
    return results[0]


WAYS = (by_run, by_values, by_vectors, by_binding, by_memory, by_callback)


@needs_compiler
@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_a_kernel_refuses_is_done_again_without_kernels(way: Callable[[Any, Any], Any], file: Path) -> None:
    session = dslc.session(file, threads=2)
    assert type(session).__name__ == "KernelSession"
    plain = ort.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for shape in ((3, 0), (3, 5), (1, 1), (3, 0)):
        x = np.ones(shape, np.float32)
        assert np.array_equal(way(session, x), by_run(plain, x), equal_nan=True)


@needs_compiler
@pytest.mark.parametrize("way", WAYS)
def test_wrong_inputs_get_the_runtime_s_own_error(way: Callable[[Any, Any], Any], file: Path) -> None:
    with pytest.raises(Exception, match=r"(?i)unexpected input data type|expected|rank") as caught:
        way(dslc.session(file, threads=2), np.ones((3, 5), np.float64))
    assert "generated kernel" not in str(caught.value)


def test_every_way_that_the_runtime_has_is_known(file: Path) -> None:
    """A new version of the runtime with a new way fails here."""
    kind = type(dslc.session(file))
    if kind.__name__ == "KernelSession":
        assert {name for name in dir(ort.InferenceSession) if name.startswith("run")} <= set(vars(kind))


def test_what_a_kernel_says_is_told_from_what_others_say() -> None:
    said = "FAIL : Non-zero status code returned while running k_0123456789ab node. Name:'n' Status Message: index 9"
    assert REFUSED.search(said) and REFUSED.search("a generated kernel was not made for the sizes of an input")
    assert not REFUSED.search("Non-zero status code returned while running Gather node. Name:'k_0123456789ab'")


# ---- folders -------------------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.skipif(not hasattr(os, "getuid"), reason="a system without owners of files")
def test_a_library_where_others_may_write_is_not_loaded(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither built there nor taken from there: a folder of this user's own stands in for it."""
    from dslc.codegen.host.library import checked, opened

    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache", kernels=True)))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    session = dslc.session(file)
    (library,) = (tmp_path / "cache" / "kernels").glob("*.so")
    assert opened(library) is not None and type(session).__name__ == "KernelSession"
    written = library.stat().st_mtime_ns
    for mode in (0o777, 0o770, 0o1777, 0o702):
        library.parent.chmod(mode)
        assert opened(library) is None, oct(mode)
        with pytest.raises(OSError, match="others may write"), checked(library):
            pass
        assert opened(library, given=True) is not None, "a file of one's own that one names may lie anywhere"
        assert type(dslc.session(file)).__name__ == "KernelSession"
        (instead,) = tmp_path.glob("dslc-*/*/kernels/*.so")
        assert list(library.parent.glob("*.so")) == [library] and library.stat().st_mtime_ns == written
        # each time it is built anew
        instead.unlink()
    library.parent.chmod(0o700)
    library.chmod(0o666)
    assert opened(library) is None and opened(library, given=True) is None


@needs_compiler
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="a system whose descriptors have no names")
def test_what_is_loaded_is_what_was_checked(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another file that comes in its place between the two is not looked at, and no name is used twice."""
    from dslc.codegen.host.library import checked

    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache", kernels=True)))
    dslc.session(file)
    (library,) = (tmp_path / "cache" / "kernels").glob("*.so")
    content, names = library.read_bytes(), set[str]()
    for _ in range(20):
        with checked(library) as name:
            names.add(name)
            library.rename(tmp_path / "away")
            library.write_bytes(b"another one")
            assert Path(name).read_bytes() == content
            (tmp_path / "away").rename(library)
    assert len(names) == 20


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="a system without links")
def test_temporary_files_follow_no_links_and_have_names_of_chance(tmp_path: Path) -> None:
    from dslc.folders import unwritable
    from dslc.onnx.save import save
    from dslc.store import beside, private, replace_file

    assert len({path for path, file in (beside(tmp_path / "x") for _ in range(20)) if os.close(file) is None}) == 20
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    target = tmp_path / "out" / "m.onnx"
    target.parent.mkdir()
    for name in (
        f".m.onnx.{os.getpid()}.tmp",
        f".m.onnx.{os.getpid()}.{threading.get_ident()}",
        f".{os.getpid()}.probe",
    ):
        (target.parent / name).symlink_to(victim)
    save(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
        ),
        target,
    )
    replace_file(target.parent / "m.onnx", b"other")
    unwritable(target.parent)
    assert victim.read_bytes() == b"mine"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="others may write"):
        private(tmp_path / "pipe")
