"""Libraries of kernels: built once, kept, checked before they are loaded, run by ONNX Runtime and without it."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dslc.codegen.host.compiler import NAMES, BuildReason, Compiler, NotBuilt
from dslc.codegen.host.library import clear, kept, library_folder, opened
from tests.caches import apart
from tests.codegen.kernels import broken, endless, f32, halves, kernel, total
from tests.codegen.native import Library, NotRun, build
from tests.tuned import tuned

pytestmark = pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="there is no C++ compiler")
X = np.arange(24, dtype=np.float32).reshape(6, 4)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A folder of one's own in which what is around kernels is compiled."""
    return apart(tmp_path, kernels=True)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Two kernels in one library."""
    return build([halves(), total()], apart(tmp_path_factory.mktemp("both"), kernels=True))


def model(op: str, inputs: list[Any], outputs: list[Any]) -> bytes:
    """A model of one node in the domain of kernels; `inputs` and `outputs` are shapes of f32 tensors."""
    made = {
        kind: [helper.make_tensor_value_info(f"{kind}{k}", TensorProto.FLOAT, shape) for k, shape in enumerate(shapes)]
        for kind, shapes in (("x", inputs), ("y", outputs))
    }
    node = helper.make_node(op, [i.name for i in made["x"]], [o.name for o in made["y"]], domain="dslc")
    graph = helper.make_graph([node], "g", made["x"], made["y"])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("dslc", 1)]
    data: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return data


def session(library: Path, data: bytes, threads: int = 1) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def test_kernels_run_by_themselves(both: Library) -> None:
    library = both
    for threads in (1, 3):
        half, sums = library.run("k_halves", [X], threads)
        assert np.array_equal(half, X / 2) and np.array_equal(sums, X.sum(1))
        (squares,) = library.run("k_total", [X[0]], threads)
        assert squares.shape == () and squares == 14


def test_onnx_runtime_runs_them(both: Library) -> None:
    library = both
    loaded = session(library.path, model("k_halves", [["n", 4]], [["n", 4], ["n"]]))
    for rows in (6, 0, 1, 6):
        half, sums = loaded.run(None, {"x0": X[:rows]})
        assert np.array_equal(half, X[:rows] / 2) and np.array_equal(sums, X[:rows].sum(1))
    (squares,) = session(library.path, model("k_total", [["n"]], [[]])).run(None, {"x0": X[0]})
    assert squares.shape == () and squares == 14


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_large_inputs_are_divided_among_threads(both: Library, threads: int) -> None:
    """Enough rows for every path: several stages, parts of unequal size, scratch memory."""
    library = both
    rows = np.random.default_rng(0).random((100_003, 4), np.float32)
    half, sums = session(library.path, model("k_halves", [["n", 4]], [["n", 4], ["n"]]), threads).run(
        None, {"x0": rows}
    )
    assert np.array_equal(half, rows / 2) and np.allclose(sums, rows.sum(1))
    loaded = session(library.path, model("k_total", [["n"]], [[]]), threads)
    for count in (100_003, 1_000, 200_000):
        assert np.isclose(
            loaded.run(None, {"x0": rows.ravel()[:count]})[0], (rows.ravel()[:count] ** 2).sum(), rtol=1e-3
        )


def test_other_sizes_are_refused(both: Library) -> None:
    """A kernel never runs on sizes that it was not made for: an error, no read beyond the end."""
    library = both
    loaded = session(library.path, model("k_halves", [["n", "m"]], [["n", "m"], ["n"]]))
    with pytest.raises(Exception, match="not made for the sizes"):
        loaded.run(None, {"x0": np.ones((6, 5), np.float32)})
    loaded = session(library.path, model("k_halves", [None], [["n", "m"], ["n"]]))
    with pytest.raises(Exception, match="not made for the rank"):
        loaded.run(None, {"x0": np.ones((6, 4, 1), np.float32)})
    for wrong in (np.ones((6, 5), np.float32), np.ones((6, 4)), np.ones(6, np.float32), X.T.copy().T):
        with pytest.raises(NotRun):
            library.run("k_halves", [wrong])
    with pytest.raises(NotRun):
        library.run("k_other", [X])


def test_sessions_and_threads_at_the_same_time(both: Library) -> None:
    """Two sessions, and each run from several threads: scratch memory belongs to a run."""
    library = both
    sessions = [session(library.path, model("k_total", [["n"]], [[]]), 2) for _ in range(2)]
    random = np.random.default_rng(1)
    cases = [random.integers(0, 4, size).astype(np.float32) for size in (40_000, 50_000, 70, 90_000)]
    wrong: list[Any] = []

    def work(k: int) -> None:
        for turn in range(60):
            case = cases[(k + turn) % len(cases)]
            (found,) = sessions[(k + turn) % 2].run(None, {"x0": case})
            if found != (case**2).sum():
                wrong.append((len(case), found))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_operators_may_have_other_names(tmp_path: Path) -> None:
    """A kernel's name tells of its variant, the operator's of what it computes."""
    library = build({"k_what": halves()}, tmp_path)
    half, _ = session(library.path, model("k_what", [["n", 4]], [["n", 4], ["n"]])).run(None, {"x0": X})
    assert np.array_equal(half, X / 2)
    assert np.array_equal(library.run("k_what", [X])[0], X / 2)


def test_a_library_is_compiled_once(tmp_path: Path) -> None:
    first, second = build([halves()], tmp_path), build([halves()], tmp_path)
    assert first.fresh and not second.fresh and first.path == second.path
    assert build([total()], tmp_path).path != first.path
    assert kept(tmp_path)[0] == 2 and kept(tmp_path)[1] > 0
    assert clear(tmp_path) == 2 and kept(tmp_path) == (0, 0)
    assert build([halves()], tmp_path).fresh


def test_a_damaged_library_is_built_again(tmp_path: Path) -> None:
    path = build([halves()], tmp_path).path
    whole = path.read_bytes()
    machine = opened(path).machine.encode()  # type: ignore[union-attr]
    damages = {
        "cut": whole[: len(whole) // 2],
        "empty": b"",
        "foreign": b"\x7fELF" + bytes(5000),
        "flipped": whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:],
        "other machine": whole.replace(machine, b"0" * 16),
    }
    for damage, content in damages.items():
        path.unlink()  # it is in use
        path.write_bytes(content)
        assert opened(path) is None, damage
        again = build([halves()], tmp_path)
        assert again.fresh and np.array_equal(again.run("k_halves", [X])[0], X / 2), damage


def test_what_does_not_compile_is_left_out(tmp_path: Path) -> None:
    library = build([halves(), broken(), total()], tmp_path)
    assert set(library.kernels) == {"k_halves", "k_total"}
    (failure,) = library.failed
    assert (failure.op, failure.reason) == ("k_broken", BuildReason.ERROR) and "error" in failure.detail
    assert np.array_equal(library.run("k_halves", [X])[0], X / 2)
    # the next time nothing is compiled to find that out again
    again = build([halves(), broken(), total()], tmp_path)
    assert not again.fresh and again.failed == library.failed
    with pytest.raises(NotBuilt) as nothing:
        build([broken()], tmp_path)
    assert nothing.value.reason is BuildReason.ERROR


def enough(folder: Path) -> float:
    """So many times what a kernel takes here and now: one is compiled in what another that takes too long leaves."""
    began = time.monotonic()
    build([total("k_timed")], folder)
    return max(2.5, 12 * (time.monotonic() - began))


def test_a_compiler_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    library = build([halves(), endless()], tmp_path, seconds=enough(tmp_path))
    assert set(library.kernels) == {"k_halves"}
    assert [failure.reason for failure in library.failed] == [BuildReason.TIMEOUT]
    assert not list(library_folder(tmp_path).glob("building-*"))


def test_a_compiler_that_does_not_say_what_it_is_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "c++"
    fake.write_text(f"#!/bin/sh\necho >> {tmp_path}/asked\nexec sleep 600\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    tuned(monkeypatch, "codegen.host.compiler", asked=0.6)
    for _ in range(3):
        with pytest.raises(NotBuilt, match="--version does not end in 1 s") as found:
            build([halves()], tmp_path)
        assert found.value.reason is BuildReason.TIMEOUT
    assert (tmp_path / "asked").read_text() == "\n"


def test_a_compiler_that_takes_too_much_memory_is_ended(tmp_path: Path) -> None:
    with pytest.raises(NotBuilt) as short:
        build([halves()], tmp_path, memory=24 << 20)
    assert short.value.reason in (BuildReason.MEMORY, BuildReason.CRASH, BuildReason.NO_COMPILER)


def compiler_that(tmp_path: Path, does: str) -> str:
    path = tmp_path / "c++-of-a-kind"
    path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo fake; exit 0; fi\n{does}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("sleep 60", BuildReason.TIMEOUT),
        ("kill -SEGV $$", BuildReason.CRASH),
        ("echo 'error: cannot allocate memory'; exit 1", BuildReason.MEMORY),
        ("echo 'nothing pleases me'; exit 3", BuildReason.ERROR),
        ("exit 0", BuildReason.ERROR),
        ('for a; do [ "$l" = -o ] && echo no library > "$a"; l=$a; done', BuildReason.UNLOADABLE),
    ],
)
def test_compilers_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, reason: BuildReason) -> None:
    monkeypatch.setenv("CXX", compiler_that(tmp_path, does))
    with pytest.raises(NotBuilt) as failed:
        build([halves()], tmp_path, seconds=1 if reason is BuildReason.TIMEOUT else 10)
    assert failed.value.reason is reason


def test_a_compiler_that_talks_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says is read up to a limit, and shown without what would change a terminal."""
    says = "printf 'error: \\033[2Jgone'; head -c 50000000 /dev/zero | tr '\\0' x; exit 1"
    monkeypatch.setenv("CXX", compiler_that(tmp_path, says))
    with pytest.raises(NotBuilt) as failed:
        build([halves()], tmp_path, seconds=20)
    assert failed.value.reason is BuildReason.ERROR
    assert failed.value.detail.startswith("error: ?[2Jgone") and len(failed.value.detail) <= 300


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "nothing"))
    with pytest.raises(NotBuilt) as named:
        build([halves()], tmp_path)
    monkeypatch.setenv("CXX", "'no end")
    with pytest.raises(NotBuilt, match="No closing quotation"):
        build([halves()], tmp_path)
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotBuilt) as none:
        build([halves()], tmp_path)
    assert named.value.reason is none.value.reason is BuildReason.NO_COMPILER


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for temporary files stands in for it, for the next process too; without one there is no library."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first, again = build([halves()], tmp_path / "file"), build([halves()], tmp_path / "file")
    assert first.fresh and not again.fresh and first.path == again.path
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(NotBuilt) as failed:
        build([halves()], tmp_path / "file")
    assert failed.value.reason is BuildReason.FOLDER


