"""Weights in files beside the model: read when needed, never twice, never from elsewhere."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from small_models import info, model, rules, weight

from dslc.errors import DslcError
from dslc.ir.graph import Constant
from dslc.onnx import save as saving
from dslc.onnx.exporter import export
from dslc.onnx.importer import import_model
from dslc.onnx.protos import FileData
from dslc.onnx.runtime import session
from dslc.onnx.save import save

node = helper.make_node
W = np.random.default_rng(0).standard_normal((200, 300)).astype("f")


def build(folder: Path) -> Path:
    """x @ w + b with w in `weights.bin` and b inside."""
    made = model(
        [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])],
        [info("x", [1, 200])],
        [info("y", [1, 300])],
        [weight("w", W), weight("b", np.arange(300, dtype="f"))],
    )
    path = folder / "model.onnx"
    onnx.save(made, path, save_as_external_data=True, location="weights.bin", size_threshold=10_000)
    return path


def entry(path: Path, **values: str) -> Path:
    """Changes where the model says that its weights are."""
    made = onnx.load(path, load_external_data=False)
    for pair in made.graph.initializer[0].external_data:
        pair.value = values.pop(pair.key, pair.value)
    for key, value in values.items():
        made.graph.initializer[0].external_data.add(key=key, value=value)
    path.write_bytes(made.SerializeToString())
    return path


def through(path: Path) -> tuple[ModelProto, Path]:
    imported = import_model(path, rules())
    assert imported.context.folder is not None
    return export(imported.context, imported.graph, rules()), imported.context.folder


def result(path: Path) -> np.ndarray:
    return np.asarray(session(str(path)).run(None, {"x": np.ones((1, 200), "f")})[0])


def test_weights_stay_in_their_file(tmp_path: Path) -> None:
    path = build(tmp_path)
    imported = import_model(path, rules())
    (data,) = (n.data for n in imported.graph.nodes() if isinstance(n, Constant) and n.types[0].rank == 2)  # type: ignore[union-attr]
    assert isinstance(data, FileData)
    np.testing.assert_array_equal(data.load(), W)
    before = os.stat(tmp_path / "weights.bin")
    made, folder = through(path)
    assert [t for t in made.graph.initializer if t.name == "w"] == [
        t for t in onnx.load(path, load_external_data=False).graph.initializer if t.name == "w"
    ]
    assert save(made, tmp_path / "out.onnx", folder=folder) == [tmp_path / "out.onnx"]
    after = os.stat(tmp_path / "weights.bin")
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "out.onnx", "weights.bin"]
    np.testing.assert_array_equal(result(tmp_path / "out.onnx"), result(path))


def test_another_folder_gets_a_copy(tmp_path: Path) -> None:
    path = build(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    made, folder = through(path)
    save(made, other / "out.onnx", folder=folder)
    assert sorted(p.name for p in other.iterdir()) == ["out.onnx", "out.onnx.data"]
    np.testing.assert_array_equal(result(other / "out.onnx"), result(path))


def test_weights_go_beside_the_model_on_request(tmp_path: Path) -> None:
    made = onnx.load(build(tmp_path))
    before = made.SerializeToString()
    save(made, tmp_path / "out.onnx", external_data=True)
    assert (tmp_path / "out.onnx").stat().st_size < 2_000 and made.SerializeToString() == before
    np.testing.assert_array_equal(result(tmp_path / "out.onnx"), result(tmp_path / "model.onnx"))


def test_what_does_not_fit_into_one_file_goes_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "LIMIT", 100_000)
    save(onnx.load(build(tmp_path)), tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx.data").stat().st_size >= W.nbytes
    np.testing.assert_array_equal(result(tmp_path / "out.onnx"), result(tmp_path / "model.onnx"))


def test_saving_over_the_input_with_its_own_data_file(tmp_path: Path) -> None:
    """The file of weights that is written has the name of the one that is read."""
    path = tmp_path / "m.onnx"
    onnx.save(
        onnx.load(build(tmp_path)), path, save_as_external_data=True, location="m.onnx.data", size_threshold=10_000
    )
    expected = result(path)
    made, folder = through(path)
    save(made, path, folder=folder, external_data=True)
    np.testing.assert_array_equal(result(path), expected)


def code(path: Path) -> str:
    with pytest.raises(DslcError) as caught:
        import_model(path, rules())
    (finding,) = caught.value.diagnostics
    assert finding.path
    return finding.code


def test_missing_data(tmp_path: Path) -> None:
    path = build(tmp_path)
    (tmp_path / "weights.bin").unlink()
    assert code(path) == "E0802"


def test_data_that_is_too_short(tmp_path: Path) -> None:
    path = build(tmp_path)
    os.truncate(tmp_path / "weights.bin", 1000)
    assert code(path) == "E0803"


@pytest.mark.parametrize(
    "values", [{"length": "4"}, {"offset": "-8"}, {"offset": "1000"}, {"length": "many"}, {"offset": str(1 << 62)}]
)
def test_regions_that_do_not_fit(tmp_path: Path, values: dict[str, str]) -> None:
    assert code(entry(build(tmp_path), **values)) == "E0803"


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/passwd", "a/../../weights.bin"])
def test_data_outside_the_folder(tmp_path: Path, location: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    path = build(inner)
    (inner / "weights.bin").rename(tmp_path / "weights.bin")
    assert code(entry(path, location=location)) == "E0804"


def test_an_absolute_path(tmp_path: Path) -> None:
    """Also of a file in the folder: the model would have no data in another one."""
    path = build(tmp_path)
    with pytest.raises(DslcError, match="an absolute path"):
        import_model(entry(path, location=str(tmp_path / "weights.bin")), rules())


def test_a_link_that_leads_outside(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    path = build(inner)
    (inner / "weights.bin").rename(tmp_path / "weights.bin")
    (inner / "weights.bin").symlink_to(tmp_path / "weights.bin")
    assert code(path) == "E0804"


@pytest.mark.parametrize("location", ["", "x" * 5000, "a\0b"])
def test_places_that_are_no_files(tmp_path: Path, location: str) -> None:
    assert code(entry(build(tmp_path), location=location)) == "E0802"


def test_a_huge_shape_takes_no_memory(tmp_path: Path) -> None:
    path = build(tmp_path)
    made = onnx.load(path, load_external_data=False)
    del made.graph.initializer[0].dims[:]
    made.graph.initializer[0].dims.extend([1 << 20, 1 << 20])
    path.write_bytes(made.SerializeToString())
    assert code(path) == "E0803"


# ---- writing ---------------------------------------------------------------------------------------------------


def refused(target: Path, proto: ModelProto) -> str:
    with pytest.raises(DslcError) as caught:
        save(proto, target, external_data=True)
    (finding,) = caught.value.diagnostics
    assert finding.code == "E0903"
    return finding.message


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "no" / "out.onnx", onnx.load(build(tmp_path)))


def test_a_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = onnx.load(build(tmp_path))
    real = os.open

    def deny(path: Path, flags: int, *more: int) -> int:
        if flags & os.O_WRONLY:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", deny)
    assert "Permission denied" in refused(tmp_path / "out.onnx", made)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = onnx.load(build(tmp_path))
    target = tmp_path / "out.onnx"
    target.write_bytes(b"what was there")
    before = sorted(p.name for p in tmp_path.iterdir())

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "the disk is full" in refused(target, made)
    assert target.read_bytes() == b"what was there" and sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_device_or_pipe_stays_one_and_is_written_to(tmp_path: Path) -> None:
    made = model([node("Relu", ["x"], ["y"])], [info("x", [1, 200])], [info("y", [1, 200])], [])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with open(os.open(pipe, os.O_RDWR), "rb", buffering=0) as reader:
        save(made, pipe)
        assert reader.read(10_000) == made.SerializeToString() and pipe.is_fifo()
    with pytest.raises(DslcError, match="no place beside it for the weights"):
        save(onnx.load(build(tmp_path)), pipe, external_data=True)
    assert not (tmp_path / "pipe.data").exists()


_CHILD = """
import resource, sys
from dslc.onnx.exporter import export
from dslc.onnx.importer import import_model
from dslc.onnx.save import save
from dslc.semantics.library import standard
rules = standard()
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
imported = import_model(sys.argv[1], rules)
for target in sys.argv[2:]:
    save(export(imported.context, imported.graph, rules), target, folder=imported.context.folder)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start)
