"""Attributes of a call of the language as parameters of an operator of the files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from dslc.errors import Span
from dslc.foreign.counterparts import ACTIVATIONS, NORMS, OPEN, POOLS, REDUCTIONS
from dslc.foreign.rule import Parameter
from dslc.syntax import tree as t

_MODES = {name or "none": number for number, name in ACTIVATIONS.items()}
# what a reading writes where the file names no epsilon
_EPSILON = 1e-5


class InexpressibleCall(Exception):
    """What the other formats cannot say, and where it stands."""

    def __init__(self, what: str, span: Span | None = None) -> None:
        super().__init__(what)
        self.span = span


def parameters(
    call: t.Call, kind: str, name: str, attrs: Mapping[str, t.Expr], rank: int | None, form: str
) -> Iterator[tuple[str, Parameter]]:
    """In the order in which TASO's generator writes them; kernels of any size are -1.

    Args:
        name: the operator's full name in the language.
        rank: of the first operand whose rank is known.
        form: whose format it is for.

    Raises:
        Inexpressible: an attribute has no place in the format, or no number that could stand there.
    """
    if kind == "conv2d" and all(isinstance(attrs.get(key), t.Name) for key in ("stride", "padding")):
        attrs = {key: value for key, value in attrs.items() if key not in {"stride", "padding"}}
        opened = True
    else:
        opened = call.rest is not None
    if opened and (attrs.keys() - {"activation"} or not (kind in ("conv2d", "leakyrelu") or kind in OPEN)):
        raise InexpressibleCall("attributes that are any", call.span)
    if kind in POOLS:
        yield "op_type", 6 if kind == "pool2d_max" else 7
    if kind in {"conv2d", "enlarge", "constant_iconv", "constant_pool", *POOLS} and not opened:
        sizes = attrs.get("kernel", attrs.get("size"))
        elements: tuple[t.Expr | None, ...] = sizes.elements if isinstance(sizes, t.ListExpr) else (None, None)
        for key, size in zip(("kernel_h", "kernel_w"), elements, strict=False):
            yield key, size.value if isinstance(size, t.Int) else -1
    if kind == "conv2d" and opened and form != "flexflow":
        raise InexpressibleCall("strides and padding that are any, which only FlexFlow has", call.span)
    if kind in {"conv2d", *POOLS} and not opened:
        stride = _integers(attrs.get("stride"), 2, 1, call)
        yield "stride_h", stride[0]
        yield "stride_w", stride[1]
        yield "pad", {"same": 0, "valid": 1}[_word(attrs.get("padding"), ("same", "valid"), "same", call)]
    if kind in {"conv2d", "matmul", "linear", *POOLS}:
        yield "acti", _MODES[_word(attrs.get("activation"), tuple(_MODES), "none", call)]
    if kind in {"concat", "transpose"}:
        yield from _of_rank(call, kind, name, attrs, rank, form)
    elif kind == "split":
        sizes = attrs.get("sizes")
        yield "num_outputs", len(sizes.elements) if isinstance(sizes, t.ListExpr) else 2
        yield "axis", _integers(attrs.get("axis"), 1, None, call)[0]
    elif kind in ("replicate", "reduce"):
        yield from ((key, _integers(attrs.get(key), 1, None, call)[0]) for key in ("axis", "degree"))
    elif kind == "merge_gconv":
        yield "merge_gconv_count", _integers(attrs.get("count"), 1, None, call)[0]
    elif kind in ("squeeze", "unsqueeze") or kind in REDUCTIONS:
        yield from _along(call, kind, attrs)
    elif kind == "reshape":
        yield from _shape(attrs.get("shape"), form)
    elif kind in NORMS:
        epsilon = attrs.get("epsilon")
        if not isinstance(epsilon, t.Name | None) and not (isinstance(epsilon, t.Float) and epsilon.value == _EPSILON):
            raise InexpressibleCall("an epsilon, which the format has no place for", epsilon.span)


def _of_rank(
    call: t.Call, kind: str, name: str, attrs: Mapping[str, t.Expr], rank: int | None, form: str
) -> Iterator[tuple[str, Parameter]]:
    """TENSAT's older text has concatenations of any rank."""
    if name == "taso.transpose":
        rank = 2
    if kind == "concat":
        yield "num_inputs", len(call.args)
        yield "axis", _integers(attrs.get("axis"), 1, None, call)[0]
    if rank is None and kind == "concat" and form == "tensat":
        return
    if rank is None:
        raise InexpressibleCall("a tensor of any rank: the format wants the rank that an axis belongs to", call.span)
    yield "numdim", rank
    if kind == "transpose":
        order = [1, 0] if name == "taso.transpose" else _integers(attrs.get("perm"), rank, None, call)
        value = 0
        for axis in order:
            value = value * rank + axis
        yield "perm", value


def _along(call: t.Call, kind: str, attrs: Mapping[str, t.Expr]) -> Iterator[tuple[str, Parameter]]:
    if "last" in attrs:
        raise InexpressibleCall("the attribute `last`", call.span)
    axes = attrs.get("axes", attrs.get("axis"))
    numbers = _integers(axes, len(axes.elements) if isinstance(axes, t.ListExpr) else 1, None, call)
    yield "axes", numbers[0] if len(numbers) == 1 else "_".join(map(str, numbers))
    if kind in REDUCTIONS:
        keep = attrs.get("keepdims")
        if keep is not None and not (isinstance(keep, t.Name) and keep.id in ("true", "false")):
            raise InexpressibleCall("an attribute that is no constant", keep.span)
        yield "keep_dims", int(not (isinstance(keep, t.Name) and keep.id == "false"))


def _shape(shape: t.Expr | None, form: str) -> Iterator[tuple[str, Parameter]]:
    """Numbers, or for TENSAT a name that stands for the shape; the other formats leave it out."""
    if isinstance(shape, t.ListExpr) and shape.elements and all(isinstance(each, t.Int) for each in shape.elements):
        yield "shape", "_".join(each.span.text for each in shape.elements)
    elif form == "tensat" and shape is not None:
        yield "shape", "?shape_" + "_".join(re.findall(r"\w+", shape.span.text))


def _integers(expr: t.Expr | None, count: int, default: int | None, call: t.Call) -> list[int]:
    if expr is None and default is not None:
        return [default] * count
    values = expr.elements if isinstance(expr, t.ListExpr) else (expr,) * count
    if len(values) != count or not all(isinstance(value, t.Int) for value in values):
        raise InexpressibleCall("an attribute that is no number", expr.span if expr is not None else call.span)
    return [value.value for value in values if isinstance(value, t.Int)]


def _word(expr: t.Expr | None, words: tuple[str, ...], default: str, call: t.Call) -> str:
    if expr is None:
        return default
    if not isinstance(expr, t.Str) or expr.value not in words:
        raise InexpressibleCall("an attribute that is no constant", expr.span)
    return expr.value
