"""Terms over TASO's operators, written by hand."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import pytest

from dslc.generate.terms.inputs import cut_attribute
from dslc.generate.terms.term import Item, Term, TermType, input_term, outputs
from dslc.interpret import check_rule
from dslc.ir.dtype import DType
from dslc.semantics.library import Rules, load
from dslc.syntax import tree as t

MATRIX = TermType(DType.F32, (4, 4))
IMAGE = TermType(DType.F32, (1, 4, 5, 5))
KERNEL = TermType(DType.F32, (4, 4, 3, 3))
SMALL = TermType(DType.F32, (4, 4, 1, 1))


@contextlib.contextmanager
def unattacked() -> Iterator[None]:
    """Generate without the search for rare differences, half of the time and a matter of tests/interpret."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check_rule, "differing", lambda *_: None)
        yield


@functools.cache
def taso() -> Rules:
    return load("taso")


def matrices(count: int = 5) -> list[Term]:
    return [input_term(k, MATRIX) for k in range(count)]


def op(name: str, *args: Term, output: int = 0, **attrs: Any) -> Term:
    """`op("concat", A, B, axis=1)`; attributes that are not given have their defaults."""
    rules = taso()
    operator = rules.operators[f"taso.{name}"]
    cut = cut_attribute(rules, operator)
    full = []
    for attr in operator.attrs:
        if attr.name == cut:
            continue
        if attr.name in attrs:
            full.append((attr.name, attrs[attr.name]))
        elif isinstance(attr.default, t.Int):
            full.append((attr.name, (attr.default.value,) * 2 if attr.type.dims else attr.default.value))
        elif isinstance(attr.default, t.Str):
            full.append((attr.name, attr.default.value))
        elif attr.type.name == "dtype":
            full.append((attr.name, DType.F32))
    sized = tuple(
        a.name for a in operator.attrs if a.name != cut and a.default is None and a.type.name in {"int", "ints"}
    )
    item = Item(operator.name, tuple(full), cut, attrs.get("axis") if cut else None, sized)
    return outputs(rules, item, args)[output]


def matmul(a: Term, b: Term) -> Term:
    return op("matmul", a, b)


def add(a: Term, b: Term) -> Term:
    return op("ewadd", a, b)


def halves(term: Term, axis: int) -> tuple[Term, Term]:
    return op("split", term, axis=axis), op("split", term, axis=axis, output=1)
