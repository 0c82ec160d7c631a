"""The kernels of a model file on the machine at hand: which library has them, built now or before, and which are missing and why.

What a file says is data: a kernel is generated from the function that any other runtime would run, read by dslc's own importer, and
only where the function's name is the hash of its nodes and types. No code comes from a model.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dslc.errors import DslcError
from dslc.onnx.metadata import DOMAIN, KEY, THREADS, VARIANT, metadata, set_metadata
from dslc.records import record
from dslc.store import Store
from dslc.version import __version__

if TYPE_CHECKING:
    from onnx import FunctionProto, ModelProto

    from dslc.codegen.host.processor import Processor
    from dslc.codegen.text import KernelText
    from dslc.ir.graph import Graph
    from dslc.semantics.library import Rules

    Model: TypeAlias = str | os.PathLike[str] | bytes | ModelProto


KERNELS = 4096  #: kernels of a file; with more it is not dslc's work
NODES = 512  #: nodes of a function; with more it is not dslc's work
CROWDED = 4  #: threads for each processor that a file may ask for


class WhyMissing(Enum):
    """The reason why a kernel of a file is not run; what is decided depends on this, never on the words of a message."""

    DEFINITION = "its definition is no text of the language, or does not fit its function"
    NAME = "its name is not the hash of its function"
    FUNCTION = "its function has nodes that the language has no words for"
    GENERATED = "no kernel can be generated for it"
    TYPES = "the generated kernel has other types"
    BUILT = "its kernel was not built"
    TIME = "generating its kernel took too long"


@record
class Missing:
    """A kernel that is not run, so that its function is; `lasting` where trying again would end in the same way."""

    name: str
    why: WhyMissing
    detail: str = ""
    lasting: bool = True

    def __str__(self) -> str:
        return self.why.value + (f" ({self.detail})" if self.detail else "")


@record
class Kernels:
    """The kernels of a file: the library that has them (None: none has), their names, and those that are missing."""

    library: Path | None
    names: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()
    #: whether something was compiled just now
    fresh: bool = False


NONE = Kernels(None)


# ---- what a file has -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Said:
    """Functions and metadata of a file that are about kernels, and a digest of both."""

    functions: Mapping[str, FunctionProto]
    metadata: Mapping[str, str]

    @property
    def threads(self) -> int | None:
        """The threads that the file was timed with, unless this machine would drown in them."""
        text = self.metadata.get(THREADS, "")
        most = CROWDED * (os.cpu_count() or 1)
        return int(text) if text.isascii() and text.isdigit() and 0 < int(text[:6]) <= most and len(text) <= 6 else None

    @property
    def digest(self) -> str:
        """Equal for files with the same kernels, whatever their graphs and weights are."""
        total = hashlib.sha256()
        for name in sorted(self.functions):
            notes = (self.metadata.get(key + name, "").encode() for key in (KEY, VARIANT))
            for part in (self.functions[name].SerializeToString(deterministic=True), *notes):
                total.update(len(part).to_bytes(8, "little") + part)
        return total.hexdigest()


_NOTHING = Said({}, {})


def said(model: Model) -> Said:
    """The functions and metadata of a model that are about kernels; nothing where it is no model (loading it will say so)."""
    rest: bytes | None = None
    if isinstance(model, str | bytes | os.PathLike):
        # most models have no kernels: nothing is imported to find that out
        try:
            rest = _without_graph(model)
        except (OSError, ValueError):
            return _NOTHING
        if DOMAIN.encode() not in rest:
            return _NOTHING
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from onnx import ModelProto

    from dslc.onnx.protos import are_text

    try:
        proto = ModelProto.FromString(rest) if rest is not None else model
    except (ValueError, DecodeError, RuntimeError):
        return _NOTHING
    assert isinstance(proto, ModelProto)
    whole = [function for function in proto.functions if are_text(function)]
    own = {function.name: function for function in whole if function.domain == DOMAIN and not function.overload}
    return Said(own if len(own) <= KERNELS else {}, metadata(proto))


def _without_graph(model: Any) -> bytes:
    """A serialized model without its graph, which is most of it: the other fields, as they are."""
    if isinstance(model, bytes):
        return _fields(model)
    with Path(model).open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return b""
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _fields(data)


def _fields(data: Any) -> bytes:
    graph, at, kept = 7, 0, []
    while at < len(data):
        start = at
        tag, at = _number(data, at)
        number, at = _number(data, at)
        # a model has numbers (0), and strings and messages (2), which have a length
        at += number if tag & 7 == 2 else 0
        if tag & 7 not in (0, 2) or at > len(data):
            raise ValueError("no field of a model")
        if tag >> 3 != graph:
            kept.append(bytes(data[start:at]))
    return b"".join(kept)


def _number(data: Any, at: int) -> tuple[int, int]:
    total = 0
    for k in range(10):
        if at + k >= len(data):
            break
        byte = data[at + k]
        total |= (byte & 127) << 7 * k
        if byte < 128:
            return total, at + k + 1
    raise ValueError("a number without an end")


# ---- the library of a file -----------------------------------------------------------------------------------------


def known(model: Model, folder: str | Path | None = None, processor: Processor | None = None) -> Kernels | None:
    """The kernels of a model for a processor (by default the one that is wanted) as far as they were built before.

    None where no build was tried yet. Compiles nothing.
    """
    return _known(said(model), folder, processor)


def _known(file: Said, folder: str | Path | None, processor: Processor | None) -> Kernels | None:
    if not file.functions:
        return NONE
    return next((found for entry in _entries(file, folder, processor) if (found := _read(entry))), None)


def _read(entry: Path) -> Kernels | None:
    """The record at a place about a file."""
    from dslc.codegen.host.library import opened

    try:
        found = Store(entry.parent).get_json(entry.name)
        missing = tuple(Missing(str(name), WhyMissing[why], str(detail)) for name, why, detail in found["missing"])
        names = tuple(map(str, found["names"]))
        if found["library"] is None:
            return Kernels(None, (), missing)
        library = entry.parent / Path(str(found["library"])).name
    except (ValueError, KeyError, TypeError):
        return None
    whole = opened(library, any_machine=True)
    if not whole or not set(names) <= set(whole.kernels):
        return None
    return Kernels(library, names, missing)


def prepared(
    model: Model, folder: str | Path | None = None, *, texts: Mapping[str, KernelText] | None = None,
    processor: Processor | None = None,
) -> Kernels:  # fmt: skip
    """The kernels of a model, built where they were not; a kernel that cannot be built is missing, and says why.

    Args:
        folder: of dslc's caches.
        texts: kernels by their operators' names, where they are known already; others are generated from the model's functions.
        processor: that they are for; by default the one that is wanted.
    """
    from dslc.codegen.host.compiler import NotBuilt
    from dslc.codegen.host.library import build

    file = said(model)
    found = _known(file, folder, processor)
    if found:
        return found
    given = {name: text for name, text in (texts or {}).items() if name in file.functions}
    named, missing = _all_generated(file, given, processor)
    if not named:
        return _remember(file, folder, processor, Kernels(None, (), tuple(missing)))
    try:
        library = build(named, folder, processor=processor)
    except NotBuilt as problem:
        missing += [Missing(name, WhyMissing.BUILT, str(problem), lasting=False) for name in named]
        return Kernels(None, (), tuple(missing))
    lost = [
        Missing(one.op, WhyMissing.BUILT, f"{one.reason.value}: {one.detail}", not one.hurried)
        for one in library.failed
    ]
    return _remember(
        file, folder, processor, Kernels(library.path, tuple(library.kernels), (*missing, *lost), library.fresh)
    )


def texts_of(model: Model, *, processor: Processor | None = None) -> tuple[dict[str, KernelText], tuple[Missing, ...]]:
    """The C++ of a model's kernels by their operators' names, and those that there is none for."""
    named, missing = _all_generated(said(model), {}, processor)
    return named, tuple(missing)


def groups_of(model: Model) -> tuple[dict[str, Graph], tuple[Missing, ...]]:
    """The groups that a model's kernels compute, by their operators' names, and kernels of which that is not known."""
    file = said(model)
    found = [(name, _group(file, name, function)) for name, function in sorted(file.functions.items())]
    return (
        {name: one for name, one in found if not isinstance(one, Missing)},
        tuple(one for _, one in found if isinstance(one, Missing)),
    )


def note(model: ModelProto, texts: Mapping[str, KernelText], threads: int | None = None) -> None:
    """Writes into a model which kernels were the fastest, by the names of their operators, and with how many threads it was timed.

    `prepared(model, texts=texts)` then builds just these, here; another machine generates them again from the functions.
    """
    here = said(model).functions
    for name, text in sorted(texts.items()):
        if name in here:
            set_metadata(model, VARIANT + name, f"{text.name} {text.form}".strip())
    if threads is not None and here:
        set_metadata(model, THREADS, str(threads))


def _all_generated(
    file: Said, given: Mapping[str, KernelText], processor: Processor | None
) -> tuple[dict[str, KernelText], list[Missing]]:
    """The C++ of a file's kernels as far as it is not given, and those that there is none for; it ends whatever a file asks for."""
    from dslc.codegen.limits import ALL_SECONDS as LIMITED_ALL_SECONDS
    from dslc.codegen.limits import SECONDS as LIMITED_SECONDS
    from dslc.codegen.limits import TooLong, within
    from dslc.semantics.library import standard

    standard()  # libraries are no part of what takes long
    named, missing, end = dict(given), list[Missing](), time.monotonic() + LIMITED_ALL_SECONDS
    for name, function in sorted(file.functions.items()):
        if name in named:
            continue
        work = partial(_generated, file, name, function, processor)
        try:
            made = within(min(LIMITED_SECONDS, end - time.monotonic()), work)
        except TooLong as late:
            # trying again takes as long again
            made = Missing(name, WhyMissing.TIME, str(late))
        if isinstance(made, Missing):
            missing.append(made)
        else:
            named[name] = made
    return named, missing


