"""Trying to break `dslc diff`: random pairs of calls, whose sets of positions are found by computing both with the interpreter.

    python -m benchmarks.attack_diff [--pairs 40] [--seed 0]

Of each pair the boxes must be disjoint and hold exactly the positions that differ in any of a dozen random draws, the share must be
theirs, and PET's boxes must agree where they apply. Pairs of unknown sizes must be called equal exactly where they are at three sizes.
Ends with 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from typing import Any

import numpy as np
from click.testing import CliRunner

from benchmarks.chains import chain
from dslc.api.calls import called_as
from dslc.cli.diff import command
from dslc.errors import DslcError
from dslc.interpret.domain import Redraw
from dslc.interpret.floats import Floats
from dslc.interpret.run import InterpretError, run
from dslc.ir.dtype import DType
from dslc.mutate.problem import shape_of
from dslc.semantics.library import Rules, standard

#: draws of inputs at least, and at most, and sizes that are put in for unknown ones
DRAWS, ATTEMPTS, SIZES = 12, 400, (3, 4, 7)

Pair = tuple[str, str]


def pair(kind: str, rnd: random.Random) -> Pair:
    """Two calls of one kind, at random sizes and attributes."""
    h, w, p, d = rnd.randint(5, 9), rnd.randint(5, 9), rnd.choice((0, 1, 2)), rnd.choice((1, 2, 3))
    dtype = rnd.choice(("f32", "f64"))
    image, same = f"X: {dtype}[1, 4, {h}, {w}]", "pads=[1, 1, 1, 1]"
    match kind:
        case "pads":
            return f"conv({image}, K: {dtype}[2, 4, 3, 3], {same})", (
                f"slice(conv(X, K, pads=[2, 2, 2, 2]), start=[0, 0, {p}, 1], size=[1, 2, {h}, {w}])"
            )
        case "dilated":
            one = f"conv({image}, K: {dtype}[2, 4, 3, 3], pads=[2, 2, 2, 2], dilation=[2, 2])"
            return one, f"conv(X, K, pads=[{d}, {d}, {d}, {d}], dilation=[{d}, {d}])"
        case "strided":
            steps = f"step=[1, 1, {rnd.choice((1, 2))}, {rnd.choice((1, 2))}]"
            one = f"conv(X: {dtype}[1, 2, {2 * h}, {2 * w}], K: {dtype}[3, 2, 2, 2], stride=[2, 2])"
            return one, f"slice(conv(X, K), start=[0, 0, 0, 0], size=[1, 3, {h}, {w}], {steps})"
        case "grouped":
            groups = rnd.choice((2, 4))
            every = ", ".join(["K"] * groups)
            return f"conv({image}, K: {dtype}[4, {4 // groups}, 3, 3], groups={groups}, {same})", (
                f"conv(X, concat({every}, axis=1), {same})" if rnd.random() < 0.5 else
                f"conv(X, transpose(K, perm=[0, 1, 3, 2]), groups={groups}, {same})"
            )  # fmt: skip
        case "pooled":
            k, s, op = rnd.choice((2, 3)), rnd.choice((1, 2)), rnd.choice(("avg_pool", "max_pool"))
            other = "avg_pool_valid" if op == "avg_pool" and rnd.random() < 0.7 else op
            size = f"kernel=[{k}, {k}], stride=[{s}, {s}]"
            return f"{op}({image}, {size}, {same})", f"{other}(X, {size}, {same})"
        case "concatenated":
            at = rnd.randint(1, 7)
            one = f"conv(X: {dtype}[1, 2, 6, 8], K: {dtype}[2, 2, 3, 3], {same})"
            parts = [f"slice(X, start=[0, 0, 0, {a}], size=[1, 2, 6, {b - a}])" for a, b in ((0, at), (at, 8))]
            return one, f"concat({', '.join(f'conv({part}, K, {same})' for part in parts)}, axis=3)"
        case "several outputs":
            a, b = rnd.randint(2, 5), rnd.randint(2, 5)
            one = f"split(X: {dtype}[{a + b}, {a + b}], axis=0, sizes=[{a}, {b}])"
            return (
                one,
                f"split({rnd.choice(('transpose(X, perm=[1, 0])', 'add(X, X)', 'X'))}, axis=0, sizes=[{a}, {b}])",
            )
        case "transposed":
            n, perm = rnd.randint(2, 5), rnd.choice(("2, 1, 0", "0, 2, 1", "1, 2, 0"))
            return f"transpose(X: {dtype}[{n}, {n}, {n}], perm=[0, 2, 1])", f"transpose(X, perm=[{perm}])"
        case "reshaped":
            return f"transpose(X: {dtype}[{h}, {w}], perm=[1, 0])", f"reshape(X, shape=[{w}, {h}])"
        case "products":
            n = rnd.randint(3, 6)
            turned = "transpose(matmul(transpose(B, perm=[1, 0]), transpose(A, perm=[1, 0])), perm=[1, 0])"
            return f"matmul(A: {dtype}[{n}, {n}], B: {dtype}[{n}, {n}])", rnd.choice(
                ("matmul(B, A)", turned, "matmul(A, A)")
            )
        case "padded":
            one = f"relu(pad(X: {dtype}[{h}, {w}], before=[1, 1], after=[1, 0]))"
            sides = rnd.choice(("before=[1, 1], after=[1, 0]", "before=[2, 0], after=[0, 1]"))
            return one, f"pad(relu({rnd.choice(('X', 'neg(X)'))}), {sides})"
        case "integers":
            kind = rnd.choice(("int32", "int64"))
            one = f"mul(X: {kind}[{h}, {w}], Y: {kind}[{w}])"
            return one, rnd.choice(("mul(Y, X)", "add(X, Y)", "mul(X, X)"))
        case "chains":
            return chain(rnd.randrange(1 << 30))
        case _:
            other = rnd.choice(("add(Y, X)", "add(X, X)", "sub(X, neg(Y))", "transpose(add(Y, X), perm=[0, 1])"))
            return f"add(X: {dtype}[N, 4], Y: {dtype}[N, 4])", other


KINDS = (
    "pads", "dilated", "strided", "grouped", "pooled", "concatenated", "several outputs", "transposed", "reshaped", "products",
    "padded", "integers", "chains", "unknown sizes", "chains",
)  # fmt: skip


def said(one: str, other: str, *options: str) -> list[dict[str, Any]]:
    """What `dslc diff` says of each output. Raises DslcError where it refuses."""
    found = CliRunner().invoke(command, [one, other, "--output-format", "json", *options], standalone_mode=False)
    if found.exception is not None:
        raise found.exception
    every = json.loads(found.output)
    return every if isinstance(every, list) else [every]


def differing(rules: Rules, one: str, other: str) -> list[np.ndarray]:
    """The positions of each output that differ in any of some draws."""
    known: dict[str, Any] = {}
    sides = []
    for text in (one, other):
        called = called_as(rules, text, None, {}, known, several=True)
        for name, value in zip(called.names, called.graph.inputs, strict=True):
            known.setdefault(name, value.type)
        sides.append(called)
    rng = np.random.default_rng(0)
    masks: list[np.ndarray] = []
    made, reason = 0, ""
    for attempt in range(ATTEMPTS):
        data: dict[str, Any] = {}
        results = []
        try:
            for called in sides:
                for name, value in zip(called.names, called.graph.inputs, strict=True):
                    if name not in data:
                        data[name] = drawn(value, rng, attempt)
                feeds = {value: data[name] for name, value in zip(called.names, called.graph.inputs, strict=True)}
                results.append(run(rules, called.graph.outputs, feeds, Floats()))
        except (InterpretError, Redraw) as problem:
            reason = str(problem)
            continue
        made += 1
        both = [(np.asarray(a, float), np.asarray(b, float)) for a, b in zip(*results, strict=True)]
        new = [~np.isclose(a, b, 1e-6, 1e-6, equal_nan=True) for a, b in both]
        masks = [old | each for old, each in zip(masks, new, strict=True)] if masks else new
        if made >= DRAWS and (made >= ATTEMPTS // 4 or sum(np.size(each) for each in data.values()) > 4096):
            break
    if not made:
        raise InterpretError(reason)
    return masks


def drawn(value: Any, rng: np.random.Generator, attempt: int) -> np.ndarray:
    """Numbers of any sign, of one sign in turns; integers that may be positions in turns, and such without 0."""
    shape, dtype = shape_of(value), value.type.dtype
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if not dtype.is_float:
        return (
            rng.integers(0, 3, shape)
            if attempt % 2
            else rng.choice([-9, -7, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 8], shape)
        )
    number = rng.standard_normal(shape)
    return number if attempt % 3 == 0 else np.abs(number) if attempt % 3 == 1 else -np.abs(number)


def wrong(found: list[dict[str, Any]], masks: list[np.ndarray]) -> str:
    """What is wrong of what was said; nothing where all is right."""
    if len(found) != len(masks):
        return "another number of outputs"
    for each, mask in zip(found, masks, strict=True):
        boxes = np.zeros(mask.shape, int)
        for box in each["boxes"]:
            boxes[tuple(slice(*ends) for ends in zip(box["start"], box["stop"], box["step"], strict=True))] += 1
        if boxes.max(initial=0) > 1:
            return "boxes overlap"
        if not np.array_equal(boxes > 0, mask) or abs(each["share"] - (mask.mean() if mask.size else 0.0)) > 1e-12:
            return f"{each['share']:.4f} said, {mask.mean():.4f} differ"
        if each["agree"] is False:
            return "PET's boxes do not agree"
    return ""


def attacked(rules: Rules, kind: str, one: str, other: str) -> str:
    """What is wrong of one pair."""
    if kind != "unknown sizes":
        return wrong(said(one, other), differing(rules, one, other))
    (found,) = said(one, other)
    equal = not any(mask.any() for n in SIZES for mask in differing(rules, one.replace("[N,", f"[{n},"), other))
    return (
        ""
        if (found["share"] == 0) is equal
        else f"share {found['share']} for all sizes, {'equal' if equal else 'different'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rules, rnd, count = standard(), random.Random(args.seed), Counter[str]()
    for number in range(args.pairs):
        kind = KINDS[number % len(KINDS)]
        one, other = pair(kind, rnd)
        began = time.process_time()
        try:
            trouble = attacked(rules, kind, one, other)
        except DslcError as refused:
            count["refused"] += 1
            print(f"refused: {kind}: {one} | {other}: {refused}", flush=True)
            continue
        count["wrong" if trouble else "right"] += 1
        if trouble or time.process_time() - began > 10:
            print(f"{trouble or 'slow'}: {kind}: {one} | {other}, {time.process_time() - began:.1f} s", flush=True)
    print(", ".join(f"{number} {what}" for what, number in sorted(count.items())))
    return 1 if count["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
