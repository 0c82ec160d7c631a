"""The inputs on which models are compared and timed: a user's, or drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, TypeAlias
from zipfile import BadZipFile

from dslc.errors import Diagnostic, DslcError, error

#: inputs of a user: an `.npz` file or a folder of them, or arrays by the names of inputs, one set or several
Given: TypeAlias = str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Tuning:
    """The inputs that are drawn.

    Attributes:
        draws: draws on which outputs are compared.
        sizes: sizes to try for dimensions that nothing fixes.
    """

    draws: int = 3
    sizes: tuple[int, ...] = (8, 64, 224, 1)


_TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class Inputs:
    """Several sets of inputs, and what had to be assumed for them; `special`: further ones, on which a model may well fail."""

    feeds: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()
    special: tuple[Mapping[str, Any], ...] = ()


def given_inputs(given: Given, model: Any) -> Inputs:
    """The arrays of an `.npz` file, or of every `.npz` file of a folder; or arrays by the names of inputs.

    Raises:
        DslcError: E0902 for what cannot be read, E0810 for inputs that are missing, unknown or of another type.
    """
    if not isinstance(given, str | Path):
        sets = [given] if isinstance(given, Mapping) else list(given)
        for number, one in enumerate(sets):
            _check(one, model, "the inputs" if len(sets) == 1 else f"inputs[{number}]")
        return Inputs(tuple(sets))
    import numpy as np

    place = Path(given)
    files = sorted(place.glob("*.npz")) if place.is_dir() else [place]
    if not files:
        raise error("E0902", "no .npz file in this folder", path=str(place))
    feeds = []
    for file in files:
        try:
            with np.load(file, allow_pickle=False) as arrays:
                feeds.append({name: arrays[name] for name in arrays.files})
        except OSError as problem:
            raise error("E0902", f"not a readable .npz file: {problem.strerror or problem}", path=str(file)) from None
        except (ValueError, EOFError, AttributeError, BadZipFile):
            hint = "`numpy.savez(FILE, NAME=array, ...)` writes one, with an array for each input"
            raise error("E0902", "not a readable .npz file", path=str(file), hint=hint) from None
        _check(feeds[-1], model, str(file))
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


def _check(feeds: Mapping[str, Any], model: Any, path: str) -> None:
    from dslc.onnx.inputs import wanted_inputs

    findings = []
    wanted = wanted_inputs(model)
    for name, (dtype, shape) in wanted.items():
        if name not in feeds:
            findings.append(Diagnostic("E0810", f"the input `{name}` is missing", path=path))
            continue
        array = feeds[name]
        if dtype is not None and array.dtype != dtype:
            findings.append(Diagnostic("E0810", f"the input `{name}` has type {array.dtype}, not {dtype}", path=path))
        elif shape is not None and not _fits(array.shape, shape):
            text = ", ".join("?" if size is None else str(size) for size in shape)
            findings.append(
                Diagnostic("E0810", f"the input `{name}` has shape {list(array.shape)}, not [{text}]", path=path)
            )
    for name in feeds.keys() - wanted.keys():
        findings.append(Diagnostic("E0810", f"the model has no input `{name}`", path=path))
    if findings:
        raise DslcError(findings)


def _fits(shape: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(shape) == len(wanted) and all(w is None or s == w for s, w in zip(shape, wanted, strict=True))


def tried_inputs(
    model: Any, bind: Mapping[str, int], given: Given | None = None, draws: int = _TUNING.draws
) -> Iterator[Inputs]:
    """Inputs to try in turn until a model runs on them: those that are given, or drawn ones, at one size after the other where nothing
    fixes sizes. The notes name what was assumed.

    Raises:
        DslcError: as `given_inputs` and `drawn_inputs`.
    """
    if given is not None:
        yield given_inputs(given, model)
        return
    for size in _TUNING.sizes:
        inputs = drawn_inputs(model, bind, size, draws)
        yield replace(inputs, special=special_inputs(model, bind, size))
        if not inputs.notes:
            return


def drawn_inputs(model: Any, bind: Mapping[str, int], other: int = 8, draws: int = _TUNING.draws) -> Inputs:
    """Seeded random inputs that are valid for the model.

    Raises:
        DslcError: E0810 where an input is no tensor: such inputs must be given.
    """
    from dslc.onnx.inputs import draw, input_specs

    specs, assumed, strange = input_specs(model, bind, other)
    if strange:
        raise error("E0810", f"the input `{strange[0]}` is no tensor", hint="give representative inputs with --inputs")
    notes = [f"the size {one.name} was taken as {one.size}; --bind {quote(f'{one.name}=N')} sets it" for one in assumed]
    return Inputs(tuple(draw(specs, seed) for seed in range(draws)), tuple(notes))


def special_inputs(model: Any, bind: Mapping[str, int], other: int = 8) -> tuple[Mapping[str, Any], ...]:
    """Zeros, and integers of the whole range of their types, for the inputs that are only numbers; none where there are no such.

    The model may fail on them, or give infinities: then they say nothing about a rewritten one.
    """
    from dslc.onnx.inputs import input_specs
    from dslc.onnx.numbers import KINDS, only_numbers, special

    specs, _, strange = input_specs(model, bind, other)
    if strange:
        return ()
    plain = only_numbers(model)
    drawn = (special(model, specs, kind, keep=frozenset(bind), plain=plain) for kind in KINDS)
    return tuple(feeds for feeds in drawn if feeds is not None)
