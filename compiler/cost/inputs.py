"""The inputs on which models are compared and timed: a user's, or drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, takewhile
from math import prod
from pathlib import Path
from shlex import quote
from typing import Any, TypeAlias
from zipfile import BadZipFile

from dslc.errors import Diagnostic, DslcError, error
from dslc.records import record

#: inputs of a user: an `.npz` file or a folder of them, or arrays by the names of inputs, one set or several
Given: TypeAlias = str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]]


DRAWS = 3  #: draws on which outputs are compared
SIZES: tuple[int, ...] = (8, 64, 224, 1)  #: sizes to try for dimensions that nothing fixes
#: further sizes of those, on which results are compared: below a vector, and an odd one beyond some of them
OTHERS: tuple[int, ...] = (3, 101)
EDGE = 2.0**-4  #: part of the largest element by which results may be off where inputs are at the ends of their type
ELEMENTS = 1 << 16  #: elements of inputs up to which they are drawn at other sizes, or twice as many as there are


@record
class Special:
    """Inputs on which a model may well fail: by how much results may be off for them, and at which other sizes they are."""

    feeds: Mapping[str, Any]
    tolerance: float | None = None
    sizes: str = ""


@record
class Inputs:
    """Several sets of inputs, and what had to be assumed for them; `special`: further ones; `tolerances`: of the last feeds."""

    feeds: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()
    special: tuple[Special, ...] = ()
    tolerances: tuple[float | None, ...] = ()
    #: other sizes, at which the model ran
    at: tuple[str, ...] = ()

    @property
    def ordinary(self) -> int:
        """Number of ordinary feeds, which come first."""
        return len(self.feeds) - len(self.tolerances)

    def tolerance(self, k: int) -> float | None:
        """By how much results may be off for one of the feeds, where that is no question of their type."""
        return self.tolerances[k - self.ordinary] if k >= self.ordinary else None

    def more(self, special: Special) -> Inputs:
        """The same with further ones, on which the model did not fail."""
        at = (*self.at, special.sizes) if special.sizes else self.at
        return replace(
            self, feeds=(*self.feeds, special.feeds), at=at, tolerances=(*self.tolerances, special.tolerance)
        )


def given_inputs(given: Given, model: Any) -> Inputs:
    """The arrays of an `.npz` file, or of every `.npz` file of a folder; or arrays by the names of inputs.

    Raises:
        DslcError: E0902 for what cannot be read, E0810 for inputs that are missing, unknown or of another type.
    """
    if not isinstance(given, str | Path):
        sets = [given] if isinstance(given, Mapping) else list(given)
        for number, one in enumerate(sets):
            check_inputs(one, model, "the inputs" if len(sets) == 1 else f"inputs[{number}]")
        return Inputs(tuple(sets))
    import numpy as np

    place = Path(given)
    files = sorted(place.glob("*.npz")) if place.is_dir() else [place]
    if not files:
        raise error("E0902", f"{place} has no .npz file", path=str(place))
    feeds = []
    for file in files:
        try:
            with np.load(file, allow_pickle=False) as arrays:
                feeds.append(_joined({name: arrays[name] for name in arrays.files}, model))
        except OSError as problem:
            raise error("E0902", f"cannot read {file}: {problem.strerror or problem}", path=str(file)) from None
        except (ValueError, EOFError, AttributeError, BadZipFile):
            hint = "`numpy.savez(FILE, NAME=array, ...)` writes one, with an array for each input"
            raise error("E0902", f"{file} is not a readable .npz file", path=str(file), hint=hint) from None
        check_inputs(feeds[-1], model, str(file))
    return Inputs(tuple(feeds))


def identity_of(sets: Sequence[Mapping[str, Any]]) -> str:
    """A hash of all that sets of inputs hold: a model may take any time on other numbers of the same shapes."""
    total = hashlib.sha256()
    for one in sets:
        for name in sorted(one):
            total.update(f"\0{name}".encode())
            _add(total, one[name])
        total.update(b";")
    return total.hexdigest()


def _joined(arrays: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """The arrays of a file: `name.0`, `name.1`, ... are those of the sequence `name`."""
    from dslc.onnx.inputs import sequences

    out = dict(arrays)
    for name in sequences(model):
        numbered = list(takewhile(lambda one: one in arrays, (f"{name}.{k}" for k in count())))
        if numbered and name not in arrays:
            out[name] = [out.pop(one) for one in numbered]
    return out


def _add(total: hashlib._Hash, value: Any) -> None:
    """Adds an input's elements; a sequence has several tensors, or none."""
    if isinstance(value, list | tuple):
        total.update(f"[{len(value)}]".encode())
        for part in value:
            _add(total, part)
    elif hasattr(value, "tobytes"):
        # the bytes of objects are only where they lie
        total.update(f":{value.dtype}:{value.shape}:".encode())
        total.update(repr(value.tolist()).encode() if value.dtype.hasobject else value.tobytes())
    else:
        total.update(repr(value).encode())