def test_a_full_disk_is_told_apart_from_a_wrong_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("CXX", compiler_that(tmp_path, "echo 'error: x.o: No space left on device'; exit 1"))
    with pytest.raises(NotBuilt) as failed:
        build([halves()], tmp_path / "cache")
    assert failed.value.reason is BuildReason.FOLDER


def test_an_object_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library of kernels that are in others is linked, and a damaged object is made again."""
    build([halves()], tmp_path)
    build([total()], tmp_path)
    started: list[tuple[str, ...]] = []
    start = Compiler.start
    monkeypatch.setattr(
        Compiler, "start", lambda self, *args, **limits: started.append(args[2:]) or start(self, *args, **limits)
    )
    both = build([halves(), total()], tmp_path)
    assert both.fresh and np.array_equal(both.run("k_halves", [X])[0], X / 2)
    assert [more[0] == "-c" for more in started] == [False]
    for one in (library_folder(tmp_path) / "objects").iterdir():
        one.write_bytes(one.read_bytes()[:-8])
    for one in library_folder(tmp_path).glob("*.so"):
        one.unlink()
    again = build([halves(), total()], tmp_path)
    assert np.array_equal(again.run("k_halves", [X])[0], X / 2) and len(started) == 1 + 4


def test_a_slow_kernel_holds_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = 'case "$*" in *k_total.cpp*) sleep 60;; esac; exec c++ "$@"'
    seconds = enough(tmp_path)
    monkeypatch.setenv("CXX", compiler_that(tmp_path, slow))
    library = build([total(), halves()], tmp_path, seconds=seconds)
    assert set(library.kernels) == {"k_halves"}
    assert [(failure.op, failure.reason) for failure in library.failed] == [("k_total", BuildReason.TIMEOUT)]


def test_two_processes_build_the_same(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np\nfrom tests.codegen.kernels import halves\nfrom tests.codegen.native import build\n"
        "x = np.ones((3, 4), np.float32)\nassert (build([halves()], sys.argv[1]).run('k_halves', [x])[0] == 0.5).all()"
    )
    root = Path(__file__).parents[2]
    both = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=root) for _ in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]
    assert kept(tmp_path)[0] == 1


def test_a_kernel_need_not_find_aligned_memory(both: Library) -> None:
    """Memory of a caller begins wherever it likes."""
    library = both
    for shift in (4, 8, 12, 20):
        room = np.zeros(X.nbytes + 128, np.uint8)
        at = (-room.ctypes.data) % 64 + shift
        moved = room[at : at + X.nbytes].view(np.float32).reshape(X.shape)
        moved[:] = X
        assert moved.ctypes.data % 64 == shift
        assert np.array_equal(library.run("k_halves", [moved])[0], X / 2)


def test_element_types_are_those_of_the_kernel(tmp_path: Path) -> None:
    """ONNX Runtime refuses a model that gives a kernel tensors of another element type."""
    library = build([halves()], tmp_path)
    proto = onnx.ModelProto.FromString(model("k_halves", [["n", 4]], [["n", 4], ["n"]]))
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    with pytest.raises(Exception, match="Type Error"):
        session(library.path, proto.SerializeToString())


def test_scratch_memory_is_aligned(tmp_path: Path) -> None:
    text = kernel(
        "k_where", "*(float*)out[0] = (float)((uintptr_t)scratch % 64);", inputs=(f32(),), outputs=(f32(),), scratch="100"
    )  # fmt: skip
    library = build([text], tmp_path)
    loaded = session(library.path, model("k_where", [[]], [[]]))
    for _ in range(3):
        assert (
            loaded.run(None, {"x0": np.array(1, np.float32)})[0]
            == 0
            == library.run("k_where", [np.array(1, np.float32)])[0]
        )
