"""Writing models: complete or not at all, weights streamed, files of weights left alone where they can be."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from google.protobuf.message import EncodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto, numpy_helper

from dslc.errors import error
from dslc.onnx.protos import FileRegion, copy_fields, entries, is_external, region, tensors
from dslc.store import beside, is_stream

#: protobuf messages end at 2 GiB; some room is left for the graph
LIMIT = (2 << 30) - (64 << 20)
_ALIGN = 64  #: bytes to which external data is aligned


SMALLEST = 1024  #: bytes from which on a tensor goes into the file of weights
BLOCK = 8 << 20  #: bytes that are copied at once


_CONTENTS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")


def save(
    model: ModelProto, path: str | Path, *, folder: str | Path | None = None, external_data: bool | None = None
) -> list[Path]:
    """Writes a model under a temporary name and renames it when it is complete.

    Args:
        folder: what the model's external data is relative to (the folder that it was read from).
        external_data: True writes all larger weights to `NAME.data` beside the model; None does so only where the model would not
            fit into one file. A weight that is in a file of the same folder stays there.

    A device or a pipe stays what it is, and is written to.

    Returns:
        The files that were written.

    Raises:
        DslcError: E0802 to E0804 for external data that cannot be read, E0903 where the output cannot be written.
    """
    target = Path(path)
    source = Path(folder) if folder is not None else None
    stays = source is not None and source.resolve() == target.parent.resolve()
    writer = _Writer(model, target, source, stays)
    try:
        return writer.write(external_data)
    except OSError as problem:
        reasons = {
            errno.ENOSPC: "the disk is full",
            errno.EROFS: "it is on a read-only disk",
            errno.EDQUOT: "the quota is used up",
        }
        why = reasons.get(problem.errno or 0, problem.strerror or str(problem))
        hint = "nothing was written"
        raise error("E0903", f"cannot write {target}: {why}", path=str(target), hint=hint) from None
    finally:
        writer.clean()


class _Writer:
    def __init__(self, model: ModelProto, target: Path, source: Path | None, stays: bool) -> None:
        self.model, self.target, self.source, self.stays = model, target, source, stays
        self.data = target.with_name(target.name + ".data")
        self._temporary: dict[Path, Path] = {}

    def write(self, external: bool | None) -> list[Path]:
        moved = self._moved(external)
        if moved and is_stream(self.target):
            why = f"{self.target} is no file, so there is no place beside it for the weights"
            raise error("E0903", why, path=str(self.target), hint="nothing was written")
        model = self.model
        written: list[Path] = []
        if moved:
            model = _without(self.model, moved)
            with self._open(self.data) as out:
                places = [self._append(out, tensor) for tensor in moved]
            gone = _ids(moved)
            both = zip(tensors(model.graph), tensors(self.model.graph), strict=True)
            targets = [copy for copy, tensor in both if id(tensor) in gone]
            for tensor, (offset, length) in zip(targets, places, strict=True):
                _refer(tensor, self.data.name, offset, length)
            written.append(self.data)
        try:
            content = model.SerializeToString()
        except (ValueError, RuntimeError, EncodeError) as problem:
            raise error(
                "E0812", f"{self.target} would be larger than 2 GiB: {problem}", path=str(self.target)
            ) from None
        with self._open(self.target) as out:
            out.write(content)
        for final, temporary in list(self._temporary.items()):
            os.replace(temporary, final)
            del self._temporary[final]
        return [*written, self.target]

    def clean(self) -> None:
        for temporary in self._temporary.values():
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _open(self, final: Path) -> Iterator[IO[bytes]]:
        if is_stream(final):
            with final.open("wb") as out:
                yield out
            return
        temporary, file = beside(final)
        self._temporary[final] = temporary
        with open(file, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        if final.exists():
            with contextlib.suppress(OSError):
                shutil.copymode(final, temporary)

    def _moved(self, external: bool | None) -> list[TensorProto]:
        """The tensors that go to the file of weights."""
        every = list(tensors(self.model.graph))
        inside = [t for t in every if not is_external(t)]
        beside = [t for t in every if is_external(t)]
        clash = self.stays and any(entries(t).get("location") == self.data.name for t in beside)
        out = list(beside) if not self.stays or clash else []
        if external or (external is None and sum(map(_bytes, inside)) > LIMIT):
            out += [t for t in inside if _bytes(t) >= SMALLEST and t.data_type != TensorProto.STRING]
        return out

    def _append(self, out: IO[bytes], tensor: TensorProto) -> tuple[int, int]:
        offset = -(-out.tell() // _ALIGN) * _ALIGN
        out.write(b"\0" * (offset - out.tell()))
        if is_external(tensor):
            _copy(region(tensor, self.source, str(self.target)), out)
        elif tensor.raw_data:
            out.write(tensor.raw_data)
        else:
            out.write(numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data)
        return offset, out.tell() - offset


def _ids(some: list[TensorProto]) -> set[int]:
    return set(map(id, some))


def _bytes(tensor: TensorProto) -> int:
    return len(tensor.raw_data) or tensor.ByteSize()


def _copy(place: FileRegion, out: IO[bytes]) -> None:
    """Streams a region: never more than one block in memory."""
    with place.path.open("rb") as source:
        source.seek(place.offset)
        left = place.length
        while left:
            block = source.read(min(left, BLOCK))
            if not block:
                raise error("E0803", f"{place.path} became shorter while it was read", path=str(place.path))
            out.write(block)
            left -= len(block)


def _without(model: ModelProto, moved: list[TensorProto]) -> ModelProto:
    """A copy of the model in which the moved tensors have no elements; weights are never copied on the way."""
    gone = _ids(moved)
    weights = list(model.graph.initializer)
    own = _ids(weights)
    held = []
    for tensor in moved:
        if not is_external(tensor) and id(tensor) not in own:
            held.append((tensor, tensor.raw_data))
            tensor.raw_data = b""
    copy = ModelProto()
    try:
        copy_fields(model, copy, {"graph"})
        copy_fields(model.graph, copy.graph, {"initializer"})
    finally:
        for tensor, content in held:
            tensor.raw_data = content
    for weight in weights:
        if id(weight) in gone:
            copy_fields(weight, copy.graph.initializer.add(), {"raw_data", *_CONTENTS})
        else:
            copy.graph.initializer.append(weight)
    return copy


def _refer(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    kept = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, doc_string=tensor.doc_string)
    kept.metadata_props.extend(tensor.metadata_props)
    kept.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        kept.external_data.add(key=key, value=str(value))
    tensor.CopyFrom(kept)
