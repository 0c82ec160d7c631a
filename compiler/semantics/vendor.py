"""Functions of vendors' libraries that `call` names: their arguments, from the binding where it is installed, else from a snapshot."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from importlib import resources
from typing import Any

from dslc.errors import Diagnostic
from dslc.records import record
from dslc.syntax import tree as t


class Kind(Enum):
    """Kind of an argument."""

    INT = "int"
    FLOAT = "float"
    INTS = "ints"
    TENSOR = "tensor"
    WORD = "word"

    @property
    def words(self) -> str:
        return {
            Kind.INT: "a whole number", Kind.FLOAT: "a number", Kind.INTS: "a list of whole numbers",
            Kind.TENSOR: "a tensor of the lowering", Kind.WORD: "a text",
        }[self]  # fmt: skip


@record
class Parameter:
    """An argument of a function. `member` is what of the binding it becomes; `words` are those that it may be."""

    name: str
    kind: Kind
    member: str
    words: tuple[str, ...] = ()
    optional: bool = False


@record
class VendorFunction:
    """A function as a `call` names it. `result` is the argument that is written, `workspace` the bytes that it may use meanwhile."""

    name: str
    module: str
    parameters: tuple[Parameter, ...]
    result: str
    workspace: int = 0

    def parameter(self, name: str) -> Parameter | None:
        return next((one for one in self.parameters if one.name == name), None)


@cache
def functions() -> Mapping[str, VendorFunction]:
    """Every function that a `call` may name, as the snapshot has them."""
    text = resources.files("dslc.rules.targets").joinpath("vendor.json").read_text(encoding="utf-8")
    return {name: _function(name, found) for name, found in json.loads(text)["functions"].items()}


def _function(name: str, found: Mapping[str, Any]) -> VendorFunction:
    parameters = tuple(
        Parameter(key, Kind(one["kind"]), one["member"], tuple(one.get("words", ())), bool(one.get("optional")))
        for key, one in found["parameters"].items()
    )
    return VendorFunction(name, found["module"], parameters, found["result"], int(found.get("workspace", 0)))


@cache
def function_named(name: str) -> VendorFunction | None:
    """A function with the parameters that the installed binding declares, or those of the snapshot; None: no vendor has it."""
    known = functions().get(name)
    return installed(known) or known if known else None


def installed(known: VendorFunction) -> VendorFunction | None:
    """A function as the installed binding declares it.

    A parameter that it has no more is left out, and kinds and words are its own. None where the binding is not
    installed.
    """
    try:
        module = importlib.import_module(known.module)
    except Exception:  # a binding that does not load raises what its libraries do
        return None
    parameters = tuple(found for one in known.parameters if (found := _declared(module, one)))
    return VendorFunction(known.name, known.module, parameters, known.result, known.workspace)


#: what bindings call the types of arguments
_KINDS = {
    "int": Kind.INT, "int64_t": Kind.INT, "uint64_t": Kind.INT, "long long": Kind.INT, "size_t": Kind.INT, "int32_t": Kind.INT,
    "collections.abc.Sequence[typing.SupportsInt]": Kind.INTS, "std::vector<int64_t>": Kind.INTS, "List[int]": Kind.INTS,
}  # fmt: skip


def _declared(module: Any, one: Parameter) -> Parameter | None:
    """A parameter as its binding has it; None where it has none of this name."""
    *path, name = one.member.split(".")
    owner = module
    for part in path:
        owner = getattr(owner, part, None)
    if isinstance(owner, type) and issubclass(owner, Enum):
        return one if name in owner.__members__ else None
    types = dict(_arguments(str(getattr(owner, "__doc__", ""))))
    if name not in types:
        return None
    # words are numbers of an enumeration there; pointers are tensors, or numbers that are read there
    fixed = one.kind in {Kind.WORD, Kind.TENSOR, Kind.FLOAT}
    return Parameter(
        one.name, one.kind if fixed else _KINDS.get(types[name], one.kind), one.member, one.words, one.optional
    )


def _arguments(doc: str) -> Iterator[tuple[str, str]]:
    """Names and types of the arguments that a binding's documentation declares.

    `f(int a, long long b)`, `f(a: int, b: T = x)`, or a line `a (int): ...` for each.
    """
    for line in doc.splitlines():
        listed = re.match(r"\s+(\w+) \(([^)]*)\):", line)
        if listed:
            yield listed.group(1), listed.group(2)
        found = re.match(r"\s*(?:\d+\.\s*)?\w+\((.*)\)(?:\s*->.*)?\s*$", line)
        if not found:
            continue
        for part in _parts(found.group(1)):
            name, colon, type = part.partition(":")
            if colon and name.strip().isidentifier():
                yield name.strip(), type.partition("=")[0].strip()
            else:
                words = part.split()
                if len(words) > 1:
                    yield words[-1], " ".join(words[:-1])


def _parts(text: str) -> Iterator[str]:
    depth, part = 0, ""
    for letter in text:
        depth += (letter in "[(<") - (letter in "])>")
        if letter == "," and not depth:
            yield part.strip()
            part = ""
        else:
            part += letter
    if part.strip():
        yield part.strip()


# ---- what is wrong with a call ------------------------------------------------------------------------------------------


def wrong(call: t.CallVendor, tensors: frozenset[str]) -> Iterator[Diagnostic]:
    """Deviations of a call from its function's declaration; `tensors` are the names of the lowering's tensors."""
    function = function_named(call.function)
    if not function:
        yield Diagnostic(
            "E0704", f"no vendor has a function `{call.function}`", call.span, hint="one of " + ", ".join(functions())
        )
        return
    given: set[str] = set()
    for entry in call.attrs:
        parameter = function.parameter(entry.name)
        if parameter is None:
            yield Diagnostic(
                "E0705", f"`{call.function}` has no argument `{entry.name}`", entry.span,
                hint="it has " + ", ".join(one.name for one in function.parameters),
            )  # fmt: skip
            continue
        if entry.name in given:
            yield Diagnostic("E0705", f"the argument `{entry.name}` is given twice", entry.span)
        given.add(entry.name)
        yield from _misfit(parameter, entry.value, tensors)
    missing = [one.name for one in function.parameters if one.name not in given and not one.optional]
    if missing:
        yield Diagnostic(
            "E0705", f"`{call.function}` also takes {', '.join(f'`{name}`' for name in missing)}", call.span
        )


def _misfit(parameter: Parameter, value: t.Expr, tensors: frozenset[str]) -> Iterator[Diagnostic]:
    if isinstance(value, t.Conditional):
        yield from _misfit(parameter, value.then, tensors)
        yield from _misfit(parameter, value.otherwise, tensors)
        return
    if isinstance(value, t.Str):
        if parameter.kind is not Kind.WORD:
            yield Diagnostic("E0706", f"`{parameter.name}` is {parameter.kind.words}, not a text", value.span)
        elif parameter.words and value.value not in parameter.words:
            words = "one of " + ", ".join(parameter.words)
            yield Diagnostic("E0706", f'`{parameter.name}` is never "{value.value}"', value.span, hint=words)
        return
    tensor = value.bare in tensors
    number, listed = isinstance(value, t.Int | t.Float), isinstance(value, t.ListExpr)
    # what a name stands for is known when it is evaluated
    fits = {
        Kind.TENSOR: tensor, Kind.WORD: not (tensor or number or listed), Kind.INTS: not (tensor or number),
        Kind.INT: not (tensor or listed or isinstance(value, t.Float)), Kind.FLOAT: not (tensor or listed),
    }  # fmt: skip
    if not fits[parameter.kind]:
        yield Diagnostic("E0706", f"`{parameter.name}` is {parameter.kind.words}", value.span)