def check_inputs(feeds: Mapping[str, Any], model: Any, path: str, hint: str = "") -> None:
    """Raise DslcError E0810 where arrays are no inputs of a model; `path` names what is wrong."""
    from dslc.onnx.inputs import sequences, wanted_inputs

    findings: list[Diagnostic] = []

    def say(words: str) -> None:
        findings.append(Diagnostic("E0810", words, path=path, hint=hint))

    wanted, listed = wanted_inputs(model), sequences(model)
    for name, (dtype, shape) in wanted.items():
        if name not in feeds:
            say(f"the input `{name}` is missing")
            continue
        array = feeds[name]
        if (name in listed) != isinstance(array, list):
            what = "a sequence: a list, or `name.0`, `name.1`, ... of a file" if name in listed else "no sequence"
            say(f"the input `{name}` is {what}")
        elif (
            name in listed
            and (wrong := next((one.dtype for one in array if one.dtype != listed[name]), None)) is not None
        ):
            say(f"the input `{name}` has tensors of type {wrong}, not {listed[name]}")
        elif dtype is not None and array.dtype != dtype:
            say(f"the input `{name}` has type {array.dtype}, not {dtype}")
        elif shape is not None and not _fits(array.shape, shape):
            text = ", ".join("?" if size is None else str(size) for size in shape)
            say(f"the input `{name}` has shape {list(array.shape)}, not [{text}]")
    for name in feeds.keys() - wanted.keys():
        say(f"the model has no input `{name}`")
    if findings:
        raise DslcError(findings)


def _fits(shape: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(shape) == len(wanted) and all(w is None or s == w for s, w in zip(shape, wanted, strict=True))


def tried_inputs(
    model: Any, bind: Mapping[str, int], given: Given | None = None, draws: int = DRAWS
) -> Iterator[Inputs]:
    """Inputs to try in turn until a model runs on them.

    Those that are given, or drawn ones, at one size after the other where nothing fixes sizes. The notes name what was
    assumed.

    Raises:
        DslcError: as `given_inputs` and `drawn_inputs`.
    """
    if given is not None:
        yield given_inputs(given, model)
        return
    for size in SIZES:
        inputs = drawn_inputs(model, bind, size, draws)
        yield replace(inputs, special=(*special_inputs(model, bind, size), *inputs_at_other_sizes(model, bind, size)))
        if not inputs.notes:
            return


def drawn_inputs(model: Any, bind: Mapping[str, int], other: int = 8, draws: int = DRAWS) -> Inputs:
    """Seeded random inputs that are valid for the model.

    Raises:
        DslcError: E0810 where an input is neither a tensor nor a sequence of them: such inputs must be given.
    """
    from dslc.onnx.inputs import draw, input_specs

    specs, assumed, strange = input_specs(model, bind, other)
    if strange:
        hint = "give representative inputs from Python"
        raise error("E0810", f"the input `{strange[0]}` is neither a tensor nor a sequence", hint=hint)
    notes = [
        f"{one.name} was assumed to be {one.size}; set it with, say, --bind {quote(f'{one.name}=16')}"
        for one in assumed
    ]
    return Inputs(tuple(draw(specs, seed) for seed in range(draws)), tuple(notes))


def special_inputs(model: Any, bind: Mapping[str, int], other: int = 8) -> tuple[Special, ...]:
    """Zeros, integers of the whole range of their types.

    And floating-point numbers at the ends of theirs, for the inputs that are only numbers; none where there are no
    such.

    The model may fail on them, or give infinities: then they say nothing about a rewritten one.
    """
    from dslc.onnx.inputs import KINDS, input_specs, only_numbers, special

    specs, _, strange = input_specs(model, bind, other)
    if strange:
        return ()
    plain = only_numbers(model)
    drawn = ((kind, special(model, specs, kind, keep=frozenset(bind), plain=plain)) for kind in KINDS)
    return tuple(
        Special(feeds, EDGE if kind in {"edges", "logarithms"} else None) for kind, feeds in drawn if feeds is not None
    )


def inputs_at_other_sizes(model: Any, bind: Mapping[str, int], other: int = 8) -> Iterator[Special]:
    """Inputs with other sizes where the model leaves sizes open; the model may fail on them."""
    from dslc.onnx.inputs import draw, input_specs, open_sizes

    specs, _, strange = input_specs(model, bind, other)
    if strange:
        return
    count = sum(prod(spec.shape) for spec in specs)
    for sizes in other_sizes(open_sizes(model, bind, specs)):
        found = input_specs(model, {**bind, **sizes}, other)[0]
        if sum(prod(spec.shape) for spec in found) <= max(2 * count, ELEMENTS):
            yield Special(draw(found, 1), sizes=", ".join(f"{name} = {size}" for name, size in sizes.items()))


def other_sizes(known: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Other numbers for sizes: two that differ from each other, in turn, and one more than each that is known."""
    if known:
        for turn in range(len(OTHERS)):
            yield {name: OTHERS[(turn + k) % len(OTHERS)] for k, name in enumerate(known)}
        yield {name: size + 1 for name, size in known.items()}