def _group(file: Said, name: str, function: FunctionProto) -> Graph | Missing:
    from dslc.onnx.functions import name_of, types_of
    from dslc.onnx.importer import group_of
    from dslc.semantics.library import standard

    definition = file.metadata.get(KEY + name, "")
    try:
        types = types_of(definition)
    except DslcError as problem:
        return Missing(name, WhyMissing.DEFINITION, str(problem))
    if types is None or len(types) != len(function.input):
        return Missing(name, WhyMissing.DEFINITION)
    if name_of(function, types) != name:
        return Missing(name, WhyMissing.NAME)
    group = group_of(standard(), function, types, definition) if len(function.node) <= NODES else None
    return group or Missing(name, WhyMissing.FUNCTION)


def _generated(file: Said, name: str, function: FunctionProto, processor: Processor | None) -> KernelText | Missing:
    from dslc.codegen.text import NotGenerated
    from dslc.semantics.library import standard

    group = _group(file, name, function)
    if isinstance(group, Missing):
        return group
    try:
        text = _own(standard(), group, file.metadata.get(VARIANT + name, ""), processor)
    except NotGenerated as problem:
        return Missing(name, WhyMissing.GENERATED, str(problem))
    except Exception as problem:
        # a mistake of the generator: the model runs all the same
        return Missing(name, WhyMissing.GENERATED, f"{type(problem).__name__}: {problem}"[:300], lasting=False)
    given, made = (value.type for value in (*group.inputs, *group.outputs)), (*text.inputs, *text.outputs)
    counts = len(text.inputs) == len(group.inputs) and len(text.outputs) == len(group.outputs)
    same = counts and all((a.dtype, a.rank) == (b.dtype, b.rank) for a, b in zip(given, made, strict=True))
    return text if same else Missing(name, WhyMissing.TYPES)


