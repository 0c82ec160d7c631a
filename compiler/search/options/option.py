"""Options once: a field of a frozen dataclass with its help is an option of the command line and an argument in Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, field, fields
from math import isnan
from numbers import Integral, Real
from reprlib import repr as short
from textwrap import wrap
from typing import Any, Literal

from dslc.cost.inputs import Given
from dslc.records import record

#: `joint`: with every substitution, the layouts of what it builds; `after`: when no substitution gains any more; `only`: no
#: substitutions; `none`: substitutions alone
LayoutMode = Literal["joint", "after", "only", "none"]

_KEY = "option"
#: what is taken for an option's type, and its name to a user
_KINDS: Mapping[type, tuple[type, str]] = {
    int: (Integral, "whole number"),
    float: (Real, "number"),
    bool: (bool, "truth value"),
}


@record
class Option:
    """A field as a user sees it.

    `help` is the command line's line, `more` what the documentation in Python says beside it. `read` makes the field's value of what
    was given, texts of a command line or values of Python, and raises ValueError with what is wrong; `shown` is the default as the
    command line shows and reads it; `many` may be repeated there. `python` is False for what the Python interface does not have.
    """

    help: str
    more: str = ""
    type: type = str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    many: bool = False
    shown: Any = None
    read: Callable[[Any], Any] | None = None
    python: bool = True
    #: other names on the command line
    also: tuple[str, ...] = ()
    #: what the option stands for on the command line where no value follows it; None where one has to
    bare: str | None = None
    #: title above this option in help, and above those that follow it
    group: str = ""

    def value(self, given: Any) -> Any:
        """The field's value. Raises ValueError."""
        if self.choices:
            known = {one.lower(): one for one in self.choices}
            if not isinstance(given, str) or given.lower() not in known:
                raise ValueError(f"{short(given)} is none of {', '.join(self.choices)}")
            given = known[given.lower()]
        if isinstance(given, float) and isnan(given):
            raise ValueError("nan is no number that can be compared")
        if self.read is not None:
            try:
                return self.read(given)
            except (TypeError, AttributeError):  # of Python's own values: a number where a path is wanted
                raise ValueError(f"{told(given)} is nothing that this option takes") from None
        return self._number(given) if self.type in _KINDS else given

    def _number(self, given: Any) -> Any:
        """A number, or truth value, of the option's type and within its bounds: the command line's come so, Python's may not."""
        kind, called = _KINDS[self.type]
        truth = type(given).__name__ in ("bool", "bool_")  # Python's or NumPy's
        if truth is not (self.type is bool) or not (truth or isinstance(given, kind)):
            raise ValueError(f"{told(given)} is no {called}")
        number = self.type(given)
        if self.least is not None and number < self.least:
            raise ValueError(f"{short(given)} is less than {self.least:g}")
        if self.most is not None and number > self.most:
            raise ValueError(f"{short(given)} is more than {self.most:g}")
        return number


def option(default: Any, help: str, **rest: Any) -> Any:
    """Return a field that is an option; the other arguments are those of `Option`."""
    return field(default=default, metadata={_KEY: Option(help, **rest)})


def count(default: int | None, help: str, least: int = 1, **rest: Any) -> Any:
    """Return a field that is an option, a number of things."""
    return option(default, help, type=int, metavar="N", least=least, **rest)


def options(of: type) -> Iterator[tuple[Field[Any], Option]]:
    """The fields of a dataclass that are options."""
    for one in fields(of):
        if _KEY in one.metadata:
            yield one, one.metadata[_KEY]


def flag(name: str, option: Option, default: Any) -> str:
    """An option as it is written on the command line: `--strict-floats`; what is on by itself is turned off, `--no-timing`."""
    text = name.replace("_", "-")
    return f"--no-{text}" if option.type is bool and default is True else f"--{text}"


def documented(of: type) -> str:
    """The lines of a docstring about the arguments that are options."""
    lines = []
    for one, about in options(of):
        if about.python:
            help = f"{about.help[0].lower()}{about.help[1:]}"
            # the command line's help is about the flag, which turns off what is on by itself
            said = [about.more] if flag(one.name, about, one.default).startswith("--no-") else [help, about.more]
            text = f"{one.name}: {' '.join(part for part in said if part)}"
            lines += wrap(text, 120, initial_indent=" " * 8, subsequent_indent=" " * 12)
    return "\n".join(lines)


def listed(names: str | Sequence[str]) -> tuple[str, ...]:
    """One name, or several. Raises ValueError where one is no text."""
    found = (names,) if isinstance(names, str) else tuple(names)
    for one in found:
        if not isinstance(one, str):
            raise ValueError(f"{told(one)} is no name")
    return found


def told(value: Any) -> str:
    """A value that is of a wrong type, and its type: `3 (int)`."""
    return f"{short(value)} ({type(value).__name__})"


def read_inputs(given: Any) -> Given:
    """Read inputs as a user gives them: a path, or arrays by the names of inputs, one set or several.

    Arrays become NumPy's, of PyTorch's tensors, of numbers, of whatever becomes an array; a list of arrays is a sequence.

    Raises:
        ValueError: it is neither a path nor arrays by the names of inputs.
    """
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    sets = [given] if isinstance(given, Mapping) else given
    if not isinstance(sets, Sequence) or not sets or not all(isinstance(one, Mapping) and one for one in sets):
        raise ValueError(f"{told(given)} is neither a path nor arrays by the names of inputs")
    return tuple({_name(name): _array(name, value) for name, value in one.items()} for one in sets)


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise ValueError(f"{told(name)} is no name of an input")
    return name


def _array(name: str, value: Any) -> Any:
    import numpy as np

    if isinstance(value, dict):
        return value  # a map is no array
    if (isinstance(value, list | tuple) and not value) or (
        isinstance(value, list | tuple) and hasattr(value[0], "shape")
    ):
        return [_array(f"{name}[{k}]", one) for k, one in enumerate(value)]
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as problem:
        raise ValueError(f"the input {name} is no array: {problem}") from None
    if array.dtype.kind in "OMm":
        raise ValueError(f"the input {name} is no array of numbers: {told(value)}")
    return array