"""


def test_large_weights_are_never_in_memory(tmp_path: Path) -> None:
    """144 MiB of weights (a sparse file): import and export, beside them and elsewhere, take a small part of that."""
    size = 6144
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size, size], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="weights.bin")
    made = model([node("MatMul", ["x", "w"], ["y"])], [info("x", [1, size])], [info("y", [1, size])], [tensor])
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    with (tmp_path / "weights.bin").open("wb") as out:
        out.truncate(size * size * 4)
    beside, elsewhere = tmp_path / "out.onnx", tmp_path / "other" / "out.onnx"
    elsewhere.parent.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(tmp_path / "model.onnx"), str(beside), str(elsewhere)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) * 1024 < size * size
    assert (tmp_path / "other" / "out.onnx.data").exists() and not (tmp_path / "out.onnx.data").exists()


def test_tensors_of_nodes_go_beside_the_model_too(tmp_path: Path) -> None:
    nodes = [
        node("Constant", [], ["w"], value=onnx.numpy_helper.from_array(W)),
        node("MatMul", ["x", "w"], ["p"]),
        node("Add", ["p", "b"], ["y"]),
    ]
    b = helper.make_tensor("b", TensorProto.FLOAT, [300], np.arange(300, dtype="f").tolist())
    made = model(nodes, [info("x", [1, 200])], [info("y", [1, 300])], [b])
    before = made.SerializeToString()
    save(made, tmp_path / "out.onnx", external_data=True)
    assert made.SerializeToString() == before
    assert (tmp_path / "out.onnx.data").stat().st_size >= W.nbytes + 1200
    (expected,) = session(made).run(None, {"x": np.ones((1, 200), "f")})
    np.testing.assert_array_equal(result(tmp_path / "out.onnx"), expected)