def _own(rules: Rules, group: Graph, variant: str, processor: Processor | None = None) -> KernelText:
    """The kernel of that name, where a variant for the processor has it; else the first one of a form.

    The form is noted beside the name; else it is the first one of all, which promises most.

    Raises:
        NotGenerated: the first one is in a form that rounds otherwise, and whoever wrote the file may have wanted none.
    """
    from dslc.codegen.generate import generate
    from dslc.codegen.text import NotGenerated, Reason
    from dslc.match.forms import ways

    every = ways(rules, group, processor=processor)
    first = generate(rules, *every[0])
    variant, _, form = variant.partition(" ")
    if variant in ("", first.name):
        return first
    rounded = [(graph, replace(one, contract=False)) for graph, one in every]
    others = (generate(rules, graph, one) for graph, one in (*every[1:], *rounded))
    found = next((text for text in others if text.name == variant), None)
    if not found and form:
        # the file was written on another processor
        found = next((generate(rules, graph, one) for graph, one in every if one.form == form), None)
    if not found and every[0][1].form:
        raise NotGenerated(Reason.FORM, f"no variant is {variant} any more")
    return found or first


# ---- what was found out is kept ------------------------------------------------------------------------------------


def _entries(file: Said, folder: str | Path | None, processor: Processor | None) -> list[Path]:
    """Places of the record of a file's library, for a processor and this version of the generator."""
    from dslc.codegen.host.library import ABI, HOST, library_folders
    from dslc.codegen.host.processor import processor as wanted

    parts = [file.digest, (processor or wanted()).identity, __version__, str(ABI), str(HOST), generator()]
    name = f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:24]}.json"
    return [place / name for place in library_folders(folder)]


@cache
def generator() -> str:
    """A digest of the generator: another one may make other kernels of the same function."""
    total = hashlib.sha256()
    for package in ("dslc.codegen", "dslc.templates"):
        stack = [resources.files(package)]
        while stack:
            for one in sorted(stack.pop().iterdir(), key=lambda path: path.name):
                if one.is_dir() and one.name != "__pycache__":
                    stack.append(one)
                elif one.name.endswith((".py", ".j2", ".h")):
                    total.update(one.name.encode() + b"\0" + one.read_bytes())
    return total.hexdigest()


def _remember(file: Said, folder: str | Path | None, processor: Processor | None, found: Kernels) -> Kernels:
    """Writes down what was found, where it will be found again."""
    if any(not one.lasting for one in found.missing):
        return found
    entry = _entries(file, folder, processor)[0]
    if found.library:
        entry = found.library.with_name(entry.name)
    says = {
        "library": found.library.name if found.library else None, "names": found.names,
        "missing": [[one.name, one.why.name, one.detail] for one in found.missing],
    }  # fmt: skip
    Store(entry.parent).put_json(entry.name, says)
    return found


def register(options: Any, found: Kernels | None, given: bool = False) -> bool:
    """Gives the library, where there is one, to ONNX Runtime's options; whether it was taken. `given`: the user names its file."""
    from dslc.codegen.host.library import checked

    if found is None or found.library is None:
        return False
    try:
        with checked(found.library, given) as name:
            options.register_custom_ops_library(name)
    except Exception:  # ONNX Runtime raises many kinds, none of them documented
        return False
    return True
